// SPDX-License-Identifier: MIT
// run_plan: programs are made at the first run, later runs add addresses and walk the blocks.
#include "src/cpu/executor/run.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hologram/parallel.h"
#include "src/circuit/plan_cache.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/executor/frame.h"
#include "src/cpu/executor/fused_call.h"
#include "src/cpu/movement/copy_bytes.h"
#include "src/cpu/program/program.h"

namespace hologram::cpu {
namespace {

using circuit::Bindings;
using circuit::Kernel;
using circuit::Plan;
using circuit::Ref;

// Blocks [begin, end) of a kernel.
struct Part {
  int kernel;
  int64_t begin, end;
};

// Kernels that do not depend on each other, and how their blocks are shared out: chunk c is
// parts[chunks[c]] up to parts[chunks[c + 1]].
struct Batch {
  int begin = 0, end = 0;
  std::vector<Part> parts;
  std::vector<int> chunks;
};

struct Code final : circuit::PlanCode {
  Code() = default;
  Code(const Code& other);
  size_t bytes() const override;
  std::unique_ptr<PlanCode> copy() const override { return std::make_unique<Code>(*this); }

  Isa isa{};
  bool jitted = false;            // generated loops are in use where they serve
  std::atomic<bool> grown{true};  // since the plan cache was told
  std::vector<KernelCode> kernels;
  std::vector<Batch> batches;
  int64_t ones_bytes = 0;
};

// A copy for a plan that gets other sizes. It refers to the other plan's kernels until
// give_sizes().
Code::Code(const Code& other)
    : PlanCode(other),
      isa(other.isa),
      jitted(other.jitted),
      kernels(other.kernels),
      batches(other.batches),
      ones_bytes(other.ones_bytes) {}

size_t Code::bytes() const {
  const auto of = [](const auto& list) { return list.capacity() * sizeof(*list.data()); };
  size_t bytes = sizeof(Code) + of(kernels) + of(batches);
  const Program* before = nullptr;
  for (const KernelCode& kernel : kernels) {
    bytes += of(kernel.memory) + of(kernel.immediates);
    if (kernel.fused != nullptr) bytes += fused_bytes(*kernel.fused);
    if (kernel.program.get() != before) bytes += kernel.program->bytes();  // groups share one
    for (const auto& other : kernel.others) bytes += other->bytes();
    before = kernel.program.get();
  }
  for (const Batch& batch : batches) bytes += of(batch.parts) + of(batch.chunks);
  return bytes;
}

// ---- running a step ----

// in[0..count) of the operands' addresses.
template <class Pointer>
void gather_addresses(const StepOperand* operands, int count, char* const* at, Pointer* out) {
  for (int k = 0; k < count; ++k) out[k] = at[operands[k].place];
}

template <class Pointer>
void advance(const StepOperand* operands, int count, int64_t cols, Pointer* pointers) {
  for (int k = 0; k < count; ++k) {
    pointers[k] = const_cast<char*>(static_cast<const char*>(pointers[k])) + operands[k].fixed +
                  operands[k].per_col * cols;
  }
}

void run_op(const Step& step, const StepOperand* operands, char* const* at, int64_t rows,
            int64_t cols, int64_t n) {
  const void* in[circuit::kMaxArity];
  gather_addresses(operands, step.inputs, at, in);
  void* out = at[operands[step.inputs].place];
  if (!step.by_row) return step.op(in, out, n);
  for (int64_t r = 0; r < rows; ++r) {
    step.op(in, out, cols);
    advance(operands, step.inputs, cols, in);
    advance(operands + step.inputs, 1, cols, &out);
  }
}

// The analyzer does not see that a step has as many operands as its loops go through, nor that its
// caller's arrays of addresses end with it.
// NOLINTBEGIN(clang-analyzer-core.*)

// The loop for results that lie at these addresses, in rows with these steps.
LoopFunction loop_for(const Step& step, void* const* out, const int64_t* steps) {
  if (step.streaming == nullptr) [[likely]]
    return step.loop;
  for (int k = 0; k < step.outputs - step.folds; ++k) {
    if ((step.streamed >> k & 1) == 0) continue;
    const uintptr_t row = steps == nullptr ? 0 : static_cast<uintptr_t>(steps[k]);
    if ((reinterpret_cast<uintptr_t>(out[k]) | row) % 64 != 0) return step.loop;
  }
  return step.streaming;
}

// A loop that goes from row to row, and finishes the rows' folds.
void run_rows(const Program& program, const Step& step, const StepOperand* operands,
              const void** in, void** out, int64_t rows, int64_t cols) {
  int64_t steps[2 * kMostOperands];
  const int reads = step.inputs + step.numbers, arrays = step.outputs - step.folds;
  for (int k = 0; k < reads + arrays; ++k) {
    steps[k] = operands[k].fixed + operands[k].per_col * cols;
  }
  const LoopFunction kernel = loop_for(step, out, steps + reads);
  if (step.folds == 0) return kernel(in, in + step.inputs, out, cols, rows, steps);
  alignas(64) double blocks[kMostFolds][kRowsTogether];
  char* results[kMostFolds];
  for (int f = 0; f < step.folds; ++f) {
    results[f] = static_cast<char*>(out[arrays + f]);
    out[arrays + f] = blocks[f];
  }
  for (int64_t r = 0; r < rows; r += kRowsTogether) {
    const int64_t together = std::min(kRowsTogether, rows - r);
    kernel(in, in + step.inputs, out, cols, together, steps);
    for (int f = 0; f < step.folds; ++f) {
      const SettledFold& fold =
          program.folds[static_cast<size_t>(step.first_fold) + static_cast<size_t>(f)];
      finish_blocks(fold, blocks[f], together, cols, results[f]);
      results[f] += together * static_cast<int64_t>(itemsize(fold.result));
    }
    for (int k = 0; k < reads; ++k) in[k] = static_cast<const char*>(in[k]) + steps[k] * together;
    for (int k = 0; k < arrays; ++k) {
      out[k] = static_cast<char*>(out[k]) + steps[reads + k] * together;
    }
  }
}

// NOLINTEND(clang-analyzer-core.*)

void run_loop(const Program& program, const Step& step, const StepOperand* operands,
              char* const* at, int64_t rows, int64_t cols, int64_t n) {
  const void* in[kMostOperands];
  void* out[kMostOperands + kMostFolds];
  const int inputs = step.inputs, numbers = step.numbers;
  gather_addresses(operands, inputs + numbers, at, in);
  gather_addresses(operands + inputs + numbers, step.outputs, at, out);
  if (step.walks_rows) return run_rows(program, step, operands, in, out, rows, cols);
  if (!step.by_row) {
    // Read by loops over joined rows only.
    const auto* kept = reinterpret_cast<const int64_t*>(program.domain.kept.data());
    return loop_for(step, out, nullptr)(in, in + inputs, out, n, 1, kept);
  }
  for (int64_t r = 0; r < rows; ++r) {
    step.loop(in, in + inputs, out, cols, 1, nullptr);
    advance(operands, inputs + numbers, cols, in);
    advance(operands + inputs + numbers, step.outputs, cols, out);
  }
}

void run_convert(Isa isa, const Step& step, const StepOperand* operands, char* const* at,
                 int64_t rows, int64_t cols, int64_t n) {
  const void* in = at[operands[0].place];
  void* out = at[operands[1].place];
  if (!step.by_row) rows = 1, cols = n;
  if (step.streams && reinterpret_cast<uintptr_t>(out) % 64 == 0) {
    const int64_t bytes = n * static_cast<int64_t>(itemsize(step.to));
    const int64_t streamed = bytes / 64 * 64;
    convert_table(isa).stream(in, out, streamed);
    copy_bytes(static_cast<char*>(out) + streamed, static_cast<const char*>(in) + streamed,
               bytes - streamed);
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    if (step.convert != nullptr) {
      step.convert(in, out, cols);
    } else if (in != out) {
      convert(step.from, in, step.to, out, cols);
    }
    if (r + 1 < rows) {
      advance(operands, 1, cols, &in);
      advance(operands + 1, 1, cols, &out);
    }
  }
}

// Elements from one row of a dense or row-wise operand to the next.
int64_t row_elements(const StepOperand& operand, Dtype dtype, int64_t cols) {
  return (operand.fixed + operand.per_col * cols) / static_cast<int64_t>(itemsize(dtype));
}

}  // namespace

void run_step(const Program& program, const Step& step, char* const* at, int64_t rows,
              int64_t cols) {
  const StepOperand* operands = &program.operands[step.first];
  const int64_t n = step.row_values ? rows : rows * cols;
  switch (step.kind) {
    case StepKind::kOp:
      return run_op(step, operands, at, rows, cols, n);
    case StepKind::kLoop:
      return run_loop(program, step, operands, at, rows, cols, n);
    case StepKind::kConvert:
      return run_convert(program.isa, step, operands, at, rows, cols, n);
    case StepKind::kGather:
    case StepKind::kScatter: {
      if (step.row_values) cols = 1;
      Block from{at[operands[0].place], step.row_stride, step.col_stride};
      Block to{at[operands[1].place], cols, 1};
      if (step.kind == StepKind::kScatter) {
        from = {from.data, cols, 1};
        to = {to.data, step.row_stride, step.col_stride};
      }
      return copy_block(from, to, rows, cols, step.itemsize);
    }
    case StepKind::kFold: {
      const SettledFold& fold = program.folds[step.fold];
      return fold_contiguous_rows(fold, at[operands[0].place], rows, cols,
                                  row_elements(operands[0], fold.compute, cols), program.one_row(),
                                  at[operands[1].place]);
    }
    case StepKind::kRows: {
      const int b = step.inputs - 1;
      const int64_t strides[3] = {row_elements(operands[0], step.from, cols),
                                  row_elements(operands[b], step.from, cols),
                                  row_elements(operands[step.inputs], step.from, cols)};
      return step.rows->rows({at[operands[0].place], b > 0 ? at[operands[b].place] : nullptr,
                              at[operands[step.inputs].place]},
                             rows, cols, strides);
    }
  }
}

namespace {

void run_steps(const Program& program, const std::vector<Step>& steps, char* const* at,
               int64_t rows, int64_t cols) {
  for (const Step& step : steps) run_step(program, step, at, rows, cols);
}

// ---- running blocks ----

// The counter that Program::walk_counts describes.
class BlockWalk {
 public:
  // Moves the addresses to block `index`.
  BlockWalk(const Program& program, int64_t index, char** at)
      : moving_(program.moving.data()),
        count_(program.moving.size()),
        counts_(program.walk_counts.data()),
        steps_(program.walk_steps.data()) {
    const size_t digits = program.walk_counts.size();
    std::fill_n(digits_, digits, 0);
    if (index == 0) return;
    for (size_t d = 0; d < digits; ++d) {
      digits_[d] = index % counts_[d];
      index /= counts_[d];
    }
    for (size_t i = 0; i < count_; ++i) {
      int64_t gone = 0, back = 0;
      for (size_t d = 0; d < digits; ++d) {
        const int64_t step = steps_[d * count_ + i] + back;
        gone += digits_[d] * step;
        back += (counts_[d] - 1) * step;
      }
      at[moving_[i]] += gone;
    }
  }

  int64_t digit(int d) const { return digits_[d]; }

  // To the next block, of which there is one.
  void next(char** at) {
    size_t d = 0;
    while (++digits_[d] == counts_[d]) digits_[d++] = 0;
    const int64_t* const steps = steps_ + d * count_;
    for (size_t i = 0; i < count_; ++i) at[moving_[i]] += steps[i];
  }

 private:
  const uint16_t* moving_;
  size_t count_;
  const int64_t* counts_;
  const int64_t* steps_;
  int64_t digits_[BlockDomain::kPitch];
};

}  // namespace

void run_blocks(const Program& program, int64_t begin, int64_t end, char** at) {
  const BlockDomain& domain = program.domain;
  const BlockGrid& grid = domain.grid;
  const int inner = domain.ndim - 1;
  run_steps(program, program.setup, at, grid.block_rows, grid.block_cols);
  BlockWalk walk(program, begin, at);
  const int64_t last_rows = domain.shape[inner - 1] - (grid.row_blocks - 1) * grid.block_rows;
  const int64_t last_cols = domain.shape[inner] - (grid.col_blocks - 1) * grid.block_cols;
  for (int64_t b = begin;;) {
    const int64_t rows = walk.digit(1) + 1 < grid.row_blocks ? grid.block_rows : last_rows;
    const int64_t cols = walk.digit(0) + 1 < grid.col_blocks ? grid.block_cols : last_cols;
    run_steps(program, program.steps, at, rows, cols);
    if (++b == end) return;
    walk.next(at);
  }
}

namespace {

// ---- programs of a plan ----

// Elements a thread claims at a time, fewer the more is done to each.
int64_t grain_of(const Program& program) {
  return std::clamp<int64_t>(
      static_cast<int64_t>(2.0 * static_cast<double>(grain(false)) / (1 + program.cost)), 2048,
      grain(false));
}

// Binding a kernel, in chunks.
constexpr double kKernelCost = 0.005;

void share_out(const std::vector<KernelCode>& kernels, Batch& batch) {
  // In chunks of a grain: the work, and what each block of a kernel is of it.
  std::vector<double> block_work;
  double total = 0;
  for (int k = batch.begin; k < batch.end; ++k) {
    const Program& program = *kernels[k].program;
    const double all = kKernelCost + static_cast<double>(program.domain.numel) /
                                         static_cast<double>(grain_of(program));
    block_work.push_back(kernels[k].blocks > 0 ? all / static_cast<double>(kernels[k].blocks) : 0);
    total += all;
  }
  // A few chunks are as many as the threads share evenly.
  const double threads = num_threads();
  double chunk = 1;
  if (total > 1 && total < 8 * threads) {
    chunk = total / (std::ceil(total / threads) * threads);
  }
  double filled = 0;
  batch.chunks.push_back(0);
  for (int k = batch.begin; k < batch.end; ++k) {
    const double work = block_work[k - batch.begin];
    for (int64_t at = 0; at < kernels[k].blocks;) {
      const double room = std::max(1.0, (chunk - filled) / work + 0.5);
      const int64_t remaining = kernels[k].blocks - at;
      const int64_t take =
          room < static_cast<double>(remaining) ? static_cast<int64_t>(room) : remaining;
      batch.parts.push_back({k, at, at + take});
      at += take;
      filled += static_cast<double>(take) * work;
      if (filled >= chunk * 0.999) {
        batch.chunks.push_back(static_cast<int>(batch.parts.size()));
        filled = 0;
      }
    }
  }
  if (batch.chunks.back() != static_cast<int>(batch.parts.size())) {
    batch.chunks.push_back(static_cast<int>(batch.parts.size()));
  }
}

std::unique_ptr<Code> make_code(const Plan& plan, Isa isa, bool jit) {
  auto code = std::make_unique<Code>();
  code->isa = isa;
  code->jitted = jit;
  const Kernel* last = nullptr;
  for (const Kernel& kernel : plan.kernels) {
    // What follows a call finds its operands in the caches, so there nothing is computed again.
    const std::optional<Kernel> repeated =
        jit && kernel.call == nullptr ? repeat_light_values(kernel, isa) : std::nullopt;
    const Kernel& computed = repeated ? *repeated : kernel;
    KernelCode made;
    made.call = kernel.call.get();
    for (const circuit::MemoryAccess& access : kernel.accesses) {
      made.memory.push_back({access.slot, access.offset});
    }
    for (const circuit::Instr& instr : computed.instrs) {
      for (int k = 0; k < instr.arity; ++k) {
        if (instr.in[k].kind == Ref::kImmediate) made.immediates.push_back(instr.in[k].index);
      }
    }
    if (made.call != nullptr) {
      made.program = std::make_shared<Program>();
      if (!kernel.instrs.empty()) {
        made.fused = make_fused(kernel, made, isa, jit, code->grown);
      }
    } else if (last != nullptr && last->launch == kernel.launch && same_program(*last, kernel)) {
      made.program = code->kernels.back().program;
    } else if (kernel.numel() > 0) {
      made.program = std::make_shared<Program>(make_program(computed, isa, jit));
    } else {
      made.program = std::make_shared<Program>();
    }
    last = &kernel;
    made.blocks =
        made.call == nullptr && kernel.numel() > 0 ? made.program->domain.grid.count() : 0;
    made.first_one = code->ones_bytes;
    code->ones_bytes += made.program->ones * kOneBytes;
    const int index = static_cast<int>(code->kernels.size());
    if (index == 0 || kernel.stage != plan.kernels[index - 1].stage) {
      code->batches.push_back({index, index, {}, {}});
    }
    code->batches.back().end = index + 1;
    code->kernels.push_back(std::move(made));
  }
  for (Batch& batch : code->batches) share_out(code->kernels, batch);
  code->sizes = plan.sizes;
  return code;
}

// Programs of a kernel that are kept for other sizes.
constexpr size_t kMostOthers = 3;

// Sees to it that made.program serves the kernel's sizes. Returns whether a program had to be made.
bool give_sizes(KernelCode& made, const Kernel& kernel, Isa isa) {
  if (give_sizes(kernel, made.program)) return false;
  for (auto& other : made.others) {
    if (!give_sizes(kernel, other)) continue;
    std::swap(other, made.program);
    return false;
  }
  const std::optional<Kernel> repeated = repeat_light_values(kernel, isa);
  auto program = std::make_shared<Program>(make_program(repeated ? *repeated : kernel, isa, true));
  if (made.others.size() == kMostOthers) made.others.erase(made.others.begin());
  made.others.push_back(std::exchange(made.program, std::move(program)));
  return true;
}

// Makes the code, which has generated loops, that of the plan's sizes.
void give_sizes(Code& code, const Plan& plan) {
  const Program* before = nullptr;  // that of the kernel before this one
  code.ones_bytes = 0;
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    const Kernel& kernel = plan.kernels[k];
    KernelCode& made = code.kernels[k];
    for (size_t i = 0; i < kernel.accesses.size(); ++i) {
      made.memory[i].offset = kernel.accesses[i].offset;
    }
    made.call = kernel.call.get();
    if (made.fused != nullptr) {
      made.fused = make_fused(kernel, made, *made.fused, code.grown);
    } else if (made.call == nullptr && kernel.numel() > 0) {
      const Program* own = made.program.get();
      if (own == before) {
        made.program = code.kernels[k - 1].program;
      } else if (give_sizes(made, kernel, code.isa)) {
        code.grown.store(true, std::memory_order_relaxed);
      }
      before = own;
      made.blocks = made.program->domain.grid.count();
    }
    made.first_one = code.ones_bytes;
    code.ones_bytes += made.program->ones * kOneBytes;
  }
  for (Batch& batch : code.batches) {
    batch.parts.clear();
    batch.chunks.clear();
    share_out(code.kernels, batch);
  }
  code.sizes = plan.sizes;
}

// Elements from which generating loops pays in the first run already.
constexpr int64_t kWorthGenerating = 1 << 18;

// Most plans run once or many times: loops are generated at the second run.
Code& code_of(Plan& plan) {
  const Isa isa = current_isa();
  auto* code = static_cast<Code*>(plan.code.get());
  if (code != nullptr && code->isa == isa && code->jitted) [[likely]] {
    if (code->sizes != plan.sizes) give_sizes(*code, plan);
    return *code;
  }
  int64_t most = 0;
  for (const Kernel& kernel : plan.kernels) most = std::max(most, kernel.numel());
  const bool again = code != nullptr && code->isa == isa;
  auto made = make_code(plan, isa, again || most >= kWorthGenerating);
  code = made.get();
  plan.code = std::move(made);
  return *code;
}

// ---- running ----

void run_batch(int& running, const Code& code, const Batch& batch, const Bindings& bindings,
               char* ones, Frame& frame, int max_threads) {
  const int64_t chunks = static_cast<int64_t>(batch.chunks.size()) - 1;
  const bool alone = chunks < 2 || max_threads == 1;
  for (int k = batch.begin; k < batch.end; ++k) {
    const KernelCode& kernel = code.kernels[k];
    if (kernel.call != nullptr) {
      running = k;
      kernel.fused != nullptr ? run_fused(*kernel.fused, bindings, max_threads)
                              : run_call(*kernel.call, bindings, max_threads);
      continue;
    }
    const Program& program = *kernel.program;
    if (kernel.blocks == 0 || (!alone && program.prologue.empty())) continue;
    char** at = frame.bind(kernel, bindings, ones);
    run_steps(program, program.prologue, at, 1, 1);
    if (alone) run_blocks(program, 0, kernel.blocks, at);
  }
  if (alone) return;
  parallel_for(chunks, max_threads, [&](int64_t begin, int64_t end, int) {
    Frame thread_frame;
    for (int p = batch.chunks[begin]; p < batch.chunks[end]; ++p) {
      Part part = batch.parts[p];
      // What one claim holds of a kernel is one walk.
      while (p + 1 < batch.chunks[end] && batch.parts[p + 1].kernel == part.kernel) {
        part.end = batch.parts[++p].end;
      }
      const KernelCode& kernel = code.kernels[part.kernel];
      run_blocks(*kernel.program, part.begin, part.end, thread_frame.bind(kernel, bindings, ones));
    }
  });
}

}  // namespace

void run_plan(Plan& plan, const Bindings& bindings, int max_threads) {
  Code& code = code_of(plan);
  if (max_threads <= 0) max_threads = num_threads();
  alignas(8) char small[256];
  std::unique_ptr<char[]> large;
  char* ones = small;
  if (code.ones_bytes > static_cast<int64_t>(sizeof small)) {
    large.reset(new char[static_cast<size_t>(code.ones_bytes)]);
    ones = large.get();
  }
  Frame frame;
  for (const Batch& batch : code.batches) {
    plan.running = batch.begin;
    run_batch(plan.running, code, batch, bindings, ones, frame, max_threads);
  }
  plan.running = static_cast<int>(plan.kernels.size());
  if (code.grown.load(std::memory_order_relaxed)) [[unlikely]] {
    code.grown.store(false, std::memory_order_relaxed);
    circuit::plan_cache().note_code(plan);
  }
}

}  // namespace hologram::cpu
