// SPDX-License-Identifier: MIT
// What observers of memory are told, and the list of the memory there is.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "hologram/device.h"
#include "hologram/error.h"
#include "hologram/memory.h"
#include "hologram/parallel.h"

namespace hologram {
namespace {

std::vector<MemoryEvent>& events() {
  static std::vector<MemoryEvent> list;
  return list;
}

class MemoryWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    events().clear();
    events().reserve(1000);
    set_memory_observer([](const MemoryEvent& event) { events().push_back(event); });
  }
  void TearDown() override { set_memory_observer(nullptr); }

  static std::vector<MemoryEvent::Kind> kinds_at(uintptr_t address) {
    std::vector<MemoryEvent::Kind> kinds;
    for (const MemoryEvent& event : events()) {
      if (event.address == address) kinds.push_back(event.kind);
    }
    return kinds;
  }
};

TEST_F(MemoryWatchTest, TellsWhatBecomesOfABlock) {
  empty_cache();
  events().clear();  // what earlier tests left may have lain at the same address
  Buffer* large = allocate_buffer(device(0), (size_t{3} << 20) - 7);
  const auto address = reinterpret_cast<uintptr_t>(large->data());
  large->release();
  empty_cache();
  using Kind = MemoryEvent::Kind;
  EXPECT_EQ(kinds_at(address),
            (std::vector<Kind>{Kind::kReserve, Kind::kAllocate, Kind::kFree, Kind::kUnreserve}));
  for (const MemoryEvent& event : events()) {
    if (event.address != address) continue;
    EXPECT_EQ(event.bytes, size_t{3} << 20);
    EXPECT_EQ(event.device, 0);
    EXPECT_EQ(event.mark, 0u);
    if (event.kind == Kind::kAllocate) {
      EXPECT_EQ(event.requested, (size_t{3} << 20) - 7);
    }
  }
  events().clear();
  EXPECT_THROW(allocate_buffer(device(0), size_t{1} << 50), Error);
  ASSERT_EQ(events().size(), 1u);
  EXPECT_EQ(events()[0].kind, Kind::kOutOfMemory);
  EXPECT_EQ(events()[0].bytes, size_t{1} << 50);

  // The same block again, from the thread's own list. The span that it is cut from may be new.
  allocate_buffer(device(0), 100)->release();
  events().clear();
  Buffer* small = allocate_buffer(device(0), 100);
  const auto place = reinterpret_cast<uintptr_t>(small->data());
  small->release();
  small = allocate_buffer(device(0), 100);
  ASSERT_EQ(reinterpret_cast<uintptr_t>(small->data()), place);
  EXPECT_EQ(kinds_at(place), (std::vector<Kind>{Kind::kAllocate, Kind::kFree, Kind::kAllocate}));
  set_memory_observer(nullptr);
  small->release();
  EXPECT_EQ(kinds_at(place).size(), 3u);
}

TEST_F(MemoryWatchTest, ListsEveryBlockOnce) {
  std::vector<Buffer*> held;
  std::thread other([&] {
    for (const size_t n : {1, 64, 1000, 5000, 40000, 300000}) {
      held.push_back(allocate_buffer(device(0), n));
      allocate_buffer(device(0), n)->release();  // stays in the thread's list until it ends
    }
    held.push_back(allocate_buffer(device(0), size_t{5} << 20));
  });
  other.join();
  const std::vector<MemorySegment> segments = list_memory(device(0));
  const MemoryStats stats = memory_stats();
  size_t reserved = 0, active = 0;
  std::vector<uintptr_t> found;
  uintptr_t before = 0;
  for (const MemorySegment& segment : segments) {
    EXPECT_GE(segment.address, before);
    before = segment.address + segment.bytes;
    reserved += segment.bytes;
    uintptr_t at = segment.address;
    for (const MemoryBlock& block : segment.blocks) {
      EXPECT_EQ(block.address, at);
      at += block.bytes;
      if (!block.active) continue;
      active += block.bytes;
      found.push_back(block.address);
      EXPECT_LE(block.requested, block.bytes);
    }
    EXPECT_EQ(at, segment.address + segment.bytes);
  }
  EXPECT_EQ(reserved, static_cast<size_t>(stats.reserved_bytes.current));
  EXPECT_EQ(active, static_cast<size_t>(stats.allocated_bytes.current));
  for (Buffer* buffer : held) {
    const auto address = reinterpret_cast<uintptr_t>(buffer->data());
    EXPECT_EQ(std::count(found.begin(), found.end(), address), 1);
    buffer->release();
  }
}

TEST(RunningTest, NoCircuitRunsHere) { EXPECT_FALSE(is_running_circuit()); }

}  // namespace
}  // namespace hologram
