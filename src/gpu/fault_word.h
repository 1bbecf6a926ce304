// SPDX-License-Identifier: MIT
// Where kernels say that a position was outside its dimension. The host looks when it waits for the
// device anyway, as programs on CUDA learn of it.
#pragma once

#include <atomic>

#include "src/gpu/driver.h"

namespace hologram::gpu {

class FaultWord {
 public:
  explicit FaultWord(Driver& driver) : driver_(driver) {}
  ~FaultWord();
  FaultWord(const FaultWord&) = delete;
  FaultWord& operator=(const FaultWord&) = delete;

  // Two i64, for a kernel that is about to be launched: which call it is of (its number + 1), and
  // the size of the dimension. One thread at a time. Error(kOutOfMemory).
  char* address();
  // Error(kIndex) if such a kernel has written there since the last time; waits for them. Thread-
  // safe.
  void raise();

 private:
  static constexpr size_t kBytes = 16;

  Driver& driver_;
  void* memory_ = nullptr;
  std::atomic<bool> is_used_{false};  // since the last raise()
};

}  // namespace hologram::gpu
