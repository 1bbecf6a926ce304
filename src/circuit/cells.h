// SPDX-License-Identifier: MIT
// Which bytes of the slots a circuit's regions share, and trees that answer for many of them at
// once: a question or a change takes the logarithm of the regions of a slot, however many regions
// overlap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "src/circuit/size.h"

namespace hologram::circuit {

// The bytes from the lowest to the highest that a region reaches, as a range of cells. Cells are
// what the ends of all regions cut a slot into.
struct Cells {
  uint32_t tree = 0;   // where the slot's nodes are in every tree
  uint32_t count = 0;  // cells of the slot
  uint32_t begin = 0, end = 0;
  uint32_t trees = 1;  // how many trees hold these cells: one for each lane (lanes.h)

  bool empty() const { return begin >= end; }
  // One cut more than cells, and no node 0: a tree is as long as its cuts, twice.
  uint32_t tree_nodes() const { return 2 * (count + 1); }
  bool operator==(const Cells&) const = default;
};

// Calls f(cells) for the cells in each of their trees.
template <class F>
void for_trees(const Cells& cells, F&& f) {
  Cells one = cells;
  one.trees = 1;
  for (uint32_t t = 0; t < cells.trees; ++t, one.tree += cells.tree_nodes()) f(one);
}

// Cuts the slots, or their lanes (see lanes.h), each with a number: every region is added, then
// finish(), then each can be asked for. copies: trees of each number.
class CellMap {
 public:
  void add(uint32_t slot, Size begin, Size end) {
    if (begin >= end) return;
    cuts_.emplace_back(slot, begin);
    cuts_.emplace_back(slot, end);
  }
  void finish(const std::vector<uint32_t>& copies);
  Cells find(uint32_t slot, Size begin, Size end) const;
  // Nodes that a tree over all slots has.
  size_t nodes() const { return trees_.back(); }

 private:
  std::vector<std::pair<uint32_t, Size>> cuts_;  // ascending, each once
  std::vector<uint32_t> first_;                  // of each number, then the end
  std::vector<uint32_t> trees_;                  // the same of the nodes of its trees
};

// A tree over the cells of each slot: cell c is node count + c, node p stands over 2p and 2p + 1.
// A range of cells is the whole of a few nodes. Steps are counted.
class CellTree {
 public:
  int64_t visits() const { return visits_; }

 protected:
  // Calls f(p) for the nodes that make up the range.
  template <class F>
  void for_range(const Cells& cells, F&& f) const {
    uint32_t from = cells.begin + cells.count, to = cells.end + cells.count;
    for (; from < to; from >>= 1, to >>= 1) {
      ++visits_;
      if ((from & 1) != 0) f(from++);
      if ((to & 1) != 0) f(--to);
    }
  }
  // Calls f(p) for the nodes above the first and the last cell of the range, lower ones first.
  template <class F>
  void for_above(const Cells& cells, F&& f) const {
    const uint32_t last = cells.end - 1 + cells.count;
    for (uint32_t p = (cells.begin + cells.count) >> 1; p > 0; p >>= 1) {
      ++visits_;
      f(p);
    }
    for (uint32_t p = last >> 1; p > 0; p >>= 1) {
      ++visits_;
      f(p);
    }
  }

  mutable int64_t visits_ = 0;
};

// The greatest of the numbers given to each cell.
class Greatest : public CellTree {
 public:
  explicit Greatest(size_t nodes) : of_all_(nodes, kNone), greatest_(nodes, kNone) {}
  static constexpr int kNone = -1;

  void raise(const Cells& cells, int value) {
    if (cells.empty()) return;
    for_trees(cells, [&](const Cells& one) { raise_one(one, value); });
  }
  int most(const Cells& cells) const {
    int most = kNone;
    if (cells.empty()) return most;
    for_trees(cells, [&](const Cells& one) { most = std::max(most, most_of_one(one)); });
    return most;
  }

 private:
  void raise_one(const Cells& cells, int value) {
    int* const all = of_all_.data() + cells.tree;
    int* const greatest = greatest_.data() + cells.tree;
    for_range(cells, [&](uint32_t p) {
      all[p] = std::max(all[p], value);
      greatest[p] = std::max(greatest[p], value);
    });
    for_above(cells, [&](uint32_t p) {
      greatest[p] = std::max({all[p], greatest[2 * p], greatest[2 * p + 1]});
    });
  }
  int most_of_one(const Cells& cells) const {
    int most = kNone;
    for_range(cells, [&](uint32_t p) { most = std::max(most, greatest_[cells.tree + p]); });
    for_above(cells, [&](uint32_t p) { most = std::max(most, of_all_[cells.tree + p]); });
    return most;
  }

  std::vector<int> of_all_;    // given to all cells under a node
  std::vector<int> greatest_;  // of the cells under a node
};

// The number given last to each cell.
class Latest : public CellTree {
 public:
  explicit Latest(size_t nodes) : given_(nodes, kNone), greatest_(nodes, 0) {}

  void set(const Cells& cells, int value);
  // The greatest of the numbers that the cells have now; 0 where none was given.
  int most(const Cells& cells);

 private:
  static constexpr int kNone = -1;
  void set_one(const Cells& cells, int value);
  int most_of_one(const Cells& cells);
  void give(size_t at, int value) { given_[at] = greatest_[at] = value; }
  // Hands what was given to the nodes above the range down to those just under them.
  void hand_down(const Cells& cells);

  std::vector<int> given_;  // to all cells under a node, since their own
  std::vector<int> greatest_;
};

// Who reads which cells. A write takes those who read its cells. Those of them who read other cells
// too are settled then: all that is remembered is the level that later writes have to come after.
class Readers : public CellTree {
 public:
  struct Reader {
    int node;
    int input;  // of a call: use
  };

  explicit Readers(size_t nodes) : first_(nodes, kNone), settled_(nodes, kNone), any_(nodes, 0) {}
  static constexpr int kNone = -1;

  void add(const Cells& cells, Reader reader);
  // Calls all(reader) for readers whose cells (or some of them) are all taken, and then forgets
  // these; settle(reader) -> its level for the others. Readers may come up several times. Returns
  // the highest level of those settled, now or earlier; kNone if there are none.
  template <class All, class Settle>
  int take(const Cells& cells, All&& all, Settle&& settle) {
    int highest = kNone;
    if (cells.empty()) return highest;
    for_trees(cells,
              [&](const Cells& one) { highest = std::max(highest, take_one(one, all, settle)); });
    return highest;
  }

 private:
  template <class All, class Settle>
  int take_one(const Cells& cells, All& all, Settle& settle) {
    int highest = kNone;
    for_range(cells, [&](uint32_t p) { clear(cells, p, all, highest); });
    for_above(cells, [&](uint32_t p) {
      const size_t at = cells.tree + p;
      for (int k = std::exchange(first_[at], kNone); k != kNone; k = listed_[size(k)].next) {
        ++visits_;
        settled_[at] = std::max(settled_[at], settle(listed_[size(k)].reader));
      }
      highest = std::max(highest, settled_[at]);
      any_[at] = settled_[at] != kNone || any_[at + p] != 0 || any_[at + p + 1] != 0;
    });
    return highest;
  }

  void add_one(const Cells& cells, Reader reader);
  struct Listed {
    Reader reader;
    int next;
  };
  static size_t size(int k) { return static_cast<size_t>(k); }

  template <class All>
  void clear(const Cells& cells, uint32_t p, All& all, int& highest) {
    const size_t at = cells.tree + p;
    ++visits_;
    if (any_[at] == 0) return;
    any_[at] = 0;
    for (int k = std::exchange(first_[at], kNone); k != kNone; k = listed_[size(k)].next) {
      ++visits_;
      all(listed_[size(k)].reader);
    }
    highest = std::max(highest, std::exchange(settled_[at], kNone));
    if (p >= cells.count) return;
    clear(cells, 2 * p, all, highest);
    clear(cells, 2 * p + 1, all, highest);
  }

  std::vector<int> first_;    // of the list of those who read all cells under a node
  std::vector<int> settled_;  // of each node: the level of the readers that were settled
  std::vector<char> any_;     // whether a node or one under it has any
  std::vector<Listed> listed_;
};

}  // namespace hologram::circuit
