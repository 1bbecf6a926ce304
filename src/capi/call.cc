// SPDX-License-Identifier: MIT
// The message about a call that was refused, and where the thread finds it.
#include "src/capi/call.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "hologram/device.h"

namespace hologram::capi {
namespace {

constexpr size_t kMessageBytes = 1024;

// The last error of a thread. On the heap, because a library that is loaded late has little space
// for thread-local variables; kept until the thread ends.
struct LastError {
  const char* shown = "";
  char* owned = nullptr;

  LastError() = default;
  LastError(const LastError&) = delete;
  ~LastError() {
    shown = "";
    std::free(std::exchange(owned, nullptr));
  }
};
thread_local LastError t_last;

void keep_message(const char* function, const char* text) noexcept {
  LastError& last = t_last;
  if (last.owned == nullptr) last.owned = static_cast<char*>(std::malloc(kMessageBytes));
  if (last.owned == nullptr) {
    last.shown = "out of memory, also for what there is to say";
    return;
  }
  // what() of the layers below may begin with the same name.
  const size_t length = std::strlen(function);
  const bool named = std::strncmp(text, function, length) == 0 && text[length] == ':';
  std::snprintf(last.owned, kMessageBytes, "%s%s%s", named ? "" : function, named ? "" : ": ",
                text);
  last.shown = last.owned;
}

const char* kind_text(Kind kind) {
  switch (kind) {
    case Kind::kExecutor:
      return "an executor";
    case Kind::kBuffer:
      return "a buffer";
    case Kind::kTensor:
      return "a tensor";
    case Kind::kFree:
      break;
  }
  return "nothing";
}

const char* maker_of(Kind kind) {
  switch (kind) {
    case Kind::kExecutor:
      return "new_executor";
    case Kind::kBuffer:
      return "executor_allocate_buffer";
    default:
      return "tensor_from_dlpack or tensor_from_buffer";
  }
}

}  // namespace

int keep_error(const char* function) noexcept {
  try {
    throw;
  } catch (const Error& error) {
    keep_message(function, error.what());
    return 1 + static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    keep_message(function, "out of memory; free some buffers");
    return HOLOGRAM_OUT_OF_MEMORY;
  } catch (const std::length_error&) {
    keep_message(function, "out of memory: more elements than any machine holds");
    return HOLOGRAM_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    keep_message(function, error.what());
    return HOLOGRAM_INTERNAL;
  } catch (...) {
    keep_message(function, "something was thrown that is no exception");
    return HOLOGRAM_INTERNAL;
  }
}

void refuse_handle(uint64_t handle, Kind wanted, const char* argument) {
  char number[24];
  std::snprintf(number, sizeof number, "0x%llx", static_cast<unsigned long long>(handle));
  if (handle == 0) {
    fail(ErrorKind::kInvalidArgument, argument, ": the handle is 0; pass one from ",
         maker_of(wanted));
  }
  const auto kind = static_cast<Kind>(handle >> 60);
  const bool known = kind > Kind::kFree && kind <= Kind::kTensor;
  if (known && Registry::get().was_freed(handle)) {
    fail(ErrorKind::kState, argument, ": handle ", number, " was ", kind_text(kind),
         " and has been freed");
  }
  if (known && kind != wanted && Registry::get().is_live(handle)) {
    fail(ErrorKind::kInvalidArgument, argument, ": handle ", number, " is ", kind_text(kind),
         ", not ", kind_text(wanted), "; pass one from ", maker_of(wanted));
  }
  fail(ErrorKind::kInvalidArgument, argument, ": ", number, " is no handle of this process; pass ",
       "one from ", maker_of(wanted));
}

void refuse_null(const char* argument, const char* wanted) {
  fail(ErrorKind::kInvalidArgument, argument, ": the pointer is null; pass the address of ",
       wanted);
}

void refuse_length(const char* argument, const char* name, int64_t n, int64_t length) {
  check_count(name, n);
  fail(ErrorKind::kInvalidArgument, argument, ": ", name, " is ", n, " but the buffer has ", length,
       length == 1 ? " element" : " elements");
}

void refuse_dtype(const char* argument, Dtype dtype, std::string_view wanted) {
  fail(ErrorKind::kTypeMismatch, argument, ": the buffer holds ", dtype_name(dtype), ", not ",
       wanted);
}

void refuse_read_only(const char* argument) {
  fail(ErrorKind::kInvalidArgument, argument,
       ": the memory is lent read-only and would be written; copy it to a buffer first");
}

void refuse_device(const char* argument, const Device& device, const Device& wanted) {
  fail(ErrorKind::kInvalidArgument, argument, ": the buffer is on ", device.name(), ":",
       device.index(), " and the executor runs on ", wanted.name(), ":", wanted.index());
}

void refuse_for(const Error& error, std::initializer_list<const BufferUse*> buffers) {
  std::string names;
  for (const BufferUse* used : buffers) {
    if (used == nullptr) continue;  // a number
    if (!names.empty()) names += ", ";
    names += used->argument();
    names += " of ";
    names += dtype_name(used->dtype());
  }
  fail(error.kind(), names, ": ", error.what());
}

uint64_t add_buffer(BufferRef buffer, Dtype dtype, int64_t offset, int64_t length, bool read_only) {
  Entry entry{buffer.get(), &buffer->device(), offset, length, dtype, read_only, Kind::kBuffer};
  const uint64_t handle = Registry::get().add(entry);
  static_cast<void>(buffer.detach());
  return handle;
}

uint64_t add_tensor(Tensor tensor, bool read_only) {
  auto object = std::make_unique<Tensor>(std::move(tensor));
  Entry entry;
  entry.object = object.get();
  entry.device = &object->buffer()->device();
  entry.read_only = read_only;
  entry.kind = Kind::kTensor;
  const uint64_t handle = Registry::get().add(entry);
  static_cast<void>(object.release());
  return handle;
}

}  // namespace hologram::capi

const char* hologram_last_error(void) { return hologram::capi::t_last.shown; }

const char* hologram_status_name(int status) {
  if (status == HOLOGRAM_OK) return "ok";
  if (status < 0 || status > HOLOGRAM_INTERNAL) return "unknown status";
  return hologram::error_kind_name(static_cast<hologram::ErrorKind>(status - 1));
}

const char* hologram_dtype_name(int dtype) {
  if (dtype < 0 || dtype >= hologram::kStoredDtypeCount) return "unknown dtype";
  return hologram::dtype_name(static_cast<hologram::Dtype>(dtype)).data();
}
