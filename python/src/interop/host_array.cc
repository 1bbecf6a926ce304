// SPDX-License-Identifier: MIT
// The buffer protocol: memory of others as tensors, memory of tensors for others.
#include "interop/host_array.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dtype.h"
#include "hologram/functions.h"
#include "hologram/memory.h"
#include "looks.h"
#include "objects.h"

namespace hologram::python {

void run_with_gil(void (*work)(void*), void* context) noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  const bool ending = Py_IsFinalizing() != 0;
#else
  const bool ending = _Py_IsFinalizing() != 0;
#endif
  // A thread that asks a dying interpreter for the GIL never comes back.
  if (Py_IsInitialized() == 0 || (ending && PyGILState_Check() == 0)) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  // A deleter may run while an exception is on its way.
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  work(context);
  PyErr_Restore(type, value, trace);
  PyGILState_Release(state);
}

void settle(const Tensor& tensor) {
  if (tensor.buffer() && !is_settled(*tensor.buffer())) {
    const Unlocked unlocked;
    materialize(*tensor.buffer());
  }
}

ExportMark mark_and_settle(const Tensor& tensor) {
  // First the mark: nothing is recorded on it any more when it is waited for.
  ExportMark mark(tensor.buffer());
  settle(tensor);
  return mark;
}

Tensor host_tensor(const Tensor& tensor) {
  if (!tensor.buffer() || tensor.buffer()->device().is_host_memory()) {
    settle(tensor);
    return tensor;
  }
  const Unlocked unlocked;
  Tensor copy = empty(tensor.shape(), tensor.dtype(), device(BackendType::kCpu));
  materialize(copy);
  read(tensor, copy.view());
  return copy;
}

// --- In ----------------------------------------------------------------------------------------

bool HostArray::try_get(PyObject* object) {
  if (PyObject_GetBuffer(object, &view_, PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();
    return false;
  }
  held_ = true;
  // NumPy's numbers of dates have dimensions without strides.
  const bool has_strides = view_.ndim == 0 || view_.strides != nullptr;
  if (has_strides && parse_buffer_format(view_.format, view_.itemsize, dtype_)) return true;
  PyBuffer_Release(&view_);
  held_ = false;
  return false;
}

HostArray::HostArray(nb::handle object) {
  nb::object kept;  // what the helper made
  if (PyObject_CheckBuffer(object.ptr()) == 0 || !try_get(object.ptr())) {
    // bfloat16 as int16, lists and the like as arrays; TypeError for what is no dtype of ours.
    const nb::object found = helper("hologram._numpy", "plain", object);
    kept = found[0];
    const Dtype dtype = parse_dtype(found[1]);
    if (!try_get(kept.ptr())) {
      fail(ErrorKind::kTypeMismatch, "an array of dtype ", dtype_name(dtype), ", not ",
           name_of_type(object), ", is needed");
    }
    dtype_ = dtype;
  }
  const auto size = static_cast<int64_t>(itemsize(dtype_));
  shape_.assign(view_.shape, view_.shape + view_.ndim);
  strides_.resize(shape_.size());
  bool plain = reinterpret_cast<uintptr_t>(view_.buf) % std::min<int64_t>(size, 8) == 0;
  // Arrays of ctypes have none, asked or not.
  if (view_.strides == nullptr) strides_ = contiguous_strides(shape_);
  for (int i = 0; i < view_.ndim && view_.strides != nullptr; ++i) {
    plain = plain && (view_.strides[i] % size == 0 || shape_[i] < 2);
    strides_[i] = view_.strides[i] / size;
  }
  data_ = view_.buf;
  if (plain || view_.len == 0) return;
  copy_.resize(static_cast<size_t>(view_.len));
  if (PyBuffer_ToContiguous(copy_.data(), &view_, view_.len, 'C') != 0) raise_set();
  data_ = copy_.data();
  strides_ = contiguous_strides(shape_);
}

HostArray::~HostArray() {
  if (held_) PyBuffer_Release(&view_);
}

bool HostArray::is_constant() const {
  nb::object owner = nb::borrow(view_.obj);
  while (is_readonly() && owner.is_valid() && !owner.is_none()) {
    if (PyBytes_CheckExact(owner.ptr())) return true;
    if (PyMemoryView_Check(owner.ptr())) {
      owner = nb::borrow(PyMemoryView_GET_BUFFER(owner.ptr())->obj);
    } else if (std::string_view(Py_TYPE(owner.ptr())->tp_name) == "mmap.mmap") {
      Py_buffer view;
      if (PyObject_GetBuffer(owner.ptr(), &view, PyBUF_SIMPLE) != 0) raise_set();
      const bool readonly = view.readonly != 0;
      PyBuffer_Release(&view);
      return readonly;
    } else {
      owner = nb::getattr(owner, "base", nb::none());  // an array's
    }
  }
  return false;
}

Tensor HostArray::adopt(Device& device, bool shared) && {
  const int64_t numel = shape_numel(shape_);
  int64_t low = 0;
  int64_t high = 0;  // farthest elements from the first
  for (size_t i = 0; i < shape_.size() && numel != 0; ++i) {
    (strides_[i] < 0 ? low : high) += (shape_[i] - 1) * strides_[i];
  }
  const auto size = static_cast<int64_t>(itemsize(dtype_));
  const size_t nbytes = numel == 0 ? 0 : static_cast<size_t>((high - low + 1) * size);
  auto kept = std::make_unique<Py_buffer>(view_);
  Buffer* buffer = wrap_buffer(
      device, static_cast<char*>(data_) + low * size, nbytes,
      [](void* context) {
        run_with_gil(
            [](void* held) {
              const std::unique_ptr<Py_buffer> owned(static_cast<Py_buffer*>(held));
              PyBuffer_Release(owned.get());
            },
            context);
      },
      kept.get());
  // A Py_buffer may point into itself for the shape of one dimension, which is not read again.
  (void)kept.release();
  held_ = false;
  BufferRef owned = BufferRef::adopt(buffer);
  owned->set_dtype(dtype_);
  if (shared) mark_exported(*owned);
  return Tensor(std::move(owned), shape_, strides_, dtype_, -low);
}

// --- Out ---------------------------------------------------------------------------------------

namespace {

// What a Py_buffer points at.
struct Export {
  ExportMark mark;
  BufferRef copy;  // of memory that the host cannot read
  std::vector<Py_ssize_t> shape;
  std::vector<Py_ssize_t> strides;
};
// Where an empty array lies, for readers that look at the address.
alignas(64) char nowhere[64];

bool is_fortran(const Tensor& tensor) {
  if (tensor.numel() == 0) return true;
  int64_t step = 1;
  for (int i = 0; i < tensor.ndim(); ++i) {
    if (tensor.size(i) == 1) continue;
    if (tensor.stride(i) != step) return false;
    step *= tensor.size(i);
  }
  return true;
}

void fill_view(PyObject* self, const Tensor& given, bool readonly, Py_buffer* view, int flags) {
  const auto asks = [&](int which) { return (flags & which) == which; };
  const bool elsewhere = given.buffer() && !given.buffer()->device().is_host_memory();
  if (asks(PyBUF_WRITABLE) && elsewhere) {
    raise(PyExc_BufferError,
          name_of_type(self) +
              " is in memory of a device that the processor cannot reach; a view "
              "is a read-only copy, and from_numpy() writes");
  }
  readonly = readonly || elsewhere;
  const Tensor tensor = elsewhere ? host_tensor(given) : given;
  if (asks(PyBUF_WRITABLE) && readonly) {
    raise(PyExc_BufferError, name_of_type(self) + " is read-only; ask for a buffer that is not");
  }
  const char* format = buffer_format(tensor.dtype());
  if (format == nullptr) {
    raise(PyExc_BufferError,
          "the buffer protocol has no format for bfloat16; use np.asarray(x) with ml_dtypes "
          "installed, DLPack, or x.astype('float32')");
  }
  const bool c_order = tensor.is_contiguous();
  if ((asks(PyBUF_C_CONTIGUOUS) && !c_order) || (!asks(PyBUF_STRIDES) && !c_order) ||
      (asks(PyBUF_F_CONTIGUOUS) && !is_fortran(tensor)) ||
      (asks(PyBUF_ANY_CONTIGUOUS) && !c_order && !is_fortran(tensor))) {
    raise(PyExc_BufferError, name_of_type(self) + " is not contiguous as asked; use contiguous()");
  }
  auto exported = std::make_unique<Export>();
  const Look look("np.asarray()");  // or memoryview(), which asks in the same way
  exported->mark = mark_and_settle(tensor);
  if (elsewhere) exported->copy = tensor.buffer();
  const auto size = static_cast<Py_ssize_t>(itemsize(tensor.dtype()));
  exported->shape.assign(tensor.shape().begin(), tensor.shape().end());
  for (const int64_t stride : tensor.strides()) exported->strides.push_back(stride * size);
  view->buf = tensor.data() != nullptr ? tensor.data() : nowhere;
  view->len = static_cast<Py_ssize_t>(tensor.nbytes());
  view->itemsize = size;
  view->readonly = readonly ? 1 : 0;
  view->ndim = tensor.ndim();
  view->format = asks(PyBUF_FORMAT) ? const_cast<char*>(format) : nullptr;
  view->shape = asks(PyBUF_ND) ? exported->shape.data() : nullptr;
  view->strides = asks(PyBUF_STRIDES) ? exported->strides.data() : nullptr;
  view->suboffsets = nullptr;
  view->internal = exported.release();
  view->obj = nb::borrow(self).release().ptr();
}

}  // namespace

int export_view(PyObject* self, const Tensor& tensor, bool readonly, Py_buffer* view, int flags) {
  view->obj = nullptr;
  return guarded_int([&] {
    fill_view(self, tensor, readonly, view, flags);
    return 0;
  });
}

nb::object numpy_view(nb::handle object) {
  const TensorObject* tensor = tensor_of(object.ptr());
  const BufferObject* buffer = buffer_of(object.ptr());
  if (tensor == nullptr && buffer == nullptr) fail(ErrorKind::kTypeMismatch, "holds nothing");
  const Dtype dtype = tensor != nullptr ? tensor->tensor().dtype() : buffer->dtype;
  if (dtype == Dtype::kBFloat16) return helper("hologram._numpy", "view", object);
  static PyObject* const as_array =
      nb::object(nb::module_::import_("numpy").attr("asarray")).release().ptr();
  nb::object array = nb::steal(PyObject_CallOneArg(as_array, object.ptr()));
  if (!array.is_valid()) raise_set();
  return array;
}

void release_view(PyObject*, Py_buffer* view) { delete static_cast<Export*>(view->internal); }

}  // namespace hologram::python
