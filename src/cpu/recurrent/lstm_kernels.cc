// SPDX-License-Identifier: MIT
// The cells of an LSTM for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/recurrent/lstm_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "src/cpu/recurrent/lstm_kernels.h"
#include "src/cpu/simd/lanes-inl.h"
#include "src/cpu/simd/math-activation-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

template <class T, class Lanes>
HWY_INLINE void LstmUnits(const cpu::LstmCells<T>& s, T* gates, int64_t r, int64_t u, Lanes lanes) {
  const LaneTag<T> d;
  LaneVec<T> x[4];
  for (int g = 0; g < 4; ++g) {
    x[g] = lanes.Load(d, gates + g * s.gate + u);
    if (s.bias != nullptr) x[g] = hn::Add(x[g], lanes.Load(d, s.bias + g * s.gate + u));
    x[g] = g == 2 ? Tanh(x[g]) : Sigmoid(x[g]);
    if (s.keeps_gates) lanes.Store(d, x[g], gates + g * s.gate + u);
  }
  const LaneVec<T> before = lanes.Load(d, s.c + r * s.c_row + u);
  const LaneVec<T> c = hn::Add(hn::Mul(x[1], before), hn::Mul(x[0], x[2]));
  lanes.Store(d, c, s.c_next + r * s.c_row + u);
  lanes.Store(d, hn::Mul(x[3], Tanh(c)), s.h + r * s.h_row + u);
}

template <class T>
void LstmRows(const cpu::LstmCells<T>& s) {
  for (int64_t r = 0; r < s.rows; ++r) {
    ForLanes<T>(s.units, [&](int64_t u, auto lanes)
                             HWY_ATTR { LstmUnits(s, s.gates + r * s.gates_row, r, u, lanes); });
  }
}

template <class T, class Lanes>
HWY_INLINE void LstmGradUnits(const cpu::LstmCellGrads<T>& s, int64_t r, int64_t u, Lanes lanes) {
  const LaneTag<T> d;
  const LaneVec<T> one = hn::Set(d, T(1));
  const int64_t state = r * s.state_row + u, gates = r * s.gates_row + u;
  const auto load = [&](const T* from, int64_t at) HWY_ATTR {
    return from != nullptr ? lanes.Load(d, from + at) : hn::Zero(d);
  };
  const LaneVec<T> i = lanes.Load(d, s.gates + gates);
  const LaneVec<T> f = lanes.Load(d, s.gates + gates + s.gate);
  const LaneVec<T> g = lanes.Load(d, s.gates + gates + 2 * s.gate);
  const LaneVec<T> o = lanes.Load(d, s.gates + gates + 3 * s.gate);
  const LaneVec<T> tanh_c = Tanh(lanes.Load(d, s.c + state));
  const LaneVec<T> before = lanes.Load(d, s.c_before + state);
  const LaneVec<T> grad_h =
      hn::Add(load(s.grad_output, r * s.grad_output_row + u), load(s.grad_h, state));
  // 1 - y y loses nothing where y is near one: written as (1 - y) (1 + y).
  const auto tanh_slope = [&](LaneVec<T> y)
                              HWY_ATTR { return hn::Mul(hn::Sub(one, y), hn::Add(one, y)); };
  const auto sigmoid_slope = [&](LaneVec<T> y) HWY_ATTR { return hn::Mul(y, hn::Sub(one, y)); };
  const LaneVec<T> grad_c =
      hn::Add(load(s.grad_c, state), hn::Mul(hn::Mul(grad_h, o), tanh_slope(tanh_c)));
  T* const out = s.grad_gates + gates;
  lanes.Store(d, hn::Mul(hn::Mul(grad_c, g), sigmoid_slope(i)), out);
  lanes.Store(d, hn::Mul(hn::Mul(grad_c, before), sigmoid_slope(f)), out + s.gate);
  lanes.Store(d, hn::Mul(hn::Mul(grad_c, i), tanh_slope(g)), out + 2 * s.gate);
  lanes.Store(d, hn::Mul(hn::Mul(grad_h, tanh_c), sigmoid_slope(o)), out + 3 * s.gate);
  lanes.Store(d, hn::Mul(grad_c, f), s.grad_c_before + state);
  if (s.h != nullptr) lanes.Store(d, hn::Mul(o, tanh_c), s.h + state);
}

template <class T>
void LstmGradRows(const cpu::LstmCellGrads<T>& s) {
  for (int64_t r = 0; r < s.rows; ++r) {
    ForLanes<T>(s.units, [&](int64_t u, auto lanes) HWY_ATTR { LstmGradUnits(s, r, u, lanes); });
  }
}

}  // namespace

cpu::LstmGradKernel<float> LstmGradKernelFloat() { return &LstmGradRows<float>; }
cpu::LstmGradKernel<double> LstmGradKernelDouble() { return &LstmGradRows<double>; }
cpu::LstmKernel<float> LstmKernelFloat() { return &LstmRows<float>; }
cpu::LstmKernel<double> LstmKernelDouble() { return &LstmRows<double>; }

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

LstmKernel<float> lstm_kernel(Isa isa, float) { return HOLOGRAM_FOR_ISA(isa, LstmKernelFloat()); }
LstmKernel<double> lstm_kernel(Isa isa, double) {
  return HOLOGRAM_FOR_ISA(isa, LstmKernelDouble());
}

LstmGradKernel<float> lstm_grad_kernel(Isa isa, float) {
  return HOLOGRAM_FOR_ISA(isa, LstmGradKernelFloat());
}
LstmGradKernel<double> lstm_grad_kernel(Isa isa, double) {
  return HOLOGRAM_FOR_ISA(isa, LstmGradKernelDouble());
}

}  // namespace hologram::cpu
#endif
