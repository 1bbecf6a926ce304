// SPDX-License-Identifier: MIT
// Calls a user's op: dtypes, the autograd node, and the way in from Python.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/GradMode.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <complex>

#include "device/python_types.h"
#include "ops/custom/derived_node.h"
#include "ops/custom/expression.h"
#include "recording/autograd_bypass.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using Values = c10::SmallVector<Value, 8>;

bool is_half_tensor(const Value& v) {
  return v.is_tensor() && is_half_type(v.tensor.scalar_type());
}

uint8_t kind_of(const Value& v) {
  if (!v.is_tensor()) return static_cast<uint8_t>(v.number.type()) | kNumberKind;
  const uint8_t type = static_cast<uint8_t>(v.tensor.scalar_type());
  return v.tensor.dim() > 0 ? type | kDimensionsKind : type;
}

// Half tensors become float32. Returns the type to round the op's result to, if it is another.
std::optional<at::ScalarType> widen(const UserOp& op, Values& values) {
  if (C10_LIKELY(std::none_of(values.begin(), values.end(), &is_half_tensor))) return std::nullopt;
  c10::SmallVector<uint8_t, 8> kinds;
  for (const Value& v : values) kinds.push_back(kind_of(v));
  const at::ScalarType type = op.result_type(kinds);
  for (Value& v : values) {
    if (is_half_tensor(v)) v.tensor = v.tensor.to(at::kFloat);
  }
  return is_half_type(type) ? std::optional(type) : std::nullopt;
}

Tensor compute(const UserOp& op, Values& values) {
  const std::optional<at::ScalarType> rounded = widen(op, values);
  Value result = op.value().evaluate(values);
  if (!result.is_tensor()) {
    // A constant, which has the shape of the arguments.
    c10::SmallVector<int64_t, 8> shape;
    Tensor like;
    for (const Value& v : values) {
      if (!v.is_tensor()) continue;
      const auto wider = at::infer_size_dimvector(shape, v.tensor.sizes());
      shape.assign(wider.begin(), wider.end());
      if (!like.defined() || like.dim() == 0) like = v.tensor;
    }
    return at::full(shape, result.number, at::TensorOptions(like.device()));
  }
  return rounded.has_value() ? result.tensor.to(*rounded) : std::move(result.tensor);
}

// --- The node --------------------------------------------------------------------------------

// Keeps the arguments that the gradients asked for are made of, and computes them from those: what
// the forward pass computed in between is computed again, in the same kernel.
class UserOpBackward final : public DerivedNode {
 public:
  UserOpBackward(std::shared_ptr<const UserOp> op, c10::ArrayRef<Value> arguments)
      : op_(std::move(op)) {
    std::vector<bool> wanted;
    for (const Value& v : arguments) {
      const size_t k = arguments_.size();
      const bool tracked = v.is_tensor() && v.tensor.requires_grad() &&
                           op_->gradient().has_result(static_cast<int>(k));
      wanted.push_back(tracked);
      Argument& argument = arguments_.emplace_back();
      argument.number = v.number;
      argument.is_tensor = v.is_tensor();
      if (!v.is_tensor()) continue;
      argument.edge = static_cast<int>(edges_.size());
      edges_.push_back(static_cast<int>(k));
      argument.sizes.assign(v.tensor.sizes().begin(), v.tensor.sizes().end());
      argument.options = v.tensor.options();
      add_next_edge(tracked ? torch::autograd::impl::gradient_edge(v.tensor)
                            : torch::autograd::Edge());
    }
    const std::vector<bool> used = op_->gradient().uses(wanted);
    for (size_t k = 0; k < arguments_.size(); ++k) {
      arguments_[k].saved = arguments_[k].is_tensor && used[k];
      if (arguments_[k].saved) save(arguments[k].tensor);
    }
  }

  std::string name() const override { return op_->name() + "Backward"; }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    torch::autograd::variable_list results(edges_.size());
    if (!grads[0].defined()) return results;
    std::vector<Tensor> saved = unpack();
    std::vector<bool> wanted(arguments_.size());
    Values values;
    size_t next = 0;
    for (size_t k = 0; k < arguments_.size(); ++k) {
      const Argument& argument = arguments_[k];
      wanted[k] =
          argument.is_tensor && task_should_compute_output(static_cast<size_t>(argument.edge));
      Value& v = values.emplace_back();
      v.number = argument.number;
      if (argument.saved) v.tensor = widened(saved[next++]);
    }
    values.emplace_back().tensor = widened(grads[0]);
    const std::vector<Value> gradients =
        without_autocast([&] { return op_->gradient().evaluate(values, wanted); });
    for (size_t k = 0; k < arguments_.size(); ++k) {
      const Argument& argument = arguments_[k];
      if (!wanted[k] || !op_->gradient().has_result(static_cast<int>(k))) continue;
      results[static_cast<size_t>(argument.edge)] =
          fit(gradients[k], argument.sizes, argument.options);
    }
    return results;
  }

 private:
  struct Argument {
    c10::Scalar number;
    c10::SmallVector<int64_t, 5> sizes;
    at::TensorOptions options;
    int edge = -1;
    bool is_tensor = false, saved = false;
  };

  static Tensor widened(const Tensor& t) {
    return is_half_type(t.scalar_type()) ? t.to(at::kFloat) : t;
  }

  // A gradient in the shape and dtype of its argument.
  static Tensor fit(const Value& gradient, c10::IntArrayRef sizes, const at::TensorOptions& like) {
    if (!gradient.is_tensor()) return at::full(sizes, gradient.number, like);
    Tensor t = gradient.tensor;
    if (t.sizes() != sizes) t = at::sum_to(std::move(t), sizes);
    return t.scalar_type() == like.dtype().toScalarType() ? t : t.to(like.dtype().toScalarType());
  }

  std::shared_ptr<const UserOp> op_;
  std::vector<Argument> arguments_;
  std::vector<int> edges_;
};

}  // namespace

Tensor call_user_op(const std::shared_ptr<const UserOp>& op, c10::ArrayRef<Value> arguments) {
  Values values(arguments.begin(), arguments.end());
  bool ours = false, direct = true, tracked = false;
  for (size_t k = 0; k < values.size(); ++k) {
    const Value& v = values[k];
    if (!v.is_tensor()) {
      direct = direct && !v.number.isComplex();
      continue;
    }
    ours = ours || is_dense(v.tensor.unsafeGetTensorImpl());
    direct = direct && is_ordinary(v.tensor) && !v.tensor.is_complex();
    tracked =
        tracked || (v.tensor.requires_grad() && op->gradient().has_result(static_cast<int>(k)));
  }
  if (C10_UNLIKELY(!ours || !direct)) return without_autocast([&] { return compute(*op, values); });
  tracked = tracked && c10::GradMode::is_enabled();
  Tensor result = without_autocast([&] {
    const at::AutoDispatchBelowADInplaceOrView below;
    return compute(*op, values);
  });
  if (tracked && torch::autograd::isDifferentiableType(result.scalar_type())) {
    const auto node = make_node<UserOpBackward>(op, arguments);
    torch::autograd::set_history(result, node);
  }
  return result;
}

// --- Python ----------------------------------------------------------------------------------

namespace {

namespace py = pybind11;

constexpr const char* kCapsule = "hologram_torch.UserOp";

c10::Scalar number_of(py::handle number) {
  if (py::isinstance<py::bool_>(number)) return c10::Scalar(number.cast<bool>());
  if (py::isinstance<py::int_>(number)) return c10::Scalar(number.cast<int64_t>());
  if (py::isinstance<py::float_>(number)) return c10::Scalar(number.cast<double>());
  return c10::Scalar(c10::complex<double>(number.cast<std::complex<double>>()));
}

Expression expression_of(py::handle made, int arguments) {
  const auto parts = made.cast<py::tuple>();  // constants, steps, results
  std::vector<c10::Scalar> constants;
  for (const py::handle number : parts[0].cast<py::tuple>()) constants.push_back(number_of(number));
  std::vector<Expression::Step> steps;
  for (const py::handle made_step : parts[1].cast<py::tuple>()) {
    const auto step = made_step.cast<py::tuple>();  // name, operands...
    const auto name = step[0].cast<std::string>();
    Expression::Step& next = steps.emplace_back();
    next.function = find_step_function(name);
    next.operands.fill(-1);
    TORCH_CHECK(
        next.function != nullptr && static_cast<int>(step.size()) == next.function->arity + 1,
        "no step function ", name, " of ", step.size() - 1, " operands");
    for (size_t k = 1; k < step.size(); ++k) next.operands[k - 1] = step[k].cast<int>();
  }
  return {std::move(constants), arguments, std::move(steps), parts[2].cast<std::vector<int>>()};
}

PyObject* make_user_op(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 4, "_make_user_op(name, arguments, value, gradient)");
  const auto name = py::handle(args[0]).cast<std::string>();
  const int arguments = py::handle(args[1]).cast<int>();
  auto op = std::make_unique<std::shared_ptr<const UserOp>>(std::make_shared<UserOp>(
      name, expression_of(args[2], arguments), expression_of(args[3], arguments + 1)));
  PyObject* capsule = PyCapsule_New(op.get(), kCapsule, [](PyObject* self) {
    delete static_cast<std::shared_ptr<const UserOp>*>(PyCapsule_GetPointer(self, kCapsule));
  });
  if (capsule != nullptr) static_cast<void>(op.release());
  return capsule;
  END_HANDLE_TH_ERRORS
}

// False for what only Python can judge: subclasses with functions of their own, symbolic numbers.
bool take(PyObject* argument, Value& value) {
  if (THPVariable_Check(argument)) {
    if (C10_UNLIKELY(has_own_functions(Py_TYPE(argument)))) return false;
    value.tensor = THPVariable_Unpack(argument);
    return true;
  }
  if (PyBool_Check(argument)) {
    value.number = argument == Py_True;
  } else if (PyFloat_Check(argument)) {
    value.number = PyFloat_AS_DOUBLE(argument);
  } else if (PyLong_Check(argument)) {
    int overflow = 0;
    const int64_t integer = PyLong_AsLongLongAndOverflow(argument, &overflow);
    if (overflow != 0) return false;
    value.number = integer;
  } else if (PyComplex_Check(argument)) {
    value.number =
        c10::complex<double>(PyComplex_RealAsDouble(argument), PyComplex_ImagAsDouble(argument));
  } else {
    return false;
  }
  return true;
}

const std::shared_ptr<const UserOp>* user_op_of(PyObject* capsule) {
  return static_cast<const std::shared_ptr<const UserOp>*>(PyCapsule_GetPointer(capsule, kCapsule));
}

PyObject* run_user_op(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  const auto* op = count > 0 ? user_op_of(args[0]) : nullptr;
  if (op == nullptr) return nullptr;
  Values values(static_cast<size_t>(count - 1));
  bool any = false;
  for (Py_ssize_t k = 1; k < count; ++k) {
    Value& value = values[static_cast<size_t>(k - 1)];
    if (C10_UNLIKELY(!take(args[k], value))) Py_RETURN_NOTIMPLEMENTED;
    any = any || value.is_tensor();
  }
  if (C10_UNLIKELY(!any || at::impl::torch_function_mode_enabled() ||
                   count - 1 != (*op)->value().arguments())) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  Tensor result;
  {
    const py::gil_scoped_release no_gil;
    result = call_user_op(*op, values);
    values.clear();
  }
  return THPVariable_Wrap(std::move(result));
  END_HANDLE_TH_ERRORS
}

PyObject* user_op_dtype(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  const auto* op = count > 0 ? user_op_of(args[0]) : nullptr;
  if (op == nullptr) return nullptr;
  c10::SmallVector<uint8_t, 8> kinds;
  for (Py_ssize_t k = 1; k < count; ++k) {
    // A dtype with its number of dimensions, or a number.
    if (PyTuple_Check(args[k])) {
      const auto pair = py::handle(args[k]).cast<py::tuple>();
      const auto type = reinterpret_cast<THPDtype*>(pair[0].ptr())->scalar_type;
      kinds.push_back(static_cast<uint8_t>(type) |
                      (pair[1].cast<int64_t>() > 0 ? kDimensionsKind : 0));
    } else {
      kinds.push_back(static_cast<uint8_t>(number_of(args[k]).type()) | kNumberKind);
    }
  }
  const at::ScalarType type = (*op)->result_type(kinds);
  PyObject* dtype = reinterpret_cast<PyObject*>(torch::getTHPDtype(type));
  Py_INCREF(dtype);
  return dtype;
  END_HANDLE_TH_ERRORS
}

PyObject* step_functions_of_python(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  py::list names;
  for (const std::string& name : step_function_names()) names.append(name);
  return names.release().ptr();
  END_HANDLE_TH_ERRORS
}

template <PyObject* (*kFunction)(PyObject*, PyObject* const*, Py_ssize_t)>
PyMethodDef fast_method(const char* name, const char* doc) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(kFunction)),
          METH_FASTCALL, doc};
}

}  // namespace

PyMethodDef kExpressionMethods[] = {
    fast_method<&make_user_op>("_make_user_op",
                               "_make_user_op(name, arguments, value, gradient): the op."),
    fast_method<&run_user_op>("_run_user_op",
                              "_run_user_op(op, *arguments): its result, or NotImplemented."),
    fast_method<&user_op_dtype>("_user_op_dtype",
                                "_user_op_dtype(op, *kinds): the dtype of its result."),
    {"_step_functions", &step_functions_of_python, METH_NOARGS, "Names of what steps can call."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace hologram_torch
