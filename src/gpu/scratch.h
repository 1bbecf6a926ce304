// SPDX-License-Identifier: MIT
// Memory of a device for what is enqueued while it is held. The queue runs in order: who has it
// next comes later.
#pragma once

#include <cstddef>
#include <memory>

#include "hologram/device.h"

namespace hologram::gpu {

struct GiveBack {
  Device* device = nullptr;
  size_t bytes = 0;
  void operator()(char* data) const noexcept { device->free_raw(data, bytes); }
};
using Scratch = std::unique_ptr<char, GiveBack>;

// what: that needs it, "adam". Null where it is no bytes. Throws Error(kOutOfMemory).
Scratch make_scratch(Device& device, size_t bytes, const char* what);

}  // namespace hologram::gpu
