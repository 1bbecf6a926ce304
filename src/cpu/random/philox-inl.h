// SPDX-License-Identifier: MIT
// SIMD Philox 4x32-10: as many blocks at a time as a vector of 32-bit words has lanes.

#if defined(HOLOGRAM_CPU_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_CPU_PHILOX_INL_H_
#undef HOLOGRAM_CPU_PHILOX_INL_H_
#else
#define HOLOGRAM_CPU_PHILOX_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Never wider than a group of 8 blocks in 64-bit lanes, so that a group is a whole number of
// vectors.
using Tag64 = hn::CappedTag<uint64_t, 8>;
using Tag32 = hn::Repartition<uint32_t, Tag64>;
using Vec64 = hn::Vec<Tag64>;
using Vec32 = hn::Vec<Tag32>;

// One word of some blocks, in the low halves of 64-bit lanes; the high halves are noise.
struct PhiloxLanes {
  Vec64 c0, c1, c2, c3;
};

HWY_INLINE Vec64 MulLow(Vec64 x, uint32_t factor) {
  const Tag32 d;
  return hn::MulEven(hn::BitCast(d, x), hn::Set(d, factor));
}

// The blocks whose counters the lanes hold.
HWY_INLINE PhiloxLanes Philox(Vec64 counter, uint64_t seed) {
  const Tag64 d;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  PhiloxLanes x{counter, hn::ShiftRight<32>(counter), hn::Zero(d), hn::Zero(d)};
  for (int round = 0; round < 10; ++round) {
    const Vec64 p0 = MulLow(x.c0, 0xD2511F53u), p1 = MulLow(x.c2, 0xCD9E8D57u);
    x.c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), x.c1), hn::Set(d, k0));
    x.c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), x.c3), hn::Set(d, k1));
    x.c1 = p1;
    x.c3 = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return x;
}

struct Words32 {
  Vec32 w[4];
};

HWY_INLINE Vec32 Interleave(Vec64 even, Vec64 odd) {
  const Tag64 d;
  const Vec64 low = hn::And(even, hn::Set(d, 0xffffffffu));
  return hn::BitCast(Tag32(), hn::Or(low, hn::ShiftLeft<32>(odd)));
}

// Words 0 to 3 of the blocks `first`, `first` + 1, ...
HWY_INLINE Words32 PhiloxWords32(uint64_t first, uint64_t seed) {
  const Tag64 d;
  const Vec64 even =
      hn::Add(hn::Set(d, first), hn::Add(hn::Iota(d, uint64_t{0}), hn::Iota(d, uint64_t{0})));
  const PhiloxLanes a = Philox(even, seed);
  const PhiloxLanes b = Philox(hn::Add(even, hn::Set(d, uint64_t{1})), seed);
  return {{Interleave(a.c0, b.c0), Interleave(a.c1, b.c1), Interleave(a.c2, b.c2),
           Interleave(a.c3, b.c3)}};
}

struct Words64 {
  Vec64 low, high;
};

HWY_INLINE Vec64 Join(Vec64 low, Vec64 high) {
  return hn::Or(hn::And(low, hn::Set(Tag64(), 0xffffffffu)), hn::ShiftLeft<32>(high));
}

HWY_INLINE Words64 PhiloxWords64(uint64_t first, uint64_t seed) {
  const Tag64 d;
  const PhiloxLanes x = Philox(hn::Add(hn::Set(d, first), hn::Iota(d, uint64_t{0})), seed);
  return {Join(x.c0, x.c1), Join(x.c2, x.c3)};
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_PHILOX_INL_H_
