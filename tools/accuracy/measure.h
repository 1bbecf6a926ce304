// SPDX-License-Identifier: MIT
// Measures the error of a row's kernels against its scalar oracle, in units in the last place.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "hologram/cpu_info.h"
#include "hologram/elementwise.h"
#include "tools/accuracy/reference.h"

namespace hologram::accuracy {

struct Effort {
  int64_t unary32 = int64_t{1} << 22;  // of the 2^32 bit patterns, evenly spread
  int64_t unary64 = 1'000'000;
  int64_t tuples = 400'000;  // for rows of several operands
};

// The worst error of one row, dtype and instruction set.
struct Finding {
  Isa isa;
  double max_ulp = 0;
  double sum_ulp = 0;
  int64_t count = 0;
  long double operands[4] = {};
  long double got = 0, want = 0;

  double mean_ulp() const { return count ? sum_ulp / static_cast<double>(count) : 0; }
};

// The error that a wrong NaN, infinity or sign of zero counts as.
inline constexpr double kWrongSpecial = std::numeric_limits<double>::infinity();

template <class T>
using Wider = std::conditional_t<std::is_same_v<T, float>, double, long double>;

// One unit in the last place of a T of this magnitude.
template <class T, class R>
R unit_in_last_place(R value) {
  using Limits = std::numeric_limits<T>;
  const int exponent = value == 0 ? Limits::min_exponent - 1 : std::ilogb(value);
  return std::ldexp(R{1}, std::clamp(exponent, Limits::min_exponent - 1, Limits::max_exponent - 1) -
                              Limits::digits + 1);
}

// The error of `got` against the exact value `want`, in units of `scale` (want itself for ULP
// rows). Overflow is judged as if the exponent range had one more step.
template <class T>
double error_in_ulp(T got, Wider<T> want, Wider<T> scale, bool strict_zero) {
  using R = Wider<T>;
  if (std::isnan(want) || std::isnan(got)) {
    return std::isnan(want) && std::isnan(got) ? 0 : kWrongSpecial;
  }
  if (std::isinf(want) || std::isinf(got)) {
    if (got == want) return 0;
    if (std::isinf(want)) return kWrongSpecial;
  }
  if (strict_zero && want == 0 && got == 0 && std::signbit(got) != std::signbit(want)) {
    return kWrongSpecial;
  }
  const R beyond = std::ldexp(R{1}, std::numeric_limits<T>::max_exponent);
  const R a = std::isinf(got) ? std::copysign(beyond, static_cast<R>(got)) : static_cast<R>(got);
  const R b = std::clamp(want, -beyond, beyond);
  return static_cast<double>(std::fabs(a - b) / unit_in_last_place<T, R>(scale));
}

// Produces operands of a row block by block, the same for every instruction set.
template <class T>
class Sampler {
 public:
  Sampler(const OpInfo& row, const Effort& effort)
      : row_(row), effort_(effort), random_(row.name.size()) {
    if (row.arity == 1) {
      total_ = std::is_same_v<T, float> ? effort.unary32 : effort.unary64;
    } else {
      total_ = effort.tuples;
    }
  }

  // Fills up to `room` tuples; returns how many, 0 at the end.
  int64_t fill(std::vector<std::vector<T>>& operands, int64_t room) {
    const int64_t count = std::min(room, total_ + specials() - position_);
    for (int64_t i = 0; i < count; ++i, ++position_) {
      T tuple[4] = {};
      if (position_ < specials()) {
        special(position_, tuple);
      } else if (row_.arity == 1) {
        tuple[0] = point(position_ - specials());
      } else {
        random_tuple(tuple);
      }
      adjust(tuple);
      for (int k = 0; k < row_.arity; ++k)
        operands[static_cast<size_t>(k)][static_cast<size_t>(i)] = tuple[k];
    }
    return count;
  }

 private:
  using Limits = std::numeric_limits<T>;
  using Bits = std::conditional_t<std::is_same_v<T, float>, uint32_t, uint64_t>;

  // No huge values where terms may cancel: the definition itself may overflow there.
  std::span<const T> special_values() const {
    static const std::vector<T> moderate_values = [] {
      std::vector<T> v;
      for (const T x : all_special_values()) {
        if (std::isnan(x) || std::fabs(x) <= T(0x1p24)) v.push_back(x);
      }
      return v;
    }();
    if (row_.accuracy == Accuracy::kSteps) return moderate_values;
    return all_special_values();
  }

  static std::span<const T> all_special_values() {
    static const std::vector<T> values = [] {
      std::vector<T> v = {0,
                          Limits::min(),
                          Limits::denorm_min(),
                          Limits::max(),
                          Limits::infinity(),
                          Limits::epsilon(),
                          T(0.25),
                          T(0.5),
                          1,
                          T(1.5),
                          2,
                          T(2.5),
                          3,
                          10,
                          20,
                          100,
                          T(88.72283935546875),
                          T(88.7228469848633),
                          T(103.97),
                          T(709.782712893384),
                          T(709.78271289338403),
                          T(745.1332191019411),
                          T(745.1332191019412),
                          T(1.5707963267948966),
                          T(3.141592653589793),
                          T(0x1p17),
                          T(0x1p24),
                          T(0x1.000002p24),
                          T(0x1p53),
                          T(1e22),
                          T(1e30),
                          std::nextafter(T(1), T(0)),
                          std::nextafter(T(1), T(2)),
                          std::nextafter(T(0.5), T(0)),
                          T(1) / Limits::epsilon() - 1,
                          T(1) / Limits::epsilon() + 1};
      const size_t positive = v.size();
      for (size_t i = 0; i < positive; ++i) v.push_back(-v[i]);
      v.push_back(Limits::quiet_NaN());
      return v;
    }();
    return values;
  }

  // All of them for one operand, all pairs for two.
  int64_t specials() const {
    const auto n = static_cast<int64_t>(special_values().size());
    return row_.arity == 1 ? n : n * n;
  }

  void special(int64_t index, T* tuple) {
    const auto values = special_values();
    const auto n = static_cast<int64_t>(values.size());
    tuple[0] = values[static_cast<size_t>(index % n)];
    tuple[1] = values[static_cast<size_t>(index / n % n)];
    for (int k = 2; k < row_.arity; ++k) tuple[k] = moderate();
  }

  T point(int64_t index) {
    if constexpr (std::is_same_v<T, float>) {
      const uint64_t step = (uint64_t{1} << 32) / static_cast<uint64_t>(total_);
      return from_bits(static_cast<uint32_t>(static_cast<uint64_t>(index) * step));
    } else {
      // Bit patterns reach every exponent; the other shares lie where the functions bend.
      switch (index % 4) {
        case 0:
          return from_bits(random_());
        case 1:
          return uniform(2);
        case 2:
          return uniform(40);
        default:
          return uniform(800);
      }
    }
  }

  void random_tuple(T* tuple) {
    const bool any_bits = row_.accuracy != Accuracy::kSteps && row_.arity == 2;
    for (int k = 0; k < row_.arity; ++k) tuple[k] = moderate();
    if (any_bits && random_() % 4 == 0) {
      for (int k = 0; k < row_.arity; ++k) tuple[k] = from_bits(static_cast<Bits>(random_()));
    } else if (row_.id == OpId::pow && random_() % 4 != 0) {
      // Results over the whole range of exponents, and bases near 1 with large exponents.
      const T base = random_() % 2 ? std::exp2(uniform(Limits::max_exponent)) : 1 + uniform(0.01);
      const T reach = uniform(Limits::max_exponent * T(1.1)) / std::fabs(std::log2(base));
      tuple[0] = random_() % 4 ? base : -base;
      tuple[1] = random_() % 4 ? reach : std::round(reach);
    }
  }

  // Rows whose operands have a meaning: a positive power of two as beta keeps its product exact,
  // and bounds are in order.
  void adjust(T* tuple) {
    switch (row_.id) {
      case OpId::softplus:
        tuple[1] = T(0.5) * static_cast<T>(1 << random_() % 3);
        tuple[2] = 20;
        break;
      case OpId::softplus_backward:
        tuple[2] = T(0.5) * static_cast<T>(1 << random_() % 3);
        tuple[3] = 20;
        break;
      case OpId::elu:
        tuple[1] = 1;
        tuple[2] = 1;
        tuple[3] = 1;
        break;
      case OpId::elu_backward:
        tuple[2] = 1;
        tuple[3] = 1;
        break;
      case OpId::clamp:
        if (tuple[1] > tuple[2]) std::swap(tuple[1], tuple[2]);
        break;
      default:
        break;
    }
  }

  static T from_bits(Bits bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  T uniform(T reach) { return std::uniform_real_distribution<T>(-reach, reach)(random_); }
  T moderate() {
    return random_() % 8 == 0 ? std::round(uniform(8)) : uniform(random_() % 2 ? 8 : 100);
  }

  const OpInfo& row_;
  const Effort& effort_;
  std::mt19937_64 random_;
  int64_t total_ = 0;
  int64_t position_ = 0;
};

// Runs a row on every instruction set of `isas`; the oracle is asked once per point.
template <class T>
std::vector<Finding> measure(const OpInfo& row, std::span<const Isa> isas, const Effort& effort) {
  using R = Wider<T>;
  constexpr Dtype kDtype = std::is_same_v<T, float> ? Dtype::kFloat32 : Dtype::kFloat64;
  constexpr int64_t kBlock = 1 << 14;
  const auto arity = static_cast<size_t>(row.arity);
  std::vector<std::vector<T>> operands(arity, std::vector<T>(kBlock));
  std::vector<R> want(kBlock), scale(kBlock);
  std::vector<T> out(kBlock);
  std::vector<Finding> findings;
  for (const Isa isa : isas) findings.push_back({.isa = isa});
  const void* pointers[4] = {};
  for (size_t k = 0; k < arity; ++k) pointers[k] = operands[k].data();
  const bool strict_zero =
      row.accuracy == Accuracy::kUlp && (row.arity == 1 || row.id == OpId::pow);
  Sampler<T> sampler(row, effort);
  while (const int64_t count = sampler.fill(operands, kBlock)) {
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i);
      R tuple[4] = {};
      R largest = 0;
      for (size_t k = 0; k < arity; ++k) {
        tuple[k] = static_cast<R>(operands[k][at]);
        if (std::isfinite(tuple[k])) largest = std::max(largest, std::fabs(tuple[k]));
      }
      want[at] = ref::evaluate(row.id, tuple);
      scale[at] =
          row.accuracy == Accuracy::kSteps ? std::max(largest, std::fabs(want[at])) : want[at];
      if (!std::isfinite(scale[at])) scale[at] = std::numeric_limits<T>::max();
    }
    for (Finding& finding : findings) {
      force_isa(finding.isa);
      elementwise_kernel(row.id, kDtype)(pointers, out.data(), count);
      for (int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(i);
        const T got = row.result_is_bool
                          ? static_cast<T>(reinterpret_cast<const uint8_t*>(out.data())[at])
                          : out[at];
        const double error = error_in_ulp<T>(got, want[at], scale[at], strict_zero);
        if (std::isfinite(error)) {
          finding.sum_ulp += error;
          ++finding.count;
        }
        if (error <= finding.max_ulp) continue;
        finding.max_ulp = error;
        finding.got = got;
        finding.want = want[at];
        for (size_t k = 0; k < arity; ++k) finding.operands[k] = operands[k][at];
      }
    }
  }
  return findings;
}

// What the row promises on this instruction set. Correct rounding of a float64 is judged in long
// double, which itself rounds.
template <class T>
double stated_ulp(const OpInfo& row) {
  const double stated = std::is_same_v<T, float> ? row.ulp32 : row.ulp64;
  return row.accuracy == Accuracy::kExact ? stated + 0.01 : stated;
}

// Rows whose error has a bound to hold: all with float kernels, but for fma, which rounds twice on
// machines without it.
inline bool is_measured(const OpInfo& row) {
  return row.supports(Dtype::kFloat32) && row.id != OpId::fma;
}

inline std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (int i = 0; i < kIsaCount; ++i) {
    if (isa_available(static_cast<Isa>(i))) isas.push_back(static_cast<Isa>(i));
  }
  return isas;
}

}  // namespace hologram::accuracy
