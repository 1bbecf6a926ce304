// SPDX-License-Identifier: MIT
// A GPU of CUDA as a driver.
#pragma once

#include <memory>

#include "src/cuda/cu_api.h"
#include "src/gpu/driver.h"

namespace hologram::cuda {

// In the device's primary context, which PyTorch's CUDA has, too, and on its legacy default stream:
// what PyTorch puts on its default stream is ordered with what is put here. The context is made at
// the first call that needs one. Error(kNotSupported) where NVRTC knows no such hardware.
std::unique_ptr<gpu::Driver> make_driver(DeviceId device);

}  // namespace hologram::cuda
