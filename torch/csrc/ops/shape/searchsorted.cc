// SPDX-License-Identifier: MIT
// searchsorted and bucketize: where values belong among sorted ones.
#include <ATen/native/Resize.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scalar_tensor.h>

#include "host/alias.h"
#include "ops/shape/index_tensors.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using c10::Scalar;

struct Search {
  bool out_int32 = false, right = false;
  std::optional<std::string_view> side = std::nullopt;
};

bool is_searched(const Tensor& t) { return is_dense(t) && is_real(t.scalar_type()); }

// Whether the sizes of lines are those of the values, or there is one line for all.
bool are_lines_of(const Tensor& sorted, const Tensor& values) {
  if (sorted.dim() == 1) return true;
  return sorted.dim() == values.dim() && sorted.dim() > 1 &&
         sorted.sizes().slice(0, static_cast<size_t>(sorted.dim()) - 1) ==
             values.sizes().slice(0, static_cast<size_t>(values.dim()) - 1);
}

bool takes_sorter(const std::optional<Tensor>& sorter, const Tensor& sorted) {
  return !is_given(sorter) || (is_dense(*sorter) && sorter->scalar_type() == at::kLong &&
                               sorter->sizes() == sorted.sizes());
}

// Undefined where PyTorch has to refuse the arguments, or may.
Tensor search(const Tensor& sorted, const Tensor& values, const std::optional<Tensor>& sorter,
              const Search& how) {
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  if (!is_searched(sorted) || !is_searched(values) || sorted.device() != values.device() ||
      !are_lines_of(sorted, values) || !takes_sorter(sorter, sorted) ||
      (how.out_int32 && sorted.size(-1) > kLargest) ||
      (how.side.has_value() && *how.side != "right" && (*how.side != "left" || how.right))) {
    return {};
  }
  const auto type = at::result_type(sorted, values);
  if (type == at::kBool) return {};
  Tensor order = is_given(sorter) ? settled_rows(*sorter) : Tensor();
  if (order.defined() && !are_within(order, 0, sorted.size(-1))) return {};
  Tensor out = new_empty(values, values.sizes(), how.out_int32 ? at::kInt : at::kLong);
  if (out.numel() == 0) return out;
  const BelowAutograd guard;
  const Tensor lines = sorted.to(type).contiguous(), wanted = values.to(type).contiguous();
  const std::array<int64_t, 1> all{wanted.numel()};
  const bool is_one = sorted.dim() == 1;
  record(calls::Searchsorted<Arg>{
      .sorted = lines,
      .values = is_one ? reshaped(wanted, all) : Arg::of<Access::reads>(wanted),
      .sorter = order,
      .right = how.right || how.side == "right",
      .out = is_one ? reshaped(written(out), all) : written(out)});
  return out;
}

// The same into memory of the caller's.
bool search_into(const Tensor& sorted, const Tensor& values, const std::optional<Tensor>& sorter,
                 const Search& how, Tensor& out) {
  if (!is_dense(out) || out.scalar_type() != (how.out_int32 ? at::kInt : at::kLong) ||
      out.device() != values.device()) {
    return false;
  }
  const Tensor found = search(sorted, values, sorter, how);
  if (!found.defined()) return false;
  at::native::resize_output(out, found.sizes());
  out.copy_(found);
  return true;
}

// A number beside a tensor, as in any other op: it does not decide the dtype.
Tensor beside(const Tensor& sorted, const Scalar& number) {
  const BelowAutograd guard;
  Tensor t = at::scalar_tensor(number, sorted.options().dtype(number.type()));
  t.unsafeGetTensorImpl()->set_wrapped_number(true);
  return t;
}

using Side = std::optional<std::string_view>;
using MaybeTensor = std::optional<Tensor>;

Tensor searchsorted(const Tensor& sorted, const Tensor& self, bool out_int32, bool right, Side side,
                    const MaybeTensor& sorter) {
  Tensor out = search(sorted, self, sorter, {out_int32, right, side});
  if (C10_LIKELY(out.defined())) return out;
  return call_fallback<"searchsorted.Tensor">(sorted, self, out_int32, right, side, sorter)
      .back()
      .toTensor();
}

Tensor& searchsorted_out(const Tensor& sorted, const Tensor& self, bool out_int32, bool right,
                         Side side, const MaybeTensor& sorter, Tensor& out) {
  if (C10_UNLIKELY(!search_into(sorted, self, sorter, {out_int32, right, side}, out))) {
    call_fallback<"searchsorted.Tensor_out">(sorted, self, out_int32, right, side, sorter, out);
  }
  return out;
}

bool is_number_sought(const Scalar& self, const Tensor& sorted) {
  return is_searched(sorted) && sorted.dim() == 1 && !self.isSymbolic() && !self.isComplex() &&
         !self.isBoolean();
}

Tensor searchsorted_number(const Tensor& sorted, const Scalar& self, bool out_int32, bool right,
                           Side side, const MaybeTensor& sorter) {
  if (C10_LIKELY(is_number_sought(self, sorted))) {
    Tensor out = search(sorted, beside(sorted, self), sorter, {out_int32, right, side});
    if (C10_LIKELY(out.defined())) return out;
  }
  return call_fallback<"searchsorted.Scalar">(sorted, self, out_int32, right, side, sorter)
      .back()
      .toTensor();
}

Tensor& searchsorted_number_out(const Tensor& sorted, const Scalar& self, bool out_int32,
                                bool right, Side side, const MaybeTensor& sorter, Tensor& out) {
  if (C10_UNLIKELY(
          !is_number_sought(self, sorted) ||
          !search_into(sorted, beside(sorted, self), sorter, {out_int32, right, side}, out))) {
    call_fallback<"searchsorted.Scalar_out">(sorted, self, out_int32, right, side, sorter, out);
  }
  return out;
}

Tensor bucketize(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right) {
  if (C10_LIKELY(boundaries.dim() == 1)) {
    Tensor out = search(boundaries, self, std::nullopt, {out_int32, right});
    if (C10_LIKELY(out.defined())) return out;
  }
  return call_fallback<"bucketize.Tensor">(self, boundaries, out_int32, right).back().toTensor();
}

Tensor& bucketize_out(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right,
                      Tensor& out) {
  if (C10_UNLIKELY(boundaries.dim() != 1 ||
                   !search_into(boundaries, self, std::nullopt, {out_int32, right}, out))) {
    call_fallback<"bucketize.Tensor_out">(self, boundaries, out_int32, right, out);
  }
  return out;
}

Tensor bucketize_number(const Scalar& self, const Tensor& boundaries, bool out_int32, bool right) {
  if (C10_LIKELY(is_number_sought(self, boundaries))) {
    Tensor out = search(boundaries, beside(boundaries, self), std::nullopt, {out_int32, right});
    if (C10_LIKELY(out.defined())) return out;
  }
  return call_fallback<"bucketize.Scalar">(self, boundaries, out_int32, right).back().toTensor();
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&searchsorted>(m, "searchsorted.Tensor");
  register_native<&searchsorted_out>(m, "searchsorted.Tensor_out");
  register_native<&searchsorted_number>(m, "searchsorted.Scalar");
  register_native<&searchsorted_number_out>(m, "searchsorted.Scalar_out");
  register_native<&bucketize>(m, "bucketize.Tensor");
  register_native<&bucketize_out>(m, "bucketize.Tensor_out");
  register_native<&bucketize_number>(m, "bucketize.Scalar");
}
