// SPDX-License-Identifier: MIT
// Conversions between float32 and the two half types, rounding to nearest even, NaN kept NaN.

#if defined(HOLOGRAM_CPU_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_CPU_HALF_INL_H_
#undef HOLOGRAM_CPU_HALF_INL_H_
#else
#define HOLOGRAM_CPU_HALF_INL_H_
#endif

#include <bit>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// IEEE binary16 to binary32, exact. Subnormals are scaled by multiplication, which is exact too.
HWY_INLINE float HalfToFloatOne(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) {  // infinity, or a NaN, which F16C makes quiet
    const uint32_t quiet = magnitude > 0x7c00 ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7f800000 | quiet | (magnitude & 0x3ff) << 13);
  }
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

// binary32 to binary16, to nearest even. The rounding of subnormal results is left to a float
// addition whose last place is that of the smallest half.
HWY_INLINE uint16_t FloatToHalfOne(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // at least 65520 rounds to infinity
  if (magnitude < 0x38800000) {                       // below 2^-14 the result is subnormal
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  const uint32_t odd = magnitude >> 13 & 1;
  return static_cast<uint16_t>(sign | (magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

HWY_INLINE uint16_t FloatToBFloat16One(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline void HalfToFloat(const void* src, void* dst, int64_t n) {
  const auto* in = static_cast<const uint16_t*>(src);
  auto* out = static_cast<float*>(dst);
  int64_t i = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3  // F16C
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(in + i))), d,
               out + i);
  }
#endif
  for (; i < n; ++i) out[i] = HalfToFloatOne(in[i]);
}

inline void FloatToHalf(const void* src, void* dst, int64_t n) {
  const auto* in = static_cast<const float*>(src);
  auto* out = static_cast<uint16_t*>(dst);
  int64_t i = 0;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  const hn::RebindToUnsigned<decltype(dh)> du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::BitCast(du, hn::DemoteTo(dh, hn::LoadU(d, in + i))), du, out + i);
  }
#endif
  for (; i < n; ++i) out[i] = FloatToHalfOne(in[i]);
}

inline void BFloat16ToFloat(const void* src, void* dst, int64_t n) {
  const auto* in = static_cast<const uint16_t*>(src);
  auto* out = static_cast<uint32_t*>(dst);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<uint32_t>(in[i]) << 16;
}

inline void FloatToBFloat16(const void* src, void* dst, int64_t n) {
  const auto* in = static_cast<const float*>(src);
  auto* out = static_cast<uint16_t*>(dst);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = FloatToBFloat16One(in[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_HALF_INL_H_
