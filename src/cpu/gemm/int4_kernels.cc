// SPDX-License-Identifier: MIT
// Rows times an int4 weight for every instruction set.
//
// The bytes of two or four columns' rows are interleaved, so that 16 or 32 bits hold those of one
// row; a multiplication of bytes adds them up. Where a vector has more 16-byte pieces than a column
// has, its pieces hold several columns of the same rows, and are added at the end of a group.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/gemm/int4_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include <cmath>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "src/cpu/gemm/dot-inl.h"
#include "src/cpu/gemm/int4_kernels.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::Int4Group;
using cpu::Int4Rows;

constexpr hn::ScalableTag<uint8_t> kBytes{};
using Bytes = hn::Vec<decltype(kBytes)>;
using Half = hn::ScalableTag<int16_t>;
using Word = hn::ScalableTag<int32_t>;
using Single = hn::ScalableTag<float>;
constexpr int kDigits = 3;
// Groups whose largest element is in this range become digits: of smaller ones a unit would be
// subnormal, of larger ones a sum without its scale could be infinite.
constexpr float kSmallestElement = 0x1p-100F, kLargestElement = 0x1p100F;
// The largest number that three signed bytes hold.
constexpr float kLargestNumber = 65536.0F * 127 + 256 * 127 + 127;
// Sums of two products of a weight and a digit that fit 16 bits: 15 * 128 each product.
constexpr int64_t kStepsInHalf = 8;
// How far ahead of the multiplications bytes come near.
constexpr int64_t kAheadBytes = 4096;

// How a vector holds columns of blocks whose columns have kPieces pieces of 16 bytes.
template <int kPieces>
struct Form {
  static constexpr int kVectorPieces = static_cast<int>(hn::MaxLanes(kBytes)) / 16;
  static constexpr int kColumnBytes = 16 * kPieces;
  // Columns in a vector, and vectors in a column.
  static constexpr int kColumns = kVectorPieces > kPieces ? kVectorPieces / kPieces : 1;
  static constexpr int kVectors = kPieces > kVectorPieces ? kPieces / kVectorPieces : 1;
  // Pieces of one column in a vector.
  static constexpr int kOfColumn = kVectorPieces / kColumns;
};

// Sums of two products each, as 16 bits: they have to fit.
HWY_INLINE hn::Vec<Half> MulPairs(Bytes weight, hn::Vec<hn::ScalableTag<int8_t>> digit) {
#if HWY_TARGET == HWY_AVX3
  return hn::Vec<Half>{_mm512_maddubs_epi16(weight.raw, digit.raw)};
#elif HWY_TARGET == HWY_AVX2
  return hn::Vec<Half>{_mm256_maddubs_epi16(weight.raw, digit.raw)};
#elif HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
  return hn::Vec<Half>{_mm_maddubs_epi16(weight.raw, digit.raw)};
#else
  const Half d;
  const auto a = hn::BitCast(hn::RebindToUnsigned<Half>(), weight);
  const auto b = hn::BitCast(d, digit);
  const auto even = hn::And(hn::BitCast(d, a), hn::Set(d, 255));
  const auto odd = hn::BitCast(d, hn::ShiftRight<8>(a));
  return hn::Add(hn::Mul(even, hn::ShiftRight<8>(hn::ShiftLeft<8>(b))),
                 hn::Mul(odd, hn::ShiftRight<8>(b)));
#endif
}

// --- The row --------------------------------------------------------------------------------

// Where a vector holds kColumns columns and an instruction adds up kTogether of them: the digits of
// columns j, j + kColumns, ..., j + (kTogether - 1) kColumns lie together.
template <int kColumns, int kTogether>
HWY_INLINE void Arrange(int8_t* digits, int64_t n) {
  if constexpr (kColumns > 1) {
    constexpr int kStep = kColumns * kTogether;
    const hn::FixedTag<uint8_t, 16> d;
    HWY_ALIGN uint8_t from[16];
    for (int i = 0; i < 16; ++i) {
      const int step = i / kStep, at = i % kStep;
      from[i] = static_cast<uint8_t>(step * kStep + at / kTogether + at % kTogether * kColumns);
    }
    const auto places = hn::Load(d, from);
    for (int64_t i = 0; i < n; i += 16) {
      auto* const at = reinterpret_cast<uint8_t*>(digits + i);
      hn::StoreU(hn::TableLookupBytes(hn::LoadU(d, at), places), d, at);
    }
  }
}

// The columns whose lowest digit is not 0, where they are few.
HWY_INLINE void List(const int8_t* digits, int64_t columns, Int4Group* group) {
  group->listed = 0;
  for (int64_t i = 0; i < columns; i += 8) {
    uint64_t eight;
    std::memcpy(&eight, digits + i, sizeof(eight));
    for (int64_t j = i; eight != 0; eight >>= 8, ++j) {
      if ((eight & 255) == 0) continue;
      if (group->listed == cpu::kMostListed) {
        group->listed = -1;
        return;
      }
      group->column[group->listed] = static_cast<int32_t>(j);
      group->digit[group->listed++] = digits[j];
    }
  }
}

template <int kTogether>
bool Split(const float* HWY_RESTRICT x, int64_t columns, int64_t block, int8_t* HWY_RESTRICT digits,
           Int4Group* group) {
  const Single d;
  const Word dw;
  const hn::Rebind<int8_t, Word> narrow;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // The bits of magnitudes are in their order, those of NaN the last.
  auto most = hn::Zero(dw);
  for (int64_t i = 0; i < columns; i += lanes) {
    most = hn::Max(most, hn::BitCast(dw, hn::Abs(hn::LoadU(d, x + i))));
  }
  const float largest = hn::GetLane(hn::BitCast(d, hn::MaxOfLanes(dw, most)));
  *group = {};
  if (largest == 0) {
    std::memset(digits, 0, static_cast<size_t>(kDigits * columns));
    return true;
  }
  if (!(largest >= kSmallestElement && largest <= kLargestElement)) return false;
  int power = 22 - std::ilogb(largest);
  if (std::ldexp(largest, power) > kLargestNumber) --power;
  const auto by = hn::Set(d, std::ldexp(1.0F, power));
  hn::Vec<Word> sums[kDigits] = {hn::Zero(dw), hn::Zero(dw), hn::Zero(dw)};
  for (int64_t i = 0; i < columns; i += lanes) {
    auto number = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), by));
    for (int k = 0; k < kDigits; ++k) {
      const auto digit = k == 2 ? number : hn::ShiftRight<24>(hn::ShiftLeft<24>(number));
      sums[k] = hn::Add(sums[k], digit);
      hn::StoreU(hn::DemoteTo(narrow, digit), narrow, digits + k * columns + i);
      number = hn::ShiftRight<8>(hn::Sub(number, digit));
    }
  }
  group->unit = std::ldexp(1.0F, -power);
  double sum = 0;
  for (int k = 0; k < kDigits; ++k) {
    const int32_t all = hn::GetLane(hn::SumOfLanes(dw, sums[k]));
    group->start[k] = -8 * all;
    sum += std::ldexp(static_cast<double>(all), 8 * k);
  }
  group->sum = static_cast<float>(sum) * group->unit;
  List(digits, columns, group);
  if (block == cpu::kLargeInt4Block) {
    Arrange<Form<2>::kColumns, kTogether>(digits, kDigits * columns);
  } else {
    Arrange<Form<1>::kColumns, kTogether>(digits, kDigits * columns);
  }
  return true;
}

// --- A block --------------------------------------------------------------------------------

// The digits of a step: each piece has those of its column, kTogether bytes for every row.
template <int kPieces, int kTogether>
struct DigitLoads {
  using F = Form<kPieces>;
  using Together = std::conditional_t<kTogether == 2, uint16_t, uint32_t>;
  using Step = std::conditional_t<F::kColumns * kTogether <= 4, uint32_t, uint64_t>;
  static constexpr hn::ScalableTag<Together> kTag{};
  HWY_ALIGN uint8_t from[hn::MaxLanes(kBytes)];

  HWY_INLINE DigitLoads() {
    for (int i = 0; i < F::kVectorPieces * 16; ++i) {
      from[i] = static_cast<uint8_t>(i / 16 / F::kOfColumn * kTogether + i % kTogether);
    }
  }
  HWY_INLINE auto operator()(const int8_t* p) const {
    const hn::ScalableTag<int8_t> d;
    if constexpr (F::kColumns == 1) {
      Together column;
      std::memcpy(&column, p, sizeof(column));
      return hn::BitCast(d, hn::Set(kTag, column));
    } else {
      const auto places = hn::BitCast(d, hn::Load(kBytes, from));
      if constexpr (F::kColumns * kTogether == 16) {
        return hn::TableLookupBytes(hn::LoadDup128(d, p), places);
      } else {
        Step all;
        std::memcpy(&all, p, sizeof(all));
        return hn::TableLookupBytes(hn::BitCast(d, hn::Set(hn::ScalableTag<Step>(), all)), places);
      }
    }
  }
};

// 32-bit words of a vector become one for each row: four for each piece of a column.
template <int kPieces>
HWY_INLINE void StoreRows(hn::Vec<Single> v, float* to) {
  using F = Form<kPieces>;
  const Single d;
  HWY_ALIGN float all[hn::MaxLanes(d)];
  const hn::FixedTag<float, 4> four;
#if HWY_TARGET == HWY_AVX3
  if constexpr (F::kColumns == 2) {
    const hn::FixedTag<float, 8> half;
    const auto sum = hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v));
    hn::StoreU(hn::LowerHalf(four, sum), four, to);
    hn::StoreU(hn::UpperHalf(four, sum), four, to + 16);
    return;
  }
#endif
  hn::Store(v, d, all);
  for (int p = 0; p < F::kOfColumn; ++p) {
    auto sum = hn::Load(four, all + 4 * p);
    for (int c = 1; c < F::kColumns; ++c) {
      sum = hn::Add(sum, hn::Load(four, all + 4 * (p + c * F::kOfColumn)));
    }
    hn::StoreU(sum, four, to + 16 * p);
  }
}

// {scale, zero} of as many rows as a vector has lanes.
template <class In>
HWY_INLINE void LoadPairs(const In* p, hn::Vec<Single>& scale, hn::Vec<Single>& zero) {
  const Single d;
  const auto low = LoadWidened(d, p), high = LoadWidened(d, p + hn::Lanes(d));
  scale = hn::ConcatEven(d, high, low);
  zero = hn::ConcatOdd(d, high, low);
}

// low[j] = the sum of (w[j] - 8) d0 over the listed columns, for the rows of a block.
template <int kPieces>
HWY_INLINE void AddListed(const uint8_t* HWY_RESTRICT weight, const Int4Group& group,
                          float* HWY_RESTRICT low) {
  const hn::CappedTag<int16_t, 16> dh;
  const hn::Rebind<uint8_t, decltype(dh)> narrow;
  const hn::Half<decltype(dh)> half;
  const hn::Rebind<int32_t, decltype(half)> dw;
  const hn::RebindToFloat<decltype(dw)> d;
  constexpr int kHalf = 16 * kPieces, kLanes = static_cast<int>(hn::MaxLanes(dh));
  constexpr int kVectors = kHalf / kLanes;
  hn::Vec<decltype(dh)> sums[2 * kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < 2 * kVectors; ++v) sums[v] = hn::Zero(dh);
  const auto low_bits = hn::Set(dh, 15);
  for (int i = 0; i < group.listed; ++i) {
    const uint8_t* const at = weight + int64_t{kHalf} * group.column[i];
    const auto digit = hn::Set(dh, group.digit[i]);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const auto both = hn::PromoteTo(dh, hn::LoadU(narrow, at + v * kLanes));
      sums[v] = hn::Add(sums[v], hn::Mul(hn::And(both, low_bits), digit));
      sums[kVectors + v] = hn::Add(sums[kVectors + v], hn::Mul(hn::ShiftRight<4>(both), digit));
    }
  }
  const auto start = hn::Set(dw, group.start[0]);
#pragma GCC unroll 8
  for (int v = 0; v < 2 * kVectors; ++v) {
    const auto first = hn::PromoteTo(dw, hn::LowerHalf(half, sums[v]));
    const auto last = hn::PromoteTo(dw, hn::UpperHalf(half, sums[v]));
    hn::StoreU(hn::ConvertTo(d, hn::Add(first, start)), d, low + v * kLanes);
    hn::StoreU(hn::ConvertTo(d, hn::Add(last, start)), d, low + v * kLanes + kLanes / 2);
  }
}

#define HOLOGRAM_INT4_DOTS plain
#include "src/cpu/gemm/int4_dot-inl.h"
#undef HOLOGRAM_INT4_DOTS

// Four products of bytes, added to 32 bits, are one instruction where a processor has it.
#undef HOLOGRAM_INT4_HAS_VNNI
#if HWY_TARGET == HWY_AVX3
#define HOLOGRAM_INT4_HAS_VNNI 1
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
#define HOLOGRAM_INT4_ADD_PRODUCTS _mm512_dpbusd_epi32
#elif HWY_TARGET == HWY_AVX2 && (!defined(__GNUC__) || defined(__clang__) || __GNUC__ >= 11)
#define HOLOGRAM_INT4_HAS_VNNI 1
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avxvnni")
#define HOLOGRAM_INT4_ADD_PRODUCTS _mm256_dpbusd_avx_epi32
#else
#define HOLOGRAM_INT4_HAS_VNNI 0
#endif
#if HOLOGRAM_INT4_HAS_VNNI
#define HOLOGRAM_INT4_DOTS vnni
#include "src/cpu/gemm/int4_dot-inl.h"
#undef HOLOGRAM_INT4_DOTS
#undef HOLOGRAM_INT4_ADD_PRODUCTS
HWY_POP_ATTRIBUTES
#endif

template <class In>
void WidenBlock(const uint8_t* HWY_RESTRICT weight, int64_t block, int64_t columns,
                const void* pairs, float* HWY_RESTRICT to, int64_t pitch) {
  const Single d;
  const Word dw;
  const hn::Rebind<uint8_t, Single> narrow;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), half = block / 2;
  const In* const from = static_cast<const In*>(pairs);
  const auto low_bits = hn::Set(dw, 15), offset = hn::Set(dw, 8);
  for (int64_t j = 0; j < half; j += lanes) {
    hn::Vec<Single> scale[2], zero[2];
    LoadPairs(from + 2 * j, scale[0], zero[0]);
    LoadPairs(from + 2 * (j + half), scale[1], zero[1]);
    for (int64_t c = 0; c < columns; ++c) {
      const auto both = hn::PromoteTo(dw, hn::LoadU(narrow, weight + c * half + j));
      const auto low = hn::Sub(hn::And(both, low_bits), offset);
      const auto high = hn::Sub(hn::ShiftRight<4>(both), offset);
      float* const row = to + c * pitch + j;
      hn::StoreU(hn::MulAdd(hn::ConvertTo(d, low), scale[0], zero[0]), d, row);
      hn::StoreU(hn::MulAdd(hn::ConvertTo(d, high), scale[1], zero[1]), d, row + half);
    }
  }
}

void Numbers(const uint8_t* HWY_RESTRICT weight, int64_t block, int64_t columns,
             uint16_t* HWY_RESTRICT to, int64_t pitch) {
  const hn::FixedTag<uint8_t, 16> d;
  // bfloat16 from -8 to 7, by bytes.
  HWY_ALIGN static constexpr uint8_t kLower[16] = {0x00, 0xe0, 0xc0, 0xa0, 0x80, 0x40, 0x00, 0x80,
                                                   0x00, 0x80, 0x00, 0x40, 0x80, 0xa0, 0xc0, 0xe0};
  HWY_ALIGN static constexpr uint8_t kUpper[16] = {0xc1, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xc0, 0xbf,
                                                   0x00, 0x3f, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40};
  const auto lower = hn::Load(d, kLower), upper = hn::Load(d, kUpper), low_bits = hn::Set(d, 15);
  const int64_t half = block / 2;
  const auto store = [&](hn::Vec<decltype(d)> index, uint16_t* at) HWY_ATTR {
    const auto low = hn::TableLookupBytes(lower, index), high = hn::TableLookupBytes(upper, index);
    auto* const bytes = reinterpret_cast<uint8_t*>(at);
    hn::StoreU(hn::InterleaveLower(d, low, high), d, bytes);
    hn::StoreU(hn::InterleaveUpper(d, low, high), d, bytes + 16);
  };
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t j = 0; j < half; j += 16) {
      const auto both = hn::LoadU(d, weight + c * half + j);
      store(hn::And(both, low_bits), to + c * pitch + j);
      const auto words = hn::ShiftRight<4>(hn::BitCast(hn::FixedTag<uint16_t, 8>(), both));
      store(hn::And(hn::BitCast(d, words), low_bits), to + c * pitch + j + half);
    }
  }
}

void AddGroup(const float* HWY_RESTRICT products, const float* HWY_RESTRICT scale,
              const float* HWY_RESTRICT zero, const float* HWY_RESTRICT x, int64_t step,
              int64_t rows, int64_t cols, float* HWY_RESTRICT sums) {
  const Single d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), whole = cols - cols % lanes;
  for (int64_t i = 0; i < rows; ++i, products += cols, sums += cols) {
    const auto all = hn::Set(d, x[i * step]);
    for (int64_t j = 0; j < whole; j += lanes) {
      const auto sum =
          hn::MulAdd(hn::LoadU(d, products + j), hn::LoadU(d, scale + j), hn::LoadU(d, sums + j));
      hn::StoreU(hn::MulAdd(all, hn::LoadU(d, zero + j), sum), d, sums + j);
    }
    for (int64_t j = whole; j < cols; ++j) {
      sums[j] = std::fma(x[i * step], zero[j], std::fma(products[j], scale[j], sums[j]));
    }
  }
}

template <class In>
cpu::Int4Kernel Int4KernelOf(bool has_vnni) {
#if HOLOGRAM_INT4_HAS_VNNI
  if (has_vnni) {
    return {&Split<vnni::kTogether>, &vnni::DotBlock<In>, &WidenBlock<In>, &Numbers, &AddGroup};
  }
#endif
  static_cast<void>(has_vnni);
  return {&Split<plain::kTogether>, &plain::DotBlock<In>, &WidenBlock<In>, &Numbers, &AddGroup};
}

}  // namespace

cpu::Int4Kernel Int4KernelFloat(bool has_vnni) { return Int4KernelOf<float>(has_vnni); }
cpu::Int4Kernel Int4KernelHalf(bool has_vnni) { return Int4KernelOf<hwy::float16_t>(has_vnni); }
cpu::Int4Kernel Int4KernelBFloat16(bool has_vnni) {
  return Int4KernelOf<hwy::bfloat16_t>(has_vnni);
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

// Whether the processor multiplies bytes as a kernel for that instruction set may: AVX512_VNNI, or
// AVX-VNNI (Intel's manual, CPUID leaf 7).
bool has_vnni([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (isa == Isa::kAvx512) {
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 11 & 1) != 0;
  }
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
#else
  return false;
#endif
}

}  // namespace

const Int4Kernel& int4_kernel(Isa isa, Dtype dtype, bool vnni) {
  struct Kernels {
    Int4Kernel single, half, brain;
  };
  static const auto* kernels = new Kernels[2 * kIsaCount]{
#define HOLOGRAM_INT4_KERNELS(isa, vnni)                                                      \
  {HOLOGRAM_FOR_ISA(isa, Int4KernelFloat)(vnni), HOLOGRAM_FOR_ISA(isa, Int4KernelHalf)(vnni), \
   HOLOGRAM_FOR_ISA(isa, Int4KernelBFloat16)(vnni)}
      HOLOGRAM_INT4_KERNELS(Isa::kBaseline, false),
      HOLOGRAM_INT4_KERNELS(Isa::kBaseline, false),
      HOLOGRAM_INT4_KERNELS(Isa::kAvx2, false),
      HOLOGRAM_INT4_KERNELS(Isa::kAvx2, has_vnni(Isa::kAvx2)),
      HOLOGRAM_INT4_KERNELS(Isa::kAvx512, false),
      HOLOGRAM_INT4_KERNELS(Isa::kAvx512, has_vnni(Isa::kAvx512))
#undef HOLOGRAM_INT4_KERNELS
  };
  const Kernels& own = kernels[2 * static_cast<int>(isa) + (vnni ? 1 : 0)];
  if (dtype == Dtype::kFloat32) return own.single;
  return dtype == Dtype::kFloat16 ? own.half : own.brain;
}

}  // namespace hologram::cpu
#endif
