// SPDX-License-Identifier: MIT
// Remembers the plans of circuits: equal words, slot states and
// options on one device mean an equal plan.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "src/circuit/plan.h"

namespace hologram::circuit {

// One for the process. Any thread may call; a plan lives as long as a reference to it. Plans of one
// owner are handed out to that owner only, because running one changes it.
class PlanCache {
 public:
  // What a plan was made for. `states` are padded with zero bytes to a multiple of 8.
  struct Key {
    const void* owner = nullptr;
    std::span<const uint64_t> words;
    std::span<const uint64_t> states;
    PlanOptions options;

    uint64_t hash() const { return hash_words(words, hash_words(states)); }
  };

  // A step of a training loop is some tens of circuits, so this is room for the shapes of many
  // loops, with and without gradients; what is longest unused goes first.
  static constexpr size_t kMaxPlans = 2048;
  static constexpr size_t kMaxBytes = size_t{64} << 20;

  explicit PlanCache(size_t max_plans = kMaxPlans, size_t max_bytes = kMaxBytes);
  ~PlanCache();
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  // Null when there is none. hash is key.hash().
  std::shared_ptr<Plan> find(const Key& key, uint64_t hash);
  // Keeps the plan where memory for that can be had, and returns it.
  std::shared_ptr<Plan> insert(const Key& key, uint64_t hash, std::unique_ptr<Plan> plan);
  // The device has made code for a plan, or more of it, on the thread that runs the plan: counts
  // that as well.
  void note_code(const Plan& plan);
  // Forgets the plans that are longest unused, some of all; false where there is at most one. For
  // what they hold beside memory, as generated code.
  bool give_up_some();
  // Forgets the plans of an owner that goes away.
  void forget(const void* owner);

  struct Stats {
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t evictions = 0;
    size_t plans = 0;
    size_t bytes = 0;  // of keys, plans and what devices made of them
  };
  Stats stats() const;

  // Around fork.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  struct Entry;
  void unlink(Entry* entry);
  void push_front(Entry* entry);
  // Takes the entry out of the index and the list; returns the owner of its memory.
  std::unique_ptr<Entry> remove(Entry* entry);
  // Takes out what is too much, for the caller to destroy without the lock.
  void evict(std::vector<std::unique_ptr<Entry>>& evicted, size_t max_plans);

  const size_t max_plans_;
  const size_t max_bytes_;
  mutable std::mutex mutex_;
  // The first entry of each hash; further ones follow it.
  std::unordered_map<uint64_t, std::unique_ptr<Entry>> entries_;
  Entry* newest_ = nullptr;
  Entry* oldest_ = nullptr;
  size_t plans_ = 0;
  size_t bytes_ = 0;
  uint64_t hits_ = 0;
  uint64_t misses_ = 0;
  uint64_t evictions_ = 0;
};

PlanCache& plan_cache();

}  // namespace hologram::circuit
