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
#include "src/cpu/gemm/blocking.h"
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

// Of rows read kRowCount at a time: how many rows ahead to prefetch; 0: none. Rows of small
// elements are a page or two each, and the processor notices too late that they are read. For half
// types it was measured with AVX2 only.
template <int kRowCount, class In>
constexpr int RowsAhead() {
  if (sizeof(In) == 1) return kRowCount;
#if HWY_TARGET == HWY_AVX3
  return 0;
#else
  return sizeof(In) == 2 ? 2 * kRowCount : 0;
#endif
}

// sums[r * kCount + f] = row r of a . row f of x, whose rows lie lda and ldx elements apart. Each
// is four chains of multiply-adds, whatever is computed beside it.
template <int kRowCount, int kCount, class T, class In>
HWY_INLINE void DotTile(const In* a, int64_t lda, const T* x, int64_t ldx, int64_t k, T* sums) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kChains = 4, kDots = kRowCount * kCount;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[kChains * kDots];
#pragma GCC unroll 32
  for (int i = 0; i < kChains * kDots; ++i) sum[i] = hn::Zero(d);
  // Adds the products of a vector of each row, at p, to one chain of each sum.
  const auto add = [&](int chain, int64_t p, auto load_a, auto load_x) HWY_ATTR {
    V factor[kCount];
#pragma GCC unroll 8
    for (int f = 0; f < kCount; ++f) {
      const V value = load_x(x + f * ldx + p);
      factor[f] = kRowCount > 1 ? Kept(value) : value;
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRowCount; ++r) {
      const V loaded = load_a(a + r * lda + p);
      const V value = kCount > 1 ? Kept(loaded) : loaded;
#pragma GCC unroll 8
      for (int f = 0; f < kCount; ++f) {
        V& to = sum[chain * kDots + r * kCount + f];
        to = MulAddOf(value, factor[f], to);
      }
    }
  };
  const auto whole_a = [&](const In* from) HWY_ATTR { return LoadWidened(d, from); };
  const auto whole_x = [&](const T* from) HWY_ATTR { return hn::LoadU(d, from); };
  int64_t p = 0;
  for (; p + kChains * lanes <= k; p += kChains * lanes) {
    constexpr int kAhead = RowsAhead<kRowCount, In>();
    if constexpr (kAhead > 0) {
#pragma GCC unroll 8
      for (int r = 0; r < kRowCount; ++r) __builtin_prefetch(a + (r + kAhead) * lda + p);
    }
#pragma GCC unroll 4
    for (int chain = 0; chain < kChains; ++chain) add(chain, p + chain * lanes, whole_a, whole_x);
  }
  for (; p + lanes <= k; p += lanes) add(0, p, whole_a, whole_x);
  if (p < k) {
    add(
        1, p, [&](const In* from) HWY_ATTR { return LoadWidenedFirst(d, from, k - p); },
        [&](const T* from) HWY_ATTR { return LoadFirst(d, from, k - p); });
  }
#pragma GCC unroll 8
  for (int i = 0; i < kDots; ++i) {
    const V low = hn::Add(sum[i], sum[kDots + i]);
    const V high = hn::Add(sum[2 * kDots + i], sum[3 * kDots + i]);
    sum[i] = hn::Add(low, high);
  }
  constexpr int kLast = kDots % 4;
#pragma GCC unroll 2
  for (int i = 0; i + 4 <= kDots; i += 4) SumsOfLanes<4>(d, sum + i, sums + i);
  if constexpr (kLast > 0) SumsOfLanes<kLast>(d, sum + kDots - kLast, sums + kDots - kLast);
}

// Rows of a that share what is loaded of kCount rows of x, as the registers allow. For one row of x
// few rows of a are read from memory faster than many, as measured.
template <int kCount, class In>
constexpr int DotTileRows() {
#if HWY_TARGET == HWY_AVX3
  return kCount == 1 ? (sizeof(In) < 4 ? 4 : 2) : kCount == 2 ? 3 : 2;
#else
  return kCount == 1 && sizeof(In) > 1 ? 2 : 1;
#endif
}

// store(i, j, sum) for each row i < m of a and row j < n of x.
template <int kCount = cpu::kDotFactors, class T, class In, class Store>
HWY_INLINE void DotTiles(const In* a, int64_t lda, int64_t m, const T* x, int64_t ldx, int64_t n,
                         int64_t k, const Store& store) {
  constexpr int kTall = DotTileRows<kCount, In>();
  int64_t j = 0;
  for (; j + kCount <= n; j += kCount) {
    int64_t i = 0;
    const auto tiles = [&]<int kRowCount>() HWY_ATTR {
      T sums[kRowCount * kCount];
      for (; i + kRowCount <= m; i += kRowCount) {
        DotTile<kRowCount, kCount>(a + i * lda, lda, x + j * ldx, ldx, k, sums);
        for (int r = 0; r < kRowCount; ++r) {
          for (int f = 0; f < kCount; ++f) store(i + r, j + f, sums[r * kCount + f]);
        }
      }
    };
    tiles.template operator()<kTall>();
    if constexpr (kTall > 1) tiles.template operator()<1>();
  }
  if constexpr (kCount > 1) {
    DotTiles<kCount - 1>(a, lda, m, x + j * ldx, ldx, n - j, k,
                         [&](int64_t i, int64_t f, T sum) HWY_ATTR { store(i, j + f, sum); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_GEMM_DOT_INL_H_
