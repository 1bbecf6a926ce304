// SPDX-License-Identifier: MIT
// Kernels of elementwise instructions, and such instructions in a kernel of something else.
#pragma once

#include <string>

#include "src/gpu/writer.h"

namespace hologram::gpu {

// Writes the instructions of a kernel for one element of its domain. Each is computed as in any
// other kernel, in the kernel's order.
class ElementWriter : public Writer {
 public:
  using Writer::Writer;

 protected:
  // Every element behind the one before.
  bool is_linear(const MemoryAccess& access) const;
  // Whether some operand steps in another way than one element after another: write_element() then
  // needs the element's place in each dimension, p0, p1 and so on.
  bool walks() const;
  // number: of the element in the domain. product: the variable that has what the kernel's call
  // gave there, as it would be in memory.
  void write_element(const std::string& number, const std::string& product, std::string& body);
  // The same without the addresses, where they are written.
  void write_instrs(const std::string& number, const std::string& product, std::string& body);

 private:
  void write_address(size_t index, const std::string& number, std::string& body);
  // Where an access has its element.
  virtual std::string place(size_t access) const { return cat("*a", access); }
  std::string read(const Ref& ref, Dtype compute, const std::string& product);
  Dtype dtype_of(const Ref& ref, Dtype number) const;
  void write_instr(const Instr& instr, const std::string& number, const std::string& product,
                   std::string& body);
};

// What kernel_texts() gives for a kernel of elementwise instructions alone that the device has. An
// item computes an element; where all operands have one element behind the other, kWide elements,
// which it loads and stores at once where they are aligned.
KernelText elementwise_text(const Kernel& kernel, const Traits& traits);

inline constexpr int kWide = 4;

}  // namespace hologram::gpu
