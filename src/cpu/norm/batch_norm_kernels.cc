// SPDX-License-Identifier: MIT
// The inner loops of batch norm, for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/norm/batch_norm_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "src/cpu/norm/batch_norm_kernels.h"
#include "src/cpu/device/float_kernels.h"
#include "src/cpu/simd/lanes-inl.h"
#include "src/cpu/simd/rescale-inl.h"
// clang-format on

#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::BatchFactors;
using cpu::BatchKernel;
using cpu::BatchNumbers;
using cpu::Lines;

template <class T>
HWY_INLINE const T* Line(const Lines& lines, int64_t r) {
  return static_cast<const T*>(lines.data) + r * lines.stride;
}
template <class T>
HWY_INLINE T First(const void* p) {
  return *static_cast<const T*>(p);
}

// An infinite mean stays one: its differences are NaN.
HWY_INLINE double Corrected(double mean, double error) {
  return error == error ? mean + error : mean;
}

// --- Runs of one channel ------------------------------------------------------------------------

// Vectors that a lane adds up before its sum joins that of the earlier ones: so rounding does not
// grow with the length of the runs, which take more vectors where these are short.
constexpr int64_t kTerms = 32;

// Sums over all runs: f(r, i, lanes, sums) adds the vectors at i of run r.
template <class T, int kSums, class F>
HWY_INLINE void SumRuns(int64_t count, int64_t n, double (&totals)[kSums], F&& f) {
  const LaneTag<T> d;
  const int64_t step = LaneCount<T>();
  LaneVec<T> even[kSums], odd[kSums], earlier[kSums];
  for (int k = 0; k < kSums; ++k) even[k] = odd[k] = earlier[k] = hn::Zero(d);
  int64_t terms_left = kTerms;
  const auto count_terms = [&](int64_t terms) HWY_ATTR {
    terms_left -= terms;
    if (terms_left > 0) return;
    terms_left = kTerms;
    for (int k = 0; k < kSums; ++k) {
      earlier[k] = hn::Add(earlier[k], hn::Add(even[k], odd[k]));
      even[k] = odd[k] = hn::Zero(d);
    }
  };
  for (int64_t r = 0; r < count; ++r) {
    int64_t i = 0;
    while (i + 2 * step <= n) {
      const int64_t terms = std::min((n - i) / (2 * step), terms_left);
      for (const int64_t end = i + terms * 2 * step; i < end; i += 2 * step) {
        f(r, i, AllLanes(), even);
        f(r, i + step, AllLanes(), odd);
      }
      count_terms(terms);
    }
    if (i == n) continue;
    if (i + step <= n) {
      f(r, i, AllLanes(), even);
      i += step;
    }
    if (i < n) f(r, i, FirstLanes{n - i}, odd);
    count_terms(1);
  }
  for (int k = 0; k < kSums; ++k) {
    const auto sum = hn::Add(earlier[k], hn::Add(even[k], odd[k]));
    totals[k] = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
}

// The mean of all elements of the runs and the sum of their squared distances from it, in float64:
// for those whose squares leave the range of T.
template <class T>
HWY_NOINLINE void WideMoments(Lines x, int64_t count, int64_t n, double& mean, double& squares) {
  bool zeros = true;
  for (int64_t r = 0; zeros && r < count; ++r) zeros = AreZeros(Line<T>(x, r), n);
  if (zeros) return;  // the mean and the squares are 0 already
  const auto sum = [&](auto&& term) {
    double total = 0;
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t i = 0; i < n; ++i) total += term(static_cast<double>(Line<T>(x, r)[i]));
    }
    return total;
  };
  const double centre = sum([](double v) { return v; }) / static_cast<double>(count * n);
  mean = centre;
  squares = sum([centre](double v) { return (v - centre) * (v - centre); });
}

template <class T>
void RunMoments(Lines x, int64_t count, int64_t n, double* mean, double* m2, int64_t* seen) {
  const LaneTag<T> d;
  using V = LaneVec<T>;
  double total[1];
  SumRuns<T>(count, n, total, [&](int64_t r, int64_t i, auto lanes, V(&sum)[1]) HWY_ATTR {
    sum[0] = hn::Add(sum[0], lanes.Load(d, Line<T>(x, r) + i));
  });
  const double added = static_cast<double>(count * n), before = static_cast<double>(*seen);
  const T rounded = static_cast<T>(total[0] / added);
  const V centre = hn::Set(d, rounded);
  double sums[2];
  SumRuns<T>(count, n, sums, [&](int64_t r, int64_t i, auto lanes, V(&sum)[2]) HWY_ATTR {
    const V c = lanes.Keep(d, hn::Sub(lanes.Load(d, Line<T>(x, r) + i), centre));
    sum[0] = hn::Add(sum[0], c);
    sum[1] = hn::MulAdd(c, c, sum[1]);
  });
  // The rounding error of the first mean adds to every square.
  const double mean_error = sums[0] / added;
  double piece_mean = Corrected(static_cast<double>(rounded), mean_error);
  double squares = sums[1] - added * mean_error * mean_error;
  if (HWY_UNLIKELY(!SquaresFit(static_cast<T>(sums[1]), rounded))) {
    WideMoments<T>(x, count, n, piece_mean, squares);
  }
  const double difference = piece_mean - *mean;
  *m2 +=
      squares + (before > 0 ? difference * difference * (before * added / (before + added)) : 0.0);
  *mean = (before * *mean + added * piece_mean) / (before + added);
  *seen += count * n;
}

template <class T>
void RunApply(Lines x, int64_t count, int64_t n, const BatchFactors& one, void* out,
              int64_t out_stride) {
  const LaneTag<T> d;
  const auto shift = hn::Set(d, First<T>(one.shift)), scale = hn::Set(d, First<T>(one.scale));
  const auto offset = hn::Set(d, First<T>(one.offset));
  for (int64_t r = 0; r < count; ++r) {
    const T* from = Line<T>(x, r);
    T* to = static_cast<T*>(out) + r * out_stride;
    ForLanes<T>(n, [&](int64_t i, auto lanes) HWY_ATTR {
      const auto centred = hn::Sub(lanes.Load(d, from + i), shift);
      lanes.Store(d, hn::MulAdd(centred, scale, offset), to + i);
    });
  }
}

template <class T>
void RunSums(Lines grad, Lines x, int64_t count, int64_t n, const void* shift, double* sums) {
  const LaneTag<T> d;
  using V = LaneVec<T>;
  const V centre = hn::Set(d, First<T>(shift));
  double totals[2];
  SumRuns<T>(count, n, totals, [&](int64_t r, int64_t i, auto lanes, V(&sum)[2]) HWY_ATTR {
    const V g = lanes.Load(d, Line<T>(grad, r) + i);
    const V c = lanes.Keep(d, hn::Sub(lanes.Load(d, Line<T>(x, r) + i), centre));
    sum[0] = hn::Add(sum[0], g);
    sum[1] = hn::MulAdd(g, c, sum[1]);
  });
  sums[0] += totals[0];
  sums[1] += totals[1];
}

template <class T>
void RunGrad(Lines grad, Lines x, int64_t count, int64_t n, const BatchFactors& one, void* out,
             int64_t out_stride) {
  const LaneTag<T> d;
  const auto shift = hn::Set(d, First<T>(one.shift)), scale = hn::Set(d, First<T>(one.scale));
  const auto mean = hn::Set(d, First<T>(one.mean_grad)), slope = hn::Set(d, First<T>(one.slope));
  for (int64_t r = 0; r < count; ++r) {
    const T* g = Line<T>(grad, r);
    const T* from = Line<T>(x, r);
    T* to = static_cast<T*>(out) + r * out_stride;
    ForLanes<T>(n, [&](int64_t i, auto lanes) HWY_ATTR {
      const auto centred = hn::Sub(lanes.Load(d, from + i), shift);
      const auto centred_grad = hn::Sub(lanes.Load(d, g + i), mean);
      lanes.Store(d, hn::Mul(hn::NegMulAdd(centred, slope, centred_grad), scale), to + i);
    });
  }
}

// --- Rows of all channels -----------------------------------------------------------------------

// Calls f(j, vectors, lanes) for blocks of four vectors of columns, then single ones.
template <class T, class F>
HWY_INLINE void ForColumns(int64_t n, F&& f) {
  const int64_t step = LaneCount<T>();
  int64_t j = 0;
  for (; j + 4 * step <= n; j += 4 * step) f(j, std::integral_constant<int, 4>(), AllLanes());
  for (; j + step <= n; j += step) f(j, std::integral_constant<int, 1>(), AllLanes());
  if (j < n) f(j, std::integral_constant<int, 1>(), FirstLanes{n - j});
}

template <class T>
void RowMoments(Lines x, int64_t count, int64_t n, double* mean, double* m2, int64_t seen) {
  const LaneTag<T> d;
  using V = LaneVec<T>;
  const int64_t step = LaneCount<T>();
  const double added = static_cast<double>(count), before = static_cast<double>(seen);
  const double whole = 1 / (before + added), share_of_one = 1 / added;
  const double mixed = before * added * whole, any = before > 0 ? 1 : 0;
  ForColumns<T>(n, [&](int64_t j, auto vectors, auto lanes) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::value;
    constexpr int kMost = kVectors * static_cast<int>(hn::MaxLanes(d));
    V sum[kVectors], squares[kVectors];
    for (int v = 0; v < kVectors; ++v) sum[v] = squares[v] = hn::Zero(d);
    for (int64_t r = 0; r < count; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        sum[v] = hn::Add(sum[v], lanes.Load(d, Line<T>(x, r) + j + v * step));
      }
    }
    const V share = hn::Set(d, static_cast<T>(1 / added));
    for (int v = 0; v < kVectors; ++v) sum[v] = hn::Mul(sum[v], share);
    V error_sums[kVectors];
    for (int v = 0; v < kVectors; ++v) error_sums[v] = hn::Zero(d);
    for (int64_t r = 0; r < count; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        const V c = hn::Sub(lanes.Load(d, Line<T>(x, r) + j + v * step), sum[v]);
        error_sums[v] = hn::Add(error_sums[v], c);
        squares[v] = hn::MulAdd(c, c, squares[v]);
      }
    }
    HWY_ALIGN T rounded[kMost], errors[kMost], square[kMost];
    bool all_fit = true;
    for (int v = 0; v < kVectors; ++v) {
      all_fit &= AllSquaresFit(d, squares[v]);
      hn::Store(sum[v], d, rounded + v * step);
      hn::Store(error_sums[v], d, errors + v * step);
      hn::Store(squares[v], d, square + v * step);
    }
    const int64_t width = std::min<int64_t>(kVectors * step, n - j);
    for (int64_t i = 0; i < width; ++i) {
      const double mean_error = static_cast<double>(errors[i]) * share_of_one;
      double exact = Corrected(static_cast<double>(rounded[i]), mean_error);
      double own = static_cast<double>(square[i]) - added * mean_error * mean_error;
      if (HWY_UNLIKELY(!all_fit) && !SquaresFit(square[i], rounded[i])) {
        WideMoments<T>({Line<T>(x, 0) + j + i, x.stride}, count, 1, exact, own);
      }
      const double difference = (exact - mean[j + i]) * any;
      m2[j + i] += own + difference * difference * mixed;
      mean[j + i] = (before * mean[j + i] + added * exact) * whole;
    }
  });
}

template <class T>
void RowApply(Lines x, int64_t count, int64_t n, const BatchFactors& all, void* out,
              int64_t out_stride) {
  const LaneTag<T> d;
  const T* shift = static_cast<const T*>(all.shift);
  const T* scale = static_cast<const T*>(all.scale);
  const T* offset = static_cast<const T*>(all.offset);
  const int64_t step = LaneCount<T>();
  // The factors of a block stay in registers while its rows pass.
  ForColumns<T>(n, [&](int64_t j, auto vectors, auto lanes) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::value;
    LaneVec<T> centre[kVectors], factor[kVectors], term[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      centre[v] = lanes.Load(d, shift + j + v * step);
      factor[v] = lanes.Load(d, scale + j + v * step);
      term[v] = lanes.Load(d, offset + j + v * step);
    }
    for (int64_t r = 0; r < count; ++r) {
      const T* from = Line<T>(x, r) + j;
      T* to = static_cast<T*>(out) + r * out_stride + j;
      for (int v = 0; v < kVectors; ++v) {
        const auto centred = hn::Sub(lanes.Load(d, from + v * step), centre[v]);
        lanes.Store(d, hn::MulAdd(centred, factor[v], term[v]), to + v * step);
      }
    }
  });
}

template <class T>
void RowSums(Lines grad, Lines x, int64_t count, int64_t n, const void* shift, double* sum,
             double* dot) {
  const LaneTag<T> d;
  using V = LaneVec<T>;
  const int64_t step = LaneCount<T>();
  const T* centre = static_cast<const T*>(shift);
  ForColumns<T>(n, [&](int64_t j, auto vectors, auto lanes) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::value;
    constexpr int kMost = kVectors * static_cast<int>(hn::MaxLanes(d));
    V sums[kVectors], dots[kVectors], middle[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = dots[v] = hn::Zero(d);
      middle[v] = lanes.Load(d, centre + j + v * step);
    }
    for (int64_t r = 0; r < count; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        const V g = lanes.Load(d, Line<T>(grad, r) + j + v * step);
        const V c = hn::Sub(lanes.Load(d, Line<T>(x, r) + j + v * step), middle[v]);
        sums[v] = hn::Add(sums[v], g);
        dots[v] = hn::MulAdd(g, c, dots[v]);
      }
    }
    HWY_ALIGN T own_sum[kMost], own_dot[kMost];
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[v], d, own_sum + v * step);
      hn::Store(dots[v], d, own_dot + v * step);
    }
    const int64_t width = std::min<int64_t>(kVectors * step, n - j);
    for (int64_t i = 0; i < width; ++i) {
      sum[j + i] += static_cast<double>(own_sum[i]);
      dot[j + i] += static_cast<double>(own_dot[i]);
    }
  });
}

template <class T>
void RowGrad(Lines grad, Lines x, int64_t count, int64_t n, const BatchFactors& all, void* out,
             int64_t out_stride) {
  const LaneTag<T> d;
  const T* shift = static_cast<const T*>(all.shift);
  const T* scale = static_cast<const T*>(all.scale);
  const T* mean = static_cast<const T*>(all.mean_grad);
  const T* slope = static_cast<const T*>(all.slope);
  const int64_t step = LaneCount<T>();
  ForColumns<T>(n, [&](int64_t j, auto vectors, auto lanes) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::value;
    LaneVec<T> centre[kVectors], factor[kVectors], middle[kVectors], slopes[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      centre[v] = lanes.Load(d, shift + j + v * step);
      factor[v] = lanes.Load(d, scale + j + v * step);
      middle[v] = lanes.Load(d, mean + j + v * step);
      slopes[v] = lanes.Load(d, slope + j + v * step);
    }
    for (int64_t r = 0; r < count; ++r) {
      const T* g = Line<T>(grad, r) + j;
      const T* from = Line<T>(x, r) + j;
      T* to = static_cast<T*>(out) + r * out_stride + j;
      for (int v = 0; v < kVectors; ++v) {
        const auto centred = hn::Sub(lanes.Load(d, from + v * step), centre[v]);
        const auto centred_grad = hn::Sub(lanes.Load(d, g + v * step), middle[v]);
        const auto y = hn::Mul(hn::NegMulAdd(centred, slopes[v], centred_grad), factor[v]);
        lanes.Store(d, y, to + v * step);
      }
    }
  });
}

// --- Channels -----------------------------------------------------------------------------------

// float64 as the compute type.
template <class T, class D, class V, class Access>
HWY_INLINE void StoreNumbers([[maybe_unused]] D d, V v, void* to, int64_t i, Access lanes) {
  if constexpr (std::is_same_v<T, double>) {
    lanes.Store(d, v, static_cast<T*>(to) + i);
  } else {
    const hn::Rebind<T, D> narrow;
    lanes.Store(narrow, hn::DemoteTo(narrow, v), static_cast<T*>(to) + i);
  }
}

template <class T>
void Finish(const BatchNumbers& numbers, int64_t first, int64_t n) {
  const LaneTag<double> d;
  const auto momentum = hn::Set(d, numbers.momentum), rest = hn::Set(d, 1 - numbers.momentum);
  const auto count = hn::Set(d, numbers.count), one_less = hn::Set(d, numbers.count - 1);
  ForLanes<double>(n, [&](int64_t at, auto lanes) HWY_ATTR {
    const int64_t i = first + at;
    const auto mean = lanes.Load(d, numbers.mean + i);
    auto var = lanes.Load(d, numbers.running_var + i);
    if (numbers.training) {
      const auto m2 = lanes.Load(d, static_cast<const double*>(numbers.invstd) + i);
      const auto moved = [&](auto now, auto before) HWY_ATTR {
        return hn::Add(hn::Mul(momentum, now), hn::Mul(rest, before));
      };
      const auto running = lanes.Load(d, numbers.running_mean + i);
      lanes.Store(d, moved(mean, running), numbers.running_mean + i);
      lanes.Store(d, moved(hn::Div(m2, one_less), var), numbers.running_var + i);
      var = hn::Div(m2, count);
    }
    const auto root = hn::Sqrt(hn::Add(var, hn::Set(d, numbers.eps)));
    const auto invstd = hn::Div(hn::Set(d, 1.0), root);
    lanes.Store(d, invstd, numbers.invstd + i);
    const auto scale = hn::Mul(invstd, lanes.Load(d, numbers.weight + i));
    StoreNumbers<T>(d, mean, numbers.shift, i, lanes);
    StoreNumbers<T>(d, scale, numbers.scale, i, lanes);
    StoreNumbers<T>(d, lanes.Load(d, numbers.bias + i), numbers.offset, i, lanes);
  });
}

template <class T>
constexpr BatchKernel kBatchKernel = {&RunMoments<T>, &RunApply<T>,   &RunSums<T>,
                                      &RunGrad<T>,    &RowMoments<T>, &RowApply<T>,
                                      &RowSums<T>,    &RowGrad<T>,    &Finish<T>};

}  // namespace

BatchKernel BatchKernelOf(Dtype dtype) {
  return dtype == Dtype::kFloat64 ? kBatchKernel<double> : kBatchKernel<float>;
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

const BatchKernel& batch_kernel(Isa isa, Dtype dtype) {
  static const FloatKernels<BatchKernel> kernels(
      [](Isa each, Dtype type) { return HOLOGRAM_FOR_ISA(each, BatchKernelOf)(type); });
  return kernels.get(isa, dtype);
}

}  // namespace hologram::cpu
#endif
