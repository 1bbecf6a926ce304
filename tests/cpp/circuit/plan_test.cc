// SPDX-License-Identifier: MIT
// The planner: kernel counts of programs people write, laws, and what calls are to it.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "hologram/error.h"
#include "hologram/reduction.h"
#include "src/circuit/call_kinds.h"
#include "src/circuit/plan.h"
#include "tests/cpp/circuit/test_calls.h"
#include "tests/cpp/circuit/test_program.h"

namespace hologram::circuit {
namespace {

using testing::call;
using testing::floats;
using testing::kF32;
using testing::kind;
using testing::kNumber;
using testing::Program;

bool wants_memory(const Plan& plan, uint32_t slot) {
  return std::count(plan.attach.begin(), plan.attach.end(), slot) > 0 ||
         std::any_of(plan.passing.begin(), plan.passing.end(),
                     [&](const PassingValue& value) { return value.slot == slot; });
}

TEST(Fusion, ChainIsOneKernel) {
  Program p;
  const auto a = p.buffer(true), b = p.buffer(true);
  const auto m = Program::memory;
  auto t = p.op(OpId::mul, {m(a, kF32), m(b, kF32)}, 1000);
  t = p.op(OpId::add, {m(t, kF32), m(a, kF32)}, 1000);
  t = p.op(OpId::relu, {m(t, kF32)}, 1000);
  t = p.op(OpId::mul, {m(t, kF32), kNumber}, 1000);
  t = p.op(OpId::add, {m(t, kF32), m(b, kF32)}, 1000);
  p.keep(t);
  const auto plan = p.plan();
  EXPECT_EQ(plan->stats.kernels, 1) << print_plan(*plan);
  EXPECT_EQ(plan->stats.ops, 5);
  EXPECT_EQ(plan->kernels[0].live_values, 1);
  EXPECT_EQ(plan->attach, (std::vector<uint32_t>{a, b, t}));
  EXPECT_EQ(plan->stats.bytes_moved, 3 * 4000);
  EXPECT_EQ(plan->stats.bytes_unfused, (3 + 3 + 2 + 2 + 3) * 4000);
  PlanOptions apart;
  apart.fuse = false;
  EXPECT_EQ(p.plan(apart)->stats.kernels, 5);
}

TEST(Fusion, DeadValuesCostNothing) {
  Program p;
  const auto a = p.buffer(true);
  const auto t = p.op(OpId::exp, {Program::memory(a)}, 100);
  p.op(OpId::mul, {Program::memory(t), kNumber}, 100);
  const auto plan = p.plan();
  EXPECT_TRUE(plan->kernels.empty());
  EXPECT_TRUE(plan->attach.empty());
  EXPECT_EQ(plan->stats.dead, 2);
}

uint32_t layer_norm(Program& p, uint32_t x, uint32_t w, uint32_t b, int64_t rows, int64_t cols) {
  const auto m = Program::memory;
  const auto mean = p.fold(Reduction::mean, x, rows, cols);
  const auto d = p.broadcast(OpId::sub, x, mean, rows, cols, true);
  const auto sq = p.op(OpId::mul, {m(d, kF32), m(d, kF32)}, rows * cols);
  const auto var = p.fold(Reduction::mean, sq, rows, cols);
  const auto eps = p.op(OpId::add, {m(var, kF32), kNumber}, rows);
  const auto rstd = p.op(OpId::rsqrt, {m(eps, kF32)}, rows);
  const auto y = p.broadcast(OpId::mul, d, rstd, rows, cols, true);
  const auto scaled = p.broadcast(OpId::mul, y, w, rows, cols, false);
  return p.broadcast(OpId::add, scaled, b, rows, cols, false);
}

TEST(Fusion, LayerNormIsOneKernel) {
  for (const int64_t rows : {1, 7, 1000}) {
    Program p;
    const auto x = p.buffer(true), w = p.buffer(true), b = p.buffer(true);
    p.keep(layer_norm(p, x, w, b, rows, 768));
    const auto plan = p.plan();
    EXPECT_EQ(plan->stats.kernels, 1) << print_tape(p.tape.words()) << print_plan(*plan);
    EXPECT_TRUE(plan->kernels[0].whole_rows);
  }
}

TEST(Fusion, LongRowsFoldApart) {
  Program p;
  const auto x = p.buffer(true), w = p.buffer(true), b = p.buffer(true);
  p.keep(layer_norm(p, x, w, b, 4, 3072));
  const PlanOptions options{.limits = {.row_bytes = 3072 * sizeof(float)}};
  EXPECT_EQ(p.plan(options)->stats.kernels, 1);
  Program longer;
  const auto y = longer.buffer(true);
  const auto s = longer.op(OpId::exp, {Program::memory(y)}, 2 * 4096);
  longer.keep(
      longer.broadcast(OpId::add, s, longer.fold(Reduction::sum, s, 2, 4096), 2, 4096, true));
  EXPECT_EQ(longer.plan(options)->stats.kernels, 3);
}

TEST(Fusion, EqualProgramsAreOneGroup) {
  Program p;
  const auto m = Program::memory;
  std::vector<uint32_t> param, grad, avg;
  for (int i = 0; i < 20; ++i) {
    param.push_back(p.buffer(true));
    grad.push_back(p.buffer(true));
    avg.push_back(p.buffer(true));
  }
  for (int i = 0; i < 20; ++i) p.in_place(OpId::mul, avg[i], {m(avg[i], kF32), kNumber}, 640);
  for (int i = 0; i < 20; ++i) {
    p.in_place(OpId::add, avg[i], {m(avg[i], kF32), m(grad[i], kF32)}, 640);
  }
  for (int i = 0; i < 20; ++i) {
    const auto t = p.op(OpId::mul, {m(avg[i], kF32), kNumber}, 640);
    p.in_place(OpId::sub, param[i], {m(param[i], kF32), m(t, kF32)}, 640);
  }
  const auto plan = p.plan();
  EXPECT_EQ(plan->stats.groups, 1) << print_plan(*plan);
  EXPECT_EQ(plan->stats.kernels, 20) << "each is bound and run";
  EXPECT_EQ(plan->kernels.size(), 20u);
  EXPECT_EQ(plan->stats.ops, 80);
}

TEST(Fusion, BranchesThatMeetAreOneKernel) {
  Program p;
  const auto m = Program::memory;
  const auto a = p.buffer(true), b = p.buffer(true), c = p.buffer(true), d = p.buffer(true);
  const auto ab = p.op(OpId::mul, {m(a, kF32), m(b, kF32)}, 100);
  const auto cd = p.op(OpId::mul, {m(c, kF32), m(d, kF32)}, 100);
  p.keep(p.op(OpId::add, {m(ab, kF32), m(cd, kF32)}, 100));
  EXPECT_EQ(p.plan()->stats.kernels, 1);
}

// A value that depends on nothing is lifted to where it is read.
TEST(Fusion, LateReaderLiftsAnEarlyValue) {
  Program p;
  const auto m = Program::memory;
  const auto x = p.buffer(true), y = p.buffer(true);
  const auto twice = p.op(OpId::mul, {m(y, kF32), kNumber}, 600);
  const auto s = p.fold(Reduction::sum, x, 2, 300);
  // Another shape keeps this apart from the fold.
  const auto rows = p.fold(Reduction::amax, s, 1, 2);
  const auto z = p.broadcast(OpId::add, x, rows, 1, 600, true);
  p.keep(p.op(OpId::mul, {m(z, kF32), m(twice, kF32)}, 600));
  const auto plan = p.plan();
  EXPECT_EQ(plan->kernels.size(), 3u) << print_plan(*plan);
}

// Normalised rows: (x - amax) then exp and its sum, six records.
// A step of a stencil after another: the second kernel reads its neighbours' elements of u, which
// the first has to write. Nothing else goes through memory, neither the value that u is a copy of
// nor what of the second step could be computed in the first.
TEST(Fusion, WhatOnlyALaterKernelReadsIsComputedThere) {
  constexpr int64_t kInner = 1000;
  Program p;
  const auto x = p.buffer(true), u = p.buffer(true);
  const auto at = [](uint32_t slot, int64_t element) {
    TapeOperand o = Program::memory(slot);
    o.offset = 4 * element;
    return o;
  };
  const auto copy = [&](uint32_t from, TapeOperand to) {
    const TapeOperand operands[] = {to, Program::memory(from)};
    p.tape.append_flat(kCodeConvert, kF32, 1, operands, nullptr, kInner);
  };
  const auto sum = p.op(OpId::add, {at(x, 0), at(x, 2)}, kInner);
  copy(sum, at(u, 1));
  const auto scaled = p.op(OpId::mul, {at(u, 1), kNumber}, kInner);
  const auto near = p.op(OpId::add, {at(u, 0), at(u, 2)}, kInner);
  const auto change = p.op(OpId::sub, {Program::memory(near), Program::memory(scaled)}, kInner);
  const auto result = p.op(OpId::add, {at(u, 1), Program::memory(change)}, kInner);
  p.keep(result);
  const auto plan = p.plan();
  ASSERT_EQ(plan->kernels.size(), 2u);
  EXPECT_EQ(plan->kernels[0].instrs.size(), 2u);
  EXPECT_EQ(plan->kernels[1].instrs.size(), 4u);
  for (const uint32_t slot : {sum, scaled, near, change}) {
    EXPECT_FALSE(wants_memory(*plan, slot)) << slot;
  }
  // A value that the first kernel's reader would have to store instead stays.
  Program q;
  const auto y = q.buffer(true), v = q.buffer(true);
  const auto twice = q.op(OpId::add, {at(y, 0), at(y, 1)}, kInner);
  const auto third = q.op(OpId::mul, {at(y, 2), at(y, 3)}, kInner);
  const auto both = q.op(OpId::sub, {Program::memory(twice), Program::memory(third)}, kInner);
  const TapeOperand stored[] = {at(v, 1), Program::memory(twice), kNumber};
  const uint64_t bits[] = {0, 0, std::bit_cast<uint32_t>(3.0f)};
  q.tape.append_flat(static_cast<uint16_t>(OpId::mul), kF32, 2, stored, bits, kInner);
  const auto last = q.op(OpId::add, {at(v, 0), Program::memory(both)}, kInner);
  q.keep(last);
  const auto other = q.plan();
  ASSERT_EQ(other->kernels.size(), 2u);
  EXPECT_EQ(other->kernels[0].instrs.size(), 4u);
  EXPECT_TRUE(wants_memory(*other, both));
  EXPECT_FALSE(wants_memory(*other, twice));
}

// Where only a copy of a value is in memory, who reads it there walks in the copy's loops.
TEST(Fusion, CopiesAreReadWhereTheyLie) {
  const auto m = Program::memory;
  Program p;
  const auto x = p.buffer(true), padded = p.buffer(true);
  const auto t = p.op(OpId::neg, {m(x, kF32)}, 21);
  p.copy_rows(padded, t, 3, 7, 9, 1);
  const auto result = p.op(OpId::add, {m(t, kF32), kNumber}, 21);
  p.keep(result);
  PlanOptions options;
  options.limits.max_instrs = 2;
  const auto plan = p.plan(options);
  ASSERT_EQ(plan->kernels.size(), 2u) << print_plan(*plan);
  EXPECT_FALSE(wants_memory(*plan, t));
  const Kernel& reader = plan->kernels[1];
  ASSERT_EQ(reader.ndim, 2) << print_plan(*plan);
  EXPECT_EQ(reader.accesses[0].slot, padded);
  EXPECT_EQ(reader.accesses[0].strides[0], 9);
  EXPECT_EQ(reader.accesses[0].strides[1], 1);
}

TEST(Limits, WhatADeviceCannotFuseIsAKernelOfItsOwn) {
  Program p;
  const auto m = Program::memory;
  const auto x = p.buffer(true);
  const auto top = p.fold(Reduction::amax, x, 4, 256);
  const auto e = p.op(OpId::exp, {m(p.broadcast(OpId::sub, x, top, 4, 256, true), kF32)}, 1024);
  const auto sum = p.fold(Reduction::sum, e, 4, 256);
  const auto scaled = p.broadcast(OpId::div, e, sum, 4, 256, true);
  p.keep(p.op(OpId::relu, {m(scaled, kF32)}, 1024));
  EXPECT_EQ(p.plan()->stats.kernels, 1) << print_plan(*p.plan());
  PlanOptions options;
  options.limits.fuse_reductions = false;
  const auto plan = p.plan(options);
  ASSERT_EQ(plan->stats.kernels, 4) << print_plan(*plan);
  EXPECT_EQ(kernel_name(plan->kernels[0]), "amax");
  EXPECT_EQ(kernel_name(plan->kernels[1]), "sub_exp");
  EXPECT_EQ(kernel_name(plan->kernels[2]), "sum");
  EXPECT_EQ(kernel_name(plan->kernels[3]), "div_relu");
  // A row of 256 floats is longer than a block may hold.
  options.limits.fuse_reductions = true;
  options.limits.row_bytes = 1023;
  EXPECT_GT(p.plan(options)->stats.kernels, 1);
  options.limits.row_bytes = 1024;
  EXPECT_EQ(p.plan(options)->stats.kernels, 1);
}

TEST(Limits, InstructionsAndScratchSlotsBoundAKernel) {
  Program p;
  const auto m = Program::memory;
  auto t = p.buffer(true);
  for (int i = 0; i < 24; ++i) t = p.op(OpId::exp, {m(t, kF32)}, 100);
  p.keep(t);
  PlanOptions options;
  options.limits.max_instrs = 8;
  EXPECT_EQ(p.plan(options)->stats.kernels, 3);
  options.limits.max_instrs = 1;
  EXPECT_EQ(p.plan(options)->stats.kernels, 24);

  // Eight values that are read again after all of them are made.
  Program q;
  const auto x = q.buffer(true);
  std::vector<uint32_t> made;
  for (int i = 0; i < 8; ++i) {
    made.push_back(q.op(OpId::add, {m(x, kF32), kNumber}, 100, {3.0f + static_cast<float>(i)}));
  }
  auto product = q.op(OpId::sin, {m(made[0], kF32)}, 100);
  for (int i = 1; i < 8; ++i) product = q.op(OpId::mul, {m(product, kF32), m(made[i], kF32)}, 100);
  q.keep(product);
  EXPECT_EQ(q.plan()->stats.kernels, 1);
  options.limits = {};
  options.limits.scratch_slots = 4;
  const auto plan = q.plan(options);
  EXPECT_GT(plan->stats.kernels, 1) << print_plan(*plan);
  EXPECT_LE(plan->stats.live_values, 4);
  // No limit is too tight for a record alone.
  options.limits.scratch_slots = 0;
  EXPECT_EQ(q.plan(options)->stats.kernels, 16);
}

TEST(Limits, WhatADeviceLacksSharesNoKernelWithWhatItHas) {
  Program p;
  const auto m = Program::memory;
  const auto x = p.buffer(true);
  const auto twice = p.op(OpId::mul, {m(p.op(OpId::exp, {m(x, kF32)}, 100), kF32), kNumber}, 100);
  const auto inverse = p.op(OpId::neg, {m(p.op(OpId::erfinv, {m(x, kF32)}, 100), kF32)}, 100);
  p.keep(p.op(OpId::add, {m(twice, kF32), m(inverse, kF32)}, 100));
  EXPECT_EQ(p.plan()->stats.kernels, 1);
  NativeOps native;
  native.values = NativeOps::bit(kF32);
  native.rows.fill(native.values);
  native.rows[static_cast<size_t>(OpId::erfinv)] = 0;
  PlanOptions options;
  options.limits.native = &native;
  auto plan = p.plan(options);
  ASSERT_EQ(plan->stats.kernels, 2) << print_plan(*plan);
  EXPECT_EQ(kernel_name(plan->kernels[0]), "erfinv");
  EXPECT_EQ(plan->kernels[1].instrs.size(), 4u) << print_plan(*plan);
  // What the device lacks is together, too.
  native.rows[static_cast<size_t>(OpId::neg)] = 0;
  plan = p.plan(options);
  ASSERT_EQ(plan->stats.kernels, 2) << print_plan(*plan);
  EXPECT_EQ(kernel_name(plan->kernels[0]), "erfinv_neg");
}

TEST(Limits, ArgumentsBoundAKernel) {
  Program p;
  const auto m = Program::memory;
  auto sum = p.buffer(true);
  for (int i = 0; i < 40; ++i) sum = p.op(OpId::add, {m(sum, kF32), m(p.buffer(true), kF32)}, 100);
  sum = p.op(OpId::mul, {m(sum, kF32), kNumber}, 100);
  p.keep(sum);
  EXPECT_EQ(p.plan()->stats.kernels, 1);
  PlanOptions options;
  options.limits.max_arguments = 43;  // 41 operands, the result, the number
  EXPECT_EQ(p.plan(options)->stats.kernels, 1);
  options.limits.max_arguments = 42;
  EXPECT_EQ(p.plan(options)->stats.kernels, 2) << print_plan(*p.plan(options));
}

TEST(Plan, CanonicalHashForgetsNamesOnly) {
  const auto build = [](int unused, OpId op) {
    Program p;
    for (int i = 0; i < unused; ++i) p.buffer(true);
    const auto a = p.buffer(true);
    p.keep(p.op(op, {Program::memory(a), kNumber}, 64));
    return canonical_hash(*p.plan());
  };
  EXPECT_EQ(build(0, OpId::add), build(3, OpId::add));
  EXPECT_NE(build(0, OpId::add), build(0, OpId::sub));
}

TEST(Laws, NeutralNumbersVanish) {
  const auto m = Program::memory;
  Program p;
  const auto a = p.buffer(true);
  const auto sum = p.op(OpId::add, {m(a, kF32), kNumber}, 64);  // arithmetic: no signalling NaN
  const auto one = p.op(OpId::mul, {m(sum, kF32), kNumber}, 64, {1.0f});
  const auto zero = p.op(OpId::sub, {m(one, kF32), kNumber}, 64, {0.0f});
  p.keep(p.op(OpId::exp, {m(zero, kF32)}, 64));
  const auto plan = p.plan();
  EXPECT_EQ(plan->kernels[0].instrs.size(), 2u) << print_plan(*plan);

  // x + 0 turns -0 into 0, and x * 1 makes a signalling NaN quiet: both stay.
  Program q;
  const auto b = q.buffer(true);
  const auto t = q.op(OpId::mul, {m(b, kF32), kNumber}, 64, {1.0f});
  q.keep(q.op(OpId::add, {m(t, kF32), kNumber}, 64, {0.0f}));
  EXPECT_EQ(q.plan()->kernels[0].instrs.size(), 2u);
}

TEST(Laws, EqualWorkIsDoneOnce) {
  const auto m = Program::memory;
  Program p;
  const auto a = p.buffer(true), b = p.buffer(true);
  const auto s = p.op(OpId::add, {m(a, kF32), m(b, kF32)}, 64);
  const auto t = p.op(OpId::add, {m(a, kF32), m(b, kF32)}, 64);
  p.keep(p.op(OpId::mul, {m(s, kF32), m(t, kF32)}, 64));
  const auto plan = p.plan();
  EXPECT_EQ(plan->kernels[0].instrs.size(), 2u) << print_plan(*plan);

  // Between two writes of an operand the same words mean other values.
  Program q;
  const auto x = q.buffer(true);
  const auto u = q.op(OpId::neg, {m(x, kF32)}, 64);
  q.in_place(OpId::add, x, {m(x, kF32), kNumber}, 64);
  const auto v = q.op(OpId::neg, {m(x, kF32)}, 64);
  q.keep(q.op(OpId::mul, {m(u, kF32), m(v, kF32)}, 64));
  EXPECT_EQ(q.plan()->kernels[0].instrs.size(), 4u);
}

TEST(Laws, InvolutionsAndProjections) {
  const auto m = Program::memory;
  Program p;
  const auto x = p.buffer(true);
  auto t = p.op(OpId::neg, {m(x, kF32)}, 64);
  t = p.op(OpId::neg, {m(t, kF32)}, 64);
  t = p.op(OpId::neg, {m(t, kF32)}, 64);
  t = p.op(OpId::abs, {m(t, kF32)}, 64);
  t = p.op(OpId::abs, {m(t, kF32)}, 64);
  t = p.op(OpId::floor, {m(t, kF32)}, 64);
  t = p.op(OpId::floor, {m(t, kF32)}, 64);
  p.keep(t);
  const auto plan = p.plan();
  // floor(abs(x)) is left, with a copy where a projection ends in memory that is wanted.
  EXPECT_LE(plan->kernels[0].instrs.size(), 3u) << print_plan(*plan);
}

TEST(Calls, AreKernelsOfTheirOwn) {
  Program p;
  const auto m = Program::memory;
  const auto x = p.buffer(true), y = p.buffer(false);
  const auto a = p.op(OpId::add, {m(x, kF32), kNumber}, 64);
  const auto b = p.op(OpId::mul, {m(a, kF32), kNumber}, 64);
  call(p, "test_reverse", {floats(b, 64, "r"), floats(y, 64, "wc")}, 64);
  const auto c = p.op(OpId::neg, {m(y, kF32)}, 64);
  p.keep(p.op(OpId::abs, {m(c, kF32)}, 64));
  const auto plan = p.plan();
  ASSERT_EQ(plan->kernels.size(), 3u) << print_plan(*plan);
  EXPECT_EQ(plan->stats.kernels, 3);
  EXPECT_EQ(kernel_name(plan->kernels[0]), "add_mul");
  EXPECT_EQ(kernel_name(plan->kernels[1]), "test_reverse");
  EXPECT_EQ(kernel_name(plan->kernels[2]), "neg_abs");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(plan->kernels[static_cast<size_t>(i)].stage, i);
  const KernelCall& made = *plan->kernels[1].call;
  EXPECT_EQ(made.record, 2);
  EXPECT_EQ(made.attributes, std::vector<uint64_t>{64});
  EXPECT_EQ(p.tape.immediates()[made.first_number], 0x3f800000u);
  EXPECT_EQ(kernel_bytes(plan->kernels[1]), 2 * 256);
  EXPECT_EQ(plan->attach, (std::vector<uint32_t>{x, 5}));
  EXPECT_TRUE(wants_memory(*plan, b) && wants_memory(*plan, y));
  EXPECT_FALSE(wants_memory(*plan, a));
  EXPECT_EQ(plan->stats.bytes_moved, 3 * 2 * 256);
  EXPECT_EQ(plan->stats.bytes_unfused, 5 * 2 * 256);
}

TEST(Calls, AreDeadWhenWhatTheyWriteIsNotRead) {
  Program p;
  const auto m = Program::memory;
  const auto x = p.buffer(true), sums = p.buffer(false), last = p.buffer(false);
  const auto a = p.op(OpId::add, {m(x, kF32), kNumber}, 8);
  call(p, "test_sums", {floats(a, 8, "r"), floats(sums, 8, "wc"), floats(last, 1, "wc")}, 8);
  EXPECT_TRUE(p.plan()->kernels.empty());
  EXPECT_EQ(p.plan()->stats.dead, 2);
  // One output is enough, and the other gets memory as well.
  p.keep(last);
  EXPECT_EQ(p.plan()->stats.kernels, 2);
  EXPECT_EQ(p.plan()->attach, (std::vector<uint32_t>{x, last}));
  EXPECT_TRUE(wants_memory(*p.plan(), sums) && wants_memory(*p.plan(), a));
  // What is written over afterwards was not needed, unless in part.
  for (const int64_t n : {1, 8}) {
    Program q;
    const auto y = q.buffer(true), z = q.buffer(true);
    call(q, "test_reverse", {floats(y, 8, "r"), floats(z, 8, "wc")}, 8);
    call(q, "test_reverse", {floats(y, n, "r"), floats(z, n, "wc")}, static_cast<uint64_t>(n));
    EXPECT_EQ(q.plan()->stats.dead, n == 8 ? 1 : 0);
    Program r;
    const auto u = r.buffer(true), v = r.buffer(true);
    call(r, "test_reverse", {floats(u, 8, "r"), floats(v, 8, "wc")}, 8);
    call(r, "test_evens", {floats(v, n, "w")}, static_cast<uint64_t>(n));
    EXPECT_EQ(r.plan()->stats.dead, 0);
    EXPECT_EQ(r.plan()->kernels.back().stage, 1);
  }
}

TEST(Calls, EqualOnesRunOneByOne) {
  Program p;
  const auto x = p.buffer(true), y = p.buffer(true), z = p.buffer(true);
  call(p, "test_reverse", {floats(x, 8, "r"), floats(y, 8, "wc")}, 8);
  call(p, "test_reverse", {floats(x, 8, "r"), floats(z, 8, "wc")}, 8);
  const auto plan = p.plan();
  EXPECT_EQ(plan->stats.kernels, 2);
  EXPECT_EQ(plan->kernels[1].stage, 0) << "neither waits for the other";
  EXPECT_NE(plan->kernels[0].launch, plan->kernels[1].launch);
}

// y = test_result(x), a matrix of n / 2 rows.
uint32_t result_of(Program& p, uint32_t x, uint64_t n) {
  const auto y = p.buffer(false);
  call(p, "test_result",
       {floats(y, static_cast<int64_t>(n), "wc"), floats(x, static_cast<int64_t>(n), "r")}, n);
  return y;
}

TEST(Calls, OpsJoinTheCallWhoseResultTheyRead) {
  const auto m = Program::memory;
  Program p;
  const auto x = p.buffer(true), b = p.buffer(true), z = p.buffer(true);
  const auto y = result_of(p, x, 8);
  const auto t = p.broadcast(OpId::add, y, b, 4, 2, false);
  const auto u = p.op(OpId::relu, {m(t, kF32)}, 8);
  const auto v = p.op(OpId::add, {m(u, kF32), m(z, kF32)}, 8);
  p.keep(v);
  auto plan = p.plan();
  ASSERT_EQ(plan->kernels.size(), 1u) << print_plan(*plan);
  const Kernel& kernel = plan->kernels[0];
  EXPECT_EQ(kernel_name(kernel), "test_result_add_relu_add");
  EXPECT_EQ(kernel.ndim, 2);
  EXPECT_EQ(kernel.shape[0], 4);
  EXPECT_EQ(kernel.shape[1], 2);
  ASSERT_GE(product_access(kernel), 0);
  EXPECT_FALSE(kernel.call->operands[0].present);
  EXPECT_EQ(plan->attach, (std::vector<uint32_t>{x, b, z, v})) << "the result gets no memory";
  EXPECT_EQ(kernel_bytes(kernel), 32 + 8 + 32 + 32);
  EXPECT_EQ(print_plan(*plan),
            "kernel 0  stage 0  launch 0  call\n"
            "  result: test_result(-, b0[0:32])  {8}\n"
            "  then  [4,2]  1 live\n"
            "  t0 = add(result, b1)  float32\n"
            "  t1 = relu(t0)  float32\n"
            "  b6 = add(t1, b2)  float32\n"
            "4 ops, 0 dead, 1 kernels, 1 live values, 104 bytes moved of 296\n");
  EXPECT_NE(plan_json(*plan).find("\"instrs\":[{\"op\":\"test_result\""), std::string::npos);
  EXPECT_NE(plan_json(*plan).find("\"in\":[{\"result\":true},{\"access\":1}]"), std::string::npos);
  // A result that is seen is stored besides.
  p.keep(y);
  plan = p.plan();
  EXPECT_EQ(plan->kernels.size(), 1u);
  EXPECT_TRUE(plan->kernels[0].call->operands[0].present);
  EXPECT_EQ(plan->attach, (std::vector<uint32_t>{x, b, z, y, v}));
  PlanOptions apart;
  apart.fuse = false;
  EXPECT_EQ(p.plan(apart)->stats.kernels, 4);
  PlanOptions separate;
  separate.limits.call_result = testing::no_result;
  EXPECT_EQ(p.plan(separate)->stats.kernels, 2);
}

TEST(Calls, WhatDoesNotFitTheRowsOfAResultStaysApart) {
  const auto m = Program::memory;
  // Two results: the sum can be made with one of them only.
  Program two;
  const auto a = two.buffer(true);
  two.keep(two.op(OpId::add, {m(result_of(two, a, 8), kF32), m(result_of(two, a, 8), kF32)}, 8));
  EXPECT_EQ(two.plan()->stats.kernels, 2) << print_plan(*two.plan());
  // Rows of another length.
  Program other;
  const auto x = other.buffer(true), w = other.buffer(true);
  other.keep(other.broadcast(OpId::add, result_of(other, x, 8), w, 2, 4, false));
  EXPECT_EQ(other.plan()->stats.kernels, 2);
  // A call that reads what another call's reader gives.
  Program chain;
  const auto in = chain.buffer(true);
  const auto y = chain.op(OpId::relu, {m(result_of(chain, in, 8), kF32)}, 8);
  chain.keep(result_of(chain, y, 8));
  EXPECT_EQ(chain.plan()->stats.kernels, 2);
  // What the call reads is written over: not while it runs.
  Program over;
  const auto v = over.buffer(true);
  over.in_place(OpId::relu, v, {m(result_of(over, v, 8), kF32)}, 8);
  EXPECT_EQ(over.plan()->stats.kernels, 2);
  // Whole rows fit.
  Program rows;
  const auto q = rows.buffer(true);
  const auto r = result_of(rows, q, 8);
  rows.keep(rows.broadcast(OpId::sub, r, rows.fold(Reduction::amax, r, 4, 2), 4, 2, true));
  EXPECT_EQ(rows.plan()->stats.kernels, 1);
  EXPECT_EQ(kernel_name(rows.plan()->kernels[0]), "test_result_amax_sub");
}

TEST(Calls, BlocksOfAResultKeepToOneGroupOfRows) {
  // The result is two groups of three rows of four. Added to it is what walks as `shape` says.
  const auto kernels = [](std::vector<int64_t> shape, std::vector<int64_t> steps) {
    Program p;
    const auto x = p.buffer(true), y = p.buffer(false), other = p.buffer(true), z = p.buffer(true);
    call(p, "test_grouped_result", {floats(x, 24, "r"), floats(y, 24, "wc")}, 24);
    Record r;
    r.code = static_cast<uint16_t>(OpId::add);
    r.arity = 2;
    r.ndim = static_cast<int>(shape.size());
    const uint32_t slots[] = {z, y, other};
    for (int k = 0; k < 3; ++k) r.operands[k] = Program::memory(slots[k]);
    int64_t step = 1;
    for (size_t d = shape.size(); d-- > 0; step *= shape[d]) {
      r.shape[d] = shape[d];
      r.strides[0][d] = r.strides[1][d] = step;
      r.strides[2][d] = steps[d];
    }
    p.tape.append(r, nullptr);
    return std::move(p.plan()->kernels);
  };
  // One number for each row of every group, as the bias of a channel.
  auto made = kernels({2, 3, 4}, {0, 1, 0});
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(kernel_name(made[0]), "test_grouped_result_add");
  EXPECT_EQ(made[0].ndim, 3);
  EXPECT_EQ(made[0].rows(), 6);
  EXPECT_EQ(made[0].call->result, 1);
  EXPECT_FALSE(made[0].call->operands[1].present);
  // One for each group; one for each row of all; a whole matrix the other way round.
  EXPECT_EQ(kernels({2, 12}, {1, 0}).size(), 1u);
  EXPECT_EQ(kernels({6, 4}, {1, 0}).size(), 1u);
  EXPECT_EQ(kernels({2, 3, 4}, {1, 2, 6}).size(), 1u);
  // A loop that ends within a group, and one within a row.
  EXPECT_EQ(kernels({3, 8}, {1, 0}).size(), 2u);
  EXPECT_EQ(kernels({12, 2}, {1, 0}).size(), 2u);
}

TEST(Calls, AreShownByName) {
  Program p;
  const auto x = p.buffer(true), y = p.buffer(true);
  call(p, "test_axpy", {floats(y, 8, "rwc", 2), floats(x, 8, "r"), CallSlot{}}, 8);
  call(p, "test_evens", {floats(x, 8, "w")}, 8);
  EXPECT_EQ(print_tape(p.tape.words()),
            "%0: b1[8:40] = test_axpy(b1[8:40], b0[0:32], -)  {8}\n"
            "%1: b0[0:32] in part = test_evens()  {8}\n");
  EXPECT_EQ(print_plan(*p.plan()),
            "kernel 0  stage 0  launch 0  call\n"
            "  b1[8:40] = test_axpy(b1[8:40], b0[0:32], -)  {8}\n"
            "kernel 1  stage 1  launch 1  call\n"
            "  b0[0:32] in part = test_evens()  {8}\n"
            "2 ops, 0 dead, 2 kernels, 0 live values, 128 bytes moved of 128\n");
  const std::string json = plan_json(*p.plan());
  EXPECT_NE(json.find("{\"name\":\"test_axpy\",\"stage\":0,\"launch\":0,\"shape\":[]"), json.npos);
  EXPECT_NE(json.find("\"in\":[{\"access\":0},{\"access\":1}],\"out\":{\"access\":0}"), json.npos)
      << json;
  EXPECT_NE(tape_json(p.tape.words()).find("\"attributes\":[8],\"numbers\":[1,1]}"), json.npos);
  EXPECT_EQ(tape_json(p.tape.words()).find("result"), json.npos);
  Program q;
  result_of(q, q.buffer(true), 8);
  EXPECT_NE(tape_json(q.tape.words()).find("\"result\":{\"dtype\":\"float32\",\"shape\":[4,2]}"),
            json.npos);
}

TEST(Calls, HashByNameAndAttributes) {
  const auto hash = [](const char* name, uint64_t n, int unused) {
    Program p;
    for (int i = 0; i < unused; ++i) p.buffer(true);
    const auto x = p.buffer(true);
    call(p, name, {floats(x, 8, "rwc")}, n);
    return canonical_hash(*p.plan());
  };
  EXPECT_EQ(hash("test_evens", 8, 0), hash("test_evens", 8, 3));
  EXPECT_NE(hash("test_evens", 8, 0), hash("test_evens", 4, 0));
  EXPECT_NE(hash("test_evens", 8, 0), hash("test_sums", 8, 0));
}

TEST(Calls, AreRegisteredOnce) {
  const CallKind known = call_kind(kind("test_reverse"));
  EXPECT_EQ(register_call(known), kind("test_reverse"));
  const auto fails = [](const CallKind& given, const char* why) {
    try {
      register_call(given);
      ADD_FAILURE() << "registered";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  fails({"test_reverse", [](const CallArguments&) {}}, "\"test_reverse\" is the name of another");
  fails({"", known.run}, "needs a name and a function");
  fails({"test_nothing", nullptr}, "needs a name and a function");
  std::string name = "test_copied_name";
  const uint16_t id = register_call({name.c_str(), known.run});
  name[0] = 'X';
  EXPECT_STREQ(call_kind(id).name, "test_copied_name");
}

}  // namespace
}  // namespace hologram::circuit
