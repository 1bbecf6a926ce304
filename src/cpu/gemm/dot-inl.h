// SPDX-License-Identifier: MIT
// Dot products of rows, whose elements may be of a half type that is widened as it is loaded.

#if defined(HOLOGRAM_CPU_GEMM_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_CPU_GEMM_DOT_INL_H_
#undef HOLOGRAM_CPU_GEMM_DOT_INL_H_
#else
#define HOLOGRAM_CPU_GEMM_DOT_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "src/cpu/simd/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// a b + c; Highway has it for some integers only.
template <class V>
HWY_INLINE V MulAddOf(V a, V b, V c) {
  if constexpr (std::is_floating_point_v<hn::TFromV<V>>) {
    return hn::MulAdd(a, b, c);
  } else {
    return hn::Add(hn::Mul(a, b), c);
  }
}

// Elements of type In as a vector of D's type.
template <class D, class In>
HWY_INLINE hn::Vec<D> LoadWidened(D d, const In* p) {
  if constexpr (std::is_same_v<hn::TFromD<D>, In>) {
    return hn::LoadU(d, p);
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<In, D>(), p));
  }
}

// The first n, zeros after them.
template <class D, class In>
HWY_INLINE hn::Vec<D> LoadWidenedFirst(D d, const In* p, int64_t n) {
  if constexpr (std::is_same_v<hn::TFromD<D>, In>) {
    return LoadFirst(d, p, n);
  } else {
    HWY_ALIGN In buffer[hn::MaxLanes(d)] = {};
    std::memcpy(static_cast<void*>(buffer), p, static_cast<size_t>(n) * sizeof(In));
    return LoadWidened(d, static_cast<const In*>(buffer));
  }
}

// The sum of a[p] x[p] over p < k.
template <class T, class In>
HWY_INLINE T Dot(const In* a, const T* x, int64_t k) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t p = 0;
  for (; p + 4 * lanes <= k; p += 4 * lanes) {
    s0 = MulAddOf(LoadWidened(d, a + p), hn::LoadU(d, x + p), s0);
    s1 = MulAddOf(LoadWidened(d, a + p + lanes), hn::LoadU(d, x + p + lanes), s1);
    s2 = MulAddOf(LoadWidened(d, a + p + 2 * lanes), hn::LoadU(d, x + p + 2 * lanes), s2);
    s3 = MulAddOf(LoadWidened(d, a + p + 3 * lanes), hn::LoadU(d, x + p + 3 * lanes), s3);
  }
  for (; p + lanes <= k; p += lanes) {
    s0 = MulAddOf(LoadWidened(d, a + p), hn::LoadU(d, x + p), s0);
  }
  if (p < k) s1 = MulAddOf(LoadWidenedFirst(d, a + p, k - p), LoadFirst(d, x + p, k - p), s1);
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_GEMM_DOT_INL_H_
