// SPDX-License-Identifier: MIT
// What traces tell of ops that run at their calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "hologram/recorder.h"
#include "hologram/trace.h"
#include "tests/cpp/array/support.h"

namespace hologram {
namespace {

constexpr int64_t kLarge = 100'000;

Tensor large() { return full({kLarge}, 1.0, Dtype::kFloat32, cpu()); }
Tensor small() {
  Tensor t = full({3}, 1.0, Dtype::kFloat32, cpu());
  materialize(t);
  return t;
}

class AtCallTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cpu().runs_plans() || !is_deferring()) GTEST_SKIP() << "nothing is recorded here";
    before_ = immediate_bytes();
    set_immediate_bytes(4096);
    flush(cpu());
  }
  void TearDown() override { set_immediate_bytes(before_); }

  // What an op adds to the notes of a trace of its own.
  template <class F>
  std::vector<CallNote> notes_of(F&& run) {
    const uint64_t trace = start_tracing(cpu(), /*at_call=*/true);
    run();
    flush(cpu());
    std::vector<CallNote> notes = call_notes(trace);
    circuits_ = stop_tracing(trace);
    return notes;
  }
  template <class F>
  void expect_note(const char* op, AtCall why, const Buffer* shared, F&& run) {
    const std::vector<CallNote> notes = notes_of(run);
    ASSERT_EQ(notes.size(), 1u) << op;
    EXPECT_EQ(notes[0].op, op);
    EXPECT_EQ(notes[0].why, why);
    EXPECT_EQ(notes[0].count, 1u);
    EXPECT_EQ(notes[0].buffer, reinterpret_cast<uintptr_t>(shared));
  }

  int64_t before_ = 0;
  std::vector<std::shared_ptr<const CircuitTrace>> circuits_;
};

TEST_F(AtCallTest, EachReasonIsTold) {
  const Tensor few = small(), others = small(), many = large(), shared = large();
  materialize(many);
  materialize(shared);
  const ExportMark mark(shared.buffer());
  expect_note("add", AtCall::kSmall, nullptr, [&] { (void)add(few, others); });
  expect_note("add", AtCall::kSmall, nullptr, [&] { apply_into(OpId::add, {few, 1.0}, few); });
  expect_note("sum", AtCall::kSmall, nullptr, [&] { (void)reduce(Reduction::sum, few); });
  expect_note("matmul", AtCall::kSmall, nullptr, [&] { (void)matmul(few, others); });
  expect_note("add", AtCall::kShared, shared.buffer().get(), [&] { (void)add(many, shared); });
  expect_note("cumsum", AtCall::kShared, shared.buffer().get(), [&] { (void)cumsum(shared, 0); });
  expect_note("fill", AtCall::kShared, shared.buffer().get(), [&] { fill_into(2.0, shared); });
  expect_note("copy", AtCall::kShared, shared.buffer().get(), [&] { copy_into(many, shared); });
  const DimIndex mask{0, apply(OpId::gt, {many, 0.0})};
  expect_note("x[index]", AtCall::kValues, nullptr, [&] { (void)index(many, {&mask, 1}, 0); });
  const DimIndex first{0, tensor<int64_t>({2}, {0, 2})};
  expect_note("x[index]", AtCall::kSmall, nullptr, [&] { (void)index(few, {&first, 1}, 0); });
  expect_note("x[index] = y", AtCall::kSmall, nullptr, [&] {
    index_put(few, {&first, 1}, 0, Operand(2.0));
  });
  set_deferring(false);
  expect_note("add", AtCall::kEager, nullptr, [&] { (void)add(many, many); });
  set_deferring(true);
}

TEST_F(AtCallTest, MoreThanEightDimensionsAreAForm) {
  Tensor t = full(Shape(9, 4), 1.0, Dtype::kFloat32, cpu());
  materialize(t);
  std::vector<int> order(9);
  std::iota(order.rbegin(), order.rend(), 0);
  const Tensor turned = t.permute(order);
  expect_note("mul", AtCall::kForm, nullptr, [&] { (void)mul(t, turned); });
}

TEST_F(AtCallTest, EqualNotesAreCountedAndPlacedBetweenCircuits) {
  const Tensor few = small(), many = large();
  materialize(many);
  const std::vector<CallNote> notes = notes_of([&] {
    for (int i = 0; i < 3; ++i) (void)add(few, 1.0);
    const Tensor sum = add(many, 1.0);
    (void)add(few, 1.0);
    materialize(sum);
    (void)add(few, 1.0);
  });
  ASSERT_EQ(circuits_.size(), 1u);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_EQ(notes[0].count, 4u);
  EXPECT_EQ(notes[0].circuit, circuits_[0]->circuit);
  EXPECT_EQ(notes[1].count, 1u);
  EXPECT_GT(notes[1].circuit, circuits_[0]->circuit);
}

TEST_F(AtCallTest, OtherTracesRecordEveryOpAndHaveNoNotes) {
  const Tensor few = small();
  const uint64_t trace = start_tracing(cpu());
  EXPECT_FALSE(is_noting_calls());
  const Tensor sum = add(few, 1.0);
  materialize(sum);
  EXPECT_TRUE(call_notes(trace).empty());
  EXPECT_EQ(stop_tracing(trace).size(), 1u);
  EXPECT_ERROR(call_notes(trace), ErrorKind::kInvalidArgument,
               "call_notes: there is no open trace " + std::to_string(trace));
  const std::vector<CallNote> notes = notes_of([&] { (void)add(few, 1.0); });
  EXPECT_EQ(notes.size(), 1u);
  EXPECT_FALSE(is_noting_calls());
}

}  // namespace
}  // namespace hologram
