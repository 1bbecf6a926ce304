// SPDX-License-Identifier: MIT
// Kernels of the three- and four-operand rows in float64.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/elementwise_rest_double.cc"
#include "src/cpu/targets.h"
// clang-format off
#define HOLOGRAM_COMPILE_REST
#include "src/cpu/kernel-inl.h"
#include "src/cpu/elementwise_rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
void AddRestDouble(cpu::KernelTable& table) { AddRows<double>(table); }
}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {
void add_rest_double_kernels(Isa isa, KernelTable& table) {
  HOLOGRAM_FOR_ISA(isa, AddRestDouble)(table);
}
}  // namespace hologram::cpu
#endif
