// SPDX-License-Identifier: MIT
// GPUs of CUDA as devices of the library.
#pragma once

namespace hologram {

// Adds the GPUs of CUDA's driver to the registry, which may be none: no driver, no compiler and no
// GPU are no error. Later calls do nothing.
void register_cuda_devices();

}  // namespace hologram
