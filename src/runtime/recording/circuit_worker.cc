// SPDX-License-Identifier: MIT
// The thread that runs a device's sealed circuits while the program goes on.
#include "src/runtime/recording/circuit_worker.h"

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "src/runtime/memory/idle_trim.h"
#include "src/runtime/recording/recorder.h"
#include "src/runtime/threads/futex.h"
#include "src/runtime/threads/processors.h"
#include "src/runtime/threads/spin.h"
#include "src/runtime/threads/worker_scope.h"

namespace hologram::internal {
namespace {

// The time without anything recorded after which it waits to be called. It is read from the clock,
// as looks come late on a loaded machine.
constexpr int64_t kQuiet = 1'000'000'000;

// The worker that gives idle memory back, while it sleeps until the pools are used again.
constinit std::atomic<CircuitWorker*> g_trimmer{nullptr};

void call_trimmer() {
  if (CircuitWorker* worker = g_trimmer.exchange(nullptr)) worker->call();
}

constexpr int kUnread = -1;
constinit std::atomic<int> g_on{kUnread};

int read_setting() {
  const char* text = std::getenv("HOLOGRAM_WORKER");
  const int wish = processors() > 1 && (text == nullptr || std::string_view(text) != "0");
  int unread = kUnread;
  return g_on.compare_exchange_strong(unread, wish) ? wish : unread;
}

}  // namespace

void set_circuit_worker(bool on) {
  g_on.store(on);
  on ? Recorder::call_attention(RecordedCircuit::kWake, true) : Recorder::flush_all();
}

bool has_circuit_worker() {
  const int on = g_on.load(std::memory_order_relaxed);
  return (on != kUnread ? on : read_setting()) == 1;
}

bool CircuitWorker::exists() const {
  return has_circuit_worker() && state_.load(std::memory_order_relaxed) != kStopped;
}

bool CircuitWorker::is_quick() { return !does_team_spin(now_ns()); }

void CircuitWorker::call() {
  switch (state_.load(std::memory_order_acquire)) {
    case kNone:
      start();
      break;
    case kStopped:
      return;
    default:
      break;
  }
  caller_processor_.store(this_processor(), std::memory_order_relaxed);
  calls_.fetch_add(1, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst) == 0) return;
  if (sleeping_.exchange(0) == 0) return;
  place_.send_elsewhere();
  futex_wake(sleeping_, 1);
}

void CircuitWorker::start() {
  int none = kNone;
  if (!state_.compare_exchange_strong(none, kStarting)) return;
  Recorder::stop_workers_at_exit();
  // Signals are for the threads the program knows of.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const bool started = pthread_create(&thread_, nullptr, &main, this) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  state_.store(started ? kStarted : kStopped, std::memory_order_release);
}

void CircuitWorker::forget_thread() {
  stop_trimming();
  if (state_.load() != kStopped) state_.store(kNone);
  running_.store(false);
  sleeping_.store(0);
}

void CircuitWorker::stop(bool join) {
  stop_trimming();
  const int before = state_.exchange(kStopped);
  if (before != kStarted) return;
  calls_.fetch_add(1, std::memory_order_seq_cst);
  sleeping_.store(0);
  futex_wake(sleeping_, 1);
  join ? pthread_join(thread_, nullptr) : pthread_detach(thread_);
}

void* CircuitWorker::main(void* self) {
  pthread_setname_np(pthread_self(), "hologram-worker");
  static_cast<CircuitWorker*>(self)->loop();
  return nullptr;
}

void CircuitWorker::loop() {
  place_.enter(1);
  is_looking_ = true;
  busy_at_ = now_ns();
  bool due = false;
  while (state_.load(std::memory_order_acquire) != kStopped) {
    running_.store(true, std::memory_order_relaxed);
    uint32_t seen = calls_.load(std::memory_order_seq_cst);
    while ((due || is_quick()) && recorder_.work()) seen = calls_.load(std::memory_order_seq_cst);
    running_.store(false, std::memory_order_relaxed);

    due =
        !spin_until([&] { return calls_.load(std::memory_order_acquire) != seen; }) && sleep(seen);
    if (!due) place_.leave(caller_processor_.load(std::memory_order_relaxed));
  }
  stop_trimming();
}

int64_t CircuitWorker::time_to_trim() {
  if (const int64_t left = time_until_trim(); left != 0) return left;
  CircuitWorker* none = nullptr;
  if (!g_trimmer.compare_exchange_strong(none, this)) return 0;  // another worker does it
  if (call_at_next_use(&call_trimmer)) return 0;
  stop_trimming();
  return time_until_trim();
}

void CircuitWorker::stop_trimming() {
  CircuitWorker* self = this;
  g_trimmer.compare_exchange_strong(self, nullptr);
}

bool CircuitWorker::sleep(uint32_t seen) {
  bool due = false;
  while (!due) {
    sleeping_.store(1, std::memory_order_seq_cst);
    if (calls_.load(std::memory_order_seq_cst) == seen) {
      futex_wait(sleeping_, 1, is_looking_ ? kLookEvery : time_to_trim());
    }
    const bool woken = sleeping_.exchange(0, std::memory_order_seq_cst) == 0;
    if (woken || calls_.load(std::memory_order_seq_cst) != seen) {
      is_looking_ = true;
      busy_at_ = now_ns();
      break;
    }
    if (!is_looking_) {
      trim_if_idle();
      continue;
    }
    const Recorder::Look look = recorder_.look_at_age();
    due = look == Recorder::Look::kDue;
    const int64_t now = now_ns();
    if (look != Recorder::Look::kQuiet) busy_at_ = now;
    if (now - busy_at_ < kQuiet) continue;
    is_looking_ = !recorder_.stop_looking();
    if (is_looking_) busy_at_ = now;
  }
  return due;
}

}  // namespace hologram::internal
