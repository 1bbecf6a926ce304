// SPDX-License-Identifier: MIT
// Programs over parts of arrays: what is left of copies of which a part is written again, values
// that are computed where parts of them are read, and who shares a kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "src/circuit/graph.h"
#include "src/circuit/plan.h"
#include "src/circuit/plan_cache.h"
#include "tests/cpp/circuit/interpreter.h"

namespace hologram::circuit {
namespace {

constexpr int64_t kDims = 3;

constexpr int64_t kNever = INT64_MAX;

PlanOptions options_with(int64_t least_trimmed_copy, int64_t least_in_parts = kNever) {
  PlanOptions options;
  options.limits.least_trimmed_copy = least_trimmed_copy;
  options.limits.least_in_parts = least_in_parts;
  options.limits.shared_places = 8;
  return options;
}

// Records over arrays of one shape, each of which has a slot.
class Arrays {
 public:
  Arrays(int64_t planes, int64_t rows, int64_t cols, int slots, Dtype dtype = Dtype::kFloat32)
      : shape_{planes, rows, cols}, dtype_(dtype), states_(static_cast<size_t>(slots), 0) {
    std::mt19937 random(7);
    for (int s = 0; s < slots; ++s) {
      testing::Memory::value_type bytes(static_cast<size_t>(elements()) * itemsize(dtype));
      for (int64_t i = 0; i < elements(); ++i) {
        const double number = static_cast<int>(random() % 33) - 16;
        testing::write(bytes.data() + i * static_cast<int64_t>(itemsize(dtype)), dtype, number / 4);
      }
      memory_.push_back(std::move(bytes));
    }
  }

  int64_t elements() const { return shape_[0] * shape_[1] * shape_[2]; }
  int64_t extent(int d) const { return shape_[d]; }
  void keep(int slot) { states_[static_cast<size_t>(slot)] = kSlotLive; }

  // Operand 0 is the result. Each is a box of the same extents, at its own place.
  struct Box {
    int slot;
    int64_t at[kDims] = {};
    bool is_number = false;
  };
  void op(uint16_t code, const int64_t (&extents)[kDims], const std::vector<Box>& boxes) {
    Record r;
    r.code = code;
    r.arity = static_cast<uint8_t>(boxes.size() - 1);
    r.compute = dtype_;
    uint64_t bits[kMaxArity + 1] = {};
    const bool whole = std::equal(extents, extents + kDims, shape_);
    r.ndim = whole ? 1 : kDims;
    r.shape[0] = elements();
    if (!whole) std::copy_n(extents, kDims, r.shape);
    for (size_t k = 0; k < boxes.size(); ++k) {
      TapeOperand& o = r.operands[k];
      o.dtype = dtype_;
      const Box& box = boxes[k];
      if (box.is_number) {
        o.kind = OperandKind::kImmediate;
        testing::write(reinterpret_cast<char*>(&bits[k]), dtype_, 0.75);
        continue;
      }
      o.slot = static_cast<uint32_t>(box.slot);
      const int64_t strides[kDims] = {shape_[1] * shape_[2], shape_[2], 1};
      for (int d = 0; d < kDims; ++d) {
        o.offset += box.at[d] * strides[d] * static_cast<int64_t>(itemsize(dtype_));
        r.strides[k][d] = whole ? 1 : strides[d];
      }
    }
    tape_.append(r, bits);
  }
  void copy(int to, int from) { op(kCodeConvert, shape_, {{to}, {from}}); }

  Size left_out(int64_t least_bytes = 0) const {
    return make_graph(tape_.words(), states_, options_with(least_bytes)).left_out;
  }
  PlanCache::Found get(PlanCache& cache, const PlanOptions& options) const {
    std::vector<uint64_t> states((states_.size() + 7) / 8);
    std::copy(states_.begin(), states_.end(), reinterpret_cast<uint8_t*>(states.data()));
    return cache.get({&cache, tape_.words(), states, options, states_.size()});
  }
  std::unique_ptr<Plan> plan(const PlanOptions& options) const {
    return make_plan(tape_.words(), states_, options);
  }
  std::unique_ptr<Plan> plan(int64_t least_bytes = 0) const {
    return plan(options_with(least_bytes));
  }

  // Whether what is alive ends up as if the records ran one by one.
  ::testing::AssertionResult is_right(std::mt19937& random,
                                      const PlanOptions& options = options_with(0)) const {
    testing::Memory expected = memory_, actual = memory_;
    testing::run_tape(tape_.words(), tape_.immediates(), expected);
    const auto made = plan(options);
    testing::run_plan(*made, tape_.immediates(), actual, random);
    for (size_t s = 0; s < states_.size(); ++s) {
      if ((states_[s] & kSlotLive) == 0 || actual[s] == expected[s]) continue;
      return ::testing::AssertionFailure() << "slot " << s << "\n"
                                           << print_tape(tape_.words()) << print_plan(*made);
    }
    return ::testing::AssertionSuccess();
  }

 private:
  int64_t shape_[kDims];
  Dtype dtype_;
  Tape tape_;
  testing::Memory memory_;
  std::vector<uint8_t> states_;
};

constexpr auto kAdd = static_cast<uint16_t>(OpId::add);

// r = u.clone(); r[inner] = u[shifted] + u[shifted]
Arrays border(int64_t planes, int64_t rows, int64_t cols) {
  Arrays a(planes, rows, cols, 2);
  a.keep(0), a.keep(1);
  a.copy(1, 0);
  const int64_t p = planes > 2 ? 1 : 0;
  const int64_t inner[] = {planes - 2 * p, rows - 2, cols - 2};
  a.op(kAdd, inner, {{1, {p, 1, 1}}, {0, {p, 0, 1}}, {0, {p, 2, 1}}});
  return a;
}

TEST(TrimCopies, OnlyTheBorderIsCopied) {
  std::mt19937 random(1);
  const Arrays flat = border(1, 20, 40);
  EXPECT_EQ(flat.left_out(), Size(18 * 38 * 8));
  EXPECT_EQ(flat.plan()->stats.kernels, 4);  // above, below, between the rows, and the sum
  EXPECT_EQ(flat.plan()->stats.ops, 2);
  EXPECT_TRUE(flat.is_right(random));

  const Arrays deep = border(20, 20, 40);
  EXPECT_EQ(deep.left_out(), Size(18 * 18 * 38 * 8));
  EXPECT_EQ(deep.plan()->stats.kernels, 5);
  EXPECT_TRUE(deep.is_right(random));

  const int64_t bytes = 20 * 40 * 4;
  EXPECT_EQ(flat.left_out(bytes), Size(18 * 38 * 8));
  EXPECT_EQ(flat.left_out(bytes + 1), Size(0));
  EXPECT_EQ(flat.plan(bytes + 1)->stats.kernels, 1 + 1);
}

TEST(TrimCopies, WhatWasReadOrChangedMeanwhileIsCopied) {
  std::mt19937 random(1);
  const int64_t inner[] = {1, 18, 38}, all[] = {1, 20, 40};
  const Arrays::Box number{0, {}, true};
  {
    Arrays a(1, 20, 40, 3);  // the copy is read as a whole before the write
    a.keep(1), a.keep(2);
    a.copy(1, 0);
    a.op(kAdd, all, {{2}, {1}, number});
    a.op(kAdd, inner, {{1, {0, 1, 1}}, {0, {0, 1, 1}}, number});
    EXPECT_EQ(a.left_out(), Size(0));
    EXPECT_TRUE(a.is_right(random));
  }
  {
    Arrays a(1, 20, 40, 2);  // what was copied changes before the write
    a.keep(0), a.keep(1);
    a.copy(1, 0);
    a.op(kAdd, all, {{0}, {0}, number});
    a.op(kAdd, inner, {{1, {0, 1, 1}}, {0, {0, 1, 1}}, number});
    EXPECT_EQ(a.left_out(), Size(0));
    EXPECT_TRUE(a.is_right(random));
  }
  {
    Arrays a(1, 20, 40, 2);  // r[inner] += 0.75 reads what was copied, which has not changed
    a.keep(1);
    a.copy(1, 0);
    a.op(kAdd, inner, {{1, {0, 1, 1}}, {1, {0, 1, 1}}, number});
    EXPECT_EQ(a.left_out(), Size(18 * 38 * 8));
    EXPECT_TRUE(a.is_right(random));
  }
  {
    Arrays a(1, 20, 40,
             3);  // a value that is in no memory: it would have to be there for its border
    a.keep(1);
    a.op(kAdd, all, {{2}, {0}, number});
    a.copy(1, 2);
    a.op(kAdd, inner, {{1, {0, 1, 1}}, {0, {0, 1, 1}}, number});
    EXPECT_EQ(a.left_out(), Size(0));
    EXPECT_TRUE(a.is_right(random));
  }
}

// Two sums of rows above and below each other, which share three rows of one array.
Arrays two_sums(int64_t rows, int64_t cols, bool third) {
  Arrays a(1, rows, cols, 5);
  a.keep(3), a.keep(4);
  const int64_t inner[] = {1, rows - 2, cols - 2};
  for (int k = 0; k < 2; ++k) {
    const Arrays::Box sum{3 + k, {0, 1, 1}};
    a.op(kAdd, inner, {sum, {0, {0, 0, 1}}, {0, {0, 2, 1}}});
    a.op(kAdd, inner, {sum, sum, {1 + k, {0, 0, 1}}});
    if (third) a.op(kAdd, inner, {sum, sum, {1 + k, {0, 2, 1}}});
    a.op(kAdd, inner, {sum, sum, {0, {0, 1, 1}}});
    a.op(kAdd, inner, {sum, sum, {0, {0, 1, 2}}});  // of a row that is read anyway
  }
  return a;
}

TEST(SharedLoads, KernelsOfManyRowsStayApart) {
  EXPECT_EQ(two_sums(300, 1200, false).plan()->stats.kernels, 1);  // 7 rows
  EXPECT_EQ(two_sums(300, 1200, true).plan()->stats.kernels, 2);   // 9
  EXPECT_EQ(two_sums(600, 600, true).plan()->stats.kernels, 1);    // near each other
  EXPECT_EQ(two_sums(40, 80, true).plan()->stats.kernels, 1);      // small arrays stay in a cache
  std::mt19937 random(1);
  EXPECT_TRUE(two_sums(40, 80, true).is_right(random));
}

TEST(TrimCopies, PlansForOtherSizesAreThoseMadeAnew) {
  PlanCache cache(PlanCache::kMaxPlans, PlanCache::kMaxBytes, /*max_sizes=*/2);
  const PlanOptions options = options_with(4096);
  int trimmed = 0;
  for (int64_t rows = 20; rows < 60; ++rows) {
    for (const int64_t cols : {18, 31, 47, 64}) {  // copied whole, trimmed
      const Arrays a = border(rows / 2, rows, cols);
      const auto found = a.get(cache, options);
      EXPECT_EQ(print_plan(*found.plan), print_plan(*a.plan(4096))) << rows << " x " << cols;
      EXPECT_EQ(found.plan->stats.bytes_unfused, a.plan(4096)->stats.bytes_unfused);
      trimmed += a.left_out(4096) > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(trimmed, 100);
  EXPECT_GT(cache.stats().resized, cache.stats().misses);
}

TEST(TrimCopies, RandomProgramsMeanTheirRecords) {
  int trimmed = 0;
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
    const Dtype dtype = seed % 3 == 0 ? Dtype::kFloat64 : Dtype::kFloat32;
    const int slots = 2 + static_cast<int>(below(4));
    Arrays a(1 + below(4), 1 + below(8), 17 + below(12), slots, dtype);
    for (int s = 0; s < slots; ++s) {
      if (below(3) != 0) a.keep(s);
    }
    const auto some_slot = [&] { return static_cast<int>(below(slots)); };
    for (int64_t records = 2 + below(8); records > 0; --records) {
      const int to = some_slot(), from = some_slot();
      if (below(3) == 0) {
        if (to != from) a.copy(to, from);
        continue;
      }
      int64_t extents[kDims];
      Arrays::Box out{to};
      for (int d = 0; d < kDims; ++d) {
        extents[d] = a.extent(d) - (a.extent(d) > 2 ? below(3) : 0);
        out.at[d] = below(a.extent(d) - extents[d] + 1);
      }
      std::vector<Arrays::Box> boxes{out};
      const bool converts = below(4) == 0;
      for (int k = 0; k < (converts ? 1 : 2); ++k) {
        Arrays::Box in{some_slot()};
        if (k == 1 && below(4) == 0) in.is_number = true;
        for (int d = 0; d < kDims; ++d) in.at[d] = below(a.extent(d) - extents[d] + 1);
        // The same elements as the result, or others of another buffer, as front ends promise.
        if (in.slot == to) std::copy_n(out.at, kDims, in.at);
        boxes.push_back(in);
      }
      a.op(converts ? static_cast<uint16_t>(kCodeConvert) : kAdd, extents, boxes);
    }
    trimmed += a.left_out() > 0 ? 1 : 0;
    ASSERT_TRUE(a.is_right(random)) << "seed " << seed;
  }
  EXPECT_GT(trimmed, 2000);
}

constexpr auto kMul = static_cast<uint16_t>(OpId::mul);
constexpr auto kSub = static_cast<uint16_t>(OpId::sub);
const PlanOptions kInParts = options_with(kNever, 0);

// f = u * v, then r[inner] = the difference of two rows of f, or more. Slots: u, v, f, r.
Arrays flux(int64_t rows, int64_t cols, uint16_t code = kMul) {
  Arrays a(1, rows, cols, 4);
  a.keep(3);
  const int64_t all[] = {1, rows, cols}, inner[] = {1, rows - 2, cols - 2};
  a.op(code, all, {{2}, {0}, {1}});
  a.op(kSub, inner, {{3, {0, 1, 1}}, {2, {0, 2, 1}}, {2, {0, 0, 1}}});
  return a;
}

TEST(PartValues, AreComputedWhereTheyAreRead) {
  std::mt19937 random(1);
  const Arrays a = flux(20, 40);
  EXPECT_EQ(a.plan()->stats.kernels, 2);
  const auto plan = a.plan(kInParts);
  EXPECT_EQ(plan->stats.kernels, 1);
  EXPECT_EQ(plan->stats.ops, 2);
  EXPECT_EQ(plan->stats.bytes_unfused, a.plan()->stats.bytes_unfused);
  EXPECT_LT(plan->stats.bytes_moved, a.plan()->stats.bytes_moved);
  // Both products are of the first record.
  std::vector<int> records;
  for (const Instr& instr : plan->kernels[0].instrs) records.push_back(instr.record);
  EXPECT_EQ(records, (std::vector<int>{0, 0, 1}));
  EXPECT_TRUE(a.is_right(random, kInParts));

  const int64_t bytes = 20 * 40 * 4;
  EXPECT_EQ(a.plan(options_with(kNever, bytes))->stats.kernels, 1);
  EXPECT_EQ(a.plan(options_with(kNever, bytes + 1))->stats.kernels, 2);
}

TEST(PartValues, WhatOthersReadOrWriteStaysInMemory) {
  std::mt19937 random(1);
  const int64_t all[] = {1, 20, 40}, inner[] = {1, 18, 38};
  const auto kernels = [&](const Arrays& a) {
    EXPECT_TRUE(a.is_right(random, kInParts));
    EXPECT_EQ(a.plan(kInParts)->stats.kernels, a.plan()->stats.kernels);
    return a.plan(kInParts)->stats.kernels;
  };
  {
    Arrays a = flux(20, 40);
    a.keep(2);  // it is seen
    EXPECT_EQ(kernels(a), 2);
  }
  EXPECT_EQ(flux(20, 40, static_cast<uint16_t>(OpId::div)).plan(kInParts)->stats.kernels, 1);
  EXPECT_EQ(flux(20, 40, static_cast<uint16_t>(OpId::pow)).plan(kInParts)->stats.kernels, 2);
  {
    Arrays a = flux(20, 40);  // u changes before the parts are read again
    a.op(kAdd, all, {{0}, {0}, {1}});
    a.op(kAdd, inner, {{3, {0, 1, 1}}, {3, {0, 1, 1}}, {2, {0, 1, 2}}});
    a.keep(0);
    EXPECT_EQ(kernels(a), 2);
  }
  {
    Arrays a(1, 20, 40, 5);  // f is read as a whole by what is seen
    a.keep(3), a.keep(4);
    a.op(kMul, all, {{2}, {0}, {1}});
    a.op(kAdd, all, {{4}, {2}, {1}});
    a.op(kSub, inner, {{3, {0, 1, 1}}, {2, {0, 2, 1}}, {2, {0, 0, 1}}});
    EXPECT_EQ(kernels(a), 2);
  }
  {
    Arrays a(1, 20, 40, 4);  // nine places
    a.keep(3);
    a.op(kMul, all, {{2}, {0}, {1}});
    for (int64_t k = 0; k < 9; ++k) {
      a.op(kAdd, inner, {{3, {0, 1, 1}}, {3, {0, 1, 1}}, {2, {0, k / 3, k % 3}}});
    }
    EXPECT_EQ(kernels(a), 2);
  }
  {
    Arrays a(1, 20, 40, 4);  // 13 ops in two places
    a.keep(3);
    a.op(kMul, all, {{2}, {0}, {1}});
    for (int k = 0; k < 6; ++k) {
      a.op(kAdd, all, {{2}, {2}, {0}});
      a.op(kMul, all, {{2}, {2}, {1}});
    }
    a.op(kSub, inner, {{3, {0, 1, 1}}, {2, {0, 2, 1}}, {2, {0, 0, 1}}});
    EXPECT_EQ(kernels(a), 2);
  }
}

// Where a kernel cannot hold what is computed in parts, the value is in memory as before.
TEST(PartValues, KernelsThatAreTooSmallReadMemory) {
  std::mt19937 random(1);
  PlanOptions small = kInParts;
  small.limits.max_instrs = 2;
  const Arrays a = flux(20, 40);
  EXPECT_EQ(a.plan(small)->stats.kernels, 2);
  EXPECT_TRUE(a.is_right(random, small));
}

TEST(PartValues, PlansForOtherSizesAreThoseMadeAnew) {
  PlanCache cache(PlanCache::kMaxPlans, PlanCache::kMaxBytes, /*max_sizes=*/2);
  const PlanOptions options = options_with(kNever, 4096);
  int in_parts = 0;
  for (int64_t rows = 10; rows < 60; ++rows) {
    for (const int64_t cols : {18, 31, 47, 64}) {
      const Arrays a = flux(rows, cols);
      const auto found = a.get(cache, options);
      EXPECT_EQ(print_plan(*found.plan), print_plan(*a.plan(options))) << rows << " x " << cols;
      in_parts += found.plan->stats.kernels == 1 ? 1 : 0;
    }
  }
  EXPECT_GT(in_parts, 50);
  EXPECT_LT(in_parts, 200);
  EXPECT_GT(cache.stats().resized, cache.stats().misses);
}

// Ops on whole arrays, and on parts of what they give.
TEST(PartValues, RandomProgramsMeanTheirRecords) {
  int in_parts = 0;
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
    const int slots = 6 + static_cast<int>(below(4)), last = slots - 1;
    const bool is_line = below(4) == 0;
    Arrays a(is_line ? 1 : 1 + below(4), is_line ? 1 : 1 + below(8), 17 + below(12), slots,
             seed % 3 == 0 ? Dtype::kFloat64 : Dtype::kFloat32);
    a.keep(last);
    if (below(3) == 0) a.keep(static_cast<int>(below(slots)));
    const int64_t all[] = {a.extent(0), a.extent(1), a.extent(2)};
    const uint16_t codes[] = {kAdd, kMul, kSub, kCodeConvert};
    int written = 2;  // slots that hold something, but for the last one
    for (int64_t k = 4 + below(10); k > 0; --k) {
      const bool is_whole = written < last && below(2) == 0;
      int to = is_whole ? written : last;
      if (below(12) == 0) to = static_cast<int>(below(slots));
      int64_t extents[kDims];
      Arrays::Box out{to};
      for (int d = 0; d < kDims; ++d) {
        extents[d] = is_whole || all[d] < 3 ? all[d] : all[d] - 1 - below(2);
        out.at[d] = below(all[d] - extents[d] + 1);
      }
      const uint16_t code = codes[below(4)];
      std::vector<Arrays::Box> boxes{out};
      for (int i = 0; i < (code == kCodeConvert ? 1 : 2); ++i) {
        Arrays::Box in{static_cast<int>(below(written))};
        if (i == 1 && below(6) == 0) in.is_number = true;
        for (int d = 0; d < kDims; ++d) in.at[d] = below(all[d] - extents[d] + 1);
        if (in.slot == to) std::copy_n(out.at, kDims, in.at);
        boxes.push_back(in);
      }
      a.op(code, extents, boxes);
      if (is_whole && to == written) ++written;
    }
    const PlanOptions options = options_with(below(2) == 0 ? 0 : kNever, 0);
    PlanOptions without = options;
    without.limits.least_in_parts = kNever;
    in_parts += print_plan(*a.plan(options)) != print_plan(*a.plan(without)) ? 1 : 0;
    ASSERT_TRUE(a.is_right(random, options)) << "seed " << seed;
  }
  EXPECT_GT(in_parts, 1000);
}

}  // namespace
}  // namespace hologram::circuit
