// SPDX-License-Identifier: MIT
// Conversions between element types and copies past the caches, for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/movement/convert.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "src/cpu/simd/half-inl.h"
#include "src/cpu/device/kernel_table.h"
// clang-format on

#include <algorithm>
#include <bit>
#include <cmath>
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
  for (int64_t i = 0; i < n; ++i) out[i] = ConvertOne<kTo, To>(in[i]);
}

// A bool is any byte but 0: bytes may be seen as bool. They become 0 and 1 first, block by block,
// and then what kFromBytes makes of these: in one loop with a conversion compilers make a branch.
template <auto kFromBytes, size_t kItemSize>
void ConvertBool(const void* src, void* dst, int64_t n) {
  const auto* in = static_cast<const uint8_t*>(src);
  auto* out = static_cast<char*>(dst);
  constexpr int64_t kBlock = 1024;
  alignas(64) uint8_t truths[kBlock];
  for (int64_t done = 0; done < n; done += kBlock) {
    const int64_t count = std::min(kBlock, n - done);
    for (int64_t i = 0; i < count; ++i) truths[i] = in[done + i] != 0 ? 1 : 0;
    kFromBytes(truths, out + done * static_cast<int64_t>(kItemSize), count);
  }
}

// As by way of int64, but in vectors. A float32 that int32 does not hold is a multiple of 256, so
// that 0 has its lowest byte; infinities and NaN give 0.
void Float32ToUInt8(const void* src, void* dst, int64_t n) {
  const float* HWY_RESTRICT in = static_cast<const float*>(src);
  uint8_t* HWY_RESTRICT out = static_cast<uint8_t*>(dst);
  for (int64_t i = 0; i < n; ++i) {
    const float value = std::fabs(in[i]) < 0x1p31f ? in[i] : 0.0f;
    out[i] = static_cast<uint8_t>(static_cast<int32_t>(value));
  }
}

// The lowest byte of the whole part t is t - 256 floor(t / 256), in which every step is exact.
void Float64ToUInt8(const void* src, void* dst, int64_t n) {
  const double* HWY_RESTRICT in = static_cast<const double*>(src);
  uint8_t* HWY_RESTRICT out = static_cast<uint8_t*>(dst);
  for (int64_t i = 0; i < n; ++i) {
    const double whole = std::trunc(in[i]);
    const double rest = whole - 256.0 * std::floor(whole * 0x1p-8);
    out[i] = static_cast<uint8_t>(static_cast<int32_t>(rest < 256.0 ? rest : 0.0));
  }
}

// To and from bfloat16 through float32, in one loop.
template <Dtype kFrom>
void ToBFloat16(const void* src, void* dst, int64_t n) {
  using From = typename Stored<kFrom>::Type;
  const From* HWY_RESTRICT in = static_cast<const From*>(src);
  uint16_t* HWY_RESTRICT out = static_cast<uint16_t*>(dst);
  for (int64_t i = 0; i < n; ++i) out[i] = FloatToBFloat16One(static_cast<float>(in[i]));
}

template <Dtype kTo>
void FromBFloat16(const void* src, void* dst, int64_t n) {
  using To = typename Stored<kTo>::Type;
  const uint16_t* HWY_RESTRICT in = static_cast<const uint16_t*>(src);
  To* HWY_RESTRICT out = static_cast<To*>(dst);
  for (int64_t i = 0; i < n; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(in[i]) << 16);
    out[i] = ConvertOne<kTo, To>(value);
  }
}

template <Dtype kFrom, Dtype... kTo>
void AddFrom(cpu::ConvertTable& table) {
  ((table.kernels[static_cast<int>(kFrom)][static_cast<int>(kTo)] = &ConvertPlain<kFrom, kTo>),
   ...);
}

template <Dtype... kTo>
void AddFromBool(cpu::ConvertTable& table) {
  ((table.kernels[static_cast<int>(Dtype::kBool)][static_cast<int>(kTo)] =
        &ConvertBool<&ConvertPlain<Dtype::kUInt8, kTo>, sizeof(typename Stored<kTo>::Type)>),
   ...);
}

template <Dtype kFrom>
void AddFromReal(cpu::ConvertTable& table) {
  AddFrom<kFrom, Dtype::kBool, Dtype::kUInt8, Dtype::kInt8, Dtype::kInt16, Dtype::kInt32,
          Dtype::kInt64, Dtype::kFloat32, Dtype::kFloat64, Dtype::kComplex64, Dtype::kComplex128>(
      table);
}

template <Dtype... kReal>
void AddBFloat16(cpu::ConvertTable& table) {
  constexpr int kBF16 = static_cast<int>(Dtype::kBFloat16);
  ((table.kernels[static_cast<int>(kReal)][kBF16] = &ToBFloat16<kReal>), ...);
  ((table.kernels[kBF16][static_cast<int>(kReal)] = &FromBFloat16<kReal>), ...);
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

void Copy(const void* src, void* dst, int64_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const auto* in = static_cast<const uint8_t*>(src);
  auto* out = static_cast<uint8_t*>(dst);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // Stores are aligned but for the first and the last.
  const auto first = hn::LoadU(d, in), last = hn::LoadU(d, in + bytes - lanes);
  int64_t i = lanes - static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) %
                                           static_cast<uintptr_t>(lanes));
  for (; i + 4 * lanes <= bytes; i += 4 * lanes) {
    const auto a = hn::LoadU(d, in + i), b = hn::LoadU(d, in + i + lanes);
    const auto c = hn::LoadU(d, in + i + 2 * lanes), e = hn::LoadU(d, in + i + 3 * lanes);
    hn::Store(a, d, out + i);
    hn::Store(b, d, out + i + lanes);
    hn::Store(c, d, out + i + 2 * lanes);
    hn::Store(e, d, out + i + 3 * lanes);
  }
  for (; i + lanes <= bytes; i += lanes) hn::Store(hn::LoadU(d, in + i), d, out + i);
  hn::StoreU(first, d, out);
  hn::StoreU(last, d, out + bytes - lanes);
}

}  // namespace

void AddConversions(cpu::ConvertTable& table) {
  AddFromBool<Dtype::kUInt8, Dtype::kInt8, Dtype::kInt16, Dtype::kInt32, Dtype::kInt64,
              Dtype::kFloat32, Dtype::kFloat64, Dtype::kComplex64, Dtype::kComplex128>(table);
  AddFromReal<Dtype::kUInt8>(table);
  AddFromReal<Dtype::kInt8>(table);
  AddFromReal<Dtype::kInt16>(table);
  AddFromReal<Dtype::kInt32>(table);
  AddFromReal<Dtype::kInt64>(table);
  AddFromReal<Dtype::kFloat32>(table);
  AddFromReal<Dtype::kFloat64>(table);
  AddFrom<Dtype::kComplex64, Dtype::kComplex64, Dtype::kComplex128>(table);
  AddFrom<Dtype::kComplex128, Dtype::kComplex64, Dtype::kComplex128>(table);
  AddBFloat16<Dtype::kInt16, Dtype::kInt32, Dtype::kInt64, Dtype::kFloat64>(table);
  const auto set = [&](Dtype from, Dtype to, auto kernel) {
    table.kernels[static_cast<int>(from)][static_cast<int>(to)] = kernel;
  };
  set(Dtype::kFloat32, Dtype::kUInt8, &Float32ToUInt8);
  set(Dtype::kFloat64, Dtype::kUInt8, &Float64ToUInt8);
  set(Dtype::kFloat16, Dtype::kFloat32, &HalfToFloat);
  set(Dtype::kBFloat16, Dtype::kFloat32, &BFloat16ToFloat);
  set(Dtype::kFloat32, Dtype::kFloat16, &FloatToHalf);
  set(Dtype::kFloat32, Dtype::kBFloat16, &FloatToBFloat16);
  set(Dtype::kInt8, Dtype::kBFloat16, &ByteToBFloat16<int8_t>);
  set(Dtype::kUInt8, Dtype::kBFloat16, &ByteToBFloat16<uint8_t>);
  set(Dtype::kBool, Dtype::kBFloat16, &ConvertBool<&ByteToBFloat16<uint8_t>, 2>);
  table.stream = &Stream;
  table.copy = &Copy;
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
