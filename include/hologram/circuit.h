// SPDX-License-Identifier: MIT
// Circuits made by hand: record ops once, look at what they become, run them on other tensors.
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

}  // namespace hologram
