// SPDX-License-Identifier: MIT
// Expressions over tensors and numbers, made at run time: what hologram_torch.elementwise() is.
//
// Python parses the text and derives the gradient (hologram_torch/_expression.py); here both are
// lists of steps, each a function of PyTorch's on earlier values. On the device a step records a
// row, so that an expression costs one call from Python, and fuses like the ops it is made of.
#pragma once

#include <Python.h>

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "recording/native_common.h"

namespace hologram_torch {

// A tensor or, where that is undefined, a number.
struct Value {
  at::Tensor tensor;
  c10::Scalar number;

  bool is_tensor() const { return tensor.defined(); }
};

inline constexpr int kStepOperands = 4;
using StepOperands = std::array<const Value*, kStepOperands>;

// What a step calls. Of its operands at least one is a tensor.
struct StepFunction {
  std::string_view name;
  int arity;
  at::Tensor (*call)(const StepOperands& operands);
  bool takes_integers;  // of numbers that are integers it gives integers, or bool
};

// Null where there is none of that name.
const StepFunction* find_step_function(std::string_view name);
std::vector<std::string> step_function_names();

// Values are numbered: the constants, the arguments, then the steps, each of which names earlier
// ones. Immutable; any number of threads may evaluate it.
class Expression {
 public:
  struct Step {
    const StepFunction* function;
    std::array<int, kStepOperands> operands;
  };

  // Throws c10::Error where a number is out of range or a function unknown.
  Expression(std::vector<c10::Scalar> constants, int arguments, std::vector<Step> steps,
             std::vector<int> results);

  int arguments() const { return arguments_; }
  int results() const { return static_cast<int>(results_.size()); }
  // Whether result k is computed at all.
  bool has_result(int k) const { return results_[static_cast<size_t>(k)] >= 0; }

  // The results that are wanted, the others empty values. Calls PyTorch's functions, through
  // whatever keys are enabled.
  std::vector<Value> evaluate(c10::ArrayRef<Value> arguments,
                              const std::vector<bool>& wanted) const;
  // The first result.
  Value evaluate(c10::ArrayRef<Value> arguments) const;
  // Which arguments the wanted results are computed from.
  std::vector<bool> uses(const std::vector<bool>& wanted) const;

 private:
  using Flags = c10::SmallVector<char, 64>;

  // Which values the wanted results need.
  Flags live(const std::vector<bool>& wanted) const;
  template <class IsLive>
  void run_steps(c10::ArrayRef<Value> arguments, std::vector<Value>& steps, IsLive is_live) const;

  std::vector<Value> constants_;
  int arguments_;
  std::vector<Step> steps_;
  std::vector<int> results_;
  std::vector<int> last_use_;  // by step value: the last step that reads it, or all that there are
};

// What UserOp::result_type() is told of an argument: a ScalarType, and whether it is that of a
// number or of a tensor with dimensions.
inline constexpr uint8_t kTypeOfKind = 0x3f, kNumberKind = 0x40, kDimensionsKind = 0x80;

// What a user's op is made of. Immutable but for what it remembers.
class UserOp {
 public:
  // gradient: of the arguments and then the gradient of the result, that of each argument; none
  // where the result does not depend on it in a differentiable way.
  UserOp(std::string name, Expression value, Expression gradient);

  // For errors and graphs.
  const std::string& name() const { return name_; }
  const Expression& value() const { return value_; }
  const Expression& gradient() const { return gradient_; }

  // The dtype that PyTorch's functions give for such arguments, halves not widened. Kinds: the
  // dtype of a tensor and whether it has dimensions, or what kind of number it is.
  at::ScalarType result_type(c10::ArrayRef<uint8_t> kinds) const;

 private:
  using Kinds = c10::SmallVector<uint8_t, 8>;

  std::string name_;
  Expression value_, gradient_;
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<Kinds, at::ScalarType>> types_;
};

// The op applied to arguments, differentiable. float16 and bfloat16 are computed in float32 and
// rounded once. Tensors of the device only: one autograd node that keeps arguments; anything else:
// PyTorch's functions one by one, each with its own.
at::Tensor call_user_op(const std::shared_ptr<const UserOp>& op, c10::ArrayRef<Value> arguments);

extern PyMethodDef kExpressionMethods[];

}  // namespace hologram_torch
