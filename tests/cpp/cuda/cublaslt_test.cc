// SPDX-License-Identifier: MIT
// Products of CUDA's device by cuBLASLt, over the fake, against sums in float64: which go there,
// every dtype and layout, alpha, beta and input, and what happens where the library fails.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "hologram/elementwise.h"
#include "src/cuda/cublaslt_api.h"
#include "src/gpu/device.h"
#include "src/gpu/recipes/recipe.h"
#include "tests/cpp/cuda/fake_support.h"
#include "tests/cpp/runtime/support.h"

namespace hologram::cuda {
namespace {

using gpu::Array;
using Shape = std::vector<int64_t>;

constexpr Dtype kDtypes[] = {Dtype::kFloat32, Dtype::kFloat64, Dtype::kFloat16, Dtype::kBFloat16};

Array array_of(uint32_t slot, Dtype dtype, const Shape& shape, int64_t padding = 0,
               int64_t first = 0) {
  Array array;
  array.is_given = true;
  array.slot = slot;
  array.dtype = dtype;
  array.offset = first * static_cast<int64_t>(itemsize(dtype));
  array.ndim = static_cast<int>(shape.size());
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    array.shape[d] = shape[d];
    array.strides[d] = step;
    step *= shape[d] + (d + 1 == shape.size() ? padding : 0);
  }
  return array;
}
// As array_of(), with the last two dimensions in the other order in memory.
Array turned(uint32_t slot, Dtype dtype, Shape shape, int64_t padding = 0, int64_t first = 0) {
  std::swap(shape[shape.size() - 2], shape[shape.size() - 1]);
  const Array array = array_of(slot, dtype, shape, padding, first);
  return array.transposed(array.ndim - 2, array.ndim - 1);
}
Array with_strides(Array array, const Shape& strides) {
  for (size_t d = 0; d < strides.size(); ++d) array.strides[d] = strides[d];
  return array;
}

// A plan of one call, and the memory that it works on.
class CudaProductsTest : public FakeTest {
 protected:
  void SetUp() override {
    FakeTest::SetUp();
    if (IsSkipped()) return;
    // The fake, which a test that runs over fakes has built.
    ASSERT_NE(lt::api(), nullptr) << lt::why_no_api();
    device_ = gpu::make_device(BackendType::kCuda, make_driver(0));
    before_ = fake()->count("products");
  }
  void TearDown() override {
    plan_.reset();
    if (device_ != nullptr) {
      free_slots();
      device_->empty_cache();
    }
    device_.reset();
    FakeTest::TearDown();
  }

  Device& device() { return *device_; }
  // Since the last call.
  long products() {
    const long all = fake()->count("products");
    return all - std::exchange(before_, all);
  }

  template <class Call>
  void make(const Call& call) {
    gpu::RecipeCall made(false);
    Call::each(call, made);
    circuit::Tape tape;
    tape.append_call(static_cast<uint16_t>(Call::kNumber), made.slots(), made.words(),
                     made.numbers());
    numbers_.assign(made.numbers().begin(), made.numbers().end());
    const std::vector<uint8_t> states(4, circuit::kSlotLive);
    plan_ = circuit::make_plan(tape.words(), states, {.limits = *device_->plan_limits()});
  }

  // What a recipe has recorded, which is one kernel.
  void use(gpu::Recipe& recipe) {
    plan_ = recipe.plan({.limits = *device_->plan_limits()});
    ASSERT_EQ(plan_->kernels.size(), 1u);
    numbers_.clear();
    for (const gpu::Recipe::Immediate& number : recipe.take_immediates()) {
      numbers_.push_back(gpu::bits_of(number.dtype, number.number(nullptr)));
    }
  }
  double value(uint32_t slot, size_t element) const { return slots_[slot].values[element]; }

  // Makes a slot of each size, in elements, and fills it with eighths, which no dtype rounds.
  void fill(Dtype dtype, const std::vector<size_t>& sizes) {
    free_slots();
    std::mt19937 random(7);
    std::uniform_int_distribution<int> eighths(-8, 8);
    for (const size_t size : sizes) {
      Slot& slot = slots_.emplace_back();
      slot.values.resize(size);
      for (double& value : slot.values) value = eighths(random) / 8.0;
      std::vector<char> bytes(size * itemsize(dtype));
      convert(Dtype::kFloat64, slot.values.data(), dtype, bytes.data(), static_cast<int64_t>(size));
      slot.bytes = bytes.size();
      slot.data = static_cast<char*>(device_->allocate_raw(slot.bytes));
      device_->copy_from_host(device_->default_stream(), slot.data, bytes.data(), slot.bytes);
    }
  }
  void run() {
    std::vector<char*> at;
    for (const Slot& slot : slots_) at.push_back(slot.data);
    at.resize(4);
    device_->run_plan(*plan_, {at.data(), numbers_.data()}, 0);
  }
  std::vector<double> read(uint32_t slot, Dtype dtype) {
    std::vector<char> bytes(slots_[slot].bytes);
    device_->copy_to_host(device_->default_stream(), bytes.data(), slots_[slot].data, bytes.size());
    std::vector<double> values(slots_[slot].values.size());
    convert(dtype, bytes.data(), Dtype::kFloat64, values.data(),
            static_cast<int64_t>(values.size()));
    return values;
  }

  // Runs c = alpha a b + beta input, of matrices with as many dimensions of a batch as c has, and
  // compares each element, and what lies between them.
  template <class Call>
  void check(const Call& call, const Array& a, const Array& b, const Array& c, const Array& input,
             double alpha, double beta) {
    std::vector<size_t> sizes(4, 1);
    for (const Array* x : {&a, &b, &c, &input}) {
      if (!x->is_given) continue;
      int64_t end = x->offset / static_cast<int64_t>(itemsize(x->dtype)) + 1;
      for (int d = 0; d < x->ndim; ++d) end += (x->shape[at(d)] - 1) * x->strides[at(d)];
      sizes[x->slot] = std::max(sizes[x->slot], static_cast<size_t>(end) + 5);
    }
    fill(c.dtype, sizes);
    make(call);
    run();
    const std::vector<double> found = read(c.slot, c.dtype);
    std::vector<double> wanted = slots_[c.slot].values;
    const int64_t k = a.shape[at(a.ndim - 1)], step_a = a.strides[at(a.ndim - 1)],
                  step_b = b.strides[at(b.ndim - 2)];
    std::vector<bool> is_result(found.size(), false);
    const int64_t count = c.numel();
    for (int64_t e = 0; e < count; ++e) {
      int64_t rest = e, in_a = first(a), in_b = first(b), in_c = first(c), in_input = first(input);
      for (int d = c.ndim; d-- > 0;) {
        const int64_t p = rest % c.shape[at(d)];
        rest /= c.shape[at(d)];
        in_c += p * c.strides[at(d)];
        if (input.is_given) in_input += p * input.strides[at(d)];
        if (d != c.ndim - 1) in_a += p * a.strides[at(d)];
        if (d != c.ndim - 2) in_b += p * b.strides[at(d)];
      }
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) {
        sum += slots_[a.slot].values[at(in_a + i * step_a)] *
               slots_[b.slot].values[at(in_b + i * step_b)];
      }
      sum *= alpha;
      if (beta != 0) sum += beta * slots_[input.slot].values[at(in_input)];
      wanted[at(in_c)] = sum;
      is_result[at(in_c)] = true;
    }
    const int digits = c.dtype == Dtype::kFloat64   ? 40
                       : c.dtype == Dtype::kFloat32 ? 20
                       : c.dtype == Dtype::kFloat16 ? 11
                                                    : 8;
    int wrong = 0;
    for (size_t i = 0; i < found.size() && wrong < 5; ++i) {
      const double bound = is_result[i] ? std::ldexp(std::abs(wanted[i]) + 0.001, -digits) : 0;
      if (std::abs(found[i] - wanted[i]) <= bound) continue;
      ++wrong;
      ADD_FAILURE() << "element " << i << (is_result[i] ? "" : ", which is no result,") << " is "
                    << found[i] << ", not " << wanted[i];
    }
  }

  struct Given {
    Array a, b, c, input = {};
    bool trans_a = false, trans_b = false, scales = false;
    double alpha = 1, beta = 0;
  };
  void check_gemm(const Given& g) {
    const calls::Gemm<Array> call{.a = g.a,
                                  .b = g.b,
                                  .input = g.input,
                                  .trans_a = g.trans_a,
                                  .trans_b = g.trans_b,
                                  .scales = g.scales,
                                  .alpha = g.alpha,
                                  .beta = g.beta,
                                  .c = g.c};
    check(call, g.trans_a ? g.a.transposed(1, 2) : g.a, g.trans_b ? g.b.transposed(1, 2) : g.b, g.c,
          g.scales ? g.c : g.input, g.alpha, g.beta);
  }
  void check_matmul(const Array& a, const Array& b, const Array& c) {
    const auto repeated = [&](const Array& x) {
      Array all = c;
      all.slot = x.slot, all.offset = x.offset;
      for (int d = c.ndim; d-- > 0;) {
        const int own = d - (c.ndim - x.ndim);
        const bool has = own >= 0 && (d >= c.ndim - 2 || x.shape[at(own)] == c.shape[at(d)]);
        all.strides[at(d)] = has ? x.strides[at(own)] : 0;
        if (d >= c.ndim - 2) all.shape[at(d)] = x.shape[at(own)];
      }
      return all;
    };
    check(calls::Matmul<Array>{.a = a, .b = b, .out = c}, repeated(a), repeated(b), c, {}, 1, 0);
  }
  // A product that the library takes: 2^20 multiplications.
  static Given plain(Dtype dtype) {
    return {.a = array_of(0, dtype, {1, 32, 64}),
            .b = array_of(1, dtype, {1, 64, 512}),
            .c = array_of(2, dtype, {1, 32, 512})};
  }
  // The same with an inner dimension for which the fake asks for memory.
  static Given with_workspace(Dtype dtype) {
    return {.a = array_of(0, dtype, {1, 64, 256}),
            .b = array_of(1, dtype, {1, 256, 64}),
            .c = array_of(2, dtype, {1, 64, 64})};
  }
  void free_slots() {
    for (const Slot& slot : slots_) device_->free_raw(slot.data, slot.bytes);
    slots_.clear();
  }

 private:
  static size_t at(int64_t index) { return static_cast<size_t>(index); }
  static int64_t first(const Array& array) {
    return array.offset / static_cast<int64_t>(itemsize(array.dtype));
  }

  struct Slot {
    std::vector<double> values;
    char* data = nullptr;
    size_t bytes = 0;
  };
  std::unique_ptr<Device> device_;
  std::unique_ptr<circuit::Plan> plan_;
  std::vector<uint64_t> numbers_;
  std::vector<Slot> slots_;
  long before_ = 0;
};

TEST_F(CudaProductsTest, EveryDtypeAndLayout) {
  for (const Dtype dtype : kDtypes) {
    SCOPED_TRACE(dtype_name(dtype));
    const int64_t m = 101, n = 107, k = 99;  // a little more than 2^20 multiplications
    int count = 0;
    for (int bits = 0; bits < 8; ++bits) {
      const auto matrix = [&](uint32_t slot, Shape shape, bool turns) {
        const auto padding = static_cast<int64_t>(slot), begin = int64_t{3} * slot;
        return turns ? turned(slot, dtype, std::move(shape), padding, begin)
                     : array_of(slot, dtype, shape, padding, begin);
      };
      SCOPED_TRACE(bits);
      check_gemm({.a = matrix(0, {1, m, k}, bits & 1),
                  .b = matrix(1, {1, k, n}, bits & 2),
                  .c = matrix(2, {1, m, n}, bits & 4)});
      ++count;
    }
    check_gemm({.a = array_of(0, dtype, {1, k, m}),
                .b = array_of(1, dtype, {1, n, k}),
                .c = array_of(2, dtype, {1, m, n}),
                .trans_a = true,
                .trans_b = true,
                .alpha = 0.5});
    EXPECT_EQ(products(), count + 1);
  }
}

TEST_F(CudaProductsTest, AlphaBetaAndInput) {
  for (const Dtype dtype : kDtypes) {
    SCOPED_TRACE(dtype_name(dtype));
    Given given = plain(dtype);
    given.alpha = -1.5, given.beta = 0.25;
    given.input = array_of(3, dtype, {1, 32, 512}, 7, 1);  // as it is
    check_gemm(given);
    given.input = turned(3, dtype, {1, 32, 512});  // copied, and so below
    check_gemm(given);
    given.input = with_strides(array_of(3, dtype, {1, 32, 512}), {0, 0, 1});
    check_gemm(given);
    given.input = with_strides(array_of(3, dtype, {1, 32, 512}), {0, 1, 0});
    check_gemm(given);
    given.c = turned(2, dtype, {1, 32, 512}, 3);
    check_gemm(given);
    given.input = given.c;  // in place
    check_gemm(given);
    given.input = {}, given.scales = true;
    check_gemm(given);
    EXPECT_EQ(products(), 7);
    given.beta = 0;  // what the result's memory had is not read
    check_gemm(given);
    given = plain(dtype);
    given.alpha = 0;
    check_gemm(given);
    EXPECT_EQ(products(), 2);
  }
}

// One row that is added to all rows is the library's bias, and not copied to the result first.
TEST_F(CudaProductsTest, Bias) {
  long before = fake()->count("biases");
  const auto biases = [&] {
    const long all = fake()->count("biases");
    return all - std::exchange(before, all);
  };
  for (const Dtype dtype : kDtypes) {
    SCOPED_TRACE(dtype_name(dtype));
    Given given = plain(dtype);
    const auto row = [&](int64_t first, const Shape& strides) {
      return with_strides(array_of(3, dtype, {1, 32, 512}, 0, first), strides);
    };
    given.alpha = -1.5, given.beta = 1;
    given.input = row(0, {0, 0, 1});
    check_gemm(given);
    given.input = row(5, {0, 0, 1});  // not aligned
    check_gemm(given);
    given.c = turned(2, dtype, {1, 32, 512}, 3);
    given.input = row(1, {0, 1, 0});  // a column that is added to all columns
    check_gemm(given);
    EXPECT_EQ(biases(), 3);
    given.beta = 0.5;  // not as it is
    check_gemm(given);
    given.beta = 1;
    given.input = row(0, {0, 0, 2});  // not in one piece
    check_gemm(given);
    given.input = row(0, {0, 0, 0});  // one number
    check_gemm(given);
    given.input = row(0, {0, 0, 1});  // across the result's rows
    check_gemm(given);
    EXPECT_EQ(biases(), 0);
    given = {.a = array_of(0, dtype, {3, 64, 70}),
             .b = with_strides(array_of(1, dtype, {3, 70, 96}), {0, 96, 1}),
             .c = array_of(2, dtype, {3, 64, 96}),
             .input = with_strides(array_of(3, dtype, {3, 64, 96}), {0, 0, 1}),
             .beta = 1};
    check_gemm(given);  // a batch that is one product
    given.b = array_of(1, dtype, {3, 70, 96});
    check_gemm(given);  // and one that is not
    EXPECT_EQ(biases(), 2);
    given.input = with_strides(given.input, {96, 0, 1});  // a row for each of the batch
    check_gemm(given);
    EXPECT_EQ(biases(), 0);
    EXPECT_EQ(products(), 10);
  }
  // Where the library has no bias for the problem, it is copied.
  Given given = plain(Dtype::kFloat32);
  given.c = array_of(2, Dtype::kFloat32, {1, 32, 512}, 1);
  given.input = with_strides(array_of(3, Dtype::kFloat32, {1, 32, 512}), {0, 0, 1});
  given.beta = 1;
  fake()->fail("cublasLtMatmulAlgoGetHeuristic", 1, lt::kNotSupported);
  check_gemm(given);
  EXPECT_EQ(biases(), 0);
  EXPECT_EQ(products(), 1);
}

TEST_F(CudaProductsTest, Batches) {
  for (const Dtype dtype : kDtypes) {
    SCOPED_TRACE(dtype_name(dtype));
    const auto a = [&](const Shape& shape) { return array_of(0, dtype, shape); };
    const auto b = [&](const Shape& shape) { return array_of(1, dtype, shape); };
    const auto c = [&](const Shape& shape) { return array_of(2, dtype, shape); };
    check_matmul(a({5, 64, 65}), b({5, 65, 51}), c({5, 64, 51}));
    EXPECT_EQ(products(), 1);
    // One matrix for all of a batch: on the right it is one product of all rows.
    check_matmul(a({64, 65}), b({5, 65, 51}), c({5, 64, 51}));
    check_matmul(a({5, 64, 65}), b({65, 51}), c({5, 64, 51}));
    check_matmul(a({3, 5, 1, 640}), b({640, 128}), c({3, 5, 1, 128}));
    EXPECT_EQ(products(), 3);
    check_matmul(a({3, 1, 64, 65}), b({4, 65, 33}), c({3, 4, 64, 33}));  // too small one by one
    EXPECT_EQ(products(), 0);
    check_matmul(a({3, 1, 128, 65}), b({2, 65, 73}), c({3, 2, 128, 73}));
    EXPECT_EQ(products(), 3);
    // Heads side by side in rows.
    const auto heads = [&](uint32_t slot) {
      return array_of(slot, dtype, {2, 128, 3, 40}).transposed(1, 2);
    };
    check_matmul(heads(0), heads(1).transposed(2, 3), c({2, 3, 128, 128}));
    EXPECT_EQ(products(), 2);
    // And the second of the batch at an odd element.
    check_matmul(with_strides(heads(0), {128 * 120 + 1, 40, 120, 1}), heads(1).transposed(2, 3),
                 c({2, 3, 128, 128}));
    EXPECT_EQ(products(), 2);
    // Vectors.
    check_matmul(a({1, 1024}), b({1024, 1024}), c({1, 1024}));
    check_matmul(with_strides(a({1024, 1024}), {1, 1024}), b({1024, 1}), c({1024, 1}));
    check_matmul(a({1024, 1}), b({1, 1024}), c({1024, 1024}));
    EXPECT_EQ(products(), 3);
  }
}

// Inputs with a batch of their own, or one for all.
TEST_F(CudaProductsTest, BatchesWithInput) {
  const Dtype dtype = Dtype::kBFloat16;
  Given given{.a = array_of(0, dtype, {4, 64, 70}),
              .b = with_strides(array_of(1, dtype, {4, 70, 64}), {0, 64, 1}),
              .c = array_of(2, dtype, {4, 64, 64}),
              .alpha = 2,
              .beta = -1};
  given.input = array_of(3, dtype, {4, 64, 64});
  check_gemm(given);
  given.input = with_strides(given.input, {0, 64, 1});
  check_gemm(given);
  given.input = with_strides(given.input, {0, 0, 0});
  check_gemm(given);
  EXPECT_EQ(products(), 3);
}

TEST_F(CudaProductsTest, OthersAreKernelsOfOurs) {
  const Dtype dtype = Dtype::kFloat32;
  Given given = plain(dtype);
  given.a = array_of(0, dtype, {1, 32, 63}), given.b = array_of(1, dtype, {1, 63, 512});
  check_gemm(given);  // small
  given = plain(dtype);
  given.a = with_strides(given.a, {0, 130, 2});  // no dimension is in one piece
  check_gemm(given);
  given.a = with_strides(given.a, {0, 0, 1});  // rows that are repeated
  check_gemm(given);
  given.a = with_strides(given.a, {0, 63, 1});  // or overlap
  check_gemm(given);
  given = plain(dtype);
  given.input = array_of(2, dtype, {1, 32, 512}, 0, 512);  // in part where the result is
  check_gemm(given);
  given = plain(dtype);
  given.a = array_of(0, dtype, {1, 32, 0}), given.b = array_of(1, dtype, {1, 0, 512});
  given.input = array_of(3, dtype, {1, 32, 512});
  given.beta = 2;
  check_gemm(given);
  given = plain(dtype);
  given.a = array_of(0, dtype, {1, 0, 64}), given.c = array_of(2, dtype, {1, 0, 512});
  check_gemm(given);
  const Array a = array_of(0, Dtype::kInt32, {32, 64}), b = array_of(1, Dtype::kInt32, {64, 512}),
              c = array_of(2, Dtype::kInt32, {32, 512});
  fill(Dtype::kInt32, {2048, 32768, 16384});
  make(calls::Matmul<Array>{.a = a, .b = b, .out = c});
  run();
  EXPECT_EQ(products(), 0);
  EXPECT_EQ(fake()->count("objects"), 0);  // the library was not even opened
}

// The queue's order: operands from kernels before it, results for kernels after it.
// However few their elements are.
TEST_F(CudaProductsTest, DeepProductsAreTheLibrarys) {
  for (const int64_t k : {127, 128}) {
    check_gemm({.a = array_of(0, Dtype::kFloat32, {1, 3, k}),
                .b = array_of(1, Dtype::kFloat32, {1, k, 2}),
                .c = array_of(2, Dtype::kFloat32, {1, 3, 2})});
    EXPECT_EQ(products(), k == 128 ? 1 : 0) << k;
  }
}

TEST_F(CudaProductsTest, ProductsAreInTheOrderOfTheQueue) {
  const Dtype dtype = Dtype::kFloat32;
  const Given given = with_workspace(dtype);
  check_gemm(given);
  const std::vector<double> once = read(2, dtype);
  for (int i = 0; i < 3; ++i) run();
  EXPECT_EQ(products(), 4);
  EXPECT_EQ(read(2, dtype), once);
  // A problem is asked for once, and its descriptors are kept.
  const long asked = fake()->count("asked"), objects = fake()->count("objects");
  check_gemm(given);
  EXPECT_EQ(fake()->count("asked"), asked);
  EXPECT_EQ(fake()->count("objects"), objects);
  EXPECT_EQ(objects, 6);  // a handle, an operation and four layouts
}

// What only the instructions behind a product see has memory while they run.
TEST_F(CudaProductsTest, WorkBehindAProduct) {
  const Dtype dtype = Dtype::kFloat32;
  circuit::KernelCall outer;
  for (uint32_t slot = 0; slot < 3; ++slot) {
    outer.operands.push_back({.present = true, .slot = slot});
  }
  gpu::Recipe recipe(outer, driver().traits());
  const Array a = array_of(0, dtype, {32, 64}), b = array_of(1, dtype, {64, 512}),
              c = array_of(2, dtype, {32, 512});
  const int64_t shape[] = {32, 512};
  const Array product = recipe.temporary(dtype, 2, shape);
  recipe.product_into(product, a, b, gpu::Recipe::Factor::kPlain, gpu::Recipe::Sum::kNew);
  recipe.op_into(c, OpId::mul, dtype, {product, -0.5});
  fill(dtype, {2048, 32768, 16384});
  use(recipe);
  run();
  const std::vector<double> found = read(2, dtype);
  for (size_t i = 0; i < found.size(); ++i) {
    double sum = 0;
    for (size_t k = 0; k < 64; ++k) {
      sum += value(0, i / 512 * 64 + k) * value(1, k * 512 + i % 512);
    }
    ASSERT_NEAR(found[i], -0.5 * sum, 1e-6) << i;
  }
  EXPECT_EQ(products(), 1);
  device().empty_cache();
  fake()->fail("cuMemAlloc_v2", 0, kOutOfMemory);
  EXPECT_ERROR(run(), ErrorKind::kOutOfMemory,
               "cuda: no memory for 65536 bytes that gemm needs while it runs");
  run();
  EXPECT_EQ(read(2, dtype), found);
}

// The library chooses by alignment: a result that nothing else sees has that of the place where it
// would be seen, so that both are the same problem.
TEST_F(CudaProductsTest, AResultThatIsNotSeenIsTheSameProblem) {
  const Dtype dtype = Dtype::kFloat32;
  long asked = 0;
  std::vector<double> found[2];
  for (const bool is_seen : {true, false}) {
    circuit::KernelCall outer;
    for (uint32_t slot = 0; slot < 3; ++slot) {
      outer.operands.push_back({.present = true, .slot = slot});
    }
    gpu::Recipe recipe(outer, driver().traits());
    const int64_t room[] = {32 * 512 + 1};
    Array product = array_of(2, dtype, {32, 512});
    if (!is_seen) product.slot = recipe.temporary(dtype, 1, room).slot;
    product.offset = 4;
    recipe.product_into(product, array_of(0, dtype, {32, 64}), array_of(1, dtype, {64, 512}),
                        gpu::Recipe::Factor::kPlain, gpu::Recipe::Sum::kNew);
    Array out = array_of(2, dtype, {32, 512});
    out.offset = 4;
    if (!is_seen) recipe.op_into(out, OpId::mul, dtype, {product, 1.5});
    fill(dtype, {2048, 32768, 16385});
    use(recipe);
    run();
    found[is_seen] = read(2, dtype);
    EXPECT_EQ(products(), 1);
    if (is_seen) asked = fake()->count("asked");
  }
  EXPECT_EQ(fake()->count("asked"), asked);
  for (size_t i = 1; i < found[0].size(); ++i) ASSERT_EQ(found[0][i], 1.5 * found[1][i]) << i;
}

TEST_F(CudaProductsTest, ProblemsThatNoPlanHasAreForgotten) {
  const auto problem = [](int64_t m) {
    return gpu::ProductProblem{.m = m,
                               .n = 1024,
                               .k = 1024,
                               .a = {.row_step = 1024},
                               .b = {.row_step = 1024},
                               .c = {.row_step = 1024},
                               .d = {.row_step = 1024}};
  };
  const auto held = driver().product_algorithm(problem(1));
  for (int64_t m = 2; m < 2000; ++m) driver().product_algorithm(problem(m));
  EXPECT_EQ(driver().product_algorithm(problem(1)), held);
  EXPECT_LT(fake()->count("objects"), 5 * 1024);
}

TEST_F(CudaProductsTest, WithoutAHandleProductsAreKernelsOfOurs) {
  fake()->fail("cublasLtCreate", 0, lt::kAllocFailed);
  ::testing::internal::CaptureStderr();
  check_gemm(plain(Dtype::kFloat32));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "hologram: cuBLASLt is left out: cuda: cublasLtCreate returned 3 "
            "(CUBLAS_STATUS_ALLOC_FAILED)\n");
  check_gemm(plain(Dtype::kFloat32));  // and stay so
  check_gemm(plain(Dtype::kFloat16));
  EXPECT_EQ(products(), 0);
}

TEST_F(CudaProductsTest, AProblemThatTheLibraryLacksIsAKernelOfOurs) {
  const long asked = fake()->count("asked");
  fake()->fail("cublasLtMatmulAlgoGetHeuristic", 0, lt::kNotSupported);
  check_gemm(plain(Dtype::kFloat32));
  check_gemm(plain(Dtype::kFloat32));
  EXPECT_EQ(fake()->count("asked"), asked + 1);
  fake()->fail("cublasLtMatmulAlgoGetHeuristic", 0, lt::kInvalidValue);
  check_gemm(plain(Dtype::kFloat16));
  EXPECT_EQ(products(), 0);
  EXPECT_EQ(fake()->count("objects"), 1);
  check_gemm(plain(Dtype::kFloat64));
  EXPECT_EQ(products(), 1);
}

TEST_F(CudaProductsTest, FailedCallsSayWhatWasAskedForAndTheNameOfTheCode) {
  const std::pair<const char*, const char*> cases[] = {
      {"cublasLtMatmulDescCreate", "cuda: cublasLtMatmulDescCreate returned 14"},
      {"cublasLtMatmulDescSetAttribute", "cuda: cublasLtMatmulDescSetAttribute 3 returned 14"},
      {"cublasLtMatrixLayoutCreate", "cuda: cublasLtMatrixLayoutCreate returned 14"},
      {"cublasLtMatrixLayoutSetAttribute", "cuda: cublasLtMatrixLayoutSetAttribute 5 returned 14"},
      {"cublasLtMatmulPreferenceCreate", "cuda: cublasLtMatmulPreferenceCreate returned 14"},
      {"cublasLtMatmulPreferenceSetAttribute",
       "cuda: cublasLtMatmulPreferenceSetAttribute 1 returned 14"},
      {"cublasLtMatmulAlgoGetHeuristic",
       "cuda: cublasLtMatmulAlgoGetHeuristic of 2 x [128, 64] [64, 128] of float16 returned 14 "
       "(CUBLAS_STATUS_INTERNAL_ERROR)"},
      {"cublasLtMatmul", "cuda: cublasLtMatmul of 2 x [128, 64] [64, 128] of float16 returned 14 "},
  };
  fill(Dtype::kFloat16, {16384, 16384, 32768});
  for (const auto& [call, text] : cases) {
    make(calls::Gemm<Array>{.a = array_of(0, Dtype::kFloat16, {2, 128, 64}),
                            .b = array_of(1, Dtype::kFloat16, {2, 64, 128}),
                            .c = array_of(2, Dtype::kFloat16, {2, 128, 128})});
    fake()->fail(call, 0, lt::kInternalError);
    EXPECT_ERROR(run(), ErrorKind::kInternal, text);
    EXPECT_EQ(fake()->count("objects"), std::string(call) == "cublasLtMatmul" ? 6 : 1) << call;
  }
  run();  // nothing of it stays
  EXPECT_EQ(products(), 1);
}

TEST_F(CudaProductsTest, WorkspaceThatIsRefusedIsAnError) {
  const Given given = with_workspace(Dtype::kFloat32);
  check_gemm(given);
  device().empty_cache();
  fake()->fail("cuMemAlloc_v2", 0, kOutOfMemory);
  EXPECT_ERROR(
      run(), ErrorKind::kOutOfMemory,
      "cuda: no memory for 65536 bytes that gemm needs while it runs; free buffers, or use "
      "smaller tensors");
  run();
  EXPECT_EQ(products(), 2);
}

// The library that PyTorch's wheels bring, beside their NVRTC. It says much without a GPU.
class CuBlasLt : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const nvrtc = std::getenv("HOLOGRAM_NVRTC_LIBRARY");
    std::string path = nvrtc != nullptr ? nvrtc : "";
    const size_t at = path.rfind("libnvrtc.so.");
    if (at == path.npos) GTEST_SKIP() << "HOLOGRAM_NVRTC_LIBRARY names none of a wheel";
    path.replace(at, 8, "libcublasLt");
    library_ = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library_ == nullptr) GTEST_SKIP() << path << " cannot be loaded";
  }
  template <class Function>
  Function find(const std::string& name, Function) {
    const auto found = reinterpret_cast<Function>(dlsym(library_, ("cublasLt" + name).c_str()));
    EXPECT_NE(found, nullptr) << name;
    return found;
  }
  // An attribute's value, of that size alone.
  template <class Value, class Object>
  Value get(const std::string& kind, Object object, int which) {
    lt::Status (*get)(Object, int, void*, size_t, size_t*) = nullptr;
    get = find(kind + "GetAttribute", get);
    Value value = {};
    size_t written = 0;
    EXPECT_EQ(get(object, which, &value, sizeof value, &written), lt::kSuccess) << kind << which;
    EXPECT_EQ(written, sizeof value) << kind << which;
    return value;
  }

  void* library_ = nullptr;
};

TEST_F(CuBlasLt, TheRealLibraryHasEveryFunctionAndName) {
  lt::Api real;
#define HOLOGRAM_LT_EXPECT(name, parameters) find(#name, real.name);
  HOLOGRAM_LT_FUNCTIONS(HOLOGRAM_LT_EXPECT)
#undef HOLOGRAM_LT_EXPECT
  const auto name_of = find("GetStatusName", real.GetStatusName);
  ASSERT_NE(name_of, nullptr);
  EXPECT_STREQ(name_of(lt::kNotInitialized), "CUBLAS_STATUS_NOT_INITIALIZED");
  EXPECT_STREQ(name_of(lt::kAllocFailed), "CUBLAS_STATUS_ALLOC_FAILED");
  EXPECT_STREQ(name_of(lt::kInvalidValue), "CUBLAS_STATUS_INVALID_VALUE");
  EXPECT_STREQ(name_of(lt::kExecutionFailed), "CUBLAS_STATUS_EXECUTION_FAILED");
  EXPECT_STREQ(name_of(lt::kInternalError), "CUBLAS_STATUS_INTERNAL_ERROR");
  EXPECT_STREQ(name_of(lt::kNotSupported), "CUBLAS_STATUS_NOT_SUPPORTED");
}

// Attributes have the numbers, the sizes and the defaults that this expects.
TEST_F(CuBlasLt, TheRealLibraryHasTheAttributes) {
  lt::Api real;
#define HOLOGRAM_LT_FIND(name, parameters) real.name = find(#name, real.name);
  HOLOGRAM_LT_FUNCTIONS(HOLOGRAM_LT_FIND)
#undef HOLOGRAM_LT_FIND
  const int computes[][2] = {{lt::kComputeFloat32, lt::kFloat32},
                             {lt::kComputeFloat64, lt::kFloat64}};
  for (const auto& [compute, scale] : computes) {
    lt::Operation operation = nullptr;
    ASSERT_EQ(real.MatmulDescCreate(&operation, compute, scale), lt::kSuccess);
    for (const int which : {lt::kTransposeA, lt::kTransposeB}) {
      EXPECT_EQ(get<int32_t>("MatmulDesc", operation, which), lt::kPlain);
      const int32_t value = lt::kTransposed;
      EXPECT_EQ(real.MatmulDescSetAttribute(operation, which, &value, 4), lt::kSuccess);
      EXPECT_EQ(get<int32_t>("MatmulDesc", operation, which), lt::kTransposed);
    }
    EXPECT_EQ(get<int32_t>("MatmulDesc", operation, lt::kEpilogue), lt::kNoEpilogue);
    const int32_t epilogue = lt::kAddBias;
    EXPECT_EQ(real.MatmulDescSetAttribute(operation, lt::kEpilogue, &epilogue, 4), lt::kSuccess);
    EXPECT_EQ(get<const void*>("MatmulDesc", operation, lt::kBiasPointer), nullptr);
    const void* const bias = &epilogue;
    EXPECT_EQ(real.MatmulDescSetAttribute(operation, lt::kBiasPointer, &bias, 8), lt::kSuccess);
    EXPECT_EQ(get<const void*>("MatmulDesc", operation, lt::kBiasPointer), bias);
    real.MatmulDescDestroy(operation);
  }
  lt::Layout layout = nullptr;
  ASSERT_EQ(real.MatrixLayoutCreate(&layout, lt::kBFloat16, 30, 20, 33), lt::kSuccess);
  EXPECT_EQ(get<int32_t>("MatrixLayout", layout, lt::kBatchCount), 1);
  EXPECT_EQ(get<int64_t>("MatrixLayout", layout, lt::kBatchStep), 0);
  const int64_t step = 660;
  EXPECT_EQ(real.MatrixLayoutSetAttribute(layout, lt::kBatchStep, &step, 8), lt::kSuccess);
  real.MatrixLayoutDestroy(layout);
  lt::Preference preference = nullptr;
  ASSERT_EQ(real.MatmulPreferenceCreate(&preference), lt::kSuccess);
  EXPECT_EQ(get<uint64_t>("MatmulPreference", preference, lt::kMaxWorkspaceBytes), 0u);
  EXPECT_EQ(get<uint32_t>("MatmulPreference", preference, lt::kReductionSchemes), 7u);
  for (int which = lt::kMinAlignmentA; which <= lt::kMinAlignmentD; ++which) {
    EXPECT_EQ(get<uint32_t>("MatmulPreference", preference, which), 256u);
  }
  real.MatmulPreferenceDestroy(preference);
}

}  // namespace
}  // namespace hologram::cuda
