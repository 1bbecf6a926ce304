// SPDX-License-Identifier: MIT
// See opencl_devices.h.
#include "src/opencl/opencl_devices.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <mutex>
#include <vector>

#include "hologram/device.h"
#include "src/gpu/device.h"
#include "src/gpu/kernel_text.h"
#include "src/opencl/opencl_driver.h"

namespace hologram {
namespace opencl {
namespace {

bool is_usable(DeviceId device, bool all) {
  return (all || (device_info<Ulong>(device, kDeviceType) & kDeviceTypeCpu) == 0) &&
         device_info<Uint>(device, kDeviceAvailable) != 0 &&
         device_info<Uint>(device, kDeviceCompilerAvailable) != 0 &&
         device_info<size_t>(device, kDeviceMaxWorkGroupSize) >= gpu::kMostGroupItems;
}

// Whether this machine has what drivers of accelerators open. To load the drivers, which may start
// threads, takes a tenth of a second: not for every process on a machine without any.
bool may_have_accelerator() {
  constexpr const char* kNodes[] = {"/dev/dri", "/dev/nvidiactl", "/dev/kfd",
                                    "/dev/dxg", "/dev/mali0",     "/dev/kgsl-3d0"};
  return std::any_of(std::begin(kNodes), std::end(kNodes),
                     [](const char* node) { return ::access(node, F_OK) == 0; });
}

std::vector<DeviceId> find_devices() {
  std::vector<DeviceId> found;
  Uint count = 0;
  if (api()->GetPlatformIDs(0, nullptr, &count) != kSuccess || count == 0) return found;
  std::vector<Platform> platforms(count);
  if (api()->GetPlatformIDs(count, platforms.data(), nullptr) != kSuccess) return found;
  for (const Platform platform : platforms) {
    if (api()->GetDeviceIDs(platform, kDeviceTypeAll, 0, nullptr, &count) != kSuccess) continue;
    const size_t before = found.size();
    found.resize(before + count);
    if (count != 0 && api()->GetDeviceIDs(platform, kDeviceTypeAll, count, found.data() + before,
                                          nullptr) != kSuccess) {
      found.resize(before);
    }
  }
  return found;
}

}  // namespace
}  // namespace opencl

void register_opencl_devices(bool all) {
  static std::once_flag once;
  std::call_once(once, [all] {
    const auto note = [](const char* why) {
      internal::note_unavailable(BackendType::kOpenCl, why);
    };
    const bool named = *opencl::named_library() != 0;
    if (!all && !named && !opencl::may_have_accelerator()) {
      return note("no accelerator was found (HOLOGRAM_DEVICES=cpu,opencl takes any device)");
    }
    if (opencl::api() == nullptr) {
      if (named) std::fprintf(stderr, "hologram: %s\n", opencl::why_no_api());
      return note(opencl::why_no_api());
    }
    note("the driver has no device that can be used");
    for (const opencl::DeviceId id : opencl::find_devices()) {
      try {
        if (opencl::is_usable(id, all)) {
          register_device(gpu::make_device(BackendType::kOpenCl, opencl::make_driver(id)));
        }
      } catch (const Error& error) {
        // A device that does not work is none; the others may.
        std::fprintf(stderr, "hologram: an OpenCL device is left out: %s\n", error.what());
      }
    }
  });
}

}  // namespace hologram
