// SPDX-License-Identifier: MIT
// Mathematical definitions of the floating-point rows, in double and long double.
#include "tools/accuracy/reference.h"

#include <cmath>
#include <limits>

#include "hologram/op.h"

namespace hologram::ref {
namespace {

constexpr long double kSqrtHalf = 0.70710678118654752440084436210484903928L;
constexpr long double kTwoOverSqrtPi = 1.12837916709551257389615890312154517169L;
constexpr long double kInverseSqrtTwoPi = 0.39894228040143267793994605993438186848L;
// sigmoid's argument in the tanh form of GELU is kGeluSlope * (x + 0.044715 x^3).
constexpr long double kGeluSlope = 1.59576912160573071175978423973752747390L;
constexpr long double kGeluCubic = 0.044715L;

template <class R>
R nan() {
  return std::numeric_limits<R>::quiet_NaN();
}

// P(N < x), its relative error small also where x / sqrt(2) is large: the rounding error of the
// argument is carried to first order.
template <class R>
R normal_probability(R x) {
  const R high = static_cast<R>(kSqrtHalf);
  const R low = static_cast<R>(kSqrtHalf - static_cast<long double>(high));
  const R argument = -x * high;
  R tail = std::erfc(argument);
  if (argument > 1 && tail > 0) {
    const R error = std::fma(-x, high, -argument) - x * low;
    tail -= error * static_cast<R>(kTwoOverSqrtPi) * std::exp(-argument * argument);
  }
  return tail / 2;
}

template <class R>
R normal_density(R x) {
  return std::exp(-x * x / 2) * static_cast<R>(kInverseSqrtTwoPi);
}

template <class R>
R sigmoid(R x) {
  if (x < 0) return std::exp(x) / (1 + std::exp(x));
  return 1 / (1 + std::exp(-x));
}

template <class R>
R gelu_argument(R x) {
  return static_cast<R>(kGeluSlope) * (x + static_cast<R>(kGeluCubic) * x * x * x);
}

// x times a probability that vanishes at -inf, where PyTorch has inf * 0.
template <class R>
R gated(R x, R probability) {
  if (std::isinf(x)) return x > 0 ? x : nan<R>();
  return x * probability;
}

// The derivative of x sigmoid(u(x)), given u and its slope; its limits are 0 and 1.
template <class R>
R sigmoid_gate_slope(R x, R u, R slope) {
  if (std::isnan(x)) return x;
  if (std::fabs(u) > 12000) return x > 0 ? R{1} : R{0};
  return sigmoid(u) + x * slope * sigmoid(u) * sigmoid(-u);
}

template <class R>
R gelu_slope(R x) {
  if (std::isinf(x)) return x > 0 ? R{1} : R{0};
  return normal_probability(x) + x * normal_density(x);
}

template <class R>
R softplus(R scaled) {
  return scaled > 0 ? scaled + std::log1p(std::exp(-scaled)) : std::log1p(std::exp(scaled));
}

// tanh(s) + x sigmoid(x) / cosh(s)^2 with s = softplus(x); its limits are 0 and 1.
template <class R>
R mish_slope(R x) {
  if (std::isnan(x)) return x;
  if (std::fabs(x) > 12000) return x > 0 ? R{1} : R{0};
  const R s = softplus(x), wide = std::cosh(s);
  return std::tanh(s) + x * sigmoid(x) / wide / wide;
}

template <class R>
R nan_or(R x, R y, R otherwise) {
  return std::isnan(x) || std::isnan(y) ? nan<R>() : otherwise;
}

// By Newton's method from the middle of the range; erfc keeps what is left of 1.
template <class R>
R erfinv(R x) {
  if (std::isnan(x) || std::fabs(x) > 1) return nan<R>();
  if (std::fabs(x) == 1) return x * std::numeric_limits<R>::infinity();
  const R target = std::fabs(x);
  R y = target * R{0.886};
  for (int i = 0; i < 200; ++i) {
    const R excess = target < R{0.5} ? std::erf(y) - target : (1 - target) - std::erfc(y);
    const R slope = static_cast<R>(kTwoOverSqrtPi) * std::exp(-y * y);
    const R next = y - excess / slope;
    if (!(next > y)) break;  // erf is concave: the steps come from below
    y = next;
  }
  return std::copysign(y, x);
}

template <class R>
R digamma(R x) {
  const R pi = static_cast<R>(3.14159265358979323846264338327950288L);
  if (std::isnan(x) || x == -std::numeric_limits<R>::infinity()) return nan<R>();
  if (x == 0) return -1 / x;
  if (x < 0) {
    // Euler's reflection; the distance to the nearest pole is exact.
    const R offset = x - std::nearbyint(x);
    return offset == 0 ? nan<R>() : digamma(1 - x) - pi / std::tan(pi * offset);
  }
  R poles = 0;
  for (; x < 40; x += 1) poles += 1 / x;
  const R z = 1 / (x * x);
  const R series =
      z * (R{1} / 12 - z * (R{1} / 120 - z * (R{1} / 252 - z * (R{1} / 240 - z / 132))));
  return std::log(x) - 1 / (2 * x) - series - poles;
}

// Of the quotient rounded down; 0 has the sign of x.
template <class R>
R remainder(R x, R y) {
  const R modulo = std::fmod(x, y);
  return modulo != 0 && (modulo < 0) != (y < 0) ? modulo + y : modulo;
}

template <class R>
R floor_divide(R x, R y) {
  if (y == 0) return x / y;
  const R modulo = std::fmod(x, y);
  const R whole = std::nearbyint((x - modulo) / y);
  const R below = modulo != 0 && (modulo < 0) != (y < 0) ? whole - 1 : whole;
  return below == 0 ? std::copysign(R{0}, x / y) : below;
}

template <class R>
R one_operand(OpId op, R x) {
  switch (op) {
    case OpId::neg:
      return -x;
    case OpId::abs:
      return std::fabs(x);
    case OpId::reciprocal:
      return 1 / x;
    case OpId::sqrt:
      return std::sqrt(x);
    case OpId::rsqrt:
      return 1 / std::sqrt(x);
    case OpId::exp:
      return std::exp(x);
    case OpId::exp2:
      return std::exp2(x);
    case OpId::expm1:
      return std::expm1(x);
    case OpId::log:
      return std::log(x);
    case OpId::log2:
      return std::log2(x);
    case OpId::log10:
      return std::log10(x);
    case OpId::log1p:
      return std::log1p(x);
    case OpId::sin:
      return std::sin(x);
    case OpId::cos:
      return std::cos(x);
    case OpId::tan:
      return std::tan(x);
    case OpId::tanh:
      return std::tanh(x);
    case OpId::erf:
      return std::erf(x);
    case OpId::sigmoid:
      return sigmoid(x);
    case OpId::silu:
      return gated(x, sigmoid(x));
    case OpId::gelu:
      return gated(x, normal_probability(x));
    case OpId::gelu_tanh:
      return gated(x, sigmoid(gelu_argument(x)));
    case OpId::relu:
      return x < 0 ? R{0} : x;
    case OpId::floor:
      return std::floor(x);
    case OpId::ceil:
      return std::ceil(x);
    case OpId::trunc:
      return std::trunc(x);
    case OpId::round:
      return std::nearbyint(x);
    case OpId::square:
      return x * x;
    case OpId::sign:
      return static_cast<R>((x > 0) - (x < 0));
    case OpId::logical_not:
      return x == 0;
    case OpId::isnan:
      return std::isnan(x);
    case OpId::hardswish:
      return x <= -3 ? x * 0 : x >= 3 ? x : x * ((x + 3) / 6);
    case OpId::hardsigmoid:
      return std::isnan(x) ? x : x <= -3 ? R{0} : x >= 3 ? R{1} : (x + 3) / 6;
    case OpId::erfinv:
      return erfinv(x);
    case OpId::digamma:
      return digamma(x);
    case OpId::asin:
      return std::asin(x);
    case OpId::acos:
      return std::acos(x);
    case OpId::atan:
      return std::atan(x);
    case OpId::sinh:
      return std::sinh(x);
    case OpId::cosh:
      return std::cosh(x);
    case OpId::asinh:
      return std::asinh(x);
    case OpId::acosh:
      return std::acosh(x);
    case OpId::atanh:
      return std::atanh(x);
    case OpId::erfc:
      return std::erfc(x);
    case OpId::frac:
      return x - std::trunc(x);
    case OpId::logsigmoid:
      return x > 0 ? 0 - std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x));
    case OpId::mish:
      return gated(x, std::tanh(softplus(x)));
    case OpId::cube:
      return x * x * x;
    default:
      return nan<R>();
  }
}

template <class R>
R two_operands(OpId op, R x, R y) {
  switch (op) {
    case OpId::add:
      return x + y;
    case OpId::sub:
      return x - y;
    case OpId::mul:
      return x * y;
    case OpId::div:
      return x / y;
    case OpId::minimum:
      return nan_or(x, y, std::fmin(x, y));
    case OpId::maximum:
      return nan_or(x, y, std::fmax(x, y));
    case OpId::pow:
      return std::pow(x, y);
    case OpId::eq:
      return x == y;
    case OpId::ne:
      return x != y;
    case OpId::lt:
      return x < y;
    case OpId::le:
      return x <= y;
    case OpId::gt:
      return x > y;
    case OpId::ge:
      return x >= y;
    case OpId::logical_and:
      return x != 0 && y != 0;
    case OpId::logical_or:
      return x != 0 || y != 0;
    case OpId::logical_xor:
      return (x != 0) != (y != 0);
    case OpId::atan2:
      return std::atan2(x, y);
    case OpId::hypot:
      return std::hypot(x, y);
    case OpId::fmax:
      return std::fmax(x, y);
    case OpId::fmin:
      return std::fmin(x, y);
    case OpId::xlogy:
      return std::isnan(y) ? y : x == 0 ? R{0} : x * std::log(y);
    case OpId::hardshrink:
      return x >= -y && x <= y ? R{0} : x;
    case OpId::softshrink:
      return x > y ? x - y : x < -y ? x + y : x * 0;
    case OpId::mish_backward:
      return x * mish_slope(y);
    case OpId::logsigmoid_backward:
      return x * sigmoid(-y);
    case OpId::logaddexp:
      return x == y ? x + std::log(R{2})
                    : nan_or(x, y, std::fmax(x, y) + std::log1p(std::exp(-std::fabs(x - y))));
    case OpId::hardswish_backward:
      return y <= -3 ? R{0} : y >= 3 ? x : x * (y / 3 + R{0.5});
    case OpId::hardsigmoid_backward:
      return y > -3 && y < 3 ? x / 6 : R{0};
    case OpId::remainder:
      return remainder(x, y);
    case OpId::fmod:
      return std::fmod(x, y);
    case OpId::floor_divide:
      return floor_divide(x, y);
    case OpId::squared_difference:
      return (x - y) * (x - y);
    case OpId::leaky_relu:
      return x > 0 ? x : x * y;
    case OpId::sigmoid_backward:
      return x * (y * (1 - y));
    case OpId::tanh_backward:
      return x * (1 - y * y);
    case OpId::silu_backward:
      return x * sigmoid_gate_slope(y, y, R{1});
    case OpId::gelu_backward:
      return x * gelu_slope(y);
    case OpId::gelu_tanh_backward:
      return x * sigmoid_gate_slope(
                     y, gelu_argument(y),
                     static_cast<R>(kGeluSlope) * (1 + 3 * static_cast<R>(kGeluCubic) * y * y));
    default:
      return nan<R>();
  }
}

template <class R>
R more_operands(OpId op, R x, R y, R z, R w) {
  switch (op) {
    case OpId::fma:
      return std::fma(x, y, z);
    case OpId::clamp:
      return nan_or(x, y, nan_or(z, z, std::fmin(std::fmax(x, y), z)));
    case OpId::where:
      return x != 0 ? y : z;
    case OpId::lerp:
      return x + z * (y - x);
    case OpId::add_scaled:
      return x + z * y;
    case OpId::threshold_backward:
      return y <= z ? R{0} : x;
    case OpId::threshold:
      return x <= y ? z : x;
    case OpId::leaky_relu_backward:
      return y > 0 ? x : x * z;
    case OpId::hardshrink_backward:
      return y >= -z && y <= z ? R{0} : x;
    case OpId::finite_or:
      return std::isnan(x) ? y : std::isinf(x) ? (x > 0 ? z : w) : x;
    case OpId::softplus:
      return x * y > z ? x : softplus(x * y) / y;
    case OpId::squared_difference_backward:
      return z * (x - y);
    case OpId::addcmul:
      return x + w * y * z;
    case OpId::addcdiv:
      return x + w * y / z;
    case OpId::elu:
      return x > 0 ? x * z : std::expm1(x * w) * y * z;
    case OpId::elu_backward:
      return y > 0 ? x : x * z * std::exp(w * y);
    case OpId::softplus_backward:
      return y * z > w ? x : x * sigmoid(y * z);
    case OpId::hardtanh_backward:
      return z < y && y < w ? x : R{0};
    default:
      return nan<R>();
  }
}

template <class R>
R evaluate_as(OpId op, const R* v) {
  switch (op_info(op).arity) {
    case 1:
      return one_operand(op, v[0]);
    case 2:
      return two_operands(op, v[0], v[1]);
    case 3:
      return more_operands(op, v[0], v[1], v[2], R{0});
    default:
      return more_operands(op, v[0], v[1], v[2], v[3]);
  }
}

}  // namespace

double evaluate(OpId op, const double* operands) { return evaluate_as(op, operands); }
long double evaluate(OpId op, const long double* operands) { return evaluate_as(op, operands); }

bool has_reference(OpId op) {
  // Every row has a finite value at one of these.
  constexpr double kOperands[] = {0.5, 0.25, 0.75, 0.625}, kLarger[] = {1.5, 1.25, 1.75, 1.625};
  return !std::isnan(evaluate(op, kOperands)) || !std::isnan(evaluate(op, kLarger));
}

}  // namespace hologram::ref
