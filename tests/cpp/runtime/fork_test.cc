// SPDX-License-Identifier: MIT
// What a fork finds recorded runs before it, with all that running takes.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "hologram/device.h"
#include "hologram/memory.h"
#include "hologram/recorder.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {
namespace {

constexpr int64_t kElements = 100'000;

BufferRef recorded(OpId op, const BufferRef& x) {
  BufferRef out = BufferRef::adopt(allocate_deferred(cpu(), kElements * 4));
  const RecordOperand operands[] = {{.buffer = out.get()}, {.buffer = x.get()}};
  EXPECT_TRUE(record_flat(op, Dtype::kFloat32, operands, 1, kElements));
  return out;
}

// 2, by 4 ops for each of the rounds.
BufferRef two(int rounds) {
  BufferRef y = allocate(kElements * 4);
  std::fill_n(y->data_as<float>(), kElements, 2.0f);
  for (int k = 0; k < rounds; ++k) {
    y = recorded(OpId::square, recorded(OpId::neg, y));
    y = recorded(OpId::abs, recorded(OpId::sqrt, y));
  }
  return y;
}

// A plan that comes back gets a generated loop, and a thread that runs one a boundary pool. Either
// may be for the first time while the fork waits.
TEST(Fork, CircuitsRunBeforeItThatNeedNewLoopsAndPools) {
  if (kThreadSanitizer) GTEST_SKIP() << "it does not follow forks of threaded programs";
  if (!is_deferring()) GTEST_SKIP() << "nothing is recorded";
  for (int i = 0; i < 20; ++i) materialize(*two(1));  // there are loops already
  std::thread([] {
    for (int i = 0; i < 60; ++i) {
      BufferRef y = two(2 + i / 20);
      ASSERT_TRUE(is_pending(*y));
      alarm(60);  // a deadlock ends the test
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        y = recorded(OpId::neg, y);
        materialize(*y);
        _exit(y->data_as<float>()[kElements - 1] == -2.0f ? 0 : 1);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      alarm(0);
      ASSERT_TRUE(WIFEXITED(status)) << status;
      ASSERT_EQ(WEXITSTATUS(status), 0);
      materialize(*y);
      ASSERT_EQ(y->data_as<float>()[0], 2.0f);
    }
  }).join();
}

}  // namespace
}  // namespace hologram
