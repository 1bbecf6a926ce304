// SPDX-License-Identifier: MIT
// Recorded products against the same products at once, bit for bit.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/gemm.h"
#include "hologram/memory.h"
#include "hologram/parallel.h"
#include "hologram/recorder.h"
#include "hologram/trace.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {
namespace {

using Random = std::mt19937;

BufferRef random_buffer(Random& random, Dtype dtype, int64_t n) {
  const size_t bytes = static_cast<size_t>(n) * itemsize(dtype);
  BufferRef buffer = BufferRef::adopt(allocate_buffer(cpu(), std::max<size_t>(bytes, 1)));
  std::normal_distribution<double> normal(0, is_floating(dtype) ? 1 : 10);
  std::vector<double> numbers(static_cast<size_t>(n));
  for (double& number : numbers) {
    number = is_floating(dtype) ? normal(random) : std::fabs(std::round(normal(random)));
  }
  convert(Dtype::kFloat64, numbers.data(), dtype, buffer->data(), n);
  return buffer;
}

constexpr Dtype kFloats[] = {Dtype::kFloat32, Dtype::kFloat32, Dtype::kFloat64, Dtype::kBFloat16,
                             Dtype::kFloat16};
constexpr Dtype kProducts[] = {Dtype::kFloat32, Dtype::kFloat64, Dtype::kBFloat16, Dtype::kFloat16,
                               Dtype::kInt64,   Dtype::kInt32,   Dtype::kUInt8};

int64_t pick(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// A product and its buffers; all matrices with some elements before and between.
struct Case {
  RecordGemm g;
  BufferRef a, b, c, input;
  bool in_place = false;

  explicit Case(Random& random, std::span<const Dtype> dtypes = kFloats) {
    const int64_t sizes[] = {1, 2, 3, 7, 15, 33, 64, 129};
    const auto size = [&] { return sizes[pick(random, 0, 7)]; };
    g.dtype = dtypes[random() % dtypes.size()];
    g.m = size(), g.n = size(), g.k = random() % 20 == 0 ? 0 : 2 * size();
    g.batch = random() % 3 == 0 ? pick(random, 2, 4) : 1;
    g.trans_a = random() % 2, g.trans_b = random() % 2;
    g.alpha = random() % 2 == 0 ? 1 : is_floating(g.dtype) ? 0.5 : 3;
    g.beta = random() % 3 == 0 ? 0 : random() % 2 == 0 ? 1 : -2;
    const auto matrix = [&](RecordMatrix& to, int64_t rows, int64_t cols, bool repeats) {
      to.ld = std::max<int64_t>(1, cols) + (random() % 2 == 0 ? pick(random, 0, 3) : 0);
      to.batch_stride = repeats ? 0 : rows * to.ld + (random() % 2 == 0 ? pick(random, 0, 5) : 0);
      const int64_t first = pick(random, 0, 2);
      to.offset = first * static_cast<int64_t>(itemsize(g.dtype));
      BufferRef buffer = random_buffer(random, g.dtype,
                                       first + (g.batch - 1) * to.batch_stride + rows * to.ld + 1);
      to.buffer = buffer.get();
      return buffer;
    };
    const bool one_a = random() % 3 == 0, one_b = random() % 3 == 0;
    a = matrix(g.a, g.trans_a ? g.k : g.m, g.trans_a ? g.m : g.k, one_a);
    b = matrix(g.b, g.trans_b ? g.n : g.k, g.trans_b ? g.k : g.n, one_b);
    c = matrix(g.c, g.m, g.n, false);
    if (random() % 2 == 0) return;
    g.input = {nullptr, 0, g.m * g.n, g.n, 1};
    if (random() % 3 == 0) g.input.batch_stride = 0;
    if (random() % 2 == 0) g.input.row_stride = 0, g.input.batch_stride = 0;
    if (random() % 4 == 0) g.input.col_stride = 0;
    input = random_buffer(random, g.dtype, g.batch * g.m * g.n);
    g.input.buffer = input.get();
    if (random() % 4 == 0) {
      g.input = {g.c.buffer, g.c.offset, g.c.batch_stride, g.c.ld, 1};
      in_place = true;
    }
  }

  // The same at once, on a copy of C.
  std::vector<char> expected(int threads) const {
    std::vector<char> bytes(c->nbytes());
    std::memcpy(bytes.data(), c->data(), c->nbytes());
    const int64_t shape_a[] = {g.batch, g.m, g.k}, shape_b[] = {g.batch, g.k, g.n},
                  shape_c[] = {g.batch, g.m, g.n};
    const auto strides = [](const RecordMatrix& m, bool trans) {
      return std::vector<int64_t>{m.batch_stride, trans ? 1 : m.ld, trans ? m.ld : 1};
    };
    const auto sa = strides(g.a, g.trans_a), sb = strides(g.b, g.trans_b), sc = strides(g.c, false);
    const int64_t si[] = {g.input.batch_stride, g.input.row_stride, g.input.col_stride};
    const View out{bytes.data() + g.c.offset, g.dtype, 3, shape_c, sc.data()};
    View in = out;
    if (input != nullptr && !in_place) in = {input->data(), g.dtype, 3, shape_c, si};
    addmm(in, {a->data_as<char>() + g.a.offset, g.dtype, 3, shape_a, sa.data()},
          {b->data_as<char>() + g.b.offset, g.dtype, 3, shape_b, sb.data()}, out, g.alpha, g.beta,
          threads);
    return bytes;
  }
};

class GemmCall : public ::testing::Test {
 protected:
  void SetUp() override {
    set_deferring(true);
    flush(cpu());
  }
};

TEST_F(GemmCall, RandomProductsGiveTheBitsOfAddmm) {
  Random random(3);
  for (int round = 0; round < 3000; ++round) {
    const Case test(random, kProducts);
    const std::vector<char> expected = test.expected(1 + round % 2);
    ASSERT_TRUE(record_gemm(test.g)) << "round " << round;
    EXPECT_TRUE(is_pending(*test.c));
    flush(cpu());
    ASSERT_EQ(std::memcmp(expected.data(), test.c->data(), expected.size()), 0)
        << "round " << round << ": " << test.g.batch << " x " << test.g.m << " x " << test.g.n
        << " x " << test.g.k << " of " << dtype_name(test.g.dtype) << ", trans " << test.g.trans_a
        << test.g.trans_b << ", beta " << test.g.beta << (test.in_place ? " in place" : "");
  }
}

TEST_F(GemmCall, NumbersAreNoPartOfThePlan) {
  Random random(4);
  const BufferRef a = random_buffer(random, Dtype::kFloat32, 64);
  reset_recorder_stats(cpu());
  for (const double alpha : {1.0, 2.0, 3.0}) {
    const BufferRef c = BufferRef::adopt(allocate_deferred(cpu(), 256));
    const RecordMatrix x{a.get(), 0, 8};
    ASSERT_TRUE(record_gemm(
        {.m = 8, .n = 8, .k = 8, .alpha = alpha, .a = x, .b = x, .c = {c.get(), 0, 8}}));
    materialize(*c);
    float sum = 0;
    for (int p = 0; p < 8; ++p) sum += a->data_as<float>()[p] * a->data_as<float>()[8 * p];
    EXPECT_NEAR(c->data_as<float>()[0], alpha * static_cast<double>(sum), 1e-4);
  }
  EXPECT_EQ(recorder_stats(cpu()).plan_misses, 1u);
}

TEST_F(GemmCall, WhatIsNotTaken) {
  Random random(5);
  const BufferRef a = random_buffer(random, Dtype::kFloat32, 64),
                  c = random_buffer(random, Dtype::kFloat32, 80);
  RecordGemm g{
      .m = 8, .n = 8, .k = 8, .a = {a.get(), 0, 8}, .b = {a.get(), 0, 8}, .c = {c.get(), 0, 8}};
  RecordGemm other = g;
  for (const Dtype dtype : {Dtype::kComplex64, Dtype::kComplex128, Dtype::kBool}) {
    other.dtype = dtype;
    EXPECT_FALSE(record_gemm(other));
  }
  other = g;
  other.b.buffer = c.get();
  EXPECT_FALSE(record_gemm(other)) << "C is read while it is written";
  other = g;
  other.beta = 1;
  other.input = {c.get(), 4, 0, 8, 1};
  EXPECT_FALSE(record_gemm(other)) << "the input lies one element beside C";
  other = g;
  other.n = -1;
  EXPECT_ERROR(record_gemm(other), ErrorKind::kInvalidArgument,
               "record_gemm: batch, m, n and k must not be negative, got 1, 8, -1, 8");
  other = g;
  other.a.ld = 7;
  EXPECT_ERROR(record_gemm(other), ErrorKind::kInvalidArgument,
               "record_gemm: rows of a have 8 elements but lie only 7 apart");
  other = g;
  other.m = 0;
  EXPECT_TRUE(record_gemm(other)) << "nothing to do";
  set_deferring(false);
  EXPECT_FALSE(record_gemm(g));
  set_deferring(true);
  mark_exported(*a);
  EXPECT_FALSE(record_gemm(g));
}

// Ops on a product of m x n, recorded one after another; `settle` runs between them.
class Epilogue {
 public:
  Epilogue(uint32_t seed, Dtype dtype, int64_t m, int64_t n, int64_t k)
      : random_(seed),
        dtype_(dtype),
        computed_in_(itemsize(dtype) == 2 ? Dtype::kFloat32 : dtype),
        m_(m),
        n_(n),
        k_(k) {
    a_ = random_buffer(random_, dtype, m * k);
    b_ = random_buffer(random_, dtype, k * n);
    row_ = random_buffer(random_, dtype, n);
    column_ = random_buffer(random_, dtype, m);
    full_ = random_buffer(random_, dtype, m * n);
    steps_ = random_();
  }

  // Every buffer that is left, in order.
  template <class Settle>
  std::vector<std::vector<char>> run(Settle&& settle) {
    Random random(steps_);
    std::vector<BufferRef> kept;
    BufferRef at = BufferRef::adopt(allocate_deferred(cpu(), bytes(m_ * n_)));
    RecordGemm g{};
    g.dtype = dtype_;
    g.m = m_, g.n = n_, g.k = k_;
    g.trans_b = random() % 2 == 0;
    g.a = {a_.get(), 0, k_};
    g.b = {b_.get(), 0, g.trans_b ? k_ : n_};
    g.c = {at.get(), 0, n_};
    if (random() % 2 == 0) {
      g.beta = 1;
      g.input = {row_.get(), 0, 0, 0, 1};
    } else if (random() % 4 == 0) {  // adds to what is there
      const RecordOperand fill[] = {memory(at), number(0.25)};
      EXPECT_TRUE(record_flat(OpId::abs, computed_in_, fill, 1, m_ * n_));
      g.beta = 2;
    }
    EXPECT_TRUE(record_gemm(g));
    settle();
    const int steps = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < steps; ++i) {
      const bool keep = random() % 4 == 0, in_place = !keep && random() % 3 == 0;
      if (keep) kept.push_back(at);
      BufferRef out = in_place ? at : BufferRef::adopt(allocate_deferred(cpu(), bytes(m_ * n_)));
      step(random() % 7, at, out);
      at = out;
      settle();
    }
    if (n_ <= 1500 && random() % 4 == 0) {
      const RecordOperand rows[] = {memory(at), memory(at)};
      EXPECT_TRUE(record_rows(0, rows, 1, m_, n_));
      settle();
    }
    if (n_ <= 1500 && random() % 4 == 0) {
      BufferRef sums = BufferRef::adopt(allocate_deferred(cpu(), bytes(m_)));
      EXPECT_TRUE(record_reduction(Reduction::sum, memory(sums), memory(at), m_, n_));
      kept.push_back(sums);
      settle();
    }
    kept.push_back(at);
    at.reset();
    std::vector<std::vector<char>> contents;
    for (const BufferRef& buffer : kept) {
      materialize(*buffer);
      contents.emplace_back(buffer->data_as<char>(), buffer->data_as<char>() + buffer->nbytes());
    }
    return contents;
  }

 private:
  size_t bytes(int64_t n) const { return static_cast<size_t>(n) * itemsize(dtype_); }
  RecordOperand memory(const BufferRef& buffer) const {
    return {.buffer = buffer.get(), .dtype = dtype_};
  }
  RecordOperand number(double value) const {
    RecordOperand operand{.dtype = computed_in_};
    convert(Dtype::kFloat64, &value, computed_in_, &operand.bits, 1);
    return operand;
  }
  void step(uint32_t which, const BufferRef& in, const BufferRef& out) {
    const int64_t shape[] = {m_, n_}, dense[] = {n_, 1}, along[] = {0, 1}, down[] = {1, 0};
    const auto binary = [&](OpId op, const BufferRef& other, const int64_t* strides) {
      const RecordOperand operands[] = {memory(out), memory(in), memory(other)};
      const int64_t* steps[] = {dense, dense, strides};
      EXPECT_TRUE(record_strided(op, computed_in_, operands, 2, 2, shape, steps));
    };
    const auto flat = [&](OpId op, std::initializer_list<RecordOperand> operands) {
      EXPECT_TRUE(record_flat(op, computed_in_, operands.begin(),
                              static_cast<int>(operands.size()) - 1, m_ * n_));
    };
    switch (which) {
      case 0:
        return flat(OpId::relu, {memory(out), memory(in)});
      case 1:
        return flat(OpId::exp, {memory(out), memory(in)});
      case 2:
        return flat(OpId::mul, {memory(out), memory(in), number(0.5)});
      case 3:
        return flat(OpId::add, {memory(out), memory(full_), memory(in)});
      case 4:
        return binary(OpId::add, row_, along);
      case 5:
        return binary(OpId::mul, column_, down);
      default:
        return flat(OpId::maximum, {memory(out), memory(in), memory(in)});
    }
  }

  Random random_;
  Dtype dtype_, computed_in_;
  int64_t m_, n_, k_;
  BufferRef a_, b_, row_, column_, full_;
  uint32_t steps_ = 0;
};

// A provider for floating dtypes while it lives, which computes by the built-in GEMM.
class TestProvider {
 public:
  explicit TestProvider(bool one_thread) {
    calls = 0, largest = 0;
    static const GemmProvider builtin = gemm_providers().back();
    register_gemm_provider({.name = "test",
                            .priority = 50,
                            .supports = &is_floating,
                            .gemm =
                                [](const GemmArgs& g) {
                                  ++calls;
                                  int64_t size = largest.load();
                                  while (size < g.m * g.n &&
                                         !largest.compare_exchange_weak(size, g.m * g.n)) {
                                  }
                                  builtin.gemm(g);
                                },
                            .one_thread = one_thread});
  }
  ~TestProvider() {
    flush(cpu());
    unregister_gemm_provider("test");
  }

  static inline std::atomic<int> calls{0};
  static inline std::atomic<int64_t> largest{0};  // elements of a result
};

TEST_F(GemmCall, ProductsOfOtherProvidersWaitToo) {
  for (const bool one_thread : {false, true}) {
    const TestProvider provider(one_thread);
    Random random(8);
    for (int round = 0; round < 100; ++round) {
      const Case test(random);
      const std::vector<char> expected = test.expected(1 + round % 2);
      const int before = TestProvider::calls;
      ASSERT_TRUE(record_gemm(test.g)) << "round " << round;
      EXPECT_TRUE(is_pending(*test.c));
      EXPECT_EQ(TestProvider::calls, before);
      flush(cpu());
      EXPECT_EQ(TestProvider::calls > before, test.g.k > 0);
      ASSERT_EQ(std::memcmp(expected.data(), test.c->data(), expected.size()), 0)
          << "round " << round;
    }
  }
}

// Small products of one call are given to a provider in groups, each product once.
TEST_F(GemmCall, BatchesAreGivenInGroups) {
  static const GemmProvider builtin = gemm_providers().back();
  static std::atomic<int> calls, products;
  Random random(11);
  for (const int64_t batch : {int64_t{2}, int64_t{37}, int64_t{5000}}) {
    constexpr int64_t kSize = 12;
    const int64_t each = kSize * kSize;
    const BufferRef a = random_buffer(random, Dtype::kFloat32, batch * each),
                    b = random_buffer(random, Dtype::kFloat32, batch * each),
                    c = random_buffer(random, Dtype::kFloat32, batch * each);
    const std::vector<char> before(c->data_as<char>(), c->data_as<char>() + c->nbytes());
    RecordGemm g{.batch = batch, .m = kSize, .n = kSize, .k = kSize, .alpha = 2, .beta = 1};
    g.a = {a.get(), 0, kSize, each}, g.b = {b.get(), 0, kSize, each};
    g.c = {c.get(), 0, kSize, each};
    ASSERT_TRUE(record_gemm(g));
    flush(cpu());
    const std::vector<char> expected(c->data_as<char>(), c->data_as<char>() + c->nbytes());
    calls = products = 0;
    register_gemm_provider(
        {.name = "groups",
         .priority = 50,
         .supports = &is_floating,
         .gemm = [](const GemmArgs&) { FAIL() << "one by one"; },
         .gemm_batched =
             [](const GemmArgs& args, int64_t n, int64_t by_a, int64_t by_b, int64_t by_c) {
               ++calls, products += static_cast<int>(n);
               EXPECT_EQ(args.max_threads, 1);
               builtin.gemm_batched(args, n, by_a, by_b, by_c);
             },
         .one_thread = true});
    for (const int threads : {1, 3}) {
      std::memcpy(c->data(), before.data(), before.size());
      ASSERT_TRUE(record_gemm(g));
      const int threads_before = num_threads();
      set_num_threads(threads);
      flush(cpu());
      set_num_threads(threads_before);
      EXPECT_EQ(std::memcmp(c->data(), expected.data(), expected.size()), 0) << batch;
    }
    unregister_gemm_provider("groups");
    EXPECT_EQ(products, 2 * batch);
    EXPECT_LE(calls, 2 * std::max<int64_t>(1, batch / 100)) << "in groups";
  }
}

TEST_F(GemmCall, WhoComputesAProductIsSettledWhenItIsRecorded) {
  Random random(9);
  const BufferRef a = random_buffer(random, Dtype::kFloat32, 64),
                  c = random_buffer(random, Dtype::kFloat32, 64);
  const RecordGemm g{
      .m = 8, .n = 8, .k = 8, .a = {a.get(), 0, 8}, .b = {a.get(), 0, 8}, .c = {c.get(), 0, 8}};
  ASSERT_TRUE(record_gemm(g));
  const TestProvider provider(true);
  flush(cpu());
  EXPECT_EQ(TestProvider::calls, 0);
}

struct Threads {
  explicit Threads(int threads) : before(num_threads()) { set_num_threads(threads); }
  ~Threads() { set_num_threads(before); }
  int before;
};

// What reads random products, joined to them and one op after another.
void compare_joined_ops(uint32_t seed, int rounds, std::span<const Dtype> dtypes) {
  Random random(seed);
  const int64_t sizes[] = {2, 3, 16, 33, 100, 170, 300, 700};
  uint64_t apart_kernels = 0, joined_kernels = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto size = [&] { return sizes[random() % 8]; };
    const Dtype dtype = dtypes[random() % dtypes.size()];
    const int64_t m = size(), n = random() % 30 == 0 ? 2500 : size(), k = size();
    const Threads threads(1 + round % 3);
    Epilogue ops(static_cast<uint32_t>(random()), dtype, m, n, k);
    reset_recorder_stats(cpu());
    const auto expected = ops.run([] { flush(cpu()); });
    apart_kernels += recorder_stats(cpu()).kernels;
    for (const bool again : {false, true}) {  // the second run has generated loops
      reset_recorder_stats(cpu());
      const auto joined = ops.run([] {});
      joined_kernels += again ? recorder_stats(cpu()).kernels : 0;
      ASSERT_EQ(joined.size(), expected.size());
      for (size_t i = 0; i < joined.size(); ++i) {
        ASSERT_EQ(std::memcmp(joined[i].data(), expected[i].data(), joined[i].size()), 0)
            << "round " << round << ", buffer " << i << ", " << m << " x " << n << " x " << k
            << " of " << dtype_name(dtype) << (again ? ", again" : "");
      }
    }
  }
  EXPECT_LT(joined_kernels * 2, apart_kernels) << "most ops join the product's kernel";
}

TEST_F(GemmCall, OpsOnTheRowsOfAProductGiveTheBitsOfOpsOneByOne) {
  compare_joined_ops(6, 250, std::span(kFloats).first(3));
}

TEST_F(GemmCall, OpsOnTheTilesOfAProviderGiveTheBitsOfOpsOneByOne) {
  const TestProvider provider(true);
  compare_joined_ops(10, 150, kFloats);
  if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
    EXPECT_LT(TestProvider::largest, 700 * 700) << "no product was cut";
  }
}

TEST_F(GemmCall, AProductThatOnlyItsReaderSeesGetsNoMemory) {
  Random random(7);
  constexpr int64_t kSize = 300;
  const BufferRef a = random_buffer(random, Dtype::kFloat32, kSize * kSize),
                  out = BufferRef::adopt(allocate_deferred(cpu(), kSize * kSize * 4));
  const int64_t before = memory_stats().allocated_bytes.total;
  const uint64_t trace = start_tracing(cpu());
  {
    const BufferRef c = BufferRef::adopt(allocate_deferred(cpu(), kSize * kSize * 4));
    RecordGemm g{};
    g.m = g.n = g.k = kSize;
    g.a = g.b = {a.get(), 0, kSize};
    g.c = {c.get(), 0, kSize};
    ASSERT_TRUE(record_gemm(g));
    const RecordOperand operands[] = {{.buffer = out.get()}, {.buffer = c.get()}};
    ASSERT_TRUE(record_flat(OpId::relu, Dtype::kFloat32, operands, 1, kSize * kSize));
  }
  flush(cpu());
  EXPECT_EQ(memory_stats().allocated_bytes.total - before,
            static_cast<int64_t>(allocation_size(kSize * kSize * 4)));
  const auto circuits = stop_tracing(trace);
  ASSERT_EQ(circuits.size(), 1u);
  ASSERT_EQ(circuits[0]->shape->launches.size(), 1u);
  EXPECT_EQ(circuits[0]->shape->launches[0].name, "gemm_relu");
  EXPECT_EQ(circuits[0]->shape->launches[0].bytes, 3 * kSize * kSize * 4);
}

}  // namespace
}  // namespace hologram
