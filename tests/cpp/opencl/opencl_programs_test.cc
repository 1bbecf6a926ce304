// SPDX-License-Identifier: MIT
// Generated programs of the OpenCL device against the CPU: every row and dtype, conversions, random
// kernels; the accuracy of the driver's functions.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "hologram/functions.h"
#include "hologram/recorder.h"
#include "src/gpu/kernel_text.h"
#include "src/gpu/vocabulary.h"
#include "tests/cpp/circuit/random_tape.h"
#include "tests/cpp/cpu/random_kernel.h"
#include "tests/cpp/opencl/plan_test.h"
#include "tools/accuracy/measure.h"

namespace hologram::opencl {
namespace {

using namespace plans;
using gpu::KernelText;
using gpu::native_ops;
using gpu::Traits;

class OpenClPrograms : public PlanTest {
 protected:
  // The kernel as one kernel for each instruction, which know each other's values by memory.
  static void add_alone(const Kernel& kernel, Case& test) {
    std::vector<MemoryAccess> temps;
    const Builder domain(
        std::vector<int64_t>(kernel.shape.begin(), kernel.shape.begin() + kernel.ndim));
    for (const circuit::Temp& temp : kernel.temps) {
      Strides strides(static_cast<size_t>(kernel.ndim), 0);
      if (temp.rank == Rank::kFull) strides = domain.contiguous();
      if (temp.rank == Rank::kRow) strides = domain.rows();
      MemoryAccess access;
      access.slot = static_cast<uint32_t>(test.slots.size());
      access.dtype = temp.dtype;
      access.rank = temp.rank;
      std::copy(strides.begin(), strides.end(), access.strides.begin());
      temps.push_back(access);
      const auto bytes = static_cast<size_t>(kernel.numel()) * itemsize(temp.dtype);
      test.slots.emplace_back(bytes + 64);
      test.dtypes.push_back(temp.dtype);
    }
    for (const Instr& instr : kernel.instrs) {
      Kernel alone = kernel;
      alone.accesses.clear();
      alone.temps.clear();
      alone.instrs = {instr};
      const auto place = [&](Ref& ref, bool stores) {
        if (ref.kind == Ref::kImmediate) return;
        MemoryAccess access =
            ref.kind == Ref::kTemp ? temps[ref.index] : kernel.accesses[ref.index];
        access.loaded = !stores;
        access.stored = stores;
        alone.accesses.push_back(access);
        ref = {Ref::kAccess, static_cast<uint32_t>(alone.accesses.size() - 1)};
      };
      Instr& only = alone.instrs[0];
      for (int k = 0; k < only.arity; ++k) place(only.in[k], false);
      place(only.out, true);
      alone.whole_rows = wants_whole_rows(alone);
      // Each needs those before it.
      alone.stage = static_cast<int>(test.plan.kernels.size());
      test.plan.kernels.push_back(std::move(alone));
    }
    test.plan.slots = static_cast<int>(test.slots.size());
  }

  // Fusing changes nothing: a kernel has the bits of its instructions one by one.
  static void expect_unfused_bits(Case& test, const std::string& what) {
    Case alone;
    alone.slots = test.slots;
    alone.dtypes = test.dtypes;
    alone.immediates = test.immediates;
    for (const Kernel& kernel : test.plan.kernels) add_alone(kernel, alone);
    const auto want = run(alone), got = run(test);
    for (size_t s = 0; s < got.size(); ++s) {
      const int64_t i = first_difference(test.dtypes[s], got[s], want[s]);
      ASSERT_EQ(i, -1) << what << ": slot " << s << " of " << dtype_name(test.dtypes[s])
                       << " differs at " << i << "\n"
                       << print_plan(test.plan);
    }
  }

  static void expect_cpu_bits(Case& test, const std::string& what) {
    auto want = test.slots;
    std::vector<char*> at;
    const circuit::Bindings bindings = Case::bind(want, at, test.immediates);
    for (const Kernel& kernel : test.plan.kernels) Unfused(kernel, bindings).run();
    const auto got = run(test);
    for (size_t s = 0; s < got.size(); ++s) {
      const int64_t i = first_difference(test.dtypes[s], got[s], want[s]);
      ASSERT_EQ(i, -1) << what << ": slot " << s << " of " << dtype_name(test.dtypes[s])
                       << " differs at " << i << "\n"
                       << print_plan(test.plan);
    }
  }
};

const std::vector<Dtype> kAllDtypes = {
    Dtype::kBool,  Dtype::kUInt8,   Dtype::kInt8,     Dtype::kInt16,   Dtype::kInt32,
    Dtype::kInt64, Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat64};

std::vector<KernelText> texts_of(const Kernel& kernel, const Traits& traits) {
  return gpu::kernel_texts(kernel, traits, native_ops(traits));
}

// Words of the device's own, not the driver's: what is exact on the CPU is so here, bit for bit. A
// product is added in one rounding by both where the CPU can.
bool is_reproduced(const OpInfo& row) {
  if (row.accuracy == Accuracy::kExact) return true;
  return row.accuracy == Accuracy::kSteps && !row.is_heavy() && current_isa() != Isa::kBaseline;
}

const std::vector<OpId>& reproduced_ops() {
  static const std::vector<OpId> list = [] {
    std::vector<OpId> ops_found;
    for (const OpInfo& row : ops()) {
      if (is_reproduced(row)) ops_found.push_back(row.id);
    }
    return ops_found;
  }();
  return list;
}

// One kernel of all such rows for each stored dtype: a program takes a driver a while to build.
TEST_F(OpenClPrograms, EveryExactRowHasTheCpusBitsInEveryDtypeAndLayout) {
  Random random(7);
  const std::vector<int64_t> shape = {7, 5, 3, 11};
  const int64_t n = 7 * 5 * 3 * 11;
  size_t rows = 0;
  for (const Dtype dtype : kAllDtypes) {
    const Dtype compute = compute_dtype(dtype);
    Case test;
    Builder builder(shape);
    std::vector<Ref> inputs;
    for (int k = 0; k < 4; ++k) {
      int64_t extent = n;
      Strides strides = builder.contiguous();
      // The last but one is the same along rows.
      if (k > 0) strides = random_strides(random, shape, {false, false, false, k == 2}, extent);
      const Ref in = builder.access(test.slot(random, dtype, extent), dtype, strides,
                                    k == 2 ? Rank::kRow : Rank::kFull);
      inputs.push_back(dtype == compute ? in : builder.convert_temp(in, compute));
    }
    for (const OpId op : reproduced_ops()) {
      const OpInfo& info = op_info(op);
      if (!info.supports(compute)) continue;
      ++rows;
      const Dtype natural = info.result_is_bool ? Dtype::kBool : compute;
      const Ref out = builder.dense(test.slot(random, natural, n), natural);
      builder.op(op, compute, std::vector<Ref>(inputs.begin(), inputs.begin() + info.arity), out);
    }
    test.add(builder);
    ASSERT_FALSE(texts_of(test.plan.kernels[0], {.has_double = true}).empty());
    expect_cpu_bits(test, std::string(dtype_name(dtype)));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(rows, 250u);
}

// Every value of the half types, and numbers of the others that all dtypes have a meaning for.
void fill_convertible(Random& random, Dtype dtype, std::vector<char>& bytes, int64_t n) {
  const auto size = static_cast<int64_t>(itemsize(dtype));
  for (int64_t i = 0; i < n; ++i) {
    char* const at = bytes.data() + i * size;
    const auto bits = static_cast<uint16_t>(i);
    if (size == 2 && is_floating(dtype)) std::memcpy(at, &bits, 2);
    if (dtype == Dtype::kFloat32) {
      const uint32_t wide = uint32_t{bits} << 16 | static_cast<uint32_t>(random() & 0xffff);
      std::memcpy(at, &wide, 4);
    }
    if (!is_floating(dtype)) continue;
    double value;
    convert(dtype, at, Dtype::kFloat64, &value, 1);
    const double small = std::fmod(value, 0x1p30);
    if (!(std::fabs(value) < 0x1p31)) convert(Dtype::kFloat64, &small, dtype, at, 1);
    if (std::isinf(value)) std::memset(at, 0, static_cast<size_t>(size));
  }
}

TEST_F(OpenClPrograms, ConversionsBetweenAllDtypesHaveTheCpusBits) {
  Random random(11);
  constexpr int64_t kCount = 66'000;
  for (size_t half = 0; half < 2; ++half) {
    Case test;
    Builder builder({kCount});
    for (size_t d = half; d < kAllDtypes.size(); d += 2) {
      const Dtype from = kAllDtypes[d];
      const uint32_t slot = test.slot(random, from, kCount);
      fill_convertible(random, from, test.slots[slot], kCount);
      const Ref in = builder.dense(slot, from);
      for (const Dtype to : kAllDtypes) {
        if (to == from) continue;
        builder.convert(in, from, builder.dense(test.slot(random, to, kCount), to));
      }
    }
    test.add(builder);
    ASSERT_FALSE(texts_of(test.plan.kernels[0], {.has_double = true}).empty());
    expect_cpu_bits(test, "conversions");
    if (HasFatalFailure()) return;
  }
}

// Operands in any order, of sizes that fill blocks of elements and of some that do not.
TEST_F(OpenClPrograms, BlocksHaveTheBitsOfElements) {
  const std::vector<std::vector<int64_t>> shapes = {
      {4},      {7},        {1021},     {4, 4},     {5, 9},     {33, 70},      {3, 130},
      {130, 3}, {8, 5, 36}, {36, 5, 8}, {16, 1, 9}, {64, 4, 4}, {2, 3, 4, 40}, {40, 2, 6, 3}};
  for (unsigned seed = 0; seed < 2 * shapes.size(); ++seed) {
    Random random(seed);
    const std::vector<int64_t>& shape = shapes[seed % shapes.size()];
    Case test;
    Builder builder(shape);
    const auto compute = std::array{Dtype::kFloat32, Dtype::kFloat64, Dtype::kInt32}[seed % 3];
    // An operand; of a result no element is another's.
    const auto access = [&](Dtype dtype, bool is_result) {
      std::vector<bool> repeated(shape.size());
      for (size_t d = 0; d < shape.size(); ++d) repeated[d] = !is_result && pick(random, 0, 5) == 0;
      int64_t extent = 0;
      const Strides strides = random_strides(random, shape, repeated, extent);
      const bool is_one =
          std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s == 0; });
      const int64_t lead = std::array{0, 0, 1, 4}[static_cast<size_t>(pick(random, 0, 3))];
      return builder.access(test.slot(random, dtype, extent + lead), dtype, strides,
                            is_one && !is_result ? Rank::kOne : Rank::kFull,
                            lead * static_cast<int64_t>(itemsize(dtype)));
    };
    std::vector<Ref> values;
    for (int k = 0; k < 4; ++k) {
      const Dtype stored = k == 0 ? compute : kAllDtypes[static_cast<size_t>(pick(random, 0, 9))];
      const Ref in = access(stored, k == 0);
      values.push_back(stored == compute ? in : builder.convert_temp(in, compute));
    }
    const Ref sum = builder.temp(compute), product = builder.temp(compute);
    builder.op(OpId::add, compute, {values[0], values[1]}, sum);
    builder.op(OpId::mul, compute, {sum, values[2]}, product);
    const Dtype other = kAllDtypes[static_cast<size_t>(pick(random, 0, 9))];
    builder.convert(product, compute, access(other, true));
    // At times in place.
    builder.op(OpId::maximum, compute, {product, values[3]},
               pick(random, 0, 1) == 0 ? values[0] : access(compute, true));
    test.add(builder);
    expect_cpu_bits(test, "seed " + std::to_string(seed));
    if (HasFatalFailure()) return;
  }
}

// As torch.cat() has them; what one instruction stores another reads by another way.
TEST_F(OpenClPrograms, BlocksStorePartsOfASlot) {
  for (const bool reads_bits : {false, true}) {
    Random random(5);
    Case test;
    Builder builder({5, 9});
    const uint32_t slot = test.slot(random, Dtype::kFloat32, 90);
    const Ref in = builder.dense(test.slot(random, Dtype::kFloat32, 45), Dtype::kFloat32);
    const auto part = [&](Dtype dtype, int64_t offset) {
      return builder.access(slot, dtype, builder.contiguous(), Rank::kFull, offset);
    };
    builder.op(OpId::neg, Dtype::kFloat32, {in}, part(Dtype::kFloat32, 0));
    builder.op(OpId::abs, Dtype::kFloat32, {in}, part(Dtype::kFloat32, 45 * 4));
    if (reads_bits) {
      builder.op(OpId::bitwise_not, Dtype::kInt32, {part(Dtype::kInt32, 0)},
                 builder.dense(test.slot(random, Dtype::kInt32, 45), Dtype::kInt32));
    }
    test.add(builder);
    const std::string text = gpu::source_of(texts_of(test.plan.kernels[0], {})[0]);
    EXPECT_EQ(text.find("Wide4_f32") == std::string::npos, reads_bits) << text;
    expect_cpu_bits(test, "parts");
  }
}

TEST_F(OpenClPrograms, NumbersAreArguments) {
  Random random(3);
  Case test;
  Builder builder({100});
  for (const Dtype dtype : kAllDtypes) {
    if (compute_dtype(dtype) != dtype) continue;
    const Ref in = builder.dense(test.slot(random, dtype, 100), dtype);
    const Ref filled = builder.dense(test.slot(random, dtype, 100), dtype);
    builder.convert(Builder::immediate(test.immediate(dtype, 1)), dtype, filled);
    builder.op(OpId::maximum, dtype, {in, Builder::immediate(test.immediate(dtype, 0))},
               builder.dense(test.slot(random, dtype, 100), dtype));
  }
  test.add(builder);
  expect_cpu_bits(test, "numbers");
}

TEST_F(OpenClPrograms, ReuseOneTextForOtherShapesMemoryAndNumbers) {
  const auto source = [](std::vector<int64_t> shape, int64_t offset, double value) {
    Random random(3);
    Case test;
    Builder builder(std::move(shape));
    const Ref in = builder.access(test.slot(random, Dtype::kFloat32, 4096), Dtype::kFloat32,
                                  builder.contiguous(), Rank::kFull, offset);
    builder.op(OpId::mul, Dtype::kFloat32,
               {in, Builder::immediate(test.immediate(Dtype::kFloat32, value))},
               builder.dense(test.slot(random, Dtype::kFloat32, 4096), Dtype::kFloat32));
    test.add(builder);
    return gpu::source_of(texts_of(test.plan.kernels[0], {})[0]);
  };
  EXPECT_EQ(source({100}, 0, 2), source({3, 7}, 64, 5));
}

TEST_F(OpenClPrograms, WhatADeviceLacksIsForTheHost) {
  Random random(3);
  Case test;
  Builder doubles({10}), folds({2, 5}, true);
  doubles.op(OpId::neg, Dtype::kFloat64,
             {doubles.dense(test.slot(random, Dtype::kFloat64, 10), Dtype::kFloat64)},
             doubles.dense(test.slot(random, Dtype::kFloat64, 10), Dtype::kFloat64));
  EXPECT_TRUE(texts_of(doubles.kernel, {.has_double = false}).empty());
  EXPECT_FALSE(texts_of(doubles.kernel, {.has_double = true}).empty());
  const Ref x = folds.dense(test.slot(random, Dtype::kFloat32, 10), Dtype::kFloat32);
  folds.fold(Reduction::sum, x,
             folds.access(test.slot(random, Dtype::kFloat32, 2), Dtype::kFloat32, folds.rows(),
                          Rank::kRow));
  EXPECT_FALSE(texts_of(folds.kernel, {.has_double = true}).empty());
}

// An op is the device's or the host's in whatever plan: every kernel of elementwise work that plans
// for a device have is text, or has nothing but what the device lacks.
TEST_F(OpenClPrograms, PlansHaveNoKernelOfBothSides) {
  const circuit::NativeOps native = native_ops({});
  ASSERT_TRUE(native.has(OpId::mul, Dtype::kFloat32));
  ASSERT_FALSE(native.has(OpId::mul, Dtype::kFloat64));
  circuit::PlanOptions options;
  options.limits = {.max_arguments = gpu::max_arguments({.parameter_bytes = 256}),
                    .native = &native,
                    .fuse_reductions = false,
                    .fuse_row_functions = false,
                    .call_result = circuit::testing::no_result};
  int texts = 0, others = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    circuit::testing::RandomTape program(seed);
    const auto plan = make_plan(program.tape().words(), program.states(), options);
    for (const Kernel& kernel : plan->kernels) {
      const bool is_elementwise =
          std::all_of(kernel.instrs.begin(), kernel.instrs.end(),
                      [](const Instr& i) { return i.is_op() || i.code == circuit::kCodeConvert; });
      if (kernel.call != nullptr || !is_elementwise) continue;
      // All that it computes with is what memory holds, or what that is converted to.
      bool doubles = false;
      for (const auto& access : kernel.accesses) doubles |= access.dtype == Dtype::kFloat64;
      for (const Instr& instr : kernel.instrs) doubles |= instr.compute == Dtype::kFloat64;
      EXPECT_EQ(texts_of(kernel, {}).empty(), doubles) << print_plan(*plan);
      ++(doubles ? others : texts);
    }
  }
  EXPECT_GT(texts, 2000);
  EXPECT_GT(others, 200);
}

// Equal kernels of one stage are one launch, which finds for each group whose it is.
TEST_F(OpenClPrograms, EqualKernelsInOneLaunchHaveTheirOwnBits) {
  const auto bits = [](int count, bool folds, bool at_once) {
    Random random(11);
    Case test;
    for (int i = 0; i < count; ++i) {
      // Sizes on both sides of a group's; rows that as many items share.
      const int64_t rows = pick(random, 1, 40), cols = pick(random, 17, 128);
      Builder builder({rows, cols}, folds);
      const uint32_t in = test.slot(random, Dtype::kFloat32, rows * cols);
      const uint32_t out = test.slot(random, Dtype::kFloat32, rows * cols);
      const Ref x = builder.dense(in, Dtype::kFloat32), y = builder.dense(out, Dtype::kFloat32);
      if (folds) {
        const Ref sum = builder.fold_temp(Reduction::sum, x, Dtype::kFloat32);
        builder.op(OpId::add, Dtype::kFloat32, {x, sum}, y);
      } else {
        const Ref number = Builder::immediate(test.immediate(Dtype::kFloat32, i - 3.5));
        builder.op(OpId::fma, Dtype::kFloat32, {x, number, x}, y);
      }
      test.add(builder, at_once ? 0 : i, i);
    }
    return run(test);
  };
  for (const int count : {2, 3, 8, 45}) {
    for (const bool folds : {false, true}) {
      EXPECT_EQ(bits(count, folds, true), bits(count, folds, false)) << count << " kernels";
    }
  }
}

// Random programs with reductions and functions of rows; kernels see each other's results.
TEST_F(OpenClPrograms, RandomKernelsEqualTheirInstructions) {
  const char* seed = std::getenv("HOLOGRAM_TEST_SEED");
  const char* trials = std::getenv("HOLOGRAM_TEST_TRIALS");
  const int first = seed != nullptr ? std::atoi(seed) : 0;
  const uint64_t before = gpu().host_kernels();
  for (int trial = 0; trial < (trials != nullptr ? std::atoi(trials) : 6) && !HasFailure();
       ++trial) {
    Random random(static_cast<unsigned>(first + trial));
    Case test;
    const int count = pick(random, 1, 3);
    for (int i = 0; i < count; ++i) {
      test.add(RandomKernel(random, test, reproduced_ops()).make(), 2 * i, i);
    }
    expect_unfused_bits(test, "seed " + std::to_string(first + trial));
  }
  EXPECT_EQ(gpu().host_kernels(), before);
}

// Every reduction in every dtype, over rows of lengths on both sides of where another number of
// items shares one, against the CPU in float64.
TEST_F(OpenClPrograms, ReductionsAreAccurate) {
  Random random(9);
  constexpr int64_t kRows = 9;
  for (const int64_t cols : {1, 3, 16, 17, 128, 129, 2048, 2049, 6000}) {
    for (const Dtype dtype : {Dtype::kBool, Dtype::kUInt8, Dtype::kInt32, Dtype::kInt64,
                              Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat64}) {
      if (cols != 1 && cols != 17 && cols != 129 && dtype != Dtype::kFloat32) continue;
      Case test;
      Builder builder({kRows, cols}, true);
      const uint32_t slot = test.slot(random, dtype, kRows * cols);
      const Ref x = builder.dense(slot, dtype);
      // Numbers of a size: what is lost beside a huge one is not measured.
      if (is_floating(dtype)) {
        std::normal_distribution<double> normal(0.5);
        for (int64_t i = 0; i < kRows * cols; ++i) {
          const double value = normal(random);
          convert(Dtype::kFloat64, &value, dtype,
                  test.slots[slot].data() + i * static_cast<int64_t>(itemsize(dtype)), 1);
        }
      }
      struct Fold {
        Reduction op;
        double parameter;
        uint32_t slot;
        Dtype out;
      };
      std::vector<Fold> folds;
      const auto add = [&](Reduction op, double parameter) {
        const auto result = reduction_info(op).result;
        Dtype out = dtype;
        if (result == ReductionInfo::kBool) out = Dtype::kBool;
        if (result == ReductionInfo::kFloat && !is_floating(dtype)) out = Dtype::kFloat32;
        if (result == ReductionInfo::kOut && !is_floating(dtype)) out = Dtype::kInt64;
        folds.push_back({op, parameter, test.slot(random, out, kRows), out});
        Instr& instr = builder.add(
            circuit::kCodeReduction, result == ReductionInfo::kIn ? dtype : compute_dtype(out), {x},
            builder.access(folds.back().slot, out, builder.rows(), Rank::kRow));
        instr.attr = static_cast<uint16_t>(op);
        instr.parameter = parameter;
      };
      for (int r = 0; r < kReductionCount; ++r) {
        const auto op = static_cast<Reduction>(r);
        const bool floats_only = op == Reduction::logsumexp || op == Reduction::norm ||
                                 op == Reduction::var || op == Reduction::std;
        if (is_positional(op) || (floats_only && !is_floating(dtype))) continue;
        if (op == Reduction::prod && is_floating(dtype) && cols > 17) continue;
        if (op != Reduction::norm) add(op, 1);
        for (const double p : {0.0, 1.0, 2.0, 3.0, double{INFINITY}, -double{INFINITY}}) {
          if (op == Reduction::norm) add(op, p);
        }
      }
      test.add(builder);
      const auto got = run(test);
      const int64_t shape[2] = {kRows, cols}, strides[2] = {cols, 1}, one = 1;
      std::vector<double> wide(static_cast<size_t>(kRows * cols));
      convert(dtype, test.slots[slot].data(), Dtype::kFloat64, wide.data(), kRows * cols);
      double largest = 1;
      for (const double value : wide) largest = std::max(largest, std::fabs(value));
      for (const Fold& fold : folds) {
        const bool exact =
            !is_floating(fold.out) || reduction_info(fold.op).result == ReductionInfo::kIn;
        const Dtype reference = exact ? fold.out : Dtype::kFloat64;
        const View in = exact ? View{test.slots[slot].data(), dtype, 2, shape, strides}
                              : View{wide.data(), Dtype::kFloat64, 2, shape, strides};
        std::vector<char> want(kRows * itemsize(reference));
        const int dims[1] = {1};
        ReduceOptions options;
        options.p = options.correction = fold.parameter;
        reduce(fold.op, in, dims, {want.data(), reference, 1, &kRows, &one}, options);
        for (int64_t row = 0; row < kRows; ++row) {
          const auto at = [&](const std::vector<char>& bytes, Dtype of) {
            double value;
            convert(of, bytes.data() + row * static_cast<int64_t>(itemsize(of)), Dtype::kFloat64,
                    &value, 1);
            return value;
          };
          const double given = at(got[fold.slot], fold.out), right = at(want, reference);
          const double rounding = fold.out == Dtype::kFloat64    ? 1e-13
                                  : fold.out == Dtype::kBFloat16 ? 0x1p-8
                                                                 : 3e-6;
          const double most = exact ? 0 : rounding * std::max(largest, std::fabs(right));
          const bool equal = given == right || (given != given && right != right);
          EXPECT_TRUE(equal || std::fabs(given - right) <= most)
              << reduction_name(fold.op) << "(" << fold.parameter << ") of " << cols << " "
              << dtype_name(dtype) << ": " << given << ", not " << right;
        }
      }
    }
  }
}

// The widest error, in ULP, that OpenCL lets a driver make in what a row is made of, where that is
// wider than what the row promises on the CPU; 0 where it is not. Drivers are usually better.
double driver_ulp(OpId op, Dtype compute) {
  // Table 7.2 of the specification, and what composed words make of it.
  struct Bound {
    OpId op;
    double f32, f64;
  };
  static constexpr Bound kBounds[] = {
      {OpId::exp, 3, 3},   {OpId::exp2, 3, 3},  {OpId::log, 3, 3},       {OpId::log2, 3, 3},
      {OpId::log10, 3, 3}, {OpId::sin, 4, 4},   {OpId::cos, 4, 4},       {OpId::tan, 5, 5},
      {OpId::tanh, 5, 5},  {OpId::erf, 16, 16}, {OpId::pow, 16, 16},     {OpId::sigmoid, 0, 5},
      {OpId::silu, 0, 9},  {OpId::gelu, 0, 20}, {OpId::gelu_tanh, 0, 9}, {OpId::softplus, 0, 7}};
  for (const Bound& bound : kBounds) {
    if (bound.op == op) return compute == Dtype::kFloat64 ? bound.f64 : bound.f32;
  }
  return 0;
}

// Rows of the driver's functions in one plan, each on operands of its own.
template <class T>
struct AccuracyCase {
  static constexpr Dtype kDtype = sizeof(T) == 4 ? Dtype::kFloat32 : Dtype::kFloat64;
  static constexpr accuracy::Effort kEffort = {
      .unary32 = 1 << 15, .unary64 = 33'000, .tuples = 36'000};
  static constexpr int64_t kCount = 48'000;

  struct Row {
    const OpInfo* info;
    std::vector<uint32_t> slots;  // of the operands, then of the result
  };

  void add(const OpInfo& info) {
    accuracy::Sampler<T> sampler(info, kEffort);
    std::vector<std::vector<T>> operands(info.arity, std::vector<T>(kCount));
    const int64_t filled = sampler.fill(operands, kCount);
    EXPECT_LT(filled, kCount);  // all of them
    for (int64_t i = filled; i < kCount; ++i) add_delicate(info, operands, i);
    Row row{&info, {}};
    std::vector<Ref> in;
    for (const std::vector<T>& values : operands) {
      row.slots.push_back(test.slot(random, kDtype, kCount));
      std::memcpy(test.slots.back().data(), values.data(), kCount * sizeof(T));
      in.push_back(builder.dense(row.slots.back(), kDtype));
    }
    row.slots.push_back(test.slot(random, kDtype, kCount));
    builder.op(info.id, kDtype, in, builder.dense(row.slots.back(), kDtype));
    rows.push_back(std::move(row));
  }

  // Where functions of exponentials bend, and where their results vanish.
  void add_delicate(const OpInfo& info, std::vector<std::vector<T>>& operands, int64_t i) {
    const auto at = static_cast<size_t>(i);
    const auto uniform = [&](double low, double high) {
      return static_cast<T>(std::uniform_real_distribution<double>(low, high)(random));
    };
    const double kRanges[][2] = {{-14.5, -10}, {-6, 6}, {-110, -85}, {-200, 200}};
    const auto& range = kRanges[i % 4];
    for (int k = 0; k < info.arity; ++k) operands[static_cast<size_t>(k)][at] = T(1);
    // The gradient comes first.
    const bool backward = info.name.ends_with("_backward");
    operands[backward ? 1 : 0][at] = uniform(range[0], range[1]);
    if (info.id == OpId::softplus || info.id == OpId::softplus_backward) {
      // In float64 the product with beta is rounded.
      operands[backward ? 2 : 1][at] = sizeof(T) == 4 ? uniform(0.01, 3) : T(0.5);
      operands[backward ? 3 : 2][at] = T(20);
    }
  }

  void expect_accurate(const std::vector<std::vector<char>>& got) const {
    using R = accuracy::Wider<T>;
    for (const Row& row : rows) {
      const OpInfo& info = *row.info;
      const double stated = sizeof(T) == 4 ? info.ulp32 : info.ulp64;
      const double bound = std::max(stated, driver_ulp(info.id, kDtype));
      double worst = 0;
      std::ostringstream where;
      for (int64_t i = 0; i < kCount; ++i) {
        const auto at = [&](uint32_t slot) {
          T value;
          std::memcpy(&value, got[slot].data() + i * static_cast<int64_t>(sizeof value),
                      sizeof value);
          return value;
        };
        R x[4] = {}, largest = 0;
        for (int k = 0; k < info.arity; ++k) {
          x[k] = at(row.slots[static_cast<size_t>(k)]);
          if (std::isfinite(x[k])) largest = std::max(largest, std::fabs(x[k]));
        }
        const R want = ref::evaluate(info.id, x);
        R scale = info.accuracy == Accuracy::kSteps ? std::max(largest, std::fabs(want)) : want;
        if (!std::isfinite(scale)) scale = std::numeric_limits<T>::max();
        const bool signs_zero = info.accuracy == Accuracy::kUlp && info.arity == 1;
        const double error =
            accuracy::error_in_ulp<T>(at(row.slots.back()), want, scale, signs_zero);
        if (error <= worst) continue;
        worst = error;
        where.str("");
        where << x[0] << ", " << x[1] << ": got " << at(row.slots.back()) << ", want " << want;
      }
      EXPECT_LE(worst, bound) << info.name << " of " << dtype_name(kDtype) << " at " << where.str();
    }
  }

  Random random{5};
  Case test;
  Builder builder{{kCount}};
  std::vector<Row> rows;
};

template <class T, class Run>
void expect_all_accurate(Run&& run) {
  const circuit::NativeOps native = native_ops({.has_double = true});
  std::vector<const OpInfo*> list;
  for (const OpInfo& info : ops()) {
    if (is_reproduced(info) || !ref::has_reference(info.id)) continue;
    EXPECT_TRUE(native.has(info.id, AccuracyCase<T>::kDtype)) << info.name;
    list.push_back(&info);
  }
  // As many a kernel as its arguments are sure to be taken.
  for (size_t first = 0; first < list.size(); first += 16) {
    AccuracyCase<T> made;
    for (size_t i = first; i < std::min(first + 16, list.size()); ++i) made.add(*list[i]);
    made.test.add(made.builder);
    ASSERT_FALSE(texts_of(made.test.plan.kernels[0], {.has_double = true}).empty());
    made.expect_accurate(run(made.test));
  }
}

// The other rows: as accurate as the table says, or as OpenCL asks of a driver where that is less.
TEST_F(OpenClPrograms, OtherRowsAreAsAccurateAsStated) {
  expect_all_accurate<float>([](Case& test) { return run(test); });
  expect_all_accurate<double>([](Case& test) { return run(test); });
}

}  // namespace
}  // namespace hologram::opencl
