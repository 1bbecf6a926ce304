// SPDX-License-Identifier: MIT
// Gathers the kernels of every source into one table per instruction set.
#include "src/cpu/device/kernel_table.h"

namespace hologram {
namespace cpu {

const KernelTable& kernel_table(Isa isa) {
  static const KernelTable* tables = [] {
    auto* built = new KernelTable[kIsaCount];
    for (int i = 0; i < kIsaCount; ++i) {
      const Isa each = static_cast<Isa>(i);
      if (!isa_available(each)) continue;
      KernelTable& table = built[i];
      add_unary_float_kernels(each, table);
      add_unary_double_kernels(each, table);
      add_binary_float_kernels(each, table);
      add_binary_double_kernels(each, table);
      add_ternary_float_kernels(each, table);
      add_ternary_double_kernels(each, table);
      add_integer_kernels(each, table);
      add_small_integer_kernels(each, table);
      add_complex_kernels(each, table);
    }
    return built;
  }();
  return tables[static_cast<int>(isa)];
}

FormChoice choose_form(const ElementwiseKernel (&forms)[kForms], const OpInfo& row,
                       unsigned single) {
  if (row.arity == 1) return {};
  const int trailing = row.params > 0 ? row.params : 1;
  const FormChoice choices[] = {
      {Form::kTrailingScalars, ((1u << trailing) - 1) << (row.arity - trailing)},
      {Form::kFirstScalar, 1},
  };
  for (const FormChoice& choice : choices) {
    if ((choice.single & ~single) == 0 && forms[static_cast<int>(choice.form)] != nullptr) {
      return choice;
    }
  }
  return {};
}

}  // namespace cpu

ElementwiseKernel elementwise_kernel(OpId op, Dtype compute, Form form) {
  const int id = static_cast<int>(op);
  if (id >= kOpIdEnd || static_cast<int>(compute) >= kDtypeCount) return nullptr;
  return cpu::kernel_table(current_isa())
      .kernels[id][static_cast<int>(compute)][static_cast<int>(form)];
}

}  // namespace hologram
