// SPDX-License-Identifier: MIT
// Compares reductions with loops in float64 over random shapes, strides, dimensions and dtypes.
#include "hologram/reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "tests/cpp/cpu/isa_test.h"

namespace hologram {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Values in float64 with a shape, stored with any dtype and strides.
struct Array {
  std::vector<int64_t> shape, strides;
  std::vector<char> bytes;
  Dtype dtype;
  int64_t offset = 0;

  // order: permutation from outermost to innermost in memory; gap: unused elements between.
  Array(Dtype type, const std::vector<int64_t>& sizes, std::vector<int> order = {}, int64_t gap = 1)
      : shape(sizes), strides(sizes.size()), dtype(type) {
    if (order.empty()) {
      for (size_t i = 0; i < sizes.size(); ++i) order.push_back(static_cast<int>(i));
    }
    int64_t step = gap;
    for (size_t i = order.size(); i-- > 0;) {
      strides[order[i]] = step;
      step *= std::max<int64_t>(1, shape[order[i]]);
    }
    bytes.assign(static_cast<size_t>(step) * itemsize(type), 0x55);
  }
  int64_t numel() const {
    int64_t n = 1;
    for (const int64_t s : shape) n *= s;
    return n;
  }
  View view() {
    return {bytes.data() + offset * static_cast<int64_t>(itemsize(dtype)), dtype,
            static_cast<int>(shape.size()), shape.data(), strides.data()};
  }
  // Row-major values, rounded to the dtype on the way in.
  void set(const std::vector<double>& values) {
    std::vector<int64_t> dense(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;) dense[i - 1] = dense[i] * shape[i];
    copy({const_cast<double*>(values.data()), Dtype::kFloat64, static_cast<int>(shape.size()),
          shape.data(), dense.data()},
         view());
  }
  std::vector<double> get() {
    std::vector<double> values(static_cast<size_t>(numel()));
    std::vector<int64_t> dense(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;) dense[i - 1] = dense[i] * shape[i];
    copy(view(), {values.data(), Dtype::kFloat64, static_cast<int>(shape.size()), shape.data(),
                  dense.data()});
    return values;
  }
};

// The reference: gathers the elements of each output in row-major order and applies f.
template <class F>
std::vector<double> reference(Array& in, const std::vector<bool>& folded, F&& f) {
  const std::vector<double> x = in.get();
  std::vector<std::vector<double>> groups;
  int64_t outputs = 1;
  for (size_t i = 0; i < folded.size(); ++i) outputs *= folded[i] ? 1 : in.shape[i];
  groups.resize(static_cast<size_t>(outputs));
  for (size_t at = 0; at < x.size(); ++at) {
    int64_t rest = static_cast<int64_t>(at), index = 0, scale = 1;
    for (size_t i = folded.size(); i-- > 0;) {
      const int64_t position = rest % in.shape[i];
      rest /= in.shape[i];
      if (!folded[i]) index += position * scale, scale *= in.shape[i];
    }
    groups[static_cast<size_t>(index)].push_back(x[at]);
  }
  std::vector<double> result;
  for (const auto& group : groups) result.push_back(f(group));
  return result;
}

double oracle(Reduction op, const std::vector<double>& x, const ReduceOptions& options) {
  const double n = static_cast<double>(x.size());
  long double sum = 0, numbers = 0, product = 1, squares = 0, power = 0;
  double low = kInfinity, high = -kInfinity, low_abs = kInfinity, high_abs = 0;
  bool nan = false;
  double any = 0, all = 1, nonzero = 0;
  for (const double v : x) {
    sum += v, product *= v;
    if (!std::isnan(v)) numbers += v;
    low = std::min(low, v), high = std::max(high, v);
    low_abs = std::min(low_abs, std::abs(v)), high_abs = std::max(high_abs, std::abs(v));
    nan |= std::isnan(v);
    if (v != 0) any = 1, ++nonzero;
    if (v == 0) all = 0;
    power += std::pow(std::abs(static_cast<long double>(v)), static_cast<long double>(options.p));
  }
  for (const double v : x) squares += (v - sum / n) * (v - sum / n);
  const auto first = [&](double value) {
    for (size_t i = 0; i < x.size(); ++i) {
      if (nan ? std::isnan(x[i]) : x[i] == value) return static_cast<double>(i);
    }
    return -1.0;
  };
  switch (op) {
    case Reduction::sum:
      return static_cast<double>(sum);
    case Reduction::mean:
      return static_cast<double>(sum / n);
    case Reduction::prod:
      return static_cast<double>(product);
    case Reduction::amin:
      return nan ? kNan : low;
    case Reduction::amax:
      return nan ? kNan : high;
    case Reduction::any:
      return any;
    case Reduction::all:
      return all;
    case Reduction::logsumexp: {
      if (nan) return kNan;
      if (std::isinf(high)) return high;
      long double total = 0;
      for (const double v : x) total += std::exp(static_cast<long double>(v - high));
      return static_cast<double>(high + std::log(total));
    }
    case Reduction::norm:
      if (options.p == 0) return nonzero;
      if (std::isinf(options.p)) return nan ? kNan : options.p > 0 ? high_abs : low_abs;
      return static_cast<double>(std::pow(power, 1 / static_cast<long double>(options.p)));
    case Reduction::var:
    case Reduction::std: {
      const double var = static_cast<double>(squares) / std::max(0.0, n - options.correction);
      return op == Reduction::var ? var : std::sqrt(var);
    }
    case Reduction::argmin:
      return first(low);
    case Reduction::argmax:
      return first(high);
    case Reduction::nansum:
      return static_cast<double>(numbers);
  }
  return 0;
}

Dtype natural_output(Reduction op, Dtype in) {
  switch (reduction_info(op).result) {
    case ReductionInfo::kIn:
      return in;
    case ReductionInfo::kBool:
      return Dtype::kBool;
    case ReductionInfo::kIndex:
      return Dtype::kInt64;
    case ReductionInfo::kOut:
      return is_floating(in) ? in : Dtype::kInt64;
    case ReductionInfo::kFloat:
      return is_floating(in) ? in : Dtype::kFloat32;
  }
  return in;
}

double epsilon(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat16:
      return 0x1p-11;
    case Dtype::kBFloat16:
      return 0x1p-8;
    case Dtype::kFloat32:
      return 0x1p-24;
    case Dtype::kFloat64:
      return 0x1p-53;
    default:
      return 0;
  }
}

std::vector<double> random_values(std::mt19937& rng, int64_t n, Dtype dtype, bool special) {
  std::vector<double> values(static_cast<size_t>(n));
  std::normal_distribution<double> normal(0.25, 1.0);
  for (double& v : values) {
    if (is_floating(dtype)) {
      v = normal(rng);
      if (special && rng() % 64 == 0) {
        const double choices[] = {kNan, kInfinity, -kInfinity, 0.0, -0.0};
        v = choices[rng() % 5];
      }
    } else if (dtype == Dtype::kBool) {
      v = rng() % 4 != 0;
    } else {
      v = static_cast<double>(rng() % (dtype == Dtype::kUInt8 ? 9 : 17)) -
          (dtype == Dtype::kUInt8 ? 0 : 8);
    }
  }
  return values;
}

class ReduceTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isas, ReduceTest, kEveryIsa, isa_of);

void expect_close(Reduction op, Array& out, const std::vector<double>& want,
                  const std::vector<double>& scale, const std::string& what) {
  const std::vector<double> got = out.get();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << what << " [" << i << "] " << got[i];
      continue;
    }
    double bound = 0;
    const double eps = epsilon(out.dtype), eps32 = out.dtype == Dtype::kFloat64 ? 0x1p-53 : 0x1p-24;
    if (is_floating(out.dtype) && op != Reduction::amin && op != Reduction::amax) {
      bound = eps * 1.01 * std::abs(want[i]) + 16 * eps32 * scale[i] +
              (out.dtype == Dtype::kFloat16 ? 0x1p-24 : 1e-40);
    }
    const double largest = out.dtype == Dtype::kFloat16 ? 65519.0 : kInfinity;
    if (std::abs(want[i]) > largest) {
      ASSERT_TRUE(std::isinf(got[i]) || std::abs(got[i]) > 65000) << what;
    } else if (std::isinf(want[i]) || bound == 0) {
      ASSERT_EQ(got[i], want[i]) << what << " [" << i << "]";
    } else {
      ASSERT_NEAR(got[i], want[i], bound) << what << " [" << i << "]";
    }
  }
}

TEST_P(ReduceTest, AgreesWithLoops) {
  std::mt19937 rng(7 + static_cast<unsigned>(GetParam()));
  const Dtype dtypes[] = {Dtype::kBool,    Dtype::kUInt8,  Dtype::kInt8,    Dtype::kInt16,
                          Dtype::kInt32,   Dtype::kInt64,  Dtype::kFloat16, Dtype::kBFloat16,
                          Dtype::kFloat32, Dtype::kFloat64};
  for (int round = 0; round < 1000; ++round) {
    const auto op = static_cast<Reduction>(rng() % kReductionCount);
    const Dtype dtype = dtypes[rng() % 10];
    const Dtype out_dtype = natural_output(op, dtype);
    const int ndim = static_cast<int>(rng() % 5);
    std::vector<int64_t> shape;
    for (int i = 0; i < ndim; ++i) {
      const int64_t wide[] = {1, 2, 3, 7, 10, 33, 70};
      shape.push_back(wide[rng() % (ndim > 3 ? 5 : 7)]);
    }
    if (round % 50 == 0)
      shape = {static_cast<int64_t>(rng() % 3 + 1), static_cast<int64_t>(30000 + rng() % 30000)};
    if (round % 50 == 1)
      shape = {static_cast<int64_t>(30000 + rng() % 30000), static_cast<int64_t>(rng() % 5 + 1)};
    // Few elements of many results, and short runs of results; rows of parts of results.
    if (round % 50 == 2) shape = {static_cast<int64_t>(100 + rng() % 300), 5, 6};
    if (round % 50 == 3) shape = {static_cast<int64_t>(30 + rng() % 60), 7, 49};
    if (round % 50 == 4) shape = {1, 5, static_cast<int64_t>(200 + rng() % 200)};
    std::vector<int> order(shape.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    if (rng() % 2) std::shuffle(order.begin(), order.end(), rng);
    Array in(dtype, shape, order, rng() % 4 == 0 ? 3 : 1);
    if (!shape.empty() && rng() % 3 == 0) {  // a slice
      const size_t cut = rng() % shape.size();
      if (shape[cut] > 2) shape[cut] = in.shape[cut] -= 2;
    }
    const bool arg = op == Reduction::argmin || op == Reduction::argmax;
    in.set(random_values(rng, in.numel(), dtype, rng() % 4 == 0));
    std::vector<bool> folded(shape.size(), false);
    std::vector<int> dims;
    if (arg && !shape.empty() && rng() % 2) {
      dims.push_back(static_cast<int>(rng() % shape.size()));
    } else if (!arg) {
      for (size_t i = 0; i < shape.size(); ++i) {
        if (rng() % 2)
          dims.push_back(static_cast<int>(i) - (rng() % 2 ? static_cast<int>(shape.size()) : 0));
      }
    }
    for (const int d : dims)
      folded[static_cast<size_t>(d < 0 ? d + static_cast<int>(shape.size()) : d)] = true;
    if (dims.empty()) folded.assign(shape.size(), true);
    const bool keep = rng() % 2;
    std::vector<int64_t> out_shape;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (!folded[i]) out_shape.push_back(shape[i]);
      if (folded[i] && keep) out_shape.push_back(1);
    }
    std::vector<int> out_order(out_shape.size());
    for (size_t i = 0; i < out_order.size(); ++i) out_order[i] = static_cast<int>(i);
    if (rng() % 2) std::shuffle(out_order.begin(), out_order.end(), rng);
    Array out(out_dtype, out_shape, out_order, rng() % 3 == 0 ? 2 : 1);
    ReduceOptions options;
    const double ps[] = {0, 1, 2, kInfinity, -kInfinity, 3, 0.5};
    options.p = ps[rng() % 7];
    options.correction = static_cast<double>(rng() % 2);
    options.max_threads = 1;
    if (arg && dtype == Dtype::kBool) continue;
    const std::string what = std::string(reduction_name(op)) + " " +
                             std::string(dtype_name(dtype)) + " round " + std::to_string(round);
    SCOPED_TRACE(what);
    ASSERT_NO_THROW(reduce(op, in.view(), dims, out.view(), options));
    const std::vector<double> scale = reference(in, folded, [&](const std::vector<double>& x) {
      double s = 0, most = 0;
      for (const double v : x) {
        if (op == Reduction::nansum && std::isnan(v)) continue;
        s += std::abs(v), most = std::max(most, std::abs(v));
      }
      if (op == Reduction::mean) return s / static_cast<double>(x.size());
      if (op == Reduction::sum || op == Reduction::nansum) return s;
      if (op == Reduction::prod)
        return std::abs(oracle(op, x, options)) * static_cast<double>(x.size());
      if (op == Reduction::logsumexp) return most + 2;
      return std::abs(oracle(op, x, options)) * 4 + 1e-6;
    });
    auto want =
        reference(in, folded, [&](const std::vector<double>& x) { return oracle(op, x, options); });
    if (out_dtype == Dtype::kInt64 && op == Reduction::prod) {
      // Products wrap: the reference must too.
      want = reference(in, folded, [&](const std::vector<double>& x) {
        uint64_t product = 1;
        for (const double v : x) product *= static_cast<uint64_t>(static_cast<int64_t>(v));
        return static_cast<double>(static_cast<int64_t>(product));
      });
    }
    if (op == Reduction::prod && is_floating(dtype)) {
      // Only where neither overflow nor underflow makes the order matter.
      bool tame = true;
      for (double w : want) tame &= std::isnan(w) || (std::abs(w) > 1e-3 && std::abs(w) < 1e3);
      if (!tame) continue;
    }
    expect_close(op, out, want, scale, what);
    if (HasFatalFailure()) return;
    std::vector<char> first = out.bytes;
    options.max_threads = 2;
    reduce(op, in.view(), dims, out.view(), options);
    ASSERT_EQ(first, out.bytes) << what << ": thread count changed the result";
  }
}

TEST_P(ReduceTest, LargeFloatSumsAreAccurate) {
  std::mt19937 rng(3);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> x(3000001);
  long double want = 0;
  for (float& v : x) want += v = uniform(rng);
  const int64_t n = static_cast<int64_t>(x.size()), one = 1;
  float got = 0;
  reduce(Reduction::sum, {x.data(), Dtype::kFloat32, 1, &n, &one}, {},
         {&got, Dtype::kFloat32, 0, nullptr, nullptr});
  EXPECT_NEAR(got, static_cast<double>(want), 1.0 * 0x1p-24 * static_cast<double>(want));
}

TEST_P(ReduceTest, VarianceIsStableFarFromZero) {
  std::mt19937 rng(3);
  std::normal_distribution<double> normal(10000.0, 0.1);
  Array in(Dtype::kFloat32, {200, 500}), rows(Dtype::kFloat32, {200}), cols(Dtype::kFloat32, {500}),
      means(Dtype::kFloat32, {500});
  std::vector<double> values(100000);
  for (double& v : values) v = normal(rng);
  in.set(values);
  const int last[] = {1}, front[] = {0};
  reduce(Reduction::var, in.view(), last, rows.view());
  reduce_with_mean(Reduction::var, in.view(), front, cols.view(), means.view());
  ReduceOptions options;
  const auto want_rows =
      reference(in, {false, true}, [&](auto& x) { return oracle(Reduction::var, x, options); });
  const auto want_cols =
      reference(in, {true, false}, [&](auto& x) { return oracle(Reduction::var, x, options); });
  const auto want_means =
      reference(in, {true, false}, [&](auto& x) { return oracle(Reduction::mean, x, options); });
  const auto got_rows = rows.get(), got_cols = cols.get(), got_means = means.get();
  for (size_t i = 0; i < 200; ++i) ASSERT_NEAR(got_rows[i], want_rows[i], 1e-5 * want_rows[i]);
  for (size_t i = 0; i < 500; ++i) ASSERT_NEAR(got_cols[i], want_cols[i], 1e-5 * want_cols[i]);
  for (size_t i = 0; i < 500; ++i) ASSERT_NEAR(got_means[i], want_means[i], 1e-3);
}

TEST_P(ReduceTest, ValuesWithIndices) {
  std::mt19937 rng(11);
  for (int dim = 0; dim < 3; ++dim) {
    for (const Dtype dtype : {Dtype::kFloat32, Dtype::kInt16, Dtype::kBFloat16, Dtype::kBool}) {
      Array in(dtype, {9, 70, 21});
      in.set(random_values(rng, in.numel(), dtype, dim == 1));
      std::vector<int64_t> shape = in.shape;
      shape[static_cast<size_t>(dim)] = 1;
      Array values(dtype, shape), indices(Dtype::kInt64, shape);
      std::vector<bool> folded(3, false);
      folded[static_cast<size_t>(dim)] = true;
      for (const bool max : {false, true}) {
        reduce_with_index(max ? Reduction::amax : Reduction::amin, in.view(), dim, values.view(),
                          indices.view());
        const auto want = reference(in, folded, [&](auto& x) {
          return oracle(max ? Reduction::amax : Reduction::amin, x, {});
        });
        const auto at = reference(in, folded, [&](auto& x) {
          return oracle(max ? Reduction::argmax : Reduction::argmin, x, {});
        });
        expect_close(Reduction::amax, values, want, want, "values");
        EXPECT_EQ(indices.get(), at);
      }
    }
  }
}

// Positions are found by vectors, in lanes as wide as the elements: in more rows than a byte
// counts.
TEST_P(ReduceTest, IndicesOfManyRows) {
  std::mt19937 rng(12);
  for (const Dtype dtype : {Dtype::kInt8, Dtype::kUInt8, Dtype::kInt16, Dtype::kInt32,
                            Dtype::kInt64, Dtype::kFloat16, Dtype::kFloat32, Dtype::kFloat64}) {
    for (const int64_t rows : {1, 3, 126, 127, 128, 129, 300, 33000}) {
      for (const int64_t cols : {2, 3, 16, 19, 70, 270}) {
        if (rows * cols > 150000) continue;
        Array in(dtype, {rows, cols}), values(dtype, {cols}), indices(Dtype::kInt64, {cols});
        in.set(random_values(rng, in.numel(), dtype, rows == 129));
        for (const bool max : {false, true}) {
          reduce_with_index(max ? Reduction::amax : Reduction::amin, in.view(), 0, values.view(),
                            indices.view());
          const auto at = reference(in, {true, false}, [&](auto& x) {
            return oracle(max ? Reduction::argmax : Reduction::argmin, x, {});
          });
          ASSERT_EQ(indices.get(), at) << dtype_name(dtype) << " " << rows << " x " << cols;
        }
      }
    }
  }
}

// Short rows are turned into columns where there are many of them, with the bits that one has.
TEST_P(ReduceTest, ShortRowsHaveTheSameBitsHoweverMany) {
  std::mt19937 rng(13);
  constexpr Reduction kOps[] = {Reduction::sum,  Reduction::mean, Reduction::prod,
                                Reduction::amax, Reduction::amin, Reduction::norm,
                                Reduction::any,  Reduction::all,  Reduction::nansum};
  for (const Dtype dtype :
       {Dtype::kFloat32, Dtype::kFloat64, Dtype::kBFloat16, Dtype::kInt32, Dtype::kUInt8}) {
    for (const int64_t cols : {2, 3, 4, 5, 6, 7, 8, 9}) {
      constexpr int64_t kRows = 301;
      Array in(dtype, {kRows, cols});
      std::vector<double> values = random_values(rng, in.numel(), dtype, true);
      std::fill_n(values.begin() + 40, 30, -0.0);
      in.set(values);
      const int dims[] = {1};
      for (const Reduction op : kOps) {
        if (op == Reduction::mean && !is_floating(dtype)) continue;
        Array out(natural_output(op, dtype), {kRows}), one(natural_output(op, dtype), {2});
        reduce(op, in.view(), dims, out.view());
        const size_t size = itemsize(out.dtype);
        for (int64_t row = 0; row + 2 <= kRows; row += 2) {
          Array two = in;
          two.shape[0] = 2, two.offset = row * cols;
          reduce(op, two.view(), dims, one.view());
          ASSERT_EQ(std::memcmp(one.bytes.data(), out.bytes.data() + row * size, 2 * size), 0)
              << reduction_name(op) << " of " << dtype_name(dtype) << ", row " << row << " of "
              << cols;
        }
      }
    }
  }
}

TEST_P(ReduceTest, RunningSums) {
  std::mt19937 rng(12);
  for (int round = 0; round < 60; ++round) {
    const Dtype dtypes[] = {Dtype::kFloat32, Dtype::kFloat64, Dtype::kBFloat16, Dtype::kInt16,
                            Dtype::kBool};
    const Dtype dtype = dtypes[rng() % 5];
    const Dtype out_dtype = is_floating(dtype) ? dtype : Dtype::kInt64;
    std::vector<int64_t> shape = {static_cast<int64_t>(rng() % 6 + 1),
                                  static_cast<int64_t>(rng() % 40 + 1),
                                  static_cast<int64_t>(rng() % 9 + 1)};
    if (round % 10 == 0) shape = {3, 2, 5000};
    if (round % 10 == 5) shape = {2000, 5, 6};
    std::vector<int> order = {0, 1, 2};
    if (rng() % 2) std::shuffle(order.begin(), order.end(), rng);
    Array in(dtype, shape, order), out(out_dtype, shape, {}, 2);
    in.set(random_values(rng, in.numel(), dtype, false));
    const int dim = static_cast<int>(rng() % 3);
    cumsum(in.view(), dim - 3, out.view(), 2);
    auto want = in.get();
    const int64_t step = dim == 2 ? 1 : dim == 1 ? shape[2] : shape[1] * shape[2];
    double size = 1;
    for (int64_t i = 0; i < in.numel(); ++i) {
      size = std::max(size, std::abs(want[static_cast<size_t>(i)]));
      if (i / step % shape[static_cast<size_t>(dim)] != 0) {
        want[static_cast<size_t>(i)] += want[static_cast<size_t>(i - step)];
      }
    }
    const auto got = out.get();
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 2 * epsilon(out_dtype) * std::abs(want[i]) + 1e-12) << round;
    }
  }
}

// Short rows, few rows and narrow columns have kernels of their own; NaN wins in all of them,
// wherever it is, and infinities are what they are.
TEST_P(ReduceTest, ExtremesFindNanAtEveryPlace) {
  std::mt19937 rng(11);
  constexpr Reduction kOps[] = {Reduction::amax,   Reduction::amin,   Reduction::norm,
                                Reduction::argmax, Reduction::argmin, Reduction::logsumexp,
                                Reduction::sum};
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
    for (const int64_t rows : {1, 3, 9, 20}) {
      for (const int64_t cols : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33}) {
        const int64_t places = std::min<int64_t>(rows * cols, 8);
        for (int64_t k = 0; k < places; ++k) {
          Array in(dtype, {rows, cols});
          std::vector<double> values = random_values(rng, rows * cols, dtype, false);
          const int64_t at = places < 8 ? k : static_cast<int64_t>(rng()) % (rows * cols);
          values[static_cast<size_t>(at)] = k % 3 == 2 ? kInfinity : kNan;
          in.set(values);
          for (const int dim : {0, 1}) {
            for (const Reduction op : kOps) {
              Array out(natural_output(op, dtype), {dim == 0 ? cols : rows});
              ReduceOptions options;
              options.p = k % 2 == 0 ? kInfinity : -kInfinity;
              const int dims[] = {dim};
              reduce(op, in.view(), dims, out.view(), options);
              const auto want =
                  reference(in, {dim == 0, dim == 1},
                            [&](const std::vector<double>& x) { return oracle(op, x, options); });
              const auto got = out.get();
              for (size_t i = 0; i < got.size(); ++i) {
                ASSERT_EQ(std::isnan(got[i]), std::isnan(want[i]))
                    << reduction_name(op) << " " << rows << " x " << cols << " along " << dim
                    << ", the NaN at " << at;
                if (!std::isnan(want[i])) {
                  ASSERT_TRUE(got[i] == want[i] || std::abs(got[i] - want[i]) < 1e-4)
                      << reduction_name(op) << " " << rows << " x " << cols << " along " << dim;
                }
              }
            }
          }
        }
      }
    }
  }
}

// Of zeros of either sign every column gives the same one, in a whole vector and in the rest.
TEST_P(ReduceTest, ExtremesOfZerosAreTheSameInEveryColumn) {
  constexpr int64_t kCols = 37;
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
    for (const Reduction op : {Reduction::amax, Reduction::amin}) {
      Array in(dtype, {2, kCols}), out(dtype, {kCols});
      std::vector<double> values(2 * kCols, 0);
      std::fill(values.begin() + kCols, values.end(), -0.0);
      in.set(values);
      const int dims[] = {0};
      reduce(op, in.view(), dims, out.view());
      const auto got = out.get();
      for (const double value : got) EXPECT_EQ(std::signbit(value), std::signbit(got[0]));
    }
  }
}

// Columns of few rows become results at once where these lie side by side, with the same bits.
TEST_P(ReduceTest, ResultsSideBySideAreThoseApart) {
  std::mt19937 rng(12);
  constexpr int64_t kCols = 150;
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64, Dtype::kInt64, Dtype::kUInt8}) {
    for (const int64_t rows : {2, 3, 8, 17, 40, 128}) {
      Array in(dtype, {4, rows, kCols});
      std::vector<double> values = random_values(rng, in.numel(), dtype, false);
      if (is_floating(dtype)) {
        const double special[] = {kInfinity, -kInfinity, kNan, -0.0, 0.0};
        for (int k = 0; k < 200; ++k) values[rng() % values.size()] = special[rng() % 5];
      }
      in.set(values);
      for (const Reduction op : {Reduction::sum, Reduction::mean, Reduction::prod, Reduction::amax,
                                 Reduction::amin, Reduction::norm}) {
        const Dtype result = natural_output(op, dtype);
        if (op == Reduction::mean && !is_floating(dtype)) continue;
        if (op == Reduction::norm && !is_floating(dtype)) continue;
        for (const double p : {0.0, 1.0, 2.0, kInfinity, -kInfinity}) {
          if (op != Reduction::norm && p != 2) continue;
          ReduceOptions options;
          options.p = p;
          const int dims[] = {1};
          Array beside(result, {4, kCols}), apart(result, {4, kCols}, {1, 0});
          reduce(op, in.view(), dims, beside.view(), options);
          reduce(op, in.view(), dims, apart.view(), options);
          const auto got = beside.get(), want = apart.get();
          for (size_t i = 0; i < got.size(); ++i) {
            if (std::isnan(want[i]) && std::isnan(got[i])) continue;
            ASSERT_EQ(std::bit_cast<uint64_t>(got[i]), std::bit_cast<uint64_t>(want[i]))
                << reduction_name(op) << " " << p << " of " << rows << " rows of "
                << dtype_name(dtype);
          }
        }
      }
    }
  }
}

TEST(ReduceErrors, AreClear) {
  Array in(Dtype::kFloat32, {2, 0}), out(Dtype::kFloat32, {2}), wrong(Dtype::kFloat32, {3});
  const int last[] = {1}, bad[] = {2}, twice[] = {1, -1};
  EXPECT_THROW(reduce(Reduction::amax, in.view(), last, out.view()), Error);
  EXPECT_THROW(reduce(Reduction::sum, in.view(), bad, out.view()), Error);
  EXPECT_THROW(reduce(Reduction::sum, in.view(), twice, out.view()), Error);
  EXPECT_THROW(reduce(Reduction::sum, in.view(), last, wrong.view()), Error);
  reduce(Reduction::sum, in.view(), last, out.view());
  EXPECT_EQ(out.get(), (std::vector<double>{0, 0}));
  reduce(Reduction::mean, in.view(), last, out.view());
  EXPECT_TRUE(std::isnan(out.get()[0]));
}

}  // namespace
}  // namespace hologram
