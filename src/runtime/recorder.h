// SPDX-License-Identifier: MIT
// The recorder of a device: its open circuit, those sealed and waiting, and how they are planned
// and run.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hologram/device.h"
#include "hologram/recorder.h"
#include "src/circuit/plan.h"
#include "src/circuit/tape.h"
#include "src/runtime/buffer_access.h"
#include "src/runtime/circuit_worker.h"
#include "src/runtime/float_mode.h"
#include "src/runtime/spin_lock.h"

namespace hologram::internal {

// What Buffer::recorded_ holds below the epoch.
inline constexpr int kSlotShift = 4;
inline constexpr uint64_t kSlotMask = 0xffff;
inline constexpr uint64_t kFlagsMask = 0xf;
inline constexpr uint64_t kExported = 1;  // foreign code has an address in it, see exports_
inline constexpr uint32_t kForever = std::numeric_limits<uint32_t>::max();  // of exports
inline constexpr uint64_t kWritten = 2;  // an op that writes it was recorded
// 4: Buffer::kWrittenByRecorded.
inline constexpr uint64_t kPlaceholder = 8;  // stands for a value of a Circuit, never has memory

// When a circuit is run though no thread asked for it.
//
// Ops: more of them fuse no better, while a plan is made, hashed and compared in time that grows
// with their number. Kept bytes: memory that programs have given up and only the circuit holds is
// memory in flight that eager execution would not have; a little of it is the price of waiting.
// Unbacked bytes: results that may want memory all at once when the circuit runs.
// The same bounds on bytes hold once more for all circuits that are sealed and wait.
struct CircuitBounds {
  static constexpr int kMaxOps = 1024;
  static constexpr int kLookEvery = 32;  // records between two counts of kept bytes
  static constexpr size_t kKeptFloor = size_t{64} << 20;
  static constexpr size_t kKeptShare = 64;     // divides the memory limit
  static constexpr size_t kUnbackedShare = 4;  // divides the memory limit
  // Nanoseconds of calls with which a circuit is not kept open for another call: the next one, with
  // the work after it, is a circuit of its own. Depends on nothing but what was recorded, so that
  // equal programs are cut equally and find their plans.
  static constexpr double kHandOverCost = 5000;
  static constexpr int kMaxQueued = 32;  // circuits
};

// Why a circuit was sealed and run.
enum class Why : uint8_t {
  kAsked,    // errors go to the caller
  kPassing,  // errors of running are kept on the default stream; those of preparing are thrown
  kBounds,   // errors as with kPassing: the circuit had grown to its bounds
  kMemory,   // as kPassing, but gives up where it would wait for a thread that waits for this one
  kCall,     // its calls are worth the worker's while
  kMode,     // what comes next is called by a thread that rounds in another way
  kAge,      // no thread recorded or asked for a while
};

// A circuit being recorded, or sealed and not yet run.
struct PlannedCircuit;
struct OpenCircuit {
  struct Slot {
    Buffer* buffer;  // one reference is ours, or that of a later circuit which names it too
    bool fresh;      // deferred, and nothing can have written to it before this circuit
  };
  // What the thread that records next has to see to first.
  enum Attention : uint8_t {
    kFull = 1,    // the bounds are reached
    kParted = 2,  // the worker left buffers that it must not release
    kWake = 4,    // the worker has stopped looking at how old circuits are
    kSites = 8,   // lines or marks are remembered, see set_record_site and set_marking
  };
  uint64_t epoch = 0;
  uint32_t float_mode = 0;  // of the threads that called its ops, each when it did
  circuit::Tape tape;
  std::vector<Slot> slots;
  size_t backed_bytes = 0;    // in memory of the slots, or promised it by earlier circuits
  size_t unbacked_bytes = 0;  // of the other slots
  size_t kept_limit = 0;
  size_t unbacked_limit = 0;
  double call_cost = 0;  // of its calls, nanoseconds on one thread
  uint8_t attention = 0;
  std::vector<std::string> sites;  // of the records, where lines are remembered
  std::vector<uint64_t> marks;     // of the records, where those are
  // Then the tape is one record, whose numbers are those of the plan, and the slots are the
  // buffers that a run has of its own. Such a circuit is sealed before the record lock is let go:
  // no thread ever finds it open.
  std::shared_ptr<PlannedCircuit> planned;

  // From sealing on.
  std::vector<uint64_t> states;  // SlotState bytes, padded with zeros
  size_t kept_bytes = 0;
  int threads = 1;  // num_threads() of the thread that sealed it
  Why why = Why::kAsked;
  const char* cause = nullptr;  // for traces
  int64_t sealed_ns = 0;        // 0: no trace was on
  void* observed = nullptr;     // LaunchObserver::share
  // The worker could not run it: there was no memory, or it did run and there is an error.
  bool stalled = false;
  std::exception_ptr error;
  std::unique_ptr<OpenCircuit> next;
};

// What is beyond the first `records` entries goes to the next circuit.
template <class T>
void carry_over(std::vector<T>& from, std::vector<T>& to, size_t records) {
  if (from.size() <= records) return;
  const auto rest = from.begin() + static_cast<ptrdiff_t>(records);
  to.assign(std::move_iterator(rest), std::move_iterator(from.end()));
  from.erase(rest, from.end());
}

// By slot.
inline std::span<const uint8_t> state_bytes(const OpenCircuit& circuit) {
  return {reinterpret_cast<const uint8_t*>(circuit.states.data()), circuit.slots.size()};
}

// A run of a plan, and what traces tell of it.
struct PlanRun {
  const std::shared_ptr<circuit::Plan>& plan;
  circuit::Bindings bindings;
  const circuit::Tape& tape;  // what the plan was made of
  std::span<const uint8_t> states;
  const std::vector<Buffer*>& buffers;  // by slot
  const std::vector<uint64_t>& numbers;
  bool plan_hit = true;
  const char* cause = nullptr;
  int64_t sealed_ns = 0;
  void* observed = nullptr;  // LaunchObserver::share
  uint64_t circuit = 0;      // its epoch; 0: of a graph
  std::span<const uint64_t> marks = {};
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
  // Runs what is recorded, and then a plan that is no circuit's, in a float mode.
  void run_beside_circuits(PlanRun run, uint32_t mode);
  // Gives a deferred buffer its memory, where it has none. mark: of the op that makes its contents.
  void attach(Buffer* buffer, uint64_t mark = 0);
  // Sets or clears an OpenCircuit::Attention of every recorder.
  static void call_attention(uint8_t bit, bool set);
  // What workers need to end in good order.
  static void stop_workers_at_exit();
  ~Recorder();

  // Appends one op: a Record whose loops are settled. operands[k] become record.operands[k].
  // False where an operand cannot be recorded.
  bool append(circuit::Record& record, const RecordOperand* operands);
  // Appends an op on n contiguous elements of each operand.
  bool append_flat(uint16_t code, Dtype compute, const RecordOperand* operands, int arity,
                   int64_t n);

  // Appends a call.
  bool append_call(uint16_t kind, std::span<const CallOperand> operands,
                   std::span<const uint64_t> attributes, std::span<const uint64_t> numbers,
                   double cost);

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
  bool runs_here() const;
  bool is_idle() const { return !pending_.load(std::memory_order_acquire); }

  // The open circuit is complete: for the worker where there is one, else it runs here. Throws as
  // flush(Why::kBounds).
  void hand_over();

  void mark_exported(Buffer* buffer);
  void unmark_exported(Buffer* buffer) noexcept;

  RecorderStats stats();
  void reset_stats();

 private:
  friend struct RecorderRegistry;
  struct RunScope;

  explicit Recorder(Device& device);

  bool settle_operands(const RecordOperand* operands, int count, circuit::TapeOperand* settled,
                       uint64_t* bits);
  bool may_record(const RecordOperand* operands, int count);
  bool has_slots(size_t count);
  uint32_t slot_of(Buffer* buffer, bool writes);
  uint32_t rename(Buffer* buffer);
  void after_append();
  uint32_t make_ready(std::unique_lock<SpinLock>& lock);
  [[gnu::noinline]] void make_room(std::unique_lock<SpinLock>& lock, uint32_t mode);
  void take_mode(std::unique_lock<SpinLock>& lock, uint32_t mode);
  void remember_site(std::unique_lock<SpinLock>& lock, uint32_t mode);
  [[gnu::noinline]] void begin_circuit();
  [[gnu::noinline]] bool keeps_too_much() const;

  // What a circuit gets when it is sealed and the record lock must not be held for.
  struct Sealing {
    Sealing() = default;
    Sealing(const Sealing&) = delete;
    Sealing& operator=(const Sealing&) = delete;
    ~Sealing() { drop(); }
    void drop();  // without the record lock: where nothing is sealed

    std::unique_ptr<OpenCircuit> next;  // the open circuit from then on
    int threads = 1;
    int64_t sealed_ns = 0;
    const char* cause = nullptr;
    void* observed = nullptr;
  };
  void begin_sealing(std::unique_lock<SpinLock>& lock, Sealing& sealing);
  void end_sealing(Sealing& sealing, Why why);
  bool seal(std::unique_lock<SpinLock>& lock, Why why);
  bool is_crowded() const;
  uint64_t half_way() const;
  void run_open(std::unique_lock<SpinLock>& lock, Why why);
  void pass_on(std::unique_lock<SpinLock>& lock, Why why);
  void leave_to_worker(std::unique_lock<SpinLock>& lock);
  void run_sealed(std::unique_lock<SpinLock>& lock, Why why);
  [[gnu::noinline]] void end_circuit(std::unique_lock<SpinLock>& lock, Why why);
  [[gnu::noinline]] void end_before_call(std::unique_lock<SpinLock>& lock,
                                         std::span<const CallOperand> operands);
  struct Conversion;
  int find_conversions(std::span<const CallOperand> operands, std::span<Conversion> found);
  bool run_until(uint64_t epoch, Why why);
  bool may_run(uint64_t epoch);
  void ring();
  bool is_waited_for();
  void wait_for(uint64_t epoch);
  std::unique_ptr<OpenCircuit> take_first();
  std::unique_ptr<OpenCircuit> finish_first();
  void finish_on_worker();
  void look_whether_idle();
  void retire(std::unique_ptr<OpenCircuit> circuit);
  void drop(OpenCircuit& circuit);
  void release_parted();
  void call_worker();

  void forget_what_died(OpenCircuit& circuit);
  bool run_first(std::exception_ptr& error, bool keeps);
  std::vector<uint64_t> marks_by_slot() const;
  int failing_record(std::string& context) const;
  std::exception_ptr explained(std::exception_ptr error) const;
  void prepare();
  void prepare_planned();
  void run_prepared();
  // Runs the circuit and compares every result with those of its ops run one by one.
  void run_checked();
  // In trace.cc. Runs a plan launch by launch; false, with nothing run, where no trace is on.
  bool run_watched(const PlanRun& run);
  // The same of the circuit that is running.
  [[gnu::noinline]] bool run_watched();

  // What the worker does: runs the first circuit that waits, if no other thread is at it; seals the
  // open one if nothing was recorded since it last looked; says that it looks no more.
  friend class CircuitWorker;
  enum class Look { kQuiet, kBusy, kDue };
  bool work();
  // A run of a plan.
  void count(circuit::Plan& plan);
  bool run_beside();
  Look look_at_age();
  bool stop_looking();

  Device& device_;

  // Held for a record at a time.
  alignas(64) SpinLock record_lock_;
  std::unique_ptr<OpenCircuit> open_;
  std::unique_ptr<OpenCircuit> first_;  // of those sealed, oldest first
  OpenCircuit* last_ = nullptr;
  int queued_ = 0;
  size_t queued_kept_ = 0;
  size_t queued_unbacked_ = 0;
  std::vector<Buffer*> parted_;  // of foreign memory, for threads other than the worker to release
  uint64_t seen_ops_ = 0;        // when the worker last looked
  std::vector<std::unique_ptr<OpenCircuit>> spare_;  // emptied, with their storage
  uint64_t ops_recorded_ = 0;
  uint64_t host_kernels_before_ = 0;  // of the device, when the counts began
  uint64_t next_epoch_ = 1;
  std::atomic<bool> pending_{false};  // whether anything is recorded that has not run
  std::atomic<bool> has_parted_{false};
  std::atomic<uint64_t> waited_for_{UINT64_MAX};  // the first circuit that a sleeping thread needs

  // Held while a circuit runs, so that they run in order. Taken before the other.
  alignas(64) std::mutex run_mutex_;
  std::atomic<const void*> runner_{nullptr};  // whose it is; see this_thread()
  OpenCircuit* running_ = nullptr;            // the first of those sealed
  std::shared_ptr<circuit::Plan> plan_;       // of running_, once prepared
  std::vector<char*> bound_;
  bool plan_hit_ = false;
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  uint32_t attaching_ = kNoSlot;  // the slot of running_ that is being given memory
  CircuitWorker worker_{*this};

  struct Counts {
    std::atomic<uint64_t> circuits{0}, kernels{0}, hits{0}, misses{0}, moved{0}, unfused{0};
  } counts_;
};

// Tells the recorders whether a record has anything to remember: its line, a mark.
void tell_what_is_remembered();
// Whether records remember where they were recorded (HOLOGRAM_RECORD_LINES=1), until set otherwise.
bool remembers_sites();
void set_remembers_sites(bool remembers);

}  // namespace hologram::internal
