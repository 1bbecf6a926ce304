// SPDX-License-Identifier: MIT
// Reads structures, makes plans with formulas, and gives them other sizes.
#include "src/circuit/plan_template.h"

#include <algorithm>

#include "src/circuit/call_kinds.h"

namespace hologram::circuit {
namespace {

// A word that stands for the symbol of this number; others are the sizes 0 and 1, as they are.
constexpr uint64_t kFirstSymbol = 2;
constexpr size_t kFewest = 64;

size_t place_of(int64_t size, size_t places) {
  const auto product = static_cast<uint64_t>(size) * 0x9e3779b97f4a7c15u;
  return (product >> 32) & (places - 1);
}

}  // namespace

void Structure::read(std::span<const uint64_t> words) {
  words_.clear();
  symbols_.clear();
  calls_.clear();
  if (known_.empty()) known_.resize(kFewest);
  if (++reading_ == 0) {  // as long ago as never
    std::fill(known_.begin(), known_.end(), Known{});
    reading_ = 1;
  }
  Tape::walk(
      words, [&](uint64_t word) { words_.push_back(word); },
      [&](uint64_t size) { words_.push_back(number_of(static_cast<int64_t>(size))); },
      [&](uint16_t kind, std::span<const uint64_t> operands, std::span<const uint64_t> attributes) {
        calls_.push_back({operands, attributes});
        const CallKind* functions = find_kernel(kind);
        CallResult result;
        const bool has = functions != nullptr && functions->result != nullptr &&
                         functions->result(attributes.data(), result);
        words_.push_back(uint64_t{has} | static_cast<uint64_t>(result.dtype) << 1 |
                         uint64_t{static_cast<uint32_t>(result.operand)} << 32);
        CallNarrowing narrowing;
        if (functions != nullptr && functions->narrowing != nullptr &&
            functions->narrowing(attributes.data(), narrowing)) {
          words_.push_back(static_cast<uint64_t>(narrowing.dtype) |
                           uint64_t{static_cast<uint32_t>(narrowing.operand)} << 8);
          for (const int kind : {narrowing.of_int8, narrowing.of_float16, narrowing.of_bfloat16}) {
            words_.push_back(static_cast<uint64_t>(kind));
          }
        } else {
          words_.push_back(~uint64_t{0});
        }
        if (!has) return;
        for (const int64_t size : {result.rows, result.cols, result.group}) {
          words_.push_back(number_of(size));
        }
      });
}

uint64_t Structure::number_of(int64_t size) {
  if (size == 0 || size == 1) return static_cast<uint64_t>(size);
  for (size_t at = place_of(size, known_.size());; at = (at + 1) & (known_.size() - 1)) {
    Known& known = known_[at];
    if (known.reading != reading_) {
      known = {size, static_cast<uint32_t>(symbols_.size()), reading_};
      symbols_.push_back(size);
      const uint64_t number = kFirstSymbol + known.number;
      if (2 * symbols_.size() > known_.size()) grow();
      return number;
    }
    if (known.size == size) return kFirstSymbol + known.number;
  }
}

void Structure::grow() {
  std::vector<Known> more(2 * known_.size());
  for (uint32_t number = 0; number < symbols_.size(); ++number) {
    size_t at = place_of(symbols_[number], more.size());
    while (more[at].reading == reading_) at = (at + 1) & (more.size() - 1);
    more[at] = {symbols_[number], number, reading_};
  }
  known_ = std::move(more);
}

PlanTemplate::PlanTemplate(const Structure& structure, std::span<const uint64_t> words,
                           std::span<const uint8_t> states, const PlanOptions& options,
                           std::unique_ptr<Plan>& plan) {
  SizeTrace trace(structure.symbols());
  plan = make_plan(words, states, options);
  formulas_ = trace.finish();
}

void PlanTemplate::give(Plan& plan, const Structure& structure, std::span<const int64_t> values) {
  const auto put = [&](int64_t& size, uint32_t formula) {
    if (formula != 0) size = values[formula];
  };
  int64_t moved = 0;
  for (Kernel& kernel : plan.kernels) {
    if (!kernel.formulas.empty()) {
      const uint32_t* formula = kernel.formulas.data();
      for (int d = 0; d < kernel.ndim; ++d) put(kernel.shape[static_cast<size_t>(d)], *formula++);
      for (MemoryAccess& access : kernel.accesses) {
        for (int d = 0; d < kernel.ndim; ++d) {
          put(access.strides[static_cast<size_t>(d)], *formula++);
        }
      }
      for (MemoryAccess& access : kernel.accesses) put(access.offset, *formula++);
    }
    if (kernel.call != nullptr) {
      KernelCall& call = *kernel.call;
      const Structure::CallWords& given = structure.calls()[static_cast<size_t>(call.number)];
      CallRecord record;
      record.operand_words = given.operands;
      for (size_t k = 0; k < call.operands.size(); ++k) {
        if (static_cast<int>(k) == call.narrowed) {
          put(call.operands[k].offset, call.narrowed_offset);
          put(call.operands[k].bytes, call.narrowed_bytes);
          continue;
        }
        const CallSlot operand = record.operand(k);
        call.operands[k].offset = operand.offset;
        call.operands[k].bytes = operand.bytes;
      }
      std::copy(given.attributes.begin(), given.attributes.end(), call.attributes.begin());
    }
    moved += kernel_bytes(kernel);
  }
  plan.stats.bytes_moved = moved;
  put(plan.stats.bytes_unfused, plan.unfused_formula);
  plan.parts.clear();
  plan.runs = 0;
  ++plan.sizes;
}

std::unique_ptr<Plan> PlanTemplate::copy(const Plan& plan) {
  auto made = std::make_unique<Plan>();
  made->kernels = plan.kernels;
  made->attach = plan.attach;
  made->passing = plan.passing;
  made->slots = plan.slots;
  made->stats = plan.stats;
  made->sizes = plan.sizes;
  made->unfused_formula = plan.unfused_formula;
  for (Kernel& kernel : made->kernels) {
    if (kernel.call != nullptr) kernel.call = std::make_shared<KernelCall>(*kernel.call);
  }
  return made;
}

}  // namespace hologram::circuit
