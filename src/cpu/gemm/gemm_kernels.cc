// SPDX-License-Identifier: MIT
// The register tile of the built-in GEMM and its packing, for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/gemm/gemm_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "hwy/highway.h"
#include "src/cpu/simd/simd_tail-inl.h"
#include "src/cpu/gemm/column_tile-inl.h"
#include "src/cpu/gemm/dot_tiles-inl.h"
#include "src/cpu/movement/transpose-inl.h"
#include "src/cpu/gemm/gemm_kernels.h"
// clang-format on

#include <algorithm>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// Two vectors of columns; as many rows as leave registers for them and one broadcast.
#if HWY_TARGET == HWY_AVX3
constexpr int kRows = 14;
#elif HWY_TARGET == HWY_AVX2
constexpr int kRows = 6;
#else
constexpr int kRows = 4;
#endif

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
constexpr int64_t kCols = 2 * static_cast<int64_t>(hn::MaxLanes(Tag<T>()));

// How far ahead the rows of a panel are fetched that is copied.
constexpr int64_t kRowsAhead = 32;

// Rows that lie a multiple of kSetBytes apart share one set of the first-level cache. A set has
// room for a line of kNearRows such rows beside the line of B that they are multiplied by.
constexpr int64_t kSetBytes = 4096;
constexpr int64_t kNearRows = std::min(kRows, 7);

// Columns of A that are packed at a time. The first-level cache has room for their lines even where
// all of these share one set.
constexpr int64_t kNearColumns = 8;

// Cuts the rows of a block into tiles of nearly equal height: the cost of a tile is its rows.
template <class F>
HWY_INLINE void ForTiles(int64_t m, int64_t most, F&& f) {
  const int64_t count = (m + most - 1) / most, height = m / count, taller = m % count;
  int64_t i = 0;
  for (int64_t t = 0; t < count; ++t) {
    const int64_t rows = height + (t < taller ? 1 : 0);
    f(i, rows);
    i += rows;
  }
}

// Copies `count` columns of `rows` contiguous elements, which lie col apart, one after the other.
template <class T, int kRowCount = kRows>
void CopyColumns(int64_t rows, const T* from, int64_t col, int64_t count, T* HWY_RESTRICT to) {
  if (rows == kRowCount) {
    for (int64_t p = 0; p < count; ++p, from += col, to += kRowCount) {
      __builtin_memcpy(to, from, kRowCount * sizeof(T));
    }
    return;
  }
  if constexpr (kRowCount > 1) CopyColumns<T, kRowCount - 1>(rows, from, col, count, to);
}

template <class T>
void PackA(const T* a, int64_t row, int64_t col, int64_t m, int64_t k, T* HWY_RESTRICT to) {
  if (col == 1) {
    ForTiles(m, kRows, [&](int64_t i, int64_t rows) HWY_ATTR {
      // What this writes behind the tile is written again by the next one.
      if (i + rows < m) {
        TransposeDense<kRows>(a + i * row, row, rows, k, to + i * k);
      } else {
        Transpose(a + i * row, row, rows, k, to + i * k, rows);
      }
    });
    return;
  }
  // Of a few columns all tiles take their parts while these are in L1.
  for (int64_t p = 0; p < k; p += kNearColumns) {
    ForTiles(m, kRows, [&](int64_t i, int64_t rows) HWY_ATTR {
      CopyColumns<T>(rows, a + i + p * col, col, std::min(kNearColumns, k - p),
                     to + i * k + p * rows);
    });
  }
}

template <class T>
void PackB(const T* b, int64_t row, int64_t col, int64_t k, int64_t n, T* HWY_RESTRICT to) {
  constexpr int64_t kWidth = kCols<T>;
  for (int64_t j = 0; j < n; j += kWidth, to += kWidth * k) {
    const T* from = b + j * col;
    const int64_t cols = std::min(kWidth, n - j);
    if (cols == kWidth && col == 1) {
      for (int64_t p = 0; p < k; ++p) {
        for (int64_t c = 0; c < kWidth; ++c) to[p * kWidth + c] = from[p * row + c];
      }
      continue;
    }
    if (row == 1) {
      Transpose(from, col, cols, k, to, kWidth);
    } else {
      for (int64_t p = 0; p < k; ++p) {
        for (int64_t c = 0; c < cols; ++c) to[p * kWidth + c] = from[p * row + c * col];
      }
    }
    if (cols < kWidth) {
      for (int64_t p = 0; p < k; ++p)
        std::fill(to + p * kWidth + cols, to + (p + 1) * kWidth, T(0));
    }
  }
}

// kRowCount x (kVectors vectors) of C, of which n columns are there. kAlongK: the rows of A lie
// along k, lda apart; else its columns do. copy: where the rows of b are copied to, or null.
template <class T, int kRowCount, int kVectors, bool kAlongK>
void Tile(int64_t k, const T* HWY_RESTRICT a, int64_t lda, const T* HWY_RESTRICT b, int64_t ldb,
          T* HWY_RESTRICT copy, int64_t n, T alpha, T beta, const T* bias, T* HWY_RESTRICT c,
          int64_t ldc) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  constexpr int64_t kLanes = kCols<T> / 2;
  // One pointer serves three rows: its own, and those one and two lda further, are addresses that
  // one instruction can form.
  constexpr int kPointers = kAlongK ? (kRowCount + 2) / 3 : 1;
  const T* rows[kPointers];
#pragma GCC unroll 16
  for (int i = 0; i < kPointers; ++i) rows[i] = a + 3 * i * lda;
  if (beta != T(0)) {
#pragma GCC unroll 16
    for (int i = 0; i < kRowCount; ++i) {
      __builtin_prefetch(c + i * ldc);
      if (kVectors > 1) __builtin_prefetch(c + i * ldc + kLanes);
    }
  }
  if (kAlongK) {
    // The rows of the next tile, of which the processor has not seen any yet.
#pragma GCC unroll 16
    for (int i = 0; i < kRowCount; ++i) {
      const T* next = rows[i / 3] + (i % 3 + kRowCount) * lda;
      __builtin_prefetch(next);
      __builtin_prefetch(next + 64 / sizeof(T));
    }
  }
  V sum[kRowCount * kVectors];
#pragma GCC unroll 32
  for (int i = 0; i < kRowCount * kVectors; ++i) sum[i] = hn::Zero(d);
  const auto multiply = [&](auto copies) HWY_ATTR {
    for (int64_t p = 0; p < k; ++p) {
      V y[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) y[v] = hn::LoadU(d, b + v * kLanes);
      if constexpr (copies()) {
        // Rows further on come from far, and no two from the same page.
        __builtin_prefetch(b + kRowsAhead * ldb);
        __builtin_prefetch(b + kRowsAhead * ldb + kLanes);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) hn::StoreU(y[v], d, copy + v * kLanes);
        copy += 2 * kLanes;
      }
#pragma GCC unroll 16
      for (int i = 0; i < kRowCount; ++i) {
        const V x = hn::Set(d, kAlongK ? rows[i / 3][i % 3 * lda] : rows[0][i]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sum[i * kVectors + v] = MulAddOf(x, y[v], sum[i * kVectors + v]);
        }
      }
#pragma GCC unroll 16
      for (int i = 0; i < kPointers; ++i) rows[i] += kAlongK ? 1 : lda;
      b += ldb;
    }
  };
  copy == nullptr ? multiply(std::false_type()) : multiply(std::true_type());
  const V scale = hn::Set(d, alpha), keep = hn::Set(d, beta);
#pragma GCC unroll 16
  for (int i = 0; i < kRowCount; ++i) {
    T* row = c + i * ldc;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      V value = hn::Mul(sum[i * kVectors + v], scale);
      if (bias != nullptr) value = hn::Add(value, hn::Set(d, bias[i]));
      T* to = row + v * kLanes;
      const int64_t here = n - v * kLanes;
      if (here >= kLanes) {
        if (beta != T(0)) value = MulAddOf(hn::LoadU(d, to), keep, value);
        hn::StoreU(value, d, to);
      } else if (here > 0) {
        if (beta != T(0)) value = MulAddOf(LoadFirst(d, to, here), keep, value);
        StoreFirst(d, value, to, here);
      }
    }
  }
}

template <class T, int kVectors, bool kAlongK, int kRowCount = kRows>
void TileOf(int64_t rows, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T* copy,
            int64_t n, T alpha, T beta, const T* bias, T* c, int64_t ldc) {
  if (rows == kRowCount) {
    return Tile<T, kRowCount, kVectors, kAlongK>(k, a, lda, b, ldb, copy, n, alpha, beta, bias, c,
                                                 ldc);
  }
  if constexpr (kRowCount > 1) {
    TileOf<T, kVectors, kAlongK, kRowCount - 1>(rows, k, a, lda, b, ldb, copy, n, alpha, beta, bias,
                                                c, ldc);
  }
}

template <class T>
void Panel(const cpu::GemmPanel<T>& g) {
  const bool along_k = !g.packed && g.row != 1;
  const bool meets = along_k && g.row * static_cast<int64_t>(sizeof(T)) % kSetBytes == 0;
  ForTiles(g.m, meets ? kNearRows : kRows, [&](int64_t i, int64_t rows) HWY_ATTR {
    const T* a = g.packed ? g.a + i * g.k : g.a + i * g.row;
    T* c = g.c + i * g.ldc;
    const int64_t lda = g.packed ? rows : g.row == 1 ? g.col : g.row;
    const bool narrow = g.n <= kCols<T> / 2;
    const bool copied = g.copy != nullptr && i > 0;
    T* const copy = i == 0 ? g.copy : nullptr;
    const auto run = [&](auto tile) HWY_ATTR {
      tile(rows, g.k, a, lda, copied ? g.copy : g.b, copied ? kCols<T> : g.ldb, copy, g.n, g.alpha,
           g.beta, g.bias != nullptr ? g.bias + i : nullptr, c, g.ldc);
    };
    if (along_k) {
      narrow ? run(&TileOf<T, 1, true>) : run(&TileOf<T, 2, true>);
    } else {
      narrow ? run(&TileOf<T, 1, false>) : run(&TileOf<T, 2, false>);
    }
  });
}

// Two vectors of rows hide most of the latency of their multiply-adds. Of rows that share a set of
// the first-level cache it has room for eight.
template <class T>
void Columns(const cpu::GemmPanel<T>& g) {
  if (g.row * static_cast<int64_t>(sizeof(T)) % kSetBytes != 0) return AllColumns<T, 2>(g);
  kCols<T> <= 16 ? AllColumns<T, 1>(g) : Panel(g);
}

template <class T>
void Pack(const T* x, int64_t ldx, int64_t n, int64_t k, T* to) {
  PackFactors(x, ldx, n, k, int64_t{WidenedDots<T, T>::kVector}, to);
}

template <class T>
cpu::GemmKernel<T> GemmKernelOf() {
  using Dots = WidenedDots<T, T>;
  return {kRows,         kCols<T>,  &PackA<T>,
          &PackB<T>,     &Panel<T>, &Columns<T>,
          Dots::kVector, &Pack<T>,  &AllDots<Dots, cpu::GemmDots<T>>};
}

}  // namespace

cpu::GemmKernel<float> GemmKernelFloat() { return GemmKernelOf<float>(); }
cpu::GemmKernel<double> GemmKernelDouble() { return GemmKernelOf<double>(); }
cpu::GemmKernel<uint32_t> GemmKernelUInt32() { return GemmKernelOf<uint32_t>(); }
cpu::GemmKernel<uint64_t> GemmKernelUInt64() { return GemmKernelOf<uint64_t>(); }

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

#define HOLOGRAM_GEMM_KERNEL(T, function)                                                      \
  const GemmKernel<T>& gemm_kernel(Isa isa, T) {                                               \
    static const auto* kernels = new GemmKernel<T>[kIsaCount] {                                \
      HOLOGRAM_FOR_ISA(Isa::kBaseline, function)                                               \
      (), HOLOGRAM_FOR_ISA(Isa::kAvx2, function)(), HOLOGRAM_FOR_ISA(Isa::kAvx512, function)() \
    };                                                                                         \
    return kernels[static_cast<int>(isa)];                                                     \
  }
HOLOGRAM_GEMM_KERNEL(float, GemmKernelFloat)
HOLOGRAM_GEMM_KERNEL(double, GemmKernelDouble)
HOLOGRAM_GEMM_KERNEL(uint32_t, GemmKernelUInt32)
HOLOGRAM_GEMM_KERNEL(uint64_t, GemmKernelUInt64)
#undef HOLOGRAM_GEMM_KERNEL

}  // namespace hologram::cpu
#endif
