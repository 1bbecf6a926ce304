// SPDX-License-Identifier: MIT
// The inner loops of extremes, of their positions, and of any and all, for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/reduce/order_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "src/cpu/reduce/fold-inl.h"
// clang-format on

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::Indexed;

// Rows of so few elements go one by one, without branches, which no processor could foretell.
constexpr int64_t kFew = cpu::kTurnedRow;
template <class T>
using OneLane = hn::CappedTag<T, 1>;

// Whether b comes before a: NaN before anything, then the better value, then the smaller index.
template <bool kMax, class T>
HWY_INLINE bool Beats(T b, T a) {
  const bool better = kMax ? b > a : b < a;
  if constexpr (kIsFloat<T>) {
    return (a == a) & (better | (b != b));
  } else {
    return better;
  }
}

// The same of vectors.
template <bool kMax, class D, class V = hn::Vec<D>>
HWY_INLINE hn::Mask<D> BeatsV([[maybe_unused]] D d, V b, V a) {
  hn::Mask<D> better;
  if constexpr (kMax) {
    better = hn::Gt(b, a);
  } else {
    better = hn::Lt(b, a);
  }
  if constexpr (kIsFloat<hn::TFromD<D>>) {
    return hn::And(hn::Eq(a, a), hn::Or(better, hn::IsNaN(b)));
  } else {
    return better;
  }
}

template <class T, bool kMax, class Map>
struct ExtremeFold {
  using Acc = T;
  static HWY_INLINE T MapOne(T x) {
    if constexpr (std::is_same_v<Map, Magnitude>) {
      return std::abs(x);
    } else {
      return x;
    }
  }
  static void Init(void* acc, int64_t n) {
    std::fill_n(static_cast<T*>(acc), n, WorstOf<kMax, T>());
  }
  static void Rows(const void* x, int64_t count, int64_t n, int64_t stride, int64_t, void* acc,
                   double) {
    auto* a = static_cast<T*>(acc);
    const T* row = static_cast<const T*>(x);
    const OneLane<T> d;
    for (int64_t r = 0; r < count && n <= kFew; ++r, row += stride) {
      auto best = hn::LoadU(d, a + r);
      for (int64_t i = 0; i < n; ++i) {
        const auto value = Map()(hn::LoadU(d, row + i));
        best = hn::IfThenElse(BeatsV<kMax>(d, value, best), value, best);
      }
      hn::StoreU(best, d, a + r);
    }
    for (int64_t r = 0; r < count && n > kFew; ++r, row += stride) {
      a[r] = Extreme<kMax>(a[r], ExtremeBlock<kMax>(row, n, Map()));
    }
  }
  // kVectors vectors of columns; a[j] takes part unless is_first. Of equal values the first one
  // stays, and so does the first NaN.
  template <int kVectors>
  static HWY_INLINE void Columns(const T* x, int64_t n, int64_t stride, bool is_first, T* a) {
    const Tag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto at = [&](int64_t k, int v)
                        HWY_ATTR { return Map()(hn::LoadU(d, x + k * stride + v * lanes)); };
    // Sums show whether there may be a NaN: they are one after any, or after infinities of both
    // signs.
    hn::Vec<Tag<T>> best[kVectors], sum[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      best[v] = is_first ? at(0, v) : hn::LoadU(d, a + v * lanes);
      sum[v] = is_first ? best[v] : hn::Zero(d);
    }
    for (int64_t k = is_first; k < n; ++k) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const auto value = at(k, v);
        // x86 gives the second operand where both are zero or one is NaN.
        best[v] = ExtremeV<kMax>(value, best[v]);
        if constexpr (kIsFloat<T>) sum[v] = hn::Add(sum[v], value);
      }
    }
    if constexpr (kIsFloat<T>) {
      auto nan = hn::IsNaN(sum[0]);
      for (int v = 1; v < kVectors; ++v) nan = hn::Or(nan, hn::IsNaN(sum[v]));
      if (!hn::AllFalse(d, nan)) return SlowColumns<kVectors>(x, n, stride, is_first, a);
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) hn::StoreU(best[v], d, a + v * lanes);
  }
  template <int kVectors>
  static void SlowColumns(const T* x, int64_t n, int64_t stride, bool is_first, T* a) {
    const Tag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int v = 0; v < kVectors; ++v) {
      auto best = is_first ? hn::Set(d, WorstOf<kMax, T>()) : hn::LoadU(d, a + v * lanes);
      for (int64_t k = 0; k < n; ++k) {
        const auto value = Map()(hn::LoadU(d, x + k * stride + v * lanes));
        best = hn::IfThenElse(BeatsV<kMax>(d, value, best), value, best);
      }
      hn::StoreU(best, d, a + v * lanes);
    }
  }
  static void AllColumns(const T* x, int64_t cols, int64_t n, int64_t stride, bool is_first, T* a) {
    const Tag<T> d;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    constexpr int64_t kTogether = 16;  // rows
    for (int64_t i = 0; i < n; i += kTogether, x += kTogether * stride, is_first = false) {
      const int64_t here = std::min(kTogether, n - i);
      int64_t j = 0;
      for (; j + 4 * lanes <= cols; j += 4 * lanes)
        Columns<4>(x + j, here, stride, is_first, a + j);
      for (; j + lanes <= cols; j += lanes) Columns<1>(x + j, here, stride, is_first, a + j);
      for (; j < cols; ++j) {
        T best = is_first ? WorstOf<kMax, T>() : a[j];
        for (int64_t k = 0; k < here; ++k) {
          const T value = MapOne(x[k * stride + j]);
          if (Beats<kMax>(value, best)) best = value;
        }
        a[j] = best;
      }
    }
  }
  static void Cols(const void* x, int64_t cols, int64_t n, int64_t stride, int64_t, void* acc,
                   double) {
    AllColumns(static_cast<const T*>(x), cols, n, stride, false, static_cast<T*>(acc));
  }
  static void FewToResults(const void* x, int64_t cols, int64_t n, int64_t stride, double,
                           void* result) {
    AllColumns(static_cast<const T*>(x), cols, n, stride, true, static_cast<T*>(result));
  }
  static void Merge(void* acc, const void* other, int64_t n) { Cols(other, n, 1, n, 0, acc, 0); }
};

template <class T, bool kMax>
struct ArgFold {
  using Acc = Indexed<T>;
  static void Init(void* acc, int64_t n) {
    std::fill_n(static_cast<Acc*>(acc), n, Acc{WorstOf<kMax, T>(), -1});
  }
  static HWY_INLINE void Take(Acc& a, T value, int64_t index) {
    if (a.index < 0 || Beats<kMax>(value, a.value)) a = {value, index};
  }
  static void Rows(const void* x, int64_t count, int64_t n, int64_t stride, int64_t first,
                   void* acc, double) {
    // A block is searched only if its extreme beats what there is.
    constexpr int64_t kBlock = 1024;
    for (int64_t r = 0; r < count; ++r) {
      const T* row = static_cast<const T*>(x) + r * stride;
      Acc& a = static_cast<Acc*>(acc)[r];
      if (n <= kFew) {
        const OneLane<T> d;
        const hn::RebindToSigned<OneLane<T>> positions;
        auto best = hn::LoadU(d, row);
        auto at = hn::Zero(positions);
        for (int64_t i = 1; i < n; ++i) {
          const auto value = hn::LoadU(d, row + i);
          const auto beats = BeatsV<kMax>(d, value, best);
          best = hn::IfThenElse(beats, value, best);
          at = hn::IfThenElse(hn::RebindMask(positions, beats),
                              hn::Set(positions, static_cast<hn::TFromD<decltype(positions)>>(i)),
                              at);
        }
        Take(a, hn::GetLane(best), first + hn::GetLane(at));
        continue;
      }
      for (int64_t i = 0; i < n; i += kBlock) {
        const int64_t length = std::min(kBlock, n - i);
        const T best = ExtremeBlock<kMax>(row + i, length, Same());
        if (a.index >= 0 && !Beats<kMax>(best, a.value)) continue;
        int64_t at = 0;
        if constexpr (kIsFloat<T>) {
          if (best != best) {
            while (row[i + at] == row[i + at]) ++at;
            a = {best, first + i + at};
            break;
          }
        }
        while (row[i + at] != best) ++at;
        a = {best, first + i + at};
      }
    }
  }
  // The best of each of kVectors vectors of columns and where it is, joined with acc. The columns
  // of vector v begin `apart` elements after those of the one before, its positions `later`.
  template <int kVectors>
  static HWY_INLINE void Columns(const T* x, int64_t apart, int64_t n, int64_t stride,
                                 int64_t first, int64_t later, int64_t cols, Acc* a,
                                 int64_t acc_apart) {
    const Tag<T> d;
    using Position = std::make_signed_t<std::conditional_t<
        sizeof(T) == 8, uint64_t,
        std::conditional_t<sizeof(T) == 4, uint32_t,
                           std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>>;
    const hn::ScalableTag<Position> positions;
    const auto load = [&](const T* p) HWY_ATTR {
      return cols < static_cast<int64_t>(hn::Lanes(d)) ? LoadFirst(d, p, cols) : hn::LoadU(d, p);
    };
    hn::Vec<Tag<T>> best[kVectors];
    hn::Vec<decltype(positions)> at[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      best[v] = load(x + v * apart);
      at[v] = hn::Zero(positions);
    }
    for (int64_t i = 1; i < n; ++i) {
      const auto here = hn::Set(positions, static_cast<Position>(i));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const auto value = load(x + i * stride + v * apart);
        const auto beats = BeatsV<kMax>(d, value, best[v]);
        best[v] = hn::IfThenElse(beats, value, best[v]);
        at[v] = hn::IfThenElse(hn::RebindMask(positions, beats), here, at[v]);
      }
    }
    HWY_ALIGN T values[hn::MaxLanes(d)];
    HWY_ALIGN Position places[hn::MaxLanes(d)];
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(best[v], d, values);
      hn::Store(at[v], positions, places);
      for (int64_t j = 0; j < cols; ++j) {
        Take(a[v * acc_apart + j], values[j], first + v * later + places[j]);
      }
    }
  }
  static void Cols(const void* x, int64_t cols, int64_t n, int64_t stride, int64_t first, void* acc,
                   double) {
    auto* a = static_cast<Acc*>(acc);
    const auto lanes = static_cast<int64_t>(hn::Lanes(Tag<T>()));
    // Positions are kept in lanes as wide as the elements.
    constexpr int64_t kRows = sizeof(T) == 1 ? 127 : sizeof(T) == 2 ? 32767 : int64_t{1} << 20;
    for (int64_t i = 0; i < n; i += kRows) {
      const T* const rows = static_cast<const T*>(x) + i * stride;
      const int64_t here = std::min(kRows, n - i), at = first + i;
      int64_t j = 0;
      for (; j + 4 * lanes <= cols; j += 4 * lanes) {
        Columns<4>(rows + j, lanes, here, stride, at, 0, lanes, a + j, lanes);
      }
      for (; j < cols; j += lanes) {
        const int64_t width = std::min(lanes, cols - j);
        // Four parts of the rows at a time: each comparison waits for the one before.
        const int64_t part = here / 4;
        if (part > 0) {
          Columns<4>(rows + j, part * stride, part, stride, at, part, width, a + j, 0);
        }
        if (4 * part < here) {
          Columns<1>(rows + j + 4 * part * stride, 0, here - 4 * part, stride, at + 4 * part, 0,
                     width, a + j, 0);
        }
      }
    }
  }
  static void Merge(void* acc, const void* other, int64_t n) {
    const auto* b = static_cast<const Acc*>(other);
    for (int64_t i = 0; i < n; ++i) {
      if (b[i].index >= 0) Take(static_cast<Acc*>(acc)[i], b[i].value, b[i].index);
    }
  }
};

// ---- any and all ----

template <class T, bool kAny>
struct TruthFold {
  static void Init(void* acc, int64_t n) {
    std::fill_n(static_cast<uint8_t*>(acc), n, kAny ? 0 : 1);
  }
  static void Rows(const void* x, int64_t count, int64_t n, int64_t stride, int64_t, void* acc,
                   double) {
    auto* a = static_cast<uint8_t*>(acc);
    constexpr int64_t kBlock = 1024;
    for (int64_t r = 0; r < count; ++r) {
      const T* row = static_cast<const T*>(x) + r * stride;
      for (int64_t i = 0; i < n && a[r] != kAny; i += kBlock) {
        const int64_t length = std::min(kBlock, n - i);
        int found = 0;  // an element that settles the matter
        for (int64_t k = 0; k < length; ++k) found |= (row[i + k] != T(0)) == kAny;
        if (found != 0) a[r] = kAny;
      }
    }
  }
  static void Cols(const void* x, int64_t cols, int64_t n, int64_t stride, int64_t, void* acc,
                   double) {
    auto* HWY_RESTRICT a = static_cast<uint8_t*>(acc);
    for (int64_t i = 0; i < n; ++i) {
      const T* row = static_cast<const T*>(x) + i * stride;
      for (int64_t j = 0; j < cols; ++j) {
        const uint8_t one = row[j] != T(0);
        a[j] = kAny ? a[j] | one : a[j] & one;
      }
    }
  }
  static void Merge(void* acc, const void* other, int64_t n) {
    auto* a = static_cast<uint8_t*>(acc);
    const auto* b = static_cast<const uint8_t*>(other);
    for (int64_t i = 0; i < n; ++i) a[i] = kAny ? a[i] | b[i] : a[i] & b[i];
  }
};

// Whatever the order, the first of equals wins.
template <class F>
FoldKernel OrderKernelOf(size_t acc_size) {
  FoldKernel kernel = KernelOf<F>(acc_size);
  kernel.turned = &F::Cols;
  kernel.merges_fast = true;
  return kernel;
}

template <class T, bool kMax, class Map = Same>
FoldKernel ExtremeKernelOf() {
  using F = ExtremeFold<T, kMax, Map>;
  FoldKernel kernel = OrderKernelOf<F>(sizeof(T));
  kernel.few_to_results = &F::FewToResults;
  return kernel;
}

template <class T>
void AddOrdered(Kernels& table, Dtype t) {
  At(table, Fold::kMin, t) = ExtremeKernelOf<T, false>();
  At(table, Fold::kMax, t) = ExtremeKernelOf<T, true>();
  At(table, Fold::kArgMin, t) = OrderKernelOf<ArgFold<T, false>>(sizeof(Indexed<T>));
  At(table, Fold::kArgMax, t) = OrderKernelOf<ArgFold<T, true>>(sizeof(Indexed<T>));
  At(table, Fold::kAny, t) = OrderKernelOf<TruthFold<T, true>>(1);
  At(table, Fold::kAll, t) = OrderKernelOf<TruthFold<T, false>>(1);
}

template <class T>
void AddMagnitudes(Kernels& table, Dtype t) {
  At(table, Fold::kMinAbs, t) = ExtremeKernelOf<T, false, Magnitude>();
  At(table, Fold::kMaxAbs, t) = ExtremeKernelOf<T, true, Magnitude>();
}

}  // namespace

void AddOrderFolds(Kernels& table) {
  AddMagnitudes<float>(table, Dtype::kFloat32);
  AddMagnitudes<double>(table, Dtype::kFloat64);
  AddOrdered<uint8_t>(table, Dtype::kBool);
  AddOrdered<uint8_t>(table, Dtype::kUInt8);
  AddOrdered<int8_t>(table, Dtype::kInt8);
  AddOrdered<int16_t>(table, Dtype::kInt16);
  AddOrdered<int32_t>(table, Dtype::kInt32);
  AddOrdered<int64_t>(table, Dtype::kInt64);
  AddOrdered<float>(table, Dtype::kFloat32);
  AddOrdered<double>(table, Dtype::kFloat64);
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

void add_order_folds(Isa isa, FoldTable& table) { HOLOGRAM_FOR_ISA(isa, AddOrderFolds)(table); }

}  // namespace hologram::cpu
#endif
