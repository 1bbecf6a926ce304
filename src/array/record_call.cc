// SPDX-License-Identifier: MIT
// Records a call over tensors, or runs it at once where it cannot be recorded.
#include "src/array/record_call.h"

#include <algorithm>
#include <vector>

#include "hologram/call_frame.h"
#include "src/array/at_call.h"
#include "src/base/dtype_check.h"
#include "src/circuit/call_kinds.h"

namespace hologram::array {
namespace {

template <class Call>
double cost_of(const uint64_t* words, const uint64_t* numbers) {
  CallFrame frame({nullptr, words, numbers, 1});
  return frame.call<Call>().cost();
}

using Cost = double (*)(const uint64_t* words, const uint64_t* numbers);
constexpr Cost kCosts[] = {
#define HOLOGRAM_COST(name, Struct) &cost_of<calls::Struct<>>,
    HOLOGRAM_EACH_CALL(HOLOGRAM_COST)
#undef HOLOGRAM_COST
};

}  // namespace

void CallRecord::operand(const Arg& arg) {
  const Tensor* t = arg.tensor;
  if (t == nullptr) {
    word(0);
  } else {
    check_has_kernels("call", t->dtype());
    const bool row_major = t->is_contiguous();
    word(view_head(t->dtype(), t->shape().size(), row_major));
    for (const int64_t size : t->shape()) word(static_cast<uint64_t>(size));
    if (!row_major) {
      for (const int64_t stride : t->strides()) word(static_cast<uint64_t>(stride));
    }
  }
  memory(arg);
}

void CallRecord::memory(const Arg& arg) {
  if (arg.tensor == nullptr) return operands_.push_back({});
  const Tensor& t = *arg.tensor;
  const Extent extent = extent_of(t);
  int64_t& largest = arg.access == Access::reads ? read_ : written_;
  largest = std::max(largest, static_cast<int64_t>(t.nbytes()));
  if (extent.bytes == 0) return operands_.push_back({});
  operands_.push_back({.buffer = t.buffer().get(),
                       .offset = extent.offset,
                       .bytes = extent.bytes,
                       .reads = arg.access != Access::writes,
                       .writes = arg.access != Access::reads,
                       .covers = arg.access == Access::writes &&
                                 extent.bytes == static_cast<int64_t>(t.nbytes()) &&
                                 !t.may_overlap_itself()});
}

void CallRecord::run(CallNumber number) {
  run(number, kCosts[static_cast<size_t>(number)](words_.items().data(), numbers_.items().data()));
}

bool CallRecord::is_immediate() const {
  return is_quick(read_, written_) &&
         std::ranges::all_of(operands_.items(), [](const CallOperand& operand) {
           const Buffer* buffer = operand.buffer;
           return buffer == nullptr ||
                  (operand.writes ? is_writable_at_call(*buffer) : is_readable_at_call(*buffer));
         });
}

void CallRecord::note(const char* name, bool is_small) const {
  std::vector<Buffer*> buffers;
  for (const CallOperand& operand : operands_.items()) {
    if (operand.buffer != nullptr) buffers.push_back(operand.buffer);
  }
  if (buffers.empty()) return;
  note_reason(name, is_small, buffers[0]->device(), buffers);
}

void CallRecord::run(CallNumber number, double cost, const char* name) {
  const auto kind = static_cast<uint16_t>(number);
  const std::span<const uint64_t> words = words_.items(), numbers = numbers_.items();
  const bool is_small = is_immediate();
  if (!is_small && record_call(kind, operands_.items(), words, numbers, cost)) return;
  if (name == nullptr) name = circuit::call_name(kind);
  if (is_noting_calls()) note(name, is_small);
  const CircuitCause cause(name);
  for (const CallOperand& operand : operands_.items()) {
    if (operand.buffer != nullptr) materialize(*operand.buffer);
  }
  RoomyVector<char*, 8> addresses;
  for (const CallOperand& operand : operands_.items()) {
    addresses.push_back(
        operand.buffer == nullptr ? nullptr : operand.buffer->data_as<char>() + operand.offset);
  }
  run_call(kind, {addresses.items().data(), words.data(), numbers.data(), 0});
}

}  // namespace hologram::array
