// SPDX-License-Identifier: MIT
// Which values each walk of a row computes, which stay in registers from one to a later one, and
// how a group of items is laid out over rows and their elements.
#pragma once

#include <vector>

#include "src/gpu/rows/row_values.h"

namespace hologram::gpu {

// A group has `rows` rows and `items` items for each, of which each has `lanes` of a row's partial
// results. An item's neighbours in a group have the next rows, or the next elements.
struct RowGroup {
  bool rows_first = false;
  size_t rows = 1;
  int items = 1;
  int lanes = 1;

  size_t all_items() const { return rows * static_cast<size_t>(items); }
};

class RowWalks : public RowValues {
 protected:
  RowWalks(const Kernel& kernel, const Traits& traits);

  // Once all instructions are values.
  void plan();

  bool is_full(const Store& store) const {
    return kernel_.accesses[store.access].rank == Rank::kFull;
  }

  // Of values, by index.
  using Set = std::vector<bool>;
  struct Walk {
    Set computed;  // in it
    Set held;      // registers have them from an earlier walk
    Set left;      // registers have them for later ones
    int elements;  // that an item has at once
    int loads;     // of them, that it loads at once
  };

  const int64_t rows_;
  const int row_lanes_;   // partial results of a row
  const int64_t pieces_;  // of a row
  RowGroup group_;
  std::vector<Walk> walks_;
  bool at_once_ = false;  // a walk's `elements` are all that an item has

 private:
  int last_walk() const;
  void plan_walks(bool keep);
  // The values whose elements a walk takes together or stores.
  std::vector<int> ends(int walk) const;
  // Adds what a value is computed from, up to what is there, to `found`; what is met of that, to
  // `met`.
  void need(int value, const Set& there, Set& found, Set& met) const;
  int registers(const Set& values) const;
  int loaded_registers(const Walk& walk) const;
  // Of elements, how many an item may have at once in a walk that keeps nothing.
  int most_elements(int walk) const;
  void lay_out();
  bool keeps_rows(const RowGroup& group);
};

}  // namespace hologram::gpu
