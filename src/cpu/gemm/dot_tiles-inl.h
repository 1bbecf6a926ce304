// SPDX-License-Identifier: MIT
// Dot products of many rows with a few: tiles of both whose sums stay in registers, while the rows
// that follow are fetched.

#if defined(HOLOGRAM_CPU_GEMM_DOT_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_CPU_GEMM_DOT_TILES_INL_H_
#undef HOLOGRAM_CPU_GEMM_DOT_TILES_INL_H_
#else
#define HOLOGRAM_CPU_GEMM_DOT_TILES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/cpu/gemm/dot-inl.h"
#include "src/cpu/gemm/gemm_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Few rows that are multiplied while others are read once, at most. More are cut into parts of
// nearly the same size.
constexpr int kTileFactors = 6;
HWY_INLINE int64_t FactorParts(int64_t n) { return (n + kTileFactors - 1) / kTileFactors; }

// Rows that share what is loaded of kCount others, as the registers allow. More are read from
// memory more slowly, as measured.
template <int kCount>
constexpr int TileRows() {
#if HWY_TARGET == HWY_AVX3
  return 4;
#else
  return kCount <= 2 ? 4 : 2;
#endif
}

// How elements are loaded and multiplied: those of the many rows, of type In, become vectors of T.
template <class T, class InType>
struct WidenedDots {
  using In = InType;
  using Factor = T;
  using Result = T;
  using Tag = hn::ScalableTag<T>;
  using Row = hn::Vec<Tag>;
  using Sum = hn::Vec<Tag>;
  static constexpr int kVector = static_cast<int>(hn::MaxLanes(Tag()));

  template <int kCount>
  static constexpr int rows() {
    return TileRows<kCount>();
  }
  static HWY_INLINE Row load(const In* from) { return LoadWidened(Tag(), from); }
  static HWY_INLINE Row load_first(const In* from, int64_t n) {
    return LoadWidenedFirst(Tag(), from, n);
  }
  static HWY_INLINE Row factor(const T* from) { return hn::LoadU(Tag(), from); }
  static HWY_INLINE Row factor_first(const T* from, int64_t n) { return LoadFirst(Tag(), from, n); }
  static HWY_INLINE Sum add(Row a, Row x, Sum sum) { return MulAddOf(a, x, sum); }
};

// sums[r * kCount + f] = row[r] . row f of x, whose vectors lie x_row apart, those of a row x_step.
// With each vector of the rows, the lines at `next` are fetched, which moves on by `fetched` bytes.
template <class Kind, int kRows, int kCount>
HWY_INLINE void DotTileOf(const typename Kind::In* const* row, const typename Kind::Factor* x,
                          int64_t x_row, int64_t x_step, int64_t k, const char* next,
                          int64_t fetched, typename Kind::Result* sums) {
  using Sum = typename Kind::Sum;
  constexpr int kDots = kRows * kCount, kLast = kDots % 4;
  constexpr int kBytes = kRows * Kind::kVector * static_cast<int>(sizeof(typename Kind::In));
  constexpr int kLines = (kBytes + 63) / 64;
  const hn::ScalableTag<typename Kind::Result> d;
  Sum sum[kDots];
#pragma GCC unroll 24
  for (int i = 0; i < kDots; ++i) sum[i] = hn::Zero(d);
  int64_t p = 0;
  for (; p + Kind::kVector <= k; p += Kind::kVector, x += x_step, next += fetched) {
#pragma GCC unroll 4
    for (int i = 0; i < kLines; ++i) __builtin_prefetch(next + 64 * i, 0, kIntoL2);
    typename Kind::Row a[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) a[r] = Kind::load(row[r] + p);
#pragma GCC unroll 6
    for (int f = 0; f < kCount; ++f) {
      const auto factor = Kind::factor(x + f * x_row);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        sum[r * kCount + f] = Kind::add(a[r], factor, sum[r * kCount + f]);
      }
    }
  }
  if (p < k) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const auto a = Kind::load_first(row[r] + p, k - p);
#pragma GCC unroll 6
      for (int f = 0; f < kCount; ++f) {
        sum[r * kCount + f] =
            Kind::add(a, Kind::factor_first(x + f * x_row, k - p), sum[r * kCount + f]);
      }
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i + 4 <= kDots; i += 4) SumsOfLanes<4>(d, sum + i, sums + i);
  if constexpr (kLast > 0) SumsOfLanes<kLast>(d, sum + kDots - kLast, sums + kDots - kLast);
}

// kRows rows from i on, fewer at the end, with the kCount factors from j on. part, of parts: which
// of the rows that follow is fetched.
template <class Kind, int kRows, int kCount, class Dots>
void StoreDots(const Dots& g, int64_t i, int64_t j, int64_t part, int64_t parts) {
  using T = typename Kind::Result;
  using In = typename Kind::In;
  constexpr int64_t kSize = sizeof(In), kVector = Kind::kVector;
  const int64_t rows = std::min<int64_t>(kRows, g.m - i);
  const In* const a = static_cast<const In*>(g.a) + i * g.lda;
  const In* row[kRows];
  for (int r = 0; r < kRows; ++r) row[r] = a + std::min<int64_t>(r, rows - 1) * g.lda;
  const bool fetches = g.lda == g.k && g.m * g.k * kSize >= kFetchedBytes;
  const int64_t ahead = fetches ? kRows * g.k * kSize * (parts + part) / parts : 0;
  const int64_t fetched = fetches ? kRows * kVector * kSize / parts : 0;
  const int64_t padded = (g.k + kVector - 1) / kVector * kVector;
  T sums[kRows * kCount];
  DotTileOf<Kind, kRows, kCount>(row, g.x + j * (g.packed ? padded : g.ldx),
                                 g.packed ? kVector : g.ldx, g.packed ? kCount * kVector : kVector,
                                 g.k, reinterpret_cast<const char*>(a) + ahead, fetched, sums);
  for (int64_t r = 0; r < rows; ++r) {
    for (int f = 0; f < kCount; ++f) {
      T& to = g.y[(i + r) * g.y_row + (j + f) * g.y_col];
      const T sum = sums[r * kCount + f];
      to = g.beta != T(0) ? g.alpha * sum + g.beta * to : g.alpha * sum;
    }
  }
}

// All rows from i on that are computed together, with `count` factors, 1 to kCount; how many.
template <class Kind, int kCount = kTileFactors, class Dots>
int64_t DotsOfFactors(const Dots& g, int64_t i, int64_t j, int64_t count, int64_t part,
                      int64_t parts) {
  if constexpr (kCount > 1) {
    if (count < kCount) return DotsOfFactors<Kind, kCount - 1>(g, i, j, count, part, parts);
  }
  constexpr int kRows = Kind::template rows<kCount>();
  StoreDots<Kind, kRows, kCount>(g, i, j, part, parts);
  return kRows;
}

template <class Kind, class Dots>
void AllDots(const Dots& g) {
  const int64_t parts = FactorParts(g.n);
  int64_t rows = 0;
  for (int64_t i = 0; i < g.m; i += rows) {
    // Parts are as wide as each other, or of three factors at least, so that all have as many rows.
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t j = g.n * part / parts, count = g.n * (part + 1) / parts - j;
      rows = DotsOfFactors<Kind>(g, i, j, count, part, parts);
    }
  }
}

// Copies n rows of k elements, ldx apart, in the order in which tiles read them, with zeros after
// each row's last vector.
template <class T>
void PackFactors(const T* x, int64_t ldx, int64_t n, int64_t k, int64_t vector, T* to) {
  const int64_t parts = FactorParts(n);
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t j = n * part / parts, count = n * (part + 1) / parts - j;
    for (int64_t p = 0; p < k; p += vector) {
      const int64_t here = std::min(vector, k - p);
      for (int64_t f = 0; f < count; ++f, to += vector) {
        std::fill_n(std::copy_n(x + (j + f) * ldx + p, here, to), vector - here, T(0));
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_GEMM_DOT_TILES_INL_H_
