// SPDX-License-Identifier: MIT
// Dtypes that devices are expected to know and PyTorch's CPU kernels do not: the fallback computes
// such a call in a wider dtype and rounds its results once.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <string_view>
#include <vector>

#include "host/op_info.h"

namespace hologram_torch {

// Sets of dtypes that a CPU kernel lacks.
enum WiderDtypes : uint8_t {
  kNone = 0,
  kHalfs = 1,         // float16
  kBFloat16s = 2,     // bfloat16
  kComplexHalfs = 4,  // complex32
  kIntegers = 8,      // all integers
  kBools = 16,
  kFloat8s = 32,
};

// What the CPU's kernel of an operator lacks; `schema_name` is without the overload
// ("aten::histc"). The in-place form ("aten::floor_divide_") has the row of its functional one.
uint8_t lacking_dtypes(std::string_view schema_name);

// The wide copies of one call of such an operator, whose arguments are on top of a stack. Integers
// become float64, complex32 complex64, bool uint8, the other types float32. Copies are made with
// what autograd, if anything, the caller leaves switched on.
class Widening {
 public:
  explicit Widening(const OpInfo& info) : info_(info) {}

  // Replaces tensors and dtypes; false, with nothing replaced, where the kernel knows them all, and
  // where a wider dtype is among them: PyTorch refuses such a mixture in its own words.
  bool widen_arguments(torch::jit::Stack* stack);
  // Rounds what the kernel wrote into the tensors that it was for, which get its sizes, and the
  // results on the stack. An argument that is returned is the caller's again.
  void narrow_results(torch::jit::Stack* stack);
  // Results keep their wide dtypes.
  void leave_results() { leaves_ = true; }
  // float16, bfloat16, or another type that is computed wider.
  c10::ScalarType narrow_dtype() const { return real_; }

 private:
  struct Copy {
    at::Tensor given, wide;
    bool written;
  };
  void refuse_overlap() const;
  bool lacks(c10::ScalarType dtype) const;
  void add(const at::Tensor& t);
  void add(c10::ScalarType dtype);
  c10::ScalarType widen(c10::ScalarType dtype) const;
  at::Tensor widen(const at::Tensor& t, bool written);
  c10::ScalarType narrow(c10::ScalarType dtype) const;
  at::Tensor narrow(at::Tensor t) const;

  const OpInfo& info_;
  bool found_ = false;
  bool mixed_ = false;
  bool leaves_ = false;
  // Of the narrow types among the arguments; one real type means one complex type, too.
  c10::ScalarType real_ = c10::ScalarType::Undefined;
  std::vector<Copy> copies_;
};

// Registers kernels for what asks for the device's name before it computes: Fourier transforms of
// half types, mode with out=, conj_physical_. Call it once, before
// register_fallback_over_composites().
void register_wider_composites();

}  // namespace hologram_torch
