// SPDX-License-Identifier: MIT
// A tensor: a typed, strided view of a buffer. Copying one shares the bytes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>

#include "hologram/api.h"
#include "hologram/buffer.h"
#include "hologram/shape.h"
#include "hologram/view.h"

namespace hologram {

namespace internal {
struct TensorAccess;
}  // namespace internal

// Elements of a shape; Error(kInvalidArgument) for a negative dimension or a count beyond int64.
HOLOGRAM_API int64_t shape_numel(std::span<const int64_t> shape);
// Row-major strides in elements.
HOLOGRAM_API Shape contiguous_strides(std::span<const int64_t> shape);

class HOLOGRAM_API Tensor {
 public:
  // No elements, no memory.
  Tensor() = default;
  // All of the buffer, one dimension, in the buffer's dtype.
  explicit Tensor(BufferRef buffer);
  // Row-major from the buffer's start. Every constructor checks that all elements lie inside.
  Tensor(BufferRef buffer, Shape shape, Dtype dtype);
  // Strides and offset count elements; strides may be zero or negative.
  Tensor(BufferRef buffer, Shape shape, Shape strides, Dtype dtype, int64_t offset = 0);

  const BufferRef& buffer() const { return buffer_; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }
  Dtype dtype() const { return dtype_; }
  int64_t offset() const { return offset_; }
  int ndim() const { return static_cast<int>(shape_.size()); }
  int64_t numel() const { return numel_; }
  size_t nbytes() const { return static_cast<size_t>(numel_) * itemsize(dtype_); }
  // dim counts from the end when negative.
  int64_t size(int dim) const { return shape_[wrap_dim(dim)]; }
  int64_t stride(int dim) const { return strides_[wrap_dim(dim)]; }

  // Address of the first element; null when the buffer has none.
  void* data() const;
  View view() const;

  bool is_contiguous() const;
  // Whether two index tuples can reach the same element, as a broadcast dimension does. Exact for
  // broadcasts and for layouts a permutation makes row-major; true when in doubt.
  bool may_overlap_itself() const;

  // Views. Each shares the buffer and throws what PyTorch would: kIndex for a dimension or position
  // out of range, kInvalidArgument for a shape that does not fit.

  // One dimension may be -1. Throws where only a copy could give the shape (see try_reshape).
  Tensor reshape(Shape shape) const;
  // Empty when only a copy could give the shape; still throws when the element counts differ.
  std::optional<Tensor> try_reshape(Shape shape) const;
  Tensor transpose(int dim0, int dim1) const;
  Tensor permute(std::span<const int> dims) const;
  Tensor permute(std::initializer_list<int> dims) const {
    return permute(std::span<const int>(dims.begin(), dims.size()));
  }
  Tensor narrow(int dim, int64_t start, int64_t length) const;
  Tensor select(int dim, int64_t index) const;
  // Python's rules: bounds are clipped, negatives count from the end, step is positive.
  Tensor slice(int dim, int64_t start, int64_t stop, int64_t step = 1) const;
  Tensor squeeze(int dim) const;
  Tensor unsqueeze(int dim) const;
  // Broadcasts; -1 keeps a size.
  Tensor expand(std::span<const int64_t> shape) const;

 private:
  friend struct internal::TensorAccess;
  int wrap_dim(int dim) const;
  void check_bounds() const;

  BufferRef buffer_;
  Shape shape_{0};
  Shape strides_{1};
  int64_t offset_ = 0;
  int64_t numel_ = 0;
  Dtype dtype_ = Dtype::kFloat32;
};

}  // namespace hologram
