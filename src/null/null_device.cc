// SPDX-License-Identifier: MIT
// Counts what plans would run.
#include "src/null/null_device.h"

#include <cstring>
#include <new>

#include "hologram/error.h"
#include "src/circuit/plan.h"

namespace hologram {

DeviceProperties NullDevice::properties() const {
  DeviceProperties p;
  p.name = "null";
  p.architecture = "none";
  p.backend = kind();
  p.total_memory = system_memory().total;
  return p;
}

void* NullDevice::allocate_raw(size_t nbytes) {
  return ::operator new (nbytes, std::align_val_t{64}, std::nothrow);
}

void NullDevice::free_raw(void* data, size_t) noexcept {
  ::operator delete (data, std::align_val_t{64});
}

void NullDevice::copy_from_host(Stream& stream, void* to, const void* from, size_t nbytes) {
  copy_within(stream, to, from, nbytes);
}

void NullDevice::copy_to_host(Stream& stream, void* to, const void* from, size_t nbytes) {
  copy_within(stream, to, from, nbytes);
}

void NullDevice::copy_within(Stream& stream, void* to, const void* from, size_t nbytes) {
  stream.submit([&] {
    if (nbytes != 0) std::memmove(to, from, nbytes);
  });
}

void NullDevice::run_plan(circuit::Plan& plan, const circuit::Bindings& bindings, int) {
  for (const circuit::Kernel& kernel : plan.kernels) {
    circuit::for_slots(kernel, [&](uint32_t slot) {
      if (bindings.slots[slot] == nullptr) {
        fail(ErrorKind::kInternal, "null device: a kernel of stage ", kernel.stage,
             " touches slot ", slot, ", which has no memory");
      }
    });
    kernels_.fetch_add(1, std::memory_order_relaxed);
    instructions_.fetch_add(kernel.instrs.size() + size_t{kernel.call != nullptr},
                            std::memory_order_relaxed);
  }
  plans_run_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace hologram
