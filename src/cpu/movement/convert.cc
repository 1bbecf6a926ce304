// SPDX-License-Identifier: MIT
// Conversions between element types and copies past the caches, for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/movement/convert.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "src/cpu/simd/half-inl.h"
#include "src/cpu/device/kernel_table.h"
// clang-format on

#include <bit>
#include <complex>
#include <cstring>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

template <Dtype kDtype>
struct Stored;
#define HOLOGRAM_STORED(dtype, type) \
  template <>                        \
  struct Stored<Dtype::dtype> {      \
    using Type = type;               \
  };
HOLOGRAM_STORED(kBool, uint8_t)
HOLOGRAM_STORED(kUInt8, uint8_t)
HOLOGRAM_STORED(kInt8, int8_t)
HOLOGRAM_STORED(kInt16, int16_t)
HOLOGRAM_STORED(kInt32, int32_t)
HOLOGRAM_STORED(kInt64, int64_t)
HOLOGRAM_STORED(kFloat32, float)
HOLOGRAM_STORED(kFloat64, double)
HOLOGRAM_STORED(kComplex64, std::complex<float>)
HOLOGRAM_STORED(kComplex128, std::complex<double>)
#undef HOLOGRAM_STORED

// The value a C cast gives; float to a narrow unsigned type goes through int64 so that negative
// numbers wrap as PyTorch's do instead of being undefined.
template <Dtype kTo, class To, class From>
HWY_INLINE To ConvertOne(From value) {
  if constexpr (kTo == Dtype::kBool) {
    return value != From(0) ? 1 : 0;
  } else if constexpr (std::is_floating_point_v<From> && std::is_same_v<To, uint8_t>) {
    return static_cast<To>(static_cast<int64_t>(value));
  } else if constexpr (is_complex(kTo) && std::is_arithmetic_v<From>) {
    return To(static_cast<typename To::value_type>(value), 0);
  } else {
    return static_cast<To>(value);
  }
}

template <Dtype kFrom, Dtype kTo>
void ConvertPlain(const void* src, void* dst, int64_t n) {
  using From = typename Stored<kFrom>::Type;
  using To = typename Stored<kTo>::Type;
  const From* HWY_RESTRICT in = static_cast<const From*>(src);
  To* HWY_RESTRICT out = static_cast<To*>(dst);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (kFrom == Dtype::kBool) {
      // Any byte but 0 is true: bytes may be seen as bool.
      out[i] = ConvertOne<kTo, To>(static_cast<From>(in[i] != 0));
    } else {
      out[i] = ConvertOne<kTo, To>(in[i]);
    }
  }
}

template <Dtype kFrom, Dtype... kTo>
void AddFrom(cpu::ConvertTable& table) {
  ((table.kernels[static_cast<int>(kFrom)][static_cast<int>(kTo)] = &ConvertPlain<kFrom, kTo>),
   ...);
}

template <Dtype kFrom>
void AddFromReal(cpu::ConvertTable& table) {
  AddFrom<kFrom, Dtype::kBool, Dtype::kUInt8, Dtype::kInt8, Dtype::kInt16, Dtype::kInt32,
          Dtype::kInt64, Dtype::kFloat32, Dtype::kFloat64, Dtype::kComplex64, Dtype::kComplex128>(
      table);
}

// Bytes have no more digits than bfloat16: the upper half of the float32 is exact.
template <class From>
void ByteToBFloat16(const void* src, void* dst, int64_t n) {
  const From* HWY_RESTRICT in = static_cast<const From*>(src);
  uint16_t* HWY_RESTRICT out = static_cast<uint16_t*>(dst);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(in[i])) >> 16);
  }
}

void Stream(const void* src, void* dst, int64_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const auto* in = static_cast<const uint8_t*>(src);
  auto* out = static_cast<uint8_t*>(dst);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
#pragma GCC unroll 4
  for (int64_t i = 0; i < bytes; i += lanes) hn::Stream(hn::LoadU(d, in + i), d, out + i);
}

}  // namespace

void AddConversions(cpu::ConvertTable& table) {
  AddFromReal<Dtype::kBool>(table);
  AddFromReal<Dtype::kUInt8>(table);
  AddFromReal<Dtype::kInt8>(table);
  AddFromReal<Dtype::kInt16>(table);
  AddFromReal<Dtype::kInt32>(table);
  AddFromReal<Dtype::kInt64>(table);
  AddFromReal<Dtype::kFloat32>(table);
  AddFromReal<Dtype::kFloat64>(table);
  AddFrom<Dtype::kComplex64, Dtype::kComplex64, Dtype::kComplex128>(table);
  AddFrom<Dtype::kComplex128, Dtype::kComplex64, Dtype::kComplex128>(table);
  auto& kernels = table.kernels;
  constexpr int kF32 = static_cast<int>(Dtype::kFloat32);
  kernels[static_cast<int>(Dtype::kFloat16)][kF32] = &HalfToFloat;
  kernels[static_cast<int>(Dtype::kBFloat16)][kF32] = &BFloat16ToFloat;
  kernels[kF32][static_cast<int>(Dtype::kFloat16)] = &FloatToHalf;
  kernels[kF32][static_cast<int>(Dtype::kBFloat16)] = &FloatToBFloat16;
  kernels[static_cast<int>(Dtype::kInt8)][static_cast<int>(Dtype::kBFloat16)] =
      &ByteToBFloat16<int8_t>;
  kernels[static_cast<int>(Dtype::kUInt8)][static_cast<int>(Dtype::kBFloat16)] =
      &ByteToBFloat16<uint8_t>;
  table.stream = &Stream;
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

const ConvertTable& convert_table(Isa isa) {
  static const ConvertTable* tables = [] {
    auto* built = new ConvertTable[kIsaCount];
    for (int i = 0; i < kIsaCount; ++i) {
      if (isa_available(static_cast<Isa>(i))) {
        HOLOGRAM_FOR_ISA(static_cast<Isa>(i), AddConversions)(built[i]);
      }
    }
    return built;
  }();
  return tables[static_cast<int>(isa)];
}

}  // namespace hologram::cpu
#endif
