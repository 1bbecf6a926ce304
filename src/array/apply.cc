// SPDX-License-Identifier: MIT
// Rows of the op table on tensors: recorded where that is possible, else run at once.
#include <algorithm>
#include <array>
#include <optional>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "src/array/arithmetic.h"
#include "src/array/array.h"
#include "src/array/types.h"

namespace hologram {
namespace array {
namespace {

constexpr int kMaxArity = 4;

// Operands of a row after its special cases: at most kMaxArity, with copies kept here.
struct Row {
  OpId op;
  Dtype compute;
  Dtype result;
  int arity;
  std::array<const Operand*, kMaxArity> operands;
};

// The rows that mean something else for bool and integers. Empty where the tensor itself is the
// answer (floor of an integer).
std::optional<OpId> row_for(OpId op, Dtype compute) {
  if (compute == Dtype::kBool) {
    switch (op) {
      case OpId::add:
        return OpId::logical_or;
      case OpId::mul:
        return OpId::logical_and;
      case OpId::square:
      case OpId::abs:
      case OpId::relu:
        return std::nullopt;
      default:
        break;
    }
  }
  if (compute <= Dtype::kInt64 && op >= OpId::floor && op <= OpId::round) return std::nullopt;
  return op;
}

View view_of(const Operand& operand) {
  return operand.is_tensor() ? operand.tensor().view() : operand.number().view();
}

void run_now(const Row& row, const Tensor& out) {
  View inputs[kMaxArity];
  for (int k = 0; k < row.arity; ++k) {
    if (row.operands[k]->is_tensor()) materialize(row.operands[k]->tensor());
  }
  materialize(out);
  for (int k = 0; k < row.arity; ++k) inputs[k] = view_of(*row.operands[k]);
  elementwise(row.op, compute_dtype(row.compute), inputs, row.arity, out.view());
}

bool record(const Row& row, const Tensor& out, bool flat) {
  const Dtype compute = compute_dtype(row.compute);
  RecordOperand operands[kMaxArity + 1];
  operands[0] = record_operand(out);
  for (int k = 0; k < row.arity; ++k) {
    const Operand& operand = *row.operands[k];
    operands[k + 1] = operand.is_tensor() ? record_operand(operand.tensor())
                                          : record_number(operand.number(), compute);
  }
  if (flat) return record_flat(row.op, compute, operands, row.arity, out.numel());
  Shape steps[kMaxArity + 1];
  const int64_t* strides[kMaxArity + 1];
  for (int k = 0; k < row.arity; ++k) {
    const Operand& operand = *row.operands[k];
    steps[k] = operand.is_tensor() ? strides_over(operand.tensor(), out.shape())
                                   : Shape(out.shape().size(), 0);
    strides[k + 1] = steps[k].data();
  }
  strides[0] = out.strides().data();
  return record_strided(row.op, compute, operands, row.arity, out.ndim(), out.shape().data(),
                        strides);
}

// All operands' elements lie one after another and belong to each other in that order.
bool is_flat(const Row& row, const Tensor& out) {
  if (!out.is_contiguous()) return false;
  for (int k = 0; k < row.arity; ++k) {
    if (!row.operands[k]->is_tensor()) continue;
    const Tensor& t = row.operands[k]->tensor();
    if (t.shape() != out.shape() || !t.is_contiguous()) return false;
  }
  return true;
}

int kind_of(Dtype dtype) {
  return dtype == Dtype::kBool ? 0 : is_integer(dtype) ? 1 : is_floating(dtype) ? 2 : 3;
}

// Into `out`, which clashes with no operand and has the broadcast shape.
void run(OpId op, std::span<const Operand> operands, const ElementwiseTypes& types,
         const Tensor& out, Rules rules) {
  if (out.numel() == 0) return;
  if (is_complex(types.compute)) return complex_elementwise(op, operands, types.compute, out);
  if (op == OpId::pow && types.compute <= Dtype::kInt64) {
    return integer_power(operands, types.compute, out, rules);
  }
  const std::optional<OpId> actual = row_for(op, types.compute);
  if (!actual.has_value()) {
    return operands[0].is_tensor() ? copy_into(operands[0].tensor(), out)
                                   : fill_into(operands[0].number(), out);
  }
  Row row{*actual, types.compute, types.result, static_cast<int>(operands.size()), {}};
  for (int k = 0; k < row.arity; ++k) row.operands[k] = &operands[static_cast<size_t>(k)];
  // Bounds of truth values: as integers, which the row knows.
  if (row.op == OpId::clamp && row.compute == Dtype::kBool) row.compute = Dtype::kUInt8;
  std::optional<Tensor> condition;
  std::optional<Operand> condition_operand;
  if (op == OpId::where && row.operands[0]->is_tensor() &&
      row.operands[0]->tensor().dtype() != Dtype::kBool) {
    condition = copy_of(row.operands[0]->tensor(), Dtype::kBool);
    row.operands[0] = &condition_operand.emplace(*condition);
  }
  if (!is_deferring() || !record(row, out, is_flat(row, out))) run_now(row, out);
}

}  // namespace
}  // namespace array

Tensor apply(OpId op, std::span<const Operand> operands, Rules rules) {
  const OpInfo& info = op_info(op);
  const ElementwiseTypes types = elementwise_types(op, operands, rules);
  Device& device = array::device_of(info.name.data(), operands);
  const Tensor out =
      array::fresh(array::broadcast_shape(info.name, operands), types.result, device);
  array::run(op, operands, types, out, rules);
  return out;
}

void apply_into(OpId op, std::span<const Operand> operands, const Tensor& out, Rules rules) {
  const OpInfo& info = op_info(op);
  array::check_result(info.name.data(), out);
  const ElementwiseTypes types = elementwise_types(op, operands, rules);
  if (array::kind_of(types.result) > array::kind_of(out.dtype())) {
    fail(ErrorKind::kTypeMismatch, info.name, ": the result is ", dtype_name(types.result),
         " and does not go into out, which is ", dtype_name(out.dtype()),
         "; give an out of that dtype, or cast the result");
  }
  bool any = false;
  for (const Operand& operand : operands) any = any || operand.is_tensor();
  if (any) {
    Device& device = array::device_of(info.name.data(), operands);
    if (&device != &array::device_of(out)) {
      fail(ErrorKind::kInvalidArgument, info.name, ": out is on ", array::device_of(out).name(),
           ", the operands on ", device.name(), "; they have to be on one device");
    }
    Shape shape = array::broadcast_shape(info.name, operands);
    Shape whole = out.shape();
    if (shape.size() > whole.size() || !array::broadcast_to(shape, whole) || whole != out.shape()) {
      fail(ErrorKind::kInvalidArgument, info.name, ": the result has shape ",
           array::shape_text(shape), ", which does not go into out of shape ",
           array::shape_text(out.shape()));
    }
  }
  // What out overlaps is read before anything is written.
  Tensor copies[array::kMaxArity];
  std::array<Operand, array::kMaxArity> safe = {0, 0, 0, 0};
  for (size_t k = 0; k < operands.size(); ++k) {
    safe[k] = operands[k];
    if (operands[k].is_tensor() && array::clashes(out, operands[k].tensor())) {
      copies[k] = array::copy_of(operands[k].tensor(), operands[k].tensor().dtype());
      safe[k] = Operand(copies[k]);
    }
  }
  array::run(op, {safe.data(), operands.size()}, types, out, rules);
}

}  // namespace hologram
