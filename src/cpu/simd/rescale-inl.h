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

// Numbers from here on differ from their neighbours by so much that the square is a normal number,
// with room of two bits: 2^-63 * 2^23 * 4, and the same for float64.
template <class T>
constexpr T kSurelyApart = sizeof(T) == 4 ? T(0x1p-38) : T(0x1p-457);

// True where the sum of squared distances from `centre` kept its digits: it is not NaN, infinite
// or less than kLeastSquares. A sum of 0 around a number of ordinary size says that all elements
// are equal.
template <class T>
HWY_INLINE bool SquaresFit(T sum, T centre) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  constexpr auto kFirst = std::bit_cast<Bits>(kLeastSquares<T>);
  constexpr auto kEnd = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  return std::bit_cast<Bits>(sum) - kFirst < kEnd - kFirst ||
         (sum == 0 && std::abs(centre) >= kSurelyApart<T>);
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

// True where all `n` elements are zeros of either sign, as those of inactive units are.
template <class T>
HWY_INLINE bool AreZeros(const T* x, int64_t n, int64_t stride = 1) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  Bits any = 0;
  for (int64_t i = 0; i < n; ++i) any |= std::bit_cast<Bits>(x[i * stride]) << 1;
  return any == 0;
}

// A function that is applied to an element before it is squared: none, or a multiplication.
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
