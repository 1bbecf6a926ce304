// SPDX-License-Identifier: MIT
// Sums of rows and of elements of a row for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/conv/resampling_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "hwy/highway.h"
#include "src/cpu/simd/simd_tail-inl.h"
#include "src/cpu/conv/resampling_kernels.h"
// clang-format on

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::ResamplingKernel;
using cpu::RowTable;

template <class T>
using RowTag = hn::ScalableTag<T>;
template <class T>
constexpr int64_t kRowLanes = static_cast<int64_t>(hn::MaxLanes(RowTag<T>()));

// kVectors vectors of sums at a time: they do not wait for one another.
template <class T, int kVectors>
HWY_INLINE void CombineAt(const T* const* rows, const T* w, int64_t count, T divisor, int64_t j,
                          int64_t n, T* to) {
  const RowTag<T> d;
  constexpr int64_t kLanes = kRowLanes<T>;
  hn::Vec<RowTag<T>> sums[kVectors];
  for (int64_t r = 0; r < count; ++r) {
    const T* const row = rows[r] + j;
    const auto weight = hn::Set(d, w != nullptr ? w[r] : T(1));
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      const auto x = n >= kLanes ? hn::LoadU(d, row + i * kLanes) : LoadFirst(d, row, n);
      if (r == 0) {
        sums[i] = w != nullptr ? hn::Mul(x, weight) : x;
      } else {
        sums[i] = w != nullptr ? hn::MulAdd(x, weight, sums[i]) : hn::Add(x, sums[i]);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) {
    auto sum = count > 0 ? sums[i] : hn::Zero(d);
    if (divisor != T(1)) sum = hn::Div(sum, hn::Set(d, divisor));
    n >= kLanes ? hn::StoreU(sum, d, to + j + i * kLanes) : StoreFirst(d, sum, to + j, n);
  }
}

template <class T>
void Combine(const T* const* rows, const T* w, int64_t count, T divisor, int64_t n, T* to) {
  constexpr int64_t kLanes = kRowLanes<T>;
  int64_t j = 0;
  for (; j + 4 * kLanes <= n; j += 4 * kLanes) {
    CombineAt<T, 4>(rows, w, count, divisor, j, n - j, to);
  }
  for (; j < n; j += kLanes) CombineAt<T, 1>(rows, w, count, divisor, j, n - j, to);
}

// The inputs of one tap of a vector of outputs.
template <class T>
HWY_INLINE hn::Vec<RowTag<T>> TapOf(const RowTable<T>& t, const T* row, int64_t v, int64_t k) {
  using Index = typename RowTable<T>::Index;
  const RowTag<T> d;
  const hn::Rebind<Index, RowTag<T>> di;
  constexpr int64_t kLanes = kRowLanes<T>;
  const auto place = static_cast<size_t>(v * t.most + k);
  const int64_t base = t.base[place];
  const auto lane = hn::LoadU(di, t.lane.data() + place * static_cast<size_t>(kLanes));
  if (base < 0) return hn::GatherIndex(d, row, lane);
  const auto within = hn::IndicesFromVec(d, hn::And(lane, hn::Set(di, Index(kLanes - 1))));
  const auto low = hn::TableLookupLanes(hn::LoadU(d, row + base), within);
  const auto high = hn::TableLookupLanes(hn::LoadU(d, row + base + kLanes), within);
  const auto is_low = hn::Lt(lane, hn::Set(di, Index(kLanes)));
  return hn::IfThenElse(hn::RebindMask(d, is_low), low, high);
}

template <class T>
void SpreadRow(const RowTable<T>& t, const T* row, T divisor, T* to) {
  using Index = typename RowTable<T>::Index;
  const RowTag<T> d;
  const hn::Rebind<Index, RowTag<T>> di;
  constexpr int64_t kLanes = kRowLanes<T>;
  const bool divides = divisor != T(1) || !t.divisor.empty();
  for (int64_t v = 0; v * kLanes < t.outputs; ++v) {
    auto sum = hn::Zero(d);
    for (int64_t k = 0; k < t.taps[static_cast<size_t>(v)]; ++k) {
      auto x = TapOf(t, row, v, k);
      if (!t.count.empty()) {
        const auto has =
            hn::Gt(hn::LoadU(di, t.count.data() + v * kLanes), hn::Set(di, static_cast<Index>(k)));
        x = hn::IfThenElseZero(hn::RebindMask(d, has), x);
      }
      if (t.weight.empty()) {
        sum = k == 0 ? x : hn::Add(x, sum);
      } else {
        const auto w = hn::LoadU(d, t.weight.data() + (v * t.most + k) * kLanes);
        sum = k == 0 ? hn::Mul(x, w) : hn::MulAdd(x, w, sum);
      }
    }
    if (divides) {
      auto by = hn::Set(d, divisor);
      if (!t.divisor.empty()) by = hn::Mul(by, hn::LoadU(d, t.divisor.data() + v * kLanes));
      sum = hn::Div(sum, by);
    }
    const int64_t n = t.outputs - v * kLanes;
    n >= kLanes ? hn::StoreU(sum, d, to + v * kLanes) : StoreFirst(d, sum, to + v * kLanes, n);
  }
}

}  // namespace

template <class T>
const ResamplingKernel<T>& ResamplingOf() {
  static const ResamplingKernel<T> kernel{kRowLanes<T>, &Combine<T>, &SpreadRow<T>};
  return kernel;
}
const ResamplingKernel<float>& ResamplingFloat() { return ResamplingOf<float>(); }
const ResamplingKernel<double>& ResamplingDouble() { return ResamplingOf<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

const ResamplingKernel<float>& resampling_kernel(Isa isa, float) {
  return HOLOGRAM_FOR_ISA(isa, ResamplingFloat)();
}
const ResamplingKernel<double>& resampling_kernel(Isa isa, double) {
  return HOLOGRAM_FOR_ISA(isa, ResamplingDouble)();
}

template <class T>
RowTable<T> make_row_table(const AxisTaps<T>& axis, int64_t lanes) {
  using Index = typename RowTable<T>::Index;
  RowTable<T> t;
  t.outputs = axis.outputs, t.most = axis.most, t.lanes = lanes;
  const int64_t vectors = (axis.outputs + lanes - 1) / lanes;
  const auto all = static_cast<size_t>(vectors * lanes);
  const size_t places = all * static_cast<size_t>(axis.most);
  const bool even =
      std::all_of(axis.count.begin(), axis.count.end(), [&](int64_t n) { return n == axis.most; });
  t.taps.assign(static_cast<size_t>(vectors), 0);
  t.base.assign(static_cast<size_t>(vectors * axis.most), -1);
  t.lane.assign(places, 0);
  if (!axis.weight.empty()) t.weight.assign(places, T(0));
  if (!even) t.count.assign(all, 0);
  if (!axis.divisor.empty()) t.divisor.assign(all, T(1));
  for (int64_t v = 0; v < vectors; ++v) {
    const int64_t first = v * lanes, last = std::min(first + lanes, axis.outputs);
    for (int64_t i = first; i < last; ++i) {
      const auto at = static_cast<size_t>(i);
      t.taps[static_cast<size_t>(v)] = std::max(t.taps[static_cast<size_t>(v)], axis.count[at]);
      if (!even) t.count[at] = static_cast<Index>(axis.count[at]);
      if (!axis.divisor.empty()) t.divisor[at] = axis.divisor[at];
    }
    for (int64_t k = 0; k < axis.most; ++k) {
      int64_t low = axis.inputs, high = -1;
      const auto for_lanes = [&](auto&& f) {
        for (int64_t i = first; i < last; ++i) {
          if (k < axis.count[static_cast<size_t>(i)]) {
            f(static_cast<size_t>((v * axis.most + k) * lanes + i - first),
              static_cast<size_t>(i * axis.most + k));
          }
        }
      };
      for_lanes([&](size_t, size_t tap) {
        low = std::min(low, axis.input[tap]), high = std::max(high, axis.input[tap]);
      });
      if (high < 0) low = high = 0;
      const bool near = high - low < 2 * lanes;
      if (near) t.base[static_cast<size_t>(v * axis.most + k)] = low;
      for_lanes([&](size_t to, size_t tap) {
        t.lane[to] = static_cast<Index>(axis.input[tap] - (near ? low : 0));
        if (!axis.weight.empty()) t.weight[to] = axis.weight[tap];
      });
    }
  }
  return t;
}
template RowTable<float> make_row_table(const AxisTaps<float>&, int64_t);
template RowTable<double> make_row_table(const AxisTaps<double>&, int64_t);

}  // namespace hologram::cpu
#endif
