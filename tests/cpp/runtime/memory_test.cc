// SPDX-License-Identifier: MIT
// The linear pool: alignment, reuse, threads, statistics, and forked children.
#include "hologram/memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "src/runtime/memory/size_class.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {
namespace {

TEST(SizeClass, HoldsTheRequestAndWastesAtMostAnEighth) {
  size_t checked = 0;
  for (size_t base = 1; base < (size_t{1} << 47); base += base / 7 + 1) {
    for (const size_t n : {base - (base > 1), base, base + 1}) {
      const int c = internal::size_class(n);
      const size_t size = internal::class_bytes(c);
      ASSERT_GE(size, n);
      ASSERT_EQ(size % 64, 0u);
      if (n > 512) {
        ASSERT_LE(size - n, n / 8) << n;
      }
      if (c > 0) {
        ASSERT_LT(internal::class_bytes(c - 1), n);
      }
      if (n > (size_t{32} << 10)) {
        ASSERT_EQ(size % 4096, 0u);
      }
      ASSERT_EQ(c < internal::kSmallClasses, n <= internal::kMaxSmall);
      ++checked;
    }
  }
  EXPECT_GT(checked, 100u);
}

TEST(SizeClass, SpansHoldWholeBlocksAndPages) {
  for (int c = 0; c < internal::kSmallClasses; ++c) {
    const size_t span = internal::span_bytes(c);
    const size_t size = internal::class_bytes(c);
    const internal::SpanCut cut = internal::cut_span(c);
    EXPECT_EQ(span % 4096, 0u);
    EXPECT_GE(cut.stride, cut.blocks == 1 ? 0 : size);
    EXPECT_LE((cut.blocks - 1) * cut.stride + size, span) << c;
    EXPECT_LE(span - cut.blocks * size, span / 8) << c;
  }
}

// The shortest way between two places of a page, whose ends meet.
size_t apart(uintptr_t a, uintptr_t b) {
  const size_t d = (a - b) % 4096;
  return std::min(d, 4096 - d);
}

TEST(SizeClass, BlocksThatFollowEachOtherDifferInColour) {
  int triples = 0, close = 0;
  for (int c = 0; c < internal::kSmallClasses; ++c) {
    const internal::SpanCut cut = internal::cut_span(c);
    if (internal::class_bytes(c) < 4096 || cut.blocks == 1) continue;
    std::set<size_t> numbers;
    std::vector<size_t> places;
    for (size_t k = 0; k < cut.blocks; ++k) {
      const size_t number = k * cut.step % cut.blocks;
      numbers.insert(number);
      places.push_back(number * cut.stride);
      EXPECT_EQ(places.back() % 256, 0u);
    }
    EXPECT_EQ(numbers.size(), cut.blocks) << c;
    for (size_t k = 2; k < places.size(); ++k) {
      triples += 1;
      close += std::min(apart(places[k], places[k - 1]), apart(places[k], places[k - 2])) < 512;
    }
  }
  EXPECT_GT(triples, 50);
  EXPECT_LE(close, triples / 20);
  for (size_t n = 2; n < 100; ++n) {
    EXPECT_GE(apart(internal::colour_of(n), internal::colour_of(n - 1)), 1024u);
    EXPECT_GE(apart(internal::colour_of(n), internal::colour_of(n - 2)), 1024u);
  }
}

// Two operands and a result, of sizes from a page to the last small one, new from the system.
TEST(Memory, OperandsAndResultBeginAtDifferentPlacesOfTheirPages) {
  for (const size_t n :
       {size_t{4096}, size_t{8192}, size_t{40000}, size_t{400000}, size_t{1} << 20}) {
    empty_cache();
    const BufferRef held[3] = {allocate(n), allocate(n), allocate(n)};
    for (int i = 1; i < 3; ++i) {
      for (int j = 0; j < i; ++j) {
        EXPECT_GE(apart(reinterpret_cast<uintptr_t>(held[i]->data()),
                        reinterpret_cast<uintptr_t>(held[j]->data())),
                  256u)
            << n;
      }
    }
  }
}

TEST(Memory, EverySizeIsAlignedWritableAndSeparate) {
  std::vector<BufferRef> held;
  unsigned char mark = 1;
  for (size_t n : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{511}, size_t{512},
                   size_t{513}, size_t{4096}, size_t{12288}, size_t{40000}, size_t{400000},
                   size_t{1} << 20, (size_t{1} << 20) + 1, size_t{4000000}, size_t{40000000}}) {
    for (int copies = 0; copies < 3; ++copies) {
      BufferRef b = allocate(n);
      ASSERT_NE(b->data(), nullptr);
      EXPECT_EQ(b->nbytes(), n);
      EXPECT_GE(b->capacity(), n);
      EXPECT_EQ(b->capacity(), allocation_size(n));
      EXPECT_EQ(b->use_count(), 1u);
      EXPECT_EQ(b->pool(), PoolKind::kLinear);
      EXPECT_EQ(b->class_index(), -1);
      EXPECT_EQ(&b->device(), &cpu());
      const auto address = reinterpret_cast<uintptr_t>(b->data());
      EXPECT_EQ(address % 64, 0u);
      if (n >= 4096) {
        EXPECT_EQ(address % 256, 0u);
      }
      if (n >= (2u << 20)) {
        EXPECT_EQ(address % (2u << 20), 0u);
      }
      std::memset(b->data(), mark++, b->capacity());
      held.push_back(std::move(b));
    }
  }
  mark = 1;
  for (const BufferRef& b : held) {
    const auto* bytes = b->data_as<unsigned char>();
    EXPECT_EQ(bytes[0], mark);
    EXPECT_EQ(bytes[b->capacity() / 2], mark);
    EXPECT_EQ(bytes[b->capacity() - 1], mark);
    ++mark;
  }
}

TEST(Memory, ZeroBytesGiveABufferWithoutAddress) {
  const BufferRef a = allocate(0);
  const BufferRef b = allocate(0);
  EXPECT_NE(a.get(), b.get());
  EXPECT_EQ(a->data(), nullptr);
  EXPECT_EQ(a->nbytes(), 0u);
  EXPECT_EQ(a->capacity(), 0u);
}

TEST(Memory, ReleasedBlocksAreReused) {
  for (const size_t n : {size_t{64}, size_t{5000}, size_t{300000}, size_t{3} << 20}) {
    void* first = allocate(n)->data();
    const int64_t os = memory_stats().os_allocations;
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(allocate(n - i % 7)->data(), first);
    EXPECT_EQ(memory_stats().os_allocations, os);
  }
}

TEST(Memory, AMillionSmallBuffersLiveAtOnce) {
  constexpr int kCount = kThreadSanitizer || kAddressSanitizer ? 100'000 : 1'000'000;
  std::vector<BufferRef> buffers;
  buffers.reserve(kCount);
  const int64_t before = memory_stats().active_blocks.current;
  for (int i = 0; i < kCount; ++i) {
    buffers.push_back(allocate(sizeof i));
    *buffers.back()->data_as<int>() = i;
  }
  EXPECT_EQ(memory_stats().active_blocks.current, before + kCount);
  for (int i = 0; i < kCount; ++i) ASSERT_EQ(*buffers[i]->data_as<int>(), i);
  buffers.clear();
  EXPECT_EQ(memory_stats().active_blocks.current, before);
}

TEST(Memory, EmptyCacheGivesEverythingBack) {
  empty_cache();
  const MemoryStats before = memory_stats();
  {
    std::vector<BufferRef> buffers;
    for (size_t n = 1; n < (64u << 20); n = n * 3 / 2 + 1) buffers.push_back(allocate(n));
    EXPECT_GT(memory_stats().reserved_bytes.current, before.reserved_bytes.current);
  }
  EXPECT_GT(memory_stats().cached_bytes, 0);
  empty_cache();
  const MemoryStats after = memory_stats();
  EXPECT_EQ(after.allocated_bytes.current, before.allocated_bytes.current);
  EXPECT_EQ(after.reserved_bytes.current, before.reserved_bytes.current);
  EXPECT_EQ(after.cached_large_bytes, 0);
  BufferRef again = allocate(100);  // spans given back serve again
  std::memset(again->data(), 1, 100);
}

TEST(Memory, EmptyCacheKeepsWhatIsLive) {
  std::vector<BufferRef> kept;
  {
    std::vector<BufferRef> all;
    for (int i = 0; i < 5000; ++i) {
      all.push_back(allocate(100));
      std::memset(all.back()->data(), i % 251, 100);
    }
    for (int i = 0; i < 5000; i += 1000) kept.push_back(all[i]);
  }
  empty_cache();
  for (size_t i = 0; i < kept.size(); ++i) {
    for (int k = 0; k < 100; ++k) ASSERT_EQ(kept[i]->data_as<uint8_t>()[k], i * 1000 % 251);
  }
  for (int i = 0; i < 5000; ++i) std::memset(allocate(100)->data(), 255, 100);
  EXPECT_EQ(kept[1]->data_as<uint8_t>()[0], 1000 % 251);
}

TEST(Memory, CachedLargeBlocksStayBelowTheLimit) {
  empty_cache();
  set_max_cached_bytes(16u << 20);
  {
    std::vector<BufferRef> buffers;
    for (int i = 0; i < 10; ++i) buffers.push_back(allocate(5u << 20));
  }
  EXPECT_LE(memory_stats().cached_large_bytes, 16 << 20);
  EXPECT_GT(memory_stats().cached_large_bytes, 0);
  set_max_cached_bytes(0);
  allocate(5u << 20);
  EXPECT_EQ(memory_stats().cached_large_bytes, 0);
  set_max_cached_bytes(memory_limit() / 4);
}

TEST(Memory, StatisticsAreExactOnOneThread) {
  empty_cache();
  reset_peak_memory_stats();
  reset_accumulated_memory_stats();
  const MemoryStats start = memory_stats();
  std::mt19937 random(7);
  std::vector<BufferRef> live;
  int64_t current = start.allocated_bytes.current;
  int64_t requested = start.requested_bytes.current;
  int64_t peak = current;
  int64_t total = 0, freed = 0;
  EXPECT_EQ(start.allocated_bytes.freed, 0);
  EXPECT_EQ(start.requested_bytes.freed, 0);
  EXPECT_EQ(start.active_blocks.freed, 0);
  EXPECT_EQ(start.reserved_bytes.freed, 0);
  for (int i = 0; i < 20000; ++i) {
    if (live.size() < 50 && random() % 5 < 3) {
      const size_t n = random() % 4 == 0 ? random() % 3'000'000 : random() % 5000;
      live.push_back(allocate(n));
      const size_t size = live.back()->capacity();  // a cached block one class up may serve
      ASSERT_GE(size, allocation_size(n));
      ASSERT_LE(size, allocation_size(n) * 5 / 4);
      current += static_cast<int64_t>(size);
      total += static_cast<int64_t>(size);
      requested += static_cast<int64_t>(n);
      peak = std::max(peak, current);
    } else if (!live.empty()) {
      const size_t k = random() % live.size();
      current -= static_cast<int64_t>(live[k]->capacity());
      freed += static_cast<int64_t>(live[k]->capacity());
      requested -= static_cast<int64_t>(live[k]->nbytes());
      live[k] = live.back();
      live.pop_back();
    }
    if (i % 500 == 0) {
      const MemoryStats s = memory_stats();
      ASSERT_EQ(s.allocated_bytes.current, current);
      ASSERT_EQ(s.allocated_bytes.peak, peak);
      ASSERT_EQ(s.allocated_bytes.total, total);
      ASSERT_EQ(s.allocated_bytes.freed, freed);
      ASSERT_EQ(s.requested_bytes.current, requested);
      ASSERT_EQ(s.active_blocks.current,
                start.active_blocks.current + static_cast<int64_t>(live.size()));
      ASSERT_GE(s.reserved_bytes.current, current);
      ASSERT_EQ(s.cached_bytes, s.reserved_bytes.current - current);
    }
    if (i == 10000) {  // with live buffers, freed later
      reset_peak_memory_stats();
      reset_accumulated_memory_stats();
      total = freed = 0;
      peak = current;
    }
  }
  live.clear();
  EXPECT_EQ(memory_stats().allocated_bytes.current, start.allocated_bytes.current);
}

TEST(Memory, EightThreadsFreeEachOthersBuffers) {
  const MemoryStats start = memory_stats();
  constexpr int kThreads = 8;
  const int rounds = kThreadSanitizer ? 2000 : 20000;
  struct Box {
    std::mutex mutex;
    std::deque<BufferRef> waiting;
  };
  std::vector<Box> boxes(kThreads);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < rounds; ++i) {
        const size_t n = random() % 20 == 0 ? 4 + random() % 2'000'000 : 4 + random() % 3000;
        BufferRef b = allocate(n);
        *b->data_as<uint32_t>() = static_cast<uint32_t>(n);
        Box& box = boxes[random() % kThreads];
        const std::lock_guard lock(box.mutex);
        box.waiting.push_back(std::move(b));
        if (box.waiting.size() > 20) {
          const BufferRef& oldest = box.waiting.front();
          if (*oldest->data_as<uint32_t>() != oldest->nbytes()) ++wrong;
          box.waiting.pop_front();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  for (Box& box : boxes) box.waiting.clear();
  EXPECT_EQ(memory_stats().allocated_bytes.current, start.allocated_bytes.current);
  EXPECT_EQ(memory_stats().active_blocks.current, start.active_blocks.current);
  empty_cache();
  EXPECT_EQ(memory_stats().cached_large_bytes, 0);
}

TEST(Memory, ProducerAndConsumerThreadsDoNotGrow) {
  // One thread only allocates, another only frees: blocks must find their way back.
  std::mutex mutex;
  std::vector<BufferRef> handed;
  std::atomic<bool> stop{false};
  std::thread consumer([&] {
    while (!stop) {
      std::vector<BufferRef> taken;
      {
        const std::lock_guard lock(mutex);
        taken.swap(handed);
      }
      taken.clear();
      std::this_thread::yield();
    }
  });
  int64_t reserved_early = 0;
  for (int i = 0; i < 50000; ++i) {
    BufferRef b = allocate(1000);
    while (true) {
      {
        const std::lock_guard lock(mutex);
        if (handed.size() < 100) {
          handed.push_back(std::move(b));
          break;
        }
      }
      std::this_thread::yield();
    }
    if (i == 5000) reserved_early = memory_stats().reserved_bytes.current;
  }
  stop = true;
  consumer.join();
  EXPECT_LE(memory_stats().reserved_bytes.current, reserved_early + (2 << 20));
  handed.clear();
}

TEST(Memory, BuffersReleasedWhileAThreadEndsAreCounted) {
  const MemoryStats start = memory_stats();
  struct AtEnd {
    BufferRef buffer;
    ~AtEnd() { allocate(77); }
  };
  for (int i = 0; i < 20; ++i) {
    std::thread([] {
      thread_local AtEnd at_end;
      at_end.buffer = allocate(123);
    }).join();
  }
  EXPECT_EQ(memory_stats().active_blocks.current, start.active_blocks.current);
}

TEST(Memory, ReferencesAreCounted) {
  BufferRef a = allocate(10);
  {
    const BufferRef b = a;  // NOLINT(performance-unnecessary-copy-initialization): counted
    const BufferRef c = BufferRef::share(a.get());
    EXPECT_EQ(a->use_count(), 3u);
    EXPECT_TRUE(b == c);
  }
  EXPECT_EQ(a->use_count(), 1u);
  Buffer* raw = a.detach();
  EXPECT_FALSE(a);
  a = BufferRef::adopt(raw);
  a = BufferRef(a);
  EXPECT_EQ(a->use_count(), 1u);
  a->set_dtype(Dtype::kInt16);
  EXPECT_EQ(a->length(), 5u);
}

TEST(Memory, ForeignMemoryIsGivenBackOnce) {
  std::atomic<int> deleted{0};
  float data[4] = {1, 2, 3, 4};
  {
    const BufferRef b = BufferRef::adopt(wrap_buffer(
        cpu(), data, sizeof data, [](void* count) { ++*static_cast<std::atomic<int>*>(count); },
        &deleted));
    EXPECT_EQ(b->pool(), PoolKind::kForeign);
    EXPECT_EQ(b->data(), data);
    const BufferRef second = b;  // NOLINT(performance-unnecessary-copy-initialization)
  }
  EXPECT_EQ(deleted, 1);
  { BufferRef::adopt(wrap_buffer(cpu(), data, sizeof data, nullptr, nullptr)); }
  EXPECT_ERROR(wrap_buffer(cpu(), nullptr, 8, nullptr, nullptr), ErrorKind::kInvalidArgument,
               "data is null but nbytes is 8");
}

TEST(Memory, ForkedChildrenCanAllocate) {
  if (kThreadSanitizer)
    GTEST_SKIP() << "ThreadSanitizer does not follow forks of threaded programs";
  const BufferRef kept = allocate(100);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      while (!stop) {
        for (size_t n : {size_t{50} << t, size_t{5000}, size_t{300000}, size_t{3} << 20}) {
          allocate(n);
        }
      }
    });
  }
  for (int i = 0; i < 10; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);
      bool right = true;
      for (size_t n : {size_t{8}, size_t{700}, size_t{40000}, size_t{400000}, size_t{5} << 20}) {
        BufferRef b = allocate(n);
        std::memset(b->data(), 1, n);
        right = right && b->use_count() == 1;
      }
      std::thread([] { allocate(64); }).join();
      empty_cache();
      _exit(right && memory_stats().allocated_bytes.current >= 128 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(BoundaryPool, HasNinetySixSeparateClasses) {
  BoundaryPool pool;
  EXPECT_EQ(pool.free_classes(), 96);
  std::vector<bool> seen(96, false);
  for (int i = 0; i < 96; ++i) {
    const int c = pool.acquire();
    ASSERT_GE(c, 0);
    ASSERT_LT(c, 96);
    ASSERT_FALSE(seen[c]);
    seen[c] = true;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pool.slot(c)) % 64, 0u);
    std::memset(pool.slot(c), c, BoundaryPool::kClassBytes);
  }
  EXPECT_EQ(pool.acquire(), -1);
  for (int c = 2; c < 96; ++c) {
    const auto place = [&](int k) { return reinterpret_cast<uintptr_t>(pool.slot(k)); };
    EXPECT_GE(apart(place(c), place(c - 1)), 1024u);
    EXPECT_GE(apart(place(c), place(c - 2)), 1024u);
  }
  for (int c = 0; c < 96; ++c) {
    EXPECT_EQ(reinterpret_cast<uint8_t*>(pool.slot(c))[BoundaryPool::kClassBytes - 1], c);
  }
  pool.release(70);
  EXPECT_EQ(pool.free_classes(), 1);
  EXPECT_EQ(pool.acquire(), 70);
}

TEST(BoundaryPool, IsOnePerThreadAndServesAgain) {
  BoundaryPool* mine = &this_thread_pool();
  EXPECT_EQ(mine, &this_thread_pool());
  BoundaryPool* other = nullptr;
  std::thread([&] {
    other = &this_thread_pool();
    const BoundarySlot slot;
    EXPECT_NE(slot.data(), nullptr);
    EXPECT_EQ(other->free_classes(), 95);
  }).join();
  EXPECT_NE(mine, other);
  std::thread([&] { EXPECT_EQ(&this_thread_pool(), other); }).join();
  EXPECT_EQ(other->free_classes(), 96);
}

TEST(BoundaryPool, ForkedChildrenUseThoseOfThreadsTheyLack) {
  if (kThreadSanitizer)
    GTEST_SKIP() << "ThreadSanitizer does not follow forks of threaded programs";
  const auto pool_of_a_thread = [] {
    BoundaryPool* pool = nullptr;
    std::thread([&] { pool = &this_thread_pool(); }).join();
    return pool;
  };
  const BoundarySlot mine;
  std::atomic<BoundaryPool*> taken{nullptr};
  std::atomic<bool> stop{false};
  std::thread holder([&] {
    const BoundarySlot slot;
    taken = &this_thread_pool();
    while (!stop) std::this_thread::yield();
  });
  while (taken == nullptr) std::this_thread::yield();
  EXPECT_NE(pool_of_a_thread(), taken);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    std::vector<std::thread> threads;
    std::atomic<int> found{0}, ready{0};
    const int count = 64;  // as many at once take all that there are
    for (int t = 0; t < count; ++t) {
      threads.emplace_back([&] {
        BoundaryPool* const pool = &this_thread_pool();
        if (pool == taken && pool->free_classes() == 96) ++found;
        ++ready;
        while (ready < count) std::this_thread::yield();
      });
    }
    for (std::thread& thread : threads) thread.join();
    _exit(found == 1 && this_thread_pool().free_classes() == 95 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  stop = true;
  holder.join();
}

}  // namespace
}  // namespace hologram
