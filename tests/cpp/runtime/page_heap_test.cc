// SPDX-License-Identifier: MIT
// Medium blocks: runs of pages that are split, joined, given back and had again.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "hologram/memory.h"
#include "src/runtime/memory/size_class.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {
namespace {

constexpr size_t kKiB = size_t{1} << 10;

size_t reserved() { return static_cast<size_t>(memory_stats().reserved_bytes.current); }
size_t in_use() { return static_cast<size_t>(memory_stats().allocated_bytes.current); }

// A block whose every page holds its number.
struct Marked {
  BufferRef buffer;
  uint64_t number = 0;

  Marked(size_t n, uint64_t mark) : buffer(allocate(n)), number(mark) {
    for_pages([&](uint64_t* at) { *at = number; });
  }
  bool is_whole() const {
    bool whole = true;
    for_pages([&](const uint64_t* at) { whole = whole && *at == number; });
    return whole;
  }
  template <typename F>
  void for_pages(F&& f) const {
    const size_t capacity = buffer->capacity();
    auto* bytes = buffer->data_as<char>();
    for (size_t at = 0; at < capacity; at += 4096) f(reinterpret_cast<uint64_t*>(bytes + at));
    f(reinterpret_cast<uint64_t*>(bytes + capacity - 8));
  }
};

// No two segments overlap, each live block lies in one, and together they are what is reserved.
void expect_segments_hold(const std::vector<Marked>& live) {
  size_t total = 0;
  uintptr_t end = 0;
  std::vector<std::pair<uintptr_t, size_t>> active;
  for (const MemorySegment& segment : list_memory(device(0))) {
    EXPECT_GE(segment.address, end);
    end = segment.address + segment.bytes;
    total += segment.bytes;
    for (const MemoryBlock& block : segment.blocks) {
      if (block.active) active.emplace_back(block.address, block.bytes);
    }
  }
  EXPECT_EQ(total, reserved());
  for (const Marked& m : live) {
    const std::pair block{reinterpret_cast<uintptr_t>(m.buffer->data()), m.buffer->capacity()};
    EXPECT_EQ(std::count(active.begin(), active.end(), block), 1);
  }
}

TEST(MediumBlocks, PagesOfOneSizeServeAnother) {
  empty_cache();
  const size_t before = reserved();
  {
    std::vector<BufferRef> held;
    for (int i = 0; i < 40; ++i) held.push_back(allocate(200 * kKiB));
  }
  const size_t most = reserved();
  EXPECT_GE(most - before, 40 * 200 * kKiB);
  for (const size_t n : {150 * kKiB, 300 * kKiB, 600 * kKiB, kKiB * kKiB}) {
    std::vector<BufferRef> held;
    // They may lie in several chunks, each of which ends before a whole block does.
    for (size_t i = 0; i < 3 * 1024 * kKiB / n; ++i) held.push_back(allocate(n));
    // What is free at the end of a chunk may be too little, and gets some more.
    EXPECT_LE(reserved(), most + 2048 * kKiB) << n;
  }
  // Small blocks, too.
  std::vector<BufferRef> held;
  for (int i = 0; i < 60; ++i) held.push_back(allocate(60 * kKiB));
  EXPECT_LE(reserved(), most + 2048 * kKiB);
}

TEST(MediumBlocks, RandomSizesKeepTheirBytesAndWasteLittle) {
  std::mt19937 random(11);
  for (const size_t smallest : {129 * kKiB, 600 * kKiB}) {
    empty_cache();
    const size_t base = reserved() - in_use();
    std::vector<Marked> live;
    size_t most_used = 0, most_reserved = 0;
    for (uint64_t step = 0; step < 6000; ++step) {
      if (live.size() < 24 || (live.size() < 64 && random() % 2 == 0)) {
        const size_t n = smallest + random() % (1024 * kKiB - smallest + 1);
        live.emplace_back(n, step);
      } else {
        std::swap(live[random() % live.size()], live.back());
        ASSERT_TRUE(live.back().is_whole());
        live.pop_back();
      }
      most_used = std::max(most_used, in_use());
      most_reserved = std::max(most_reserved, reserved());
      if (step % 1000 == 999) expect_segments_hold(live);
      if (step % 2500 == 2499) empty_cache();
    }
    for (const Marked& m : live) ASSERT_TRUE(m.is_whole());
    // Each size from a list of its own would reserve twice as much and more.
    EXPECT_LE(most_reserved - base, most_used * 5 / 4);
  }
}

TEST(MediumBlocks, WhatIsFreeBetweenLiveBlocksIsGivenBack) {
  empty_cache();
  const size_t before = reserved();
  std::vector<Marked> kept;
  {
    std::vector<Marked> all;
    for (uint64_t i = 0; i < 60; ++i) all.emplace_back(300 * kKiB, i);
    for (size_t i = 0; i < all.size(); i += 2) kept.push_back(std::move(all[i]));
  }
  empty_cache();
  const size_t each = kept[0].buffer->capacity() + internal::kPage;
  EXPECT_EQ(reserved() - before, kept.size() * each);
  for (const Marked& m : kept) EXPECT_TRUE(m.is_whole());
  expect_segments_hold(kept);
  // The holes serve smaller blocks.
  std::vector<Marked> more;
  for (uint64_t i = 0; i < 60; ++i) more.emplace_back(140 * kKiB, 1000 + i);
  expect_segments_hold(more);
  for (const Marked& m : kept) EXPECT_TRUE(m.is_whole());
  for (const Marked& m : more) EXPECT_TRUE(m.is_whole());
  more.clear();
  kept.clear();
  empty_cache();
  EXPECT_EQ(reserved(), before);
}

TEST(MediumBlocks, AllThatTheLimitAllowsCanBeHadInAnySize) {
  empty_cache();
  const size_t limit = reserved() + 8 * 1024 * kKiB;
  set_memory_limit(limit);
  for (const size_t n : {200 * kKiB, 1000 * kKiB, 130 * kKiB, 500 * kKiB}) {
    std::vector<BufferRef> held;
    EXPECT_ERROR(while (true) held.push_back(allocate(n)), ErrorKind::kOutOfMemory,
                 std::to_string(n));
    EXPECT_LE(reserved(), limit);
    // Free memory of two chunks does not join.
    EXPECT_GE(held.size() * (allocation_size(n) + internal::kPage), 6 * 1024 * kKiB) << n;
  }
  set_memory_limit(0);
}

}  // namespace
}  // namespace hologram
