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

constexpr const char* name_of(IntegerOp op) {
  constexpr const char* kNames[] = {"pow",        "floor_divide", "remainder",
                                    "left_shift", "right_shift",  "fmod"};
  return kNames[static_cast<int>(op)];
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
                               .out = carrier(to)},
         name_of(op));
  if (!direct) copy_into(to, out);
}

// --- Complex numbers -----------------------------------------------------------------------------

// out = op(in) on the real and the imaginary parts as numbers of their own.
void run_on_parts(OpId op, std::span<const Operand> operands, Dtype compute, const Tensor& out) {
  std::array<Tensor, 2> pairs;
  std::array<Operand, 2> in = {0, 0};
  for (size_t k = 0; k < operands.size(); ++k) {
    const bool is_pairs = operands[k].is_tensor() && is_complex(operands[k].tensor().dtype());
    const Tensor t = is_pairs ? operands[k].tensor()
                     : operands[k].is_tensor()
                         ? cast(operands[k].tensor(), compute)
                         : full({}, operands[k].number(), compute, device_of(out));
    pairs[k] = as_pairs(broadcast(t, out.shape()));
    in[k] = Operand(pairs[k]);
  }
  run_row(op, part_dtype(compute), {in.data(), operands.size()}, as_pairs(out));
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
  if (works_on_parts(op)) return run_on_parts(op, operands, compute, out);
  if (elementwise_kernel(op, compute) == nullptr) {
    fail(ErrorKind::kTypeMismatch, op_name(op), ": is not defined for ", dtype_name(compute),
         "; work on the real and imaginary parts");
  }
  const std::array<Tensor, 2> in = settle(operands, compute, out);
  record(calls::ComplexOp<Arg>{.x = in[0],
                               .y = operands.size() > 1 ? &in[1] : nullptr,
                               .op = static_cast<int64_t>(op),
                               .out = out},
         op_info(op).name.data());
}

}  // namespace array

Tensor conj(const Tensor& x) {
  const Dtype dtype = x.dtype();
  if (!is_complex(dtype)) return x;
  Device& device = array::device_of(x);
  const Tensor signs = empty({2}, part_dtype(dtype), device);
  fill_into(1.0, signs.select(0, 0));
  fill_into(-1.0, signs.select(0, 1));
  const Tensor out = array::fresh(x.shape(), dtype, device);
  apply_into(OpId::mul, {array::as_pairs(x), signs}, array::as_pairs(out));
  return out;
}

Tensor integer_arithmetic(IntegerOp op, const Operand& x, const Operand& y, Rules rules) {
  const char* name = array::name_of(op);
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
