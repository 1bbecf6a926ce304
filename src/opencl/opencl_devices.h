// SPDX-License-Identifier: MIT
// OpenCL devices as devices of the library.
#pragma once

namespace hologram {

// Adds the OpenCL devices of this machine to the registry, which may be none: no driver and no
// device are no error. Devices of the type CPU, which do the CPU's work once more, are added only
// where `all`. Later calls do nothing.
void register_opencl_devices(bool all);

}  // namespace hologram
