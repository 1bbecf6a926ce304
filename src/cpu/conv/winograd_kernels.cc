// SPDX-License-Identifier: MIT
// The transforms of Winograd's convolution for every instruction set. Lanes are tiles or channels.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/conv/winograd_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "hwy/highway.h"
#include "src/cpu/movement/transpose-inl.h"
#include "src/cpu/conv/winograd_kernels.h"
// clang-format on

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::WinogradInput;
using cpu::WinogradOutput;
using cpu::WinogradWeights;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag<T>()));
constexpr int kTaps = 9;

// Four inputs along a line give four points.
template <class V>
HWY_INLINE void TransformInput(V d0, V d1, V d2, V d3, V* to, int step) {
  to[0] = hn::Sub(d0, d2);
  to[step] = hn::Add(d1, d2);
  to[2 * step] = hn::Sub(d2, d1);
  to[3 * step] = hn::Sub(d1, d3);
}

// Three weights along a line give four points.
template <class D, class V>
HWY_INLINE void TransformWeights(D d, V g0, V g1, V g2, V* to, int step) {
  const V half = hn::Set(d, hn::TFromD<D>(0.5)), ends = hn::Add(g0, g2);
  to[0] = g0;
  to[step] = hn::Mul(half, hn::Add(ends, g1));
  to[2 * step] = hn::Mul(half, hn::Sub(ends, g1));
  to[3 * step] = g2;
}

template <class T>
void Input(const WinogradInput<T>& g) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  for (int64_t r = 0; r < g.height; ++r) {
    for (int64_t t = 0; t < g.width; t += kLanes<T>) {
      const T* row = g.rows + 2 * r * g.pitch + t;
      V lines[16], points[16];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i, row += g.pitch) {
        TransformInput(hn::LoadU(d, row), hn::LoadU(d, row + g.odd), hn::LoadU(d, row + 1),
                       hn::LoadU(d, row + g.odd + 1), lines + 4 * i, 1);
      }
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        TransformInput(lines[j], lines[4 + j], lines[8 + j], lines[12 + j], points + j, 4);
      }
      T* const to = g.to + r * g.width + t;
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) hn::StoreU(points[i], d, to + i * g.point);
    }
  }
}

// A vector's worth of channels, tap t of which is at taps + t * step.
template <class T>
HWY_INLINE void Filters(const T* taps, int64_t step, T* to, int64_t point) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  V lines[12], points[16];
#pragma GCC unroll 3
  for (int j = 0; j < 3; ++j) {
    TransformWeights(d, hn::LoadU(d, taps + j * step), hn::LoadU(d, taps + (3 + j) * step),
                     hn::LoadU(d, taps + (6 + j) * step), lines + j, 3);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    TransformWeights(d, lines[3 * i], lines[3 * i + 1], lines[3 * i + 2], points + 4 * i, 1);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) hn::StoreU(points[i], d, to + i * point);
}

template <class T>
void Weights(const WinogradWeights<T>& g) {
  HWY_ALIGN T taps[kTaps * kLanes<T>] = {};
  for (int64_t c = 0; c < g.channels; c += kLanes<T>) {
    const int64_t n = std::min(kLanes<T>, g.channels - c);
    if (g.channel == 1 && n == kLanes<T>) {
      Filters(g.w + c, g.tap, g.to + c, g.point);
      continue;
    }
    if (g.channel == 1) {  // of fewer channels than lanes
      for (int t = 0; t < kTaps; ++t) std::copy_n(g.w + c + t * g.tap, n, taps + t * kLanes<T>);
    } else {
      Transpose(g.w + c * g.channel, g.channel, n, kTaps, taps, kLanes<T>);
    }
    Filters(taps, kLanes<T>, g.to + c, g.point);
  }
}

// Four points along a line give two results.
template <class V>
HWY_INLINE void TransformOutput(V m0, V m1, V m2, V m3, V* to, int step) {
  to[0] = hn::Add(hn::Add(m0, m1), m2);
  to[step] = hn::Sub(hn::Sub(m1, m2), m3);
}

template <class T>
void Output(const WinogradOutput<T>& g) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  const V bias = hn::Set(d, g.bias);
  for (int64_t r = 0; r < g.height; ++r) {
    for (int64_t t = 0; t < g.width; t += kLanes<T>) {
      const T* m = g.points + r * g.width + t;
      V lines[8], results[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        TransformOutput(hn::LoadU(d, m + j * g.point), hn::LoadU(d, m + (4 + j) * g.point),
                        hn::LoadU(d, m + (8 + j) * g.point), hn::LoadU(d, m + (12 + j) * g.point),
                        lines + j, 4);
      }
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const V* line = lines + 4 * i;
        TransformOutput(line[0], line[1], line[2], line[3], results + 2 * i, 1);
        results[2 * i] = hn::Add(results[2 * i], bias);
        results[2 * i + 1] = hn::Add(results[2 * i + 1], bias);
      }
      const int64_t col = 2 * t, n = std::min(2 * kLanes<T>, g.cols - col);
      for (int64_t i = 0; i < std::min<int64_t>(2, g.rows - 2 * r); ++i) {
        T* const to = g.y + (2 * r + i) * g.cols + col;
        if (n == 2 * kLanes<T>) {
          hn::StoreInterleaved2(results[2 * i], results[2 * i + 1], d, to);
        } else {
          HWY_ALIGN T row[2 * kLanes<T>];
          hn::StoreInterleaved2(results[2 * i], results[2 * i + 1], d, row);
          std::copy_n(row, n, to);
        }
      }
    }
  }
}

}  // namespace

cpu::WinogradKernel<float> WinogradKernelFloat() {
  return {&Input<float>, &Weights<float>, &Output<float>};
}
cpu::WinogradKernel<double> WinogradKernelDouble() {
  return {&Input<double>, &Weights<double>, &Output<double>};
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

const WinogradKernel<float>& winograd_kernel(Isa isa, float) {
  static const auto* kernels = new WinogradKernel<float>[kIsaCount] {
    HOLOGRAM_FOR_ISA(Isa::kBaseline, WinogradKernelFloat)
    (), HOLOGRAM_FOR_ISA(Isa::kAvx2, WinogradKernelFloat)(),
        HOLOGRAM_FOR_ISA(Isa::kAvx512, WinogradKernelFloat)()
  };
  return kernels[static_cast<int>(isa)];
}

const WinogradKernel<double>& winograd_kernel(Isa isa, double) {
  static const auto* kernels = new WinogradKernel<double>[kIsaCount] {
    HOLOGRAM_FOR_ISA(Isa::kBaseline, WinogradKernelDouble)
    (), HOLOGRAM_FOR_ISA(Isa::kAvx2, WinogradKernelDouble)(),
        HOLOGRAM_FOR_ISA(Isa::kAvx512, WinogradKernelDouble)()
  };
  return kernels[static_cast<int>(isa)];
}

}  // namespace hologram::cpu
#endif
