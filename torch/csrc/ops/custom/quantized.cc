// SPDX-License-Identifier: MIT
// torch.ops.hologram.linear_int4: a linear layer with a weight of four bits, in a form that is the
// same on every processor. The product itself is the call linear_int4; elsewhere, and below
// tangents, the weight is widened.
#include <ATen/ATen.h>

#include "ops/custom/differentiable.h"
#include "recording/record_call.h"

namespace hologram_torch {
namespace quantized {
namespace {

using at::Tensor;
using torch::autograd::variable_list;

// Rows of the weight that lie together: see linear_int4 in calls.def.
constexpr int64_t kBlock = 64;

void check_weight(const char* name, const Tensor& weight, const Tensor& scale_and_zero) {
  TORCH_CHECK_TYPE(weight.scalar_type() == at::kByte && scale_and_zero.is_floating_point(),
                   "hologram::", name, ": expected a weight of Byte and a floating ",
                   "scale_and_zero, got ", weight.scalar_type(), " and ",
                   scale_and_zero.scalar_type());
  TORCH_CHECK(weight.dim() == 2 && scale_and_zero.dim() == 3 &&
                  scale_and_zero.sym_size(1) == weight.sym_size(0) &&
                  scale_and_zero.sym_size(2) == 2 && weight.sym_size(0) % kBlock == 0 &&
                  scale_and_zero.sym_size(0) > 0 &&
                  weight.sym_size(1) % scale_and_zero.sym_size(0) == 0,
              "hologram::", name, ": expected a weight (n, k / 2), n a multiple of ", kBlock,
              ", and scale_and_zero (groups, n, 2), groups a divisor of k / 2; got ",
              weight.sym_sizes(), " and ", scale_and_zero.sym_sizes());
}

void check(const Tensor& x, const Tensor& weight, const Tensor& scale_and_zero) {
  check_weight("linear_int4", weight, scale_and_zero);
  TORCH_CHECK_TYPE(x.scalar_type() == scale_and_zero.scalar_type(),
                   "hologram::linear_int4: input and scale_and_zero must have one dtype, got ",
                   x.scalar_type(), " and ", scale_and_zero.scalar_type());
  TORCH_CHECK(x.dim() > 0 && x.sym_size(-1) == weight.sym_size(1) * 2,
              "hologram::linear_int4: expected an input of ", weight.sym_size(1) * 2,
              " columns for a weight ", weight.sym_sizes(), ", got ", x.sym_sizes());
}

// The weight (n, k) in the dtype of its scales.
Tensor widened(const Tensor& weight, const Tensor& scale_and_zero) {
  const c10::SymInt n = weight.sym_size(0), k = weight.sym_size(1) * 2;
  const c10::SymInt groups = scale_and_zero.sym_size(0);
  const Tensor bytes = weight.contiguous().view_symint({n / kBlock, k, kBlock / 2});
  const Tensor numbers =
      at::cat({at::bitwise_and(bytes, 15), at::bitwise_right_shift(bytes, 4)}, -1)
          .transpose(1, 2)
          .reshape_symint({n, groups, k / groups});
  const Tensor pairs = scale_and_zero.transpose(0, 1);
  const Tensor scale = pairs.select(-1, 0).unsqueeze(-1), zero = pairs.select(-1, 1).unsqueeze(-1);
  return at::add(at::mul(at::sub(numbers.to(scale.scalar_type()), 8), scale), zero)
      .reshape_symint({n, k});
}

Tensor widen(const Tensor& t) { return is_half_type(t.scalar_type()) ? t.to(at::kFloat) : t; }

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& scale_and_zero) {
  check(input, weight, scale_and_zero);
  return at::matmul(widen(input), widened(weight, widen(scale_and_zero)).t())
      .to(input.scalar_type());
}

Tensor dequantize(const Tensor& weight, const Tensor& scale_and_zero) {
  check_weight("dequantize_int4", weight, scale_and_zero);
  return widened(weight, widen(scale_and_zero)).to(scale_and_zero.scalar_type());
}

Tensor recorded(const Tensor& input, const Tensor& weight, const Tensor& scale_and_zero) {
  check(input, weight, scale_and_zero);
  if (!is_dense(input) || !is_dense(weight) || !is_dense(scale_and_zero)) {
    return linear(input, weight, scale_and_zero);
  }
  const Tensor x = input.contiguous(), bytes = weight.contiguous();
  const Tensor pairs = scale_and_zero.contiguous();
  c10::SmallVector<int64_t, 6> sizes(input.sizes().begin(), input.sizes().end());
  sizes.back() = weight.size(0);
  Tensor out = new_empty(input, sizes);
  record(calls::LinearInt4<Arg>{
      .input = x, .weight = bytes, .scale_and_zero = pairs, .block = kBlock, .out = out});
  return out;
}

class LinearInt4Backward final : public DerivedNode {
 public:
  LinearInt4Backward(const std::vector<Tensor>& tensors, const Tensor&, const Tensor&,
                     const Tensor&) {
    save(tensors[1]);
    save(tensors[2]);
  }
  // Scales are rarely learned.
  static bool knows(const Tensor&, const Tensor&, const Tensor& scale_and_zero) {
    return !scale_and_zero.requires_grad();
  }
  std::string name() const override { return "LinearInt4Backward"; }
  variable_list apply(variable_list&& grads) override {
    variable_list results(3);
    if (!grads[0].defined()) return results;
    const std::vector<Tensor> saved = unpack();
    const Tensor wide = operator_of<"dequantize_int4", Tensor(const Tensor&, const Tensor&)>().call(
        saved[0], widen(saved[1]));
    results[0] = at::matmul(widen(grads[0]), wide).to(grads[0].scalar_type());
    return results;
  }
};

void implement_all(torch::Library& m) {
  m.impl("linear_int4", &linear);
  m.impl("dequantize_int4", &dequantize);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(hologram, m) {
  const auto define = [&m](const char* schema) { m.def(schema, {at::Tag::pt2_compliant_tag}); };
  define("linear_int4(Tensor input, Tensor weight, Tensor scale_and_zero) -> Tensor");
  define("dequantize_int4(Tensor weight, Tensor scale_and_zero) -> Tensor");
}
TORCH_LIBRARY_IMPL(hologram, CompositeExplicitAutograd, m) { implement_all(m); }
TORCH_LIBRARY_IMPL(hologram, PrivateUse1, m) { m.impl("linear_int4", &recorded); }
TORCH_LIBRARY_IMPL(hologram, FuncTorchBatchedDecomposition, m) { implement_all(m); }
TORCH_LIBRARY_IMPL(hologram, Autograd, m) {
  m.impl("linear_int4", &Differentiable<"linear_int4", LinearInt4Backward, &linear>::call);
  m.impl("dequantize_int4", &ByItsSteps<"dequantize_int4", &dequantize>::call);
}

}  // namespace quantized
}  // namespace hologram_torch
