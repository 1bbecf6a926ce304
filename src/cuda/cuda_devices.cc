// SPDX-License-Identifier: MIT
// See cuda_devices.h.
#include "src/cuda/cuda_devices.h"

#include <cstdio>
#include <mutex>
#include <string>

#include "hologram/device.h"
#include "src/cuda/cuda_driver.h"
#include "src/cuda/nvrtc.h"
#include "src/gpu/device.h"

namespace hologram {
namespace cuda {
namespace {

// How many GPUs there are that can be used; 0, and then why.
int count_devices(std::string& why) {
  Result code = api()->Init(0);
  int count = 0, version = 0;
  if (code == kSuccess) code = api()->DeviceGetCount(&count);
  if (code == kSuccess) code = api()->DriverGetVersion(&version);
  if (code != kSuccess) {
    why = std::string("the driver says ") + code_name(code);
  } else if (count == 0) {
    why = "the driver has no device";
  } else if (!has_nvrtc()) {
    why = "its compiler NVRTC is missing: " + why_no_nvrtc();
  } else if (nvrtc_version() / 1000 > version / 1000) {
    why = "the driver is one of CUDA " + std::to_string(version / 1000) +
          ", which does not run what NVRTC " + std::to_string(nvrtc_version() / 1000) + " compiles";
  }
  return why.empty() ? count : 0;
}

}  // namespace
}  // namespace cuda

void register_cuda_devices() {
  static std::once_flag once;
  std::call_once(once, [] {
    static std::string& why = *new std::string;  // errors name its text to the end
    const auto note = [](const char* text) {
      internal::note_unavailable(BackendType::kCuda, text);
    };
    if (cuda::api() == nullptr) {
      if (*cuda::named_library() != 0) std::fprintf(stderr, "hologram: %s\n", cuda::why_no_api());
      return note(cuda::why_no_api());
    }
    try {
      const int count = cuda::count_devices(why);
      for (int i = 0; i < count; ++i) {
        try {
          cuda::DeviceId id = 0;
          cuda::check(cuda::api()->DeviceGet(&id, i), "cuDeviceGet");
          register_device(gpu::make_device(BackendType::kCuda, cuda::make_driver(id)));
        } catch (const Error& error) {
          // A device that does not work is none; the others may.
          why = error.what();
          std::fprintf(stderr, "hologram: a CUDA device is left out: %s\n", why.c_str());
        }
      }
    } catch (const Error& error) {
      why = error.what();
    }
    note(why.c_str());
  });
}

}  // namespace hologram
