// SPDX-License-Identifier: MIT
// The whole runtime: devices, streams, memory, executors, tensors and worker threads.
#pragma once

#include "hologram/buffer.h"    // IWYU pragma: export
#include "hologram/device.h"    // IWYU pragma: export
#include "hologram/executor.h"  // IWYU pragma: export
#include "hologram/memory.h"    // IWYU pragma: export
#include "hologram/parallel.h"  // IWYU pragma: export
#include "hologram/stream.h"    // IWYU pragma: export
#include "hologram/tensor.h"    // IWYU pragma: export
