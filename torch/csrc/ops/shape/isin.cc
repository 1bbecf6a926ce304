// SPDX-License-Identifier: MIT
// isin: which elements are among others. Few others are compared one by one, which is recorded;
// many are sorted and searched.
#include <ATen/Functions.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "host/alias.h"
#include "recording/native_common.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using c10::Scalar;

// Comparisons one by one become one kernel, which reads the elements once.
constexpr int64_t kFew = 16;
// Pairs that may be written down, to be asked whether any is true.
constexpr int64_t kMostPairs = 1 << 16;

// PyTorch computes with these; it refuses bool and complex types, in its own words.
bool is_compared(const Tensor& t) {
  return is_dense(t.unsafeGetTensorImpl()) && is_real(t.scalar_type()) &&
         t.scalar_type() != at::kBool;
}

bool are_compared(const Tensor& elements, const Tensor& others) {
  return is_compared(elements) && is_compared(others) && elements.device() == others.device();
}

// Both are of one dtype and contiguous, and others have one dimension.
Tensor are_among(const Tensor& elements, const Tensor& others, bool invert) {
  const int64_t n = elements.numel(), m = others.numel();
  if (n == 0 || m == 0) {
    return at::full(elements.sizes(), invert, elements.options().dtype(at::kBool));
  }
  if (m <= kFew) {
    Tensor found;
    for (int64_t i = 0; i < m; ++i) {
      const Tensor other = others.select(0, i);
      const Tensor same = invert ? at::ne(elements, other) : at::eq(elements, other);
      if (!found.defined()) {
        found = same;
      } else if (invert) {
        found = at::bitwise_and(found, same);
      } else {
        found = at::bitwise_or(found, same);
      }
    }
    return found;
  }
  if (n <= kMostPairs / m) {
    const Tensor pairs = elements.unsqueeze(-1);
    return invert ? at::all(at::ne(pairs, others), -1) : at::any(at::eq(pairs, others), -1);
  }
  // The first that is not less, if there is one, is the element or none is. NaN is sorted last,
  // equals nothing, and would lead the search astray.
  Tensor sorted = std::get<0>(at::sort(others));
  if (others.is_floating_point()) {
    sorted = sorted.narrow(0, 0, m - at::isnan(others).sum().item<int64_t>());
    if (sorted.numel() < m) return are_among(elements, sorted, invert);
  }
  const Tensor flat = elements.reshape({-1});
  const Tensor at = at::searchsorted(sorted, flat).clamp_max(m - 1);
  const Tensor nearest = at::index_select(sorted, 0, at);
  return (invert ? at::ne(flat, nearest) : at::eq(flat, nearest)).view(elements.sizes());
}

Tensor tensor_in_tensor(const Tensor& elements, const Tensor& others, bool unique, bool invert) {
  if (C10_UNLIKELY(!are_compared(elements, others))) {
    return call_fallback<"isin.Tensor_Tensor">(elements, others, unique, invert).back().toTensor();
  }
  // The others are no part of the result, so that their number of dimensions does not matter to
  // its own: a tensor beside a number stays what it is.
  const at::ScalarType type = at::result_type(elements, others);
  const BelowAutograd guard;
  return are_among(elements.to(type).contiguous(), others.to(type).reshape({-1}), invert);
}

Tensor tensor_in_scalar(const Tensor& elements, const Scalar& other, bool unique, bool invert) {
  if (C10_UNLIKELY(!is_compared(elements) || other.isComplex() || other.isBoolean() ||
                   other.isSymbolic())) {
    return call_fallback<"isin.Tensor_Scalar">(elements, other, unique, invert).back().toTensor();
  }
  const BelowAutograd guard;
  const Tensor dense = elements.contiguous();  // as the result is
  return invert ? at::ne(dense, other) : at::eq(dense, other);
}

Tensor scalar_in_tensor(const Scalar& element, const Tensor& others, bool unique, bool invert) {
  if (C10_UNLIKELY(!is_compared(others) || element.isComplex() || element.isBoolean() ||
                   element.isSymbolic())) {
    return call_fallback<"isin.Scalar_Tensor">(element, others, unique, invert).back().toTensor();
  }
  const BelowAutograd guard;
  const Tensor pairs = invert ? at::ne(others, element) : at::eq(others, element);
  return invert ? at::all(pairs) : at::any(pairs);
}

// Whether a result of ours may be copied there; PyTorch refuses what may not.
bool takes_result(const Tensor& out, const Tensor& given) {
  return is_dense(out.unsafeGetTensorImpl()) && out.scalar_type() == at::kBool &&
         out.device() == given.device();
}

Tensor& put_result(Tensor& out, const Tensor& result) {
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

Tensor& tensor_in_tensor_out(const Tensor& elements, const Tensor& others, bool unique, bool invert,
                             Tensor& out) {
  if (C10_LIKELY(are_compared(elements, others) && takes_result(out, elements))) {
    return put_result(out, tensor_in_tensor(elements, others, unique, invert));
  }
  call_fallback<"isin.Tensor_Tensor_out">(elements, others, unique, invert, out);
  return out;
}

Tensor& tensor_in_scalar_out(const Tensor& elements, const Scalar& other, bool unique, bool invert,
                             Tensor& out) {
  if (C10_LIKELY(is_compared(elements) && takes_result(out, elements))) {
    return put_result(out, tensor_in_scalar(elements, other, unique, invert));
  }
  call_fallback<"isin.Tensor_Scalar_out">(elements, other, unique, invert, out);
  return out;
}

Tensor& scalar_in_tensor_out(const Scalar& element, const Tensor& others, bool unique, bool invert,
                             Tensor& out) {
  if (C10_LIKELY(is_compared(others) && takes_result(out, others))) {
    return put_result(out, scalar_in_tensor(element, others, unique, invert));
  }
  call_fallback<"isin.Scalar_Tensor_out">(element, others, unique, invert, out);
  return out;
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&tensor_in_tensor>(m, "isin.Tensor_Tensor");
  register_native<&tensor_in_tensor_out>(m, "isin.Tensor_Tensor_out");
  register_native<&tensor_in_scalar>(m, "isin.Tensor_Scalar");
  register_native<&tensor_in_scalar_out>(m, "isin.Tensor_Scalar_out");
  register_native<&scalar_in_tensor>(m, "isin.Scalar_Tensor");
  register_native<&scalar_in_tensor_out>(m, "isin.Scalar_Tensor_out");
}
