// SPDX-License-Identifier: MIT
// uint16, uint32 and uint64: what the dtypes are, ops on tensors of them against C++'s own
// arithmetic, and that no function below tensors takes them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "hologram/calls.h"
#include "hologram/circuit.h"
#include "hologram/dtype.h"
#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/gemm.h"
#include "hologram/recorder.h"
#include "hologram/reduction.h"
#include "tests/cpp/array/support.h"

namespace hologram {
namespace {

using enum Dtype;
constexpr Dtype kUnsigned[] = {kUInt16, kUInt32, kUInt64};

TEST(UnsignedDtypes, HaveNamesSizesAndKinds) {
  const std::map<Dtype, std::pair<std::string, size_t>> wanted = {
      {kBool, {"bool", 1}},       {kUInt8, {"uint8", 1}},         {kInt8, {"int8", 1}},
      {kInt16, {"int16", 2}},     {kInt32, {"int32", 4}},         {kInt64, {"int64", 8}},
      {kFloat16, {"float16", 2}}, {kBFloat16, {"bfloat16", 2}},   {kFloat32, {"float32", 4}},
      {kFloat64, {"float64", 8}}, {kComplex64, {"complex64", 8}}, {kComplex128, {"complex128", 16}},
      {kUInt16, {"uint16", 2}},   {kUInt32, {"uint32", 4}},       {kUInt64, {"uint64", 8}}};
  ASSERT_EQ(wanted.size(), static_cast<size_t>(kStoredDtypeCount));
  for (const auto& [dtype, entry] : wanted) {
    EXPECT_EQ(dtype_name(dtype), entry.first);
    EXPECT_EQ(itemsize(dtype), entry.second);
    const std::string& name = entry.first;
    const bool is_int = name.find("int") != std::string::npos;
    EXPECT_EQ(is_integer(dtype), is_int) << name;
    EXPECT_EQ(is_unsigned(dtype), name[0] == 'u') << name;
    EXPECT_EQ(is_complex(dtype), name[0] == 'c') << name;
    EXPECT_EQ(is_floating(dtype), name.find("float") != std::string::npos) << name;
    EXPECT_EQ(is_stored_only(dtype), static_cast<int>(dtype) >= kDtypeCount) << name;
    EXPECT_EQ(compute_dtype(dtype), name.find("float16") == std::string::npos ? dtype : kFloat32);
    EXPECT_EQ(itemsize(carrier_dtype(dtype)), itemsize(dtype));
    EXPECT_EQ(carrier_dtype(dtype) == dtype, !is_stored_only(dtype)) << name;
    EXPECT_FALSE(is_stored_only(carrier_dtype(dtype)));
  }
  for (const OpInfo& row : ops()) {
    for (const Dtype dtype : kUnsigned) {
      EXPECT_FALSE(row.supports(dtype)) << row.name;
      EXPECT_EQ(elementwise_kernel(row.id, dtype), nullptr) << row.name;
    }
  }
}

TEST(UnsignedDtypes, ArePromotedAsNumpyDoes) {
  struct Case {
    Dtype other, with16, with32, with64;
  };
  const Case cases[] = {{kBool, kUInt16, kUInt32, kUInt64},
                        {kUInt8, kUInt16, kUInt32, kUInt64},
                        {kUInt16, kUInt16, kUInt32, kUInt64},
                        {kUInt32, kUInt32, kUInt32, kUInt64},
                        {kUInt64, kUInt64, kUInt64, kUInt64},
                        {kInt8, kInt32, kInt64, kFloat64},
                        {kInt16, kInt32, kInt64, kFloat64},
                        {kInt32, kInt32, kInt64, kFloat64},
                        {kInt64, kInt64, kInt64, kFloat64},
                        {kFloat16, kFloat32, kFloat64, kFloat64},
                        {kBFloat16, kBFloat16, kBFloat16, kBFloat16},
                        {kFloat32, kFloat32, kFloat64, kFloat64},
                        {kFloat64, kFloat64, kFloat64, kFloat64},
                        {kComplex64, kComplex64, kComplex128, kComplex128},
                        {kComplex128, kComplex128, kComplex128, kComplex128}};
  for (const Case& c : cases) {
    const Dtype wanted[] = {c.with16, c.with32, c.with64};
    for (int k = 0; k < 3; ++k) {
      EXPECT_EQ(promote(kUnsigned[k], c.other), wanted[k]) << dtype_name(c.other) << " " << k;
      EXPECT_EQ(promote(c.other, kUnsigned[k]), wanted[k]) << dtype_name(c.other) << " " << k;
      const Tensor x = empty({1}, kUnsigned[k], cpu()), y = empty({1}, c.other, cpu());
      for (const Rules rules : {Rules::torch, Rules::numpy}) {
        const Operand operands[] = {x, y};
        EXPECT_EQ(elementwise_types(OpId::mul, operands, rules).result, wanted[k]);
      }
    }
  }
  EXPECT_TRUE(fits(65535, kUInt16) && fits(4294967295, kUInt32) && fits(INT64_MAX, kUInt64));
  EXPECT_FALSE(fits(65536, kUInt16) || fits(4294967296, kUInt32) || fits(-1, kUInt64));
  EXPECT_FALSE(fits(-1, kUInt16) || fits(-1, kUInt32));
}

class Unsigned : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    before_ = is_deferring();
    set_deferring(GetParam());
  }
  void TearDown() override { set_deferring(before_); }
  bool before_ = true;
};
INSTANTIATE_TEST_SUITE_P(Execution, Unsigned, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "deferred" : "eager");
});

// Every boundary beside every other.
template <class T>
std::pair<std::vector<T>, std::vector<T>> boundaries() {
  constexpr T kMost = std::numeric_limits<T>::max();
  const T all[] = {0, 1, 2, 9, kMost / 2, kMost / 2 + 1, kMost - 1, kMost};
  std::pair<std::vector<T>, std::vector<T>> pairs;
  for (const T x : all) {
    for (const T y : all) {
      pairs.first.push_back(x);
      pairs.second.push_back(y);
    }
  }
  return pairs;
}

template <class T>
void check_rows() {
  const auto [x, y] = boundaries<T>();
  const Shape shape{static_cast<int64_t>(x.size())};
  const Tensor a = tensor<T>(shape, x), b = tensor<T>(shape, y);
  const auto expect = [&](const Tensor& got, auto&& of) {
    std::vector<T> wanted;
    for (size_t i = 0; i < x.size(); ++i) wanted.push_back(static_cast<T>(of(x[i], y[i])));
    EXPECT_EQ(values<T>(got), wanted);
  };
  const auto expect_truth = [&](const Tensor& got, auto&& of) {
    std::vector<bool> wanted, found;
    for (size_t i = 0; i < x.size(); ++i) wanted.push_back(of(x[i], y[i]));
    for (const uint8_t v : values<uint8_t>(cast(got, kUInt8))) found.push_back(v != 0);
    EXPECT_EQ(found, wanted);
  };
  using U = uint64_t;
  expect(add(a, b), [](T p, T q) { return U{p} + q; });
  expect(sub(a, b), [](T p, T q) { return U{p} - q; });
  expect(mul(a, b), [](T p, T q) { return U{p} * q; });
  expect(neg(a), [](T p, T) { return U{0} - p; });
  expect(abs(a), [](T p, T) { return p; });
  expect(sign(a), [](T p, T) { return p != 0; });
  expect(minimum(a, b), [](T p, T q) { return p < q ? p : q; });
  expect(maximum(a, b), [](T p, T q) { return p < q ? q : p; });
  expect(clamp(a, 2, 9), [](T p, T) { return p < 2 ? 2 : p > 9 ? 9 : p; });
  expect(bitwise_xor(a, 5), [](T p, T) { return p ^ 5; });
  expect(floor_divide(a, b), [](T p, T q) { return q == 0 ? 0 : p / q; });
  expect(remainder(a, b), [](T p, T q) { return q == 0 ? 0 : p % q; });
  expect(fmod(a, b), [](T p, T q) { return q == 0 ? 0 : p % q; });
  expect(pow(a, 3), [](T p, T) { return U{p} * p * p; });
  const auto is_shift = [](T q) { return q < 8 * sizeof(T); };
  expect(integer_arithmetic(IntegerOp::left_shift, a, b),
         [&](T p, T q) { return is_shift(q) ? U{p} << q : U{0}; });
  expect(integer_arithmetic(IntegerOp::right_shift, a, b),
         [&](T p, T q) { return is_shift(q) ? p >> q : 0; });
  expect_truth(lt(a, b), [](T p, T q) { return p < q; });
  expect_truth(ge(a, b), [](T p, T q) { return p >= q; });
  expect_truth(eq(a, b), [](T p, T q) { return p == q; });
  expect_truth(gt(a, -1), [](T, T) { return true; });
  expect_truth(eq(a, -1), [](T, T) { return false; });
  expect_truth(logical_and(a, b), [](T p, T q) { return p != 0 && q != 0; });

  Tensor into = empty(shape, kFloat64, cpu());
  apply_into(OpId::add, {a, b}, into);
  std::vector<double> sums;
  for (size_t i = 0; i < x.size(); ++i) {
    sums.push_back(static_cast<double>(static_cast<T>(U{x[i]} + y[i])));
  }
  EXPECT_EQ(values<double>(into), sums);
  std::vector<float> floats;
  for (const T v : x) floats.push_back(static_cast<float>(v));
  EXPECT_EQ(values<float>(cast(a, kFloat32)), floats);
  EXPECT_EQ(div(a, b).dtype(), kFloat32);  // by PyTorch's rules
}

TEST_P(Unsigned, RowsOfUInt16) { check_rows<uint16_t>(); }
TEST_P(Unsigned, RowsOfUInt32) { check_rows<uint32_t>(); }
TEST_P(Unsigned, RowsOfUInt64) { check_rows<uint64_t>(); }

TEST_P(Unsigned, ComparisonsWithSignedIntegersAreByValue) {
  constexpr uint64_t kTop = uint64_t{1} << 63;
  const std::vector<uint64_t> x = {0, 1, kTop - 1, kTop, kTop + 1, UINT64_MAX, kTop - 2, 7};
  const std::vector<int64_t> y = {-1, 1, INT64_MAX, INT64_MIN, INT64_MAX, -1, INT64_MAX, 0};
  const Tensor a = tensor<uint64_t>({8}, x), b = tensor<int64_t>({8}, y);
  const auto truths = [](const Tensor& t) { return values<uint8_t>(cast(t, kUInt8)); };
  std::vector<uint8_t> less, equal, above;
  for (size_t i = 0; i < x.size(); ++i) {
    less.push_back(std::cmp_less(x[i], y[i]) ? 1 : 0);
    equal.push_back(std::cmp_equal(x[i], y[i]) ? 1 : 0);
    above.push_back(std::cmp_greater(x[i], y[i]) ? 1 : 0);
  }
  EXPECT_EQ(truths(lt(a, b)), less);
  EXPECT_EQ(truths(gt(b, a)), less);
  EXPECT_EQ(truths(eq(a, b)), equal);
  EXPECT_EQ(truths(logical_not(ne(b, a))), equal);
  EXPECT_EQ(truths(gt(a, b)), above);
  EXPECT_EQ(truths(lt(b, a)), above);
  EXPECT_EQ(truths(logical_not(le(a, b))), above);
  EXPECT_EQ(truths(logical_not(ge(b, a))), above);
  EXPECT_EQ(truths(logical_not(ge(a, b))), less);
  EXPECT_EQ(truths(logical_not(le(b, a))), less);
}

TEST_P(Unsigned, ReductionsAndProducts) {
  const Tensor x = tensor<uint32_t>({2, 3}, {1, 4294967295, 5, 2147483648, 7, 0});
  EXPECT_EQ(values<uint64_t>(reduce(Reduction::sum, x)),
            std::vector<uint64_t>{1 + 4294967295 + 5 + 2147483648 + 7});
  const int rows[] = {1};
  EXPECT_EQ(values<uint32_t>(reduce(Reduction::amax, x, {.dims = rows})),
            (std::vector<uint32_t>{4294967295, 2147483648}));
  EXPECT_EQ(values<uint32_t>(reduce(Reduction::amin, x, {.dims = rows})),
            (std::vector<uint32_t>{1, 0}));
  EXPECT_EQ(values<int64_t>(reduce(Reduction::argmax, x, {.dims = rows})),
            (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(values<double>(reduce(Reduction::mean, x, {.dims = rows, .rules = Rules::numpy})),
            (std::vector<double>{(1.0 + 4294967295.0 + 5.0) / 3, (2147483648.0 + 7.0) / 3}));
  EXPECT_EQ(values<uint64_t>(cumsum(x, 1)),
            (std::vector<uint64_t>{1, 4294967296, 4294967301, 2147483648, 2147483655, 2147483655}));
  EXPECT_EQ(values<uint32_t>(matmul(x, tensor<uint32_t>({3, 1}, {2, 3, 4}))),
            (std::vector<uint32_t>{2 - 3 + 20, 21}));
  // uint8 keeps PyTorch's sums where its rules are asked for.
  const Tensor bytes = tensor<uint8_t>({2}, {200, 100});
  EXPECT_EQ(reduce(Reduction::sum, bytes).dtype(), kInt64);
  EXPECT_EQ(values<uint64_t>(reduce(Reduction::sum, bytes, {.rules = Rules::numpy})),
            std::vector<uint64_t>{300});
  EXPECT_EQ(cumsum(bytes, 0).dtype(), kInt64);
  EXPECT_EQ(values<uint64_t>(cumsum(bytes, 0, Rules::numpy)), (std::vector<uint64_t>{200, 300}));
}

TEST_P(Unsigned, NumbersAreReadAndWritten) {
  for (const Dtype dtype : kUnsigned) {
    const Tensor t = full({}, Scalar(int64_t{-1}), dtype, cpu());
    const int64_t most =
        dtype == kUInt64 ? -1 : static_cast<int64_t>(~uint64_t{0} >> (64 - 8 * itemsize(dtype)));
    EXPECT_EQ(item(t).i64, most);
    EXPECT_EQ(item(full({}, Scalar(7.9), dtype, cpu())).i64, 7);
    EXPECT_EQ(item(full({}, Scalar(true), dtype, cpu())).i64, 1);
  }
  const Tensor top = full({}, Scalar(0x1p63 + 4096), kUInt64, cpu());
  EXPECT_EQ(item(top).i64, INT64_MIN + 4096);
  EXPECT_EQ(item(cast(top, kFloat64)).f64, 0x1p63 + 4096);
  expect_error(ErrorKind::kInvalidArgument, "the number 70000 is out of bounds for uint16", [&] {
    const Operand operands[] = {full({}, Scalar(1), kUInt16, cpu()), 70000};
    apply(OpId::add, operands, Rules::numpy);
  });
  double out[1];
  const int64_t one = 1;
  const Tensor t = full({1}, Scalar(int64_t{-1}), kUInt32, cpu());
  read(t, {out, kFloat64, 1, &one, &one});
  EXPECT_EQ(out[0], 4294967295.0);
}

TEST(UnsignedCircuits, RunOnTheCarriers) {
  Circuit circuit(cpu());
  const Tensor x = circuit.input({4}, kUInt32), y = circuit.input({4}, kUInt32);
  circuit.begin();
  const Tensor z = maximum(add(x, y), 3);
  circuit.end();
  circuit.output(z);
  const Tensor arguments[] = {tensor<uint32_t>({4}, {1, 4294967295, 2147483648, 0}),
                              tensor<uint32_t>({4}, {1, 1, 1, 4294967295})};
  const std::vector<Tensor> results = circuit.run(arguments);
  EXPECT_EQ(values<uint32_t>(results[0]), (std::vector<uint32_t>{3, 3, 2147483649, 4294967295}));
  EXPECT_EQ(circuit.stats().kernels, 1);
  EXPECT_EQ(circuit.print().find("uint32"), std::string::npos);
}

TEST(UnsignedBelowTensors, IsRefusedByName) {
  for (const Dtype dtype : kUnsigned) {
    const std::string text = "no kernel computes with " + std::string(dtype_name(dtype));
    const auto refused = [&](auto&& f) { expect_error(ErrorKind::kTypeMismatch, text, f); };
    uint64_t a[4] = {1, 2, 3, 4}, b[4] = {}, c[4] = {};
    const int64_t shape[] = {2, 2}, strides[] = {2, 1};
    const View x{a, dtype, 2, shape, strides}, y{b, dtype, 2, shape, strides};
    const View f{c, kFloat64, 2, shape, strides};
    const View doubles[] = {f, f};
    refused([&] { elementwise(OpId::add, kFloat64, doubles, 2, y); });
    const View mixed[] = {x, f};
    refused([&] { elementwise(OpId::add, kFloat64, mixed, 2, f); });
    const View both[] = {x, x};
    expect_error(ErrorKind::kTypeMismatch,
                 "add does not compute in " + std::string(dtype_name(dtype)),
                 [&] { elementwise(OpId::add, dtype, both, 2, y); });
    refused([&] { copy(x, f); });
    refused([&] { copy(f, y); });
    refused([&] { convert(dtype, a, kInt64, b, 1); });
    refused([&] { convert(kInt64, a, dtype, b, 1); });
    refused([&] { fill(Scalar(1), y); });
    const View one{c, kInt64, 0, nullptr, nullptr}, same{c, dtype, 0, nullptr, nullptr};
    refused([&] { reduce(Reduction::sum, x, {}, one); });
    refused([&] { reduce(Reduction::sum, f, {}, same); });
    refused([&] { reduce(Reduction::amax, x, {}, same); });
    refused([&] { cumsum(x, 0, y); });
    refused([&] { matmul(x, x, y); });
    copy(x, y);  // bytes are bytes
    EXPECT_EQ(b[0], a[0]);

    const BufferRef buffer = empty({4}, dtype, cpu()).buffer();
    const RecordOperand own{buffer.get(), 0, dtype}, other{buffer.get(), 0, kInt16};
    const RecordOperand triple[] = {own, own, own}, result[] = {own, other, other};
    const RecordOperand input[] = {other, own, other};
    const int64_t four = 4, step = 1;
    const int64_t* steps[] = {&step, &step, &step};
    refused([&] { record_flat(OpId::add, dtype, triple, 2, 4); });
    refused([&] { record_flat(OpId::add, kInt16, result, 2, 4); });
    refused([&] { record_flat(OpId::add, kInt16, input, 2, 4); });
    refused([&] { record_strided(OpId::add, kInt16, input, 2, 1, &four, steps); });
    refused([&] { record_copy(own, other, 1, &four, &step, &step); });
    refused([&] { record_flat_copy(other, own, 4); });
    refused([&] { record_reduction(Reduction::sum, own, other, 1, 4); });
    refused([&] { record_rows(0, triple, 1, 1, 4); });
    RecordGemm gemm;
    gemm.dtype = dtype;
    refused([&] { record_gemm(gemm); });
    refused([&] { gemm_provider_name(dtype); });
  }
}

TEST(UnsignedBelowTensors, CallsSayWhatTheyDoNotTake) {
  const Tensor x = full({2, 3}, Scalar(3), kUInt32, cpu());
  expect_error(ErrorKind::kTypeMismatch, "layer_norm: input is uint32; it takes", [&] {
    const CallInput inputs[] = {x};
    call("layer_norm", inputs, {});
  });
  expect_error(ErrorKind::kTypeMismatch, "softmax: is for floating dtypes, got uint32",
               [&] { softmax(x, 1); });
  expect_error(ErrorKind::kTypeMismatch, "scatter: does not add numbers of uint16", [&] {
    const Tensor t = full({2, 3}, Scalar(3), kUInt16, cpu());
    const Tensor index = full({2, 3}, Scalar(0), kInt64, cpu());
    const CallInput inputs[] = {t, index, t};
    const CallArgument arguments[] = {{"add", int64_t{1}}};
    call("scatter", inputs, arguments);
  });
}

}  // namespace
}  // namespace hologram
