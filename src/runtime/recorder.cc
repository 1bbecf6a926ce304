// SPDX-License-Identifier: MIT
// Finds or makes the plans of sealed circuits, gives results memory and runs them; what waits for a
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
#include "src/runtime/capture.h"
#include "src/runtime/circuit_check.h"
#include "src/runtime/linear_pool.h"
#include "src/runtime/trace_hooks.h"

namespace hologram {
namespace internal {

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

}  // namespace

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
    if (slot.buffer->use_count() == 1 && !slot.fresh) kept += slot.buffer->nbytes();
  }
  return kept > open_->kept_limit;
}

// With the record lock held, of a circuit that wanted too much memory: what nobody can see by now
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
// not enough, or it failed and `keeps` says that its error is for whoever asks next. An error that
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

// With the run lock held: everything that can fail for want of memory. Sets plan_ at its end.
void Recorder::prepare() {
  OpenCircuit& circuit = *running_;
  const size_t count = circuit.slots.size();
  const std::vector<uint64_t>& states = circuit.states;
  const bool default_mode = circuit.float_mode == kDefaultFloatMode;
  const circuit::PlanCache::Key key{&device_, circuit.tape.words(), states, default_mode};
  const uint64_t hash = key.hash();
  circuit::PlanCache& cache = circuit::plan_cache();
  std::shared_ptr<circuit::Plan> plan = cache.find(key, hash);
  plan_hit_ = plan != nullptr;
  if (plan_hit_) {
    counts_.hits.fetch_add(1, std::memory_order_relaxed);
  } else {
    const circuit::PlanOptions options{.float_laws = default_mode};
    plan = cache.insert(key, hash, circuit::make_plan(key.words, state_bytes(circuit), options));
    counts_.misses.fetch_add(1, std::memory_order_relaxed);
  }
  for (const uint32_t s : plan->attach) {
    attaching_ = s;
    attach(circuit.slots[s].buffer);
  }
  attaching_ = kNoSlot;
  bound_.resize(count);
  for (size_t s = 0; s < count; ++s) {
    bound_[s] = static_cast<char*>(circuit.slots[s].buffer->data());
  }
  plan_ = std::move(plan);
}

void Recorder::run_prepared() {
  const circuit::PlanStats& stats = plan_->stats;
  counts_.circuits.fetch_add(1, std::memory_order_relaxed);
  counts_.kernels.fetch_add(static_cast<uint64_t>(stats.kernels), std::memory_order_relaxed);
  counts_.moved.fetch_add(static_cast<uint64_t>(stats.bytes_moved), std::memory_order_relaxed);
  counts_.unfused.fetch_add(static_cast<uint64_t>(stats.bytes_unfused), std::memory_order_relaxed);
  ++plan_->runs;
  if (running_->sealed_ns != 0 && run_watched()) [[unlikely]]
    return;
  if (plan_->kernels.empty()) return;
  device_.run_plan(*plan_, {bound_.data(), running_->tape.immediates().data()}, 0);
}

void Recorder::run_checked() {
  if (!device_.is_host_memory()) return run_prepared();
  const OpenCircuit& circuit = *running_;
  std::vector<size_t> sizes;
  for (const OpenCircuit::Slot& slot : circuit.slots) sizes.push_back(slot.buffer->nbytes());
  const CircuitCheck check(device_, circuit.tape.words(), state_bytes(circuit), std::move(sizes),
                           bound_, circuit.tape.immediates().data());
  run_prepared();
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

void materialize_slowly(Buffer& buffer) {
  if ((BufferAccess::recorded(&buffer).load(std::memory_order_relaxed) & kPlaceholder) != 0) {
    fail(ErrorKind::kState, "materialize: this tensor of ", buffer.nbytes(),
         " bytes stands for a value of a Circuit, which is known only when the circuit runs; "
         "make it an output and look at what run() returns");
  }
  Recorder& recorder = Recorder::of(buffer.device());
  const uint64_t epoch = buffer.recorded_epoch();
  if (epoch > buffer.device().done_epoch()) {
    if (recorder.runs_here()) {
      fail(ErrorKind::kState,
           "materialize: called by work that the device is running, on a buffer of ",
           buffer.nbytes(), " bytes that waits for this work or for later work; ",
           "materialize what the work needs before it is submitted");
    }
    recorder.flush_until(epoch, Why::kAsked);
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
  if (internal::capturing() != nullptr) [[unlikely]]
    return true;
  const int now = internal::g_deferring.load(std::memory_order_relaxed);
  return (now != internal::kUnread ? now : internal::read_deferring()) == internal::kOn;
}

void set_deferring(bool deferring) {
  internal::g_deferring.store(deferring ? internal::kOn : internal::kOff);
  if (!deferring) internal::Recorder::flush_all();
}

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

}  // namespace hologram
