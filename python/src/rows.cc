// SPDX-License-Identifier: MIT
// Functions made of the op table: hologram.exp(x) on tensors, hologram.ops.exp(ex, x, out) on an
// executor's buffers.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "convert.h"
#include "elements.h"
#include "hologram/functions.h"
#include "hologram/op.h"
#include "hologram/recorder.h"
#include "interop/numpy_classes.h"
#include "objects.h"
#include "operators.h"
#include "through_numpy.h"

namespace hologram::python {

namespace {

constexpr int kMaxArity = 4;
constexpr std::array<const char*, kMaxArity> kOperandNames = {"x", "y", "z", "w"};

// --- On tensors ---------------------------------------------------------------------------------

// The value of out= and the check that there is nothing else.
PyObject* parse_out(const char* name, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                    int arity) {
  if (nargs != arity) {
    fail(ErrorKind::kTypeMismatch, name, "() takes ", arity, " operands; ", nargs, " were given");
  }
  PyObject* out = nullptr;
  const Py_ssize_t count = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const char* keyword = PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, i));
    if (keyword == nullptr) raise_set();
    if (std::string_view(keyword) != "out") {
      fail(ErrorKind::kTypeMismatch, name, "() got an unexpected keyword argument '", keyword,
           "'; it knows out");
    }
    out = args[nargs + i];
  }
  return out == Py_None ? nullptr : out;
}

// Numbers take part as NumPy lets them; where there are only numbers, they count with their width.
void settle_numbers(OpId op, Argument* arguments, int arity) {
  std::optional<Dtype> tensors;
  bool adapts = false;
  for (int i = 0; i < arity; ++i) {
    if (arguments[i].is_tensor()) {
      const Dtype dtype = arguments[i].tensor().dtype();
      tensors = tensors ? promote(*tensors, dtype) : dtype;
    }
    adapts = adapts || arguments[i].adapts();
  }
  if (!tensors) {
    for (int i = 0; i < arity; ++i) arguments[i].make_strong();
  } else if (adapts) {
    for (int i = 0; i < arity; ++i) arguments[i].adapt_to(*tensors, Argument::use_of(op));
  }
}

PyObject* call_on_tensors(OpId op, int arity, PyObject* const* args, Py_ssize_t nargs,
                          PyObject* kwnames) {
  return guarded([&] {
    const std::string_view name = op_info(op).name;
    PyObject* out = parse_out(name.data(), args, nargs, kwnames, arity);
    if (arity <= 2 && out == nullptr) {
      PyObject* const element = compute_elements(op, args[0], arity == 2 ? args[1] : nullptr);
      if (element != nullptr) return element;
    }
    std::array<Argument, kMaxArity> arguments;
    for (int i = 0; i < arity; ++i) {
      const bool parsed = arity == 2 && arguments[i].parse_beside(args[i], args[1 - i]);
      if (!parsed) arguments[i].require(args[i], name.data());
    }
    settle_numbers(op, arguments.data(), arity);
    for (int i = 0; i < arity; ++i) {
      if (!arguments[i].is_tensor() || !is_complex(arguments[i].tensor().dtype())) continue;
      const char* numpy = complex_in_numpy(op);
      if (numpy != nullptr) return call_numpy(numpy, args, arity, out).release().ptr();
      break;
    }
    std::array<Operand, kMaxArity> operands = {Operand(0), Operand(0), Operand(0), Operand(0)};
    bool is_long_op = false;
    for (int i = 0; i < arity; ++i) {
      operands[i] = arguments[i].operand();
      is_long_op = is_long_op || (arguments[i].is_tensor() && is_long(arguments[i].tensor()));
    }
    const std::span<const Operand> given(operands.data(), static_cast<size_t>(arity));
    if (out != nullptr) {
      TensorObject* target = tensor_of(out);
      if (target == nullptr) {
        fail(ErrorKind::kTypeMismatch, name, ": out is a Tensor or None, not ", name_of_type(out));
      }
      target->check_writable(name.data());
      if (is_unsigned(target->tensor().dtype())) {
        const Dtype result = elementwise_types(op, given, Rules::numpy).result;
        check_same_kind(result, target->tensor().dtype(), name.data());
      }
      {
        const Unlocked unlocked(is_long_op);
        apply_into(op, given, target->tensor(), Rules::numpy);
      }
      return Py_NewRef(out);
    }
    Tensor result;
    {
      const Unlocked unlocked(is_long_op);
      result = apply(op, given, Rules::numpy);
    }
    // NumPy's where gives arrays, without dimensions, too.
    return (op == OpId::where ? wrap(std::move(result)) : wrap_result(std::move(result)))
        .release()
        .ptr();
  });
}

template <OpId op, int arity>
PyObject* on_tensors(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return call_on_tensors(op, arity, args, nargs, kwnames);
}

// --- For NumPy's ufuncs --------------------------------------------------------------------------

// The dtypes of Tensors for which a ufunc is what it is known as.
enum class Among : uint8_t { kAll, kReals, kFloats, kNumbers };
bool is_among(Dtype dtype, Among among) {
  switch (among) {
    case Among::kAll:
      return true;
    case Among::kReals:
      return !is_complex(dtype);
    case Among::kFloats:
      return is_floating(dtype);
    case Among::kNumbers:
      return dtype != Dtype::kBool;
  }
  return false;
}

// A ufunc of NumPy's that is a row of the op table, or a function of two operands.
struct Ufunc {
  OpId op;
  int arity;
  PyObject* (*function)(PyObject*, PyObject*);  // null: the row
  Among among;
};
// They are few and live as long as the process.
std::unordered_map<PyObject*, Ufunc>& ufuncs() {
  static auto& known = *new std::unordered_map<PyObject*, Ufunc>;
  return known;
}

void note_ufunc(nb::handle ufunc, const char* name, const char* among) {
  constexpr std::array<const char*, 4> kAmong = {"all", "reals", "floats", "numbers"};
  const auto place = std::ranges::find(kAmong, std::string_view(among));
  if (place == kAmong.end()) {
    fail(ErrorKind::kInvalidArgument, "operands are all, reals, floats or numbers, not ", among);
  }
  Ufunc known{OpId::add, 2, nullptr, static_cast<Among>(place - kAmong.begin())};
  struct Function {
    const char* name;
    PyObject* (*function)(PyObject*, PyObject*);
  };
  constexpr std::array<Function, 6> kFunctions = {{{"left_shift", &left_shift_slot},
                                                   {"right_shift", &right_shift_slot},
                                                   {"floor_divide", &floor_divide_slot},
                                                   {"remainder", &remainder_slot},
                                                   {"matmul", &matmul_slot},
                                                   {"power", &power_ufunc}}};
  for (const Function& function : kFunctions) {
    if (std::string_view(function.name) == name) known.function = function.function;
  }
  const auto row =
      std::ranges::find_if(hologram::ops(), [&](const OpInfo& info) { return info.name == name; });
  if (known.function == nullptr) {
    if (row == hologram::ops().end()) {
      fail(ErrorKind::kInvalidArgument, "no row of the op table is called ", name);
    }
    known.op = row->id, known.arity = row->arity;
  }
  ufuncs().emplace(ufunc.inc_ref().ptr(), known);
}

// A Tensor or a number of Python's; NumPy's own arrays and numbers count otherwise.
bool is_plain(PyObject* object) {
  return tensor_of(object) != nullptr || PyFloat_CheckExact(object) || PyLong_CheckExact(object);
}
// The Tensor of out=(tensor,), the only keyword; null where no keywords were given. False for
// others.
bool find_out(PyObject* const* values, PyObject* kwnames, PyObject*& out) {
  out = nullptr;
  if (kwnames == nullptr) return true;
  if (PyTuple_GET_SIZE(kwnames) != 1 ||
      PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "out") != 0 ||
      !PyTuple_CheckExact(values[0]) || PyTuple_GET_SIZE(values[0]) != 1) {
    return false;
  }
  out = PyTuple_GET_ITEM(values[0], 0);
  return tensor_of(out) != nullptr;
}

// The result of a ufunc that is known, or null, without an error, where NumPy is to answer.
PyObject* try_ufunc(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (!PyUnicode_Check(args[1]) || PyUnicode_CompareWithASCIIString(args[1], "__call__") != 0) {
    return nullptr;
  }
  PyObject* const* const operands = args + 2;
  const Py_ssize_t count = nargs - 2;
  const auto found = ufuncs().find(args[0]);
  PyObject* out;
  if (found == ufuncs().end() || found->second.arity != count ||
      !find_out(args + nargs, kwnames, out)) {
    return nullptr;
  }
  const Ufunc& known = found->second;
  if (known.function != nullptr && out != nullptr) return nullptr;
  bool all_plain = true;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (const TensorObject* held = tensor_of(operands[i])) {
      if (!is_among(held->tensor().dtype(), known.among)) return nullptr;
      continue;
    }
    if (is_plain(operands[i])) continue;
    if (known.among != Among::kAll || !is_numpys(operands[i])) return nullptr;
    all_plain = false;
  }
  PyObject* result;
  if (known.function != nullptr) {
    result = known.function(operands[0], operands[1]);
  } else {
    PyObject* given[kMaxArity + 1];
    std::copy_n(operands, count, given);
    given[count] = out;
    static PyObject* const names = nb::make_tuple("out").release().ptr();
    result = call_on_tensors(known.op, known.arity, given, count, out != nullptr ? names : nullptr);
  }
  // NumPy computes what has no dtype here, or says in its own way what is wrong.
  const bool numpy_answers = result == nullptr && (!all_plain || out != nullptr) &&
                             (PyErr_ExceptionMatches(PyExc_TypeError) != 0 ||
                              PyErr_ExceptionMatches(PyExc_ValueError) != 0);
  if (numpy_answers) PyErr_Clear();
  if (result == nullptr && !numpy_answers) raise_set();
  return result;
}

// ufunc, method, operands...: a call of a ufunc that is known is recorded here.
PyObject* array_ufunc(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    if (nargs < 2) {
      fail(ErrorKind::kTypeMismatch, "__array_ufunc__ takes a ufunc, a method and operands");
    }
    if (PyObject* result = try_ufunc(args, nargs, kwnames)) return result;
    nb::list operands;
    for (Py_ssize_t i = 2; i < nargs; ++i) operands.append(nb::borrow(args[i]));
    nb::dict options;
    const Py_ssize_t count = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t i = 0; i < count; ++i) {
      options[nb::handle(PyTuple_GET_ITEM(kwnames, i))] = nb::borrow(args[nargs + i]);
    }
    return helper("hologram._ufuncs", "call", nb::handle(self), nb::handle(args[0]),
                  nb::handle(args[1]), nb::tuple(operands), options)
        .release()
        .ptr();
  });
}

PyMethodDef ufunc_method = {
    "__array_ufunc__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&array_ufunc)),
    METH_FASTCALL | METH_KEYWORDS,
    "__array_ufunc__($self, ufunc, method, /, *inputs, **options)\n--\n\n"
    "Answer a ufunc of NumPy's: recorded where it is a row, else run by NumPy on this memory."};

// --- On buffers of an executor -------------------------------------------------------------------

// The case that is recorded without looking further: buffers of one dtype and size.
bool record_plainly(const OpInfo& info, PyObject* const* args, Device& device) {
  const int arity = info.arity;
  std::array<RecordOperand, kMaxArity + 1> operands;
  const BufferObject* out = buffer_of(args[arity + 1]);
  if (out == nullptr || !out->buffer || info.result_is_bool || !info.supports(out->dtype)) {
    return false;
  }
  const size_t nbytes = out->buffer->nbytes();
  if (&out->buffer->device() != &device) return false;
  operands[0] = {out->buffer.get(), 0, out->dtype};
  for (int i = 0; i < arity; ++i) {
    const BufferObject* in = buffer_of(args[i + 1]);
    if (in == nullptr || !in->buffer || in->dtype != out->dtype || in->buffer->nbytes() != nbytes ||
        &in->buffer->device() != &device) {
      return false;
    }
    operands[i + 1] = {in->buffer.get(), 0, in->dtype};
  }
  return record_flat(info.id, out->dtype, operands.data(), arity,
                     static_cast<int64_t>(nbytes / itemsize(out->dtype)));
}

// A buffer or tensor of the executor's device; buffers in one dimension where `flat`.
Tensor tensor_argument(PyObject* object, const char* op, const char* name, bool flat,
                       const Device& device) {
  Tensor tensor;
  if (const BufferObject* buffer = buffer_of(object)) {
    tensor = buffer->tensor(op);
    if (flat) tensor = Tensor(buffer->buffer, Shape{tensor.numel()}, buffer->dtype);
  } else if (const TensorObject* held = tensor_of(object)) {
    tensor = held->tensor();
  } else {
    fail(ErrorKind::kTypeMismatch, op, ": ", name, " is a Buffer, a Tensor or a number, not ",
         name_of_type(object), "; copy arrays into a Buffer with from_numpy");
  }
  if (tensor.buffer() && &tensor.buffer()->device() != &device) {
    fail(ErrorKind::kInvalidArgument, op, ": ", name, " is on another device than the executor");
  }
  return tensor;
}

// Whether every operand with memory is a Buffer of as many elements as the others.
bool are_flat(PyObject* const* args, int count) {
  int64_t numel = -1;
  for (int i = 0; i < count; ++i) {
    WeakNumber number;
    if (tensor_of(args[i]) == nullptr && parse_weak(args[i], number)) continue;
    const BufferObject* buffer = buffer_of(args[i]);
    if (buffer == nullptr || !buffer->buffer) return false;
    const int64_t n = static_cast<int64_t>(buffer->buffer->nbytes() / itemsize(buffer->dtype));
    if (numel >= 0 && n != numel) return false;
    numel = n;
  }
  return true;
}

// Ints that only uint64 holds, beside buffers of that: buffers of one element.
void settle_uint64(Operand* operands, const Argument* numbers, Tensor* tensors, int arity,
                   Device& device) {
  std::optional<Dtype> common;
  for (int i = 0; i < arity; ++i) {
    if (!operands[i].is_tensor()) continue;
    const Dtype dtype = operands[i].tensor().dtype();
    common = common ? promote(*common, dtype) : dtype;
  }
  if (common != Dtype::kUInt64) return;
  for (int i = 0; i < arity; ++i) {
    if (operands[i].is_tensor() || !numbers[i].number().is_uint64) continue;
    tensors[i] = full({}, numbers[i].number().value_in(*common), *common, device);
    operands[i] = Operand(tensors[i]);
  }
}

PyObject* call_on_buffers(OpId op, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    const OpInfo& info = op_info(op);
    const char* name = info.name.data();
    const int arity = info.arity;
    if (kwnames != nullptr) {
      // out= lies where it would without its name.
      if (PyTuple_GET_SIZE(kwnames) != 1 ||
          PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "out") != 0) {
        fail(ErrorKind::kTypeMismatch, "ops.", name, ": only out may be given by name");
      }
      ++nargs;
    }
    if (nargs != arity + 2) {
      fail(ErrorKind::kTypeMismatch, "ops.", name, "(ex, inputs..., out) takes an Executor, ",
           arity, " inputs and out; ", nargs, " arguments were given");
    }
    const ExecutorObject* ex = executor_of(args[0]);
    if (ex == nullptr) {
      fail(ErrorKind::kTypeMismatch, "ops.", name, ": ex is an Executor, not ",
           name_of_type(args[0]));
    }
    ex->executor->check_open(name);
    Device& device = ex->executor->device();
    if (record_plainly(info, args, device)) Py_RETURN_NONE;

    const bool flat = are_flat(args + 1, arity + 1);
    std::array<Tensor, kMaxArity> tensors;
    std::array<Argument, kMaxArity> numbers;
    std::array<Operand, kMaxArity> operands = {Operand(0), Operand(0), Operand(0), Operand(0)};
    bool has_tensor = false;
    for (int i = 0; i < arity; ++i) {
      WeakNumber number;
      if (tensor_of(args[i + 1]) == nullptr && parse_weak(args[i + 1], number)) {
        numbers[i].parse(args[i + 1]);
        operands[i] = numbers[i].operand();
        continue;
      }
      tensors[i] = tensor_argument(args[i + 1], name, kOperandNames[i], flat, device);
      operands[i] = Operand(tensors[i]);
      has_tensor = true;
    }
    settle_uint64(operands.data(), numbers.data(), tensors.data(), arity, device);
    if (!has_tensor) {
      fail(ErrorKind::kTypeMismatch, "ops.", name, ": at least one input is a Buffer or a Tensor");
    }
    const Tensor out = tensor_argument(args[arity + 1], name, "out", flat, device);
    if (const TensorObject* held = tensor_of(args[arity + 1])) held->check_writable(name);
    {
      const Unlocked unlocked(is_long(out));
      apply_into(op, {operands.data(), static_cast<size_t>(arity)}, out, Rules::numpy);
    }
    Py_RETURN_NONE;
  });
}

template <OpId op>
PyObject* on_buffers(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  return call_on_buffers(op, args, nargs, kwnames);
}

// --- Their descriptions -------------------------------------------------------------------------

std::string number_text(float value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string accuracy_text(const OpInfo& info) {
  switch (info.accuracy) {
    case Accuracy::kExact:
      return "exact, or correctly rounded";
    case Accuracy::kUlp:
      return "within " + number_text(info.ulp32) + " ULP in float32, " + number_text(info.ulp64) +
             " in float64";
    case Accuracy::kSteps:
      return "within " + number_text(info.ulp32) +
             " ULP of the largest operand or result, as terms may cancel";
  }
  return "";
}

std::string dtypes_text(const OpInfo& info) {
  switch (info.dtypes) {
    case DtypeSet::kFloats:
      return "the float dtypes; integers and bool are converted";
    case DtypeSet::kNumbers:
      return "floats and integers";
    case DtypeSet::kAll:
      return "floats, integers and bool";
    case DtypeSet::kBits:
      return "integers and bool";
  }
  return "";
}

std::string facts(const OpInfo& info) {
  std::string text = "\n\nDtypes: " + dtypes_text(info);
  text += info.result_is_bool ? "; the result is bool." : ".";
  return text + "\nThe half types are computed in float32 and rounded once.\nAccuracy: " +
         accuracy_text(info) + ".";
}

std::string operand_list(int arity) {
  std::string text;
  for (int i = 0; i < arity; ++i) text += (i == 0 ? "" : ", ") + std::string(kOperandNames[i]);
  return text;
}

std::string params_text(const OpInfo& info) {
  if (info.params == 0) return "";
  const int first = info.arity - info.params;
  std::string text = "\n\nUsually numbers: ";
  for (int i = first; i < info.arity; ++i) {
    text += (i == first ? "" : ", ") + std::string(kOperandNames[i]);
  }
  return text + ".";
}

std::string tensor_doc(const OpInfo& info) {
  return std::string(info.name) + "(" + operand_list(info.arity) + ", /, *, out=None)\n--\n\n" +
         std::string(info.doc) +
         ".\n\nOperands are Tensors, arrays or numbers; they broadcast and are promoted by "
         "NumPy's\n"
         "rules. The result is a new Tensor, or `out`, a Tensor of the broadcast shape." +
         params_text(info) + facts(info) + "\nErrors: ValueError for shapes, TypeError for dtypes.";
}

std::string buffer_doc(const OpInfo& info, const std::string& name) {
  return name + "(ex, " + operand_list(info.arity) +
         ", out, /)\n--\n\nout = " + std::string(info.doc) +
         ".\n\nex is an open Executor; operands are its Buffers, Tensors or numbers, out a Buffer "
         "or\n"
         "Tensor. Buffers of as many elements each are taken as flat, else shapes broadcast. The "
         "op\n"
         "is recorded and runs when a result is read." +
         params_text(info) + facts(info) +
         "\nErrors: ValueError for shapes, TypeError for dtypes and for a result that does not go\n"
         "into out, RuntimeError for a closed executor or a freed buffer.";
}

// Method tables live as long as the process.
struct Table {
  nb::module_& module;
  const char* shown;  // the module that users know
  std::vector<std::unique_ptr<std::string>>& texts;

  void add(const std::string& name, std::string doc, PyCFunction function, int flags) const {
    const auto keep = [&](std::string text) {
      texts.push_back(std::make_unique<std::string>(std::move(text)));
      return texts.back()->c_str();
    };
    auto* method = new PyMethodDef{keep(name), function, flags, keep(std::move(doc))};
    nb::object made = nb::steal(PyCFunction_NewEx(method, nullptr, nb::str(shown).ptr()));
    if (!made.is_valid()) raise_set();
    module.attr(name.c_str()) = made;
  }
};

template <OpId op, int arity>
void add_row(const Table& tensors, const Table& buffers) {
  const OpInfo& info = op_info(op);
  const std::string name(info.name);
  tensors.add(name, tensor_doc(info),
              reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&on_tensors<op, arity>)),
              METH_FASTCALL | METH_KEYWORDS);
  struct Alias {
    OpId id;
    const char* name;
  };
  constexpr std::array<Alias, 12> kAliases = {{{OpId::add, "vector_add"},
                                               {OpId::sub, "vector_sub"},
                                               {OpId::mul, "vector_mul"},
                                               {OpId::div, "vector_div"},
                                               {OpId::minimum, "vector_min"},
                                               {OpId::maximum, "vector_max"},
                                               {OpId::abs, "vector_abs"},
                                               {OpId::neg, "vector_neg"},
                                               {OpId::relu, "vector_relu"},
                                               {OpId::clamp, "vector_clip"},
                                               {OpId::add, "scalar_add"},
                                               {OpId::mul, "scalar_mul"}}};
  auto* function = reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&on_buffers<op>));
  constexpr int kFlags = METH_FASTCALL | METH_KEYWORDS;
  buffers.add(name, buffer_doc(info, name), function, kFlags);
  for (const Alias& alias : kAliases) {
    if (alias.id == op) {
      buffers.add(alias.name, buffer_doc(info, alias.name), function, kFlags);
    }
  }
}

}  // namespace

PyObject* where_of(PyObject* const* operands) {
  return call_on_tensors(OpId::where, 3, operands, 3, nullptr);
}

void add_ufunc_method(nb::handle type) {
  nb::object descriptor =
      nb::steal(PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type.ptr()), &ufunc_method));
  if (!descriptor.is_valid()) raise_set();
  nb::setattr(type, ufunc_method.ml_name, descriptor);
}

void register_rows(nb::module_& m) {
  m.def(
      "_note_ufunc", &note_ufunc, nb::arg("ufunc"), nb::arg("name"), nb::arg("among") = "all",
      "Let a ufunc of NumPy's be a row, or an operator, wherever its operands are Tensors of such\n"
      "dtypes (all, reals, floats, numbers) and numbers.");
  nb::module_ rows = m.def_submodule("rows", "The rows of the op table on tensors.");
  nb::module_ ops = m.def_submodule("ops", "The rows of the op table on buffers.");
  static auto& texts = *new std::vector<std::unique_ptr<std::string>>;
  const Table tensors{rows, "hologram", texts};
  const Table buffers{ops, "hologram.ops", texts};
#define HOLOGRAM_OP(name, id, arity, ...) add_row<OpId::name, arity>(tensors, buffers);
#include "hologram/elementwise.def"
  // Name, operands, those that are usually numbers, whether it computes floats, whether it gives
  // bool: for tests and measurements.
  nb::list table;
  for (const OpInfo& row : hologram::ops()) {
    table.append(nb::make_tuple(row.name.data(), row.arity, row.params,
                                row.supports(Dtype::kFloat32), row.result_is_bool));
  }
  rows.attr("_table") = table;
}

}  // namespace hologram::python
