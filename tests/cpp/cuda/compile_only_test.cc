// SPDX-License-Identifier: MIT
// Tests that CUDA's compiler takes what whole programs become on a GPU: the driver compiles every
// text, and launches nothing.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "hologram/calls.h"
#include "hologram/functions.h"
#include "hologram/recorder.h"
#include "src/array/record_call.h"
#include "src/cuda/nvrtc.h"
#include "src/gpu/device.h"
#include "tests/cpp/cuda/strict.h"

namespace hologram::cuda {
namespace {

class CompileOnly final : public gpu::Driver {
 public:
  DeviceProperties properties() const override {
    DeviceProperties p;
    p.name = "compiler";
    p.backend = BackendType::kCuda;
    p.total_memory = size_t{1} << 40;
    return p;
  }
  const gpu::Traits& traits() const override { return traits_; }
  size_t largest_block() const override { return size_t{1} << 40; }
  void* allocate(size_t bytes) override {
    return ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  void release(void* address, size_t bytes) noexcept override { ::munmap(address, bytes); }
  gpu::Place place(const void* address) const override { return {const_cast<void*>(address), 0}; }
  void write(void*, const void*, size_t) override {}
  void read(void* to, const void*, size_t nbytes) override { std::memset(to, 0, nbytes); }
  void copy(void*, const void*, size_t) override {}
  std::shared_ptr<const gpu::CompiledKernel> build(const std::string& text) override {
    for (const int architecture : architectures()) {
      const Image image = compile(text, architecture, strict_options());
      static const std::regex kSpills("(\\d+) bytes spill stores");
      std::smatch found;
      if (std::regex_search(image.log, found, kSpills)) {
        spilled = std::max(spilled, std::stoi(found[1]));
      }
    }
    ++built;
    return std::make_shared<gpu::CompiledKernel>();
  }
  void launch(const gpu::Launch&) override { ++launched; }
  void flush() override {}
  void finish() override {}
  std::shared_ptr<void> mark() override { return std::make_shared<int>(); }
  bool is_done(const std::shared_ptr<void>&) const override { return true; }
  void wait(const std::shared_ptr<void>&) const override {}
  double elapsed_ms(const std::shared_ptr<void>&, const std::shared_ptr<void>&) const override {
    return 0;
  }

  static inline int built = 0, launched = 0, spilled = 0;

 private:
  const gpu::Traits traits_{
      .has_double = true, .divides_exactly = true, .parameter_bytes = 4096, .group_items = 1024};
};

class CompileOnlyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_nvrtc()) GTEST_SKIP() << why_no_nvrtc() << " (set HOLOGRAM_NVRTC_LIBRARY)";
    if (const char* fake = std::getenv("HOLOGRAM_CUDA_LIBRARY"); fake != nullptr && *fake != 0) {
      GTEST_SKIP() << "the compiler is a fake";
    }
  }
  static Device& gpu() {
    static Device& made = device(
        register_device(gpu::make_device(BackendType::kCuda, std::make_unique<CompileOnly>())));
    return made;
  }
  static Tensor ones(Shape shape, Dtype dtype) { return full(std::move(shape), 1.0, dtype, gpu()); }
  static void run() { flush(gpu()); }
  static void expect_few_spills() {
    EXPECT_LE(CompileOnly::spilled, 8)
        << "That holds for PyTorch's NVRTC, which `make test` names in HOLOGRAM_NVRTC_LIBRARY.";
  }
};

TEST_F(CompileOnlyTest, ProductsNormsAndReductionsAreKernels) {
  reset_recorder_stats(gpu());
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64, Dtype::kBFloat16, Dtype::kInt64}) {
    for (const int64_t n : {5, 100}) {
      const Tensor x = ones({n, n}, dtype), y = ones({3, n, n}, dtype);
      Tensor z = matmul(x, y);
      if (is_floating(dtype)) z = softmax(z, 1);
      run();
      const int dims[] = {0, 2};
      z = reduce(is_floating(dtype) ? Reduction::var : Reduction::sum, z, {.dims = dims});
      run();
      // Work behind a product, in its kernel.
      const int before = CompileOnly::launched;
      z = add(maximum(matmul(x, y), 0.5), y);
      run();
      EXPECT_EQ(CompileOnly::launched, before + 1);
    }
    // A long row takes a launch for each walk, and one more for its value.
    const Tensor row = ones({3, 9000}, dtype);
    const int before = CompileOnly::launched;
    const Tensor sum = reduce(Reduction::sum, row, {.dims = std::array{1}});
    run();
    EXPECT_EQ(CompileOnly::launched, before + 2);
  }
  EXPECT_EQ(recorder_stats(gpu()).host_kernels, 0u);
  EXPECT_GT(CompileOnly::built, 12);
  EXPECT_GE(CompileOnly::launched, CompileOnly::built);
  expect_few_spills();  // softmax of float64
}

TEST_F(CompileOnlyTest, RandomNumbersNormsAndStepsAreKernels) {
  reset_recorder_stats(gpu());
  const int before = CompileOnly::built;
  std::vector<Tensor> kept;
  const auto keep = [&](std::vector<Tensor> results) {
    for (Tensor& result : results) kept.push_back(std::move(result));
    run();
  };
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64, Dtype::kFloat16}) {
    const Tensor x = ones({4, 6, 5}, dtype), row = ones({5}, dtype), channels = ones({6}, dtype);
    for (const char* name : {"uniform", "normal"}) {
      keep(call(name, {x}, {{"seed", 1}, {"offset", 2}}));
    }
    keep(call("bernoulli", {x}, {{"seed", 1}}));
    keep(call("dropout", {x}, {{"seed", 1}, {"p", 0.25}}));
    keep(call("layer_norm", {x, row, row}));
    keep(call("group_norm", {x, channels, channels}, {{"groups", 3}}));
    keep(call("batch_norm", {x, channels, channels, channels, channels}, {{"training", true}}));
    const std::vector<Tensor> list = {ones({7}, dtype), ones({3, 3}, dtype)};
    keep(call("adam", {CallInput(), CallInput(), list, list, list, list},
              {{"lr", 0.1}, {"steps", std::vector<int64_t>{1, 1}}}));
  }
  // The parameters of a step are one launch.
  for (const int count : {2, 5, 40}) {
    std::vector<Tensor> lists[4];
    for (auto& list : lists) {
      for (int i = 0; i < count; ++i) list.push_back(ones({i + 1, 3}, Dtype::kFloat32));
    }
    run();
    const int launched = CompileOnly::launched;
    keep(call("adam", {CallInput(), CallInput(), lists[0], lists[1], lists[2], lists[3]},
              {{"lr", 0.1}, {"steps", std::vector<int64_t>(static_cast<size_t>(count), 1)}}));
    // One takes 16 of four tensors each.
    EXPECT_EQ(CompileOnly::launched - launched, (count + 15) / 16);
  }
  keep(call("integers", {ones({70}, Dtype::kInt32)}, {{"seed", 1}, {"count", 9}}));
  EXPECT_EQ(recorder_stats(gpu()).host_kernels, 0u);
  EXPECT_GT(CompileOnly::built - before, 15);
  expect_few_spills();
}

TEST_F(CompileOnlyTest, WhatReadsByIndexIsKernels) {
  reset_recorder_stats(gpu());
  const int before = CompileOnly::built;
  using array::Arg;
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64, Dtype::kBFloat16}) {
    const Tensor x = ones({4, 6, 5}, dtype), rows = ones({4, 3, 5}, dtype);
    const Tensor at = ones({3}, Dtype::kInt64), places = ones({4, 3, 5}, Dtype::kInt64);
    array::record(calls::Take<Arg>{.input = x, .index = at, .dim = 1, .out = rows});
    run();
    array::record(calls::Gather<Arg>{.input = x, .index = places, .dim = 1, .out = rows});
    run();
    const Tensor target = ones({4, 5}, Dtype::kInt64), weight = ones({6}, dtype);
    const Tensor out = ones({}, dtype), total = ones({}, dtype), grad = ones({4, 6, 5}, dtype);
    array::record(calls::NllLoss<Arg>{.input = x,
                                      .target = target,
                                      .weight = weight,
                                      .reduction = static_cast<int64_t>(LossReduction::mean),
                                      .ignore_index = -100,
                                      .out = out,
                                      .total_weight = total});
    run();
    array::record(
        calls::NllLossBackward<Arg>{.grad = out,
                                    .target = target,
                                    .weight = weight,
                                    .total_weight = total,
                                    .reduction = static_cast<int64_t>(LossReduction::mean),
                                    .ignore_index = -100,
                                    .grad_input = grad});
    run();
  }
  EXPECT_EQ(recorder_stats(gpu()).host_kernels, 0u);
  EXPECT_GT(CompileOnly::built - before, 8);
  expect_few_spills();
}

}  // namespace
}  // namespace hologram::cuda
