// SPDX-License-Identifier: MIT
// Turns a row's body into kernels: vector loops for floats, plain loops for integers.

#if defined(HOLOGRAM_CPU_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_CPU_KERNEL_INL_H_
#undef HOLOGRAM_CPU_KERNEL_INL_H_
#else
#define HOLOGRAM_CPU_KERNEL_INL_H_
#endif

#include <cstring>

#include "src/cpu/kernel_table.h"
#include "src/cpu/vocabulary-inl.h"

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

// n is a multiple of the lane count. Operand k is one element where bit k of kMask is set.
template <class Body, class T, int kArity, unsigned kMask, bool kBool>
HWY_NOINLINE void FloatSpan(const T* const* in, void* HWY_RESTRICT out, int64_t n) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  using V = hn::Vec<Tag<T>>;
  const T* p0 = in[0];
  const T* p1 = kArity > 1 ? in[1] : p0;
  const T* p2 = kArity > 2 ? in[2] : p0;
  const T* p3 = kArity > 3 ? in[3] : p0;
  const V s0 = hn::Set(d, *p0), s1 = hn::Set(d, *p1), s2 = hn::Set(d, *p2), s3 = hn::Set(d, *p3);
  const Body body{};
#pragma GCC unroll 2
  for (int64_t i = 0; i < n; i += lanes) {
    const V x = (kMask & 1) ? s0 : hn::LoadU(d, p0 + i);
    [[maybe_unused]] const V y = (kMask & 2) || kArity < 2 ? s1 : hn::LoadU(d, p1 + i);
    [[maybe_unused]] const V z = (kMask & 4) || kArity < 3 ? s2 : hn::LoadU(d, p2 + i);
    [[maybe_unused]] const V w = (kMask & 8) || kArity < 4 ? s3 : hn::LoadU(d, p3 + i);
    if constexpr (kBool) {
      StoreMaskBytes(d, body(x, y, z, w), static_cast<uint8_t*>(out) + i);
    } else {
      hn::StoreU(body(x, y, z, w), d, static_cast<T*>(out) + i);
    }
  }
}

// Whole vectors in place, the rest through a padded copy, so that an element's value never depends
// on its position.
template <class Body, class T, int kArity, unsigned kMask, bool kBool>
void FloatKernel(const void* const* in, void* out, int64_t n) {
  constexpr int64_t kMaxLanes = static_cast<int64_t>(hn::MaxLanes(Tag<T>()));
  using Out = std::conditional_t<kBool, uint8_t, T>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<T>()));
  const int64_t whole = n - n % lanes;
  const T* p[kArity];
  for (int k = 0; k < kArity; ++k) p[k] = static_cast<const T*>(in[k]);
  if (whole > 0) FloatSpan<Body, T, kArity, kMask, kBool>(p, out, whole);
  const size_t rest = static_cast<size_t>(n - whole);
  if (rest == 0) return;
  HWY_ALIGN T padded[kArity][kMaxLanes] = {};
  HWY_ALIGN Out result[kMaxLanes];
  for (int k = 0; k < kArity; ++k) {
    if (kMask >> k & 1) continue;
    std::memcpy(padded[k], p[k] + whole, rest * sizeof(T));
    p[k] = padded[k];
  }
  FloatSpan<Body, T, kArity, kMask, kBool>(p, result, lanes);
  std::memcpy(static_cast<Out*>(out) + whole, result, rest * sizeof(Out));
}

template <class Body, class T, int kArity, unsigned kMask, bool kBool>
void IntKernel(const void* const* in, void* out, int64_t n) {
  using S = typename Int<T>::Stored;
  const S* p0 = static_cast<const S*>(in[0]);
  const S* p1 = kArity > 1 ? static_cast<const S*>(in[1]) : p0;
  const S* p2 = kArity > 2 ? static_cast<const S*>(in[2]) : p0;
  const S* p3 = kArity > 3 ? static_cast<const S*>(in[3]) : p0;
  if (n == 0) return;
  const Int<T> s0{*p0}, s1{*p1}, s2{*p2}, s3{*p3};
  const Body body{};
  auto* o = static_cast<std::conditional_t<kBool, uint8_t, S>*>(out);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const Int<T> x = (kMask & 1) ? s0 : Int<T>{p0[i]};
    const Int<T> y = (kMask & 2) || kArity < 2 ? s1 : Int<T>{p1[i]};
    const Int<T> z = (kMask & 4) || kArity < 3 ? s2 : Int<T>{p2[i]};
    const Int<T> w = (kMask & 8) || kArity < 4 ? s3 : Int<T>{p3[i]};
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
  constexpr OpInfo kRow{{}, OpId{}, 0, 0, kSet, false, {}, 0, 0, {}};
  if constexpr (kRow.supports(kDtype)) {
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
