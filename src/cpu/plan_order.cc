// SPDX-License-Identifier: MIT
// The order in which instructions are lowered: what one generated loop takes side by side.
#include <algorithm>
#include <limits>
#include <numeric>

#include "hologram/op.h"
#include "src/cpu/plan_lower.h"

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
  // Values of rows first, since loops read them; folds and row functions as late as they may.
  // Of the rest, what has gone through fewer heavy functions.
  const auto urgency = [&](int index) {
    const Instr& instr = instrs[static_cast<size_t>(index)];
    if (!is_elementwise(instr)) return std::numeric_limits<int>::max();
    return rank_of_instr(instr, ranks) == Rank::kFull ? 1 + depths_[static_cast<size_t>(index)] : 0;
  };
  std::vector<int> order;
  std::vector<bool> done(instrs.size(), false);
  while (static_cast<int>(order.size()) < count) {
    int best = -1;
    for (int i = 0; i < count; ++i) {
      if (done[i]) continue;
      bool ready = true;
      for (int j = 0; j < i && ready; ++j) {
        ready = done[j] || !(waits(instrs[i], instrs[j]) || overwrites(instrs[i], instrs[j]));
      }
      if (ready && (best < 0 || urgency(i) < urgency(best))) best = i;
    }
    done[best] = true;
    order.push_back(best);
  }
  return order;
}

}  // namespace hologram::cpu
