// SPDX-License-Identifier: MIT
// See host_fallback.h.
#include "src/runtime/device/host_fallback.h"

#include <algorithm>

#include "hologram/memory.h"

namespace hologram::internal {
namespace {

// Host memory keeps the alignment that the device's has.
constexpr int64_t kHostAlignment = 64;

// Whether an access walks all bytes between its first and its last element.
bool is_dense(const circuit::Kernel& kernel, const circuit::MemoryAccess& access, int64_t bytes) {
  int64_t elements = 1;
  for (int d = 0; d < kernel.ndim; ++d) {
    const auto dim = static_cast<size_t>(d);
    if (access.strides[dim] != 0) elements *= kernel.shape[dim];
  }
  return elements * static_cast<int64_t>(itemsize(access.dtype)) == bytes;
}

}  // namespace

HostKernels::HostKernels(const circuit::Plan& plan, int begin, int end)
    : plan_(std::make_unique<circuit::Plan>()) {
  plan_->slots = plan.slots;
  plan_->kernels.assign(plan.kernels.begin() + begin, plan.kernels.begin() + end);
  plan_->stats.kernels = end - begin;
  for (const circuit::Kernel& kernel : plan_->kernels) {
    plan_->stats.groups += plan_->stats.groups == 0 || kernel.launch != (&kernel)[-1].launch;
    for (const circuit::MemoryAccess& access : kernel.accesses) {
      if (access.product || kernel.numel() == 0) continue;
      const auto size = static_cast<int64_t>(itemsize(access.dtype));
      int64_t low = access.offset, high = access.offset + size;
      for (int d = 0; d < kernel.ndim; ++d) {
        const auto dim = static_cast<size_t>(d);
        const int64_t reach = (kernel.shape[dim] - 1) * access.strides[dim] * size;
        (reach < 0 ? low : high) += reach;
      }
      touch(access.slot, low, high, access.loaded || !is_dense(kernel, access, high - low),
            access.stored);
    }
    if (kernel.call == nullptr) continue;
    for (const circuit::CallSlot& operand : kernel.call->operands) {
      if (!operand.present) continue;
      touch(operand.slot, operand.offset, operand.offset + operand.bytes,
            operand.reads || !operand.covers, operand.writes);
    }
  }
}

HostKernels::~HostKernels() = default;

void HostKernels::touch(uint32_t slot, int64_t begin, int64_t end, bool reads, bool writes) {
  const auto at = std::find_if(ranges_.begin(), ranges_.end(),
                               [slot](const Range& range) { return range.slot == slot; });
  if (at == ranges_.end()) {
    ranges_.push_back({slot, begin, end, reads, writes});
    return;
  }
  // What is between two pieces, or beside one that is written, has to be there to be written back.
  at->reads = at->reads || reads || begin != at->begin || end != at->end;
  at->writes = at->writes || writes;
  at->begin = std::min(at->begin, begin);
  at->end = std::max(at->end, end);
}

void HostKernels::run(Device& device, const circuit::Bindings& bindings, int max_threads) {
  Device& host = hologram::device(BackendType::kCpu);
  Stream& stream = device.default_stream();
  std::vector<BufferRef> copies;
  std::vector<char*> slots(static_cast<size_t>(plan_->slots), nullptr);
  for (const Range& range : ranges_) {
    const int64_t lead = range.begin % kHostAlignment;
    const int64_t bytes = range.end - range.begin;
    copies.push_back(BufferRef::adopt(allocate_buffer(host, static_cast<size_t>(lead + bytes))));
    char* const data = copies.back()->data_as<char>() + lead;
    slots[range.slot] = data - range.begin;
    if (!range.reads) continue;
    device.copy_to_host(stream, data, bindings.slots[range.slot] + range.begin,
                        static_cast<size_t>(bytes));
  }
  host.run_plan(*plan_, {slots.data(), bindings.immediates}, max_threads);
  for (const Range& range : ranges_) {
    if (!range.writes) continue;
    device.copy_from_host(stream, bindings.slots[range.slot] + range.begin,
                          slots[range.slot] + range.begin,
                          static_cast<size_t>(range.end - range.begin));
  }
}

int64_t HostKernels::copied_bytes() const {
  int64_t bytes = 0;
  for (const Range& range : ranges_) {
    bytes += (range.end - range.begin) * (int{range.reads} + int{range.writes});
  }
  return bytes;
}

size_t HostKernels::bytes() const {
  size_t bytes = sizeof *this + ranges_.capacity() * sizeof(Range) +
                 plan_->kernels.capacity() * sizeof(circuit::Kernel);
  for (const circuit::Kernel& kernel : plan_->kernels) {
    bytes += kernel.accesses.capacity() * sizeof(circuit::MemoryAccess) +
             kernel.temps.capacity() * sizeof(circuit::Temp) +
             kernel.instrs.capacity() * sizeof(circuit::Instr);
  }
  return bytes + (plan_->code != nullptr ? plan_->code->bytes() : 0);
}

}  // namespace hologram::internal
