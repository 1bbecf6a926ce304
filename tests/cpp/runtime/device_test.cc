// SPDX-License-Identifier: MIT
// Devices, streams, events and executors.
#include "hologram/device.h"

#include <cstdlib>
#include <cstring>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "hologram/executor.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {
namespace {

// A device whose memory only it can reach, to see that nothing takes it for the host's.
class FarDevice final : public Device {
 public:
  FarDevice() : Device(BackendType::kMetal, /*host_memory=*/false) {}
  std::string name() const override { return "far"; }
  DeviceProperties properties() const override { return {}; }
  void* allocate_raw(size_t nbytes) override {
    if (nbytes > 1'000'000) return nullptr;
    ++blocks;
    return std::malloc(nbytes);
  }
  void free_raw(void* data, size_t) noexcept override {
    --blocks;
    std::free(data);
  }
  SystemMemory memory_info() const override { return {500'000, 1'000'000}; }
  void copy_from_host(Stream&, void* to, const void* from, size_t n) override {
    std::memcpy(to, from, n);
  }
  void copy_to_host(Stream&, void* to, const void* from, size_t n) override {
    std::memcpy(to, from, n);
  }
  void copy_within(Stream&, void* to, const void* from, size_t n) override {
    std::memmove(to, from, n);
  }
  int blocks = 0;
};

TEST(Backend, NamesAreParsedAndListed) {
  cpu();
  EXPECT_EQ(parse_backend("cpu"), BackendType::kCpu);
  EXPECT_EQ(parse_backend("auto"), BackendType::kCpu);
  EXPECT_STREQ(backend_name(BackendType::kCuda), "cuda");
  EXPECT_EQ(list_available_backends().front(), BackendType::kCpu);
  EXPECT_TRUE(is_backend_available(BackendType::kCpu));
  EXPECT_ERROR(parse_backend("tpu"), ErrorKind::kInvalidArgument,
               "unknown backend 'tpu'; available: cpu");
  EXPECT_ERROR(parse_backend(""), ErrorKind::kInvalidArgument, "unknown backend ''");
  EXPECT_ERROR(parse_backend("metal"), ErrorKind::kInvalidArgument,
               "backend 'metal' is not available on this machine: this build has no metal devices; "
               "available: cpu");
  EXPECT_ERROR(device(BackendType::kMetal), ErrorKind::kInvalidArgument,
               "'metal' is not available");
}

TEST(Device, TheCpuIsDeviceZero) {
  Device& d = cpu();
  EXPECT_EQ(&device(0), &d);
  EXPECT_EQ(d.index(), 0);
  EXPECT_EQ(d.kind(), BackendType::kCpu);
  EXPECT_TRUE(d.is_host_memory());
  const DeviceProperties p = d.properties();
  EXPECT_FALSE(p.name.empty());
  EXPECT_FALSE(p.architecture.empty());
  EXPECT_GT(p.total_memory, 0u);
  EXPECT_GE(p.processors, 1);
  EXPECT_GT(d.memory_info().available, 0u);
  register_builtin_devices();
  EXPECT_EQ(&device(BackendType::kCpu), &d);
}

TEST(Device, WrongIndicesAreNamed) {
  cpu();
  EXPECT_ERROR(device(-1), ErrorKind::kIndex, "device index -1 is out of range");
  EXPECT_ERROR(device(1000), ErrorKind::kIndex, "device index 1000 is out of range: there ");
  EXPECT_ERROR(set_current_device(77), ErrorKind::kIndex, "device index 77");
  EXPECT_EQ(current_device(), 0);
  EXPECT_ERROR(register_device(nullptr), ErrorKind::kInvalidArgument, "null");
}

TEST(Device, MemoryOfADeviceOfItsOwnKindIsNotPooledHere) {
  cpu();
  static FarDevice* far = nullptr;
  static const int index = [] {
    auto made = std::make_unique<FarDevice>();
    far = made.get();
    return register_device(std::move(made));
  }();
  EXPECT_EQ(&device(index), far);
  {
    const BufferRef b = BufferRef::adopt(allocate_buffer(*far, 1000));
    EXPECT_EQ(b->pool(), PoolKind::kDevice);
    EXPECT_EQ(&b->device(), far);
    EXPECT_EQ(far->blocks, 1);
    EXPECT_EQ(BufferRef::adopt(allocate_buffer(*far, 0))->data(), nullptr);
  }
  EXPECT_EQ(far->blocks, 0);
  EXPECT_ERROR(allocate_buffer(*far, 2'000'000), ErrorKind::kOutOfMemory, "2000000 bytes) on far:");
  const auto executor = Executor::with_backend(BackendType::kMetal);
  EXPECT_EQ(executor->allocate(4)->pool(), PoolKind::kDevice);
  Event event;
  event.record(cpu().default_stream());
  EXPECT_ERROR(event.record(far->default_stream()), ErrorKind::kInvalidArgument,
               "make one event per device");
  set_current_device(index);
  EXPECT_EQ(current_device(), index);
  std::thread([] { EXPECT_EQ(current_device(), 0); }).join();
  set_current_device(0);
}

TEST(Device, CopiesMayOverlapAndBeEmpty) {
  Device& d = cpu();
  Stream& s = d.default_stream();
  BufferRef b = allocate(10);
  d.copy_from_host(s, b->data(), "0123456789", 10);
  d.copy_within(s, b->data_as<char>() + 2, b->data(), 8);
  char text[10];
  d.copy_to_host(s, text, b->data(), 10);
  EXPECT_EQ(std::string(text, 10), "0101234567");
  d.copy_from_host(s, nullptr, nullptr, 0);
}

TEST(Stream, PoolsGoRoundAndIdsAreStable) {
  Device& d = cpu();
  EXPECT_EQ(d.default_stream().id(), 0);
  std::set<int64_t> ids;
  for (int i = 0; i < Stream::kPoolSize; ++i) ids.insert(d.next_pool_stream().id());
  EXPECT_EQ(ids.size(), static_cast<size_t>(Stream::kPoolSize));
  EXPECT_EQ(ids.count(0), 0u);
  Stream& urgent = d.next_pool_stream(-1);
  EXPECT_EQ(urgent.priority(), -1);
  EXPECT_EQ(ids.count(urgent.id()), 0u);
  EXPECT_EQ(&d.stream(urgent.id()), &urgent);
  EXPECT_EQ(&urgent.device(), &d);
  EXPECT_ERROR(d.stream(65), ErrorKind::kIndex, "stream id 65 is out of range");
  EXPECT_ERROR(d.stream(-1), ErrorKind::kIndex, "stream id -1");
}

TEST(Stream, WorkRunsInOrderAndIsCounted) {
  Stream& s = cpu().next_pool_stream();
  const uint64_t before = s.submitted();
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) s.submit([&order, i] { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(s.submitted(), before + 5);
  EXPECT_TRUE(s.query());
  EXPECT_THROW(s.submit([] { throw std::out_of_range("here"); }), std::out_of_range);
  EXPECT_TRUE(s.query());
  s.synchronize();
}

TEST(Stream, KeptErrorsAreRaisedOnce) {
  Device& d = cpu();
  Stream& s = d.next_pool_stream();
  s.keep_error(std::make_exception_ptr(Error(ErrorKind::kInternal, "first")));
  s.keep_error(std::make_exception_ptr(Error(ErrorKind::kInternal, "second")));
  s.keep_error(nullptr);
  EXPECT_TRUE(s.has_error());
  d.default_stream().synchronize();
  EXPECT_ERROR(s.synchronize(), ErrorKind::kInternal, "first");
  s.synchronize();
  s.keep_error(std::make_exception_ptr(Error(ErrorKind::kInternal, "third")));
  EXPECT_ERROR(d.synchronize(), ErrorKind::kInternal, "third");
  d.synchronize();
}

TEST(Stream, TheCurrentOneBelongsToTheThread) {
  Device& d = cpu();
  EXPECT_EQ(&current_stream(0), &d.default_stream());
  Stream& s = d.next_pool_stream();
  set_current_stream(s);
  EXPECT_EQ(&current_stream(0), &s);
  std::thread([&] { EXPECT_EQ(&current_stream(0), &d.default_stream()); }).join();
  set_current_stream(d.default_stream());
}

TEST(Event, MeasuresBetweenRecords) {
  Stream& s = cpu().default_stream();
  Event start(true);
  Event end(true);
  EXPECT_FALSE(start.recorded());
  EXPECT_TRUE(start.query());
  start.synchronize();
  EXPECT_ERROR(start.elapsed_ms(end), ErrorKind::kState, "must be recorded");
  start.record(s);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  end.record(s);
  EXPECT_GE(start.elapsed_ms(end), 5.0);
  EXPECT_LT(start.elapsed_ms(end), 5000.0);
  EXPECT_LE(end.elapsed_ms(start), -5.0);
  EXPECT_TRUE(end.query());
  end.synchronize();
  end.block(cpu().next_pool_stream());
  Event untimed;
  untimed.record(s);
  EXPECT_ERROR(untimed.elapsed_ms(end), ErrorKind::kInvalidArgument, "timing enabled");
}

TEST(Executor, AllocatesSmallBuffersInItsBoundaryPool) {
  const auto ex = Executor::automatic();
  EXPECT_EQ(ex->backend(), BackendType::kCpu);
  const int64_t before = memory_stats().boundary_blocks.current;
  std::vector<BufferRef> held;
  std::set<int> classes;
  for (int i = 0; i < 96; ++i) {
    held.push_back(ex->allocate(3072));
    EXPECT_EQ(held.back()->pool(), PoolKind::kBoundary);
    EXPECT_EQ(held.back()->dtype(), Dtype::kFloat32);
    EXPECT_EQ(held.back()->length(), 3072u);
    classes.insert(held.back()->class_index());
    std::memset(held.back()->data(), i, held.back()->nbytes());
  }
  EXPECT_EQ(classes.size(), 96u);
  EXPECT_EQ(memory_stats().boundary_blocks.current, before + 96);
  // The 97th and every further one simply live elsewhere.
  for (int i = 0; i < 200; ++i) {
    held.push_back(ex->allocate(3072));
    EXPECT_EQ(held.back()->pool(), PoolKind::kLinear);
    EXPECT_EQ(held.back()->class_index(), -1);
  }
  const int freed = held[40]->class_index();
  held[40].reset();
  EXPECT_EQ(ex->allocate(1)->class_index(), freed);
  EXPECT_EQ(ex->allocate(3073)->pool(), PoolKind::kLinear);
  EXPECT_EQ(ex->allocate(0)->data(), nullptr);
  const ExecutorStats stats = ex->stats();
  EXPECT_EQ(stats.allocations, 299);
  EXPECT_EQ(stats.boundary_allocations, 97);
  EXPECT_EQ(stats.boundary_classes_free, 1);
  for (int i = 0; i < 96; ++i) {
    if (i != 40) {
      EXPECT_EQ(held[i]->data_as<uint8_t>()[12287], i);
    }
  }
  held.clear();
  EXPECT_EQ(memory_stats().boundary_blocks.current, before);
}

TEST(Executor, BuffersOutliveIt) {
  BufferRef kept;
  {
    const auto ex = Executor::with_backend(BackendType::kCpu);
    kept = ex->allocate(100, Dtype::kInt64);
    *kept->data_as<int64_t>() = 42;
    ex->close();
  }
  EXPECT_EQ(kept->pool(), PoolKind::kBoundary);
  EXPECT_EQ(*kept->data_as<int64_t>(), 42);
  std::thread([&] { kept.reset(); }).join();
}

TEST(Executor, CloseTwiceIsFineAndUseAfterwardsIsNot) {
  const auto ex = Executor::automatic();
  ex->synchronize();
  ex->close();
  ex->close();
  EXPECT_TRUE(ex->closed());
  EXPECT_ERROR(ex->allocate(1), ErrorKind::kState, "allocate: the executor is closed");
  EXPECT_ERROR(ex->synchronize(), ErrorKind::kState, "synchronize: the executor is closed");
  EXPECT_ERROR(ex->stats(), ErrorKind::kState, "stats");
}

TEST(Executor, BadLengthsAreRefused) {
  const auto ex = Executor::automatic();
  EXPECT_ERROR(ex->allocate(-1), ErrorKind::kInvalidArgument, "length is -1");
  EXPECT_ERROR(ex->allocate(INT64_MAX, Dtype::kFloat64), ErrorKind::kOutOfMemory,
               "9223372036854775807 elements of float64");
  EXPECT_ERROR(ex->allocate(INT64_MAX, Dtype::kUInt8), ErrorKind::kOutOfMemory,
               "tried to allocate");
}

TEST(Executor, ThreadsMayShareOne) {
  const auto ex = Executor::automatic();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        const BufferRef a = ex->allocate(64);
        const BufferRef b = ex->allocate(64);
        a->data_as<float>()[0] = static_cast<float>(t);
        b->data_as<float>()[0] = static_cast<float>(i);
        if (a->data_as<float>()[0] != static_cast<float>(t)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(ex->stats().boundary_classes_free, 96);
}

}  // namespace
}  // namespace hologram
