// SPDX-License-Identifier: MIT
// Compiled with MISTAKE 0 to 5 and never run: a call that is right, and mistakes that must not
// compile (tests/CMakeLists.txt).
#include "hologram/call_structs.h"

namespace {

using hologram::Access;

struct Tensor {};

// As front ends have it: what is written has to be a tensor that may be changed.
struct Arg {
  template <Access kAccess>
  requires(kAccess == Access::reads) static Arg of(const Tensor&) { return {}; }
  template <Access kAccess>
  requires(kAccess != Access::reads) static Arg of(Tensor&) { return {}; }

  int64_t count() const { return 0; }
};

template <class Call>
void record(const Call&) {}

}  // namespace

[[maybe_unused]] void layer_norm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                 Tensor& out, Tensor& mean, Tensor& rstd) {
  using hologram::calls::LayerNorm;
#if MISTAKE == 1  // operands in another order than the row's
  record(LayerNorm<Arg>{
      .input = input, .bias = bias, .weight = weight, .out = out, .mean = mean, .rstd = rstd});
#elif MISTAKE == 2  // an input where a result belongs
  record(LayerNorm<Arg>{
      .input = input, .weight = weight, .bias = bias, .out = input, .mean = mean, .rstd = rstd});
#elif MISTAKE == 3  // by position
  record(LayerNorm<Arg>{{}, input, weight, bias, 1, 1e-5, out, mean, rstd});
#elif MISTAKE == 4  // without a result
  record(LayerNorm<Arg>{.input = input, .weight = weight, .bias = bias, .out = out, .mean = mean});
#elif MISTAKE == 5  // a number where an operand belongs
  record(LayerNorm<Arg>{
      .input = input, .weight = 1e-5, .bias = bias, .out = out, .mean = mean, .rstd = rstd});
#else
  record(LayerNorm<Arg>{
      .input = input, .weight = weight, .bias = bias, .out = out, .mean = mean, .rstd = rstd});
#endif
}
