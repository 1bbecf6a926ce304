// SPDX-License-Identifier: MIT
// Recording: ops that wait until their results are needed, and what makes them run.
//
// Where execution is deferred, an op on a device's buffers is appended to that device's open
// circuit instead of running. The circuit is sealed, planned (or its plan found) and run when
// bytes are needed: flush, materialize, Device::synchronize. Circuits that cost enough, and those
// that no thread asks for in a while, run on a worker thread while the program goes on
// (HOLOGRAM_WORKER=0: none). All threads record into one order per device, the order in which they
// called; results are those of running each op at its call. That includes how the calling thread
// rounds and whether it treats denormal numbers as zero: ops of one circuit agree in it, so a
// thread that calls in another mode ends the open circuit, and the thread that runs a circuit
// does so in its mode.
//
// Ownership: the recorder holds a reference to every buffer of the circuits that did not run yet. A
// buffer that only the recorder still holds when the circuit is sealed is dead: its contents are
// written only where another kernel needs them. Recording waits for running work only where too
// much is under way; running never takes a lock that a deleter needs, and the worker never runs
// deleters of foreign memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hologram/api.h"
#include "hologram/buffer.h"
#include "hologram/call.h"
#include "hologram/device.h"
#include "hologram/op.h"
#include "hologram/reduction.h"

namespace hologram {

// A buffer without memory yet: it gets some when the first circuit that writes it runs, or when
// materialize() is called. Costs no more than a header. data() is null until then. Throws
// Error(kOutOfMemory) where no machine or limit could ever hold that much.
HOLOGRAM_API Buffer* allocate_deferred(Device& device, size_t nbytes);

// Whether this process defers. Off: the record functions return false and the caller runs the op.
// HOLOGRAM_EXECUTION ("deferred", the default, or "eager") sets the first value. For debugging,
// HOLOGRAM_RECORDER_CHECK=1 runs every circuit op by op as well, on copies, and raises
// Error(kInternal) where a single bit differs, or where a call is not what its schema says.
HOLOGRAM_API bool is_deferring();
// Runs what is recorded when it turns deferring off. Devices whose memory the host cannot touch
// record in any case, and run each op at its call instead.
HOLOGRAM_API void set_deferring(bool deferring);
// Whether ops on the device's buffers are for the record functions.
inline bool is_recording(const Device& device) {
  return is_deferring() || !device.is_host_memory();
}

// An operand of a record. Exactly one of: memory (buffer set), a number (buffer null).
struct RecordOperand {
  Buffer* buffer = nullptr;
  int64_t offset = 0;             // bytes from the buffer's start to the first element
  Dtype dtype = Dtype::kFloat32;  // as stored; of a number the type computed in
  bool one = false;               // memory of one element that is repeated
  uint64_t bits = 0;  // a number: its bytes in `dtype`, bool and integers widened to int64
};

// Each returns false, with nothing recorded, where the device does not defer or the case is one it
// does not take (more than 8 dimensions after merging, complex dtypes, exported buffers): the
// caller then runs the op at once, after materialize() of every buffer it touches.
//
// operands[0] is the result. What the op's immediate counterpart would refuse must be refused
// before. No elements: true, and nothing is recorded.
//
// When the circuit has grown to its bounds it is run, or left to the worker, before the op is
// recorded. If there is no memory for that, Error(kOutOfMemory) is thrown and the op is not
// recorded; other errors of that run are kept for the next Device::synchronize.

// out[i] = op(in...[i]) for n contiguous elements of each operand. Operands whose dtype is not
// `compute` are converted as elementwise() does.
HOLOGRAM_API bool record_flat(OpId op, Dtype compute, const RecordOperand* operands, int arity,
                              int64_t n);
// Strided: strides[k] has ndim steps in elements for operand k (0 where it is repeated).
HOLOGRAM_API bool record_strided(OpId op, Dtype compute, const RecordOperand* operands, int arity,
                                 int ndim, const int64_t* shape, const int64_t* const* strides);
// out = in, converted. A number as `in` fills.
HOLOGRAM_API bool record_copy(const RecordOperand& out, const RecordOperand& in, int ndim,
                              const int64_t* shape, const int64_t* out_strides,
                              const int64_t* in_strides);
// out = in for n contiguous elements of each, converted.
HOLOGRAM_API bool record_flat_copy(const RecordOperand& out, const RecordOperand& in, int64_t n);
// out[r] = op over in[r][0..cols), rows contiguous and one after another in `in`, results
// contiguous. in is converted to out's dtype first for sum, mean, prod, norm, var and std, as
// reduce() does. False for rows longer than a block holds.
HOLOGRAM_API bool record_reduction(Reduction op, const RecordOperand& out, const RecordOperand& in,
                                   int64_t rows, int64_t cols, double parameter = 0);
// Softmax and its relatives along contiguous rows; `which` as in circuit::RowOp.
HOLOGRAM_API bool record_rows(int which, const RecordOperand* operands, int arity, int64_t rows,
                              int64_t cols);

// Says that the next `count` records of this thread on the device are one op on the members of a
// list, as PyTorch's _foreach_ ops are: op after op on the same list fuses member by member if all
// are in one circuit, so such an op counts as one towards the bound on the ops of a circuit. Only a
// hint: fewer records may follow, and the bounds on memory hold. Throws Error(kOutOfMemory) as the
// record functions do, where the open circuit is full.
HOLOGRAM_API void expect_list(Device& device, size_t count);

// A buffer as a call sees it: bytes that it may touch.
struct CallOperand {
  Buffer* buffer = nullptr;  // null: an operand that is not there
  int64_t offset = 0;        // bytes from the buffer's start to the lowest byte touched
  int64_t bytes = 0;         // extent: the call touches nothing outside [offset, offset + bytes)
  bool reads = false;
  bool writes = false;
  bool covers = false;  // writes every byte of the extent whatever it held before
};

// Records a call of a kind (see call.h). It is ordered with everything else by the bytes that its
// operands name, which may overlap or be the same; it is never taken apart or joined with another,
// and dead if all it writes is dead. Any number of operands; those without bytes count as not
// there.
//
// Equal attributes must mean equal work on operands of equal extents. cost: rough nanoseconds on
// one thread, from which the recorder decides where to cut the circuit.
//
// Returns false, with nothing recorded, where the device does not defer, an operand is exported or
// on another device, or none has bytes. What the op's immediate counterpart would refuse must be
// refused before. Error(kInvalidArgument) for a kind that is not registered and for extents beyond
// their buffers; else throws as the other record functions do.
HOLOGRAM_API bool record_call(uint16_t kind, std::span<const CallOperand> operands,
                              std::span<const uint64_t> attributes,
                              std::span<const uint64_t> numbers, double cost);

// Runs everything recorded on the device, or waits until it has run. Throws what running threw, the
// worker's runs included, once: the circuit counts as done then. A circuit whose memory could not
// be had stays recorded, so that the call can be repeated. Called by work that the device is
// running (on that thread) it returns at once.
HOLOGRAM_API void flush(Device& device);

// For errors that show only when a circuit runs. With HOLOGRAM_RECORD_LINES=1 each record remembers
// what `site` returns on the thread that records ("model.py:12"; nothing where that is not known),
// and errors say it. `site` may be slow and may take any lock. Null for none.
HOLOGRAM_API void set_record_site(std::string (*site)());

namespace internal {
HOLOGRAM_API void materialize_slowly(Buffer& buffer);
}  // namespace internal

// Whether recorded work that has not run yet reads or writes the buffer, or it has no memory yet.
inline bool is_pending(const Buffer& buffer) {
  return buffer.recorded_epoch() > buffer.device().done_epoch() ||
         (buffer.data() == nullptr && buffer.nbytes() != 0);
}
// A buffer is settled if nothing recorded touches it, as far as the program has observed (see
// Device::observed_epoch()), and it has memory.
inline bool is_settled(const Buffer& buffer) {
  return buffer.recorded_epoch() <= buffer.device().observed_epoch() &&
         (buffer.data() != nullptr || buffer.nbytes() == 0);
}
// After it the buffer is settled: the caller may read and write. Cheap where that is so already.
// Throws as flush() and allocate_buffer() do.
inline void materialize(Buffer& buffer) {
  if (!is_settled(buffer)) [[unlikely]]
    internal::materialize_slowly(buffer);
}

// Whether the buffer has memory that no recorded work still has to write: the caller may read it
// now. Recorded work may read it as well.
inline bool is_readable(const Buffer& buffer) {
  return !is_pending(buffer) || (!buffer.is_written_by_recorded() && buffer.data() != nullptr);
}

// Ops on small tensors run at their call instead of being recorded, where their operands are
// settled (or only read by what is recorded) and their result is: a circuit would take longer than
// the op. This is how many bytes an operand of such an op has at most (HOLOGRAM_IMMEDIATE_BYTES,
// 4096; 0: none); what makes one element, such as a sum or a dot product, reads up to eight times
// as much. Bits are the same either way. Functions on tensors ask for it, record functions do not.
HOLOGRAM_API int64_t immediate_bytes();
// Error(kInvalidArgument) below 0.
HOLOGRAM_API void set_immediate_bytes(int64_t bytes);
namespace internal {
// The bound; below 0 where a trace, a capture or a check wants to see every op.
HOLOGRAM_API extern std::atomic<int64_t> g_immediate_bytes;
}  // namespace internal
// An op whose largest operand has that many bytes may run at its call, if its operands allow it.
inline bool is_immediate(int64_t bytes) {
  return bytes <= internal::g_immediate_bytes.load(std::memory_order_relaxed);
}
// An op at its call may read a buffer of host memory whose contents are there.
inline bool is_readable_at_call(const Buffer& buffer) {
  return buffer.data() != nullptr &&
         (buffer.recorded_epoch() <= buffer.device().observed_epoch() ||
          !buffer.is_written_by_recorded()) &&
         buffer.device().is_host_memory();
}
// It may write a buffer that nothing recorded touches, after materialize() where that has no
// memory.
inline bool is_writable_at_call(const Buffer& buffer) {
  return (is_settled(buffer) || buffer.is_untouched()) && buffer.device().is_host_memory();
}

// Foreign code gets an address in this buffer: ops on it are not recorded while it has that. Any
// thread.
HOLOGRAM_API void mark_exported(Buffer& buffer);
// Ends one mark: that foreign code will not use its address again. Where it was the last, ops on
// the buffer are recorded as before. A buffer without marks, or with 2^32 - 1, stays as it is. Any
// thread.
HOLOGRAM_API void unmark_exported(Buffer& buffer) noexcept;
// A mark that ends with this object, which keeps the buffer alive. Movable.
class ExportMark {
 public:
  ExportMark() = default;
  // Marks `buffer`, where it is not null.
  explicit ExportMark(BufferRef buffer) : buffer_(std::move(buffer)) {
    if (buffer_) mark_exported(*buffer_);
  }
  ExportMark(ExportMark&& other) noexcept = default;
  ExportMark& operator=(ExportMark&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~ExportMark() {
    if (buffer_) unmark_exported(*buffer_);
  }

 private:
  BufferRef buffer_;
};

// What is recorded on a device while the graph is captured, as one plan that is run again and again
// on the same buffers: with no recording, no planning and no look at the ops one by one.
//
// From begin() to end() nothing runs on the device: what any thread records there belongs to the
// graph, and no bytes may be looked at. Buffers that had memory before are read and written as they
// are at each replay; the graph keeps them. Those made meanwhile and still held by others at
// prepare() get memory of their own, which every replay writes; all others share memory that the
// graph keeps. The ops round, and treat denormal numbers, as the thread that called begin().
class HOLOGRAM_API DeviceGraph {
 public:
  explicit DeviceGraph(Device& device);
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  // Runs what was recorded before. Error(kState) while a graph of this process is captured, where
  // this one holds what it captured before reset(), or where the device runs no plans.
  void begin();
  // Error(kState) where it is not being captured.
  void end();
  // Plans what was captured, and allocates. replay() calls it where that was not done.
  // Error(kState) before end(), Error(kInvalidArgument) where the graph writes memory that two of
  // its buffers share.
  void prepare();
  // Runs what other threads and this one recorded before, then the graph, and returns when it has
  // run; one replay at a time. Error(kState) while a graph is captured.
  void replay();
  // Forgets what was captured, and ends the capture where that goes on. Buffers that other code
  // holds keep their memory.
  void reset() noexcept;

  bool is_capturing() const;
  bool is_captured() const;  // end() was called
  // The numbers of the ops in the order in which they were recorded, each in the bytes that its
  // record has: the next replay() takes them from here.
  std::vector<uint64_t>& numbers();

  struct Stats {
    int ops = 0;  // known after end(); what follows, after prepare()
    int kernels = 0;
    int64_t bytes_moved = 0;   // by a replay
    int64_t bytes_kept = 0;    // of memory for what is not seen outside
    int64_t bytes_wanted = 0;  // of the values there, of which many share memory
  };
  Stats stats() const;
  // For people: the ops as captured, and the kernels once it is prepared.
  std::string print() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

namespace internal {
HOLOGRAM_API extern std::atomic<int> g_graph_captures;  // graphs and functions
HOLOGRAM_API bool captures_graph_here();
HOLOGRAM_API bool captures_function_here();
}  // namespace internal
// Whether what this thread records now is part of a graph or a function: then no bytes on its
// device may be looked at.
inline bool is_capturing_graph() {
  return internal::g_graph_captures.load(std::memory_order_relaxed) != 0 &&
         internal::captures_graph_here();
}
// Whether it is part of a DeviceFunction.
inline bool is_capturing_function() {
  return internal::g_graph_captures.load(std::memory_order_relaxed) != 0 &&
         internal::captures_function_here();
}

// Whether a DeviceGraph or a DeviceFunction that was captured reads or writes the buffer's memory
// when it runs. Any thread.
HOLOGRAM_API bool is_captured(const Buffer& buffer);

struct RecorderStats {
  uint64_t ops_recorded = 0;
  uint64_t circuits = 0;  // sealed and run
  uint64_t kernels = 0;   // bound and run, equal ones each
  uint64_t plan_hits = 0;
  uint64_t plan_misses = 0;
  uint64_t plans = 0;          // cached now
  uint64_t bytes_moved = 0;    // by kernels
  uint64_t bytes_unfused = 0;  // what the ops one by one would have moved
  uint64_t host_kernels = 0;   // of `kernels`: those the host ran, for want of one on the device
  uint64_t host_bytes = 0;     // copied to the host and back for them
};
HOLOGRAM_API RecorderStats recorder_stats(Device& device);
HOLOGRAM_API void reset_recorder_stats(Device& device);

}  // namespace hologram
