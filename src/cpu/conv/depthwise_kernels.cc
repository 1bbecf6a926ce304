// SPDX-License-Identifier: MIT
// Depthwise convolution of a plane for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/conv/depthwise_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "hwy/highway.h"
#include "src/cpu/simd/simd_tail-inl.h"
#include "src/cpu/conv/depthwise_kernels.h"
// clang-format on

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::DepthwiseBand;
using cpu::DepthwiseRows;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag<T>()));

// The least n for which n * step >= x.
HWY_INLINE int64_t CeilDiv(int64_t x, int64_t step) {
  return x >= 0 ? (x + step - 1) / step : -(-x / step);
}

// Zeros from begin to end, and up to a vector more.
template <class T>
HWY_INLINE void Clear(T* to, int64_t begin, int64_t end) {
  for (; begin < end; begin += kLanes<T>) hn::StoreU(hn::Zero(Tag<T>()), Tag<T>(), to + begin);
}

template <class T>
void Spread(const DepthwiseRows<T>& row, T* HWY_RESTRICT to) {
  const Tag<T> d;
  for (int64_t f = 0; f < row.stride; ++f, to += row.length) {
    if (row.x == nullptr) {
      Clear(to, 0, row.length);
      continue;
    }
    const int64_t begin = std::clamp<int64_t>(CeilDiv(row.padding - f, row.stride), 0, row.length);
    const int64_t end =
        std::clamp<int64_t>(CeilDiv(row.width + row.padding - f, row.stride), begin, row.length);
    Clear(to, 0, begin);
    const T* from = row.x + f - row.padding;
    if (row.stride == 1) {
      int64_t i = begin;
      for (; i + kLanes<T> <= end; i += kLanes<T>) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
      if (i < end) hn::StoreU(LoadFirst(d, from + i, end - i), d, to + i);
    } else if (row.stride == 2) {
      for (int64_t i = begin; i < end; ++i) to[i] = from[2 * i];
    } else {
      for (int64_t i = begin; i < end; ++i) to[i] = from[row.stride * i];
    }
    Clear(to, end, row.length);
  }
}

// kRows rows of kVectors vectors, of which n columns are there: as many chains of multiply-adds as
// hide how long one takes.
template <class T, int kVectors, int kRows>
HWY_INLINE void Block(const DepthwiseBand<T>& b, const T* x, int64_t n, T* y) {
  const Tag<T> d;
  hn::Vec<Tag<T>> sum[kVectors * kRows];
#pragma GCC unroll 8
  for (int i = 0; i < kVectors * kRows; ++i) sum[i] = hn::Set(d, b.bias);
  for (int64_t t = 0; t < b.taps; ++t) {
    const auto w = hn::Set(d, b.w[t]);
    const T* at = x + b.tap[t];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors * kRows; ++i) {
      sum[i] =
          hn::MulAdd(w, hn::LoadU(d, at + i / kVectors * b.row + i % kVectors * kLanes<T>), sum[i]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kVectors * kRows; ++i) {
    T* const to = y + i / kVectors * b.width + i % kVectors * kLanes<T>;
    const int64_t here = n - i % kVectors * kLanes<T>;
    if (here >= kLanes<T>) {
      hn::StoreU(sum[i], d, to);
    } else {
      StoreFirst(d, sum[i], to, here);
    }
  }
}

template <class T, int kVectors>
HWY_INLINE void Columns(const DepthwiseBand<T>& b, int64_t first, int64_t n) {
  constexpr int kRows = 8 / kVectors;
  int64_t r = 0;
  for (; r + kRows <= b.rows; r += kRows) {
    Block<T, kVectors, kRows>(b, b.copy + r * b.row + first, n, b.y + r * b.width + first);
  }
  for (; r < b.rows; ++r) {
    Block<T, kVectors, 1>(b, b.copy + r * b.row + first, n, b.y + r * b.width + first);
  }
}

template <class T>
void Band(const DepthwiseBand<T>& b) {
  for (int64_t first = 0; first < b.width; first += 4 * kLanes<T>) {
    const int64_t n = std::min(4 * kLanes<T>, b.width - first);
    if (n > 2 * kLanes<T>) {
      n > 3 * kLanes<T> ? Columns<T, 4>(b, first, n) : Columns<T, 3>(b, first, n);
    } else {
      n > kLanes<T> ? Columns<T, 2>(b, first, n) : Columns<T, 1>(b, first, n);
    }
  }
}

}  // namespace

cpu::DepthwiseKernel<float> DepthwiseKernelFloat() { return {&Spread<float>, &Band<float>}; }
cpu::DepthwiseKernel<double> DepthwiseKernelDouble() { return {&Spread<double>, &Band<double>}; }

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

const DepthwiseKernel<float>& depthwise_kernel(Isa isa, float) {
  static const auto* kernels = new DepthwiseKernel<float>[kIsaCount] {
    HOLOGRAM_FOR_ISA(Isa::kBaseline, DepthwiseKernelFloat)
    (), HOLOGRAM_FOR_ISA(Isa::kAvx2, DepthwiseKernelFloat)(),
        HOLOGRAM_FOR_ISA(Isa::kAvx512, DepthwiseKernelFloat)()
  };
  return kernels[static_cast<int>(isa)];
}

const DepthwiseKernel<double>& depthwise_kernel(Isa isa, double) {
  static const auto* kernels = new DepthwiseKernel<double>[kIsaCount] {
    HOLOGRAM_FOR_ISA(Isa::kBaseline, DepthwiseKernelDouble)
    (), HOLOGRAM_FOR_ISA(Isa::kAvx2, DepthwiseKernelDouble)(),
        HOLOGRAM_FOR_ISA(Isa::kAvx512, DepthwiseKernelDouble)()
  };
  return kernels[static_cast<int>(isa)];
}

}  // namespace hologram::cpu
#endif
