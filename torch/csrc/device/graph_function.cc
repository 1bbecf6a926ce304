// SPDX-License-Identifier: MIT
// Captures a Python function of tensors, and gives each call its memory: arguments as they are,
// results new ones.
#include "device/graph_function.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "device/foreign_operators.h"
#include "device/graph.h"
#include "device/tensor.h"
#include "hologram/circuit.h"
#include "hologram/recorder.h"

namespace py = pybind11;

namespace hologram_torch {
namespace {

using hologram::Buffer;

constexpr uint32_t kNoStorage = UINT32_MAX;

// How a tensor lies in its storage.
struct Layout {
  c10::SmallVector<int64_t, 5> sizes, strides;
  int64_t offset = 0;
  caffe2::TypeMeta dtype;

  static Layout of(const c10::TensorImpl& t) {
    return {{t.sizes().begin(), t.sizes().end()},
            {t.strides().begin(), t.strides().end()},
            t.storage_offset(),
            t.dtype()};
  }
  bool is_of(const c10::TensorImpl& t) const {
    return t.dtype() == dtype && t.storage_offset() == offset &&
           t.sizes() == c10::IntArrayRef(sizes) && t.strides() == c10::IntArrayRef(strides);
  }
  at::Tensor on(c10::intrusive_ptr<c10::StorageImpl> storage) const {
    auto impl = make_impl(std::move(storage), dtype);
    impl->set_sizes_and_strides(sizes, strides, offset);
    return at::Tensor(std::move(impl));
  }
};

bool counts_versions(const c10::TensorImpl& t) {
  return !const_cast<c10::TensorImpl&>(t).is_inference();
}

// A write to one of them is a write to the other, as of a view.
void share_versions(const at::Tensor& base, const at::Tensor& t) {
  c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  const c10::TensorImpl* other = base.unsafeGetTensorImpl();
  if (counts_versions(*impl) && counts_versions(*other)) {
    impl->set_version_counter(other->version_counter());
  }
}

// A tensor of the device without anything about it but its layout; else null. Wrapped in Python's,
// functorch's or autograd's ways of dual numbers it is none.
c10::TensorImpl* plain_impl(PyObject* object) {
  if (!THPVariable_Check(object)) return nullptr;
  const at::Tensor& t = THPVariable_Unpack(object);
  if (!t.defined() || !is_ours(t)) return nullptr;
  c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  const c10::DispatchKeySet odd(
      {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::Conjugate,
       c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor, c10::DispatchKey::Functionalize,
       c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::FuncTorchBatched});
  const bool plain = impl->layout() == c10::kStrided && impl->has_storage() &&
                     !impl->key_set().has_any(odd) &&
                     impl->key_set().has(c10::DispatchKey::PrivateUse1);
  return plain ? impl : nullptr;
}

class GraphFunction {
 public:
  // Starts to capture what this thread does with tensors that stand for `arguments`, which are
  // returned; None where that is not possible now.
  py::object begin(const py::list& arguments);
  // The stand-ins became `results`.
  void end(const py::list& results);
  void abandon() {
    finish();
    function_.reset();
    stand_ins_.clear();
  }
  // The results for other arguments, recorded; None, with nothing done, where these are not like
  // those of the capture, or the device does not record them.
  py::object call(const py::list& arguments);

  ~GraphFunction() { finish(); }
  int ops() const { return function_ == nullptr ? 0 : function_->ops(); }
  int64_t bytes_kept() const { return function_ == nullptr ? 0 : function_->bytes_kept(); }

 private:
  struct Argument {
    py::object value;  // what is not a tensor, which has to be equal
    Layout layout;
    uint32_t storage = kNoStorage;  // of those that arguments have
    uint32_t writes = 0;            // by which a call raises its version
  };
  struct Result {
    enum Kind : uint8_t { kValue, kArgument, kOfArgument, kNew, kSameAsNew, kConstant } kind;
    py::object value;     // of kValue
    at::Tensor constant;  // of kConstant
    Layout layout;
    uint32_t at = 0;     // an argument, or a storage that is new
    uint32_t first = 0;  // the result that made that storage
  };

  bool add_argument(PyObject* given);
  bool collect(const py::list& arguments);
  void add_result(PyObject* given, std::vector<c10::StorageImpl*>& made);
  void finish() {
    if (!capturing_) return;
    capturing_ = false;
    set_function_draws(nullptr);
    if (function_ != nullptr) function_->abandon();
  }

  std::unique_ptr<hologram::DeviceFunction> function_;
  c10::DeviceIndex index_ = -1;
  bool capturing_ = false;
  bool ready_ = false;
  std::vector<Argument> arguments_;
  std::vector<c10::StorageImpl*> real_;  // while it begins
  std::vector<at::Tensor> stand_ins_;    // while it is captured; undefined for values
  std::vector<uint64_t> versions_;       // of the stand-ins, before
  std::vector<size_t> sizes_;            // of storages of arguments, in bytes
  std::vector<uint32_t> used_;           // storages with bytes, by the function's number of them
  std::vector<uint32_t> written_;        // storages
  std::vector<size_t> new_sizes_;        // of storages of results
  std::vector<Result> results_;
  CapturedDraws draws_;
  // Of a call, kept for their memory.
  std::vector<c10::StorageImpl*> found_;
  std::vector<Buffer*> given_, sorted_;
};

template <class F>
auto as_torch(F&& f) {
  try {
    return f();
  } catch (const std::exception& error) {
    rethrow_as_torch(error, 0);
  }
}

bool GraphFunction::add_argument(PyObject* given) {
  Argument argument;
  if (!THPVariable_Check(given)) {
    const bool comparable = given == Py_None || PyLong_Check(given) || PyFloat_Check(given);
    argument.value = py::reinterpret_borrow<py::object>(given);
    arguments_.push_back(std::move(argument));
    return comparable;
  }
  c10::TensorImpl* impl = plain_impl(given);
  if (impl == nullptr) return false;
  const c10::DeviceIndex index = std::max<c10::DeviceIndex>(impl->device().index(), 0);
  if (index_ < 0) index_ = index;
  if (index != index_ || !is_host_index(index)) return false;
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  argument.layout = Layout::of(*impl);
  const auto at = std::find(real_.begin(), real_.end(), storage);
  argument.storage = static_cast<uint32_t>(at - real_.begin());
  if (at == real_.end()) {
    const Buffer* buffer = buffer_of(*storage);
    if (storage->nbytes() != 0 && (buffer == nullptr || !is_watched(*storage))) return false;
    real_.push_back(storage);
  }
  arguments_.push_back(std::move(argument));
  return true;
}

py::object GraphFunction::begin(const py::list& arguments) {
  TORCH_CHECK(function_ == nullptr, "a GraphFunction is captured once");
  if (!is_deferring() || hologram::is_capturing_graph()) return py::none();
  for (const py::handle given : arguments) {
    if (!add_argument(given.ptr())) {
      arguments_.clear(), real_.clear();
      return py::none();
    }
  }
  if (index_ < 0) index_ = index_of({});
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> storages;
  std::vector<Buffer*> buffers;
  for (const c10::StorageImpl* real : std::exchange(real_, {})) {
    storages.push_back(make_storage(real->nbytes(), index_));
    sizes_.push_back(real->nbytes());
    if (real->nbytes() == 0) continue;
    used_.push_back(static_cast<uint32_t>(storages.size() - 1));
    buffers.push_back(buffer_of(*storages.back()));
  }
  py::list stand_ins;
  for (const Argument& argument : arguments_) {
    at::Tensor t;
    if (argument.storage != kNoStorage) t = argument.layout.on(storages[argument.storage]);
    versions_.push_back(t.defined() && counts_versions(*t.unsafeGetTensorImpl())
                            ? t.unsafeGetTensorImpl()->version_counter().current_version()
                            : 0);
    stand_ins.append(t.defined() ? py::reinterpret_steal<py::object>(THPVariable_Wrap(t))
                                 : argument.value);
    stand_ins_.push_back(std::move(t));
  }
  function_ = std::make_unique<hologram::DeviceFunction>(memory_device(index_));
  if (!as_torch([&] { return function_->begin(buffers); })) {
    abandon();
    return py::none();
  }
  capturing_ = true;
  set_function_draws(&draws_);
  return stand_ins;
}

void GraphFunction::add_result(PyObject* given, std::vector<c10::StorageImpl*>& made) {
  Result result;
  if (!THPVariable_Check(given)) {
    result.kind = Result::kValue;
    result.value = py::reinterpret_borrow<py::object>(given);
    results_.push_back(std::move(result));
    return;
  }
  c10::TensorImpl* impl = plain_impl(given);
  TORCH_CHECK_NOT_IMPLEMENTED(impl != nullptr, "a result that is no plain tensor of the device");
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  result.layout = Layout::of(*impl);
  for (size_t k = 0; k < stand_ins_.size(); ++k) {
    if (!stand_ins_[k].defined()) continue;
    c10::TensorImpl* stand_in = stand_ins_[k].unsafeGetTensorImpl();
    if (stand_in != impl && stand_in->unsafe_storage().unsafeGetStorageImpl() != storage) continue;
    result.kind = stand_in == impl ? Result::kArgument : Result::kOfArgument;
    result.at = static_cast<uint32_t>(k);
    if (stand_in == impl) break;
  }
  const bool of_argument = std::any_of(stand_ins_.begin(), stand_ins_.end(), [&](const auto& t) {
    return t.defined() &&
           t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() == storage;
  });
  if (!of_argument) {
    const Buffer* buffer = buffer_of(*storage);
    const auto at = std::find(made.begin(), made.end(), storage);
    result.at = static_cast<uint32_t>(at - made.begin());
    if (storage->nbytes() != 0 && (buffer == nullptr || buffer->data() != nullptr)) {
      result.kind = Result::kConstant;
      result.constant = THPVariable_Unpack(given);
    } else if (at == made.end()) {
      result.kind = Result::kNew;
      made.push_back(storage);
      new_sizes_.push_back(storage->nbytes());
    } else {
      result.kind = Result::kSameAsNew;
      for (size_t k = 0; k < results_.size(); ++k) {
        if (results_[k].kind == Result::kNew && results_[k].at == result.at) {
          result.first = static_cast<uint32_t>(k);
        }
      }
    }
  }
  results_.push_back(std::move(result));
}

void GraphFunction::end(const py::list& results) {
  TORCH_CHECK(capturing_, "GraphFunction.end: nothing is captured; call begin() first");
  std::vector<c10::StorageImpl*> made;
  for (const py::handle given : results) add_result(given.ptr(), made);
  std::vector<Buffer*> buffers;
  for (c10::StorageImpl* storage : made) {
    if (storage->nbytes() != 0) buffers.push_back(buffer_of(*storage));
  }
  as_torch([&] { function_->end(buffers); });
  capturing_ = false;
  set_function_draws(nullptr);
  draws_.find_places(function_->numbers());
  for (size_t k = 0; k < stand_ins_.size(); ++k) {
    if (!stand_ins_[k].defined()) continue;
    const c10::TensorImpl& t = *stand_ins_[k].unsafeGetTensorImpl();
    if (!counts_versions(t)) continue;
    arguments_[k].writes =
        static_cast<uint32_t>(t.version_counter().current_version() - versions_[k]);
  }
  for (size_t k = 0; k < used_.size(); ++k) {
    if (function_->writes(k)) written_.push_back(used_[k]);
  }
  stand_ins_.clear();
  ready_ = true;
}

// Whether the arguments are like those of the capture; found_ and given_ are set then.
bool GraphFunction::collect(const py::list& arguments) {
  if (arguments.size() != arguments_.size()) return false;
  found_.assign(sizes_.size(), nullptr);
  for (size_t k = 0; k < arguments_.size(); ++k) {
    const Argument& want = arguments_[k];
    PyObject* given = PyList_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(k));
    if (want.storage == kNoStorage) {
      PyObject* value = want.value.ptr();
      if (given == value) continue;
      if (Py_TYPE(given) != Py_TYPE(value)) return false;
      const int equal = PyObject_RichCompareBool(given, value, Py_EQ);
      if (equal < 0) throw py::error_already_set();
      if (equal == 0) return false;
      continue;
    }
    c10::TensorImpl* impl = plain_impl(given);
    if (impl == nullptr || !want.layout.is_of(*impl)) return false;
    if (std::max<c10::DeviceIndex>(impl->device().index(), 0) != index_) return false;
    c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    c10::StorageImpl*& found = found_[want.storage];
    if (found != nullptr && found != storage) return false;
    found = storage;
  }
  given_.clear();
  for (const uint32_t s : used_) {
    c10::StorageImpl* storage = found_[s];
    if (!is_watched(*storage)) return false;
    given_.push_back(buffer_of(*storage));
    if (given_.back() == nullptr || given_.back()->pool() == hologram::PoolKind::kForeign ||
        storage->nbytes() < sizes_[s]) {
      return false;
    }
  }
  // Storages that are one now may have been two when it was captured.
  sorted_ = given_;
  std::sort(sorted_.begin(), sorted_.end());
  return std::adjacent_find(sorted_.begin(), sorted_.end()) == sorted_.end();
}

py::object GraphFunction::call(const py::list& arguments) {
  if (!ready_ || !is_deferring() || hologram::is_capturing_graph() || !collect(arguments)) {
    return py::none();
  }
  std::vector<Buffer*> given = given_;
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> made;
  for (const size_t nbytes : new_sizes_) {
    made.push_back(make_storage(nbytes, index_));
    if (nbytes != 0) given.push_back(buffer_of(*made.back()));
  }
  for (const uint32_t s : written_) {
    if (!is_nowhere(data_ptr_of(*found_[s]).get())) hide_address(*found_[s]);
  }
  std::vector<uint64_t> numbers = function_->numbers();
  bool ran = false;
  {
    const py::gil_scoped_release without;  // the list keeps the arguments
    if (function_->may_call()) {
      draws_.advance(numbers);
      ran = as_torch([&] { return function_->call(given, numbers); });
      TORCH_CHECK(ran || draws_.empty(),
                  "a compiled function that draws random numbers was given memory whose address "
                  "another thread handed out meanwhile; call it again");
    }
  }
  if (!ran) return py::none();
  for (size_t k = 0; k < arguments_.size(); ++k) {
    if (arguments_[k].writes == 0) continue;
    const at::Tensor& t =
        THPVariable_Unpack(PyList_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(k)));
    c10::TensorImpl* impl = t.unsafeGetTensorImpl();
    if (!counts_versions(*impl)) continue;
    for (uint32_t n = 0; n < arguments_[k].writes; ++n) impl->bump_version();
  }
  py::list results(results_.size());
  std::vector<at::Tensor> tensors(results_.size());
  for (size_t k = 0; k < results_.size(); ++k) {
    const Result& result = results_[k];
    at::Tensor& t = tensors[k];
    py::object shown;
    switch (result.kind) {
      case Result::kValue:
        shown = result.value;
        break;
      case Result::kArgument:
        shown = arguments[result.at];
        break;
      case Result::kOfArgument: {
        PyObject* of = PyList_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(result.at));
        const at::Tensor& base = THPVariable_Unpack(of);
        t = result.layout.on(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
            base.storage().unsafeGetStorageImpl()));
        share_versions(base, t);
        break;
      }
      case Result::kNew:
        t = result.layout.on(made[result.at]);
        break;
      case Result::kSameAsNew:
        t = result.layout.on(made[result.at]);
        share_versions(tensors[result.first], t);
        break;
      case Result::kConstant:
        t = result.constant.clone();
        break;
    }
    if (t.defined()) shown = py::reinterpret_steal<py::object>(THPVariable_Wrap(t));
    PyList_SET_ITEM(results.ptr(), static_cast<Py_ssize_t>(k), shown.release().ptr());
  }
  return results;
}

}  // namespace

void bind_graph_function(py::module_& m) {
  py::class_<GraphFunction>(m, "GraphFunction",
                            "What one call did with tensors of the device, as one circuit.")
      .def(py::init<>())
      .def("begin", &GraphFunction::begin)
      .def("end", &GraphFunction::end)
      .def("abandon", &GraphFunction::abandon)
      .def("call", &GraphFunction::call)
      .def_property_readonly("ops", &GraphFunction::ops)
      .def_property_readonly("bytes_kept", &GraphFunction::bytes_kept);
}

}  // namespace hologram_torch
