// SPDX-License-Identifier: MIT
// torch.ops.hologram: parts of transformers that PyTorch has no operator for.
//
// Each is a few recorded ops that fuse, one autograd node that keeps inputs alone, and a gradient
// that computes again what the forward pass computed in between. Half types are computed in
// float32 and rounded once. The bodies call PyTorch's functions, so that CPU and meta tensors, vmap
// and tangents have them too.
#include <ATen/ATen.h>

#include "ops/custom/differentiable.h"

namespace hologram_torch {
namespace blocks {
namespace {

using at::Tensor;
using torch::autograd::variable_list;
using OptionalTensor = std::optional<Tensor>;
using Pair = std::tuple<Tensor, Tensor>;

Tensor widen(const Tensor& t) { return is_half_type(t.scalar_type()) ? t.to(at::kFloat) : t; }
Tensor round_to(const Tensor& t, at::ScalarType type) {
  return t.scalar_type() == type ? t : t.to(type);
}

// --- Gated linear units ----------------------------------------------------------------------

void check_gated(const char* name, const Tensor& gate, const Tensor& up) {
  TORCH_CHECK(gate.sym_sizes() == up.sym_sizes(), "hologram::", name, ": gate of shape ",
              gate.sym_sizes(), " and up of shape ", up.sym_sizes(), " must have one shape");
  TORCH_CHECK_TYPE(gate.scalar_type() == up.scalar_type() && gate.is_floating_point(),
                   "hologram::", name, ": gate and up must have one floating dtype, got ",
                   gate.scalar_type(), " and ", up.scalar_type());
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  check_gated("swiglu", gate, up);
  return round_to(at::mul(at::silu(widen(gate)), widen(up)), gate.scalar_type());
}
Pair swiglu_backward(const Tensor& grad, const Tensor& gate, const Tensor& up) {
  const Tensor g = widen(grad), x = widen(gate);
  return {round_to(silu_gradient(at::mul(g, widen(up)), x), gate.scalar_type()),
          round_to(at::mul(g, at::silu(x)), gate.scalar_type())};
}

Tensor geglu(const Tensor& gate, const Tensor& up, std::string_view approximate) {
  check_gated("geglu", gate, up);
  return round_to(at::mul(at::gelu(widen(gate), approximate), widen(up)), gate.scalar_type());
}
Pair geglu_backward(const Tensor& grad, const Tensor& gate, const Tensor& up,
                    std::string_view approximate) {
  const Tensor g = widen(grad), x = widen(gate);
  return {round_to(at::gelu_backward(at::mul(g, widen(up)), x, approximate), gate.scalar_type()),
          round_to(at::mul(g, at::gelu(x, approximate)), gate.scalar_type())};
}

class SwigluBackward final : public DerivedNode {
 public:
  SwigluBackward(const std::vector<Tensor>& tensors, const Tensor&, const Tensor&) {
    for (const Tensor& t : tensors) save(t);
  }
  static bool knows(const Tensor&, const Tensor&) { return true; }
  std::string name() const override { return "SwigluBackward"; }
  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return variable_list(2);
    const std::vector<Tensor> saved = unpack();
    auto [gate, up] =
        operator_of<"swiglu_backward", Pair(const Tensor&, const Tensor&, const Tensor&)>().call(
            grads[0], saved[0], saved[1]);
    return {std::move(gate), std::move(up)};
  }
};

class GegluBackward final : public DerivedNode {
 public:
  GegluBackward(const std::vector<Tensor>& tensors, const Tensor&, const Tensor&,
                std::string_view approximate)
      : approximate_(approximate) {
    for (const Tensor& t : tensors) save(t);
  }
  static bool knows(const Tensor&, const Tensor&, std::string_view) { return true; }
  std::string name() const override { return "GegluBackward"; }
  variable_list apply(variable_list&& grads) override {
    if (!grads[0].defined()) return variable_list(2);
    const std::vector<Tensor> saved = unpack();
    auto [gate, up] = operator_of<"geglu_backward", Pair(const Tensor&, const Tensor&,
                                                         const Tensor&, std::string_view)>()
                          .call(grads[0], saved[0], saved[1], approximate_);
    return {std::move(gate), std::move(up)};
  }

 private:
  std::string approximate_;
};

// --- Rotary position embedding ---------------------------------------------------------------

void check_rotary(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  TORCH_CHECK(x.dim() > 0 && cos.dim() > 0 && cos.dim() <= x.dim() &&
                  x.sym_size(-1) == cos.sym_size(-1) * 2 && cos.sym_sizes() == sin.sym_sizes(),
              "hologram::rotary_embedding: x of shape ", x.sym_sizes(),
              " needs cos and sin of one shape, half as wide, that broadcasts with it; got cos of "
              "shape ",
              cos.sym_sizes(), " and sin of shape ", sin.sym_sizes());
  TORCH_CHECK_TYPE(x.is_floating_point() && cos.is_floating_point() && sin.is_floating_point(),
                   "hologram::rotary_embedding: x, cos and sin must be floating, got ",
                   x.scalar_type(), ", ", cos.scalar_type(), " and ", sin.scalar_type());
}

// The two numbers of each pair that is turned.
std::pair<Tensor, Tensor> pairs_of(const Tensor& x, bool interleaved) {
  if (interleaved) {
    return {x.slice(-1, 0, std::nullopt, 2), x.slice(-1, 1, std::nullopt, 2)};
  }
  const c10::SymInt half = x.sym_size(-1) / 2;
  return {x.slice_symint(-1, 0, half), x.slice_symint(-1, half)};
}

Pair rotated(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved) {
  const auto [a, b] = pairs_of(widen(x), interleaved);
  const Tensor c = widen(cos), s = widen(sin);
  return {at::sub(at::mul(a, c), at::mul(b, s)), at::add(at::mul(b, c), at::mul(a, s))};
}

Tensor rotary_embedding(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved) {
  check_rotary(x, cos, sin);
  const auto [first, second] = rotated(x, cos, sin, interleaved);
  const Tensor out =
      interleaved ? at::stack({first, second}, -1).flatten(-2) : at::cat({first, second}, -1);
  return round_to(out, x.scalar_type());
}

// On the device both halves go where they belong at once.
Tensor rotary_embedding_in_place(const Tensor& x, const Tensor& cos, const Tensor& sin,
                                 bool interleaved) {
  check_rotary(x, cos, sin);
  const auto [first, second] = rotated(x, cos, sin, interleaved);
  Tensor out = at::empty(x.sizes(), x.options());
  const auto [to_first, to_second] = pairs_of(out, interleaved);
  to_first.copy_(first);
  to_second.copy_(second);
  return out;
}

class RotaryEmbeddingBackward final : public DerivedNode {
 public:
  RotaryEmbeddingBackward(const std::vector<Tensor>& tensors, const Tensor&, const Tensor&,
                          const Tensor&, bool interleaved)
      : interleaved_(interleaved) {
    save(tensors[1]);
    save(tensors[2]);
  }
  // Tables are rarely learned.
  static bool knows(const Tensor&, const Tensor& cos, const Tensor& sin, bool) {
    return !cos.requires_grad() && !sin.requires_grad();
  }
  std::string name() const override { return "RotaryEmbeddingBackward"; }
  variable_list apply(variable_list&& grads) override {
    variable_list results(3);
    if (!grads[0].defined()) return results;
    const std::vector<Tensor> saved = unpack();
    results[0] =
        operator_of<"rotary_embedding", Tensor(const Tensor&, const Tensor&, const Tensor&, bool)>()
            .call(grads[0], saved[0], at::neg(saved[1]), interleaved_);
    return results;
  }

 private:
  bool interleaved_;
};

// --- A residual connection and its norm ------------------------------------------------------

// x / sqrt(mean(x^2) + eps), and the factor.
Pair normalized(const Tensor& x, double eps) {
  Tensor factor = at::rsqrt(at::add(at::mean(at::square(x), {-1}, /*keepdim=*/true), eps));
  return {at::mul(x, factor), factor};
}

Pair add_rms_norm(const Tensor& input, const Tensor& residual, const OptionalTensor& weight,
                  double eps) {
  TORCH_CHECK(input.dim() > 0 && input.sym_sizes() == residual.sym_sizes(),
              "hologram::add_rms_norm: input of shape ", input.sym_sizes(),
              " and residual of shape ", residual.sym_sizes(),
              " must have one shape of at least one dimension");
  TORCH_CHECK_TYPE(input.scalar_type() == residual.scalar_type() && input.is_floating_point(),
                   "hologram::add_rms_norm: input and residual must have one floating dtype, got ",
                   input.scalar_type(), " and ", residual.scalar_type());
  if (is_given(weight)) {
    TORCH_CHECK(weight->dim() == 1 && weight->sym_size(0) == input.sym_size(-1),
                "hologram::add_rms_norm: weight of shape ", weight->sym_sizes(),
                " must have one dimension, as long as the last of input of shape ",
                input.sym_sizes());
  }
  const at::ScalarType type = input.scalar_type();
  const Tensor sum = round_to(at::add(widen(input), widen(residual)), type);
  Tensor out = std::get<0>(normalized(widen(sum), eps));
  if (is_given(weight)) out = at::mul(out, widen(*weight));
  return {round_to(out, type), sum};
}

Pair add_rms_norm_backward(const Tensor& grad, const OptionalTensor& grad_sum, const Tensor& sum,
                           const OptionalTensor& weight, double eps, bool with_weight) {
  const Tensor g = widen(grad), x = widen(sum);
  const auto [unit, factor] = normalized(x, eps);
  const Tensor scaled = is_given(weight) ? at::mul(g, widen(*weight)) : g;
  const Tensor along = at::mean(at::mul(scaled, unit), {-1}, /*keepdim=*/true);
  Tensor grad_input = at::mul(factor, at::sub(scaled, at::mul(unit, along)));
  if (is_given(grad_sum)) grad_input = at::add(grad_input, widen(*grad_sum));
  Tensor grad_weight;
  if (is_given(weight) && with_weight) {
    grad_weight = at::mul(g, unit);
    std::vector<int64_t> rows;
    for (int64_t d = 0; d + 1 < grad_weight.dim(); ++d) rows.push_back(d);
    if (!rows.empty()) grad_weight = grad_weight.sum(rows);
    grad_weight = round_to(grad_weight, weight->scalar_type());
  } else {
    grad_weight = at::empty({0}, sum.options());
  }
  return {round_to(grad_input, sum.scalar_type()), grad_weight};
}

class AddRmsNormBackward final : public DerivedNode {
 public:
  AddRmsNormBackward(const std::vector<Tensor>& tensors, const Tensor&, const Tensor&,
                     const OptionalTensor&, double eps)
      : eps_(eps) {
    save(tensors[2]);
  }
  void keep(const Pair& result) { save_result(std::get<1>(result)); }
  static bool knows(const Tensor&, const Tensor&, const OptionalTensor&, double) { return true; }
  std::string name() const override { return "AddRmsNormBackward"; }
  variable_list apply(variable_list&& grads) override {
    variable_list results(3);
    if (!grads[0].defined()) {
      results[0] = results[1] = grads[1];
      return results;
    }
    const std::vector<Tensor> saved = unpack();
    const auto given = [](const Tensor& t) {
      return t.defined() ? OptionalTensor(t) : std::nullopt;
    };
    // A sum over rows costs as much as all the rest.
    const bool with_weight = saved[0].defined() && task_should_compute_output(2);
    std::tie(results[0], results[2]) =
        operator_of<"add_rms_norm_backward",
                    Pair(const Tensor&, const OptionalTensor&, const Tensor&, const OptionalTensor&,
                         double, bool)>()
            .call(grads[0], given(grads[1]), saved[1], given(saved[0]), eps_, with_weight);
    results[1] = results[0];
    if (!with_weight) results[2].reset();
    return results;
  }

 private:
  double eps_;
};

void define_all(torch::Library& m) {
  const auto define = [&m](const char* schema) { m.def(schema, {at::Tag::pt2_compliant_tag}); };
  define("swiglu(Tensor gate, Tensor up) -> Tensor");
  define("swiglu_backward(Tensor grad, Tensor gate, Tensor up) -> (Tensor, Tensor)");
  define("geglu(Tensor gate, Tensor up, str approximate='none') -> Tensor");
  define(
      "geglu_backward(Tensor grad, Tensor gate, Tensor up, str approximate='none') -> "
      "(Tensor, Tensor)");
  define("rotary_embedding(Tensor x, Tensor cos, Tensor sin, bool interleaved=False) -> Tensor");
  define(
      "add_rms_norm(Tensor input, Tensor residual, Tensor? weight=None, float eps=1e-06) -> "
      "(Tensor, Tensor)");
  define(
      "add_rms_norm_backward(Tensor grad, Tensor? grad_sum, Tensor sum, Tensor? weight, "
      "float eps, bool with_weight=True) -> (Tensor, Tensor)");
}

// The bodies, for all devices and, below vmap, for the tensors inside.
void implement_all(torch::Library& m) {
  m.impl("swiglu", &swiglu);
  m.impl("swiglu_backward", &swiglu_backward);
  m.impl("geglu", &geglu);
  m.impl("geglu_backward", &geglu_backward);
  m.impl("rotary_embedding", &rotary_embedding);
  m.impl("add_rms_norm", &add_rms_norm);
  m.impl("add_rms_norm_backward", &add_rms_norm_backward);
}

void differentiate_all(torch::Library& m) {
  m.impl("swiglu", &Differentiable<"swiglu", SwigluBackward, &swiglu>::call);
  m.impl("swiglu_backward", &ByItsSteps<"swiglu_backward", &swiglu_backward>::call);
  m.impl("geglu", &Differentiable<"geglu", GegluBackward, &geglu>::call);
  m.impl("geglu_backward", &ByItsSteps<"geglu_backward", &geglu_backward>::call);
  m.impl("rotary_embedding",
         &Differentiable<"rotary_embedding", RotaryEmbeddingBackward, &rotary_embedding>::call);
  m.impl("add_rms_norm", &Differentiable<"add_rms_norm", AddRmsNormBackward, &add_rms_norm>::call);
  m.impl("add_rms_norm_backward",
         &ByItsSteps<"add_rms_norm_backward", &add_rms_norm_backward>::call);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(hologram, m) { define_all(m); }
TORCH_LIBRARY_IMPL(hologram, CompositeExplicitAutograd, m) { implement_all(m); }
TORCH_LIBRARY_IMPL(hologram, PrivateUse1, m) {
  m.impl("rotary_embedding", &rotary_embedding_in_place);
}
TORCH_LIBRARY_IMPL(hologram, FuncTorchBatchedDecomposition, m) { implement_all(m); }
TORCH_LIBRARY_IMPL(hologram, Autograd, m) { differentiate_all(m); }

}  // namespace blocks
}  // namespace hologram_torch
