// SPDX-License-Identifier: MIT
// Memory from the operating system, counted against the limit; where tests make it fail.
#include "src/runtime/memory/os_memory.h"

#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

#include "hologram/memory.h"
#include "src/base/cgroups.h"

namespace hologram {
namespace internal {
namespace {

std::atomic<int64_t> reserved{0};
std::atomic<int64_t> reserved_peak{0};
std::atomic<int64_t> reserved_total{0};
std::atomic<int64_t> reserved_freed{0};
std::atomic<int64_t> os_allocations{0};
std::atomic<int64_t> os_frees{0};

// 0: no limit was set; the machine decides.
std::atomic<size_t> user_limit{0};
std::atomic<bool> user_limit_read{false};

std::atomic<int64_t> fault_countdown{0};
std::atomic<int64_t> fault_count{0};

constexpr SystemPages kSystemPages{
    [] {
      static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
      return bytes;
    },
    [](void* data, size_t bytes) { return madvise(data, bytes, MADV_DONTNEED); }};
constinit std::atomic<const SystemPages*> g_pages{&kSystemPages};

bool injected_fault() {
  if (fault_countdown.load(std::memory_order_relaxed) == 0) return false;
  // 1 means "this one"; while it stays at 1 every request fails until the count is used up.
  int64_t left = fault_countdown.load();
  while (left > 1) {
    if (fault_countdown.compare_exchange_weak(left, left - 1)) return false;
  }
  if (left == 0) return false;
  if (fault_count.fetch_sub(1) <= 1) fault_countdown.store(0);
  return true;
}

// A number of bytes with an optional K, M, G or T; 0 when absent or not understood.
size_t bytes_from_environment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return 0;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  double scale = 1;
  switch (*end) {
    case 'k':
    case 'K':
      scale = 1024.0;
      break;
    case 'm':
    case 'M':
      scale = 1024.0 * 1024;
      break;
    case 'g':
    case 'G':
      scale = 1024.0 * 1024 * 1024;
      break;
    case 't':
    case 'T':
      scale = 1024.0 * 1024 * 1024 * 1024;
      break;
    default:
      break;
  }
  const double bytes = value * scale;
  return bytes > 0 && bytes < 9e18 ? static_cast<size_t>(bytes) : 0;
}

struct MachineMemory {
  size_t physical;
  size_t with_swap;
};

const MachineMemory& machine_memory() {
  static const MachineMemory memory = [] {
    struct sysinfo info = {};
    MachineMemory m{std::numeric_limits<size_t>::max() / 4, std::numeric_limits<size_t>::max() / 4};
    if (sysinfo(&info) == 0) {
      m.physical = static_cast<size_t>(info.totalram) * info.mem_unit;
      m.with_swap = m.physical + static_cast<size_t>(info.totalswap) * info.mem_unit;
    }
    if (const size_t limit = cgroup_memory_limit(system_root()); limit != 0) {
      m.physical = std::min(m.physical, limit);
      m.with_swap = std::min(m.with_swap, limit);
    }
    return m;
  }();
  return memory;
}

enum class CachedLimit { kUnread, kDefault, kSet };
std::atomic<size_t> max_cached{0};
std::atomic<CachedLimit> max_cached_from{CachedLimit::kUnread};

}  // namespace

bool reserve_bytes(size_t bytes) {
  const size_t limit = memory_limit();
  int64_t now = reserved.load(std::memory_order_relaxed);
  do {
    if (bytes > limit || static_cast<size_t>(now) > limit - bytes) return false;
  } while (!reserved.compare_exchange_weak(now, now + static_cast<int64_t>(bytes)));
  now += static_cast<int64_t>(bytes);
  reserved_total.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  int64_t peak = reserved_peak.load(std::memory_order_relaxed);
  while (now > peak && !reserved_peak.compare_exchange_weak(peak, now)) {
  }
  return true;
}

void unreserve_bytes(size_t bytes) noexcept {
  reserved.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  reserved_freed.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
}

size_t system_page() { return g_pages.load(std::memory_order_relaxed)->bytes(); }

void set_system_pages(const SystemPages* pages) {
  g_pages.store(pages != nullptr ? pages : &kSystemPages);
}

void* os_map(size_t bytes) {
  if (injected_fault()) return nullptr;
  const bool huge = bytes >= kHugePage;
  // Addresses are multiples of the smallest page, whatever a test calls the system's.
  const size_t slack = huge ? kHugePage - kPage : 0;
  if (bytes > std::numeric_limits<size_t>::max() - slack) return nullptr;
  void* mapped =
      mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  os_allocations.fetch_add(1, std::memory_order_relaxed);
  if (!huge) return mapped;
  char* start = static_cast<char*>(mapped);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
  if (before != 0) munmap(start, before);
  if (before != slack) munmap(start + before + bytes, slack - before);
  madvise(start + before, bytes, MADV_HUGEPAGE);  // a hint: kernels without it still work
  return start + before;
}

void os_unmap(void* data, size_t bytes) noexcept {
  munmap(data, bytes);
  os_frees.fetch_add(1, std::memory_order_relaxed);
}

void os_discard(void* data, size_t bytes) noexcept {
  const size_t page = system_page();
  const auto from = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (from + page - 1) / page * page, end = (from + bytes) / page * page;
  if (begin < end) {
    g_pages.load(std::memory_order_relaxed)->discard(reinterpret_cast<void*>(begin), end - begin);
  }
  os_frees.fetch_add(1, std::memory_order_relaxed);
}

OsCounters os_counters() {
  OsCounters c;
  c.reserved = {.current = reserved.load(std::memory_order_relaxed),
                .peak = reserved_peak.load(std::memory_order_relaxed),
                .total = reserved_total.load(std::memory_order_relaxed),
                .freed = reserved_freed.load(std::memory_order_relaxed)};
  c.allocations = os_allocations.load(std::memory_order_relaxed);
  c.frees = os_frees.load(std::memory_order_relaxed);
  return c;
}

void reset_os_peak() { reserved_peak.store(reserved.load()); }

void reset_os_totals() {
  reserved_total.store(0);
  reserved_freed.store(0);
  os_allocations.store(0);
  os_frees.store(0);
}

bool is_poisoning() {
  static const bool poisoning = [] {
    const char* text = std::getenv("HOLOGRAM_POISON");
    return text != nullptr && std::string_view(text) == "1";
  }();
  return poisoning;
}

void poison(void* data, size_t nbytes) noexcept {
  constexpr std::array<unsigned char, 2> kPattern{0xf5, 0x7f};  // little-endian
  auto* bytes = static_cast<unsigned char*>(data);
  size_t done = nbytes < kPattern.size() ? nbytes : kPattern.size();
  if (done != 0) std::memcpy(bytes, kPattern.data(), done);
  while (done < nbytes) {
    const size_t more = done < nbytes - done ? done : nbytes - done;
    std::memcpy(bytes + done, bytes, more);
    done += more;
  }
}

}  // namespace internal

void set_memory_limit(size_t bytes) {
  internal::user_limit.store(bytes);
  internal::user_limit_read.store(true);
}

size_t memory_limit() {
  if (!internal::user_limit_read.load(std::memory_order_acquire)) {
    size_t unset = 0;
    internal::user_limit.compare_exchange_strong(
        unset, internal::bytes_from_environment("HOLOGRAM_MEMORY_LIMIT"));
    internal::user_limit_read.store(true, std::memory_order_release);
  }
  const size_t limit = internal::user_limit.load(std::memory_order_relaxed);
  return limit != 0 ? limit : internal::machine_memory().with_swap;
}

void set_max_cached_bytes(size_t bytes) {
  internal::max_cached.store(bytes);
  internal::max_cached_from.store(internal::CachedLimit::kSet);
}

size_t max_cached_bytes() {
  internal::CachedLimit from = internal::max_cached_from.load(std::memory_order_acquire);
  if (from == internal::CachedLimit::kUnread) {
    const bool given = std::getenv("HOLOGRAM_MAX_CACHED_BYTES") != nullptr;
    if (given) internal::max_cached = internal::bytes_from_environment("HOLOGRAM_MAX_CACHED_BYTES");
    from = given ? internal::CachedLimit::kSet : internal::CachedLimit::kDefault;
    internal::max_cached_from.store(from, std::memory_order_release);
  }
  return from == internal::CachedLimit::kSet ? internal::max_cached.load(std::memory_order_relaxed)
                                             : memory_limit() / 4;
}

SystemMemory system_memory() {
  SystemMemory result;
  result.total = internal::machine_memory().physical;
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    if (word == "MemAvailable:") {
      size_t kib = 0;
      file >> kib;
      result.available = kib * 1024;
      break;
    }
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  if (const size_t limit = internal::cgroup_memory_limit(internal::system_root()); limit != 0) {
    const size_t used = internal::cgroup_memory_used(internal::system_root());
    result.available = std::min(result.available, limit > used ? limit - used : 0);
  }
  result.available = std::min(result.available, result.total);
  return result;
}

namespace testing {
void fail_os_allocations(int64_t nth, int64_t count) {
  internal::fault_countdown.store(0);
  internal::fault_count.store(count);
  internal::fault_countdown.store(nth > 0 && count > 0 ? nth : 0);
}
}  // namespace testing

}  // namespace hologram
