// SPDX-License-Identifier: MIT
// Programs of ATen's operators on tensors, made at run time: what hologram_torch.elementwise()
// runs.
//
// Python writes them down (hologram_torch/_trace.py). On the device a step records a row, so that
// an expression costs one call from Python, and fuses like the ops it is made of.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <Python.h>

#include <string>
#include <utility>
#include <vector>

#include "recording/native_common.h"

namespace hologram_torch {

// A number as PyTorch's own functions take it beside tensors: a tensor of the CPU with a mark.
inline bool is_wrapped(const at::Tensor& t) { return t.unsafeGetTensorImpl()->is_wrapped_number(); }

// Values have places: the arguments', then one for each step. What is computed of numbers alone is
// a number. Immutable; any number of threads may run it.
class Program {
 public:
  struct Step {
    c10::OperatorHandle op;
    torch::jit::Stack stack;                    // its arguments, undefined where values go
    std::vector<std::pair<int, int>> operands;  // a place on the stack, and that of the value there
  };
  struct Result {
    int place = -1;
    at::Tensor number;  // where it has no place; undefined where there is no such result

    bool exists() const { return place >= 0 || number.defined(); }
  };
  // Arguments, by bits.
  using Set = uint64_t;
  static constexpr int kMaxArguments = 63;
  using Values = c10::SmallVector<at::Tensor, 24>;

  // Results: the value, then, where it has gradients, two lists of the arguments'. The last
  // argument is the gradient of the value; the second list can be differentiated again. Name: that
  // of the autograd node.
  Program(std::string name, int arguments, std::vector<Step> steps, std::vector<Result> results);

  const std::string& name() const { return name_; }
  Set with_gradient() const { return with_gradient_; }

  // Both call PyTorch's functions, through whatever keys are enabled.
  at::Tensor value(Values arguments) const;
  // Of the arguments and the value's gradient: the gradients that are wanted, undefined others.
  // Arguments that they do not read may be undefined.
  Values gradients(Values arguments, Set wanted) const;
  // The arguments that the wanted gradients are computed from.
  Set read_by_gradients(Set wanted) const;

 private:
  // A step, and which of its operands no later one reads.
  struct Call {
    int step;
    unsigned last;
  };
  using Calls = c10::SmallVector<Call, 24>;

  const Result& gradient(int k, bool again) const {
    const int at = 1 + k + (again ? arguments_ - 1 : 0);
    return results_[static_cast<size_t>(at)];
  }
  // What computes the results at these places. Arguments: those that it reads.
  Calls plan(c10::ArrayRef<int> places, Set& arguments) const;
  void run(const Calls& calls, Values& values) const;

  std::string name_;
  int arguments_;
  std::vector<Step> steps_;
  std::vector<Result> results_;
  Calls value_calls_;
  Set with_gradient_ = 0;
  std::vector<Set> read_;  // by the gradients of each argument
};

extern PyMethodDef kProgramMethods[];

}  // namespace hologram_torch
