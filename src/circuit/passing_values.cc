// SPDX-License-Identifier: MIT
// Values that only the kernels of a plan see, and how they share memory.
#include "src/circuit/passing_values.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace hologram::circuit {

void find_memory_wanted(Plan& plan, std::span<const uint8_t> states) {
  constexpr uint32_t kUnseen = std::numeric_limits<uint32_t>::max();
  std::vector<uint32_t> seen(states.size(), kUnseen);  // or the position among passing values
  for (const Kernel& kernel : plan.kernels) {          // stages ascend
    for_slots(kernel, [&](uint32_t slot) {
      const bool passes = (states[slot] & (kSlotLive | kSlotFresh)) == kSlotFresh;
      if (seen[slot] == kUnseen) {
        seen[slot] = passes ? static_cast<uint32_t>(plan.passing.size()) : 0;
        if (passes) {
          plan.passing.push_back({slot, kernel.stage, kernel.stage});
        } else {
          plan.attach.push_back(slot);
        }
      } else if (passes) {
        plan.passing[seen[slot]].last = kernel.stage;
      }
    });
  }
  std::sort(plan.attach.begin(), plan.attach.end());
}

void MemorySharing::find(std::span<const PassingValue> passing, std::span<const size_t> bytes) {
  owners_.clear();
  free_.clear();
  busy_.clear();
  bytes_ = 0;
  for (uint32_t k = 0; k < passing.size(); ++k) {
    while (!busy_.empty() && busy_.front().first < passing[k].first) {
      std::pop_heap(busy_.begin(), busy_.end(), std::greater<>());
      const uint32_t owner = busy_.back().second;
      busy_.pop_back();
      const Free freed(bytes[owner], owner);
      free_.insert(std::lower_bound(free_.begin(), free_.end(), Free(freed.first, 0)), freed);
    }
    // The smallest block that is large enough, unless more than half of it would be unused. Of
    // equal ones that which was freed last: it is in the caches.
    const auto best = std::lower_bound(free_.begin(), free_.end(), Free(bytes[k], 0));
    uint32_t owner = k;
    if (best != free_.end() && best->first / 2 <= bytes[k]) {
      owner = best->second;
      free_.erase(best);
    } else {
      bytes_ += bytes[k];
    }
    owners_.push_back(owner);
    busy_.emplace_back(passing[k].last, owner);
    std::push_heap(busy_.begin(), busy_.end(), std::greater<>());
  }
}

}  // namespace hologram::circuit
