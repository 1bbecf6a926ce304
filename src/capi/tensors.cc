// SPDX-License-Identifier: MIT
// The C interface: shapes on buffers, and tensors going out and coming in by DLPack.
#include "hologram/dlpack.h"

#include <memory>

#include "src/array/array.h"
#include "src/capi/call.h"

namespace hologram::capi {
namespace {

const Tensor& tensor_of(const Use& used) { return *static_cast<Tensor*>(used.entry().object); }

// The elements that a buffer's handle stands for may be fewer than its memory holds.
void check_reach(const Tensor& tensor, const BufferUse& used) {
  if (tensor.numel() == 0) return;
  int64_t low = tensor.offset();
  int64_t high = tensor.offset();
  for (int d = 0; d < tensor.ndim(); ++d) {
    const int64_t reach = (tensor.size(d) - 1) * tensor.stride(d);
    (reach < 0 ? low : high) += reach;
  }
  if (low < used.entry().offset || high >= used.entry().offset + used.length()) {
    fail(ErrorKind::kInvalidArgument, "shape, strides and offset reach outside the buffer's ",
         used.length(), " elements");
  }
}

// Nothing can fail after the descriptor is taken, so that its owner is always known.
template <class Borrow>
uint64_t import_tensor(Borrow&& borrow) {
  auto object = std::make_unique<Tensor>();
  Slot* slot = Registry::get().take_slot();
  Entry entry;
  try {
    *object = borrow(&entry.read_only);
  } catch (...) {
    Registry::get().give_slot(slot);
    throw;
  }
  entry.device = &object->buffer()->device();
  entry.kind = Kind::kTensor;
  entry.object = object.release();
  return Registry::get().publish(slot, entry);
}

void copy_sizes(const Shape& sizes, int64_t* to, int capacity, const char* argument) {
  if (capacity < static_cast<int>(sizes.size())) {
    fail(ErrorKind::kInvalidArgument, "capacity is ", capacity, " but the tensor has ",
         sizes.size(), " dimensions");
  }
  if (sizes.empty()) return;
  not_null(to, argument, "that many int64_t");
  for (size_t d = 0; d < sizes.size(); ++d) to[d] = sizes[d];
}

}  // namespace
}  // namespace hologram::capi

using namespace hologram;        // NOLINT: definitions of C functions stand outside
using namespace hologram::capi;  // NOLINT

int hologram_tensor_from_buffer(uint64_t buf, int64_t offset, int ndim, const int64_t* shape,
                                const int64_t* strides, uint64_t* tensor) {
  return guarded("tensor_from_buffer", [&] {
    const BufferUse used(buf, "buf");
    not_null(tensor, "tensor", "a uint64_t");
    constexpr int kMaxDims = 64;
    if (ndim < 0 || ndim > kMaxDims) {
      fail(ErrorKind::kInvalidArgument, "ndim is ", ndim, "; pass 0 to ", kMaxDims);
    }
    if (offset < 0 || offset > used.length()) {
      fail(ErrorKind::kInvalidArgument, "offset is ", offset, " but the buffer has ", used.length(),
           " elements");
    }
    if (ndim > 0) not_null(shape, "shape", "ndim sizes");
    Shape sizes(static_cast<size_t>(ndim));
    for (int d = 0; d < ndim; ++d) sizes[static_cast<size_t>(d)] = shape[d];
    static_cast<void>(shape_numel(sizes));
    Shape steps = contiguous_strides(sizes);
    if (strides != nullptr) {
      for (int d = 0; d < ndim; ++d) steps[static_cast<size_t>(d)] = strides[d];
    }
    Tensor view(BufferRef::share(&used.buffer()), std::move(sizes), std::move(steps), used.dtype(),
                used.entry().offset + offset);
    check_reach(view, used);
    *tensor = add_tensor(std::move(view), used.entry().read_only);
  });
}

int hologram_tensor_as_buffer(uint64_t tensor, uint64_t* buf) {
  return guarded("tensor_as_buffer", [&] {
    const Use used = use(tensor, Kind::kTensor, "tensor");
    not_null(buf, "buf", "a uint64_t");
    const Tensor& t = tensor_of(used);
    if (!t.is_contiguous()) {
      fail(ErrorKind::kInvalidArgument,
           "tensor: its elements are not row-major without gaps; copy it first");
    }
    *buf = add_buffer(t.buffer(), t.dtype(), t.offset(), t.numel(), used.entry().read_only);
  });
}

int hologram_tensor_copy(uint64_t tensor, uint64_t* copy) {
  return guarded("tensor_copy", [&] {
    const Use used = use(tensor, Kind::kTensor, "tensor");
    not_null(copy, "copy", "a uint64_t");
    *copy =
        add_tensor(array::copy_of(tensor_of(used), tensor_of(used).dtype()), /*read_only=*/false);
  });
}

int hologram_tensor_cleanup(uint64_t tensor) {
  return guarded("tensor_cleanup", [&] {
    if (!Registry::get().remove(tensor, Kind::kTensor)) {
      refuse_handle(tensor, Kind::kTensor, "tensor");
    }
  });
}

int hologram_tensor_ndim(uint64_t tensor, int* ndim) {
  return guarded("tensor_ndim", [&] {
    const Use used = use(tensor, Kind::kTensor, "tensor");
    *not_null(ndim, "ndim", "an int") = tensor_of(used).ndim();
  });
}

int hologram_tensor_dtype(uint64_t tensor, int* dtype) {
  return guarded("tensor_dtype", [&] {
    const Use used = use(tensor, Kind::kTensor, "tensor");
    *not_null(dtype, "dtype", "an int") = static_cast<int>(tensor_of(used).dtype());
  });
}

int hologram_tensor_shape(uint64_t tensor, int64_t* shape, int capacity) {
  return guarded("tensor_shape", [&] {
    const Use used = use(tensor, Kind::kTensor, "tensor");
    copy_sizes(tensor_of(used).shape(), shape, capacity, "shape");
  });
}

int hologram_tensor_strides(uint64_t tensor, int64_t* strides, int capacity) {
  return guarded("tensor_strides", [&] {
    const Use used = use(tensor, Kind::kTensor, "tensor");
    copy_sizes(tensor_of(used).strides(), strides, capacity, "strides");
  });
}

int hologram_tensor_to_dlpack(uint64_t tensor, struct DLManagedTensorVersioned** managed) {
  return guarded("tensor_to_dlpack", [&] {
    not_null(managed, "managed", "a DLManagedTensorVersioned*");
    const AnyTensor any = any_tensor(tensor, "tensor");
    *managed = to_dlpack(any.tensor, any.read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0);
  });
}

int hologram_tensor_to_dlpack_unversioned(uint64_t tensor, struct DLManagedTensor** managed) {
  return guarded("tensor_to_dlpack_unversioned", [&] {
    not_null(managed, "managed", "a DLManagedTensor*");
    const AnyTensor any = any_tensor(tensor, "tensor");
    if (any.read_only) {
      fail(ErrorKind::kInvalidArgument,
           "tensor: the memory is read-only, which only versioned descriptors can say");
    }
    *managed = to_dlpack_unversioned(any.tensor);
  });
}

int hologram_tensor_from_dlpack(struct DLManagedTensorVersioned* managed, uint64_t* tensor) {
  return guarded("tensor_from_dlpack", [&] {
    not_null(managed, "managed", "a descriptor");
    not_null(tensor, "tensor", "a uint64_t");
    *tensor = import_tensor([&](bool* read_only) { return from_dlpack(managed, read_only); });
  });
}

int hologram_tensor_from_dlpack_unversioned(struct DLManagedTensor* managed, uint64_t* tensor) {
  return guarded("tensor_from_dlpack_unversioned", [&] {
    not_null(managed, "managed", "a descriptor");
    not_null(tensor, "tensor", "a uint64_t");
    *tensor = import_tensor([&](bool*) { return from_dlpack(managed); });
  });
}
