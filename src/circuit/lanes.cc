// SPDX-License-Identifier: MIT
// See lanes.h.
#include "src/circuit/lanes.h"

#include <algorithm>

namespace hologram::circuit {
namespace {

// Bytes from one element to the next; 0 where they are in the same place.
Size step_of(const Region& region, const Map::Part& part) {
  const Size step = part.stride < 0 ? Size(0) - part.stride : part.stride;
  return step * region.size();
}

template <class F>
bool all_steps(const Region& region, F&& f) {
  const auto first = region.map.parts.begin();
  return std::all_of(first, first + region.map.count,
                     [&](const Map::Part& part) { return f(step_of(region, part)); });
}

}  // namespace

void Lanes::add(const Region& region) {
  Slot& slot = slot_of(region);
  if (!slot.is_apart) return;
  slot.is_apart = all_steps(region, [&](Size step) {
    if (step == 0) return true;
    if (step <= region.size()) return false;
    if (!slot.has_step || step < slot.step) slot.step = step;
    slot.has_step = true;
    return true;
  });
}

void Lanes::place(const Region& region) {
  Slot& slot = slot_of(region);
  if (!slot.is_apart || !slot.has_step) return;
  const Size begin = region.offset % slot.step;
  slot.placed.push_back(places_.size());
  places_.push_back({begin, begin + region.size()});
  slot.is_apart = places_.back().end <= slot.step &&
                  all_steps(region, [&](Size step) { return step % slot.step == 0; });
}

void Lanes::divide(const Slot& slot, uint32_t lane) {
  std::vector<size_t> order = slot.placed;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return places_[a].begin < places_[b].begin; });
  Size end = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    Place& place = places_[order[i]];
    if (i > 0 && end <= place.begin) lane = static_cast<uint32_t>(count_++);
    if (i == 0 || end < place.end) end = place.end;
    place.lane = lane;
  }
}

void Lanes::finish() {
  count_ = slots_.size();
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s].has_lanes()) divide(slots_[s], static_cast<uint32_t>(s));
  }
}

uint32_t Lanes::find(const Region& region) {
  Slot& slot = slot_of(region);
  return slot.has_lanes() ? places_[slot.placed[slot.found++]].lane : region.slot;
}

}  // namespace hologram::circuit
