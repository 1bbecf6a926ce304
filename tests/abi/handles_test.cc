// SPDX-License-Identifier: MIT
// Handles: what is refused and with which words, how many there may be, and many threads at once.
#include <atomic>
#include <thread>

#include "hologram/memory.h"
#include "tests/abi/support.h"

namespace hologram::capi_test {
namespace {

constexpr int kBad = HOLOGRAM_INVALID_ARGUMENT;

TEST(Handles, ZeroForeignStaleAndWrongKindsAreTold) {
  const Executor ex;
  const Buffer a(ex, 4);
  const Buffer c(ex, 4);
  EXPECT_REFUSED(hologram_vector_add_f32(0, a, a, c, 4), kBad,
                 "vector_add_f32: ex: the handle is 0; pass one from new_executor");
  EXPECT_REFUSED(hologram_vector_add_f32(ex, a, 0, c, 4), kBad,
                 "vector_add_f32: b: the handle is 0; pass one from executor_allocate_buffer");
  EXPECT_REFUSED(hologram_vector_add_f32(ex, ex, a, c, 4), kBad,
                 "vector_add_f32: a: handle " + hex(ex) +
                     " is an executor, not a buffer; pass one from executor_allocate_buffer");
  EXPECT_REFUSED(hologram_vector_add_f32(a, a, a, c, 4), kBad,
                 "vector_add_f32: ex: handle " + hex(a) +
                     " is a buffer, not an executor; pass one from new_executor");
  for (const uint64_t foreign : {UINT64_C(12345), UINT64_MAX, UINT64_C(0x2fffffff00000000),
                                 UINT64_C(0x20000000ffffffff), UINT64_C(0xf000000000000000)}) {
    EXPECT_REFUSED(hologram_vector_add_f32(ex, a, a, foreign, 4), kBad,
                   "vector_add_f32: c: " + hex(foreign) +
                       " is no handle of this process; pass one from executor_allocate_buffer");
  }
  uint64_t freed = 0;
  ASSERT_OK(hologram_executor_allocate_buffer(ex, 4, HOLOGRAM_FLOAT32, &freed));
  ASSERT_OK(hologram_buffer_cleanup(freed));
  const std::string stale = "handle " + hex(freed) + " was a buffer and has been freed";
  EXPECT_REFUSED(hologram_vector_add_f32(ex, a, a, freed, 4), HOLOGRAM_STATE,
                 "vector_add_f32: c: " + stale);
  EXPECT_REFUSED(hologram_buffer_cleanup(freed), HOLOGRAM_STATE, "buffer_cleanup: buf: " + stale);
  EXPECT_REFUSED(hologram_buffer_length(freed, nullptr), HOLOGRAM_STATE,
                 "buffer_length: buf: " + stale);
  // The slot is used again, the number is not.
  const Buffer next(ex, 4);
  EXPECT_NE(uint64_t{next}, freed);
  EXPECT_REFUSED(hologram_buffer_cleanup(freed), HOLOGRAM_STATE, "buffer_cleanup: buf: " + stale);
  EXPECT_OK(hologram_vector_add_f32(ex, next, next, next, 4));
  EXPECT_REFUSED(hologram_executor_cleanup(a), kBad,
                 "executor_cleanup: ex: handle " + hex(a) +
                     " is a buffer, not an executor; pass one from new_executor");
}

TEST(Handles, NullPointersLengthsAndNumbersAreTold) {
  const Executor ex;
  const Buffer a(ex, 4);
  const Buffer one(ex, 1);
  uint64_t handle = 77;
  int64_t n = 0;
  EXPECT_REFUSED(hologram_new_executor(nullptr), kBad,
                 "new_executor: ex: the pointer is null; pass the address of a uint64_t");
  EXPECT_REFUSED(hologram_new_executor_with_backend(nullptr, &handle), kBad,
                 "new_executor_with_backend: name: the pointer is null; pass the address of a "
                 "backend's name");
  EXPECT_REFUSED_WITH(hologram_new_executor_with_backend("abacus", &handle), kBad,
                      "available: cpu");
  EXPECT_REFUSED(hologram_executor_allocate_buffer(ex, 4, HOLOGRAM_FLOAT32, nullptr), kBad,
                 "executor_allocate_buffer: buf: the pointer is null; pass the address of a "
                 "uint64_t");
  EXPECT_REFUSED(hologram_executor_allocate_buffer(ex, -4, HOLOGRAM_FLOAT32, &handle), kBad,
                 "executor_allocate_buffer: n is -4; pass 0 or more");
  EXPECT_REFUSED(hologram_executor_allocate_buffer(ex, 4, 15, &handle), kBad,
                 "executor_allocate_buffer: dtype is 15; pass a hologram_dtype, 0 to 14");
  EXPECT_REFUSED_WITH(hologram_executor_allocate_buffer(ex, INT64_MAX, HOLOGRAM_FLOAT64, &handle),
                      HOLOGRAM_OUT_OF_MEMORY, "9223372036854775807 elements of float64");
  EXPECT_REFUSED_WITH(
      hologram_executor_allocate_buffer(ex, INT64_C(1) << 50, HOLOGRAM_FLOAT32, &handle),
      HOLOGRAM_OUT_OF_MEMORY, "out of memory");
  EXPECT_EQ(handle, 77U) << "a call that fails writes nothing";
  EXPECT_REFUSED(hologram_buffer_length(a, nullptr), kBad,
                 "buffer_length: n: the pointer is null; pass the address of an int64_t");
  EXPECT_REFUSED(hologram_vector_add_f32(ex, a, a, one, 4), kBad,
                 "vector_add_f32: c: n is 4 but the buffer has 1 element");
  EXPECT_REFUSED(hologram_vector_add_f32(ex, a, a, a, 5), kBad,
                 "vector_add_f32: a: n is 5 but the buffer has 4 elements");
  EXPECT_REFUSED(hologram_vector_add_f32(ex, a, a, a, -1), kBad,
                 "vector_add_f32: n is -1; pass 0 or more");
  EXPECT_OK(hologram_vector_add_f32(ex, a, a, a, 0));
  EXPECT_OK(hologram_buffer_length(a, &n));
  EXPECT_EQ(n, 4);
}

TEST(Handles, ABufferOutlivesItsExecutor) {
  uint64_t ex = 0;
  ASSERT_OK(hologram_new_executor_auto(&ex));
  const Executor other;
  const Buffer a(ex, std::vector<float>{1, 2, 3});
  const Buffer c(ex, 3);
  EXPECT_OK(hologram_vector_mul_f32(ex, a, a, c, 3));
  EXPECT_OK(hologram_executor_cleanup(ex));
  EXPECT_REFUSED_WITH(hologram_vector_mul_f32(ex, a, a, c, 3), HOLOGRAM_STATE,
                      "ex: handle " + hex(ex) + " was an executor and has been freed");
  std::vector<float> values(3);
  EXPECT_OK(hologram_buffer_to_bytes(other, c, values.data(), 12));
  EXPECT_EQ(values, (std::vector<float>{1, 4, 9}));
}

TEST(Handles, RecordedWorkOutlivesItsHandles) {
  const Executor ex;
  const Buffer a(ex, std::vector<float>(1000, 2.0f));
  const Buffer c(ex, 1000);
  uint64_t temporary = 0;
  ASSERT_OK(hologram_executor_allocate_buffer(ex, 1000, HOLOGRAM_FLOAT32, &temporary));
  EXPECT_OK(hologram_vector_mul_f32(ex, a, a, temporary, 1000));
  EXPECT_OK(hologram_vector_add_f32(ex, temporary, a, c, 1000));
  EXPECT_OK(hologram_buffer_cleanup(temporary));
  EXPECT_EQ(c.values(), std::vector<float>(1000, 6.0f));
}

TEST(Handles, AllAreFreedAtOnce) {
  const int64_t before = memory_stats().active_blocks.current;
  uint64_t ex = 0;
  ASSERT_OK(hologram_new_executor(&ex));
  uint64_t a = 0;
  uint64_t tensor = 0;
  ASSERT_OK(hologram_executor_allocate_buffer(ex, 1 << 20, HOLOGRAM_FLOAT32, &a));
  const int64_t shape[] = {2, 3};
  ASSERT_OK(hologram_tensor_from_buffer(a, 5, 2, shape, nullptr, &tensor));
  EXPECT_OK(hologram_clear_all_registries());
  EXPECT_EQ(hologram_buffer_cleanup(a), HOLOGRAM_STATE);
  EXPECT_EQ(hologram_tensor_cleanup(tensor), HOLOGRAM_STATE);
  EXPECT_EQ(hologram_executor_cleanup(ex), HOLOGRAM_STATE);
  EXPECT_OK(hologram_clear_all_registries());
  EXPECT_EQ(memory_stats().active_blocks.current, before);
}

TEST(Handles, AMillionBuffersLiveAtOnce) {
  const Executor ex;
  constexpr size_t kMany = 1000000;
  std::vector<uint64_t> handles(kMany);
  for (size_t i = 0; i < kMany; ++i) {
    ASSERT_EQ(hologram_executor_allocate_buffer(ex, 4, HOLOGRAM_FLOAT32, &handles[i]), HOLOGRAM_OK)
        << hologram_last_error();
  }
  for (const size_t i : {size_t{0}, kMany / 2, kMany - 1}) {
    EXPECT_OK(hologram_buffer_fill(ex, handles[i], static_cast<double>(i), 4));
  }
  float values[4];
  EXPECT_OK(hologram_buffer_to_bytes(ex, handles[kMany - 1], values, sizeof values));
  EXPECT_EQ(values[3], static_cast<float>(kMany - 1));
  for (const uint64_t handle : handles) ASSERT_EQ(hologram_buffer_cleanup(handle), HOLOGRAM_OK);
  EXPECT_EQ(hologram_buffer_cleanup(handles[0]), HOLOGRAM_STATE);
}

TEST(Handles, ThreadsMakeUseAndFreeThemTogether) {
  const Executor ex;
  constexpr int kThreads = 8;
  constexpr int kRounds = 300;
  std::atomic<uint64_t> shared[16] = {};
  std::atomic<int> wrong{0};
  const auto work = [&](int self) {
    uint32_t random = 2463534242U + static_cast<uint32_t>(self) * 77777U;
    for (int round = 0; round < kRounds; ++round) {
      uint64_t mine = 0;
      if (hologram_executor_allocate_buffer(ex, 32, HOLOGRAM_FLOAT32, &mine) != HOLOGRAM_OK)
        ++wrong;
      if (hologram_buffer_fill(ex, mine, 1.0, 32) != HOLOGRAM_OK) ++wrong;
      // Others may free what is used here at any moment: an op works or says that it was freed.
      random ^= random << 13;
      random ^= random >> 17;
      random ^= random << 5;
      const uint64_t others = shared[random % 16].load();
      if (others != 0) {
        const int status = hologram_vector_add_f32(ex, mine, others, mine, 32);
        if (status != HOLOGRAM_OK && status != HOLOGRAM_STATE) ++wrong;
        float values[32];
        const int read = hologram_buffer_to_bytes(ex, others, values, sizeof values);
        if (read != HOLOGRAM_OK && read != HOLOGRAM_STATE) ++wrong;
      }
      const uint64_t old = shared[(random >> 8) % 16].exchange(mine);
      if (old != 0 && hologram_buffer_cleanup(old) != HOLOGRAM_OK) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  for (auto& handle : shared) {
    if (handle != 0) {
      EXPECT_OK(hologram_buffer_cleanup(handle));
    }
  }
}

TEST(Handles, OneThreadFreesWhatAnotherMade) {
  const Executor ex;
  std::vector<uint64_t> handles(20000);
  std::thread([&] {
    for (uint64_t& handle : handles) {
      hologram_executor_allocate_buffer(ex, 16, HOLOGRAM_FLOAT32, &handle);
    }
  }).join();
  std::atomic<int> freed{0};
  std::vector<std::thread> threads;
  // Every handle is freed by four threads, of which one succeeds.
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (const uint64_t handle : handles) {
        if (hologram_buffer_cleanup(handle) == HOLOGRAM_OK) ++freed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(freed.load(), 20000);
}

TEST(Handles, AThreadHasItsOwnLastError) {
  EXPECT_EQ(hologram_buffer_cleanup(0), kBad);
  std::thread([] { EXPECT_STREQ(hologram_last_error(), ""); }).join();
  EXPECT_NE(std::string(hologram_last_error()), "");
}

}  // namespace
}  // namespace hologram::capi_test
