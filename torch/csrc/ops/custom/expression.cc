// SPDX-License-Identifier: MIT
// Evaluates expressions step by step, see expression.h.
#include "ops/custom/expression.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>

#include <algorithm>

namespace hologram_torch {

namespace {

// A step whose operands are all numbers, computed in float64 or int64 as Python would. Nobody else
// (modes, transforms) takes part.
c10::Scalar compute_numbers(const StepFunction& function, const StepOperands& operands) {
  const c10::impl::ForceDispatchKeyGuard plain(
      c10::default_included_set, c10::default_excluded_set | c10::autograd_dispatch_keyset |
                                     c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView));
  std::array<Value, kStepOperands> tensors;
  StepOperands list = operands;
  bool integers = function.takes_integers;
  for (int k = 0; k < function.arity; ++k) {
    integers = integers && operands[static_cast<size_t>(k)]->number.isIntegral(true);
  }
  // Negative powers of integers are no integers.
  if (integers && function.name == "pow" && operands[1]->number.toLong() < 0) integers = false;
  for (int k = 0; k < function.arity; ++k) {
    const size_t at = static_cast<size_t>(k);
    const c10::Scalar& number = operands[at]->number;
    at::ScalarType type = number.type();
    if (!integers && !number.isComplex()) type = at::kDouble;
    tensors[at].tensor = c10::scalar_to_tensor(number).to(type);
    // Parameters stay numbers.
    list[at] = &tensors[at];
  }
  const std::string_view name = function.name;
  const int parameters = name == "softplus" ? 1 : name == "leaky_relu" || name == "elu" ? 1 : -1;
  for (int k = parameters; parameters > 0 && k < function.arity; ++k) {
    list[static_cast<size_t>(k)] = operands[static_cast<size_t>(k)];
  }
  return function.call(list).item();
}

}  // namespace

Expression::Expression(std::vector<c10::Scalar> constants, int arguments, std::vector<Step> steps,
                       std::vector<int> results)
    : arguments_(arguments), steps_(std::move(steps)), results_(std::move(results)) {
  constants_.reserve(constants.size());
  for (c10::Scalar& number : constants) constants_.push_back({{}, std::move(number)});
  const int first = static_cast<int>(constants_.size()) + arguments_;
  const int count = static_cast<int>(steps_.size());
  last_use_.assign(steps_.size(), count);
  for (int s = 0; s < count; ++s) {
    const Step& step = steps_[static_cast<size_t>(s)];
    TORCH_CHECK(step.function != nullptr, "a step has an unknown function");
    for (int k = 0; k < step.function->arity; ++k) {
      const int operand = step.operands[static_cast<size_t>(k)];
      TORCH_CHECK(operand >= 0 && operand < first + s, "a step reads a value that is not there");
      if (operand >= first) last_use_[static_cast<size_t>(operand - first)] = s;
    }
  }
  for (const int result : results_) {
    TORCH_CHECK(result < first + count, "a result names a value that is not there");
    if (result >= first) last_use_[static_cast<size_t>(result - first)] = count;
  }
}

Expression::Flags Expression::live(const std::vector<bool>& wanted) const {
  const size_t first = constants_.size() + static_cast<size_t>(arguments_);
  Flags live(first + steps_.size(), 0);
  for (size_t k = 0; k < results_.size(); ++k) {
    if (wanted[k] && results_[k] >= 0) live[static_cast<size_t>(results_[k])] = 1;
  }
  for (size_t s = steps_.size(); s-- > 0;) {
    if (live[first + s] == 0) continue;
    const Step& step = steps_[s];
    for (int k = 0; k < step.function->arity; ++k) {
      live[static_cast<size_t>(step.operands[static_cast<size_t>(k)])] = 1;
    }
  }
  return live;
}

std::vector<bool> Expression::uses(const std::vector<bool>& wanted) const {
  const Flags flags = live(wanted);
  std::vector<bool> used;
  for (int k = 0; k < arguments_; ++k) {
    used.push_back(flags[constants_.size() + static_cast<size_t>(k)] != 0);
  }
  return used;
}

template <class IsLive>
void Expression::run_steps(c10::ArrayRef<Value> arguments, std::vector<Value>& steps,
                           IsLive is_live) const {
  const size_t constants = constants_.size(), first = constants + arguments.size();
  steps.resize(steps_.size());
  const auto value_of = [&](int number) -> const Value* {
    const size_t at = static_cast<size_t>(number);
    if (at >= first) return &steps[at - first];
    return at >= constants ? &arguments[at - constants] : &constants_[at];
  };
  for (size_t s = 0; s < steps_.size(); ++s) {
    if (!is_live(first + s)) continue;
    const Step& step = steps_[s];
    StepOperands operands;
    bool any = false;
    for (int k = 0; k < step.function->arity; ++k) {
      const Value* operand = value_of(step.operands[static_cast<size_t>(k)]);
      operands[static_cast<size_t>(k)] = operand;
      any = any || operand->is_tensor();
    }
    if (C10_LIKELY(any)) {
      steps[s].tensor = step.function->call(operands);
    } else {
      steps[s].number = compute_numbers(*step.function, operands);
    }
    // What no later step reads need not be kept until the end.
    for (int k = 0; k < step.function->arity; ++k) {
      const size_t at = static_cast<size_t>(step.operands[static_cast<size_t>(k)]);
      if (at >= first && last_use_[at - first] == static_cast<int>(s)) {
        steps[at - first].tensor.reset();
      }
    }
  }
}

std::vector<Value> Expression::evaluate(c10::ArrayRef<Value> arguments,
                                        const std::vector<bool>& wanted) const {
  const Flags flags = live(wanted);
  std::vector<Value> steps;
  run_steps(arguments, steps, [&](size_t at) { return flags[at] != 0; });
  const size_t constants = constants_.size(), first = constants + arguments.size();
  std::vector<Value> results(results_.size());
  for (size_t k = 0; k < results_.size(); ++k) {
    if (!wanted[k] || results_[k] < 0) continue;
    const size_t at = static_cast<size_t>(results_[k]);
    results[k] = at >= first       ? steps[at - first]
                 : at >= constants ? arguments[at - constants]
                                   : constants_[at];
  }
  return results;
}

Value Expression::evaluate(c10::ArrayRef<Value> arguments) const {
  std::vector<Value> steps;
  run_steps(arguments, steps, [](size_t) { return true; });
  const size_t constants = constants_.size(), first = constants + arguments.size();
  const size_t at = static_cast<size_t>(results_[0]);
  if (at >= first) return std::move(steps[at - first]);
  return at >= constants ? arguments[at - constants] : constants_[at];
}

UserOp::UserOp(std::string name, Expression value, Expression gradient)
    : name_(std::move(name)), value_(std::move(value)), gradient_(std::move(gradient)) {}

at::ScalarType UserOp::result_type(c10::ArrayRef<uint8_t> kinds) const {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [known, type] : types_) {
      if (kinds.equals(known)) return type;
    }
  }
  std::vector<Value> arguments;
  for (const uint8_t kind : kinds) {
    Value& value = arguments.emplace_back();
    const auto type = static_cast<at::ScalarType>(kind & kTypeOfKind);
    if ((kind & kNumberKind) != 0) {
      value.number = type == at::kDouble ? c10::Scalar(1.0)
                     : type == at::kBool ? c10::Scalar(true)
                     : type == at::kLong ? c10::Scalar(int64_t{1})
                                         : c10::Scalar(c10::complex<double>(1.0));
    } else {
      const std::array<int64_t, 1> sizes{1};
      const size_t dims = (kind & kDimensionsKind) != 0 ? 1 : 0;
      value.tensor = at::detail::empty_meta(c10::IntArrayRef(sizes.data(), dims), type);
    }
  }
  const c10::impl::ForceDispatchKeyGuard plain(
      c10::default_included_set, c10::default_excluded_set | c10::autograd_dispatch_keyset |
                                     c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView));
  const Value result = value_.evaluate(arguments);
  const at::ScalarType type =
      result.is_tensor() ? result.tensor.scalar_type() : result.number.type();
  const std::lock_guard lock(mutex_);
  types_.emplace_back(Kinds(kinds.begin(), kinds.end()), type);
  return type;
}

}  // namespace hologram_torch
