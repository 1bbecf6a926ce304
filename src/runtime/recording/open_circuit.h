// SPDX-License-Identifier: MIT
// The open circuit of a device, to which ops are appended until it is sealed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hologram/device.h"
#include "hologram/recorder.h"
#include "src/circuit/tape.h"
#include "src/runtime/recording/recorded_circuit.h"

namespace hologram::internal {

// Guarded by the recorder's record lock: every function is called with it held, and none lets it
// go. So a circuit that one function made is what the next one finds.
//
// There is always one. Its epoch is larger than that of every circuit that was sealed. Each buffer
// that it names has the epoch and its slot in Buffer::recorded_, and one reference of the
// recorder's, which passes to the last circuit that names it.
class OpenCircuit {
 public:
  explicit OpenCircuit(Device& device);

  RecordedCircuit* operator->() { return now_.get(); }
  const RecordedCircuit* operator->() const { return now_.get(); }
  RecordedCircuit& operator*() { return *now_; }
  bool empty() const { return now_->tape.empty(); }

  // Append an op: a Record whose loops are settled, one on n contiguous elements of each operand,
  // a call. operands[k] become record.operands[k]. False, and nothing changed, where an operand
  // cannot be recorded.
  bool append(circuit::Record& record, const RecordOperand* operands);
  bool append_flat(uint16_t code, Dtype compute, const RecordOperand* operands, int arity,
                   int64_t n);
  bool append_call(uint16_t kind, std::span<const CallOperand> operands,
                   std::span<const uint64_t> attributes, std::span<const uint64_t> numbers,
                   double cost);
  // The next `count` ops are one op on a list, and count as one towards the bound on ops. False
  // where the circuit has no room for them.
  bool expect_list(size_t count);
  // Become what Recorder::append_tape() and append_planned() are given; it has to be empty.
  void take_tape(const circuit::Tape& tape, std::vector<BufferRef> buffers,
                 std::span<const uint8_t> written, double cost);
  bool take_planned(const std::shared_ptr<PlannedCircuit>& planned, std::span<Buffer* const> given,
                    std::span<const uint64_t> numbers);

  // Whether a call is to begin another circuit.
  bool ends_before_call() const {
    return now_->call_cost > CircuitBounds::kHandOverCost ||
           (now_->attention & RecordedCircuit::kFull) != 0;
  }

  // What sealing needs that must not be made or asked for with the lock held.
  struct Sealing {
    Sealing() = default;
    Sealing(const Sealing&) = delete;
    Sealing& operator=(const Sealing&) = delete;
    ~Sealing() { drop(); }
    void prepare();  // without the record lock
    void drop();     // without the record lock: where nothing is sealed

    std::unique_ptr<RecordedCircuit> next;  // the open circuit from then on
    int threads = 1;
    int64_t sealed_ns = 0;
    const char* cause = nullptr;
    void* observed = nullptr;
  };
  // Ends the circuit, which has a record, and begins the next one.
  std::unique_ptr<RecordedCircuit> seal(Sealing& sealing, Why why);
  // The same before a call. The conversions at its end that only the call reads begin the next
  // one, so that the call can read what they convert.
  std::unique_ptr<RecordedCircuit> seal_before_call(Sealing& sealing,
                                                    std::span<const CallOperand> operands);

  // Before anything of this thread is recorded in it: a line, a mark (0: none).
  void remember(bool has_site, std::string site, uint64_t mark);

  uint64_t ops_recorded() const { return ops_recorded_; }
  void reset_ops_recorded() { ops_recorded_ = 0; }

 private:
  struct Conversion;

  void begin();
  void end_append(int weight);
  bool keeps_too_much();
  bool wants_too_much();
  uint32_t slot_of(Buffer* buffer, bool writes);
  uint32_t rename(Buffer* buffer);
  bool may_record(const RecordOperand* operands, int count);
  bool has_slots(size_t count);
  bool settle_operands(const RecordOperand* operands, int count, circuit::TapeOperand* settled,
                       uint64_t* bits);
  int find_conversions(std::span<const CallOperand> operands, std::span<Conversion> found) const;

  Device& device_;
  uint64_t next_epoch_ = 1;
  uint64_t ops_recorded_ = 0;
  std::unique_ptr<RecordedCircuit> now_;
};

// Releases the references that a circuit holds.
void drop_references(RecordedCircuit& circuit);

}  // namespace hologram::internal
