// SPDX-License-Identifier: MIT
// The device that the tests of this folder run on: OpenCL's, or CUDA's where HOLOGRAM_DEVICES names
// that, over the fake.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "hologram/runtime.h"

namespace hologram::opencl {

inline BackendType kind() {
  static const BackendType chosen = [] {
    const char* const wish = std::getenv("HOLOGRAM_DEVICES");
    return wish != nullptr && std::string_view(wish) == "cpu,cuda" ? BackendType::kCuda
                                                                   : BackendType::kOpenCl;
  }();
  return chosen;
}

// Whether this machine has a driver with a device. A driver that serves the CPU counts.
inline bool has_device() {
  static const bool found = [] {
    ::setenv("HOLOGRAM_DEVICES", kind() == BackendType::kCuda ? "cpu,cuda" : "cpu,opencl", 1);
    register_builtin_devices();
    return is_backend_available(kind());
  }();
  return found;
}

class OpenClTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << why_unavailable(backend_name(kind()));
  }
  static Device& gpu() { return device(kind()); }
  static Device& cpu() { return device(BackendType::kCpu); }
};

}  // namespace hologram::opencl
