// SPDX-License-Identifier: MIT
// Dot products of bfloat16, for AVX-512 alone.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/gemm/bfloat16_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "src/cpu/gemm/bfloat16_kernels.h"

// The tiles are compiled for the instruction, too; the headers of others, above, are not.
#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
#endif
#include "src/cpu/gemm/dot_tiles-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

#if HWY_TARGET == HWY_AVX3
HWY_INLINE __mmask32 FirstOf(int64_t n) { return (__mmask32{1} << n) - 1; }

HWY_INLINE __m512bh Widened(__m256i bytes) {
  const __m512i low = _mm512_cvtepi8_epi32(_mm256_castsi256_si128(bytes));
  const __m512i high = _mm512_cvtepi8_epi32(_mm256_extracti128_si256(bytes, 1));
  return _mm512_cvtne2ps_pbh(_mm512_cvtepi32_ps(high), _mm512_cvtepi32_ps(low));
}

// See WidenedDots. A vector has 32 elements, and 16 sums of two products each.
template <class InType>
struct BFloat16Dots {
  using In = InType;
  using Factor = uint16_t;
  using Result = float;
  using Row = __m512bh;
  using Sum = hn::Vec<hn::ScalableTag<float>>;
  static constexpr int kVector = 32;

  static HWY_INLINE Row load(const uint16_t* from) {
    return reinterpret_cast<Row>(_mm512_loadu_si512(from));
  }
  static HWY_INLINE Row load_first(const uint16_t* from, int64_t n) {
    return reinterpret_cast<Row>(_mm512_maskz_loadu_epi16(FirstOf(n), from));
  }
  static HWY_INLINE Row load(const int8_t* from) {
    return Widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static HWY_INLINE Row load_first(const int8_t* from, int64_t n) {
    return Widened(_mm256_maskz_loadu_epi8(FirstOf(n), from));
  }
  static HWY_INLINE Row factor(const uint16_t* from) { return load(from); }
  static HWY_INLINE Row factor_first(const uint16_t* from, int64_t n) {
    return load_first(from, n);
  }
  static HWY_INLINE Sum add(Row a, Row x, Sum sum) { return Sum{_mm512_dpbf16_ps(sum.raw, a, x)}; }
};

void Pack(const uint16_t* x, int64_t ldx, int64_t n, int64_t k, uint16_t* to) {
  PackFactors(x, ldx, n, k, cpu::kBFloat16Vector, to);
}

#endif

}  // namespace

const cpu::BFloat16Kernel* BFloat16KernelOf() {
#if HWY_TARGET == HWY_AVX3
  static constexpr cpu::BFloat16Kernel kKernel{&Pack,
                                               &AllDots<BFloat16Dots<uint16_t>, cpu::BFloat16Dots>,
                                               &AllDots<BFloat16Dots<int8_t>, cpu::BFloat16Dots>};
  return &kKernel;
#else
  return nullptr;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_TARGET == HWY_AVX3
HWY_POP_ATTRIBUTES
#endif

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
