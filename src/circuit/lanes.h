// SPDX-License-Identifier: MIT
// Lanes: regions of a slot that lie between each other's elements, as the columns of a matrix do.
// From the first to the last byte they overlap, yet no element of one touches one of another.
#pragma once

#include <cstdint>
#include <vector>

#include "src/circuit/cells.h"
#include "src/circuit/graph.h"

namespace hologram::circuit {

// Where regions of a slot go by multiples of one step, each keeps to its own bytes of a step. Those
// that share some are in one lane. The other regions of the slot are in all lanes; a slot without
// lanes is one.
class Lanes {
 public:
  explicit Lanes(size_t slots) : slots_(slots) {}

  // Every region is added, then finish(), then each can be asked for, in the same order.
  void add(const Region& region);
  void finish();
  Cells find(const Region& region);
  // Nodes that a tree over all slots has.
  size_t nodes() const { return cells_.nodes(); }

 private:
  struct Slot {
    bool has_step = false;
    Size step;  // bytes: the smallest of those that are larger than an element
    std::vector<size_t> places;
    size_t in_all = 0;  // of them
    size_t found = 0;   // of them
    uint32_t lanes = 1;
    uint32_t first_lane = 0;  // where none is in all: its number, after those of the slots
  };
  struct Place {
    bool is_in_all = false;
    Size begin, end;  // else: bytes of a step
    uint32_t lane = 0;
  };
  Slot& slot_of(const Region& region) { return slots_[region.slot]; }
  void place(const Region& region);
  uint32_t divide(const Slot& slot);

  std::vector<Slot> slots_;
  std::vector<const Region*> regions_;
  std::vector<Place> places_;
  CellMap cells_;
};

}  // namespace hologram::circuit
