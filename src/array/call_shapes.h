// SPDX-License-Identifier: MIT
// Settles what a row of the catalogue leaves open, from the operands and parameters of one call:
// sizes by name, runs of dimensions, dtypes, parameters.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hologram/calls.h"
#include "hologram/error.h"
#include "src/ops/call_schema.h"

namespace hologram::array {

class CallSettling {
 public:
  // Checks the inputs and the arguments; throws what call() says.
  CallSettling(const CallOp& op, std::span<const CallInput> inputs,
               std::span<const CallArgument> arguments);
  CallSettling(const CallSettling&) = delete;
  CallSettling& operator=(const CallSettling&) = delete;

  const CallOp& op() const { return op_; }
  // Of an operand whose dimensions are all settled.
  Shape shape_of(const CallOperandInfo& operand) const;
  Dtype dtype_of(const CallOperandInfo& operand) const;
  bool is_given(std::string_view input) const;

  // Parameters, as given or by default.
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const Shape& integers(std::string_view name) const;
  // Of a parameter with one number for each of `count` tensors: one given counts for all.
  double number_at(std::string_view name, size_t i, size_t count) const;

  // For the rules of calls (call_rules.cc).
  const Shape& run(std::string_view name) const;
  int64_t size(std::string_view name) const;
  void set_run(std::string_view name, Shape dims) { sizes_.set_run(name, std::move(dims)); }
  void set_size(std::string_view name, int64_t size) { sizes_.set_size(name, size); }
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    fail(ErrorKind::kInvalidArgument, op_.name, ": ", parts...);
  }

 private:
  void take_arguments(std::span<const CallArgument> arguments);
  void take_dtypes();
  void take_shapes();
  void settle_integers();
  bool match(const CallOperandInfo& operand, const Shape& shape);
  [[noreturn]] void refuse_shape(const CallOperandInfo& operand, const Shape& shape) const;

  const CallOp& op_;
  std::span<const CallInput> inputs_;
  CallSizes sizes_{[this](std::string_view name) { return integer(name); }};
  std::map<std::string, Shape, std::less<>> integers_;
  std::map<std::string, CallArgument, std::less<>> arguments_;
  std::map<CallDtype, Dtype> dtypes_;
};

// What a row's schema cannot say: sizes that follow from others by a formula, parameters that do
// not go together. A call without such has none.
void apply_rule(CallSettling& call);

}  // namespace hologram::array
