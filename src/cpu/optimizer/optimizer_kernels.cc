// SPDX-License-Identifier: MIT
// The inner loops of optimizer steps, for every instruction set: one pass over every operand.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/cpu/optimizer/optimizer_kernels.cc"
#include "src/cpu/simd/targets.h"
// clang-format off
#include "hwy/highway.h"
#include "src/cpu/simd/simd_tail-inl.h"
#include "src/cpu/optimizer/optimizer_kernels.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace hologram {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

using cpu::StepConstants;

template <class T>
using Tag = hn::ScalableTag<T>;

// Calls f(load, store, i) for every vector; a last partial one reads and writes its elements only,
// and its arithmetic is the same.
template <class T, class F>
HWY_INLINE void ForVectors(int64_t n, F&& f) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    f([d](const T* p) HWY_ATTR { return hn::LoadU(d, p); },
      [d](auto v, T* p) HWY_ATTR { hn::StoreU(v, d, p); }, i);
  }
  const int64_t rest = n - i;
  if (rest > 0) {
    f([d, rest](const T* p) HWY_ATTR { return LoadFirst(d, p, rest); },
      [d, rest](auto v, T* p) HWY_ATTR { StoreFirst(d, v, p, rest); }, i);
  }
}

template <class T>
HWY_INLINE void Unscale(T* grad, int64_t n, const StepConstants& c) {
  if (c.grad_divisor == 0) return;
  const auto divisor = hn::Set(Tag<T>(), static_cast<T>(c.grad_divisor));
  ForVectors<T>(n, [&](auto load, auto store, int64_t i)
                       HWY_ATTR { store(hn::Div(load(grad + i), divisor), grad + i); });
}

template <class T, bool kDecay, bool kAmsgrad>
HWY_INLINE void Adam(void* const* operands, int64_t n, const StepConstants& c) {
  const Tag<T> d;
  const auto set = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
  T* const param = static_cast<T*>(operands[0]);
  const T* const grad = static_cast<const T*>(operands[1]);
  T* const avg = static_cast<T*>(operands[2]);
  T* const sq = static_cast<T*>(operands[3]);
  T* const max_sq = static_cast<T*>(operands[4]);
  const auto sign = set(c.sign), decay = set(c.weight_decay), shrink = set(c.shrink);
  const auto beta2 = set(c.beta2), rest2 = set(1 - c.beta2);
  const auto correction = set(c.inverse_correction), eps = set(c.eps), step = set(-c.step_size);
  // Interpolates from the nearer end, as lerp does.
  const bool near_old = 1 - c.beta1 < 0.5;
  const auto weight = set(near_old ? 1 - c.beta1 : -c.beta1);
  ForVectors<T>(n, [&](auto load, auto store, int64_t i) HWY_ATTR {
    auto p = hn::Mul(load(param + i), shrink);
    auto g = hn::Mul(load(grad + i), sign);
    if constexpr (kDecay) g = hn::MulAdd(p, decay, g);
    auto m = load(avg + i);
    m = hn::MulAdd(weight, hn::Sub(g, m), near_old ? m : g);
    auto v = hn::MulAdd(load(sq + i), beta2, hn::Mul(hn::Mul(rest2, g), g));
    store(m, avg + i);
    store(v, sq + i);
    if constexpr (kAmsgrad) {
      const auto old = load(max_sq + i);
      // NaN in either stays, as in torch.maximum.
      v = hn::IfThenElse(hn::IsNaN(old), old, hn::Max(old, v));
      store(v, max_sq + i);
    }
    const auto denominator = hn::MulAdd(hn::Sqrt(v), correction, eps);
    store(hn::Add(p, hn::Div(hn::Mul(step, m), denominator)), param + i);
  });
}

template <class T>
void AdamStep(void* const* operands, int64_t n, const StepConstants& c) {
  Unscale(static_cast<T*>(operands[1]), n, c);
  if (c.weight_decay != 0) {
    c.amsgrad ? Adam<T, true, true>(operands, n, c) : Adam<T, true, false>(operands, n, c);
  } else {
    c.amsgrad ? Adam<T, false, true>(operands, n, c) : Adam<T, false, false>(operands, n, c);
  }
}

template <class T>
void SgdStep(void* const* operands, int64_t n, const StepConstants& c) {
  Unscale(static_cast<T*>(operands[1]), n, c);
  const Tag<T> d;
  const auto set = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
  T* const param = static_cast<T*>(operands[0]);
  const T* const grad = static_cast<const T*>(operands[1]);
  T* const buffer = static_cast<T*>(operands[2]);
  const auto sign = set(c.sign), decay = set(c.weight_decay), step = set(-c.step_size);
  const auto momentum = set(c.momentum), fresh = set(1 - c.dampening);
  const bool has_decay = c.weight_decay != 0, has_momentum = c.momentum != 0;
  ForVectors<T>(n, [&](auto load, auto store, int64_t i) HWY_ATTR {
    const auto p = load(param + i);
    auto g = hn::Mul(load(grad + i), sign);
    if (has_decay) g = hn::MulAdd(p, decay, g);
    if (has_momentum) {
      auto b = g;
      if (!c.first) b = hn::MulAdd(load(buffer + i), momentum, hn::Mul(g, fresh));
      store(b, buffer + i);
      g = c.nesterov ? hn::MulAdd(b, momentum, g) : b;
    }
    store(hn::MulAdd(g, step, p), param + i);
  });
}

template <class T>
void AdagradStep(void* const* operands, int64_t n, const StepConstants& c) {
  Unscale(static_cast<T*>(operands[1]), n, c);
  const Tag<T> d;
  const auto set = [d](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
  T* const param = static_cast<T*>(operands[0]);
  const T* const grad = static_cast<const T*>(operands[1]);
  T* const sum = static_cast<T*>(operands[2]);
  const auto sign = set(c.sign), decay = set(c.weight_decay), step = set(-c.step_size);
  const auto eps = set(c.eps);
  const bool has_decay = c.weight_decay != 0;
  ForVectors<T>(n, [&](auto load, auto store, int64_t i) HWY_ATTR {
    const auto p = load(param + i);
    auto g = hn::Mul(load(grad + i), sign);
    if (has_decay) g = hn::MulAdd(p, decay, g);
    const auto s = hn::MulAdd(g, g, load(sum + i));
    store(s, sum + i);
    store(hn::Add(p, hn::Div(hn::Mul(step, g), hn::Add(hn::Sqrt(s), eps))), param + i);
  });
}

}  // namespace

cpu::StepKernel StepKernelOf(cpu::StepRule rule, bool wide) {
  switch (rule) {
    case cpu::StepRule::kAdam:
      return wide ? &AdamStep<double> : &AdamStep<float>;
    case cpu::StepRule::kSgd:
      return wide ? &SgdStep<double> : &SgdStep<float>;
    case cpu::StepRule::kAdagrad:
      return wide ? &AdagradStep<double> : &AdagradStep<float>;
  }
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace hologram
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hologram::cpu {

StepKernel step_kernel(Isa isa, StepRule rule, Dtype dtype) {
  return HOLOGRAM_FOR_ISA(isa, StepKernelOf)(rule, dtype == Dtype::kFloat64);
}

}  // namespace hologram::cpu
#endif
