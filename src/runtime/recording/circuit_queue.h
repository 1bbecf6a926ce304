// SPDX-License-Identifier: MIT
// The circuits of a device that are sealed and have not run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "src/runtime/recording/recorded_circuit.h"

namespace hologram::internal {

// First in, first out: circuits run in the order in which they were sealed. Guarded by the
// recorder's record lock: every function is called with it held, and none lets it go. Who holds the
// run lock owns what the first circuit holds while it runs; others read its epoch, its `stalled`
// and its costs only.
class CircuitQueue {
 public:
  CircuitQueue() { spare_.reserve(CircuitBounds::kMaxQueued + 8); }

  bool empty() const { return first_ == nullptr; }
  RecordedCircuit* first() const { return first_.get(); }
  RecordedCircuit* last() const { return last_; }
  // Whether there is one that can run as things are.
  bool is_ready() const { return first_ != nullptr && !first_->stalled; }

  void push(std::unique_ptr<RecordedCircuit> circuit);
  // The first one leaves. It keeps the references that later circuits did not take over.
  std::unique_ptr<RecordedCircuit> pop();

  // Whether what waits to run has grown to its bounds. Not to be asked of an empty queue, nor is
  // the next one.
  bool is_crowded() const;
  // The epoch of the circuit in the middle.
  uint64_t half_way() const;

  // Circuits that are done and emptied, whose storage serves later ones.
  std::unique_ptr<RecordedCircuit> take_spare();
  void give_spare(std::unique_ptr<RecordedCircuit> circuit);

 private:
  std::unique_ptr<RecordedCircuit> first_;  // oldest
  RecordedCircuit* last_ = nullptr;
  int count_ = 0;
  size_t kept_bytes_ = 0;
  size_t unbacked_bytes_ = 0;
  std::vector<std::unique_ptr<RecordedCircuit>> spare_;
};

}  // namespace hologram::internal
