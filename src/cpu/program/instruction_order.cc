// SPDX-License-Identifier: MIT
// The order in which instructions are lowered: what one generated loop takes side by side.
#include <algorithm>
#include <limits>
#include <numeric>

#include "hologram/op.h"
#include "src/cpu/program/lower.h"

namespace hologram::cpu {

using circuit::Instr;
using circuit::Rank;
using circuit::Ref;

std::vector<int> Lowering::original_order() const {
  std::vector<int> order(kernel_.instrs.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<Rank> Lowering::temp_ranks() const {
  std::vector<Rank> ranks(kernel_.temps.size(), Rank::kFull);
  for (const Instr& instr : kernel_.instrs) {
    if (instr.out.kind != Ref::kTemp) continue;
    Rank& rank = ranks[instr.out.index];
    rank = instr.code == circuit::kCodeFold ? Rank::kRow
           : is_elementwise(instr)          ? rank_of_instr(instr, ranks)
                                            : Rank::kFull;
  }
  return ranks;
}

Rank Lowering::rank_of_instr(const Instr& instr, const std::vector<Rank>& ranks) const {
  Rank rank = Rank::kOne;
  for (int k = 0; k < instr.arity; ++k) {
    const Ref& ref = instr.in[k];
    if (ref.kind == Ref::kTemp) rank = std::min(rank, ranks[ref.index]);
    if (ref.kind != Ref::kAccess) continue;
    const Memory& memory = memory_[ref.index];
    rank = std::min(rank, memory.layout == Layout::kOne ? Rank::kOne
                          : memory.is_row               ? Rank::kRow
                                                        : Rank::kFull);
  }
  return rank;
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
  std::vector<int> depths(instrs.size(), 0);
  std::vector<int> first_user(instrs.size(), std::numeric_limits<int>::max());
  const auto for_makers = [&](size_t i, auto&& f) {
    for (int k = 0; k < instrs[i].arity; ++k) {
      for (size_t j = i; j-- > 0;) {
        if (!same_ref(instrs[j].out, instrs[i].in[k])) continue;
        f(j);
        break;
      }
    }
  };
  for (size_t i = 0; i < instrs.size(); ++i) {
    if (!is_elementwise(instrs[i])) continue;
    for_makers(i, [&](size_t maker) { depths[i] = std::max(depths[i], depths[maker]); });
    depths[i] += instrs[i].is_op() && op_info(instrs[i].op()).is_heavy() ? 1 : 0;
  }
  for (size_t i = instrs.size(); i-- > 0;) {
    const bool seen = instrs[i].out.kind == Ref::kAccess || !is_elementwise(instrs[i]);
    if (depths[i] == 0 && !seen && first_user[i] < std::numeric_limits<int>::max()) {
      depths[i] = first_user[i];
    }
    for_makers(i, [&](size_t maker) {
      first_user[maker] = std::min(first_user[maker], is_elementwise(instrs[i]) ? depths[i] : 0);
    });
  }
  return depths;
}

std::vector<int> Lowering::order_for_segments() const {
  const auto& instrs = kernel_.instrs;
  const int count = static_cast<int>(instrs.size());
  const std::vector<Rank> ranks = temp_ranks();
  const auto slot = [&](const Ref& ref) { return kernel_.accesses[ref.index].slot; };
  // b waits for a: it reads what a makes, or one of them stores to memory that the other uses.
  const auto waits = [&](const Instr& b, const Instr& a) {
    if (a.out.kind == Ref::kTemp) {
      return std::any_of(b.in, b.in + b.arity,
                         [&](const Ref& ref) { return same_ref(ref, a.out); });
    }
    const auto uses_stored = [&](const Instr& user, const Ref& stored) {
      return stored.kind == Ref::kAccess &&
             std::any_of(user.in, user.in + user.arity, [&](const Ref& ref) {
               return ref.kind == Ref::kAccess && slot(ref) == slot(stored);
             });
    };
    return uses_stored(b, a.out) || (b.out.kind == Ref::kAccess && slot(b.out) == slot(a.out));
  };
  const auto overwrites = [&](const Instr& b, const Instr& a) {
    return b.out.kind == Ref::kAccess && std::any_of(a.in, a.in + a.arity, [&](const Ref& ref) {
             return ref.kind == Ref::kAccess && slot(ref) == slot(b.out);
           });
  };
  // Values of rows first, since loops read them; folds and row functions as late as they may, but
  // before what is only needed after them. Of the rest, what has gone through fewer heavy
  // functions.
  const auto urgency = [&](int index) {
    const Instr& instr = instrs[static_cast<size_t>(index)];
    constexpr int kLevel = 4096;
    const int level = kLevel * levels_[static_cast<size_t>(index)];
    if (!is_elementwise(instr)) return level + kLevel - 1;
    if (rank_of_instr(instr, ranks) != Rank::kFull) return level;
    return level + 1 + std::min(depths_[static_cast<size_t>(index)], kLevel - 3);
  };
  std::vector<std::vector<int>> followers(instrs.size());
  std::vector<int> waiting(instrs.size(), 0);  // for so many, then -1 where it is in the order
  std::vector<int> urgencies;
  for (int i = 0; i < count; ++i) {
    urgencies.push_back(urgency(i));
    for (int j = 0; j < i; ++j) {
      if (!waits(instrs[i], instrs[j]) && !overwrites(instrs[i], instrs[j])) continue;
      followers[j].push_back(i);
      ++waiting[i];
    }
  }
  std::vector<int> order;
  while (static_cast<int>(order.size()) < count) {
    int best = -1;
    for (int i = 0; i < count; ++i) {
      if (waiting[i] == 0 && (best < 0 || urgencies[i] < urgencies[best])) best = i;
    }
    waiting[best] = -1;
    for (const int i : followers[best]) --waiting[i];
    order.push_back(best);
  }
  return order;
}

}  // namespace hologram::cpu
