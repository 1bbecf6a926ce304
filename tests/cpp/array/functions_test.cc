// SPDX-License-Identifier: MIT
// Functions on tensors: values against plain loops, dtypes, shapes, overlap, errors, in both ways
// of execution.
#include "hologram/functions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/memory.h"
#include "tests/cpp/array/support.h"

namespace hologram {
namespace {

class Functions : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    before_ = is_deferring();
    set_deferring(GetParam());
  }
  void TearDown() override { set_deferring(before_); }
  bool before_ = true;
};
INSTANTIATE_TEST_SUITE_P(Execution, Functions, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "deferred" : "eager");
});

using Floats = std::vector<float>;

TEST_P(Functions, RowsTakeTensorsAndNumbers) {
  const Tensor x = tensor<float>({3}, {1, -2, 3}), y = tensor<float>({3}, {10, 20, 30});
  EXPECT_EQ(values<float>(add(x, y)), (Floats{11, 18, 33}));
  EXPECT_EQ(values<float>(sub(1.0, x)), (Floats{0, 3, -2}));
  EXPECT_EQ(values<float>(mul(x, 2)), (Floats{2, -4, 6}));
  EXPECT_EQ(values<float>(clamp(x, -1.0, 2.0)), (Floats{1, -1, 2}));
  EXPECT_EQ(values<float>(where(gt(x, 0.0), x, y)), (Floats{1, 20, 3}));
  EXPECT_EQ(values<float>(where(x, 1.0, x)), (Floats{1, 1, 1}));
  EXPECT_EQ(values<float>(addcmul(x, y, y, 0.5)), (Floats{51, 198, 453}));
}

TEST_P(Functions, ShapesBroadcast) {
  const Tensor column = tensor<float>({2, 1}, {10, 20}), row = tensor<float>({3}, {1, 2, 3});
  const Tensor sum = add(column, row);
  EXPECT_EQ(sum.shape(), (Shape{2, 3}));
  EXPECT_EQ(values<float>(sum), (Floats{11, 12, 13, 21, 22, 23}));
  EXPECT_EQ(add(column, tensor<float>({0}, {})).shape(), (Shape{2, 0}));
  expect_error(ErrorKind::kInvalidArgument, "add: shapes [3] and [2] do not broadcast", [&] {
    add(row, tensor<float>({2}, {1, 2}));
  });
}

TEST_P(Functions, StridesMayBeNegative) {
  const Tensor x = tensor<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor turned(x.buffer(), {2, 3}, {-3, -1}, Dtype::kFloat32, 5);
  EXPECT_EQ(values<float>(turned), (Floats{6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(values<float>(add(turned, x)), (Floats{7, 7, 7, 7, 7, 7}));
  apply_into(OpId::mul, {turned, 2}, x);  // overlaps: read before it is written
  EXPECT_EQ(values<float>(x), (Floats{12, 10, 8, 6, 4, 2}));
  copy_into(tensor<float>({3}, {1, 2, 3}), turned);
  EXPECT_EQ(values<float>(x), (Floats{3, 2, 1, 3, 2, 1}));
  EXPECT_EQ(values<float>(reduce(Reduction::sum, turned, {.dims = std::vector{1}})),
            (Floats{6, 6}));
}

TEST_P(Functions, IntoTakesShiftedSelves) {
  const Tensor x = tensor<int64_t>({5}, {1, 2, 3, 4, 5});
  apply_into(OpId::add, {x.narrow(0, 0, 4), x.narrow(0, 1, 4)}, x.narrow(0, 1, 4));
  EXPECT_EQ(values<int64_t>(x), (std::vector<int64_t>{1, 3, 5, 7, 9}));
  apply_into(OpId::add, {x, x}, x);
  EXPECT_EQ(values<int64_t>(x), (std::vector<int64_t>{2, 6, 10, 14, 18}));
}

TEST_P(Functions, TwoBuffersMayStandForOneMemory) {
  Floats memory{1, 2, 3, 4, 5};
  const auto lent = [&](int64_t at) {
    Buffer* buffer = wrap_buffer(cpu(), memory.data() + at, 4 * sizeof(float), nullptr, nullptr);
    buffer->set_dtype(Dtype::kFloat32);
    mark_exported(*buffer);
    return Tensor(BufferRef::adopt(buffer));
  };
  apply_into(OpId::add, {lent(0), lent(1)}, lent(1));
  EXPECT_EQ(memory, (Floats{1, 3, 5, 7, 9}));
  copy_into(lent(0), lent(1));
  EXPECT_EQ(memory, (Floats{1, 1, 3, 5, 7}));
  softmax_into(lent(0), 0, lent(0));
  EXPECT_NEAR(memory[0] + memory[1] + memory[2] + memory[3], 1, 1e-6);
  EXPECT_EQ(memory[4], 7);
}

TEST_P(Functions, IntoChecksItsResult) {
  const Tensor x = tensor<float>({3}, {1, 2, 3});
  const Tensor integers = tensor<int32_t>({3}, {1, 2, 3});
  expect_error(ErrorKind::kTypeMismatch, "add: the result is float32 and does not go into out",
               [&] {
                 apply_into(OpId::add, {x, 1}, integers);
               });
  expect_error(ErrorKind::kInvalidArgument, "which does not go into out of shape [2]", [&] {
    apply_into(OpId::add, {x, 1}, tensor<float>({2}, {0, 0}));
  });
  const Tensor repeated(x.buffer(), {3, 3}, {0, 1}, Dtype::kFloat32);
  expect_error(ErrorKind::kInvalidArgument, "several elements may be in one place", [&] {
    apply_into(OpId::add, {x, 1}, repeated);
  });
  const Tensor wide = tensor<float>({2, 3}, Floats(6, 0));
  apply_into(OpId::add, {x, 1}, wide);
  EXPECT_EQ(values<float>(wide), (Floats{2, 3, 4, 2, 3, 4}));
  EXPECT_EQ(values<int32_t>(integers), (std::vector<int32_t>{1, 2, 3}));
}

Dtype result(OpId op, std::initializer_list<Operand> operands, Rules rules) {
  return elementwise_types(op, {operands.begin(), operands.size()}, rules).result;
}

TEST(ElementwiseTypes, FollowPyTorchOrNumpy) {
  const auto of = [](Dtype dtype) { return empty({1}, dtype, cpu()); };
  const Tensor b = of(Dtype::kBool), u8 = of(Dtype::kUInt8), i8 = of(Dtype::kInt8),
               i16 = of(Dtype::kInt16), i32 = of(Dtype::kInt32), i64 = of(Dtype::kInt64),
               f16 = of(Dtype::kFloat16), bf = of(Dtype::kBFloat16), f32 = of(Dtype::kFloat32),
               f64 = of(Dtype::kFloat64), c64 = of(Dtype::kComplex64);
  struct Case {
    OpId op;
    std::vector<Operand> operands;
    Dtype torch, numpy;
  };
  using enum Dtype;
  const Case cases[] = {
      {OpId::add, {i32, f32}, kFloat32, kFloat64},
      {OpId::add, {i16, f32}, kFloat32, kFloat32},
      {OpId::add, {i16, f16}, kFloat16, kFloat32},
      {OpId::add, {i8, f16}, kFloat16, kFloat16},
      {OpId::add, {u8, i8}, kInt16, kInt16},
      {OpId::add, {bf, f16}, kFloat32, kFloat32},
      {OpId::add, {bf, i64}, kBFloat16, kBFloat16},
      {OpId::add, {i32, 1.5}, kFloat32, kFloat64},
      {OpId::add, {f16, 1.5}, kFloat16, kFloat16},
      {OpId::add, {i8, 100}, kInt8, kInt8},
      {OpId::add, {b, 1}, kInt64, kInt64},
      {OpId::add, {b, b}, kBool, kBool},
      {OpId::add, {c64, i32}, kComplex64, kComplex128},
      {OpId::div, {i8, i8}, kFloat32, kFloat64},
      {OpId::div, {f16, 2}, kFloat16, kFloat16},
      {OpId::sqrt, {i8}, kFloat32, kFloat16},
      {OpId::sqrt, {i16}, kFloat32, kFloat32},
      {OpId::sqrt, {i64}, kFloat32, kFloat64},
      {OpId::pow, {i32, 2}, kInt32, kInt32},
      {OpId::pow, {b, b}, kBool, kInt8},
      {OpId::floor, {i32}, kInt32, kInt32},
      {OpId::lt, {u8, f64}, kBool, kBool},
      {OpId::where, {f64, i8, i16}, kInt16, kInt16},
      {OpId::abs, {c64}, kFloat32, kFloat32},
      {OpId::isnan, {i32}, kBool, kBool},
  };
  for (const Case& c : cases) {
    const std::string name(op_info(c.op).name);
    EXPECT_EQ(elementwise_types(c.op, c.operands, Rules::torch).result, c.torch) << name;
    EXPECT_EQ(elementwise_types(c.op, c.operands, Rules::numpy).result, c.numpy) << name;
  }
  expect_error(ErrorKind::kTypeMismatch, "sub: is not defined for bool", [&] {
    result(OpId::sub, {b, b}, Rules::numpy);
  });
  expect_error(ErrorKind::kTypeMismatch, "bitwise_and: is for integers and bool, got float32", [&] {
    result(OpId::bitwise_and, {f32, i8}, Rules::torch);
  });
  expect_error(ErrorKind::kInvalidArgument, "the number 300 is out of bounds for uint8", [&] {
    result(OpId::add, {u8, 300}, Rules::numpy);
  });
  EXPECT_EQ(result(OpId::add, {u8, 300}, Rules::torch), kUInt8);
  EXPECT_EQ(elementwise_types(OpId::lt, std::vector<Operand>{u8, 300}).compute, kInt64);
  expect_error(ErrorKind::kInvalidArgument, "add: takes 2 operands, got 1",
               [&] { result(OpId::add, {u8}, Rules::torch); });
}

TEST_P(Functions, TruthValues) {
  const Tensor x = gt(tensor<float>({4}, {0, 0, 1, 1}), 0.5);
  const Tensor y = gt(tensor<float>({4}, {0, 1, 0, 1}), 0.5);
  const auto bits = [](const Tensor& t) { return values<uint8_t>(cast(t, Dtype::kUInt8)); };
  using Bits = std::vector<uint8_t>;
  EXPECT_EQ(add(x, y).dtype(), Dtype::kBool);
  EXPECT_EQ(bits(add(x, y)), (Bits{0, 1, 1, 1}));
  EXPECT_EQ(bits(mul(x, y)), (Bits{0, 0, 0, 1}));
  EXPECT_EQ(bits(square(x)), (Bits{0, 0, 1, 1}));
  EXPECT_EQ(bits(clamp(x, true, true)), (Bits{1, 1, 1, 1}));
  EXPECT_EQ(bits(pow(x, y)), (Bits{1, 0, 1, 1}));
  EXPECT_EQ(values<int64_t>(reduce(Reduction::sum, x)), (std::vector<int64_t>{2}));
  EXPECT_EQ(values<int64_t>(reduce(Reduction::argmax, x)), (std::vector<int64_t>{2}));
}

TEST_P(Functions, IntegerArithmetic) {
  const std::vector<int32_t> a{7, -7, 7, -7, 5, 0, INT32_MIN}, b{2, 2, -2, -2, 0, 3, -1};
  const Tensor x = tensor<int32_t>({7}, a), y = tensor<int32_t>({7}, b);
  EXPECT_EQ(values<int32_t>(integer_arithmetic(IntegerOp::floor_divide, x, y)),
            (std::vector<int32_t>{3, -4, -4, 3, 0, 0, INT32_MIN}));
  EXPECT_EQ(values<int32_t>(integer_arithmetic(IntegerOp::remainder, x, y)),
            (std::vector<int32_t>{1, 1, -1, -1, 0, 0, 0}));
  EXPECT_EQ(values<int32_t>(fmod(x, y)), (std::vector<int32_t>{1, -1, 1, -1, 0, 0, 0}));
  EXPECT_EQ(values<int32_t>(pow(x, 3)), (std::vector<int32_t>{343, -343, 343, -343, 125, 0, 0}));
  EXPECT_EQ(values<int32_t>(pow(x, -1)), (std::vector<int32_t>{0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values<int32_t>(integer_arithmetic(IntegerOp::left_shift, x, 1)),
            (std::vector<int32_t>{14, -14, 14, -14, 10, 0, 0}));
  EXPECT_EQ(values<int32_t>(integer_arithmetic(IntegerOp::right_shift, x, 40)),
            (std::vector<int32_t>{0, -1, 0, -1, 0, 0, -1}));
  expect_error(ErrorKind::kInvalidArgument, "pow: integers to negative integer powers", [&] {
    const Operand operands[] = {x, -2};
    hologram::apply(OpId::pow, operands, Rules::numpy);
  });
  const Tensor f = tensor<float>({4}, {7.5f, -7.5f, 6.0f, 0.0f});
  expect_error(ErrorKind::kTypeMismatch, "floor_divide: is not defined for float32",
               [&] { integer_arithmetic(IntegerOp::floor_divide, f, 2); });
  EXPECT_EQ(values<float>(floor_divide(f, 2)), (Floats{3, -4, 3, 0}));
  EXPECT_EQ(values<float>(remainder(f, -2)), (Floats{-0.5f, -1.5f, 0.0f, 0.0f}));
  // By NumPy's rules a 0 has the sign of the divisor.
  const Operand operands[] = {f, -2};
  const Floats rest = values<float>(hologram::apply(OpId::remainder, operands, Rules::numpy));
  EXPECT_EQ(rest, (Floats{-0.5f, -1.5f, 0.0f, 0.0f}));
  EXPECT_TRUE(std::signbit(rest[2]) && std::signbit(rest[3]));
}

TEST_P(Functions, ComplexNumbers) {
  using C = std::complex<float>;
  const std::vector<C> a{{1, 2}, {3, -4}}, b{{0, 1}, {2, 2}};
  const Tensor x = tensor<C>({2}, a), y = tensor<C>({2}, b);
  EXPECT_EQ(values<C>(mul(x, y)), (std::vector<C>{{-2, 1}, {14, -2}}));
  EXPECT_EQ(values<C>(add(x, 1)), (std::vector<C>{{2, 2}, {4, -4}}));
  EXPECT_EQ(values<float>(abs(x)), (Floats{std::abs(a[0]), 5}));
  EXPECT_EQ(values<C>(reduce(Reduction::sum, x)), (std::vector<C>{{4, -2}}));
  EXPECT_EQ(values<C>(where(eq(x, y), x, y)), b);
  EXPECT_EQ(values<C>(cumsum(x, 0)), (std::vector<C>{{1, 2}, {4, -2}}));
  const Tensor zero = tensor<C>({2}, {{0, 0}, {0, 0}});
  EXPECT_EQ(values<C>(pow(zero, zero)), (std::vector<C>{{1, 0}, {1, 0}}));
  EXPECT_EQ(values<C>(pow(zero, 3)), (std::vector<C>{{0, 0}, {0, 0}}));
  EXPECT_TRUE(std::isnan(values<C>(pow(zero, -1))[0].real()));
  expect_error(ErrorKind::kTypeMismatch, "maximum: is not defined for complex64",
               [&] { maximum(x, y); });
  expect_error(ErrorKind::kTypeMismatch, "prod: is not defined for complex64",
               [&] { reduce(Reduction::prod, x); });
  expect_error(ErrorKind::kTypeMismatch, "cast: complex64 does not convert to float32",
               [&] { cast(x, Dtype::kFloat32); });
}

TEST_P(Functions, ProductsOfComplexNumbers) {
  using C = std::complex<double>;
  std::mt19937 random(2);
  std::uniform_int_distribution<int> digit(-4, 4);
  const auto some = [&](Shape shape) {
    std::vector<C> v(static_cast<size_t>(shape_numel(shape)));
    for (C& c : v) c = {static_cast<double>(digit(random)), static_cast<double>(digit(random))};
    return tensor<C>(std::move(shape), v);
  };
  // Small integers: every order of additions is exact.
  const auto check = [&](const Tensor& a, const Tensor& b) {
    const Tensor found = matmul(a, b);
    EXPECT_EQ(found.dtype(), Dtype::kComplex128);
    const std::vector<C> got = values<C>(found), x = values<C>(cast(a, Dtype::kComplex128)),
                         y = values<C>(cast(b, Dtype::kComplex128));
    const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
    for (int64_t i = 0; i < found.numel(); ++i) {
      const int64_t page = i / (m * n), row = i / n % m, col = i % n;
      C sum = 0;
      for (int64_t j = 0; j < k; ++j) {
        sum += x[static_cast<size_t>((page * m + row) * k + j)] *
               y[static_cast<size_t>((page * k + j) * n + col)];
      }
      ASSERT_EQ(got[static_cast<size_t>(i)], sum) << i;
    }
  };
  check(some({5, 7}), some({7, 3}));
  check(some({7, 5}).transpose(0, 1), some({3, 7}).transpose(0, 1));
  check(some({2, 5, 7}), some({2, 7, 3}));
  check(some({5, 7}).slice(1, 0, 7, 2), some({4, 3}));
  check(some({5, 0}), some({0, 3}));
  const Tensor real = tensor<float>({2, 2}, {1, 2, 3, 4});
  check(real, some({2, 3}));
  check(some({3, 2}), real);
  const Tensor a = some({2, 2}), out = some({2, 2});
  matmul_into(a, a, out);
  EXPECT_EQ(values<C>(out), values<C>(matmul(a, a)));
  const Tensor square = matmul(a, a);
  matmul_into(a, a, a);
  EXPECT_EQ(values<C>(a), values<C>(square));
}

TEST_P(Functions, Reductions) {
  const Tensor x = tensor<float>({2, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  const auto sum = [&](std::vector<int> dims, bool keep = false) {
    return reduce(Reduction::sum, x, {.dims = dims, .keepdim = keep});
  };
  EXPECT_EQ(values<float>(sum({})), (Floats{78}));
  EXPECT_EQ(sum({}).shape(), Shape{});
  EXPECT_EQ(values<float>(sum({-1})), (Floats{6, 15, 24, 33}));
  EXPECT_EQ(values<float>(sum({0})), (Floats{8, 10, 12, 14, 16, 18}));
  EXPECT_EQ(values<float>(sum({0, 2})), (Floats{30, 48}));
  EXPECT_EQ(sum({0, 2}, true).shape(), (Shape{1, 2, 1}));
  EXPECT_EQ(values<int64_t>(reduce(Reduction::argmax, x, {.dims = std::vector{2}})),
            (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(values<float>(reduce(Reduction::sum, full({}, 3.0, Dtype::kFloat32, cpu()))),
            (Floats{3}));
  const Tensor integers = tensor<int32_t>({3}, {1, 2, 4});
  EXPECT_EQ(values<int64_t>(reduce(Reduction::prod, integers)), (std::vector<int64_t>{8}));
  EXPECT_EQ(values<double>(reduce(Reduction::mean, integers, {.rules = Rules::numpy})),
            (std::vector<double>{7.0 / 3}));
  expect_error(ErrorKind::kTypeMismatch, "mean: is for floating dtypes, got int32",
               [&] { reduce(Reduction::mean, integers); });
  expect_error(ErrorKind::kIndex, "sum: dimension 3 is out of range", [&] { sum({3}); });
  expect_error(ErrorKind::kInvalidArgument, "sum: dimension -3 is given twice", [&] {
    sum({0, -3});
  });
  const Tensor none = empty({2, 0}, Dtype::kFloat32, cpu());
  EXPECT_EQ(values<float>(reduce(Reduction::sum, none, {.dims = std::vector{1}})), (Floats{0, 0}));
  expect_error(ErrorKind::kInvalidArgument, "amax: no elements have no amax",
               [&] { reduce(Reduction::amax, none); });
  expect_error(ErrorKind::kInvalidArgument, "argmin: takes one dimension or none", [&] {
    reduce(Reduction::argmin, x, {.dims = std::vector{0, 1}});
  });
}

TEST_P(Functions, Softmax) {
  const Tensor x = tensor<float>({2, 3}, {1, 2, 3, 3, 2, 1});
  for (const int dim : {0, 1, -1}) {
    const Tensor y = softmax(x, dim);
    const Tensor total = reduce(Reduction::sum, y, {.dims = std::vector{dim}});
    for (const float v : values<float>(total)) EXPECT_NEAR(v, 1, 1e-6);
    const Floats logs = values<float>(log_softmax(x, dim)), plain = values<float>(y);
    for (size_t i = 0; i < logs.size(); ++i) EXPECT_NEAR(std::exp(logs[i]), plain[i], 1e-6);
  }
  expect_error(ErrorKind::kIndex, "softmax: dimension 2 is out of range", [&] { softmax(x, 2); });
  expect_error(ErrorKind::kTypeMismatch, "softmax: is for floating dtypes, got int32",
               [&] { softmax(tensor<int32_t>({1}, {1}), 0); });
}

TEST_P(Functions, Products) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> digit(-4, 4);
  const auto some = [&](Shape shape) {
    Floats v(static_cast<size_t>(shape_numel(shape)));
    for (float& f : v) f = static_cast<float>(digit(random));
    return tensor<float>(std::move(shape), v);
  };
  // Small integers: every order of additions is exact.
  const auto check = [&](const Tensor& a, const Tensor& b) {
    const Floats got = values<float>(matmul(a, b));
    Tensor left = a.ndim() == 1 ? a.unsqueeze(0) : a, right = b.ndim() == 1 ? b.unsqueeze(1) : b;
    const Tensor product = mul(left.unsqueeze(-1), right.unsqueeze(-3));
    EXPECT_EQ(got, values<float>(reduce(Reduction::sum, product, {.dims = std::vector{-2}})));
  };
  check(some({5, 7}), some({7, 3}));
  check(some({7, 5}).transpose(0, 1), some({3, 7}).transpose(0, 1));
  check(some({4, 5, 7}), some({4, 7, 3}));
  check(some({4, 5, 7}), some({7, 3}));
  check(some({2, 1, 5, 7}), some({3, 7, 3}));
  check(some({7}), some({7, 3}));
  check(some({5, 7}), some({7}));
  check(some({7}), some({7}));
  check(some({5, 0}), some({0, 3}));
  check(some({10, 14}).slice(0, 0, 10, 2).slice(1, 0, 14, 2), some({7, 3}));
  const Tensor w = some({3, 7}), x = some({2, 5, 7}), bias = some({3});
  EXPECT_EQ(values<float>(linear(x, w, &bias)),
            values<float>(add(matmul(x, w.transpose(0, 1)), bias)));
  const Tensor square = some({3, 3});
  const Floats twice = values<float>(matmul(square, square));
  matmul_into(square, square, square);
  EXPECT_EQ(values<float>(square), twice);
  expect_error(ErrorKind::kInvalidArgument, "matmul: shapes [5, 7] and [5, 7] do not fit", [&] {
    matmul(some({5, 7}), some({5, 7}));
  });
  expect_error(ErrorKind::kInvalidArgument, "linear: x has shape [2, 5, 6]", [&] {
    linear(some({2, 5, 6}), w);
  });
  const Tensor truths = gt(some({4, 4}), 0);
  EXPECT_EQ(matmul(truths, truths, Rules::numpy).dtype(), Dtype::kBool);
}

TEST_P(Functions, Losses) {
  const Tensor x = tensor<float>({4}, {1, 2, 3, 4}), y = tensor<float>({4}, {1, 1, 1, 1});
  EXPECT_EQ(values<float>(point_loss(PointLoss::mse, x, y)), (Floats{3.5f}));
  EXPECT_EQ(values<float>(point_loss(PointLoss::mse, x, y, {.reduction = LossReduction::none})),
            (Floats{0, 1, 4, 9}));
  const Tensor logits = tensor<float>({2, 3}, {1, 2, 3, 1, 2, 3});
  const Tensor target = tensor<int64_t>({2}, {2, 0});
  const Floats logs = values<float>(log_softmax(logits, 1));
  EXPECT_NEAR(values<float>(cross_entropy(logits, target))[0], -(logs[2] + logs[3]) / 2, 1e-6);
  expect_error(ErrorKind::kIndex, "target 3 at position 1 is out of range for 3 classes", [&] {
    cross_entropy(logits, tensor<int64_t>({2}, {2, 3}));
  });
  expect_error(ErrorKind::kInvalidArgument, "ask for targets of shape [2], got [3]", [&] {
    cross_entropy(logits, tensor<int64_t>({3}, {2, 0, 0}));
  });
  expect_error(ErrorKind::kTypeMismatch, "targets are class indices of int64, got float32", [&] {
    cross_entropy(logits, tensor<float>({2}, {2, 0}));
  });
  expect_error(ErrorKind::kInvalidArgument, "label_smoothing must be between 0 and 1, got 2",
               [&] { cross_entropy(logits, target, {.label_smoothing = 2}); });
  expect_error(ErrorKind::kInvalidArgument, "the input has shape [4], the target [2, 3]",
               [&] { point_loss(PointLoss::mse, x, logits); });
  expect_error(ErrorKind::kInvalidArgument, "beta or delta must not be negative, got -1",
               [&] { point_loss(PointLoss::huber, x, y, {.param = -1}); });
}

TEST_P(Functions, MakeJoinAndRead) {
  const Tensor x = full({2, 2}, int64_t{7}, Dtype::kInt16, cpu());
  EXPECT_EQ(values<int16_t>(x), (std::vector<int16_t>{7, 7, 7, 7}));
  fill_into(1, x.select(1, 0));
  EXPECT_EQ(values<int16_t>(x), (std::vector<int16_t>{1, 7, 1, 7}));
  const Tensor parts[] = {x, tensor<float>({2, 1}, {0.5f, 1.5f})};
  const Tensor joined = cat(parts, 1);
  EXPECT_EQ(values<float>(joined), (Floats{1, 7, 0.5f, 1, 7, 1.5f}));
  EXPECT_EQ(values<float>(reshaped(joined.transpose(0, 1), {6})), (Floats{1, 1, 7, 7, 0.5f, 1.5f}));
  EXPECT_EQ(item(joined.select(0, 1).select(0, 2)).f64, 1.5);
  EXPECT_EQ(item(x.select(0, 0).select(0, 1)).i64, 7);
  expect_error(ErrorKind::kInvalidArgument, "item: the tensor has 6 elements",
               [&] { item(joined); });
  expect_error(ErrorKind::kInvalidArgument, "add: a tensor without memory",
               [&] { add(Tensor(), x); });
  expect_error(ErrorKind::kInvalidArgument, "all operands are numbers", [&] { add(1, 2); });
  expect_error(ErrorKind::kInvalidArgument, "sizes may differ in dimension 1 only", [&] {
    const Tensor odd[] = {x, full({3, 2}, 0, Dtype::kInt16, cpu())};
    cat(odd, 1);
  });
  expect_error(ErrorKind::kOutOfMemory, "more bytes than an address can count",
               [&] { empty({INT64_MAX}, Dtype::kFloat64, cpu()); });
}

TEST_P(Functions, ExportedBuffersAreComputedAtOnce) {
  const Tensor x = tensor<float>({3}, {1, 2, 3});
  mark_exported(*x.buffer());
  apply_into(OpId::add, {x, 1}, x);
  EXPECT_EQ(static_cast<const float*>(x.data())[2], 4);
  const Tensor y = mul(x, 2);
  static_cast<float*>(x.data())[0] = 100;
  EXPECT_EQ(values<float>(y), (Floats{4, 6, 8}));
}

// Random programs of rows on random views: what is recorded equals what is run at once.
TEST(FunctionsRandom, DeferredEqualsEager) {
  std::mt19937_64 random(7);
  constexpr Dtype kDtypes[] = {Dtype::kBool,    Dtype::kUInt8,    Dtype::kInt32,   Dtype::kInt64,
                               Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat64};
  const bool before = is_deferring();
  for (int program = 0; program < 3000; ++program) {
    const uint64_t seed = random();
    std::vector<std::vector<double>> results[2];
    for (const bool deferring : {false, true}) {
      set_deferring(deferring);
      std::mt19937_64 rng(seed);
      const auto pick = [&](int64_t n) {
        return static_cast<int64_t>(rng() % static_cast<uint64_t>(n));
      };
      const Shape shape{1 + pick(4), 1 + pick(5), 1 + pick(6)};
      std::vector<Tensor> pool;
      for (const Dtype dtype : kDtypes) {
        std::vector<double> v(static_cast<size_t>(shape_numel(shape)) * 2);
        for (double& d : v) d = static_cast<double>(pick(17)) - 8;
        pool.push_back(cast(tensor<double>({static_cast<int64_t>(v.size())}, v), dtype)
                           .narrow(0, pick(static_cast<int64_t>(v.size()) / 2), shape_numel(shape))
                           .reshape(shape));
      }
      for (int step = 0; step < 12; ++step) {
        const OpInfo& row = ops()[static_cast<size_t>(pick(static_cast<int64_t>(ops().size())))];
        std::vector<Tensor> views;
        std::vector<Operand> operands;
        for (int k = 0; k < row.arity; ++k) {
          Tensor t = pool[static_cast<size_t>(pick(static_cast<int64_t>(pool.size())))];
          switch (pick(4)) {
            case 0: {  // turned round
              Shape strides = t.strides();
              int64_t offset = t.offset();
              const auto d = static_cast<size_t>(pick(3));
              offset += (t.shape()[d] - 1) * strides[d];
              strides[d] = -strides[d];
              t = Tensor(t.buffer(), t.shape(), strides, t.dtype(), offset);
              break;
            }
            case 1:
              t = t.narrow(static_cast<int>(pick(3)), 0, 1);
              break;
            default:
              break;
          }
          views.push_back(t);
        }
        for (int k = 0; k < row.arity; ++k) {
          if (k > 0 && pick(4) == 0) {
            operands.emplace_back(pick(2) == 0 ? Operand(static_cast<double>(pick(9)) / 4)
                                               : Operand(pick(9) - 4));
          } else {
            operands.emplace_back(views[static_cast<size_t>(k)]);
          }
        }
        try {
          if (pick(3) == 0) {
            const Tensor& out = pool[static_cast<size_t>(pick(static_cast<int64_t>(pool.size())))];
            apply_into(row.id, operands, out);
          } else {
            Tensor result = hologram::apply(row.id, operands);
            if (result.shape() == shape) {
              pool[static_cast<size_t>(pick(static_cast<int64_t>(pool.size())))] = result;
            }
          }
        } catch (const Error& error) {
          ASSERT_EQ(error.kind(), ErrorKind::kTypeMismatch) << error.what();
        }
      }
      for (const Tensor& t : pool)
        results[deferring ? 1 : 0].push_back(values<double>(cast(t, Dtype::kFloat64)));
    }
    for (size_t t = 0; t < results[0].size(); ++t) {
      for (size_t i = 0; i < results[0][t].size(); ++i) {
        const double e = results[0][t][i], d = results[1][t][i];
        ASSERT_TRUE((std::isnan(e) && std::isnan(d)) ||
                    (e == d && std::signbit(e) == std::signbit(d)))
            << "program " << program << " tensor " << t << " element " << i << ": " << e
            << " became " << d;
      }
    }
  }
  set_deferring(before);
}

}  // namespace
}  // namespace hologram
