// SPDX-License-Identifier: MIT
// Kernels of every row in the wide integers.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/elementwise_integer.cc"
#include "src/cpu/targets.h"
// clang-format off
#define HOLOGRAM_COMPILE_UNARY
#define HOLOGRAM_COMPILE_BINARY
#define HOLOGRAM_COMPILE_REST
#include "src/cpu/kernel-inl.h"
#include "src/cpu/elementwise_rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
void AddInteger(cpu::KernelTable& table) {
  AddRows<int32_t>(table);
  AddRows<int64_t>(table);
}
}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {
void add_integer_kernels(Isa isa, KernelTable& table) { HOLOGRAM_FOR_ISA(isa, AddInteger)(table); }
}  // namespace hologram::cpu
#endif
