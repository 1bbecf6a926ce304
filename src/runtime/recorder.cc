// SPDX-License-Identifier: MIT
// Seals circuits, finds or makes their plans, gives results memory, and sees to it that they run in
// order: on the thread that asks, or the worker. Appending is in record.cc.
//
// Circuits are sealed by the threads that record and ask, where the recorded ops decide, so that a
// loop finds its plans again. Only the age of a circuit seals it at a moment of its own.
#include "src/runtime/recorder.h"

#include <time.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/circuit/plan_cache.h"
#include "src/runtime/capture.h"
#include "src/runtime/circuit_check.h"
#include "src/runtime/memory_watch.h"
#include "src/runtime/trace_hooks.h"
#include "src/runtime/worker_scope.h"

namespace hologram::internal {

using Access = BufferAccess;

namespace {

// Whether more memory may make the difference.
bool is_out_of_memory(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return e.kind() == ErrorKind::kOutOfMemory;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
}

// How long a waiting thread spins before it sleeps.
constexpr int64_t kCircuitSpin = 200'000;
// What such a thread leaves to a worker that is between two circuits.
constexpr int64_t kHandOverSpin = 20'000;

int64_t processor_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// An address that is this thread's alone.
const void* this_thread() {
  static constinit thread_local char t_here = 0;
  return &t_here;
}

}  // namespace

// Gives the run lock, which the caller has taken, back at its end.
struct Recorder::RunScope {
  explicit RunScope(Recorder& recorder) : recorder(recorder) {
    recorder.runner_.store(this_thread(), std::memory_order_relaxed);
  }
  ~RunScope() {
    recorder.runner_.store(nullptr, std::memory_order_relaxed);
    recorder.run_mutex_.unlock();
  }
  Recorder& recorder;
};

bool Recorder::runs_here() const {
  return runner_.load(std::memory_order_relaxed) == this_thread();
}

// With the record lock held, which is let go in between.
void Recorder::begin_sealing(std::unique_lock<SpinLock>& lock, Sealing& sealing) {
  if (!spare_.empty()) {
    sealing.next = std::move(spare_.back());
    spare_.pop_back();
  }
  lock.unlock();
  if (sealing.next == nullptr) sealing.next = std::make_unique<OpenCircuit>();
  sealing.threads = num_threads();
  if (is_watched()) {
    sealing.sealed_ns = now_ns();
    sealing.cause = watch_cause();
    sealing.observed = share_observation();
  }
  lock.lock();
}

void Recorder::Sealing::drop() {
  if (void* unused = std::exchange(observed, nullptr)) drop_observation(unused);
}

// With the record lock held, which may be let go in between: moves the open circuit to the end of
// the queue. False if nothing was recorded.
bool Recorder::seal(std::unique_lock<SpinLock>& lock, Why why) {
  if (open_->tape.empty()) return false;
  Sealing sealing;
  begin_sealing(lock, sealing);
  if (open_->tape.empty()) {  // another thread was faster
    if (spare_.size() < spare_.capacity()) spare_.push_back(std::move(sealing.next));
    lock.unlock();
    sealing.drop();
    lock.lock();
    return false;
  }
  end_sealing(sealing, why);
  return true;
}

// With the record lock held all along: the open circuit, which has a record, joins the queue.
void Recorder::end_sealing(Sealing& sealing, Why why) {
  OpenCircuit& circuit = *open_;
  const size_t count = circuit.slots.size();
  circuit.states.assign((count + 7) / 8, 0);
  auto* states = reinterpret_cast<uint8_t*>(circuit.states.data());
  for (size_t s = 0; s < count; ++s) {
    const OpenCircuit::Slot& slot = circuit.slots[s];
    const bool live = slot.buffer->use_count() > 1;
    states[s] = static_cast<uint8_t>((live ? circuit::kSlotLive : 0) |
                                     (slot.fresh ? circuit::kSlotFresh : 0));
    if (!live && !slot.fresh) circuit.kept_bytes += slot.buffer->nbytes();
  }
  circuit.why = why;
  circuit.threads = sealing.threads;
  circuit.sealed_ns = sealing.sealed_ns;
  circuit.cause = sealing.cause;
  circuit.observed = std::exchange(sealing.observed, nullptr);
  OpenCircuit& next = *sealing.next;
  next.epoch = next_epoch_++;
  next.float_mode = circuit.float_mode;
  next.attention = circuit.attention & static_cast<uint8_t>(~OpenCircuit::kFull);
  // That of an op which comes after the cut.
  const auto records = static_cast<size_t>(circuit.tape.records());
  carry_over(circuit.sites, next.sites, records);
  carry_over(circuit.marks, next.marks, records);
  (last_ != nullptr ? last_->next : first_) = std::move(open_);
  last_ = &circuit;
  ++queued_;
  queued_kept_ += circuit.kept_bytes;
  queued_unbacked_ += circuit.unbacked_bytes;
  open_ = std::move(sealing.next);
}

// With the record lock held: whether what waits to run has grown to its bounds.
bool Recorder::is_crowded() const {
  return queued_ >= CircuitBounds::kMaxQueued || queued_kept_ > last_->kept_limit ||
         queued_unbacked_ > last_->unbacked_limit;
}

// With the record lock held: the circuit in the middle of the queue.
uint64_t Recorder::half_way() const {
  const OpenCircuit* circuit = first_.get();
  for (int i = 1; i < (queued_ + 1) / 2; ++i) circuit = circuit->next.get();
  return circuit->epoch;
}

// With the record lock held: the first circuit leaves the queue. It keeps the references that later
// circuits did not take over.
std::unique_ptr<OpenCircuit> Recorder::take_first() {
  std::unique_ptr<OpenCircuit> circuit = std::move(first_);
  first_ = std::move(circuit->next);
  if (first_ == nullptr) last_ = nullptr;
  --queued_;
  queued_kept_ -= circuit->kept_bytes;
  queued_unbacked_ -= circuit->unbacked_bytes;
  std::erase_if(circuit->slots, [&](const OpenCircuit::Slot& slot) {
    std::atomic<uint64_t>& recorded = Access::recorded(slot.buffer);
    const uint64_t word = recorded.load(std::memory_order_relaxed);
    if (word >> Buffer::kRecordedEpochShift != circuit->epoch) return true;
    recorded.store(word & kFlagsMask, std::memory_order_release);
    return false;
  });
  return circuit;
}

// With the record lock held.
void Recorder::look_whether_idle() {
  if (first_ == nullptr && open_->tape.empty()) pending_.store(false, std::memory_order_release);
}

// With the run lock held: the first circuit is done. The caller retires it.
std::unique_ptr<OpenCircuit> Recorder::finish_first() {
  device_.done_epoch_.store(running_->epoch, std::memory_order_release);
  std::lock_guard lock(record_lock_);
  std::unique_ptr<OpenCircuit> circuit = take_first();
  look_whether_idle();
  return circuit;
}

// As finish_first(). Dead buffers are released before waiting threads learn of the end, so that
// memory is free after a wait. But not foreign memory: who waits may hold what its deleter needs.
void Recorder::finish_on_worker() {
  std::unique_ptr<OpenCircuit> circuit;
  {
    std::lock_guard lock(record_lock_);
    circuit = take_first();
    const auto parted = std::partition(circuit->slots.begin(), circuit->slots.end(),
                                       [](const OpenCircuit::Slot& slot) {
                                         return slot.buffer->pool() != PoolKind::kForeign &&
                                                slot.buffer->pool() != PoolKind::kBoundary;
                                       });
    for (auto slot = parted; slot != circuit->slots.end(); ++slot) {
      parted_.push_back(slot->buffer);
      open_->attention |= OpenCircuit::kParted;
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

// Gives up the circuit's references.
void Recorder::drop(OpenCircuit& circuit) {
  for (const OpenCircuit::Slot& slot : circuit.slots) slot.buffer->release();
  circuit.slots.clear();
}

// Of a circuit that is done; its storage serves a later one.
void Recorder::retire(std::unique_ptr<OpenCircuit> circuit) {
  drop(*circuit);
  circuit->tape.clear();
  circuit->planned.reset();
  circuit->sites.clear();
  circuit->marks.clear();
  circuit->backed_bytes = circuit->unbacked_bytes = circuit->kept_bytes = 0;
  circuit->call_cost = 0;
  circuit->attention = 0;
  circuit->stalled = false;
  std::lock_guard lock(record_lock_);
  if (spare_.size() < spare_.capacity()) spare_.push_back(std::move(circuit));
}

void Recorder::release_parted() {
  std::vector<Buffer*> parted;
  {
    std::lock_guard lock(record_lock_);
    parted.swap(parted_);
    open_->attention &= static_cast<uint8_t>(~OpenCircuit::kParted);
    has_parted_.store(false, std::memory_order_relaxed);
  }
  for (Buffer* buffer : parted) buffer->release();
}

// Once this thread leaves circuits in the queue.
void Recorder::call_worker() {
  {
    std::lock_guard lock(record_lock_);
    if (first_ == nullptr || first_->stalled) return;
  }
  if (worker_.exists() && worker_.is_quick()) worker_.call();
}

// With the record lock held, which is let go in between: what has to be done before an op is
// recorded whose caller has that float mode.
void Recorder::make_room(std::unique_lock<SpinLock>& lock, uint32_t mode) {
  const uint8_t attention = open_->attention;
  if ((attention & (OpenCircuit::kParted | OpenCircuit::kWake)) != 0) {
    open_->attention &= static_cast<uint8_t>(~OpenCircuit::kWake);
    lock.unlock();
    if ((attention & OpenCircuit::kParted) != 0) release_parted();
    if ((attention & OpenCircuit::kWake) != 0 && worker_.exists()) worker_.call();
    lock.lock();
  }
  if ((open_->attention & OpenCircuit::kFull) != 0) {
    if (worker_.exists() && worker_.is_quick()) {
      pass_on(lock, Why::kBounds);
    } else {
      run_open(lock, Why::kBounds);
    }
  }
  take_mode(lock, mode);
  if ((open_->attention & OpenCircuit::kSites) != 0) remember_site(lock, mode);
}

// With the record lock held, which may be let go in between: a circuit runs in one mode, so what is
// open in another one is complete. Threads that take turns in two modes make a circuit a turn.
void Recorder::take_mode(std::unique_lock<SpinLock>& lock, uint32_t mode) {
  while (open_->float_mode != mode && !open_->tape.empty()) {
    end_circuit(lock, Why::kMode);
  }
  open_->float_mode = mode;
}

// With the record lock held, which is let go in between.
void Recorder::run_open(std::unique_lock<SpinLock>& lock, Why why) {
  const uint64_t epoch = open_->epoch;
  lock.unlock();
  flush_until(epoch, why);
  lock.lock();
}

// With the record lock held, which is let go in between: the worker is to run the open circuit.
void Recorder::pass_on(std::unique_lock<SpinLock>& lock, Why why) {
  if (seal(lock, why)) leave_to_worker(lock);
}

// With the record lock held, which is let go in between: the worker is to run what was sealed.
void Recorder::leave_to_worker(std::unique_lock<SpinLock>& lock) {
  const bool crowded = is_crowded();
  const uint64_t epoch = crowded ? half_way() : 0;
  lock.unlock();
  if (worker_.is_quick()) worker_.call();
  if (crowded) run_until(epoch, Why::kBounds);
  lock.lock();
}

// With the record lock held, which is let go in between: for the worker where there is one, else it
// runs here. The circuits are the same: loops find the same plans, and the memory of what is dead
// by now serves what comes.
void Recorder::run_sealed(std::unique_lock<SpinLock>& lock, Why why) {
  if (runs_here()) return;  // what runs on this thread cannot wait for what comes after it
  if (worker_.exists()) return leave_to_worker(lock);
  const uint64_t epoch = last_->epoch;
  lock.unlock();
  flush_until(epoch, why);
  lock.lock();
}

// With the record lock held, which is let go in between: the open circuit is complete, though no
// thread asked for it.
void Recorder::end_circuit(std::unique_lock<SpinLock>& lock, Why why) {
  seal(lock, why);
  if (last_ != nullptr) run_sealed(lock, why);  // age may have sealed it
}

// With the record lock held, of a circuit that wanted too much memory: what no code can see by now
// needs none.
void Recorder::forget_what_died(OpenCircuit& circuit) {
  auto* states = reinterpret_cast<uint8_t*>(circuit.states.data());
  for (size_t s = 0; s < circuit.slots.size(); ++s) {
    const Buffer* buffer = circuit.slots[s].buffer;
    if (buffer->use_count() > 1 || buffer->recorded_epoch() != circuit.epoch) continue;
    states[s] &= static_cast<uint8_t>(~circuit::kSlotLive);
  }
}

// With the run lock held: runs the first circuit of the queue. False if it stays there: memory was
// not enough, or it failed and `keeps` says that the next thread that asks gets its error. One that
// is not kept is put in `error`.
bool Recorder::run_first(std::exception_ptr& error, bool keeps) {
  {
    std::lock_guard lock(record_lock_);
    running_ = first_.get();
    if (std::exchange(running_->stalled, false)) forget_what_died(*running_);
  }
  OpenCircuit& circuit = *running_;
  if (circuit.error != nullptr) {
    error = std::exchange(circuit.error, nullptr);
    return true;
  }
  bool stuck = false;
  try {
    const FloatModeScope mode(circuit.float_mode);
    prepare();
    if (checks_circuits()) [[unlikely]] {
      run_checked();
    } else {
      run_prepared();
    }
  } catch (...) {
    // Preparing changes nothing that could not be done again; an op that ran cannot be repeated.
    error = std::current_exception();
    stuck = plan_ == nullptr && is_out_of_memory(error);
    error = explained(std::move(error));
    if (keeps && !stuck) circuit.error = std::exchange(error, nullptr);
  }
  plan_ = nullptr;
  attaching_ = kNoSlot;
  if (!stuck && circuit.error == nullptr) return true;
  std::lock_guard lock(record_lock_);
  circuit.stalled = true;
  return false;
}

// With the run lock held: everything that can fail for lack of memory. Sets plan_ at its end.
void Recorder::prepare() {
  if (running_->planned != nullptr) return prepare_planned();
  OpenCircuit& circuit = *running_;
  const size_t count = circuit.slots.size();
  const std::vector<uint64_t>& states = circuit.states;
  const bool default_mode = circuit.float_mode == kDefaultFloatMode;
  const circuit::PlanOptions options{.limits = *device_.plan_limits(), .float_laws = default_mode};
  auto [plan, made] =
      circuit::plan_cache().get({&device_, circuit.tape.words(), states, options, count});
  plan_hit_ = !made;
  (made ? counts_.misses : counts_.hits).fetch_add(1, std::memory_order_relaxed);
  const std::vector<uint64_t> marks = marks_by_slot();
  for (const uint32_t s : plan->attach) {
    attaching_ = s;
    attach(circuit.slots[s].buffer, marks.empty() ? 0 : marks[s]);
  }
  attaching_ = kNoSlot;
  bound_.resize(count);
  for (size_t s = 0; s < count; ++s) {
    bound_[s] = static_cast<char*>(circuit.slots[s].buffer->data());
  }
  plan_ = std::move(plan);
}

void Recorder::run_prepared() {
  count(*plan_);
  if (running_->sealed_ns != 0 && run_watched()) [[unlikely]]
    return;
  if (plan_->kernels.empty()) return;
  device_.run_plan(*plan_, {bound_.data(), running_->tape.immediates().data()}, 0);
}

void Recorder::attach(Buffer* buffer, uint64_t mark) {
  if (buffer->data() != nullptr || buffer->nbytes() == 0) return;
  Buffer* donor = allocate_for(device_, buffer->nbytes(), mark);
  {
    std::lock_guard lock(record_lock_);
    if (buffer->data() == nullptr) adopt_memory(buffer, std::exchange(donor, nullptr));
  }
  if (donor != nullptr) donor->release();
}

void Recorder::hand_over() {
  std::unique_lock lock(record_lock_);
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

bool Recorder::flush_until(uint64_t epoch, Why why) {
  if (is_idle() || runs_here()) return false;
  // A thread with a tile of a circuit must not wait for that circuit.
  if (why == Why::kMemory && in_parallel_region()) {
    if (!run_mutex_.try_lock()) return false;
    { const RunScope free(*this); }
    ring();
  }
  {
    std::unique_lock lock(record_lock_);
    if (open_->epoch <= epoch) seal(lock, why);
    if (last_ == nullptr) return false;
    epoch = std::min(epoch, last_->epoch);
  }
  return run_until(epoch, why);
}

void Recorder::flush_buffer(const Buffer& buffer) {
  uint64_t epoch;
  {
    std::unique_lock lock(record_lock_);
    // A sealed circuit keeps its records. Until then its last ones may move to the next circuit.
    while (buffer.recorded_epoch() >= open_->epoch && !open_->tape.empty()) {
      seal(lock, Why::kAsked);
    }
    epoch = buffer.recorded_epoch();
    if (last_ == nullptr) return;
    epoch = std::min(epoch, last_->epoch);
  }
  run_until(epoch, Why::kAsked);
}

// Runs what is sealed up to a circuit, or waits for others who do.
bool Recorder::run_until(uint64_t epoch, Why why) {
  bool any = false;
  bool stuck = false;
  std::exception_ptr error;
  while (!stuck && may_run(epoch)) {
    std::unique_ptr<OpenCircuit> finished;
    std::exception_ptr now;
    {
      const RunScope scope(*this);
      if (device_.done_epoch() >= epoch) break;
      stuck = !run_first(now, /*keeps=*/false);
      if (!stuck) finished = finish_first();
    }
    if (is_waited_for()) ring();
    if (now != nullptr && (error == nullptr || stuck)) error = now;
    if (finished == nullptr) continue;
    any = true;
    retire(std::move(finished));  // deleters may do as they like: no lock is held
  }
  ring();
  call_worker();
  if (error != nullptr) {
    if (stuck || why == Why::kAsked) std::rethrow_exception(error);
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
  run_mutex_.lock();
  const RunScope scope(*this);
  const FloatModeScope float_mode(mode);
  count(*run.plan);
  if (is_watched()) [[unlikely]] {
    run.sealed_ns = now_ns();
    run.observed = share_observation();
    const uint64_t mark = ask_for_mark();
    run.marks = {&mark, 1};
    if (run_watched(run)) return;
  }
  device_.run_plan(*run.plan, run.bindings, 0);
}

// Waits until the circuit is done (false), helping the thread that runs it, or until this one has
// to run what comes next: true, with the run lock held.
bool Recorder::may_run(uint64_t epoch) {
  const auto is_done = [&] { return device_.done_epoch() >= epoch; };
  if (is_done()) return false;
  if (!worker_.is_running() && run_mutex_.try_lock()) return true;
  for (int64_t since = now_ns(); !is_done();) {
    if (help_beside()) {
      since = now_ns();
      continue;
    }
    // A worker that is at it goes on, which saves handing over.
    const int64_t waited = now_ns() - since;
    if ((waited > kHandOverSpin || !worker_.is_running()) && run_mutex_.try_lock()) return true;
    if (waited <= kCircuitSpin) {
      for (int i = 0; i < 16; ++i) pause();
      continue;
    }
    bool mine = false;
    beside_bell().sleep_unless([&] {
      wait_for(epoch);
      return is_done() || is_beside_claimable() || (mine = run_mutex_.try_lock());
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

// With the run lock held, which is given back.
bool Recorder::run_beside() {
  const RunScope scope(*this);
  OpenCircuit* circuit;
  {
    std::lock_guard lock(record_lock_);
    circuit = first_.get();
    if (circuit == nullptr || circuit->stalled || !worker_.exists()) return false;
  }
  const int64_t begin = now_ns();
  const int64_t begin_processor = processor_ns();
  bool finished;
  {
    const WorkerScope beside(circuit->threads);
    std::exception_ptr error;
    finished = run_first(error, /*keeps=*/true);
  }
  worker_.ran(now_ns() - begin, processor_ns() - begin_processor);
  if (finished) finish_on_worker();
  return finished;
}

}  // namespace hologram::internal
