// SPDX-License-Identifier: MIT
// Cuts the bytes of slots into cells, and keeps trees over the cells of each slot.
#include "src/circuit/cells.h"

namespace hologram::circuit {
namespace {

using Cut = std::pair<uint32_t, Size>;
bool is_before(const Cut& a, const Cut& b) {
  return a.first != b.first ? a.first < b.first : a.second < b.second;
}

}  // namespace

void CellMap::finish(const std::vector<uint32_t>& copies) {
  const size_t slots = copies.size();
  std::sort(cuts_.begin(), cuts_.end(), is_before);
  cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
  first_.assign(slots + 1, 0);
  for (const auto& [slot, at] : cuts_) ++first_[slot + 1];
  trees_.assign(slots + 1, 0);
  for (size_t s = 0; s < slots; ++s) {
    trees_[s + 1] = trees_[s] + 2 * first_[s + 1] * copies[s];
    first_[s + 1] += first_[s];
  }
}

Cells CellMap::find(uint32_t slot, Size begin, Size end) const {
  if (begin >= end) return {};
  const auto first = cuts_.begin() + first_[slot], last = cuts_.begin() + first_[slot + 1];
  const auto place = [&](Size at) {
    return static_cast<uint32_t>(std::lower_bound(first, last, Cut(slot, at), is_before) - first);
  };
  return {trees_[slot], static_cast<uint32_t>(last - first) - 1, place(begin), place(end)};
}

void Latest::hand_down(const Cells& cells) {
  const auto from = [&](uint32_t leaf) {
    int height = 0;
    while (leaf >> height > 1) ++height;
    for (; height > 0; --height) {
      const uint32_t p = leaf >> height;
      ++visits_;
      int& given = given_[cells.tree + p];
      if (given == kNone) continue;
      give(cells.tree + 2 * p, given);
      give(cells.tree + 2 * p + 1, given);
      given = kNone;
    }
  };
  from(cells.begin + cells.count);
  from(cells.end - 1 + cells.count);
}

void Latest::set(const Cells& cells, int value) {
  if (cells.empty()) return;
  for_trees(cells, [&](const Cells& one) { set_one(one, value); });
}

int Latest::most(const Cells& cells) {
  int most = 0;
  if (cells.empty()) return most;
  for_trees(cells, [&](const Cells& one) { most = std::max(most, most_of_one(one)); });
  return most;
}

void Readers::add(const Cells& cells, Reader reader) {
  if (cells.empty()) return;
  for_trees(cells, [&](const Cells& one) { add_one(one, reader); });
}

void Latest::set_one(const Cells& cells, int value) {
  hand_down(cells);
  for_range(cells, [&](uint32_t p) { give(cells.tree + p, value); });
  for_above(cells, [&](uint32_t p) {
    const size_t at = cells.tree + p;
    if (given_[at] == kNone) greatest_[at] = std::max(greatest_[at + p], greatest_[at + p + 1]);
  });
}

int Latest::most_of_one(const Cells& cells) {
  hand_down(cells);
  int most = 0;
  for_range(cells, [&](uint32_t p) { most = std::max(most, greatest_[cells.tree + p]); });
  return most;
}

void Readers::add_one(const Cells& cells, Reader reader) {
  for_range(cells, [&](uint32_t p) {
    const size_t at = cells.tree + p;
    listed_.push_back({reader, first_[at]});
    first_[at] = static_cast<int>(listed_.size()) - 1;
    any_[at] = 1;
  });
  for_above(cells, [&](uint32_t p) { any_[cells.tree + p] = 1; });
}

}  // namespace hologram::circuit
