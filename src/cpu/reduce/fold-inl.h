// SPDX-License-Identifier: MIT
// What the kernels of reductions share: what is done to an element before it is accumulated, and
// how a kernel enters its table.

#if defined(HOLOGRAM_CPU_FOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_CPU_FOLD_INL_H_
#undef HOLOGRAM_CPU_FOLD_INL_H_
#else
#define HOLOGRAM_CPU_FOLD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "src/cpu/reduce/reduce_kernels.h"
#include "src/cpu/simd/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::Fold;
using cpu::FoldKernel;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
constexpr bool kIsFloat = std::is_floating_point_v<T>;

// ---- what is done to an element before it is accumulated ----

struct Same {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return x;
  }
};
struct Magnitude {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return hn::Abs(x);
  }
};
struct Squared {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return hn::Mul(x, x);
  }
};
struct NonzeroOne {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    const hn::DFromV<V> d;
    return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Zero(d),
                          hn::Set(d, static_cast<hn::TFromD<decltype(d)>>(1)));
  }
};

// ---- extremes ----

template <bool kMax, class T>
HWY_INLINE T WorstOf() {
  if constexpr (kIsFloat<T>) {
    return kMax ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::infinity();
  } else {
    return kMax ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
  }
}
// Any NaN wins.
template <bool kMax, class T>
HWY_INLINE T Extreme(T a, T b) {
  if constexpr (kIsFloat<T>) {
    if (a != a) return a;
    return (kMax ? a > b : a < b) ? a : b;
  } else {
    return kMax ? std::max(a, b) : std::min(a, b);
  }
}
template <bool kMax, class V>
HWY_INLINE V ExtremeV(V a, V b) {
  if constexpr (kMax) {
    return hn::Max(a, b);
  } else {
    return hn::Min(a, b);
  }
}

// x86 max drops NaN, so a second value remembers whether there was one.
template <bool kMax, class T, class Map>
HWY_INLINE T ExtremeBlock(const T* x, int64_t n, Map map) {
  if constexpr (kIsFloat<T>) {
    const Tag<T> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto worst = hn::Set(d, WorstOf<kMax, T>());
    auto m0 = worst, m1 = worst, m2 = worst, m3 = worst;
    auto nan0 = hn::Zero(d), nan1 = hn::Zero(d);
    int64_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      const auto v0 = map(hn::LoadU(d, x + i));
      const auto v1 = map(hn::LoadU(d, x + i + lanes));
      const auto v2 = map(hn::LoadU(d, x + i + 2 * lanes));
      const auto v3 = map(hn::LoadU(d, x + i + 3 * lanes));
      m0 = ExtremeV<kMax>(m0, v0), m1 = ExtremeV<kMax>(m1, v1);
      m2 = ExtremeV<kMax>(m2, v2), m3 = ExtremeV<kMax>(m3, v3);
      nan0 = hn::Or(nan0, hn::VecFromMask(d, hn::Or(hn::IsNaN(v0), hn::IsNaN(v1))));
      nan1 = hn::Or(nan1, hn::VecFromMask(d, hn::Or(hn::IsNaN(v2), hn::IsNaN(v3))));
    }
    m0 = ExtremeV<kMax>(ExtremeV<kMax>(m0, m1), ExtremeV<kMax>(m2, m3));
    for (; i < n; i += lanes) {
      auto v = worst;
      if (i + lanes <= n) {
        v = map(hn::LoadU(d, x + i));
      } else {
        const auto mask = hn::FirstN(d, static_cast<size_t>(n - i));
        v = hn::IfThenElse(mask, map(LoadFirst(d, x + i, n - i)), worst);
      }
      m0 = ExtremeV<kMax>(m0, v);
      nan0 = hn::Or(nan0, hn::VecFromMask(d, hn::IsNaN(v)));
    }
    if (!hn::AllFalse(d, hn::MaskFromVec(hn::Or(nan0, nan1)))) {
      return std::numeric_limits<T>::quiet_NaN();
    }
    return hn::GetLane(kMax ? hn::MaxOfLanes(d, m0) : hn::MinOfLanes(d, m0));
  } else {
    T best = WorstOf<kMax, T>();
    for (int64_t i = 0; i < n; ++i) best = Extreme<kMax>(best, x[i]);
    return best;
  }
}

// ---- tables ----

template <class F>
FoldKernel KernelOf(size_t acc_size) {
  FoldKernel kernel;
  kernel.acc_size = static_cast<int>(acc_size);
  kernel.init = &F::Init;
  kernel.rows = &F::Rows;
  kernel.cols = &F::Cols;
  kernel.merge = &F::Merge;
  return kernel;
}

using Kernels = cpu::FoldTable;

FoldKernel& At(Kernels& table, Fold fold, Dtype dtype) {
  return table[static_cast<int>(fold)][static_cast<int>(dtype)];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_FOLD_INL_H_
