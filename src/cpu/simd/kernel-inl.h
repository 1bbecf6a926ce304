// SPDX-License-Identifier: MIT
// Turns a row's body into kernels: vector loops for floats, plain loops for integers.

#if defined(HOLOGRAM_CPU_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_CPU_KERNEL_INL_H_
#undef HOLOGRAM_CPU_KERNEL_INL_H_
#else
#define HOLOGRAM_CPU_KERNEL_INL_H_
#endif

#include <cstring>

#include "hologram/op_columns.h"
#include "src/cpu/device/kernel_table.h"
#include "src/cpu/simd/primitives-inl.h"
#include "src/cpu/simd/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The widest vectors every target of ours can hold as a type; n lanes of T.
template <class T>
using Tag = hn::ScalableTag<T>;

// One byte per lane, 0 or 1.
template <class D, class M>
HWY_INLINE void StoreMaskBytes(D d, M mask, uint8_t* out) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (hn::MaxLanes(D()) == 16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm_maskz_set1_epi8(static_cast<__mmask16>(mask.raw), 1));
    return;
  } else {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out),
                     _mm_maskz_set1_epi8(static_cast<__mmask16>(mask.raw), 1));
    return;
  }
#endif
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint8_t, D> du8;
  const auto ones = hn::And(hn::BitCast(du, hn::VecFromMask(d, mask)), hn::Set(du, 1));
  hn::StoreU(hn::TruncateTo(du8, ones), du8, out);
}

// Operand k is one element where bit k of kMask is set. Whole vectors first, then the rest through
// masked loads and stores of one more, so that an element's value never depends on its position.
template <class Body, class T, int kArity, unsigned kMask, bool kBool>
void FloatKernel(const void* const* in, void* out, int64_t n) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  using Out = std::conditional_t<kBool, uint8_t, T>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (n <= 0) return;
  const T* p0 = static_cast<const T*>(in[0]);
  const T* p1 = kArity > 1 ? static_cast<const T*>(in[1]) : p0;
  const T* p2 = kArity > 2 ? static_cast<const T*>(in[2]) : p0;
  const T* p3 = kArity > 3 ? static_cast<const T*>(in[3]) : p0;
  Out* to = static_cast<Out*>(out);
  const V s0 = hn::Set(d, *p0), s1 = hn::Set(d, *p1), s2 = hn::Set(d, *p2), s3 = hn::Set(d, *p3);
  const Body body{};
  int64_t i = 0;
  const auto run = [&](auto load, auto store) HWY_ATTR {
    const V x = (kMask & 1) ? s0 : load(p0 + i);
    [[maybe_unused]] const V y = (kMask & 2) || kArity < 2 ? s1 : load(p1 + i);
    [[maybe_unused]] const V z = (kMask & 4) || kArity < 3 ? s2 : load(p2 + i);
    [[maybe_unused]] const V w = (kMask & 8) || kArity < 4 ? s3 : load(p3 + i);
    store(body(x, y, z, w));
  };
  const auto load_whole = [&](const T* p) HWY_ATTR { return hn::LoadU(d, p); };
  const auto store_whole = [&](auto result) HWY_ATTR {
    if constexpr (kBool) {
      StoreMaskBytes(d, result, to + i);
    } else {
      hn::StoreU(result, d, to + i);
    }
  };
#pragma GCC unroll 2
  for (; i + lanes <= n; i += lanes) run(load_whole, store_whole);
  if (i == n) return;
  const int64_t rest = n - i;
  run([&](const T* p) HWY_ATTR { return LoadFirst(d, p, rest); },
      [&](auto result) HWY_ATTR {
        if constexpr (kBool) {
          uint8_t bytes[hn::MaxLanes(d)];
          StoreMaskBytes(d, result, bytes);
          std::memcpy(to + i, bytes, static_cast<size_t>(rest));
        } else {
          StoreFirst(d, result, to + i, rest);
        }
      });
}

// A stored element as a body takes it. Any byte but 0 is true: bytes may be seen as bool.
template <class T>
HWY_INLINE Int<T> LoadInt(typename Int<T>::Stored stored) {
  if constexpr (std::is_same_v<T, Bool>) {
    return {static_cast<uint8_t>(stored != 0)};
  } else {
    return {stored};
  }
}

template <class Body, class T, int kArity, unsigned kMask, bool kBool>
void IntKernel(const void* const* in, void* out, int64_t n) {
  using S = typename Int<T>::Stored;
  const S* p0 = static_cast<const S*>(in[0]);
  const S* p1 = kArity > 1 ? static_cast<const S*>(in[1]) : p0;
  const S* p2 = kArity > 2 ? static_cast<const S*>(in[2]) : p0;
  const S* p3 = kArity > 3 ? static_cast<const S*>(in[3]) : p0;
  if (n == 0) return;
  const Int<T> s0 = LoadInt<T>(*p0), s1 = LoadInt<T>(*p1), s2 = LoadInt<T>(*p2),
               s3 = LoadInt<T>(*p3);
  const Body body{};
  auto* o = static_cast<std::conditional_t<kBool, uint8_t, S>*>(out);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const Int<T> x = (kMask & 1) ? s0 : LoadInt<T>(p0[i]);
    const Int<T> y = (kMask & 2) || kArity < 2 ? s1 : LoadInt<T>(p1[i]);
    const Int<T> z = (kMask & 4) || kArity < 3 ? s2 : LoadInt<T>(p2[i]);
    const Int<T> w = (kMask & 8) || kArity < 4 ? s3 : LoadInt<T>(p3[i]);
    if constexpr (kBool) {
      o[i] = static_cast<uint8_t>(body(x, y, z, w));
    } else {
      o[i] = body(x, y, z, w).v;
    }
  }
}

template <class T>
constexpr Dtype DtypeOf() {
  if constexpr (std::is_same_v<T, Bool>) return Dtype::kBool;
  if constexpr (std::is_same_v<T, uint8_t>) return Dtype::kUInt8;
  if constexpr (std::is_same_v<T, int8_t>) return Dtype::kInt8;
  if constexpr (std::is_same_v<T, int16_t>) return Dtype::kInt16;
  if constexpr (std::is_same_v<T, int32_t>) return Dtype::kInt32;
  if constexpr (std::is_same_v<T, int64_t>) return Dtype::kInt64;
  if constexpr (std::is_same_v<T, float>) return Dtype::kFloat32;
  return Dtype::kFloat64;
}

template <class Body, class T, int kArity, unsigned kMask, bool kBool>
constexpr ElementwiseKernel KernelOf() {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    return &FloatKernel<Body, T, kArity, kMask, kBool>;
  } else {
    return &IntKernel<Body, T, kArity, kMask, kBool>;
  }
}

// Compiles a row for the element type T, if the row has that type, and enters its forms.
template <class Body, class T, DtypeSet kSet, int kArity, int kParams, bool kBool>
void AddRow(OpId id, cpu::KernelTable& table) {
  constexpr Dtype kDtype = DtypeOf<T>();
  if constexpr (supports(kSet, kDtype)) {
    constexpr int kTrailing = kParams > 0 ? kParams : 1;
    auto& forms = table.kernels[static_cast<int>(id)][static_cast<int>(kDtype)];
    forms[0] = KernelOf<Body, T, kArity, 0, kBool>();
    if constexpr (kArity == 2 && kParams == 0) forms[1] = KernelOf<Body, T, 2, 1, kBool>();
    if constexpr (kArity == 2 || kParams > 0) {
      constexpr unsigned kMask = ((1u << kTrailing) - 1) << (kArity - kTrailing);
      forms[2] = KernelOf<Body, T, kArity, kMask, kBool>();
    }
  }
}

// Bodies take all four names; a row uses those it has operands for.
#define HOLOGRAM_BODY(name, body)                                                                \
  struct name##_body {                                                                           \
    template <class V>                                                                           \
    HWY_INLINE auto operator()([[maybe_unused]] V x, [[maybe_unused]] V y, [[maybe_unused]] V z, \
                               [[maybe_unused]] V w) const {                                     \
      return body;                                                                               \
    }                                                                                            \
  };

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_KERNEL_INL_H_
