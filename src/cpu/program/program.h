// SPDX-License-Identifier: MIT
// Program: what a plan's kernel becomes on the CPU, calls of kernels on the blocks of its domain,
// with every pointer but those to memory settled. make_program() makes it at a plan's first run,
// run_plan() (src/cpu/executor/run.cc) reads it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "hologram/cpu_info.h"
#include "hologram/elementwise.h"
#include "src/circuit/plan.h"
#include "src/cpu/device/kernel_table.h"
#include "src/cpu/elementwise/iteration.h"
#include "src/cpu/jit/jit.h"
#include "src/cpu/reduce/reduce_rows.h"
#include "src/cpu/reduce/softmax_kernels.h"

namespace hologram::cpu {

// How an access lies within a block.
enum class Layout : uint8_t {
  kDense,      // one contiguous run
  kOne,        // one element for the whole domain
  kRowScalar,  // one element for each row
  kRowVector,  // rows are contiguous and lie apart, or one row is repeated
  kStrided,    // anything else
};

// The domain of a kernel with its dimensions merged, cut into blocks.
struct BlockDomain {
  static constexpr int kPitch = circuit::kMaxDomainDims + 2;

  int ndim = 0;
  int64_t numel = 1;
  // The last dimension is the kernel's own; else dimensions are in another order and values of rows
  // are not what they were.
  bool keeps_columns = false;
  std::array<int64_t, kPitch> shape{};
  std::vector<int64_t> strides;  // of access k from k * kPitch
  BlockGrid grid;
  // Where rows are joined with the gaps between them: which positions of a block hold an element,
  // bit p % 64 of word p / 64, and a word more. numel then counts the gaps, too. Else empty.
  std::vector<uint64_t> kept;
  int64_t kept_count = 0;    // elements of a whole block
  std::vector<char> packed;  // by access: has no gaps, but its elements side by side

  // In elements.
  int64_t row_stride(int access) const { return strides[access * kPitch + ndim - 2]; }
  int64_t col_stride(int access) const { return strides[access * kPitch + ndim - 1]; }
  Layout layout(int access) const;
  // The same rows of memory belong to every block.
  bool is_repeated(int access) const;
  // Whether it lies elsewhere for other blocks.
  bool moves(int access) const;
};

// Blocks of at most `tile` elements; of some whole rows where the kernel's instructions want them.
// joins_rows: short rows that lie apart in the same way for all operands, or without gaps, may
// become one run with gaps, in which results are stored under masks.
BlockDomain make_block_domain(const circuit::Kernel& kernel, int64_t tile, bool joins_rows);

// Where a step finds an operand. Row r of the block is r * (fixed + per_col * columns) bytes on.
struct StepOperand {
  uint16_t place = 0;  // in the table of addresses: accesses, immediates, ones, classes
  int32_t per_col = 0;
  int64_t fixed = 0;
};

enum class StepKind : uint8_t {
  kOp,       // op(inputs) -> output
  kConvert,  // from -> to
  kLoop,     // a generated loop over several instructions
  kGather,   // a strided rectangle -> contiguous elements
  kScatter,  // the other way round
  kFold,     // rows -> one element each
  kRows,     // rows -> rows
};

// What a generated loop reads, arrays and numbers, and what it writes, each at most.
inline constexpr size_t kMostOperands = 512;

struct Step {
  StepKind kind{};
  bool by_row = false;      // one call for each row, else one for the block
  bool row_values = false;  // one element for each row of the block, not for each element
  bool streams = false;     // a copy past the caches
  bool walks_rows = false;  // a loop that goes from row to row itself
  uint16_t inputs = 0, numbers = 0, outputs = 0;
  uint8_t folds = 0;  // of a loop, the last of its outputs
  Dtype from{}, to{};
  uint32_t first = 0;  // of its operands: inputs, numbers, outputs
  union {
    ElementwiseKernel op = nullptr;
    ConvertKernel convert;  // null: through convert()
    LoopFunction loop;
    const SoftmaxKernel* rows;
    struct {  // of the strided side, in elements
      int32_t itemsize;
      int32_t fold;
    };
  };
  int64_t row_stride = 0, col_stride = 0;
  int16_t strided = -1;  // the access that these are strides of, if they are
  // Of a loop: the same with some outputs (bit k: output k) past the caches, for operands
  // that lie at whole cache lines; null where no result is worth it.
  LoopFunction streaming = nullptr;
  uint64_t streamed = 0;
  int first_fold = 0;
};

struct Program {
  Isa isa{};
  BlockDomain domain;
  int accesses = 0, immediates = 0, ones = 0, classes = 0;
  int64_t class_bytes = 0;         // what a class must hold
  std::vector<int32_t> itemsizes;  // of the accesses
  std::vector<uint16_t> moving;    // accesses that lie elsewhere for other blocks
  // Blocks come in the order of a counter's numbers. Its digits, the last first: blocks of columns,
  // blocks of rows, then the outer dimensions. Digit d has walk_counts[d] values; where it goes on
  // and those before it return to 0, moving[i] goes on by walk_steps[d * moving.size() + i] bytes.
  std::vector<int64_t> walk_counts, walk_steps;
  std::vector<StepOperand> operands;
  std::vector<SettledFold> folds;
  std::vector<Step> prologue;             // once a run: what has one element
  std::vector<Step> setup;                // once for each thread: tiles that stay the same
  std::vector<Step> steps;                // for each block
  std::vector<JitLoop> loops;             // that steps run
  double cost = 1;                        // of an element, in simple ops
  int64_t tile = 0;                       // elements of a block, at most
  bool joins_rows = false;                // as make_block_domain() was told
  int64_t widest = 0, widest_of_row = 0;  // bytes of an element and of a row's value in a class
  std::vector<uint64_t> layout;           // what of the sizes decided on the steps

  int first_immediate() const { return accesses; }
  int first_one() const { return accesses + immediates; }
  int first_class() const { return accesses + immediates + ones; }
  int places() const { return first_class() + classes; }
  // Memory that it takes, with its loops.
  size_t bytes() const;
  bool one_row() const { return domain.numel == domain.shape[domain.ndim - 1]; }

  // The same steps on another domain, where layout_of() is the same.
  void settle(BlockDomain other);
  // What follows from the domain: how blocks lie, and what classes must hold.
  void settle_walk();
  void settle_classes() {
    class_bytes = std::max(domain.grid.elements() * widest, domain.grid.block_rows * widest_of_row);
  }
};
// Folds of one loop.
inline constexpr int kMostFolds = 4;
// A one is kept in this many bytes.
inline constexpr int64_t kOneBytes = 8;
// Shorter rows cost less repeated or gathered than one call each.
inline constexpr int64_t kShortRow = 96;
// Shorter rows cost less gathered than a turn each of a loop that walks them.
inline constexpr int64_t kShortestRow = 4;
// A value is repeated along shorter rows sooner than a loop has walked them.
inline constexpr int64_t kShortRepeat = 8;
// Repeated rows below this are worth a tile that keeps them.
inline constexpr int64_t kRepeatedRow = 256;
// Rows so long that a straight tile has few enough for a class.
inline constexpr int64_t kFewRows = 16;

// The same kernel with values that are light to compute made again after a fold; none where there
// are no such, or no generated loops to make them in.
std::optional<circuit::Kernel> repeat_light_values(const circuit::Kernel& kernel, Isa isa);

// Settles everything but addresses. jit: use generated loops where they serve.
Program make_program(const circuit::Kernel& kernel, Isa isa, bool jit);

// The program becomes that of a kernel which differs from its own in sizes only: it is changed, or
// where others have it too, copied. False, with nothing done, where other steps serve these sizes.
bool give_sizes(const circuit::Kernel& kernel, std::shared_ptr<const Program>& program);

// Whether make_program() gives the same program for both: they differ in slots, offsets and numbers
// only.
bool same_program(const circuit::Kernel& a, const circuit::Kernel& b);

}  // namespace hologram::cpu
