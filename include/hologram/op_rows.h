/* SPDX-License-Identifier: MIT
 * The elementwise ops as lists that C and C++ can expand: ROW(name, id) for each. The numbers are
 * part of the C ABI; a compile-time check holds them to the op table (src/ops/elementwise.def). */
#ifndef HOLOGRAM_OP_ROWS_H
#define HOLOGRAM_OP_ROWS_H

/* clang-format off */
#define HOLOGRAM_UNARY_ROWS(ROW) \
  ROW(neg, 0) ROW(abs, 1) ROW(reciprocal, 2) ROW(sqrt, 3) ROW(rsqrt, 4) ROW(exp, 5) ROW(exp2, 6) ROW(expm1, 7) \
  ROW(log, 8) ROW(log2, 9) ROW(log10, 10) ROW(log1p, 11) ROW(sin, 12) ROW(cos, 13) ROW(tan, 14) ROW(tanh, 15) \
  ROW(erf, 16) ROW(sigmoid, 17) ROW(silu, 18) ROW(gelu, 19) ROW(gelu_tanh, 20) ROW(relu, 21) ROW(floor, 22) \
  ROW(ceil, 23) ROW(trunc, 24) ROW(round, 25) ROW(square, 26) ROW(sign, 27) ROW(logical_not, 28) \
  ROW(bitwise_not, 29) ROW(isnan, 30)

#define HOLOGRAM_BINARY_ROWS(ROW) \
  ROW(add, 40) ROW(sub, 41) ROW(mul, 42) ROW(div, 43) ROW(minimum, 44) ROW(maximum, 45) ROW(pow, 46) ROW(eq, 47) \
  ROW(ne, 48) ROW(lt, 49) ROW(le, 50) ROW(gt, 51) ROW(ge, 52) ROW(logical_and, 53) ROW(logical_or, 54) \
  ROW(logical_xor, 55) ROW(bitwise_and, 56) ROW(bitwise_or, 57) ROW(bitwise_xor, 58) ROW(squared_difference, 59) \
  ROW(leaky_relu, 60) ROW(sigmoid_backward, 61) ROW(tanh_backward, 62) ROW(silu_backward, 63) \
  ROW(gelu_backward, 64) ROW(gelu_tanh_backward, 65)

#define HOLOGRAM_TERNARY_ROWS(ROW) \
  ROW(fma, 80) ROW(clamp, 81) ROW(where, 82) ROW(lerp, 83) ROW(add_scaled, 84) ROW(threshold_backward, 85) \
  ROW(threshold, 86) ROW(leaky_relu_backward, 87) ROW(softplus, 88) ROW(squared_difference_backward, 89)

#define HOLOGRAM_QUATERNARY_ROWS(ROW) \
  ROW(addcmul, 100) ROW(addcdiv, 101) ROW(elu, 102) ROW(softplus_backward, 103) ROW(hardtanh_backward, 104)

#define HOLOGRAM_ELEMENTWISE_ROWS(ROW) \
  HOLOGRAM_UNARY_ROWS(ROW) HOLOGRAM_BINARY_ROWS(ROW) HOLOGRAM_TERNARY_ROWS(ROW) HOLOGRAM_QUATERNARY_ROWS(ROW)
/* clang-format on */

#endif /* HOLOGRAM_OP_ROWS_H */
