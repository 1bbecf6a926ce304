// SPDX-License-Identifier: MIT
// Dot products of bfloat16, for AVX-512 alone.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/gemm/bfloat16_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "hwy/highway.h"
#include "src/cpu/gemm/dot-inl.h"
#include "src/cpu/gemm/bfloat16_kernels.h"
// clang-format on

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")

using Sums = hn::Vec<hn::ScalableTag<float>>;

// Rows of a that share what is loaded of rows of x: as many as the registers allow.
constexpr int kTileRows = 4;
constexpr int64_t kVectorElements = 32;
// As __builtin_prefetch() has it. As measured on an EPYC (Zen 4): into L1 there are too few places.
constexpr int kIntoL2 = 2;

HWY_INLINE __mmask32 FirstOf(int64_t n) {
  return n < kVectorElements ? (__mmask32{1} << n) - 1 : ~__mmask32{0};
}

// The elements of `mask`, zeros for the others.
HWY_INLINE __m512bh Load(const uint16_t* from, __mmask32 mask) {
  return reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(mask, from));
}
HWY_INLINE __m512bh Load(const int8_t* from, __mmask32 mask) {
  const __m256i bytes = _mm256_maskz_loadu_epi8(mask, from);
  const __m512i low = _mm512_cvtepi8_epi32(_mm256_castsi256_si128(bytes));
  const __m512i high = _mm512_cvtepi8_epi32(_mm256_extracti128_si256(bytes, 1));
  return _mm512_cvtne2ps_pbh(_mm512_cvtepi32_ps(high), _mm512_cvtepi32_ps(low));
}

// Adds the products of the elements of `mask` to the sum of each pair of rows.
template <int kRowCount, int kCount, class In>
HWY_INLINE void AddProducts(const In* a, int64_t lda, const uint16_t* x, __mmask32 mask,
                            Sums* sum) {
  __m512bh row[kRowCount];
#pragma GCC unroll 4
  for (int r = 0; r < kRowCount; ++r) row[r] = Load(a + r * lda, mask);
#pragma GCC unroll 6
  for (int f = 0; f < kCount; ++f) {
    const auto factor = reinterpret_cast<__m512bh>(_mm512_loadu_si512(x + f * kVectorElements));
#pragma GCC unroll 4
    for (int r = 0; r < kRowCount; ++r) {
      Sums& to = sum[r * kCount + f];
      to.raw = _mm512_dpbf16_ps(to.raw, row[r], factor);
    }
  }
}

// y[r * g.y_row + f * g.y_col] = row r of a . row f of x, which is packed. For each element of a
// row kAhead elements at `next` come near.
template <int kRowCount, int kCount, int kAhead, class In>
HWY_INLINE void Tile(const cpu::BFloat16Dots& g, const In* a, const uint16_t* x, const In* next,
                     float* y) {
  const hn::ScalableTag<float> d;
  constexpr int kDots = kRowCount * kCount, kLast = kDots % 4, kLine = 64 / sizeof(In);
  Sums sum[kDots];
#pragma GCC unroll 24
  for (int i = 0; i < kDots; ++i) sum[i] = hn::Zero(d);
  int64_t p = 0;
  for (; p + kVectorElements <= g.k; p += kVectorElements, x += kCount * kVectorElements) {
#pragma GCC unroll 4
    for (int i = 0; i < kAhead * kVectorElements; i += kLine) {
      __builtin_prefetch(next + p * kAhead + i, 0, kIntoL2);
    }
    AddProducts<kRowCount, kCount>(a + p, g.lda, x, ~__mmask32{0}, sum);
  }
  if (p < g.k) AddProducts<kRowCount, kCount>(a + p, g.lda, x, FirstOf(g.k - p), sum);
  float sums[kDots];
#pragma GCC unroll 6
  for (int i = 0; i + 4 <= kDots; i += 4) SumsOfLanes<4>(d, sum + i, sums + i);
  if constexpr (kLast > 0) SumsOfLanes<kLast>(d, sum + kDots - kLast, sums + kDots - kLast);
  for (int r = 0; r < kRowCount; ++r) {
    for (int f = 0; f < kCount; ++f) y[r * g.y_row + f * g.y_col] = sums[r * kCount + f];
  }
}

// A tile of up to kTileRows rows and `count` factors, 1 to kCount.
template <int kCount = cpu::kBFloat16Factors, class In>
void TileOf(int64_t count, const cpu::BFloat16Dots& g, const In* a, int64_t rows, const uint16_t* x,
            int ahead, const In* next, float* y) {
  if constexpr (kCount > 1) {
    if (count < kCount) return TileOf<kCount - 1>(count, g, a, rows, x, ahead, next, y);
  }
  if (rows < kTileRows) {
    for (int64_t r = 0; r < rows; ++r) {
      Tile<1, kCount, 0>(g, a + r * g.lda, x, next, y + r * g.y_row);
    }
    return;
  }
  switch (ahead) {
    case 4:
      return Tile<kTileRows, kCount, 4>(g, a, x, next, y);
    case 2:
      return Tile<kTileRows, kCount, 2>(g, a, x, next, y);
    case 1:
      return Tile<kTileRows, kCount, 1>(g, a, x, next, y);
    default:
      return Tile<kTileRows, kCount, 0>(g, a, x, next, y);
  }
}

template <class In>
void Dots(const cpu::BFloat16Dots& g) {
  const int64_t tiles = cpu::bfloat16_tiles(g.n), factor = cpu::bfloat16_packed_row(g.k);
  // While tiles read rows, those that follow come near, in the order in which they lie.
  const int ahead = tiles == 1 ? kTileRows : tiles < kTileRows ? kTileRows / 2 : 1;
  for (int64_t i = 0; i < g.m; i += kTileRows) {
    const In* const a = static_cast<const In*>(g.a) + i * g.lda;
    const In* const next = a + kTileRows * g.lda;
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t j = g.n * t / tiles, count = g.n * (t + 1) / tiles - j;
      const bool has_part = g.lda == g.k && t * ahead < kTileRows;
      TileOf(count, g, a, std::min<int64_t>(kTileRows, g.m - i), g.x + j * factor,
             has_part ? ahead : 0, next + t * ahead * g.k, g.y + i * g.y_row + j * g.y_col);
    }
  }
}

void Pack(const uint16_t* x, int64_t ldx, int64_t n, int64_t k, uint16_t* to) {
  const int64_t tiles = cpu::bfloat16_tiles(n);
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t j = n * t / tiles, count = n * (t + 1) / tiles - j;
    for (int64_t p = 0; p < k; p += kVectorElements) {
      const __mmask32 mask = FirstOf(k - p);
      for (int64_t f = 0; f < count; ++f, to += kVectorElements) {
        _mm512_storeu_si512(to, _mm512_maskz_loadu_epi16(mask, x + (j + f) * ldx + p));
      }
    }
  }
}

HWY_POP_ATTRIBUTES
#endif

}  // namespace

const cpu::BFloat16Kernel* BFloat16KernelOf() {
#if HWY_TARGET == HWY_AVX3
  static constexpr cpu::BFloat16Kernel kKernel{&Pack, &Dots<uint16_t>, &Dots<int8_t>};
  return &kKernel;
#else
  return nullptr;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hologram::cpu {
namespace {

// AVX512_BF16 (Intel's manual, CPUID leaf 7, 1).
bool has_instruction() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 5 & 1) != 0;
#else
  return false;
#endif
}

}  // namespace

const BFloat16Kernel* bfloat16_kernel(Isa isa) {
  static const bool has = has_instruction();
  return has ? HOLOGRAM_FOR_ISA(isa, BFloat16KernelOf)() : nullptr;
}

}  // namespace hologram::cpu
#endif
