// SPDX-License-Identifier: MIT
// The version of headers and library.
#pragma once

#include "hologram/api.h"

#define HOLOGRAM_VERSION_STRING "0.1.0"

namespace hologram {

// The version of the library that is loaded, "major.minor.patch".
HOLOGRAM_API const char* version();

// Identifies the public headers that the library which is loaded was built with. The C++ interface
// may change with any of them: code that was compiled with others must not call anything else.
// CMake's find_package(hologram) gives the id of the headers as hologram_HEADERS_ID.
HOLOGRAM_API const char* headers_id();

}  // namespace hologram
