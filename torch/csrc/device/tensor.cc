// SPDX-License-Identifier: MIT
// The rarer ways to make a tensor: strided, formatted, checked.
#include "device/tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>

namespace hologram_torch {

size_t checked_nbytes(c10::IntArrayRef sizes, size_t itemsize) {
  at::detail::check_size_nonnegative(sizes);
  return at::detail::computeStorageNbytesContiguous(sizes, itemsize);
}

at::Tensor make_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype,
                        c10::DeviceIndex index) {
  at::detail::check_size_nonnegative(sizes);
  const caffe2::TypeMeta meta = c10::scalarTypeToTypeMeta(dtype);
  const size_t nbytes = at::detail::computeStorageNbytes(sizes, strides, meta.itemsize());
  auto impl = make_impl(make_storage(nbytes, index), meta);
  impl->set_sizes_and_strides(sizes, strides);
  return at::Tensor(std::move(impl));
}

at::Tensor make_like_any(const at::Tensor& t, c10::ScalarType dtype) {
  const c10::DeviceIndex index = is_ours(t) ? t.device().index() : c10::DeviceIndex{0};
  if (t.is_non_overlapping_and_dense()) return make_strided(t.sizes(), t.strides(), dtype, index);
  return make_strided(t.sizes(), at::infer_dense_strides(t.sizes(), t.strides()), dtype, index);
}

at::Tensor make_formatted(c10::IntArrayRef sizes, c10::ScalarType dtype, c10::MemoryFormat format,
                          c10::DeviceIndex index) {
  at::Tensor result = make_tensor(sizes, dtype, index);
  if (format != c10::MemoryFormat::Contiguous) {
    result.unsafeGetTensorImpl()->empty_tensor_restride(format);
  }
  return result;
}

}  // namespace hologram_torch
