// SPDX-License-Identifier: MIT
// Registers the ATen ops that the op table names in its column `aten`.
#include "ops/elementwise/elementwise_forms.h"

namespace hologram_torch {
namespace {

using hologram::OpId;

// Which ATen ops belong to a row, see hologram/elementwise.def.
namespace forms {
enum : int { BY_HAND = 0, OPERATOR = 1, OVERLOADS = 2, BACKWARD = 4 };
}

// The row on its tensors and the numbers behind them.
template <OpId kOp, class Tensors, class Numbers>
struct Plain;
template <OpId kOp, size_t... kTensor, size_t... kNumber>
struct Plain<kOp, std::index_sequence<kTensor...>, std::index_sequence<kNumber...>> {
  template <size_t>
  using Tensor = const at::Tensor&;
  template <size_t>
  using Number = const at::Scalar&;

  static bool rule(Target& target, Tensor<kTensor>... x, Number<kNumber>... params) {
    return run_row<kOp>(target, x..., Param{params}...);
  }
};

// PyTorch has not every form of every op.
bool has_aten(std::string_view name) {
  const size_t dot = name.find('.');
  const std::string base = "aten::" + std::string(name.substr(0, dot));
  const std::string overload(dot == name.npos ? std::string_view() : name.substr(dot + 1));
  return c10::Dispatcher::singleton().findSchema({base, overload}).has_value();
}

template <auto* kRule, Name kName>
void add_functional(torch::Library& m) {
  if (has_aten(kName.view())) Ops<kRule>{m}.template functional<kName>();
}
template <auto* kRule, Name kName>
void add_in_place(torch::Library& m) {
  if (has_aten(kName.view())) Ops<kRule>{m}.template in_place<kName>();
}
template <auto* kRule, Name kName>
void add_out(torch::Library& m) {
  if (has_aten(kName.view())) Ops<kRule>{m}.template out<kName>();
}

template <Name kName, OpId kOp, int kAten>
void add_row(torch::Library& m) {
  using namespace forms;  // NOLINT: the words of the table
  constexpr RowFacts kRow = row_facts(kOp);
  using Row = Plain<kOp, std::make_index_sequence<kRow.arity - kRow.params>,
                    std::make_index_sequence<kRow.params>>;
  if constexpr ((kAten & (OPERATOR | BACKWARD)) != 0) add_functional<&Row::rule, kName>(m);
  if constexpr ((kAten & OPERATOR) != 0) {
    add_in_place<&Row::rule, kName + Name("_")>(m);
    add_out<&Row::rule, kName + Name(".out")>(m);
  }
  if constexpr ((kAten & BACKWARD) != 0) add_out<&Row::rule, kName + Name(".grad_input")>(m);
  if constexpr ((kAten & OVERLOADS) != 0) {
    add_functional<&tensors<kOp>, kName + Name(".Tensor")>(m);
    add_in_place<&tensors<kOp>, kName + Name("_.Tensor")>(m);
    add_out<&tensors<kOp>, kName + Name(".Tensor_out")>(m);
    add_functional<&tensor_number<kOp>, kName + Name(".Scalar")>(m);
    add_in_place<&tensor_number<kOp>, kName + Name("_.Scalar")>(m);
    add_out<&tensor_number<kOp>, kName + Name(".Scalar_out")>(m);
    add_functional<&number_tensor<kOp>, kName + Name(".Scalar_Tensor")>(m);
    add_out<&number_tensor<kOp>, kName + Name(".Scalar_Tensor_out")>(m);
  }
}

}  // namespace

void register_table(torch::Library& m) {
  using namespace forms;  // NOLINT: the words of the table
#define HOLOGRAM_OP(name, id, arity, params, dtypes, others, accuracy, traits, aten, ...) \
  add_row<#name, OpId::name, aten>(m);
#include "hologram/elementwise.def"
  Ops<&unary<OpId::sign>>{m}.functional<"sgn">().in_place<"sgn_">().out<"sgn.out">();
}

}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  hologram_torch::register_table(m);
  hologram_torch::register_binary(m);
  hologram_torch::register_activations(m);
  hologram_torch::register_ternary(m);
}
