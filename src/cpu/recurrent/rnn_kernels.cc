// SPDX-License-Identifier: MIT
// The cells of a layer without gates for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/recurrent/rnn_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "src/cpu/recurrent/rnn_kernels.h"
#include "src/cpu/simd/lanes-inl.h"
#include "src/cpu/simd/math-activation-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

template <class T>
void RnnRows(const cpu::RnnCells<T>& s) {
  const LaneTag<T> d;
  const auto zero = hn::Zero(d);
  for (int64_t r = 0; r < s.rows; ++r) {
    T* const row = s.sums + r * s.row;
    ForLanes<T>(s.units, [&](int64_t u, auto lanes) HWY_ATTR {
      LaneVec<T> sum = lanes.Load(d, row + u);
      if (s.bias != nullptr) sum = hn::Add(sum, lanes.Load(d, s.bias + u));
      // NaN stays NaN.
      lanes.Store(d, s.relu ? hn::IfThenElse(hn::Lt(sum, zero), zero, sum) : Tanh(sum), row + u);
    });
  }
}

template <class T>
void RnnGradRows(const cpu::RnnCellGrads<T>& s) {
  const LaneTag<T> d;
  const auto zero = hn::Zero(d), one = hn::Set(d, T(1));
  for (int64_t r = 0; r < s.rows; ++r) {
    ForLanes<T>(s.units, [&](int64_t u, auto lanes) HWY_ATTR {
      const auto load = [&](const T* from, int64_t at) HWY_ATTR {
        return from != nullptr ? lanes.Load(d, from + at) : hn::Zero(d);
      };
      const LaneVec<T> h = lanes.Load(d, s.output + r * s.output_row + u);
      const LaneVec<T> grad =
          hn::Add(load(s.grad_output, r * s.grad_output_row + u), load(s.grad_h, r * s.row + u));
      // 1 - h h loses nothing where h is near one: written as (1 - h) (1 + h).
      const LaneVec<T> result = s.relu ? hn::IfThenElse(hn::Le(h, zero), zero, grad)
                                       : hn::Mul(grad, hn::Mul(hn::Sub(one, h), hn::Add(one, h)));
      lanes.Store(d, result, s.grad_gates + r * s.row + u);
    });
  }
}

}  // namespace

cpu::RnnKernels<float> RnnKernelsFloat() { return {&RnnRows<float>, &RnnGradRows<float>}; }
cpu::RnnKernels<double> RnnKernelsDouble() { return {&RnnRows<double>, &RnnGradRows<double>}; }

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

RnnKernels<float> rnn_kernels(Isa isa, float) { return HOLOGRAM_FOR_ISA(isa, RnnKernelsFloat()); }
RnnKernels<double> rnn_kernels(Isa isa, double) {
  return HOLOGRAM_FOR_ISA(isa, RnnKernelsDouble());
}

}  // namespace hologram::cpu
#endif
