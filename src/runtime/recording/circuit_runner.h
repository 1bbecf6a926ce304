// SPDX-License-Identifier: MIT
// Runs the circuits of a device one after another: plans, memory for results, kernels, errors.
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
#include "src/circuit/passing_values.h"
#include "src/circuit/plan.h"
#include "src/circuit/plan_cache.h"
#include "src/circuit/tape.h"
#include "src/runtime/recording/recorded_circuit.h"
#include "src/runtime/threads/spin_lock.h"

namespace hologram::internal {

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

// Owns the run lock, which is held while a circuit runs, so that they run in order. It is taken
// before the record lock, never while that is held. The thread that has it is known: work that a
// circuit does may ask for values of the device, and must not wait for itself.
class CircuitRunner {
 public:
  // record_lock: the recorder's, which guards who gives a buffer its memory.
  CircuitRunner(Device& device, SpinLock& record_lock)
      : device_(device), record_lock_(record_lock) {}
  CircuitRunner(const CircuitRunner&) = delete;
  CircuitRunner& operator=(const CircuitRunner&) = delete;

  // The run lock, for fork, and for a thread that makes a Scope of it.
  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }
  // Takes over the run lock that its thread holds: the thread is known as the runner until the end,
  // when the lock is given back.
  class Scope {
   public:
    explicit Scope(CircuitRunner& runner);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CircuitRunner& runner_;
  };
  // Whether this thread is inside a Scope.
  bool runs_here() const;

  // What became of a circuit.
  enum class Outcome : uint8_t {
    kRan,
    kFailed,  // an op that ran cannot be repeated
    kStuck,   // memory was not enough to begin, nothing has changed, and it can be run again
  };
  // In a Scope: runs it in its float mode. `error` is set where the outcome is not kRan, and says
  // what it is about.
  Outcome run(RecordedCircuit& circuit, std::exception_ptr& error);
  // In a Scope: runs a plan that is no circuit's.
  void run_plan(PlanRun run, uint32_t float_mode);
  // In a Scope: runs an op on contiguous memory, whose result is a value that has no memory yet.
  // False where an operand cannot be recorded, or anything fails: it can be recorded then, and
  // fails again where its result is asked for.
  bool run_op(uint16_t code, Dtype compute, const RecordOperand* operands, int arity, int64_t n,
              uint32_t float_mode);
  // Gives a deferred buffer its memory, where it has none. mark: of the op that makes its contents.
  void attach(Buffer* buffer, uint64_t mark = 0);

  // All but host_kernels, host_bytes and plans. ops_recorded: those of run_op() alone.
  RecorderStats stats() const;
  void reset_stats();

 private:
  void prepare();
  void prepare_planned();
  std::shared_ptr<circuit::Plan> find_plan(const circuit::PlanOptions& options);
  std::shared_ptr<circuit::Plan> find_plan(const circuit::PlanCache::Key& key);
  void find_sharing(const circuit::Plan& plan);
  void run_prepared();
  void run_checked();
  // In trace.cc. Runs a plan launch by launch; false, with nothing run, where no trace is on.
  bool run_watched(const PlanRun& run);
  // The same of the circuit that is running.
  [[gnu::noinline]] bool run_watched();
  void count(circuit::Plan& plan);

  std::vector<uint64_t> marks_by_slot() const;
  int failing_record(std::string& context) const;
  std::exception_ptr explained(std::exception_ptr error) const;

  Device& device_;
  SpinLock& record_lock_;

  alignas(64) std::mutex mutex_;
  std::atomic<const void*> thread_{nullptr};  // whose it is
  RecordedCircuit* running_ = nullptr;
  std::shared_ptr<circuit::Plan> plan_;  // of running_, once prepared
  std::vector<char*> bound_;
  circuit::MemorySharing sharing_;  // of the passing values of the plan
  std::vector<size_t> passing_bytes_;
  bool plan_hit_ = false;
  // Of run_op(): its op, and that of the last plan.
  circuit::Tape op_;
  std::vector<uint64_t> op_words_;
  uint64_t op_states_ = 0;
  bool op_laws_ = true;
  std::shared_ptr<circuit::Plan> op_plan_;
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  uint32_t attaching_ = kNoSlot;  // the slot of running_ that is being given memory

  struct Counts {
    std::atomic<uint64_t> ops{0}, circuits{0}, kernels{0}, hits{0}, misses{0}, moved{0}, unfused{0};
  } counts_;
};

}  // namespace hologram::internal
