// SPDX-License-Identifier: MIT
// The tile machine against scalar code: random shapes, strides, broadcasts, dtypes, instruction
// sets and threads.
#include "hologram/elementwise.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "hologram/cpu_info.h"
#include "hologram/error.h"
#include "tests/cpp/cpu/isa_test.h"

namespace hologram {
namespace {

// The half types as plain arithmetic on their definition, independent of the kernels.
double half_value(uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits >> 15 ? -1.0 : 1.0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

double load(const void* p, Dtype dtype) {
  switch (dtype) {
    case Dtype::kBool:
    case Dtype::kUInt8:
      return *static_cast<const uint8_t*>(p);
    case Dtype::kInt8:
      return *static_cast<const int8_t*>(p);
    case Dtype::kInt16:
      return *static_cast<const int16_t*>(p);
    case Dtype::kInt32:
      return *static_cast<const int32_t*>(p);
    case Dtype::kInt64:
      return static_cast<double>(*static_cast<const int64_t*>(p));
    case Dtype::kFloat16:
      return half_value(*static_cast<const uint16_t*>(p), 5, 10);
    case Dtype::kBFloat16:
      return half_value(*static_cast<const uint16_t*>(p), 8, 7);
    case Dtype::kFloat32:
      return *static_cast<const float*>(p);
    default:
      return *static_cast<const double*>(p);
  }
}

// Small integers are exact in every dtype, so a mistake of one element shows as a plain inequality.
void store_small(void* p, Dtype dtype, int value) {
  switch (dtype) {
    case Dtype::kBool:
      *static_cast<uint8_t*>(p) = value & 1;
      break;
    case Dtype::kUInt8:
    case Dtype::kInt8:
      *static_cast<int8_t*>(p) = static_cast<int8_t>(value);
      break;
    case Dtype::kInt16:
      *static_cast<int16_t*>(p) = static_cast<int16_t>(value);
      break;
    case Dtype::kInt32:
      *static_cast<int32_t*>(p) = value;
      break;
    case Dtype::kInt64:
      *static_cast<int64_t*>(p) = value;
      break;
    case Dtype::kFloat16: {
      constexpr uint16_t kHalves[8] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700};
      *static_cast<uint16_t*>(p) = kHalves[value];
      break;
    }
    case Dtype::kBFloat16: {
      const float f = static_cast<float>(value);
      uint32_t bits;
      std::memcpy(&bits, &f, 4);
      *static_cast<uint16_t*>(p) = static_cast<uint16_t>(bits >> 16);
      break;
    }
    case Dtype::kFloat32:
      *static_cast<float*>(p) = static_cast<float>(value);
      break;
    default:
      *static_cast<double*>(p) = value;
  }
}

struct Array {
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape, strides;
  std::vector<char> bytes;
  int64_t offset = 0;

  View view() {
    return {bytes.data() + offset * static_cast<int64_t>(itemsize(dtype)), dtype,
            static_cast<int>(shape.size()), shape.data(), strides.data()};
  }
  // The element at a position of a shape this array broadcasts to.
  void* at(const std::vector<int64_t>& index) {
    int64_t element = offset;
    const size_t lead = index.size() - shape.size();
    for (size_t d = 0; d < shape.size(); ++d) {
      element += (shape[d] == 1 ? 0 : index[lead + d]) * strides[d];
    }
    return bytes.data() + element * static_cast<int64_t>(itemsize(dtype));
  }
};

using Random = std::mt19937;
int pick(Random& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

// Memory for a shape in a random order of dimensions, with gaps and, at times, backward strides.
Array make_array(Random& random, Dtype dtype, std::vector<int64_t> shape) {
  Array array;
  array.dtype = dtype;
  array.shape = std::move(shape);
  const size_t ndim = array.shape.size();
  std::vector<size_t> order(ndim);
  std::iota(order.begin(), order.end(), 0);
  if (pick(random, 0, 1)) std::shuffle(order.begin(), order.end(), random);
  array.strides.assign(ndim, 0);
  int64_t extent = pick(random, 0, 3) == 0 ? 2 : 1;
  for (size_t i = ndim; i-- > 0;) {
    array.strides[order[i]] = extent;
    extent *= std::max<int64_t>(array.shape[order[i]], 1) + (pick(random, 0, 4) == 0 ? 1 : 0);
  }
  for (size_t d = 0; d < ndim; ++d) {
    if (pick(random, 0, 9) == 0 && array.shape[d] > 0) {
      array.offset += array.strides[d] * (array.shape[d] - 1);
      array.strides[d] = -array.strides[d];
    }
  }
  array.bytes.resize(static_cast<size_t>(extent + 1) * itemsize(dtype) + 64);
  for (int64_t i = 0; i <= extent; ++i) {
    store_small(array.bytes.data() + i * static_cast<int64_t>(itemsize(dtype)), dtype,
                pick(random, 0, 7));
  }
  return array;
}

std::vector<int64_t> random_shape(Random& random) {
  const int ndim = pick(random, 0, 4);
  std::vector<int64_t> shape(ndim);
  for (auto& size : shape) {
    const int kind = pick(random, 0, 9);
    size = kind == 0 ? 1 : kind == 1 ? pick(random, 30, 90) : pick(random, 2, 9);
    if (pick(random, 0, 60) == 0) size = 0;
  }
  if (ndim == 1 && pick(random, 0, 1)) shape[0] = pick(random, 1, 5000);
  if (ndim == 2 && pick(random, 0, 3) == 0) shape = {pick(random, 30, 140), pick(random, 30, 140)};
  return shape;
}

std::vector<int64_t> broadcastable(Random& random, const std::vector<int64_t>& shape) {
  std::vector<int64_t> own = shape;
  const int kind = pick(random, 0, 5);
  if (kind == 0) return {};
  if (kind == 1 && !own.empty())
    own.erase(own.begin(), own.begin() + pick(random, 1, static_cast<int>(own.size())));
  if (kind == 2) {
    for (auto& size : own) {
      if (pick(random, 0, 1)) size = 1;
    }
  }
  return own;
}

using Oracle = std::function<double(const double*)>;
struct Case {
  OpId op;
  int arity;
  Oracle oracle;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {OpId::square, 1, [](const double* v) { return v[0] * v[0]; }},
      {OpId::add, 2, [](const double* v) { return v[0] + v[1]; }},
      {OpId::mul, 2, [](const double* v) { return v[0] * v[1]; }},
      {OpId::maximum, 2, [](const double* v) { return std::max(v[0], v[1]); }},
      {OpId::lt, 2, [](const double* v) { return v[0] < v[1] ? 1.0 : 0.0; }},
      {OpId::ge, 2, [](const double* v) { return v[0] >= v[1] ? 1.0 : 0.0; }},
      {OpId::logical_xor, 2,
       [](const double* v) { return (v[0] != 0) != (v[1] != 0) ? 1.0 : 0.0; }},
      {OpId::clamp, 3, [](const double* v) { return std::min(std::max(v[0], v[1]), v[2]); }},
      {OpId::where, 3, [](const double* v) { return v[0] != 0 ? v[1] : v[2]; }},
      {OpId::add_scaled, 3, [](const double* v) { return v[0] + v[1] * v[2]; }},
      {OpId::addcmul, 4, [](const double* v) { return v[0] + v[1] * v[2] * v[3]; }},
  };
  return all;
}

bool for_each_index(const std::vector<int64_t>& shape,
                    const std::function<bool(const std::vector<int64_t>&)>& visit) {
  std::vector<int64_t> index(shape.size(), 0);
  for (int64_t size : shape) {
    if (size == 0) return true;
  }
  for (;;) {
    if (!visit(index)) return false;
    size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
    if (d == 0) return true;
  }
}

class EveryIsa : public IsaTest {};

TEST_P(EveryIsa, RandomProgramsEqualScalarCode) {
  Random random(20 + static_cast<int>(GetParam()));
  constexpr Dtype kStored[] = {Dtype::kBool,    Dtype::kUInt8,  Dtype::kInt8,    Dtype::kInt16,
                               Dtype::kInt32,   Dtype::kInt64,  Dtype::kFloat16, Dtype::kBFloat16,
                               Dtype::kFloat32, Dtype::kFloat64};
  constexpr Dtype kComputed[] = {Dtype::kInt16, Dtype::kInt32, Dtype::kInt64, Dtype::kFloat32,
                                 Dtype::kFloat64};
  for (int trial = 0; trial < 3000; ++trial) {
    const Case& test = cases()[pick(random, 0, static_cast<int>(cases().size()) - 1)];
    const Dtype compute = kComputed[pick(random, 0, 4)];
    const bool mixed = pick(random, 0, 2) == 0;
    const bool result_is_bool = op_info(test.op).result_is_bool;
    const auto shape = random_shape(random);
    std::vector<Array> inputs;
    std::vector<View> views;
    for (int k = 0; k < test.arity; ++k) {
      const Dtype dtype = mixed ? kStored[pick(random, 0, 9)] : compute;
      inputs.push_back(make_array(random, dtype, broadcastable(random, shape)));
    }
    const Dtype stored = mixed            ? kStored[pick(random, 6, 9)]
                         : result_is_bool ? Dtype::kBool
                                          : compute;
    Array out = make_array(random, stored, shape);
    Array untouched = out;
    for (auto& input : inputs) views.push_back(input.view());
    elementwise(test.op, compute, views.data(), test.arity, out.view(), pick(random, 1, 3));
    std::vector<char> expected = untouched.bytes;
    const bool same = for_each_index(shape, [&](const std::vector<int64_t>& index) {
      double values[4];
      for (int k = 0; k < test.arity; ++k) values[k] = load(inputs[k].at(index), inputs[k].dtype);
      const double want = test.oracle(values);
      const double got = load(out.at(index), out.dtype);
      // The half types hold 2,048 and 256 consecutive integers: compare after their own rounding.
      const double unit = out.dtype == Dtype::kBFloat16  ? std::abs(want) / 256
                          : out.dtype == Dtype::kFloat16 ? std::abs(want) / 2048
                                                         : 0;
      EXPECT_LE(std::abs(got - want), unit)
          << op_info(test.op).name << " in " << dtype_name(compute) << " trial " << trial;
      std::memcpy(untouched.at(index), out.at(index), itemsize(out.dtype));
      return !::testing::Test::HasFailure();
    });
    ASSERT_TRUE(same);
    // Gaps between the elements of the result keep what they held.
    ASSERT_EQ(untouched.bytes, out.bytes) << "wrote outside the result, trial " << trial;
  }
}

TEST_P(EveryIsa, CopiesConvertEveryPair) {
  Random random(7);
  for (int from = 0; from <= static_cast<int>(Dtype::kFloat64); ++from) {
    for (int to = 0; to <= static_cast<int>(Dtype::kFloat64); ++to) {
      for (int trial = 0; trial < 6; ++trial) {
        const auto shape = random_shape(random);
        Array src = make_array(random, static_cast<Dtype>(from), broadcastable(random, shape));
        Array dst = make_array(random, static_cast<Dtype>(to), shape);
        copy(src.view(), dst.view(), pick(random, 1, 2));
        for_each_index(shape, [&](const std::vector<int64_t>& index) {
          const double value = load(src.at(index), src.dtype);
          EXPECT_EQ(load(dst.at(index), dst.dtype),
                    dst.dtype == Dtype::kBool ? (value != 0 ? 1.0 : 0.0) : value)
              << dtype_name(src.dtype) << " to " << dtype_name(dst.dtype);
          return !::testing::Test::HasFailure();
        });
      }
    }
  }
}

// The byte of the number by way of int64, for numbers that int64 holds; 0 for all others. At every
// place of a vector.
TEST_P(EveryIsa, FloatsBecomeTheLowestByteOfTheirWholePart) {
  const auto check = [](auto zero, Dtype from) {
    using T = decltype(zero);
    using Limits = std::numeric_limits<T>;
    std::vector<T> values = {0,
                             -0.0,
                             T(0.99),
                             T(-0.99),
                             255,
                             256,
                             -1,
                             -255.5,
                             -256.5,
                             -257,
                             T(1e10),
                             T(-3e9),
                             T(0x1p31),
                             T(-0x1p31),
                             T(0x1p53),
                             T(-0x1p53),
                             T(0x1p62),
                             T(0x1p70),
                             Limits::max(),
                             Limits::lowest(),
                             Limits::denorm_min(),
                             Limits::infinity(),
                             -Limits::infinity(),
                             Limits::quiet_NaN()};
    Random random(11);
    while (values.size() < 3000) {
      const auto bits = static_cast<double>(pick(random, 0, 1 << 30));
      values.push_back(static_cast<T>(std::ldexp(bits - 0x1p29, pick(random, -34, 34))));
    }
    for (int64_t begin = 0; begin < 40; ++begin) {
      const auto n = static_cast<int64_t>(values.size()) - begin;
      std::vector<uint8_t> got(values.size());
      convert(from, values.data() + begin, Dtype::kUInt8, got.data(), n);
      for (int64_t i = 0; i < n; ++i) {
        const T value = values[begin + i];
        const bool fits = std::abs(value) < T(0x1p63);
        const auto want = fits ? static_cast<uint8_t>(static_cast<int64_t>(value)) : uint8_t{0};
        ASSERT_EQ(got[i], want) << value << " at " << i << " of " << n;
      }
    }
  };
  check(float{}, Dtype::kFloat32);
  check(double{}, Dtype::kFloat64);
}

TEST_P(EveryIsa, AnyByteButZeroIsTrue) {
  std::vector<uint8_t> bytes(2500);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37 % 256);
  const auto n = static_cast<int64_t>(bytes.size());
  for (int to = 0; to <= static_cast<int>(Dtype::kFloat64); ++to) {
    const auto dtype = static_cast<Dtype>(to);
    if (dtype == Dtype::kBool) continue;
    std::vector<char> got(bytes.size() * itemsize(dtype));
    convert(Dtype::kBool, bytes.data(), dtype, got.data(), n);
    for (size_t i = 0; i < bytes.size(); ++i) {
      ASSERT_EQ(load(got.data() + i * itemsize(dtype), dtype), bytes[i] != 0 ? 1 : 0)
          << dtype_name(dtype);
    }
  }
}

// bfloat16 beside every other type is what two steps by way of float32 give, NaN and infinity too.
TEST_P(EveryIsa, BFloat16IsReachedAndLeftThroughFloat32) {
  std::vector<double> values = {0, -0.0, 1e300, -1e300, 3.4e38, 1e-45, INFINITY, -INFINITY, NAN};
  Random random(12);
  while (values.size() < 2000) {
    values.push_back(std::ldexp(pick(random, 0, 1 << 30) - 0x1p29, pick(random, -160, 120)));
  }
  const auto n = static_cast<int64_t>(values.size());
  std::vector<float> single(values.size());
  std::vector<uint16_t> got(values.size()), want(values.size());
  const auto both = [&](Dtype from, const void* given) {
    convert(from, given, Dtype::kBFloat16, got.data(), n);
    convert(from, given, Dtype::kFloat32, single.data(), n);
    convert(Dtype::kFloat32, single.data(), Dtype::kBFloat16, want.data(), n);
    ASSERT_EQ(got, want) << dtype_name(from);
  };
  both(Dtype::kFloat64, values.data());
  std::vector<int64_t> whole;
  for (int64_t i = 0; i < n; ++i) whole.push_back((i * i * i - 77) << (i % 24));
  both(Dtype::kInt64, whole.data());
  both(Dtype::kInt32, whole.data());
  both(Dtype::kInt16, whole.data());
  std::vector<uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), 0);
  std::vector<float> wide(halves.size());
  convert(Dtype::kBFloat16, halves.data(), Dtype::kFloat32, wide.data(), 65536);
  for (const Dtype to : {Dtype::kBool, Dtype::kUInt8, Dtype::kInt8, Dtype::kInt16, Dtype::kInt32,
                         Dtype::kInt64, Dtype::kFloat16, Dtype::kFloat64}) {
    std::vector<char> direct(65536 * itemsize(to)), by_way(direct.size());
    convert(Dtype::kBFloat16, halves.data(), to, direct.data(), 65536);
    convert(Dtype::kFloat32, wide.data(), to, by_way.data(), 65536);
    ASSERT_EQ(direct, by_way) << dtype_name(to);
  }
}

// The last element that is copied ends a page, and the next page may not be read.
TEST_P(EveryIsa, EverySecondElementIsCopiedAndNoOtherIsRead) {
  constexpr size_t kPage = 4096;
  void* const mapped =
      mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const memory = static_cast<uint8_t*>(mapped);
  for (size_t i = 0; i < kPage; ++i) memory[i] = static_cast<uint8_t>(i * 31 % 251);
  ASSERT_EQ(mprotect(memory + kPage, kPage, PROT_NONE), 0);
  for (const Dtype dtype : {Dtype::kUInt8, Dtype::kFloat16, Dtype::kFloat32, Dtype::kFloat64}) {
    const auto size = static_cast<int64_t>(itemsize(dtype));
    for (int64_t n = 1; n < 150; ++n) {
      uint8_t* const first = memory + kPage - (2 * n - 1) * size;
      std::vector<uint8_t> got(static_cast<size_t>((n + 1) * size), 0xee);
      const int64_t apart = 2, dense = 1;
      copy({first, dtype, 1, &n, &apart}, {got.data(), dtype, 1, &n, &dense}, 1);
      for (int64_t i = 0; i < n * size; ++i) {
        ASSERT_EQ(got[i], first[i / size * apart * size + i % size])
            << dtype_name(dtype) << " " << n;
      }
      ASSERT_EQ(got[n * size], 0xee);
    }
  }
  munmap(mapped, 2 * kPage);
}

// Every half value there is, and floats around each, against the definition of rounding to nearest
// even.
TEST_P(EveryIsa, HalfConversionsRoundToNearestEven) {
  for (const Dtype half : {Dtype::kFloat16, Dtype::kBFloat16}) {
    std::vector<uint16_t> all(65536);
    std::iota(all.begin(), all.end(), 0);
    std::vector<float> wide(all.size());
    convert(half, all.data(), Dtype::kFloat32, wide.data(), 65536);
    for (int i = 0; i < 65536; ++i) {
      const double want = load(&all[i], half);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(wide[i]));
      } else {
        ASSERT_EQ(static_cast<double>(wide[i]), want);
        ASSERT_EQ(std::signbit(wide[i]), (i >> 15) != 0);
      }
    }
    std::vector<float> probes;
    std::vector<uint16_t> nearest;
    const int finite = half == Dtype::kFloat16 ? 0x7c00 : 0x7f80;
    for (int i = 0; i + 1 < finite; ++i) {
      const double low = load(&all[i], half), high = load(&all[i + 1], half);
      const float middle = static_cast<float>((low + high) / 2);
      if (static_cast<double>(middle) != (low + high) / 2) continue;
      probes.insert(probes.end(), {middle, std::nextafter(middle, 0.0f),
                                   std::nextafter(middle, INFINITY), -middle});
      const uint16_t even = static_cast<uint16_t>(i % 2 == 0 ? i : i + 1);
      nearest.insert(nearest.end(), {even, static_cast<uint16_t>(i), static_cast<uint16_t>(i + 1),
                                     static_cast<uint16_t>(even | 0x8000)});
    }
    std::vector<uint16_t> got(probes.size());
    convert(Dtype::kFloat32, probes.data(), half, got.data(), static_cast<int64_t>(probes.size()));
    for (size_t i = 0; i < probes.size(); ++i) ASSERT_EQ(got[i], nearest[i]) << probes[i];
    // An element's bits do not depend on its place in the array, NaN payloads included.
    const float nan = std::bit_cast<float>(0x7fa12345u);
    for (int64_t n = 1; n < 40; ++n) {
      std::vector<float> nans(n, nan);
      std::vector<uint16_t> halves(n);
      convert(Dtype::kFloat32, nans.data(), half, halves.data(), n);
      ASSERT_EQ(std::count(halves.begin(), halves.end(), halves[0]), n);
    }
  }
}

TEST_P(EveryIsa, MinimumAndMaximumKeepNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float x[4] = {nan, 1, nan, 2}, y[4] = {1, nan, nan, 3};
  float out[4];
  const void* in[2] = {x, y};
  for (const OpId op : {OpId::minimum, OpId::maximum}) {
    elementwise_kernel(op, Dtype::kFloat32)(in, out, 4);
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]) && std::isnan(out[2]));
    EXPECT_EQ(out[3], op == OpId::minimum ? 2 : 3);
  }
}

TEST_P(EveryIsa, EveryRowHasKernelsForItsDtypes) {
  for (const OpInfo& row : ops()) {
    for (int d = 0; d < kDtypeCount; ++d) {
      const Dtype dtype = static_cast<Dtype>(d);
      const bool has_kernel = elementwise_kernel(row.id, dtype) != nullptr;
      if (is_complex(dtype)) {  // some rows, of both widths
        EXPECT_EQ(has_kernel, elementwise_kernel(row.id, Dtype::kComplex64) != nullptr) << row.name;
        continue;
      }
      EXPECT_EQ(has_kernel, row.supports(dtype)) << row.name << " " << dtype_name(dtype);
      if (row.params > 0 && row.supports(dtype)) {
        EXPECT_NE(elementwise_kernel(row.id, dtype, Form::kTrailingScalars), nullptr) << row.name;
      }
    }
  }
}

// Results too large for the caches are streamed; the last tile is not a whole number of cache
// lines.
TEST_P(EveryIsa, LargeResultsAreStreamedWhole) {
  const int64_t n = (int64_t{9} << 20) / 4 + 5;
  std::vector<float> x(n), y(n);
  std::unique_ptr<float, void (*)(void*)> out(
      static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(n / 16 + 1) * 64)), std::free);
  for (int64_t i = 0; i < n; ++i) {
    x[i] = static_cast<float>(i % 1000);
    y[i] = static_cast<float>(i % 777);
  }
  const int64_t stride = 1;
  const View in[2] = {{x.data(), Dtype::kFloat32, 1, &n, &stride},
                      {y.data(), Dtype::kFloat32, 1, &n, &stride}};
  for (int threads : {1, 2}) {
    std::memset(out.get(), 0xff, static_cast<size_t>(n) * 4);
    elementwise(OpId::add, Dtype::kFloat32, in, 2, {out.get(), Dtype::kFloat32, 1, &n, &stride},
                threads);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(out.get()[i], x[i] + y[i]) << i;
    copy(in[0], {out.get(), Dtype::kFloat32, 1, &n, &stride}, threads);
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the bits are meant
    ASSERT_EQ(std::memcmp(out.get(), x.data(), static_cast<size_t>(n) * 4), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, EveryIsa, kEveryIsa, isa_of);

std::string message_of(const std::function<void()>& call, ErrorKind kind) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(ElementwiseErrors, SayWhatWasGiven) {
  float data[6] = {};
  const int64_t two_three[2] = {2, 3}, three_one[2] = {3, 1}, four = 4, one = 1;
  const View out{data, Dtype::kFloat32, 2, two_three, three_one};
  const View bad{data, Dtype::kFloat32, 1, &four, &one};
  const View inputs[2] = {out, bad};
  EXPECT_EQ(message_of([&] { elementwise(OpId::add, Dtype::kFloat32, inputs, 2, out); },
                       ErrorKind::kInvalidArgument),
            "add: operand 1 of shape [4] does not broadcast to the result's shape [2, 3]");
  EXPECT_EQ(message_of([&] { elementwise(OpId::add, Dtype::kBool, inputs, 2, out); },
                       ErrorKind::kTypeMismatch),
            "add does not compute in bool");
  EXPECT_EQ(message_of([&] { elementwise(OpId::add, Dtype::kFloat32, inputs, 1, out); },
                       ErrorKind::kInvalidArgument),
            "add takes 2 operands, got 1");
  const int64_t zero = 0;
  const View repeated{data, Dtype::kFloat32, 1, &four, &zero};
  EXPECT_EQ(message_of([&] { fill(1.0, repeated); }, ErrorKind::kInvalidArgument),
            "fill: the result repeats one element; give it memory of its own");
  const View complex{data, Dtype::kComplex64, 0, nullptr, nullptr};
  EXPECT_EQ(message_of([&] { copy(complex, out); }, ErrorKind::kTypeMismatch),
            "a conversion from complex64 to float32 would drop the imaginary part; take the real "
            "part first");
}

TEST(OpTable, FindsRowsByNameAndId) {
  EXPECT_EQ(find_op("sigmoid"), OpId::sigmoid);
  EXPECT_EQ(find_op("nothing"), std::nullopt);
  EXPECT_EQ(message_of([] { op_info(static_cast<OpId>(39)); }, ErrorKind::kInvalidArgument),
            "op id 39 is not in the op table of this version");
  for (const OpInfo& row : ops()) EXPECT_EQ(find_op(row.name), row.id);
}

// The planner drops copies of results on the word of the table.
TEST(OpTable, RowsWithoutPassesNanMakeEveryNanQuiet) {
  constexpr uint32_t kSignalling = 0x7FA12345u, kQuietBit = 0x00400000u;
  constexpr float kValues[] = {-2.0f, 0.0f, 0.5f, 3.0f};
  for (const OpInfo& row : ops()) {
    if (!row.supports(Dtype::kFloat32) || row.result_is_bool) continue;
    if ((row.traits & kPassesNan) != 0) continue;
    // Each operand in turn is the NaN, the others take every combination of the values.
    for (int place = 0; place < row.arity; ++place) {
      for (int combination = 0; combination < 256; ++combination) {
        uint32_t operands[4][16], out[16];
        const void* in[4];
        for (int k = 0; k < 4; ++k) {
          const float value = kValues[combination >> (2 * k) & 3];
          std::fill_n(operands[k], 16, k == place ? kSignalling : std::bit_cast<uint32_t>(value));
          in[k] = operands[k];
        }
        elementwise_kernel(row.id, Dtype::kFloat32)(in, out, 16);
        if (!std::isnan(std::bit_cast<float>(out[0]))) continue;
        EXPECT_TRUE((out[0] & kQuietBit) != 0) << row.name << ", operand " << place;
        EXPECT_TRUE((out[15] & kQuietBit) != 0) << row.name << ", operand " << place;
      }
    }
  }
}

}  // namespace
}  // namespace hologram
