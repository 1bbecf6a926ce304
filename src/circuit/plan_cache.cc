// SPDX-License-Identifier: MIT
// The plan cache: indexes by the hash of words and of structures, and a list by last use.
#include "src/circuit/plan_cache.h"

#include <algorithm>
#include <new>
#include <utility>

namespace hologram::circuit {

// What an entry or a family is found by.
struct PlanCache::Identity {
  uint64_t hash = 0;
  const void* owner = nullptr;
  PlanOptions options;
  std::vector<uint64_t> words;  // of the tape, or of its structure
  std::vector<uint64_t> states;

  Identity(const Key& key, std::span<const uint64_t> words, uint64_t hash)
      : hash(hash),
        owner(key.owner),
        options(key.options),
        words(words.begin(), words.end()),
        states(key.states.begin(), key.states.end()) {}
  bool is(const Key& key, std::span<const uint64_t> others) const {
    return owner == key.owner && options == key.options && std::ranges::equal(words, others) &&
           std::ranges::equal(states, key.states);
  }
  size_t bytes_of_words() const { return (words.size() + states.size()) * sizeof(uint64_t); }
};

// The plans of tapes of equal structure.
struct PlanCache::Family : Identity {
  using Identity::Identity;

  std::vector<std::shared_ptr<const PlanTemplate>> templates;
  std::vector<Entry*> entries;
  size_t bytes = 0;
  std::unique_ptr<Family> same_hash;
};

struct PlanCache::Entry : Identity {
  using Identity::Identity;

  std::shared_ptr<Plan> plan;
  size_t bytes = 0;
  size_t code_bytes = 0;  // of them, what the device made
  uint64_t used = 0;      // when, the last time
  Family* family = nullptr;
  std::shared_ptr<const PlanTemplate> made_by;  // null: the plan is for its sizes only
  Entry* newer = nullptr;
  Entry* older = nullptr;
  std::unique_ptr<Entry> same_hash;
};

namespace {

size_t plan_bytes(const Plan& plan) {
  size_t bytes = sizeof(Plan) + plan.attach.capacity() * sizeof(uint32_t) +
                 plan.passing.capacity() * sizeof(PassingValue);
  for (const Kernel& kernel : plan.kernels) {
    bytes += sizeof(Kernel) + kernel.accesses.capacity() * sizeof(MemoryAccess) +
             kernel.temps.capacity() * sizeof(Temp) + kernel.instrs.capacity() * sizeof(Instr) +
             kernel.formulas.capacity() * sizeof(uint32_t);
    if (kernel.call == nullptr) continue;
    bytes += sizeof(KernelCall) + kernel.call->operands.capacity() * sizeof(CallSlot) +
             kernel.call->attributes.capacity() * sizeof(uint64_t);
  }
  return bytes;
}

}  // namespace

PlanCache::PlanCache(size_t max_plans, size_t max_bytes, size_t max_sizes)
    : max_plans_(max_plans), max_bytes_(max_bytes), max_sizes_(max_sizes) {}
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

// Changes nothing where there is no memory for it.
void PlanCache::enter(std::unique_ptr<Entry>& entry) {
  std::unique_ptr<Entry>& place = entries_[entry->hash];
  entry->same_hash = std::move(place);
  place = std::move(entry);
  push_front(place.get());
  ++plans_;
  bytes_ += newest_->bytes;
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

PlanCache::Entry* PlanCache::find_entry(const Key& key, uint64_t hash) {
  const auto found = entries_.find(hash);
  Entry* entry = found != entries_.end() ? found->second.get() : nullptr;
  while (entry != nullptr && !entry->is(key, key.words)) entry = entry->same_hash.get();
  if (entry == nullptr) return nullptr;
  ++hits_;
  entry->used = ++uses_;
  if (entry != newest_) {
    unlink(entry);
    push_front(entry);
  }
  return entry;
}

std::shared_ptr<Plan> PlanCache::find(const Key& key, uint64_t hash) {
  std::lock_guard lock(mutex_);
  if (const Entry* entry = find_entry(key, hash)) return entry->plan;
  ++misses_;
  return nullptr;
}

// Null where there is no memory to keep the plan.
PlanCache::Entry* PlanCache::add(const Key& key, uint64_t hash, std::shared_ptr<Plan> plan) {
  plan->cache_hash = hash;
  try {
    auto entry = std::make_unique<Entry>(key, key.words, hash);
    entry->code_bytes = plan->code != nullptr ? plan->code->bytes() : 0;
    entry->bytes = sizeof(Entry) + entry->bytes_of_words() + plan_bytes(*plan) + entry->code_bytes;
    entry->plan = std::move(plan);
    entry->used = ++uses_;
    enter(entry);
    return newest_;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

std::shared_ptr<Plan> PlanCache::insert(const Key& key, uint64_t hash, std::shared_ptr<Plan> plan) {
  std::vector<std::unique_ptr<Entry>> evicted;  // destroyed after the lock is released
  std::lock_guard lock(mutex_);
  add(key, hash, plan);
  evict(evicted, max_plans_);
  return plan;
}

PlanCache::Family* PlanCache::find_family(const Key& key, const Structure& structure,
                                          uint64_t hash) {
  const auto found = families_.find(hash);
  Family* family = found != families_.end() ? found->second.get() : nullptr;
  while (family != nullptr && !family->is(key, structure.words())) family = family->same_hash.get();
  return family;
}

PlanCache::Found PlanCache::get(const Key& key) {
  static thread_local Structure structure;
  const uint64_t hash = key.hash();
  uint64_t family_hash = 0;
  bool as_template = false;
  std::vector<std::unique_ptr<Entry>> evicted;  // destroyed after the lock is released
  {
    std::lock_guard lock(mutex_);
    if (const Entry* entry = find_entry(key, hash)) return {entry->plan, false};
    structure.read(key.words);
    family_hash = hash_words(key.states, structure.hash());
    if (Family* family = find_family(key, structure, family_hash)) {
      if (auto plan = resize(*family, key, hash, structure)) {
        evict(evicted, max_plans_);
        return {std::move(plan), false};
      }
      as_template = family->templates.size() < kMaxTemplates;
    }
    ++misses_;
  }
  // Most structures come up with one set of sizes only: the second one gets formulas.
  const std::span<const uint8_t> states(reinterpret_cast<const uint8_t*>(key.states.data()),
                                        key.slots);
  std::unique_ptr<Plan> made;
  std::shared_ptr<const PlanTemplate> made_by;
  if (as_template) {
    made_by = std::make_shared<PlanTemplate>(structure, key.words, states, key.options, made);
  } else {
    made = make_plan(key.words, states, key.options);
  }
  std::shared_ptr<Plan> plan = std::move(made);
  std::lock_guard lock(mutex_);
  if (Entry* entry = add(key, hash, plan)) {
    join(*entry, key, structure, family_hash, std::move(made_by));
  }
  evict(evicted, max_plans_);
  return {std::move(plan), true};
}

// Where there is no memory for that, the entry stays by itself.
void PlanCache::join(Entry& entry, const Key& key, const Structure& structure, uint64_t family_hash,
                     std::shared_ptr<const PlanTemplate> made_by) {
  try {
    Family* family = find_family(key, structure, family_hash);
    if (family == nullptr) {
      auto made = std::make_unique<Family>(key, structure.words(), family_hash);
      made->entries.reserve(1);
      made->bytes = sizeof(Family) + made->bytes_of_words();
      std::unique_ptr<Family>& place = families_[family_hash];
      made->same_hash = std::move(place);
      place = std::move(made);
      family = place.get();
      ++structures_;
      bytes_ += family->bytes;
    }
    family->entries.push_back(&entry);
    entry.family = family;
    if (made_by == nullptr) return;
    family->templates.push_back(made_by);
    family->bytes += made_by->bytes();
    bytes_ += made_by->bytes();
    entry.made_by = std::move(made_by);
  } catch (const std::bad_alloc&) {
  }
}

// Templates go with the last of their plans, and a family with the last of its own.
void PlanCache::leave(Entry& entry) {
  Family* family = std::exchange(entry.family, nullptr);
  if (family == nullptr) return;
  std::erase(family->entries, &entry);
  const bool is_last = std::ranges::none_of(
      family->entries, [&](const Entry* other) { return other->made_by == entry.made_by; });
  if (entry.made_by != nullptr && is_last && std::erase(family->templates, entry.made_by) != 0) {
    family->bytes -= entry.made_by->bytes();
    bytes_ -= entry.made_by->bytes();
  }
  if (!family->entries.empty()) return;
  bytes_ -= family->bytes;
  --structures_;
  const auto found = families_.find(family->hash);
  std::unique_ptr<Family>* place = &found->second;
  while (place->get() != family) place = &(*place)->same_hash;
  std::unique_ptr<Family> gone = std::move(*place);
  *place = std::move(gone->same_hash);
  if (found->second == nullptr) families_.erase(found);
}

std::shared_ptr<Plan> PlanCache::resize(Family& family, const Key& key, uint64_t hash,
                                        const Structure& structure) {
  // Who holds a plan besides may be running it.
  const auto is_idle = [](const Entry& entry) { return entry.plan.use_count() == 1; };
  const auto serving = std::ranges::find_if(
      family.templates, [&](const auto& one) { return one->serves(structure, values_); });
  if (serving == family.templates.end()) return nullptr;
  const std::shared_ptr<const PlanTemplate> made_by = *serving;
  Entry* like = nullptr;  // one to copy, best with what a device has made of it
  Entry* oldest = nullptr;
  for (Entry* entry : family.entries) {
    if (entry->made_by != made_by) continue;
    if (like == nullptr || is_idle(*entry)) like = entry;
    if (is_idle(*entry) && (oldest == nullptr || entry->used < oldest->used)) oldest = entry;
  }
  std::shared_ptr<Plan> plan;
  if (oldest != nullptr && family.entries.size() >= max_sizes_) {
    // Its key is as long as the new one.
    std::unique_ptr<Entry> entry = remove(oldest);
    std::copy(key.words.begin(), key.words.end(), entry->words.begin());
    plan = entry->plan;
    entry->hash = plan->cache_hash = hash;
    entry->used = ++uses_;
    PlanTemplate::give(*plan, structure, values_);
    try {
      enter(entry);
    } catch (const std::bad_alloc&) {
      leave(*entry);
    }
  } else {
    try {
      const bool has_code = is_idle(*like) && like->plan->code != nullptr;
      plan = PlanTemplate::copy(*like->plan);
      if (has_code) plan->code = like->plan->code->copy();
      family.entries.reserve(family.entries.size() + 1);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    PlanTemplate::give(*plan, structure, values_);
    if (Entry* entry = add(key, hash, plan)) {
      entry->made_by = made_by;
      entry->family = &family;
      family.entries.push_back(entry);
    }
  }
  ++hits_;
  ++resized_;
  return plan;
}

void PlanCache::evict(std::vector<std::unique_ptr<Entry>>& evicted, size_t max_plans) {
  while (plans_ > max_plans || (bytes_ > max_bytes_ && plans_ > 1)) {
    ++evictions_;
    leave(*oldest_);
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
    if (entry->owner == owner) {
      leave(*entry);
      remove(entry);
    }
    entry = next;
  }
}

PlanCache::Stats PlanCache::stats() const {
  std::lock_guard lock(mutex_);
  return {hits_, resized_, misses_, evictions_, plans_, structures_, bytes_};
}

PlanCache& plan_cache() {
  static PlanCache* instance = new PlanCache;  // leaked: circuits may run until the very end
  return *instance;
}

}  // namespace hologram::circuit
