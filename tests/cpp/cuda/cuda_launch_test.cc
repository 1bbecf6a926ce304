// SPDX-License-Identifier: MIT
// What launches of CUDA's device cost the host, over the fake.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "hologram/error.h"
#include "src/gpu/device.h"
#include "src/gpu/rows/rows.h"
#include "tests/cpp/cpu/plan_support.h"
#include "tests/cpp/cuda/fake_support.h"

namespace hologram::cuda {
namespace {

class CudaLaunchTest : public FakeTest {};

double ns_each(int count, const std::function<void()>& act) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) act();
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
  return time.count() / count;
}

// The host's time for a kernel of a plan: what the device binds and the driver asks for. The fake's
// own share, its checks, is in it; that the kernel runs is not.
TEST_F(CudaLaunchTest, HostTimeOfAKernel) {
  const auto device = gpu::make_device(BackendType::kCuda, make_driver(0));
  plans::Random random(1);
  plans::Case test;
  plans::Builder builder({64});
  const uint32_t slots[] = {test.slot(random, Dtype::kFloat32, 64),
                            test.slot(random, Dtype::kFloat32, 64),
                            test.slot(random, Dtype::kFloat32, 64)};
  std::vector<circuit::Ref> refs;
  for (const uint32_t slot : slots) refs.push_back(builder.dense(slot, Dtype::kFloat32));
  builder.op(OpId::add, Dtype::kFloat32, {refs[0], refs[1]}, refs[2]);
  test.add(builder);
  std::vector<char*> at;
  for (size_t k = 0; k < std::size(slots); ++k) {
    at.push_back(static_cast<char*>(device->allocate_raw(256)));
  }
  fake()->execute(false);
  const circuit::Bindings bindings{at.data(), test.immediates.data()};
  device->run_plan(test.plan, bindings, 0);
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    best = std::min(best, ns_each(5000, [&] { device->run_plan(test.plan, bindings, 0); }));
  }
  fake()->execute(true);
  std::printf("         host time of a kernel over the fake: %.0f ns to bind and launch\n", best);
  RecordProperty("ns_per_launch", std::to_string(best));
  for (char* const memory : at) device->free_raw(memory, 256);
  device->empty_cache();
  test.plan.code.reset();
}

// The launches of a reduction of long rows share memory, which may be refused.
TEST_F(CudaLaunchTest, LongRowsThatHaveNoMemoryAreAnErrorThatSaysSo) {
  const auto device = gpu::make_device(BackendType::kCuda, make_driver(0));
  constexpr int64_t kRows = 1 << 20, kCols = gpu::kLongRow + 1;
  plans::Random random(1);
  plans::Case test;
  plans::Builder builder({kRows, kCols}, /*whole_rows=*/true);
  // All rows lie in the same place.
  const uint32_t in = test.slot(random, Dtype::kFloat32, kCols),
                 out = test.slot(random, Dtype::kFloat32, 1);
  builder.fold(Reduction::sum, builder.access(in, Dtype::kFloat32, {0, 1}),
               builder.access(out, Dtype::kFloat32, builder.rows(), circuit::Rank::kRow));
  test.add(builder);
  char* const at[] = {static_cast<char*>(device->allocate_raw(4 * kCols)),
                      static_cast<char*>(device->allocate_raw(4 * kRows))};
  fake()->execute(false);
  const circuit::Bindings bindings{at, test.immediates.data()};
  const int64_t before = fake()->count("launches");
  fake()->fail("cuMemAlloc_v2", 0, kOutOfMemory);
  try {
    device->run_plan(test.plan, bindings, 0);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
    EXPECT_STREQ(error.what(),
                 "cuda: no memory for 25165824 bytes that a reduction of long rows needs while it "
                 "runs; free buffers, or use smaller tensors");
  }
  EXPECT_EQ(fake()->count("launches"), before);
  fake()->execute(true);
  device->free_raw(at[0], 4 * kCols);
  device->free_raw(at[1], 4 * kRows);
  device->empty_cache();
  test.plan.code.reset();
}

}  // namespace
}  // namespace hologram::cuda
