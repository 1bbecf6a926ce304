// SPDX-License-Identifier: MIT
// What torch.hologram.synchronize() calls.
#pragma once

#include <Python.h>

namespace hologram_torch {

// _synchronize() runs what was recorded on every device, waits for the current one, and raises the
// error that one of its streams has kept. Other Python threads go on meanwhile.
extern PyMethodDef kSynchronizeMethods[];

}  // namespace hologram_torch
