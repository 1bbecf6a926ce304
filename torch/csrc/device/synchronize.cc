// SPDX-License-Identifier: MIT
#include "device/synchronize.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

namespace hologram_torch {
namespace {

// Loops that wait for each step call this every few microseconds. Through Python's C API it takes
// half as long as through PyTorch's functions for accelerators.
PyObject* synchronize(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS {
    const pybind11::gil_scoped_release without_gil;
    constexpr c10::DeviceIndex kCurrent = -1;
    c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)->synchronizeDevice(kCurrent);
  }
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

}  // namespace

PyMethodDef kSynchronizeMethods[] = {
    {"_synchronize", &synchronize, METH_NOARGS,
     "_synchronize(): run what was recorded, wait for the current device."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace hologram_torch
