// SPDX-License-Identifier: MIT
// See row_walks.h.
#include "src/gpu/rows/row_walks.h"

#include <algorithm>
#include <bit>

#include "src/gpu/rows/rows.h"

namespace hologram::gpu {
namespace {

// Registers of 4 bytes that an item has for what it keeps of a row, or of one of the rows beside
// each other of large groups, for partial results, and for what it loads at once.
constexpr int kKept = 64, kKeptOfColumns = 32, kParts = 32, kLoaded = 32;
// Those for what it loads beside much that it keeps.
constexpr int kLeastLoaded = 8;
// Instructions of a walk for all elements that an item has at once, roughly: they are text.
constexpr int kMostCost = 256;
// Registers for what an item loads at once where nothing else says how many.
constexpr int kAtOnce = 8;
// Rows beside each other, in bytes: what memory gives at once, and what caches do at least.
constexpr size_t kWide = 64, kNarrow = 32;
// Partial results of a row that an item has.
constexpr int kMostLanes = 8;
// Groups that keep a large device busy.
constexpr int64_t kBusy = 128;
// Items of a group where rows beside each other decide how many there are.
constexpr size_t kColumnItems = 512;

int power_below(int n) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(n))); }

}  // namespace

RowWalks::RowWalks(const Kernel& kernel, const Traits& traits)
    : RowValues(kernel, traits),
      rows_(kernel.rows()),
      row_lanes_(lanes_of(cols_)),
      pieces_(pieces_of(cols_)) {}

int RowWalks::last_walk() const {
  int last = 0;
  for (const Fold& fold : folds_) last = std::max(last, fold.walk);
  for (const Store& store : stores_) {
    const Value& value = values_[static_cast<size_t>(store.value)];
    if (value.is_full || is_full(store)) last = std::max(last, value.walk);
  }
  return last;
}

std::vector<int> RowWalks::ends(int walk) const {
  std::vector<int> found;
  for (const Fold& fold : folds_) {
    if (fold.walk == walk) found.push_back(fold.input);
  }
  for (const Store& store : stores_) {
    if (walk + 1 == static_cast<int>(walks_.size()) && is_full(store)) found.push_back(store.value);
  }
  return found;
}

void RowWalks::need(int value, const Set& there, Set& found, Set& met) const {
  const auto at = static_cast<size_t>(value);
  if (!values_[at].is_full || found[at]) return;
  if (there[at]) {
    met[at] = true;
    return;
  }
  found[at] = true;
  for (const int operand : values_[at].operands) need(operand, there, found, met);
}

void RowWalks::plan_walks(bool keep) {
  const Set none(values_.size(), false);
  walks_.assign(static_cast<size_t>(last_walk()) + 1, {none, none, none, 1, 1});
  Set there = none;  // in registers
  for (size_t w = 0; w < walks_.size(); ++w) {
    Walk& walk = walks_[w];
    for (const int end : ends(static_cast<int>(w))) need(end, there, walk.computed, walk.held);
    if (!keep) continue;
    // Of what is there now, what later walks begin with.
    for (size_t v = 0; v < there.size(); ++v) there[v] = there[v] || walk.computed[v];
    Set found = none;
    for (size_t later = w + 1; later < walks_.size(); ++later) {
      for (const int end : ends(static_cast<int>(later))) need(end, there, found, walk.left);
    }
    there = walk.left;
  }
}

int RowWalks::registers(const Set& values) const {
  int sum = 0;
  for (size_t v = 0; v < values.size(); ++v) {
    if (values[v]) sum += itemsize(values_[v].dtype) == 8 ? 2 : 1;
  }
  return sum;
}

int RowWalks::loaded_registers(const Walk& walk) const {
  Set loaded = walk.computed;
  for (size_t v = 0; v < loaded.size(); ++v) loaded[v] = loaded[v] && values_[v].access >= 0;
  return registers(loaded);
}

int RowWalks::most_elements(int walk) const {
  int cost = 1, parts = 1;
  const Set& computed = walks_[static_cast<size_t>(walk)].computed;
  for (size_t v = 0; v < computed.size(); ++v) {
    if (computed[v]) cost += values_[v].cost;
  }
  for (const Fold& fold : folds_) {
    if (fold.walk == walk) parts += itemsize(fold.dtype) == 8 ? 2 : 1;
  }
  const int loaded = 1 + loaded_registers(walks_[static_cast<size_t>(walk)]);
  return power_below(
      std::clamp(std::min({kMostCost / cost, 2 * kLoaded / loaded, 2 * kParts / parts}), 1, 32));
}

void RowWalks::lay_out() {
  group_.rows_first = rows_ > 1 && row_lanes_ > 1 && row_steps_less();
  group_.items = row_lanes_;
  group_.lanes = 1;
  group_.rows = std::max<size_t>(1, kGroupItems / static_cast<size_t>(row_lanes_));
  if (!group_.rows_first) return;
  const size_t most_items = std::min(kColumnItems, traits_.group_items);
  const auto groups = [&](size_t rows) {
    return (rows_ + static_cast<int64_t>(rows) - 1) / static_cast<int64_t>(rows) * pieces_;
  };
  size_t rows = std::clamp<size_t>(kWide / narrowest(), 8, 32);
  rows = std::min(rows, std::bit_ceil(static_cast<size_t>(rows_)));
  while (rows * narrowest() > kNarrow && groups(rows) < kBusy) rows /= 2;
  auto items = std::min(static_cast<size_t>(row_lanes_), most_items / rows);
  if (groups(rows) >= kBusy) {
    items = std::min(items, std::max<size_t>(8, static_cast<size_t>(row_lanes_) / 4));
  }
  int most = kMostLanes;
  for (size_t w = 0; w < walks_.size(); ++w) {
    most = std::min(most, most_elements(static_cast<int>(w)));
  }
  items = std::max(items, static_cast<size_t>(row_lanes_ / std::min(most, row_lanes_)));
  group_.items = static_cast<int>(items);
  group_.lanes = row_lanes_ / group_.items;
  group_.rows = std::min(rows, most_items / items);
}

// Whether an item of such groups can keep what its walks have in common; then they do.
bool RowWalks::keeps_rows(const RowGroup& group) {
  const int64_t steps = (cols_ + row_lanes_ - 1) / row_lanes_;
  const auto elements =
      group.lanes * static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(steps)));
  const int limit = group.rows_first ? kKeptOfColumns : kKept;
  if (elements > limit) return false;
  int most = 0, cost = 0;
  for (const Walk& walk : walks_) {
    most = std::max(most, registers(walk.left));
    for (size_t v = 0; v < values_.size(); ++v) {
      if (walk.computed[v]) cost += values_[v].cost;
    }
  }
  if (most == 0 || elements * most > limit || elements * cost > 2 * kMostCost) return false;
  for (Walk& walk : walks_) {
    walk.elements = static_cast<int>(elements);
    const int left = std::max(kLoaded - registers(walk.held) * walk.elements, kLeastLoaded);
    const int wanted = left / std::max(1, loaded_registers(walk));
    walk.loads = std::min(walk.elements, power_below(std::max(1, wanted)));
  }
  at_once_ = true;
  group_ = group;
  return true;
}

void RowWalks::plan() {
  plan_walks(false);
  lay_out();
  if (pieces_ == 1 && walks_.size() > 1) {
    plan_walks(true);
    for (RowGroup group = group_;; group.rows /= 2, group.items *= 2, group.lanes /= 2) {
      if (keeps_rows(group)) return;
      if (group.lanes == 1 || group.rows * narrowest() < 2 * kNarrow) break;
    }
    plan_walks(false);
  }
  const int64_t own =
      (std::min(cols_, pieces_ > 1 ? kLongRow : cols_) + group_.items - 1) / group_.items;
  for (size_t w = 0; w < walks_.size(); ++w) {
    const int room = std::max(2, kAtOnce / std::max(1, loaded_registers(walks_[w])));
    const int wanted = static_cast<int>(std::min<uint64_t>(
        static_cast<uint64_t>(power_below(room)), std::bit_ceil(static_cast<uint64_t>(own))));
    walks_[w].elements =
        std::max(group_.lanes, std::min(wanted, most_elements(static_cast<int>(w))));
    walks_[w].loads = walks_[w].elements;
  }
}

}  // namespace hologram::gpu
