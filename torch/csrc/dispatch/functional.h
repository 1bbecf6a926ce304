// SPDX-License-Identifier: MIT
// What hologram_torch.functional calls.
#pragma once

#include <Python.h>

namespace hologram_torch {

// _run(function, *args, **kwargs) calls a function of PyTorch's so that it runs on the device's
// kernels, and its backward too, where the tensors among the arguments are plain CPU tensors.
// Tensors of the device need no help, and what else there is (meta, subclasses with functions of
// their own) is PyTorch's business. RuntimeError where CPU tensors and ours meet.
//
// _run_with(executor, function, ...) wants an open hologram.Executor first: TypeError or
// RuntimeError otherwise. All executors of the CPU share one device, which is the tensors' too.
extern PyMethodDef kFunctionalMethods[];

}  // namespace hologram_torch
