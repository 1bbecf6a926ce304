// SPDX-License-Identifier: MIT
// Records a call over tensors, or runs it at once where it cannot be recorded.
#include "src/array/tensor_call.h"

namespace hologram::array {

void TensorCall::view(const Tensor* t, Access access) {
  if (t == nullptr) {
    words_.push_back(0);
    operands_.emplace_back();
    return;
  }
  const bool row_major = t->is_contiguous();
  words_.push_back(view_head(t->dtype(), t->shape().size(), row_major));
  words_.insert(words_.end(), t->shape().begin(), t->shape().end());
  if (!row_major) words_.insert(words_.end(), t->strides().begin(), t->strides().end());
  memory(t, access);
}

void TensorCall::memory(const Tensor* t, Access access) {
  CallOperand& operand = operands_.emplace_back();
  if (t == nullptr) return;
  const Extent extent = extent_of(*t);
  if (extent.bytes == 0) return;
  operand = {.buffer = t->buffer().get(),
             .offset = extent.offset,
             .bytes = extent.bytes,
             .reads = access != Access::writes,
             .writes = access != Access::reads,
             .covers = access == Access::writes &&
                       extent.bytes == static_cast<int64_t>(t->nbytes()) &&
                       !t->may_overlap_itself()};
}

void TensorCall::run_now(uint16_t kind) {
  std::vector<char*> addresses;
  for (const CallOperand& operand : operands_) {
    if (operand.buffer != nullptr) materialize(*operand.buffer);
  }
  for (const CallOperand& operand : operands_) {
    addresses.push_back(
        operand.buffer == nullptr ? nullptr : operand.buffer->data_as<char>() + operand.offset);
  }
  run_call(kind, {addresses.data(), words_.data(), numbers_.data(), 0});
}

}  // namespace hologram::array
