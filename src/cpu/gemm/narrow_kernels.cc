// SPDX-License-Identifier: MIT
// Widens, packs and multiplies int8 and the half types, for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/gemm/narrow_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "hwy/highway.h"
#include "src/cpu/simd/simd_tail-inl.h"
#include "src/cpu/gemm/dot_tiles-inl.h"
#include "src/cpu/movement/transpose-inl.h"
#include "src/cpu/gemm/narrow_kernels.h"
// clang-format on

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using FloatTag = hn::ScalableTag<float>;
constexpr int64_t kPanelCols = 2 * static_cast<int64_t>(hn::MaxLanes(FloatTag()));
// Elements of each column that are widened at a time, before they become rows.
constexpr int64_t kWidenedDepth = 64;

template <class In>
HWY_INLINE void WidenRow(const In* HWY_RESTRICT from, int64_t n, float* HWY_RESTRICT to) {
  const FloatTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(LoadWidened(d, from + i), d, to + i);
  if (i < n) StoreFirst(d, LoadWidenedFirst(d, from + i, n - i), to + i, n - i);
}

template <class In>
void Widen(const void* a, int64_t lda, int64_t m, int64_t k, float* to, int64_t ldt) {
  const In* from = static_cast<const In*>(a);
  for (int64_t i = 0; i < m; ++i) WidenRow(from + i * lda, k, to + i * ldt);
}

template <class In>
void PackNarrow(const void* b, int64_t row, int64_t col, int64_t k, int64_t n,
                float* HWY_RESTRICT to) {
  for (int64_t j = 0; j < n; j += kPanelCols, to += kPanelCols * k) {
    const In* from = static_cast<const In*>(b) + j * col;
    const int64_t cols = std::min(kPanelCols, n - j);
    if (cols < kPanelCols) std::fill_n(to, kPanelCols * k, 0.0f);
    if (col == 1) {
      Widen<In>(from, row, k, cols, to, kPanelCols);
      continue;
    }
    HWY_ALIGN float columns[kPanelCols * kWidenedDepth];
    for (int64_t p = 0; p < k; p += kWidenedDepth) {
      const int64_t depth = std::min(kWidenedDepth, k - p);
      Widen<In>(from + p, col, cols, depth, columns, kWidenedDepth);
      Transpose(columns, kWidenedDepth, cols, depth, to + p * kPanelCols, kPanelCols);
    }
  }
}

template <class In>
cpu::NarrowKernel NarrowKernelOf() {
  return {&PackNarrow<In>, &AllDots<WidenedDots<float, In>, cpu::GemmDots<float, void>>,
          &Widen<In>};
}

}  // namespace

cpu::NarrowKernel NarrowKernelInt8() { return NarrowKernelOf<int8_t>(); }
cpu::NarrowKernel NarrowKernelHalf() { return NarrowKernelOf<hwy::float16_t>(); }
cpu::NarrowKernel NarrowKernelBFloat16() { return NarrowKernelOf<hwy::bfloat16_t>(); }

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

const NarrowKernel& narrow_kernel(Isa isa, Dtype dtype) {
  struct Kernels {
    NarrowKernel int8, half, brain;
  };
  static const auto* kernels = new Kernels[kIsaCount]{
#define HOLOGRAM_NARROW_KERNELS(isa)                                                     \
  {HOLOGRAM_FOR_ISA(isa, NarrowKernelInt8)(), HOLOGRAM_FOR_ISA(isa, NarrowKernelHalf)(), \
   HOLOGRAM_FOR_ISA(isa, NarrowKernelBFloat16)()}
      HOLOGRAM_NARROW_KERNELS(Isa::kBaseline), HOLOGRAM_NARROW_KERNELS(Isa::kAvx2),
      HOLOGRAM_NARROW_KERNELS(Isa::kAvx512)
#undef HOLOGRAM_NARROW_KERNELS
  };
  const Kernels& own = kernels[static_cast<int>(isa)];
  return dtype == Dtype::kInt8 ? own.int8 : dtype == Dtype::kFloat16 ? own.half : own.brain;
}

}  // namespace hologram::cpu
#endif
