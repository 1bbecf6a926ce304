// SPDX-License-Identifier: MIT
// What the kernels of reductions share: what is done to an element before it is accumulated, and
// how a kernel enters its table.

#if defined(HOLOGRAM_CPU_FOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_CPU_FOLD_INL_H_
#undef HOLOGRAM_CPU_FOLD_INL_H_
#else
#define HOLOGRAM_CPU_FOLD_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/cpu/reduce/reduce_kernels.h"
#include "src/cpu/simd/simd_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::Fold;
using cpu::FoldKernel;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
constexpr bool kIsFloat = std::is_floating_point_v<T>;

// ---- what is done to an element before it is accumulated ----

struct Same {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return x;
  }
};
struct Magnitude {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return hn::Abs(x);
  }
};
struct Squared {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return hn::Mul(x, x);
  }
};
struct NonzeroOne {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    const hn::DFromV<V> d;
    return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Zero(d),
                          hn::Set(d, static_cast<hn::TFromD<decltype(d)>>(1)));
  }
};

template <class F>
FoldKernel KernelOf(size_t acc_size) {
  return {static_cast<int>(acc_size), &F::Init, &F::Rows, &F::Cols, nullptr, &F::Merge};
}

using Kernels = cpu::FoldTable;

FoldKernel& At(Kernels& table, Fold fold, Dtype dtype) {
  return table[static_cast<int>(fold)][static_cast<int>(dtype)];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_FOLD_INL_H_
