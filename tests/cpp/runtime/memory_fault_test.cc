// SPDX-License-Identifier: MIT
// The linear pool when memory is refused: clean errors, nothing leaked, and the next call works.
#include <cstdint>
#include <cstring>
#include <vector>

#include "hologram/memory.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {
namespace {

class MemoryFault : public ::testing::Test {
 protected:
  void SetUp() override {
    empty_cache();
    set_memory_limit(0);
  }
  void TearDown() override {
    testing::fail_os_allocations(0);
    set_memory_limit(0);
  }
};

TEST_F(MemoryFault, AbsurdSizesAreRefusedAtOnce) {
  for (const size_t n : {SIZE_MAX, SIZE_MAX / 2, static_cast<size_t>(PTRDIFF_MAX), size_t{1} << 50,
                         size_t{1} << 47}) {
    EXPECT_ERROR(allocate(n), ErrorKind::kOutOfMemory, "out of memory: tried to allocate ");
    EXPECT_ERROR(allocate(n), ErrorKind::kOutOfMemory,
                 std::to_string(n).append(" bytes) on cpu:0"));
  }
  allocate(100);
}

TEST_F(MemoryFault, TheLimitIsKeptAndNamed) {
  const size_t base = static_cast<size_t>(memory_stats().reserved_bytes.current);
  set_memory_limit(base + (64u << 20));
  {
    std::vector<BufferRef> held;
    const int64_t refused = memory_stats().out_of_memory;
    EXPECT_ERROR(for (int i = 0; i < 100; ++i) held.push_back(allocate(8u << 20)),
                 ErrorKind::kOutOfMemory, "8.00 MiB (8388608 bytes)");
    EXPECT_EQ(held.size(), 8u);
    EXPECT_EQ(memory_stats().out_of_memory, refused + 1);
    const Error error = error_of([&] { allocate(8u << 20); });
    EXPECT_NE(std::string(error.what()).find("64.00 MiB in use"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("cached, limit "), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("HOLOGRAM_MEMORY_LIMIT"), std::string::npos);
    held.pop_back();
    held.push_back(allocate(8u << 20));
  }
  // Cached blocks of one size must not stand in the way of another.
  EXPECT_EQ(allocate(40u << 20)->nbytes(), 40u << 20);
  EXPECT_EQ(allocate(3000)->nbytes(), 3000u);
}

TEST_F(MemoryFault, SmallBuffersMeetTheLimitToo) {
  const size_t base = static_cast<size_t>(memory_stats().reserved_bytes.current);
  set_memory_limit(base + (2u << 20));
  std::vector<BufferRef> held;
  EXPECT_ERROR(while (true) held.push_back(allocate(1000)), ErrorKind::kOutOfMemory, "1000 bytes");
  EXPECT_GT(held.size(), 1500u);
  held.clear();
  // All of it can be had again in another size, once the cache has given way.
  EXPECT_ERROR(while (true) held.push_back(allocate(50000)), ErrorKind::kOutOfMemory,
               "50000 bytes");
  EXPECT_GT(held.size(), 30u);
  EXPECT_GT(memory_stats().retries, 0);
}

TEST_F(MemoryFault, EveryRequestToTheSystemMayFail) {
  const auto work = [](std::vector<BufferRef>& held) {
    for (int i = 0; i < 12; ++i) {
      for (size_t n : {size_t{0}, size_t{10}, size_t{3000}, size_t{200000}, size_t{3} << 20}) {
        held.push_back(allocate(n));
        if (n != 0) std::memset(held.back()->data(), 1, 8);
      }
    }
  };
  const int64_t before = memory_stats().allocated_bytes.current;
  int failures = 0;
  for (int nth = 1; nth < 200; ++nth) {
    empty_cache();
    std::vector<BufferRef> held;
    testing::fail_os_allocations(nth);
    bool failed = false;
    try {
      work(held);
    } catch (const Error& error) {
      failed = true;
      EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory) << error.what();
    }
    testing::fail_os_allocations(0);
    held.clear();
    EXPECT_EQ(memory_stats().allocated_bytes.current, before);
    work(held);  // the next call works
    held.clear();
    if (!failed) break;
    ++failures;
  }
  EXPECT_GT(failures, 10);
}

TEST_F(MemoryFault, OneRefusalIsSurvivedByEmptyingTheCache) {
  { const BufferRef cached = allocate(20u << 20); }
  const int64_t retries = memory_stats().retries;
  testing::fail_os_allocations(1, 1);
  EXPECT_EQ(allocate(40u << 20)->nbytes(), 40u << 20);
  EXPECT_EQ(memory_stats().retries, retries + 1);
}

TEST_F(MemoryFault, BoundaryPoolsReportRefusal) {
  BoundaryPool pool;
  testing::fail_os_allocations(1);
  EXPECT_ERROR(pool.slot(0), ErrorKind::kOutOfMemory, "boundary pool");
  EXPECT_ERROR(pool.acquire(), ErrorKind::kOutOfMemory, "boundary pool");
  testing::fail_os_allocations(0);
  EXPECT_EQ(pool.acquire(), 0);
}

TEST_F(MemoryFault, SystemMemoryIsPlausible) {
  const SystemMemory memory = system_memory();
  EXPECT_GT(memory.total, size_t{64} << 20);
  EXPECT_GT(memory.available, 0u);
  EXPECT_LE(memory.available, memory.total);
  EXPECT_GE(memory_limit(), memory.total);
}

}  // namespace
}  // namespace hologram
