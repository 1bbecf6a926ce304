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
  // Whether that is memory, where one item stores what several elements have in common.
  virtual bool stores_at_once() const { return true; }
  std::string read(const Ref& ref, Dtype compute, const std::string& product);
  Dtype dtype_of(const Ref& ref, Dtype number) const;
  void write_instr(const Instr& instr, const std::string& number, const std::string& product,
                   std::string& body);
};

// What kernel_texts() gives for a kernel of elementwise instructions alone that the device has. An
// item computes a block of elements (blocks.h), or one where blocks do not fit.
KernelText elementwise_text(const Kernel& kernel, const Traits& traits);

}  // namespace hologram::gpu
