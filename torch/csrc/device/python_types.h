// SPDX-License-Identifier: MIT
// What a Python type of tensors asks of calls.
#pragma once

#include <Python.h>

#include <ATen/core/Tensor.h>

namespace hologram_torch {

// Whether a subclass of tensors has a function of its own that calls must go through.
bool has_own_functions(PyTypeObject* type);

// Whether a tensor that a class in Python dispatches belongs to a trace of torch.compile,
// torch.export or make_fx. DTensor and the subclasses of users do not.
bool is_traced(const at::Tensor& t);

}  // namespace hologram_torch
