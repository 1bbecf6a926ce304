// SPDX-License-Identifier: MIT
// The CPU as a device.
#pragma once

namespace hologram {

// Adds the CPU to the registry; later calls do nothing.
void register_cpu_device();

}  // namespace hologram
