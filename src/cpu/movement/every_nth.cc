// SPDX-License-Identifier: MIT
// Gathering every second, third or fourth element, all backward, or one again and again, for every
// instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/movement/every_nth.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "hwy/highway.h"
#include "src/cpu/movement/every_nth.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T, int kStep>
void EveryNth(const void* HWY_RESTRICT source, void* HWY_RESTRICT target, int64_t n) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* from = static_cast<const T*>(source);
  T* to = static_cast<T*>(target);
  int64_t i = 0;
  // A vector is read with what lies behind its last element, up to the next.
  for (; i + lanes < n; i += lanes) {
    hn::Vec<decltype(d)> first, second, third, fourth;
    if constexpr (kStep == 2) hn::LoadInterleaved2(d, from + 2 * i, first, second);
    if constexpr (kStep == 3) hn::LoadInterleaved3(d, from + 3 * i, first, second, third);
    if constexpr (kStep == 4) hn::LoadInterleaved4(d, from + 4 * i, first, second, third, fourth);
    hn::StoreU(first, d, to + i);
  }
  for (; i < n; ++i) to[i] = from[kStep * i];
}

// Highway's Reverse() takes no bytes.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V ReverseOf(D d, V v) {
  if constexpr (sizeof(hn::TFromD<D>) == 1) {
    const hn::Repartition<uint16_t, D> pairs;
    const auto turned = hn::Reverse(pairs, hn::BitCast(pairs, v));
    return hn::BitCast(d, hn::Or(hn::ShiftLeft<8>(turned), hn::ShiftRight<8>(turned)));
  } else {
    return hn::Reverse(d, v);
  }
}

template <class T>
void Backward(const void* HWY_RESTRICT source, void* HWY_RESTRICT target, int64_t n) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* from = static_cast<const T*>(source);
  T* to = static_cast<T*>(target);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(ReverseOf(d, hn::LoadU(d, from - i - (lanes - 1))), d, to + i);
  }
  for (; i < n; ++i) to[i] = from[-i];
}

template <class T>
void Repeat(const void* HWY_RESTRICT source, void* HWY_RESTRICT target, int64_t n) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const T element = *static_cast<const T*>(source);
  const auto v = hn::Set(d, element);
  T* to = static_cast<T*>(target);
  if (n < lanes) {
    for (int64_t i = 0; i < n; ++i) to[i] = element;
    return;
  }
  hn::StoreU(v, d, to);
  hn::StoreU(v, d, to + n - lanes);
  // Stores are aligned but for the first and the last.
  int64_t i = (lanes * static_cast<int64_t>(sizeof(T)) -
               static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % (lanes * sizeof(T)))) /
              static_cast<int64_t>(sizeof(T));
#pragma GCC unroll 4
  for (; i + lanes <= n; i += lanes) hn::StoreU(v, d, to + i);
}

template <class T>
cpu::EveryNthKernel OfStep(int64_t step) {
  switch (step) {
    case 0:
      return &Repeat<T>;
    case -1:
      return &Backward<T>;
    case 2:
      return &EveryNth<T, 2>;
    case 3:
      return &EveryNth<T, 3>;
    case 4:
      return &EveryNth<T, 4>;
    default:
      return nullptr;
  }
}

}  // namespace

cpu::EveryNthKernel EveryNthKernelOf(int64_t step, int64_t itemsize) {
  switch (itemsize) {
    case 1:
      return OfStep<uint8_t>(step);
    case 2:
      return OfStep<uint16_t>(step);
    case 4:
      return OfStep<uint32_t>(step);
    case 8:  // Where vectors hold two or four of them, further steps are no faster than one by one.
      return step <= 2 ? OfStep<uint64_t>(step) : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

EveryNthKernel every_nth_kernel(Isa isa, int64_t step, int64_t itemsize) {
  if (step < -1 || step == 1 || step > 4) return nullptr;
  if (isa == Isa::kAvx512) return HOLOGRAM_FOR_ISA(Isa::kAvx512, EveryNthKernelOf)(step, itemsize);
  if (isa == Isa::kAvx2) return HOLOGRAM_FOR_ISA(Isa::kAvx2, EveryNthKernelOf)(step, itemsize);
  return HOLOGRAM_FOR_ISA(Isa::kBaseline, EveryNthKernelOf)(step, itemsize);
}

}  // namespace hologram::cpu
#endif
