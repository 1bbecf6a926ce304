// SPDX-License-Identifier: MIT
// Lanes: regions of a slot that lie between each other's elements, as the columns of a matrix do.
// From the first to the last byte they overlap, yet no element of one touches one of another.
#pragma once

#include <cstdint>
#include <vector>

#include "src/circuit/graph.h"

namespace hologram::circuit {

// Where all regions of a slot go by multiples of one step, each keeps to its own bytes of a step.
// Those that share some are one lane. A slot that is walked by single elements is one lane.
class Lanes {
 public:
  explicit Lanes(size_t slots) : slots_(slots) {}

  // Every region three times in the same order: add() all, then place() all; after finish() find()
  // gives for each the number of its lane, of all slots'.
  void add(const Region& region);
  void place(const Region& region);
  void finish();
  uint32_t find(const Region& region);
  size_t count() const { return count_; }

 private:
  struct Slot {
    bool is_apart = true;  // so far no region goes by single elements
    bool has_step = false;
    Size step;                   // bytes: the smallest
    std::vector<size_t> placed;  // its regions, if all are apart
    size_t found = 0;            // of them

    bool has_lanes() const { return is_apart && placed.size() > 1; }
  };
  struct Place {
    Size begin;  // bytes of a step
    Size end;
    uint32_t lane = 0;
  };
  Slot& slot_of(const Region& region) { return slots_[region.slot]; }
  // Lanes of a slot, of which the first is `lane`.
  void divide(const Slot& slot, uint32_t lane);

  std::vector<Slot> slots_;
  std::vector<Place> places_;
  size_t count_ = 0;
};

}  // namespace hologram::circuit
