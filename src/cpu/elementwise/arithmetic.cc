// SPDX-License-Identifier: MIT
// Powers, divisions and shifts of integers, and complex arithmetic: no vectors, an element at a
// time.
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/parallel.h"
#include "src/cpu/device/call_table.h"

namespace hologram::cpu {
namespace {

using Complex = std::complex<double>;

// Calls f(out element, operand elements...) for each; all views have out's shape.
template <size_t kArity, class F>
void for_each(const View& out, const std::array<View, kArity>& in, F&& f) {
  std::vector<int64_t> at(static_cast<size_t>(out.ndim), 0);
  const int64_t n = out.numel();
  auto* to = static_cast<char*>(out.data);
  std::array<char*, kArity> from;
  for (size_t k = 0; k < kArity; ++k) from[k] = static_cast<char*>(in[k].data);
  for (int64_t i = 0; i < n; ++i) {
    f(to, from);
    for (int d = out.ndim - 1; d >= 0; --d) {
      const auto dim = static_cast<size_t>(d);
      const bool wraps = ++at[dim] == out.shape[d];
      const int64_t steps = wraps ? -(out.shape[d] - 1) : 1;
      to += steps * out.strides[d] * static_cast<int64_t>(itemsize(out.dtype));
      for (size_t k = 0; k < kArity; ++k) {
        from[k] += steps * in[k].strides[d] * static_cast<int64_t>(itemsize(in[k].dtype));
      }
      if (!wraps) break;
      at[dim] = 0;
    }
  }
}

// Calls f(T{}) for the type of an element, or the unsigned one of as many bits.
template <class F>
void with_integer(Dtype dtype, bool is_unsigned, F&& f) {
  if (is_unsigned) {
    switch (itemsize(dtype)) {
      case 1:
        return f(uint8_t{});
      case 2:
        return f(uint16_t{});
      case 4:
        return f(uint32_t{});
      default:
        return f(uint64_t{});
    }
  }
  switch (dtype) {
    case Dtype::kBool:
    case Dtype::kUInt8:
      return f(uint8_t{});
    case Dtype::kInt8:
      return f(int8_t{});
    case Dtype::kInt16:
      return f(int16_t{});
    case Dtype::kInt32:
      return f(int32_t{});
    default:
      return f(int64_t{});
  }
}

// --- Integers ---

// The bits of a number of more of them: copies of its sign above a signed one.
template <class T>
uint64_t widened(T x) {
  return static_cast<uint64_t>(static_cast<int64_t>(x));
}

struct Power {
  template <class T>
  T operator()(T base, T exponent) const {
    if (exponent < 0) {
      if (base == 1) return 1;
      if (base == static_cast<T>(-1)) return exponent % 2 == 0 ? T{1} : static_cast<T>(-1);
      return 0;
    }
    uint64_t result = 1;
    auto factor = widened(base);
    for (auto e = widened(exponent); e != 0; e >>= 1) {
      if ((e & 1) != 0) result *= factor;
      factor *= factor;
    }
    return static_cast<T>(result);
  }
};

struct FloorDivide {
  template <class T>
  T operator()(T x, T y) const {
    if (y == 0) return 0;
    // The lowest integer wraps to itself.
    if (std::is_signed_v<T> && y == static_cast<T>(-1)) return static_cast<T>(0 - widened(x));
    const T quotient = static_cast<T>(x / y);
    return static_cast<T>(quotient - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0));
  }
};

struct Remainder {
  template <class T>
  T operator()(T x, T y) const {
    if (y == 0 || (std::is_signed_v<T> && y == static_cast<T>(-1))) return 0;
    const T rest = static_cast<T>(x % y);
    return static_cast<T>(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
  }
};

struct Fmod {
  template <class T>
  T operator()(T x, T y) const {
    if (y == 0 || (std::is_signed_v<T> && y == static_cast<T>(-1))) return 0;
    return static_cast<T>(x % y);
  }
};

struct LeftShift {
  template <class T>
  T operator()(T x, T y) const {
    const uint64_t by = widened(y);
    return by < 8 * sizeof(T) ? static_cast<T>(widened(x) << by) : T{0};
  }
};

struct RightShift {
  template <class T>
  T operator()(T x, T y) const {
    const uint64_t by = widened(y);
    if (by < 8 * sizeof(T)) return static_cast<T>(x >> by);
    return x < 0 ? static_cast<T>(-1) : T{0};
  }
};

// Operands without gaps, one after another as out's elements are.
template <class Function, class T>
void run_dense(const View& x, const View& y, const View& out, int max_threads) {
  constexpr int64_t kTile = 8192;
  const int64_t n = out.numel();
  const auto* a = static_cast<const T*>(x.data);
  const auto* b = static_cast<const T*>(y.data);
  auto* c = static_cast<T*>(out.data);
  parallel_for((n + kTile - 1) / kTile, max_threads, [&](int64_t begin, int64_t end, int) {
    const int64_t last = std::min(end * kTile, n);
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): absent operands have no elements
    for (int64_t i = begin * kTile; i < last; ++i) c[i] = Function{}(a[i], b[i]);
  });
}

template <class Function>
void run_function(const calls::IntegerOp<>& call, int max_threads) {
  with_integer(call.out.dtype, call.is_unsigned, [&](auto type) {
    run_dense<Function, decltype(type)>(call.x, call.y, call.out, max_threads);
  });
}

}  // namespace

void run(const calls::IntegerOp<>& call, CallThreads most) {
  const int threads = most(call.out.numel());
  switch (static_cast<IntegerOp>(call.op)) {
    case IntegerOp::pow:
      return run_function<Power>(call, threads);
    case IntegerOp::floor_divide:
      return run_function<FloorDivide>(call, threads);
    case IntegerOp::remainder:
      return run_function<Remainder>(call, threads);
    case IntegerOp::left_shift:
      return run_function<LeftShift>(call, threads);
    case IntegerOp::right_shift:
      return run_function<RightShift>(call, threads);
    case IntegerOp::fmod:
      return run_function<Fmod>(call, threads);
  }
}

namespace {

// --- Complex numbers ---

Complex load(const char* at, Dtype dtype) {
  if (dtype == Dtype::kComplex64) return *reinterpret_cast<const std::complex<float>*>(at);
  return *reinterpret_cast<const Complex*>(at);
}

// As NumPy has it: anything to the 0 is 1, and 0 to what has a positive real part is 0.
Complex power_of(Complex x, Complex y) {
  if (y == 0.0) return 1.0;
  if (x == 0.0) return y.real() > 0 ? 0.0 : Complex(NAN, NAN);
  return std::pow(x, y);
}

Complex complex_result(OpId op, Complex x, Complex y) {
  switch (op) {
    case OpId::neg:
      return -x;
    case OpId::reciprocal:
      return 1.0 / x;
    case OpId::sqrt:
      return std::sqrt(x);
    case OpId::exp:
      return std::exp(x);
    case OpId::log:
      return std::log(x);
    case OpId::sin:
      return std::sin(x);
    case OpId::cos:
      return std::cos(x);
    case OpId::tan:
      return std::tan(x);
    case OpId::tanh:
      return std::tanh(x);
    case OpId::sigmoid:
      return 1.0 / (1.0 + std::exp(-x));
    case OpId::square:
      return x * x;
    case OpId::add:
      return x + y;
    case OpId::sub:
      return x - y;
    case OpId::mul:
      return x * y;
    case OpId::div:
      return x / y;
    default:
      return power_of(x, y);
  }
}

bool truth_of(OpId op, Complex x, Complex y) {
  const bool a = x != 0.0, b = y != 0.0;
  switch (op) {
    case OpId::logical_not:
      return !a;
    case OpId::isnan:
      return std::isnan(x.real()) || std::isnan(x.imag());
    case OpId::eq:
      return x == y;
    case OpId::ne:
      return x != y;
    case OpId::logical_and:
      return a && b;
    case OpId::logical_or:
      return a || b;
    default:
      return a != b;
  }
}

}  // namespace

void run(const calls::ComplexOp<>& call, CallThreads) {
  const auto op = static_cast<OpId>(call.op);
  const View &x = call.x, &y = call.y.is_given ? call.y : call.x, &out = call.out;
  // NOLINTBEGIN(clang-analyzer-core.NullDereference,clang-analyzer-core.CallAndMessage): operands
  // that are absent have no elements
  for_each<2>(out, {x, y}, [&](char* to, const std::array<char*, 2>& from) {
    const Complex a = load(from[0], x.dtype), b = load(from[1], y.dtype);
    switch (out.dtype) {
      case Dtype::kBool:
        *reinterpret_cast<uint8_t*>(to) = truth_of(op, a, b) ? 1 : 0;
        break;
      case Dtype::kFloat32:
        *reinterpret_cast<float*>(to) = static_cast<float>(std::abs(a));
        break;
      case Dtype::kFloat64:
        *reinterpret_cast<double*>(to) = std::abs(a);
        break;
      case Dtype::kComplex64:
        *reinterpret_cast<std::complex<float>*>(to) =
            static_cast<std::complex<float>>(complex_result(op, a, b));
        break;
      default:
        *reinterpret_cast<Complex*>(to) = complex_result(op, a, b);
        break;
    }
  });
  // NOLINTEND(clang-analyzer-core.NullDereference,clang-analyzer-core.CallAndMessage)
}

}  // namespace hologram::cpu
