// SPDX-License-Identifier: MIT
// CUDA's driver over the fake: memory, copies, order, events, threads, errors and their words.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/cpp/cuda/fake_support.h"
#include "tests/cpp/runtime/support.h"

namespace hologram::cuda {
namespace {

// s1[i] = s0[i] * number, for as many items as the first word says. The words are passed as the
// driver is told.
std::string scale_text(bool words_in_memory) {
  const std::string words = words_in_memory ? "[k]\n" : ".w[k]\n";
  return std::string(words_in_memory ? "" : "typedef struct { i64 w[2]; } Words;\n") +
         "#define W(k) words" + words +
         "KERNEL(64) hologram_kernel(GLOBAL u8* RESTRICT s0,\n    GLOBAL u8* RESTRICT s1,\n    " +
         (words_in_memory ? "GLOBAL const i64* RESTRICT words" : "PARAMETER Words words") +
         ") {\n"
         "  const u64 i = ITEM;\n"
         "  if (i >= (u64)W(0)) return;\n"
         "  ((GLOBAL f32*)s1)[i] = ((GLOBAL f32*)s0)[i] * as_f32((u32)W(1));\n"
         "}\n";
}

class CudaDriverTest : public FakeTest {
 protected:
  struct Memory {
    Memory(gpu::Driver& made_by, size_t size)
        : driver(made_by), bytes(size), address(made_by.allocate(size)) {}
    ~Memory() { driver.release(address, bytes); }
    Memory(const Memory&) = delete;
    char* at(size_t offset = 0) const { return static_cast<char*>(address) + offset; }
    gpu::Driver& driver;
    const size_t bytes;
    void* const address;
  };

  void scale(const gpu::CompiledKernel& kernel, void* from, void* to, int64_t n, float by,
             bool words_in_memory = false, size_t more_words = 0) {
    std::vector<int64_t> words = {n, std::bit_cast<int32_t>(by)};
    words.resize(words.size() + more_words);
    void* const blocks[] = {driver().place(from).block, driver().place(to).block};
    driver().launch({.kernel = &kernel,
                     .blocks = blocks,
                     .words = words,
                     .words_in_memory = words_in_memory,
                     .groups = static_cast<size_t>(n + 63) / 64,
                     .group_items = 64});
  }
  std::vector<float> floats(const void* from, size_t n) {
    std::vector<float> values(n);
    driver().read(values.data(), from, 4 * n);
    return values;
  }
};

TEST_F(CudaDriverTest, ItsPropertiesNeedNoContext) {
  const DeviceProperties p = driver().properties();
  EXPECT_EQ(p.architecture, "sm_90");
  EXPECT_EQ(p.backend, BackendType::kCuda);
  EXPECT_EQ(p.name.substr(0, 13), "fake GPU 0 on");
  EXPECT_GT(p.total_memory, size_t{1} << 20);
  EXPECT_GT(p.processors, 0);
  EXPECT_EQ(fake()->count("contexts"), 0);
  driver().finish();
  EXPECT_EQ(fake()->count("contexts"), 1);
}

TEST_F(CudaDriverTest, CopiesKeepEveryByte) {
  for (const size_t n : {size_t{1}, size_t{63}, size_t{4097}, size_t{1'000'001}}) {
    const Memory a(driver(), n), b(driver(), n);
    std::vector<char> from(n), to(n);
    std::iota(from.begin(), from.end(), 0);
    const std::vector<char> kept = from;
    driver().write(a.address, from.data(), n);
    std::fill(from.begin(), from.end(), 0);  // the host's side may be reused
    driver().copy(b.address, a.address, n);
    driver().read(to.data(), b.address, n);
    EXPECT_EQ(to, kept);
    if (n < 63) continue;
    driver().copy(b.at(n / 2), a.at(3), n / 4);
    driver().read(to.data(), b.at(n / 2 + 5), n / 4 - 5);
    EXPECT_EQ(std::memcmp(to.data(), &kept[8], n / 4 - 5), 0);
  }
}

TEST_F(CudaDriverTest, KernelsTakeAddressesInsideOfBlocks) {
  const auto kernel = driver().build(scale_text(false));
  const Memory block(driver(), 4096);
  EXPECT_EQ(driver().place(block.at(400)).block, block.at(400));
  EXPECT_EQ(driver().place(block.at(400)).offset, 0u);
  std::vector<float> values(100, 3.0f);
  driver().write(block.at(80), values.data(), 400);
  scale(*kernel, block.at(80), block.at(2000), 100, 2.5f);
  EXPECT_EQ(floats(block.at(2000), 100), std::vector<float>(100, 7.5f));
  EXPECT_EQ(fake()->count("modules"), 1);
}

// Each launch has the words that it was given, though those before it have not run.
TEST_F(CudaDriverTest, LongWordsStayUntilTheirLaunchHasRun) {
  const auto kernel = driver().build(scale_text(true));
  const Memory block(driver(), 256 * 300);
  const std::vector<float> values(64, 1.0f);
  driver().write(block.address, values.data(), 256);
  for (int i = 1; i < 300; ++i) {
    const size_t more = i == 200 ? 300'000 : 1000;  // more than the memory for words has
    scale(*kernel, block.address, block.at(static_cast<size_t>(i) * 256), 64, static_cast<float>(i),
          true, more);
  }
  for (size_t i = 1; i < 300; ++i) {
    ASSERT_EQ(floats(block.at(i * 256), 64), std::vector<float>(64, static_cast<float>(i))) << i;
  }
  EXPECT_EQ(fake()->count("hosts"), 1);
}

TEST_F(CudaDriverTest, AKernelMayBeLetGoOfWhileItIsQueued) {
  const Memory block(driver(), 1024);
  const std::vector<float> values(64, 1.0f);
  driver().write(block.address, values.data(), 256);
  scale(*driver().build(scale_text(false)), block.address, block.at(256), 64, 4);
  EXPECT_EQ(fake()->count("modules"), 0);
  EXPECT_EQ(floats(block.at(256), 64), std::vector<float>(64, 4.0f));
}

TEST_F(CudaDriverTest, MarksAreOrderedWithLaunches) {
  const auto kernel = driver().build(scale_text(false));
  const Memory block(driver(), 1 << 16);
  const std::vector<float> values(1 << 13, 1.0f);
  driver().write(block.address, values.data(), 1 << 15);
  const auto begin = driver().mark();
  for (int i = 0; i < 10; ++i) scale(*kernel, block.address, block.at(1 << 15), 1 << 13, 2);
  const auto end = driver().mark();
  driver().wait(end);
  EXPECT_TRUE(driver().is_done(begin));
  EXPECT_TRUE(driver().is_done(end));
  EXPECT_GE(driver().elapsed_ms(begin, end), 0);
  EXPECT_LT(driver().elapsed_ms(begin, end), 60'000);
  EXPECT_EQ(fake()->count("events"), 2);
}

TEST_F(CudaDriverTest, MarksAndKernelsMayOutliveTheDriver) {
  const auto kernel = driver().build(scale_text(false));
  const auto mark = driver().mark();
  forget_driver();
  EXPECT_EQ(fake()->count("events"), 1);
}

// PyTorch chooses GPUs by what is current on a thread.
TEST_F(CudaDriverTest, ACurrentContextIsCurrentAgain) {
  int count = 0;
  ASSERT_EQ(api()->DeviceGetCount(&count), kSuccess);
  ASSERT_EQ(count, 2) << "set FAKE_CUDA_DEVICES=2";
  Context other = nullptr, current = nullptr;
  ASSERT_EQ(api()->DevicePrimaryCtxRetain(&other, 1), kSuccess);
  ASSERT_EQ(api()->CtxSetCurrent(other), kSuccess);
  driver().finish();
  const Memory block(driver(), 64);
  driver().mark();
  api()->CtxGetCurrent(&current);
  EXPECT_EQ(current, other);
  api()->CtxSetCurrent(nullptr);
  api()->DevicePrimaryCtxRelease(1);
  driver().finish();
  api()->CtxGetCurrent(&current);
  EXPECT_NE(current, nullptr);
  EXPECT_NE(current, other);
}

TEST_F(CudaDriverTest, ThreadsShareIt) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const Memory block(driver(), 1000);
        std::vector<char> from(1000, static_cast<char>(t * 50 + i)), to(1000);
        driver().write(block.address, from.data(), 1000);
        driver().wait(driver().mark());
        driver().read(to.data(), block.address, 1000);
        EXPECT_EQ(from, to);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CudaDriverTest, RefusedMemoryIsNull) {
  EXPECT_EQ(driver().allocate(size_t{1} << 60), nullptr);
  fake()->fail("cuMemAlloc_v2", 0, kOutOfMemory);
  EXPECT_EQ(driver().allocate(100), nullptr);
  const Memory block(driver(), 100);
  EXPECT_NE(block.address, nullptr);
}

TEST_F(CudaDriverTest, FailedCallsSayWhatWasAskedForAndTheNameOfTheCode) {
  const auto kernel = driver().build(scale_text(false)),
             long_kernel = driver().build(scale_text(true));
  const Memory block(driver(), 1024);
  const auto mark = driver().mark();
  driver().wait(mark);
  char host[64] = {};
  struct Case {
    const char* call;
    Result code;
    ErrorKind kind;
    std::string text;
    std::function<void()> act;
  };
  const Case cases[] = {
      {"cuMemAlloc_v2", 999, ErrorKind::kInternal,
       "cuda: cuMemAlloc of 4096 bytes returned 999 (an error of the driver)",
       [&] { driver().allocate(4096); }},
      {"cuMemcpyHtoD_v2", kInvalidValue, ErrorKind::kInternal,
       "cuda: cuMemcpyHtoD of 64 bytes to 0x", [&] { driver().write(block.at(64), host, 64); }},
      {"cuMemcpyDtoH_v2", kInvalidValue, ErrorKind::kInternal,
       "returned 1 (CUDA_ERROR_INVALID_VALUE)", [&] { driver().read(host, block.at(64), 64); }},
      {"cuMemcpyDtoDAsync_v2", kInvalidValue, ErrorKind::kInternal,
       "cuda: cuMemcpyDtoDAsync of 32 bytes from 0x",
       [&] { driver().copy(block.at(), block.at(64), 32); }},
      {"cuLaunchKernel", kLaunchOutOfResources, ErrorKind::kInternal,
       "cuda: cuLaunchKernel of 2 groups of 64 items with 32 bytes of parameters returned 701 "
       "(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)",
       [&] { scale(*kernel, block.at(), block.at(512), 100, 1); }},
      {"cuMemAllocHost_v2", kOutOfMemory, ErrorKind::kOutOfMemory,
       "cuda: cuMemAllocHost of 1048576 bytes for words returned 2 (CUDA_ERROR_OUT_OF_MEMORY)",
       [&] { scale(*long_kernel, block.at(), block.at(512), 100, 1, true); }},
      {"cuMemAlloc_v2", kOutOfMemory, ErrorKind::kOutOfMemory,
       "cuda: cuMemAlloc of 1048576 bytes for words returned 2",
       [&] { scale(*long_kernel, block.at(), block.at(512), 100, 1, true); }},
      {"cuModuleLoadData", kInvalidPtx, ErrorKind::kInternal,
       "bytes for sm_90 from the text\ntypedef struct", [&] { driver().build(scale_text(false)); }},
      {"cuModuleGetFunction", kNotFound, ErrorKind::kInternal,
       "cuda: cuModuleGetFunction of hologram_kernel from the text\n",
       [&] { driver().build(scale_text(false)); }},
      {"cuStreamSynchronize", kOutOfMemory, ErrorKind::kOutOfMemory,
       "cuda: cuStreamSynchronize returned 2", [&] { driver().finish(); }},
      {"cuEventCreate", kOutOfMemory, ErrorKind::kOutOfMemory, "cuda: cuEventCreate returned 2",
       [&] { driver().mark(); }},
      {"cuEventRecord", kInvalidHandle, ErrorKind::kInternal,
       "cuda: cuEventRecord returned 400 (CUDA_ERROR_INVALID_HANDLE)", [&] { driver().mark(); }},
      {"cuEventQuery", kInvalidHandle, ErrorKind::kInternal, "cuda: cuEventQuery returned 400",
       [&] { driver().is_done(mark); }},
      {"cuEventSynchronize", kInvalidHandle, ErrorKind::kInternal,
       "cuda: cuEventSynchronize returned 400", [&] { driver().wait(mark); }},
      {"cuEventElapsedTime", kInvalidHandle, ErrorKind::kInternal,
       "cuda: cuEventElapsedTime returned 400", [&] { driver().elapsed_ms(mark, mark); }},
      {"cuCtxGetCurrent", kNotInitialized, ErrorKind::kInternal,
       "cuda: cuStreamSynchronize returned 3 (CUDA_ERROR_NOT_INITIALIZED)",
       [&] { driver().finish(); }},
  };
  for (const Case& test : cases) {
    fake()->fail(test.call, 0, test.code);
    EXPECT_ERROR(test.act(), test.kind, test.text);
  }
  // Nothing of it stays.
  scale(*long_kernel, block.at(), block.at(512), 100, 1, true);
  driver().finish();
}

TEST_F(CudaDriverTest, ARefusedTextIsSaidWithTheCompilersWords) {
  EXPECT_ERROR(driver().build("#error not this one\n"), ErrorKind::kInternal,
               "cuda: the compiler refuses a program for sm_90 (NVRTC_ERROR_COMPILATION): "
               "hologram.cu: error: #error not this one\n");
  EXPECT_ERROR(driver().build("KERNEL(64) hologram_kernel(int n) {}\n"), ErrorKind::kInternal,
               "returned 218 (CUDA_ERROR_INVALID_PTX)");
  EXPECT_NE(complaints().find("a parameter is not understood: int n"), std::string::npos);
}

TEST_F(CudaDriverTest, AContextThatIsRefusedMayBeHadLater) {
  fake()->fail("cuDevicePrimaryCtxRetain", 0, kOutOfMemory);
  EXPECT_ERROR(driver().finish(), ErrorKind::kOutOfMemory,
               "cuda: cuDevicePrimaryCtxRetain of device 0 returned 2");
  driver().finish();
}

// The first call that waits for a kernel that failed raises the error, and all later calls repeat
// it.
TEST_F(CudaDriverTest, AnErrorThatStaysIsSaidByEveryLaterCall) {
  auto kernel = driver().build(scale_text(false));
  Memory block(driver(), 1024);
  auto mark = driver().mark();
  fake()->fail("kernel", 0, kLaunchFailed);
  scale(*kernel, block.at(), block.at(512), 100, 1);
  EXPECT_ERROR(driver().finish(), ErrorKind::kInternal,
               "cuda: cuStreamSynchronize returned 719 (CUDA_ERROR_LAUNCH_FAILED)");
  const std::string later =
      "cuda: the GPU cannot be used by this process any more, what is on it is lost, and a new "
      "process has to be started; before, cuda: cuStreamSynchronize returned 719 "
      "(CUDA_ERROR_LAUNCH_FAILED)";
  char host[64] = {};
  const std::function<void()> calls[] = {
      [&] { driver().allocate(64); },
      [&] { driver().write(block.at(), host, 64); },
      [&] { driver().read(host, block.at(), 64); },
      [&] { driver().copy(block.at(), block.at(512), 64); },
      [&] { driver().build(scale_text(true)); },
      [&] { scale(*kernel, block.at(), block.at(512), 100, 1); },
      [&] { driver().finish(); },
      [&] { driver().mark(); },
      [&] { driver().is_done(mark); },
      [&] { driver().wait(mark); },
      [&] { driver().elapsed_ms(mark, mark); },
  };
  for (const auto& call : calls) EXPECT_ERROR(call(), ErrorKind::kInternal, later);
  EXPECT_EQ(driver().properties().architecture, "sm_90");
  mark.reset();
  kernel.reset();
}

TEST_F(CudaDriverTest, NothingIsSaidOfWhatIsGivenBackAtTheEnd) {
  auto kernel = driver().build(scale_text(false));
  auto mark = driver().mark();
  void* const block = driver().allocate(64);
  fake()->end(true);
  EXPECT_ERROR(driver().finish(), ErrorKind::kInternal,
               "cuda: cuStreamSynchronize returned 4 (CUDA_ERROR_DEINITIALIZED): the driver has "
               "shut down, as it does when a process ends");
  driver().release(block, 64);
  kernel.reset();
  mark.reset();
  fake()->end(false);
  // What a driver that is gone was not asked to free.
  EXPECT_EQ(fake()->count("blocks"), 1);
  driver().release(block, 64);
  forget_driver();
  EXPECT_NE(complaints().find("0 blocks, 0 blocks of pinned memory, 1 modules and 1 events live"),
            std::string::npos);
}

size_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stoul(line.substr(6));
  }
  return 0;
}

// HOLOGRAM_CUDA_LAUNCHES says how many.
TEST_F(CudaDriverTest, ManyLaunchesLeaveNothingBehind) {
  const char* const wish = std::getenv("HOLOGRAM_CUDA_LAUNCHES");
  const int count = wish != nullptr ? std::atoi(wish) : 10'000;
  const auto kernel = driver().build(scale_text(false)),
             long_kernel = driver().build(scale_text(true));
  const Memory block(driver(), 1024);
  const std::vector<float> values(64, 1.0f);
  driver().write(block.address, values.data(), 256);
  const auto run = [&](int launches) {
    for (int i = 0; i < launches; ++i) {
      const bool is_long = i % 10 == 0;
      scale(is_long ? *long_kernel : *kernel, block.at(), block.at(512), 64, static_cast<float>(i),
            is_long);
      if (i % 100 == 0) driver().wait(driver().mark());
    }
    driver().finish();
  };
  run(1000);
  const size_t before = resident_kib();
  run(count);
#ifndef __SANITIZE_ADDRESS__  // which keeps what is freed
  EXPECT_LT(resident_kib(), before + 16 * 1024);
#else
  EXPECT_GT(before, 0u);
#endif
  EXPECT_EQ(floats(block.at(512), 64), std::vector<float>(64, static_cast<float>(count - 1)));
  EXPECT_EQ(fake()->count("events"), 0);
  EXPECT_EQ(fake()->count("hosts"), 1);
}

}  // namespace
}  // namespace hologram::cuda
