// SPDX-License-Identifier: MIT
// Which steps a kernel becomes where loops are generated.
#include <gtest/gtest.h>

#include "src/cpu/program/program.h"
#include "tests/cpp/cpu/jit_cases.h"
#include "tests/cpp/cpu/plan_support.h"

namespace hologram {
namespace {

using namespace plans;
using cpu::Program;
using cpu::Step;
using cpu::StepKind;

constexpr Dtype f = Dtype::kFloat32;

class PlanSteps : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!isa_available(GetParam())) GTEST_SKIP() << "not on this machine";
    if (cpu::is_jit_off()) GTEST_SKIP() << "HOLOGRAM_JIT=0: no loops are generated";
    before_ = current_isa();
    force_isa(GetParam());
  }
  void TearDown() override { force_isa(before_); }

  Program lowered(const Builder& builder) const {
    return cpu::make_program(builder.kernel, GetParam(), true);
  }
  static std::string kinds(const Program& program) {
    std::string text;
    for (const Step& step : program.steps) {
      constexpr const char* kNames[] = {"op",      "convert", "loop", "gather",
                                        "scatter", "fold",    "rows"};
      if (!text.empty()) text += ' ';
      text += kNames[static_cast<int>(step.kind)];
      if (step.walks_rows) text += ":rows";
      for (int k = 0; k < step.folds; ++k) text += ":fold";
      if (step.streaming != nullptr) text += ":stream";
    }
    return text;
  }

  Case test_;
  Isa before_ = current_isa();
};

TEST_P(PlanSteps, HeavyFunctionsOneAfterAnotherAreLoopsOfTheirOwn) {
  Builder chain({100000});
  const Ref x = chain.access(0, f, {1});
  const auto two = [&](double value) { return Builder::immediate(test_.immediate(f, value)); };
  Ref value = chain.op_temp(OpId::mul, f, {x, two(2)});
  value = chain.op_temp(OpId::tanh, f, {chain.op_temp(OpId::add, f, {value, two(1)})});
  value = chain.op_temp(OpId::sub, f, {chain.op_temp(OpId::mul, f, {value, x}), two(0.5)});
  chain.op(OpId::sigmoid, f, {value}, chain.access(1, f, {1}));
  // The last is alone, and so its kernel serves.
  EXPECT_EQ(kinds(lowered(chain)), "loop op");

  Builder side_by_side({100000});
  const Ref a = side_by_side.access(0, f, {1}), b = side_by_side.access(1, f, {1});
  const Ref e = side_by_side.op_temp(OpId::exp, f, {a});
  const Ref l = side_by_side.op_temp(OpId::log, f, {b});
  side_by_side.op(OpId::add, f, {e, l}, side_by_side.access(2, f, {1}));
  EXPECT_EQ(kinds(lowered(side_by_side)), "loop");
}

// Arrays often lie whole pages apart, and a set of the first cache has eight lines.
TEST_P(PlanSteps, NoLoopWritesMoreArraysThanACacheHasWays) {
  Builder many({10000});
  Ref value = many.access(0, f, {1});
  const Ref other = many.access(1, f, {1});
  for (uint32_t slot = 2; slot < 22; ++slot) {
    const Ref out = many.access(slot, f, {1});
    many.op(OpId::add, f, {value, other}, out);
    value = out;
  }
  const Program program = lowered(many);
  EXPECT_EQ(kinds(program), "loop loop loop");
  int stores = 0;
  for (const Step& step : program.steps) {
    EXPECT_LE(step.outputs, 8);
    stores += step.outputs;
  }
  EXPECT_EQ(stores, 20);
}

TEST_P(PlanSteps, SumsEndTheLoopThatMakesTheirTerms) {
  Builder norm({130, 768}, true);
  const Ref x = norm.access(0, f, {768, 1}), w = norm.access(1, f, {0, 1});
  const Ref square = norm.op_temp(OpId::mul, f, {x, x});
  const Ref mean = norm.fold_temp(Reduction::mean, square, f);
  const Ref scale = norm.op_temp(OpId::rsqrt, f, {mean}, Rank::kRow);
  const Ref normal = norm.op_temp(OpId::mul, f, {x, scale});
  norm.op(OpId::mul, f, {normal, w}, norm.access(2, f, {768, 1}));
  const Program program = lowered(norm);
  EXPECT_EQ(kinds(program), "loop:rows:fold op loop:rows");
  EXPECT_GT(program.domain.grid.block_rows, 1);
}

// x - mean(x) is light: both loops make it, and nothing but the rows' values is kept between them.
TEST_P(PlanSteps, LightValuesAreMadeAgainAfterAFold) {
  Builder norm({130, 768}, true);
  const Ref x = norm.access(0, f, {768, 1});
  const Ref mean = norm.fold_temp(Reduction::mean, x, f);
  const Ref centred = norm.op_temp(OpId::sub, f, {x, mean});
  const Ref square = norm.op_temp(OpId::mul, f, {centred, centred});
  const Ref var = norm.fold_temp(Reduction::mean, square, f);
  const Ref scale = norm.op_temp(OpId::rsqrt, f, {var}, Rank::kRow);
  norm.op(OpId::mul, f, {centred, scale}, norm.access(1, f, {768, 1}));
  const auto again = cpu::repeat_light_values(norm.kernel, GetParam());
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->instrs.size(), norm.kernel.instrs.size() + 1);
  const Program program = cpu::make_program(*again, GetParam(), true);
  EXPECT_EQ(kinds(program), "fold loop:rows:fold op loop:rows");
  EXPECT_EQ(program.class_bytes, 4 * program.domain.grid.block_rows);
  EXPECT_GE(program.domain.grid.block_rows, 4);
  // Not what takes a heavy function, or memory that the kernel writes.
  Builder heavy({130, 768}, true);
  const Ref y = heavy.access(0, f, {768, 1});
  const Ref e = heavy.op_temp(OpId::exp, f, {y});
  const Ref sum = heavy.fold_temp(Reduction::sum, e, f);
  heavy.op(OpId::div, f, {e, sum}, heavy.access(1, f, {768, 1}));
  EXPECT_FALSE(cpu::repeat_light_values(heavy.kernel, GetParam()).has_value());
  Builder in_place({130, 768}, true);
  const Ref z = in_place.access(0, f, {768, 1});
  const Ref twice = in_place.op_temp(OpId::add, f, {z, z});
  const Ref total = in_place.fold_temp(Reduction::sum, twice, f);
  in_place.op(OpId::div, f, {twice, total}, z);
  EXPECT_FALSE(cpu::repeat_light_values(in_place.kernel, GetParam()).has_value());
}

TEST_P(PlanSteps, LargeResultsAreStreamed) {
  Builder large({int64_t{1} << 21});
  large.op(OpId::relu, f, {large.access(0, f, {1})}, large.access(1, f, {1}));
  EXPECT_EQ(kinds(lowered(large)), "loop:stream");
  // Not in place: the memory is in the cache when it is written.
  Builder in_place({int64_t{1} << 21});
  const Ref x = in_place.access(0, f, {1});
  in_place.op(OpId::relu, f, {x}, x);
  EXPECT_EQ(kinds(lowered(in_place)), "op");
}

// A block that is scattered afterwards stays in the cache until then; so does what is stored under
// a mask.
TEST_P(PlanSteps, WhatIsScatteredIsNotStreamed) {
  const bool has_masks = GetParam() == Isa::kAvx512;
  Builder every_third({int64_t{1} << 21});
  every_third.op(OpId::relu, f, {every_third.access(0, f, {1})}, every_third.access(1, f, {3}));
  EXPECT_EQ(kinds(lowered(every_third)), has_masks ? "loop" : "op scatter");
  Builder short_rows({int64_t{1} << 20, 3});
  short_rows.op(OpId::relu, f, {short_rows.access(0, f, {3, 1})}, short_rows.access(1, f, {50, 1}));
  EXPECT_EQ(kinds(lowered(short_rows)), "op scatter");
  // A copy is scattered from where it lies.
  Builder copy({int64_t{1} << 20, 3});
  copy.convert(copy.access(0, f, {3, 1}), f, copy.access(1, f, {50, 1}));
  EXPECT_EQ(kinds(lowered(copy)), "scatter");
  // Unless both lie in the same memory.
  Builder shifted({int64_t{1} << 20, 3});
  shifted.convert(shifted.access(0, f, {3, 1}), f,
                  shifted.access(0, f, {50, 1}, Rank::kFull, 1 << 22));
  EXPECT_EQ(kinds(lowered(shifted)), "convert scatter");
}

Builder interior(Strides shape, const Strides& strides, const Strides& other) {
  Builder plan(std::move(shape));
  const Ref x = plan.access(0, f, strides), y = plan.access(1, f, strides);
  const Ref product = plan.op_temp(OpId::mul, f, {x, y});
  plan.op(OpId::add, f, {product, y}, plan.access(2, f, other));
  return plan;
}

// One loop over all that lies between the first element and the last stores under a mask.
TEST_P(PlanSteps, ShortRowsThatLieAlikeAreJoined) {
  const bool has_masks = GetParam() == Isa::kAvx512;
  const Program planes = lowered(interior({2000, 7, 7}, {81, 9, 1}, {81, 9, 1}));
  EXPECT_EQ(kinds(planes), has_masks ? "loop" : "loop:rows");
  const cpu::BlockDomain& domain = planes.domain;
  ASSERT_EQ(!domain.kept.empty(), has_masks);
  if (has_masks) {
    EXPECT_EQ(domain.numel, 1999 * 81 + 6 * 9 + 7);
    EXPECT_EQ(domain.grid.block_cols % 81, 0);
    for (int64_t p = 0; p < domain.grid.block_cols; ++p) {
      const bool holds = p % 81 < 6 * 9 + 7 && p % 81 % 9 < 7;
      ASSERT_EQ(domain.kept[static_cast<size_t>(p / 64)] >> (p % 64) & 1, holds ? 1 : 0) << p;
    }
  }
  const Program third = lowered(interior({100000}, {3}, {3}));
  EXPECT_EQ(kinds(third), has_masks ? "loop" : "gather gather loop scatter");
  EXPECT_EQ(third.domain.numel, has_masks ? 99999 * 3 + 1 : 100000);
  // An operand without gaps is packed and unpacked.
  const Program fresh = lowered(interior({2000, 7, 7}, {81, 9, 1}, {49, 7, 1}));
  ASSERT_EQ(!fresh.domain.kept.empty(), has_masks);
  EXPECT_EQ(fresh.domain.packed, (std::vector<char>{0, 0, has_masks}));
  if (has_masks) {
    EXPECT_EQ(fresh.domain.kept_count, fresh.domain.grid.block_cols / 81 * 49);
  }
  // Not where operands lie differently, rows are long, or gaps are.
  EXPECT_TRUE(lowered(interior({2000, 7, 7}, {81, 9, 1}, {100, 10, 1})).domain.kept.empty());
  EXPECT_TRUE(lowered(interior({2000, 300}, {302, 1}, {302, 1})).domain.kept.empty());
  EXPECT_TRUE(lowered(interior({2000, 10}, {300, 1}, {300, 1})).domain.kept.empty());
  EXPECT_TRUE(lowered(interior({20000}, {20}, {20})).domain.kept.empty());
  // A copy of single elements gathers them, half types are not packed.
  Builder copy({20000});
  copy.convert(copy.access(0, f, {2}), f, copy.access(1, f, {1}));
  EXPECT_EQ(kinds(lowered(copy)), "gather");
  Builder halves({2000, 7, 7});
  const Ref half = halves.access(0, Dtype::kBFloat16, {81, 9, 1});
  halves.convert(half, f, halves.access(1, f, {49, 7, 1}));
  EXPECT_EQ(!lowered(halves).domain.kept.empty(), has_masks);
  Builder to_halves({2000, 7, 7});
  const Ref single = to_halves.access(0, f, {81, 9, 1});
  to_halves.convert(single, Dtype::kBFloat16, to_halves.access(1, Dtype::kBFloat16, {49, 7, 1}));
  EXPECT_TRUE(lowered(to_halves).domain.kept.empty());
}

// Steps that store under a mask serve other sizes that are joined, and no others.
TEST_P(PlanSteps, JoinedRowsServeOtherSizes) {
  const auto serves = [&](const Builder& made, const Builder& other) {
    auto program = std::make_shared<const Program>(lowered(made));
    if (!cpu::give_sizes(other.kernel, program)) return false;
    const Program own = lowered(other);
    EXPECT_EQ(program->domain.kept, own.domain.kept);
    EXPECT_EQ(program->walk_steps, own.walk_steps);
    return true;
  };
  const Builder small = interior({300, 7, 7}, {81, 9, 1}, {81, 9, 1});
  const Builder large = interior({4000, 5, 7}, {90, 10, 1}, {90, 10, 1});
  const Builder dense = interior({1000}, {1}, {1});
  const Builder fresh = interior({300, 7, 7}, {81, 9, 1}, {49, 7, 1});
  EXPECT_TRUE(serves(small, large));
  EXPECT_TRUE(serves(large, small));
  EXPECT_FALSE(serves(small, dense));
  EXPECT_FALSE(serves(dense, small));
  EXPECT_TRUE(serves(fresh, interior({4000, 5, 7}, {90, 10, 1}, {35, 7, 1})));
  EXPECT_FALSE(serves(small, fresh));
  EXPECT_FALSE(serves(fresh, small));
}

TEST_P(PlanSteps, LargeFillsAreStreamed) {
  for (const int64_t n : {int64_t{1} << 20, int64_t{1} << 21}) {
    Builder fill({n});
    fill.convert(Builder::immediate(test_.immediate(f, 1.5)), f, fill.access(0, f, {1}));
    EXPECT_EQ(kinds(lowered(fill)), n == int64_t{1} << 20 ? "gather" : "loop:stream");
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, PlanSteps, ::testing::Values(Isa::kAvx2, Isa::kAvx512),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

}  // namespace
}  // namespace hologram
