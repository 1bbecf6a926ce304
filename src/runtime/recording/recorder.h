// SPDX-License-Identifier: MIT
// The recorder of a device: what is recorded, what waits, and who runs it when.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "hologram/device.h"
#include "hologram/recorder.h"
#include "src/circuit/tape.h"
#include "src/runtime/recording/circuit_queue.h"
#include "src/runtime/recording/circuit_runner.h"
#include "src/runtime/recording/circuit_worker.h"
#include "src/runtime/recording/lone_ops.h"
#include "src/runtime/recording/open_circuit.h"
#include "src/runtime/threads/spin_lock.h"

namespace hologram::internal {

// Ops go to the open circuit; what is sealed goes to the queue; the runner runs the first of the
// queue, on the thread that asks for values or on the worker.
//
// Two locks. The record lock guards the open circuit and the queue; it is held for a record at a
// time, and by no one who runs a kernel or calls the program's code. Functions that take it as an
// argument are called with it held, and let it go in between: what they found before may then have
// changed. The run lock (CircuitRunner) is taken before it.
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
  // Runs what is recorded, and then a plan that is no circuit's, in a float mode.
  void run_beside_circuits(PlanRun run, uint32_t mode);
  // Gives a deferred buffer its memory, where it has none.
  void attach(Buffer* buffer) { runner_.attach(buffer); }
  // Sets or clears a RecordedCircuit::Attention of every recorder.
  static void call_attention(uint8_t bit, bool set);
  // What workers need to end in good order.
  static void stop_workers_at_exit();
  ~Recorder();

  // Append an op, see OpenCircuit. False where an operand cannot be recorded.
  bool append(circuit::Record& record, const RecordOperand* operands);
  bool append_flat(uint16_t code, Dtype compute, const RecordOperand* operands, int arity,
                   int64_t n);
  bool append_call(uint16_t kind, std::span<const CallOperand> operands,
                   std::span<const uint64_t> attributes, std::span<const uint64_t> numbers,
                   double cost);

  // The next `count` ops of this thread are one op on a list, see hologram::expect_list().
  void expect_list(size_t count);

  // Appends what a Capture holds as a circuit of its own, its slots bound to `buffers`, which are
  // on the device and differ from each other. What is recorded so far runs first.
  // References that are only here leave dead values behind.
  void append_tape(const circuit::Tape& tape, std::vector<BufferRef> buffers,
                   std::span<const uint8_t> written, double cost);

  // Appends a run of a planned circuit as a circuit of its own; see DeviceFunction::call(). What is
  // recorded so far runs first. False, with nothing recorded, where a buffer may not be recorded
  // on, or shares memory with another.
  bool append_planned(const std::shared_ptr<PlannedCircuit>& planned,
                      std::span<Buffer* const> given, std::span<const uint64_t> numbers);

  // Runs everything recorded; whether a circuit was run. Throws what `why` says.
  bool flush(Why why);
  // Runs what was recorded up to the circuit of that epoch; whether a circuit was run.
  bool flush_until(uint64_t epoch, Why why);
  // Runs what was recorded up to the last circuit that names the buffer.
  void flush_buffer(const Buffer& buffer);
  // Whether this thread is inside a circuit that the device is running.
  bool runs_here() const { return runner_.runs_here(); }
  // The number of the circuit to which ops are appended now.
  uint64_t open_epoch();
  bool is_idle() const { return !pending_.load(std::memory_order_acquire); }
  // The program knows that this circuit is done; see Device::observed_epoch().
  void observe(uint64_t epoch);

  // The open circuit is complete: for the worker where there is one, else it runs here. Throws as
  // flush(Why::kBounds).
  void hand_over();

  // Foreign code gets, or gives back, the address of a buffer: meanwhile nothing is recorded on it.
  void mark_exported(Buffer* buffer);
  void unmark_exported(Buffer* buffer) noexcept;

  RecorderStats stats();
  void reset_stats();

  // What the worker does: runs the first circuit that waits, if no other thread is at it; seals the
  // open one if nothing was recorded since it last looked; says that it looks no more.
  enum class Look { kQuiet, kBusy, kDue };
  bool work();
  Look look_at_age();
  bool stop_looking();

 private:
  friend struct RecorderRegistry;
  using Lock = std::unique_lock<SpinLock>;

  explicit Recorder(Device& device);

  // Before an op is appended.
  uint32_t make_ready(Lock& lock);
  [[gnu::noinline]] void make_room(Lock& lock, uint32_t mode);
  void take_mode(Lock& lock, uint32_t mode);
  void remember_site(Lock& lock, uint32_t mode);
  bool noted(bool appended, int64_t elements = 0);
  // Runs an op that makes a new value, of this thread's float mode; false, with nothing changed,
  // where it is to be recorded.
  [[gnu::noinline]] bool run_at_call(uint16_t code, Dtype compute, const RecordOperand* operands,
                                     int arity, int64_t n, uint32_t mode);

  // The open circuit is complete.
  void prepare_sealing(Lock& lock, OpenCircuit::Sealing& sealing);
  void give_up_sealing(Lock& lock, OpenCircuit::Sealing& sealing);
  bool seal(Lock& lock, Why why);
  [[gnu::noinline]] void end_circuit(Lock& lock, Why why);
  [[gnu::noinline]] void end_before_call(Lock& lock, std::span<const CallOperand> operands);
  void run_open(Lock& lock, Why why);
  void pass_on(Lock& lock, Why why);
  void leave_to_worker(Lock& lock);
  void run_sealed(Lock& lock, Why why);
  void call_worker();

  // Running, and waiting for who runs.
  bool run_until(uint64_t epoch, Why why);
  bool may_run(uint64_t epoch);
  bool run_first(RecordedCircuit& circuit, std::exception_ptr& error, bool keeps);
  bool keeps_failures(Why why) const;
  bool run_beside();
  void forget_what_died(RecordedCircuit& circuit);
  std::unique_ptr<RecordedCircuit> finish_first(const RecordedCircuit& circuit);
  void finish_on_worker();
  void look_whether_idle();
  void retire(std::unique_ptr<RecordedCircuit> circuit);
  void release_parted();
  void ring();
  bool is_waited_for();
  void wait_for(uint64_t epoch);

  Device& device_;

  alignas(64) SpinLock record_lock_;
  OpenCircuit open_;
  CircuitQueue queue_;
  LoneOps lone_;
  std::vector<Buffer*> parted_;  // of foreign memory, for threads other than the worker to release
  uint64_t seen_ops_ = 0;        // when the worker last looked
  uint64_t host_kernels_before_ = 0;  // of the device, when the counts began
  uint64_t host_bytes_before_ = 0;
  std::atomic<bool> pending_{false};  // whether anything is recorded that has not run
  std::atomic<bool> has_parted_{false};
  std::atomic<uint64_t> waited_for_{UINT64_MAX};  // the first circuit that a sleeping thread needs

  CircuitRunner runner_;
  CircuitWorker worker_{*this};
};

// Tells the recorders whether a record has anything to remember: its line, a mark.
void tell_what_is_remembered();
// Whether records remember where they were recorded (HOLOGRAM_RECORD_LINES=1), until set otherwise.
bool remembers_sites();
// The line of the op that this thread is about to record; false where none is to be remembered.
bool find_site(std::string& text);
void set_remembers_sites(bool remembers);

}  // namespace hologram::internal
