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
#include <utility>

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

// The first n elements at `from`, and what lies outside after them.
template <class T>
HWY_INLINE hn::Vec<Tag<T>> LoadInside(const DepthwiseRows<T>& g, const T* from, int64_t n) {
  const Tag<T> d;
  const auto inside = hn::FirstN(d, static_cast<size_t>(n));
  return hn::IfThenElse(inside, LoadFirst(d, from, n), hn::Set(d, g.outside));
}

// Stores of whole vectors, since those that leave lanes out are slow with AVX2: what they write
// behind a row is outside, or belongs to what is written later.
//
// Of stride 2: neighbours go to the two halves of a row, vectors of them at a time.
template <class T>
HWY_INLINE void SpreadPairs(const DepthwiseRows<T>& g, T* HWY_RESTRICT to, int64_t pitch) {
  const Tag<T> d;
  const Range even = ColumnsOf(g, 0), odd = ColumnsOf(g, 1);
  const int64_t begin = std::max(even.begin, odd.begin);
  const int64_t end = std::max(begin, std::min(even.end, odd.end));
  const int64_t whole = begin + (end - begin) / kLanes<T> * kLanes<T>, left = end - whole;
  for (int64_t r = 0; r < g.rows; ++r, to += pitch) {
    const T* const from = g.x + r * g.step - g.padding;
    T* const second = to + g.length;
    const auto copy = [&](const Range& range, int64_t f, T* half) {
      for (int64_t i = range.begin; i < std::min(begin, range.end); ++i) half[i] = from[2 * i + f];
      for (int64_t i = std::max(end, range.begin); i < range.end; ++i) half[i] = from[2 * i + f];
    };
    // First the last ones: behind the first half begins the second.
    if (left > 0) {
      const T* const at = from + 2 * whole;
      const auto low = LoadInside(g, at, std::min(2 * left, kLanes<T>));
      const auto high = 2 * left > kLanes<T> ? LoadInside(g, at + kLanes<T>, 2 * left - kLanes<T>)
                                             : hn::Set(d, g.outside);
      hn::StoreU(hn::ConcatEven(d, high, low), d, to + whole);
      hn::StoreU(hn::ConcatOdd(d, high, low), d, second + whole);
    }
    for (int64_t i = begin; i < whole; i += kLanes<T>) {
      const auto low = hn::LoadU(d, from + 2 * i), high = hn::LoadU(d, from + 2 * i + kLanes<T>);
      hn::StoreU(hn::ConcatEven(d, high, low), d, to + i);
      hn::StoreU(hn::ConcatOdd(d, high, low), d, second + i);
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
        if (i < columns.end) hn::StoreU(LoadInside(g, from + i, columns.end - i), d, at + i);
      } else {
        for (; i < columns.end; ++i) at[i] = from[g.stride * i];
      }
    }
  }
}

// kRows rows of kVectors vectors, of which n columns are there: as many chains of multiply-adds as
// hide how long one takes. kLargest: the largest of what the taps read, else their sum. Up to
// `free`, what is behind a row may be overwritten, since it is written later.
template <class T, int kVectors, int kRows, bool kLargest>
HWY_INLINE void Block(const DepthwiseBand<T>& b, const T* x, int64_t n, T* y, const T* free) {
  const Tag<T> d;
  hn::Vec<Tag<T>> sum[kVectors * kRows];
  const T first = kLargest ? -std::numeric_limits<T>::infinity() : b.bias;
#pragma GCC unroll 9
  for (int i = 0; i < kVectors * kRows; ++i) sum[i] = hn::Set(d, first);
  for (int64_t t = 0; t < b.taps; ++t) {
    const auto w = hn::Set(d, kLargest ? T(0) : b.w[t]);
    const T* at = x + b.tap[t];
#pragma GCC unroll 9
    for (int i = 0; i < kVectors * kRows; ++i) {
      const auto v = hn::LoadU(d, at + i / kVectors * b.row + i % kVectors * kLanes<T>);
      sum[i] = kLargest ? hn::IfThenElse(hn::Or(hn::Gt(v, sum[i]), hn::IsNaN(v)), v, sum[i])
                        : hn::MulAdd(w, v, sum[i]);
    }
  }
#pragma GCC unroll 9
  for (int i = 0; i < kVectors * kRows; ++i) {
    T* const to = y + i / kVectors * b.width + i % kVectors * kLanes<T>;
    const int64_t here = n - i % kVectors * kLanes<T>;
    if (here >= kLanes<T> || to + kLanes<T> <= free) {
      hn::StoreU(sum[i], d, to);
    } else {
      StoreFirst(d, sum[i], to, here);
    }
  }
}

// All rows of n columns, kRows at a time; the last ones again with some of those before them.
template <class T, int kVectors, int kRows, bool kLargest>
HWY_INLINE void Rows(const DepthwiseBand<T>& b, int64_t first, int64_t n) {
  // With other columns beside these, what is behind a row is theirs.
  const T* const free = b.width == n ? b.y + b.rows * b.width : b.y;
  for (int64_t r = 0;; r = std::min(r + kRows, b.rows - kRows)) {
    Block<T, kVectors, kRows, kLargest>(b, b.copy + r * b.row + first, n, b.y + r * b.width + first,
                                        free);
    if (r + kRows == b.rows) return;
  }
}

template <class T, int kVectors, bool kLargest>
void Columns(const DepthwiseBand<T>& b, int64_t first, int64_t n) {
  // As few turns as registers allow, of as many rows each as that takes.
  constexpr int64_t kMost = kVectors == 1 ? 8 : kVectors == 2 ? 4 : kVectors == 3 ? 3 : 2;
  const int64_t turns = (b.rows + kMost - 1) / kMost;
  const int64_t rows = (b.rows + turns - 1) / turns;
  const auto run = [&]<int kRows>() HWY_ATTR {
    if (rows != kRows) return false;
    Rows<T, kVectors, kRows, kLargest>(b, first, n);
    return true;
  };
  const auto any = [&]<int... kLess>(std::integer_sequence<int, kLess...>) HWY_ATTR {
    (run.template operator()<kLess + 1>() || ...);
  };
  any(std::make_integer_sequence<int, static_cast<int>(kMost)>());
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
