// SPDX-License-Identifier: MIT
// Which dtype an op computes in and gives, by PyTorch's rules and by NumPy's.
#include "src/array/types.h"

#include <cstdint>
#include <utility>

#include "hologram/error.h"
#include "src/array/array.h"

namespace hologram {

namespace array {
namespace {

// What a function of floats makes of integers: the least type that holds them without loss, as
// NumPy's loops are declared.
Dtype float_for(Dtype dtype, Rules rules) {
  if (rules == Rules::torch) return Dtype::kFloat32;
  switch (dtype) {
    case Dtype::kBool:
    case Dtype::kUInt8:
    case Dtype::kInt8:
      return Dtype::kFloat16;
    case Dtype::kInt16:
    case Dtype::kUInt16:
      return Dtype::kFloat32;
    default:
      return Dtype::kFloat64;
  }
}

// Of all operands, of which each is converted by itself.
Dtype float_for(std::span<const Operand> operands, Dtype common, Rules rules) {
  Dtype result = Dtype::kFloat16;
  bool all_bool = true;  // then a number may be what counts
  for (const Operand& operand : operands) {
    if (!operand.is_tensor()) continue;
    const Dtype dtype = operand.tensor().dtype();
    all_bool = all_bool && dtype == Dtype::kBool;
    result = promote(result, float_for(dtype, rules));
  }
  return all_bool ? float_for(common, rules) : result;
}

}  // namespace

Dtype promote_by(Rules rules, Dtype a, Dtype b) {
  if (rules == Rules::torch || a == b || is_stored_only(a) || is_stored_only(b)) {
    return promote(a, b);
  }
  if (a > b) std::swap(a, b);  // by kind, then by width
  // Integers that the floating type does not hold exactly ask for a wider one.
  if (is_integer(a) && !is_integer(b)) {
    const bool narrow = a == Dtype::kUInt8 || a == Dtype::kInt8;
    const bool wide = a == Dtype::kInt32 || a == Dtype::kInt64;
    switch (b) {
      case Dtype::kFloat16:
        return narrow ? b : wide ? Dtype::kFloat64 : Dtype::kFloat32;
      case Dtype::kBFloat16:
        return b;  // ml_dtypes counts every integer below it
      case Dtype::kFloat32:
        return wide ? Dtype::kFloat64 : b;
      case Dtype::kComplex64:
        return wide ? Dtype::kComplex128 : b;
      default:
        return b;
    }
  }
  return promote(a, b);
}

Dtype common_dtype(std::span<const Operand> operands, Rules rules) {
  bool any = false;
  Dtype common = Dtype::kBool;
  for (const Operand& operand : operands) {
    if (!operand.is_tensor()) continue;
    const Dtype dtype = operand.tensor().dtype();
    common = any ? promote_by(rules, common, dtype) : dtype;
    any = true;
  }
  for (const Operand& operand : operands) {
    if (operand.is_tensor() || !is_number_kind_above(operand.number(), common)) continue;
    common = operand.number().dtype == Dtype::kInt64 ? Dtype::kInt64
             : rules == Rules::torch                 ? Dtype::kFloat32
                                                     : Dtype::kFloat64;
  }
  return common;
}

std::string_view op_name(OpId op) { return op_info(op).name; }

Dtype room_for_numbers(OpId op, Dtype common, std::span<const Operand> operands, Rules rules) {
  if (!is_integer(common)) return common;
  for (const Operand& operand : operands) {
    if (operand.is_tensor() || operand.number().dtype != Dtype::kInt64) continue;
    const int64_t value = operand.number().i64;
    if (fits(value, common)) continue;
    if ((op_info(op).traits & kCompares) != 0) {
      // What uint64 does not hold is below all of it, also rounded.
      return common == Dtype::kUInt64 ? Dtype::kFloat64 : Dtype::kInt64;
    }
    if (rules == Rules::numpy) {
      fail(ErrorKind::kInvalidArgument, op_name(op), ": the number ", value,
           " is out of bounds for ", dtype_name(common), "; cast the tensor to a wider dtype");
    }
  }
  return common;
}

}  // namespace array

ElementwiseTypes elementwise_types(OpId op, std::span<const Operand> operands, Rules rules) {
  using array::op_name;
  const OpInfo& info = op_info(op);
  if (operands.size() != info.arity) {
    fail(ErrorKind::kInvalidArgument, info.name, ": takes ", static_cast<int>(info.arity),
         " operands, got ", operands.size());
  }
  const bool conditional = op == OpId::where;
  const Dtype common = array::common_dtype(operands.subspan(conditional ? 1 : 0), rules);
  if (is_complex(common)) return {common, info.result(common)};
  Dtype compute = array::room_for_numbers(op, common, operands, rules);
  switch (info.dtypes) {
    case DtypeSet::kFloats:
      if (is_floating(common)) break;
      if (info.others.way == OtherDtypes::kAsFloat) {
        compute = op == OpId::div && rules == Rules::numpy
                      ? Dtype::kFloat64
                      : array::float_for(operands, common, rules);
      } else if (info.others.way == OtherDtypes::kInteger && compute == Dtype::kBool &&
                 rules == Rules::numpy) {
        compute = Dtype::kInt8;
      }
      break;
    case DtypeSet::kNumbers:
      if (common == Dtype::kBool && info.others.way == OtherDtypes::kRefused) {
        fail(ErrorKind::kTypeMismatch, info.name,
             ": is not defined for bool; use logical_xor, logical_not or bitwise_not, or cast "
             "the operands to an integer dtype");
      }
      break;
    case DtypeSet::kAll:
      break;
    case DtypeSet::kBits:
      if (is_floating(common)) {
        fail(ErrorKind::kTypeMismatch, info.name, ": is for integers and bool, got ",
             dtype_name(common), "; cast the operands to an integer dtype");
      }
      break;
  }
  return {compute, info.result(compute)};
}

bool fits(int64_t value, Dtype dtype) {
  switch (dtype) {
    case Dtype::kUInt8:
      return value >= 0 && value <= UINT8_MAX;
    case Dtype::kInt8:
      return value >= INT8_MIN && value <= INT8_MAX;
    case Dtype::kInt16:
      return value >= INT16_MIN && value <= INT16_MAX;
    case Dtype::kInt32:
      return value >= INT32_MIN && value <= INT32_MAX;
    case Dtype::kUInt16:
      return value >= 0 && value <= UINT16_MAX;
    case Dtype::kUInt32:
      return value >= 0 && value <= UINT32_MAX;
    case Dtype::kUInt64:
      return value >= 0;
    default:
      return true;
  }
}

}  // namespace hologram
