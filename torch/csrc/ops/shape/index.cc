// SPDX-License-Identifier: MIT
// index_select, take, index and index_put by integer tensors, index_add, index_copy, gather and
// scatter.
#include <ATen/ExpandUtils.h>

#include "ops/shape/index_tensors.h"

namespace hologram_torch {
namespace {

using at::ScalarType;
using at::Tensor;
using IndexList = c10::List<std::optional<Tensor>>;
using Sizes = c10::SmallVector<int64_t, 6>;

bool is_known(const Tensor& t) { return is_dense(t) && dtype_code(t.scalar_type()) != kNoDtype; }

bool share_storage(const Tensor& a, const Tensor& b) {
  return a.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() ==
         b.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

int64_t wrapped(const Tensor& t, int64_t dim) { return dim < 0 ? dim + t.dim() : dim; }

Tensor copy_of(const Tensor& t) {
  Tensor copy = new_empty(t, t.sizes());
  TORCH_INTERNAL_ASSERT(native_copy(copy, t));
  return copy;
}

// The elements of t, broadcast to sizes, in row-major order.
Tensor dense_as(const Tensor& t, c10::IntArrayRef sizes, ScalarType type) {
  if (t.scalar_type() == type && t.sizes() == sizes) return dense_rows(t);
  Tensor dense = new_empty(t, sizes, type);
  TORCH_INTERNAL_ASSERT(native_copy(dense, t));
  return dense;
}

// Whether self is contiguous, or at least a quarter as many elements are taken as it has, so that a
// contiguous copy of it pays.
bool is_worth_rows(const Tensor& self, int64_t taken) {
  return self.is_contiguous() || 4 * taken >= self.numel();
}

// --- One dimension ------------------------------------------------------------------------------

// Whether a copy in row-major order is worth its time before rows are taken from it: not where what
// lies behind one place of dim is in runs in memory, nor of elements that no kernel transposes.
bool is_worth_copy(const Tensor& self, int64_t dim) {
  constexpr int64_t kRun = 16;  // a cache line of float32
  const bool has_runs = dim < self.dim() - 1 && self.stride(-1) == 1 && self.size(-1) >= kRun;
  return !has_runs && self.itemsize() >= 4;
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  if (C10_LIKELY(is_known(self) && self.dim() > 0 && self.numel() > 0 && has_dim(self, dim) &&
                 is_position(index) && index.dim() <= 1 &&
                 (self.is_contiguous() || is_worth_copy(self, wrapped(self, dim))) &&
                 is_worth_rows(self, index.numel() * (self.numel() / self.size(dim))))) {
    const int64_t along = wrapped(self, dim);
    const Tensor at = settled_rows(index);
    if (C10_LIKELY(are_within(at, 0, self.size(along)))) {
      Sizes sizes(self.sizes().begin(), self.sizes().end());
      sizes[static_cast<size_t>(along)] = index.numel();
      Tensor out = new_empty(self, sizes);
      take_rows(dense_rows(self), Around(self, along), at, out);
      return out;
    }
  }
  return call_fallback<"index_select">(self, dim, index).back().toTensor();
}

// By positions in the flat tensor.
Tensor take(const Tensor& self, const Tensor& index) {
  const int64_t size = self.numel();
  if (C10_LIKELY(is_known(self) && size > 0 && is_dense(index) &&
                 index.scalar_type() == at::kLong && is_worth_rows(self, index.numel()))) {
    const Tensor at = settled_rows(index);
    if (C10_LIKELY(are_within(at, -size, size))) {
      Tensor out = new_empty(self, index.sizes());
      Around flat;
      flat.size = size;
      take_rows(dense_rows(self), flat, at, out);
      return out;
    }
  }
  return call_fallback<"take">(self, index).back().toTensor();
}

bool is_added(ScalarType type) {
  return at::isFloatingType(type) || type == at::kLong || type == at::kInt;
}

// Adds values to rows of self, or puts them there. self and values have been found to be dense and
// index to be valid.
template <bool kAdd>
void write_rows(const Tensor& self, int64_t first, int64_t last, const Tensor& index,
                const Tensor& values) {
  const auto sizes = Around(self, first, last).sizes();
  const int64_t count = index.numel();
  const int64_t lines[] = {sizes[0], count, sizes[2]};
  const Arg rows = reshaped(updated(self), sizes), places = reshaped(index, count);
  const Arg source = reshaped(values, lines);
  if constexpr (kAdd) {
    record(calls::AddAt<Arg>{.self = rows, .index = places, .source = source, .dim = 1});
  } else {
    record(calls::PutAt<Arg>{.self = rows, .index = places, .source = source, .dim = 1});
  }
}

// Whether source has a row for each index of one dimension.
bool takes_rows(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  if (!is_known(self) || self.dim() == 0 || !has_dim(self, dim) || !is_position(index) ||
      index.dim() != 1 || !is_dense(source) || source.scalar_type() != self.scalar_type() ||
      source.dim() != self.dim() || source.numel() == 0) {
    return false;
  }
  const int64_t along = wrapped(self, dim);
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (source.size(d) != (d == along ? index.numel() : self.size(d))) return false;
  }
  return true;
}

// Adds rows of source to those of `to`, or puts them there. False, with nothing done, where an
// index is outside.
template <bool kAdd>
bool write_source(const Tensor& to, int64_t dim, const Tensor& index, const Tensor& source) {
  const int64_t along = wrapped(to, dim);
  const Tensor at = settled_rows(index);
  if (!are_within(at, 0, to.size(along))) return false;
  write_rows<kAdd>(to, along, along + 1, at, dense_rows(source));
  return true;
}

// Whether the rows of self can be written where it lies.
bool is_open_to(const Tensor& self, const Tensor& index, const Tensor& source) {
  return self.is_contiguous() && !share_storage(self, source) && !share_storage(self, index);
}

bool takes_index_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                     const c10::Scalar& alpha) {
  return takes_rows(self, dim, index, source) && is_added(self.scalar_type()) &&
         !alpha.isSymbolic() && !alpha.isComplex() && alpha.equal(1);
}

Tensor index_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                 const c10::Scalar& alpha) {
  if (C10_LIKELY(takes_index_add(self, dim, index, source, alpha))) {
    Tensor out = copy_of(self);
    if (C10_LIKELY(write_source<true>(out, dim, index, source))) return out;
  }
  return call_fallback<"index_add">(self, dim, index, source, alpha).back().toTensor();
}

Tensor& index_add_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                   const c10::Scalar& alpha) {
  if (C10_UNLIKELY(!takes_index_add(self, dim, index, source, alpha) ||
                   !is_open_to(self, index, source) ||
                   !write_source<true>(self, dim, index, source))) {
    call_fallback<"index_add_">(self, dim, index, source, alpha);
  }
  return self;
}

Tensor index_copy(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  if (C10_LIKELY(takes_rows(self, dim, index, source) && index.scalar_type() == at::kLong)) {
    Tensor out = copy_of(self);
    if (C10_LIKELY(write_source<false>(out, dim, index, source))) return out;
  }
  return call_fallback<"index_copy">(self, dim, index, source).back().toTensor();
}

Tensor& index_copy_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  if (C10_UNLIKELY(!takes_rows(self, dim, index, source) || index.scalar_type() != at::kLong ||
                   !is_open_to(self, index, source) ||
                   !write_source<false>(self, dim, index, source))) {
    call_fallback<"index_copy_">(self, dim, index, source);
  }
  return self;
}

// --- index, index_put ---------------------------------------------------------------------------

// Integer tensors for adjacent dimensions [first, last) of a contiguous tensor, as positions in
// those dimensions together.
struct IndexPlan {
  bool ok = false;
  int64_t first = 0, last = 0;
  Tensor index;  // settled positions, broadcast together
  Sizes sizes;   // of the result
};

// Positions in all the dimensions together; each index is dense and of one size.
Tensor joint_positions(const Tensor& self, const c10::SmallVector<Tensor, 4>& indices,
                       int64_t first) {
  Tensor joint = new_empty(self, indices[0].sizes(), at::kLong);
  const c10::SmallVector<calls::In<Arg>, 4> list(indices.begin(), indices.end());
  const c10::IntArrayRef sizes = self.sizes().slice(static_cast<size_t>(first), indices.size());
  record(calls::JointPositions<Arg>{.indices = list, .sizes = sizes, .out = joint});
  return joint;
}

IndexPlan plan_index(const Tensor& self, const IndexList& list) {
  IndexPlan plan;
  if (!is_known(self) || !self.is_contiguous() || self.numel() == 0 ||
      static_cast<int64_t>(list.size()) > self.dim()) {
    return plan;
  }
  c10::SmallVector<Tensor, 4> indices;
  for (size_t d = 0; d < list.size(); ++d) {
    const std::optional<Tensor> index = list.get(d);
    if (!is_given(index)) continue;
    const auto dim = static_cast<int64_t>(d);
    if (!is_position(*index) || (!indices.empty() && dim != plan.last)) return plan;
    if (indices.empty()) plan.first = dim;
    plan.last = dim + 1;
    indices.push_back(*index);
  }
  if (indices.empty()) return plan;
  std::vector<int64_t> common(indices[0].sizes().begin(), indices[0].sizes().end());
  for (const Tensor& index : indices) {
    if (index.sizes() != c10::IntArrayRef(common)) {
      // Shapes that do not broadcast are the fallback's to refuse.
      for (int64_t d = 1; d <= std::min<int64_t>(index.dim(), common.size()); ++d) {
        const int64_t a = index.size(-d), b = common[common.size() - static_cast<size_t>(d)];
        if (a != b && a != 1 && b != 1) return plan;
      }
      common = at::infer_size(common, index.sizes());
    }
  }
  for (size_t k = 0; k < indices.size(); ++k) {
    const int64_t size = self.size(plan.first + static_cast<int64_t>(k));
    indices[k] = indices.size() == 1 ? settled_rows(indices[k])
                                     : settled_rows(indices[k], common, at::kLong);
    if (!are_within(indices[k], -size, size)) return plan;
  }
  plan.index = indices.size() == 1 ? indices[0] : joint_positions(self, indices, plan.first);
  plan.sizes.assign(self.sizes().begin(), self.sizes().begin() + plan.first);
  plan.sizes.append(common.begin(), common.end());
  plan.sizes.append(self.sizes().begin() + plan.last, self.sizes().end());
  plan.ok = true;
  return plan;
}

// PyTorch's message where indices of the device meet a tensor of cpu.
void check_index_devices(const Tensor& self) {
  TORCH_CHECK(!self.is_cpu(),
              "indices should be either on cpu or on the same device as the indexed tensor (cpu)");
}

Tensor index_tensor(const Tensor& self, const IndexList& indices) {
  check_index_devices(self);
  const IndexPlan plan = plan_index(self, indices);
  if (C10_LIKELY(plan.ok)) {
    Tensor out = new_empty(self, plan.sizes);
    take_rows(self, Around(self, plan.first, plan.last), plan.index, out);
    return out;
  }
  return call_fallback<"index.Tensor">(self, indices).back().toTensor();
}

// Whether values broadcast to sizes.
bool broadcasts(const Tensor& values, c10::IntArrayRef sizes) {
  if (values.dim() > static_cast<int64_t>(sizes.size())) return false;
  for (int64_t d = 1; d <= values.dim(); ++d) {
    const int64_t size = sizes[sizes.size() - static_cast<size_t>(d)];
    if (values.size(-d) != size && values.size(-d) != 1) return false;
  }
  return true;
}

Tensor& index_put(Tensor& self, const IndexList& indices, const Tensor& values, bool accumulate,
                  bool unsafe) {
  check_index_devices(self);
  const bool plain = is_known(self) && values.defined() &&
                     values.scalar_type() == self.scalar_type() &&
                     (is_dense(values) || is_cpu_number(values.unsafeGetTensorImpl())) &&
                     (!accumulate || is_added(self.scalar_type())) &&
                     !(is_dense(values) && share_storage(self, values));
  IndexPlan plan;
  if (C10_LIKELY(plain)) plan = plan_index(self, indices);
  if (C10_LIKELY(plan.ok && broadcasts(values, plan.sizes) && !share_storage(self, plan.index))) {
    if (plan.index.numel() == 0) return self;
    const Tensor dense = is_dense(values) ? dense_as(values, plan.sizes, self.scalar_type()) : [&] {
      Tensor t = new_empty(self, plan.sizes);
      TORCH_INTERNAL_ASSERT(native_copy(t, values));
      return t;
    }();
    if (accumulate) {
      write_rows<true>(self, plan.first, plan.last, plan.index, dense);
    } else {
      write_rows<false>(self, plan.first, plan.last, plan.index, dense);
    }
    return self;
  }
  call_fallback<"_index_put_impl_">(self, indices, values, accumulate, unsafe);
  return self;
}

// By positions in the flat tensor, with the sums of index_put and index_add.
Tensor& put_(Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  const bool takes = is_known(self) && self.is_contiguous() && is_dense(index) &&
                     index.scalar_type() == at::kLong && is_dense(source) &&
                     source.scalar_type() == self.scalar_type() &&
                     index.numel() == source.numel() && self.numel() != 0 && index.numel() != 0 &&
                     accumulate && is_added(self.scalar_type()) && !share_storage(self, index) &&
                     !share_storage(self, source);
  if (!takes) {
    call_fallback<"put_">(self, index, source, accumulate);
    return self;
  }
  Tensor flat = self.view({-1});
  IndexList list;
  list.push_back(index.reshape({-1}));
  index_put(flat, list, source.reshape({-1}), accumulate, /*unsafe=*/false);
  return self;
}

// --- gather, scatter ----------------------------------------------------------------------------

// Whether index has self's sizes but along dim, and names places in it.
bool takes_gather(const Tensor& self, int64_t dim, const Tensor& index) {
  if (!is_known(self) || !is_dense(index) || index.scalar_type() != at::kLong || self.dim() == 0 ||
      self.dim() == 0 || index.dim() != self.dim() || !has_dim(self, dim) || index.numel() == 0) {
    return false;
  }
  const int64_t along = wrapped(self, dim);
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != along && index.size(d) != self.size(d)) return false;
  }
  return true;
}

// Whether every index, which is dense, names a place along dim.
bool all_inside(const Tensor& index, const Tensor& self, int64_t dim) {
  return are_within(index, 0, self.size(dim));
}

Tensor gather(const Tensor& self, int64_t dim, const Tensor& index, bool sparse_grad) {
  if (C10_LIKELY(takes_gather(self, dim, index) && is_worth_rows(self, index.numel()))) {
    const Tensor at = settled_rows(index), rows = dense_rows(self);
    Tensor out = new_empty(self, index.sizes());
    const calls::Gather<Arg> call{
        .input = rows, .index = at, .dim = wrapped(self, dim), .out = out};
    if (record_or_refuse(call, [&] { return all_inside(at, self, dim); })) {
      return out;
    }
  }
  return call_fallback<"gather">(self, dim, index, sparse_grad).back().toTensor();
}

// Writes `values`, of index's sizes, or where that is undefined the element `one`; or adds them.
// False for an index outside, when, as on cpu, some may have been written: the fallback raises.
bool scatter_into(const Tensor& out, int64_t dim, const Tensor& index, const Tensor& values,
                  uint64_t one, bool add) {
  const Tensor at = settled_rows(index);
  const Tensor dense = values.defined() ? dense_rows(values) : values;
  const calls::Scatter<Arg> call{.self = updated(out),
                                 .index = at,
                                 .source = dense,
                                 .dim = wrapped(out, dim),
                                 .add = add,
                                 .element = one};
  return record_or_refuse(call, [&] { return all_inside(at, out, dim); });
}

bool takes_source(const Tensor& self, const Tensor& index, const Tensor& source) {
  return is_dense(source) && source.scalar_type() == self.scalar_type() &&
         source.sizes() == index.sizes();
}

bool adds_element(ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kLong || type == at::kInt;
}

template <bool kAdd, Name kName>
Tensor scatter(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  if (C10_LIKELY(takes_gather(self, dim, index) && takes_source(self, index, source) &&
                 (!kAdd || adds_element(self.scalar_type())))) {
    Tensor out = copy_of(self);
    if (C10_LIKELY(scatter_into(out, dim, index, source, 0, kAdd))) return out;
  }
  return call_fallback<kName>(self, dim, index, source).back().toTensor();
}

template <bool kAdd, Name kName>
Tensor& scatter_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  if (C10_LIKELY(takes_gather(self, dim, index) && takes_source(self, index, source) &&
                 (!kAdd || adds_element(self.scalar_type())) && self.is_contiguous() &&
                 !share_storage(self, index) && !share_storage(self, source) &&
                 scatter_into(self, dim, index, source, 0, kAdd))) {
    return self;
  }
  call_fallback<kName>(self, dim, index, source);
  return self;
}

// The number as an element of type; false for what PyTorch's own conversion has to judge.
bool store_element(const c10::Scalar& value, ScalarType type, uint64_t* slot) {
  const auto dtype = static_cast<hologram::Dtype>(dtype_code(type));
  if (hologram::is_complex(dtype) || hologram::compute_dtype(dtype) != dtype) return false;
  return store_number(value, dtype, slot);
}

Tensor scatter_value(const Tensor& self, int64_t dim, const Tensor& index,
                     const c10::Scalar& value) {
  uint64_t element = 0;
  if (C10_LIKELY(takes_gather(self, dim, index) &&
                 store_element(value, self.scalar_type(), &element))) {
    Tensor out = copy_of(self);
    if (C10_LIKELY(scatter_into(out, dim, index, Tensor(), element, false))) return out;
  }
  return call_fallback<"scatter.value">(self, dim, index, value).back().toTensor();
}

Tensor& scatter_value_(Tensor& self, int64_t dim, const Tensor& index, const c10::Scalar& value) {
  uint64_t element = 0;
  if (C10_LIKELY(takes_gather(self, dim, index) && self.is_contiguous() &&
                 !share_storage(self, index) &&
                 store_element(value, self.scalar_type(), &element) &&
                 scatter_into(self, dim, index, Tensor(), element, false))) {
    return self;
  }
  call_fallback<"scatter_.value">(self, dim, index, value);
  return self;
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&index_select>(m, "index_select");
  register_native<&take>(m, "take");
  register_native<&index_add>(m, "index_add");
  register_native<&index_add_>(m, "index_add_");
  register_native<&index_copy>(m, "index_copy");
  register_native<&index_copy_>(m, "index_copy_");
  register_native<&index_tensor>(m, "index.Tensor");
  register_native<&index_put>(m, "_index_put_impl_");
  register_native<&put_>(m, "put_");
  register_native<&gather>(m, "gather");
  register_native<&scatter<false, "scatter.src">>(m, "scatter.src");
  register_native<&scatter<true, "scatter_add">>(m, "scatter_add");
  register_native<&scatter_<false, "scatter_.src">>(m, "scatter_.src");
  register_native<&scatter_<true, "scatter_add_">>(m, "scatter_add_");
  register_native<&scatter_value>(m, "scatter.value");
  register_native<&scatter_value_>(m, "scatter_.value");
}
