// SPDX-License-Identifier: MIT
// The C interface: what goes into buffers and comes out of them, as bytes, addresses and JSON.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "hologram/device.h"
#include "hologram/functions.h"
#include "hologram/recorder.h"
#include "src/capi/call.h"
#include "src/capi/json.h"

namespace hologram::capi {
namespace {

// The bytes of a buffer, which nothing recorded touches any more.
char* settled_bytes(const BufferUse& used) {
  const Device& device = used.buffer().device();
  if (!device.is_host_memory()) {
    fail(ErrorKind::kNotSupported, used.argument(), ": memory of ", device.name(),
         " cannot be reached from the processor");
  }
  materialize(used.buffer());
  return used.bytes();
}

// What lies in the memory of a device that the processor cannot reach goes through copies.
void write_bytes(const BufferUse& used, const void* bytes, size_t nbytes) {
  Device& device = used.buffer().device();
  if (nbytes == 0) return;
  if (device.is_host_memory()) {
    std::memmove(settled_bytes(used), bytes, nbytes);  // they may be the buffer's own
    return;
  }
  materialize(used.buffer());
  device.copy_from_host(device.default_stream(), used.bytes(), bytes, nbytes);
}
void read_bytes(const BufferUse& used, void* bytes, size_t nbytes) {
  Device& device = used.buffer().device();
  if (nbytes == 0) return;
  if (device.is_host_memory()) {
    std::memmove(bytes, settled_bytes(used), nbytes);
    return;
  }
  materialize(used.buffer());
  device.copy_to_host(device.default_stream(), bytes, used.bytes(), nbytes);
}

int64_t nbytes_of(const BufferUse& used) {
  return used.length() * static_cast<int64_t>(itemsize(used.dtype()));
}

void check_nbytes(const BufferUse& used, const void* bytes, size_t nbytes) {
  if (nbytes > static_cast<size_t>(nbytes_of(used))) {
    fail(ErrorKind::kInvalidArgument, used.argument(), ": nbytes is ", nbytes,
         " but the buffer has ", nbytes_of(used), " (", used.length(), " elements of ",
         dtype_name(used.dtype()), ")");
  }
  if (nbytes != 0) not_null(bytes, "bytes", "that many bytes");
}

void check_fits(double value, Dtype dtype) {
  if (!is_integer(dtype)) return;
  const bool is_signed = !is_unsigned(dtype);
  // A power of two, so exact where the largest value itself is not.
  const double end = std::ldexp(1.0, static_cast<int>(8 * itemsize(dtype)) - (is_signed ? 1 : 0));
  const double whole = std::trunc(value);
  if (!(whole >= (is_signed ? -end : 0.0) && whole < end)) {
    fail(ErrorKind::kInvalidArgument, "value is ", value, ", which no ", dtype_name(dtype),
         " holds");
  }
}

}  // namespace
}  // namespace hologram::capi

using namespace hologram;        // NOLINT: definitions of C functions stand outside
using namespace hologram::capi;  // NOLINT

int hologram_buffer_copy_from_bytes(uint64_t ex, uint64_t buf, const void* bytes, size_t nbytes) {
  return guarded("buffer_copy_from_bytes", [&] {
    const Device& device = executor_device(ex);
    const BufferUse used(buf, "buf");
    used.on(device).writable();
    check_nbytes(used, bytes, nbytes);
    write_bytes(used, bytes, nbytes);
  });
}

int hologram_buffer_to_bytes(uint64_t ex, uint64_t buf, void* bytes, size_t nbytes) {
  return guarded("buffer_to_bytes", [&] {
    const Device& device = executor_device(ex);
    const BufferUse used(buf, "buf");
    used.on(device);
    check_nbytes(used, bytes, nbytes);
    read_bytes(used, bytes, nbytes);
  });
}

int hologram_buffer_as_ptr(uint64_t ex, uint64_t buf, const void** address) {
  return guarded("buffer_as_ptr", [&] {
    const Device& device = executor_device(ex);
    const BufferUse used(buf, "buf");
    used.on(device);
    not_null(address, "address", "a const void*");
    mark_exported(used.buffer());  // first, so that no op is recorded in between
    *address = settled_bytes(used);
  });
}

int hologram_buffer_as_mut_ptr(uint64_t ex, uint64_t buf, void** address) {
  return guarded("buffer_as_mut_ptr", [&] {
    const Device& device = executor_device(ex);
    const BufferUse used(buf, "buf");
    used.on(device).writable();
    not_null(address, "address", "a void*");
    mark_exported(used.buffer());
    *address = settled_bytes(used);
  });
}

int hologram_buffer_copy_from_slice(uint64_t ex, uint64_t buf, const char* json, size_t size) {
  return guarded("buffer_copy_from_slice", [&] {
    const Device& device = executor_device(ex);
    const BufferUse used(buf, "buf");
    used.on(device).writable();
    not_null(json, "json", "a JSON array");
    const std::vector<char> bytes = parse_json({json, size}, used.dtype(), used.length());
    write_bytes(used, bytes.data(), bytes.size());
  });
}

int hologram_buffer_to_vec(uint64_t ex, uint64_t buf, char** json, size_t* size) {
  return guarded("buffer_to_vec", [&] {
    const Device& device = executor_device(ex);
    const BufferUse used(buf, "buf");
    used.on(device);
    not_null(json, "json", "a char*");
    size_t length = 0;
    const bool direct = used.buffer().device().is_host_memory();
    std::vector<char> copy(direct ? 0 : static_cast<size_t>(nbytes_of(used)));
    if (!direct) read_bytes(used, copy.data(), copy.size());
    char* text = print_json(direct ? settled_bytes(used) : copy.data(), used.dtype(), used.length(),
                            &length);
    if (size != nullptr) *size = length;
    *json = text;
  });
}

void hologram_free(void* memory) { std::free(memory); }

int hologram_buffer_fill(uint64_t ex, uint64_t buf, double value, int64_t n) {
  return guarded("buffer_fill", [&] {
    const Device& device = executor_device(ex);
    const BufferUse used(buf, "buf");
    used.on(device).holds(n).writable();
    check_fits(value, used.dtype());
    fill_into(Scalar(value), used.tensor(Shape{n}));
  });
}

int hologram_buffer_copy(uint64_t ex, uint64_t source, uint64_t target, int64_t n) {
  return guarded("buffer_copy", [&] {
    const Device& device = executor_device(ex);
    const BufferUse from(source, "source");
    const BufferUse to(target, "target");
    from.on(device).holds(n);
    to.on(device).holds(n).writable();
    if (is_complex(from.dtype()) && !is_complex(to.dtype())) {
      refuse_dtype("target", to.dtype(), "complex numbers, as source does");
    }
    copy_into(from.tensor(Shape{n}), to.tensor(Shape{n}));
  });
}
