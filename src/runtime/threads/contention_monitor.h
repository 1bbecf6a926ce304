// SPDX-License-Identifier: MIT
// Decides from measured delays whether asking workers pays on the machine as it is now.
#pragma once

#include <atomic>
#include <cstdint>

namespace hologram::internal {

int64_t now_ns();

// Remembers how late workers were. On a machine busy with others' work a claimed tile waits for a
// time slice, milliseconds, so after such a wait workers are left alone for a period that makes the
// loss a small fraction, doubling while it keeps happening and shrinking while it does not.
class ContentionMonitor {
 public:
  // Whether a worker asked now is expected to help. Also looks, now and then, at how long this
  // thread itself had to wait for a processor.
  bool workers_help(int64_t now);
  // The same from the delays reported so far, without a look at this thread's own waiting. Also
  // holds where threads of this process wait for each other.
  bool is_rested(int64_t now) const { return now >= rest_until_.load(std::memory_order_relaxed); }
  // A job ended whose caller waited `wait` ns for workers where `fair` ns were to be expected.
  // Returns whether that counts as late.
  bool job_ended(int64_t now, int64_t wait, int64_t fair);
  // A sleeping worker began this long after it was called.
  void worker_woke(int64_t now, int64_t latency);

  double wake_latency_ns() const { return wake_latency_.load(std::memory_order_relaxed); }
  // Whether nothing was learnt for so long that a test call is due; claims the right to make it.
  bool claim_test_call(int64_t now);

 private:
  void rest(int64_t now, int64_t at_least);
  void look_at_own_waiting(int64_t now);

  std::atomic<int64_t> rest_until_{0};
  std::atomic<int64_t> rest_length_{0};
  std::atomic<int64_t> last_news_{0};
  std::atomic<double> wake_latency_{0};
};

}  // namespace hologram::internal
