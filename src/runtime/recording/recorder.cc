// SPDX-License-Identifier: MIT
// Seals circuits and sees to it that they run in order: on the thread that asks, or the worker.
//
// Circuits are sealed by the threads that record and ask, where the recorded ops decide, so that a
// loop finds its plans again. Only the age of a circuit seals it at a moment of its own.
#include "src/runtime/recording/recorder.h"

#include <time.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/runtime/memory/idle_trim.h"
#include "src/runtime/recording/circuit_check.h"
#include "src/runtime/recording/trace_hooks.h"
#include "src/runtime/threads/float_mode.h"
#include "src/runtime/threads/worker_scope.h"

namespace hologram::internal {

namespace {

// How long a waiting thread spins before it sleeps.
constexpr int64_t kCircuitSpin = 200'000;
// What such a thread leaves to a worker that is between two circuits.
constexpr int64_t kHandOverSpin = 20'000;

}  // namespace

// ---- appending ----

// From now on the open circuit takes an op of this thread, whose float mode is returned. Before
// the lock the read would cost more: taking the lock waits for it.
[[gnu::always_inline]] inline uint32_t Recorder::make_ready(Lock& lock) {
  const uint32_t mode = float_mode();
  if (open_->attention != 0 || open_->float_mode != mode) [[unlikely]]
    make_room(lock, mode);
  return mode;
}

// What has to be done before an op is recorded whose caller has that float mode.
void Recorder::make_room(Lock& lock, uint32_t mode) {
  const uint8_t attention = open_->attention;
  if ((attention & (RecordedCircuit::kParted | RecordedCircuit::kWake)) != 0) {
    open_->attention &= static_cast<uint8_t>(~RecordedCircuit::kWake);
    lock.unlock();
    if ((attention & RecordedCircuit::kParted) != 0) release_parted();
    if ((attention & RecordedCircuit::kWake) != 0 && worker_.exists()) worker_.call();
    lock.lock();
  }
  if ((open_->attention & RecordedCircuit::kFull) != 0) {
    if (worker_.exists() && worker_.is_quick()) {
      pass_on(lock, Why::kBounds);
    } else {
      run_open(lock, Why::kBounds);
    }
  }
  take_mode(lock, mode);
  if ((open_->attention & RecordedCircuit::kSites) != 0) remember_site(lock, mode);
}

// A circuit runs in one mode, so what is open in another one is complete. Threads that take
// turns in two modes make a circuit a turn.
void Recorder::take_mode(Lock& lock, uint32_t mode) {
  while (open_->float_mode != mode && !open_->tape.empty()) {
    end_circuit(lock, Why::kMode);
  }
  open_->float_mode = mode;
}

// After an op was appended, or not: whatever waits to run is no longer nothing. elements: as
// LoneOps::note_record().
[[gnu::always_inline]] inline bool Recorder::noted(bool appended, int64_t elements) {
  if (!appended) return false;
  const int records = open_->tape.records();
  if (records == 1) pending_.store(true, std::memory_order_relaxed);
  lone_.note_record(elements, records);
  return true;
}

bool Recorder::append_flat(uint16_t code, Dtype compute, const RecordOperand* operands, int arity,
                           int64_t n) {
  Lock lock(record_lock_);
  const uint32_t mode = make_ready(lock);
  if (n <= LoneOps::kMostElements && open_.empty() && open_->attention == 0 &&
      device_.is_host_memory() && lone_.run_next()) [[unlikely]] {
    lock.unlock();
    if (run_at_call(code, compute, operands, arity, n, mode)) return true;
    lock.lock();
    make_ready(lock);
  }
  return noted(open_.append_flat(code, compute, operands, arity, n), n);
}

bool Recorder::run_at_call(uint16_t code, Dtype compute, const RecordOperand* operands, int arity,
                           int64_t n, uint32_t mode) {
  if (is_watched() || checks_circuits() || runs_here() || !runner_.try_lock()) return false;
  bool ran = false;
  {
    const CircuitRunner::Scope scope(runner_);
    // With the run lock held, nothing that others record from now on runs before this.
    ran = is_idle() && runner_.run_op(code, compute, operands, arity, n, mode);
  }
  // Threads that wanted to run circuits meanwhile look again.
  ring();
  call_worker();
  return ran;
}

bool Recorder::append(circuit::Record& record, const RecordOperand* operands) {
  Lock lock(record_lock_);
  make_ready(lock);
  return noted(open_.append(record, operands));
}

bool Recorder::append_call(uint16_t kind, std::span<const CallOperand> operands,
                           std::span<const uint64_t> attributes, std::span<const uint64_t> numbers,
                           double cost) {
  Lock lock(record_lock_);
  if (open_.ends_before_call()) end_before_call(lock, operands);
  make_ready(lock);
  return noted(open_.append_call(kind, operands, attributes, numbers, cost));
}

void Recorder::expect_list(size_t count) {
  Lock lock(record_lock_);
  const uint32_t mode = make_ready(lock);
  if (open_.expect_list(count) || open_.empty()) return;
  open_->attention |= RecordedCircuit::kFull;  // the list begins a circuit
  make_room(lock, mode);
  open_.expect_list(count);
}

void Recorder::append_tape(const circuit::Tape& tape, std::vector<BufferRef> buffers,
                           std::span<const uint8_t> written, double cost) {
  Lock lock(record_lock_);
  const uint32_t mode = make_ready(lock);
  // Others may record while the lock is let go.
  while (!open_.empty()) end_circuit(lock, Why::kCall);
  open_->float_mode = mode;
  open_.take_tape(tape, std::move(buffers), written, cost);
  pending_.store(true, std::memory_order_relaxed);
  end_circuit(lock, Why::kCall);
}

bool Recorder::append_planned(const std::shared_ptr<PlannedCircuit>& planned,
                              std::span<Buffer* const> given, std::span<const uint64_t> numbers) {
  OpenCircuit::Sealing sealing;  // outlives the lock
  Lock lock(record_lock_);
  const uint32_t mode = make_ready(lock);
  prepare_sealing(lock, sealing);
  // Others may record while the lock is let go.
  while (!open_.empty()) end_circuit(lock, Why::kCall);
  // From here on the lock is held until the circuit is sealed: what another thread appended to it
  // would never run.
  if (!open_.take_planned(planned, given, numbers)) return false;
  open_->float_mode = mode;
  pending_.store(true, std::memory_order_relaxed);
  queue_.push(open_.seal(sealing, Why::kCall));
  lone_.note_sealing(/*asked=*/false);
  run_sealed(lock, Why::kCall);
  return true;
}

// Of the op that is about to be appended, in a circuit of that mode.
void Recorder::remember_site(Lock& lock, uint32_t mode) {
  lock.unlock();
  std::string site;
  const bool has_site = find_site(site);
  const uint64_t mark = ask_for_mark();
  lock.lock();
  take_mode(lock, mode);
  open_.remember(has_site, std::move(site), mark);
}

// ---- sealing ----

void Recorder::prepare_sealing(Lock& lock, OpenCircuit::Sealing& sealing) {
  sealing.next = queue_.take_spare();
  lock.unlock();
  sealing.prepare();
  lock.lock();
}

// Another thread was faster.
void Recorder::give_up_sealing(Lock& lock, OpenCircuit::Sealing& sealing) {
  queue_.give_spare(std::move(sealing.next));
  lock.unlock();
  sealing.drop();
  lock.lock();
}

// Moves the open circuit to the end of the queue. False if nothing was recorded.
bool Recorder::seal(Lock& lock, Why why) {
  if (open_.empty()) return false;
  OpenCircuit::Sealing sealing;
  prepare_sealing(lock, sealing);
  if (open_.empty()) {
    give_up_sealing(lock, sealing);
    return false;
  }
  queue_.push(open_.seal(sealing, why));
  lone_.note_sealing(why == Why::kAsked);
  return true;
}

// The open circuit is complete, though no thread asked for it.
void Recorder::end_circuit(Lock& lock, Why why) {
  seal(lock, why);
  if (!queue_.empty()) run_sealed(lock, why);  // age may have sealed it
}

// The open circuit is complete but for the conversions that the call reads.
void Recorder::end_before_call(Lock& lock, std::span<const CallOperand> operands) {
  OpenCircuit::Sealing sealing;
  prepare_sealing(lock, sealing);
  if (!open_.ends_before_call()) return give_up_sealing(lock, sealing);
  queue_.push(open_.seal_before_call(sealing, operands));
  lone_.note_sealing(/*asked=*/false);
  run_sealed(lock, Why::kCall);
}

void Recorder::run_open(Lock& lock, Why why) {
  const uint64_t epoch = open_->epoch;
  lock.unlock();
  flush_until(epoch, why);
  lock.lock();
}

// The worker is to run the open circuit.
void Recorder::pass_on(Lock& lock, Why why) {
  if (seal(lock, why)) leave_to_worker(lock);
}

// The worker is to run what was sealed.
void Recorder::leave_to_worker(Lock& lock) {
  const bool crowded = queue_.is_crowded();
  const uint64_t epoch = crowded ? queue_.half_way() : 0;
  lock.unlock();
  if (worker_.is_quick()) worker_.call();
  if (crowded) run_until(epoch, Why::kBounds);
  lock.lock();
}

// For the worker where there is one, else it runs here. The circuits are the same: loops find
// the same plans, and the memory of what is dead by now serves what comes.
void Recorder::run_sealed(Lock& lock, Why why) {
  if (runs_here()) return;  // what runs on this thread cannot wait for what comes after it
  if (worker_.exists()) return leave_to_worker(lock);
  const uint64_t epoch = queue_.last()->epoch;
  lock.unlock();
  flush_until(epoch, why);
  lock.lock();
}

// Once this thread leaves circuits in the queue.
void Recorder::call_worker() {
  {
    std::lock_guard lock(record_lock_);
    if (!queue_.is_ready()) return;
  }
  if (worker_.exists() && worker_.is_quick()) worker_.call();
}

// ---- running ----

// With the record lock held.
void Recorder::look_whether_idle() {
  if (queue_.empty() && open_.empty()) pending_.store(false, std::memory_order_release);
}

// In a Scope of the runner: the first circuit is done. The caller retires it.
std::unique_ptr<RecordedCircuit> Recorder::finish_first(const RecordedCircuit& circuit) {
  device_.done_epoch_.store(circuit.epoch, std::memory_order_release);
  std::lock_guard lock(record_lock_);
  std::unique_ptr<RecordedCircuit> finished = queue_.pop();
  look_whether_idle();
  return finished;
}

// As finish_first(). Dead buffers are released before waiting threads learn of the end, so that
// memory is free after a wait. But not foreign memory: who waits may hold what its deleter needs.
void Recorder::finish_on_worker() {
  std::unique_ptr<RecordedCircuit> circuit;
  {
    std::lock_guard lock(record_lock_);
    circuit = queue_.pop();
    const auto parted = std::partition(circuit->slots.begin(), circuit->slots.end(),
                                       [](const RecordedCircuit::Slot& slot) {
                                         return slot.buffer->pool() != PoolKind::kForeign &&
                                                slot.buffer->pool() != PoolKind::kBoundary;
                                       });
    for (auto slot = parted; slot != circuit->slots.end(); ++slot) {
      parted_.push_back(slot->buffer);
      open_->attention |= RecordedCircuit::kParted;
      has_parted_.store(true, std::memory_order_relaxed);
    }
    circuit->slots.erase(parted, circuit->slots.end());
  }
  const uint64_t epoch = circuit->epoch;
  retire(std::move(circuit));
  device_.done_epoch_.store(epoch, std::memory_order_release);
  std::lock_guard lock(record_lock_);
  look_whether_idle();
}

// Of a circuit that is done; its storage serves a later one.
void Recorder::retire(std::unique_ptr<RecordedCircuit> circuit) {
  drop_references(*circuit);
  circuit->tape.clear();
  circuit->planned.reset();
  circuit->sites.clear();
  circuit->marks.clear();
  circuit->backed_bytes = circuit->unbacked_bytes = 0;
  circuit->dead_bytes = circuit->kept_bytes = 0;
  circuit->call_cost = 0;
  circuit->weight = circuit->weightless = 0;
  circuit->attention = 0;
  circuit->stalled = false;
  std::lock_guard lock(record_lock_);
  queue_.give_spare(std::move(circuit));
}

void Recorder::release_parted() {
  std::vector<Buffer*> parted;
  {
    std::lock_guard lock(record_lock_);
    parted.swap(parted_);
    open_->attention &= static_cast<uint8_t>(~RecordedCircuit::kParted);
    has_parted_.store(false, std::memory_order_relaxed);
  }
  for (Buffer* buffer : parted) buffer->release();
}

// With the record lock held, of a circuit that wanted too much memory: what no code can see by
// now needs none.
void Recorder::forget_what_died(RecordedCircuit& circuit) {
  auto* states = reinterpret_cast<uint8_t*>(circuit.states.data());
  for (size_t s = 0; s < circuit.slots.size(); ++s) {
    const Buffer* buffer = circuit.slots[s].buffer;
    if (buffer->use_count() > 1 || buffer->recorded_epoch() != circuit.epoch) continue;
    states[s] &= static_cast<uint8_t>(~circuit::kSlotLive);
  }
}

// In a Scope of the runner: runs the first circuit of the queue. False if it stays there: memory
// was not enough, or it failed and `keeps` says that the next thread that asks gets its error. One
// that is not kept is put in `error`.
bool Recorder::run_first(RecordedCircuit& circuit, std::exception_ptr& error, bool keeps) {
  auto outcome = CircuitRunner::Outcome::kFailed;
  if (circuit.error == nullptr) {
    outcome = runner_.run(circuit, error);
  } else {
    error = std::exchange(circuit.error, nullptr);
  }
  if (outcome == CircuitRunner::Outcome::kFailed && keeps) {
    circuit.error = std::exchange(error, nullptr);
  }
  if (outcome != CircuitRunner::Outcome::kStuck && circuit.error == nullptr) return true;
  std::lock_guard lock(record_lock_);
  circuit.stalled = true;
  return false;
}

void Recorder::hand_over() {
  Lock lock(record_lock_);
  end_circuit(lock, Why::kCall);
}

bool Recorder::flush(Why why) {
  const auto release = [&] {
    if (has_parted_.load(std::memory_order_relaxed) && why != Why::kMemory) release_parted();
  };
  release();
  const bool any = flush_until(UINT64_MAX, why);
  release();  // what the worker left of the circuits that were waited for
  return any;
}

void Recorder::observe(uint64_t epoch) {
  std::atomic<uint64_t>& observed = device_.observed_epoch_;
  uint64_t before = observed.load(std::memory_order_relaxed);
  while (before < epoch &&
         !observed.compare_exchange_weak(before, epoch, std::memory_order_acq_rel)) {
  }
}

bool Recorder::flush_until(uint64_t epoch, Why why) {
  if (is_idle() || runs_here()) {
    if (why == Why::kAsked && is_idle()) observe(device_.done_epoch());
    return false;
  }
  // A thread with a tile of a circuit must not wait for that circuit.
  if (why == Why::kMemory && in_parallel_region()) {
    if (!runner_.try_lock()) return false;
    runner_.unlock();
    ring();
  }
  {
    Lock lock(record_lock_);
    if (open_->epoch <= epoch) seal(lock, why);
    epoch = std::min(epoch, open_->epoch - 1);
    if (queue_.empty()) {
      if (why == Why::kAsked) observe(epoch);
      return false;
    }
  }
  return run_until(epoch, why);
}

void Recorder::flush_buffer(const Buffer& buffer) {
  uint64_t epoch;
  {
    Lock lock(record_lock_);
    // A sealed circuit keeps its records. Until then its last ones may move to the next circuit.
    while (buffer.recorded_epoch() >= open_->epoch && !open_.empty()) {
      seal(lock, Why::kAsked);
    }
    epoch = std::min(buffer.recorded_epoch(), open_->epoch - 1);
    if (queue_.empty()) return observe(epoch);
  }
  run_until(epoch, Why::kAsked);
}

// With the record lock held. Whether a circuit that fails stays in the queue, for a thread that
// asks for what it computes: programs go on recording, as long as the queue has room for that.
bool Recorder::keeps_failures(Why why) const {
  return why != Why::kAsked && why != Why::kPassing && why != Why::kMemory && !queue_.is_crowded();
}

// Runs what is sealed up to a circuit, or waits for others who do.
bool Recorder::run_until(uint64_t epoch, Why why) {
  if (!worker_.exists()) trim_if_idle();
  bool any = false;
  bool stuck = false;
  bool raises = why == Why::kAsked;
  std::exception_ptr error;
  while (!stuck && may_run(epoch)) {
    std::unique_ptr<RecordedCircuit> finished;
    std::exception_ptr now;
    {
      const CircuitRunner::Scope scope(runner_);
      if (device_.done_epoch() >= epoch) break;
      RecordedCircuit* circuit;
      bool keeps;
      {
        std::lock_guard lock(record_lock_);
        circuit = queue_.first();
        keeps = keeps_failures(why);
        if (std::exchange(circuit->stalled, false)) forget_what_died(*circuit);
      }
      stuck = !run_first(*circuit, now, keeps);
      if (!stuck) finished = finish_first(*circuit);
    }
    if (is_waited_for()) ring();
    if (now != nullptr && (error == nullptr || stuck)) error = now;
    raises |= now != nullptr && stuck;  // for want of memory
    if (finished == nullptr) continue;
    any = true;
    retire(std::move(finished));  // deleters may do as they like: no lock is held
  }
  ring();
  call_worker();
  if (why == Why::kAsked && !stuck) observe(epoch);
  if (error != nullptr) {
    if (raises) std::rethrow_exception(error);
    device_.default_stream().keep_error(error);
  }
  return any;
}

void Recorder::run_beside_circuits(PlanRun run, uint32_t mode) {
  if (runs_here()) {
    fail(ErrorKind::kState, "DeviceGraph::replay: called by work that the device is running");
  }
  flush(Why::kAsked);
  // Threads that wanted to run circuits meanwhile look again, also where this one throws.
  struct Wake {
    Recorder& recorder;
    ~Wake() {
      recorder.ring();
      recorder.call_worker();
    }
  } const wake{*this};
  runner_.lock();
  const CircuitRunner::Scope scope(runner_);
  runner_.run_plan(run, mode);
}

// ---- waiting ----

// Waits until the circuit is done (false), helping the thread that runs it, or until this one has
// to run what comes next: true, with the run lock held.
bool Recorder::may_run(uint64_t epoch) {
  const auto is_done = [&] { return device_.done_epoch() >= epoch; };
  if (is_done()) return false;
  if (!worker_.is_running() && runner_.try_lock()) return true;
  for (int64_t since = now_ns(); !is_done();) {
    if (help_beside()) {
      since = now_ns();
      continue;
    }
    // A worker that is at it goes on, which saves handing over.
    const int64_t waited = now_ns() - since;
    if ((waited > kHandOverSpin || !worker_.is_running()) && runner_.try_lock()) return true;
    if (waited <= kCircuitSpin) {
      for (int i = 0; i < 16; ++i) pause();
      continue;
    }
    bool mine = false;
    beside_bell().sleep_unless([&] {
      wait_for(epoch);
      return is_done() || is_beside_claimable() || (mine = runner_.try_lock());
    });
    if (mine) return true;
    since = now_ns();
  }
  return false;
}

// Wakes all who wait for circuits, so that they look again.
void Recorder::ring() {
  waited_for_.store(UINT64_MAX, std::memory_order_relaxed);
  beside_bell().ring();
}

// After a circuit is done, and before a thread that needs one sleeps.
bool Recorder::is_waited_for() {
  return waited_for_.fetch_add(0, std::memory_order_acq_rel) <= device_.done_epoch();
}
void Recorder::wait_for(uint64_t epoch) {
  uint64_t before = waited_for_.load(std::memory_order_relaxed);
  while (!waited_for_.compare_exchange_weak(before, std::min(before, epoch),
                                            std::memory_order_acq_rel)) {
  }
}

// ---- the worker ----

// With the run lock held, which is given back.
bool Recorder::run_beside() {
  const CircuitRunner::Scope scope(runner_);
  RecordedCircuit* circuit;
  {
    std::lock_guard lock(record_lock_);
    if (!queue_.is_ready() || !worker_.exists()) return false;
    circuit = queue_.first();
  }
  bool finished;
  {
    const WorkerScope beside(circuit->threads);
    std::exception_ptr error;
    finished = run_first(*circuit, error, /*keeps=*/true);
  }
  if (finished) finish_on_worker();
  return finished;
}

bool Recorder::work() {
  if (!runner_.try_lock()) return false;  // the thread that runs calls again
  const bool ran = run_beside();
  if (!ran || is_waited_for()) ring();
  return ran;
}

Recorder::Look Recorder::look_at_age() {
  Lock lock(record_lock_);
  const bool quiet = open_.ops_recorded() == seen_ops_;
  seen_ops_ = open_.ops_recorded();
  // Whoever traces wants to see the program's circuits, not the pauses in which they are read.
  if (quiet && !open_.empty() && !is_traced()) seal(lock, Why::kAge);
  if (queue_.is_ready()) return Look::kDue;
  return quiet ? Look::kQuiet : Look::kBusy;
}

bool Recorder::stop_looking() {
  std::lock_guard lock(record_lock_);
  open_->attention |= RecordedCircuit::kWake;
  return open_.ops_recorded() == seen_ops_;
}

}  // namespace hologram::internal
