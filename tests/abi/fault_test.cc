// SPDX-License-Identifier: MIT
// Every allocation of a session fails in turn, the system's and the heap's: an error each time,
// nothing lost, and the next call works.
#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>

#include "hologram/dlpack.h"
#include "hologram/memory.h"
#include "hologram/recorder.h"
#include "tests/abi/support.h"

namespace {

// The next allocation of this thread that fails, counted down; 0: none does.
thread_local int64_t t_fail_in = 0;
thread_local bool t_failed = false;

bool fails_now() {
  if (t_fail_in == 0 || --t_fail_in != 0) return false;
  t_failed = true;
  return true;
}

}  // namespace

// In this program the library takes its memory here.
void* operator new(size_t size) {
  void* memory = fails_now() ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return fails_now() ? nullptr : std::malloc(size == 0 ? 1 : size);
}
void* operator new[](size_t size) { return operator new(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace hologram::capi_test {
namespace {

// Everything that a session does, up to the first failure, which it returns; frees what it made.
// The heap refuses its request of number `fail_in`.
int session(int64_t fail_in = 0) {
  std::vector<std::pair<int (*)(uint64_t), uint64_t>> made;
  made.reserve(16);
  const auto run = [&]() -> int {
#define STEP(call)                            \
  do {                                        \
    const int status = call;                  \
    if (status != HOLOGRAM_OK) return status; \
  } while (false)
    uint64_t ex = 0;
    STEP(hologram_new_executor(&ex));
    made.push_back({hologram_executor_cleanup, ex});
    constexpr int64_t kN = 700000;  // beyond the small classes
    uint64_t buffers[4] = {};
    for (uint64_t& buffer : buffers) {
      STEP(hologram_executor_allocate_buffer(ex, kN, HOLOGRAM_FLOAT32, &buffer));
      made.push_back({hologram_buffer_cleanup, buffer});
    }
    const auto [a, b, c, d] = buffers;
    STEP(hologram_buffer_fill(ex, a, 0.5, kN));
    STEP(hologram_buffer_copy_from_slice(ex, b, "[1, 2, 3]", 9));
    STEP(hologram_buffer_fill(ex, b, 2.0, kN));
    STEP(hologram_vector_mul_f32(ex, a, b, c, kN));
    STEP(hologram_add(ex, c, a, d, kN));
    STEP(hologram_softmax(ex, d, c, 700, 1000));
    STEP(hologram_gemm_f32(ex, a, b, c, 300, 200, 100));
    STEP(hologram_gemm_f32(ex, a, c, c, 100, 100, 100));
    float value = 0;
    STEP(hologram_mse_loss_f32(ex, a, b, d, kN, &value));
    STEP(hologram_cross_entropy_loss_f32(ex, a, b, d, kN, nullptr));
    STEP(hologram_binary_cross_entropy_loss_f32(ex, a, a, d, kN, &value));
    STEP(hologram_reduce(ex, HOLOGRAM_REDUCE_ARGMAX, a, d, 100));
    const int64_t shape[] = {700, 1000};
    uint64_t tensor = 0;
    STEP(hologram_tensor_from_buffer(a, 0, 2, shape, nullptr, &tensor));
    made.push_back({hologram_tensor_cleanup, tensor});
    DLManagedTensorVersioned* managed = nullptr;
    STEP(hologram_tensor_to_dlpack(tensor, &managed));
    uint64_t back = 0;
    const int status = hologram_tensor_from_dlpack(managed, &back);
    if (status != HOLOGRAM_OK) {
      managed->deleter(managed);  // still ours
      return status;
    }
    made.push_back({hologram_tensor_cleanup, back});
    uint64_t copy = 0;
    STEP(hologram_tensor_copy(back, &copy));
    made.push_back({hologram_tensor_cleanup, copy});
    uint64_t flat = 0;
    STEP(hologram_tensor_as_buffer(copy, &flat));
    made.push_back({hologram_buffer_cleanup, flat});
    char* json = nullptr;
    STEP(hologram_buffer_to_vec(ex, flat, &json, nullptr));
    hologram_free(json);
    STEP(hologram_executor_synchronize(ex));
#undef STEP
    return HOLOGRAM_OK;
  };
  t_fail_in = fail_in;
  const int status = run();
  t_fail_in = 0;
  for (const auto& [cleanup, handle] : made) EXPECT_EQ(cleanup(handle), HOLOGRAM_OK);
  return status;
}

int64_t live_blocks() {
  flush(device(BackendType::kCpu));
  const MemoryStats stats = memory_stats();
  return stats.active_blocks.current + stats.boundary_blocks.current;
}

TEST(Faults, TheSystemRefusesEachRequestInTurn) {
  ASSERT_OK(session());
  const int64_t before = live_blocks();
  int refused = 0;
  for (int64_t nth = 1; nth < 200; ++nth) {
    empty_cache();
    hologram::testing::fail_os_allocations(nth);
    const int status = session();
    hologram::testing::fail_os_allocations(0);
    if (status == HOLOGRAM_OK) break;
    ++refused;
    ASSERT_EQ(status, HOLOGRAM_OUT_OF_MEMORY) << nth << ": " << hologram_last_error();
    ASSERT_NE(std::string(hologram_last_error()).find("out of memory"), std::string::npos);
    ASSERT_EQ(live_blocks(), before) << nth;
    ASSERT_OK(session()) << nth;
  }
  EXPECT_GT(refused, 3);
  EXPECT_EQ(live_blocks(), before);
}

TEST(Faults, TheHeapRefusesEachRequestInTurn) {
  ASSERT_OK(session());
  const int64_t before = live_blocks();
  int refused = 0;
  for (int64_t nth = 1; nth < 5000; ++nth) {
    t_failed = false;
    const int status = session(nth);
    if (!t_failed) break;
    ++refused;
    // Some requests are for what is only nice to have.
    ASSERT_TRUE(status == HOLOGRAM_OK || status == HOLOGRAM_OUT_OF_MEMORY)
        << nth << ": " << hologram_status_name(status) << ", " << hologram_last_error();
    ASSERT_EQ(live_blocks(), before) << nth << ": " << hologram_last_error();
    if (nth % 16 == 0) {
      ASSERT_OK(session()) << nth;
    }
  }
  EXPECT_GT(refused, 5);  // short calls ask for nothing
  ASSERT_OK(session());
  EXPECT_EQ(live_blocks(), before);
}

}  // namespace
}  // namespace hologram::capi_test
