// SPDX-License-Identifier: MIT
// Tiles for intermediate values: classes of this thread's boundary pool while a call runs.
#pragma once

#include <array>
#include <cstddef>
#include <new>

#include "hologram/memory.h"

namespace hologram::cpu {

// Up to twelve slots of 12,288 bytes, claimed when first asked for and given back at the end.
// Should a nested use have taken all 96 classes, the heap serves instead.
class Scratch {
 public:
  static constexpr int kSlots = 12;

  Scratch() : pool_(this_thread_pool()) { classes_.fill(-1); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    for (int i = 0; i < kSlots; ++i) {
      if (classes_[i] >= 0) {
        pool_.release(classes_[i]);
      } else if (slots_[i] != nullptr) {
        ::operator delete(slots_[i], kAlign);
      }
    }
  }

  char* slot(int i) {
    if (slots_[i] == nullptr) {
      classes_[i] = pool_.acquire();
      slots_[i] = classes_[i] >= 0
                      ? reinterpret_cast<char*>(pool_.slot(classes_[i]))
                      : static_cast<char*>(::operator new(BoundaryPool::kClassBytes, kAlign));
    }
    return slots_[i];
  }

 private:
  static constexpr std::align_val_t kAlign{64};
  BoundaryPool& pool_;
  std::array<int, kSlots> classes_;
  std::array<char*, kSlots> slots_{};
};

}  // namespace hologram::cpu
