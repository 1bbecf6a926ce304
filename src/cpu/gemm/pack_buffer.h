// SPDX-License-Identifier: MIT
// Scratch memory that a thread keeps: its pages are costly to get.
#pragma once

#include <cstdint>
#include <new>

#include "hologram/error.h"

namespace hologram::cpu {

// Grows to the largest request, so callers bound what they ask for. Meant to be thread_local.
class PackBuffer {
 public:
  PackBuffer() = default;
  PackBuffer(const PackBuffer&) = delete;
  PackBuffer& operator=(const PackBuffer&) = delete;
  ~PackBuffer() { ::operator delete(data_, kAlign); }

  // `count` elements, of undefined contents; what was given before is gone.
  template <class T>
  T* get(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    if (bytes > size_) {
      ::operator delete(data_, kAlign);
      size_ = 0;
      data_ = ::operator new(bytes, kAlign, std::nothrow);
      if (data_ == nullptr)
        fail(ErrorKind::kOutOfMemory, "a product needs ", bytes, " bytes of scratch");
      size_ = bytes;
    }
    return static_cast<T*>(data_);
  }

 private:
  static constexpr std::align_val_t kAlign{64};
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hologram::cpu
