// SPDX-License-Identifier: MIT
// Ops that users write: which program runs for which arguments, dtypes, the autograd node, and the
// way in from Python.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/GradMode.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <bit>

#include "device/python_types.h"
#include "ops/custom/derived_node.h"
#include "ops/custom/program.h"

namespace hologram_torch {
namespace {

namespace py = pybind11;
using at::Tensor;
using Kinds = c10::SmallVector<uint8_t, 8>;

// A dtype, and whether it is that of a number or of a tensor with dimensions.
uint8_t kind_of(const Tensor& t) {
  const auto type = static_cast<uint8_t>(t.scalar_type());
  return type | (is_wrapped(t) ? 0x40 : t.dim() > 0 ? 0x80 : 0);
}

Tensor widened(const Tensor& t) { return is_half_type(t.scalar_type()) ? t.to(at::kFloat) : t; }

// How to compute for arguments of certain kinds.
struct Entry {
  Kinds kinds;
  std::shared_ptr<const Program> program;  // null: as it is written out
  std::optional<at::ScalarType> rounded;   // the result's dtype, where that is a half
};

// Read and written with Python's lock held. An entry is never moved or removed, so that a call may
// use it after it has given the lock back.
struct UserOp {
  std::vector<std::unique_ptr<const Entry>> entries;
  // The numbers of the last call, by argument: most are the same in the next one.
  struct Number {
    at::ScalarType type = at::kDouble;
    int64_t bits = 0;
    Tensor tensor;
  };
  std::vector<Number> numbers;
};

// --- The node --------------------------------------------------------------------------------

// Keeps the arguments that the gradients asked for are made of, and computes them from those: what
// the forward pass computed in between is computed again, in the same kernel.
class UserOpBackward final : public DerivedNode {
 public:
  UserOpBackward(std::shared_ptr<const Program> program, const Program::Values& arguments,
                 Program::Set wanted)
      : program_(std::move(program)), arguments_(arguments.size()) {
    const Program::Set read = program_->read_by_gradients(wanted);
    for (size_t k = 0; k < arguments.size(); ++k) {
      const Tensor& t = arguments[k];
      Argument& argument = arguments_[k];
      if (is_wrapped(t)) {
        argument.number = t;
        continue;
      }
      argument.edge = static_cast<int>(num_outputs());
      argument.sizes.assign(t.sizes().begin(), t.sizes().end());
      argument.options = t.options();
      add_next_edge((wanted >> k & 1) != 0 ? torch::autograd::impl::gradient_edge(t)
                                           : torch::autograd::Edge());
      argument.saved = (read >> k & 1) != 0;
      if (argument.saved) save(t);
    }
  }

  std::string name() const override { return program_->name(); }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    torch::autograd::variable_list results(num_outputs());
    if (!grads[0].defined()) return results;
    const std::vector<Tensor> saved = unpack();
    Program::Values values;
    Program::Set wanted = 0;
    size_t next = 0;
    for (size_t k = 0; k < arguments_.size(); ++k) {
      const Argument& argument = arguments_[k];
      if (argument.edge >= 0 && task_should_compute_output(static_cast<size_t>(argument.edge))) {
        wanted |= Program::Set{1} << k;
      }
      values.push_back(argument.saved ? widened(saved[next++]) : argument.number);
    }
    values.push_back(widened(grads[0]));
    const Program::Values gradients =
        without_autocast([&] { return program_->gradients(std::move(values), wanted); });
    for (size_t k = 0; k < arguments_.size(); ++k) {
      const Argument& argument = arguments_[k];
      if (!gradients[k].defined()) continue;
      results[static_cast<size_t>(argument.edge)] = fit(gradients[k], argument);
    }
    return results;
  }

 private:
  struct Argument {
    Tensor number;
    c10::SmallVector<int64_t, 5> sizes;
    at::TensorOptions options;
    int edge = -1;
    bool saved = false;
  };

  // A gradient in the shape and dtype of its argument.
  static Tensor fit(Tensor t, const Argument& argument) {
    if (is_wrapped(t)) return at::full(argument.sizes, t.item(), argument.options);
    if (t.sizes() != argument.sizes) t = at::sum_to(std::move(t), argument.sizes);
    const at::ScalarType type = argument.options.dtype().toScalarType();
    return t.scalar_type() == type ? t : t.to(type);
  }

  std::shared_ptr<const Program> program_;
  std::vector<Argument> arguments_;
};

// Of ours, tensors of the device, with one node; of others with PyTorch's own. float16 and bfloat16
// are computed in float32 and rounded once.
Tensor compute(const Entry& entry, const Program::Values& arguments, bool ours) {
  const auto value_of = [&] {
    Program::Values values;
    for (const Tensor& t : arguments) values.push_back(widened(t));
    Tensor value = entry.program->value(std::move(values));
    return entry.rounded.has_value() ? value.to(*entry.rounded) : value;
  };
  if (C10_UNLIKELY(!ours)) return without_autocast(value_of);
  Program::Set tracked = 0;
  for (size_t k = 0; k < arguments.size(); ++k) {
    if (arguments[k].requires_grad()) tracked |= Program::Set{1} << k;
  }
  tracked &= entry.program->with_gradient();
  Tensor result = without_autocast([&] {
    const at::AutoDispatchBelowADInplaceOrView below;
    return value_of();
  });
  if (tracked != 0 && c10::GradMode::is_enabled()) {
    torch::autograd::set_history(result,
                                 make_node<UserOpBackward>(entry.program, arguments, tracked));
  }
  return result;
}

// --- Python ----------------------------------------------------------------------------------

template <class T>
PyObject* capsule_of(std::unique_ptr<T> held) {
  PyObject* capsule = PyCapsule_New(held.get(), nullptr, [](PyObject* self) {
    delete static_cast<T*>(PyCapsule_GetPointer(self, nullptr));
  });
  if (capsule != nullptr) static_cast<void>(held.release());
  return capsule;
}

template <class T>
T& held_by(PyObject* capsule) {
  void* held = PyCapsule_GetPointer(capsule, nullptr);
  if (held == nullptr) throw python_error();
  return *static_cast<T*>(held);
}

Tensor number_of(const c10::Scalar& number) {
  Tensor t = c10::scalar_to_tensor(number);
  t.unsafeGetTensorImpl()->set_wrapped_number(true);
  return t;
}

// Of argument k.
Tensor number_of(UserOp& op, size_t k, const c10::Scalar& number) {
  if (op.numbers.size() <= k) op.numbers.resize(k + 1);
  UserOp::Number& last = op.numbers[k];
  const at::ScalarType type = number.type();
  const int64_t bits =
      type == at::kDouble ? std::bit_cast<int64_t>(number.toDouble()) : number.toLong();
  if (!last.tensor.defined() || last.type != type || last.bits != bits) {
    last = {type, bits, number_of(number)};
  }
  return last.tensor;
}

// Nothing for what only Python can judge: symbolic numbers, long integers.
std::optional<c10::Scalar> scalar_of(PyObject* argument) {
  if (PyBool_Check(argument)) return c10::Scalar(argument == Py_True);
  if (PyFloat_Check(argument)) return c10::Scalar(PyFloat_AS_DOUBLE(argument));
  if (!PyLong_Check(argument)) return std::nullopt;
  int overflow = 0;
  const int64_t integer = PyLong_AsLongLongAndOverflow(argument, &overflow);
  return overflow == 0 ? std::optional<c10::Scalar>(integer) : std::nullopt;
}

// Undefined for what only Python can judge: subclasses with functions of their own, too.
Tensor take(UserOp& op, size_t k, PyObject* argument) {
  if (THPVariable_Check(argument)) {
    return has_own_functions(Py_TYPE(argument)) ? Tensor() : THPVariable_Unpack(argument);
  }
  const std::optional<c10::Scalar> number = scalar_of(argument);
  return number.has_value() ? number_of(op, k, *number) : Tensor();
}

PyObject* make_user_op(PyObject*, PyObject*) { return capsule_of(std::make_unique<UserOp>()); }

Program::Step step_of(const py::tuple& written) {
  // Its name, its overload's, positional and other arguments: a place, or a value in a tuple.
  const auto name = written[0].cast<std::string>(), overload = written[1].cast<std::string>();
  Program::Step step{
      c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str()), {}, {}};
  const auto given = written[2].cast<py::tuple>();
  py::list args;
  for (size_t k = 0; k < given.size(); ++k) {
    const bool placed = py::isinstance<py::int_>(given[k]);
    if (placed) step.operands.emplace_back(static_cast<int>(k), given[k].cast<int>());
    args.append(placed ? py::object(py::int_(0)) : given[k].cast<py::tuple>()[0]);
  }
  step.stack = torch::jit::createStackForSchema(
      step.op.schema(), torch::jit::tuple_slice(py::tuple(args)),
      py::kwargs(py::reinterpret_borrow<py::object>(written[3])), std::nullopt);
  for (const auto& [at, place] : step.operands) step.stack[static_cast<size_t>(at)] = {};
  return step;
}

PyObject* make_program(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 4, "_make_program(name, arguments, steps, results)");
  const torch::jit::ToIValueAllowNumbersAsTensors numbers(true);
  std::vector<Program::Step> steps;
  for (const py::handle step : py::handle(args[2]))
    steps.push_back(step_of(step.cast<py::tuple>()));
  std::vector<Program::Result> results;
  for (const py::handle written : py::handle(args[3])) {
    Program::Result& result = results.emplace_back();
    if (py::isinstance<py::int_>(written)) {
      result.place = written.cast<int>();
    } else {
      const py::object number = written.cast<py::tuple>()[0];
      if (!number.is_none()) result.number = number_of(scalar_of(number.ptr()).value());
    }
  }
  return capsule_of(std::make_unique<std::shared_ptr<const Program>>(std::make_shared<Program>(
      py::handle(args[0]).cast<std::string>(), py::handle(args[1]).cast<int>(), std::move(steps),
      std::move(results))));
  END_HANDLE_TH_ERRORS
}

PyObject* add_program(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  auto entry = std::make_unique<Entry>();
  auto& op = held_by<UserOp>(args[0]);
  for (Py_ssize_t k = 3; k < count; ++k) {
    entry->kinds.push_back(kind_of(take(op, static_cast<size_t>(k - 3), args[k])));
  }
  if (args[1] != Py_None) entry->program = held_by<std::shared_ptr<const Program>>(args[1]);
  if (args[2] != Py_None) entry->rounded = reinterpret_cast<THPDtype*>(args[2])->scalar_type;
  op.entries.push_back(std::move(entry));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyObject* run_user_op(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  auto& op = held_by<UserOp>(args[0]);
  Program::Values values;
  Kinds kinds;
  bool any = false, ours = false;
  for (Py_ssize_t k = 1; k < count; ++k) {
    const Tensor& value = values.emplace_back(take(op, values.size(), args[k]));
    if (C10_UNLIKELY(!value.defined())) Py_RETURN_NOTIMPLEMENTED;
    kinds.push_back(kind_of(value));
    if (is_wrapped(value)) continue;
    any = true;
    ours = ours || is_dense(value.unsafeGetTensorImpl());
    if (C10_UNLIKELY(!is_ordinary(value) || value.is_complex())) Py_RETURN_NOTIMPLEMENTED;
  }
  if (C10_UNLIKELY(!any || at::impl::torch_function_mode_enabled())) Py_RETURN_NOTIMPLEMENTED;
  const auto found =
      std::ranges::find_if(op.entries, [&](const auto& entry) { return entry->kinds == kinds; });
  if (C10_UNLIKELY(found == op.entries.end())) Py_RETURN_NONE;
  const Entry& entry = **found;
  if (C10_UNLIKELY(entry.program == nullptr)) Py_RETURN_NOTIMPLEMENTED;
  Tensor result;
  {
    const py::gil_scoped_release no_gil;
    result = compute(entry, values, ours);
    values.clear();
  }
  return THPVariable_Wrap(std::move(result));
  END_HANDLE_TH_ERRORS
}

template <PyObject* (*kFunction)(PyObject*, PyObject* const*, Py_ssize_t)>
PyMethodDef fast_method(const char* name, const char* doc) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(kFunction)),
          METH_FASTCALL, doc};
}

}  // namespace

PyMethodDef kProgramMethods[] = {
    {"_make_user_op", &make_user_op, METH_NOARGS, "An op without programs."},
    fast_method<&make_program>("_make_program",
                               "_make_program(name, arguments, steps, results): see _trace.py."),
    fast_method<&add_program>("_add_program",
                              "_add_program(op, program, rounded, *arguments): for such arguments; "
                              "None is as it is written out."),
    fast_method<&run_user_op>("_run_user_op",
                              "_run_user_op(op, *arguments): its result; None where it has no "
                              "program for them; NotImplemented where it is written out."),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace hologram_torch
