// SPDX-License-Identifier: MIT
// Recorders come and go with their devices; what concerns all of them, and what fork does.
#include <pthread.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <thread>

#include "hologram/memory.h"
#include "hologram/parallel.h"
#include "src/circuit/plan_cache.h"
#include "src/runtime/recorder.h"
#include "src/runtime/trace_hooks.h"
#include "src/runtime/worker_scope.h"

namespace hologram::internal {

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
  if (remembers_sites()) open_->attention |= OpenCircuit::kSites;
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

// Gives up the circuit's references.
void Recorder::drop(OpenCircuit& circuit) {
  for (const OpenCircuit::Slot& slot : circuit.slots) slot.buffer->release();
  circuit.slots.clear();
}

}  // namespace hologram::internal
