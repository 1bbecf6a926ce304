// SPDX-License-Identifier: MIT
// Powers, divisions and shifts of integers, an element at a time, and the call of complex numbers.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hologram/elementwise.h"
#include "hologram/integer_elements.h"
#include "hologram/parallel.h"
#include "src/base/element.h"
#include "src/cpu/device/call_table.h"

namespace hologram::cpu {
namespace {

// Calls f(T{}) for the type of an element, or the unsigned one of as many bits.
template <class F>
void with_integer_as(Dtype dtype, bool is_unsigned, F&& f) {
  with_integer(dtype, [&](auto type) {
    using T = decltype(type);
    is_unsigned ? f(std::make_unsigned_t<T>{}) : f(T{});
  });
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
template <class Function>
void run_dense(Dtype dtype, bool is_unsigned, const void* x, const void* y, void* out, int64_t n) {
  with_integer_as(dtype, is_unsigned, [&](auto type) {
    using T = decltype(type);
    const auto* a = static_cast<const T*>(x);
    const auto* b = static_cast<const T*>(y);
    auto* c = static_cast<T*>(out);
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): absent operands have no elements
    for (int64_t i = 0; i < n; ++i) c[i] = Function{}(a[i], b[i]);
  });
}

void run_op(IntegerOp op, Dtype dtype, bool is_unsigned, const void* x, const void* y, void* out,
            int64_t n) {
  switch (op) {
    case IntegerOp::pow:
      return run_dense<Power>(dtype, is_unsigned, x, y, out, n);
    case IntegerOp::floor_divide:
      return run_dense<FloorDivide>(dtype, is_unsigned, x, y, out, n);
    case IntegerOp::remainder:
      return run_dense<Remainder>(dtype, is_unsigned, x, y, out, n);
    case IntegerOp::left_shift:
      return run_dense<LeftShift>(dtype, is_unsigned, x, y, out, n);
    case IntegerOp::right_shift:
      return run_dense<RightShift>(dtype, is_unsigned, x, y, out, n);
    case IntegerOp::fmod:
      return run_dense<Fmod>(dtype, is_unsigned, x, y, out, n);
  }
}

}  // namespace

void run(const calls::IntegerOp<>& call, CallThreads most) {
  constexpr int64_t kTile = 8192;
  const int64_t n = call.out.numel();
  const auto size = static_cast<int64_t>(itemsize(call.out.dtype));
  const auto* x = static_cast<const char*>(call.x.data);
  const auto* y = static_cast<const char*>(call.y.data);
  auto* const out = static_cast<char*>(call.out.data);
  parallel_for((n + kTile - 1) / kTile, most(n), [&](int64_t begin, int64_t end, int) {
    const int64_t first = begin * kTile * size;
    run_op(static_cast<IntegerOp>(call.op), call.out.dtype, call.is_unsigned, x + first, y + first,
           out + first, std::min(end * kTile, n) - begin * kTile);
  });
}

void run(const calls::ComplexOp<>& call, CallThreads most) {
  const View inputs[] = {call.x, call.y};
  elementwise(static_cast<OpId>(call.op), call.x.dtype, inputs, call.y.is_given ? 2 : 1, call.out,
              most(call.out.numel()));
}

}  // namespace hologram::cpu

namespace hologram {

void integer_elements(IntegerOp op, Dtype dtype, const void* x, const void* y, void* out,
                      int64_t n) {
  cpu::run_op(op, carrier_dtype(dtype), is_unsigned(dtype), x, y, out, n);
}

}  // namespace hologram
