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
HWY_INLINE void LstmUnits(const cpu::LstmCells<T>& s, const T* gates, int64_t r, int64_t u,
                          Lanes lanes) {
  const LaneTag<T> d;
  LaneVec<T> x[4];
  for (int g = 0; g < 4; ++g) {
    x[g] = lanes.Load(d, gates + g * s.gate + u);
    if (s.bias != nullptr) x[g] = hn::Add(x[g], lanes.Load(d, s.bias + g * s.gate + u));
  }
  const LaneVec<T> before = lanes.Load(d, s.c + r * s.c_row + u);
  const LaneVec<T> c = hn::Add(hn::Mul(Sigmoid(x[1]), before), hn::Mul(Sigmoid(x[0]), Tanh(x[2])));
  lanes.Store(d, c, s.c_next + r * s.c_row + u);
  lanes.Store(d, hn::Mul(Sigmoid(x[3]), Tanh(c)), s.h + r * s.h_row + u);
}

template <class T>
void LstmRows(const cpu::LstmCells<T>& s) {
  for (int64_t r = 0; r < s.rows; ++r) {
    ForLanes<T>(s.units, [&](int64_t u, auto lanes)
                             HWY_ATTR { LstmUnits(s, s.gates + r * s.gates_row, r, u, lanes); });
  }
}

}  // namespace

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

}  // namespace hologram::cpu
#endif
