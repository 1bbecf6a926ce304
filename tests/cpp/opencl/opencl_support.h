// SPDX-License-Identifier: MIT
// The OpenCL device that the tests of this folder run on.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "hologram/runtime.h"

namespace hologram::opencl {

// Whether this machine has an OpenCL driver with a device. A driver that serves the CPU counts.
inline bool has_device() {
  static const bool found = [] {
    ::setenv("HOLOGRAM_DEVICES", "cpu,opencl", 1);
    register_builtin_devices();
    return is_backend_available(BackendType::kOpenCl);
  }();
  return found;
}

class OpenClTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << "no OpenCL driver on this machine";
  }
  static Device& gpu() { return device(BackendType::kOpenCl); }
  static Device& cpu() { return device(BackendType::kCpu); }
};

}  // namespace hologram::opencl
