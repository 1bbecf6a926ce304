// SPDX-License-Identifier: MIT
// The cells of a GRU for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/recurrent/gru_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "src/cpu/recurrent/gru_kernels.h"
#include "src/cpu/simd/lanes-inl.h"
#include "src/cpu/simd/math-activation-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

template <class T, class Lanes>
HWY_INLINE void GruUnits(const cpu::GruCells<T>& s, int64_t row, int64_t u, Lanes lanes) {
  const LaneTag<T> d;
  T* const gates = s.gates + row * s.gates_row + u;
  const auto biased = [&](LaneVec<T> x, int64_t g) HWY_ATTR {
    return s.bias != nullptr ? hn::Add(x, lanes.Load(d, s.bias + g * s.gate + u)) : x;
  };
  const LaneVec<T> r = Sigmoid(biased(lanes.Load(d, gates), 0));
  const LaneVec<T> z = Sigmoid(biased(lanes.Load(d, gates + s.gate), 1));
  const LaneVec<T> hidden = biased(lanes.Load(d, s.hidden_n + row * s.hidden_row + u), 2);
  const LaneVec<T> n = Tanh(hn::Add(lanes.Load(d, gates + 2 * s.gate), hn::Mul(r, hidden)));
  const LaneVec<T> h = lanes.Load(d, s.h + row * s.h_row + u);
  lanes.Store(d, r, gates);
  lanes.Store(d, z, gates + s.gate);
  lanes.Store(d, n, gates + 2 * s.gate);
  lanes.Store(d, hidden, s.hidden_n + row * s.hidden_row + u);
  lanes.Store(d, hn::Add(n, hn::Mul(z, hn::Sub(h, n))), s.h_next + row * s.next_row + u);
}

template <class T>
void GruRows(const cpu::GruCells<T>& s) {
  for (int64_t r = 0; r < s.rows; ++r) {
    ForLanes<T>(s.units, [&](int64_t u, auto lanes) HWY_ATTR { GruUnits(s, r, u, lanes); });
  }
}

template <class T, class Lanes>
HWY_INLINE void GruGradUnits(const cpu::GruCellGrads<T>& s, int64_t row, int64_t u, Lanes lanes) {
  const LaneTag<T> d;
  const LaneVec<T> one = hn::Set(d, T(1));
  const int64_t state = row * s.state_row + u, gates = row * s.gates_row + u;
  const auto load = [&](const T* from, int64_t at) HWY_ATTR {
    return from != nullptr ? lanes.Load(d, from + at) : hn::Zero(d);
  };
  const LaneVec<T> r = lanes.Load(d, s.gates + gates);
  const LaneVec<T> z = lanes.Load(d, s.gates + gates + s.gate);
  const LaneVec<T> n = lanes.Load(d, s.gates + gates + 2 * s.gate);
  const LaneVec<T> hidden = lanes.Load(d, s.hidden_n + state);
  const LaneVec<T> before = lanes.Load(d, s.h_before + row * s.before_row + u);
  const LaneVec<T> grad =
      hn::Add(load(s.grad_output, row * s.grad_output_row + u), load(s.grad_h, state));
  // 1 - n n loses nothing where n is near one: written as (1 - n) (1 + n).
  const LaneVec<T> grad_n =
      hn::Mul(hn::Mul(grad, hn::Sub(one, z)), hn::Mul(hn::Sub(one, n), hn::Add(one, n)));
  const LaneVec<T> grad_z = hn::Mul(hn::Mul(grad, hn::Sub(before, n)), hn::Mul(z, hn::Sub(one, z)));
  const LaneVec<T> grad_r = hn::Mul(hn::Mul(grad_n, hidden), hn::Mul(r, hn::Sub(one, r)));
  for (T* const out : {s.grad_gates + gates, s.grad_hidden + gates}) {
    lanes.Store(d, grad_r, out);
    lanes.Store(d, grad_z, out + s.gate);
  }
  lanes.Store(d, grad_n, s.grad_gates + gates + 2 * s.gate);
  lanes.Store(d, hn::Mul(grad_n, r), s.grad_hidden + gates + 2 * s.gate);
  lanes.Store(d, hn::Mul(grad, z), s.grad_h_before + state);
}

template <class T>
void GruGradRows(const cpu::GruCellGrads<T>& s) {
  for (int64_t r = 0; r < s.rows; ++r) {
    ForLanes<T>(s.units, [&](int64_t u, auto lanes) HWY_ATTR { GruGradUnits(s, r, u, lanes); });
  }
}

}  // namespace

cpu::GruKernels<float> GruKernelsFloat() { return {&GruRows<float>, &GruGradRows<float>}; }
cpu::GruKernels<double> GruKernelsDouble() { return {&GruRows<double>, &GruGradRows<double>}; }

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

GruKernels<float> gru_kernels(Isa isa, float) { return HOLOGRAM_FOR_ISA(isa, GruKernelsFloat()); }
GruKernels<double> gru_kernels(Isa isa, double) {
  return HOLOGRAM_FOR_ISA(isa, GruKernelsDouble());
}

}  // namespace hologram::cpu
#endif
