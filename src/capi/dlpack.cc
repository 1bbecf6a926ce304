// SPDX-License-Identifier: MIT
// Lends tensors by DLPack, and borrows those of others after checking every field.
#include "hologram/dlpack.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <utility>

#include "hologram/buffer.h"
#include "hologram/error.h"
#include "hologram/memory.h"
#include "hologram/recorder.h"

namespace hologram {
namespace {

static_assert(sizeof(void*) != 8 || (sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64 &&
                                     sizeof(DLManagedTensorVersioned) == 80),
              "the layout of DLPack 1.x");

// The most dimensions that the kernels support.
constexpr int kMaxDims = 64;

// One allocation: the descriptor, the reference that it stands for, shape and strides.
template <class Managed>
struct Lent {
  Managed managed = {};
  ExportMark mark;

  int64_t* sizes() { return reinterpret_cast<int64_t*>(this + 1); }
  static void destroy(Managed* managed) {
    auto* self = static_cast<Lent*>(managed->manager_ctx);
    self->~Lent();
    ::operator delete(self);
  }
};

template <class Managed>
Managed* lend(const Tensor& tensor) {
  const BufferRef& buffer = tensor.buffer();
  if (buffer && !buffer->device().is_host_memory()) {
    fail(ErrorKind::kNotSupported, "to_dlpack: memory of ", buffer->device().name(),
         " is not shared with other libraries; copy it to the CPU first");
  }
  // In this order no op can be recorded between the two.
  ExportMark mark(buffer);
  if (buffer) materialize(*buffer);
  const auto ndim = static_cast<size_t>(tensor.ndim());
  void* place = ::operator new(sizeof(Lent<Managed>) + 2 * ndim * sizeof(int64_t), std::nothrow);
  if (place == nullptr) {
    fail(ErrorKind::kOutOfMemory, "to_dlpack: out of memory for a descriptor of ", ndim,
         " dimensions");
  }
  auto* lent = new (place) Lent<Managed>;
  lent->mark = std::move(mark);
  int64_t* sizes = lent->sizes();
  for (size_t d = 0; d < ndim; ++d) {
    sizes[d] = tensor.shape()[d];
    sizes[ndim + d] = tensor.strides()[d];
  }
  DLTensor& out = lent->managed.dl_tensor;
  out.data = tensor.data();
  out.device = buffer ? dlpack_device(buffer->device()) : DLDevice{kDLCPU, 0};
  out.ndim = tensor.ndim();
  out.dtype = dlpack_dtype(tensor.dtype());
  out.shape = sizes;
  out.strides = sizes + ndim;
  out.byte_offset = 0;
  lent->managed.manager_ctx = lent;
  lent->managed.deleter = &Lent<Managed>::destroy;
  return &lent->managed;
}

template <class... Parts>
[[noreturn]] void refuse(ErrorKind kind, const Parts&... parts) {
  fail(kind, "from_dlpack: ", parts...);
}

// Where the elements of a descriptor lie.
struct Extent {
  void* start = nullptr;  // of the element at the lowest address
  size_t nbytes = 0;
  int64_t offset = 0;  // elements from there to element [0, 0, ...]
};

Shape checked_shape(const DLTensor& in) {
  if (in.ndim < 0 || in.ndim > kMaxDims) {
    refuse(ErrorKind::kInvalidArgument, "ndim is ", in.ndim, "; 0 to ", kMaxDims,
           " dimensions are accepted");
  }
  if (in.ndim > 0 && in.shape == nullptr) {
    refuse(ErrorKind::kInvalidArgument, "shape is null but ndim is ", in.ndim);
  }
  Shape shape(static_cast<size_t>(in.ndim));
  for (int d = 0; d < in.ndim; ++d) {
    shape[static_cast<size_t>(d)] = in.shape[d];
    if (in.shape[d] < 0) {
      refuse(ErrorKind::kInvalidArgument, "shape[", d, "] is ", in.shape[d],
             "; sizes are 0 or more");
    }
  }
  return shape;
}

Shape checked_strides(const DLTensor& in, const Shape& shape, int64_t numel, int64_t item) {
  Shape strides = contiguous_strides(shape);
  if (in.strides == nullptr) return strides;
  for (int d = 0; d < in.ndim; ++d) {
    const auto at = static_cast<size_t>(d);
    int64_t bytes = 0;
    const bool fits = !__builtin_mul_overflow(in.strides[d], item, &bytes);
    // The stride of a dimension of one element may be any number; some libraries leave it unset.
    if (!fits && (numel == 0 || shape[at] == 1)) continue;
    if (!fits) {
      refuse(ErrorKind::kInvalidArgument, "strides[", d, "] is ", in.strides[d],
             "; that many elements of ", item, " bytes are more than an address can count");
    }
    strides[at] = in.strides[d];
  }
  return strides;
}

Extent checked_extent(const DLTensor& in, const Shape& shape, const Shape& strides, int64_t numel,
                      Dtype dtype) {
  Extent extent;
  if (numel == 0) return extent;
  if (in.data == nullptr) {
    refuse(ErrorKind::kInvalidArgument, "data is null but the shape has ", numel, " elements");
  }
  const auto item = static_cast<int64_t>(itemsize(dtype));
  int64_t low = 0;
  int64_t high = 0;
  bool overflow = false;
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t reach = 0;
    overflow = __builtin_mul_overflow(shape[d] - 1, strides[d], &reach) || overflow;
    int64_t& end = reach < 0 ? low : high;
    overflow = __builtin_add_overflow(end, reach, &end) || overflow;
  }
  int64_t below = 0;
  int64_t above = 0;
  overflow = __builtin_mul_overflow(low, item, &below) || overflow;
  overflow = __builtin_add_overflow(high, 1, &above) || overflow;
  overflow = __builtin_mul_overflow(above, item, &above) || overflow;
  // The sum is unsigned: a carry says that the memory passes the end of the address space.
  const auto data = reinterpret_cast<uintptr_t>(in.data);
  uintptr_t first = 0;
  uintptr_t start = 0;
  uintptr_t end = 0;
  overflow = __builtin_add_overflow(data, in.byte_offset, &first) || overflow;
  overflow = overflow ||
             __builtin_sub_overflow(first, uintptr_t{0} - static_cast<uintptr_t>(below), &start);
  overflow = overflow || __builtin_add_overflow(first, static_cast<uintptr_t>(above), &end);
  if (overflow || start == 0 || end - start > static_cast<uintptr_t>(INT64_MAX)) {
    refuse(ErrorKind::kInvalidArgument,
           "shape, strides and byte_offset reach beyond the addresses that there are (", numel,
           " elements of ", item, " bytes, byte_offset ", in.byte_offset, ")");
  }
  const size_t alignment = std::min<size_t>(itemsize(dtype), alignof(double));
  if (first % alignment != 0) {
    refuse(ErrorKind::kInvalidArgument, "the first element (data + byte_offset) is not aligned to ",
           alignment, " bytes, as ", dtype_name(dtype), " needs; copy it first");
  }
  extent.start = reinterpret_cast<void*>(start);
  extent.nbytes = end - start;
  extent.offset = -low;
  return extent;
}

Device& checked_device(DLDevice given) {
  switch (given.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
    case kDLROCMHost:
    case kDLCUDAManaged:
      return device(BackendType::kCpu);
    default:
      refuse(ErrorKind::kNotSupported, "device type ", static_cast<int>(given.device_type),
             " is not host memory; ask the lender for dl_device=(1, 0), or copy it to the CPU "
             "first");
  }
}

template <class Managed>
Tensor borrow(Managed* managed) {
  const DLTensor& in = managed->dl_tensor;
  Device& device = checked_device(in.device);
  const Dtype dtype = dtype_from_dlpack(in.dtype);
  Shape shape = checked_shape(in);
  const int64_t numel = shape_numel(shape);
  Shape strides = checked_strides(in, shape, numel, static_cast<int64_t>(itemsize(dtype)));
  const Extent extent = checked_extent(in, shape, strides, numel, dtype);
  const auto give_back = [](void* context) {
    auto* lent = static_cast<Managed*>(context);
    if (lent->deleter != nullptr) lent->deleter(lent);
  };
  BufferRef buffer =
      BufferRef::adopt(wrap_buffer(device, extent.start, extent.nbytes, give_back, managed));
  try {
    buffer->set_dtype(dtype);
    mark_exported(*buffer);
    return Tensor(buffer, std::move(shape), std::move(strides), dtype, extent.offset);
  } catch (...) {
    // The buffer goes without the descriptor, which is the caller's again.
    const auto deleter = std::exchange(managed->deleter, nullptr);
    buffer.reset();
    managed->deleter = deleter;
    throw;
  }
}

}  // namespace

DLDevice dlpack_device(const Device& device) {
  if (device.is_host_memory()) return {kDLCPU, 0};
  const DLDeviceType type = device.kind() == BackendType::kCuda    ? kDLCUDA
                            : device.kind() == BackendType::kMetal ? kDLMetal
                                                                   : kDLOpenCL;
  return {type, device.index() - hologram::device(device.kind()).index()};
}

DLDataType dlpack_dtype(Dtype dtype) {
  constexpr uint8_t kCodes[kStoredDtypeCount] = {
      kDLBool,  kDLUInt,  kDLInt,     kDLInt,     kDLInt,  kDLInt,  kDLFloat, kDLBfloat,
      kDLFloat, kDLFloat, kDLComplex, kDLComplex, kDLUInt, kDLUInt, kDLUInt};
  return {kCodes[static_cast<int>(dtype)], static_cast<uint8_t>(8 * itemsize(dtype)), 1};
}

Dtype dtype_from_dlpack(DLDataType type) {
  for (int d = 0; d < kStoredDtypeCount; ++d) {
    const DLDataType ours = dlpack_dtype(static_cast<Dtype>(d));
    if (ours.code == type.code && ours.bits == type.bits && type.lanes == 1) {
      return static_cast<Dtype>(d);
    }
  }
  refuse(ErrorKind::kTypeMismatch, "dtype (code ", int{type.code}, ", ", int{type.bits}, " bits, ",
         type.lanes,
         " lanes) is not one of bool, uint8 to uint64, int8 to int64, float16, bfloat16, float32, "
         "float64, complex64 and complex128 with one lane; convert it first");
}

DLManagedTensorVersioned* to_dlpack(const Tensor& tensor, uint64_t flags) {
  auto* managed = lend<DLManagedTensorVersioned>(tensor);
  managed->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed->flags = flags;
  return managed;
}

DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor) {
  return lend<DLManagedTensor>(tensor);
}

Tensor from_dlpack(DLManagedTensorVersioned* managed, bool* read_only) {
  if (managed == nullptr) refuse(ErrorKind::kInvalidArgument, "the descriptor is null");
  if (managed->version.major != DLPACK_MAJOR_VERSION) {
    refuse(ErrorKind::kNotSupported, "the descriptor has DLPack layout version ",
           managed->version.major, ".", managed->version.minor, "; version ", DLPACK_MAJOR_VERSION,
           " is understood: ask the lender for max_version=(", DLPACK_MAJOR_VERSION, ", 0)");
  }
  const bool locked = (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
  if (locked && read_only == nullptr) {
    refuse(ErrorKind::kInvalidArgument,
           "the memory is read-only and would be open to writing here; copy it first");
  }
  Tensor tensor = borrow(managed);
  if (read_only != nullptr) *read_only = locked;
  return tensor;
}

Tensor from_dlpack(DLManagedTensor* managed) {
  if (managed == nullptr) refuse(ErrorKind::kInvalidArgument, "the descriptor is null");
  return borrow(managed);
}

}  // namespace hologram
