// SPDX-License-Identifier: MIT
// Where the kernels of one instruction set are kept: by op, dtype and form.
#pragma once

#include "hologram/cpu_info.h"
#include "hologram/elementwise.h"

namespace hologram::cpu {

inline constexpr int kForms = 3;

struct KernelTable {
  ElementwiseKernel kernels[kOpIdEnd][kDtypeCount][kForms] = {};
};

// Built once per instruction set at first use.
const KernelTable& kernel_table(Isa isa);

// The form of a kernel that takes as single elements as many as it can of the inputs in `single`
// (bit k for input k). The others have to be repeated.
struct FormChoice {
  Form form = Form::kVectors;
  unsigned single = 0;  // those that the form takes as single elements
};
FormChoice choose_form(const ElementwiseKernel (&forms)[kForms], const OpInfo& row,
                       unsigned single);

// Each source fills in the rows it compiled.
void add_unary_float_kernels(Isa isa, KernelTable& table);
void add_unary_double_kernels(Isa isa, KernelTable& table);
void add_binary_float_kernels(Isa isa, KernelTable& table);
void add_binary_double_kernels(Isa isa, KernelTable& table);
void add_ternary_float_kernels(Isa isa, KernelTable& table);
void add_ternary_double_kernels(Isa isa, KernelTable& table);
void add_integer_kernels(Isa isa, KernelTable& table);
void add_small_integer_kernels(Isa isa, KernelTable& table);
void add_complex_kernels(Isa isa, KernelTable& table);

// Contiguous conversion between base dtypes, see convert().
using ConvertKernel = void (*)(const void* src, void* dst, int64_t n);
struct ConvertTable {
  ConvertKernel kernels[kDtypeCount][kDtypeCount] = {};
  // Copies bytes past the caches; dst is 64-byte aligned, bytes a multiple of 64.
  void (*stream)(const void* src, void* dst, int64_t bytes) = nullptr;
  // Copies at least 64 bytes; see copy_bytes().
  void (*copy)(const void* src, void* dst, int64_t bytes) = nullptr;
};
const ConvertTable& convert_table(Isa isa);

}  // namespace hologram::cpu
