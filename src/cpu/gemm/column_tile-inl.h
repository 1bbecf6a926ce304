// SPDX-License-Identifier: MIT
// Products with one or two columns: the lanes of a vector are rows of A, which are transposed in
// registers.

#if defined(HOLOGRAM_CPU_GEMM_COLUMN_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_CPU_GEMM_COLUMN_TILE_INL_H_
#undef HOLOGRAM_CPU_GEMM_COLUMN_TILE_INL_H_
#else
#define HOLOGRAM_CPU_GEMM_COLUMN_TILE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/cpu/gemm/dot-inl.h"
#include "src/cpu/gemm/gemm_kernels.h"
#include "src/cpu/movement/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Columns j to j + kCount of C, for kVectors vectors of rows from row i on. The first `done` of the
// rows are left as they are. Every element is the chain of multiply-adds that panel() computes.
template <class T, int kVectors, int kCount>
void ColumnTile(const cpu::GemmPanel<T>& g, int64_t i, int64_t j, int64_t done) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  constexpr int kSide = 16 / static_cast<int>(sizeof(T));
  const int64_t row = g.row;
  const T* a = g.a + i * row;
  const T* b = g.b + j;
  V sum[kVectors * kCount];
#pragma GCC unroll 4
  for (int s = 0; s < kVectors * kCount; ++s) sum[s] = hn::Zero(d);
  int64_t p = 0;
  for (; p + kSide <= g.k; p += kSide, a += kSide) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const T* const first = a + v * kLanes * row;
      V rows[kSide], turned[kSide];
#pragma GCC unroll 4
      for (int r = 0; r < kSide; ++r) {
        rows[r] =
            LoadBlocks(d, [&](int block) HWY_ATTR { return first + (block * kSide + r) * row; });
      }
      TurnSquares(d, rows, turned);
#pragma GCC unroll 4
      for (int q = 0; q < kSide; ++q) {
#pragma GCC unroll 2
        for (int c = 0; c < kCount; ++c) {
          V& to = sum[v * kCount + c];
          to = MulAddOf(turned[q], hn::Set(d, b[q * g.ldb + c]), to);
        }
      }
    }
    b += kSide * g.ldb;
  }
  HWY_ALIGN T lanes[kLanes];
  for (; p < g.k; ++p, ++a, b += g.ldb) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      for (int r = 0; r < kLanes; ++r) lanes[r] = a[(v * kLanes + r) * row];
      const V column = hn::Load(d, lanes);
#pragma GCC unroll 2
      for (int c = 0; c < kCount; ++c) {
        V& to = sum[v * kCount + c];
        to = MulAddOf(column, hn::Set(d, b[c]), to);
      }
    }
  }
  const V scale = hn::Set(d, g.alpha), keep = hn::Set(d, g.beta);
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 2
    for (int c = 0; c < kCount; ++c) {
      T* const to = g.c + (i + v * kLanes) * g.ldc + j + c;
      V value = hn::Mul(sum[v * kCount + c], scale);
      if (g.bias != nullptr) value = hn::Add(value, hn::LoadU(d, g.bias + i + v * kLanes));
      if (g.beta != T(0)) {
        for (int r = 0; r < kLanes; ++r) lanes[r] = to[r * g.ldc];
        value = MulAddOf(hn::Load(d, lanes), keep, value);
      }
      hn::Store(value, d, lanes);
      for (int64_t r = v == 0 ? done : 0; r < kLanes; ++r) to[r * g.ldc] = lanes[r];
    }
  }
}

// Columns j to j + kCount of C. The last vector of rows overlaps the one before it.
template <class T, int kVectors, int kCount>
void ColumnTiles(const cpu::GemmPanel<T>& g, int64_t j) {
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
  int64_t i = 0;
  for (; i + kVectors * kLanes <= g.m; i += kVectors * kLanes) {
    ColumnTile<T, kVectors, kCount>(g, i, j, 0);
  }
  for (; i + kLanes <= g.m; i += kLanes) ColumnTile<T, 1, kCount>(g, i, j, 0);
  if (i < g.m) ColumnTile<T, 1, kCount>(g, g.m - kLanes, j, i - (g.m - kLanes));
}

template <class T, int kVectors>
void AllColumns(const cpu::GemmPanel<T>& g) {
  int64_t j = 0;
  for (; j + 2 <= g.n; j += 2) ColumnTiles<T, kVectors, 2>(g, j);
  if (j < g.n) ColumnTiles<T, kVectors, 1>(g, j);
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_GEMM_COLUMN_TILE_INL_H_
