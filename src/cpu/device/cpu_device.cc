// SPDX-License-Identifier: MIT
// The CPU as a device: host memory, work done by the thread that submits it.
#include "src/cpu/device/cpu_device.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <new>

#include "hologram/cpu_info.h"
#include "hologram/device.h"
#include "hologram/memory.h"
#include "hologram/parallel.h"
#include "src/circuit/plan_limits.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/executor/run.h"

namespace hologram {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t start = line.find_first_not_of(" \t", line.find(':') + 1);
    if (start != std::string::npos) return line.substr(start);
  }
  return "CPU";
}

size_t cache_bytes(int name) {
  const long bytes = sysconf(name);
  return bytes > 0 ? static_cast<size_t>(bytes) : 0;
}

// Classes of a thread's boundary pool that plans leave free, for operands that a kernel has to
// gather or repeat.
constexpr int kSpareClasses = 24;

constexpr circuit::PlanLimits kLimits{
    .row_bytes = BoundaryPool::kClassBytes,
    .scratch_slots = BoundaryPool::kClasses - kSpareClasses,
    .max_instrs = 1024,
    .least_trimmed_copy = int64_t{64} << 10,  // takes as long as three kernels begin
    .least_in_parts = int64_t{512} << 10,     // smaller ones stay in a cache
    .shared_places = 8,  // lines of a set of the first cache; newer processors have 12
};

class CpuDevice final : public Device {
 public:
  CpuDevice() : Device(BackendType::kCpu, /*host_memory=*/true, &kLimits) {}

  std::string name() const override { return "cpu"; }

  DeviceProperties properties() const override {
    DeviceProperties p;
    p.name = processor_name();
    p.architecture = isa_name(current_isa());
    p.backend = BackendType::kCpu;
    p.total_memory = system_memory().total;
    p.processors = usable_processors();
    p.l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE);
    p.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE);
    p.l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE);
    return p;
  }

  void* allocate_raw(size_t nbytes) override {
    return ::operator new (nbytes, std::align_val_t{64}, std::nothrow);
  }
  void free_raw(void* data, size_t) noexcept override {
    ::operator delete (data, std::align_val_t{64});
  }
  SystemMemory memory_info() const override { return system_memory(); }

  void copy_from_host(Stream& stream, void* to, const void* from, size_t nbytes) override {
    copy_within(stream, to, from, nbytes);
  }
  void copy_to_host(Stream& stream, void* to, const void* from, size_t nbytes) override {
    copy_within(stream, to, from, nbytes);
  }
  void copy_within(Stream& stream, void* to, const void* from, size_t nbytes) override {
    stream.submit([&] {
      if (nbytes != 0) std::memmove(to, from, nbytes);
    });
  }

  void run_plan(circuit::Plan& plan, const circuit::Bindings& bindings, int max_threads) override {
    cpu::run_plan(plan, bindings, max_threads);
  }
};

}  // namespace

void register_cpu_device() {
  static std::once_flag once;
  std::call_once(once, [] {
    cpu::register_calls();
    register_device(std::make_unique<CpuDevice>());
  });
}

}  // namespace hologram
