// SPDX-License-Identifier: MIT
// ATen's ops of one tensor and no numbers: one line each.
#include "ops/elementwise/elementwise_forms.h"

namespace hologram_torch {
namespace {

using hologram::OpId;

template <Name kName, OpId kOp, int kTraits = kPlainTraits>
void add(torch::Library& m) {
  add_all<kName, &unary<kOp, kTraits>>(m);
}

}  // namespace

void register_unary(torch::Library& m) {
  add<"neg", OpId::neg>(m);
  add<"abs", OpId::abs>(m);
  add<"sign", OpId::sign>(m);
  add<"sgn", OpId::sign>(m);
  add<"relu", OpId::relu>(m);
  add<"floor", OpId::floor>(m);
  add<"ceil", OpId::ceil>(m);
  add<"trunc", OpId::trunc>(m);
  add<"round", OpId::round>(m);
  add<"silu", OpId::silu>(m);
  add<"logical_not", OpId::logical_not>(m);
  add<"bitwise_not", OpId::bitwise_not>(m);
  add<"reciprocal", OpId::reciprocal, kIntToFloat>(m);
  add<"sqrt", OpId::sqrt, kIntToFloat>(m);
  add<"rsqrt", OpId::rsqrt, kIntToFloat>(m);
  add<"exp", OpId::exp, kIntToFloat>(m);
  add<"exp2", OpId::exp2, kIntToFloat>(m);
  add<"expm1", OpId::expm1, kIntToFloat>(m);
  add<"log", OpId::log, kIntToFloat>(m);
  add<"log2", OpId::log2, kIntToFloat>(m);
  add<"log10", OpId::log10, kIntToFloat>(m);
  add<"log1p", OpId::log1p, kIntToFloat>(m);
  add<"sin", OpId::sin, kIntToFloat>(m);
  add<"cos", OpId::cos, kIntToFloat>(m);
  add<"tan", OpId::tan, kIntToFloat>(m);
  add<"tanh", OpId::tanh, kIntToFloat>(m);
  add<"sigmoid", OpId::sigmoid, kIntToFloat>(m);
  add<"erf", OpId::erf, kIntToFloat>(m);
  Ops<&unary<OpId::isnan, kPlainTraits>>{m}.functional<"isnan">().out<"isnan.out">();
}

}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  hologram_torch::register_unary(m);
  hologram_torch::register_binary(m);
  hologram_torch::register_activations(m);
  hologram_torch::register_ternary(m);
}
