// SPDX-License-Identifier: MIT
// That the fake finds what a driver of ours could do wrongly.
#include <gtest/gtest.h>

#include "src/cuda/nvrtc.h"
#include "tests/cpp/cuda/fake_support.h"

namespace hologram::cuda {
namespace {

class FakeCudaTest : public FakeTest {
 protected:
  void SetUp() override {
    FakeTest::SetUp();
    if (fake() == nullptr) return;
    ASSERT_EQ(api()->DevicePrimaryCtxRetain(&context_, 0), kSuccess);
    ASSERT_EQ(api()->CtxSetCurrent(context_), kSuccess);
  }
  void TearDown() override {
    if (context_ != nullptr) {
      api()->CtxSetCurrent(nullptr);
      api()->DevicePrimaryCtxRelease(0);
    }
    FakeTest::TearDown();
  }

  Function load(Module& module) {
    const Image image = compile(
        "typedef struct { i64 w[1]; } Words;\n"
        "KERNEL(64) hologram_kernel(GLOBAL u8* RESTRICT s0, PARAMETER Words words) {\n"
        "  if (ITEM < (u64)words.w[0]) s0[ITEM] = 1;\n}\n",
        90);
    Function function = nullptr;
    EXPECT_EQ(api()->ModuleLoadData(&module, image.bytes.data()), kSuccess);
    EXPECT_EQ(api()->ModuleGetFunction(&function, module, "hologram_kernel"), kSuccess);
    return function;
  }
  static Result launch(Function function, Address address, unsigned items = 64, size_t bytes = 16) {
    int64_t parameters[] = {static_cast<int64_t>(address), 5, 0};
    void* extra[] = {kParametersAt, parameters, kParametersSize, &bytes, kParametersEnd};
    return api()->LaunchKernel(function, 1, 1, 1, items, 1, 1, 0, nullptr, nullptr, extra);
  }
  void expect_complaint(const std::string& text) {
    const std::string said = complaints();
    EXPECT_NE(said.find(text), std::string::npos) << said;
  }

  Context context_ = nullptr;
};

TEST_F(FakeCudaTest, WhatIsFreedTwiceOrNeverThere) {
  Address block = 0;
  ASSERT_EQ(api()->MemAlloc(&block, 100), kSuccess);
  EXPECT_EQ(api()->MemFree(block + 1), kInvalidValue);
  expect_complaint("which is no live block");
  EXPECT_EQ(api()->MemFree(block), kSuccess);
  EXPECT_EQ(api()->MemFree(block), kInvalidValue);
  expect_complaint("which is no live block");
}

TEST_F(FakeCudaTest, CopiesThatLeaveABlock) {
  Address block = 0;
  char host[200] = {};
  ASSERT_EQ(api()->MemAlloc(&block, 100), kSuccess);
  EXPECT_EQ(api()->MemcpyHtoD(block, host, 100), kSuccess);
  EXPECT_EQ(api()->MemcpyHtoD(block + 1, host, 100), kInvalidValue);
  expect_complaint("not all in one live block");
  EXPECT_EQ(api()->MemcpyDtoH(host, block, 101), kInvalidValue);
  expect_complaint("not all in one live block");
  EXPECT_EQ(api()->MemcpyDtoDAsync(block, block + 10, 20, nullptr), kInvalidValue);
  expect_complaint("ranges that overlap");
  EXPECT_EQ(api()->MemcpyHtoDAsync(block, host, 10, nullptr), kInvalidValue);
  expect_complaint("memory that is not pinned");
  api()->MemFree(block);
}

TEST_F(FakeCudaTest, LaunchesWithOtherParametersOrGroups) {
  Address block = 0;
  ASSERT_EQ(api()->MemAlloc(&block, 100), kSuccess);
  Module module = nullptr;
  const Function function = load(module);
  EXPECT_EQ(launch(function, block, 64, 24), kInvalidValue);
  expect_complaint("a launch with 24 bytes of parameters; the kernel has 16");
  EXPECT_EQ(launch(function, block, 65), kLaunchOutOfResources);
  expect_complaint("groups of 65 items");
  EXPECT_EQ(launch(function, block + 7), kSuccess);
  char host[100] = {};
  EXPECT_EQ(api()->MemcpyDtoH(host, block, 100), kSuccess);
  EXPECT_EQ(host[7] + host[11], 2);
  api()->ModuleUnload(module);
  EXPECT_EQ(launch(function, block), kInvalidHandle);
  expect_complaint("a function that is not of the current context");
  api()->MemFree(block);
}

TEST_F(FakeCudaTest, KernelsWithAddressesThatAreNotLive) {
  Module module = nullptr;
  const Function function = load(module);
  EXPECT_EQ(launch(function, 4096), kSuccess);  // a GPU finds it when the kernel runs
  EXPECT_EQ(api()->StreamSynchronize(nullptr), kIllegalAddress);
  expect_complaint("parameter 0 of a launch, 0x1000, is in no live block");
  EXPECT_EQ(api()->StreamSynchronize(nullptr), kIllegalAddress);
  Address block = 0;
  EXPECT_EQ(api()->MemAlloc(&block, 100), kIllegalAddress);
}

TEST_F(FakeCudaTest, ModulesAndPinnedMemoryThatAreQueued) {
  Address block = 0;
  void* host = nullptr;
  Module module = nullptr;
  ASSERT_EQ(api()->MemAlloc(&block, 100), kSuccess);
  ASSERT_EQ(api()->MemAllocHost(&host, 100), kSuccess);
  const Function function = load(module);
  EXPECT_EQ(launch(function, block), kSuccess);
  EXPECT_EQ(api()->MemcpyHtoDAsync(block, host, 100, nullptr), kSuccess);
  EXPECT_EQ(api()->ModuleUnload(module), kSuccess);
  expect_complaint("a module is unloaded that a launch needs");
  EXPECT_EQ(api()->MemcpyHtoDAsync(block, host, 100, nullptr), kSuccess);
  EXPECT_EQ(api()->MemFreeHost(host), kSuccess);
  expect_complaint("cuMemFreeHost of memory that a queued copy reads");
  api()->MemFree(block);
}

TEST_F(FakeCudaTest, CallsWithoutAContextAndHandlesThatAreGone) {
  Mark event = nullptr;
  ASSERT_EQ(api()->EventCreate(&event, 0), kSuccess);
  EXPECT_EQ(api()->EventDestroy(event), kSuccess);
  EXPECT_EQ(api()->EventDestroy(event), kInvalidHandle);
  expect_complaint("an event that is not of the current context");
  api()->CtxSetCurrent(nullptr);
  Address block = 0;
  EXPECT_EQ(api()->MemAlloc(&block, 100), kInvalidContext);
  expect_complaint("cuMemAlloc_v2 without a current context");
  api()->CtxSetCurrent(context_);
  EXPECT_EQ(api()->ModuleLoadData(reinterpret_cast<Module*>(&block), "no image"), kInvalidImage);
  expect_complaint("an image that is not for sm_90");
}

TEST_F(FakeCudaTest, WhatIsLiveWhenItsContextGoes) {
  Context other = nullptr;
  Address block = 0;
  ASSERT_EQ(api()->DevicePrimaryCtxRetain(&other, 1), kSuccess);
  ASSERT_EQ(api()->CtxSetCurrent(other), kSuccess);
  ASSERT_EQ(api()->MemAlloc(&block, 100), kSuccess);
  EXPECT_EQ(api()->DevicePrimaryCtxRelease(1), kSuccess);
  expect_complaint("a context is released with 1 blocks");
  EXPECT_EQ(fake()->count("blocks"), 0);
  EXPECT_EQ(api()->DevicePrimaryCtxRelease(1), kInvalidContext);
  expect_complaint("a context is released twice");
  EXPECT_EQ(api()->MemAlloc(&block, 100), kInvalidContext);
  expect_complaint("in a context that was released");
}

}  // namespace
}  // namespace hologram::cuda
