// SPDX-License-Identifier: MIT
// Powers, divisions and shifts of integers, and complex arithmetic, as calls.
#include "src/array/arithmetic.h"

#include <array>
#include <cstdint>
#include <optional>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "src/array/array.h"
#include "src/array/record_call.h"
#include "src/array/types.h"
#include "src/array/unsigned.h"

namespace hologram {
namespace array {
namespace {

// Operands as tensors of one dtype and of out's shape; numbers become one element.
std::array<Tensor, 2> settle(std::span<const Operand> operands, Dtype dtype, const Tensor& out) {
  std::array<Tensor, 2> settled;
  for (size_t k = 0; k < operands.size() && k < 2; ++k) {
    const Tensor t = operands[k].is_tensor()
                         ? cast(operands[k].tensor(), dtype)
                         : full({}, operands[k].number(), dtype, device_of(out));
    settled[k] = broadcast(t, out.shape());
  }
  return settled;
}

// --- Integers, and what Python's // and % do with floats -----------------------------------------

// By NumPy's rules. The values of a tensor have to be looked at.
void refuse_negative(const Operand& exponent) {
  const auto lowest = [](const Tensor& t) {
    return t.numel() == 0 ? 0 : item(reduce(Reduction::amin, t)).i64;
  };
  const int64_t least =
      !exponent.is_tensor()
          ? (exponent.number().dtype == Dtype::kInt64 ? exponent.number().i64 : 0)
          : (is_integer(exponent.tensor().dtype()) && !is_unsigned(exponent.tensor().dtype())
                 ? lowest(exponent.tensor())
                 : 0);
  if (least < 0) {
    fail(ErrorKind::kInvalidArgument,
         "pow: integers to negative integer powers are not allowed; cast one of them to a "
         "floating dtype");
  }
}

// `out` may have another dtype than is computed in; the result is converted to it then.
void integer_op(IntegerOp op, std::span<const Operand> operands, Dtype compute, const Tensor& out) {
  std::array<Tensor, 2> in = settle(operands, compute, out);
  for (Tensor& t : in) t = carrier(contiguous(t));
  const bool direct = out.dtype() == compute && out.is_contiguous();
  const Tensor to = direct ? out : fresh(out.shape(), compute, device_of(out));
  record(calls::IntegerOp<Arg>{.x = in[0],
                               .y = in[1],
                               .op = static_cast<int64_t>(op),
                               .is_unsigned = is_stored_only(compute),
                               .out = carrier(to)});
  if (!direct) copy_into(to, out);
}

// --- Complex numbers -----------------------------------------------------------------------------

bool is_complex_row(OpId op) {
  switch (op) {
    case OpId::neg:
    case OpId::abs:
    case OpId::reciprocal:
    case OpId::sqrt:
    case OpId::exp:
    case OpId::log:
    case OpId::sin:
    case OpId::cos:
    case OpId::tan:
    case OpId::tanh:
    case OpId::square:
    case OpId::sigmoid:
    case OpId::logical_not:
    case OpId::isnan:
    case OpId::add:
    case OpId::sub:
    case OpId::mul:
    case OpId::div:
    case OpId::pow:
    case OpId::eq:
    case OpId::ne:
    case OpId::logical_and:
    case OpId::logical_or:
    case OpId::logical_xor:
      return true;
    default:
      return false;
  }
}

}  // namespace

void integer_elementwise(IntegerOp op, std::span<const Operand> operands, Dtype compute,
                         const Tensor& out, Rules rules) {
  if (op == IntegerOp::pow && rules == Rules::numpy) refuse_negative(operands[1]);
  // bool counts as an integer: 0 to the 0 is 1.
  integer_op(op, operands, compute == Dtype::kBool ? Dtype::kInt8 : compute, out);
}

void complex_elementwise(OpId op, std::span<const Operand> operands, Dtype compute,
                         const Tensor& out) {
  if (op == OpId::where) {
    // `where` only moves bytes: two copies do it without arithmetic on complex numbers.
    const Tensor pick = operands[0].is_tensor()
                            ? cast(operands[0].tensor(), Dtype::kBool)
                            : full({}, operands[0].number(), Dtype::kBool, device_of(out));
    const std::array<Tensor, 2> in = settle(operands.subspan(1), compute, out);
    const Tensor yes = as_pairs(in[0]), no = as_pairs(in[1]), to = as_pairs(out);
    const Tensor mask = broadcast(pick, out.shape()).unsqueeze(out.ndim());
    return apply_into(OpId::where, {mask, yes, no}, to);
  }
  if (!is_complex_row(op)) {
    fail(ErrorKind::kTypeMismatch, op_name(op), ": is not defined for ", dtype_name(compute),
         "; work on the real and imaginary parts");
  }
  const std::array<Tensor, 2> in = settle(operands, compute, out);
  record(calls::ComplexOp<Arg>{.x = in[0],
                               .y = operands.size() > 1 ? &in[1] : nullptr,
                               .op = static_cast<int64_t>(op),
                               .out = out});
}

}  // namespace array

Tensor integer_arithmetic(IntegerOp op, const Operand& x, const Operand& y, Rules rules) {
  constexpr const char* kNames[] = {"pow",        "floor_divide", "remainder",
                                    "left_shift", "right_shift",  "fmod"};
  const char* name = kNames[static_cast<int>(op)];
  const Operand operands[] = {x, y};
  Device& device = array::device_of(name, operands);
  Dtype dtype =
      array::room_for_numbers(OpId::add, array::common_dtype(operands, rules), operands, rules);
  if (is_complex(dtype) || is_floating(dtype)) {
    fail(ErrorKind::kTypeMismatch, name, ": is not defined for ", dtype_name(dtype),
         "; cast the operands to an integer dtype");
  }
  if (op == IntegerOp::pow && rules == Rules::numpy) array::refuse_negative(y);
  if (dtype == Dtype::kBool) dtype = Dtype::kInt8;
  Tensor out = array::fresh(array::broadcast_shape(name, operands), dtype, device);
  if (out.numel() != 0) array::integer_op(op, operands, compute_dtype(dtype), out);
  return out;
}

}  // namespace hologram
