// SPDX-License-Identifier: MIT
// See unsigned.h. All is made of rows, so that it fuses.
#include "src/array/unsigned.h"

#include <array>
#include <cstdint>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "src/array/arithmetic.h"
#include "src/array/array.h"
#include "src/array/types.h"
#include "src/runtime/memory/tensor_access.h"

namespace hologram::array {
namespace {

constexpr double kTwo63 = 0x1p63, kTwo64 = 0x1p64;

// The row as a new tensor of dtype `result`, of x's shape.
Tensor row(OpId op, Dtype compute, Dtype result, const Tensor& x,
           std::initializer_list<Operand> operands) {
  const Tensor out = fresh(x.shape(), result, device_of(x));
  if (out.numel() == 0) return out;
  run_row(op, compute, std::span<const Operand>(operands.begin(), operands.size()), out);
  return out;
}
Tensor row(OpId op, Dtype dtype, const Tensor& x, std::initializer_list<Operand> operands) {
  return row(op, dtype, dtype, x, operands);
}

int64_t highest_bit(Dtype dtype) {
  return static_cast<int64_t>(uint64_t{1} << (8 * itemsize(dtype) - 1));
}

// `bits`: of uint64. Rounded once, to float64.
Tensor as_float64(const Tensor& bits) {
  constexpr int64_t kLow = 0xffffffff;
  const Dtype f64 = Dtype::kFloat64, i64 = Dtype::kInt64;
  // Each half is exact, and so is the upper one made positive: only the last sum rounds.
  const Tensor centred = row(OpId::bitwise_xor, i64, bits, {bits, INT64_MIN});
  const Tensor high = row(OpId::bitwise_and, i64, bits, {centred, ~kLow});
  const Tensor low = row(OpId::bitwise_and, i64, bits, {bits, kLow});
  const Tensor upper = row(OpId::add, f64, bits, {high, kTwo63});
  return row(OpId::add, f64, bits, {upper, low});
}

// Rounded once, to float32.
Tensor as_float32(const Tensor& bits) {
  constexpr int64_t kLast = 0x7ff;
  const Dtype f64 = Dtype::kFloat64, f32 = Dtype::kFloat32, i64 = Dtype::kInt64;
  // Of 2^63 and more, the 53 highest bits are a float64. Whether any of the others is set is all
  // that they add to the rounding, and goes into the last of those.
  const Tensor rest = row(OpId::bitwise_and, i64, bits, {bits, kLast});
  const Tensor sticky = row(OpId::where, i64, bits, {rest, kLast + 1, 0});
  const Tensor first = row(OpId::bitwise_and, i64, bits, {bits, ~kLast});
  const Tensor exact = row(OpId::bitwise_or, i64, bits, {first, sticky});
  const Tensor large = row(OpId::add, f64, f32, bits, {exact, kTwo64});
  const Tensor is_large = row(OpId::lt, i64, Dtype::kBool, bits, {bits, 0});
  return row(OpId::where, f32, bits, {is_large, large, bits});
}

// The bits of uint64, as int64.
Tensor from_floats(const Tensor& t) {
  const Dtype floats = compute_dtype(t.dtype()), i64 = Dtype::kInt64;
  const Tensor is_large = row(OpId::le, floats, Dtype::kBool, t, {kTwo63, t});
  const Tensor above = row(OpId::sub, floats, i64, t, {t, kTwo63});
  const Tensor large = row(OpId::bitwise_xor, i64, t, {above, INT64_MIN});
  return row(OpId::where, i64, t, {is_large, large, t});
}

// Operands of a row as those of the row on carriers.
class CarrierOperands {
 public:
  CarrierOperands(OpId op, std::span<const Operand> operands, Dtype compute) : compute_(compute) {
    tensors_.reserve(2 * operands.size());  // operands borrow them
    for (size_t k = 0; k < operands.size(); ++k) {
      list_[k] = settled(operands[k], op == OpId::where && k == 0);
    }
  }
  const Operand& operator[](size_t k) const { return list_[k]; }
  std::span<const Operand> first(size_t count) const { return {list_.data(), count}; }
  // Operand k with its highest bit turned, in whose signed order rows compare.
  Operand turned(size_t k) {
    if (list_[k].is_tensor()) {
      return tensors_.emplace_back(array::row(OpId::bitwise_xor, carrier_dtype(compute_),
                                              list_[k].tensor(),
                                              {list_[k], highest_bit(compute_)}));
    }
    return integer(list_[k].number()) ^ highest_bit(compute_);
  }

 private:
  static int64_t integer(const Scalar& number) {
    return number.dtype == Dtype::kBool ? number.b : number.i64;
  }
  Operand settled(const Operand& operand, bool is_condition) {
    if (operand.is_tensor()) {
      return tensors_.emplace_back(
          carrier(cast(operand.tensor(), is_condition ? Dtype::kBool : compute_)));
    }
    const Scalar& number = operand.number();
    if (is_condition && number.dtype == Dtype::kFloat64) return number.f64 != 0;
    return operand;
  }

  Dtype compute_;
  std::array<Operand, 4> list_ = {0, 0, 0, 0};
  std::vector<Tensor> tensors_;
};

}  // namespace

Tensor carrier(const Tensor& t) {
  if (!is_stored_only(t.dtype())) return t;
  return internal::TensorAccess::describe(t, t.shape(), t.strides(), carrier_dtype(t.dtype()),
                                          t.offset());
}

View carrier(const View& view) {
  View result = view;
  result.dtype = carrier_dtype(view.dtype);
  return result;
}

Tensor turned(const Tensor& t) {
  const Tensor bits = carrier(t);
  return row(OpId::bitwise_xor, bits.dtype(), bits, {bits, highest_bit(bits.dtype())});
}

void turned_back(const Tensor& from, const Tensor& out) {
  if (out.numel() == 0) return;
  const Operand operands[] = {from, highest_bit(from.dtype())};
  run_row(OpId::bitwise_xor, from.dtype(), operands, carrier(out));
}

Tensor convertible(const Tensor& t, Dtype to) {
  if (is_floating(t.dtype())) {
    return to == Dtype::kUInt64 ? from_floats(t) : cast(t, Dtype::kInt64);
  }
  if (!is_stored_only(t.dtype())) return t;
  const Tensor bits = carrier(t);
  const bool keeps_low_bits = is_integer(to) && itemsize(to) <= itemsize(t.dtype());
  if (keeps_low_bits || to == Dtype::kBool) return bits;
  if (t.dtype() == Dtype::kUInt16) {
    return row(OpId::bitwise_and, Dtype::kInt32, bits, {bits, UINT16_MAX});
  }
  if (t.dtype() == Dtype::kUInt32) {
    return row(OpId::bitwise_and, Dtype::kInt64, bits, {bits, int64_t{UINT32_MAX}});
  }
  const bool is_double = to == Dtype::kFloat64 || to == Dtype::kComplex128;
  return is_double ? as_float64(bits) : as_float32(bits);
}

Scalar convertible(const Scalar& value, Dtype to) {
  if (value.dtype != Dtype::kFloat64) return value;
  const bool is_large = to == Dtype::kUInt64 && value.f64 >= kTwo63;
  const double rest = is_large ? value.f64 - kTwo63 : value.f64;
  int64_t whole = 0;
  convert(Dtype::kFloat64, &rest, Dtype::kInt64, &whole, 1);
  return is_large ? whole ^ INT64_MIN : whole;
}

void unsigned_elementwise(OpId op, std::span<const Operand> operands, Dtype compute,
                          const Tensor& out, Rules rules) {
  const OpInfo& info = op_info(op);
  if (info.others.way == OtherDtypes::kInteger) {
    return integer_elementwise(info.others.integer_op, operands, compute, out, rules);
  }
  if (!info.result_is_bool && out.dtype() != compute) {
    const Tensor result = fresh(out.shape(), compute, device_of(out));
    unsigned_elementwise(op, operands, compute, result, rules);
    return copy_into(result, out);
  }
  const Dtype dtype = carrier_dtype(compute);
  const Tensor to = carrier(out);
  CarrierOperands in(op, operands, compute);
  const auto run = [&](OpId row, std::initializer_list<Operand> list, const Tensor& result) {
    run_row(row, dtype, std::span<const Operand>(list.begin(), list.size()), result);
  };
  const auto whether = [&](OpId row, size_t x, size_t y) {
    const Tensor result = fresh(out.shape(), Dtype::kBool, device_of(out));
    run(row, {in.turned(x), in.turned(y)}, result);
    return result;
  };
  if (works_on_bits(op)) return run_row(op, dtype, in.first(operands.size()), to);
  switch (op) {
    case OpId::abs:
    case OpId::relu:
    case OpId::floor:
    case OpId::ceil:
    case OpId::trunc:
    case OpId::round:
      return in[0].is_tensor() ? copy_into(in[0].tensor(), to) : fill_into(in[0].number(), to);
    case OpId::sign:
      return run(OpId::ne, {in[0], 0}, to);
    case OpId::lt:
    case OpId::le:
    case OpId::gt:
    case OpId::ge:
      return run(op, {in.turned(0), in.turned(1)}, to);
    case OpId::minimum:
    case OpId::maximum: {
      const Tensor best = fresh(out.shape(), dtype, device_of(out));
      run(op, {in.turned(0), in.turned(1)}, best);
      return turned_back(best, to);
    }
    case OpId::clamp: {
      const Tensor best = fresh(out.shape(), dtype, device_of(out));
      run(op, {in.turned(0), in.turned(1), in.turned(2)}, best);
      return turned_back(best, to);
    }
    case OpId::threshold:
      return run(OpId::where, {whether(OpId::le, 0, 1), in[2], in[0]}, to);
    case OpId::threshold_backward:
      return run(OpId::where, {whether(OpId::le, 1, 2), 0, in[0]}, to);
    default:
      fail(ErrorKind::kTypeMismatch, info.name, ": is not defined for ", dtype_name(compute),
           "; cast the operands to int64 or to a floating dtype");
  }
}

bool is_mixed_comparison(OpId op, std::span<const Operand> operands) {
  if ((op_info(op).traits & kCompares) == 0) return false;
  const auto is = [&](size_t k, auto&& holds) {
    return operands[k].is_tensor() && holds(operands[k].tensor().dtype());
  };
  const auto is_uint64 = [](Dtype d) { return d == Dtype::kUInt64; };
  const auto is_signed = [](Dtype d) { return is_integer(d) && !is_unsigned(d); };
  return (is(0, is_uint64) && is(1, is_signed)) || (is(0, is_signed) && is(1, is_uint64));
}

void compare_mixed(OpId op, std::span<const Operand> operands, const Tensor& out) {
  const bool is_first = operands[0].tensor().dtype() == Dtype::kUInt64;
  const Tensor bits = carrier(operands[is_first ? 0 : 1].tensor());
  const Tensor other = cast(operands[is_first ? 1 : 0].tensor(), Dtype::kInt64);
  const auto turned_around = [&](OpId now, OpId then) { return is_first ? now : then; };
  // Of uint64 and the other number: that it is equal, less or not above is so only where int64
  // holds it; ne, ge and gt are the contrary.
  OpId ask = OpId::eq;
  bool is_contrary = false;
  switch (op) {
    case OpId::lt:
      ask = turned_around(OpId::lt, OpId::le);
      is_contrary = !is_first;
      break;
    case OpId::le:
      ask = turned_around(OpId::le, OpId::lt);
      is_contrary = !is_first;
      break;
    case OpId::gt:
      ask = turned_around(OpId::le, OpId::lt);
      is_contrary = is_first;
      break;
    case OpId::ge:
      ask = turned_around(OpId::lt, OpId::le);
      is_contrary = is_first;
      break;
    default:
      is_contrary = op == OpId::ne;
      break;
  }
  const auto made = [&] { return fresh(out.shape(), Dtype::kBool, device_of(out)); };
  const Tensor is_held = row(OpId::ge, Dtype::kInt64, Dtype::kBool, bits, {bits, 0});
  const Tensor found = made();
  run_row(ask, Dtype::kInt64, std::array{Operand(bits), Operand(other)}, found);
  const Tensor both = is_contrary ? made() : carrier(out);
  run_row(OpId::logical_and, Dtype::kBool, std::array{Operand(is_held), Operand(found)}, both);
  if (!is_contrary) return;
  run_row(OpId::logical_not, Dtype::kBool, std::array{Operand(both)}, carrier(out));
}

}  // namespace hologram::array
