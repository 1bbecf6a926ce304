// SPDX-License-Identifier: MIT
// The inner loops of sums, products, moments and log(sum(exp)), for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/reduce/reduce_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "src/cpu/simd/math-exp-inl.h"
#include "src/cpu/simd/math-log-inl.h"
#include "src/cpu/reduce/fold-inl.h"
#include "src/cpu/reduce/fold_blocks-inl.h"
#include "src/cpu/simd/rescale-inl.h"
// clang-format on

#include <algorithm>
#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::CompensatedSum;
using cpu::Moments;
using cpu::ScaledExpSum;

// ---- sums and products ----

struct NanAsZero {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return hn::IfThenElseZero(hn::Eq(x, x), x);
  }
};

// Integers wrap, so the order does not matter and the compiler's loops will do.
HWY_INLINE int64_t Wrap(uint64_t x) { return static_cast<int64_t>(x); }

template <class T, class Join>
struct Total {
  using Value = std::conditional_t<kIsFloat<T>, double, int64_t>;
  Value value;
  void Add(Value x) {
    if constexpr (!kIsFloat<T>) {
      const auto a = static_cast<uint64_t>(value), b = static_cast<uint64_t>(x);
      value = Wrap(std::is_same_v<Join, Plus> ? a + b : a * b);
    } else if constexpr (std::is_same_v<Join, Plus>) {
      value += x;
    } else {
      value *= x;
    }
  }
  void Merge(const Total& other) { Add(other.value); }
};
template <>
struct Total<double, Plus> : CompensatedSum {
  void Add(double x) {
    const double next = sum + x;
    const double back = next - sum;
    error += (sum - (next - back)) + (x - back);
    sum = next;
  }
  void Merge(const Total& other) {
    Add(other.sum);
    error += other.error;
  }
};

template <class T, class Map, class Join>
struct TotalFold {
  using Acc = Total<T, Join>;

  static void Init(void* acc, int64_t n) {
    auto* a = static_cast<Acc*>(acc);
    for (int64_t i = 0; i < n; ++i) {
      a[i] = Acc();
      if constexpr (std::is_same_v<Join, Times>) a[i].value = 1;
    }
  }
  static void Rows(const void* x, int64_t count, int64_t n, int64_t stride, int64_t, void* acc,
                   double) {
    auto* a = static_cast<Acc*>(acc);
    const T* row = static_cast<const T*>(x);
    for (int64_t r = 0; r < count; ++r, row += stride) {
      if constexpr (kIsFloat<T>) {
        const int64_t block = BlockLength<T>();
        for (int64_t i = 0; i < n; i += block) {
          a[r].Add(FoldBlock(row + i, std::min(block, n - i), Map(), Join()));
        }
      } else {
        Acc total = a[r];
        for (int64_t i = 0; i < n; ++i) total.Add(row[i]);
        a[r] = total;
      }
    }
  }
  static void Cols(const void* x, int64_t cols, int64_t n, int64_t stride, int64_t, void* acc,
                   double) {
    auto* a = static_cast<Acc*>(acc);
    const T* p = static_cast<const T*>(x);
    if constexpr (kIsFloat<T>) {
      HWY_ALIGN T part[cpu::kMaxCols];
      for (int64_t i = 0; i < n; i += cpu::kFewFolded) {
        FoldColumns(p + i * stride, cols, std::min(cpu::kFewFolded, n - i), stride, part, Map(),
                    Join());
        for (int64_t j = 0; j < cols; ++j) a[j].Add(part[j]);
      }
    } else {
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < cols; ++j) a[j].Add(p[i * stride + j]);
      }
    }
  }
  static void FewRows(const void* x, int64_t cols, int64_t n, int64_t stride, void* acc) {
    HWY_ALIGN T part[cpu::kMaxCols];
    FoldColumns(static_cast<const T*>(x), cols, n, stride, part, Map(), Join());
    auto* a = static_cast<Acc*>(acc);
    for (int64_t j = 0; j < cols; ++j) {
      if constexpr (std::is_same_v<Acc, Total<double, Plus>>) {
        a[j] = {part[j], 0};
      } else {
        a[j].value = part[j];
      }
    }
  }
  static void FewToResults(const void* x, int64_t cols, int64_t n, int64_t stride, double divisor,
                           void* result) {
    auto* const out = static_cast<T*>(result);
    FoldColumns(static_cast<const T*>(x), cols, n, stride, out, Map(), Join());
    // As in float64: a quotient of two float32 is rounded there to what it is here.
    for (int64_t j = 0; j < cols && divisor != 1; ++j) out[j] /= static_cast<T>(divisor);
  }
  static void Turned(const void* x, int64_t cols, int64_t n, int64_t stride, int64_t, void* acc,
                     double) {
    HWY_ALIGN T part[cpu::kMaxCols];
    FoldTurned(static_cast<const T*>(x), cols, n, stride, part, Map(), Join());
    for (int64_t j = 0; j < cols; ++j) static_cast<Acc*>(acc)[j].Add(part[j]);
  }
  static void Totals(const void* acc, int64_t n, double divisor, void* result) {
    const auto* HWY_RESTRICT a = static_cast<const Acc*>(acc);
    T* HWY_RESTRICT out = static_cast<T*>(result);
    const auto total = [](const Acc& one) {
      if constexpr (std::is_same_v<Acc, Total<double, Plus>>) {
        return std::isfinite(one.sum) ? one.sum + one.error : one.sum;
      } else {
        return one.value;
      }
    };
    if (divisor == 1) {
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(total(a[i]));
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(total(a[i]) / divisor);
    }
  }
  static void Blocks(const void* x, int64_t count, void* acc) {
    for (int64_t i = 0; i < count; ++i) {
      static_cast<Acc*>(acc)[i].Add(static_cast<const T*>(x)[i]);
    }
  }
  static void Merge(void* acc, const void* other, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      static_cast<Acc*>(acc)[i].Merge(static_cast<const Acc*>(other)[i]);
  }
};

// sum |x|^p for any p, one element after the other: rarely asked for.
template <class T>
struct PowerFold : TotalFold<T, Same, Plus> {
  using Acc = Total<T, Plus>;
  static void Rows(const void* x, int64_t count, int64_t n, int64_t stride, int64_t, void* acc,
                   double p) {
    const T* in = static_cast<const T*>(x);
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        static_cast<Acc*>(acc)[r].Add(std::pow(std::abs(in[r * stride + i]), static_cast<T>(p)));
      }
    }
  }
  static void Cols(const void* x, int64_t cols, int64_t n, int64_t stride, int64_t first, void* acc,
                   double p) {
    for (int64_t i = 0; i < n; ++i) {
      Rows(static_cast<const T*>(x) + i * stride, cols, 1, 1, first, acc, p);
    }
  }
};
// ---- mean and variance: two passes over blocks that stay in L1, joined by Chan's formula ----

HWY_INLINE void MergeMoments(Moments& a, const Moments& b) {
  if (b.count == 0) return;
  if (a.count == 0) {
    a = b;
    return;
  }
  const double count = a.count + b.count;
  const double delta = b.mean - a.mean;
  a.mean += delta * (b.count / count);
  a.m2 += b.m2 + delta * delta * (a.count * (b.count / count));
  a.count = count;
}

template <class T>
struct MomentsFold {
  // Differences are from a rounded mean; their own mean corrects the rounding.
  static HWY_INLINE Moments Joined(int64_t n, double centre, double sum, double squares) {
    const double count = static_cast<double>(n);
    const double off = sum / count;
    // m2 * 0 rather than 0 so that NaN stays.
    return {count, centre + off, std::max(squares - off * off * count, squares * 0)};
  }
  template <class Map>
  static HWY_INLINE Moments MapBlock(const T* x, int64_t n, Map map, T& centre, T& squares) {
    const Tag<T> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    centre = FoldBlock(x, n, map, Plus()) / static_cast<T>(n);
    const auto c = hn::Set(d, centre);
    auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    auto sq0 = sum0, sq1 = sum0, sq2 = sum0, sq3 = sum0;
    const auto take = [&](auto z, auto& sum, auto& sq) HWY_ATTR {
      sum = hn::Add(sum, z);
      sq = hn::MulAdd(z, z, sq);
    };
    const auto away = [&](int64_t i) HWY_ATTR { return hn::Sub(map(hn::LoadU(d, x + i)), c); };
    int64_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      take(away(i), sum0, sq0);
      take(away(i + lanes), sum1, sq1);
      take(away(i + 2 * lanes), sum2, sq2);
      take(away(i + 3 * lanes), sum3, sq3);
    }
    for (; i + lanes <= n; i += lanes) take(away(i), sum0, sq0);
    if (i < n) {
      const auto mask = hn::FirstN(d, static_cast<size_t>(n - i));
      take(hn::IfThenElseZero(mask, hn::Sub(map(LoadFirst(d, x + i, n - i)), c)), sum1, sq1);
    }
    const auto lanes_sum = [&](auto a, auto b, auto e, auto f) HWY_ATTR {
      return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(e, f))));
    };
    squares = lanes_sum(sq0, sq1, sq2, sq3);
    return Joined(n, static_cast<double>(centre),
                  static_cast<double>(lanes_sum(sum0, sum1, sum2, sum3)),
                  static_cast<double>(squares));
  }
  // Takes in a block whose squares left the range of T.
  static HWY_NOINLINE void MergeScaled(const T* x, int64_t n, Moments& to) {
    if (AreZeros(x, n)) return MergeMoments(to, Moments{static_cast<double>(n), 0, 0});
    const T most = ExtremeBlock<true>(x, n, Magnitude());
    const T scale = PowerTowardsOne(most);
    const double back = 1 / static_cast<double>(scale);
    T centre, squares;
    Moments moments = MapBlock(x, n, ScaledBy<T>{scale}, centre, squares);
    moments.mean *= back;
    moments.m2 = moments.m2 * back * back;
    MergeMoments(to, moments);
  }
  static void Init(void* acc, int64_t n) { std::fill_n(static_cast<Moments*>(acc), n, Moments{}); }
  static void Rows(const void* x, int64_t count, int64_t n, int64_t stride, int64_t, void* acc,
                   double) {
    const int64_t block = BlockLength<T>();
    for (int64_t r = 0; r < count; ++r) {
      const T* row = static_cast<const T*>(x) + r * stride;
      for (int64_t i = 0; i < n; i += block) {
        const int64_t length = std::min(block, n - i);
        Moments& to = static_cast<Moments*>(acc)[r];
        T centre, squares;
        const Moments moments = MapBlock(row + i, length, Unscaled(), centre, squares);
        if (HWY_LIKELY(SquaresFit(squares, centre))) {
          MergeMoments(to, moments);
        } else {
          MergeScaled(row + i, length, to);
        }
      }
    }
  }
  // Rows that are folded as columns at once.
  static constexpr int64_t kBlock = 64;
  static HWY_NOINLINE void MergeScaledColumn(const T* x, int64_t n, int64_t stride, Moments& to) {
    if (AreZeros(x, n, stride)) {
      return MergeMoments(to, Moments{static_cast<double>(n), 0, 0});
    }
    HWY_ALIGN T column[kBlock];
    for (int64_t i = 0; i < n; ++i) column[i] = x[i * stride];
    MergeScaled(column, n, to);
  }
  static void Cols(const void* x, int64_t cols, int64_t n, int64_t stride, int64_t, void* acc,
                   double) {
    const Tag<T> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    HWY_ALIGN T centre[cpu::kMaxCols + 64];
    HWY_ALIGN T part[cpu::kMaxCols + 64];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t length = std::min(kBlock, n - i);
      const T* p = static_cast<const T*>(x) + i * stride;
      FoldColumns(p, cols, length, stride, centre, Same(), Plus());
      for (int64_t j = 0; j < cols; ++j) centre[j] /= static_cast<T>(length);
      for (int64_t j = 0; j < cols; j += lanes) {
        const int64_t here = std::min(lanes, cols - j);
        const auto c = hn::Load(d, centre + j);
        auto sum = hn::Zero(d), shift = hn::Zero(d);
        for (int64_t k = 0; k < length; ++k) {
          const T* at = p + k * stride + j;
          const auto z = hn::Sub(here == lanes ? hn::LoadU(d, at) : LoadFirst(d, at, here), c);
          sum = hn::MulAdd(z, z, sum);
          shift = hn::Add(shift, z);
        }
        hn::Store(sum, d, part + j);
        HWY_ALIGN T shifts[hn::MaxLanes(d)];
        hn::Store(shift, d, shifts);
        const bool all_fit = AllSquaresFit(d, sum);
        for (int64_t k = 0; k < here; ++k) {
          Moments& to = static_cast<Moments*>(acc)[j + k];
          if (HWY_UNLIKELY(!all_fit) && !SquaresFit(part[j + k], centre[j + k])) {
            MergeScaledColumn(p + j + k, length, stride, to);
            continue;
          }
          MergeMoments(
              to, Joined(length, static_cast<double>(centre[j + k]), static_cast<double>(shifts[k]),
                         static_cast<double>(part[j + k])));
        }
      }
    }
  }
  static void Merge(void* acc, const void* other, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      MergeMoments(static_cast<Moments*>(acc)[i], static_cast<const Moments*>(other)[i]);
    }
  }
};

// ---- log(sum(exp)) ----

HWY_INLINE void MergeExp(ScaledExpSum& a, const ScaledExpSum& b) {
  if (b.sum == 0) return;
  if (a.sum == 0) {
    a = b;
    return;
  }
  // An infinite maximum leaves no scale; NaN spreads through both fields.
  const double max = a.max > b.max || a.max != a.max ? a.max : b.max;
  const auto scaled = [max](const ScaledExpSum& s) {
    return s.max == max ? s.sum : s.sum * std::exp(s.max - max);
  };
  a = {max, scaled(a) + scaled(b)};
}

template <class T>
struct LogSumExpFold {
  static void Init(void* acc, int64_t n) {
    std::fill_n(static_cast<ScaledExpSum*>(acc), n,
                ScaledExpSum{-std::numeric_limits<double>::infinity(), 0});
  }
  static void Rows(const void* x, int64_t count, int64_t n, int64_t stride, int64_t, void* acc,
                   double) {
    const int64_t block = BlockLength<T>();
    const Tag<T> d;
    for (int64_t r = 0; r < count; ++r) {
      const T* row = static_cast<const T*>(x) + r * stride;
      for (int64_t i = 0; i < n; i += block) {
        const int64_t length = std::min(block, n - i);
        const T max = ExtremeBlock<true>(row + i, length, Same());
        const bool infinite = std::isinf(max);
        const auto m = hn::Set(d, infinite ? T(0) : max);
        const auto exp = [m](auto v) HWY_ATTR { return Exp(hn::Sub(v, m)); };
        const T sum = FoldBlock(row + i, length, exp, Plus());
        MergeExp(static_cast<ScaledExpSum*>(acc)[r], {static_cast<double>(infinite && max > 0 ? max
                                                                          : infinite          ? T(0)
                                                                                     : max),
                                                      static_cast<double>(sum)});
      }
    }
  }
  static void Cols(const void* x, int64_t cols, int64_t n, int64_t stride, int64_t, void* acc,
                   double) {
    constexpr int64_t kRows = 64;
    const Tag<T> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    HWY_ALIGN T maxima[hn::MaxLanes(d)], sums[hn::MaxLanes(d)];
    for (int64_t i = 0; i < n; i += kRows) {
      const int64_t length = std::min(kRows, n - i);
      for (int64_t j = 0; j < cols; j += lanes) {
        const T* at = static_cast<const T*>(x) + i * stride + j;
        const int64_t here = std::min(lanes, cols - j);
        const auto row = [&](int64_t k) HWY_ATTR {
          return here == lanes ? hn::LoadU(d, at + k * stride)
                               : LoadFirst(d, at + k * stride, here);
        };
        auto max = hn::Set(d, WorstOf<true, T>());
        auto nan = hn::Zero(d);
        for (int64_t k = 0; k < length; ++k) {
          const auto value = row(k);
          max = hn::Max(max, value);
          nan = hn::Or(nan, hn::VecFromMask(d, hn::IsNaN(value)));
        }
        const auto infinite = hn::IsInf(max);
        const auto shift = hn::IfThenZeroElse(infinite, max);
        // Two chains of sums, as exact as a sum of half as many.
        auto even = hn::Zero(d), odd = hn::Zero(d);
        int64_t k = 0;
        for (; k + 2 <= length; k += 2) {
          even = hn::Add(even, Exp(hn::Sub(row(k), shift)));
          odd = hn::Add(odd, Exp(hn::Sub(row(k + 1), shift)));
        }
        if (k < length) even = hn::Add(even, Exp(hn::Sub(row(k), shift)));
        // Of maxima that are infinite only the positive one scales.
        max = hn::IfThenElse(hn::And(infinite, hn::Lt(max, hn::Zero(d))), hn::Zero(d), max);
        hn::Store(hn::IfThenElse(hn::MaskFromVec(nan),
                                 hn::Set(d, std::numeric_limits<T>::quiet_NaN()), max),
                  d, maxima);
        hn::Store(hn::Add(even, odd), d, sums);
        for (int64_t c = 0; c < here; ++c) {
          MergeExp(static_cast<ScaledExpSum*>(acc)[j + c],
                   {static_cast<double>(maxima[c]), static_cast<double>(sums[c])});
        }
      }
    }
  }
  static void Finish(const void* acc, int64_t n, void* result) {
    const auto* sums = static_cast<const ScaledExpSum*>(acc);
    const hn::ScalableTag<double> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    HWY_ALIGN double max[hn::MaxLanes(d)], sum[hn::MaxLanes(d)];
    for (int64_t i = 0; i < n; i += lanes) {
      const int64_t here = std::min(lanes, n - i);
      for (int64_t k = 0; k < lanes; ++k) {
        max[k] = k < here ? sums[i + k].max : 0;
        sum[k] = k < here ? sums[i + k].sum : 1;
      }
      const auto logs = hn::Add(hn::Load(d, max), Log(hn::Load(d, sum)));
      hn::Store(logs, d, max);
      for (int64_t k = 0; k < here; ++k) {
        static_cast<T*>(result)[i + k] =
            static_cast<T>(sum[k] == 0 ? -std::numeric_limits<double>::infinity() : max[k]);
      }
    }
  }
  static void Merge(void* acc, const void* other, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      MergeExp(static_cast<ScaledExpSum*>(acc)[i], static_cast<const ScaledExpSum*>(other)[i]);
    }
  }
};
template <class T, class Map, class Join>
FoldKernel TotalOf() {
  using F = TotalFold<T, Map, Join>;
  FoldKernel kernel = KernelOf<F>(sizeof(Total<T, Join>));
  kernel.merges_fast = true;
  if constexpr (kIsFloat<T>) {
    kernel.totals = &F::Totals;
    kernel.few_rows = &F::FewRows;
    kernel.few_to_results = &F::FewToResults;
    kernel.turned = &F::Turned;
  } else {
    kernel.turned = &F::Cols;
  }
  if constexpr (kIsFloat<T> && std::is_same_v<Join, Plus>) kernel.blocks = &F::Blocks;
  return kernel;
}
template <class T>
void AddFloats(Kernels& table, Dtype t) {
  At(table, Fold::kSum, t) = TotalOf<T, Same, Plus>();
  At(table, Fold::kProd, t) = TotalOf<T, Same, Times>();
  At(table, Fold::kCountNonzero, t) = TotalOf<T, NonzeroOne, Plus>();
  At(table, Fold::kSumAbs, t) = TotalOf<T, Magnitude, Plus>();
  At(table, Fold::kSumSquare, t) = TotalOf<T, Squared, Plus>();
  At(table, Fold::kSumPower, t) = KernelOf<PowerFold<T>>(sizeof(Total<T, Plus>));
  At(table, Fold::kMoments, t) = KernelOf<MomentsFold<T>>(sizeof(Moments));
  At(table, Fold::kLogSumExp, t) = KernelOf<LogSumExpFold<T>>(sizeof(ScaledExpSum));
  At(table, Fold::kLogSumExp, t).finish = &LogSumExpFold<T>::Finish;
  At(table, cpu::own_fold(Reduction::nansum), t) = TotalOf<T, NanAsZero, Plus>();
}

}  // namespace

void AddFolds(Kernels& table) {
  AddFloats<float>(table, Dtype::kFloat32);
  AddFloats<double>(table, Dtype::kFloat64);
  At(table, Fold::kSum, Dtype::kInt64) = TotalOf<int64_t, Same, Plus>();
  At(table, Fold::kProd, Dtype::kInt64) = TotalOf<int64_t, Same, Times>();
  At(table, cpu::own_fold(Reduction::nansum), Dtype::kInt64) = TotalOf<int64_t, Same, Plus>();
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

const FoldKernel& fold_kernel(Isa isa, Fold fold, Dtype dtype) {
  static const FoldTable* tables = [] {
    auto* built = new FoldTable[kIsaCount];
    for (int i = 0; i < kIsaCount; ++i) {
      const Isa each = static_cast<Isa>(i);
      if (!isa_available(each)) continue;
      HOLOGRAM_FOR_ISA(each, AddFolds)(built[i]);
      add_order_folds(each, built[i]);
    }
    return built;
  }();
  return tables[static_cast<int>(isa)][static_cast<int>(fold)][static_cast<int>(dtype)];
}

}  // namespace hologram::cpu
#endif
