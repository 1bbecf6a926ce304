// SPDX-License-Identifier: MIT
// Runs a call, and instructions on blocks of its result.
#include "src/cpu/executor/fused_call.h"

#include <mutex>

#include "hologram/parallel.h"
#include "src/circuit/call_kinds.h"
#include "src/cpu/executor/run.h"

namespace hologram::cpu {
namespace {

using circuit::Bindings;
using circuit::Kernel;
using circuit::KernelCall;
using circuit::MemoryAccess;

// Elements of a block of a result that was not handed over in blocks.
constexpr int64_t kBlockElements = 16384;

// The addresses of a call's operands.
class Operands {
 public:
  Operands(const KernelCall& call, const Bindings& bindings) {
    const size_t count = call.operands.size();
    if (count > kSmall) more_.resize(count);
    at_ = count > kSmall ? more_.data() : small_;
    for (size_t k = 0; k < count; ++k) {
      const circuit::CallSlot& operand = call.operands[k];
      at_[k] = operand.present ? bindings.slots[operand.slot] + operand.offset : nullptr;
    }
    arguments_ = {at_, call.attributes.data(), bindings.immediates + call.first_number, 1};
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  const CallArguments& with_threads(int max_threads) {
    arguments_.max_threads = max_threads;
    return arguments_;
  }
  char*& operand(int k) { return at_[k]; }

 private:
  static constexpr size_t kSmall = 16;
  char* small_[kSmall];
  std::vector<char*> more_;
  char** at_;
  CallArguments arguments_;
};

}  // namespace

// The instructions behind a call, as programs over blocks of the sizes that have come up.
class FusedCall {
 public:
  FusedCall(const Kernel& kernel, const KernelCode& code, Isa isa, bool jit,
            std::atomic<bool>& grown)
      : whole_rows(circuit::wants_whole_rows(kernel)),
        kernel_(kernel),
        code_(code),
        isa_(isa),
        jit_(jit),
        grown_(grown),
        product_(static_cast<size_t>(circuit::product_access(kernel))) {
    code_.memory[product_].slot = KernelCode::kNoSlot;
    code_.fused = nullptr;
  }
  FusedCall(const Kernel& kernel, const KernelCode& code, FusedCall& other,
            std::atomic<bool>& grown)
      : FusedCall(kernel, code, other.isa_, other.jit_, grown) {
    for (const auto& sized : other.sizes_) others_.push_back(sized->code.program);
    if (others_.empty()) others_ = other.others_;
  }

  const KernelCall& call() const { return *kernel_.call; }
  int64_t rows() const { return kernel_.rows(); }
  // Rows that a block may have: neighbours in the last dimension of rows.
  int64_t group() const { return kernel_.shape[static_cast<size_t>(kernel_.ndim) - 2]; }
  int64_t cols() const { return kernel_.cols(); }
  int64_t itemsize() const { return size_of(kernel_.accesses[product_]); }
  const bool whole_rows;

  size_t bytes() {
    std::lock_guard lock(mutex_);
    size_t bytes = sizeof(FusedCall);
    for (const auto& sized : sizes_) bytes += sizeof(Sized) + sized->code.program->bytes();
    for (const auto& program : others_) bytes += program->bytes();
    return bytes;
  }

  // The instructions on a block that is done.
  void run(const Bindings& bindings, const CallBlock& block) {
    const KernelCode& code = code_for(block);
    const Program& program = *code.program;
    std::vector<char> ones(static_cast<size_t>(program.ones * kOneBytes));
    Frame frame;
    char** at = frame.bind(code, bindings, ones.data());
    for (size_t k = 0; k < kernel_.accesses.size(); ++k) {
      const MemoryAccess& access = kernel_.accesses[k];
      if (access.product) continue;
      at[k] += first_of(access, block) * size_of(access);
    }
    at[product_] = block.data;
    for (const Step& step : program.prologue) run_step(program, step, at, 1, 1);
    run_blocks(program, 0, code.blocks, at);
  }

 private:
  struct Sized {
    int64_t rows, cols, pitch;
    KernelCode code;
  };

  static int64_t size_of(const MemoryAccess& access) {
    return static_cast<int64_t>(hologram::itemsize(access.dtype));
  }

  // Elements from an access's first one to that of a block.
  int64_t first_of(const MemoryAccess& access, const CallBlock& block) const {
    auto d = static_cast<size_t>(kernel_.ndim) - 1;
    int64_t first = block.col * access.strides[d], row = block.row;
    while (d-- > 0) {
      const int64_t size = d > 0 ? kernel_.shape[d] : row + 1;
      first += row % size * access.strides[d];
      row /= size;
    }
    return first;
  }

  const KernelCode& code_for(const CallBlock& block) {
    std::lock_guard lock(mutex_);
    for (const auto& sized : sizes_) {
      if (sized->rows == block.rows && sized->cols == block.cols && sized->pitch == block.pitch) {
        return sized->code;
      }
    }
    Kernel part = kernel_;
    const auto outer = static_cast<size_t>(part.ndim) - 2;
    part.ndim = 2;
    part.shape = {block.rows, block.cols};
    for (MemoryAccess& access : part.accesses) {
      access.strides = {access.strides[outer], access.strides[outer + 1]};
    }
    part.accesses[product_].strides[0] = block.pitch;
    auto made = std::make_unique<Sized>(Sized{block.rows, block.cols, block.pitch, code_});
    bool known = false;
    for (size_t i = others_.size(); i-- > 0 && !known;) {
      made->code.program = others_[i];
      known = give_sizes(part, made->code.program);
    }
    if (!known) made->code.program = std::make_shared<Program>(make_program(part, isa_, jit_));
    made->code.blocks = made->code.program->domain.grid.count();
    sizes_.push_back(std::move(made));
    grown_.store(true, std::memory_order_relaxed);
    return sizes_.back()->code;
  }

  const Kernel& kernel_;
  KernelCode code_;
  const Isa isa_;
  const bool jit_;
  std::atomic<bool>& grown_;
  const size_t product_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Sized>> sizes_;
  std::vector<std::shared_ptr<const Program>> others_;  // of a kernel of other sizes
};

std::shared_ptr<FusedCall> make_fused(const Kernel& kernel, const KernelCode& code, Isa isa,
                                      bool jit, std::atomic<bool>& grown) {
  return std::make_shared<FusedCall>(kernel, code, isa, jit, grown);
}

std::shared_ptr<FusedCall> make_fused(const Kernel& kernel, const KernelCode& code,
                                      FusedCall& other, std::atomic<bool>& grown) {
  return std::make_shared<FusedCall>(kernel, code, other, grown);
}

size_t fused_bytes(FusedCall& fused) { return fused.bytes(); }

void run_call(const KernelCall& call, const Bindings& bindings, int max_threads) {
  Operands operands(call, bindings);
  circuit::call_kind(call.kind).run(operands.with_threads(max_threads));
}

void run_fused(FusedCall& fused, const Bindings& bindings, int max_threads) {
  const CallKind& kind = circuit::call_kind(fused.call().kind);
  Operands operands(fused.call(), bindings);
  struct Context {
    FusedCall& fused;
    const Bindings& bindings;
  } context{fused, bindings};
  const auto run = [](void* at, const CallBlock& block) {
    const auto& c = *static_cast<const Context*>(at);
    c.fused.run(c.bindings, block);
  };
  if (kind.run_blocks != nullptr &&
      kind.run_blocks(operands.with_threads(max_threads), {run, &context, fused.whole_rows})) {
    return;
  }
  std::unique_ptr<char[]> kept;
  const int64_t row_bytes = fused.cols() * fused.itemsize();
  char*& result = operands.operand(fused.call().result);
  if (result == nullptr) {
    const int64_t bytes = fused.rows() * row_bytes;
    kept.reset(new (std::nothrow) char[static_cast<size_t>(bytes)]);
    if (kept == nullptr) {
      fail(ErrorKind::kOutOfMemory, kind.name, " needs ", bytes,
           " bytes for a result that nobody keeps; free memory and try again");
    }
    result = kept.get();
  }
  kind.run(operands.with_threads(max_threads));
  const int64_t group = fused.group();
  const int64_t height = std::clamp<int64_t>(kBlockElements / fused.cols(), 1, group);
  const int64_t parts = (group + height - 1) / height;
  parallel_for(fused.rows() / group * parts, max_threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b % parts * height, row = b / parts * group + first;
      fused.run(bindings, {row, std::min(height, group - first), 0, fused.cols(),
                           result + row * row_bytes, fused.cols()});
    }
  });
}

}  // namespace hologram::cpu
