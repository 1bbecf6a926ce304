// SPDX-License-Identifier: MIT
// Products of a vector with a matrix whose rows have few elements: several rows fill a vector.

#if defined(HOLOGRAM_CPU_GEMM_SHORT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_CPU_GEMM_SHORT_ROWS_INL_H_
#undef HOLOGRAM_CPU_GEMM_SHORT_ROWS_INL_H_
#else
#define HOLOGRAM_CPU_GEMM_SHORT_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "src/cpu/gemm/dot-inl.h"
#include "src/cpu/gemm/vector_kernels.h"
#include "src/cpu/movement/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Words as wide as T hold one element of type In or several; this gives those at place kPlace.
template <class In, int kPlace, class D, class W>
HWY_INLINE hn::Vec<D> ElementsOfWords(D d, W words) {
  if constexpr (std::is_same_v<In, hn::TFromD<D>>) {
    return hn::BitCast(d, words);
  } else if constexpr (std::is_same_v<In, int8_t>) {
    const hn::RebindToSigned<D> whole;
    const auto top = hn::ShiftLeft<24 - 8 * kPlace>(hn::BitCast(whole, words));
    return hn::ConvertTo(d, hn::ShiftRight<24>(top));
  } else if constexpr (std::is_same_v<In, hwy::bfloat16_t>) {
    if constexpr (kPlace == 0) return hn::BitCast(d, hn::ShiftLeft<16>(words));
    return hn::BitCast(d, hn::And(words, hn::Set(hn::RebindToUnsigned<D>(), 0xFFFF0000u)));
  } else {
    const auto low = hn::TruncateTo(hn::Rebind<uint16_t, D>(), hn::ShiftRight<16 * kPlace>(words));
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<In, D>(), low));
  }
}

// y[i] = row i of a . x, i < m, for rows of k <= kLongestShortRow elements. A vector's worth of
// rows is turned into columns in registers, 16 bytes of each row at a time. The last 16 bytes of a
// row overlap those before: what was added already, or lies behind a shorter row, is masked away,
// and 0 times -0 changes no sum. Each sum is one chain of multiply-adds in the order of the
// columns, whatever In is.
template <class T, class In>
void DotShortRows(const In* a, int64_t lda, const T* x, int64_t m, int64_t k, T* y) {
  // Of 32 bytes: two loads of 16 fill one without a shuffle, and two are done at a time.
  const hn::CappedTag<T, 32 / sizeof(T)> d;
  const hn::RebindToUnsigned<decltype(d)> dw;
  using Word = hn::TFromD<decltype(dw)>;
  using V = hn::Vec<decltype(d)>;
  using W = hn::Vec<decltype(dw)>;
  constexpr int64_t kTall = static_cast<int64_t>(hn::MaxLanes(d));
  constexpr int kWords = 16 / static_cast<int>(sizeof(T));
  constexpr int kPer = static_cast<int>(sizeof(T) / sizeof(In));
  constexpr int64_t kWide = kWords * kPer;
  const int64_t whole = (k - 1) / kWide;  // blocks before the last one
  const int64_t last = std::max<int64_t>(k - kWide, 0);
  // Of the last block, columns [from, to) are new.
  const int64_t from = whole * kWide - last, to = k - last;
  const int64_t first_word = from / kPer, end_word = (to - 1) / kPer + 1;
  HWY_ALIGN T factors[cpu::kLongestShortRow + kWide];
  std::copy_n(x, whole * kWide, factors);
  HWY_ALIGN In bits[kWide];
  std::memset(static_cast<void*>(bits), 0, sizeof(bits));
  std::memset(static_cast<void*>(bits + from), 0xFF, static_cast<size_t>(to - from) * sizeof(In));
  for (int64_t c = 0; c < kWide; ++c) {
    factors[whole * kWide + c] = c >= from && c < to ? x[last + c] : T(-0.0);
  }
  Word mask[kWords];
  std::memcpy(mask, bits, sizeof(mask));

  // Adds the columns of a block, of the rows from `rows` on, times their factors.
  const auto add_block = [&](const In* rows, int64_t ld, const T* factor, bool is_last,
                             V sum) HWY_ATTR {
    W r[kWords], columns[kWords];
#pragma GCC unroll 4
    for (int i = 0; i < kWords; ++i) {
      r[i] = LoadBlocks(dw, [=](int b) HWY_ATTR {
        return reinterpret_cast<const Word*>(rows + (i + b * kWords) * ld);
      });
    }
    TurnSquares(dw, r, columns);
#pragma GCC unroll 4
    for (int i = 0; i < kWords; ++i) {
      if (is_last) {
        if (kPer > 1 && (i < first_word || i >= end_word)) continue;  // saves conversions
        columns[i] = hn::And(columns[i], hn::Set(dw, mask[i]));
      }
      const T* const f = factor + i * kPer;
      sum = hn::MulAdd(ElementsOfWords<In, 0>(d, columns[i]), hn::Set(d, f[0]), sum);
      if constexpr (kPer > 1) {
        sum = hn::MulAdd(ElementsOfWords<In, 1>(d, columns[i]), hn::Set(d, f[1]), sum);
      }
      if constexpr (kPer > 2) {
        sum = hn::MulAdd(ElementsOfWords<In, 2>(d, columns[i]), hn::Set(d, f[2]), sum);
        sum = hn::MulAdd(ElementsOfWords<In, 3>(d, columns[i]), hn::Set(d, f[3]), sum);
      }
    }
    return sum;
  };
  // Several times kTall rows at once, for a sum waits for its last addition.
  const auto dot = [&]<int kGroups>(const In* rows, int64_t ld, V* sum) HWY_ATTR {
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) sum[g] = hn::Zero(d);
    for (int64_t b = 0; b < whole; ++b) {
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) {
        sum[g] =
            add_block(rows + g * kTall * ld + b * kWide, ld, factors + b * kWide, false, sum[g]);
      }
    }
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      sum[g] = add_block(rows + g * kTall * ld + last, ld, factors + whole * kWide, true, sum[g]);
    }
  };

  // Rows after which 16 bytes may be read.
  const int64_t beyond = k < kWide ? (kWide - k + lda - 1) / lda : 0;
  int64_t i = 0;
  const auto dots = [&]<int kGroups>() HWY_ATTR {
    for (; i + kGroups * kTall + beyond <= m; i += kGroups * kTall) {
      V sum[kGroups];
      dot.template operator()<kGroups>(a + i * lda, lda, sum);
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) hn::StoreU(sum[g], d, y + i + g * kTall);
    }
  };
  if (whole > 0) dots.template operator()<2>();
  dots.template operator()<1>();
  for (; i < m; i += kTall) {
    constexpr int64_t kRoom = cpu::kLongestShortRow + kWide;
    HWY_ALIGN In rows[kTall * kRoom];
    const int64_t here = std::min(kTall, m - i), ld = std::max(k, kWide);
    std::memset(static_cast<void*>(rows), 0, static_cast<size_t>(kTall * ld) * sizeof(In));
    for (int64_t r = 0; r < here; ++r) {
      std::memcpy(static_cast<void*>(rows + r * ld), a + (i + r) * lda,
                  static_cast<size_t>(k) * sizeof(In));
    }
    V sum;
    dot.template operator()<1>(rows, ld, &sum);
    StoreFirst(d, sum, y + i, here);
  }
}

// Vectors of sums that stay in registers, beside as many of indices.
#if HWY_TARGET == HWY_AVX3
constexpr int kShortSums = 8;
#else
constexpr int kShortSums = 4;
#endif
// Of the matrix, for each pass over a block of rows: half of the first cache.
constexpr int64_t kShortBlockBytes = 16384;

// As many rows as a vector has lanes are n vectors. sums[t], t < n, gets the products of the t-th
// of each group of rows with the elements of x that belong to its lanes.
template <int kVectors, class T, class In>
HWY_INLINE void AddGroups(const In* HWY_RESTRICT b, int64_t n, const T* HWY_RESTRICT x,
                          int64_t groups, const hwy::MakeSigned<T>* HWY_RESTRICT row,
                          T* HWY_RESTRICT sums) {
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;
  constexpr int64_t kTall = static_cast<int64_t>(hn::MaxLanes(d));
  hn::Vec<decltype(d)> sum[kVectors];
  decltype(hn::IndicesFromVec(d, hn::Zero(di))) index[kVectors];
#pragma GCC unroll 8
  for (int t = 0; t < kVectors; ++t) {
    sum[t] = hn::Load(d, sums + t * kTall);
    index[t] = hn::IndicesFromVec(d, hn::Load(di, row + t * kTall));
  }
  for (int64_t g = 0; g < groups; ++g, b += n * kTall, x += kTall) {
    const auto factors = hn::LoadU(d, x);
#pragma GCC unroll 8
    for (int t = 0; t < kVectors; ++t) {
      sum[t] = hn::MulAdd(LoadWidened(d, b + t * kTall), hn::TableLookupLanes(factors, index[t]),
                          sum[t]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kVectors; ++t) hn::Store(sum[t], d, sums + t * kTall);
}

template <int kVectors, class T, class In>
void AddLastGroups(int64_t vectors, const In* b, int64_t n, const T* x, int64_t groups,
                   const hwy::MakeSigned<T>* row, T* sums) {
  if constexpr (kVectors > 0) {
    if (vectors == kVectors) return AddGroups<kVectors>(b, n, x, groups, row, sums);
    AddLastGroups<kVectors - 1>(vectors, b, n, x, groups, row, sums);
  }
}

// y[j] += the sum of x[p] b[p * ldb + j] over p < k, j < n, for n of more than kVectors - 1 vectors
// and at most kVectors, of which the last may overlap the one before. The sums stay in registers,
// in several chains where there are few.
template <int kVectors, class T, class In>
void AddRowsOfVectors(const In* b, int64_t ldb, const T* x, int64_t k, int64_t n, T* y) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int64_t kTall = static_cast<int64_t>(hn::MaxLanes(d));
  constexpr int kChains = kVectors == 1 ? 4 : kVectors < 4 ? 2 : 1;
  const int64_t last = n - kTall;
  V sum[kChains * kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kChains * kVectors; ++i) sum[i] = hn::Zero(d);
  const auto add = [&](const In* row, T factor, V* to) HWY_ATTR {
    const V f = hn::Set(d, factor);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const In* const from = row + (v + 1 < kVectors ? v * kTall : last);
      to[v] = hn::MulAdd(f, LoadWidened(d, from), to[v]);
    }
  };
  int64_t p = 0;
  for (; p + kChains <= k; p += kChains) {
#pragma GCC unroll 4
    for (int c = 0; c < kChains; ++c) add(b + (p + c) * ldb, x[p + c], sum + c * kVectors);
  }
  for (; p < k; ++p) add(b + p * ldb, x[p], sum);
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
    for (int c = 1; c < kChains; ++c) sum[v] = hn::Add(sum[v], sum[c * kVectors + v]);
  }
  // The last one first: what it has of those before is replaced.
  const V end = hn::Add(hn::LoadU(d, y + last), sum[kVectors - 1]);
  V whole[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v + 1 < kVectors; ++v) whole[v] = hn::Add(hn::LoadU(d, y + v * kTall), sum[v]);
  hn::StoreU(end, d, y + last);
#pragma GCC unroll 8
  for (int v = 0; v + 1 < kVectors; ++v) hn::StoreU(whole[v], d, y + v * kTall);
}

// With as few vectors, at most kVectors, as n columns take.
template <int kVectors, class T, class In>
void AddRowsOfUpTo(const In* b, int64_t ldb, const T* x, int64_t k, int64_t n, T* y) {
  constexpr int64_t kTall = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
  if constexpr (kVectors > 1) {
    if (n <= (kVectors - 1) * kTall) {
      return AddRowsOfUpTo<kVectors - 1>(b, ldb, x, k, n, y);
    }
  }
  AddRowsOfVectors<kVectors>(b, ldb, x, k, n, y);
}

// The same for n less than a vector: several rows in one, a chain for each of its lanes, whatever
// ldb is.
template <class T, class In>
void AddRowsInVectors(const In* b, int64_t ldb, const T* x, int64_t k, int64_t n, T* y) {
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;
  using Index = hn::TFromD<decltype(di)>;
  constexpr int64_t kTall = static_cast<int64_t>(hn::MaxLanes(d));
  HWY_ALIGN Index row[kTall * kTall];
  HWY_ALIGN T sums[kTall * kTall];
  Index r = 0, c = 0;
  for (int64_t i = 0; i < n * kTall; ++i) {
    row[i] = r, sums[i] = T(0);
    if (++c == n) c = 0, ++r;
  }
  const auto add = [&](const auto* rows, const T* factors, int64_t groups) HWY_ATTR {
    constexpr int kMost = static_cast<int>(std::min<int64_t>(kShortSums, kTall - 1));
    int64_t t = 0;
    for (; t + kMost <= n; t += kMost) {
      AddGroups<kMost>(rows + t * kTall, n, factors, groups, row + t * kTall, sums + t * kTall);
    }
    AddLastGroups<kMost - 1>(n - t, rows + t * kTall, n, factors, groups, row + t * kTall,
                             sums + t * kTall);
  };
  // A block of rows, side by side and as T; a vector more may be written.
  constexpr int64_t kBlock = kShortBlockBytes / static_cast<int64_t>(sizeof(T));
  constexpr int64_t kRoom = std::max(kBlock, kTall * kTall) + kTall;
  HWY_ALIGN T dense[kRoom];
  const int64_t end_of_b = (k - 1) * ldb + n;
  const auto gather = [&](int64_t p, int64_t rows) HWY_ATTR {
    T* to = dense;
    for (int64_t i = p; i < p + rows; ++i, to += n) {
      // What is stored behind a row is overwritten by the next.
      const In* const from = b + i * ldb;
      hn::StoreU(i * ldb + kTall <= end_of_b ? LoadWidened(d, from) : LoadWidenedFirst(d, from, n),
                 d, to);
    }
    return to;
  };
  const int64_t groups = k / kTall, at_once = std::max<int64_t>(1, kBlock / (n * kTall));
  for (int64_t g = 0; g < groups; g += at_once) {
    const int64_t here = std::min(at_once, groups - g), p = g * kTall;
    if (ldb == n) {
      add(b + p * n, x + p, here);
    } else {
      gather(p, here * kTall);
      add(static_cast<const T*>(dense), x + p, here);
    }
  }
  if (const int64_t p = groups * kTall; p < k) {
    HWY_ALIGN T factors[kTall] = {};
    std::copy_n(x + p, k - p, factors);
    T* const end = gather(p, k - p);
    std::fill(end, dense + n * kTall, T(0));
    add(static_cast<const T*>(dense), factors, 1);
  }
  for (int64_t i = 0; i < kTall; ++i) {
    for (int64_t j = 0; j < n; ++j) y[j] += sums[i * n + j];
  }
}

// The same for n <= kLongestShortRow.
template <class T, class In>
void AddShortRows(const In* b, int64_t ldb, const T* x, int64_t k, int64_t n, T* y) {
  constexpr int64_t kTall = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
  if (n < kTall) return AddRowsInVectors(b, ldb, x, k, n, y);
  // Eight vectors at once; of more, the last ones are not too few to overlap.
  constexpr int64_t kMost = 8 * kTall;
  for (; n > kMost + kTall; n -= kMost, b += kMost, y += kMost) {
    AddRowsOfVectors<8>(b, ldb, x, k, kMost, y);
  }
  if (n > kMost) {
    AddRowsOfVectors<4>(b, ldb, x, k, kMost / 2, y);
    n -= kMost / 2, b += kMost / 2, y += kMost / 2;
  }
  AddRowsOfUpTo<8>(b, ldb, x, k, n, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_GEMM_SHORT_ROWS_INL_H_
