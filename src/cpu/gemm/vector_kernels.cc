// SPDX-License-Identifier: MIT
// Matrix times vector for every instruction set. Narrow elements are widened as they are loaded.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/gemm/vector_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "hwy/highway.h"
#include "src/cpu/gemm/dot-inl.h"
#include "src/cpu/gemm/short_rows-inl.h"
#include "src/cpu/gemm/vector_kernels.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

template <class T>
using Tag = hn::ScalableTag<T>;

// The longest rows that DotShortRows() takes: from the next length on DotRows() was measured to be
// faster. It is one length for all types that are widened to float32, so that a half type gives the
// bits that its widened values give.
#if HWY_TARGET == HWY_AVX3
constexpr int64_t kLongestTurned = 31;
#else
constexpr int64_t kLongestTurned = 23;
#endif
constexpr int64_t kLongestTurnedDouble = 15;

template <class T, class In>
void DotWithRows(const void* matrix, int64_t lda, const T* HWY_RESTRICT x, int64_t m, int64_t k,
                 T* HWY_RESTRICT y) {
  const In* a = static_cast<const In*>(matrix);
  if (k <= (sizeof(T) == 8 ? kLongestTurnedDouble : kLongestTurned))
    return DotShortRows(a, lda, x, m, k, y);
  DotRows(a, lda, m, x, k, y);
}

// Shorter rows end before the processor has noticed that they are read in order. Of longer ones it
// fetches more than what is fetched ahead here, which would leave the first cache unread.
constexpr int64_t kShortRowBytes = 4096;

// kRows rows at once: y is loaded and stored once for them. kAhead: fetches the rows behind them.
template <class T, class In, int kRows, bool kAhead>
HWY_INLINE void AddSomeRows(const In* HWY_RESTRICT b, int64_t ldb, const T* HWY_RESTRICT x,
                            int64_t n, T* HWY_RESTRICT y) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<Tag<T>> scale[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) scale[r] = hn::Set(d, x[r]);
  int64_t j = 0;
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    auto low = hn::LoadU(d, y + j), high = hn::LoadU(d, y + j + lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      if constexpr (kAhead) __builtin_prefetch(b + (kRows + r) * ldb + j);
      low = hn::MulAdd(scale[r], LoadWidened(d, b + r * ldb + j), low);
      high = hn::MulAdd(scale[r], LoadWidened(d, b + r * ldb + j + lanes), high);
    }
    hn::StoreU(low, d, y + j);
    hn::StoreU(high, d, y + j + lanes);
  }
  for (; j < n; j += lanes) {
    const int64_t here = n - j < lanes ? n - j : lanes;
    auto sum = LoadFirst(d, y + j, here);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sum = hn::MulAdd(scale[r], LoadWidenedFirst(d, b + r * ldb + j, here), sum);
    }
    StoreFirst(d, sum, y + j, here);
  }
}

template <class T, class In, bool kAhead>
void AddAllRows(const In* b, int64_t ldb, const T* x, int64_t k, int64_t n, T* y) {
  int64_t p = 0;
  for (; p + 4 <= k; p += 4) AddSomeRows<T, In, 4, kAhead>(b + p * ldb, ldb, x + p, n, y);
  b += p * ldb, x += p;
  switch (k - p) {
    case 3:
      return AddSomeRows<T, In, 3, kAhead>(b, ldb, x, n, y);
    case 2:
      return AddSomeRows<T, In, 2, kAhead>(b, ldb, x, n, y);
    case 1:
      return AddSomeRows<T, In, 1, kAhead>(b, ldb, x, n, y);
    default:
      return;
  }
}

template <class T, class In>
void AddScaledRows(const void* matrix, int64_t ldb, const T* x, int64_t k, int64_t n, T* y) {
  const In* b = static_cast<const In*>(matrix);
  const bool is_short = n * static_cast<int64_t>(sizeof(In)) < kShortRowBytes;
  is_short ? AddAllRows<T, In, true>(b, ldb, x, k, n, y)
           : AddAllRows<T, In, false>(b, ldb, x, k, n, y);
}

template <class T, class In>
void AddRowsOfFew(const void* matrix, int64_t ldb, const T* x, int64_t k, int64_t n, T* y) {
  AddShortRows(static_cast<const In*>(matrix), ldb, x, k, n, y);
}

template <class T, class In>
cpu::VectorKernel<T> VectorKernelOf() {
  return {&DotWithRows<T, In>, &AddScaledRows<T, In>, &AddRowsOfFew<T, In>};
}

}  // namespace

cpu::VectorKernel<float> VectorKernelFloat() { return VectorKernelOf<float, float>(); }
cpu::VectorKernel<float> VectorKernelHalf() { return VectorKernelOf<float, hwy::float16_t>(); }
cpu::VectorKernel<float> VectorKernelBFloat16() { return VectorKernelOf<float, hwy::bfloat16_t>(); }
cpu::VectorKernel<float> VectorKernelInt8() { return VectorKernelOf<float, int8_t>(); }
cpu::VectorKernel<double> VectorKernelDouble() { return VectorKernelOf<double, double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

const VectorKernel<float>& vector_kernel(Isa isa, Dtype dtype, float) {
  struct Kernels {
    VectorKernel<float> single, half, brain, int8;
  };
  static const auto* kernels = new Kernels[kIsaCount]{
#define HOLOGRAM_VECTOR_KERNELS(isa)                                                      \
  {HOLOGRAM_FOR_ISA(isa, VectorKernelFloat)(), HOLOGRAM_FOR_ISA(isa, VectorKernelHalf)(), \
   HOLOGRAM_FOR_ISA(isa, VectorKernelBFloat16)(), HOLOGRAM_FOR_ISA(isa, VectorKernelInt8)()}
      HOLOGRAM_VECTOR_KERNELS(Isa::kBaseline), HOLOGRAM_VECTOR_KERNELS(Isa::kAvx2),
      HOLOGRAM_VECTOR_KERNELS(Isa::kAvx512)
#undef HOLOGRAM_VECTOR_KERNELS
  };
  const Kernels& own = kernels[static_cast<int>(isa)];
  switch (dtype) {
    case Dtype::kFloat32:
      return own.single;
    case Dtype::kFloat16:
      return own.half;
    case Dtype::kBFloat16:
      return own.brain;
    default:
      return own.int8;
  }
}

const VectorKernel<double>& vector_kernel(Isa isa, Dtype /*dtype*/, double) {
  static const auto* kernels = new VectorKernel<double>[kIsaCount] {
    HOLOGRAM_FOR_ISA(Isa::kBaseline, VectorKernelDouble)
    (), HOLOGRAM_FOR_ISA(Isa::kAvx2, VectorKernelDouble)(),
        HOLOGRAM_FOR_ISA(Isa::kAvx512, VectorKernelDouble)()
  };
  return kernels[static_cast<int>(isa)];
}

}  // namespace hologram::cpu
#endif
