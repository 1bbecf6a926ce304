// SPDX-License-Identifier: MIT
// One call of the C interface: its arguments are checked by name, and nothing is thrown out of it.
#pragma once

#include <cxxabi.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "hologram/error.h"
#include "hologram/hologram.h"
#include "hologram/tensor.h"
#include "src/capi/registry.h"

namespace hologram::capi {

// Keeps what is being thrown as the thread's last error, and returns its status.
int keep_error(const char* function) noexcept;

// Runs `body`, whose exceptions become a status. `function` is the name without its prefix.
template <class F>
inline int guarded(const char* function, F&& body) {
  try {
    body();
    return HOLOGRAM_OK;
  } catch (const abi::__forced_unwind&) {
    throw;  // a thread that is cancelled: the system's own business, which must go on
  } catch (...) {
    return keep_error(function);
  }
}

[[noreturn]] void refuse_handle(uint64_t handle, Kind wanted, const char* argument);
[[noreturn]] void refuse_null(const char* argument, const char* wanted);
[[noreturn]] void refuse_length(const char* argument, const char* name, int64_t n, int64_t length);
[[noreturn]] void refuse_dtype(const char* argument, Dtype dtype, std::string_view wanted);
[[noreturn]] void refuse_read_only(const char* argument);
[[noreturn]] void refuse_device(const char* argument, const Device& device, const Device& wanted);

// A size or a count, which is not below 0.
inline void check_count(const char* name, int64_t count) {
  if (count < 0) [[unlikely]]
    fail(ErrorKind::kInvalidArgument, name, " is ", count, "; pass 0 or more");
}

template <class T>
inline T* not_null(T* pointer, const char* argument, const char* wanted) {
  if (pointer == nullptr) [[unlikely]]
    refuse_null(argument, wanted);
  return pointer;
}

// The device of an executor.
inline Device& executor_device(uint64_t handle, const char* argument = "ex") {
  Device* device = Registry::get().device_of(handle, Kind::kExecutor);
  if (device == nullptr) [[unlikely]]
    refuse_handle(handle, Kind::kExecutor, argument);
  return *device;
}

inline Use use(uint64_t handle, Kind kind, const char* argument) {
  Slot* slot = Registry::get().acquire(handle, kind);
  if (slot == nullptr) [[unlikely]]
    refuse_handle(handle, kind, argument);
  return Use(slot);
}

// A buffer that a call works on, kept alive for its duration.
class BufferUse {
 public:
  BufferUse(uint64_t handle, const char* argument)
      : use_(use(handle, Kind::kBuffer, argument)), argument_(argument) {}

  // Each check throws what names the argument, and returns *this.
  const BufferUse& on(const Device& device) const {
    if (entry().device != &device) [[unlikely]]
      refuse_device(argument_, *entry().device, device);
    return *this;
  }
  const BufferUse& holds(int64_t n, const char* name = "n") const {
    if (n < 0 || n > entry().length) [[unlikely]]
      refuse_length(argument_, name, n, entry().length);
    return *this;
  }
  // Of any dtype where none is named.
  const BufferUse& is(std::optional<Dtype> wanted) const {
    if (wanted && entry().dtype != *wanted) [[unlikely]]
      refuse_dtype(argument_, entry().dtype, dtype_name(*wanted));
    return *this;
  }
  const BufferUse& writable() const {
    if (entry().read_only) [[unlikely]]
      refuse_read_only(argument_);
    return *this;
  }

  const Entry& entry() const { return use_.entry(); }
  Buffer& buffer() const { return *static_cast<Buffer*>(entry().object); }
  const char* argument() const { return argument_; }
  Dtype dtype() const { return entry().dtype; }
  int64_t length() const { return entry().length; }
  int64_t byte_offset() const {
    return entry().offset * static_cast<int64_t>(itemsize(entry().dtype));
  }
  // Its elements from `start` on, in that shape, row-major.
  Tensor tensor(Shape shape, int64_t start = 0) const {
    Shape strides = contiguous_strides(shape);
    return Tensor(BufferRef::share(&buffer()), std::move(shape), std::move(strides), entry().dtype,
                  entry().offset + start);
  }
  // After materialize() of the buffer.
  char* bytes() const {
    char* start = buffer().data_as<char>();
    return start == nullptr ? nullptr : start + byte_offset();
  }

 private:
  Use use_;
  const char* argument_;
};

// A tensor of a handle of either kind; of a buffer's in one dimension.
struct AnyTensor {
  Tensor tensor;
  bool read_only = false;
};
inline AnyTensor any_tensor(uint64_t handle, const char* argument) {
  if (static_cast<Kind>(handle >> 60) == Kind::kBuffer) {
    const BufferUse used(handle, argument);
    return {used.tensor(Shape{used.length()}), used.entry().read_only};
  }
  const Use used = use(handle, Kind::kTensor, argument);
  return {*static_cast<Tensor*>(used.entry().object), used.entry().read_only};
}

// Runs `run`; what the layers below refuse there is said of these buffers, with their dtypes.
[[noreturn]] void refuse_for(const Error& error, std::initializer_list<const BufferUse*> buffers);
template <class Run>
void naming(std::initializer_list<const BufferUse*> buffers, Run&& run) {
  try {
    run();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kOutOfMemory || error.kind() == ErrorKind::kInternal) throw;
    refuse_for(error, buffers);
  }
}

// Gives the object a handle; on failure it is the caller's still.
uint64_t add_buffer(BufferRef buffer, Dtype dtype, int64_t offset, int64_t length, bool read_only);
uint64_t add_tensor(Tensor tensor, bool read_only);

// a * b for sizes that are not negative; -1 where that is more than int64 holds.
inline int64_t product(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? -1 : result;
}

}  // namespace hologram::capi
