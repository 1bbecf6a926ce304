// SPDX-License-Identifier: MIT
// The inner loops of layer norm, for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/norm/norm_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "src/cpu/device/float_kernels.h"
#include "src/cpu/simd/lanes-inl.h"
#include "src/cpu/norm/norm_kernels.h"
// clang-format on

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::NormGradRows;
using cpu::NormKernel;
using cpu::NormRows;

// Mean first, then the mean square of the differences: a row is in the nearest cache the second
// time, and nothing cancels.
template <class T, bool kWeight, bool kBias>
void Forward(const NormRows& rows) {
  const LaneTag<T> d;
  using V = LaneVec<T>;
  const int64_t n = rows.n;
  const T* weight = static_cast<const T*>(rows.weight);
  const T* bias = static_cast<const T*>(rows.bias);
  for (int64_t r = 0; r < rows.count; ++r) {
    const T* x = static_cast<const T*>(rows.x) + r * rows.x_stride;
    T* out = static_cast<T*>(rows.out) + r * rows.out_stride;
    double total[1];
    SumLanes<T>(n, total, [&](int64_t i, auto lanes, V(&sum)[1]) HWY_ATTR {
      sum[0] = hn::Add(sum[0], lanes.Load(d, x + i));
    });
    const T mean = static_cast<T>(total[0] / static_cast<double>(n));
    const V vmean = hn::Set(d, mean);
    SumLanes<T>(n, total, [&](int64_t i, auto lanes, V(&sum)[1]) HWY_ATTR {
      const V centred = lanes.Keep(d, hn::Sub(lanes.Load(d, x + i), vmean));
      sum[0] = hn::MulAdd(centred, centred, sum[0]);
    });
    const T rstd = static_cast<T>(1.0 / std::sqrt(total[0] / static_cast<double>(n) + rows.eps));
    const V vrstd = hn::Set(d, rstd);
    ForLanes<T>(n, [&](int64_t i, auto lanes) HWY_ATTR {
      V y = hn::Mul(hn::Sub(lanes.Load(d, x + i), vmean), vrstd);
      if constexpr (kWeight && kBias) {
        y = hn::MulAdd(y, lanes.Load(d, weight + i), lanes.Load(d, bias + i));
      } else if constexpr (kWeight) {
        y = hn::Mul(y, lanes.Load(d, weight + i));
      } else if constexpr (kBias) {
        y = hn::Add(y, lanes.Load(d, bias + i));
      }
      lanes.Store(d, y, out + i);
    });
    static_cast<T*>(rows.mean)[r] = mean;
    static_cast<T*>(rows.rstd)[r] = rstd;
  }
}

// With g = grad * weight and c = x - mean:
//   grad_in = rstd (g - mean(g) - c rstd^2 mean(g c)),  grad_weight += grad c rstd,
//   grad_bias += grad.
template <class T, bool kWeight, bool kIn, bool kParams>
void Backward(const NormGradRows& rows) {
  const LaneTag<T> d;
  using V = LaneVec<T>;
  const int64_t n = rows.n;
  const T* weight = static_cast<const T*>(rows.weight);
  T* grad_weight = static_cast<T*>(rows.grad_weight);
  T* grad_bias = static_cast<T*>(rows.grad_bias);
  for (int64_t r = 0; r < rows.count; ++r) {
    const T* x = static_cast<const T*>(rows.x) + r * rows.x_stride;
    const T* grad = static_cast<const T*>(rows.grad) + r * rows.grad_stride;
    const T rstd = static_cast<const T*>(rows.rstd)[r];
    const V vmean = hn::Set(d, static_cast<const T*>(rows.mean)[r]), vrstd = hn::Set(d, rstd);
    double totals[2];
    SumLanes<T>(n, totals, [&](int64_t i, auto lanes, V(&sums)[2]) HWY_ATTR {
      const V dy = lanes.Load(d, grad + i);
      const V centred = lanes.Keep(d, hn::Sub(lanes.Load(d, x + i), vmean));
      if constexpr (kParams) {
        const V scaled = hn::Mul(centred, vrstd);
        lanes.Store(d, hn::MulAdd(dy, scaled, lanes.Load(d, grad_weight + i)), grad_weight + i);
        lanes.Store(d, hn::Add(dy, lanes.Load(d, grad_bias + i)), grad_bias + i);
      }
      if constexpr (kIn) {
        const V g = kWeight ? hn::Mul(dy, lanes.Load(d, weight + i)) : dy;
        sums[0] = hn::Add(sums[0], g);
        sums[1] = hn::MulAdd(g, centred, sums[1]);
      }
    });
    if constexpr (kIn) {
      T* out = static_cast<T*>(rows.grad_in) + r * rows.grad_in_stride;
      const double wide = static_cast<double>(rstd);
      const V shift = hn::Set(d, static_cast<T>(totals[0] / static_cast<double>(n)));
      const V slope = hn::Set(d, static_cast<T>(totals[1] / static_cast<double>(n) * wide * wide));
      ForLanes<T>(n, [&](int64_t i, auto lanes) HWY_ATTR {
        const V dy = lanes.Load(d, grad + i);
        const V g = kWeight ? hn::Mul(dy, lanes.Load(d, weight + i)) : dy;
        const V centred = hn::Sub(lanes.Load(d, x + i), vmean);
        lanes.Store(d, hn::Mul(hn::NegMulAdd(centred, slope, hn::Sub(g, shift)), vrstd), out + i);
      });
    }
  }
}

template <class T>
void AnyForward(const NormRows& rows) {
  if (rows.weight != nullptr) {
    rows.bias != nullptr ? Forward<T, true, true>(rows) : Forward<T, true, false>(rows);
  } else {
    rows.bias != nullptr ? Forward<T, false, true>(rows) : Forward<T, false, false>(rows);
  }
}

template <class T, bool kWeight>
void BackwardWith(const NormGradRows& rows) {
  const bool params = rows.grad_weight != nullptr;
  if (rows.grad_in == nullptr) {
    Backward<T, kWeight, false, true>(rows);
  } else if (params) {
    Backward<T, kWeight, true, true>(rows);
  } else {
    Backward<T, kWeight, true, false>(rows);
  }
}

template <class T>
void AnyBackward(const NormGradRows& rows) {
  rows.weight != nullptr ? BackwardWith<T, true>(rows) : BackwardWith<T, false>(rows);
}

}  // namespace

NormKernel NormKernelOf(Dtype dtype) {
  return dtype == Dtype::kFloat64 ? NormKernel{&AnyForward<double>, &AnyBackward<double>}
                                  : NormKernel{&AnyForward<float>, &AnyBackward<float>};
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

const NormKernel& norm_kernel(Isa isa, Dtype dtype) {
  static const FloatKernels<NormKernel> kernels(
      [](Isa each, Dtype type) { return HOLOGRAM_FOR_ISA(each, NormKernelOf)(type); });
  return kernels.get(isa, dtype);
}

}  // namespace hologram::cpu
#endif
