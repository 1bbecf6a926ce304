// SPDX-License-Identifier: MIT
// The version of headers and library.
#pragma once

#include "hologram/api.h"

#define HOLOGRAM_VERSION_STRING "0.1.0"

namespace hologram {

// The version of the library that is loaded, "major.minor.patch".
HOLOGRAM_API const char* version();

}  // namespace hologram
