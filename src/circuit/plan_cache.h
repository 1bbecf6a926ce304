// SPDX-License-Identifier: MIT
// Remembers the plans of circuits: equal words, slot states and options on one device mean an equal
// plan. Of tapes of equal structure (see plan_template.h) a few plans are kept, for the sizes that
// came last; for others one of these is given the new sizes.
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
#include "src/circuit/plan_template.h"

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
    size_t slots = 0;  // that `states` are of

    uint64_t hash() const { return hash_words(words, hash_words(states)); }
  };

  // Plans of one structure.
  static constexpr size_t kMaxSizes = 16;
  // Templates of one structure: planning may come to other plans for other sizes.
  static constexpr size_t kMaxTemplates = 8;
  // A step of a training loop is some tens of circuits, so this is room for the shapes of many
  // loops, with and without gradients; what is longest unused goes first.
  static constexpr size_t kMaxPlans = 2048;
  static constexpr size_t kMaxBytes = size_t{64} << 20;

  explicit PlanCache(size_t max_plans = kMaxPlans, size_t max_bytes = kMaxBytes,
                     size_t max_sizes = kMaxSizes);
  ~PlanCache();
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  // The plan for a key, made where there is none. Throws as make_plan().
  struct Found {
    std::shared_ptr<Plan> plan;
    bool made = false;
  };
  Found get(const Key& key);
  // Null when there is none for these very words. hash is key.hash().
  std::shared_ptr<Plan> find(const Key& key, uint64_t hash);
  // Keeps the plan where memory for that can be had, and returns it.
  std::shared_ptr<Plan> insert(const Key& key, uint64_t hash, std::shared_ptr<Plan> plan);
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
    uint64_t resized = 0;  // of them, plans that were given other sizes
    uint64_t misses = 0;
    uint64_t evictions = 0;
    size_t plans = 0;
    size_t structures = 0;  // that the plans are of
    size_t bytes = 0;       // of keys, plans and what devices made of them
  };
  Stats stats() const;

  // Around fork.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  struct Identity;
  struct Entry;
  struct Family;
  // Each with the mutex held. Null: there is none.
  Entry* find_entry(const Key& key, uint64_t hash);
  Family* find_family(const Key& key, const Structure& structure, uint64_t hash);
  // A plan of the family with the sizes of the key; null where none of its templates serves them.
  std::shared_ptr<Plan> resize(Family& family, const Key& key, uint64_t hash,
                               const Structure& structure);
  Entry* add(const Key& key, uint64_t hash, std::shared_ptr<Plan> plan);
  void join(Entry& entry, const Key& key, const Structure& structure, uint64_t family_hash,
            std::shared_ptr<const PlanTemplate> made_by);
  void leave(Entry& entry);
  void enter(std::unique_ptr<Entry>& entry);
  void unlink(Entry* entry);
  void push_front(Entry* entry);
  // Takes the entry out of the index and the list; returns the owner of its memory.
  std::unique_ptr<Entry> remove(Entry* entry);
  // Takes out what is too much, for the caller to destroy without the lock.
  void evict(std::vector<std::unique_ptr<Entry>>& evicted, size_t max_plans);

  const size_t max_plans_;
  const size_t max_bytes_;
  const size_t max_sizes_;
  mutable std::mutex mutex_;
  // The first entry of each hash; further ones follow it.
  std::unordered_map<uint64_t, std::unique_ptr<Entry>> entries_;
  Entry* newest_ = nullptr;
  Entry* oldest_ = nullptr;
  size_t plans_ = 0;
  size_t bytes_ = 0;
  // Families by the hash of their structure, the first of each hash.
  std::unordered_map<uint64_t, std::unique_ptr<Family>> families_;
  size_t structures_ = 0;
  std::vector<int64_t> values_;  // of the sizes that a plan is given
  uint64_t uses_ = 0;
  uint64_t hits_ = 0;
  uint64_t resized_ = 0;
  uint64_t misses_ = 0;
  uint64_t evictions_ = 0;
};

PlanCache& plan_cache();

}  // namespace hologram::circuit
