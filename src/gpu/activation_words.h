// SPDX-License-Identifier: MIT
// Activations and their gradients as functions of the dialect: Sigmoid, Silu, GELU, Softplus.
#pragma once

#include <string_view>

namespace hologram::gpu {

// In a definition T is the type, U the unsigned type in which integers wrap, S the signed integer
// of T's size, and a capitalised word before a bracket a word of the same type.
struct Word {
  std::string_view name;
  std::string_view text;
};

inline constexpr Word kActivationsF64[] = {
    {"Sigmoid",
     "T Sigmoid(T x) {\n"
     "  const T e = exp(-fabs(x));\n"
     "  return (x < 0 ? e : (T)1) / (e + 1);\n"
     "}"},
    // t times exp(-(high + low)), with both factors far from underflow.
    {"Decay",
     "T Decay(T t, T high, T low) {\n"
     "  if (high < (T)60) return t * (exp(-high) * (1 - low));\n"
     "  const T half_way = exp(high * (T)-0.5);\n"
     "  return t * half_way * (1 - low) * half_way;\n"
     "}"},
    {"Silu",
     "T Silu(T x) {\n"
     "  const T t = fabs(x);\n"
     "  return (x < 0 ? -Decay(t, t, 0) : x) / (exp(-t) + 1);\n"
     "}"},
    // P(N > t) for t >= 0. The argument of erfc is rounded, and what was lost put right by its
    // slope.
    {"Tail",
     "T Tail(T t) {\n"
     "  const T a = t * (T)0.70710678118654752440;\n"
     "  const T lost = fma(t, (T)0.70710678118654752440, -a) + t * (T)-4.8336466567264567e-17;\n"
     "  const T slope = (T)1.1283791670955125739 * exp(-a * a) * lost;\n"
     "  return (T)0.5 * (erfc(a) - (a < 30 ? slope : 0));\n"
     "}"},
    {"GeluErf",
     "T GeluErf(T x) {\n"
     "  if (x < -36) {\n"
     "    const T t = x < -60 ? (T)60 : -x;\n"
     "    const T square = t * t, r = 1 / square;\n"
     "    const T mills = 1 - r * (1 - 3 * r * (1 - 5 * r * (1 - 7 * r * (1 - 9 * r * (1 - 11 * "
     "r)))));\n"
     "    return x * 0 - Decay((T)0.39894228040143267794 * mills, square * (T)0.5,\n"
     "                         fma(t, t, -square) * (T)0.5);\n"
     "  }\n"
     "  if (x < 0) return x * Tail(-x);\n"
     "  return x < 40 ? x * (1 - Tail(x)) : x;\n"
     "}"},
    {"GeluTanh",
     "T GeluTanh(T x) {\n"
     "  const T t = fabs(x) > 40 ? (T)40 : fabs(x);\n"
     "  const T square = t * t, square_low = fma(t, t, -square);\n"
     "  const T cubic = square * TANH_B;\n"
     "  const T cubic_low = fma(square_low, TANH_B, fma(square, TANH_B_LOW, fma(square, TANH_B, "
     "-cubic)));\n"
     "  const T sum = cubic + TANH_A, part = sum - cubic;\n"
     "  const T sum_low = (cubic - (sum - part)) + (TANH_A - part) + (cubic_low + TANH_A_LOW);\n"
     "  const T high = t * sum, low = fma(t, sum_low, fma(t, sum, -high));\n"
     "  const T below = exp(-high) + 1;\n"
     "  if (x < 0) return x * 0 - Decay(t, high, low) / below;\n"
     "  return x / (exp(-high) * (1 - low) + 1);\n"
     "}"},
    {"Softplus",
     "T Softplus(T x, T beta, T threshold) {\n"
     "  const T scaled = x * beta;\n"
     "  if (scaled > threshold) return x;\n"
     "  return ((scaled < 0 ? (T)0 : scaled) + log1p(exp(-fabs(scaled)))) / beta;\n"
     "}"},
    {"SiluBackward",
     "T SiluBackward(T grad, T x) {\n"
     "  const T t = fabs(x) > 755 ? (T)755 : fabs(x);\n"
     "  const T e = exp(-t), upper = 1 / (e + 1);\n"
     "  const T below = e * upper * (1 - t * upper);\n"
     "  return grad * (x < 0 ? below : 1 - below);\n"
     "}"},
    {"GeluErfBackward",
     "T GeluErfBackward(T grad, T x) {\n"
     "  const T t = fabs(x) > 40 ? (T)40 : fabs(x);\n"
     "  const T below = Tail(t) - t * (T)0.39894228040143267794 * exp((T)-0.5 * t * t);\n"
     "  return grad * (x < 0 ? below : 1 - below);\n"
     "}"},
    {"GeluTanhBackward",
     "T GeluTanhBackward(T grad, T x) {\n"
     "  const T t = fabs(x) > 40 ? (T)40 : fabs(x);\n"
     "  const T e = exp(-t * (TANH_A + TANH_B * t * t)), upper = 1 / (e + 1);\n"
     "  const T below = e * upper * (1 - t * (TANH_A + 3 * TANH_B * t * t) * upper);\n"
     "  return grad * (x < 0 ? below : 1 - below);\n"
     "}"},
    {"Mish",
     "T Mish(T x) {\n"
     "  const T t = fabs(x), q = exp(-t);\n"
     "  if (x < 0) return -Decay(t, t, 0) * (q + 2) / (q * (q + 2) + 2);\n"
     "  return x * (1 + 2 * q) / (1 + 2 * q * (q + 1));\n"
     "}"},
    {"MishBackward",
     "T MishBackward(T grad, T x) {\n"
     "  const T t = fabs(x) > 755 ? (T)755 : fabs(x), q = exp(-t), n = q * (q + 2);\n"
     "  const T whole = x < 0 ? n + 2 : 1 + 2 * q * (q + 1);\n"
     "  const T part = 4 * t * q * (q + 1) / whole / whole;\n"
     "  return grad * (x < 0 ? n / whole - part : (1 + 2 * q) / whole + part * q);\n"
     "}"},
};

// In float32, as GPUs have little else that is quick. Exponentials are of the device's own, so that
// their error is known: with z = Multiple(x), exp(x) is ExpNear(Rest(a, b, z)) First(z) Second(z)
// for x = a b of -176 to 0. The powers are kept apart where a factor is still to come, so that a
// result is rounded into the subnormals once; First is 0 at -176, which therefore stands for all
// below.
inline constexpr Word kActivationsF32[] = {
    // 1.5 * 2^23 + n, where n is x / log(2), rounded.
    {"Multiple", "T Multiple(T x) { return fma(x, 0x1.715476p+0f, 12582912.0f); }"},
    // 2^h for h = floor(n / 2) of -127, where it is 0, to 127. The bits above those of h leave with
    // the shift to the exponent's place.
    {"First", "T First(T z) { return as_f32((as_u32(z) >> 1 << 23) + 0x3f800000); }"},
    // 2^(n - h).
    {"Second",
     "T Second(T z) {\n"
     "  return as_f32(((as_u32(z) - (as_u32(z) >> 1)) << 23) + 0x3f800000);\n"
     "}"},
    // a b - n log(2), whose product is not rounded.
    {"Rest",
     "T Rest(T a, T b, T z) {\n"
     "  const T n = z - 12582912.0f;\n"
     "  return fma(n, -0x1.7f7d1cp-20f, fma(a, b, n * -0x1.62e4p-1f));\n"
     "}"},
    {"ExpNear",
     "T ExpNear(T r) {\n"
     "  const T terms[] = {EXP_TERMS};\n"
     "  T factor = 0;\n"
     "  for (int k = sizeof terms / sizeof(T); k-- > 0;) factor = fma(factor, r, terms[k]);\n"
     "  return fma(fma(factor, r, (T)1), r, (T)1);\n"
     "}"},
    // 1 / d for d of 1 to 32, in steps from a guess, which is within an eighth of it.
    {"Inverse",
     "T Inverse(T d) {\n"
     "#ifdef INVERSE\n"
     "  const T close = INVERSE(d);\n"
     "  return fma(close, fma(-d, close, (T)1), close);\n"
     "#else\n"
     "  const T guess = as_f32(0x7ef311c3 - as_u32(d)), off = fma(-d, guess, (T)1);\n"
     "  const T close = fma(guess, fma(off, off, off), guess), left = fma(-d, close, (T)1);\n"
     "  return fma(close, fma(left, left, left), close);\n"
     "#endif\n"
     "}"},
    {"Sigmoid",
     "T Sigmoid(T x) {\n"
     "  const T t = fabs(x) > 176 ? (T)176 : fabs(x), z = Multiple(-t);\n"
     "  const T e = ExpNear(Rest(-t, (T)1, z)) * First(z) * Second(z);\n"
     "  return (x < 0 ? e : (T)1) * Inverse(e + 1);\n"
     "}"},
    // x sigmoid(y) at the sign of x, from exp(-y) for y of |x|. NaN at -inf, as PyTorch has it.
    {"Gated",
     "T Gated(T x, T near, T z) {\n"
     "  const T first = First(z), second = Second(z);\n"
     "  const T above = x * Inverse(near * first * second + 1);\n"
     "  return x < 0 ? above * first * near * second : above;\n"
     "}"},
    {"Silu",
     "T Silu(T x) {\n"
     "  const T t = fabs(x) > 176 ? (T)176 : fabs(x), z = Multiple(-t);\n"
     "  return Gated(x, ExpNear(Rest(-t, (T)1, z)), z);\n"
     "}"},
    // (t + 4) exp(t^2 / 2) P(N > t) for t >= 0 and q = t / (t + 4).
    {"Mills",
     "T Mills(T q) {\n"
     "  const T terms[] = {MILLS_TERMS};\n"
     "  T sum = 0;\n"
     "  for (int k = sizeof terms / sizeof(T); k-- > 0;) sum = fma(sum, q - 0.5f, terms[k]);\n"
     "  return sum;\n"
     "}"},
    // max(x, 0) - t P(N > t) for both signs of x.
    {"GeluErf",
     "T GeluErf(T x) {\n"
     "  const T t = fabs(x) > 18.76f ? 18.76f : fabs(x), less = t * -0.5f;\n"
     "  const T z = Multiple(less * t), first = First(z), near = ExpNear(Rest(less, t, z));\n"
     "  const T q = t * Inverse(t + 4);\n"
     "  return fma(-(q * Mills(q) * near * first), Second(z), x * (x < 0 ? (T)0 : (T)1));\n"
     "}"},
    // The argument of the sigmoid is t times sum + low.
    {"GeluTanh",
     "T GeluTanh(T x) {\n"
     "  const T t = fabs(x) > 12.95f ? 12.95f : fabs(x);\n"
     "  const T square = t * t, square_low = fma(t, t, -square);\n"
     "  const T sum = fma(square, TANH_B, TANH_A), part = sum - TANH_A;\n"
     "  const T lost = fma(square, TANH_B, -part) + (TANH_A - (sum - part));\n"
     "  const T low = fma(square_low, TANH_B, fma(square, TANH_B_LOW, lost)) + TANH_A_LOW;\n"
     "  const T z = Multiple(-t * sum), rest = fma(-t, low, Rest(-t, sum, z));\n"
     "  return Gated(x, ExpNear(rest), z);\n"
     "}"},
    // log1p(e) = e factor. Below 0 the power of e is left for the end, as beta may be small.
    {"Softplus",
     "T Softplus(T x, T beta, T threshold) {\n"
     "  const T terms[] = {LOG1P_TERMS};\n"
     "  const T scaled = x * beta;\n"
     "  const int far = fabs(scaled) > 176;\n"
     "  const T a = far ? (T)-176 : -fabs(x), b = far ? (T)1 : fabs(beta), z = Multiple(a * b);\n"
     "  const T first = First(z), second = Second(z), near = ExpNear(Rest(a, b, z));\n"
     "  const T e = near * first * second;\n"
     "  T factor = 0;\n"
     "  for (int k = sizeof terms / sizeof(T); k-- > 0;) factor = fma(factor, e, terms[k]);\n"
     "  factor = fma(factor, e, (T)1);\n"
     "  const T result = Div(scaled < 0 ? near * factor : fma(e, factor, scaled), beta);\n"
     "  return scaled > threshold ? x : scaled < 0 ? result * first * second : result;\n"
     "}"},
    {"SiluBackward",
     "T SiluBackward(T grad, T x) {\n"
     "  const T t = fabs(x) > 176 ? (T)176 : fabs(x), z = Multiple(-t);\n"
     "  const T e = ExpNear(Rest(-t, (T)1, z)) * First(z) * Second(z), upper = Inverse(e + 1);\n"
     "  const T below = e * upper * fma(-t, upper, (T)1);\n"
     "  return grad * (x < 0 ? below : 1 - below);\n"
     "}"},
    {"GeluErfBackward",
     "T GeluErfBackward(T grad, T x) {\n"
     "  const T t = fabs(x) > 18.76f ? 18.76f : fabs(x), less = t * -0.5f;\n"
     "  const T z = Multiple(less * t), first = First(z), near = ExpNear(Rest(less, t, z));\n"
     "  const T w = Inverse(t + 4), inner = fma(t, -0.398942280f, w * Mills(t * w));\n"
     "  const T below = inner * near * first * Second(z);\n"
     "  return grad * (x < 0 ? below : 1 - below);\n"
     "}"},
    {"GeluTanhBackward",
     "T GeluTanhBackward(T grad, T x) {\n"
     "  const T t = fabs(x) > 12.95f ? 12.95f : fabs(x), square = t * t;\n"
     "  const T sum = fma(square, TANH_B, TANH_A), z = Multiple(-t * sum);\n"
     "  const T e = ExpNear(Rest(-t, sum, z)) * First(z) * Second(z), upper = Inverse(e + 1);\n"
     "  const T slope = t * fma(square, 3 * TANH_B, TANH_A);\n"
     "  const T below = e * upper * fma(-slope, upper, (T)1);\n"
     "  return grad * (x < 0 ? below : 1 - below);\n"
     "}"},
    {"Mish",
     "T Mish(T x) {\n"
     "  const T t = fabs(x) > 176 ? (T)176 : fabs(x), z = Multiple(-t);\n"
     "  const T near = ExpNear(Rest(-t, (T)1, z)), first = First(z), second = Second(z);\n"
     "  const T q = near * first * second;\n"
     "  if (x < 0) return x * Inverse(fma(q, q + 2, (T)2)) * (q + 2) * first * near * second;\n"
     "  return x * fma(q, (T)2, (T)1) * Inverse(fma(2 * q, q + 1, (T)1));\n"
     "}"},
    {"MishBackward",
     "T MishBackward(T grad, T x) {\n"
     "  const T t = fabs(x) > 176 ? (T)176 : fabs(x), z = Multiple(-t);\n"
     "  const T q = ExpNear(Rest(-t, (T)1, z)) * First(z) * Second(z), n = q * (q + 2);\n"
     "  const T whole = Inverse(x < 0 ? n + 2 : fma(2 * q, q + 1, (T)1));\n"
     "  const T part = 4 * t * q * (q + 1) * whole * whole;\n"
     "  return grad * (x < 0 ? fma(n, whole, -part) : fma(fma(q, (T)2, (T)1), whole, part * q));\n"
     "}"},
};

}  // namespace hologram::gpu
