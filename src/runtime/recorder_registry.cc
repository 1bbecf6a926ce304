// SPDX-License-Identifier: MIT
// Recorders come and go with their devices: what concerns all of them, what fork does, and what is
// asked of one: counts, a worker's questions, exports, where the program recorded an op.
#include <pthread.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "hologram/error.h"
#include "hologram/memory.h"
#include "hologram/parallel.h"
#include "src/circuit/plan_cache.h"
#include "src/runtime/capture.h"
#include "src/runtime/circuit_check.h"
#include "src/runtime/memory_watch.h"
#include "src/runtime/recorder.h"
#include "src/runtime/trace_hooks.h"
#include "src/runtime/worker_scope.h"

namespace hologram {
namespace internal {

using Access = BufferAccess;

// All recorders, for fork and for what concerns every device.
struct RecorderRegistry {
  std::mutex mutex;
  std::vector<Recorder*> all;

  static RecorderRegistry& get() {
    static RecorderRegistry* instance = [] {
      // Handlers run last registered first: the pools and the workers must still be usable when
      // ours runs circuits, so theirs have to be registered before.
      memory_stats();
      parallel_stats();
      auto* registry = new RecorderRegistry;  // leaked: forks may come until the very end
      pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
      return registry;
    }();
    return *instance;
  }

  // The child finds every recorder between two circuits. Whatever could not be run, or was recorded
  // by other threads in the meantime, is recorded there too.
  static void before_fork() {
    RecorderRegistry& registry = get();
    registry.mutex.lock();
    for (Recorder* recorder : registry.all) {
      try {
        recorder->flush(Why::kPassing);
      } catch (...) {
      }
    }
    for (Recorder* recorder : registry.all) {
      if (!recorder->runs_here()) recorder->run_mutex_.lock();
    }
    for (Recorder* recorder : registry.all) recorder->record_lock_.lock();
    circuit::plan_cache().lock();
    lock_traces();
  }
  static void after_fork_in_parent() { after_fork(/*in_child=*/false); }
  static void after_fork_in_child() { after_fork(/*in_child=*/true); }
  static void after_fork(bool in_child) {
    RecorderRegistry& registry = get();
    unlock_traces();
    circuit::plan_cache().unlock();
    for (Recorder* recorder : registry.all) {
      if (in_child) {
        recorder->worker_.forget_thread();
        recorder->open_->attention |= OpenCircuit::kWake;
      }
      recorder->record_lock_.unlock();
    }
    for (Recorder* recorder : registry.all) {
      if (!recorder->runs_here()) recorder->run_mutex_.unlock();
    }
    if (!in_child) {
      beside_bell().ring();
      for (Recorder* recorder : registry.all) recorder->call_worker();
    }
    registry.mutex.unlock();
  }

  // Before what a running circuit may use is destroyed. Whatever is recorded then runs where it is
  // asked for.
  static void at_exit() {
    std::vector<Recorder*> all;
    {
      std::lock_guard lock(get().mutex);
      all = get().all;
    }
    for (Recorder* recorder : all) recorder->worker_.stop(/*join=*/false);
    const int64_t until = now_ns() + kExitPatience;
    for (Recorder* recorder : all) {
      while (!recorder->runs_here() && now_ns() < until) {
        if (recorder->run_mutex_.try_lock()) {
          recorder->run_mutex_.unlock();
          break;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    }
    beside_bell().ring();
  }
  // A thread that ends the process while it holds what a circuit waits for is not waited for.
  static constexpr int64_t kExitPatience = 5'000'000'000;
};

void Recorder::stop_workers_at_exit() {
  static const bool registered = std::atexit(RecorderRegistry::at_exit) == 0;
  (void)registered;
}

void Recorder::call_attention(uint8_t bit, bool set) {
  RecorderRegistry& registry = RecorderRegistry::get();
  std::lock_guard lock(registry.mutex);
  for (Recorder* recorder : registry.all) {
    std::lock_guard record_lock(recorder->record_lock_);
    uint8_t& attention = recorder->open_->attention;
    attention = static_cast<uint8_t>(set ? attention | bit : attention & ~bit);
  }
}

Recorder::Recorder(Device& device) : device_(device), open_(std::make_unique<OpenCircuit>()) {
  open_->epoch = next_epoch_++;
  open_->attention = OpenCircuit::kWake;
  if (remembers_sites() || is_marking()) open_->attention |= OpenCircuit::kSites;
  spare_.reserve(CircuitBounds::kMaxQueued + 8);
}

Recorder::~Recorder() {
  RecorderRegistry& registry = RecorderRegistry::get();
  {
    std::lock_guard lock(registry.mutex);
    std::erase(registry.all, this);
  }
  worker_.stop(/*join=*/true);
  while (first_ != nullptr) drop(*take_first());
  drop(*open_);
  for (Buffer* buffer : parted_) buffer->release();
  plan_ = nullptr;
  circuit::plan_cache().forget(&device_);
}

Recorder& Recorder::of(Device& device) {
  if (Recorder* recorder = find(device)) return *recorder;
  RecorderRegistry& registry = RecorderRegistry::get();
  std::lock_guard lock(registry.mutex);
  if (Recorder* recorder = find(device)) return *recorder;
  auto* made = new Recorder(device);
  registry.all.push_back(made);
  device.recorder_.store(made, std::memory_order_release);
  return *made;
}

void Recorder::flush_all() {
  std::vector<Recorder*> all;
  {
    RecorderRegistry& registry = RecorderRegistry::get();
    std::lock_guard lock(registry.mutex);
    all = registry.all;
  }
  std::exception_ptr error;
  for (Recorder* recorder : all) {
    try {
      recorder->flush(Why::kAsked);
    } catch (...) {
      if (error == nullptr) error = std::current_exception();
    }
  }
  if (error != nullptr) std::rethrow_exception(error);
}

// ---- what callers ask of a recorder ----

void Recorder::mark_exported(Buffer* buffer) {
  std::lock_guard lock(record_lock_);
  const uint64_t before = Access::recorded(buffer).fetch_or(kExported, std::memory_order_relaxed);
  uint32_t& exports = Access::exports(buffer);
  if ((before & kExported) == 0) {
    exports = 1;
  } else if (exports != kForever) {
    ++exports;
  }
}

void Recorder::unmark_exported(Buffer* buffer) noexcept {
  std::lock_guard lock(record_lock_);
  const uint64_t word = Access::recorded(buffer).load(std::memory_order_relaxed);
  uint32_t& exports = Access::exports(buffer);
  if ((word & (kExported | kPlaceholder)) != kExported || exports == kForever || --exports != 0) {
    return;
  }
  Access::recorded(buffer).fetch_and(~kExported, std::memory_order_relaxed);
}

void Recorder::count(circuit::Plan& plan) {
  const circuit::PlanStats& stats = plan.stats;
  counts_.circuits.fetch_add(1, std::memory_order_relaxed);
  counts_.kernels.fetch_add(static_cast<uint64_t>(stats.kernels), std::memory_order_relaxed);
  counts_.moved.fetch_add(static_cast<uint64_t>(stats.bytes_moved), std::memory_order_relaxed);
  counts_.unfused.fetch_add(static_cast<uint64_t>(stats.bytes_unfused), std::memory_order_relaxed);
  ++plan.runs;
}

RecorderStats Recorder::stats() {
  RecorderStats s;
  {
    std::lock_guard lock(record_lock_);
    s.ops_recorded = ops_recorded_;
    s.host_kernels = device_.host_kernels() - host_kernels_before_;
  }
  s.circuits = counts_.circuits.load(std::memory_order_relaxed);
  s.kernels = counts_.kernels.load(std::memory_order_relaxed);
  s.plan_hits = counts_.hits.load(std::memory_order_relaxed);
  s.plan_misses = counts_.misses.load(std::memory_order_relaxed);
  s.bytes_moved = counts_.moved.load(std::memory_order_relaxed);
  s.bytes_unfused = counts_.unfused.load(std::memory_order_relaxed);
  s.plans = circuit::plan_cache().stats().plans;
  return s;
}

void Recorder::reset_stats() {
  {
    std::lock_guard lock(record_lock_);
    ops_recorded_ = 0;
    host_kernels_before_ = device_.host_kernels();
  }
  for (auto* count : {&counts_.circuits, &counts_.kernels, &counts_.hits, &counts_.misses,
                      &counts_.moved, &counts_.unfused}) {
    count->store(0, std::memory_order_relaxed);
  }
}

bool release_recorded(Device& device) noexcept {
  Recorder* recorder = Recorder::find(device);
  try {
    return recorder != nullptr && recorder->flush(Why::kMemory);
  } catch (...) {
    return false;  // it stays recorded
  }
}

// ---- what a worker asks ----

bool Recorder::work() {
  if (!run_mutex_.try_lock()) return false;  // the thread that runs calls again
  const bool ran = run_beside();
  if (!ran || is_waited_for()) ring();
  return ran;
}

Recorder::Look Recorder::look_at_age() {
  std::unique_lock lock(record_lock_);
  const bool quiet = ops_recorded_ == seen_ops_;
  seen_ops_ = ops_recorded_;
  // Whoever traces wants to see the program's circuits, not the pauses in which they are read.
  if (quiet && !open_->tape.empty() && !is_traced()) seal(lock, Why::kAge);
  if (first_ != nullptr && !first_->stalled) return Look::kDue;
  return quiet ? Look::kQuiet : Look::kBusy;
}

bool Recorder::stop_looking() {
  std::lock_guard lock(record_lock_);
  open_->attention |= OpenCircuit::kWake;
  return ops_recorded_ == seen_ops_;
}

// ---- where ops were recorded ----

namespace {

constinit std::atomic<std::string (*)()> g_site{nullptr};

std::atomic<bool>& wish() {
  static std::atomic<bool> remembers{[] {
    const char* text = std::getenv("HOLOGRAM_RECORD_LINES");
    return text != nullptr && std::string_view(text) == "1";
  }()};
  return remembers;
}

}  // namespace

bool remembers_sites() { return wish().load(std::memory_order_relaxed); }
void set_remembers_sites(bool remembers) {
  wish().store(remembers);
  tell_what_is_remembered();
}

void tell_what_is_remembered() {
  Recorder::call_attention(OpenCircuit::kSites, remembers_sites() || is_marking());
}

// With the record lock held, which is let go in between: of the op that is about to be appended, in
// a circuit of that mode.
void Recorder::remember_site(std::unique_lock<SpinLock>& lock, uint32_t mode) {
  std::string (*const site)() = g_site.load(std::memory_order_acquire);
  const bool has_site = site != nullptr && remembers_sites();
  lock.unlock();
  std::string text = has_site ? site() : std::string();
  const uint64_t mark = ask_for_mark();
  lock.lock();
  take_mode(lock, mode);
  const auto record = static_cast<size_t>(open_->tape.records());
  if (has_site) {
    open_->sites.resize(record);
    open_->sites.push_back(std::move(text));
  }
  if (mark != 0) {
    open_->marks.resize(record);
    open_->marks.push_back(mark);
  }
}

// With the run lock held: for each slot of running_ the mark of the first op that writes it, else
// of the first that reads it. Empty where there are no marks, or no one watches memory.
std::vector<uint64_t> Recorder::marks_by_slot() const {
  const std::vector<uint64_t>& marks = running_->marks;
  if (marks.empty() || !is_memory_watched()) return {};
  std::vector<uint64_t> found(running_->slots.size()), readers(found.size());
  circuit::Tape::decode(running_->tape.words(), [&](const circuit::Record& record, int index) {
    const auto at = static_cast<size_t>(index);
    const uint64_t mark = at < marks.size() ? marks[at] : 0;
    const auto touches = [&](uint32_t slot, bool writes) {
      std::vector<uint64_t>& marks_of = writes ? found : readers;
      if (marks_of[slot] == 0) marks_of[slot] = mark;
    };
    if (record.code != circuit::kCodeCall) {
      for (int k = 0; k <= record.arity; ++k) {
        const circuit::TapeOperand& operand = record.operands[k];
        if (operand.kind != circuit::OperandKind::kImmediate) touches(operand.slot, k == 0);
      }
      return;
    }
    for (size_t k = 0; k < record.call.operands(); ++k) {
      const circuit::CallSlot operand = record.call.operand(k);
      if (operand.present) touches(operand.slot, operand.writes);
    }
  });
  for (size_t s = 0; s < found.size(); ++s) {
    if (found[s] == 0) found[s] = readers[s];
  }
  return found;
}

// With the run lock held: which record of running_ the error is about, -1 if that is not known, and
// what is to be said of it.
int Recorder::failing_record(std::string& context) const {
  int found = -1;
  if (plan_ == nullptr) {
    if (attaching_ == kNoSlot) return -1;
    context = "for a result that was deferred";
    circuit::Tape::decode(running_->tape.words(), [&](const circuit::Record& record, int index) {
      if (found >= 0) return;
      bool writes = record.code != circuit::kCodeCall && record.operands[0].slot == attaching_;
      if (record.code == circuit::kCodeCall) {
        for (size_t k = 0; k < record.call.operands(); ++k) {
          const circuit::CallSlot operand = record.call.operand(k);
          writes |= operand.present && operand.writes && operand.slot == attaching_;
        }
      }
      if (writes) found = index;
    });
    return found;
  }
  const auto index = static_cast<size_t>(plan_->running);
  if (index >= plan_->kernels.size()) return -1;  // all of them ran
  const circuit::Kernel& kernel = plan_->kernels[index];
  context = "in " + circuit::kernel_name(kernel) + ", which was deferred";
  if (kernel.call != nullptr) return kernel.call->record;
  return kernel.instrs.empty() ? -1 : kernel.instrs[0].record;
}

// With the run lock held: the error of running_, with what it is about and where that was recorded.
std::exception_ptr Recorder::explained(std::exception_ptr error) const {
  std::string context;
  int record = failing_record(context);
  if (running_->planned != nullptr) record = 0;  // the line of the call
  if (context.empty()) return error;
  const std::vector<std::string>& sites = running_->sites;
  const bool known = record >= 0 && static_cast<size_t>(record) < sites.size() &&
                     !sites[static_cast<size_t>(record)].empty();
  if (known) context += ", recorded at " + sites[static_cast<size_t>(record)];
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return std::make_exception_ptr(Error(e.kind(), e.what() + (" (" + context + ")")));
  } catch (const std::exception& e) {
    // Others' exceptions keep their type where there is no line to tell.
    if (known) {
      return std::make_exception_ptr(
          Error(plan_ == nullptr ? ErrorKind::kOutOfMemory : ErrorKind::kInternal,
                e.what() + (" (" + context + ")")));
    }
  } catch (...) {
  }
  return error;
}

void Recorder::run_checked() {
  if (!device_.is_host_memory()) return run_prepared();
  const OpenCircuit& circuit = *running_;
  const PlannedCircuit* planned = circuit.planned.get();
  std::vector<size_t> sizes;
  if (planned != nullptr) {
    for (const Capture::Slot& slot : planned->capture.slots()) {
      sizes.push_back(slot.buffer->nbytes());
    }
  } else {
    for (const OpenCircuit::Slot& slot : circuit.slots) sizes.push_back(slot.buffer->nbytes());
  }
  const CircuitCheck check(
      device_, planned != nullptr ? planned->capture.tape().words() : circuit.tape.words(),
      planned != nullptr ? std::span<const uint8_t>(planned->states) : state_bytes(circuit),
      std::move(sizes), bound_, circuit.tape.immediates().data());
  run_prepared();
  check.compare(*plan_, bound_);
}

void materialize_slowly(Buffer& buffer) {
  if ((BufferAccess::recorded(&buffer).load(std::memory_order_relaxed) & kPlaceholder) != 0) {
    fail(ErrorKind::kState, "materialize: this tensor of ", buffer.nbytes(),
         is_capturing_graph()
             ? " bytes is computed by the graph that is being captured, so it has no value yet; "
               "look at it after replay()"
             : " bytes stands for a value of a Circuit, which is known only when the circuit runs; "
               "make it an output and look at what run() returns");
  }
  Recorder& recorder = Recorder::of(buffer.device());
  if (buffer.recorded_epoch() > buffer.device().done_epoch()) {
    if (recorder.runs_here()) {
      fail(ErrorKind::kState,
           "materialize: called by work that the device is running, on a buffer of ",
           buffer.nbytes(), " bytes that waits for this work or for later work; ",
           "materialize what the work needs before it is submitted");
    }
    recorder.flush_buffer(buffer);
  }
  recorder.attach(&buffer);
}

}  // namespace internal

void flush(Device& device) {
  if (internal::Recorder* recorder = internal::Recorder::find(device)) {
    recorder->flush(internal::Why::kAsked);
  }
}

void mark_exported(Buffer& buffer) {
  // Who has an address that the host cannot use looks at nothing behind the device's back.
  if (!buffer.device().is_host_memory()) return;
  internal::Recorder::of(buffer.device()).mark_exported(&buffer);
}

void unmark_exported(Buffer& buffer) noexcept {
  if (!buffer.device().is_host_memory()) return;
  if (internal::Recorder* recorder = internal::Recorder::find(buffer.device())) {
    recorder->unmark_exported(&buffer);
  }
}

bool is_running_circuit() {
  if (in_parallel_region()) return true;
  for (int i = 0; i < device_count(); ++i) {
    const internal::Recorder* recorder = internal::Recorder::find(device(i));
    if (recorder != nullptr && recorder->runs_here()) return true;
  }
  return false;
}

RecorderStats recorder_stats(Device& device) { return internal::Recorder::of(device).stats(); }
void reset_recorder_stats(Device& device) { internal::Recorder::of(device).reset_stats(); }

void Device::run_plan(circuit::Plan&, const circuit::Bindings&, int) {
  fail(ErrorKind::kNotSupported, "run_plan: device ", name(), ":", index_,
       " runs no plans; record no ops on its buffers (see Device::runs_plans)");
}

bool Device::settle() const {
  internal::Recorder* recorder = internal::Recorder::find(*this);
  if (recorder == nullptr || recorder->is_idle()) return true;
  try {
    recorder->flush(internal::Why::kPassing);
  } catch (...) {
    return false;
  }
  return true;
}

void set_record_site(std::string (*site)()) { internal::g_site.store(site); }

}  // namespace hologram
