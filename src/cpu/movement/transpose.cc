// SPDX-License-Identifier: MIT
// Transposing for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/movement/transpose.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "hwy/highway.h"
#include "src/cpu/movement/transpose-inl.h"
#include "src/cpu/movement/transpose.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {

cpu::TransposeKernel<float> TransposeFloat() { return &Transpose<float>; }
cpu::TransposeKernel<double> TransposeDouble() { return &Transpose<double>; }
cpu::TransposeKernel<uint32_t> TransposeUInt32() { return &Transpose<uint32_t>; }
cpu::TransposeKernel<uint64_t> TransposeUInt64() { return &Transpose<uint64_t>; }

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

#define HOLOGRAM_TRANSPOSE_KERNEL(T, function)                                  \
  TransposeKernel<T> transpose_kernel(Isa isa, T) {                             \
    if (isa == Isa::kAvx512) return HOLOGRAM_FOR_ISA(Isa::kAvx512, function)(); \
    if (isa == Isa::kAvx2) return HOLOGRAM_FOR_ISA(Isa::kAvx2, function)();     \
    return HOLOGRAM_FOR_ISA(Isa::kBaseline, function)();                        \
  }
HOLOGRAM_TRANSPOSE_KERNEL(float, TransposeFloat)
HOLOGRAM_TRANSPOSE_KERNEL(double, TransposeDouble)
HOLOGRAM_TRANSPOSE_KERNEL(uint32_t, TransposeUInt32)
HOLOGRAM_TRANSPOSE_KERNEL(uint64_t, TransposeUInt64)
#undef HOLOGRAM_TRANSPOSE_KERNEL

}  // namespace hologram::cpu
#endif
