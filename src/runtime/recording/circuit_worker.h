// SPDX-License-Identifier: MIT
// The thread that runs a device's sealed circuits while the program goes on.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "src/runtime/threads/placement.h"

namespace hologram::internal {

class Recorder;

// Looks for circuits when called, and a few dozen times a second at how old the open one is, until
// nothing has been recorded for a while. Then it gives memory that is idle back to the system,
// once, and sleeps until it is called. Starts when first called. In a forked child, which does not
// have the thread, it starts again.
class CircuitWorker {
 public:
  // How often it looks: a circuit that no thread asks for waits once to twice as long.
  static constexpr int64_t kLookEvery = 25'000'000;

  explicit CircuitWorker(Recorder& recorder) : recorder_(recorder) {}
  ~CircuitWorker() { stop(/*join=*/true); }
  CircuitWorker(const CircuitWorker&) = delete;
  CircuitWorker& operator=(const CircuitWorker&) = delete;

  // Whether this process has a worker: not where HOLOGRAM_WORKER=0, not with one processor, and not
  // when the process ends.
  bool exists() const;
  // Whether it would begin soon if it were called: not while threads that another runtime lent
  // spin, and keep the processors busy.
  bool is_quick();
  // There is work. Never blocks.
  void call();
  // Whether it is running circuits one after another.
  bool is_running() const { return running_.load(std::memory_order_relaxed); }

  void stop(bool join);
  void forget_thread();  // in a forked child

 private:
  enum State : int { kNone, kStarting, kStarted, kStopped };

  static void* main(void* self);
  void loop();
  void start();
  // Waits until called; true where it found work itself.
  bool sleep(uint32_t seen);
  // How long it sleeps when nothing is recorded any more: until idle memory is to be given back,
  // and after that until it is called (0), which the next use of the pools does, too.
  int64_t time_to_trim();
  void stop_trimming();

  Recorder& recorder_;
  std::atomic<int> state_{kNone};
  std::atomic<bool> running_{false};
  pthread_t thread_{};
  ThreadPlace place_;
  std::atomic<int> caller_processor_{-1};
  bool is_looking_ = true;  // at the age of the open circuit
  int64_t busy_at_ = 0;     // when it last found something recorded
  alignas(64) std::atomic<uint32_t> calls_{0};
  std::atomic<uint32_t> sleeping_{0};
};

// For tests, which want circuits to run when they say so. Switched off it finishes what it does.
void set_circuit_worker(bool on);
bool has_circuit_worker();

}  // namespace hologram::internal
