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

Loop numbered_loop(int number) {
  Loop loop;
  loop.inputs = {Dtype::kFloat32, Dtype::kFloat32};
  loop.outputs = {Dtype::kFloat32};
  for (int bit = 0; bit < 16; ++bit) {
    Instr step = row_instr(op_info(number >> bit & 1 ? OpId::add : OpId::sub), Dtype::kFloat32);
    step.in[0] = bit > 0 ? Ref{Ref::kTemp, static_cast<uint32_t>(bit - 1)} : Ref{Ref::kAccess, 0};
    step.in[1] = {Ref::kAccess, 1};
    loop.instrs.push_back(step);
  }
  loop.instrs.back().out = {Ref::kAccess, 0};
  return loop;
}

// What number & 1 for each bit adds or subtracts, of exact small integers.
bool gives_sum(const JitLoop& kernel, int number) {
  const float x[3] = {5, 6, 7}, y[3] = {1, 2, 3};
  float out[3] = {};
  const void* inputs[] = {x, y};
  void* outputs[] = {out};
  kernel.get()(inputs, nullptr, outputs, 3, 1, nullptr);
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
  const JitLoop before = compiled(GetParam(), numbered_loop(1));
  ASSERT_FALSE(before == nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    testing::limit_code(size_t{4} << 20);
    bool right = gives_sum(before, 1);
    std::vector<JitLoop> used;
    int made = 2;
    for (; made < 65536; ++made) {
      JitLoop loop = compiled(GetParam(), numbered_loop(made));
      if (loop == nullptr) break;
      used.push_back(std::move(loop));
    }
    right = right && made > 500 && made < 2000 && jit_stats().refused == 1;
    for (size_t i = 0; i < used.size(); ++i) {
      right = right && gives_sum(used[i], static_cast<int>(i) + 2);
    }
    right = right && compiled(GetParam(), numbered_loop(1)) == before;
    right = right && compiled(GetParam(), numbered_loop(0)) == nullptr;
    // As soon as one is not in use another takes its place.
    used.pop_back();
    const JitLoop next = compiled(GetParam(), numbered_loop(0));
    right = right && !(next == nullptr) && gives_sum(next, 0) && gives_sum(before, 1);
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const JitLoop after = compiled(GetParam(), numbered_loop(2));
  ASSERT_FALSE(after == nullptr);
  EXPECT_TRUE(gives_sum(after, 2));
}

TEST_P(JitCache, GivesUpWhatIsLongestUnused) {
  const CodeLimit room(size_t{1} << 20);
  const JitLoop held = compiled(GetParam(), numbered_loop(1));
  const JitStats before = jit_stats();
  for (int number = 2; number < 2000; ++number) {
    const JitLoop loop = compiled(GetParam(), numbered_loop(number));
    ASSERT_FALSE(loop == nullptr) << number;
    ASSERT_TRUE(gives_sum(loop, number)) << number;
    ASSERT_LE(jit_stats().kept_bytes, static_cast<int64_t>(room.limit()));
    if (number % 10 == 0) {  // never longest unused
      ASSERT_TRUE(gives_sum(compiled(GetParam(), numbered_loop(2)), 2));
    }
  }
  const JitStats after = jit_stats();
  EXPECT_GT(after.evictions, before.evictions + 1000);
  EXPECT_EQ(after.refused, before.refused);
  EXPECT_TRUE(gives_sum(held, 1));
  // In use, or asked for again and again: neither is made anew.
  EXPECT_TRUE(compiled(GetParam(), numbered_loop(1)) == held);
  compiled(GetParam(), numbered_loop(2));
  EXPECT_EQ(jit_stats().kernels, after.kernels);
  compiled(GetParam(), numbered_loop(3));
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
        const JitLoop loop = compiled(GetParam(), numbered_loop(number));
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
        const Loop loop = numbered_loop(3);
        const bool refused =
            !jit_takes(GetParam(), loop.instrs[0]) && compiled(GetParam(), loop) == nullptr;
        _exit(refused ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        setenv("HOLOGRAM_JIT_PERF", "1", 1);
        const std::string path = "/tmp/perf-" + std::to_string(getpid()) + ".map";
        const auto kernel = compiled(GetParam(), numbered_loop(3));
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
  const Instr add = row_instr(op_info(OpId::add), Dtype::kFloat32);
  EXPECT_TRUE(jit_takes(GetParam(), add));
  EXPECT_FALSE(jit_takes(Isa::kBaseline, add));
  EXPECT_TRUE(compiled(Isa::kBaseline, row_loop(op_info(OpId::add), Dtype::kFloat32, 0)) ==
              nullptr);
  Instr other = add;
  other.result = Dtype::kInt32;
  EXPECT_FALSE(jit_takes(GetParam(), other));
  other.compute = other.result = Dtype::kInt8;
  EXPECT_FALSE(jit_takes(GetParam(), other));
  other = add;
  other.arity = 1;
  EXPECT_FALSE(jit_takes(GetParam(), other));
  other = add;
  other.code = 31;  // no row
  EXPECT_FALSE(jit_takes(GetParam(), other));
  // More operations than a loop may have.
  Loop large = numbered_loop(0);
  large.instrs[0].code = static_cast<uint16_t>(OpId::exp);
  large.instrs[0].arity = 1;
  while (large.instrs.size() < jit::kMostNodes) {
    large.instrs.push_back(row_instr(op_info(OpId::add), Dtype::kFloat32));
    large.instrs.back().in[0] =
        large.instrs.back().in[1] = {Ref::kTemp, static_cast<uint32_t>(large.instrs.size() - 2)};
  }
  EXPECT_TRUE(compiled(GetParam(), large) == nullptr);
}

TEST_P(JitCache, CountsWhatItDoes) {
  Loop loop = row_loop(op_info(OpId::squared_difference), Dtype::kFloat32, 0);
  loop.instrs.push_back(loop.instrs[0]);
  loop.instrs[1].in[0] = {Ref::kTemp, 0};
  loop.instrs[0].out = {};
  const JitStats before = jit_stats();
  const JitLoop kernel = compiled(GetParam(), loop);
  const JitStats between = jit_stats();
  EXPECT_TRUE(compiled(GetParam(), loop) == kernel);
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
