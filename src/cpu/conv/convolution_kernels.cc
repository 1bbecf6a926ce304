// SPDX-License-Identifier: MIT
// Reads the columns of convolutions for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/conv/convolution_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "hwy/highway.h"
#include "src/cpu/simd/simd_tail-inl.h"
#include "src/cpu/conv/convolution_kernels.h"
// clang-format on

#include <algorithm>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::ConvColumns;
using cpu::ConvSegment;
using cpu::ConvSource;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag<T>()));
template <class T>
constexpr uint32_t kAll = (uint32_t{1} << kLanes<T>)-1;

template <class T>
HWY_INLINE hn::Mask<Tag<T>> MaskOf(uint32_t bits) {
  const uint64_t word = bits;
  return hn::LoadMaskBits(Tag<T>(), reinterpret_cast<const uint8_t*>(&word));
}

// Lanes `bits` of a segment at p, one by one.
template <class T>
hn::Vec<Tag<T>> LoadLanes(const T* p, const ConvSegment<T>& segment, uint32_t bits) {
  HWY_ALIGN T values[kLanes<T>];
  for (int l = 0; l < kLanes<T>; ++l) {
    const int64_t at = segment.linear ? l : segment.lane[l];
    values[l] = (bits >> l & 1) != 0 ? p[at] : T(0);
  }
  return hn::Load(Tag<T>(), values);
}

// Consecutive elements, zero where bits says so; no byte of those is touched.
template <class T>
HWY_INLINE hn::Vec<Tag<T>> LoadLinear(const T* p, const ConvSegment<T>& segment, uint32_t bits) {
  const Tag<T> d;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  static_cast<void>(segment);
  return hn::MaskedLoad(MaskOf<T>(bits), d, p);
#else
  return bits == kAll<T> ? hn::LoadU(d, p) : LoadLanes(p, segment, bits);
#endif
}

// Lane l is element index[l] of the 2 * kLanes elements at p.
template <class T>
HWY_INLINE hn::Vec<Tag<T>> Lookup(const T* p, const typename ConvSegment<T>::Index* index) {
  const Tag<T> d;
  const auto low = hn::LoadU(d, p), high = hn::LoadU(d, p + kLanes<T>);
#if HWY_TARGET == HWY_AVX3
  const __m512i lanes = _mm512_loadu_si512(index);
  if constexpr (sizeof(T) == 4) {
    return hn::Vec<Tag<T>>{_mm512_permutex2var_ps(low.raw, lanes, high.raw)};
  } else {
    return hn::Vec<Tag<T>>{_mm512_permutex2var_pd(low.raw, lanes, high.raw)};
  }
#else
  const hn::RebindToSigned<Tag<T>> di;
  const auto lanes = hn::LoadU(di, index), last = hn::Set(di, kLanes<T> - 1);
  const auto at = hn::IndicesFromVec(d, hn::And(lanes, last));
  return hn::IfThenElse(hn::RebindMask(d, hn::Gt(lanes, last)), hn::TableLookupLanes(high, at),
                        hn::TableLookupLanes(low, at));
#endif
}

template <class T>
HWY_INLINE hn::Vec<Tag<T>> LoadWindow(const ConvSource<T>& from, const T* p,
                                      const ConvSegment<T>& segment, uint32_t bits) {
  if (p < from.low || p + 2 * kLanes < T >> from.high) return LoadLanes(p, segment, bits);
  return hn::IfThenElseZero(MaskOf<T>(bits), Lookup(p, segment.lane));
}

// Vector v of the panel, of the channel and tap whose position is `at`.
template <class T>
HWY_INLINE hn::Vec<Tag<T>> LoadColumns(const ConvSource<T>& from, const ConvColumns<T>& columns,
                                       int v, uint32_t reach, const T* at) {
  const ConvSegment<T>* segment = columns.segments + (v == 0 ? 0 : columns.counts[0]);
  const uint32_t bits = reach >> (v * kLanes<T>)&kAll<T>;
  auto sum = hn::Zero(Tag<T>());
  for (int s = 0; s < columns.counts[v]; ++s, ++segment) {
    const uint32_t here = bits & segment->lanes;
    if (here == 0) continue;
    const T* p = at + segment->base;
    sum = hn::Or(
        sum, segment->linear ? LoadLinear(p, *segment, here) : LoadWindow(from, p, *segment, here));
  }
  return sum;
}

template <class T>
HWY_INLINE bool IsLinear(const ConvColumns<T>& columns) {
  return columns.counts[0] == 1 && columns.segments[0].linear &&
         (columns.counts[1] == 0 || (columns.counts[1] == 1 && columns.segments[1].linear));
}

// Whether each vector has every second element of a window, as with stride 2 within a row.
template <class T>
bool IsEverySecond(const ConvColumns<T>& columns) {
  if (columns.counts[0] != 1 || columns.counts[1] != 1) return false;
  for (int v = 0; v < 2; ++v) {
    const ConvSegment<T>& segment = columns.segments[v];
    if (segment.linear || segment.lanes != kAll<T>) return false;
    for (int l = 0; l < kLanes<T>; ++l) {
      if (segment.lane[l] != 2 * l) return false;
    }
  }
  return true;
}

template <class T>
HWY_INLINE hn::Vec<Tag<T>> EverySecond(const T* p) {
  const Tag<T> d;
  return hn::ConcatEven(d, hn::LoadU(d, p + kLanes<T>), hn::LoadU(d, p));
}

template <class T>
void Pack(const ConvSource<T>& from, const ConvColumns<T>& columns, int64_t begin, int64_t end,
          T* HWY_RESTRICT to, int64_t ld) {
  const Tag<T> d;
  const auto walk = [&](auto&& one) HWY_ATTR {
    if (from.channels_last) {
      int64_t tap = begin / from.channels, c = begin % from.channels;
      const T* at = from.x + from.tap[tap] + c * from.channel;
      uint32_t reach = columns.reach[tap];
      for (int64_t p = begin; p < end; ++p, to += ld) {
        one(reach, at);
        at += from.channel;
        if (++c == from.channels && p + 1 < end) {
          c = 0;
          at = from.x + from.tap[++tap];
          reach = columns.reach[tap];
        }
      }
    } else {
      int64_t tap = begin % from.taps;
      const T* channel = from.x + begin / from.taps * from.channel;
      for (int64_t p = begin; p < end; ++p, to += ld) {
        one(columns.reach[tap], channel + from.tap[tap]);
        if (++tap == from.taps) {
          tap = 0;
          channel += from.channel;
        }
      }
    }
  };
  const auto by_segments = [&](uint32_t reach, const T* at) HWY_ATTR {
    hn::StoreU(LoadColumns(from, columns, 0, reach, at), d, to);
    hn::StoreU(LoadColumns(from, columns, 1, reach, at), d, to + kLanes<T>);
  };
  if (IsLinear(columns)) {
    const ConvSegment<T>& first = columns.segments[0];
    const ConvSegment<T>& second = columns.segments[columns.counts[1]];
    walk([&](uint32_t reach, const T* at) HWY_ATTR {
      hn::StoreU(LoadLinear(at + first.base, first, reach & kAll<T>), d, to);
      hn::StoreU(LoadLinear(at + second.base, second, reach >> kLanes<T>), d, to + kLanes<T>);
    });
  } else if (IsEverySecond(columns)) {
    const int64_t first = columns.segments[0].base, second = columns.segments[1].base;
    constexpr uint32_t kBoth = kAll<T> << kLanes<T> | kAll<T>;
    const auto is_inside = [&](const T* p) {
      return p >= from.low && p + 2 * kLanes<T> <= from.high;
    };
    walk([&](uint32_t reach, const T* at) HWY_ATTR {
      const T* const p = at + first;
      const T* const q = at + second;
      if (reach == kBoth && is_inside(p) && is_inside(q)) {
        hn::StoreU(EverySecond(p), d, to);
        hn::StoreU(EverySecond(q), d, to + kLanes<T>);
      } else {
        by_segments(reach, at);
      }
    });
  } else {
    walk(by_segments);
  }
}

// p[i] += v[i] for the lanes of bits that are in the segment.
template <class T>
HWY_INLINE void AddLanes(T* p, const ConvSegment<T>& segment, uint32_t bits, const T* v) {
  const Tag<T> d;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if (segment.linear) {
    const auto mask = MaskOf<T>(bits);
    hn::BlendedStore(hn::Add(hn::MaskedLoad(mask, d, p), hn::LoadU(d, v)), mask, d, p);
    return;
  }
#else
  if (segment.linear && bits == kAll<T>) {
    return hn::StoreU(hn::Add(hn::LoadU(d, p), hn::LoadU(d, v)), d, p);
  }
#endif
  for (; bits != 0; bits &= bits - 1) {
    const int l = __builtin_ctz(bits);
    p[segment.linear ? l : segment.lane[l]] += v[l];
  }
}

template <class T>
void Unpack(const ConvSource<T>& to, const ConvColumns<T>& columns, const T* from,
            int64_t channel_step, int64_t tap_step) {
  for (int64_t c = 0; c < to.channels; ++c) {
    T* const channel = const_cast<T*>(to.x) + c * to.channel;
    for (int64_t t = 0; t < to.taps; ++t) {
      const T* v = from + c * channel_step + t * tap_step;
      const ConvSegment<T>* segment = columns.segments;
      uint32_t bits = columns.reach[t];
      for (int i = 0; i < 2; ++i, v += kLanes<T>, bits >>= kLanes<T>) {
        for (int s = 0; s < columns.counts[i]; ++s, ++segment) {
          const uint32_t here = bits & segment->lanes;
          if (here != 0) AddLanes(channel + to.tap[t] + segment->base, *segment, here, v);
        }
      }
    }
  }
}

// f(tap, vector 0, vector 1) for the columns of one channel.
template <class T, class F>
HWY_INLINE void ForTaps(const ConvSource<T>& from, const ConvColumns<T>& columns, F&& f) {
  const auto walk = [&](auto&& load) HWY_ATTR {
    for (int64_t t = 0; t < from.taps; ++t) {
      const T* at = from.x + from.tap[t];
      f(t, load(0, columns.reach[t], at), load(1, columns.reach[t], at));
    }
  };
  if (IsLinear(columns)) {
    const ConvSegment<T>* segments[2] = {columns.segments, columns.segments + columns.counts[1]};
    walk([&](int v, uint32_t reach, const T* at) HWY_ATTR {
      return LoadLinear(at + segments[v]->base, *segments[v],
                        v == 0 ? reach & kAll<T> : reach >> kLanes<T>);
    });
  } else {
    walk([&](int v, uint32_t reach, const T* at)
             HWY_ATTR { return LoadColumns(from, columns, v, reach, at); });
  }
}

template <class T>
void Depthwise(const ConvSource<T>& from, const ConvColumns<T>& columns, const T* w, T bias,
               int64_t n, T* HWY_RESTRICT to) {
  const Tag<T> d;
  auto first = hn::Set(d, bias), second = first;
  ForTaps(from, columns, [&](int64_t t, auto x, auto y) HWY_ATTR {
    const auto factor = hn::Set(d, w[t]);
    first = hn::MulAdd(factor, x, first);
    second = hn::MulAdd(factor, y, second);
  });
  if (n >= kLanes<T>) {
    hn::StoreU(first, d, to);
  } else {
    StoreFirst(d, first, to, n);
  }
  if (n >= 2 * kLanes<T>) {
    hn::StoreU(second, d, to + kLanes<T>);
  } else if (n > kLanes<T>) {
    StoreFirst(d, second, to + kLanes<T>, n - kLanes<T>);
  }
}

// Positions of the lanes of vector v where tap t of the first channel is at tap[t].
template <class T>
void StorePositions(const ConvSource<T>& from, const ConvColumns<T>& columns, int v,
                    const typename ConvSegment<T>::Index* chosen, int64_t n, int64_t* to) {
  const ConvSegment<T>* segment = columns.segments + (v == 0 ? 0 : columns.counts[0]);
  for (int s = 0; s < columns.counts[v]; ++s, ++segment) {
    for (int64_t l = 0; l < n; ++l) {
      if ((segment->lanes >> l & 1) == 0) continue;
      to[l] = segment->base + (segment->linear ? l : segment->lane[l]) + from.tap[chosen[l]];
    }
  }
}

// The largest of one vector's columns.
template <class T>
HWY_INLINE hn::Vec<Tag<T>> LargestOf(const ConvSource<T>& from, const ConvColumns<T>& columns,
                                     int v) {
  const Tag<T> d;
  auto max = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (int64_t t = 0; t < from.taps; ++t) {
    const uint32_t bits = columns.reach[t] >> (v * kLanes<T>)&kAll<T>;
    if (bits == 0) continue;
    const auto x = LoadColumns(from, columns, v, columns.reach[t], from.x + from.tap[t]);
    const auto takes = hn::And(hn::Or(hn::Gt(x, max), hn::IsNaN(x)), MaskOf<T>(bits));
    max = hn::IfThenElse(takes, x, max);
  }
  return max;
}

// The same, with the tap that each was read by.
template <class T>
HWY_INLINE hn::Vec<Tag<T>> LargestOf(const ConvSource<T>& from, const ConvColumns<T>& columns,
                                     int v, typename ConvSegment<T>::Index* HWY_RESTRICT taps) {
  const Tag<T> d;
  const hn::RebindToSigned<Tag<T>> di;
  using Index = typename ConvSegment<T>::Index;
  auto max = hn::Zero(d);
  auto chosen = hn::Set(di, Index(-1));
  for (int64_t t = 0; t < from.taps; ++t) {
    const uint32_t bits = columns.reach[t] >> (v * kLanes<T>)&kAll<T>;
    if (bits == 0) continue;
    const auto x = LoadColumns(from, columns, v, columns.reach[t], from.x + from.tap[t]);
    const auto none = hn::RebindMask(d, hn::Lt(chosen, hn::Zero(di)));
    const auto larger = hn::Or(hn::Or(hn::Gt(x, max), hn::IsNaN(x)), none);
    const auto takes = hn::And(larger, MaskOf<T>(bits));
    max = hn::IfThenElse(takes, x, max);
    chosen = hn::IfThenElse(hn::RebindMask(di, takes), hn::Set(di, static_cast<Index>(t)), chosen);
  }
  hn::Store(chosen, di, taps);
  return max;
}

template <class T>
void MaxPool(const ConvSource<T>& from, const ConvColumns<T>& columns, int64_t n, T* y,
             int64_t* positions) {
  const Tag<T> d;
  for (int v = 0; v * kLanes<T> < n; ++v) {
    const int64_t first = v * kLanes<T>, count = std::min<int64_t>(kLanes<T>, n - first);
    HWY_ALIGN typename ConvSegment<T>::Index taps[kLanes<T>];
    const auto max =
        positions == nullptr ? LargestOf(from, columns, v) : LargestOf(from, columns, v, taps);
    if (count == kLanes<T>) {
      hn::StoreU(max, d, y + first);
    } else {
      StoreFirst(d, max, y + first, count);
    }
    if (positions != nullptr) {
      StorePositions<T>(from, columns, v, taps, count, positions + first);
    }
  }
}

template <class T>
HWY_INLINE hn::Vec<Tag<T>> LoadSome(const T* p, int64_t n) {
  const Tag<T> d;
  return n >= kLanes<T> ? hn::LoadU(d, p) : n > 0 ? LoadFirst(d, p, n) : hn::Zero(d);
}

template <class T>
void DepthwiseProducts(const ConvSource<T>& from, const ConvColumns<T>& columns, const T* g,
                       int64_t n, T* HWY_RESTRICT sums) {
  const Tag<T> d;
  const auto first = LoadSome(g, n), second = LoadSome(g + kLanes<T>, n - kLanes<T>);
  ForTaps(from, columns, [&](int64_t t, auto x, auto y) HWY_ATTR {
    T* const sum = sums + t * kLanes<T>;
    hn::StoreU(hn::MulAdd(second, y, hn::MulAdd(first, x, hn::LoadU(d, sum))), d, sum);
  });
}

}  // namespace

cpu::ConvKernel<float> ConvKernelFloat() {
  return {&Pack<float>, &Unpack<float>, &Depthwise<float>, &DepthwiseProducts<float>,
          &MaxPool<float>};
}
cpu::ConvKernel<double> ConvKernelDouble() {
  return {&Pack<double>, &Unpack<double>, &Depthwise<double>, &DepthwiseProducts<double>,
          &MaxPool<double>};
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

const ConvKernel<float>& conv_kernel(Isa isa, float) {
  static const auto* kernels = new ConvKernel<float>[kIsaCount] {
    HOLOGRAM_FOR_ISA(Isa::kBaseline, ConvKernelFloat)
    (), HOLOGRAM_FOR_ISA(Isa::kAvx2, ConvKernelFloat)(),
        HOLOGRAM_FOR_ISA(Isa::kAvx512, ConvKernelFloat)()
  };
  return kernels[static_cast<int>(isa)];
}

const ConvKernel<double>& conv_kernel(Isa isa, double) {
  static const auto* kernels = new ConvKernel<double>[kIsaCount] {
    HOLOGRAM_FOR_ISA(Isa::kBaseline, ConvKernelDouble)
    (), HOLOGRAM_FOR_ISA(Isa::kAvx2, ConvKernelDouble)(),
        HOLOGRAM_FOR_ISA(Isa::kAvx512, ConvKernelDouble)()
  };
  return kernels[static_cast<int>(isa)];
}

}  // namespace hologram::cpu
#endif
