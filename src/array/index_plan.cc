// SPDX-License-Identifier: MIT
// Settles index tensors: shapes, bounds, and offsets a block at a time.
#include "src/array/index_plan.h"

#include <algorithm>
#include <cstring>

#include "hologram/error.h"
#include "hologram/indexing.h"
#include "src/base/element.h"

namespace hologram::array {
namespace {

// The sign is that of a position, counted from the end where it was negative, that is out of
// bounds.
uint64_t wrap(uint64_t& at, uint64_t size) {
  at += static_cast<uint64_t>(static_cast<int64_t>(at) >> 63) & size;
  return at | (size - 1 - at);
}

// to[i] += step * from[i], wrapped. False where one is out of bounds.
template <class T>
bool add_places(const T* __restrict from, int64_t stride, int64_t n, int64_t size, int64_t step,
                int64_t* __restrict to) {
  uint64_t signs = 0;
  const auto add = [&](int64_t i, int64_t position, int64_t factor) {
    auto at = static_cast<uint64_t>(position);
    signs |= wrap(at, static_cast<uint64_t>(size));
    to[i] += static_cast<int64_t>(at * static_cast<uint64_t>(factor));
  };
  if (stride == 1 && step == 1) {
    for (int64_t i = 0; i < n; ++i) add(i, static_cast<int64_t>(from[i]), 1);
  } else if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) add(i, static_cast<int64_t>(from[i]), step);
  } else {
    for (int64_t i = 0; i < n; ++i) add(i, static_cast<int64_t>(from[i * stride]), step);
  }
  return static_cast<int64_t>(signs) >= 0;
}

// The offset of the element at a row-major position.
int64_t offset_at(int64_t position, const Shape& shape, const Shape& strides, size_t dims) {
  int64_t offset = 0;
  for (size_t d = dims; d-- > 0;) {
    offset += position % shape[d] * strides[d];
    position /= shape[d];
  }
  return offset;
}

// Writes base + step * i for the true ones of n elements behind `to`, which has room for all of
// them; returns how many.
int64_t add_true(const uint8_t* mask, int64_t stride, int64_t n, int64_t base, int64_t step,
                 int64_t* to) {
  int64_t count = 0, i = 0;
  if (stride == 1) {
    for (; i + 8 <= n; i += 8) {
      uint64_t eight;
      std::memcpy(&eight, mask + i, 8);
      if (eight == 0) continue;
      for (int64_t k = i; k < i + 8; ++k) {
        to[count] = base + k * step;
        count += mask[k] != 0;
      }
    }
  }
  for (; i < n; ++i) {
    to[count] = base + i * step;
    count += mask[i * stride] != 0;
  }
  return count;
}

int64_t count_row(const uint8_t* mask, int64_t stride, int64_t n) {
  int64_t count = 0, i = 0;
  if (stride == 1) {
    for (; i + 128 <= n; i += 128) {
      uint8_t some = 0;
      for (int64_t k = 0; k < 128; ++k) some = static_cast<uint8_t>(some + (mask[i + k] != 0));
      count += some;
    }
  }
  for (; i < n; ++i) count += mask[i * stride] != 0;
  return count;
}

// How long the rows are in which t's elements, and steps of other memory, lie at equal distances.
struct Rows {
  int64_t width, stride, step;
  size_t dims;  // those that the rows do not cover

  Rows(const Tensor& t, const Shape& steps) {
    const Shape &shape = t.shape(), &strides = t.strides();
    dims = shape.size() - 1;
    width = shape.back(), stride = strides.back(), step = steps.back();
    for (; dims > 0; --dims) {
      const size_t d = dims - 1;
      if (strides[d] != stride * width || steps[d] != step * width) break;
      width *= shape[d];
    }
  }
};

}  // namespace

std::string tuple_text(std::span<const int64_t> shape) {
  std::string text = "(";
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d != 0) text += ",";
    text += std::to_string(shape[d]);
  }
  text += shape.size() == 1 ? ",)" : ")";
  return text;
}

void settle_for_reading(const Tensor& t) {
  if (!is_readable_at_call(*t.buffer())) materialize(t);
}

bool find_places(const Tensor& index, int64_t size, int64_t step, int64_t* offsets) {
  const int64_t n = index.numel();
  std::fill_n(offsets, n, 0);
  return with_integer(index.dtype(), [&](auto type) {
    return add_places(static_cast<const decltype(type)*>(index.data()), 1, n, size, step, offsets);
  });
}

int64_t find_true_places(const Tensor& mask, int64_t step, int64_t* offsets) {
  return add_true(static_cast<const uint8_t*>(mask.data()), 1, mask.numel(), 0, step, offsets);
}

int64_t count_true(const Tensor& mask) {
  if (mask.numel() == 0) return 0;
  const auto* const from = static_cast<const uint8_t*>(mask.data());
  if (mask.ndim() == 0) return *from != 0 ? 1 : 0;
  const Rows rows(mask, mask.strides());
  int64_t count = 0;
  for (int64_t r = 0; r < mask.numel() / rows.width; ++r) {
    count += count_row(from + offset_at(r, mask.shape(), mask.strides(), rows.dims), rows.stride,
                       rows.width);
  }
  return count;
}

namespace {

int axis_of(const DimIndex& index) { return index.axis < 0 ? index.dim : index.axis; }

void check_mask(const Tensor& x, const Tensor& mask, const DimIndex& index) {
  for (int d = 0; d < mask.ndim(); ++d) {
    const int64_t size = x.size(index.dim + d);
    if (mask.size(d) == size || mask.size(d) == 0) continue;  // NumPy takes those without elements
    fail(ErrorKind::kIndex, "boolean index did not match indexed array along axis ",
         axis_of(index) + d, "; size of axis is ", size,
         " but size of corresponding boolean axis is ", mask.size(d));
  }
}

int64_t element_at(const Tensor& index, int64_t position) {
  const int64_t offset = offset_at(position, index.shape(), index.strides(), index.shape().size());
  return with_integer(index.dtype(), [&](auto type) {
    return static_cast<int64_t>(static_cast<const decltype(type)*>(index.data())[offset]);
  });
}

}  // namespace

void IndexPlan::check(const Tensor& x, std::span<const DimIndex> indices, int place) {
  check_defined("index", x);
  if (indices.empty()) fail(ErrorKind::kInvalidArgument, "index: no index was given");
  int dim = 0, covered = 0;
  for (const DimIndex& index : indices) {
    const Tensor& t = index.index;
    check_defined("index", t);
    const bool is_mask = t.dtype() == Dtype::kBool;
    if (!is_mask && !is_integer(t.dtype())) {
      fail(ErrorKind::kTypeMismatch, "index: indices are integers or bool, not ",
           dtype_name(t.dtype()), "; cast the index to int64");
    }
    const int dims = is_mask ? t.ndim() : 1;
    if (dims == 0 || index.dim < dim || index.dim + dims > x.ndim()) {
      fail(ErrorKind::kIndex, "index: an index of ", dims, " dimensions at dimension ", index.dim,
           " of a tensor of ", x.ndim(),
           "; each index covers dimensions behind those of the one before");
    }
    if (is_mask) check_mask(x, t, index);
    dim = index.dim + dims;
    covered += dims;
  }
  if (place < 0 || place > x.ndim() - covered) {
    fail(ErrorKind::kIndex, "index: ", x.ndim() - covered,
         " dimensions have no index, and the places are to come before the one at ", place);
  }
}

IndexPlan::IndexPlan(const Tensor& x, std::span<const DimIndex> indices, int place) {
  check(x, indices, place);
  const auto ndim = static_cast<size_t>(x.ndim());
  made_.reserve(indices.size() + ndim);
  positions_.reserve(ndim);
  bool are_neighbours = true;
  size_t dim = 0;
  const auto keep_until = [&](size_t end) {
    for (; dim < end; ++dim) {
      const bool is_outer = outer_shape_.size() < static_cast<size_t>(place);
      (is_outer ? outer_shape_ : inner_shape_).push_back(x.shape()[dim]);
      (is_outer ? outer_strides_ : inner_strides_).push_back(x.strides()[dim]);
    }
  };
  for (const DimIndex& index : indices) {
    const auto first = static_cast<size_t>(index.dim);
    are_neighbours = are_neighbours && (first == dim || &index == indices.data());
    keep_until(first);
    add(x, index, indices.size() == 1);
    dim = first + static_cast<size_t>(index.index.dtype() == Dtype::kBool ? index.index.ndim() : 1);
  }
  keep_until(ndim);
  if (mask_ == nullptr) broadcast_positions();
  inner_ = shape_numel(inner_shape_);
  is_around_one_dim_ = are_neighbours && place == indices[0].dim && x.is_contiguous();
  result_ = outer_shape_;
  for (const int64_t size : shape_) result_.push_back(size);
  for (const int64_t size : inner_shape_) result_.push_back(size);
}

void IndexPlan::add(const Tensor& x, const DimIndex& index, bool is_only) {
  const int axis = axis_of(index);
  const Tensor* t = &index.index;
  if (!device_of(*t).is_host_memory()) t = &made_.emplace_back(host_copy(*t));
  settle_for_reading(*t);
  const auto add_positions = [&](const Tensor& positions, int d) {
    positions_.push_back(
        {&positions, x.size(index.dim + d), x.stride(index.dim + d), axis + d, {}});
  };
  if (t->dtype() != Dtype::kBool) return add_positions(*t, 0);
  if (is_only) {
    mask_ = t;
    count_ = count_true(*t);
    shape_ = {count_};
    mask_steps_ =
        Shape(x.strides().begin() + index.dim, x.strides().begin() + index.dim + t->ndim());
    return;
  }
  int d = 0;
  for (Tensor& positions : nonzero(*t)) {
    made_.push_back(std::move(positions));
    add_positions(made_.back(), d++);
  }
}

void IndexPlan::broadcast_positions() {
  shape_ = positions_[0].index->shape();
  for (const Positions& positions : positions_) {
    if (positions.index->shape() == shape_ || broadcast_to(positions.index->shape(), shape_)) {
      continue;
    }
    std::string shapes;
    for (const Positions& each : positions_) {
      shapes += ' ';
      shapes += tuple_text(each.index->shape());
    }
    fail(ErrorKind::kIndex,
         "shape mismatch: indexing arrays could not be broadcast together with shapes", shapes);
  }
  count_ = shape_numel(shape_);
  for (Positions& positions : positions_) {
    const Tensor& index = *positions.index;
    is_linear_ = is_linear_ && index.is_contiguous() && index.shape() == shape_;
    positions.strides = strides_over(index, shape_);
  }
}

const Tensor* IndexPlan::plain_positions() const {
  if (mask_ != nullptr || positions_.size() != 1 || !made_.empty()) return nullptr;
  const Tensor& index = *positions_[0].index;
  const bool is_wide = index.dtype() == Dtype::kInt64 || index.dtype() == Dtype::kInt32;
  return is_wide && index.is_contiguous() ? &index : nullptr;
}

void IndexPlan::check_bounds() const {
  if (mask_ != nullptr || count_ == 0) return;
  if (const Tensor* index = plain_positions()) {
    const int64_t size = positions_[0].size;
    if (!positions_within({index->data(), index->dtype(), index->numel()}, -size, size)) {
      fail_outside();
    }
    return;
  }
  Places places(*this);
  while (!places.next().empty()) {
  }
}

void IndexPlan::fail_outside() const {
  for (const Positions& positions : positions_) {
    for (int64_t i = 0; i < positions.index->numel(); ++i) {
      const int64_t at = element_at(*positions.index, i);
      if (inside(at < 0 ? at + positions.size : at, positions.size)) continue;
      fail(ErrorKind::kIndex, "index ", at, " is out of bounds for axis ", positions.axis,
           " with size ", positions.size);
    }
  }
  fail(ErrorKind::kIndex, "an index was written by another thread while it was read");
}

Shape IndexPlan::offsets_of(const Shape& shape, const Shape& strides) {
  const int64_t n = shape_numel(shape);
  Shape offsets(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    offsets[static_cast<size_t>(i)] = offset_at(i, shape, strides, shape.size());
  }
  return offsets;
}

bool IndexPlan::is_inner_dense() const {
  return inner_ == 1 || inner_strides_ == contiguous_strides(inner_shape_);
}

std::span<const int64_t> Places::next() {
  const int64_t n = plan_.mask_ != nullptr ? next_of_mask() : next_positions();
  return {offsets_, static_cast<size_t>(n)};
}

// Adds the steps of n places from the one at `at` on, which lie in one row of the indices.
bool Places::add_row(const IndexPlan::Positions& positions, int64_t at, int64_t n,
                     int64_t* to) const {
  const Tensor& index = *positions.index;
  int64_t first = at, stride = 1;
  if (!plan_.is_linear_) {
    first = offset_at(at, plan_.shape_, positions.strides, plan_.shape_.size());
    stride = positions.strides.back();
  }
  return with_integer(index.dtype(), [&](auto type) {
    return add_places(static_cast<const decltype(type)*>(index.data()) + first, stride, n,
                      positions.size, positions.step / unit_, to);
  });
}

int64_t Places::next_positions() {
  const int64_t n = std::min(kBlock, plan_.count_ - done_);
  std::fill_n(offsets_, n, 0);
  bool good = true;
  for (const IndexPlan::Positions& positions : plan_.positions_) {
    for (int64_t i = 0; i < n;) {
      int64_t end = n;
      if (!plan_.is_linear_) {
        const int64_t width = plan_.shape_.back();
        end = std::min(n, i + width - (done_ + i) % width);
      }
      good &= add_row(positions, done_ + i, end - i, offsets_ + i);
      i = end;
    }
  }
  if (!good) plan_.fail_outside();
  done_ += n;
  return n;
}

int64_t Places::next_of_mask() {
  const Tensor& mask = *plan_.mask_;
  const auto* const from = static_cast<const uint8_t*>(mask.data());
  int64_t count = 0;
  if (mask.numel() == 0) return count;
  const Rows rows(mask, plan_.mask_steps_);
  while (done_ < mask.numel() && count <= kBlock - 64) {
    const int64_t row = done_ / rows.width, at = done_ % rows.width;
    const int64_t n = std::min(kBlock - count, rows.width - at);
    const int64_t base = offset_at(row, mask.shape(), plan_.mask_steps_, rows.dims);
    const int64_t first = offset_at(row, mask.shape(), mask.strides(), rows.dims);
    const int64_t step = rows.step / unit_;
    count += add_true(from + first + at * rows.stride, rows.stride, n, base / unit_ + at * step,
                      step, offsets_ + count);
    done_ += n;
  }
  return count;
}

namespace {

// Writes the positions of a mask's true elements in each of its dimensions.
void find_true(const Tensor& mask, std::span<int64_t*> to) {
  constexpr int64_t kPart = 1024;
  const auto* const from = static_cast<const uint8_t*>(mask.data());
  const size_t last = to.size() - 1;
  const int64_t width = mask.shape()[last], stride = mask.strides()[last];
  int64_t places[kPart];
  for (int64_t row = 0; row < mask.numel() / width; ++row) {
    const uint8_t* const line = from + offset_at(row, mask.shape(), mask.strides(), last);
    for (int64_t at = 0; at < width; at += kPart) {
      const int64_t n = std::min(kPart, width - at);
      const int64_t found = add_true(line + at * stride, stride, n, at, 1, places);
      if (found == 0) continue;
      to[last] = std::copy_n(places, found, to[last]);
      int64_t rest = row;
      for (size_t d = last; d-- > 0; rest /= mask.shape()[d]) {
        to[d] = std::fill_n(to[d], found, rest % mask.shape()[d]);
      }
    }
  }
}

}  // namespace
}  // namespace hologram::array

namespace hologram {

std::vector<Tensor> nonzero(const Tensor& x) {
  array::check_defined("nonzero", x);
  if (x.ndim() == 0) {
    fail(ErrorKind::kInvalidArgument,
         "nonzero: a 0d tensor has no positions; reshape it to [1] first");
  }
  if (x.dtype() != Dtype::kBool) return nonzero(apply(OpId::ne, {x, 0}));
  const Tensor mask = array::device_of(x).is_host_memory() ? x : array::host_copy(x);
  array::settle_for_reading(mask);
  const int64_t n = array::count_true(mask);
  std::vector<Tensor> found;
  std::vector<int64_t*> to;
  for (int d = 0; d < x.ndim(); ++d) {
    found.push_back(empty({n}, Dtype::kInt64, device(BackendType::kCpu)));
    materialize(found.back());
    to.push_back(static_cast<int64_t*>(found.back().data()));
  }
  if (n != 0) array::find_true(mask, to);
  return found;
}

}  // namespace hologram
