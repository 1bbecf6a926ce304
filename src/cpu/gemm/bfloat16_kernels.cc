// SPDX-License-Identifier: MIT
// Dot products of bfloat16, for AVX-512 alone.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/gemm/bfloat16_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include <algorithm>
#include <bit>

#include "hwy/highway.h"
#include "src/cpu/gemm/bfloat16_kernels.h"

// The tiles are compiled for the instructions, too; the headers of others, above, are not.
#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16,avx512vbmi")
#endif
#include "src/cpu/gemm/dot_tiles-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

#if HWY_TARGET == HWY_AVX3
HWY_INLINE __m512bh Loaded(const uint16_t* from) {
  return reinterpret_cast<__m512bh>(_mm512_loadu_si512(from));
}
HWY_INLINE __m512bh LoadedFirst(const uint16_t* from, int64_t n) {
  return reinterpret_cast<__m512bh>(
      _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << n) - 1), from));
}
HWY_INLINE __m512 Add(__m512bh a, __m512bh x, __m512 sum) { return _mm512_dpbf16_ps(sum, a, x); }

using Float32s = hn::Vec<hn::ScalableTag<float>>;

// See WidenedDots. A vector has 32 elements, and 16 sums of two products each.
struct BFloat16Rows {
  using In = uint16_t;
  using Factor = uint16_t;
  using Result = float;
  using Row = __m512bh;
  using Sum = Float32s;
  static constexpr int kVector = 32;

  template <int kCount>
  static constexpr int rows() {
    return TileRows<kCount>();
  }
  static HWY_INLINE Row load(const In* from) { return Loaded(from); }
  static HWY_INLINE Row load_first(const In* from, int64_t n) { return LoadedFirst(from, n); }
  static HWY_INLINE Row factor(const Factor* from) { return Loaded(from); }
  static HWY_INLINE Row factor_first(const Factor* from, int64_t n) { return LoadedFirst(from, n); }
  static HWY_INLINE Sum add(Row a, Row x, Sum sum) { return Sum{Add(a, x, sum.raw)}; }
};

// The bytes of |i| as a bfloat16, i from 0 to 127, but for 0 those of 128, whose last bits are 0,
// too.
struct BytesOfBFloat16 {
  alignas(64) uint8_t low[128], high[128];
  constexpr BytesOfBFloat16() : low(), high() {
    for (int i = 0; i < 128; ++i) {
      const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(i == 0 ? 128 : i));
      low[i] = static_cast<uint8_t>(bits >> 16), high[i] = static_cast<uint8_t>(bits >> 24);
    }
  }
};
constexpr BytesOfBFloat16 kBytesOfBFloat16;

// Rows of int8 become the bfloat16 of the same value by tables, 64 elements at a time; sums are
// those of BFloat16Rows.
struct Int8Rows {
  using In = int8_t;
  using Factor = uint16_t;
  using Result = float;
  struct Row {
    __m512bh first, second;  // elements 0 to 31 and 32 to 63
  };
  using Sum = Float32s;
  static constexpr int kVector = 64;

  // Of 32 registers, five hold tables, and a row takes two.
  template <int kCount>
  static constexpr int rows() {
    return kCount <= 2 ? 4 : 3;
  }
  static HWY_INLINE Row widened(__m512i bytes) {
    // The low halves of the four lanes get elements 0 to 31, so that unpacking keeps the order.
    const __m512i v = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), bytes);
    const __mmask64 is_not_zero = _mm512_test_epi8_mask(v, v);
    const __m512i i = _mm512_abs_epi8(v);
    const auto bytes_of = [&](const uint8_t* table) {
      return _mm512_maskz_permutex2var_epi8(is_not_zero, _mm512_load_si512(table), i,
                                            _mm512_load_si512(table + 64));
    };
    const __m512i low = bytes_of(kBytesOfBFloat16.low);
    const __m512i sign = _mm512_and_si512(v, _mm512_set1_epi8(-128));
    const __m512i high = _mm512_or_si512(bytes_of(kBytesOfBFloat16.high), sign);
    return {reinterpret_cast<__m512bh>(_mm512_unpacklo_epi8(low, high)),
            reinterpret_cast<__m512bh>(_mm512_unpackhi_epi8(low, high))};
  }
  static HWY_INLINE Row load(const In* from) { return widened(_mm512_loadu_si512(from)); }
  static HWY_INLINE Row load_first(const In* from, int64_t n) {
    return widened(_mm512_maskz_loadu_epi8((__mmask64{1} << n) - 1, from));
  }
  static HWY_INLINE Row factor(const Factor* from) { return {Loaded(from), Loaded(from + 32)}; }
  static HWY_INLINE Row factor_first(const Factor* from, int64_t n) {
    return {LoadedFirst(from, std::min<int64_t>(n, 32)),
            LoadedFirst(from + 32, std::max<int64_t>(n - 32, 0))};
  }
  static HWY_INLINE Sum add(const Row& a, const Row& x, Sum sum) {
    return Sum{Add(a.second, x.second, Add(a.first, x.first, sum.raw))};
  }
};

template <class Rows>
constexpr cpu::BFloat16Kernel::Dots kDotsOf = {
    Rows::kVector,
    [](const uint16_t* x, int64_t ldx, int64_t n, int64_t k, uint16_t* to) {
      PackFactors(x, ldx, n, k, Rows::kVector, to);
    },
    &AllDots<Rows, cpu::BFloat16Dots>};
#endif

}  // namespace

const cpu::BFloat16Kernel* BFloat16KernelOf() {
#if HWY_TARGET == HWY_AVX3
  static constexpr cpu::BFloat16Kernel kKernel{kDotsOf<BFloat16Rows>, kDotsOf<Int8Rows>};
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

// AVX512_BF16 and AVX512_VBMI (Intel's manual, CPUID leaf 7). Only Cooper Lake has the first alone.
bool has_instructions() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool has_bytes =
      __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 1 & 1) != 0;
  return has_bytes && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 5 & 1) != 0;
#else
  return false;
#endif
}

}  // namespace

const BFloat16Kernel* bfloat16_kernel(Isa isa) {
  static const bool has = has_instructions();
  return has ? HOLOGRAM_FOR_ISA(isa, BFloat16KernelOf)() : nullptr;
}

}  // namespace hologram::cpu
#endif
