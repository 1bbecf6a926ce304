// SPDX-License-Identifier: MIT
// Loops over runs of elements by vectors, with a partial last one, and sums that stay accurate.

#if defined(HOLOGRAM_CPU_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_CPU_LANES_INL_H_
#undef HOLOGRAM_CPU_LANES_INL_H_
#else
#define HOLOGRAM_CPU_LANES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/cpu/simd/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using LaneTag = hn::ScalableTag<T>;
template <class T>
using LaneVec = hn::Vec<LaneTag<T>>;

template <class T>
HWY_INLINE int64_t LaneCount() {
  return static_cast<int64_t>(hn::Lanes(LaneTag<T>()));
}

// Loads and stores of all lanes, or of the first n.
struct AllLanes {
  template <class D, class T>
  HWY_INLINE auto Load(D d, const T* p) const {
    return hn::LoadU(d, p);
  }
  template <class D, class V, class T>
  HWY_INLINE void Store(D d, V v, T* p) const {
    hn::StoreU(v, d, p);
  }
  // Zero in the lanes beyond.
  template <class D, class V>
  HWY_INLINE V Keep(D, V v) const {
    return v;
  }
  // `other` in the lanes beyond.
  template <class D, class V>
  HWY_INLINE V Keep(D, V v, V) const {
    return v;
  }
};
struct FirstLanes {
  int64_t n;
  template <class D, class T>
  HWY_INLINE auto Load(D d, const T* p) const {
    return LoadFirst(d, p, n);
  }
  template <class D, class V, class T>
  HWY_INLINE void Store(D d, V v, T* p) const {
    StoreFirst(d, v, p, n);
  }
  template <class D, class V>
  HWY_INLINE V Keep(D d, V v) const {
    return hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n)), v);
  }
  template <class D, class V>
  HWY_INLINE V Keep(D d, V v, V other) const {
    return hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(n)), v, other);
  }
};

// Calls f(i, lanes) for the vectors of n elements.
template <class T, class F>
HWY_INLINE void ForLanes(int64_t n, F&& f) {
  const int64_t step = LaneCount<T>();
  int64_t i = 0;
#pragma GCC unroll 2
  for (; i + step <= n; i += step) f(i, AllLanes());
  if (i < n) f(i, FirstLanes{n - i});
}

// Sums kSums series over n elements: f(i, lanes, sums) adds the vectors at i to sums. Several
// accumulators are in flight, and the totals of short blocks add up in float64.
template <class T, int kSums, class F>
HWY_INLINE void SumLanes(int64_t n, double (&totals)[kSums], F&& f) {
  constexpr int kFlights = kSums == 1 ? 4 : 2;
  const LaneTag<T> d;
  const int64_t step = LaneCount<T>();
  const int64_t block = 256 * step;
  for (int k = 0; k < kSums; ++k) totals[k] = 0;
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t end = std::min(n, begin + block);
    LaneVec<T> sums[kFlights][kSums];
    for (auto& flight : sums) {
      for (auto& sum : flight) sum = hn::Zero(d);
    }
    int64_t i = begin;
    for (; i + kFlights * step <= end; i += kFlights * step) {
      f(i, AllLanes(), sums[0]);
      f(i + step, AllLanes(), sums[1]);
      if constexpr (kFlights == 4) {
        f(i + 2 * step, AllLanes(), sums[2]);
        f(i + 3 * step, AllLanes(), sums[3]);
      }
    }
    for (; i + step <= end; i += step) f(i, AllLanes(), sums[0]);
    if (i < end) f(i, FirstLanes{end - i}, sums[1]);
    for (int k = 0; k < kSums; ++k) {
      auto sum = hn::Add(sums[0][k], sums[1][k]);
      if constexpr (kFlights == 4) sum = hn::Add(sum, hn::Add(sums[2][k], sums[3][k]));
      totals[k] += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_LANES_INL_H_
