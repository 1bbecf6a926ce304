// SPDX-License-Identifier: MIT
// The inner loops of softmax and its relatives, for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/reduce/softmax_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "src/cpu/device/float_kernels.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/simd/lanes-inl.h"
#include "src/cpu/simd/math-exp-inl.h"
#include "src/cpu/simd/math-log-inl.h"
#include "src/cpu/reduce/softmax_kernels.h"
// clang-format on

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::SoftmaxArgs;
using cpu::SoftmaxKernel;
using cpu::SoftmaxOp;

// Sum over f(i, access) with four accumulators, in blocks whose totals add up in float64.
template <class T, class F>
HWY_INLINE T SumVectors(int64_t n, F&& f) {
  const LaneTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t block = 256 * lanes;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t end = std::min(n, begin + block);
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = begin;
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      s0 = hn::Add(s0, f(i, AllLanes()));
      s1 = hn::Add(s1, f(i + lanes, AllLanes()));
      s2 = hn::Add(s2, f(i + 2 * lanes, AllLanes()));
      s3 = hn::Add(s3, f(i + 3 * lanes, AllLanes()));
    }
    for (; i + lanes <= end; i += lanes) s0 = hn::Add(s0, f(i, AllLanes()));
    if (i < end) s1 = hn::Add(s1, f(i, FirstLanes{end - i}));
    const auto sum = hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
    const T part = hn::GetLane(hn::SumOfLanes(d, sum));
    if (end == n && begin == 0) return part;
    total += static_cast<double>(part);
  }
  return static_cast<T>(total);
}

template <class T>
HWY_INLINE T MaxVectors(const T* x, int64_t n) {
  const LaneTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto low = hn::Set(d, -std::numeric_limits<T>::infinity());
  auto m0 = low, m1 = low, m2 = low, m3 = low;
  int64_t i = 0;
  // NaN may be lost here: exp(x - max) brings it back.
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    m0 = hn::Max(m0, hn::LoadU(d, x + i));
    m1 = hn::Max(m1, hn::LoadU(d, x + i + lanes));
    m2 = hn::Max(m2, hn::LoadU(d, x + i + 2 * lanes));
    m3 = hn::Max(m3, hn::LoadU(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) m0 = hn::Max(m0, hn::LoadU(d, x + i));
  if (i < n) m1 = hn::Max(m1, FirstLanes{n - i}.Keep(d, LoadFirst(d, x + i, n - i), low));
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
}

template <class T, SoftmaxOp kOp>
HWY_INLINE void OneRow(const T* a, const T* b, T* out, int64_t n) {
  const LaneTag<T> d;
  const auto zero = hn::Zero(d);
  if constexpr (kOp == SoftmaxOp::kSoftmax) {
    const auto max = hn::Set(d, MaxVectors(a, n));
    const T sum = SumVectors<T>(n, [&](int64_t i, auto access) HWY_ATTR {
      const auto e = ExpOfSmall(hn::Sub(access.Load(d, a + i), max));
      access.Store(d, e, out + i);
      return access.Keep(d, e, zero);
    });
    const auto scale = hn::Set(d, T(1) / sum);
    ForLanes<T>(n, [&](int64_t i, auto access) HWY_ATTR {
      access.Store(d, hn::Mul(access.Load(d, out + i), scale), out + i);
    });
  } else if constexpr (kOp == SoftmaxOp::kLogSoftmax) {
    const auto max = hn::Set(d, MaxVectors(a, n));
    const T sum = SumVectors<T>(n, [&](int64_t i, auto access) HWY_ATTR {
      return access.Keep(d, ExpOfSmall(hn::Sub(access.Load(d, a + i), max)), zero);
    });
    const auto log = Log(hn::Set(d, sum));
    ForLanes<T>(n, [&](int64_t i, auto access) HWY_ATTR {
      access.Store(d, hn::Sub(hn::Sub(access.Load(d, a + i), max), log), out + i);
    });
  } else if constexpr (kOp == SoftmaxOp::kSoftmaxBackward) {
    const T dot = SumVectors<T>(n, [&](int64_t i, auto access) HWY_ATTR {
      return hn::Mul(access.Load(d, a + i), access.Load(d, b + i));
    });
    const auto sum = hn::Set(d, dot);
    ForLanes<T>(n, [&](int64_t i, auto access) HWY_ATTR {
      const auto grad = hn::Sub(access.Load(d, a + i), sum);
      access.Store(d, hn::Mul(grad, access.Load(d, b + i)), out + i);
    });
  } else {
    const auto sum = hn::Set(d, SumVectors<T>(n, [&](int64_t i, auto access)
                                                     HWY_ATTR { return access.Load(d, a + i); }));
    ForLanes<T>(n, [&](int64_t i, auto access) HWY_ATTR {
      const auto e = Exp(access.Load(d, b + i));
      access.Store(d, hn::NegMulAdd(e, sum, access.Load(d, a + i)), out + i);
    });
  }
}

// The elements of a row of kVectors vectors or a little less. The last vector of several ends where
// the row ends and holds some elements a second time, which do not count.
template <class T, int kVectors, class Access>
struct ShortRow {
  using V = LaneVec<T>;
  using Vectors = V[kVectors];

  LaneTag<T> d;
  int64_t n;
  Access access;  // of the only vector

  HWY_INLINE int64_t place(int v) const {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    return v < kVectors - 1 ? v * lanes : n - lanes;
  }
  HWY_INLINE void load(const T* p, Vectors& to) const {
    if constexpr (kVectors == 1) {
      to[0] = access.Load(d, p);
    } else {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) to[v] = hn::LoadU(d, p + place(v));
    }
  }
  HWY_INLINE void store(const Vectors& from, T* p) const {
    if constexpr (kVectors == 1) {
      access.Store(d, from[0], p);
    } else {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) hn::StoreU(from[v], d, p + place(v));
    }
  }
  // The last vector with `none` in what does not count.
  HWY_INLINE V counted(V v, V none) const {
    if constexpr (kVectors == 1) {
      return access.Keep(d, v, none);
    } else {
      const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
      return hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(kVectors * lanes - n)), none, v);
    }
  }
  HWY_INLINE V max(const Vectors& x) const {
    V all = counted(x[kVectors - 1], hn::Set(d, -std::numeric_limits<T>::infinity()));
#pragma GCC unroll 4
    for (int v = 0; v < kVectors - 1; ++v) all = hn::Max(all, x[v]);
    return hn::MaxOfLanes(d, all);
  }
  HWY_INLINE V sum(const Vectors& x) const {
    V all = counted(x[kVectors - 1], hn::Zero(d));
#pragma GCC unroll 4
    for (int v = 0; v < kVectors - 1; ++v) all = hn::Add(all, x[v]);
    return hn::SumOfLanes(d, all);
  }
};

// No loops within a row, so that several are in flight at once.
template <class T, SoftmaxOp kOp, int kVectors, class Access>
HWY_INLINE void ShortRows(const T* a, const T* b, T* out, int64_t count, int64_t n,
                          const int64_t* strides, Access access) {
  const ShortRow<T, kVectors, Access> row{{}, n, access};
  for (int64_t r = 0; r < count; ++r) {
    LaneVec<T> x[kVectors], y[kVectors];
    row.load(a + r * strides[0], x);
    if constexpr (kOp == SoftmaxOp::kSoftmax) {
      const auto max = row.max(x);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) x[v] = ExpOfSmall(hn::Sub(x[v], max));
      const auto sum = row.sum(x);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) x[v] = hn::Div(x[v], sum);
    } else if constexpr (kOp == SoftmaxOp::kSoftmaxBackward) {
      row.load(b + r * strides[1], y);
      LaneVec<T> products[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) products[v] = hn::Mul(x[v], y[v]);
      const auto sum = row.sum(products);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) x[v] = hn::Mul(hn::Sub(x[v], sum), y[v]);
    } else {
      row.load(b + r * strides[1], y);
      const auto sum = row.sum(x);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) x[v] = hn::NegMulAdd(Exp(y[v]), sum, x[v]);
    }
    row.store(x, out + r * strides[2]);
  }
}

// The same for log_softmax: the logarithms of as many rows as a vector has lanes are one.
template <class T, int kVectors, class Access>
HWY_INLINE void ShortLogRows(const T* a, T* out, int64_t count, int64_t n, const int64_t* strides,
                             Access access) {
  const ShortRow<T, kVectors, Access> row{{}, n, access};
  const LaneTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN T maxima[hn::MaxLanes(d)], sums[hn::MaxLanes(d)] = {};
  for (int64_t first = 0; first < count; first += lanes) {
    const int64_t here = std::min(lanes, count - first);
    for (int64_t r = 0; r < here; ++r) {
      LaneVec<T> x[kVectors];
      row.load(a + (first + r) * strides[0], x);
      const auto max = row.max(x);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) x[v] = ExpOfSmall(hn::Sub(x[v], max));
      maxima[r] = hn::GetLane(max);
      sums[r] = hn::GetLane(row.sum(x));
    }
    hn::Store(Log(hn::Load(d, sums)), d, sums);
    for (int64_t r = 0; r < here; ++r) {
      LaneVec<T> x[kVectors];
      row.load(a + (first + r) * strides[0], x);
      const auto max = hn::Set(d, maxima[r]), log = hn::Set(d, sums[r]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) x[v] = hn::Sub(hn::Sub(x[v], max), log);
      row.store(x, out + (first + r) * strides[2]);
    }
  }
}

template <class T, SoftmaxOp kOp>
void Rows(const SoftmaxArgs& args, int64_t count, int64_t n, const int64_t* strides) {
  const T* a = static_cast<const T*>(args.a);
  const T* b = static_cast<const T*>(args.b);
  T* out = static_cast<T*>(args.out);
  const auto short_rows = [&]<int kVectors>(auto access) HWY_ATTR {
    if constexpr (kOp == SoftmaxOp::kLogSoftmax) {
      ShortLogRows<T, kVectors>(a, out, count, n, strides, access);
    } else {
      ShortRows<T, kOp, kVectors>(a, b, out, count, n, strides, access);
    }
  };
  const auto lanes = static_cast<int64_t>(hn::Lanes(LaneTag<T>()));
  if (n < lanes) return short_rows.template operator()<1>(FirstLanes{n});
  switch (cpu::ceil_div(n, lanes)) {
    case 1:
      return short_rows.template operator()<1>(AllLanes());
    case 2:
      return short_rows.template operator()<2>(AllLanes());
    case 3:
      return short_rows.template operator()<3>(AllLanes());
    case 4:
      return short_rows.template operator()<4>(AllLanes());
  }
  for (int64_t r = 0; r < count; ++r) {
    OneRow<T, kOp>(a + r * strides[0], b + r * strides[1], out + r * strides[2], n);
  }
}

// kVectors vectors of columns. Long columns add up in two levels to keep the error small.
template <class T, SoftmaxOp kOp, int kVectors, class Access>
HWY_INLINE void ColumnBlock(const T* a, const T* b, T* out, int64_t n, const int64_t* strides,
                            Access access) {
  using V = LaneVec<T>;
  const LaneTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kBlock = 256;
  const auto load = [&](const T* p, int v) HWY_ATTR { return access.Load(d, p + v * lanes); };
  V max[kVectors], sum[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    max[v] = hn::Set(d, -std::numeric_limits<T>::infinity());
    sum[v] = hn::Zero(d);
  }
  constexpr bool kForward = kOp == SoftmaxOp::kSoftmax || kOp == SoftmaxOp::kLogSoftmax;
  if constexpr (kForward) {
    for (int64_t i = 0; i < n; ++i) {
      for (int v = 0; v < kVectors; ++v) max[v] = hn::Max(max[v], load(a + i * strides[0], v));
    }
  }
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    V part[kVectors];
    for (int v = 0; v < kVectors; ++v) part[v] = hn::Zero(d);
    for (int64_t i = begin; i < std::min(n, begin + kBlock); ++i) {
      for (int v = 0; v < kVectors; ++v) {
        V x = load(a + i * strides[0], v);
        if constexpr (kForward) x = ExpOfSmall(hn::Sub(x, max[v]));
        if constexpr (kOp == SoftmaxOp::kSoftmax) {
          access.Store(d, x, out + i * strides[2] + v * lanes);
        }
        if constexpr (kOp == SoftmaxOp::kSoftmaxBackward) {
          x = hn::Mul(x, load(b + i * strides[1], v));
        }
        part[v] = hn::Add(part[v], x);
      }
    }
    for (int v = 0; v < kVectors; ++v) sum[v] = hn::Add(sum[v], part[v]);
  }
  for (int v = 0; v < kVectors; ++v) {
    if constexpr (kOp == SoftmaxOp::kSoftmax) sum[v] = hn::Div(hn::Set(d, T(1)), sum[v]);
    if constexpr (kOp == SoftmaxOp::kLogSoftmax) sum[v] = Log(sum[v]);
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      T* to = out + i * strides[2] + v * lanes;
      V y;
      if constexpr (kOp == SoftmaxOp::kSoftmax) {
        y = hn::Mul(access.Load(d, static_cast<const T*>(to)), sum[v]);
      } else if constexpr (kOp == SoftmaxOp::kLogSoftmax) {
        y = hn::Sub(hn::Sub(load(a + i * strides[0], v), max[v]), sum[v]);
      } else if constexpr (kOp == SoftmaxOp::kSoftmaxBackward) {
        y = hn::Mul(hn::Sub(load(a + i * strides[0], v), sum[v]), load(b + i * strides[1], v));
      } else {
        y = hn::NegMulAdd(Exp(load(b + i * strides[1], v)), sum[v], load(a + i * strides[0], v));
      }
      access.Store(d, y, to);
    }
  }
}

template <class T, SoftmaxOp kOp>
void Cols(const SoftmaxArgs& args, int64_t count, int64_t n, const int64_t* strides) {
  const T* a = static_cast<const T*>(args.a);
  const T* b = static_cast<const T*>(args.b);
  T* out = static_cast<T*>(args.out);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(LaneTag<T>()));
  int64_t j = 0;
  for (; j + 4 * lanes <= count; j += 4 * lanes) {
    ColumnBlock<T, kOp, 4>(a + j, b + j, out + j, n, strides, AllLanes());
  }
  for (; j + lanes <= count; j += lanes) {
    ColumnBlock<T, kOp, 1>(a + j, b + j, out + j, n, strides, AllLanes());
  }
  if (j < count) ColumnBlock<T, kOp, 1>(a + j, b + j, out + j, n, strides, FirstLanes{count - j});
}

}  // namespace

SoftmaxKernel SoftmaxKernelOf(SoftmaxOp op, Dtype dtype) {
  const bool wide = dtype == Dtype::kFloat64;
  switch (op) {
#define HOLOGRAM_CASE(name)                                                                     \
  case SoftmaxOp::name:                                                                         \
    return wide ? SoftmaxKernel{&Rows<double, SoftmaxOp::name>, &Cols<double, SoftmaxOp::name>} \
                : SoftmaxKernel{&Rows<float, SoftmaxOp::name>, &Cols<float, SoftmaxOp::name>};
    HOLOGRAM_CASE(kSoftmax)
    HOLOGRAM_CASE(kLogSoftmax)
    HOLOGRAM_CASE(kSoftmaxBackward)
    HOLOGRAM_CASE(kLogSoftmaxBackward)
#undef HOLOGRAM_CASE
  }
  return {};
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

const SoftmaxKernel& softmax_kernel(Isa isa, SoftmaxOp op, Dtype dtype) {
  using Kernels = std::array<SoftmaxKernel, 4>;
  static const FloatKernels<Kernels> kernels([](Isa each, Dtype type) {
    Kernels made;
    for (size_t k = 0; k < made.size(); ++k) {
      made[k] = HOLOGRAM_FOR_ISA(each, SoftmaxKernelOf)(static_cast<SoftmaxOp>(k), type);
    }
    return made;
  });
  return kernels.get(isa, dtype)[static_cast<size_t>(op)];
}

}  // namespace hologram::cpu
#endif
