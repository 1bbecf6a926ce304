// SPDX-License-Identifier: MIT
// Records a call, or runs it at once where it cannot be recorded.
#include "recording/deferred_call.h"

namespace hologram_torch {
namespace {

// From the first byte of a tensor's elements to behind the last.
int64_t extent_of(const c10::TensorImpl* t) {
  if (t->numel() == 0) return 0;
  const auto itemsize = static_cast<int64_t>(t->itemsize());
  if (t->is_contiguous()) return t->numel() * itemsize;
  const c10::IntArrayRef sizes = t->sizes(), strides = t->strides();
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
  return (last + 1) * itemsize;
}

}  // namespace

bool Call::record(uint16_t kind, double cost) {
  c10::SmallVector<hologram::CallOperand, 12> list;
  size_t written = 0;
  for (const auto& [t, access] : operands_) {
    hologram::CallOperand& operand = list.emplace_back();
    if (t == nullptr || t->numel() == 0) continue;
    operand.buffer = access == Access::reads ? recordable_buffer(t) : recordable_result(t);
    operand.offset = t->storage_offset() * static_cast<int64_t>(t->itemsize());
    operand.bytes = extent_of(t);
    operand.reads = access != Access::writes;
    operand.writes = access != Access::reads;
    operand.covers = access == Access::writes && t->is_non_overlapping_and_dense();
    if (operand.writes) written += static_cast<size_t>(operand.bytes);
  }
  try {
    return hologram::record_call(kind, {list.data(), list.size()}, {words_.data(), words_.size()},
                                 {numbers_.data(), numbers_.size()}, cost);
  } catch (const std::exception& error) {
    rethrow_as_torch(error, written);
  }
}

void Call::run_now(uint16_t kind) {
  c10::SmallVector<char*, 12> addresses;
  for (const auto& [t, access] : operands_) {
    addresses.push_back(t == nullptr              ? nullptr
                        : access == Access::reads ? const_cast<char*>(read_pointer(t))
                                                  : write_pointer(t));
  }
  hologram::run_call(kind, {addresses.data(), words_.data(), numbers_.data(), 0});
}

}  // namespace hologram_torch
