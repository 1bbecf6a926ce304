// SPDX-License-Identifier: MIT
// Generates loops and keeps them: memory for code, never writable and executable at once, and the
// cache.
#include "src/cpu/jit/jit.h"

#include <cstdlib>
#include <cstring>
#include <string_view>

#if defined(__x86_64__) && defined(__unix__)
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "hologram/op.h"
#include "src/circuit/plan_cache.h"
#include "src/cpu/device/kernel_table.h"
#include "src/cpu/jit/emitter.h"
#include "src/cpu/jit/loop_graph.h"
#include "src/cpu/jit/schedule.h"

namespace hologram::cpu {

// ---- code pages ----

namespace jit {
namespace {

// Code pages: written while they are data, then sealed. Another thread may be running a sealed
// page, so each piece of code begins a page, and pages are written again only when no loop uses
// their code. Not thread-safe.
class CodeMemory {
 public:
  // Copies code to where it can run. Null where the system refuses, or with this the pages taken
  // would be more than `most` bytes.
  const void* install(const uint8_t* code, size_t bytes, size_t most);
  // Nobody runs the code, or will: its pages serve other code.
  void release(const void* code, size_t bytes);
  // What that many bytes of code take.
  static size_t room_for(size_t bytes);
  size_t taken() const { return taken_; }

 private:
  using Run = std::pair<size_t, uint8_t*>;  // bytes, address
  bool add_region();
  void put_back(uint8_t* at, size_t bytes);
  void take_out(std::map<uint8_t*, size_t>::iterator run);

  // Free pages that follow each other, by address and by length.
  std::map<uint8_t*, size_t> free_;
  std::set<Run> by_length_;
  size_t taken_ = 0;
};

constexpr size_t kRegionBytes = size_t{1} << 20;  // address space is taken in such pieces

size_t page_bytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t CodeMemory::room_for(size_t bytes) {
  return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

bool CodeMemory::add_region() {
  void* region =
      mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (region == MAP_FAILED) return false;
  put_back(static_cast<uint8_t*>(region), kRegionBytes);
  return true;
}

void CodeMemory::take_out(std::map<uint8_t*, size_t>::iterator run) {
  by_length_.erase({run->second, run->first});
  free_.erase(run);
}

// Joins the free pages before and after.
void CodeMemory::put_back(uint8_t* at, size_t bytes) {
  const auto after = free_.lower_bound(at);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == at) {
      at = before->first;
      bytes += before->second;
      take_out(before);
    }
  }
  if (after != free_.end() && at + bytes == after->first) {
    bytes += after->second;
    take_out(after);
  }
  free_.emplace(at, bytes);
  by_length_.emplace(bytes, at);
}

const void* CodeMemory::install(const uint8_t* code, size_t bytes, size_t most) {
  const size_t room = room_for(bytes);
  if (room > kRegionBytes || taken_ + room > most) return nullptr;
  auto found = by_length_.lower_bound({room, nullptr});
  if (found == by_length_.end()) {
    if (!add_region()) return nullptr;
    found = by_length_.lower_bound({room, nullptr});
  }
  const auto [length, place] = *found;
  if (mprotect(place, room, PROT_READ | PROT_WRITE) != 0) return nullptr;
  std::memcpy(place, code, bytes);
  if (mprotect(place, room, PROT_READ | PROT_EXEC) != 0) return nullptr;
  take_out(free_.find(place));
  if (length > room) put_back(place + room, length - room);
  taken_ += room;
  return place;
}

void CodeMemory::release(const void* code, size_t bytes) {
  const size_t room = room_for(bytes);
  put_back(static_cast<uint8_t*>(const_cast<void*>(code)), room);
  taken_ -= room;
}

}  // namespace
}  // namespace jit

// ---- the cache ----

namespace {

// Room to write a loop's code in: enough for nearly all, and for any that is let through.
constexpr size_t kUsualCode = size_t{64} << 10;
constexpr size_t kLongestCode = size_t{1} << 20;
constexpr size_t kAlignment = 64;

bool is_enabled() {
  static const bool enabled = [] {
    const char* setting = std::getenv("HOLOGRAM_JIT");
    return setting == nullptr || std::string_view(setting) != "0";
  }();
  return enabled;
}

// Asked once: in a virtual machine each question to the processor costs microseconds.
bool is_target(Isa isa) {
  static const bool avx2 = isa_available(Isa::kAvx2), avx512 = isa_available(Isa::kAvx512);
  return isa == Isa::kAvx512 ? avx512 : isa == Isa::kAvx2 && avx2;
}

// Loops by what they compute, and the unused ones in the order in which they were last used.
class LoopCache {
 public:
  struct Entry {
    const std::string* key = nullptr;
    const void* code = nullptr;  // null: there can be no loop
    size_t bytes = 0;
    int users = 0;
    std::list<Entry*>::iterator unused;  // where users is 0
  };

  std::mutex mutex;
  JitStats stats;
  size_t most = kMaxCodeBytes;
  // All loops are in use by plans that the plan cache cannot give up; until one is not.
  bool starved = false;

  // Each with the mutex held.
  Entry* find(const std::string& key) {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second;
  }
  // Null where there is no room.
  Entry* add(const std::string& key, std::span<const uint8_t> code) {
    const size_t beside = kKeyBytes + key.size();
    make_room(beside + (code.empty() ? 0 : jit::CodeMemory::room_for(code.size())));
    const auto at = entries_.try_emplace(key).first;
    Entry& entry = at->second;
    entry.key = &at->first;
    entry.unused = unused_.insert(unused_.end(), &entry);
    key_bytes_ += beside;
    if (code.empty()) return &entry;
    const size_t room = most > key_bytes_ ? most - key_bytes_ : 0;
    entry.code = memory_.install(code.data(), code.size(), room);
    entry.bytes = code.size();
    if (entry.code != nullptr) return &entry;
    remove(entry);
    return nullptr;
  }
  void begin_use(Entry& entry) {
    if (entry.users++ == 0) unused_.erase(entry.unused);
  }
  void end_use(Entry& entry) {
    if (--entry.users > 0) return;
    entry.unused = unused_.insert(unused_.end(), &entry);
    starved = false;
  }
  // It was asked for: unused ones go in the order of the last time.
  void touch(Entry& entry) {
    if (entry.users == 0) unused_.splice(unused_.end(), unused_, entry.unused);
  }
  size_t taken() const { return memory_.taken() + key_bytes_; }
  size_t count() const { return entries_.size(); }
  void make_room(size_t bytes) {
    while (!unused_.empty() && taken() + bytes > most) evict(*unused_.front());
  }

 private:
  static constexpr size_t kKeyBytes = sizeof(Entry) + 4 * sizeof(void*);  // beside the key's

  void evict(Entry& entry) {
    if (entry.code != nullptr) {
      memory_.release(entry.code, entry.bytes);
      ++stats.evictions;
    }
    remove(entry);
  }
  void remove(Entry& entry) {
    unused_.erase(entry.unused);
    key_bytes_ -= kKeyBytes + entry.key->size();
    entries_.erase(entries_.find(*entry.key));
  }

  std::unordered_map<std::string, Entry> entries_;
  std::list<Entry*> unused_;  // longest unused first
  jit::CodeMemory memory_;
  size_t key_bytes_ = 0;
};

// Never destroyed: other threads may run to the very end.
LoopCache& cache() {
  static LoopCache* instance = new LoopCache;
  return *instance;
}

// Ends with the last copy of a JitLoop.
struct Use {
  LoopCache::Entry* entry = nullptr;

  Use() = default;
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  ~Use() {
    if (entry == nullptr) return;
    const std::lock_guard<std::mutex> lock(cache().mutex);
    cache().end_use(*entry);
  }
};

// With the mutex held. The use is made before, for that may fail.
JitLoop begin(LoopCache& all, LoopCache::Entry& entry, std::shared_ptr<Use> use) {
  if (entry.code == nullptr) {
    all.touch(entry);
    return {};
  }
  all.begin_use(entry);
  use->entry = &entry;
  const auto address = reinterpret_cast<uintptr_t>(entry.code);
  return {reinterpret_cast<LoopFunction>(address), jit::CodeMemory::room_for(entry.bytes),
          std::move(use)};
}

// A child process must not inherit a lock that is held by a thread it does not have. Registered as
// the library is loaded, before the recorders': what they still run before a fork makes loops.
[[maybe_unused]] const int kHandled = pthread_atfork(
    [] { cache().mutex.lock(); }, [] { cache().mutex.unlock(); }, [] { cache().mutex.unlock(); });

// Equal for equal loops.
std::string key_of(const jit::LoopGraph& graph) {
  std::string key;
  key.reserve(128 + graph.nodes.size() * sizeof(jit::LoopNode));
  const auto add = [&](const auto&... values) {
    (key.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
  };
  const auto add_all = [&](const auto& list) {
    add(list.size());
    key.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof *list.data());
  };
  add(graph.isa, graph.by_rows, graph.has_gaps, graph.streams, graph.fetched, graph.inputs,
      graph.numbers);
  add_all(graph.outputs);
  add_all(graph.packed_inputs);
  add_all(graph.packed_outputs);
  add_all(graph.folds);
  add_all(graph.nodes);
  return key;
}

// One line a kernel for profilers that look up generated code.
void note_for_profilers(const void* code, size_t bytes, int64_t serial,
                        const jit::LoopGraph& graph) {
  static const bool wanted = [] {
    const char* setting = std::getenv("HOLOGRAM_JIT_PERF");
    return setting != nullptr && std::string_view(setting) == "1";
  }();
  if (!wanted) return;
  const std::string path = "/tmp/perf-" + std::to_string(getpid()) + ".map";
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return;
  std::fprintf(file, "%llx %zx hologram_jit_%lld",
               static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(code)), bytes,
               static_cast<long long>(serial));
  for (const uint16_t code : graph.codes) {
    std::fprintf(file, "_%s", circuit::code_name(code, 0).c_str());
  }
  if (!graph.folds.empty()) std::fputs("_fold", file);
  std::fputc('\n', file);
  std::fclose(file);
}

// The code of a loop in the calling thread's buffer, or none.
std::span<const uint8_t> generate(const jit::LoopGraph& graph) {
  const jit::Schedule schedule = jit::make_schedule(graph);
  thread_local std::vector<uint8_t> buffer;
  for (size_t capacity : {kUsualCode, kLongestCode}) {
    if (buffer.size() < capacity + kAlignment) buffer.resize(capacity + kAlignment);
    // Aligned here as it will be there, for loops begin at aligned addresses.
    const uintptr_t address = reinterpret_cast<uintptr_t>(buffer.data());
    uint8_t* const begin = buffer.data() + (kAlignment - address % kAlignment);
    try {
      jit::Emitter emitter(graph, schedule, begin, capacity);
      emitter.emit();
      return {begin, emitter.getSize()};
    } catch (const Xbyak::Error& error) {
      if (static_cast<int>(error) != Xbyak::ERR_CODE_IS_TOO_BIG) return {};
    }
  }
  return {};
}

}  // namespace

bool jit_takes(Isa isa, const circuit::Instr& instr) {
  if (!is_enabled() || !is_target(isa)) return false;
  if (instr.code == circuit::kCodeConvert) {
    return jit::can_convert(isa, instr.compute, instr.result);
  }
  if (instr.code >= kOpIdEnd || !jit::is_computed(instr.compute) ||
      kernel_table(isa).kernels[instr.code][static_cast<int>(instr.compute)][0] == nullptr) {
    return false;
  }
  const OpInfo& row = op_info(instr.op());
  return row.arity == instr.arity &&
         instr.result == (row.result_is_bool ? Dtype::kBool : instr.compute);
}

bool jit_takes_fold(Isa isa, Fold fold, Dtype dtype, int64_t cols) {
  if (!is_enabled() || !is_target(isa)) return false;
  if (fold != Fold::kSum && fold != Fold::kSumSquare && fold != Fold::kSumAbs) return false;
  if (dtype != Dtype::kFloat32 && dtype != Dtype::kFloat64) return false;
  const int64_t lanes = (isa == Isa::kAvx512 ? 64 : 32) / static_cast<int64_t>(itemsize(dtype));
  return cols > 1 && cols <= kFoldVectors * lanes;
}

JitLoop jit_compile(const jit::LoopGraph& graph) {
  if (!is_enabled() || !is_target(graph.isa) || graph.nodes.size() > jit::kMostNodes) return {};
  LoopCache& all = cache();
  const std::string key = key_of(graph);
  auto use = std::make_shared<Use>();
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (LoopCache::Entry* const found = all.find(key)) {
      ++all.stats.hits;
      return begin(all, *found, std::move(use));
    }
    if (all.starved) {
      ++all.stats.refused;
      return {};
    }
  }
  const auto since = std::chrono::steady_clock::now();
  const std::span<const uint8_t> code = generate(graph);
  for (bool more = true; more;) {
    {
      const std::lock_guard<std::mutex> lock(all.mutex);
      // Another thread may have been quicker.
      LoopCache::Entry* entry = all.find(key);
      if (entry != nullptr) return begin(all, *entry, std::move(use));
      entry = all.add(key, code);
      if (entry != nullptr) {
        if (code.empty()) return {};
        const std::chrono::duration<double, std::micro> spent =
            std::chrono::steady_clock::now() - since;
        all.stats.compile_us += spent.count();
        all.stats.code_bytes += static_cast<int64_t>(code.size());
        note_for_profilers(entry->code, code.size(), ++all.stats.kernels, graph);
        return begin(all, *entry, std::move(use));
      }
    }
    // All are in use, so plans must go. Without the lock: what they use comes back here.
    more = circuit::plan_cache().give_up_some();
  }
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.starved = true;
  ++all.stats.refused;
  return {};
}

JitStats jit_stats() {
  LoopCache& all = cache();
  const std::lock_guard<std::mutex> lock(all.mutex);
  JitStats stats = all.stats;
  stats.kept = static_cast<int64_t>(all.count());
  stats.kept_bytes = static_cast<int64_t>(all.taken());
  return stats;
}

void testing::limit_code(size_t bytes) {
  LoopCache& all = cache();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.most = bytes;
  all.starved = false;
  all.make_room(0);
}

}  // namespace hologram::cpu

#else

namespace hologram::cpu {

bool jit_takes(Isa, const circuit::Instr&) { return false; }
bool jit_takes_fold(Isa, Fold, Dtype, int64_t) { return false; }
JitLoop jit_compile(const jit::LoopGraph&) { return {}; }
JitStats jit_stats() { return {}; }
void testing::limit_code(size_t) {}

}  // namespace hologram::cpu
#endif
