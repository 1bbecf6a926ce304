// SPDX-License-Identifier: MIT
// uint16, uint32 and uint64, which no kernel computes with: tensors of them are worked on as their
// carriers, the signed tensors of the same bits and memory.
#pragma once

#include <span>

#include "hologram/functions.h"

namespace hologram::array {

// Whether the op gives the same bits whatever the sign of its operands.
constexpr bool works_on_bits(OpId op) {
  switch (op) {
    case OpId::add:
    case OpId::sub:
    case OpId::mul:
    case OpId::neg:
    case OpId::square:
    case OpId::add_scaled:
    case OpId::addcmul:
    case OpId::eq:
    case OpId::ne:
    case OpId::logical_not:
    case OpId::logical_and:
    case OpId::logical_or:
    case OpId::logical_xor:
    case OpId::bitwise_not:
    case OpId::bitwise_and:
    case OpId::bitwise_or:
    case OpId::bitwise_xor:
    case OpId::where:
      return true;
    default:
      return false;
  }
}

// `t` itself where its dtype has kernels.
Tensor carrier(const Tensor& t);
View carrier(const View& view);
// The carrier's bits in memory of their own, the highest one turned: their signed order is the
// unsigned order of `t`. turned_back() undoes it.
Tensor turned(const Tensor& t);
void turned_back(const Tensor& from, const Tensor& out);

// Of tensors of whatever dtype: one whose plain conversion to carrier_dtype(to) gives the bits of
// the conversion of `t` to `to`. t.dtype() or `to` is uint16, uint32 or uint64, not both the same.
Tensor convertible(const Tensor& t, Dtype to);
// A number whose plain conversion does the same.
Scalar convertible(const Scalar& value, Dtype to);

// out = op(operands...) computed in uint16, uint32 or uint64; as apply_into() once it has checked.
void unsigned_elementwise(OpId op, std::span<const Operand> operands, Dtype compute,
                          const Tensor& out, Rules rules);

// Whether it is a comparison of uint64 with a signed integer, for which there is no common integer.
bool is_mixed_comparison(OpId op, std::span<const Operand> operands);
// By value, as NumPy compares them.
void compare_mixed(OpId op, std::span<const Operand> operands, const Tensor& out);

}  // namespace hologram::array
