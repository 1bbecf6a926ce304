// SPDX-License-Identifier: MIT
// What the generators of kernels have in common: words, slots, values of operands, the signature.
#pragma once

#include <cstdint>
#include <string>

#include "src/circuit/plan.h"
#include "src/gpu/kernel_text.h"
#include "src/gpu/text.h"
#include "src/gpu/vocabulary.h"

namespace hologram::gpu {

class Writer {
 public:
  Writer(const circuit::Kernel& kernel, const Traits& traits)
      : kernel_(kernel), traits_(traits), functions_(traits) {}

 protected:
  // How the text says a new word.
  std::string add_word(int64_t value);
  // The first element of an access, as a pointer to bytes: "s0 + W(3)".
  std::string begin_of(const circuit::MemoryAccess& access);
  // Bytes as what an access holds, "*(GLOBAL f32*)(p)"; of bool 0 or 1, as bytes may be seen as
  // bool.
  static std::string load(const std::string& pointer, Dtype dtype);
  // A number in a type that ops compute in.
  std::string immediate(uint32_t index, Dtype compute);
  // From the number of something to its place in each of the dimensions [begin, end) of a shape:
  // "const u32 p0 = ..., p1 = ...;". prefix: "p". of: an expression of the number.
  std::string positions(const char* prefix, const std::string& of, const int64_t* shape, int begin,
                        int end);
  // Whether numbers below n are computed in 32 bits: division of 64 bits is slow.
  static std::string index_type(int64_t n) { return n <= INT32_MAX ? "u32" : "u64"; }

  // The text around a body, and what it takes.
  KernelText finish(const std::string& body, size_t groups, size_t group_items = kGroupItems);
  // The same for `items` independent work items; the size of groups follows from their number.
  KernelText finish_items(const std::string& body, size_t items);

  const circuit::Kernel& kernel_;
  const Traits& traits_;
  Words functions_;
  KernelText text_;
};

}  // namespace hologram::gpu
