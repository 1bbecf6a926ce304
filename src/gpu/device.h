// SPDX-License-Identifier: MIT
// A device of the library over a driver.
#pragma once

#include <memory>

#include "hologram/device.h"
#include "src/gpu/driver.h"

namespace hologram::gpu {

std::unique_ptr<Device> make_device(BackendType kind, std::unique_ptr<Driver> driver);

}  // namespace hologram::gpu
