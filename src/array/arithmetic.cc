// SPDX-License-Identifier: MIT
// Powers, divisions and shifts of integers, and complex arithmetic, element by element in calls.
#include "src/array/arithmetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/array/array.h"
#include "src/array/tensor_call.h"
#include "src/array/types.h"

namespace hologram {
namespace array {
namespace {

using Complex = std::complex<double>;

// Calls f(out element, operand elements...) for each; all views have out's shape.
template <size_t kArity, class F>
void for_each(const View& out, const std::array<View, kArity>& in, F&& f) {
  Shape at(static_cast<size_t>(out.ndim), 0);
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

// Calls f(T{}) for the type of an element.
template <class F>
void with_integer(Dtype dtype, F&& f) {
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

double cost_of(const Tensor& out, double each) { return each * static_cast<double>(out.numel()); }

// --- Integers, and what Python's // and % do with floats -----------------------------------------

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
void run_function(const View& x, const View& y, const View& out, int max_threads) {
  with_integer(out.dtype,
               [&](auto type) { run_dense<Function, decltype(type)>(x, y, out, max_threads); });
}

void run_integer_op(CallFrame& frame) {
  const auto op = static_cast<IntegerOp>(frame.value<uint64_t>());
  const View x = frame.view(), y = frame.view(), out = frame.view();
  const int threads = frame.threads(out.numel());
  switch (op) {
    case IntegerOp::pow:
      return run_function<Power>(x, y, out, threads);
    case IntegerOp::floor_divide:
      return run_function<FloorDivide>(x, y, out, threads);
    case IntegerOp::remainder:
      return run_function<Remainder>(x, y, out, threads);
    case IntegerOp::left_shift:
      return run_function<LeftShift>(x, y, out, threads);
    case IntegerOp::right_shift:
      return run_function<RightShift>(x, y, out, threads);
    case IntegerOp::fmod:
      return run_function<Fmod>(x, y, out, threads);
  }
}

// By NumPy's rules. The values of a tensor have to be looked at.
void refuse_negative(const Operand& exponent) {
  const auto lowest = [](const Tensor& t) {
    return t.numel() == 0 ? 0 : item(reduce(Reduction::amin, t)).i64;
  };
  const int64_t least =
      !exponent.is_tensor()
          ? (exponent.number().dtype == Dtype::kInt64 ? exponent.number().i64 : 0)
          : (is_integer(exponent.tensor().dtype()) ? lowest(exponent.tensor()) : 0);
  if (least < 0) {
    fail(ErrorKind::kInvalidArgument,
         "pow: integers to negative integer powers are not allowed; cast one of them to a "
         "floating dtype");
  }
}

// `out` may have another dtype than is computed in; the result is converted to it then.
void integer_op(IntegerOp op, std::span<const Operand> operands, Dtype compute, const Tensor& out) {
  std::array<Tensor, 2> in = settle(operands, compute, out);
  for (Tensor& t : in) t = contiguous(t);
  const bool direct = out.dtype() == compute && out.is_contiguous();
  const Tensor to = direct ? out : fresh(out.shape(), compute, device_of(out));
  TensorCall call;
  call.value(static_cast<uint64_t>(op));
  call.view(in[0], Access::reads);
  call.view(in[1], Access::reads);
  call.view(to, Access::writes);
  call.run<&run_integer_op>("array_integer_op", cost_of(out, 3));
  if (!direct) copy_into(to, out);
}

// --- Complex numbers -----------------------------------------------------------------------------

Complex load(const char* at, Dtype dtype) {
  if (dtype == Dtype::kComplex64) return *reinterpret_cast<const std::complex<float>*>(at);
  return *reinterpret_cast<const Complex*>(at);
}

struct ComplexValues {
  uint64_t op;
  uint64_t arity;
};

bool is_complex_row(OpId op) {
  switch (op) {
    case OpId::neg:
    case OpId::abs:
    case OpId::reciprocal:
    case OpId::sqrt:
    case OpId::exp:
    case OpId::log:
    case OpId::sin:
    case OpId::cos:
    case OpId::tan:
    case OpId::tanh:
    case OpId::square:
    case OpId::sigmoid:
    case OpId::logical_not:
    case OpId::isnan:
    case OpId::add:
    case OpId::sub:
    case OpId::mul:
    case OpId::div:
    case OpId::pow:
    case OpId::eq:
    case OpId::ne:
    case OpId::logical_and:
    case OpId::logical_or:
    case OpId::logical_xor:
      return true;
    default:
      return false;
  }
}

// As NumPy has it: anything to the 0 is 1, and 0 to what has a positive real part is 0.
Complex power_of(Complex x, Complex y) {
  if (y == 0.0) return 1.0;
  if (x == 0.0) return y.real() > 0 ? 0.0 : Complex(NAN, NAN);
  return std::pow(x, y);
}

Complex result_of(OpId op, Complex x, Complex y) {
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

void run_complex_op(CallFrame& frame) {
  const auto values = frame.value<ComplexValues>();
  const auto op = static_cast<OpId>(values.op);
  const View x = frame.view();
  const View y = values.arity > 1 ? frame.view() : x;
  const View out = frame.view();
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
            static_cast<std::complex<float>>(result_of(op, a, b));
        break;
      default:
        *reinterpret_cast<Complex*>(to) = result_of(op, a, b);
        break;
    }
  });
  // NOLINTEND(clang-analyzer-core.NullDereference,clang-analyzer-core.CallAndMessage)
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
  if (!is_complex_row(op)) {
    fail(ErrorKind::kTypeMismatch, op_name(op), ": is not defined for ", dtype_name(compute),
         "; work on the real and imaginary parts");
  }
  const std::array<Tensor, 2> in = settle(operands, compute, out);
  TensorCall call;
  call.value(ComplexValues{static_cast<uint64_t>(op), operands.size()});
  call.view(in[0], Access::reads);
  if (operands.size() > 1) call.view(in[1], Access::reads);
  call.view(out, Access::writes);
  call.run<&run_complex_op>("array_complex_op", cost_of(out, 20));
}

}  // namespace array

Tensor integer_arithmetic(IntegerOp op, const Operand& x, const Operand& y, Rules rules) {
  constexpr const char* kNames[] = {"pow",        "floor_divide", "remainder",
                                    "left_shift", "right_shift",  "fmod"};
  const char* name = kNames[static_cast<int>(op)];
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
