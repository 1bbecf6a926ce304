// SPDX-License-Identifier: MIT
// Memory that crosses the buffer protocol, in either direction.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "hologram/recorder.h"
#include "hologram/tensor.h"
#include "hologram/view.h"

namespace hologram::python {

// The elements of a Python object, held as long as this lives (with the GIL).
class HostArray {
 public:
  // Of whatever has the buffer protocol or what NumPy makes of it; TypeError for elements that are
  // no dtype of ours. What lies so that a View cannot say it is copied.
  explicit HostArray(nanobind::handle object);
  ~HostArray();
  HostArray(const HostArray&) = delete;
  HostArray& operator=(const HostArray&) = delete;

  View view() const {
    return {data_, dtype_, static_cast<int>(shape_.size()), shape_.data(), strides_.data()};
  }
  const Shape& shape() const { return shape_; }
  Dtype dtype() const { return dtype_; }
  Py_ssize_t nbytes() const { return view_.len; }
  bool is_readonly() const { return view_.readonly != 0; }
  // True for memory that cannot be written: that of bytes, or of a file mapped to be read.
  bool is_constant() const;
  // Whether view() names the object's own memory.
  bool is_in_place() const { return copy_.empty(); }
  // A tensor on that memory, which it keeps alive; this no longer does. Only where is_in_place().
  // Where others may look at the memory, ops on it run at their calls.
  Tensor adopt(Device& device, bool shared = true) &&;

 private:
  bool try_get(PyObject* object);

  Py_buffer view_{};
  bool held_ = false;
  void* data_ = nullptr;
  Dtype dtype_ = Dtype::kUInt8;
  Shape shape_;
  Shape strides_;
  std::vector<char> copy_;
};

// Answers a request for `tensor`'s memory, which counts as exported from then on. Returns 0, or -1
// with Python's error set. release_view() gives it back.
int export_view(PyObject* self, const Tensor& tensor, bool readonly, Py_buffer* view, int flags);
void release_view(PyObject* self, Py_buffer* view);

// A NumPy array on the memory of a Buffer or Tensor.
nanobind::object numpy_view(nanobind::handle object);

// Decrements references, or what else needs the GIL, from any thread: takes the GIL while there is
// an interpreter, and leaks where there is none any more.
void run_with_gil(void (*work)(void*), void* context) noexcept;

// For code that gets the address: the memory is written, and ops on it are not deferred while the
// mark lives.
[[nodiscard]] ExportMark mark_and_settle(const Tensor& tensor);
// materialize() with the GIL released where it has to wait.
void settle(const Tensor& tensor);
// The tensor where the host can read it: itself, with nothing recorded that touches it, or a copy
// of what is in another device's memory.
Tensor host_tensor(const Tensor& tensor);

}  // namespace hologram::python
