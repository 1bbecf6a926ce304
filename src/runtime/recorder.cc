// SPDX-License-Identifier: MIT
// Seals circuits, finds or makes their plans, gives results memory and runs them; what waits for a
// buffer.
#include "src/runtime/recorder.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "hologram/error.h"
#include "hologram/memory.h"
#include "src/circuit/plan_cache.h"
#include "src/runtime/circuit_check.h"
#include "src/runtime/linear_pool.h"
#include "src/runtime/watch.h"

namespace hologram {
namespace internal {

using Access = BufferAccess;

namespace {

// An address that is this thread's alone.
const void* this_thread() {
  static constinit thread_local char t_here = 0;
  return &t_here;
}

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

}  // namespace

// Holds the run lock, or, if told not to wait, possibly not.
struct Recorder::RunScope {
  RunScope(Recorder& recorder, bool wait)
      : recorder(recorder), lock(recorder.run_mutex_, std::defer_lock) {
    if (wait) {
      lock.lock();
    } else if (!lock.try_lock()) {
      return;
    }
    recorder.runner_.store(this_thread(), std::memory_order_relaxed);
  }
  ~RunScope() {
    if (lock) recorder.runner_.store(nullptr, std::memory_order_relaxed);
  }
  Recorder& recorder;
  std::unique_lock<std::mutex> lock;
};

bool Recorder::runs_here() const {
  return runner_.load(std::memory_order_relaxed) == this_thread();
}

// With the record lock held, before the first op of a circuit.
void Recorder::begin_circuit() {
  const size_t limit = memory_limit();
  open_->kept_limit = std::max(CircuitBounds::kKeptFloor, limit / CircuitBounds::kKeptShare);
  open_->unbacked_limit = limit / CircuitBounds::kUnbackedShare;
}

// With the record lock held: whether memory that only the open circuit holds passes its bound.
bool Recorder::keeps_too_much() const {
  size_t kept = 0;
  for (const OpenCircuit::Slot& slot : open_->slots) {
    if (slot.buffer->use_count() == 1 && slot.buffer->data() != nullptr) {
      kept += slot.buffer->nbytes();
    }
  }
  return kept > open_->kept_limit;
}

bool Recorder::flush(Why why) {
  if (is_idle() || runs_here()) return false;
  // At most one that could not run before, and the open one.
  std::unique_ptr<OpenCircuit> finished[2];
  int count = 0;
  std::exception_ptr error;
  bool stuck = false;
  {
    // A worker thread that wants memory must not wait for the circuit it is working on.
    RunScope scope(*this, /*wait=*/why != Why::kMemory);
    if (!scope.lock) return false;
    if (why == Why::kBounds) {
      std::lock_guard lock(record_lock_);
      if (!open_->full) return false;  // another thread was faster
    }
    for (bool last = false; !last && !stuck;) {
      last = sealed_ == nullptr;
      if (last && !seal()) break;
      const int64_t sealed_ns = is_watched() ? now_ns() : 0;
      try {
        prepare();
        if (checks_circuits()) [[unlikely]] {
          run_checked(why, sealed_ns);
        } else {
          run_prepared(why, sealed_ns);
        }
      } catch (...) {
        // Preparing changes nothing that could not be done again; an op that ran cannot be
        // repeated.
        stuck = plan_ == nullptr && is_out_of_memory(std::current_exception());
        if (error == nullptr || stuck) error = std::current_exception();
      }
      plan_ = nullptr;
      if (stuck) break;
      device_.done_epoch_.store(sealed_->epoch, std::memory_order_release);
      finished[count++] = std::move(sealed_);
    }
    std::lock_guard lock(record_lock_);
    if (sealed_ == nullptr && open_->tape.empty()) {
      pending_.store(false, std::memory_order_release);
    }
  }
  // Deleters of foreign memory may do as they like here: no lock is held.
  for (int i = 0; i < count; ++i) retire(std::move(finished[i]));
  if (error != nullptr) {
    if (stuck || why == Why::kAsked) std::rethrow_exception(error);
    device_.default_stream().keep_error(error);
  }
  return count != 0;
}

// With the record lock held, before a call is appended to an open circuit with enough work for a
// worker: a place to give that circuit away.
void Recorder::hand_over(std::unique_lock<SpinLock>&) {}

// With the run lock held: takes the open circuit away; false if nothing was recorded.
bool Recorder::seal() {
  std::unique_ptr<OpenCircuit> next;
  {
    std::lock_guard lock(record_lock_);
    if (open_->tape.empty()) return false;
    if (!spare_.empty()) {
      next = std::move(spare_.back());
      spare_.pop_back();
    }
  }
  if (next == nullptr) next = std::make_unique<OpenCircuit>();
  std::lock_guard lock(record_lock_);
  next->epoch = next_epoch_++;
  sealed_ = std::exchange(open_, std::move(next));
  return true;
}

// With the run lock held: everything that can fail for want of memory. Sets plan_ at its end.
void Recorder::prepare() {
  OpenCircuit& circuit = *sealed_;
  const size_t count = circuit.slots.size();
  states_.assign((count + 7) / 8, 0);
  auto* states = reinterpret_cast<uint8_t*>(states_.data());
  for (size_t s = 0; s < count; ++s) {
    const OpenCircuit::Slot& slot = circuit.slots[s];
    states[s] = static_cast<uint8_t>((slot.buffer->use_count() > 1 ? circuit::kSlotLive : 0) |
                                     (slot.fresh ? circuit::kSlotFresh : 0));
  }
  const circuit::PlanCache::Key key{&device_, circuit.tape.words(), states_};
  const uint64_t hash = key.hash();
  circuit::PlanCache& cache = circuit::plan_cache();
  std::shared_ptr<circuit::Plan> plan = cache.find(key, hash);
  plan_hit_ = plan != nullptr;
  if (plan_hit_) {
    counts_.hits.fetch_add(1, std::memory_order_relaxed);
  } else {
    plan = cache.insert(key, hash, circuit::make_plan(key.words, {states, count}));
    counts_.misses.fetch_add(1, std::memory_order_relaxed);
  }
  for (const uint32_t s : plan->attach) attach(circuit.slots[s].buffer);
  bound_.resize(count);
  for (size_t s = 0; s < count; ++s) {
    bound_[s] = static_cast<char*>(circuit.slots[s].buffer->data());
  }
  plan_ = std::move(plan);
}

void Recorder::run_prepared(Why why, int64_t sealed_ns) {
  const circuit::PlanStats& stats = plan_->stats;
  counts_.circuits.fetch_add(1, std::memory_order_relaxed);
  counts_.kernels.fetch_add(static_cast<uint64_t>(stats.kernels), std::memory_order_relaxed);
  counts_.moved.fetch_add(static_cast<uint64_t>(stats.bytes_moved), std::memory_order_relaxed);
  counts_.unfused.fetch_add(static_cast<uint64_t>(stats.bytes_unfused), std::memory_order_relaxed);
  ++plan_->runs;
  if (sealed_ns != 0 && run_watched(why, sealed_ns)) [[unlikely]]
    return;
  if (plan_->kernels.empty()) return;
  device_.run_plan(*plan_, {bound_.data(), sealed_->tape.immediates().data()}, 0);
}

void Recorder::run_checked(Why why, int64_t sealed_ns) {
  if (!device_.is_host_memory()) return run_prepared(why, sealed_ns);
  const OpenCircuit& circuit = *sealed_;
  std::vector<size_t> sizes;
  for (const OpenCircuit::Slot& slot : circuit.slots) sizes.push_back(slot.buffer->nbytes());
  const std::span states(reinterpret_cast<const uint8_t*>(states_.data()), sizes.size());
  const CircuitCheck check(device_, circuit.tape.words(), states, std::move(sizes), bound_,
                           circuit.tape.immediates().data());
  run_prepared(why, sealed_ns);
  check.compare(*plan_, bound_);
}

void Recorder::attach(Buffer* buffer) {
  if (buffer->data() != nullptr || buffer->nbytes() == 0) return;
  Buffer* donor = allocate_buffer(device_, buffer->nbytes());
  {
    std::lock_guard lock(record_lock_);
    if (buffer->data() == nullptr) adopt_memory(buffer, std::exchange(donor, nullptr));
  }
  if (donor != nullptr) donor->release();
}

void Recorder::mark_exported(Buffer* buffer) {
  std::lock_guard lock(record_lock_);
  Access::recorded(buffer).fetch_or(kExported, std::memory_order_relaxed);
}

// Of a circuit that is done, with no lock held; its storage serves a later one.
void Recorder::retire(std::unique_ptr<OpenCircuit> circuit) {
  drop(*circuit);
  circuit->tape.clear();
  circuit->backed_bytes = circuit->unbacked_bytes = 0;
  circuit->call_cost = 0;
  circuit->full = false;
  std::lock_guard lock(record_lock_);
  if (spare_.size() < spare_.capacity()) spare_.push_back(std::move(circuit));
}

RecorderStats Recorder::stats() {
  RecorderStats s;
  {
    std::lock_guard lock(record_lock_);
    s.ops_recorded = ops_recorded_;
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
  }
  for (auto* count : {&counts_.circuits, &counts_.kernels, &counts_.hits, &counts_.misses,
                      &counts_.moved, &counts_.unfused}) {
    count->store(0, std::memory_order_relaxed);
  }
}

bool release_recorded(Device& device) noexcept {
  Recorder* recorder = Recorder::find(device);
  try {
    return recorder != nullptr && recorder->flush(Recorder::Why::kMemory);
  } catch (...) {
    return false;  // it stays recorded
  }
}

void materialize_slowly(Buffer& buffer) {
  Recorder& recorder = Recorder::of(buffer.device());
  if (buffer.recorded_epoch() > buffer.device().done_epoch()) {
    if (recorder.runs_here()) {
      fail(ErrorKind::kState,
           "materialize: called by work that the device is running, on a buffer of ",
           buffer.nbytes(), " bytes that waits for this work or for later work; ",
           "materialize what the work needs before it is submitted");
    }
    recorder.flush(Recorder::Why::kAsked);
  }
  recorder.attach(&buffer);
}

namespace {

enum Deferring : int { kUnread = -1, kOff = 0, kOn = 1 };
constinit std::atomic<int> g_deferring{kUnread};

[[gnu::noinline]] int read_deferring() {
  const char* text = std::getenv("HOLOGRAM_EXECUTION");
  const int wish = text != nullptr && std::string_view(text) == "eager" ? kOff : kOn;
  int unread = kUnread;
  return g_deferring.compare_exchange_strong(unread, wish) ? wish : unread;
}

}  // namespace
}  // namespace internal

bool is_deferring() {
  const int now = internal::g_deferring.load(std::memory_order_relaxed);
  return (now != internal::kUnread ? now : internal::read_deferring()) == internal::kOn;
}

void set_deferring(bool deferring) {
  internal::g_deferring.store(deferring ? internal::kOn : internal::kOff);
  if (!deferring) internal::Recorder::flush_all();
}

void flush(Device& device) {
  if (internal::Recorder* recorder = internal::Recorder::find(device)) {
    recorder->flush(internal::Recorder::Why::kAsked);
  }
}

void mark_exported(Buffer& buffer) {
  internal::Recorder::of(buffer.device()).mark_exported(&buffer);
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
    recorder->flush(internal::Recorder::Why::kPassing);
  } catch (...) {
    return false;
  }
  return true;
}

}  // namespace hologram
