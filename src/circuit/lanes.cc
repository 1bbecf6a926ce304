// SPDX-License-Identifier: MIT
// See lanes.h.
#include "src/circuit/lanes.h"

#include <algorithm>

namespace hologram::circuit {
namespace {

// A region that is in all lanes is asked for in each. Their number times that of such regions is at
// most this, for each region of the slot.
constexpr size_t kMostAsked = 8;
// The most lanes of a slot that has such regions: each lane then has a tree over the cells of all.
constexpr uint32_t kMostShared = 64;

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

// Element by element, or one over the other.
bool is_dense(const Region& region) {
  return !all_steps(region, [&](Size step) { return step == 0 || step > region.size(); });
}

}  // namespace

void Lanes::add(const Region& region) {
  regions_.push_back(&region);
  if (is_dense(region)) return;
  Slot& slot = slot_of(region);
  all_steps(region, [&](Size step) {
    if (step == 0) return true;
    if (!slot.has_step || step < slot.step) slot.step = step;
    slot.has_step = true;
    return true;
  });
}

void Lanes::place(const Region& region) {
  Slot& slot = slot_of(region);
  if (!slot.has_step) return;
  slot.places.push_back(places_.size());
  Place& place = places_.emplace_back();
  place.begin = region.offset % slot.step;
  place.end = place.begin + region.size();
  place.is_in_all = is_dense(region) || place.end > slot.step ||
                    !all_steps(region, [&](Size step) { return step % slot.step == 0; });
  slot.in_all += place.is_in_all ? 1 : 0;
}

// How many lanes a slot has.
uint32_t Lanes::divide(const Slot& slot) {
  std::vector<size_t> order;
  for (const size_t place : slot.places) {
    if (!places_[place].is_in_all) order.push_back(place);
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return places_[a].begin < places_[b].begin; });
  uint32_t lanes = 1;
  Size end = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    Place& place = places_[order[i]];
    if (i > 0 && end <= place.begin) ++lanes;
    if (i == 0 || end < place.end) end = place.end;
    place.lane = lanes - 1;
  }
  return lanes;
}

void Lanes::finish() {
  for (const Region* region : regions_) place(*region);
  std::vector<uint32_t> copies(slots_.size(), 1);
  for (size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    if (slot.places.size() < 2) continue;
    slot.lanes = divide(slot);
    const bool is_shared = slot.in_all != 0;
    if (is_shared &&
        (slot.lanes > kMostShared || slot.in_all * slot.lanes > kMostAsked * slot.places.size())) {
      slot.lanes = 1;
    }
    if (slot.lanes == 1) continue;
    if (!is_shared) {
      slot.first_lane = static_cast<uint32_t>(copies.size());
      copies.resize(copies.size() + slot.lanes, 1);
    } else {
      copies[s] = slot.lanes;
    }
  }
  const auto number_of = [&](const Region& region) {
    Slot& slot = slot_of(region);
    if (slot.lanes == 1 || slot.in_all != 0) return region.slot;
    return slot.first_lane + places_[slot.places[slot.found++]].lane;
  };
  for (const Region* region : regions_) {
    cells_.add(number_of(*region), region->begin(), region->end());
  }
  cells_.finish(copies);
  for (Slot& slot : slots_) slot.found = 0;
}

Cells Lanes::find(const Region& region) {
  Slot& slot = slot_of(region);
  if (slot.lanes == 1) return cells_.find(region.slot, region.begin(), region.end());
  const Place& place = places_[slot.places[slot.found++]];
  if (slot.in_all == 0) {
    return cells_.find(slot.first_lane + place.lane, region.begin(), region.end());
  }
  Cells cells = cells_.find(region.slot, region.begin(), region.end());
  if (place.is_in_all) {
    cells.trees = slot.lanes;
  } else {
    cells.tree += place.lane * cells.tree_nodes();
  }
  return cells;
}

}  // namespace hologram::circuit
