// SPDX-License-Identifier: MIT
// Transposes matrices of 4- and 8-byte elements through registers of 128 bits; GEMM's packing and
// strided copies use it.

#if defined(HOLOGRAM_CPU_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_CPU_TRANSPOSE_INL_H_
#undef HOLOGRAM_CPU_TRANSPOSE_INL_H_
#else
#define HOLOGRAM_CPU_TRANSPOSE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Four (of 8 bytes: two) rows by as many columns.
template <class T>
HWY_INLINE void TransposeSquare(const T* from, int64_t ld, T* to, int64_t ld_to) {
  const hn::Full128<T> d;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + ld);
  if constexpr (sizeof(T) == 8) {
    hn::StoreU(hn::InterleaveLower(d, r0, r1), d, to);
    hn::StoreU(hn::InterleaveUpper(d, r0, r1), d, to + ld_to);
  } else {
    static_assert(sizeof(T) == 4);
    const auto r2 = hn::LoadU(d, from + 2 * ld), r3 = hn::LoadU(d, from + 3 * ld);
    const auto low02 = hn::InterleaveLower(d, r0, r2), low13 = hn::InterleaveLower(d, r1, r3);
    const auto high02 = hn::InterleaveUpper(d, r0, r2), high13 = hn::InterleaveUpper(d, r1, r3);
    hn::StoreU(hn::InterleaveLower(d, low02, low13), d, to);
    hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, to + ld_to);
    hn::StoreU(hn::InterleaveLower(d, high02, high13), d, to + 2 * ld_to);
    hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, to + 3 * ld_to);
  }
}

// to[p * ld_to + i] = from[i * ld + p] for i < rows, p < k. They do not overlap.
template <class T>
void Transpose(const T* from, int64_t ld, int64_t rows, int64_t k, T* HWY_RESTRICT to,
               int64_t ld_to) {
  constexpr int64_t kSide = 16 / static_cast<int64_t>(sizeof(T));
  const int64_t square_rows = rows - rows % kSide, square_k = k - k % kSide;
  for (int64_t p = 0; p < square_k; p += kSide) {
    for (int64_t i = 0; i < square_rows; i += kSide) {
      TransposeSquare(from + i * ld + p, ld, to + p * ld_to + i, ld_to);
    }
    for (int64_t i = square_rows; i < rows; ++i) {
      for (int64_t q = p; q < p + kSide; ++q) to[q * ld_to + i] = from[i * ld + q];
    }
  }
  for (int64_t p = square_k; p < k; ++p) {
    for (int64_t i = 0; i < rows; ++i) to[p * ld_to + i] = from[i * ld + p];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_TRANSPOSE_INL_H_
