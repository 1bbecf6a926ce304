// SPDX-License-Identifier: MIT
// Runs programs, see program.h.
#include "ops/custom/program.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace hologram_torch {
namespace {

using at::Tensor;

bool has(Program::Set set, int k) { return (set >> k & 1) != 0; }

// Computes a step of numbers as Python would: in integers, or in float64.
void call_on_numbers(const Program::Step& step, torch::jit::Stack& stack) {
  const torch::jit::Stack given = stack;
  step.op.callBoxed(stack);
  if (stack.front().toTensor().is_floating_point()) {
    stack = given;
    for (const auto& [at, place] : step.operands) {
      stack[static_cast<size_t>(at)] = given[static_cast<size_t>(at)].toTensor().to(at::kDouble);
    }
    step.op.callBoxed(stack);
  }
  stack.front().toTensor().unsafeGetTensorImpl()->set_wrapped_number(true);
}

}  // namespace

Program::Program(std::string name, int arguments, std::vector<Step> steps,
                 std::vector<Result> results)
    : name_(std::move(name)),
      arguments_(arguments),
      steps_(std::move(steps)),
      results_(std::move(results)) {
  TORCH_CHECK(results_.at(0).place >= 0, "the value is a number");
  TORCH_CHECK(arguments_ <= kMaxArguments, "too many arguments");
  Set read = 0;
  value_calls_ = plan(results_[0].place, read);
  read_.assign(static_cast<size_t>(arguments_), 0);
  for (int k = 0; results_.size() > 1 && k + 1 < arguments_; ++k) {
    if (gradient(k, false).exists()) with_gradient_ |= Set{1} << k;
    for (const bool again : {false, true}) {
      if (gradient(k, again).place < 0) continue;
      plan(gradient(k, again).place, read);
      read_[static_cast<size_t>(k)] |= read;
    }
  }
}

Program::Calls Program::plan(c10::ArrayRef<int> places, Set& arguments) const {
  std::vector<char> read(static_cast<size_t>(arguments_) + steps_.size(), 0);
  for (const int place : places) read[static_cast<size_t>(place)] = 1;
  Calls calls;
  for (int s = static_cast<int>(steps_.size()); s-- > 0;) {
    if (read[static_cast<size_t>(arguments_) + static_cast<size_t>(s)] == 0) continue;
    Call call{s, 0};
    const auto& operands = steps_[static_cast<size_t>(s)].operands;
    for (size_t k = operands.size(); k-- > 0;) {
      char& known = read[static_cast<size_t>(operands[k].second)];
      if (known == 0) call.last |= 1U << k;
      known = 1;
    }
    calls.push_back(call);
  }
  std::ranges::reverse(calls);
  arguments = 0;
  for (int k = 0; k < arguments_; ++k) {
    if (read[static_cast<size_t>(k)] != 0) arguments |= Set{1} << k;
  }
  return calls;
}

void Program::run(const Calls& calls, Values& values) const {
  values.resize(static_cast<size_t>(arguments_) + steps_.size());
  torch::jit::Stack stack;
  stack.reserve(8);
  for (const Call& call : calls) {
    const Step& step = steps_[static_cast<size_t>(call.step)];
    stack = step.stack;
    bool numbers = true;
    for (size_t k = 0; k < step.operands.size(); ++k) {
      const auto& [at, place] = step.operands[k];
      Tensor& value = values[static_cast<size_t>(place)];
      numbers = numbers && is_wrapped(value);
      // What no later step reads need not be kept until the end.
      const bool last = (call.last >> k & 1U) != 0;
      stack[static_cast<size_t>(at)] = last ? std::move(value) : Tensor(value);
    }
    if (C10_UNLIKELY(numbers)) {
      call_on_numbers(step, stack);
    } else {
      step.op.callBoxed(stack);
    }
    values[static_cast<size_t>(arguments_) + static_cast<size_t>(call.step)] =
        std::move(stack.front()).toTensor();
  }
}

Tensor Program::value(Values arguments) const {
  run(value_calls_, arguments);
  return std::move(arguments[static_cast<size_t>(results_[0].place)]);
}

Program::Values Program::gradients(Values arguments, Set wanted) const {
  const bool again = c10::GradMode::is_enabled();
  c10::SmallVector<int, 8> places;
  for (int k = 0; k + 1 < arguments_; ++k) {
    if (has(wanted, k) && gradient(k, again).place >= 0) places.push_back(gradient(k, again).place);
  }
  Set read = 0;
  run(plan(places, read), arguments);
  Values gradients(static_cast<size_t>(arguments_ - 1));
  for (int k = 0; k + 1 < arguments_; ++k) {
    if (!has(wanted, k)) continue;
    const Result& result = gradient(k, again);
    gradients[static_cast<size_t>(k)] =
        result.place >= 0 ? arguments[static_cast<size_t>(result.place)] : result.number;
  }
  return gradients;
}

Program::Set Program::read_by_gradients(Set wanted) const {
  Set read = 0;
  for (int k = 0; k < arguments_; ++k) {
    if (has(wanted, k)) read |= read_[static_cast<size_t>(k)];
  }
  return read;
}

}  // namespace hologram_torch
