// SPDX-License-Identifier: MIT
// Memory, copies, streams and events of the OpenCL device, and what it leaves to the host.
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "hologram/functions.h"
#include "hologram/recorder.h"
#include "hologram/trace.h"
#include "tests/cpp/opencl/opencl_support.h"
#include "tests/cpp/runtime/support.h"

namespace hologram::opencl {
namespace {

BufferRef block(Device& device, size_t nbytes) {
  return BufferRef::adopt(allocate_buffer(device, nbytes));
}

Tensor floats(Device& device, const std::vector<float>& values) {
  const auto n = static_cast<int64_t>(values.size());
  const int64_t one = 1;
  return from_host({const_cast<float*>(values.data()), Dtype::kFloat32, 1, &n, &one}, device);
}
std::vector<float> values(const Tensor& t) {
  std::vector<float> result(static_cast<size_t>(t.numel()));
  const Shape strides = contiguous_strides(t.shape());
  read(t, {result.data(), Dtype::kFloat32, t.ndim(), t.shape().data(), strides.data()});
  return result;
}

class OpenClDeviceTest : public OpenClTest {};

TEST_F(OpenClDeviceTest, IsListedBesideTheCpu) {
  EXPECT_EQ(device(0).kind(), BackendType::kCpu);
  const std::string name = backend_name(kind());
  EXPECT_EQ(parse_backend(name), kind());
  EXPECT_EQ(gpu().name(), name);
  EXPECT_FALSE(gpu().is_host_memory());
  const DeviceProperties properties = gpu().properties();
  EXPECT_FALSE(properties.name.empty());
  const bool is_cuda = kind() == BackendType::kCuda;
  EXPECT_NE(properties.architecture.find(is_cuda ? "sm_" : "OpenCL"), std::string::npos);
  EXPECT_GT(properties.total_memory, size_t{1} << 20);
  EXPECT_GT(properties.processors, 0);
}

TEST_F(OpenClDeviceTest, CopiesKeepEveryByte) {
  Stream& stream = gpu().default_stream();
  for (const size_t n : {size_t{1}, size_t{63}, size_t{4097}, size_t{3'000'001}}) {
    std::vector<uint8_t> from(n), to(n, 0);
    for (size_t i = 0; i < n; ++i) from[i] = static_cast<uint8_t>(i * 7 + i / 256);
    const BufferRef a = block(gpu(), n), b = block(gpu(), n);
    gpu().copy_from_host(stream, a->data(), from.data(), n);
    gpu().copy_within(stream, b->data(), a->data(), n);
    gpu().copy_to_host(stream, to.data(), b->data(), n);
    EXPECT_EQ(from, to) << n;
    // A part of it, found by an address inside.
    if (n < 64) continue;
    std::vector<uint8_t> part(n / 3);
    gpu().copy_to_host(stream, part.data(), b->data_as<char>() + 17, part.size());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), from.begin() + 17));
    // Onto itself, both ways.
    for (const auto& [target, source] : {std::pair{size_t{0}, size_t{5}}, {size_t{5}, size_t{0}}}) {
      std::vector<uint8_t> expected = from;
      std::memmove(&expected[target], &from[source], n - 5);
      gpu().copy_from_host(stream, a->data(), from.data(), n);
      gpu().copy_within(stream, a->data_as<char>() + target, a->data_as<char>() + source, n - 5);
      gpu().copy_to_host(stream, to.data(), a->data(), n);
      EXPECT_EQ(to, expected);
    }
  }
}

TEST_F(OpenClDeviceTest, ItsAddressesAreNotTheHosts) {
  const BufferRef memory = block(gpu(), 4096);
  EXPECT_EQ(memory->pool(), PoolKind::kDevice);
  EXPECT_NE(memory->data(), nullptr);
  EXPECT_DEATH({ *memory->data_as<volatile char>() = 1; }, "");
}

TEST_F(OpenClDeviceTest, FreedBlocksServeLaterOnes) {
  gpu().synchronize();
  gpu().empty_cache();
  const MemoryStats before = gpu().memory_stats();
  const void* address;
  {
    const BufferRef memory = block(gpu(), 100'000);
    address = memory->data();
    const MemoryStats now = gpu().memory_stats();
    EXPECT_EQ(now.requested_bytes.current, before.requested_bytes.current + 100'000);
    EXPECT_GE(now.allocated_bytes.current, before.allocated_bytes.current + 100'000);
    EXPECT_EQ(now.active_blocks.current, before.active_blocks.current + 1);
  }
  MemoryStats now = gpu().memory_stats();
  EXPECT_EQ(now.allocated_bytes.current, before.allocated_bytes.current);
  EXPECT_GE(now.cached_bytes, 100'000);
  EXPECT_EQ(block(gpu(), 99'999)->data(), address);
  gpu().empty_cache();
  now = gpu().memory_stats();
  EXPECT_EQ(now.cached_bytes, 0);
  EXPECT_GE(now.os_frees, before.os_frees + 1);
  gpu().reset_peak_memory_stats();
  EXPECT_EQ(gpu().memory_stats().allocated_bytes.peak, now.allocated_bytes.current);
  // The CPU's counts are its own.
  const int64_t host = memory_stats().allocated_bytes.current;
  const BufferRef more = block(gpu(), 1 << 20);
  EXPECT_LT(memory_stats().allocated_bytes.current, host + (1 << 20));
}

TEST_F(OpenClDeviceTest, TooMuchMemoryIsAnErrorThatSaysSo) {
  const size_t absurd = gpu().properties().total_memory + 1;
  EXPECT_ERROR(block(gpu(), absurd), ErrorKind::kOutOfMemory, "out of memory: tried to allocate");
  EXPECT_GE(gpu().memory_stats().out_of_memory, 1);
}

TEST_F(OpenClDeviceTest, AStreamIsOrderedAndEventsMarkIt) {
  Stream& stream = gpu().next_pool_stream();
  Event begin(/*timing=*/true), end(/*timing=*/true);
  EXPECT_TRUE(begin.query());
  begin.record(stream);
  Tensor x = floats(gpu(), std::vector<float>(1 << 16, 1.0f));
  for (int i = 0; i < 20; ++i) x = apply(OpId::add, {x, x});
  end.record(stream);
  end.synchronize();
  EXPECT_TRUE(begin.query() && end.query());
  EXPECT_GT(begin.elapsed_ms(end), 0);
  EXPECT_LT(begin.elapsed_ms(end), 60'000);
  EXPECT_EQ(values(x)[12345], 1048576.0f);
  stream.synchronize();
  // A question puts a mark behind what is queued, and later ones ask for that.
  bool done = stream.query();
  for (int i = 0; i < 10'000 && !done; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    done = stream.query();
  }
  EXPECT_TRUE(done);
  // The CPU's stream waits for the device's mark.
  end.block(cpu().default_stream());
  int seen = 0;
  stream.submit([&] { seen = 1; });
  EXPECT_EQ(seen, 1);
}

TEST_F(OpenClDeviceTest, WhatItCannotLaunchRunsOnTheHostAndIsCounted) {
  reset_recorder_stats(gpu());
  std::vector<float> numbers(6 * 50);
  std::iota(numbers.begin(), numbers.end(), -150.0f);
  const Tensor x = floats(gpu(), numbers).reshape({6, 50});
  const Tensor y = floats(cpu(), numbers).reshape({6, 50});
  EXPECT_EQ(values(cumsum(x, 1)), values(cumsum(y, 1)));
  EXPECT_EQ(values(cumsum(x, 0)), values(cumsum(y, 0)));
  const RecorderStats stats = recorder_stats(gpu());
  EXPECT_GE(stats.host_kernels, 2u);
  EXPECT_LE(stats.host_kernels, stats.kernels);
  // What they read, each place once, and what they write.
  EXPECT_EQ(stats.host_bytes, 4u * (2 * (300 + 300)));
  EXPECT_EQ(recorder_stats(cpu()).host_kernels, 0u);
  EXPECT_EQ(recorder_stats(cpu()).host_bytes, 0u);
}

TEST_F(OpenClDeviceTest, AnErrorOfTheHostsKernelsIsRaised) {
  static const uint16_t kind =
      register_call({"opencl_test_fails", [](const CallArguments&) {
                       fail(ErrorKind::kIndex, "position 7 is out of range");
                     }});
  const BufferRef memory = block(gpu(), 64);
  const CallOperand operand{memory.get(), 0, 64, false, true, true};
  ASSERT_TRUE(record_call(kind, {&operand, 1}, {}, {}, 1));
  EXPECT_ERROR(materialize(*memory), ErrorKind::kIndex, "position 7 is out of range");
}

TEST_F(OpenClDeviceTest, EagerExecutionRecordsAndRunsEachOp) {
  set_deferring(false);
  const Tensor x = floats(gpu(), {1, 2, 3}), y = apply(OpId::mul, {x, x});
  EXPECT_FALSE(is_pending(*y.buffer()));
  EXPECT_EQ(values(y), (std::vector<float>{1, 4, 9}));
  set_deferring(true);
}

// What is fused has the bits of its ops one by one: where an op runs follows from the op.
TEST_F(OpenClDeviceTest, DeferredExecutionHasTheBitsOfEager) {
  std::vector<float> numbers(1000);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(i) / 500.0f - 1.0f + 1e-4f;
  }
  const Tensor x = floats(gpu(), numbers);
  std::vector<Tensor> many;
  for (int i = 0; i < 70; ++i) many.push_back(apply(OpId::mul, {x, 1.0 + i}));
  gpu().synchronize();
  const auto all = [&] {
    const Tensor twice = apply(OpId::mul, {apply(OpId::exp, {x}), 2.0});
    Tensor sum = apply(OpId::sin, {x});
    for (const Tensor& t : many) sum = apply(OpId::add, {sum, t});  // more than parameters hold
    std::vector<std::vector<float>> results;
    for (const Tensor& t : {apply(OpId::add, {twice, apply(OpId::erfinv, {x})}),
                            apply(OpId::add, {apply(OpId::digamma, {apply(OpId::add, {x, 2.0})}),
                                              apply(OpId::tanh, {x})}),
                            apply(OpId::exp, {sum})}) {
      results.push_back(values(t));
    }
    return results;
  };
  const auto deferred = all();
  set_deferring(false);
  const auto eager = all();
  set_deferring(true);
  for (size_t i = 0; i < eager.size(); ++i) {
    size_t differ = 0;
    for (size_t k = 0; k < numbers.size(); ++k) {
      differ += std::bit_cast<uint32_t>(deferred[i][k]) != std::bit_cast<uint32_t>(eager[i][k]);
    }
    EXPECT_EQ(differ, 0u) << "result " << i;
  }
}

TEST_F(OpenClDeviceTest, OpsAcrossDevicesAreRefused) {
  const Tensor x = floats(gpu(), {1, 2}), y = floats(cpu(), {1, 2});
  EXPECT_ERROR(apply(OpId::add, {x, y}), ErrorKind::kInvalidArgument,
               std::string("the tensors are on different devices, ") + backend_name(kind()));
}

TEST_F(OpenClDeviceTest, EqualProgramsOverOtherNumbersAndMemoryMakeOnePlan) {
  const Tensor x = floats(gpu(), {1, 2, 3, 4});
  gpu().synchronize();
  reset_recorder_stats(gpu());
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(values(apply(OpId::mul, {x, static_cast<double>(i)}))[3],
              4.0f * static_cast<float>(i));
  }
  // 0 and 1 are numbers that laws know.
  EXPECT_LE(recorder_stats(gpu()).plan_misses, 4u);
  EXPECT_EQ(recorder_stats(gpu()).host_kernels, 0u);
}

TEST_F(OpenClDeviceTest, TracesSeeItsKernels) {
  const uint64_t trace = start_tracing(gpu());
  const Tensor x = floats(gpu(), {1, 2, 3, 4});
  EXPECT_EQ(values(apply(OpId::neg, {x}))[1], -2.0f);
  const auto circuits = stop_tracing(trace);
  ASSERT_FALSE(circuits.empty());
  EXPECT_EQ(circuits.back()->shape->launches.size(), 1u);
}

}  // namespace
}  // namespace hologram::opencl
