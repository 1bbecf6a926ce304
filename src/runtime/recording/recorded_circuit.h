// SPDX-License-Identifier: MIT
// One circuit as it is recorded and waits to run, and its bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hologram/buffer.h"
#include "src/circuit/tape.h"
#include "src/runtime/memory/buffer_access.h"

namespace hologram::internal {

// What Buffer::recorded_ holds below the epoch.
inline constexpr int kSlotShift = 4;
inline constexpr uint64_t kSlotMask = 0xffff;
inline constexpr uint64_t kNoSlot =
    kSlotMask;  // the circuit is done: the recorder has no reference
inline constexpr uint64_t kFlagsMask = 0xf;
inline constexpr uint64_t kExported = 1;  // foreign code has an address in it, see exports_
inline constexpr uint32_t kForever = std::numeric_limits<uint32_t>::max();  // of exports
inline constexpr uint64_t kWritten = 2;  // an op that writes it was recorded
// 4: Buffer::kWrittenByRecorded.
inline constexpr uint64_t kPlaceholder = 8;  // stands for a value of a Circuit, never has memory

// Whether the recorder holds a reference to the buffer whose word that is.
inline bool is_named(uint64_t word) {
  return word >> Buffer::kRecordedEpochShift != 0 && (word >> kSlotShift & kSlotMask) != kNoSlot;
}
// Whether ops of the device may name it.
inline bool may_be_recorded(Buffer& buffer, const Device& device) {
  const uint64_t word = BufferAccess::recorded(&buffer).load(std::memory_order_relaxed);
  return (word & kExported) == 0 && &buffer.device() == &device;
}

// When a circuit is run though no thread asked for it.
//
// Ops: more of them fuse no better, while a plan is made, hashed and compared in time that grows
// with their number. With short loops that takes longer than running them, and where the program
// goes on differently each time, it is all that its first run does. So an op has a weight, which is
// larger where it computes less, and the bound is on the sum. Ops on lists are the exception: an
// optimizer's ops on all parameters, one op after the other, fuse parameter by parameter, so such
// an op counts as one, as far as there is room. Kept bytes: memory that programs have given up and
// only the circuit holds is memory in flight that eager execution would not have; a little of it is
// the price of waiting. Unbacked bytes: results that may want memory all at once when the circuit
// runs. Those that programs have given up share memory, where they need any, and do not count.
// The same bounds on bytes hold once more for all circuits that are sealed and wait.
struct CircuitBounds {
  static constexpr int kMaxWeight = 1024;
  static constexpr int kSmallWeight = 4;  // of an op whose loop is short, and of most calls
  static constexpr int kMaxSmallOps = kMaxWeight / kSmallWeight;
  static constexpr int kMaxOpsOfLists = 16 * kMaxWeight;  // all ops of a circuit with lists
  static constexpr int kSlotsOfLists = 0x8000;            // with more, lists count as any ops
  // Kept bytes are counted again after kLookEvery records, or after slots / kLookShare records
  // where that is more.
  static constexpr int kLookEvery = 32;
  static constexpr int kLookShare = 16;
  static constexpr size_t kKeptFloor = size_t{64} << 20;
  static constexpr size_t kKeptShare = 64;     // divides the memory limit
  static constexpr size_t kUnbackedShare = 4;  // divides the memory limit
  // Divides the bound: by how much unbacked bytes grow at least from one count of them to the next.
  static constexpr size_t kCountShare = 16;
  // Nanoseconds of calls with which a circuit is not kept open for another call: the next one, with
  // the work after it, is a circuit of its own. Depends on nothing but what was recorded, so that
  // equal programs are cut equally and find their plans.
  static constexpr double kHandOverCost = 5000;
  static constexpr int kMaxQueued = 32;  // circuits

  // The weight of an op, from the number of elements that it computes.
  static constexpr int weight(int64_t elements) {
    return elements < int64_t{1} << 12 ? kSmallWeight : elements < int64_t{1} << 14 ? 2 : 1;
  }
};

// Why a circuit was sealed and run.
enum class Why : uint8_t {
  kAsked,    // errors go to the caller
  kPassing,  // errors of running are kept on the default stream; those of preparing are thrown
  kBounds,   // errors as with kPassing: the circuit had grown to its bounds
  kMemory,   // as kPassing, but gives up where it would wait for a thread that waits for this one
  kCall,     // its calls are worth the worker's while
  kMode,     // what comes next is called by a thread that rounds in another way
  kAge,      // no thread recorded or asked for a while
};

// Someone wants to see every op: a trace, a capture, a check. Until that ends none runs at its
// call. Any number may want it at a time. kSeesAll is what each takes off g_immediate_bytes.
inline constexpr int64_t kSeesAll = int64_t{1} << 41;
void see_all(bool sees);

struct PlannedCircuit;

// A circuit being recorded, or sealed and not yet run. Who has it guards it: see OpenCircuit,
// CircuitQueue and CircuitRunner.
struct RecordedCircuit {
  struct Slot {
    Buffer* buffer;  // one reference is ours, or that of a later circuit which names it too
    bool fresh;      // deferred, and nothing can have written to it before this circuit
  };
  // What the thread that records next has to see to first.
  enum Attention : uint8_t {
    kFull = 1,    // the bounds are reached
    kParted = 2,  // the worker left buffers that it must not release
    kWake = 4,    // the worker has stopped looking at how old circuits are
    kSites = 8,   // lines or marks are remembered, see set_record_site and set_marking
  };
  uint64_t epoch = 0;
  uint32_t float_mode = 0;  // of the threads that called its ops, each when it did
  circuit::Tape tape;
  std::vector<Slot> slots;
  size_t backed_bytes = 0;    // in memory of the slots, or promised it by earlier circuits
  size_t unbacked_bytes = 0;  // of the other slots; once sealed, of those of them that are live
  size_t dead_bytes = 0;      // once sealed: of the others
  int weight = 0;             // of its ops
  int weightless = 0;         // the number of ops to come, of a list, that have no weight
  int next_look = 0;          // the number of records at which kept bytes are counted
  size_t kept_limit = 0;
  size_t unbacked_limit = 0;
  size_t next_count = 0;  // the unbacked bytes at which those that are live are counted
  double call_cost = 0;   // of its calls, nanoseconds on one thread
  uint8_t attention = 0;
  std::vector<std::string> sites;  // of the records, where lines are remembered
  std::vector<uint64_t> marks;     // of the records, where those are
  // Then the tape is one record, whose numbers are those of the plan, and the slots are the
  // buffers that a run has of its own. Such a circuit is sealed before the record lock is let go:
  // no thread ever finds it open.
  std::shared_ptr<PlannedCircuit> planned;

  // From sealing on.
  std::vector<uint64_t> states;  // SlotState bytes, padded with zeros
  size_t kept_bytes = 0;
  int threads = 1;  // num_threads() of the thread that sealed it
  Why why = Why::kAsked;
  const char* cause = nullptr;  // for traces
  int64_t sealed_ns = 0;        // 0: no trace was on
  void* observed = nullptr;     // LaunchObserver::share
  // The worker could not run it: there was no memory, or it did run and there is an error.
  bool stalled = false;
  std::exception_ptr error;
  std::unique_ptr<RecordedCircuit> next;
};

// By slot.
inline std::span<const uint8_t> state_bytes(const RecordedCircuit& circuit) {
  return {reinterpret_cast<const uint8_t*>(circuit.states.data()), circuit.slots.size()};
}

}  // namespace hologram::internal
