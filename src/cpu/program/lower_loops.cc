// SPDX-License-Identifier: MIT
// Runs of elementwise instructions, and sums of what they make, that become one generated loop.
#include <algorithm>
#include <limits>

#include "hologram/op.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/jit/loop_graph.h"
#include "src/cpu/program/lower.h"

namespace hologram::cpu {

using circuit::Instr;
using circuit::Rank;
using circuit::Ref;

namespace {

// Instructions of one loop.
constexpr size_t kMostInstrs = 1023;
// Arrays that one loop writes in memory. They often lie whole pages apart, all in one set of the
// first cache, which holds eight to twelve lines: with more, each line leaves it before it is full.
constexpr size_t kMostStores = 8;
// A processor works on some 400 instructions at once. Where those of a loop that wait for each
// other take it longer than half of that, it has to work on several elements meanwhile, so the loop
// may be no longer; or there is enough in one element, at two instructions a cycle.
constexpr size_t kMostWaits = 64;      // simple instructions, of four cycles
constexpr size_t kInstrsBeside = 8;    // for each of these
constexpr size_t kWaitOfDivision = 4;  // of these
constexpr size_t kWaitOfHeavy = 16;
// What a simple op costs in a generated loop, in calls of its kernel.
constexpr double kInLoop = 0.25;

size_t wait_of(const Instr& instr) {
  if (!instr.is_op()) return 1;
  switch (instr.op()) {
    case OpId::div:
    case OpId::reciprocal:
    case OpId::sqrt:
    case OpId::rsqrt:
      return kWaitOfDivision;
    default:
      return op_info(instr.op()).is_heavy() ? kWaitOfHeavy : 1;
  }
}

}  // namespace

// What has fewer elements is computed once, but repeated past the caches by a loop.
bool Lowering::fits_loop(int index) const {
  const Instr& instr = this->instr(index);
  const Rank rank = ranks_[static_cast<size_t>(index)];
  const bool repeats = rank == Rank::kOne || instr.code == circuit::kCodeConvert;
  return is_elementwise(instr) && rank_of_out(instr.out) == Rank::kFull &&
         (rank == Rank::kFull || (repeats && is_streamed(instr.out))) &&
         jit_takes(program_.isa, instr);
}

// Sums of what lies in memory, or is made in the loop, as it is or converted.
bool Lowering::fits_fold(int index) const {
  const Instr& instr = this->instr(index);
  if (instr.code != circuit::kCodeReduction || ranks_[static_cast<size_t>(index)] != Rank::kFull)
    return false;
  const Dtype in = dtype_of(instr.in[0]);
  const SettledFold fold = fold_of(instr, in);
  return fold.kernel->blocks != nullptr && jit::can_convert(program_.isa, in, fold.compute) &&
         jit_takes_fold(program_.isa, fold.fold, fold.compute, program_.domain.grid.block_cols);
}

// Where a loop of order_[begin, end) has to end so that its instructions wait for each other no
// longer than a processor can bridge: there, or before, where fewer values are to be kept in
// memory.
size_t Lowering::shortened(size_t begin, size_t end) const {
  if (end - begin <= kMostWaits) return end;
  std::vector<size_t> waits(kernel_.instrs.size(), 0);
  std::vector<int> kept(end - begin + 1, 0);  // how many more at a position than before it
  size_t longest = 0, at = begin;
  for (; at < end; ++at) {
    const auto index = static_cast<size_t>(order_[at]);
    const Instr& instr = kernel_.instrs[index];
    size_t wait = 0;
    for (const int maker : makers_[index]) {
      if (maker != kNone) wait = std::max(wait, waits[static_cast<size_t>(maker)]);
    }
    waits[index] = wait += wait_of(instr);
    longest = std::max(longest, wait);
    if (longest > std::max(kMostWaits, (at - begin) / kInstrsBeside)) break;
    if (instr.out.kind != Ref::kTemp) continue;
    const int last = last_read_[instr.out.index];
    if (last <= static_cast<int>(at)) continue;
    ++kept[at + 1 - begin];
    if (static_cast<size_t>(last) < end) --kept[static_cast<size_t>(last) + 1 - begin];
  }
  if (at == end) return end;
  size_t best = at;
  int alive = 0, fewest = std::numeric_limits<int>::max();
  for (size_t p = begin + 1; p <= at; ++p) {
    alive += kept[p - begin];
    if (p < begin + (at - begin) / 2 || alive > fewest) continue;
    fewest = alive;
    best = p;
  }
  return best;
}

bool Lowering::walks_short_rows() const {
  if (program_.domain.grid.block_cols < kShortestRow) return false;
  for (size_t i = 0; i < kernel_.instrs.size(); ++i) {
    const int index = static_cast<int>(i);
    if (ranks_[i] == Rank::kFull && !fits_loop(index) && !fits_fold(index)) return false;
  }
  // Values of rows would have to be repeated.
  const bool repeats = program_.domain.grid.block_cols >= kShortRepeat;
  auto apart = std::count_if(memory_.begin(), memory_.end(), [&](const Memory& memory) {
    return (memory.layout == Layout::kRowVector && !memory.repeated) ||
           (repeats && memory.layout == Layout::kRowScalar);
  });
  apart += repeats && std::any_of(kernel_.instrs.begin(), kernel_.instrs.end(),
                                  [](const Instr& i) { return i.code == circuit::kCodeReduction; });
  // One copy gathers or scatters as fast.
  return apart > (is_copy(kernel_) ? 1 : 0);
}

size_t Lowering::lower_loop(size_t at) {
  std::vector<uint32_t> stored;  // accesses
  // Memory stored here and read under another name is read by a loop of its own.
  const auto reads_stored = [&](const Instr& instr) {
    return std::any_of(instr.in, instr.in + instr.arity, [&](const Ref& in) {
      return in.kind == Ref::kAccess &&
             std::any_of(stored.begin(), stored.end(), [&](uint32_t out) {
               return out != in.index &&
                      kernel_.accesses[out].slot == kernel_.accesses[in.index].slot;
             });
    });
  };
  // One heavy function after another keeps a processor waiting: what it has in flight at once is so
  // many instructions, which are few elements of a long chain. Two loops are faster.
  const int deepest = std::max(1, depths_[static_cast<size_t>(order_[at])]);
  size_t end = at;
  for (; end < order_.size() && fits_loop(order_[end]); ++end) {
    const Instr& instr = this->instr(order_[end]);
    if (reads_stored(instr) || depths_[static_cast<size_t>(order_[end])] > deepest) break;
    if (instr.out.kind != Ref::kAccess) continue;
    if (stored.size() == kMostStores) break;
    stored.push_back(instr.out.index);
  }
  end = shortened(at, end);
  size_t folds_end = end;
  while (end > at && folds_end < order_.size() && folds_end - end < kMostFolds &&
         fits_fold(order_[folds_end]) && !reads_stored(instr(order_[folds_end]))) {
    const Ref& out = instr(order_[folds_end++]).out;
    if (out.kind == Ref::kAccess) stored.push_back(out.index);
  }
  if (folds_end > end && emit_loop(at, folds_end)) return folds_end - at;
  // One alone is what its kernel does as well, unless it goes past the caches or along short rows.
  const bool is_worth_one =
      walks_rows_ || !program_.domain.kept.empty() ||
      (end - at == 1 && kernel_.instrs.size() == 1 && is_streamed(kernel_.instrs[0].out));
  // Half as many where a loop of all needs too much.
  for (size_t count = end - at; count >= (is_worth_one ? 1 : 2); count /= 2) {
    if (emit_loop(at, at + count)) return count;
  }
  return 0;
}

bool Lowering::is_streamed(const Ref& out) const {
  if (out.kind != Ref::kAccess) return false;
  const circuit::MemoryAccess& to = kernel_.accesses[out.index];
  const int64_t size = static_cast<int64_t>(itemsize(to.dtype));
  if (size < 4 || program_.domain.numel * size < kStreamBytes) return false;
  if (!program_.domain.kept.empty()) return false;
  // What is scattered out of a block is to stay in the cache until then.
  if (!takes_results(memory_[out.index])) return false;
  // Memory that is read here is in the caches already.
  return std::none_of(kernel_.accesses.begin(), kernel_.accesses.end(),
                      [&](const circuit::MemoryAccess& access) {
                        return access.slot == to.slot && access.loaded;
                      }) &&
         std::none_of(kernel_.instrs.begin(), kernel_.instrs.end(), [&](const Instr& instr) {
           return std::find(instr.in, instr.in + instr.arity, out) != instr.in + instr.arity;
         });
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
int Lowering::fetched_ahead(const std::vector<Source>& inputs) const {
  for (size_t k = 0; k < inputs.size(); ++k) {
    const int access = inputs[k].access;
    if (access != kNone && memory_[access].full == kNone &&
        program_.domain.row_stride(access) != 0 && is_read_before(access)) {
      return static_cast<int>(k);
    }
  }
  return kNone;
}

bool Lowering::emit_loop(size_t begin, size_t end) {
  if (end - begin > kMostInstrs) return false;
  jit::LoopGraph graph(program_.isa);
  std::vector<Source> inputs, numbers;
  std::vector<jit::Symbol> made(kernel_.instrs.size());  // here, by instruction
  const auto operand = [&](int index, int k) {
    const int maker = makers_[static_cast<size_t>(index)][static_cast<size_t>(k)];
    if (maker != kNone && made[static_cast<size_t>(maker)].id >= 0) {
      return made[static_cast<size_t>(maker)];
    }
    const Source source = source_of(index, k);
    const bool single = is_single(source);
    std::vector<Source>& list = single ? numbers : inputs;
    const auto known = std::find_if(list.begin(), list.end(), [&](const Source& other) {
      return other.access == source.access && other.reg == source.reg &&
             other.place == source.place;
    });
    const int i = static_cast<int>(known - list.begin());
    if (known == list.end()) list.push_back(source);
    return single ? graph.number(i, source.dtype) : graph.input(i, source.dtype);
  };
  struct Result {
    Ref out;
    Rank rank;
    Dtype dtype;
  };
  std::vector<Result> results, sums;
  std::vector<SettledFold> folds;
  double cost = 1;
  for (size_t i = begin; i < end; ++i) {
    const int index = order_[i];
    const Instr& instr = this->instr(index);
    jit::Symbol in[circuit::kMaxArity];
    for (int k = 0; k < instr.arity; ++k) in[k] = operand(index, k);
    if (inputs.size() + numbers.size() > kMostOperands) return false;
    if (graph.nodes.size() > jit::kMostNodes) return false;
    if (instr.code == circuit::kCodeReduction) {
      if (graph.at(in[0]).op == jit::Op::kNumber) return false;
      const SettledFold& fold = folds.emplace_back(fold_of(instr, graph.at(in[0]).dtype));
      graph.fold(fold.fold, jit::convert(in[0], fold.compute));
      sums.push_back({instr.out, Rank::kRow, fold.result});
      cost += kInLoop;
      continue;
    }
    const jit::Symbol value = graph.compute(instr, in);
    made[static_cast<size_t>(index)] = value;
    cost += instr.is_op() && op_info(instr.op()).is_heavy() ? kHeavy : kInLoop;
    // What memory or a later instruction gets. Nothing else leaves the loop.
    const bool wanted =
        instr.out.kind == Ref::kTemp
            ? last_read_[instr.out.index] >= static_cast<int>(end)
            : std::none_of(&order_[i] + 1, &order_[begin] + (end - begin),
                           [&](int later) { return this->instr(later).out == instr.out; });
    if (!wanted) continue;
    graph.outputs.push_back(value.id);
    results.push_back({instr.out, Rank::kFull, instr.result});
  }
  if (results.size() > kMostOperands || results.size() + folds.size() == 0) return false;
  Step step;
  graph.by_rows = !folds.empty();
  graph.has_gaps = !program_.domain.kept.empty();
  for (size_t k = 0; k < results.size(); ++k) {
    graph.by_rows |= results_by_row(results[k].out);
    if (k < 64 && is_streamed(results[k].out)) step.streamed |= uint64_t{1} << k;
  }
  for (const auto* list : {&inputs, &numbers}) {
    for (const Source& source : *list) graph.by_rows |= goes_by_row(source);
  }
  if (graph.has_gaps) {
    const auto is_packed = [&](int access) {
      return access != kNone && program_.domain.packed[static_cast<size_t>(access)] != 0;
    };
    for (const Source& source : inputs) graph.packed_inputs.push_back(is_packed(source.access));
    for (const Result& result : results) {
      const bool is_access = result.out.kind == Ref::kAccess;
      graph.packed_outputs.push_back(
          is_packed(is_access ? static_cast<int>(result.out.index) : kNone));
    }
  }
  if (graph.by_rows && step.streamed != 0) graph.fetched = fetched_ahead(inputs);
  JitLoop loop = jit_compile(graph);
  if (loop == nullptr && graph.by_rows && folds.empty()) {
    // A call for each row where the loop cannot walk them.
    graph.by_rows = false;
    graph.fetched = kNone;
    step.streamed = 0;
    loop = jit_compile(graph);
  }
  if (loop == nullptr) return false;
  step.loop = loop.get();
  step.walks_rows = graph.by_rows;
  program_.loops.push_back(std::move(loop));
  if (step.streamed != 0) {
    graph.streams = step.streamed;
    JitLoop streaming = jit_compile(graph);
    step.streaming = streaming.get();
    if (streaming != nullptr) program_.loops.push_back(std::move(streaming));
  }
  results.insert(results.end(), sums.begin(), sums.end());
  std::vector<StepOperand> operands;
  const auto enter = [&](const Settled& settled) {
    step.by_row |= settled.by_row;
    operands.push_back(settled.operand);
  };
  for (const Source& input : inputs) enter(direct(input));
  for (const Source& number : numbers) enter(direct(number));
  for (const Result& result : results) enter(result_operand(result.out, result.rank, result.dtype));
  step.kind = StepKind::kLoop;
  step.numbers = static_cast<uint16_t>(numbers.size());
  step.folds = static_cast<uint8_t>(folds.size());
  step.first_fold = static_cast<int>(program_.folds.size());
  program_.folds.insert(program_.folds.end(), folds.begin(), folds.end());
  add(program_.steps, step, operands, results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    settle_result(results[i].out, results[i].rank, results[i].dtype,
                  operands[operands.size() - results.size() + i]);
  }
  program_.cost += cost;
  return true;
}

}  // namespace hologram::cpu
