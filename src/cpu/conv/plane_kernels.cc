// SPDX-License-Identifier: MIT
// Depthwise convolution of a plane where it lies. A row of the input is loaded once for all taps
// and all output rows that read it; the taps find their elements by shifting vectors, not by loads
// that cross cache lines.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/conv/plane_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "hwy/highway.h"
#include "src/cpu/simd/simd_tail-inl.h"
#include "src/cpu/conv/plane_kernels.h"
// clang-format on

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::DepthwisePlane;
using PlaneKernel = cpu::DepthwisePlaneKernel<float>;

#if HWY_TARGET == HWY_AVX3

using D16 = hn::ScalableTag<float>;
using V16 = hn::Vec<D16>;
using M16 = hn::Mask<D16>;
constexpr int64_t kWide = 16;
// Output rows that are computed at a time.
constexpr int kTallest = 8;

// Lanes by + [0, 16) of two vectors.
template <int kBy>
HWY_INLINE V16 ShiftedBy(V16 low, V16 high) {
  if constexpr (kBy == 0) return low;
  return V16{_mm512_castsi512_ps(
      _mm512_alignr_epi32(_mm512_castps_si512(high.raw), _mm512_castps_si512(low.raw), kBy))};
}

// Those of 16 columns from `column` on that are in a row.
HWY_INLINE M16 InsideOf(int64_t column, int64_t width) {
  const D16 d;
  const auto before = static_cast<size_t>(std::clamp<int64_t>(-column, 0, kWide));
  const auto last = static_cast<size_t>(std::clamp<int64_t>(width - column, 0, kWide));
  return hn::AndNot(hn::FirstN(d, before), hn::FirstN(d, last));
}

// What each tap of a row reads for 16 outputs.
template <int kSize, int kStride>
HWY_INLINE void LoadTaps(const float* row, const M16* inside, V16* taps) {
  const D16 d;
  const V16 v0 = hn::MaskedLoad(inside[0], d, row), v1 = hn::MaskedLoad(inside[1], d, row + kWide);
  if constexpr (kStride == 1) {
    taps[0] = v0, taps[1] = ShiftedBy<1>(v0, v1), taps[2] = ShiftedBy<2>(v0, v1);
    if constexpr (kSize > 3) taps[3] = ShiftedBy<3>(v0, v1), taps[4] = ShiftedBy<4>(v0, v1);
    if constexpr (kSize > 5) taps[5] = ShiftedBy<5>(v0, v1), taps[6] = ShiftedBy<6>(v0, v1);
  } else {
    const V16 v2 = hn::MaskedLoad(inside[2], d, row + 2 * kWide);
    const V16 even = hn::ConcatEven(d, v1, v0), odd = hn::ConcatOdd(d, v1, v0);
    const V16 next_even = hn::ConcatEven(d, v2, v2), next_odd = hn::ConcatOdd(d, v2, v2);
    taps[0] = even, taps[1] = odd, taps[2] = ShiftedBy<1>(even, next_even);
    if constexpr (kSize > 3) {
      taps[3] = ShiftedBy<1>(odd, next_odd), taps[4] = ShiftedBy<2>(even, next_even);
    }
  }
}

// kRowCount rows of 16 outputs or fewer, from output (row, col) on.
template <int kSize, int kStride, int kRowCount>
HWY_INLINE void PlaneBlock(const DepthwisePlane<float>& g, int64_t row, int64_t col) {
  const D16 d;
  const int64_t top = (g.first + row) * kStride - g.top, left = col * kStride - g.left;
  M16 inside[3];
  for (int i = 0; i < 3; ++i) inside[i] = InsideOf(left + i * kWide, g.width);
  V16 sum[kRowCount];
#pragma GCC unroll 8
  for (int r = 0; r < kRowCount; ++r) sum[r] = hn::Set(d, g.bias);
#pragma GCC unroll 24
  for (int i = 0; i < (kRowCount - 1) * kStride + kSize; ++i) {
    const int64_t at = top + i;
    const bool is_there = at >= 0 && at < g.height;
    const M16 here[3] = {is_there ? inside[0] : M16(), is_there ? inside[1] : M16(),
                         is_there ? inside[2] : M16()};
    V16 taps[kSize];
    LoadTaps<kSize, kStride>(g.x + (is_there ? at : 0) * g.step + left, here, taps);
#pragma GCC unroll 8
    for (int j = 0; j < kSize; ++j) {
#pragma GCC unroll 8
      for (int r = 0; r < kRowCount; ++r) {
        const int h = i - r * kStride;
        if (h < 0 || h >= kSize) continue;
        sum[r] = hn::MulAdd(hn::Set(d, g.w[h * kSize + j]), taps[j], sum[r]);
      }
    }
  }
  const int64_t n = std::min(kWide, g.out_width - col);
  float* to = g.y + row * g.out_width + col;
#pragma GCC unroll 8
  for (int r = 0; r < kRowCount; ++r, to += g.out_width) {
    n == kWide ? hn::StoreU(sum[r], d, to) : StoreFirst(d, sum[r], to, n);
  }
}

template <int kSize, int kStride, int kRowCount = kTallest>
HWY_INLINE void PlaneRows(const DepthwisePlane<float>& g, int64_t row, int64_t rows) {
  if (rows == kRowCount) {
    for (int64_t col = 0; col < g.out_width; col += kWide) {
      PlaneBlock<kSize, kStride, kRowCount>(g, row, col);
    }
    return;
  }
  if constexpr (kRowCount > 1) PlaneRows<kSize, kStride, kRowCount - 1>(g, row, rows);
}

template <int kSize, int kStride>
void Plane(const DepthwisePlane<float>& g) {
  // Blocks of nearly equal height: few rows leave the multipliers waiting for one another.
  const int64_t count = (g.rows + kTallest - 1) / kTallest;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = g.rows * i / count;
    PlaneRows<kSize, kStride>(g, row, g.rows * (i + 1) / count - row);
  }
}

PlaneKernel PlaneKernelOf(int64_t size, int64_t stride) {
  if (stride == 1) {
    return size == 3 ? &Plane<3, 1> : size == 5 ? &Plane<5, 1> : size == 7 ? &Plane<7, 1> : nullptr;
  }
  if (stride == 2) return size == 3 ? &Plane<3, 2> : size == 5 ? &Plane<5, 2> : nullptr;
  return nullptr;
}

#else

PlaneKernel PlaneKernelOf(int64_t /*size*/, int64_t /*stride*/) { return nullptr; }

#endif

}  // namespace

PlaneKernel DepthwisePlaneFloat(int64_t size, int64_t stride) {
  return PlaneKernelOf(size, stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

DepthwisePlaneKernel<float> depthwise_plane_kernel(Isa isa, int64_t size, int64_t stride, float) {
  return HOLOGRAM_FOR_ISA(isa, DepthwisePlaneFloat)(size, stride);
}

DepthwisePlaneKernel<double> depthwise_plane_kernel(Isa /*isa*/, int64_t /*size*/,
                                                    int64_t /*stride*/, double) {
  return nullptr;
}

}  // namespace hologram::cpu
#endif
