// SPDX-License-Identifier: MIT
// Circuits made by hand: record ops once, look at what they become, run them on other tensors; and
// functions, which are the same on buffers.
//
//   Circuit circuit(device);
//   Tensor a = circuit.input({1024}, Dtype::kFloat32), b = circuit.input({1024}, Dtype::kFloat32);
//   circuit.record([&] { circuit.output(relu(add(mul(a, b), a))); });
//   circuit.compile();
//   std::cout << circuit.print();
//   Tensor y = circuit.run({x0, x1})[0];
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hologram/api.h"
#include "hologram/buffer.h"
#include "hologram/device.h"
#include "hologram/tensor.h"

namespace hologram {

struct CircuitStats {
  int ops = 0;                  // recorded
  int dead = 0;                 // of them, those whose results are never read
  int kernels = 0;              // that a run binds and runs, equal ones each
  int live_values = 0;          // intermediate values alive at once, in the kernel with most
  int64_t bytes_moved = 0;      // read and written by the kernels
  int64_t bytes_unfused = 0;    // by the ops one by one
  uint64_t canonical_hash = 0;  // equal for circuits that mean the same
};

// Recorded on one thread, then run from any, one run() at a time. All runs keep alive the tensors
// from outside that were recorded as operands: they are read, or written, as they are at each run.
class HOLOGRAM_API Circuit {
 public:
  explicit Circuit(Device& device);
  ~Circuit();
  Circuit(Circuit&&) noexcept;
  Circuit& operator=(Circuit&&) noexcept;

  // A row-major tensor that stands for the next argument of run(). It may be written.
  Tensor input(Shape shape, Dtype dtype);
  // Adds a result of run(): a tensor that the circuit writes, or one of its inputs.
  void output(const Tensor& value);

  // From begin() to end() the functions on tensors (functions.h) that this thread calls are
  // recorded here and not run. Error(kState) where the thread records a circuit already, or this
  // one has been compiled. Values of the circuit have no bytes: to look at them is Error(kState).
  void begin();
  void end() noexcept;
  template <class F>
  void record(F&& f) {
    const Scope scope(*this);
    f();
  }

  // Dead values, common subexpressions, laws, fusion; afterwards stats() and print() tell of
  // kernels. Called by compile() and run() where that was not done. Error(kState) without outputs
  // or written tensors, and while recording. Error(kInvalidArgument) where it writes a tensor from
  // outside whose memory another such tensor has on a buffer of its own.
  void canonicalize();
  // Makes the plan and keeps it in the cache of plans, from which run() takes it. Machine code of
  // kernels is made when they first run.
  void compile();

  // The circuit on other tensors: of the inputs' shapes and dtypes, on the device. An argument that
  // is not row-major from its buffer's start, or shares memory with another, is copied, unless
  // the circuit writes it: Error(kInvalidArgument). Results are new, but for inputs that are
  // outputs; like all results they are computed when they are read. Ops round, and treat denormal
  // numbers, as the calling thread does now.
  std::vector<Tensor> run(std::span<const Tensor> arguments);
  std::vector<Tensor> run(std::initializer_list<Tensor> arguments) {
    return run(std::span<const Tensor>(arguments.begin(), arguments.size()));
  }

  // For people: the ops as recorded and, once it is canonical, the kernels.
  std::string print() const;
  // The same as JSON: {"records": ..., "plan": ... or null}.
  std::string json() const;
  CircuitStats stats() const;

 private:
  struct Scope {
    explicit Scope(Circuit& circuit) : circuit(circuit) { circuit.begin(); }
    ~Scope() { circuit.end(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    Circuit& circuit;
  };
  struct State;
  std::unique_ptr<State> state_;
};

// What one thread records between begin() and end(), as one plan that runs on the buffers of each
// call: a DeviceGraph with arguments, whose results are new at every call.
//
// Arguments and results are buffers, given once and different from each other. What is neither has
// memory that the function keeps; other buffers that have bytes are read and written as they are.
// Meanwhile other threads record and run as ever, but one function of a process is captured at a
// time.
class HOLOGRAM_API DeviceFunction {
 public:
  explicit DeviceFunction(Device& device);
  ~DeviceFunction();
  DeviceFunction(const DeviceFunction&) = delete;
  DeviceFunction& operator=(const DeviceFunction&) = delete;

  // arguments: deferred buffers without memory that stand for those of a call. False, with nothing
  // begun, where this thread or another captures already or the device does not record; then, or
  // at another time, the caller does its work without a function. Once for each function.
  bool begin(std::span<Buffer* const> arguments);
  // results: buffers without memory, made since begin(). Plans, and gives up the stand-ins' marks.
  // Error(kState) on another thread than begin()'s, Error(kInvalidArgument) where the function
  // writes memory that two of its buffers share.
  void end(std::span<Buffer* const> results);
  // Forgets what was captured so far, on the thread that called begin().
  void abandon() noexcept;

  // Whether call() can record now, as far as the thread and the device go.
  bool may_call() const;
  // Whether it writes an argument; known after end().
  bool writes(size_t argument) const;
  // Records the function on other buffers, of at least the sizes of those that stood for them:
  // arguments first, then results, which are deferred buffers that nobody wrote. numbers: as
  // numbers() returns them, or others of their meaning. What was recorded before runs before it.
  // False, with nothing recorded, where the device does not record, this thread captures or does
  // not round as by default, a buffer is exported, on another device or foreign memory, or one of
  // those from outside is given. The buffers differ from each other. Throws as the record functions
  // do.
  bool call(std::span<Buffer* const> given, std::span<const uint64_t> numbers);

  // The numbers of the ops in the order in which they were recorded; known after end().
  const std::vector<uint64_t>& numbers() const;
  // Ops recorded, and bytes of memory that the function keeps.
  int ops() const;
  int64_t bytes_kept() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hologram
