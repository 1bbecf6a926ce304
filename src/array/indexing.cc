// SPDX-License-Identifier: MIT
// x[...] with index tensors, read and assigned: at the call where the values are known and few,
// else by calls that move rows.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "src/array/at_call.h"
#include "src/array/index_plan.h"
#include "src/array/record_call.h"
#include "src/array/unsigned.h"
#include "src/base/element.h"

namespace hologram {
namespace array {
namespace {

// What x[...] of indices is called in traces.
constexpr const char* kGet = "x[index]";
constexpr const char* kPut = "x[index] = y";

// Indices are looked at to know which elements they name.
void note_indexing(const char* op, const Tensor& x, bool is_small) {
  note_at_call(device_of(x), op, is_small ? AtCall::kSmall : AtCall::kValues);
}

// f(a value of the size of x's elements).
template <class F>
void with_element_of(const Tensor& x, F&& f) {
  with_element("index", static_cast<int64_t>(itemsize(x.dtype())), f);
}

// Runs of adjacent elements at the offsets, one after another to or from row-major memory.
template <class T>
void get_runs(const T* from, std::span<const int64_t> offsets, int64_t run, T* to) {
  if (run == 1) {
    for (const int64_t offset : offsets) *to++ = from[offset];
  } else {
    for (const int64_t offset : offsets) to = std::copy_n(from + offset, run, to);
  }
}
template <class T>
void put_runs(const T* from, std::span<const int64_t> offsets, int64_t run, T* to) {
  if (run == 1) {
    for (const int64_t offset : offsets) to[offset] = *from++;
  } else {
    for (const int64_t offset : offsets) {
      std::copy_n(from, run, to + offset);
      from += run;
    }
  }
}
template <class T>
void fill_runs(T value, std::span<const int64_t> offsets, int64_t run, T* to) {
  if (run == 1) {
    for (const int64_t offset : offsets) to[offset] = value;
  } else {
    for (const int64_t offset : offsets) std::fill_n(to + offset, run, value);
  }
}

// Moves elements between places of a tensor and row-major memory of the result's shape, in the
// order of the places.
class PlaceMover {
 public:
  explicit PlaceMover(const IndexPlan& plan)
      : plan_(plan), outer_(plan.outer_offsets()), is_dense_(plan.is_inner_dense()) {
    if (!is_dense_) inner_ = plan.inner_offsets();
  }

  template <class T>
  void get(const T* from, T* to) const {
    walk([&](int64_t at, std::span<const int64_t> offsets, int64_t outer) {
      const T* const base = from + outer;
      T* out = to + at;
      if (is_dense_) return get_runs(base, offsets, plan_.inner(), out);
      for (const int64_t offset : offsets) {
        for (const int64_t inner : inner_) *out++ = base[offset + inner];
      }
    });
  }
  template <class T>
  void put(const T* from, T* to) const {
    walk([&](int64_t at, std::span<const int64_t> offsets, int64_t outer) {
      const T* in = from + at;
      T* const base = to + outer;
      if (is_dense_) return put_runs(in, offsets, plan_.inner(), base);
      for (const int64_t offset : offsets) {
        for (const int64_t inner : inner_) base[offset + inner] = *in++;
      }
    });
  }
  template <class T>
  void fill(T value, T* to) const {
    walk([&](int64_t, std::span<const int64_t> offsets, int64_t outer) {
      T* const base = to + outer;
      if (is_dense_) return fill_runs(value, offsets, plan_.inner(), base);
      for (const int64_t offset : offsets) {
        for (const int64_t inner : inner_) base[offset + inner] = value;
      }
    });
  }

 private:
  // f(where the row-major elements begin, offsets, the offset of the dimensions before).
  template <class F>
  void walk(F&& f) const {
    Places places(plan_);
    int64_t done = 0;
    for (auto offsets = places.next(); !offsets.empty(); offsets = places.next()) {
      int64_t line = done;
      for (const int64_t outer : outer_) {
        f(line * plan_.inner(), offsets, outer);
        line += plan_.count();
      }
      done += static_cast<int64_t>(offsets.size());
    }
  }

  const IndexPlan& plan_;
  Shape outer_, inner_;
  bool is_dense_;
};

// The places as positions in the one dimension that takes part, see is_around_one_dim().
Tensor joint_positions(const IndexPlan& plan, Device& device) {
  if (const Tensor* plain = plan.plain_positions();
      plain != nullptr && &device_of(*plain) == &device) {
    plan.check_bounds();
    return plain->reshape({plan.count()});
  }
  const Tensor positions =
      fresh({plan.count()}, Dtype::kInt64, hologram::device(BackendType::kCpu));
  materialize(positions);
  auto* to = static_cast<int64_t*>(positions.data());
  Places places(plan, plan.inner());
  for (auto some = places.next(); !some.empty(); some = places.next()) {
    to = std::copy(some.begin(), some.end(), to);
  }
  return device.is_host_memory() ? positions : from_host(positions.view(), device);
}

// The tensor as [outer, places, inner].
Tensor around_places(const Tensor& t, const IndexPlan& plan, int64_t places) {
  const int64_t inner = plan.inner(), outer = t.numel() / std::max<int64_t>(1, places * inner);
  return carrier(t).reshape({outer, places, inner});
}

void take_by_call(const IndexPlan& plan, const Tensor& x, const Tensor& out) {
  const Tensor positions = joint_positions(plan, device_of(x));
  const int64_t lines = plan.outer_count() * plan.inner();
  const Tensor from = around_places(x, plan, x.numel() / lines);
  const Tensor to = around_places(out, plan, plan.count());
  record(calls::Take<Arg>{.input = from, .index = positions, .dim = 1, .out = to});
}

void put_by_call(const IndexPlan& plan, const Tensor& x, const Tensor& values) {
  const Tensor positions = joint_positions(plan, device_of(x));
  const int64_t lines = plan.outer_count() * plan.inner();
  const Tensor to = around_places(x, plan, x.numel() / lines);
  const Tensor from = around_places(values, plan, plan.count());
  record(calls::PutAt<Arg>{.self = to, .index = positions, .source = from, .dim = 1});
}

// x with its indexed dimensions in front, and the indices for it.
struct Transposed {
  Tensor x;
  std::vector<DimIndex> indices;

  Transposed(const Tensor& given, std::span<const DimIndex> keys) {
    std::vector<int> order, rest;
    int next = 0;
    for (const DimIndex& key : keys) {
      for (; next < key.dim; ++next) rest.push_back(next);
      indices.push_back({static_cast<int>(order.size()), key.index, key.axis});
      if (key.axis < 0) indices.back().axis = key.dim;
      const int dims = key.index.dtype() == Dtype::kBool ? key.index.ndim() : 1;
      for (int d = 0; d < dims; ++d) order.push_back(next++);
    }
    for (; next < given.ndim(); ++next) rest.push_back(next);
    order.insert(order.end(), rest.begin(), rest.end());
    x = given.permute(order);
  }
};

// t, whose first `count` dimensions come before dimension `place` of the others.
Tensor moved_to(const Tensor& t, int count, int place) {
  std::vector<int> order(static_cast<size_t>(t.ndim()));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + count, order.begin() + count + place);
  return t.permute(order);
}
Tensor moved_from(const Tensor& t, int count, int place) {
  std::vector<int> order(static_cast<size_t>(t.ndim()));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + place, order.begin() + place + count);
  return t.permute(order);
}

[[noreturn]] void fail_values(const IndexPlan& plan, const Tensor& value) {
  fail(ErrorKind::kInvalidArgument, "shape mismatch: value array of shape ",
       tuple_text(value.shape()), " could not be broadcast to indexing result of shape ",
       tuple_text(plan.result()));
}

// The value in x's dtype, in the result's shape or as one element, apart from x's memory.
Tensor settled_value(const IndexPlan& plan, const Tensor& x, const Tensor& given) {
  Tensor value = given;
  while (value.ndim() > static_cast<int>(plan.result().size()) && value.size(0) == 1) {
    value = value.squeeze(0);
  }
  Shape whole = plan.result();
  const bool fits = value.ndim() <= static_cast<int>(whole.size()) &&
                    broadcast_to(value.shape(), whole) && whole == plan.result();
  const bool is_list =
      plan.mask() != nullptr && plan.mask()->ndim() == x.ndim() && given.ndim() < 2;
  if (!fits && is_list) {
    fail(ErrorKind::kInvalidArgument, "NumPy boolean array indexing assignment cannot assign ",
         given.numel(), " input values to the ", plan.count(),
         " output values where the mask is true");
  }
  if (!fits) fail_values(plan, given);
  if (value.dtype() != x.dtype()) value = cast(value, x.dtype());
  if (value.numel() != 1) value = contiguous(broadcast(value, plan.result()));
  return may_overlap(value, x) ? copy_of(value, value.dtype()) : value;
}

// x = where(mask, value, x), which waits for nothing.
void put_where(const Tensor& x, const DimIndex& index, const Tensor& value) {
  Tensor mask = index.index;
  for (int d = index.dim + mask.ndim(); d < x.ndim(); ++d) mask = mask.unsqueeze(mask.ndim());
  Tensor one = value;
  while (one.ndim() > 0) one = one.squeeze(0);
  apply_into(OpId::where, {mask, one, x}, x);
}

// The places of one small index of the first dimensions of a row-major tensor, at the call. Most
// keys are such, and a plan would take longer than their elements.
class FrontPlaces {
 public:
  // False where it is another case, or a position is out of bounds.
  bool settle(const Tensor& x, std::span<const DimIndex> indices, int place) {
    const DimIndex& only = indices[0];
    const Tensor& index = only.index;
    const bool is_mask = index.dtype() == Dtype::kBool;
    const auto dims = static_cast<size_t>(is_mask ? index.ndim() : 1);
    if (indices.size() != 1 || place != 0 || only.dim != 0 || index.numel() > Places::kBlock ||
        index.numel() == 0 || dims == 0 || dims > x.shape().size() || x.numel() == 0 ||
        !(is_mask || is_integer(index.dtype())) || !x.is_contiguous() || !index.is_contiguous() ||
        !is_readable_at_call(*index.buffer())) {
      return false;
    }
    for (size_t d = dims; d < x.shape().size(); ++d) run_ *= x.shape()[d];
    if (!is_mask) {
      count_ = index.numel();
      return find_places(index, x.shape()[0], run_, offsets_);
    }
    if (!std::equal(index.shape().begin(), index.shape().end(), x.shape().begin())) return false;
    count_ = find_true_places(index, run_, offsets_);
    return true;
  }

  std::span<const int64_t> offsets() const { return {offsets_, static_cast<size_t>(count_)}; }
  int64_t run() const { return run_; }
  int64_t numel() const { return count_ * run_; }
  Shape result(const Tensor& x, const Tensor& index) const {
    const bool is_mask = index.dtype() == Dtype::kBool;
    Shape shape = is_mask ? Shape{count_} : index.shape();
    for (int d = is_mask ? index.ndim() : 1; d < x.ndim(); ++d) shape.push_back(x.size(d));
    return shape;
  }

 private:
  int64_t count_ = 0, run_ = 1;
  int64_t offsets_[Places::kBlock];
};

std::optional<Tensor> index_at_call(const Tensor& x, std::span<const DimIndex> indices, int place) {
  FrontPlaces places;
  if (!is_readable_at_call(*x.buffer()) || !places.settle(x, indices, place)) return std::nullopt;
  const int64_t bytes = places.numel() * static_cast<int64_t>(itemsize(x.dtype()));
  if (!is_immediate(bytes)) return std::nullopt;
  Tensor out =
      with_memory(places.result(x, indices[0].index), places.numel(), x.dtype(), device_of(x));
  with_element_of(x, [&](auto type) {
    using T = decltype(type);
    get_runs(static_cast<const T*>(x.data()), places.offsets(), places.run(),
             static_cast<T*>(out.data()));
  });
  note_small(kGet, x);
  return out;
}

// False, with nothing written, for other cases than those of FrontPlaces and values that are one
// number or exactly those of the places.
bool put_at_call(const Tensor& x, std::span<const DimIndex> indices, int place,
                 const Operand& value) {
  alignas(16) char number[16];
  const void* from = number;
  bool is_one = true;
  if (!is_writable_at_call(*x.buffer()) || x.buffer()->data() == nullptr) return false;
  if (value.is_tensor()) {
    const Tensor& t = value.tensor();
    if (t.dtype() != x.dtype() || !t.is_contiguous() || !is_readable_at_call(*t.buffer()) ||
        may_overlap(t, x)) {
      return false;
    }
    from = t.data(), is_one = t.numel() == 1;
  } else {
    if (is_stored_only(x.dtype())) return false;
    convert(value.number().dtype, &value.number().f64, x.dtype(), number, 1);
  }
  const Tensor& index = indices[0].index;
  FrontPlaces places;
  if (may_overlap(x, index) || !places.settle(x, indices, place) ||
      !is_immediate(places.numel() * static_cast<int64_t>(itemsize(x.dtype()))) ||
      !(is_one || value.tensor().shape() == places.result(x, index))) {
    return false;
  }
  with_element_of(x, [&](auto type) {
    using T = decltype(type);
    auto* const to = static_cast<T*>(x.data());
    const auto* const given = static_cast<const T*>(from);
    is_one ? fill_runs(*given, places.offsets(), places.run(), to)
           : put_runs(given, places.offsets(), places.run(), to);
  });
  note_small(kPut, x);
  return true;
}

}  // namespace
}  // namespace array

using namespace array;

Tensor index(const Tensor& x, std::span<const DimIndex> indices, int place) {
  if (!indices.empty() && x.buffer() && indices[0].index.buffer()) {
    if (std::optional<Tensor> found = index_at_call(x, indices, place)) return *std::move(found);
  }
  const IndexPlan plan(x, indices, place);
  Device& device = device_of(x);
  if (shape_numel(plan.result()) == 0) {
    plan.check_bounds();
    return fresh(plan.result(), x.dtype(), device);
  }
  const int64_t n = shape_numel(plan.result());
  const int64_t bytes = n * static_cast<int64_t>(itemsize(x.dtype()));
  const bool is_host = device.is_host_memory();
  const bool is_small = is_immediate(bytes) && is_readable_at_call(*x.buffer());
  if (!is_small && plan.is_around_one_dim() && (plan.mask() == nullptr || !is_host)) {
    const Tensor out = fresh(plan.result(), x.dtype(), device);
    take_by_call(plan, x, out);
    return out;
  }
  if (!is_host) {
    const Transposed front(x, indices);
    const Tensor found = index(contiguous(front.x), front.indices, 0);
    return contiguous(moved_to(found, plan.place_dims(), place));
  }
  note_indexing(kGet, x, is_small);
  if (!is_readable_at_call(*x.buffer())) materialize(x);
  Tensor out = with_memory(plan.result(), n, x.dtype(), device);
  with_element_of(x, [&](auto type) {
    using T = decltype(type);
    PlaceMover(plan).get(static_cast<const T*>(x.data()), static_cast<T*>(out.data()));
  });
  return out;
}

void index_put(const Tensor& x, std::span<const DimIndex> indices, int place,
               const Operand& operand) {
  check_result("index_put", x);
  Device& device = operand.is_tensor() ? device_of("index_put", x, operand.tensor()) : device_of(x);
  if (!indices.empty() && indices[0].index.buffer() && put_at_call(x, indices, place, operand)) {
    return;
  }
  IndexPlan::check(x, indices, place);
  const Tensor given =
      operand.is_tensor() ? operand.tensor() : full({}, operand.number(), x.dtype(), device);
  const bool is_host = device.is_host_memory();
  // A trace or a capture sees all ops.
  const bool is_free = is_immediate(0) && is_writable_at_call(*x.buffer());
  const Tensor& first = indices[0].index;
  if (indices.size() == 1 && first.dtype() == Dtype::kBool && first.numel() != 0 &&
      given.numel() == 1 && !(is_free && is_readable_at_call(*first.buffer())) &&
      &device_of(first) == &device) {
    return put_where(x, indices[0], cast(given, x.dtype()));
  }
  if (std::ranges::any_of(indices, [&](const DimIndex& i) { return may_overlap(x, i.index); })) {
    std::vector<DimIndex> apart(indices.begin(), indices.end());
    for (DimIndex& each : apart) each.index = copy_of(each.index, each.index.dtype());
    return index_put(x, apart, place, operand);
  }
  const IndexPlan plan(x, indices, place);
  const Tensor value = settled_value(plan, x, given);
  const int64_t n = shape_numel(plan.result());
  if (n == 0) return plan.check_bounds();
  const bool is_small = is_immediate(n * static_cast<int64_t>(itemsize(x.dtype())));
  const bool is_ready = is_free && is_readable_at_call(*value.buffer()) && is_host;
  // The call would gain nothing but threads, which take runs of several places.
  const bool is_one_line = plan.outer_count() * plan.inner() == 1;
  const bool is_now = is_ready && (is_small || value.numel() == 1 || is_one_line);
  if (!is_now && plan.is_around_one_dim()) {
    return put_by_call(plan, x, contiguous(broadcast(value, plan.result())));
  }
  if (!is_host) {
    const Transposed front(x, indices);
    const Tensor work = copy_of(front.x, x.dtype());
    const Tensor values = broadcast(value, plan.result());
    index_put(work, front.indices, 0, moved_from(values, plan.place_dims(), place));
    return copy_into(work, front.x);
  }
  if (plan.count() > Places::kBlock) plan.check_bounds();
  note_indexing(kPut, x, is_small);
  materialize(x);
  settle_for_reading(value);
  with_element_of(x, [&](auto type) {
    using T = decltype(type);
    const auto* const from = static_cast<const T*>(value.data());
    auto* const to = static_cast<T*>(x.data());
    const PlaceMover mover(plan);
    value.numel() == 1 ? mover.fill(*from, to) : mover.put(from, to);
  });
}

}  // namespace hologram
