// SPDX-License-Identifier: MIT
// See call_shapes.h.
#include "src/array/call_shapes.h"
#include "hologram/error.h"

#include <algorithm>
#include <optional>

#include "src/base/text.h"

namespace hologram::array {
namespace {

using Kind = CallParameterInfo::Kind;

const char* dtypes_text(CallDtype dtype) {
  switch (dtype) {
    case CallDtype::any:
      return "any dtype, the same for all of its kind";
    case CallDtype::number:
      return "float16, bfloat16, float32, float64, int32 or int64";
    case CallDtype::floating:
      return "float16, bfloat16, float32 or float64, the same for all of its kind";
    case CallDtype::param:
    case CallDtype::stat:
      return "the dtype of the input or, beside a half type, float32";
    case CallDtype::real:
      return "float32 or float64, the same for all of its kind";
    case CallDtype::index:
      return "int32 or int64";
    case CallDtype::int64:
      return "int64";
    case CallDtype::int8:
      return "int8";
    case CallDtype::uint8:
      return "uint8";
    case CallDtype::boolean:
      return "bool";
    default:
      return "float32";
  }
}

}  // namespace

CallSettling::CallSettling(const CallOp& op, std::span<const CallInput> inputs,
                           std::span<const CallArgument> arguments)
    : op_(op), inputs_(inputs) {
  for (const CallOperandInfo& info : op.operands) {
    if (info.free_shape) refuse("has functions of its own; see hologram/functions.h");
  }
  const size_t count = static_cast<size_t>(
      std::count_if(op.operands.begin(), op.operands.end(),
                    [](const CallOperandInfo& operand) { return !operand.is_result; }));
  if (inputs.size() > count) {
    refuse("takes ", count, " operands, got ", inputs.size(), "; its schema: ", op.schema);
  }
  for (size_t k = 0; k < count; ++k) {
    const CallOperandInfo& info = op.operands[k];
    const bool given = k < inputs.size() && inputs[k].is_given();
    if (!given && !info.is_optional) {
      refuse(info.name, " is missing; its schema: ", op.schema);
    }
    if (given && inputs[k].is_list() != info.is_list) {
      refuse(info.name, info.is_list ? " is a list of tensors" : " is one tensor, not a list");
    }
  }
  take_arguments(arguments);
  take_dtypes();
  take_shapes();
  apply_rule(*this);
}

void CallSettling::take_arguments(std::span<const CallArgument> arguments) {
  for (const CallArgument& argument : arguments) {
    const auto known =
        std::find_if(op_.parameters.begin(), op_.parameters.end(),
                     [&](const CallParameterInfo& info) { return info.name == argument.name; });
    if (known == op_.parameters.end()) {
      refuse("has no parameter \"", argument.name, "\"; its schema: ", op_.schema);
    }
    if (argument.is_list && known->kind != Kind::integers && !known->is_list) {
      refuse(argument.name, " is one number, not several");
    }
    arguments_.insert_or_assign(std::string(argument.name), argument);
  }
  for (const CallParameterInfo& info : op_.parameters) {
    if (arguments_.count(info.name) != 0) continue;
    if (info.is_required) refuse(info.name, " is missing; its schema: ", op_.schema);
    if (info.value_of.empty()) {
      arguments_.emplace(info.name, CallArgument(info.name, info.value));
    } else {
      CallArgument same = arguments_.at(info.value_of);
      same.name = info.name;
      arguments_.emplace(info.name, same);
    }
  }
}

void CallSettling::take_dtypes() {
  for (size_t k = 0; k < inputs_.size(); ++k) {
    const CallOperandInfo& info = op_.operands[k];
    for (const Tensor& tensor : inputs_[k].tensors()) {
      if (!tensor.buffer()) {
        refuse(info.name, " is a tensor without memory (made by Tensor()); make one with empty()");
      }
      const Dtype dtype = tensor.dtype();
      const auto input = dtypes_.find(CallDtype::floating);
      const bool fits = takes(info.dtype, dtype,
                              input == dtypes_.end() ? std::nullopt : std::optional(input->second));
      const auto [known, is_first] = dtypes_.emplace(info.dtype, dtype);
      if (!fits || (known->second != dtype && info.dtype != CallDtype::index &&
                    info.dtype != CallDtype::each)) {
        fail(ErrorKind::kTypeMismatch, op_.name, ": ", info.name, " is ", dtype_name(dtype),
             "; it takes ", dtypes_text(info.dtype), is_first || !fits ? "" : ", which is here ",
             is_first || !fits ? std::string_view() : dtype_name(known->second),
             "; cast the tensor first");
      }
    }
  }
}

Dtype CallSettling::dtype_of(const CallOperandInfo& operand) const {
  switch (operand.dtype) {
    case CallDtype::int64:
      return Dtype::kInt64;
    case CallDtype::int8:
      return Dtype::kInt8;
    case CallDtype::boolean:
      return Dtype::kBool;
    case CallDtype::float32:
      return Dtype::kFloat32;
    default:
      break;
  }
  if (operand.dtype == CallDtype::stat) {
    const Dtype floating = dtypes_.at(CallDtype::floating);
    return itemsize(floating) == 2 ? Dtype::kFloat32 : floating;
  }
  const auto own = dtypes_.find(operand.dtype);
  if (own != dtypes_.end()) return own->second;
  // Without parameters, what is of their dtype has the input's.
  return operand.dtype == CallDtype::index ? Dtype::kInt64 : dtypes_.at(CallDtype::floating);
}

bool CallSettling::is_given(std::string_view input) const {
  for (size_t k = 0; k < inputs_.size(); ++k) {
    if (op_.operands[k].name == input) return inputs_[k].is_given();
  }
  return false;
}

// --- Shapes --------------------------------------------------------------------------------------

void CallSettling::refuse_shape(const CallOperandInfo& operand, const Shape& shape) const {
  const std::string known = sizes_.known_of(operand);
  refuse(operand.name, " has shape ", shape_text(shape), "; it has to be ", operand.shape_text,
         known.empty() ? "" : " where ", known, "; its schema: ", op_.schema);
}

// Whether everything that the operand can tell is known now.
bool CallSettling::match(const CallOperandInfo& operand, const Shape& shape) {
  for (const CallDim& dim : operand.shape) {
    if (dim.count.empty() || sizes_.run(dim.names[0]) != nullptr) continue;
    const int64_t count = integer(dim.count);
    if (count < 0 || count > static_cast<int64_t>(shape.size())) {
      refuse(dim.count, " is ", count, "; ", operand.name, " has ", shape.size(), " dimensions");
    }
  }
  const CallSizes::Match match = sizes_.match(operand, shape);
  if (match != CallSizes::Match::settles && match != CallSizes::Match::open) {
    refuse_shape(operand, shape);
  }
  return match == CallSizes::Match::settles;
}

void CallSettling::take_shapes() {
  std::vector<size_t> waiting;
  for (size_t k = 0; k < inputs_.size(); ++k) {
    const CallOperandInfo& info = op_.operands[k];
    if (inputs_[k].is_given() && !info.is_list && !info.free_shape && !info.broadcasts) {
      waiting.push_back(k);
    }
  }
  // Sizes of one operand may be settled by another that comes later.
  while (!waiting.empty()) {
    const size_t before = waiting.size(), known = sizes_.count();
    std::erase_if(waiting,
                  [&](size_t k) { return match(op_.operands[k], inputs_[k].tensor().shape()); });
    if (waiting.size() == before && sizes_.count() == known) {
      refuse("the shapes do not settle ", op_.operands[waiting[0]].shape_text, " of ",
             op_.operands[waiting[0]].name, "; its schema: ", op_.schema);
    }
  }
  settle_integers();
  for (size_t k = 0; k < inputs_.size(); ++k) {
    const CallOperandInfo& info = op_.operands[k];
    if (!inputs_[k].is_given() || !info.broadcasts) continue;
    const Shape& own = inputs_[k].tensor().shape();
    const Shape whole = shape_of(info);
    bool fits = own.size() <= whole.size();
    for (size_t d = 1; fits && d <= own.size(); ++d) {
      const int64_t size = own[own.size() - d];
      fits = size == 1 || size == whole[whole.size() - d];
    }
    if (!fits) refuse_shape(info, own);
  }
}

// Parameters of one number for each dimension: as many as the first run of the first input has.
void CallSettling::settle_integers() {
  size_t count = 1;
  if (!op_.operands.empty()) {
    for (const CallDim& dim : op_.operands[0].shape) {
      if (!dim.run) continue;
      if (const Shape* known = sizes_.run(dim.names[0])) count = known->size();
    }
  }
  for (const CallParameterInfo& info : op_.parameters) {
    if (info.kind != Kind::integers) continue;
    const CallArgument& given = arguments_.at(info.name);
    Shape values = given.integers;
    if (!given.is_list) values = {given.integer};
    if (values.size() == 1) values = Shape(count, values[0]);
    if (values.size() != count) {
      refuse(info.name, " has ", values.size(), " numbers; give one, or ", count,
             ", one for each dimension");
    }
    integers_[info.name] = values;
  }
}

Shape CallSettling::shape_of(const CallOperandInfo& operand) const {
  const std::optional<Shape> shape = sizes_.shape_of(operand);
  if (!shape.has_value()) {
    fail(ErrorKind::kInternal, op_.name, ": nothing settles ", operand.shape_text, " of ",
         operand.name);
  }
  return *shape;
}

const Shape& CallSettling::run(std::string_view name) const {
  const Shape* known = sizes_.run(name);
  if (known == nullptr) fail(ErrorKind::kInternal, op_.name, ": nothing settles *", name);
  return *known;
}
int64_t CallSettling::size(std::string_view name) const { return *sizes_.size(name); }
int64_t CallSettling::integer(std::string_view name) const {
  return arguments_.find(name)->second.integer;
}
double CallSettling::number(std::string_view name) const {
  return arguments_.find(name)->second.number;
}
double CallSettling::number_at(std::string_view name, size_t i, size_t count) const {
  const CallArgument& given = arguments_.find(name)->second;
  if (!given.is_list) return given.number;
  if (given.integers.size() != count) {
    refuse(name, " has ", given.integers.size(), " numbers; the lists have ", count, " tensors");
  }
  return static_cast<double>(given.integers[i]);
}
const Shape& CallSettling::integers(std::string_view name) const {
  return integers_.find(name)->second;
}

}  // namespace hologram::array
