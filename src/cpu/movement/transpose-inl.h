// SPDX-License-Identifier: MIT
// Transposes matrices of 4- and 8-byte elements through registers; GEMM's packing and strided
// copies use it.

#if defined(HOLOGRAM_CPU_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_CPU_TRANSPOSE_INL_H_
#undef HOLOGRAM_CPU_TRANSPOSE_INL_H_
#else
#define HOLOGRAM_CPU_TRANSPOSE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A vector of blocks of 16 bytes; at(i) is where the i-th lies.
template <class D, class At>
HWY_INLINE hn::Vec<D> LoadBlocks(D d, At&& at) {
  constexpr size_t kBytes = hn::MaxLanes(D()) * sizeof(hn::TFromD<D>);
  if constexpr (kBytes == 16) {
    return hn::LoadU(d, at(0));
  } else if constexpr (kBytes == 32) {
    const hn::Half<D> half;
    return hn::Combine(d, hn::LoadU(half, at(1)), hn::LoadU(half, at(0)));
  } else {
#if HWY_TARGET == HWY_AVX3
    // A load that is broadcast under a mask needs no unit that shuffles.
    const hn::Repartition<int64_t, D> wide;
    const auto block = [&](int i) HWY_ATTR {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at(i)));
    };
    __m512i v = _mm512_broadcast_i64x2(block(0));
    v = _mm512_mask_broadcast_i64x2(v, 0x0C, block(1));
    v = _mm512_mask_broadcast_i64x2(v, 0x30, block(2));
    v = _mm512_mask_broadcast_i64x2(v, 0xC0, block(3));
    return hn::BitCast(d, hn::Vec<decltype(wide)>{v});
#endif
  }
}

// Transposes, in each block of 16 bytes of four (of 8 bytes: two) vectors, the square that the
// blocks at its place make up.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void TurnSquares(D d, const hn::Vec<D>* r, hn::Vec<D>* to) {
  if constexpr (sizeof(T) == 8) {
    to[0] = hn::InterleaveLower(d, r[0], r[1]);
    to[1] = hn::InterleaveUpper(d, r[0], r[1]);
  } else {
    static_assert(sizeof(T) == 4);
    const auto low02 = hn::InterleaveLower(d, r[0], r[2]);
    const auto low13 = hn::InterleaveLower(d, r[1], r[3]);
    const auto high02 = hn::InterleaveUpper(d, r[0], r[2]);
    const auto high13 = hn::InterleaveUpper(d, r[1], r[3]);
    to[0] = hn::InterleaveLower(d, low02, low13);
    to[1] = hn::InterleaveUpper(d, low02, low13);
    to[2] = hn::InterleaveLower(d, high02, high13);
    to[3] = hn::InterleaveUpper(d, high02, high13);
  }
}

// Stores them ld apart.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void StoreSquares(D d, const hn::Vec<D>* r, T* to, int64_t ld) {
  constexpr int kSide = 16 / static_cast<int>(sizeof(T));
  hn::Vec<D> turned[kSide];
  TurnSquares(d, r, turned);
#pragma GCC unroll 4
  for (int i = 0; i < kSide; ++i) hn::StoreU(turned[i], d, to + i * ld);
}

// A vector's worth of rows, by as many columns as 16 bytes hold.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void TransposeRows(D d, const T* from, int64_t ld, T* to, int64_t ld_to) {
  constexpr int kSide = 16 / static_cast<int>(sizeof(T));
  hn::Vec<D> rows[kSide];
#pragma GCC unroll 4
  for (int i = 0; i < kSide; ++i) {
    rows[i] = LoadBlocks(d, [=](int b) HWY_ATTR { return from + (i + b * kSide) * ld; });
  }
  StoreSquares(d, rows, to, ld_to);
}

// to[p * ld_to + i] = from[i * ld + p] for i < rows, p < k. They do not overlap.
template <class T>
void Transpose(const T* from, int64_t ld, int64_t rows, int64_t k, T* HWY_RESTRICT to,
               int64_t ld_to) {
  const hn::ScalableTag<T> d;
  const hn::Full128<T> block;
  constexpr int64_t kSide = 16 / static_cast<int64_t>(sizeof(T));
  constexpr int64_t kTall = static_cast<int64_t>(hn::MaxLanes(d));
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  const int64_t tall_rows = rows - rows % kTall, square_rows = rows - rows % kSide;
  const int64_t square_k = k - k % kSide;
  // Cache lines of rows whose distance is a power of two push each other out: each is read to its
  // end at once.
  for (int64_t q = 0; q < square_k; q += kLine) {
    const int64_t end = std::min(q + kLine, square_k);
    for (int64_t i = 0; i < tall_rows; ++i) __builtin_prefetch(from + i * ld + q + 2 * kLine);
    for (int64_t i = 0; i < tall_rows; i += kTall) {
      for (int64_t p = q; p < end; p += kSide) {
        TransposeRows(d, from + i * ld + p, ld, to + p * ld_to + i, ld_to);
      }
    }
    for (int64_t i = tall_rows; i < square_rows; i += kSide) {
      for (int64_t p = q; p < end; p += kSide) {
        TransposeRows(block, from + i * ld + p, ld, to + p * ld_to + i, ld_to);
      }
    }
    for (int64_t i = square_rows; i < rows; ++i) {
      for (int64_t p = q; p < end; ++p) to[p * ld_to + i] = from[i * ld + p];
    }
  }
  for (int64_t p = square_k; p < k; ++p) {
    for (int64_t i = 0; i < rows; ++i) to[p * ld_to + i] = from[i * ld + p];
  }
}

// to[p * rows + i] = from[i * ld + p] for i < rows, p < k, rows at most kMost. What lies behind,
// less than a vector, is overwritten with anything.
template <int kMost, class T>
void TransposeDense(const T* from, int64_t ld, int64_t rows, int64_t k, T* HWY_RESTRICT to) {
  const hn::ScalableTag<T> d;
  constexpr int kSide = 16 / static_cast<int>(sizeof(T));
  constexpr int kTall = static_cast<int>(hn::MaxLanes(d));
  constexpr int kVectors = (kMost + kTall - 1) / kTall;
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  // Rows that are not there are read as the last one.
  const T* row[kVectors * kTall];
  for (int i = 0; i < kVectors * kTall; ++i) row[i] = from + std::min<int64_t>(i, rows - 1) * ld;
  const int vectors = static_cast<int>((rows + kTall - 1) / kTall);
  int64_t p = 0;
  for (; p + kSide <= k; p += kSide, to += kSide * rows) {
    if (p % kLine == 0) {
      for (int i = 0; i < rows; ++i) __builtin_prefetch(row[i] + p + 2 * kLine);
    }
    // From the last vector to the first, and column after column: each store ends in a place that
    // is written later.
    for (int v = vectors - 1; v >= 0; --v) {
      hn::Vec<decltype(d)> r[kSide];
#pragma GCC unroll 4
      for (int i = 0; i < kSide; ++i) {
        r[i] = LoadBlocks(d, [&](int b) HWY_ATTR { return row[v * kTall + i + b * kSide] + p; });
      }
      StoreSquares(d, r, to + v * kTall, rows);
    }
  }
  for (; p < k; ++p, to += rows) {
    for (int64_t i = 0; i < rows; ++i) to[i] = row[i][p];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_TRANSPOSE_INL_H_
