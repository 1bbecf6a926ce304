// SPDX-License-Identifier: MIT
// What a thread holds while it runs fused kernels: addresses, and classes of its boundary pool.
#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "hologram/error.h"
#include "hologram/memory.h"
#include "src/cpu/program/program.h"

namespace hologram::cpu {

class FusedCall;

// A kernel of a plan: a program, shared with those that differ in addresses only, and where its
// operands are.
struct KernelCode {
  std::shared_ptr<const Program> program;  // empty where there is a call
  // Those that served other sizes of the plan, and may again.
  std::vector<std::shared_ptr<const Program>> others;
  const circuit::KernelCall* call = nullptr;
  std::shared_ptr<FusedCall> fused;  // where instructions follow the call
  struct Memory {
    uint32_t slot;
    int64_t offset;
  };
  static constexpr uint32_t kNoSlot = ~uint32_t{0};  // its address comes from elsewhere
  std::vector<Memory> memory;
  std::vector<uint32_t> immediates;
  int64_t first_one = 0;  // bytes into the run's ones
  int64_t blocks = 0;
};

// One thread's table of addresses and its classes, kept from kernel to kernel.
class Frame {
 public:
  Frame() = default;
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;
  ~Frame() {
    for (int i = 0; i < taken_; ++i) release(class_at(i));
  }

  // Sets the table for a kernel: addresses at its first block.
  char** bind(const KernelCode& kernel, const circuit::Bindings& bindings, char* ones) {
    const Program& program = *kernel.program;
    const size_t places = static_cast<size_t>(program.places());
    if (places > capacity_) {
      more_.resize(places);
      table_ = more_.data();
      capacity_ = places;
    }
    char** at = table_;
    if (kernel.memory.size() != static_cast<size_t>(program.accesses) ||
        kernel.immediates.size() != static_cast<size_t>(program.immediates)) [[unlikely]] {
      fail(ErrorKind::kInternal, "a kernel has ", kernel.memory.size(), " operands and ",
           kernel.immediates.size(), " numbers, its program ", program.accesses, " and ",
           program.immediates);
    }
    for (const KernelCode::Memory& m : kernel.memory) {
      *at++ = m.slot == KernelCode::kNoSlot ? nullptr : bindings.slots[m.slot] + m.offset;
    }
    for (const uint32_t i : kernel.immediates) {
      *at++ = const_cast<char*>(reinterpret_cast<const char*>(bindings.immediates + i));
    }
    for (int i = 0; i < program.ones; ++i) *at++ = ones + kernel.first_one + i * kOneBytes;
    if (program.classes > 0) {
      reserve(program.classes, program.class_bytes);
      for (int i = 0; i < program.classes; ++i) *at++ = class_at(i).data;
    }
    return table_;
  }

 private:
  static constexpr std::align_val_t kAlign{64};
  static constexpr int64_t kPooled = static_cast<int64_t>(BoundaryPool::kClassBytes);

  struct Class {
    char* data;
    int64_t bytes;
    int pooled;  // -1: on the heap
  };

  Class& class_at(int i) {
    return i < kInline ? inline_[i] : more_classes_[static_cast<size_t>(i - kInline)];
  }
  static Class on_heap(int64_t bytes) {
    void* data = ::operator new(static_cast<size_t>(bytes), kAlign, std::nothrow);
    if (data == nullptr) {
      fail(ErrorKind::kOutOfMemory, "a fused kernel needs ", bytes,
           " bytes for a value of its rows; free memory and try again");
    }
    return {static_cast<char*>(data), bytes, -1};
  }
  void replace(Class& c, const Class& by) {
    release(c);
    c = by;
  }
  void release(const Class& c) {
    if (c.pooled >= 0) {
      pool_.release(c.pooled);
    } else {
      ::operator delete(c.data, kAlign);
    }
  }

  // Memory comes from the heap for rows longer than a class, and where all classes are taken.
  void reserve(int count, int64_t bytes) {
    if (bytes > kPooled) {
      for (int i = 0; i < std::min(count, taken_); ++i) {
        if (class_at(i).bytes < bytes) replace(class_at(i), on_heap(bytes));
      }
    }
    for (; taken_ < count; ++taken_) {
      if (taken_ >= kInline && more_classes_.size() <= static_cast<size_t>(taken_ - kInline)) {
        more_classes_.resize(static_cast<size_t>(taken_));
      }
      const int pooled = bytes <= kPooled ? pool_.acquire() : -1;
      class_at(taken_) = pooled >= 0
                             ? Class{reinterpret_cast<char*>(pool_.slot(pooled)), kPooled, pooled}
                             : on_heap(std::max(bytes, kPooled));
    }
  }

  static constexpr size_t kSmall = 64;
  char* small_[kSmall];
  std::vector<char*> more_;
  char** table_ = small_;
  size_t capacity_ = kSmall;
  static constexpr int kInline = 16;
  BoundaryPool& pool_ = this_thread_pool();
  Class inline_[kInline];
  std::vector<Class> more_classes_;
  int taken_ = 0;
};

}  // namespace hologram::cpu
