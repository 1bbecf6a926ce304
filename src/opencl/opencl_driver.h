// SPDX-License-Identifier: MIT
// A device of OpenCL as a driver.
#pragma once

#include <memory>

#include "src/gpu/driver.h"
#include "src/opencl/cl_api.h"

namespace hologram::opencl {

// With a context and an in-order queue of its own. A block is a cl_mem, and a range of addresses of
// its size at which nothing is mapped.
std::unique_ptr<gpu::Driver> make_driver(DeviceId device);

}  // namespace hologram::opencl
