// SPDX-License-Identifier: MIT
// The calls of the catalogue: their description, from which hologram._calls makes functions, and
// the one function that runs any of them.
#include "hologram/calls.h"

#include <string>
#include <vector>

#include "convert.h"
#include "objects.h"

namespace hologram::python {
namespace {

const TensorObject& tensor_in(nb::handle object, const char* call) {
  const TensorObject* held = tensor_of(object.ptr());
  if (held == nullptr) {
    fail(ErrorKind::kTypeMismatch, call, ": an operand is a Tensor, not ", name_of_type(object));
  }
  return *held;
}

nb::list operands_of(const CallOp& op) {
  nb::list list;
  for (const CallOperandInfo& info : op.operands) {
    nb::dict entry;
    entry["name"] = info.name;
    entry["shape"] = info.shape_text;
    entry["dtype"] = std::string(1, static_cast<char>(info.dtype));
    entry["is_result"] = info.is_result;
    entry["is_saved"] = info.is_saved;
    entry["is_updated"] = info.is_updated;
    entry["is_optional"] = info.is_optional;
    entry["is_list"] = info.is_list;
    list.append(entry);
  }
  return list;
}

nb::list parameters_of(const CallOp& op) {
  constexpr const char* kKinds[] = {"int", "bool", "ints", "float", "uint", "float"};
  nb::list list;
  for (const CallParameterInfo& info : op.parameters) {
    nb::dict entry;
    entry["name"] = info.name;
    entry["kind"] = info.is_list ? "ints" : kKinds[static_cast<int>(info.kind)];
    entry["is_required"] = info.is_required;
    entry["default"] = info.value;
    entry["default_of"] = info.value_of;
    list.append(entry);
  }
  return list;
}

// Those that can be made from the schema alone.
nb::list table() {
  nb::list rows;
  for (const CallOp& op : call_ops()) {
    bool is_free = false;
    for (const CallOperandInfo& info : op.operands) is_free = is_free || info.free_shape;
    if (is_free) continue;
    nb::dict row;
    row["name"] = op.name;
    row["doc"] = op.doc;
    row["schema"] = op.schema;
    row["operands"] = operands_of(op);
    row["parameters"] = parameters_of(op);
    rows.append(row);
  }
  return rows;
}

CallArgument argument_of(const std::string& name, nb::handle value) {
  PyObject* object = value.ptr();
  if (PyBool_Check(object)) return {name, object == Py_True};
  if (PyIndex_Check(object) != 0) {
    // Seeds may be any 64 bits.
    const nb::object index = nb::steal(PyNumber_Index(object));
    if (!index.is_valid()) raise_set();
    const uint64_t bits = PyLong_AsUnsignedLongLongMask(index.ptr());
    if (PyErr_Occurred() != nullptr) raise_set();
    return {name, static_cast<int64_t>(bits)};
  }
  if (PySequence_Check(object) != 0) {
    const Shape values = parse_shape(value);
    return {name, std::vector<int64_t>(values.begin(), values.end())};
  }
  return {name, to_double(value)};
}

nb::list run(const std::string& name, const nb::list& inputs, const nb::dict& arguments,
             const nb::list& out) {
  const CallOp& op = call_op(name);
  std::vector<CallInput> operands;
  for (const nb::handle input : inputs) {
    const size_t k = operands.size();
    const bool is_updated = k < op.operands.size() && op.operands[k].is_updated;
    const auto take = [&](nb::handle object) -> const Tensor& {
      const TensorObject& held = tensor_in(object, op.name);
      if (is_updated) held.check_writable(op.name);
      return held.tensor();
    };
    if (input.is_none()) {
      operands.emplace_back();
    } else if (PyList_Check(input.ptr())) {
      std::vector<Tensor> list;
      for (const nb::handle item : nb::borrow<nb::list>(input)) list.push_back(take(item));
      operands.emplace_back(std::move(list));
    } else {
      operands.emplace_back(take(input));
    }
  }
  std::vector<std::string> names;
  names.reserve(arguments.size());
  std::vector<CallArgument> values;
  for (const auto [key, value] : arguments) {
    names.push_back(nb::cast<std::string>(key));
    values.push_back(argument_of(names.back(), value));
    values.back().name = names.back();
  }
  std::vector<Tensor> targets;
  for (const nb::handle target : out) {
    const TensorObject& held = tensor_in(target, op.name);
    held.check_writable(op.name);
    targets.push_back(held.tensor());
  }
  std::vector<Tensor> results;
  {
    const Unlocked unlocked;
    if (targets.empty()) {
      results = call(name, operands, values);
    } else {
      call_into(name, operands, values, targets);
    }
  }
  nb::list list;
  for (Tensor& result : results) list.append(wrap_result(std::move(result)));
  return list;
}

}  // namespace

void register_calls(nb::module_& m) {
  nb::module_ calls = m.def_submodule("calls", "The calls of the catalogue.");
  calls.def("table", &table);
  calls.def("run", &run);
}

}  // namespace hologram::python
