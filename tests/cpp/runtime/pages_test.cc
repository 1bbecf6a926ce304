// SPDX-License-Identifier: MIT
// Memory where the system's pages have 16 or 64 KiB: what is given back is never beside what lives.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "hologram/memory.h"
#include "src/runtime/memory/os_memory.h"
#include "src/runtime/memory/page_heap.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {
namespace {

size_t g_page = 0;
int g_discards = 0;

// This is what the manual says: EINVAL for an address within a page, and the length is rounded up
// to whole pages.
int discard(void* data, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(data) % g_page != 0) return -1;
  ++g_discards;
  return madvise(data, (bytes + g_page - 1) / g_page * g_page, MADV_DONTNEED);
}

constexpr internal::SystemPages kLargePages{[] { return g_page; }, &discard};

struct Block {
  BufferRef buffer;
  uint8_t mark;

  Block(size_t bytes, uint8_t number) : buffer(allocate(bytes)), mark(number) {
    std::fill_n(buffer->data_as<uint8_t>(), buffer->nbytes(), mark);
  }
  bool is_whole() const {
    const auto* first = buffer->data_as<uint8_t>();
    return std::all_of(first, first + buffer->nbytes(), [&](uint8_t x) { return x == mark; });
  }
};

// Blocks of all sizes up to some MB; half of them go, the rest is looked at after a trim. Ends the
// process with how many were changed, or 100 where nothing was discarded.
void count_changed_blocks(size_t page) {
  g_page = page;
  internal::set_system_pages(&kLargePages);
  std::mt19937 random(7);
  std::vector<Block> blocks;
  int changed = 0;
  for (int round = 0; round < 30; ++round) {
    for (int i = 0; i < 60; ++i) {
      const size_t bytes = size_t{1} << (6 + random() % 16);
      blocks.emplace_back(bytes + random() % bytes, static_cast<uint8_t>(1 + random() % 255));
    }
    std::shuffle(blocks.begin(), blocks.end(), random);
    blocks.erase(blocks.begin() + static_cast<int>(blocks.size() / 2), blocks.end());
    empty_cache();
    for (const Block& block : blocks) changed += block.is_whole() ? 0 : 1;
  }
  blocks.clear();
  empty_cache();
  std::exit(g_discards < 30 ? 100 : std::min(changed, 99));
}

// Each in a process of its own, since pages have one size from the first allocation on.
class Pages : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_P(Pages, TrimmingLeavesLiveMemoryAlone) {
  EXPECT_EXIT(count_changed_blocks(GetParam() << 10), ::testing::ExitedWithCode(0), "");
}

// 256 KiB: no Linux for which this is built has them, and no more is lost than the ends of spans.
INSTANTIATE_TEST_SUITE_P(KiB, Pages, ::testing::Values(4, 16, 64, 256));

TEST(SystemPages, OnlyWholeOnesAreDiscarded) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto check = [] {
    g_page = size_t{64} << 10;
    internal::set_system_pages(&kLargePages);
    auto* bytes = static_cast<char*>(internal::os_map(internal::kHugePage));  // aligned
    std::fill_n(bytes, 4 * g_page, 'x');
    internal::os_discard(bytes + 4096, 4096);  // within one page
    internal::os_discard(bytes + g_page - 4096, g_page + 8192);
    int right = 0;
    for (size_t at = 0; at < 4 * g_page; ++at) {
      right += bytes[at] == (at / g_page == 1 ? '\0' : 'x') ? 0 : 1;
    }
    std::exit(right == 0 && g_discards == 1 ? 0 : 1);
  };
  EXPECT_EXIT(check(), ::testing::ExitedWithCode(0), "");
}

TEST(SystemPages, SpansAreWholePages) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto check = [] {
    g_page = size_t{16} << 10;
    internal::set_system_pages(&kLargePages);
    bool right = internal::system_page() == g_page;
    for (const size_t bytes : {size_t{1}, size_t{69632}, internal::kMaxMedium + internal::kPage}) {
      const internal::Span* span = internal::take_span(bytes);
      right = right && span != nullptr && span->bytes >= bytes && span->bytes % g_page == 0 &&
              reinterpret_cast<uintptr_t>(span->base) % g_page == 0;
    }
    std::exit(right ? 0 : 1);
  };
  EXPECT_EXIT(check(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hologram
