// SPDX-License-Identifier: MIT
// The plan cache: an index by hash, and a list by last use.
#include "src/circuit/plan_cache.h"

#include <algorithm>
#include <new>
#include <utility>

namespace hologram::circuit {

struct PlanCache::Entry {
  uint64_t hash = 0;
  const void* owner = nullptr;
  PlanOptions options;
  std::vector<uint64_t> words;
  std::vector<uint64_t> states;
  std::shared_ptr<Plan> plan;
  size_t bytes = 0;
  size_t code_bytes = 0;  // of them, what the device made
  Entry* newer = nullptr;
  Entry* older = nullptr;
  std::unique_ptr<Entry> same_hash;

  bool is(const Key& key) const {
    return owner == key.owner && options == key.options && std::ranges::equal(words, key.words) &&
           std::ranges::equal(states, key.states);
  }
};

namespace {

size_t plan_bytes(const Plan& plan) {
  size_t bytes = sizeof(Plan) + plan.attach.capacity() * sizeof(uint32_t);
  for (const Kernel& kernel : plan.kernels) {
    bytes += sizeof(Kernel) + kernel.accesses.capacity() * sizeof(Access) +
             kernel.temps.capacity() * sizeof(Temp) + kernel.instrs.capacity() * sizeof(Instr);
    if (kernel.call == nullptr) continue;
    bytes += sizeof(KernelCall) + kernel.call->operands.capacity() * sizeof(CallSlot) +
             kernel.call->attributes.capacity() * sizeof(uint64_t);
  }
  return bytes;
}

}  // namespace

PlanCache::PlanCache(size_t max_plans, size_t max_bytes)
    : max_plans_(max_plans), max_bytes_(max_bytes) {}
PlanCache::~PlanCache() = default;

void PlanCache::unlink(Entry* entry) {
  (entry->newer != nullptr ? entry->newer->older : newest_) = entry->older;
  (entry->older != nullptr ? entry->older->newer : oldest_) = entry->newer;
}

void PlanCache::push_front(Entry* entry) {
  entry->newer = nullptr;
  entry->older = newest_;
  (newest_ != nullptr ? newest_->newer : oldest_) = entry;
  newest_ = entry;
}

std::unique_ptr<PlanCache::Entry> PlanCache::remove(Entry* entry) {
  unlink(entry);
  --plans_;
  bytes_ -= entry->bytes;
  const auto found = entries_.find(entry->hash);
  std::unique_ptr<Entry>* place = &found->second;
  while (place->get() != entry) place = &(*place)->same_hash;
  std::unique_ptr<Entry> taken = std::move(*place);
  *place = std::move(taken->same_hash);
  if (found->second == nullptr) entries_.erase(found);
  return taken;
}

std::shared_ptr<Plan> PlanCache::find(const Key& key, uint64_t hash) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(hash);
  Entry* entry = found != entries_.end() ? found->second.get() : nullptr;
  while (entry != nullptr && !entry->is(key)) entry = entry->same_hash.get();
  if (entry == nullptr) {
    ++misses_;
    return nullptr;
  }
  ++hits_;
  if (entry != newest_) {
    unlink(entry);
    push_front(entry);
  }
  return entry->plan;
}

std::shared_ptr<Plan> PlanCache::insert(const Key& key, uint64_t hash, std::unique_ptr<Plan> plan) {
  plan->cache_hash = hash;
  std::shared_ptr<Plan> shared = std::move(plan);
  std::unique_ptr<Entry> entry;
  try {
    entry = std::make_unique<Entry>();
    entry->words.assign(key.words.begin(), key.words.end());
    entry->states.assign(key.states.begin(), key.states.end());
  } catch (const std::bad_alloc&) {
    return shared;
  }
  entry->hash = hash;
  entry->owner = key.owner;
  entry->options = key.options;
  entry->plan = shared;
  entry->bytes = sizeof(Entry) + (entry->words.size() + entry->states.size()) * sizeof(uint64_t) +
                 plan_bytes(*shared);
  std::vector<std::unique_ptr<Entry>> evicted;  // destroyed after the lock is released
  std::lock_guard lock(mutex_);
  try {
    std::unique_ptr<Entry>& place = entries_[hash];
    entry->same_hash = std::move(place);
    place = std::move(entry);
    push_front(place.get());
  } catch (const std::bad_alloc&) {
    return shared;
  }
  ++plans_;
  bytes_ += newest_->bytes;
  evict(evicted, max_plans_);
  return shared;
}

void PlanCache::evict(std::vector<std::unique_ptr<Entry>>& evicted, size_t max_plans) {
  while (plans_ > max_plans || (bytes_ > max_bytes_ && plans_ > 1)) {
    ++evictions_;
    std::unique_ptr<Entry> old = remove(oldest_);
    try {
      evicted.push_back(std::move(old));
    } catch (const std::bad_alloc&) {
    }
  }
}

void PlanCache::note_code(const Plan& plan) {
  const size_t bytes = plan.code != nullptr ? plan.code->bytes() : 0;
  std::vector<std::unique_ptr<Entry>> evicted;
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(plan.cache_hash);
  Entry* entry = found != entries_.end() ? found->second.get() : nullptr;
  while (entry != nullptr && entry->plan.get() != &plan) entry = entry->same_hash.get();
  if (entry == nullptr) return;  // forgotten, or without an owner
  bytes_ += bytes - entry->code_bytes;
  entry->bytes += bytes - entry->code_bytes;
  entry->code_bytes = bytes;
  evict(evicted, max_plans_);
}

bool PlanCache::give_up_some() {
  std::vector<std::unique_ptr<Entry>> evicted;
  std::lock_guard lock(mutex_);
  if (plans_ <= 1) return false;
  evict(evicted, plans_ - (plans_ + 7) / 8);
  return true;
}

void PlanCache::forget(const void* owner) {
  std::lock_guard lock(mutex_);
  for (Entry* entry = newest_; entry != nullptr;) {
    Entry* next = entry->older;
    if (entry->owner == owner) remove(entry);
    entry = next;
  }
}

PlanCache::Stats PlanCache::stats() const {
  std::lock_guard lock(mutex_);
  return {hits_, misses_, evictions_, plans_, bytes_};
}

PlanCache& plan_cache() {
  static PlanCache* instance = new PlanCache;  // leaked: circuits may run until the very end
  return *instance;
}

}  // namespace hologram::circuit
