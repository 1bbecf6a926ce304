// SPDX-License-Identifier: MIT
// Strided views: shape arithmetic and the checks that keep every element inside its buffer.
#include "hologram/tensor.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "hologram/error.h"

namespace hologram {
namespace {

std::string text(std::span<const int64_t> values) {
  std::string result = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i != 0) result += ", ";
    result += std::to_string(values[i]);
  }
  return result + "]";
}

// Strides that give `shape` over the elements of a view without a copy; false when there are none.
bool strides_for(const Shape& old_shape, const Shape& old_strides, const Shape& shape,
                 Shape& strides) {
  strides.assign(shape.size(), 1);
  // From the innermost dimension: a run of old dimensions that lie evenly in memory can be cut anew
  // in any way that uses up exactly its elements.
  int64_t next = static_cast<int64_t>(shape.size()) - 1;
  int64_t run_numel = 1;
  int64_t run_stride = old_strides.empty() ? 1 : old_strides.back();
  for (int64_t d = static_cast<int64_t>(old_shape.size()) - 1; d >= 0; --d) {
    run_numel *= old_shape[d];
    const bool run_ends =
        d == 0 || (old_shape[d - 1] != 1 && old_strides[d - 1] != run_numel * run_stride);
    if (!run_ends) continue;
    int64_t cut = 1;
    while (next >= 0 && (cut < run_numel || shape[next] == 1)) {
      strides[next] = cut * run_stride;
      cut *= shape[next];
      --next;
    }
    if (cut != run_numel) return false;
    if (d > 0) {
      run_numel = 1;
      run_stride = old_strides[d - 1];
    }
  }
  return next < 0;
}

}  // namespace

int64_t shape_numel(std::span<const int64_t> shape) {
  int64_t numel = 1;
  bool overflow = false;
  for (const int64_t size : shape) {
    if (size < 0) {
      fail(ErrorKind::kInvalidArgument, "negative dimension ", size, " in shape ", text(shape));
    }
    overflow = __builtin_mul_overflow(numel, size, &numel) || overflow;
  }
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  if (overflow) {
    fail(ErrorKind::kInvalidArgument, "shape ", text(shape), " has more elements than 2^63 - 1");
  }
  return numel;
}

Shape contiguous_strides(std::span<const int64_t> shape) {
  Shape strides(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    // Without elements nothing is reached, so a product that does not fit does no harm.
    if (__builtin_mul_overflow(step, std::max<int64_t>(shape[i], 1), &step)) step = 1;
  }
  return strides;
}

Tensor::Tensor(BufferRef buffer) {
  if (!buffer) fail(ErrorKind::kInvalidArgument, "Tensor: the buffer is null");
  const auto length = static_cast<int64_t>(buffer->length());
  const Dtype dtype = buffer->dtype();
  *this = Tensor(std::move(buffer), Shape{length}, dtype);
}

Tensor::Tensor(BufferRef buffer, Shape shape, Dtype dtype)
    : buffer_(std::move(buffer)),
      shape_(std::move(shape)),
      numel_(shape_numel(shape_)),
      dtype_(dtype) {
  strides_ = contiguous_strides(shape_);
  check_bounds();
}

Tensor::Tensor(BufferRef buffer, Shape shape, Shape strides, Dtype dtype, int64_t offset)
    : buffer_(std::move(buffer)),
      shape_(std::move(shape)),
      strides_(std::move(strides)),
      offset_(offset),
      numel_(shape_numel(shape_)),
      dtype_(dtype) {
  if (shape_.size() != strides_.size()) {
    fail(ErrorKind::kInvalidArgument, "mismatch in length of strides ", text(strides_),
         " and shape ", text(shape_));
  }
  check_bounds();
}

void Tensor::check_bounds() const {
  if (!buffer_) fail(ErrorKind::kInvalidArgument, "Tensor: the buffer is null");
  // A division takes as long as all else here.
  const auto length = static_cast<int64_t>(buffer_->nbytes() >> std::countr_zero(itemsize(dtype_)));
  if (offset_ < 0 || (numel_ == 0 && offset_ > length)) {
    fail(ErrorKind::kInvalidArgument, "Tensor: offset ", offset_, " is outside a buffer of ",
         length, " elements of ", dtype_name(dtype_));
  }
  if (numel_ == 0) return;
  int64_t low = offset_;
  int64_t high = offset_;
  bool overflow = false;
  for (size_t i = 0; i < shape_.size(); ++i) {
    int64_t reach = 0;
    overflow = __builtin_mul_overflow(shape_[i] - 1, strides_[i], &reach) || overflow;
    int64_t& end = reach < 0 ? low : high;
    overflow = __builtin_add_overflow(end, reach, &end) || overflow;
  }
  if (overflow || low < 0 || high >= length) {
    fail(ErrorKind::kInvalidArgument, "Tensor: shape ", text(shape_), " with strides ",
         text(strides_), " and offset ", offset_, " reaches outside a buffer of ", length,
         " elements of ", dtype_name(dtype_));
  }
}

void* Tensor::data() const {
  if (!buffer_ || buffer_->data() == nullptr) return nullptr;
  return buffer_->data_as<char>() + static_cast<size_t>(offset_) * itemsize(dtype_);
}

View Tensor::view() const { return {data(), dtype_, ndim(), shape_.data(), strides_.data()}; }

int Tensor::wrap_dim(int dim) const {
  // PyTorch lets a scalar pretend to have one dimension in the message, not in the access.
  const int n = ndim();
  if (dim < -n || dim >= n) {
    if (n == 0) fail(ErrorKind::kIndex, "dimension ", dim, " given for a tensor of no dimensions");
    fail(ErrorKind::kIndex, "dimension out of range (expected to be in range of [", -n, ", ", n - 1,
         "], but got ", dim, ")");
  }
  return dim < 0 ? dim + n : dim;
}

bool Tensor::is_contiguous() const {
  if (numel_ == 0) return true;
  int64_t step = 1;
  for (int i = ndim() - 1; i >= 0; --i) {
    if (shape_[i] == 1) continue;
    if (strides_[i] != step) return false;
    step *= shape_[i];
  }
  return true;
}

bool Tensor::may_overlap_itself() const {
  if (numel_ < 2 || is_contiguous()) return false;
  if (ndim() == 1) return strides_[0] == 0;
  std::vector<int> order;
  for (int i = 0; i < ndim(); ++i) {
    if (shape_[i] == 1) continue;
    if (strides_[i] == 0) return true;
    order.push_back(i);
  }
  const auto step = [&](int i) { return std::abs(strides_[i]); };
  std::sort(order.begin(), order.end(), [&](int a, int b) { return step(a) < step(b); });
  int64_t reach = 0;  // the farthest element of the dimensions so far
  for (const int i : order) {
    if (step(i) <= reach) return true;
    reach += (shape_[i] - 1) * step(i);
  }
  return false;
}

std::optional<Tensor> Tensor::try_reshape(Shape shape) const {
  int64_t known = 1;
  int unknown = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1) {
      if (unknown >= 0) fail(ErrorKind::kInvalidArgument, "only one dimension can be inferred");
      unknown = static_cast<int>(i);
    } else if (shape[i] < 0) {
      fail(ErrorKind::kInvalidArgument, "invalid shape dimension ", shape[i]);
    } else if (__builtin_mul_overflow(known, shape[i], &known)) {
      known = -1;  // too many for any buffer
      break;
    }
  }
  if (unknown >= 0 && known == 0) {
    fail(ErrorKind::kInvalidArgument, "cannot reshape tensor of ", numel_, " elements into shape ",
         text(shape), " because the unspecified dimension size -1 can be any value");
  }
  const bool fits = unknown >= 0 ? known > 0 && numel_ % known == 0 : known == numel_;
  if (!fits) {
    fail(ErrorKind::kInvalidArgument, "shape '", text(shape), "' is invalid for input of size ",
         numel_);
  }
  if (unknown >= 0) shape[unknown] = numel_ / known;

  Tensor result = *this;
  if (numel_ == 0 || is_contiguous()) {
    result.strides_ = contiguous_strides(shape);
  } else if (!strides_for(shape_, strides_, shape, result.strides_)) {
    return std::nullopt;
  }
  result.shape_ = std::move(shape);
  return result;
}

Tensor Tensor::reshape(Shape shape) const {
  std::optional<Tensor> result = try_reshape(shape);
  if (!result) {
    fail(ErrorKind::kInvalidArgument, "shape ", text(shape), " is not compatible with input shape ",
         text(shape_), " and strides ", text(strides_),
         ": at least one dimension spans two that do not lie evenly in memory; copy it first");
  }
  return *std::move(result);
}

Tensor Tensor::transpose(int dim0, int dim1) const {
  if (ndim() == 0 && dim0 >= -1 && dim0 <= 0 && dim1 >= -1 && dim1 <= 0) return *this;
  dim0 = wrap_dim(dim0);
  dim1 = wrap_dim(dim1);
  Tensor result = *this;
  std::swap(result.shape_[dim0], result.shape_[dim1]);
  std::swap(result.strides_[dim0], result.strides_[dim1]);
  return result;
}

Tensor Tensor::permute(std::span<const int> dims) const {
  if (static_cast<int>(dims.size()) != ndim()) {
    fail(ErrorKind::kInvalidArgument, "permute: number of dimensions in the tensor, ", ndim(),
         ", does not match the length of the given ordering, ", dims.size());
  }
  Tensor result = *this;
  std::vector<bool> seen(dims.size(), false);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int dim = wrap_dim(dims[i]);
    if (seen[dim]) fail(ErrorKind::kInvalidArgument, "permute: dimension ", dim, " is given twice");
    seen[dim] = true;
    result.shape_[i] = shape_[dim];
    result.strides_[i] = strides_[dim];
  }
  return result;
}

Tensor Tensor::narrow(int dim, int64_t start, int64_t length) const {
  if (ndim() == 0) {
    fail(ErrorKind::kInvalidArgument, "narrow() cannot be applied to a 0-dim tensor");
  }
  dim = wrap_dim(dim);
  const int64_t size = shape_[dim];
  if (length < 0) {
    fail(ErrorKind::kInvalidArgument, "narrow(): length must be non-negative, but got ", length);
  }
  if (start < -size || start > size) {
    fail(ErrorKind::kIndex, "start out of range (expected to be in range of [", -size, ", ", size,
         "], but got ", start, ")");
  }
  if (start < 0) start += size;
  if (start > size - length) {
    fail(ErrorKind::kInvalidArgument, "start (", start, ") + length (", length,
         ") exceeds dimension size (", size, ")");
  }
  return slice(dim, start, start + length);
}

Tensor Tensor::select(int dim, int64_t index) const {
  if (ndim() == 0) fail(ErrorKind::kIndex, "select() cannot be applied to a 0-dim tensor");
  dim = wrap_dim(dim);
  const int64_t size = shape_[dim];
  if (index < -size || index >= size) {
    fail(ErrorKind::kIndex, "index ", index, " is out of range for dimension ", dim, " with size ",
         size);
  }
  if (index < 0) index += size;
  Tensor result = *this;
  result.offset_ += index * strides_[dim];
  result.shape_.erase(result.shape_.begin() + dim);
  result.strides_.erase(result.strides_.begin() + dim);
  result.numel_ = shape_numel(result.shape_);
  return result;
}

Tensor Tensor::slice(int dim, int64_t start, int64_t stop, int64_t step) const {
  if (ndim() == 0) {
    fail(ErrorKind::kInvalidArgument, "slice() cannot be applied to a 0-dim tensor");
  }
  dim = wrap_dim(dim);
  if (step <= 0) fail(ErrorKind::kInvalidArgument, "slice step must be positive, but got ", step);
  const int64_t size = shape_[dim];
  const auto clip = [size](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  start = clip(start);
  stop = std::max(clip(stop), start);
  const int64_t span = stop - start;
  Tensor result = *this;
  result.shape_[dim] = span / step + (span % step != 0 ? 1 : 0);
  if (result.shape_[dim] > 1) {
    result.strides_[dim] *= step;
  }
  result.numel_ = shape_numel(result.shape_);
  if (result.numel_ != 0) result.offset_ += start * strides_[dim];
  return result;
}

Tensor Tensor::squeeze(int dim) const {
  if (ndim() == 0 && (dim == 0 || dim == -1)) return *this;
  dim = wrap_dim(dim);
  Tensor result = *this;
  if (shape_[dim] == 1) {
    result.shape_.erase(result.shape_.begin() + dim);
    result.strides_.erase(result.strides_.begin() + dim);
  }
  return result;
}

Tensor Tensor::unsqueeze(int dim) const {
  const int n = ndim() + 1;
  if (dim < -n || dim >= n) {
    fail(ErrorKind::kIndex, "dimension out of range (expected to be in range of [", -n, ", ", n - 1,
         "], but got ", dim, ")");
  }
  if (dim < 0) dim += n;
  Tensor result = *this;
  int64_t stride = 1;
  if (dim < ndim() && __builtin_mul_overflow(shape_[dim], strides_[dim], &stride)) stride = 1;
  result.shape_.insert(result.shape_.begin() + dim, 1);
  result.strides_.insert(result.strides_.begin() + dim, stride);
  return result;
}

Tensor Tensor::expand(std::span<const int64_t> shape) const {
  const size_t added = shape.size() - shape_.size();
  if (shape.size() < shape_.size()) {
    fail(ErrorKind::kInvalidArgument, "expand: the number of sizes provided (", shape.size(),
         ") must be at least the number of dimensions in the tensor (", shape_.size(), ")");
  }
  Tensor result = *this;
  result.shape_.assign(shape.begin(), shape.end());
  result.strides_.assign(shape.size(), 0);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i < added) {
      if (shape[i] < 0) {
        fail(ErrorKind::kInvalidArgument, "expand: the size (", shape[i],
             ") is not allowed in a leading, non-existing dimension ", i);
      }
      continue;
    }
    const int64_t size = shape_[i - added];
    const int64_t wish = shape[i] == -1 ? size : shape[i];
    if (wish != size && size != 1) {
      fail(ErrorKind::kInvalidArgument, "expand: the expanded size (", wish,
           ") must match the existing size (", size, ") at dimension ", i,
           "; target sizes: ", text(shape), ", tensor sizes: ", text(shape_));
    }
    result.shape_[i] = wish;
    result.strides_[i] = wish == size ? strides_[i - added] : 0;
  }
  result.numel_ = shape_numel(result.shape_);
  return result;
}

}  // namespace hologram
