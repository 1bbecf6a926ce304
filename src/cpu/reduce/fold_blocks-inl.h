// SPDX-License-Identifier: MIT
// Sums and products of blocks of rows and columns in the type of the elements, whose order plans
// know.

#if defined(HOLOGRAM_CPU_FOLD_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HOLOGRAM_CPU_FOLD_BLOCKS_INL_H_
#undef HOLOGRAM_CPU_FOLD_BLOCKS_INL_H_
#else
#define HOLOGRAM_CPU_FOLD_BLOCKS_INL_H_
#endif

#include "src/cpu/reduce/fold-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

template <class T>
HWY_INLINE int64_t BlockLength() {
  return cpu::kFoldVectors * static_cast<int64_t>(hn::Lanes(Tag<T>()));
}

// ---- how two accumulators become one ----

// Upper half joined with lower half, for generated loops do the same.
template <class D, class Join>
HWY_INLINE hn::TFromD<D> JoinHalves([[maybe_unused]] D d, hn::Vec<D> v, Join join) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> half;
    return JoinHalves(half, join(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), join);
  }
}

struct Plus {
  static constexpr double kIdentity = 0;
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};
struct Times {
  static constexpr double kIdentity = 1;
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Mul(a, b);
  }
};

// One block, in T. The order depends on n and the vector length only; see kFoldVectors.
template <class T, class Map, class Join>
HWY_INLINE T FoldBlock(const T* x, int64_t n, Map map, Join join) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto identity = hn::Set(d, static_cast<T>(Join::kIdentity));
  auto a0 = identity, a1 = identity, a2 = identity, a3 = identity;
  auto a4 = identity, a5 = identity, a6 = identity, a7 = identity;
  int64_t i = 0;
  for (; i + 8 * lanes <= n; i += 8 * lanes) {
    a0 = join(a0, map(hn::LoadU(d, x + i)));
    a1 = join(a1, map(hn::LoadU(d, x + i + lanes)));
    a2 = join(a2, map(hn::LoadU(d, x + i + 2 * lanes)));
    a3 = join(a3, map(hn::LoadU(d, x + i + 3 * lanes)));
    a4 = join(a4, map(hn::LoadU(d, x + i + 4 * lanes)));
    a5 = join(a5, map(hn::LoadU(d, x + i + 5 * lanes)));
    a6 = join(a6, map(hn::LoadU(d, x + i + 6 * lanes)));
    a7 = join(a7, map(hn::LoadU(d, x + i + 7 * lanes)));
  }
  if (i + 4 * lanes <= n) {
    a0 = join(a0, map(hn::LoadU(d, x + i)));
    a1 = join(a1, map(hn::LoadU(d, x + i + lanes)));
    a2 = join(a2, map(hn::LoadU(d, x + i + 2 * lanes)));
    a3 = join(a3, map(hn::LoadU(d, x + i + 3 * lanes)));
    i += 4 * lanes;
  }
  if (n >= 8 * lanes) a0 = join(a0, a4), a1 = join(a1, a5), a2 = join(a2, a6), a3 = join(a3, a7);
  if (n >= 4 * lanes) a0 = join(join(a0, a1), join(a2, a3));
  for (; i + lanes <= n; i += lanes) a0 = join(a0, map(hn::LoadU(d, x + i)));
  if (i < n) {
    const auto rest = map(LoadFirst(d, x + i, n - i));
    a0 = join(a0, hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(n - i)), rest, identity));
  }
  return JoinHalves(d, a0, join);
}

// out[j] becomes what FoldBlock() makes of column j of n rows, n at most kTurnedRow: a row of so
// few elements fills less than the first four accumulators, so that element i joins lane i % lanes.
template <class T, class Map, class Join>
HWY_INLINE void FoldTurned(const T* x, int64_t cols, int64_t n, int64_t stride, T* HWY_RESTRICT out,
                           Map map, Join join) {
  const Tag<T> d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  constexpr int kMost = static_cast<int>(cpu::kTurnedRow);
  // Lanes beyond the row hold the identity and are joined as the others, for it may change a zero.
  constexpr int kHeld = kLanes < kMost ? kLanes : kMost;
  static_assert(kMost < 4 * kLanes);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto identity = hn::Set(d, static_cast<T>(Join::kIdentity));
  const auto column = [&](const T* p, auto load) HWY_ATTR {
    hn::Vec<Tag<T>> lane[kHeld];
#pragma GCC unroll 8
    for (int i = 0; i < kHeld; ++i) lane[i] = identity;
#pragma GCC unroll 8
    for (int i = 0; i < kMost; ++i) {
      if (i < n) lane[i % kHeld] = join(lane[i % kHeld], map(load(p + i * stride)));
    }
    // A lane of the lower half is joined with the identity where the upper half has none.
#pragma GCC unroll 8
    for (int half = kLanes / 2; half >= 1; half /= 2) {
#pragma GCC unroll 8
      for (int i = 0; i < half && i < kHeld; ++i) {
        lane[i] = join(lane[i], i + half < kHeld ? lane[i + half] : identity);
      }
    }
    return lane[0];
  };
  int64_t j = 0;
  for (; j + lanes <= cols; j += lanes) {
    hn::StoreU(column(x + j, [&](const T* p) HWY_ATTR { return hn::LoadU(d, p); }), d, out + j);
  }
  if (j == cols) return;
  const auto rest = column(x + j, [&](const T* p) HWY_ATTR { return LoadFirst(d, p, cols - j); });
  StoreFirst(d, rest, out + j, cols - j);
}

// out[j] = column j of n >= 1 rows, eight rows at a time and pairwise, joined to the identity.
template <class T, class Map, class Join>
HWY_INLINE void FoldColumns(const T* x, int64_t cols, int64_t n, int64_t stride,
                            T* HWY_RESTRICT out, Map map, Join join) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto eight = [&](const T* p, auto load) HWY_ATTR {
    const auto s01 = join(map(load(p)), map(load(p + stride)));
    const auto s23 = join(map(load(p + 2 * stride)), map(load(p + 3 * stride)));
    const auto s45 = join(map(load(p + 4 * stride)), map(load(p + 5 * stride)));
    const auto s67 = join(map(load(p + 6 * stride)), map(load(p + 7 * stride)));
    return join(join(s01, s23), join(s45, s67));
  };
  const int64_t whole = cols - cols % lanes;
  const auto load = [&](const T* p) HWY_ATTR { return hn::LoadU(d, p); };
  const auto load_rest = [&](const T* p) HWY_ATTR { return LoadFirst(d, p, cols - whole); };
  int64_t i = 0;
  const auto before = [&](const T* p, auto load_out) HWY_ATTR {
    return i == 0 ? hn::Set(d, static_cast<T>(Join::kIdentity)) : load_out(p);
  };
  for (; i + 8 <= n; i += 8) {
    const T* row = x + i * stride;
    for (int64_t j = 0; j < whole; j += lanes) {
      hn::StoreU(join(before(out + j, load), eight(row + j, load)), d, out + j);
    }
    if (whole < cols) {
      const auto sum = join(before(out + whole, load_rest), eight(row + whole, load_rest));
      StoreFirst(d, sum, out + whole, cols - whole);
    }
  }
  if (i == n) return;
  const T* rest = x + i * stride;
  const auto few = [&](hn::Vec<Tag<T>> sum, const T* p, auto load) HWY_ATTR {
    for (int64_t k = i; k < n; ++k, p += stride) sum = join(sum, map(load(p)));
    return sum;
  };
  for (int64_t j = 0; j < whole; j += lanes) {
    hn::StoreU(few(before(out + j, load), rest + j, load), d, out + j);
  }
  if (whole < cols) {
    StoreFirst(d, few(before(out + whole, load_rest), rest + whole, load_rest), out + whole,
               cols - whole);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#endif  // HOLOGRAM_CPU_FOLD_BLOCKS_INL_H_
