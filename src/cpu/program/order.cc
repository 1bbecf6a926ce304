// SPDX-License-Identifier: MIT
// The order in which a kernel's instructions are lowered: it keeps results and puts side by side
// what one generated loop takes.
#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <queue>

#include "hologram/op.h"
#include "src/cpu/program/lower.h"

namespace hologram::cpu {

using circuit::Instr;
using circuit::Rank;
using circuit::Ref;

// Fills makers_ and ranks_.
void Lowering::find_makers() {
  std::vector<int> of_temps(kernel_.temps.size(), kNone), of_accesses(memory_.size(), kNone);
  std::vector<Rank> temp_ranks(kernel_.temps.size(), Rank::kFull);
  for (size_t i = 0; i < kernel_.instrs.size(); ++i) {
    const Instr& instr = kernel_.instrs[i];
    Rank rank = Rank::kOne;
    std::array<int, circuit::kMaxArity>& makers = makers_.emplace_back();
    makers.fill(kNone);
    for (size_t k = 0; k < instr.arity; ++k) {
      const Ref& ref = instr.in[k];
      if (ref.kind == Ref::kTemp) {
        makers[k] = of_temps[ref.index];
        rank = std::min(rank, temp_ranks[ref.index]);
      } else if (ref.kind == Ref::kAccess) {
        makers[k] = of_accesses[ref.index];
        rank = std::min(rank, rank_of_out(ref));
      }
    }
    ranks_.push_back(rank);
    if (instr.out.kind == Ref::kTemp) {
      temp_ranks[instr.out.index] = instr.code == circuit::kCodeReduction ? Rank::kRow
                                    : is_elementwise(instr)               ? rank
                                                                          : Rank::kFull;
    }
    (instr.out.kind == Ref::kTemp ? of_temps : of_accesses)[instr.out.index] = static_cast<int>(i);
  }
}

std::vector<int> fold_levels(const circuit::Kernel& kernel) {
  std::vector<int> levels(kernel.instrs.size(), 0);
  std::vector<int> of_temps(kernel.temps.size(), 0);
  for (size_t i = 0; i < kernel.instrs.size(); ++i) {
    const Instr& instr = kernel.instrs[i];
    for (int k = 0; k < instr.arity; ++k) {
      if (instr.in[k].kind == Ref::kTemp) {
        levels[i] = std::max(levels[i], of_temps[instr.in[k].index]);
      }
    }
    if (instr.out.kind == Ref::kTemp) {
      of_temps[instr.out.index] = levels[i] + (is_elementwise(instr) ? 0 : 1);
    }
  }
  return levels;
}

// Those of values that only later loops read are the readers'.
std::vector<int> Lowering::late_levels() const {
  std::vector<int> levels = fold_levels(kernel_);
  constexpr int kUnread = std::numeric_limits<int>::max();
  std::vector<int> first_read(kernel_.temps.size(), kUnread);
  for (size_t i = kernel_.instrs.size(); i-- > 0;) {
    const Instr& instr = kernel_.instrs[i];
    if (is_elementwise(instr) && instr.out.kind == Ref::kTemp &&
        first_read[instr.out.index] != kUnread) {
      levels[i] = std::max(levels[i], first_read[instr.out.index]);
    }
    for (int k = 0; k < instr.arity; ++k) {
      if (instr.in[k].kind != Ref::kTemp) continue;
      int& first = first_read[instr.in[k].index];
      first = std::min(first, levels[i]);
    }
  }
  return levels;
}

// How many heavy functions each instruction's value has gone through, one after the other. A light
// one that only later functions wait for counts with those.
std::vector<int> Lowering::heavy_depths() const {
  const auto& instrs = kernel_.instrs;
  constexpr int kUnread = std::numeric_limits<int>::max();
  std::vector<int> depths(instrs.size(), 0);
  std::vector<int> first_user(instrs.size(), kUnread);
  for (size_t i = 0; i < instrs.size(); ++i) {
    if (!is_elementwise(instrs[i])) continue;
    for (const int maker : makers_[i]) {
      if (maker != kNone) depths[i] = std::max(depths[i], depths[static_cast<size_t>(maker)]);
    }
    depths[i] += instrs[i].is_op() && op_info(instrs[i].op()).is_heavy() ? 1 : 0;
  }
  for (size_t i = instrs.size(); i-- > 0;) {
    const bool light = is_elementwise(instrs[i]);
    const bool seen = instrs[i].out.kind == Ref::kAccess || !light;
    if (depths[i] == 0 && !seen && first_user[i] != kUnread) depths[i] = first_user[i];
    for (const int maker : makers_[i]) {
      if (maker == kNone) continue;
      int& first = first_user[static_cast<size_t>(maker)];
      first = std::min(first, light ? depths[i] : 0);
    }
  }
  return depths;
}

std::vector<int> Lowering::order_for_loops() const {
  const auto& instrs = kernel_.instrs;
  const std::vector<int> levels = late_levels();
  // Values of rows first, since loops read them; folds and row functions as late as they may, but
  // before what is only needed after them. Of the rest, what has gone through fewer heavy
  // functions.
  const auto urgency = [&](size_t i) {
    constexpr int kLevel = 4096;
    const int level = kLevel * levels[i];
    if (!is_elementwise(instrs[i])) return level + kLevel - 1;
    if (ranks_[i] != Rank::kFull) return level;
    return level + 1 + std::min(depths_[i], kLevel - 3);
  };
  std::vector<std::vector<int>> followers(instrs.size());
  std::vector<int> waiting(instrs.size(), 0);  // for how many
  const auto follow = [&](int first, size_t second) {
    if (first == kNone || first == static_cast<int>(second)) return;
    followers[static_cast<size_t>(first)].push_back(static_cast<int>(second));
    ++waiting[second];
  };
  // What uses memory waits for the last that stored there, and what stores also for those that have
  // read it since.
  struct Uses {
    int store = kNone;
    std::vector<int> reads;
  };
  std::map<uint32_t, Uses> uses;  // by slot
  for (size_t i = 0; i < instrs.size(); ++i) {
    const Instr& instr = instrs[i];
    for (size_t k = 0; k < instr.arity; ++k) {
      if (instr.in[k].kind == Ref::kTemp) follow(makers_[i][k], i);
      if (instr.in[k].kind != Ref::kAccess) continue;
      Uses& of_slot = uses[kernel_.accesses[instr.in[k].index].slot];
      follow(of_slot.store, i);
      of_slot.reads.push_back(static_cast<int>(i));
    }
    if (instr.out.kind != Ref::kAccess) continue;
    Uses& of_slot = uses[kernel_.accesses[instr.out.index].slot];
    follow(of_slot.store, i);
    for (const int read : of_slot.reads) follow(read, i);
    of_slot = {static_cast<int>(i), {}};
  }
  using Ready = std::pair<int, size_t>;  // urgency, instruction
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  for (size_t i = 0; i < instrs.size(); ++i) {
    if (waiting[i] == 0) ready.push({urgency(i), i});
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const size_t next = ready.top().second;
    ready.pop();
    order.push_back(static_cast<int>(next));
    for (const int i : followers[next]) {
      if (--waiting[static_cast<size_t>(i)] == 0) {
        ready.push({urgency(static_cast<size_t>(i)), static_cast<size_t>(i)});
      }
    }
  }
  return order;
}

}  // namespace hologram::cpu
