// SPDX-License-Identifier: MIT
// Holds fused circuits against their records run one by one.
#include "src/runtime/recording/circuit_check.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "hologram/error.h"
#include "hologram/op.h"
#include "src/circuit/tape.h"
#include "src/runtime/recording/recorded_circuit.h"

namespace hologram::internal {
namespace {

std::atomic<bool>& check_wish() {
  static std::atomic<bool> checks{[] {
    const char* text = std::getenv("HOLOGRAM_RECORDER_CHECK");
    return text != nullptr && std::string_view(text) == "1";
  }()};
  return checks;
}

// What the elements of a slot are; nothing said: any floating type, as far as the check goes.
using SlotDtype = std::optional<Dtype>;

// Of each slot, by the last record that writes it.
std::vector<SlotDtype> written_dtypes(std::span<const uint64_t> words, size_t slots) {
  std::vector<SlotDtype> dtypes(slots);
  circuit::Tape::decode(words, [&](const circuit::Record& record, int) {
    if (record.code != circuit::kCodeCall) {
      dtypes[record.operands[0].slot] = record.operands[0].dtype;
      return;
    }
    for (size_t k = 0; k < record.call.operands(); ++k) {
      const circuit::CallSlot operand = record.call.operand(k);
      if (operand.present && operand.writes) dtypes[operand.slot].reset();
    }
  });
  return dtypes;
}

template <class Bits>
bool is_nan(const char* at, Bits infinity) {
  Bits bits;
  std::memcpy(&bits, at, sizeof bits);
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  return static_cast<Bits>(bits & ~kSign) > infinity;
}

bool is_nan(Dtype dtype, const char* at) {
  switch (dtype) {
    case Dtype::kFloat16:
      return is_nan<uint16_t>(at, 0x7c00);
    case Dtype::kBFloat16:
      return is_nan<uint16_t>(at, 0x7f80);
    case Dtype::kFloat32:
    case Dtype::kComplex64:
      return is_nan<uint32_t>(at, 0x7f800000);
    case Dtype::kFloat64:
    case Dtype::kComplex128:
      return is_nan<uint64_t>(at, 0x7ff0000000000000);
    default:
      return false;
  }
}

// Whether the element that byte i is of is a NaN on both sides. Slots begin with a whole element.
bool both_nan(Dtype dtype, const char* a, const char* b, size_t i, size_t n) {
  const size_t size = is_complex(dtype) ? itemsize(dtype) / 2 : itemsize(dtype);
  const size_t begin = i - i % size;
  return begin + size <= n && is_nan(dtype, a + begin) && is_nan(dtype, b + begin);
}

// The first byte in which they differ, and not only in which NaN an element is; else n.
size_t first_difference(SlotDtype dtype, const char* a, const char* b, size_t n) {
  for (size_t i = 0;; ++i) {
    i = static_cast<size_t>(std::mismatch(a + i, a + n, b + i).first - a);
    if (i == n) return n;
    bool nan = false;
    if (dtype.has_value()) {
      nan = both_nan(*dtype, a, b, i, n);
    } else {
      for (const Dtype d : {Dtype::kFloat16, Dtype::kBFloat16, Dtype::kFloat32, Dtype::kFloat64}) {
        nan = nan || both_nan(d, a, b, i, n);
      }
    }
    if (!nan) return i;
  }
}

// One record as a kernel of its own, straight from its words: one instruction, with conversions
// where an operand is stored in another dtype than it is computed in.
class RecordKernel {
 public:
  RecordKernel(const circuit::Record& record, int index) : record_(record), index_(index) {
    if (record.code == circuit::kCodeCall) {
      set_call();
      return;
    }
    kernel_.ndim = record.ndim;
    std::copy_n(record.shape, record.ndim, kernel_.shape.begin());
    kernel_.whole_rows = record.code >= circuit::kCodeReduction;
    if (kernel_.numel() > 0) set_instruction();
  }

  void run(Device& device, const circuit::Bindings& bindings) {
    if (kernel_.call == nullptr && kernel_.instrs.empty()) return;  // no elements
    circuit::Plan plan;
    plan.kernels.push_back(std::move(kernel_));
    device.run_plan(plan, bindings, 0);
  }

 private:
  using Rank = circuit::Rank;
  using Ref = circuit::Ref;

  void set_call() {
    auto call = std::make_shared<circuit::KernelCall>();
    call->kind = record_.attr;
    call->record = index_;
    for (size_t k = 0; k < record_.call.operands(); ++k) {
      call->operands.push_back(record_.call.operand(k));
    }
    call->attributes.assign(record_.call.attributes.begin(), record_.call.attributes.end());
    call->first_number = record_.call.first_number;
    kernel_.call = std::move(call);
  }

  void set_instruction() {
    const bool fold = record_.code == circuit::kCodeReduction;
    const bool op = record_.code < circuit::kCodeConvert;
    const Dtype target = record_.operands[0].dtype;
    circuit::Instr instr;
    instr.code = record_.code;
    instr.attr = record_.attr;
    instr.compute = record_.compute;
    instr.rank = fold ? Rank::kRow : Rank::kFull;
    instr.arity = record_.arity;
    instr.parameter = record_.parameter;
    instr.record = index_;
    for (int k = 0; k < record_.arity; ++k) {
      const circuit::TapeOperand& operand = record_.operands[k + 1];
      if (operand.kind == circuit::OperandKind::kImmediate) {
        instr.in[k] = {Ref::kImmediate, operand.immediate};
        continue;
      }
      const uint32_t from = access(k + 1, Rank::kFull);
      kernel_.accesses[from].loaded = true;
      const bool as_stored = fold || record_.code == circuit::kCodeConvert;
      instr.in[k] = {Ref::kAccess, from};
      if (!as_stored && operand.dtype != record_.compute) {
        const Rank rank = kernel_.accesses[from].rank;
        const Ref converted = temp(record_.compute, rank);
        convert(instr.in[k], operand.dtype, converted, record_.compute, rank);
        instr.in[k] = converted;
      }
    }
    const uint32_t to = access(0, instr.rank);
    kernel_.accesses[to].stored = true;
    instr.result = target;
    if (op && op_info(static_cast<OpId>(record_.code)).result_is_bool) {
      instr.result = Dtype::kBool;
    } else if (op || record_.code == circuit::kCodeRow) {
      instr.result = record_.compute;
    }
    const bool direct = instr.result == target && !fold;
    instr.out = direct ? Ref{Ref::kAccess, to} : temp(instr.result, instr.rank);
    kernel_.instrs.push_back(instr);
    if (!direct) convert(instr.out, instr.result, {Ref::kAccess, to}, target, instr.rank);
  }

  // rank: of a result.
  uint32_t access(int k, Rank rank) {
    const circuit::TapeOperand& operand = record_.operands[k];
    circuit::MemoryAccess made;
    made.slot = operand.slot;
    made.offset = operand.offset;
    made.dtype = operand.dtype;
    made.rank = rank;
    const auto last = static_cast<size_t>(kernel_.ndim - 1);
    bool moves = false;
    for (size_t d = 0; d <= last && operand.kind == circuit::OperandKind::kMemory; ++d) {
      // A loop of one step goes nowhere.
      made.strides[d] = kernel_.shape[d] == 1 ? 0 : record_.strides[k][d];
      moves = moves || made.strides[d] != 0;
    }
    if (kernel_.numel() == 1) {
      made.rank = Rank::kFull;
      made.strides[last] = 1;
    } else if (k > 0 && !moves) {
      made.rank = Rank::kOne;
    } else if (k > 0 && made.strides[last] == 0 && kernel_.shape[last] > 1) {
      made.rank = Rank::kRow;
    }
    kernel_.accesses.push_back(made);
    return static_cast<uint32_t>(kernel_.accesses.size() - 1);
  }

  Ref temp(Dtype dtype, Rank rank) {
    kernel_.temps.push_back({dtype, rank});
    return {Ref::kTemp, static_cast<uint32_t>(kernel_.temps.size() - 1)};
  }

  void convert(Ref from, Dtype source, Ref to, Dtype target, Rank rank) {
    circuit::Instr instr;
    instr.code = circuit::kCodeConvert;
    instr.compute = source;
    instr.result = target;
    instr.rank = rank;
    instr.arity = 1;
    instr.in[0] = from;
    instr.out = to;
    instr.record = index_;
    kernel_.instrs.push_back(instr);
  }

  const circuit::Record& record_;
  const int index_;
  circuit::Kernel kernel_;
};

}  // namespace

bool checks_circuits() { return check_wish().load(std::memory_order_relaxed); }
void set_checks_circuits(bool check) {
  if (check_wish().exchange(check) != check) see_all(check);
}

CircuitCheck::CircuitCheck(Device& device, std::span<const uint64_t> words,
                           std::span<const uint8_t> states, std::vector<size_t> sizes,
                           std::span<char* const> bound, const uint64_t* immediates)
    : words_(words), states_(states), sizes_(std::move(sizes)) {
  std::vector<char*> places;
  for (size_t s = 0; s < sizes_.size(); ++s) {
    // Unwritten bytes are copied too, so that they compare equal.
    copies_.push_back(std::make_unique<char[]>(sizes_[s]));
    if (bound[s] != nullptr) std::memcpy(copies_[s].get(), bound[s], sizes_[s]);
    places.push_back(copies_[s].get());
  }
  circuit::Tape::decode(words_, [&](const circuit::Record& record, int index) {
    RecordKernel(record, index).run(device, {places.data(), immediates});
  });
}

void CircuitCheck::compare(const circuit::Plan& plan, std::span<char* const> bound) const {
  const std::vector<SlotDtype> dtypes = written_dtypes(words_, sizes_.size());
  for (size_t s = 0; s < sizes_.size(); ++s) {
    if (bound[s] == nullptr || (states_[s] & circuit::kSlotLive) == 0) continue;
    const size_t at = first_difference(dtypes[s], bound[s], copies_[s].get(), sizes_[s]);
    if (at == sizes_[s]) continue;
    fail(ErrorKind::kInternal,
         "recorder check: the circuit and its records one by one differ in slot ", s, " from byte ",
         at, " of ", sizes_[s], " on; the tape:\n", circuit::print_tape(words_), "the plan:\n",
         circuit::print_plan(plan));
  }
}

}  // namespace hologram::internal
