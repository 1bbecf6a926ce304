// SPDX-License-Identifier: MIT
// Turns Philox words into numbers, compiled once per instruction set.
#include "src/cpu/random/random_kernels.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/random/random_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "src/cpu/simd/math-log-inl.h"
#include "src/cpu/random/philox-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace {

using cpu::kGroup32;
using cpu::kGroup64;
using cpu::RandomKernels;

// Runs step(first block, out + position) for whole groups straight into out, the last, partial one
// through a buffer.
template <int64_t kGroup, int64_t kBlocks, class T, class Step>
HWY_INLINE void ForGroups(PhiloxStream stream, T* out, int64_t n, Step step) {
  uint64_t block = stream.offset;
  int64_t i = 0;
  for (; i + kGroup <= n; i += kGroup, block += kBlocks) step(block, out + i);
  if (i < n) {
    HWY_ALIGN T buffer[kGroup];
    step(block, buffer);
    std::memcpy(out + i, buffer, static_cast<size_t>(n - i) * sizeof(T));
  }
}

// make(words, place): places w * 16 + j of a group are word w of block j.
template <class Make>
HWY_INLINE void ForWords32(uint64_t first, uint64_t seed, Make make) {
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag32()));
  for (int64_t j = 0; j < 16; j += kLanes) {
    make(PhiloxWords32(first + static_cast<uint64_t>(j), seed), j);
  }
}

template <class Make>
HWY_INLINE void ForWords64(uint64_t first, uint64_t seed, Make make) {
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag64()));
  for (int64_t j = 0; j < 8; j += kLanes) {
    make(PhiloxWords64(first + static_cast<uint64_t>(j), seed), j);
  }
}

using TagF = hn::RebindToFloat<Tag32>;
using TagI = hn::RebindToSigned<Tag32>;
using TagD = hn::RebindToFloat<Tag64>;
using VecF = hn::Vec<TagF>;
using VecD = hn::Vec<TagD>;

void FillWords32(PhiloxStream stream, uint32_t* out, int64_t n) {
  ForGroups<kGroup32, 16>(stream, out, n, [&](uint64_t first, uint32_t* at) HWY_ATTR {
    ForWords32(first, stream.seed, [&](Words32 x, int64_t j) HWY_ATTR {
      for (int w = 0; w < 4; ++w) hn::StoreU(x.w[w], Tag32(), at + 16 * w + j);
    });
  });
}

void FillWords64(PhiloxStream stream, uint64_t* out, int64_t n) {
  ForGroups<kGroup64, 8>(stream, out, n, [&](uint64_t first, uint64_t* at) HWY_ATTR {
    ForWords64(first, stream.seed, [&](Words64 x, int64_t j) HWY_ATTR {
      hn::StoreU(x.low, Tag64(), at + j);
      hn::StoreU(x.high, Tag64(), at + 8 + j);
    });
  });
}

// from + u (to - from), from where rounding reaches to. Without FMA: the same on every machine.
template <class V>
HWY_INLINE V IntoRange(V u, V from, V to) {
  const V x = hn::Add(hn::Mul(u, hn::Sub(to, from)), from);
  return hn::IfThenElse(hn::Lt(x, to), x, from);
}

void Uniform32(PhiloxStream stream, float from, float to, int bits, float* out, int64_t n) {
  const TagF d;
  const VecF a = hn::Set(d, from), b = hn::Set(d, to);
  const VecF step = hn::Set(d, 1.0f / static_cast<float>(1 << bits));
  const int shift = 32 - bits;
  ForGroups<kGroup32, 16>(stream, out, n, [&](uint64_t first, float* at) HWY_ATTR {
    ForWords32(first, stream.seed, [&](Words32 x, int64_t j) HWY_ATTR {
      for (int w = 0; w < 4; ++w) {
        const auto whole = hn::BitCast(TagI(), hn::ShiftRightSame(x.w[w], shift));
        const VecF u = hn::Mul(hn::ConvertTo(d, whole), step);
        hn::StoreU(IntoRange(u, a, b), d, at + 16 * w + j);
      }
    });
  });
}

// The upper 52 bits as a fraction in [0, 1 - 2^-52], and the 53rd added below: without a conversion
// from 64-bit integers, which AVX2 does not have.
HWY_INLINE VecD Unit53(Vec64 word) {
  const TagD d;
  const Vec64 one = hn::Set(Tag64(), 0x3ff0000000000000u);
  const VecD high = hn::Sub(hn::BitCast(d, hn::Or(hn::ShiftRight<12>(word), one)), hn::Set(d, 1.0));
  const Vec64 last = hn::And(hn::ShiftRight<11>(word), hn::Set(Tag64(), uint64_t{1}));
  const VecD low = hn::Sub(hn::BitCast(d, hn::Or(hn::ShiftLeft<51>(last), one)), hn::Set(d, 1.0));
  return hn::Add(high, hn::Mul(low, hn::Set(d, 0x1p-52)));
}

void Uniform64(PhiloxStream stream, double from, double to, double* out, int64_t n) {
  const TagD d;
  const VecD a = hn::Set(d, from), b = hn::Set(d, to);
  ForGroups<kGroup64, 8>(stream, out, n, [&](uint64_t first, double* at) HWY_ATTR {
    ForWords64(first, stream.seed, [&](Words64 x, int64_t j) HWY_ATTR {
      hn::StoreU(IntoRange(Unit53(x.low), a, b), d, at + j);
      hn::StoreU(IntoRange(Unit53(x.high), a, b), d, at + 8 + j);
    });
  });
}

// sin and cos of r in [-pi / 4, pi / 4]: their power series.
template <class V>
struct SinCos {
  V sin, cos;
};

HWY_INLINE SinCos<VecF> SinCosSmall(VecF r) {
  constexpr float kSin[] = {-1.0f / 6, 1.0f / 120, -1.0f / 5040, 1.0f / 362880};
  constexpr float kCos[] = {1.0f / 24, -1.0f / 720, 1.0f / 40320, -1.0f / 3628800};
  const TagF d;
  const VecF z = hn::Mul(r, r);
  const VecF cos = hn::MulAdd(hn::Mul(z, z), math::Polynomial(z, kCos),
                              hn::NegMulAdd(z, hn::Set(d, 0.5f), hn::Set(d, 1.0f)));
  return {hn::MulAdd(hn::Mul(z, r), math::Polynomial(z, kSin), r), cos};
}

HWY_INLINE SinCos<VecD> SinCosSmall(VecD r) {
  constexpr double kSin[] = {
      -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
      -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
  constexpr double kCos[] = {
      1.0 / 24,        -1.0 / 720,         1.0 / 40320,          -1.0 / 3628800,
      1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000};
  const TagD d;
  const VecD z = hn::Mul(r, r);
  const VecD cos = hn::MulAdd(hn::Mul(z, z), math::Polynomial(z, kCos),
                              hn::NegMulAdd(z, hn::Set(d, 0.5), hn::Set(d, 1.0)));
  return {hn::MulAdd(hn::Mul(z, r), math::Polynomial(z, kSin), r), cos};
}

// Turns (sin, cos) by as many right angles as the top two bits of `bits` say.
template <class V, class U>
HWY_INLINE SinCos<V> Turn(SinCos<V> x, U bits) {
  const hn::DFromV<V> d;
  const hn::DFromV<U> du;
  constexpr int kTop = sizeof(hn::TFromD<decltype(d)>) * 8 - 1;
  const auto odd = hn::MaskFromVec(hn::BitCast(
      d, hn::VecFromMask(
             du, hn::TestBit(bits, hn::Set(du, hn::TFromD<decltype(du)>{1} << (kTop - 1))))));
  const V sin = hn::IfThenElse(odd, x.cos, x.sin);
  const V cos = hn::IfThenElse(odd, x.sin, x.cos);
  // Quadrants 0 to 3: sin is negated in 2 and 3, cos in 1 and 2.
  const auto top = hn::Set(du, hn::TFromD<decltype(du)>{1} << kTop);
  const auto sin_sign = hn::And(bits, top);
  const auto cos_sign = hn::And(hn::Xor(bits, hn::Add(bits, bits)), top);
  return {hn::Xor(sin, hn::BitCast(d, sin_sign)), hn::Xor(cos, hn::BitCast(d, cos_sign))};
}

// sqrt(-2 log(u)), u the words as numbers in (0, 1].
HWY_INLINE VecF Radius(Vec32 word) {
  const TagF d;
  const VecF high = hn::ConvertTo(d, hn::BitCast(TagI(), hn::ShiftRight<8>(word)));
  const VecF low = hn::ConvertTo(d, hn::BitCast(TagI(), hn::And(word, hn::Set(Tag32(), 0xffu))));
  const VecF u = hn::Add(hn::Mul(high, hn::Set(d, 0x1p-24f)),
                         hn::Mul(hn::Add(low, hn::Set(d, 0.5f)), hn::Set(d, 0x1p-32f)));
  return hn::Sqrt(hn::Abs(hn::Mul(hn::Set(d, -2.0f), Log(u))));
}

HWY_INLINE VecD Radius(Vec64 word) {
  const TagD d;
  const VecD u = hn::Add(Unit53(word), hn::Set(d, 0x1p-54));
  return hn::Sqrt(hn::Abs(hn::Mul(hn::Set(d, -2.0), Log(u))));
}

// The word is an angle: 2^32 is a full turn. The difference from the nearest quadrant is signed.
HWY_INLINE SinCos<VecF> Angle(Vec32 word) {
  const TagF d;
  const VecF part = hn::ConvertTo(d, hn::BitCast(TagI(), hn::ShiftLeft<2>(word)));
  const auto x =
      SinCosSmall(hn::Mul(part, hn::Set(d, static_cast<float>(0x1.921fb54442d18p0 * 0x1p-32))));
  return Turn(x, hn::Add(word, hn::Set(Tag32(), 0x20000000u)));
}

HWY_INLINE SinCos<VecD> Angle(Vec64 word) {
  const TagD d;
  // The 52 bits below the quadrant, as a number in [-1/2, 1/2).
  const Vec64 mantissa =
      hn::ShiftRight<12>(hn::Add(hn::ShiftLeft<2>(word), hn::Set(Tag64(), uint64_t{1} << 63)));
  const VecD part = hn::Sub(hn::BitCast(d, hn::Or(mantissa, hn::Set(Tag64(), 0x3ff0000000000000u))),
                            hn::Set(d, 1.5));
  const auto x = SinCosSmall(hn::Mul(part, hn::Set(d, 0x1.921fb54442d18p0)));
  return Turn(x, hn::Add(word, hn::Set(Tag64(), uint64_t{1} << 61)));
}

template <class V>
HWY_INLINE V Shifted(V radius, V direction, V mean, V std) {
  return hn::Add(hn::Mul(hn::Mul(radius, direction), std), mean);
}

void Normal32(PhiloxStream stream, float mean, float std, float* out, int64_t n) {
  const TagF d;
  const VecF m = hn::Set(d, mean), s = hn::Set(d, std);
  ForGroups<kGroup32, 16>(stream, out, n, [&](uint64_t first, float* at) HWY_ATTR {
    ForWords32(first, stream.seed, [&](Words32 x, int64_t j) HWY_ATTR {
      for (int w = 0; w < 4; w += 2) {
        const VecF r = Radius(x.w[w]);
        const SinCos<VecF> a = Angle(x.w[w + 1]);
        hn::StoreU(Shifted(r, a.cos, m, s), d, at + 16 * w + j);
        hn::StoreU(Shifted(r, a.sin, m, s), d, at + 16 * (w + 1) + j);
      }
    });
  });
}

void Normal64(PhiloxStream stream, double mean, double std, double* out, int64_t n) {
  const TagD d;
  const VecD m = hn::Set(d, mean), s = hn::Set(d, std);
  ForGroups<kGroup64, 8>(stream, out, n, [&](uint64_t first, double* at) HWY_ATTR {
    ForWords64(first, stream.seed, [&](Words64 x, int64_t j) HWY_ATTR {
      const VecD r = Radius(x.low);
      const SinCos<VecD> a = Angle(x.high);
      hn::StoreU(Shifted(r, a.cos, m, s), d, at + j);
      hn::StoreU(Shifted(r, a.sin, m, s), d, at + 8 + j);
    });
  });
}

// 1 or 0 in each 32-bit lane; limit is below 2^32.
HWY_INLINE Vec32 Below(Vec32 word, Vec32 limit) {
  return hn::IfThenElseZero(hn::Lt(word, limit), hn::Set(Tag32(), 1u));
}

HWY_INLINE void StoreBytes(Vec32 zero_or_one, uint8_t* out) {
  const hn::Rebind<uint8_t, Tag32> d;
  hn::StoreU(hn::U8FromU32(zero_or_one), d, out);
}

void Bernoulli(PhiloxStream stream, uint64_t limit, uint8_t* out, int64_t n) {
  if (limit > 0xffffffffu) {
    std::memset(out, 1, static_cast<size_t>(n));
    return;
  }
  const Vec32 l = hn::Set(Tag32(), static_cast<uint32_t>(limit));
  ForGroups<kGroup32, 16>(stream, out, n, [&](uint64_t first, uint8_t* at) HWY_ATTR {
    ForWords32(first, stream.seed, [&](Words32 x, int64_t j) HWY_ATTR {
      for (int w = 0; w < 4; ++w) StoreBytes(Below(x.w[w], l), at + 16 * w + j);
    });
  });
}

void ApplyMask32(const float* in, const uint8_t* mask, float scale, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] * static_cast<float>(mask[i]) * scale;
}

void ApplyMask64(const double* in, const uint8_t* mask, double scale, double* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] * static_cast<double>(mask[i]) * scale;
}

void Dropout(PhiloxStream stream, uint64_t limit, float scale, const float* in, float* out,
             uint8_t* mask, int64_t n) {
  const TagF d;
  const int64_t whole = limit > 0xffffffffu ? 0 : n / kGroup32 * kGroup32;
  const Vec32 l = hn::Set(Tag32(), static_cast<uint32_t>(limit));
  const VecF s = hn::Set(d, scale);
  uint64_t block = stream.offset;
  for (int64_t i = 0; i < whole; i += kGroup32, block += 16) {
    ForWords32(block, stream.seed, [&](Words32 x, int64_t j) HWY_ATTR {
      for (int w = 0; w < 4; ++w) {
        const int64_t at = i + 16 * w + j;
        const Vec32 keep = Below(x.w[w], l);
        StoreBytes(keep, mask + at);
        const VecF factor = hn::ConvertTo(d, hn::BitCast(TagI(), keep));
        hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, in + at), factor), s), d, out + at);
      }
    });
  }
  if (whole < n) {
    Bernoulli({stream.seed, block}, limit, mask + whole, n - whole);
    ApplyMask32(in + whole, mask + whole, scale, out + whole, n - whole);
  }
}

}  // namespace

const RandomKernels& GetRandomKernels() {
  static constexpr RandomKernels kKernels{&FillWords32, &FillWords64, &Uniform32, &Uniform64,
                                          &Normal32,    &Normal64,    &Bernoulli, &Dropout,
                                          &ApplyMask32, &ApplyMask64};
  return kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {
const RandomKernels& random_kernels(Isa isa) { return HOLOGRAM_FOR_ISA(isa, GetRandomKernels)(); }
}  // namespace hologram::cpu
#endif
