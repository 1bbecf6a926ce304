// SPDX-License-Identifier: MIT
// Products that a library of the driver's API computes. Which they are follows from the dtype, the
// shape and the strides: so deferred execution has the bits of eager execution.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "hologram/device.h"
#include "src/circuit/call_kinds.h"
#include "src/gpu/driver.h"
#include "src/gpu/kernel_text.h"
#include "src/gpu/products.h"

namespace hologram::gpu {

// The call of a kernel, ready to be enqueued, between what the kernel is beside it. Its input,
// where strides repeat it or lie across the result's, is copied to where the result will be; one
// row for all rows is the library's bias, where that has it and nothing is to scale the row.
class LibraryProduct {
 public:
  // Null where the call is none, or one for a kernel of ours.
  static std::unique_ptr<LibraryProduct> make(const Kernel& kernel, Driver& driver);

  // The copy that comes first, and the kernel's instructions, if there are any. Where their slot is
  // kScratchSlot, it is the result of run().
  std::optional<KernelText> take_before() { return std::exchange(before_, std::nullopt); }
  std::optional<KernelText> take_after() { return std::exchange(after_, std::nullopt); }

  // False where run() does not read the copy that take_before() gave.
  bool needs_copy(const circuit::Bindings& bindings) const;

  // Of a result that the kernel's instructions alone see, in kScratchSlot.
  size_t result_bytes() const { return result_bytes_; }
  const char* name() const { return circuit::call_name(kind_); }
  // scratch: of result_bytes().
  void run(Device& device, Driver& driver, const circuit::Bindings& bindings,
           const char* scratch) const;
  size_t bytes() const;

 private:
  struct Operand {
    uint32_t slot = 0;
    int64_t offset = 0;  // bytes
  };
  // Operands of each of several equal problems: steps of a batch that are not one.
  struct Member {
    int64_t a = 0, b = 0, c = 0, d = 0;  // bytes from the operand's begin
  };

  double number(const circuit::Bindings& bindings, uint32_t index) const;

  uint16_t kind_ = 0;
  size_t result_bytes_ = 0;
  Operand a_, b_, c_, d_;
  Operand bias_;
  std::vector<Member> members_;
  bool has_factors_ = false;
  uint32_t alpha_ = 0, beta_ = 0;  // immediates, where it has factors
  bool adds_ = false;              // beta c
  std::optional<KernelText> before_, after_;
  std::shared_ptr<const ProductAlgorithm> algorithm_;
  std::shared_ptr<const ProductAlgorithm> with_bias_;  // in its place where beta is 1
};

}  // namespace hologram::gpu
