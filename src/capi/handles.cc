// SPDX-License-Identifier: MIT
// The C interface: versions, executors, and buffers coming and going.
#include <memory>

#include "hologram/device.h"
#include "hologram/executor.h"
#include "hologram/version.h"
#include "src/capi/call.h"

namespace hologram::capi {
namespace {

uint64_t add_executor(std::shared_ptr<Executor> executor) {
  auto object = std::make_unique<std::shared_ptr<Executor>>(std::move(executor));
  Entry entry;
  entry.object = object.get();
  entry.device = &(*object)->device();
  entry.kind = Kind::kExecutor;
  const uint64_t handle = Registry::get().add(entry);
  static_cast<void>(object.release());
  return handle;
}

Executor& executor_of(const Use& use) {
  return **static_cast<std::shared_ptr<Executor>*>(use.entry().object);
}

void remove(uint64_t handle, Kind kind, const char* argument) {
  if (!Registry::get().remove(handle, kind)) refuse_handle(handle, kind, argument);
}

Dtype checked_dtype(int dtype) {
  if (dtype < 0 || dtype >= kStoredDtypeCount) {
    fail(ErrorKind::kInvalidArgument, "dtype is ", dtype, "; pass a hologram_dtype, 0 to ",
         kStoredDtypeCount - 1);
  }
  return static_cast<Dtype>(dtype);
}

}  // namespace
}  // namespace hologram::capi

using namespace hologram;        // NOLINT: definitions of C functions stand outside
using namespace hologram::capi;  // NOLINT

int hologram_get_version(const char** version) {
  return guarded("get_version",
                 [&] { *not_null(version, "version", "a const char*") = hologram::version(); });
}

int hologram_new_executor(uint64_t* ex) {
  return guarded("new_executor", [&] {
    not_null(ex, "ex", "a uint64_t");
    *ex = add_executor(Executor::with_backend(BackendType::kCpu));
  });
}

int hologram_new_executor_with_backend(const char* name, uint64_t* ex) {
  return guarded("new_executor_with_backend", [&] {
    not_null(name, "name", "a backend's name");
    not_null(ex, "ex", "a uint64_t");
    *ex = add_executor(Executor::with_backend(parse_backend(name)));
  });
}

int hologram_new_executor_auto(uint64_t* ex) {
  return guarded("new_executor_auto", [&] {
    not_null(ex, "ex", "a uint64_t");
    *ex = add_executor(Executor::automatic());
  });
}

int hologram_executor_cleanup(uint64_t ex) {
  return guarded("executor_cleanup", [&] { remove(ex, Kind::kExecutor, "ex"); });
}

int hologram_executor_synchronize(uint64_t ex) {
  return guarded("executor_synchronize", [&] {
    const Use used = use(ex, Kind::kExecutor, "ex");
    executor_of(used).synchronize();
  });
}

int hologram_executor_backend(uint64_t ex, const char** name) {
  return guarded("executor_backend", [&] {
    const Device& device = executor_device(ex);
    *not_null(name, "name", "a const char*") = backend_name(device.kind());
  });
}

int hologram_executor_allocate_buffer(uint64_t ex, int64_t n, int dtype, uint64_t* buf) {
  return guarded("executor_allocate_buffer", [&] {
    const Use used = use(ex, Kind::kExecutor, "ex");
    not_null(buf, "buf", "a uint64_t");
    const Dtype type = checked_dtype(dtype);
    check_count("n", n);
    *buf = add_buffer(executor_of(used).allocate(n, type), type, 0, n, /*read_only=*/false);
  });
}

int hologram_buffer_cleanup(uint64_t buf) {
  return guarded("buffer_cleanup", [&] { remove(buf, Kind::kBuffer, "buf"); });
}

int hologram_buffer_length(uint64_t buf, int64_t* n) {
  return guarded("buffer_length", [&] {
    const BufferUse used(buf, "buf");
    *not_null(n, "n", "an int64_t") = used.length();
  });
}

int hologram_buffer_dtype(uint64_t buf, int* dtype) {
  return guarded("buffer_dtype", [&] {
    const BufferUse used(buf, "buf");
    *not_null(dtype, "dtype", "an int") = static_cast<int>(used.dtype());
  });
}

int hologram_clear_all_registries(void) {
  return guarded("clear_all_registries", [] { Registry::get().clear(); });
}
