// SPDX-License-Identifier: MIT
// The recorder of a device: its open circuit, and how that is sealed, planned and run.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "hologram/device.h"
#include "hologram/recorder.h"
#include "src/circuit/plan.h"
#include "src/circuit/tape.h"
#include "src/runtime/buffer_access.h"
#include "src/runtime/spin_lock.h"

namespace hologram::internal {

// What Buffer::recorded_ holds below the epoch.
inline constexpr int kSlotShift = 4;
inline constexpr uint64_t kSlotMask = 0xffff;
inline constexpr uint64_t kFlagsMask = 0xf;
inline constexpr uint64_t kExported = 1;  // foreign code has an address in it
inline constexpr uint64_t kWritten = 2;   // an op that writes it was recorded

// When a circuit is run though nobody asked.
//
// Ops: more of them fuse no better, while a plan is made, hashed and compared in time that grows
// with their number. Kept bytes: memory that programs have given up and only the circuit holds is
// memory in flight that eager execution would not have; a little of it is the price of waiting.
// Unbacked bytes: results that may want memory all at once when the circuit runs.
struct CircuitBounds {
  static constexpr int kMaxOps = 1024;
  static constexpr int kLookEvery = 32;  // records between two counts of kept bytes
  static constexpr size_t kKeptFloor = size_t{64} << 20;
  static constexpr size_t kKeptShare = 64;     // of the memory limit: one part in so many
  static constexpr size_t kUnbackedShare = 4;  // likewise
  // Nanoseconds of calls with which a circuit is not kept open for another call: the next one, with
  // the work after it, is a circuit of its own. Depends on nothing but what was recorded, so that
  // equal programs are cut equally and find their plans.
  static constexpr double kHandOverCost = 5000;
};

// A circuit being recorded, or sealed and not yet run.
struct OpenCircuit {
  struct Slot {
    Buffer* buffer;  // one reference is ours
    bool fresh;      // deferred, and nothing can have written to it before this circuit
  };
  uint64_t epoch = 0;
  circuit::Tape tape;
  std::vector<Slot> slots;
  size_t backed_bytes = 0;    // in memory of the slots
  size_t unbacked_bytes = 0;  // of the slots that had none when they were recorded
  size_t kept_limit = 0;
  size_t unbacked_limit = 0;
  double call_cost = 0;  // of its calls, nanoseconds on one thread
  bool full = false;
};

class Recorder {
 public:
  // The device's recorder, made when first asked for.
  static Recorder& of(Device& device);
  // Null if the device has none yet.
  static Recorder* find(const Device& device) {
    return device.recorder_.load(std::memory_order_acquire);
  }
  // Where work on the device is to be recorded; null where it is not.
  static Recorder* recording(Device& device) {
    if (!is_deferring() || !device.runs_plans()) return nullptr;
    Recorder* recorder = find(device);
    return recorder != nullptr ? recorder : &of(device);
  }
  // Runs what every device has recorded; the first error is rethrown at the end.
  static void flush_all();
  ~Recorder();

  // Appends one op: a Record whose loops are settled. operands[k] become record.operands[k].
  // False where an operand cannot be recorded.
  bool append(circuit::Record& record, const RecordOperand* operands);
  // Likewise, n contiguous elements of each operand.
  bool append_flat(uint16_t code, Dtype compute, const RecordOperand* operands, int arity,
                   int64_t n);

  bool append_call(uint16_t kind, std::span<const CallOperand> operands,
                   std::span<const uint64_t> attributes, std::span<const uint64_t> numbers,
                   double cost);

  enum class Why {
    kAsked,    // errors go to the caller
    kPassing,  // errors of running are kept on the default stream; those of preparing are thrown
    kBounds,   // likewise, and only a circuit that is still full is run
    kMemory,   // likewise, but nothing is done where that would have to wait for a running circuit
  };
  // Whether a circuit was run.
  bool flush(Why why);
  // Whether this thread is inside a circuit that the device is running.
  bool runs_here() const;
  bool is_idle() const { return !pending_.load(std::memory_order_acquire); }

  // Gives a deferred buffer memory if it has none. Any thread.
  void attach(Buffer* buffer);
  void mark_exported(Buffer* buffer);

  RecorderStats stats();
  void reset_stats();

 private:
  friend struct RecorderRegistry;
  struct RunScope;
  struct Prepared;

  explicit Recorder(Device& device);

  bool settle_operands(const RecordOperand* operands, int count, circuit::Operand* settled,
                       uint64_t* bits);
  uint32_t slot_of(Buffer* buffer, bool writes);
  void after_append();
  [[gnu::noinline]] void make_room(std::unique_lock<SpinLock>& lock);
  void hand_over(std::unique_lock<SpinLock>& lock);
  void begin_circuit();
  bool keeps_too_much() const;

  bool seal();
  void prepare();
  void run_prepared(Why why, int64_t sealed_ns);
  // Likewise, held against the ops one by one.
  void run_checked(Why why, int64_t sealed_ns);
  // In trace.cc. Runs plan_ launch by launch; false, with nothing run, where nobody wants that.
  [[gnu::noinline]] bool run_watched(Why why, int64_t sealed_ns);
  void retire(std::unique_ptr<OpenCircuit> circuit);
  void drop(OpenCircuit& circuit);

  Device& device_;

  // Held for a record at a time.
  alignas(64) SpinLock record_lock_;
  std::unique_ptr<OpenCircuit> open_;
  std::vector<std::unique_ptr<OpenCircuit>> spare_;  // emptied, with their storage
  std::vector<circuit::CallSlot> call_slots_;        // of the call being appended
  uint64_t ops_recorded_ = 0;
  uint64_t next_epoch_ = 1;
  std::atomic<bool> pending_{false};  // whether anything is recorded that has not run

  // Held while circuits are sealed and run, so that they run in order. Taken before the other.
  alignas(64) std::mutex run_mutex_;
  std::atomic<const void*> runner_{nullptr};  // whose it is; see this_thread()
  std::unique_ptr<OpenCircuit> sealed_;       // one that memory was not enough for stays here
  std::shared_ptr<circuit::Plan> plan_;       // of sealed_, once prepared
  std::vector<uint64_t> states_;              // SlotState bytes, padded with zeros
  std::vector<char*> bound_;
  bool plan_hit_ = false;

  struct Counts {
    std::atomic<uint64_t> circuits{0}, kernels{0}, hits{0}, misses{0}, moved{0}, unfused{0};
  } counts_;
};

}  // namespace hologram::internal
