// SPDX-License-Identifier: MIT
// cat and stack, and the gradients of slice and select, which put a piece among zeros.
#include "hologram/elementwise.h"
#include "hologram/indexing.h"
#include "ops/shape/host_copy.h"
#include "recording/record_call.h"

namespace hologram_torch {
namespace {

using at::ITensorListRef;
using at::Tensor;
using at::TensorList;
using c10::IntArrayRef;
using c10::MemoryFormat;
using Sizes = c10::SmallVector<int64_t, 6>;

// cat ignores these whatever the shape of the others.
bool is_nothing(const Tensor& t) { return t.dim() == 1 && t.size(0) == 0; }

// Tensors side by side along one dimension of a result.
struct JoinPlan {
  bool ok = false;
  bool dense = true;  // every tensor lies in memory as its part of the result's rows
  MemoryFormat format = MemoryFormat::Contiguous;
  at::ScalarType type = at::kFloat;
  Sizes sizes;
  int dim = 0;
  c10::DeviceIndex index = 0;
};

// The dimension's place in the order of memory.
int place_in_memory(int d, int ndim, MemoryFormat format) {
  if (format == MemoryFormat::Contiguous || d == 0) return d;
  return d == 1 ? ndim - 1 : d - 1;
}

int64_t rows_of(const JoinPlan& plan) {
  const int ndim = static_cast<int>(plan.sizes.size());
  const int place = place_in_memory(plan.dim, ndim, plan.format);
  int64_t rows = 1;
  for (int d = 0; d < ndim; ++d) {
    if (place_in_memory(d, ndim, plan.format) < place) rows *= plan.sizes[static_cast<size_t>(d)];
  }
  return rows;
}

// --- Calls that put pieces into a result --------------------------------------------------------

// Pieces side by side in the rows of a result, which they fill.
class JoinCall {
 public:
  JoinCall(Tensor& out, int64_t rows) : out_(out), rows_(rows) {}
  // width elements of each row: of t's, or zeros where that is undefined.
  void add(const Tensor& t, int64_t width) {
    if (width == 0) return;
    pieces_.emplace_back(t.defined() ? Arg(t, Access::reads) : Arg());
    widths_.push_back(width);
  }
  void run() {
    const auto dtype = static_cast<hologram::Dtype>(dtype_code(out_.scalar_type()));
    std::vector<std::array<int64_t, 2>> sizes;
    sizes.reserve(pieces_.size());
    for (size_t k = 0; k < pieces_.size(); ++k) {
      const auto& own = sizes.emplace_back(std::array<int64_t, 2>{rows_, widths_[k]});
      pieces_[k] = pieces_[k].is_given() ? reshaped(pieces_[k], own) : nothing_of(dtype, own);
    }
    record(calls::Join<Arg>{.pieces = pieces_, .rows = rows_, .out = out_});
  }

 private:
  Tensor& out_;
  const int64_t rows_;
  c10::SmallVector<calls::In<Arg>, 8> pieces_;
  c10::SmallVector<int64_t, 8> widths_;
};

// Tensors copied, converted where they must be, to places in a result.
class PlaceCall {
 public:
  // Access::updates where they do not fill it.
  PlaceCall(const Tensor& out, Access access) : out_(out, access), item_(out.itemsize()) {}
  // t's elements from element `begin` of out's on, `strides` apart there.
  void add(const Tensor& t, int64_t begin, IntArrayRef strides) {
    pieces_.emplace_back(t);
    begins_.push_back(begin * static_cast<int64_t>(item_));
    strides_.append(strides.begin(), strides.end());
  }
  void run() {
    record(
        calls::Place<Arg>{.pieces = pieces_, .begins = begins_, .strides = strides_, .out = out_});
  }

 private:
  Arg out_;
  size_t item_;
  c10::SmallVector<calls::In<Arg>, 8> pieces_;
  c10::SmallVector<int64_t, 8> begins_;
  c10::SmallVector<int64_t, 16> strides_;
};

// --- cat ----------------------------------------------------------------------------------------

JoinPlan plan_cat(const ITensorListRef& tensors, int64_t dim) {
  JoinPlan plan;
  const Tensor* model = nullptr;
  bool mixed = false;
  for (const Tensor& t : tensors) {
    if (!t.defined() || !is_dense(t) || dtype_code(t.scalar_type()) == kNoDtype) return plan;
    if (model == nullptr) {
      plan.type = t.scalar_type();
    } else if (t.scalar_type() != plan.type) {
      plan.type = c10::promoteTypes(plan.type, t.scalar_type());
      mixed = true;
    }
    if (model == nullptr || (is_nothing(*model) && !is_nothing(t))) model = &t;
  }
  if (model == nullptr || is_nothing(*model) || dtype_code(plan.type) == kNoDtype) return plan;
  const int64_t ndim = model->dim();
  if (dim < 0) dim += ndim;
  if (dim < 0 || dim >= ndim) return plan;
  int64_t along = 0;
  plan.sizes.assign(model->sizes().begin(), model->sizes().end());
  plan.format = model->suggest_memory_format();
  plan.index = model->device().index();
  for (const Tensor& t : tensors) {
    if (is_nothing(t)) continue;
    if (t.dim() != ndim) return plan;
    for (int64_t d = 0; d < ndim; ++d) {
      if (d != dim && t.size(d) != model->size(d)) return plan;
    }
    along += t.size(dim);
    if (t.suggest_memory_format() != plan.format) plan.format = MemoryFormat::Contiguous;
  }
  for (const Tensor& t : tensors) plan.dense = plan.dense && t.is_contiguous(plan.format);
  plan.dense = plan.dense && !mixed;
  plan.dim = static_cast<int>(dim);
  plan.sizes[static_cast<size_t>(dim)] = along;
  plan.ok = true;
  for (const int64_t size : plan.sizes) plan.ok = plan.ok && size > 0;
  return plan;
}

Tensor cat(const ITensorListRef& tensors, int64_t dim) {
  const JoinPlan plan = plan_cat(tensors, dim);
  if (C10_UNLIKELY(!plan.ok)) {
    c10::List<Tensor> list;
    for (const Tensor& t : tensors) list.push_back(t);
    return call_fallback<"cat">(list, dim).back().toTensor();
  }
  Tensor out = make_formatted(plan.sizes, plan.type, plan.format, plan.index);
  if (C10_LIKELY(plan.dense)) {
    const int64_t rows = rows_of(plan);
    JoinCall join(out, rows);
    for (const Tensor& t : tensors) join.add(t, t.numel() / rows);
    join.run();
    return out;
  }
  const int64_t step = out.stride(plan.dim);
  int64_t begin = 0;
  PlaceCall place(out, Access::writes);
  for (const Tensor& t : tensors) {
    if (t.numel() == 0) continue;
    place.add(t, begin, out.strides());
    begin += t.size(plan.dim) * step;
  }
  place.run();
  return out;
}

// --- stack --------------------------------------------------------------------------------------

Tensor stack(TensorList tensors, int64_t dim) {
  JoinPlan plan;
  const int64_t ndim = tensors.empty() ? -1 : tensors[0].dim();
  if (dim < 0) dim += ndim + 1;
  plan.ok = dim >= 0 && dim <= ndim && tensors[0].numel() > 0;
  for (const Tensor& t : tensors) {
    plan.ok = plan.ok && t.defined() && is_dense(t) && dtype_code(t.scalar_type()) != kNoDtype &&
              t.scalar_type() == tensors[0].scalar_type() && t.sizes() == tensors[0].sizes();
    if (!plan.ok) {
      c10::List<Tensor> list;
      for (const Tensor& each : tensors) list.push_back(each);
      return call_fallback<"stack">(list, dim).back().toTensor();
    }
    plan.dense =
        plan.dense && t.is_contiguous() && t.suggest_memory_format() == MemoryFormat::Contiguous;
  }
  const Tensor& model = tensors[0];
  Sizes sizes(model.sizes().begin(), model.sizes().end());
  sizes.insert(sizes.begin() + dim, static_cast<int64_t>(tensors.size()));
  if (C10_LIKELY(plan.dense)) {
    Tensor out = new_empty(model, sizes);
    int64_t rows = 1;
    for (const int64_t size : model.sizes().slice(0, static_cast<size_t>(dim))) rows *= size;
    JoinCall join(out, rows);
    for (const Tensor& t : tensors) join.add(t, t.numel() / rows);
    join.run();
    return out;
  }
  // As PyTorch has it: cat settles the order of memory, which may be that of channels last.
  if (dim < ndim) return hologram_torch::cat(tensors, dim).view(sizes);
  std::vector<Tensor> columns;
  for (const Tensor& t : tensors) columns.push_back(t.unsqueeze(dim));
  return hologram_torch::cat(columns, dim);
}

// --- A piece among zeros ------------------------------------------------------------------------

// Zeros of these sizes with grad in [start, start + grad.size(dim)) of dim, or every step-th of it.
// `dims` are grad's own dimensions; with select it lacks dim.
Tensor among_zeros(const Tensor& grad, IntArrayRef sizes, int64_t dim, int64_t start, int64_t step,
                   bool selected) {
  Tensor out = new_empty(grad, sizes);
  const int64_t before = start * out.stride(dim);
  if (C10_LIKELY(step == 1 && grad.is_contiguous() && grad.numel() > 0)) {
    int64_t rows = 1;
    for (const int64_t size : sizes.slice(0, static_cast<size_t>(dim))) rows *= size;
    const int64_t own = grad.numel() / rows, all = out.numel() / rows;
    JoinCall join(out, rows);
    join.add(Tensor(), before);
    join.add(grad, own);
    join.add(Tensor(), all - own - before);
    join.run();
    return out;
  }
  TORCH_INTERNAL_ASSERT(native_zero(out));
  Sizes strides(out.strides().begin(), out.strides().end());
  if (selected) {
    strides.erase(strides.begin() + dim);
  } else {
    strides[static_cast<size_t>(dim)] *= step;
  }
  if (grad.numel() == 0) return out;
  PlaceCall place(out, Access::updates);
  place.add(grad, before, strides);
  place.run();
  return out;
}

bool takes_piece(const Tensor& grad, IntArrayRef sizes, int64_t dim) {
  return is_dense(grad) && dtype_code(grad.scalar_type()) != kNoDtype && dim >= 0 &&
         dim < static_cast<int64_t>(sizes.size()) &&
         std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size > 0; });
}

Tensor slice_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, int64_t start,
                      int64_t end, int64_t step) {
  const auto ndim = static_cast<int64_t>(sizes.size());
  const int64_t along = dim < 0 ? dim + ndim : dim;
  bool ok = takes_piece(grad, sizes, along) && grad.dim() == ndim && step > 0;
  int64_t from = start;
  if (ok) {
    const int64_t size = sizes[static_cast<size_t>(along)];
    from = std::clamp<int64_t>(start < 0 ? start + size : start, 0, size);
    const int64_t to = std::clamp<int64_t>(end < 0 ? end + size : end, from, size);
    for (int64_t d = 0; d < ndim; ++d) {
      ok = ok && grad.size(d) ==
                     (d == along ? (to - from + step - 1) / step : sizes[static_cast<size_t>(d)]);
    }
  }
  if (C10_LIKELY(ok)) return among_zeros(grad, sizes, along, from, step, false);
  return call_fallback<"slice_backward">(grad, sizes, dim, start, end, step).back().toTensor();
}

Tensor select_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, int64_t index) {
  const auto ndim = static_cast<int64_t>(sizes.size());
  const int64_t along = dim < 0 ? dim + ndim : dim;
  bool ok = takes_piece(grad, sizes, along) && grad.dim() == ndim - 1;
  int64_t at = index;
  if (ok) {
    const int64_t size = sizes[static_cast<size_t>(along)];
    at = index < 0 ? index + size : index;
    ok = at >= 0 && at < size;
    for (int64_t d = 0; d < ndim - 1; ++d) {
      ok = ok && grad.size(d) == sizes[static_cast<size_t>(d < along ? d : d + 1)];
    }
  }
  if (C10_LIKELY(ok)) return among_zeros(grad, sizes, along, at, 1, true);
  return call_fallback<"select_backward">(grad, sizes, dim, index).back().toTensor();
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&cat>(m, "cat");
  register_native<&stack>(m, "stack");
  register_native<&slice_backward>(m, "slice_backward");
  register_native<&select_backward>(m, "select_backward");
}
