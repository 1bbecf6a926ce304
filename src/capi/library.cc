// SPDX-License-Identifier: MIT
// Names the version of the library, and tells the device registry what this build has.
#include "hologram/device.h"
#include "hologram/version.h"
#include "src/cpu/device/cpu_device.h"

namespace hologram {

const char* version() { return HOLOGRAM_VERSION_STRING; }
const char* headers_id() { return HOLOGRAM_HEADERS_ID; }

void register_builtin_devices() { register_cpu_device(); }

namespace {
// The registry lies below the devices, so they are handed up to it while the library loads.
[[maybe_unused]] const bool kAnnounced = [] {
  internal::set_device_registrar(register_builtin_devices);
  return true;
}();
}  // namespace

}  // namespace hologram
