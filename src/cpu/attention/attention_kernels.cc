// SPDX-License-Identifier: MIT
// The row work of attention for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/attention/attention_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "src/cpu/attention/attention_kernels.h"
#include "src/cpu/simd/lanes-inl.h"
#include "src/cpu/simd/math-exp-inl.h"
// clang-format on

#include <algorithm>
#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::AttentionScores;

template <class T>
constexpr T kLowest = -std::numeric_limits<T>::infinity();

// f(i, lanes, accumulator) for the vectors of n elements, four accumulators in turn.
template <class T, class F>
HWY_INLINE void FourInTurn(int64_t n, LaneVec<T> (&sums)[4], F&& f) {
  const int64_t step = LaneCount<T>();
  int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    f(i, AllLanes(), sums[0]);
    f(i + step, AllLanes(), sums[1]);
    f(i + 2 * step, AllLanes(), sums[2]);
    f(i + 3 * step, AllLanes(), sums[3]);
  }
  if (i + 2 * step <= n) {
    f(i, AllLanes(), sums[0]);
    f(i + step, AllLanes(), sums[1]);
    i += 2 * step;
  }
  if (i + step <= n) {
    f(i, AllLanes(), sums[2]);
    i += step;
  }
  if (i < n) f(i, FirstLanes{n - i}, sums[3]);
}

template <class T>
HWY_INLINE T SumOf(const LaneVec<T> (&sums)[4]) {
  return hn::GetLane(
      hn::SumOfLanes(LaneTag<T>(), hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

template <class T>
HWY_INLINE int64_t Seen(const AttentionScores<T>& s, int64_t r) {
  return std::clamp<int64_t>(s.seen + r * s.more, 0, s.cols);
}

// Score i of a row with its mask.
template <class T, bool kMask, class Lanes>
HWY_INLINE LaneVec<T> Score(const T* row, const T* mask, int64_t mask_col, int64_t i, Lanes lanes) {
  const LaneTag<T> d;
  const LaneVec<T> x = lanes.Load(d, row + i);
  if constexpr (!kMask) return x;
  return hn::Add(x, mask_col == 0 ? hn::Set(d, *mask) : lanes.Load(d, mask + i));
}

template <class T, bool kMask>
void SoftmaxRows(const AttentionScores<T>& s, bool first, T* max, T* sum, T* factor) {
  const LaneTag<T> d;
  const LaneVec<T> low = hn::Set(d, kLowest<T>);
  for (int64_t r = 0; r < s.rows; ++r) {
    T* row = s.scores + r * s.ld;
    const T* mask = s.mask + r * s.mask_row;
    const int64_t n = Seen(s, r);
    LaneVec<T> tops[4] = {low, low, low, low};
    // NaN may be lost here: the exponential brings it back.
    FourInTurn<T>(n, tops, [&](int64_t i, auto lanes, LaneVec<T>& top) HWY_ATTR {
      const LaneVec<T> x = Score<T, kMask>(row, mask, s.mask_col, i, lanes);
      if constexpr (kMask) lanes.Store(d, x, row + i);
      top = hn::Max(top, lanes.Keep(d, x, low));
    });
    T top = hn::GetLane(
        hn::MaxOfLanes(d, hn::Max(hn::Max(tops[0], tops[1]), hn::Max(tops[2], tops[3]))));
    const T before = first ? kLowest<T> : max[r];
    if (before > top) top = before;
    // While there are only -inf, exp(-inf) is the zero that is wanted.
    const T from = top == kLowest<T> ? T(0) : top;
    const LaneVec<T> away = hn::Set(d, from);
    LaneVec<T> sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    FourInTurn<T>(n, sums, [&](int64_t i, auto lanes, LaneVec<T>& total) HWY_ATTR {
      const LaneVec<T> e = ExpOfSmall(hn::Sub(lanes.Load(d, static_cast<const T*>(row) + i), away));
      lanes.Store(d, e, row + i);
      total = hn::Add(total, lanes.Keep(d, e));
    });
    std::fill(row + n, row + s.cols, T(0));
    max[r] = top;
    if (first) {
      sum[r] = SumOf<T>(sums);
    } else {
      factor[r] = hn::GetLane(Exp(hn::Set(d, before - from)));
      sum[r] = sum[r] * factor[r] + SumOf<T>(sums);
    }
  }
}

template <class T>
void Softmax(const AttentionScores<T>& s, bool first, T* max, T* sum, T* factor) {
  return s.mask != nullptr ? SoftmaxRows<T, true>(s, first, max, sum, factor)
                           : SoftmaxRows<T, false>(s, first, max, sum, factor);
}

template <class T>
void Shrink(T* x, int64_t ld, int64_t rows, int64_t n, const T* factor) {
  const LaneTag<T> d;
  for (int64_t r = 0; r < rows; ++r, x += ld) {
    if (factor[r] == T(1)) continue;
    const LaneVec<T> by = hn::Set(d, factor[r]);
    ForLanes<T>(n, [&](int64_t i, auto lanes) HWY_ATTR {
      lanes.Store(d, hn::Mul(lanes.Load(d, static_cast<const T*>(x) + i), by), x + i);
    });
  }
}

template <class T>
void Finish(T* out, int64_t ld, int64_t rows, int64_t n, const T* max, const T* sum, T* logsumexp,
            int64_t step) {
  const LaneTag<T> d;
  for (int64_t r = 0; r < rows; ++r, out += ld) {
    const bool masked = sum[r] == T(0) && max[r] == kLowest<T>;
    const T total = masked ? T(1) : sum[r];
    const LaneVec<T> by = hn::Set(d, total);
    ForLanes<T>(n, [&](int64_t i, auto lanes) HWY_ATTR {
      lanes.Store(d, hn::Div(lanes.Load(d, static_cast<const T*>(out) + i), by), out + i);
    });
    logsumexp[r * step] = masked ? T(0) : max[r] + std::log(total);
  }
}

template <class T>
void Dots(const T* x, int64_t ldx, const T* y, int64_t ldy, int64_t rows, int64_t n, T* dots) {
  const LaneTag<T> d;
  for (int64_t r = 0; r < rows; ++r, x += ldx, y += ldy) {
    LaneVec<T> sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    FourInTurn<T>(n, sums, [&](int64_t i, auto lanes, LaneVec<T>& sum) HWY_ATTR {
      sum = hn::MulAdd(lanes.Load(d, x + i), lanes.Load(d, y + i), sum);
    });
    dots[r] = SumOf<T>(sums);
  }
}

template <class T>
bool Finite(const T* x, int64_t ld, int64_t rows, int64_t n) {
  const LaneTag<T> d;
  LaneVec<T> sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (int64_t r = 0; r < rows; ++r, x += ld) {
    // Zero times a finite number is zero, times any other NaN.
    FourInTurn<T>(n, sums, [&](int64_t i, auto lanes, LaneVec<T>& sum) HWY_ATTR {
      sum = hn::MulAdd(lanes.Load(d, x + i), hn::Zero(d), sum);
    });
  }
  return SumOf<T>(sums) == T(0);
}

template <class T, bool kMask>
void GradientRows(const AttentionScores<T>& s, T* gradients, const T* logsumexp, const T* dots,
                  T scale) {
  const LaneTag<T> d;
  const LaneVec<T> factor = hn::Set(d, scale);
  for (int64_t r = 0; r < s.rows; ++r) {
    T* row = s.scores + r * s.ld;
    T* gradient = gradients + r * s.ld;
    const T* mask = s.mask + r * s.mask_row;
    const int64_t n = Seen(s, r);
    const LaneVec<T> away = hn::Set(d, logsumexp[r]), dot = hn::Set(d, dots[r]);
    ForLanes<T>(n, [&](int64_t i, auto lanes) HWY_ATTR {
      const LaneVec<T> p = Exp(hn::Sub(Score<T, kMask>(row, mask, s.mask_col, i, lanes), away));
      const LaneVec<T> g = hn::Sub(lanes.Load(d, static_cast<const T*>(gradient) + i), dot);
      lanes.Store(d, p, row + i);
      lanes.Store(d, hn::Mul(hn::Mul(p, g), factor), gradient + i);
    });
    std::fill(row + n, row + s.cols, T(0));
    std::fill(gradient + n, gradient + s.cols, T(0));
  }
}

template <class T>
void Gradient(const AttentionScores<T>& s, T* gradients, const T* logsumexp, const T* dots,
              T scale) {
  return s.mask != nullptr ? GradientRows<T, true>(s, gradients, logsumexp, dots, scale)
                           : GradientRows<T, false>(s, gradients, logsumexp, dots, scale);
}

template <class T>
cpu::AttentionKernel<T> KernelOf() {
  return {&Softmax<T>, &Shrink<T>, &Finish<T>, &Dots<T>, &Finite<T>, &Gradient<T>};
}

}  // namespace

cpu::AttentionKernel<float> AttentionKernelFloat() { return KernelOf<float>(); }
cpu::AttentionKernel<double> AttentionKernelDouble() { return KernelOf<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

const AttentionKernel<float>& attention_kernel(Isa isa, float) {
  static const auto* kernels = new AttentionKernel<float>[kIsaCount] {
    HOLOGRAM_FOR_ISA(Isa::kBaseline, AttentionKernelFloat)
    (), HOLOGRAM_FOR_ISA(Isa::kAvx2, AttentionKernelFloat)(),
        HOLOGRAM_FOR_ISA(Isa::kAvx512, AttentionKernelFloat)()
  };
  return kernels[static_cast<int>(isa)];
}

const AttentionKernel<double>& attention_kernel(Isa isa, double) {
  static const auto* kernels = new AttentionKernel<double>[kIsaCount] {
    HOLOGRAM_FOR_ISA(Isa::kBaseline, AttentionKernelDouble)
    (), HOLOGRAM_FOR_ISA(Isa::kAvx2, AttentionKernelDouble)(),
        HOLOGRAM_FOR_ISA(Isa::kAvx512, AttentionKernelDouble)()
  };
  return kernels[static_cast<int>(isa)];
}

}  // namespace hologram::cpu
#endif
