// SPDX-License-Identifier: MIT
// The register tile of the built-in GEMM and its packing, for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/gemm_kernels.cc"
#include "src/cpu/targets.h"
// clang-format off
#include "hwy/highway.h"
#include "src/cpu/simd_tail-inl.h"
#include "src/cpu/transpose-inl.h"
#include "src/cpu/gemm_kernels.h"
// clang-format on

#include <algorithm>

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

template <class T>
void PackA(const T* a, int64_t row, int64_t col, int64_t m, int64_t k, T* HWY_RESTRICT to) {
  for (int64_t i = 0; i < m; i += kRows, to += kRows * k) {
    const T* from = a + i * row;
    const int64_t rows = std::min<int64_t>(kRows, m - i);
    if (rows == kRows && row == 1) {
      for (int64_t p = 0; p < k; ++p) {
        for (int64_t r = 0; r < kRows; ++r) to[p * kRows + r] = from[p * col + r];
      }
      continue;
    }
    if (col == 1) {
      Transpose(from, row, rows, k, to, kRows);
    } else {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t p = 0; p < k; ++p) to[p * kRows + r] = from[r * row + p * col];
      }
    }
    for (int64_t r = rows; r < kRows; ++r) {
      for (int64_t p = 0; p < k; ++p) to[p * kRows + r] = T(0);
    }
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

template <class T>
void Tile(int64_t k, const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, int64_t ldb, int64_t m,
          int64_t n, T alpha, T beta, T* HWY_RESTRICT c, int64_t ldc) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  constexpr int64_t kLanes = kCols<T> / 2;
  V low[kRows], high[kRows];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) low[i] = high[i] = hn::Zero(d);
  for (int64_t p = 0; p < k; ++p) {
    const V b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const V x = hn::Set(d, a[i]);
      low[i] = hn::MulAdd(x, b0, low[i]);
      high[i] = hn::MulAdd(x, b1, high[i]);
    }
    a += kRows;
    b += ldb;
  }
  const V scale = hn::Set(d, alpha), keep = hn::Set(d, beta);
  HWY_ALIGN T part[2 * kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    if (i < m) {
      T* row = c + i * ldc;
      V v0 = hn::Mul(low[i], scale), v1 = hn::Mul(high[i], scale);
      if (n == 2 * kLanes) {
        if (beta != T(0)) {
          v0 = hn::MulAdd(hn::LoadU(d, row), keep, v0);
          v1 = hn::MulAdd(hn::LoadU(d, row + kLanes), keep, v1);
        }
        hn::StoreU(v0, d, row);
        hn::StoreU(v1, d, row + kLanes);
      } else {
        hn::Store(v0, d, part);
        hn::Store(v1, d, part + kLanes);
        for (int64_t j = 0; j < n; ++j) row[j] = beta != T(0) ? part[j] + beta * row[j] : part[j];
      }
    }
  }
}

template <class T>
void DotRows(const T* a, int64_t lda, const T* x, int64_t m, int64_t k, T alpha, T beta, T* y,
             int64_t incy) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < m; ++i, a += lda) {
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    int64_t p = 0;
    for (; p + 4 * lanes <= k; p += 4 * lanes) {
      s0 = hn::MulAdd(hn::LoadU(d, a + p), hn::LoadU(d, x + p), s0);
      s1 = hn::MulAdd(hn::LoadU(d, a + p + lanes), hn::LoadU(d, x + p + lanes), s1);
      s2 = hn::MulAdd(hn::LoadU(d, a + p + 2 * lanes), hn::LoadU(d, x + p + 2 * lanes), s2);
      s3 = hn::MulAdd(hn::LoadU(d, a + p + 3 * lanes), hn::LoadU(d, x + p + 3 * lanes), s3);
    }
    for (; p + lanes <= k; p += lanes) {
      s0 = hn::MulAdd(hn::LoadU(d, a + p), hn::LoadU(d, x + p), s0);
    }
    if (p < k) s1 = hn::MulAdd(LoadFirst(d, a + p, k - p), LoadFirst(d, x + p, k - p), s1);
    const auto sum = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
    const T dot = alpha * hn::GetLane(hn::SumOfLanes(d, sum));
    y[i * incy] = beta != T(0) ? dot + beta * y[i * incy] : dot;
  }
}

}  // namespace

cpu::GemmKernel<float> GemmKernelFloat() {
  return {kRows, kCols<float>, &PackA<float>, &PackB<float>, &Tile<float>, &DotRows<float>};
}
cpu::GemmKernel<double> GemmKernelDouble() {
  return {kRows, kCols<double>, &PackA<double>, &PackB<double>, &Tile<double>, &DotRows<double>};
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

const GemmKernel<float>& gemm_kernel(Isa isa, float) {
  static const auto* kernels = new GemmKernel<float>[kIsaCount] {
    HOLOGRAM_FOR_ISA(Isa::kBaseline, GemmKernelFloat)
    (), HOLOGRAM_FOR_ISA(Isa::kAvx2, GemmKernelFloat)(),
        HOLOGRAM_FOR_ISA(Isa::kAvx512, GemmKernelFloat)()
  };
  return kernels[static_cast<int>(isa)];
}

const GemmKernel<double>& gemm_kernel(Isa isa, double) {
  static const auto* kernels = new GemmKernel<double>[kIsaCount] {
    HOLOGRAM_FOR_ISA(Isa::kBaseline, GemmKernelDouble)
    (), HOLOGRAM_FOR_ISA(Isa::kAvx2, GemmKernelDouble)(),
        HOLOGRAM_FOR_ISA(Isa::kAvx512, GemmKernelDouble)()
  };
  return kernels[static_cast<int>(isa)];
}

}  // namespace hologram::cpu
#endif
