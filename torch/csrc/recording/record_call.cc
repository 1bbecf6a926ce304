// SPDX-License-Identifier: MIT
// Records a call, or runs it at once where it cannot be recorded.
#include "recording/record_call.h"

namespace hologram_torch {
namespace {

// Elements from the first of a tensor that has some to the last, those between them included.
int64_t span_of(const c10::TensorImpl* t) {
  const c10::IntArrayRef sizes = t->sizes(), strides = t->strides();
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
  return last + 1;
}

}  // namespace

void CallRecord::add_recorded(const Arg& arg, bool is_dense) {
  hologram::CallOperand& operand = recorded_.emplace_back();
  const c10::TensorImpl* t = arg.tensor;
  if (t == nullptr) return;
  if (C10_UNLIKELY(t->device().index() != device_)) {
    if (t->device().type() != kDeviceType) {  // a number of cpu
      may_wait_ = false;
      return;
    }
    if (device_ >= 0) check_same_device(device(device_), t->device());
    device_ = t->device().index();
  }
  if (t->numel() == 0) return;
  const auto itemsize = static_cast<int64_t>(t->itemsize());
  operand.buffer = recordable_buffer(t);
  if (C10_UNLIKELY(operand.buffer == nullptr)) may_wait_ = false;
  operand.offset = t->storage_offset() * itemsize;
  operand.bytes = (is_dense ? t->numel() : span_of(t)) * itemsize;
  operand.reads = arg.access != Access::writes;
  operand.writes = arg.access != Access::reads;
  operand.covers = arg.access == Access::writes && (is_dense || t->is_non_overlapping_and_dense());
}

bool CallRecord::record(hologram::CallNumber number, double cost) {
  size_t written = 0;
  for (size_t k = 0; k < recorded_.size(); ++k) {
    if (!recorded_[k].writes) continue;
    recordable_result(args_[k].tensor);
    written += static_cast<size_t>(recorded_[k].bytes);
  }
  try {
    return hologram::record_call(
        static_cast<uint16_t>(number), {recorded_.data(), recorded_.size()},
        {words_.data(), words_.size()}, {numbers_.data(), numbers_.size()}, cost);
  } catch (const std::exception& error) {
    rethrow_as_torch(error, written);
  }
}

void CallRecord::run_now(hologram::CallNumber number) {
  const auto kind = static_cast<uint16_t>(number);
  if (hologram::is_capturing_graph()) cannot_capture(hologram::call_ops()[kind].name);
  TORCH_CHECK(is_on_host(), hologram::call_ops()[kind].name, ": expected every operand to be on ",
              device(device_), ", got one on cpu");
  c10::SmallVector<char*, 12> addresses;
  for (const auto& [t, access] : args_) {
    addresses.push_back(t == nullptr              ? nullptr
                        : access == Access::reads ? const_cast<char*>(read_pointer(t))
                                                  : write_pointer(t));
  }
  hologram::run_call(kind, {addresses.data(), words_.data(), numbers_.data(), 0});
}

}  // namespace hologram_torch
