// SPDX-License-Identifier: MIT
// Records that go to a circuit made by hand instead of their device's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "hologram/recorder.h"
#include "src/circuit/plan.h"
#include "src/circuit/tape.h"

namespace hologram::internal {

inline bool is_present(const CallOperand& operand) {
  return operand.buffer != nullptr && operand.bytes > 0;
}
// An operand that is present as a tape has it.
inline circuit::CallSlot call_slot(const CallOperand& operand, uint32_t slot) {
  return {.present = true,
          .reads = operand.reads,
          .writes = operand.writes,
          .covers = operand.writes && operand.covers,
          .slot = slot,
          .offset = operand.offset,
          .bytes = operand.bytes};
}

// What a thread records between begin_capture() and end_capture(), or all threads do, see
// DeviceGraph. Buffers without memory become values of the circuit, which have none for good;
// others are part of it as they are.
class Capture {
 public:
  explicit Capture(Device& device) : device_(device) {}
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  struct Slot {
    BufferRef buffer;
    bool written = false;
    bool value = false;  // of the circuit
  };

  Device& device() const { return device_; }
  // A thread that records a circuit records nothing elsewhere meanwhile; a graph is of one device.
  bool takes_from(const Device& device) const { return !of_graph || &device == &device_; }
  bool of_graph = false;  // or of a DeviceFunction
  const circuit::Tape& tape() const { return tape_; }
  const std::vector<Slot>& slots() const { return slots_; }
  double cost() const { return cost_; }
  // Removes the marks of values, which are ordinary buffers from then on. None gets memory.
  void release_values();
  // Nothing more is recorded.
  void complete();
  // Whether one that is complete names the buffer, whose memory is then what it reads and writes.
  static bool any_has(const Buffer& buffer);
  // -1: not part of it.
  int64_t find(const Buffer* buffer) const;
  uint32_t slot_of(Buffer* buffer, bool writes);

  // As Recorder's.
  bool append_flat(uint16_t code, Dtype compute, const RecordOperand* operands, int arity,
                   int64_t n);
  bool append(circuit::Record& record, const RecordOperand* operands);
  bool append_call(uint16_t kind, std::span<const CallOperand> operands,
                   std::span<const uint64_t> attributes, std::span<const uint64_t> numbers,
                   double cost);

 private:
  bool takes(const RecordOperand* operands, int count) const;
  circuit::TapeOperand settle(const RecordOperand& operand, bool writes);

  Device& device_;
  std::mutex mutex_;  // of a graph, which threads record in turns
  circuit::Tape tape_;
  std::vector<Slot> slots_;
  std::unordered_map<const Buffer*, uint32_t> known_;
  double cost_ = 0;
};

// Where the values of a capture are while its plan runs.
struct PlanMemory {
  std::vector<char*> bound;     // by slot; null for those that are live and have no memory
  std::vector<BufferRef> kept;  // for values that are not live, many of which share memory
  int64_t bytes_wanted = 0;     // of those values
  int64_t bytes_kept = 0;
};
PlanMemory find_memory(const Capture& capture, const circuit::Plan& plan);

// A plan that runs as a circuit on other buffers each time; see DeviceFunction.
struct PlannedCircuit {
  explicit PlannedCircuit(Device& device) : capture(device) {}

  // A slot that has a buffer of its own in each run.
  struct Use {
    uint32_t slot;
    uint32_t given;  // which of call()'s
    bool written;
  };
  Capture capture;
  std::vector<uint8_t> states;
  std::shared_ptr<circuit::Plan> plan;
  PlanMemory memory;
  std::vector<Use> uses;
  std::vector<uint32_t> outside;  // slots whose buffer is the same in each run
};

// Throws where the circuit writes memory that another of its buffers has as well.
void check_apart(const Capture& capture, const char* what);

extern constinit std::atomic<int> g_captures;  // threads that capture, and graphs
Capture* thread_capture();
// Where this thread's records go instead of a device's recorder; null: nowhere else.
inline Capture* capturing() {
  return g_captures.load(std::memory_order_relaxed) == 0 ? nullptr : thread_capture();
}
// Where all threads' records on its device go; see DeviceGraph. Error(kState) where there is one.
void begin_graph(Capture& capture);
void end_graph(Capture& capture) noexcept;

// Redirects what the thread records until end(). Error(kState) where it is redirected already.
void begin_capture(Capture& capture);
void end_capture(Capture& capture) noexcept;

}  // namespace hologram::internal
