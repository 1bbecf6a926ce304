// SPDX-License-Identifier: MIT
// Squares of huge and tiny numbers: whether a sum of them left the range of its type, and the power
// of two by which the numbers are multiplied before they are squared again.

#if defined(HOLOGRAM_CPU_RESCALE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_CPU_RESCALE_INL_H_
#undef HOLOGRAM_CPU_RESCALE_INL_H_
#else
#define HOLOGRAM_CPU_RESCALE_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// The least sum of some thousand squares in which squares below the normal numbers do not count.
template <class T>
constexpr T kLeastSquares = 4096 *
                            (std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon());

// Whether sums of squares kept their digits: none is NaN, infinite or less than that.
template <class T>
HWY_INLINE bool SquaresFit(T sum) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  constexpr auto kFirst = std::bit_cast<Bits>(kLeastSquares<T>);
  constexpr auto kEnd = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  return std::bit_cast<Bits>(sum) - kFirst < kEnd - kFirst;
}
template <class D>
HWY_INLINE bool AllSquaresFit(D d, hn::Vec<D> sums) {
  using T = hn::TFromD<D>;
  const auto least = hn::Set(d, kLeastSquares<T>);
  const auto most = hn::Set(d, std::numeric_limits<T>::max());
  return hn::AllTrue(d, hn::And(hn::Ge(sums, least), hn::Le(sums, most)));
}

// 2^-e for a magnitude of 2^e to 2^(e + 1), as far as that is a normal number; 1 where there is no
// such e. Sums of numbers up to the magnitude, and of their squares, do not overflow after a
// multiplication by it, and their differences have squares that keep their digits.
template <class T>
HWY_INLINE T PowerTowardsOne(T magnitude) {
  if (!(magnitude > 0) || !std::isfinite(magnitude)) return 1;
  constexpr int kMost = std::numeric_limits<T>::max_exponent - 2;
  return std::ldexp(T(1), std::clamp(-std::ilogb(magnitude), -kMost, kMost));
}

// What is done to an element before it is squared.
struct Unscaled {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return x;
  }
};
template <class T>
struct ScaledBy {
  T power;
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return hn::Mul(x, hn::Set(hn::DFromV<V>(), power));
  }
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_RESCALE_INL_H_
