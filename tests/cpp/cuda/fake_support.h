// SPDX-License-Identifier: MIT
// CUDA's driver over the fake (tests/fake_cuda), which is named by HOLOGRAM_CUDA_LIBRARY.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "src/cuda/cu_api.h"
#include "src/cuda/cuda_driver.h"
#include "tests/fake_cuda/fake_cuda.h"

namespace hologram::cuda {

// What fake_cuda.h declares, of the library that is loaded; null where it is no fake.
struct Fake {
  decltype(&fake_cuda_fail) fail = nullptr;
  decltype(&fake_cuda_count) count = nullptr;
  decltype(&fake_cuda_execute) execute = nullptr;
  decltype(&fake_cuda_end) end = nullptr;
  decltype(&fake_cuda_complaints) complaints = nullptr;
};

inline const Fake* fake() {
  static const Fake found = [] {
    Fake made;
    if (*named_library() == 0) return made;
    void* const library = dlopen(named_library(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return made;
    const auto find = [&](const char* name, auto& pointer) {
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(dlsym(library, name));
    };
    find("fake_cuda_fail", made.fail);
    find("fake_cuda_count", made.count);
    find("fake_cuda_execute", made.execute);
    find("fake_cuda_end", made.end);
    find("fake_cuda_complaints", made.complaints);
    return made;
  }();
  return found.fail != nullptr ? &found : nullptr;
}

// Each test has a driver of its own. When that is gone nothing is left on the fake, and it has
// complained of nothing but what the test has read.
class FakeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (fake() == nullptr) GTEST_SKIP() << "HOLOGRAM_CUDA_LIBRARY names no fake of CUDA";
    if (const Result code = api()->Init(0); code != kSuccess) {
      GTEST_SKIP() << "the fake has no OpenCL to run on: " << fake()->complaints();
    }
    known_ = std::string(fake()->complaints()).size();
    driver_ = make_driver(0);
  }
  void TearDown() override {
    if (driver_ == nullptr) return;
    driver_.reset();
    for (const char* what : {"blocks", "hosts", "modules", "events", "contexts", "objects"}) {
      EXPECT_EQ(fake()->count(what), 0) << what;
    }
    EXPECT_EQ(complaints(), "");
  }

  gpu::Driver& driver() { return *driver_; }
  void forget_driver() { driver_.reset(); }
  // Since the last call.
  std::string complaints() {
    const std::string all = fake()->complaints();
    return all.substr(std::exchange(known_, all.size()));
  }

 private:
  size_t known_ = 0;
  std::unique_ptr<gpu::Driver> driver_;
};

}  // namespace hologram::cuda
