// SPDX-License-Identifier: MIT
// Names the version of the library, and tells the device registry what this build has.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "hologram/device.h"
#include "hologram/version.h"
#include "src/cpu/device/cpu_device.h"
#include "src/cuda/cuda_devices.h"
#include "src/opencl/opencl_devices.h"

namespace hologram {

const char* version() { return HOLOGRAM_VERSION_STRING; }
const char* headers_id() { return HOLOGRAM_HEADERS_ID; }

// The CPU runs what other devices leave to the host, so it is there whatever is asked for, and
// first.
void register_builtin_devices() {
  register_cpu_device();
  const char* const wish = std::getenv("HOLOGRAM_DEVICES");
  if (wish == nullptr || *wish == 0) {
    // CUDA's driver, once open, cannot be used after a fork: a program that only imports this
    // library must not lose torch.cuda in its workers.
    internal::note_unavailable(BackendType::kCuda, "HOLOGRAM_DEVICES=cpu,cuda takes it");
    return register_opencl_devices(/*all=*/false);
  }
  for (const BackendType backend : {BackendType::kCuda, BackendType::kOpenCl}) {
    internal::note_unavailable(backend, "HOLOGRAM_DEVICES does not name it");
  }
  std::string_view rest = wish;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
    if (name == backend_name(BackendType::kCuda)) {
      register_cuda_devices();
    } else if (name == backend_name(BackendType::kOpenCl)) {
      register_opencl_devices(/*all=*/true);
    } else if (name != backend_name(BackendType::kCpu)) {
      std::fprintf(stderr,
                   "hologram: HOLOGRAM_DEVICES=%s names '%.*s', which this build does not have and "
                   "which is ignored; name 'cpu', 'cuda' or 'opencl', with commas in between\n",
                   wish, static_cast<int>(name.size()), name.data());
    }
  }
}

namespace {
// The registry lies below the devices, so they are handed up to it while the library loads.
[[maybe_unused]] const bool kAnnounced = [] {
  internal::set_device_registrar(register_builtin_devices);
  return true;
}();
}  // namespace

}  // namespace hologram
