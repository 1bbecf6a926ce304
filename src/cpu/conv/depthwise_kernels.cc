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
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::DepthwiseBand;
using cpu::DepthwisePixels;
using cpu::DepthwiseRows;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag<T>()));

// The least n for which n * step >= x.
HWY_INLINE int64_t CeilDiv(int64_t x, int64_t step) {
  return x >= 0 ? (x + step - 1) / step : -(-x / step);
}

// Columns [begin, end) of a row of the copy are there for remainder f.
struct Range {
  int64_t begin, end;
};
template <class T>
HWY_INLINE Range ColumnsOf(const DepthwiseRows<T>& g, int64_t f) {
  const int64_t begin = std::clamp<int64_t>(CeilDiv(g.padding - f, g.stride), 0, g.length);
  return {begin, std::clamp<int64_t>(CeilDiv(g.width + g.padding - f, g.stride), begin, g.length)};
}

// Of stride 2: neighbours go to the two halves of a row, vectors of them at a time.
template <class T>
HWY_INLINE void SpreadPairs(const DepthwiseRows<T>& g, T* HWY_RESTRICT to, int64_t pitch) {
  const Tag<T> d;
  const Range even = ColumnsOf(g, 0), odd = ColumnsOf(g, 1);
  const int64_t begin = std::max(even.begin, odd.begin);
  const int64_t end = std::max(begin, std::min(even.end, odd.end));
  for (int64_t r = 0; r < g.rows; ++r, to += pitch) {
    const T* const from = g.x + r * g.step - g.padding;
    T* const second = to + g.length;
    const auto copy = [&](const Range& range, int64_t f, T* half) {
      for (int64_t i = range.begin; i < std::min(begin, range.end); ++i) half[i] = from[2 * i + f];
      for (int64_t i = std::max(end, range.begin); i < range.end; ++i) half[i] = from[2 * i + f];
    };
    int64_t i = begin;
    for (; i + kLanes<T> <= end; i += kLanes<T>) {
      const auto low = hn::LoadU(d, from + 2 * i), high = hn::LoadU(d, from + 2 * i + kLanes<T>);
      hn::StoreU(hn::ConcatEven(d, high, low), d, to + i);
      hn::StoreU(hn::ConcatOdd(d, high, low), d, second + i);
    }
    if (const int64_t n = end - i; n > 0) {
      const auto low = LoadFirst(d, from + 2 * i, std::min(2 * n, kLanes<T>));
      const auto high = 2 * n > kLanes<T>
                            ? LoadFirst(d, from + 2 * i + kLanes<T>, 2 * n - kLanes<T>)
                            : hn::Zero(d);
      StoreFirst(d, hn::ConcatEven(d, high, low), to + i, n);
      StoreFirst(d, hn::ConcatOdd(d, high, low), second + i, n);
    }
    copy(even, 0, to);
    copy(odd, 1, second);
  }
}

template <class T>
void Spread(const DepthwiseRows<T>& g, T* HWY_RESTRICT to, int64_t pitch) {
  const Tag<T> d;
  if (g.stride == 2) return SpreadPairs(g, to, pitch);
  for (int64_t f = 0; f < g.stride; ++f) {
    const Range columns = ColumnsOf(g, f);
    const T* from = g.x + f - g.padding;
    T* at = to + f * g.length;
    for (int64_t r = 0; r < g.rows; ++r, from += g.step, at += pitch) {
      int64_t i = columns.begin;
      if (g.stride == 1) {
        for (; i + kLanes<T> <= columns.end; i += kLanes<T>) {
          hn::StoreU(hn::LoadU(d, from + i), d, at + i);
        }
        if (const int64_t n = columns.end - i; n > 0) {
          StoreFirst(d, LoadFirst(d, from + i, n), at + i, n);
        }
      } else {
        for (; i < columns.end; ++i) at[i] = from[g.stride * i];
      }
    }
  }
}

// kRows rows of kVectors vectors, of which n columns are there: as many chains of multiply-adds as
// hide how long one takes. kLargest: the largest of what the taps read, else their sum.
template <class T, int kVectors, int kRows, bool kLargest>
HWY_INLINE void Block(const DepthwiseBand<T>& b, const T* x, int64_t n, T* y) {
  const Tag<T> d;
  hn::Vec<Tag<T>> sum[kVectors * kRows];
  const T first = kLargest ? -std::numeric_limits<T>::infinity() : b.bias;
#pragma GCC unroll 8
  for (int i = 0; i < kVectors * kRows; ++i) sum[i] = hn::Set(d, first);
  for (int64_t t = 0; t < b.taps; ++t) {
    const auto w = hn::Set(d, kLargest ? T(0) : b.w[t]);
    const T* at = x + b.tap[t];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors * kRows; ++i) {
      const auto v = hn::LoadU(d, at + i / kVectors * b.row + i % kVectors * kLanes<T>);
      sum[i] = kLargest ? hn::IfThenElse(hn::Or(hn::Gt(v, sum[i]), hn::IsNaN(v)), v, sum[i])
                        : hn::MulAdd(w, v, sum[i]);
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

template <class T, int kVectors, bool kLargest>
HWY_INLINE void Columns(const DepthwiseBand<T>& b, int64_t first, int64_t n) {
  int64_t r = 0;
  const auto rows = [&]<int kRows>() HWY_ATTR {
    for (; r + kRows <= b.rows; r += kRows) {
      Block<T, kVectors, kRows, kLargest>(b, b.copy + r * b.row + first, n,
                                          b.y + r * b.width + first);
    }
  };
  rows.template operator()<8 / kVectors>();
  if constexpr (kVectors == 1) rows.template operator()<4>();
  rows.template operator()<1>();
}

template <class T, bool kLargest>
void Band(const DepthwiseBand<T>& b) {
  for (int64_t first = 0; first < b.width; first += 4 * kLanes<T>) {
    const int64_t n = std::min(4 * kLanes<T>, b.width - first);
    if (n > 2 * kLanes<T>) {
      n > 3 * kLanes<T> ? Columns<T, 4, kLargest>(b, first, n)
                        : Columns<T, 3, kLargest>(b, first, n);
    } else {
      n > kLanes<T> ? Columns<T, 2, kLargest>(b, first, n) : Columns<T, 1, kLargest>(b, first, n);
    }
  }
}

// kPlaces outputs of n channels from c on, at most a vector of them.
template <class T, int kPlaces>
HWY_INLINE void Places(const DepthwisePixels<T>& p, int64_t c, int64_t n, int64_t first) {
  const Tag<T> d;
  const auto load = [&](const T* from) HWY_ATTR {
    return n == kLanes<T> ? hn::LoadU(d, from) : LoadFirst(d, from, n);
  };
  hn::Vec<Tag<T>> sum[kPlaces];
#pragma GCC unroll 8
  for (int i = 0; i < kPlaces; ++i) sum[i] = p.bias != nullptr ? load(p.bias + c) : hn::Zero(d);
  for (int64_t t = 0; t < p.taps; ++t) {
    const auto w = load(p.w[t] + c);
    const T* at = p.x[t] + first * p.step + c;
#pragma GCC unroll 8
    for (int i = 0; i < kPlaces; ++i) sum[i] = hn::MulAdd(w, load(at + i * p.step), sum[i]);
  }
  T* to = p.y + first * p.y_step + c;
#pragma GCC unroll 8
  for (int i = 0; i < kPlaces; ++i, to += p.y_step) {
    n == kLanes<T> ? hn::StoreU(sum[i], d, to) : StoreFirst(d, sum[i], to, n);
  }
}

template <class T>
void Pixels(const DepthwisePixels<T>& p) {
  const int64_t end = p.first + p.channels;
  int64_t first = 0;
  const auto places = [&]<int kPlaces>() HWY_ATTR {
    for (; first + kPlaces <= p.count; first += kPlaces) {
      int64_t c = p.first;
      for (; c + kLanes<T> <= end; c += kLanes<T>) Places<T, kPlaces>(p, c, kLanes<T>, first);
      if (c < end) Places<T, kPlaces>(p, c, end - c, first);
    }
  };
  places.template operator()<8>();
  places.template operator()<4>();
  places.template operator()<1>();
}

}  // namespace

cpu::DepthwiseKernel<float> DepthwiseKernelFloat() {
  return {kLanes<float>, &Spread<float>, &Band<float, false>, &Band<float, true>, &Pixels<float>};
}
cpu::DepthwiseKernel<double> DepthwiseKernelDouble() {
  return {kLanes<double>, &Spread<double>, &Band<double, false>, &Band<double, true>,
          &Pixels<double>};
}

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
