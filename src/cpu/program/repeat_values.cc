// SPDX-License-Identifier: MIT
// repeat_light_values: values that are cheap to compute are computed again after a fold instead of
// kept.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "hologram/op.h"
#include "src/cpu/program/lower.h"

namespace hologram::cpu {

using circuit::Instr;
using circuit::Kernel;
using circuit::Rank;
using circuit::Ref;

namespace {

// Instructions in a row that are worth repeating.
constexpr int kLongest = 2;

class Repeater {
 public:
  Repeater(const Kernel& kernel, Isa isa)
      : from_(kernel), to_(kernel), isa_(isa), levels_(fold_levels(kernel)) {
    makers_.assign(kernel.temps.size(), -1);
    for (size_t i = 0; i < kernel.instrs.size(); ++i) {
      const Ref& out = kernel.instrs[i].out;
      if (out.kind == Ref::kTemp) makers_[out.index] = static_cast<int>(i);
    }
  }

  std::optional<Kernel> run() {
    to_.instrs.clear();
    for (size_t i = 0; i < from_.instrs.size(); ++i) {
      Instr instr = from_.instrs[i];
      if (is_full(instr)) {
        for (int k = 0; k < instr.arity; ++k) instr.in[k] = at_level(instr.in[k], levels_[i]);
      }
      to_.instrs.push_back(instr);
    }
    if (repeated_.empty()) return std::nullopt;
    drop_unread();
    return std::move(to_);
  }

 private:
  static bool is_full(const Instr& instr) {
    return is_elementwise(instr) && instr.rank == Rank::kFull;
  }

  // The instruction that makes a temp, or -1.
  int maker(const Ref& ref) const { return ref.kind == Ref::kTemp ? makers_[ref.index] : -1; }

  bool is_written(uint32_t slot) const {
    return std::any_of(from_.accesses.begin(), from_.accesses.end(),
                       [&](const auto& access) { return access.stored && access.slot == slot; });
  }

  // Whether the value takes a few light instructions on one operand in memory, which stays as it
  // is.
  bool is_light(const Ref& ref, int longest) const {
    if (ref.kind == Ref::kAccess) return !is_written(from_.accesses[ref.index].slot);
    const int made = maker(ref);
    if (made < 0 || longest == 0) return false;
    const Instr& instr = from_.instrs[static_cast<size_t>(made)];
    if (!is_full(instr) || (instr.is_op() && op_info(instr.op()).is_heavy())) return false;
    if (!jit_takes(isa_, instr)) return false;
    Ref full;
    for (int k = 0; k < instr.arity; ++k) {
      const Ref& in = instr.in[k];
      if (in.kind == Ref::kImmediate) continue;
      const Rank rank =
          in.kind == Ref::kTemp ? from_.temps[in.index].rank : from_.accesses[in.index].rank;
      if (rank != Rank::kFull) {
        if (in.kind == Ref::kAccess && is_written(from_.accesses[in.index].slot)) return false;
        continue;
      }
      if (full.kind != Ref::kNone && full != in) return false;
      full = in;
    }
    return full.kind != Ref::kNone && is_light(full, longest - 1);
  }

  // What an instruction of this level reads in place of a value of an earlier one.
  Ref at_level(const Ref& ref, int level) {
    const int made = maker(ref);
    if (made < 0 || levels_[static_cast<size_t>(made)] >= level || !is_light(ref, kLongest)) {
      return ref;
    }
    for (const auto& [value, at, again] : repeated_) {
      if (at == level && value == ref) return again;
    }
    Instr instr = from_.instrs[static_cast<size_t>(made)];
    for (int k = 0; k < instr.arity; ++k) instr.in[k] = at_level(instr.in[k], level);
    to_.temps.push_back(from_.temps[ref.index]);
    instr.out = {Ref::kTemp, static_cast<uint32_t>(to_.temps.size() - 1)};
    to_.instrs.push_back(instr);
    repeated_.push_back({ref, level, instr.out});
    return instr.out;
  }

  void drop_unread() {
    std::vector<bool> read(to_.temps.size(), false);
    std::vector<Instr> kept;
    for (size_t i = to_.instrs.size(); i-- > 0;) {
      const Instr& instr = to_.instrs[i];
      if (instr.out.kind == Ref::kTemp && !read[instr.out.index]) continue;
      for (int k = 0; k < instr.arity; ++k) {
        if (instr.in[k].kind == Ref::kTemp) read[instr.in[k].index] = true;
      }
      kept.push_back(instr);
    }
    std::reverse(kept.begin(), kept.end());
    to_.instrs = std::move(kept);
  }

  struct Repeated {
    Ref value;
    int level;
    Ref again;
  };

  const Kernel& from_;
  Kernel to_;
  Isa isa_;
  std::vector<int> levels_;  // of instructions
  std::vector<int> makers_;  // of temps
  std::vector<Repeated> repeated_;
};

}  // namespace

std::optional<Kernel> repeat_light_values(const Kernel& kernel, Isa isa) {
  const bool folds = std::any_of(kernel.instrs.begin(), kernel.instrs.end(),
                                 [](const Instr& instr) { return !is_elementwise(instr); });
  return folds ? Repeater(kernel, isa).run() : std::nullopt;
}

}  // namespace hologram::cpu
