// SPDX-License-Identifier: MIT
// Tensors without the checks of their constructors, for those who have just made the memory.
#pragma once

#include <utility>

#include "hologram/tensor.h"

namespace hologram::internal {

struct TensorAccess {
  // Row-major over the whole buffer, which holds exactly `numel` elements.
  static Tensor whole(BufferRef buffer, Shape shape, int64_t numel, Dtype dtype) {
    Tensor t;
    t.buffer_ = std::move(buffer);
    t.strides_ = contiguous_strides(shape);
    t.shape_ = std::move(shape);
    t.numel_ = numel;
    t.dtype_ = dtype;
    return t;
  }
  // `t`'s memory under another description that stays inside it.
  static Tensor describe(const Tensor& t, Shape shape, Shape strides, Dtype dtype, int64_t offset) {
    Tensor result;
    result.buffer_ = t.buffer_;
    result.numel_ = shape_numel(shape);
    result.shape_ = std::move(shape);
    result.strides_ = std::move(strides);
    result.offset_ = offset;
    result.dtype_ = dtype;
    return result;
  }
};

}  // namespace hologram::internal
