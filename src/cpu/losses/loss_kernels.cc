// SPDX-License-Identifier: MIT
// The inner loops of the losses, for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/losses/loss_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "src/cpu/simd/math-exp-inl.h"
#include "src/cpu/simd/math-log-inl.h"
#include "src/cpu/simd/simd_tail-inl.h"
#include "src/cpu/losses/loss_kernels.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::LossKernel;
using cpu::LossTile;

template <class T>
using Tag = hn::ScalableTag<T>;

template <class V>
HWY_INLINE V Set(double value) {
  const hn::DFromV<V> d;
  return hn::Set(d, static_cast<hn::TFromV<V>>(value));
}

// log(1 + exp(-|x|)) and the logistic function share an exponential that cannot overflow.
template <class V>
HWY_INLINE V Logistic(V x) {
  const V e = ExpOfSmall(hn::Neg(hn::Abs(x)));
  const V one = Set<V>(1);
  const V small = hn::Div(e, hn::Add(one, e));
  return hn::IfThenElse(hn::Lt(x, Set<V>(0)), small, hn::Sub(one, small));
}

// Logarithms not below -100, NaN kept.
template <class V>
HWY_INLINE V ClampedLog(V log) {
  return hn::IfThenElse(hn::Lt(log, Set<V>(-100)), Set<V>(-100), log);
}

template <PointLoss kLoss, class V>
HWY_INLINE V Loss(V x, V y, V pos_weight, bool has_pos_weight, V param) {
  const V half = Set<V>(0.5), one = Set<V>(1);
  const V z = hn::Abs(hn::Sub(x, y));
  switch (kLoss) {
    case PointLoss::mse:
      return hn::Mul(z, z);
    case PointLoss::l1:
      return z;
    case PointLoss::smooth_l1:
      return hn::IfThenElse(hn::Lt(z, param), hn::Div(hn::Mul(half, hn::Mul(z, z)), param),
                            hn::Sub(z, hn::Mul(half, param)));
    case PointLoss::huber:
      return hn::IfThenElse(hn::Le(z, param), hn::Mul(half, hn::Mul(z, z)),
                            hn::Mul(param, hn::Sub(z, hn::Mul(half, param))));
    case PointLoss::bce: {
      const V no = hn::Mul(hn::Sub(y, one), ClampedLog(Log1p(hn::Neg(x))));
      return hn::Sub(no, hn::Mul(y, ClampedLog(Log(x))));
    }
    case PointLoss::bce_with_logits: {
      const V zero = Set<V>(0);
      // -log(sigmoid(x)); x <= 0 lets NaN through the subtraction.
      const V tail = Log1p(Exp(hn::Neg(hn::Abs(x))));
      const V soft = hn::Add(hn::IfThenElse(hn::Lt(x, zero), hn::Neg(x), zero), tail);
      const V factor = has_pos_weight ? hn::MulAdd(hn::Sub(pos_weight, one), y, one) : one;
      return hn::MulAdd(factor, soft, hn::Mul(hn::Sub(one, y), x));
    }
    case PointLoss::kl_div: {
      const V zero = Set<V>(0);
      const V entropy = hn::IfThenElse(hn::Eq(y, zero), zero, hn::Mul(y, Log(y)));
      return hn::Sub(entropy, hn::Mul(y, x));
    }
    case PointLoss::kl_div_log:
      return hn::Mul(Exp(y), hn::Sub(y, x));
  }
  return z;
}

// d loss / d x, times g.
template <PointLoss kLoss, class V>
HWY_INLINE V Gradient(V x, V y, V pos_weight, bool has_pos_weight, V param, V g) {
  const V zero = Set<V>(0), one = Set<V>(1);
  const V difference = hn::Sub(x, y);
  // g towards the sign of the difference, 0 at 0.
  const auto signed_by = [&](V size) HWY_ATTR {
    const V positive = hn::IfThenElse(hn::Lt(zero, difference), size, zero);
    return hn::IfThenElse(hn::Lt(difference, zero), hn::Neg(size), positive);
  };
  switch (kLoss) {
    case PointLoss::mse:
      return hn::Mul(hn::Mul(Set<V>(2), difference), g);
    case PointLoss::l1:
      return signed_by(g);
    case PointLoss::smooth_l1:
      return hn::IfThenElse(hn::Le(param, hn::Abs(difference)), signed_by(g),
                            hn::Div(hn::Mul(g, difference), param));
    case PointLoss::huber:
      return hn::IfThenElse(hn::Le(param, hn::Abs(difference)), signed_by(hn::Mul(g, param)),
                            hn::Mul(g, difference));
    case PointLoss::bce: {
      const V spread = hn::Mul(hn::Sub(one, x), x), least = Set<V>(1e-12);
      return hn::Div(hn::Mul(g, difference), hn::IfThenElse(hn::Lt(spread, least), least, spread));
    }
    case PointLoss::bce_with_logits: {
      const V s = Logistic(x);
      if (!has_pos_weight) return hn::Mul(hn::Sub(s, y), g);
      const V t = hn::Mul(pos_weight, y);
      return hn::Mul(hn::Sub(hn::Mul(hn::Sub(hn::Add(t, one), y), s), t), g);
    }
    case PointLoss::kl_div:
      return hn::Neg(hn::Mul(y, g));
    case PointLoss::kl_div_log:
      return hn::Neg(hn::Mul(Exp(y), g));
  }
  return zero;
}

// Calls f(load, store, keep, i) for every vector; keep zeroes the lanes beyond the end.
template <class T, class F>
HWY_INLINE void ForVectors(int64_t n, F&& f) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    f([d](const T* p) HWY_ATTR { return hn::LoadU(d, p); },
      [d](auto v, T* p) HWY_ATTR { hn::StoreU(v, d, p); }, [](auto v) HWY_ATTR { return v; }, i);
  }
  const int64_t rest = n - i;
  if (rest > 0) {
    f([d, rest](const T* p) HWY_ATTR { return LoadFirst(d, p, rest); },
      [d, rest](auto v, T* p) HWY_ATTR { StoreFirst(d, v, p, rest); },
      [d, rest](auto v)
          HWY_ATTR { return hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(rest)), v); },
      i);
  }
}

template <class T, PointLoss kLoss>
double Forward(const LossTile& tile, bool* bad) {
  const Tag<T> d;
  const T* x = static_cast<const T*>(tile.input);
  const T* y = static_cast<const T*>(tile.target);
  const T* w = static_cast<const T*>(tile.weight);
  const T* pw = static_cast<const T*>(tile.pos_weight);
  T* out = static_cast<T*>(tile.out);
  const auto param = hn::Set(d, static_cast<T>(tile.param));
  auto even = hn::Zero(d), odd = hn::Zero(d), outside = hn::Zero(d);
  ForVectors<T>(tile.n, [&](auto load, auto store, auto keep, int64_t i) HWY_ATTR {
    const auto input = load(x + i);
    auto loss =
        Loss<kLoss>(input, load(y + i), pw != nullptr ? load(pw + i) : param, pw != nullptr, param);
    if (w != nullptr) loss = hn::Mul(loss, load(w + i));
    if constexpr (kLoss == PointLoss::bce) {
      const auto good = hn::And(hn::Le(hn::Zero(d), input), hn::Le(input, hn::Set(d, T(1))));
      outside = hn::Or(outside, keep(hn::VecFromMask(d, hn::Not(good))));
    }
    if (out != nullptr) store(loss, out + i);
    const auto sum = hn::Add(even, keep(loss));
    even = odd;
    odd = sum;
  });
  if constexpr (kLoss == PointLoss::bce) {
    if (!hn::AllFalse(d, hn::MaskFromVec(outside))) *bad = true;
  }
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd))));
}

template <class T, PointLoss kLoss>
void Backward(const LossTile& tile) {
  const Tag<T> d;
  const T* x = static_cast<const T*>(tile.input);
  const T* y = static_cast<const T*>(tile.target);
  const T* w = static_cast<const T*>(tile.weight);
  const T* pw = static_cast<const T*>(tile.pos_weight);
  const T* g = static_cast<const T*>(tile.grad);
  T* out = static_cast<T*>(tile.out);
  const auto param = hn::Set(d, static_cast<T>(tile.param));
  const auto same = hn::Set(d, static_cast<T>(tile.grad_scalar));
  ForVectors<T>(tile.n, [&](auto load, auto store, auto, int64_t i) HWY_ATTR {
    auto grad = g != nullptr ? load(g + i) : same;
    if (w != nullptr) grad = hn::Mul(grad, load(w + i));
    store(Gradient<kLoss>(load(x + i), load(y + i), pw != nullptr ? load(pw + i) : param,
                          pw != nullptr, param, grad),
          out + i);
  });
}

template <class T>
LossKernel KernelFor(PointLoss loss) {
  switch (loss) {
#define HOLOGRAM_CASE(name) \
  case PointLoss::name:     \
    return {&Forward<T, PointLoss::name>, &Backward<T, PointLoss::name>};
    HOLOGRAM_CASE(mse)
    HOLOGRAM_CASE(l1)
    HOLOGRAM_CASE(smooth_l1)
    HOLOGRAM_CASE(huber)
    HOLOGRAM_CASE(bce)
    HOLOGRAM_CASE(bce_with_logits)
    HOLOGRAM_CASE(kl_div)
    HOLOGRAM_CASE(kl_div_log)
#undef HOLOGRAM_CASE
  }
  return {};
}

}  // namespace

LossKernel LossKernelOf(PointLoss loss, bool wide) {
  return wide ? KernelFor<double>(loss) : KernelFor<float>(loss);
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

const LossKernel& loss_kernel(Isa isa, PointLoss loss, Dtype dtype) {
  struct Table {
    LossKernel kernels[kPointLossCount][2];
  };
  static const Table* tables = [] {
    auto* built = new Table[kIsaCount]{};
    for (int i = 0; i < kIsaCount; ++i) {
      const auto make = HOLOGRAM_FOR_ISA(static_cast<Isa>(i), LossKernelOf);
      for (int k = 0; k < kPointLossCount; ++k) {
        built[i].kernels[k][0] = make(static_cast<PointLoss>(k), false);
        built[i].kernels[k][1] = make(static_cast<PointLoss>(k), true);
      }
    }
    return built;
  }();
  return tables[static_cast<int>(isa)].kernels[static_cast<int>(loss)][dtype == Dtype::kFloat64];
}

}  // namespace hologram::cpu
#endif
