// SPDX-License-Identifier: MIT
// make_program: a kernel's domain cut into blocks, and its instructions lowered for blocks of the
// best size; the same for other sizes.
#include "src/cpu/program/program.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "hologram/memory.h"
#include "hologram/op.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/program/lower.h"

namespace hologram::cpu {

using circuit::Instr;
using circuit::Kernel;
using circuit::Ref;

// ---- the tile, the program ----

namespace {

// Tiles are multiples of this: whole vectors of every type, whole cache lines.
constexpr int64_t kTileUnit = 64;
constexpr int64_t kShortestTile = 256;
// Elements at a time where nothing is kept between steps, or values of rows only.
constexpr int64_t kStraightTile = 8192;

int64_t l1_bytes() {
  static const int64_t bytes = [] {
    const long known = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    return known > 0 ? int64_t{known} : int64_t{32} << 10;
  }();
  return bytes;
}

int64_t choose_tile(const Program& program, const std::vector<Register>& registers,
                    int64_t class_bytes_per_element) {
  if (program.steps.size() == 1 && class_bytes_per_element == 0) return kStraightTile;
  int64_t widest = 1, touched = 0;
  for (const int32_t size : program.itemsizes) {
    widest = std::max<int64_t>(widest, size);
    touched += size;
  }
  // Memory that only flows past takes less of L1 than what is kept.
  const int64_t live = std::max<int64_t>(1, class_bytes_per_element + touched / 4);
  for (const Register& reg : registers) widest = std::max<int64_t>(widest, reg.itemsize);
  const bool keeps_rows = class_bytes_per_element == 0 && program.domain.keeps_columns &&
                          program.domain.shape[program.domain.ndim - 1] >= kFewRows;
  const int64_t most =
      keeps_rows ? kStraightTile : static_cast<int64_t>(BoundaryPool::kClassBytes) / widest;
  const int64_t tile = l1_bytes() * 3 / 5 / live;
  return std::clamp(tile, kShortestTile, most) / kTileUnit * kTileUnit;
}

// What make_program() and Lowering ask of the sizes: where these answers are equal, so are the
// steps.
std::vector<uint64_t> layout_of(const BlockDomain& domain, const Kernel& kernel, Isa isa) {
  const BlockGrid& grid = domain.grid;
  const bool rows = grid.block_rows > 1;
  const int64_t last = domain.shape[domain.ndim - 1];
  std::vector<uint64_t> words;
  words.reserve(kernel.accesses.size() + 1);
  uint64_t word = 0;
  const auto answer = [&](bool is) { word = word << 1 | uint64_t{is}; };
  answer(rows);
  answer(rows && grid.block_cols >= kShortestRow);
  answer(rows && grid.block_cols >= kShortRepeat);
  answer(rows && grid.block_cols >= kShortRow);
  answer(rows && grid.block_cols >= kRepeatedRow);
  answer(grid.block_cols == 1);
  answer(domain.numel == last);
  answer(!domain.kept.empty());
  answer(domain.keeps_columns && last >= kFewRows);
  for (const int64_t size : {1, 2, 4, 8, 16}) answer(domain.numel * size >= kStreamBytes);
  const bool folds = std::any_of(kernel.instrs.begin(), kernel.instrs.end(),
                                 [](const Instr& i) { return i.code == circuit::kCodeReduction; });
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
    answer(folds && jit_takes_fold(isa, Fold::kSum, dtype, grid.block_cols));
  }
  words.push_back(word);
  for (int k = 0; k < static_cast<int>(kernel.accesses.size()); ++k) {
    const Layout layout = domain.layout(k);
    word = static_cast<uint64_t>(layout);
    answer(layout != Layout::kDense && domain.is_repeated(k));
    answer(domain.moves(k));
    answer(domain.packed[static_cast<size_t>(k)] != 0);
    answer(domain.shape[domain.ndim - 2] > 1 && domain.row_stride(k) == 0);
    answer(!rows || domain.row_stride(k) == 1);
    words.push_back(word);
  }
  return words;
}

// Whether rows may be joined over the gaps between them: one generated loop does all there is to
// do, with masks.
bool may_join_rows(const Kernel& kernel, Isa isa, bool jit) {
  return jit && isa == Isa::kAvx512 && !circuit::wants_whole_rows(kernel) &&
         std::all_of(kernel.instrs.begin(), kernel.instrs.end(), [&](const Instr& instr) {
           return is_elementwise(instr) && jit_takes(isa, instr);
         });
}

bool is_one_loop(const Program& program) {
  return program.steps.size() == 1 && program.steps[0].kind == StepKind::kLoop &&
         program.setup.empty();
}

// False where rows were joined in vain: the steps are not what that needs.
bool make_program(const Kernel& kernel, Isa isa, bool jit, bool joins_rows, Program& program) {
  // Returns the tile that would be best: how much of L1 it takes is known when all is settled.
  const auto lower = [&](int64_t tile, BlockDomain domain) {
    program = Program{};
    program.isa = isa;
    program.tile = tile;
    program.joins_rows = joins_rows;
    program.domain = std::move(domain);
    Lowering lowering(kernel, jit, program);
    lowering.run();
    const int64_t bytes = assign_classes(program, lowering.registers());
    program.settle_classes();
    return choose_tile(program, lowering.registers(), bytes);
  };
  const auto is_in_vain = [&] { return !program.domain.kept.empty() && !is_one_loop(program); };
  const int64_t best = lower(kTile, make_block_domain(kernel, kTile, joins_rows));
  if (is_in_vain()) return false;
  program.layout = layout_of(program.domain, kernel, isa);
  if (best == kTile) return true;
  BlockDomain domain = make_block_domain(kernel, best, joins_rows);
  std::vector<uint64_t> layout = layout_of(domain, kernel, isa);
  if (layout == program.layout) {
    program.tile = best;
    program.settle(std::move(domain));
    return true;
  }
  lower(best, std::move(domain));
  program.layout = std::move(layout);
  return !is_in_vain();
}

}  // namespace

Program make_program(const circuit::Kernel& kernel, Isa isa, bool jit) {
  Program program;
  const bool joins_rows = may_join_rows(kernel, isa, jit);
  if (!make_program(kernel, isa, jit, joins_rows, program)) {
    make_program(kernel, isa, jit, false, program);
  }
  return program;
}

// ---- other sizes ----

void Program::settle_walk() {
  const BlockGrid& grid = domain.grid;
  const int inner = domain.ndim - 1;
  walk_counts.clear();
  walk_steps.clear();
  std::vector<int64_t> back(moving.size(), 0);  // bytes that the digits before have gone
  for (int d = inner; d >= 0; --d) {
    const bool is_outer = d < inner - 1;
    if (is_outer && domain.shape[d] == 1) continue;
    const int64_t count = is_outer     ? domain.shape[d]
                          : d == inner ? grid.col_blocks
                                       : grid.row_blocks;
    const int64_t size = is_outer ? 1 : d == inner ? grid.block_cols : grid.block_rows;
    walk_counts.push_back(count);
    for (size_t i = 0; i < moving.size(); ++i) {
      const uint16_t k = moving[i];
      const bool is_packed = d == inner && domain.packed[k] != 0;
      const int64_t step = (is_packed ? domain.kept_count : size) *
                           domain.strides[k * BlockDomain::kPitch + d] * itemsizes[k];
      walk_steps.push_back(step - back[i]);
      back[i] += (count - 1) * step;
    }
  }
}

void Program::settle(BlockDomain other) {
  domain = std::move(other);
  settle_walk();
  settle_classes();
  // An operand that goes on by rows still does, for its layout is the same.
  for (StepOperand& operand : operands) {
    if (operand.fixed == 0 || operand.place >= accesses) continue;
    operand.fixed = domain.row_stride(operand.place) * itemsizes[operand.place];
  }
  for (std::vector<Step>* list : {&setup, &steps}) {
    for (Step& step : *list) {
      if (step.strided < 0) continue;
      step.row_stride = domain.row_stride(step.strided);
      if (!step.row_values) step.col_stride = domain.col_stride(step.strided);
    }
  }
}

bool give_sizes(const Kernel& kernel, std::shared_ptr<const Program>& program) {
  BlockDomain domain = make_block_domain(kernel, program->tile, program->joins_rows);
  if (layout_of(domain, kernel, program->isa) != program->layout) return false;
  std::shared_ptr<Program> sized = program.use_count() == 1
                                       ? std::const_pointer_cast<Program>(program)
                                       : std::make_shared<Program>(*program);
  sized->settle(std::move(domain));
  program = std::move(sized);
  return true;
}

size_t Program::bytes() const {
  const auto of = [](const auto& list) { return list.capacity() * sizeof(*list.data()); };
  size_t bytes = sizeof(Program) + of(domain.strides) + of(itemsizes) + of(moving) +
                 of(walk_counts) + of(walk_steps) + of(layout) + of(operands) + of(folds) +
                 of(prologue) + of(setup) + of(steps) + of(loops);
  for (const JitLoop& loop : loops) bytes += loop.bytes();
  return bytes;
}

bool same_program(const circuit::Kernel& a, const circuit::Kernel& b) {
  const auto all = [](const auto& x, const auto& y, auto&& same) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
  };
  if (a.ndim != b.ndim || a.whole_rows != b.whole_rows ||
      !std::equal(a.shape.begin(), a.shape.begin() + a.ndim, b.shape.begin())) {
    return false;
  }
  const auto same_access = [](const circuit::MemoryAccess& x, const circuit::MemoryAccess& y) {
    return x.dtype == y.dtype && x.rank == y.rank && x.loaded == y.loaded && x.stored == y.stored &&
           x.strides == y.strides;
  };
  const auto same_ref = [](const circuit::Ref& x, const circuit::Ref& y) {
    return x.kind == y.kind && (x.kind == circuit::Ref::kImmediate || x.index == y.index);
  };
  const auto same_instr = [&](const circuit::Instr& x, const circuit::Instr& y) {
    bool same = x.code == y.code && x.attr == y.attr && x.compute == y.compute &&
                x.result == y.result && x.rank == y.rank && x.arity == y.arity &&
                x.parameter == y.parameter && same_ref(x.out, y.out);
    for (int k = 0; same && k < x.arity; ++k) same = same_ref(x.in[k], y.in[k]);
    return same;
  };
  if (!all(a.accesses, b.accesses, same_access) || a.temps != b.temps ||
      !all(a.instrs, b.instrs, same_instr)) {
    return false;
  }
  // Which accesses share a slot decides what a store makes out of date.
  for (size_t i = 0; i < a.accesses.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if ((a.accesses[i].slot == a.accesses[j].slot) != (b.accesses[i].slot == b.accesses[j].slot))
        return false;
    }
  }
  return true;
}

}  // namespace hologram::cpu
