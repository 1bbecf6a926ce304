// SPDX-License-Identifier: MIT
// What surrounds generated code: the cache, its bound, threads, processes, settings.
#include <sys/wait.h>

#include <atomic>
#include <fstream>
#include <thread>
#include <vector>

#include "tests/cpp/cpu/jit_cases.h"

namespace hologram::cpu {
namespace {

class JitCache : public JitTest {};

Segment numbered_segment(int number) {
  Segment segment;
  segment.inputs = {Dtype::kFloat32, Dtype::kFloat32};
  segment.outputs = {Dtype::kFloat32};
  for (int bit = 0; bit < 16; ++bit) {
    SegmentStep step =
        row_step(op_info(number >> bit & 1 ? OpId::add : OpId::sub), Dtype::kFloat32);
    if (bit > 0) step.in[0] = {SegmentRef::kStep, static_cast<uint8_t>(bit - 1)};
    step.in[1] = {SegmentRef::kInput, 1};
    segment.steps.push_back(step);
  }
  segment.steps.back().output = 0;
  return segment;
}

// What number & 1 for each bit adds or subtracts, of exact small integers.
bool gives_sum(const JitLoop& kernel, int number) {
  const float x[3] = {5, 6, 7}, y[3] = {1, 2, 3};
  float out[3] = {};
  const void* inputs[] = {x, y};
  void* outputs[] = {out};
  kernel(inputs, nullptr, outputs, 3, 1, nullptr);
  const int count = 2 * std::popcount(static_cast<unsigned>(number) & 0xffff) - 16;
  for (int i = 0; i < 3; ++i) {
    if (out[i] != x[i] + static_cast<float>(count) * y[i]) return false;
  }
  return true;
}

// Room for code beside what the plans of other tests hold, until it ends.
class CodeLimit {
 public:
  explicit CodeLimit(size_t bytes) : limit_(bytes + in_use()) { testing::limit_code(limit_); }
  ~CodeLimit() { testing::limit_code(kMaxCodeBytes); }
  size_t limit() const { return limit_; }

 private:
  static size_t in_use() {
    testing::limit_code(0);
    return static_cast<size_t>(jit_stats().kept_bytes);
  }
  size_t limit_;
};

// A child process has the code of its parent and makes its own. Loops in use are never given up.
TEST_P(JitCache, WorksAfterForkAndStopsWhereAllLoopsAreInUse) {
  const JitLoop before = jit_compile(GetParam(), numbered_segment(1));
  ASSERT_FALSE(before == nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    testing::limit_code(size_t{4} << 20);
    bool right = gives_sum(before, 1);
    std::vector<JitLoop> used;
    int made = 2;
    for (; made < 65536; ++made) {
      JitLoop loop = jit_compile(GetParam(), numbered_segment(made));
      if (loop == nullptr) break;
      used.push_back(std::move(loop));
    }
    right = right && made > 500 && made < 2000 && jit_stats().refused == 1;
    for (size_t i = 0; i < used.size(); ++i) {
      right = right && gives_sum(used[i], static_cast<int>(i) + 2);
    }
    right = right && jit_compile(GetParam(), numbered_segment(1)) == before;
    right = right && jit_compile(GetParam(), numbered_segment(0)) == nullptr;
    // As soon as one is not in use another takes its place.
    used.pop_back();
    const JitLoop next = jit_compile(GetParam(), numbered_segment(0));
    right = right && !(next == nullptr) && gives_sum(next, 0) && gives_sum(before, 1);
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const JitLoop after = jit_compile(GetParam(), numbered_segment(2));
  ASSERT_FALSE(after == nullptr);
  EXPECT_TRUE(gives_sum(after, 2));
}

TEST_P(JitCache, GivesUpWhatIsLongestUnused) {
  const CodeLimit room(size_t{1} << 20);
  const JitLoop held = jit_compile(GetParam(), numbered_segment(1));
  const JitStats before = jit_stats();
  for (int number = 2; number < 2000; ++number) {
    const JitLoop loop = jit_compile(GetParam(), numbered_segment(number));
    ASSERT_FALSE(loop == nullptr) << number;
    ASSERT_TRUE(gives_sum(loop, number)) << number;
    ASSERT_LE(jit_stats().kept_bytes, static_cast<int64_t>(room.limit()));
    if (number % 10 == 0) {  // never longest unused
      ASSERT_TRUE(gives_sum(jit_compile(GetParam(), numbered_segment(2)), 2));
    }
  }
  const JitStats after = jit_stats();
  EXPECT_GT(after.evictions, before.evictions + 1000);
  EXPECT_EQ(after.refused, before.refused);
  EXPECT_TRUE(gives_sum(held, 1));
  // In use, or asked for again and again: neither is made anew.
  EXPECT_TRUE(jit_compile(GetParam(), numbered_segment(1)) == held);
  jit_compile(GetParam(), numbered_segment(2));
  EXPECT_EQ(jit_stats().kernels, after.kernels);
  jit_compile(GetParam(), numbered_segment(3));
  EXPECT_EQ(jit_stats().kernels, after.kernels + 1);
}

// Code is given up and made while other threads run theirs.
TEST_P(JitCache, ThreadsRunTheirLoopsWhileOthersGo) {
  const CodeLimit room(size_t{1} << 19);
  std::atomic<bool> right{true};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 600; ++i) {
        const int number = (i * 37 + t * 1000) % 1500;
        const JitLoop loop = jit_compile(GetParam(), numbered_segment(number));
        if (loop == nullptr || !gives_sum(loop, number)) right = false;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(right);
}

// Settings are read once, so each is tried in a process of its own.
TEST_P(JitCache, ObeysItsSettings) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("HOLOGRAM_JIT", "0", 1);
        const Segment segment = numbered_segment(3);
        const bool refused =
            !jit_takes(GetParam(), segment.steps[0]) && jit_compile(GetParam(), segment) == nullptr;
        _exit(refused ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        setenv("HOLOGRAM_JIT_PERF", "1", 1);
        const std::string path = "/tmp/perf-" + std::to_string(getpid()) + ".map";
        const auto kernel = jit_compile(GetParam(), numbered_segment(3));
        std::ifstream file(path);
        uintptr_t address = 0;
        size_t bytes = 0;
        std::string name;
        file >> std::hex >> address >> bytes >> name;
        unlink(path.c_str());
        const bool noted = address == reinterpret_cast<uintptr_t>(kernel.get()) && bytes > 0 &&
                           name.starts_with("hologram_jit_1_add_add_sub");
        _exit(noted ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_P(JitCache, RefusesWhatItCannotDo) {
  Segment segment = row_segment(op_info(OpId::add), Dtype::kFloat32, 0);
  segment.steps[0].in[1] = {SegmentRef::kStep, 0};  // its own result
  EXPECT_TRUE(jit_compile(GetParam(), segment) == nullptr);
  segment = row_segment(op_info(OpId::add), Dtype::kFloat32, 0);
  segment.inputs[1] = Dtype::kFloat64;
  EXPECT_TRUE(jit_compile(GetParam(), segment) == nullptr);
  segment = row_segment(op_info(OpId::add), Dtype::kFloat32, 0);
  segment.outputs[0] = Dtype::kInt32;
  EXPECT_TRUE(jit_compile(GetParam(), segment) == nullptr);
  segment = row_segment(op_info(OpId::add), Dtype::kInt8, 0);
  EXPECT_TRUE(jit_compile(GetParam(), segment) == nullptr);
  segment = row_segment(op_info(OpId::add), Dtype::kFloat32, 0);
  EXPECT_TRUE(jit_compile(Isa::kBaseline, segment) == nullptr);
  segment.steps[0].op = static_cast<OpId>(31);  // no row
  EXPECT_TRUE(jit_compile(GetParam(), segment) == nullptr);
}

TEST_P(JitCache, CountsWhatItDoes) {
  Segment segment = row_segment(op_info(OpId::squared_difference), Dtype::kFloat32, 0);
  segment.steps.push_back(segment.steps[0]);
  segment.steps[1].in[0] = {SegmentRef::kStep, 0};
  segment.steps[0].output = -1;
  const JitStats before = jit_stats();
  const JitLoop kernel = jit_compile(GetParam(), segment);
  const JitStats between = jit_stats();
  EXPECT_TRUE(jit_compile(GetParam(), segment) == kernel);
  const JitStats after = jit_stats();
  EXPECT_EQ(between.kernels, before.kernels + 1);
  EXPECT_GT(between.code_bytes, before.code_bytes);
  EXPECT_GT(between.compile_us, before.compile_us);
  EXPECT_EQ(after.kernels, between.kernels);
  EXPECT_EQ(after.hits, between.hits + 1);
}

INSTANTIATE_TEST_SUITE_P(Isas, JitCache, ::testing::Values(Isa::kAvx2, Isa::kAvx512), isa_of);

}  // namespace
}  // namespace hologram::cpu
