// SPDX-License-Identifier: MIT
// The circuits of a device that are sealed and have not run.
#include "src/runtime/recording/circuit_queue.h"

#include <atomic>
#include <utility>

#include "src/runtime/memory/buffer_access.h"

namespace hologram::internal {

void CircuitQueue::push(std::unique_ptr<RecordedCircuit> circuit) {
  RecordedCircuit* pushed = circuit.get();
  (last_ != nullptr ? last_->next : first_) = std::move(circuit);
  last_ = pushed;
  ++count_;
  kept_bytes_ += pushed->kept_bytes;
  unbacked_bytes_ += pushed->unbacked_bytes;
}

std::unique_ptr<RecordedCircuit> CircuitQueue::pop() {
  std::unique_ptr<RecordedCircuit> circuit = std::move(first_);
  first_ = std::move(circuit->next);
  if (first_ == nullptr) last_ = nullptr;
  --count_;
  kept_bytes_ -= circuit->kept_bytes;
  unbacked_bytes_ -= circuit->unbacked_bytes;
  std::erase_if(circuit->slots, [&](const RecordedCircuit::Slot& slot) {
    std::atomic<uint64_t>& recorded = BufferAccess::recorded(slot.buffer);
    const uint64_t word = recorded.load(std::memory_order_relaxed);
    if (word >> Buffer::kRecordedEpochShift != circuit->epoch) return true;
    recorded.store(word | kNoSlot << kSlotShift, std::memory_order_release);
    return false;
  });
  return circuit;
}

bool CircuitQueue::is_crowded() const {
  return count_ >= CircuitBounds::kMaxQueued || kept_bytes_ > last_->kept_limit ||
         unbacked_bytes_ > last_->unbacked_limit;
}

uint64_t CircuitQueue::half_way() const {
  const RecordedCircuit* circuit = first_.get();
  for (int i = 1; i < (count_ + 1) / 2; ++i) circuit = circuit->next.get();
  return circuit->epoch;
}

std::unique_ptr<RecordedCircuit> CircuitQueue::take_spare() {
  if (spare_.empty()) return nullptr;
  std::unique_ptr<RecordedCircuit> circuit = std::move(spare_.back());
  spare_.pop_back();
  return circuit;
}

void CircuitQueue::give_spare(std::unique_ptr<RecordedCircuit> circuit) {
  if (spare_.size() < spare_.capacity()) spare_.push_back(std::move(circuit));
}

}  // namespace hologram::internal
