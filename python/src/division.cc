// SPDX-License-Identifier: MIT
// Floor division, remainders, powers and shifts as NumPy defines them.
#include "division.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

#include "hologram/functions.h"
#include "hologram/parallel.h"
#include "objects.h"

namespace hologram::python {
namespace {

// Quotient and remainder of floats whose remainder has the sign of y.
template <class T>
T float_remainder(T x, T y) {
  T rest = std::fmod(x, y);
  if (y == 0) return rest;
  if (rest == 0) return std::copysign(T{0}, y);
  if ((y < 0) != (rest < 0)) rest += y;
  return rest;
}
template <class T>
T float_floor_divide(T x, T y) {
  if (y == 0) return x / y;
  const T rest = std::fmod(x, y);
  T quotient = (x - rest) / y;
  if (rest != 0 && (y < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(T{0}, x / y);
  // The division may have been rounded to either side of the whole number it is.
  T whole = std::floor(quotient);
  if (quotient - whole > T{0.5}) whole += 1;
  return whole;
}

struct FloorDivide {
  template <class T>
  T operator()(T x, T y) const {
    if constexpr (std::is_floating_point_v<T>) {
      return float_floor_divide(x, y);
    } else {
      if (y == 0) return 0;
      // The lowest integer by -1 wraps to itself.
      if (std::is_signed_v<T> && y == T(-1)) return static_cast<T>(0 - static_cast<uint64_t>(x));
      const T quotient = static_cast<T>(x / y);
      return static_cast<T>(quotient - ((x % y != 0 && (x < 0) != (y < 0)) ? 1 : 0));
    }
  }
};
struct Remainder {
  template <class T>
  T operator()(T x, T y) const {
    if constexpr (std::is_floating_point_v<T>) {
      return float_remainder(x, y);
    } else {
      if (y == 0 || (std::is_signed_v<T> && y == T(-1))) return 0;
      const T rest = static_cast<T>(x % y);
      return rest != 0 && (rest < 0) != (y < 0) ? static_cast<T>(rest + y) : rest;
    }
  }
};
struct Power {
  template <class T>
  T operator()(T x, T y) const {
    uint64_t result = 1;
    auto base = static_cast<uint64_t>(x);
    for (auto exponent = static_cast<uint64_t>(y); exponent != 0; exponent >>= 1) {
      if ((exponent & 1) != 0) result *= base;
      base *= base;
    }
    return static_cast<T>(result);
  }
};
struct LeftShift {
  template <class T>
  T operator()(T x, T y) const {
    const auto by = static_cast<uint64_t>(y);
    return by < 8 * sizeof(T) ? static_cast<T>(static_cast<uint64_t>(x) << by) : T{0};
  }
};
struct RightShift {
  template <class T>
  T operator()(T x, T y) const {
    const auto by = static_cast<uint64_t>(y);
    if (by < 8 * sizeof(T)) return static_cast<T>(x >> by);
    return x < 0 ? T(-1) : T(0);
  }
};

Shape broadcast(const Tensor& x, const Tensor& y) {
  const Tensor& longer = x.ndim() >= y.ndim() ? x : y;
  const Tensor& shorter = x.ndim() >= y.ndim() ? y : x;
  Shape shape = longer.shape();
  const int lead = longer.ndim() - shorter.ndim();
  for (int i = 0; i < shorter.ndim(); ++i) {
    int64_t& size = shape[static_cast<size_t>(i + lead)];
    const int64_t other = shorter.shape()[static_cast<size_t>(i)];
    if (size == 1) {
      size = other;
    } else if (other != 1 && other != size) {
      fail(ErrorKind::kInvalidArgument, "operands could not be broadcast together: sizes ", size,
           " and ", other, " in dimension ", i + lead, " of the result");
    }
  }
  return shape;
}

template <class Function, class T>
void run(const Tensor& x, const Tensor& y, const Tensor& out) {
  const auto* a = static_cast<const T*>(x.data());
  const auto* b = static_cast<const T*>(y.data());
  auto* c = static_cast<T*>(out.data());
  constexpr int64_t kTile = 8192;
  const int64_t n = out.numel();
  parallel_for((n + kTile - 1) / kTile, 0, [&](int64_t begin, int64_t end, int) {
    const int64_t last = std::min(end * kTile, n);
    for (int64_t i = begin * kTile; i < last; ++i) c[i] = Function{}(a[i], b[i]);
  });
}

// One function, its dtypes and what it is called in messages.
template <class Function, bool kFloats>
Tensor compute(const char* name, const Tensor& x, const Tensor& y) {
  const std::array<Operand, 2> operands = {Operand(x), Operand(y)};
  Dtype dtype = elementwise_types(OpId::maximum, operands, Rules::numpy).result;
  if (dtype == Dtype::kBool) dtype = Dtype::kInt8;
  if (is_complex(dtype) || (is_floating(dtype) && !kFloats)) {
    fail(ErrorKind::kTypeMismatch, name, ": not defined for ", dtype_name(dtype),
         kFloats ? "; use the real or imaginary part" : "; convert with astype('int64')");
  }
  const Dtype wide = compute_dtype(dtype);
  const Shape shape = broadcast(x, y);
  const auto dense = [&](const Tensor& t) {
    Tensor made = empty(shape, wide, x.buffer()->device());
    copy_into(t, made);
    materialize(made);
    return made;
  };
  const Tensor a = dense(x);
  const Tensor b = dense(y);
  if constexpr (std::is_same_v<Function, Power>) {
    const std::array<Operand, 2> test = {Operand(b), Operand(0)};
    if (b.numel() != 0 &&
        item(reduce(Reduction::any, apply(OpId::lt, test, Rules::numpy))).b != 0) {
      fail(ErrorKind::kInvalidArgument,
           "integers to negative integer powers are not allowed; convert one to float64 first");
    }
    materialize(b);
  }
  switch (wide) {
    case Dtype::kUInt8:
      run<Function, uint8_t>(a, b, a);
      break;
    case Dtype::kInt8:
      run<Function, int8_t>(a, b, a);
      break;
    case Dtype::kInt16:
      run<Function, int16_t>(a, b, a);
      break;
    case Dtype::kInt32:
      run<Function, int32_t>(a, b, a);
      break;
    case Dtype::kInt64:
      run<Function, int64_t>(a, b, a);
      break;
    default:
      if constexpr (kFloats) {
        if (wide == Dtype::kFloat32) {
          run<Function, float>(a, b, a);
        } else {
          run<Function, double>(a, b, a);
        }
      }
  }
  return wide == dtype ? a : cast(a, dtype);
}

}  // namespace

Tensor floor_divide(const Tensor& x, const Tensor& y) {
  return compute<FloorDivide, true>("//", x, y);
}
Tensor remainder(const Tensor& x, const Tensor& y) { return compute<Remainder, true>("%", x, y); }
Tensor integer_power(const Tensor& x, const Tensor& y) { return compute<Power, false>("**", x, y); }
Tensor left_shift(const Tensor& x, const Tensor& y) {
  return compute<LeftShift, false>("<<", x, y);
}
Tensor right_shift(const Tensor& x, const Tensor& y) {
  return compute<RightShift, false>(">>", x, y);
}

}  // namespace hologram::python
