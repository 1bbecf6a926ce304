// SPDX-License-Identifier: MIT
// That the fake finds what a driver of ours could do wrongly.
#include <gtest/gtest.h>

#include "src/cuda/cublaslt_api.h"
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

// d = a b of 4 x 160 and 160 x 4 numbers, for which the fake of cuBLASLt asks for memory.
class FakeCudaProductTest : public FakeCudaTest {
 protected:
  void SetUp() override {
    FakeCudaTest::SetUp();
    if (IsSkipped()) return;
    if (lt::api() == nullptr) GTEST_SKIP() << lt::why_no_api();
    const uint32_t reductions = lt::kReduceInComputeType;
    const uint64_t most = 1 << 20;
    lt::api()->Create(&handle_);
    lt::api()->MatmulDescCreate(&operation_, lt::kComputeFloat32, lt::kFloat32);
    lt::api()->MatrixLayoutCreate(&a_, lt::kFloat32, 4, 160, 4);
    lt::api()->MatrixLayoutCreate(&b_, lt::kFloat32, 160, 4, 160);
    lt::api()->MatrixLayoutCreate(&d_, lt::kFloat32, 4, 4, 4);
    lt::api()->MatmulPreferenceCreate(&preference_);
    lt::api()->MatmulPreferenceSetAttribute(preference_, lt::kMaxWorkspaceBytes, &most, 8);
    lt::api()->MatmulPreferenceSetAttribute(preference_, lt::kReductionSchemes, &reductions, 4);
    ASSERT_EQ(api()->MemAlloc(&block_, 1 << 17), kSuccess);
  }
  void TearDown() override {
    if (block_ != 0) {
      api()->MemFree(block_);
      lt::api()->MatmulPreferenceDestroy(preference_);
      for (const lt::Layout layout : {a_, b_, d_}) lt::api()->MatrixLayoutDestroy(layout);
      lt::api()->MatmulDescDestroy(operation_);
      lt::api()->Destroy(handle_);
    }
    FakeCudaTest::TearDown();
  }

  lt::Status choose() {
    int count = 0;
    return lt::api()->MatmulAlgoGetHeuristic(handle_, operation_, a_, b_, d_, d_, preference_, 1,
                                             &choice_, &count);
  }
  void* at(size_t offset) const { return reinterpret_cast<void*>(block_ + offset); }
  // Its operands begin 0, 4096, 8192 and 16384 bytes into the block, or a little later.
  lt::Status multiply(size_t later = 0, size_t workspace = 16384) {
    const float one = 1, zero = 0;
    return lt::api()->Matmul(handle_, operation_, &one, at(later), a_, at(4096), b_, &zero,
                             at(8192), d_, at(8192), d_, &choice_.algorithm, at(workspace),
                             choice_.workspace_bytes, nullptr);
  }

  lt::Handle handle_ = nullptr;
  lt::Operation operation_ = nullptr;
  lt::Layout a_ = nullptr, b_ = nullptr, d_ = nullptr;
  lt::Preference preference_ = nullptr;
  lt::Choice choice_ = {};
  Address block_ = 0;
};

TEST_F(FakeCudaProductTest, WhatIsNoProblem) {
  const uint32_t all = 7;
  lt::api()->MatmulPreferenceSetAttribute(preference_, lt::kReductionSchemes, &all, 4);
  EXPECT_EQ(choose(), lt::kInvalidValue);
  expect_complaint("an algorithm that may round parts of sums");
  std::swap(a_, b_);
  EXPECT_EQ(choose(), lt::kInvalidValue);
  expect_complaint("an algorithm for shapes that do not agree");
  std::swap(a_, b_);
  EXPECT_EQ(lt::api()->MatrixLayoutSetAttribute(a_, lt::kBatchCount, &all, 8), lt::kInvalidValue);
  expect_complaint("of an attribute that the fake does not know, or of 8 bytes");
  const int32_t two = 2;
  lt::api()->MatrixLayoutSetAttribute(a_, lt::kBatchCount, &two, 4);
  EXPECT_EQ(choose(), lt::kInvalidValue);
  expect_complaint("operands of other types or batches");
}

TEST_F(FakeCudaProductTest, ProductsThatAreNotThoseOfTheAlgorithm) {
  EXPECT_EQ(multiply(), lt::kInvalidValue);
  expect_complaint("a product without an algorithm");
  ASSERT_EQ(choose(), lt::kSuccess);
  EXPECT_EQ(choice_.workspace_bytes, 65536u);
  EXPECT_EQ(multiply(), lt::kSuccess);
  EXPECT_EQ(multiply(16), lt::kInvalidValue);
  expect_complaint("not aligned to 256");
  EXPECT_EQ(multiply(0, 16384 + 8), lt::kInvalidValue);
  expect_complaint("a product with 65536 bytes of workspace");
  EXPECT_EQ(multiply(0, 4096), lt::kInvalidValue);
  expect_complaint("a workspace over an operand");
  EXPECT_EQ(multiply(0, 1 << 16 | 256), lt::kExecutionFailed);
  expect_complaint("a product of 65536 bytes at");
  choice_.workspace_bytes = 0;
  EXPECT_EQ(multiply(), lt::kInvalidValue);
  expect_complaint("it needs 65536");
  const int32_t transposed = lt::kTransposed;
  lt::api()->MatmulDescSetAttribute(operation_, lt::kTransposeA, &transposed, 4);
  EXPECT_EQ(multiply(), lt::kInvalidValue);
  expect_complaint("an algorithm for another product");
}

TEST_F(FakeCudaProductTest, WhatIsNotLive) {
  ASSERT_EQ(choose(), lt::kSuccess);
  lt::api()->MatrixLayoutDestroy(b_);
  EXPECT_EQ(multiply(), lt::kInvalidValue);
  expect_complaint("a product of what is not live");
  EXPECT_EQ(choose(), lt::kInvalidValue);
  expect_complaint("an algorithm for what is not live");
  EXPECT_EQ(lt::api()->MatrixLayoutDestroy(b_), lt::kInvalidValue);
  expect_complaint("cublasLtMatrixLayoutDestroy of what is not live");
  lt::api()->MatrixLayoutCreate(&b_, lt::kFloat32, 160, 4, 160);
  api()->CtxSetCurrent(nullptr);
  EXPECT_EQ(multiply(), lt::kNotInitialized);
  expect_complaint("cublasLtMatmul without a current context");
  api()->CtxSetCurrent(context_);
}

}  // namespace
}  // namespace hologram::cuda
