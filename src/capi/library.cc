// SPDX-License-Identifier: MIT
// Names the version of the library.
#include "hologram/version.h"

namespace hologram {

const char* version() { return HOLOGRAM_VERSION_STRING; }

}  // namespace hologram
