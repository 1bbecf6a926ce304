// SPDX-License-Identifier: MIT
// Settles what a row of the catalogue leaves open, from the operands and parameters of one call:
// sizes by name, runs of dimensions, dtypes, parameters.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hologram/calls.h"
#include "hologram/error.h"

namespace hologram::array {

class CallSettling {
 public:
  // Checks the inputs and the arguments; throws what call() says.
  CallSettling(const CallOp& op, std::span<const CallInput> inputs,
               std::span<const CallArgument> arguments);

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
  bool has_run(std::string_view name) const { return runs_.count(std::string(name)) != 0; }
  int64_t size(std::string_view name) const;
  void set_run(std::string_view name, Shape dims) { runs_[std::string(name)] = std::move(dims); }
  void set_size(std::string_view name, int64_t size) { sizes_[std::string(name)] = size; }
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
  bool match_size(const CallOperandInfo& operand, const CallDim& dim, int64_t size,
                  const Shape& shape);
  std::optional<int64_t> size_of(const CallDim& dim, std::string* open) const;
  [[noreturn]] void refuse_shape(const CallOperandInfo& operand, const Shape& shape) const;

  const CallOp& op_;
  std::span<const CallInput> inputs_;
  std::map<std::string, int64_t, std::less<>> sizes_;
  std::map<std::string, Shape, std::less<>> runs_;
  std::map<std::string, Shape, std::less<>> integers_;
  std::map<std::string, CallArgument, std::less<>> arguments_;
  std::map<CallDtype, Dtype> dtypes_;
};

// What a row's schema cannot say: sizes that follow from others by a formula, parameters that do
// not go together. A call without such has none.
void apply_rule(CallSettling& call);

}  // namespace hologram::array
