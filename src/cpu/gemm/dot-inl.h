// SPDX-License-Identifier: MIT
// Dot products of rows, whose elements may be of a half type or int8, widened as they are loaded.

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

// Narrow elements as those of D's type.
template <class D, class V>
HWY_INLINE hn::Vec<D> Widened(D d, V v) {
  if constexpr (std::is_same_v<hn::TFromV<V>, int8_t>) {
    return hn::ConvertTo(d, hn::PromoteTo(hn::RebindToSigned<D>(), v));
  } else {
    return hn::PromoteTo(d, v);
  }
}

// Elements of type In as a vector of D's type.
template <class D, class In>
HWY_INLINE hn::Vec<D> LoadWidened(D d, const In* p) {
  if constexpr (std::is_same_v<hn::TFromD<D>, In>) {
    return hn::LoadU(d, p);
  } else {
    return Widened(d, hn::LoadU(hn::Rebind<In, D>(), p));
  }
}

// The first `bytes` bytes, at most 8, in the lowest ones.
HWY_INLINE uint64_t FirstBytes(const char* p, int64_t bytes) {
  const auto load = [p](auto word, int64_t at) {
    std::memcpy(&word, p + at, sizeof(word));
    return static_cast<uint64_t>(word) << (8 * at);
  };
  // Two loads that overlap.
  if (bytes >= 8) return load(uint64_t(), 0);
  if (bytes >= 4) return load(uint32_t(), 0) | load(uint32_t(), bytes - 4);
  if (bytes >= 2) return load(uint16_t(), 0) | load(uint16_t(), bytes - 2);
  return bytes > 0 ? load(uint8_t(), 0) : 0;
}

// The first n, zeros after them.
template <class D, class In>
HWY_INLINE hn::Vec<D> LoadWidenedFirst(D d, const In* p, int64_t n) {
  if constexpr (std::is_same_v<hn::TFromD<D>, In>) {
    return LoadFirst(d, p, n);
  } else {
    const hn::Rebind<In, D> narrow;
#if HWY_TARGET == HWY_AVX3
    // It loads elements of two bytes and of one under a mask.
    using Bits = std::conditional_t<sizeof(In) == 1, int8_t, uint16_t>;
    const hn::Rebind<Bits, D> bits;
    return Widened(d, hn::BitCast(narrow, LoadFirst(bits, reinterpret_cast<const Bits*>(p), n)));
#else
    constexpr size_t kBytes = hn::MaxLanes(d) * sizeof(In);
    const char* const from = reinterpret_cast<const char*>(p);
    const int64_t bytes = n * static_cast<int64_t>(sizeof(In));
    if constexpr (kBytes == 16) {
      const hn::Full64<uint64_t> half;
      const auto low = hn::Set(half, FirstBytes(from, bytes));
      const auto high = hn::Set(half, FirstBytes(from + 8, bytes - 8));
      return Widened(d, hn::BitCast(narrow, hn::Combine(hn::Full128<uint64_t>(), high, low)));
    } else {
      static_assert(kBytes == 8 || kBytes == 4);
      using Word = std::conditional_t<kBytes == 8, uint64_t, uint32_t>;
      const auto word = static_cast<Word>(FirstBytes(from, bytes));
      return Widened(d, hn::BitCast(narrow, hn::Set(hn::CappedTag<Word, 1>(), word)));
    }
#endif
  }
}

// to[i] = the sum of the lanes of v[i], i < kCount <= 4, with the bits of SumOfLanes().
template <int kCount, class D, class V = hn::Vec<D>, class T = hn::TFromD<D>>
HWY_INLINE void SumsOfLanes(D d, const V* v, T* to) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (kCount > 1 && std::is_same_v<T, float>) {
    // Halves of two vectors, then quarters of all, are added at a time.
    const V &a = v[0], &b = v[1], &c = v[kCount > 2 ? 2 : 0], &e = v[kCount > 3 ? 3 : 1];
    const V ab = hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
    const V ce = hn::Add(hn::ConcatLowerLower(d, e, c), hn::ConcatUpperUpper(d, e, c));
    V sums = hn::Add(V{_mm512_shuffle_f32x4(ab.raw, ce.raw, 0x88)},
                     V{_mm512_shuffle_f32x4(ab.raw, ce.raw, 0xDD)});
    sums = hn::Add(sums, hn::Shuffle1032(sums));
    sums = hn::Add(sums, hn::Shuffle2301(sums));
    HWY_ALIGN float lanes[16];
    hn::Store(sums, d, lanes);
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) to[i] = lanes[4 * i];
    return;
  }
#endif
#pragma GCC unroll 4
  for (int i = 0; i < kCount; ++i) to[i] = hn::GetLane(hn::SumOfLanes(d, v[i]));
}

// Keeps v in a register: else the compiler loads it again for each of its uses.
template <class V>
HWY_INLINE V Kept(V v) {
  __asm__("" : "+v"(v.raw));
  return v;
}

// Smaller matrices are in the first cache. Of larger ones a task may have no more than this.
constexpr int64_t kFetchedBytes = 4096;
// Of __builtin_prefetch(): into the second cache. For the first there are too few fetches at a
// time, as measured on an EPYC (Zen 4).
constexpr int kIntoL2 = 2;

// sums[r] = row r of a . x. The rows lie lda elements apart. Each is four chains of multiply-adds,
// whatever is computed beside it. fetches: the rows that follow, which lie behind these.
template <int kRowCount, class T, class In>
HWY_INLINE void DotTile(const In* a, int64_t lda, const T* x, int64_t k, bool fetches, T* sums) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kChains = 4, kLanes = static_cast<int>(hn::MaxLanes(d));
  constexpr int kBytes = kChains * kRowCount * kLanes * static_cast<int>(sizeof(In));
  V sum[kChains * kRowCount];
#pragma GCC unroll 16
  for (int i = 0; i < kChains * kRowCount; ++i) sum[i] = hn::Zero(d);
  // Adds the products of a vector of each row, at p, to one chain of each sum.
  const auto add = [&](int chain, int64_t p, auto load_a, V factor) HWY_ATTR {
#pragma GCC unroll 4
    for (int r = 0; r < kRowCount; ++r) {
      V& to = sum[chain * kRowCount + r];
      to = MulAddOf(load_a(a + r * lda + p), factor, to);
    }
  };
  const auto whole = [&](const In* from) HWY_ATTR { return LoadWidened(d, from); };
  int64_t p = 0;
  for (; p + kChains * kLanes <= k; p += kChains * kLanes) {
    if (fetches) {
      const char* const next = reinterpret_cast<const char*>(a + kRowCount * (lda + p));
#pragma GCC unroll 16
      for (int i = 0; i < (kBytes + 63) / 64; ++i) __builtin_prefetch(next + 64 * i, 0, kIntoL2);
    }
#pragma GCC unroll 4
    for (int chain = 0; chain < kChains; ++chain) {
      add(chain, p + chain * kLanes, whole, hn::LoadU(d, x + p + chain * kLanes));
    }
  }
  for (; p + kLanes <= k; p += kLanes) add(0, p, whole, hn::LoadU(d, x + p));
  if (p < k) {
    add(
        1, p, [&](const In* from) HWY_ATTR { return LoadWidenedFirst(d, from, k - p); },
        LoadFirst(d, x + p, k - p));
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRowCount; ++r) {
    const V low = hn::Add(sum[r], sum[kRowCount + r]);
    const V high = hn::Add(sum[2 * kRowCount + r], sum[3 * kRowCount + r]);
    sum[r] = hn::Add(low, high);
  }
  SumsOfLanes<kRowCount>(d, sum, sums);
}

// y[i] = row i of a . x, i < m.
template <class T, class In>
HWY_INLINE void DotRows(const In* a, int64_t lda, int64_t m, const T* x, int64_t k, T* y) {
  // Few rows are read from memory faster than many, as measured.
#if HWY_TARGET == HWY_AVX3
  constexpr int kTall = sizeof(In) < 4 ? 4 : 2;
#else
  constexpr int kTall = sizeof(In) > 1 ? 2 : 1;
#endif
  const bool fetches = lda == k && m * k * static_cast<int64_t>(sizeof(In)) >= kFetchedBytes;
  int64_t i = 0;
  for (; i + kTall <= m; i += kTall) DotTile<kTall>(a + i * lda, lda, x, k, fetches, y + i);
  for (; i < m; ++i) DotTile<1>(a + i * lda, lda, x, k, fetches, y + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_GEMM_DOT_INL_H_
