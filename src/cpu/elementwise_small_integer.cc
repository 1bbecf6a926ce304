// SPDX-License-Identifier: MIT
// Kernels of every row in the narrow integers and bool.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/elementwise_small_integer.cc"
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
void AddSmallInteger(cpu::KernelTable& table) {
  AddRows<uint8_t>(table);
  AddRows<int8_t>(table);
  AddRows<int16_t>(table);
  AddRows<Bool>(table);
}
}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {
void add_small_integer_kernels(Isa isa, KernelTable& table) {
  HOLOGRAM_FOR_ISA(isa, AddSmallInteger)(table);
}
}  // namespace hologram::cpu
#endif
