// SPDX-License-Identifier: MIT
// glu and its derivative: halves of a tensor, and rows of the op table between them.
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>

#include "ops/reduce/reduce.h"

namespace hologram_torch {
namespace {

using at::Tensor;

// The halves of x along `dim` in the type in which they are computed; undefined for what PyTorch
// refuses.
struct Halves {
  Tensor first, second;

  Halves(const Tensor& x, int64_t dim) {
    if (x.dim() == 0 || !has_dim(x, dim) || x.size(dim) % 2 != 0) return;
    const int64_t half = x.size(dim) / 2;
    const at::ScalarType wide = is_half_type(x.scalar_type()) ? at::kFloat : x.scalar_type();
    first = x.narrow(dim, 0, half).to(wide);
    second = x.narrow(dim, half, half).to(wide);
  }
  bool ok() const { return first.defined(); }
};

Tensor glu(const Tensor& self, int64_t dim) {
  if (C10_LIKELY(is_dense_float(self))) {
    if (const Halves x(self, dim); C10_LIKELY(x.ok())) {
      return at::mul(x.first, at::sigmoid(x.second)).to(self.scalar_type());
    }
  }
  return call_fallback<"glu">(self, dim).back().toTensor();
}

Tensor glu_backward(const Tensor& grad, const Tensor& self, int64_t dim) {
  if (C10_LIKELY(is_dense_float(self) && is_dense(grad) &&
                 grad.scalar_type() == self.scalar_type())) {
    const Halves x(self, dim);
    if (C10_LIKELY(x.ok() && grad.sizes() == x.first.sizes())) {
      const int64_t half = x.first.size(dim);
      const Tensor gate = at::sigmoid(x.second), wide = grad.to(gate.scalar_type());
      Tensor out = make_tensor(self.sizes(), self.scalar_type(), self.device().index());
      out.narrow(dim, 0, half).copy_(at::mul(wide, gate));
      out.narrow(dim, half, half).copy_(at::sigmoid_backward(at::mul(wide, x.first), gate));
      return out;
    }
  }
  return call_fallback<"glu_backward">(grad, self, dim).back().toTensor();
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&glu>(m, "glu");
  register_native<&glu_backward>(m, "glu_backward");
}
