// SPDX-License-Identifier: MIT
// See fault_word.h.
#include "src/gpu/fault_word.h"

#include <cstdint>

#include "hologram/error.h"
#include "src/circuit/call_kinds.h"

namespace hologram::gpu {
namespace {

constexpr int64_t kNoFault[2] = {0, 0};

}  // namespace

FaultWord::~FaultWord() {
  if (memory_ != nullptr) driver_.release(memory_, kBytes);
}

char* FaultWord::address() {
  if (memory_ == nullptr) {
    void* const memory = driver_.allocate(kBytes);
    if (memory == nullptr) {
      fail(ErrorKind::kOutOfMemory, "no memory for the ", kBytes,
           " bytes in which kernels report positions out of range; free buffers");
    }
    driver_.write(memory, kNoFault, kBytes);
    memory_ = memory;
  }
  is_used_.store(true, std::memory_order_release);
  return static_cast<char*>(memory_);
}

void FaultWord::raise() {
  if (!is_used_.exchange(false, std::memory_order_acq_rel)) return;
  int64_t found[2];
  driver_.read(found, memory_, kBytes);
  if (found[0] == 0) return;
  driver_.write(memory_, kNoFault, kBytes);
  fail(ErrorKind::kIndex, "an index is outside a dimension of size ", found[1], " (in ",
       circuit::call_name(static_cast<uint16_t>(found[0] - 1)), ", which ran before)");
}

}  // namespace hologram::gpu
