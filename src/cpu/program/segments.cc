// SPDX-License-Identifier: MIT
// Runs of elementwise instructions that become one generated loop, and the order that puts side by
// side what one loop takes.
#include <algorithm>
#include <limits>
#include <numeric>

#include "hologram/op.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/program/lower.h"

namespace hologram::cpu {

using circuit::Instr;
using circuit::Rank;
using circuit::Ref;

namespace {

// Arrays and numbers of one loop; more would not be kept in registers anyway.
constexpr size_t kMostOperands = 120;
// Arrays that one loop writes in memory. They often lie whole pages apart, all in one set of the
// first cache, which holds eight to twelve lines: with more, each line leaves it before it is full.
constexpr int kMostStores = 8;
// What a simple op costs in a generated loop, in calls of its kernel.
constexpr double kInLoop = 0.25;

}  // namespace

bool Lowering::fits_segment(int index, const std::vector<Rank>& ranks, SegmentStep& step) const {
  const Instr& instr = kernel_.instrs[static_cast<size_t>(index)];
  if (!is_elementwise(instr) || rank_of_instr(instr, ranks) != Rank::kFull) return false;
  step.convert = !instr.is_op();
  if (instr.is_op()) step.op = instr.op();
  step.compute = instr.compute;
  step.arity = instr.arity;
  step.result = dtype_of_out(instr.out, instr.result);
  if (instr.out.kind == Ref::kAccess && rank_of_out(instr.out) != Rank::kFull) return false;
  for (int k = 0; k < instr.arity; ++k) {
    const Ref& ref = instr.in[k];
    const Dtype dtype = ref.kind == Ref::kAccess ? kernel_.accesses[ref.index].dtype
                        : ref.kind == Ref::kTemp ? kernel_.temps[ref.index].dtype
                                                 : instr.compute;
    if (dtype != instr.compute) return false;
  }
  return jit_takes(program_.isa, step);
}

size_t Lowering::lower_segment(const std::vector<int>& order, size_t at) {
  const std::vector<Rank> ranks = temp_ranks();
  // Memory stored here and read under another name is read by a loop of its own.
  const auto reads_stored = [&](size_t end) {
    const Instr& instr = kernel_.instrs[static_cast<size_t>(order[end])];
    for (size_t i = at; i < end; ++i) {
      const Ref& out = kernel_.instrs[static_cast<size_t>(order[i])].out;
      if (out.kind != Ref::kAccess) continue;
      for (int k = 0; k < instr.arity; ++k) {
        if (instr.in[k].kind == Ref::kAccess && instr.in[k].index != out.index &&
            kernel_.accesses[instr.in[k].index].slot == kernel_.accesses[out.index].slot) {
          return true;
        }
      }
    }
    return false;
  };
  // One heavy function after another keeps a processor waiting: what it has in flight at once is so
  // many instructions, which are few elements of a long chain. Two loops are faster.
  const int deepest = std::max(1, depths_[static_cast<size_t>(order[at])]);
  size_t end = at;
  int stores = 0;
  SegmentStep step;
  while (end < order.size() && fits_segment(order[end], ranks, step) && !reads_stored(end) &&
         depths_[static_cast<size_t>(order[end])] <= deepest) {
    stores += kernel_.instrs[static_cast<size_t>(order[end])].out.kind == Ref::kAccess ? 1 : 0;
    if (stores > kMostStores) break;
    ++end;
  }
  const std::span<const int> all(order);
  size_t folds_end = end;
  while (end > at && folds_end < order.size() && folds_end - end < kMostFolds &&
         fits_fold(order[folds_end], ranks) && !reads_stored(folds_end)) {
    ++folds_end;
  }
  if (folds_end > end && emit_segment(all.subspan(at, folds_end - at), all.subspan(folds_end))) {
    return folds_end - at;
  }
  // One alone is what its kernel does as well, unless it goes past the caches.
  const bool alone = end - at == 1 && kernel_.instrs.size() == 1 &&
                     streamed_outputs({&kernel_.instrs[0].out, 1}) != 0;
  // Half as many where a loop of all needs too much.
  for (size_t count = end - at; count >= (alone ? 1 : 2); count /= 2) {
    if (emit_segment(all.subspan(at, count), all.subspan(at + count))) return count;
  }
  return 0;
}

// Sums of what lies in memory, or is made in the loop, as it is or converted.
bool Lowering::fits_fold(int index, const std::vector<Rank>& ranks) const {
  const Instr& instr = kernel_.instrs[static_cast<size_t>(index)];
  if (instr.code != circuit::kCodeReduction || rank_of_instr(instr, ranks) != Rank::kFull)
    return false;
  const Ref& ref = instr.in[0];
  const Dtype in = ref.kind == Ref::kAccess ? kernel_.accesses[ref.index].dtype
                   : ref.kind == Ref::kTemp ? kernel_.temps[ref.index].dtype
                                            : instr.compute;
  const SettledFold fold = fold_of(instr, in);
  if (fold.kernel->blocks == nullptr) return false;
  SegmentStep step;
  step.convert = true;
  step.compute = in;
  step.result = fold.compute;
  step.arity = 1;
  return (in == fold.compute || jit_takes(program_.isa, step)) &&
         jit_takes_fold(program_.isa, fold.fold, fold.compute, program_.domain.grid.block_cols);
}

uint64_t Lowering::streamed_outputs(std::span<const Ref> outputs) const {
  uint64_t streamed = 0;
  for (size_t k = 0; k < outputs.size() && k < 64; ++k) {
    if (outputs[k].kind != Ref::kAccess) continue;
    const circuit::Access& to = kernel_.accesses[outputs[k].index];
    const int64_t size = static_cast<int64_t>(itemsize(to.dtype));
    if (size < 4 || program_.domain.numel * size < kStreamBytes) continue;
    // Memory that is read here is in the caches already.
    const bool is_read = std::any_of(
        kernel_.accesses.begin(), kernel_.accesses.end(),
        [&](const circuit::Access& access) { return access.slot == to.slot && access.loaded; });
    const bool is_read_here =
        std::any_of(kernel_.instrs.begin(), kernel_.instrs.end(), [&](const Instr& instr) {
          return std::any_of(instr.in, instr.in + instr.arity,
                             [&](const Ref& ref) { return same_ref(ref, outputs[k]); });
        });
    if (!is_read && !is_read_here) streamed |= uint64_t{1} << k;
  }
  return streamed;
}

bool Lowering::is_read_before(int access) const {
  return std::any_of(program_.steps.begin(), program_.steps.end(), [&](const Step& step) {
    const auto first = program_.operands.begin() + step.first;
    return std::any_of(first, first + step.inputs,
                       [&](const StepOperand& operand) { return operand.place == access; });
  });
}

// Large rows that an earlier loop of the block has read: that one would wait for memory, which the
// last loop leaves idle, so the last fetches the next block.
void Lowering::fetch_ahead(const std::vector<Value>& inputs, Segment& segment,
                           uint64_t streamed) const {
  if (!segment.by_rows || streamed == 0) return;
  for (size_t k = 0; k < inputs.size() && segment.fetched < 0; ++k) {
    const int access = inputs[k].access;
    if (access != kNone && memory_[access].full == kNone && memory_[access].row_stride != 0 &&
        is_read_before(access)) {
      segment.fetched = static_cast<int>(k);
    }
  }
}

bool Lowering::compile_segment(Segment& segment, Step& step) {
  JitLoop loop = jit_compile(program_.isa, segment);
  if (loop == nullptr) return false;
  step.segment = loop.get();
  program_.loops.push_back(std::move(loop));
  step.walks_rows = segment.by_rows;
  if (step.streamed != 0) {
    segment.streams = step.streamed;
    JitLoop streaming = jit_compile(program_.isa, segment);
    step.streaming = streaming.get();
    if (streaming != nullptr) program_.loops.push_back(std::move(streaming));
  }
  return true;
}

bool Lowering::emit_segment(std::span<const int> indices, std::span<const int> later) {
  const std::vector<Rank> ranks = temp_ranks();
  Segment segment;
  std::vector<Value> inputs, numbers;
  struct Made {
    Ref ref;
    int step;
    bool last;  // of those that store to this access
  };
  std::vector<Made> made;
  std::vector<std::pair<Ref, SettledFold>> folds;
  double cost = 1;
  // The step that made what ref names, if one here did.
  const auto step_of = [&](const Ref& ref) {
    for (size_t i = made.size(); i-- > 0;) {
      if (same_ref(made[i].ref, ref)) return made[i].step;
    }
    return -1;
  };
  const auto enter = [&](std::vector<Value>& list, std::vector<Dtype>& dtypes, const Value& value) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].access == value.access && list[i].reg == value.reg &&
          list[i].place == value.place) {
        return static_cast<uint8_t>(i);
      }
    }
    list.push_back(value);
    dtypes.push_back(value.dtype);
    return static_cast<uint8_t>(list.size() - 1);
  };
  for (const int index : indices) {
    const Instr& instr = kernel_.instrs[static_cast<size_t>(index)];
    if (instr.code == circuit::kCodeReduction) {
      SegmentRef of{SegmentRef::kStep, static_cast<uint8_t>(std::max(step_of(instr.in[0]), 0))};
      Dtype dtype = dtype_of_out(instr.in[0], instr.compute);
      if (step_of(instr.in[0]) < 0) {
        const Value value = value_of(index, 0);
        if (is_single(value)) return false;
        of = {SegmentRef::kInput, enter(inputs, segment.inputs, value)};
        dtype = value.dtype;
      }
      const SettledFold fold = fold_of(instr, dtype);
      if (dtype != fold.compute) {
        SegmentStep convert;
        convert.convert = true;
        convert.compute = dtype;
        convert.result = fold.compute;
        convert.arity = 1;
        convert.in[0] = of;
        of = {SegmentRef::kStep, static_cast<uint8_t>(segment.steps.size())};
        segment.steps.push_back(convert);
      }
      segment.folds.push_back({fold.fold, of});
      folds.push_back({instr.out, fold});
      cost += kInLoop;
      continue;
    }
    SegmentStep step;
    fits_segment(index, ranks, step);
    for (int k = 0; k < instr.arity; ++k) {
      const int known = instr.in[k].kind == Ref::kImmediate ? -1 : step_of(instr.in[k]);
      if (known >= 0) {
        step.in[k] = {SegmentRef::kStep, static_cast<uint8_t>(known)};
        continue;
      }
      const Value value = value_of(index, k);
      if (is_single(value)) {
        step.in[k] = {SegmentRef::kNumber, enter(numbers, segment.numbers, value)};
      } else {
        step.in[k] = {SegmentRef::kInput, enter(inputs, segment.inputs, value)};
      }
      if (inputs.size() + numbers.size() > kMostOperands) return false;
    }
    for (Made& earlier : made) {
      if (same_ref(earlier.ref, instr.out)) earlier.last = false;
    }
    made.push_back({instr.out, static_cast<int>(segment.steps.size()), true});
    segment.steps.push_back(step);
    cost += instr.is_op() && op_info(instr.op()).is_heavy() ? kHeavy : kInLoop;
  }
  // What memory or a later instruction gets. Nothing else leaves the loop.
  const auto is_wanted = [&](const Made& result) {
    if (result.ref.kind == Ref::kAccess) return result.last;
    return std::any_of(later.begin(), later.end(), [&](int index) {
      const Instr& instr = kernel_.instrs[static_cast<size_t>(index)];
      return std::any_of(instr.in, instr.in + instr.arity,
                         [&](const Ref& ref) { return same_ref(ref, result.ref); });
    });
  };
  std::vector<Made> results;
  for (const Made& result : made) {
    if (!is_wanted(result)) continue;
    SegmentStep& step = segment.steps[static_cast<size_t>(result.step)];
    step.output = static_cast<int>(segment.outputs.size());
    segment.outputs.push_back(step.result);
    results.push_back(result);
  }
  if (results.empty() && folds.empty()) return false;
  if (results.size() > kMostOperands) return false;
  segment.by_rows = !folds.empty();
  std::vector<Ref> outputs;
  for (const auto* list : {&inputs, &numbers}) {
    for (const Value& value : *list) segment.by_rows |= goes_by_row(value);
  }
  for (const Made& result : results) {
    const SegmentStep& maker = segment.steps[static_cast<size_t>(result.step)];
    segment.by_rows |= results_by_row(result.ref, maker.result);
    outputs.push_back(result.ref);
  }
  Step step;
  step.kind = StepKind::kSegment;
  step.streamed = streamed_outputs(outputs);
  fetch_ahead(inputs, segment, step.streamed);
  if (!compile_segment(segment, step)) {
    // A call for each row where the loop cannot walk them.
    if (!segment.by_rows || !folds.empty()) return false;
    segment.by_rows = false;
    segment.fetched = -1;
    step.streamed = 0;
    if (!compile_segment(segment, step)) return false;
  }
  step.inputs = static_cast<uint8_t>(inputs.size());
  step.numbers = static_cast<uint8_t>(numbers.size());
  step.outputs = static_cast<uint8_t>(results.size() + folds.size());
  step.folds = static_cast<uint8_t>(folds.size());
  step.first_fold = static_cast<int>(program_.folds.size());
  std::vector<StepOperand> operands;
  for (const auto* list : {&inputs, &numbers}) {
    for (const Value& value : *list) {
      const Settled settled = direct(value);
      step.by_row |= settled.by_row;
      operands.push_back(settled.operand);
    }
  }
  for (const Made& result : results) {
    const Dtype dtype = segment.steps[static_cast<size_t>(result.step)].result;
    const Settled settled = result_operand(result.ref, Rank::kFull, dtype);
    step.by_row |= settled.by_row;
    operands.push_back(settled.operand);
  }
  for (const auto& [out, fold] : folds) {
    operands.push_back(result_operand(out, Rank::kRow, fold.result).operand);
    program_.folds.push_back(fold);
  }
  step.first = static_cast<uint32_t>(program_.operands.size());
  program_.operands.insert(program_.operands.end(), operands.begin(), operands.end());
  program_.steps.push_back(step);
  for (size_t i = 0; i < results.size(); ++i) {
    settle_result(results[i].ref, Rank::kFull,
                  segment.steps[static_cast<size_t>(results[i].step)].result,
                  operands[inputs.size() + numbers.size() + i]);
  }
  for (size_t i = 0; i < folds.size(); ++i) {
    settle_result(folds[i].first, Rank::kRow, folds[i].second.result,
                  operands[operands.size() - folds.size() + i]);
  }
  program_.cost += cost;
  return true;
}

// ---- the order of instructions ----

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
    rank = instr.code == circuit::kCodeReduction ? Rank::kRow
           : is_elementwise(instr)               ? rank_of_instr(instr, ranks)
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
  std::vector<int> waiting(instrs.size(), 0);  // for how many, then -1 once it is in the order
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
