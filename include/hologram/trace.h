// SPDX-License-Identifier: MIT
// Watching circuits run: what was recorded, what it became, and how long each launch took.
//
// A device that is watched runs its plans launch by launch, so that any device can be timed by the
// clock of the host; results are the same. Unwatched, a circuit pays one relaxed load for all this.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hologram/api.h"
#include "hologram/buffer.h"
#include "hologram/device.h"
#include "hologram/dtype.h"

namespace hologram {

// One launch of a plan: kernels of one stage with equal programs, timed together. Each of them is
// bound to its memory and run.
struct LaunchInfo {
  std::string name;  // "mul_add_relu", see circuit::kernel_name
  int launch = 0;    // as in the plan
  int kernels = 0;
  int64_t bytes = 0;  // read and written
};

// What all circuits of one plan have in common.
struct CircuitShape {
  uint64_t id = 0;                   // unlike that of any other shape in the process
  std::string ops_json;              // circuit::tape_json
  std::string plan_json;             // circuit::plan_json
  std::string ops_text;              // circuit::print_tape
  std::string plan_text;             // circuit::print_plan
  std::vector<Dtype> number_dtypes;  // of the numbers beside the tape
  std::vector<uint8_t> slot_states;  // circuit::SlotState
  std::vector<LaunchInfo> launches;  // in the order in which they run
};

struct LaunchTime {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  bool first = false;  // the first run watched, which may include generating code
};

// Times are std::chrono::steady_clock's.
struct CircuitTrace {
  std::shared_ptr<const CircuitShape> shape;
  // Why it was run then: what CircuitCause names, else "flush", "size" (it had grown to a bound),
  // "memory" (some was asked for), "stream" (an event, a query, submitted work), "call" (before a
  // call, for the library's worker thread), "float mode" (the thread that called what came next
  // rounds, or treats denormal numbers, in another way) or "age" (it had waited for long when
  // the trace began).
  std::string cause;
  bool plan_hit = false;
  bool failed = false;   // a launch threw; those after it did not run
  uint64_t circuit = 0;  // ascending numbers of the device; 0: the replay of a graph
  uint64_t thread = 0;   // which ran it, as the operating system numbers it
  int64_t sealed_ns = 0;
  int64_t begin_ns = 0;  // planned, memory attached
  int64_t end_ns = 0;
  std::vector<LaunchTime> times;  // one for each of the shape's launches that ended
  // By slot: which buffer (its address, unique while it lives) and how long.
  std::vector<uint64_t> buffers;
  std::vector<uint64_t> buffer_bytes;
  std::vector<uint64_t> numbers;  // their bits, as in circuit::Tape
};

// Why an op ran at its call instead of being recorded.
enum class AtCall : uint8_t {
  kSmall,    // no operand is larger than immediate_bytes() says, and what it reads was there
  kElement,  // it read or wrote one element, which was there
  kShared,   // an operand is exported: other code may look at its memory at any time
  kValues,   // which elements it touches depends on values, so it looks at them
  kForm,     // no record takes such operands, as those of more than 8 dimensions
  kEager,    // execution is not deferred
  kNumpy,    // NumPy computed it, on our memory
};

// Ops of one name that ran at their calls for one reason.
struct CallNote {
  std::string op;  // "add", "x[i]", "np.sort"
  AtCall why = AtCall::kSmall;
  uint64_t buffer = 0;   // of kShared the exported one, as in CircuitTrace::buffers; else 0
  uint64_t circuit = 0;  // the one that was open then: CircuitTrace::circuit, if it ever had an op
  uint64_t count = 0;
};

// Begins to trace the circuits that the device runs from now on; any number of traces may be open.
// A trace holds some hundred bytes for each circuit. Meanwhile every op is recorded, unless
// `at_call`: then ops run at their calls as ever, and call_notes() tells of them. Returns the
// number of the trace.
HOLOGRAM_API uint64_t start_tracing(Device& device, bool at_call = false);
// The ops that ran at their calls since an open trace began, in the order in which the first of
// each kind did. Error(kInvalidArgument) as stop_tracing().
HOLOGRAM_API std::vector<CallNote> call_notes(uint64_t trace);
// Ends a trace: the circuits that ran, in order. What is recorded and has not run is not in it:
// flush() first. Error(kInvalidArgument) for a number that is not that of an open trace.
HOLOGRAM_API std::vector<std::shared_ptr<const CircuitTrace>> stop_tracing(uint64_t trace);

// A number beside a tape, as Python writes it: "0.5", "3", "nan", "True".
HOLOGRAM_API std::string number_text(Dtype dtype, uint64_t bits);

// A launch that is about to run. Pointers are valid until begin() returns.
struct Launch {
  const char* name = nullptr;  // as in LaunchInfo
  int kernels = 0;
  int64_t bytes = 0;     // read and written
  int64_t elements = 0;  // of the domains of its kernels; 0 for calls alone
  // What the first of its kernels reads and writes, as JSON:
  // {"reads": [["float32", [2, 3]]], "writes": [...]}; of what a call touches the bytes are known:
  // ["bytes", [24]].
  const char* operands = nullptr;
  int device = 0;               // index
  uint64_t circuit = 0;         // ascending numbers of the device; 0: the replay of a graph
  const char* cause = nullptr;  // as CircuitTrace::cause
  // What mark() returned for the ops that it runs, in the order in which they were recorded; of the
  // replay of a graph, what it returned at the call of replay(). Ops without a mark are left out.
  std::span<const uint64_t> marks;
};

// Called around every launch on the thread that runs it, whatever the device. The functions must
// not throw, and stay callable for the life of the process.
struct LaunchObserver {
  // Asked on the thread that seals a circuit and on the one that runs it; false on either: it runs
  // as if there were no observer.
  bool (*wanted)();
  // What it returns is given to end().
  void* (*begin)(const Launch& launch);
  void (*end)(void* token);
  // The library's worker thread runs circuits too. Where wanted() is true on the thread that seals
  // one, share() may return what is to be known of that thread; enter() is called with it where the
  // circuit runs, before wanted() is asked there, and leave(), which disposes of it, at the end.
  // All three or none.
  void* (*share)() = nullptr;
  void (*enter)(void* shared) = nullptr;
  void (*leave)(void* shared) = nullptr;
  // Where set_marking(true) was called: asked for each op on the thread that records it, before it
  // is recorded. May take any lock. 0: no mark.
  uint64_t (*mark)() = nullptr;
};
// One for the process; null for none.
HOLOGRAM_API void set_launch_observer(const LaunchObserver* observer);
// Whether the observer's mark() is asked for the ops recorded from now on.
HOLOGRAM_API void set_marking(bool marking);

namespace internal {
HOLOGRAM_API extern constinit std::atomic<uint32_t> g_traces;    // open ones
HOLOGRAM_API extern constinit std::atomic<uint32_t> g_watchers;  // traces and the observer
HOLOGRAM_API extern constinit std::atomic<uint32_t> g_noting;    // traces with notes of calls
HOLOGRAM_API const char* exchange_cause(const char* cause);
HOLOGRAM_API void note_at_call(Device& device, std::string_view op, AtCall why,
                               const Buffer* shared);
}  // namespace internal

// True while a trace wants to know of ops that run at their calls.
inline bool is_noting_calls() { return internal::g_noting.load(std::memory_order_relaxed) != 0; }
// Tells those traces of one. shared: the buffer for which it could not wait, of kShared.
inline void note_at_call(Device& device, std::string_view op, AtCall why,
                         const Buffer* shared = nullptr) {
  if (is_noting_calls()) [[unlikely]]
    internal::note_at_call(device, op, why, shared);
}

// Names what the calling thread is doing, for traces of circuits that it causes to run meanwhile:
// CircuitCause cause("aten::item"). The innermost counts. The text must live as long as this.
class CircuitCause {
 public:
  explicit CircuitCause(const char* cause)
      : named_(internal::g_traces.load(std::memory_order_relaxed) != 0),
        outer_(named_ ? internal::exchange_cause(cause) : nullptr) {}
  ~CircuitCause() {
    if (named_) internal::exchange_cause(outer_);
  }
  CircuitCause(const CircuitCause&) = delete;
  CircuitCause& operator=(const CircuitCause&) = delete;

 private:
  const bool named_;
  const char* const outer_;
};

}  // namespace hologram
