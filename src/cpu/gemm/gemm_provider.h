// SPDX-License-Identifier: MIT
// Which GEMM provider computes a product, and how its products are shared among threads.
#pragma once

#include "hologram/gemm.h"

namespace hologram::cpu {

// The best provider that takes this dtype; Error(kNotSupported) without one. Valid for the life of
// the process, also when it is unregistered.
const GemmProvider& provider_for(Dtype dtype);
// The one of large products: the built-in one where the other is to be used only where it is faster
// and is not. Measured at the first call for a dtype.
const GemmProvider& provider_of_large(Dtype dtype);
// One that computes large products of this half type into float32 faster than the built-in GEMM
// computes them in float32, or null. Measured at the first call for a dtype.
const GemmProvider* provider_to_float(Dtype dtype);
// The provider of `batch` such products. It depends on sizes, strides and dtype only, not on where
// operands lie.
const GemmProvider& provider_for(const GemmArgs& g, int64_t batch = 1);
// A provider's number, which tapes hold, and the provider of a number.
int64_t number_of(const GemmProvider& provider);
const GemmProvider& provider_of_number(int64_t number);
// Checks the arguments; false when nothing is left to do because m, n or k is 0.
bool prepare(const GemmArgs& args);

// The multiplications of a product, those of a narrow one counted for the time it takes: it waits
// for memory, as each element of the long operand is used a few times only.
inline int64_t effective_work(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kPerLoad = 16;
  const int64_t narrow = m < n ? m : n;
  return m * n * k * (narrow > 0 && narrow < kPerLoad ? kPerLoad / narrow : 1);
}

// Elements from the matrices of one product to those of the next.
struct BatchStrides {
  int64_t a = 0, b = 0, c = 0;
};

// `batch` products by a provider; m, n, k >= 1.
void run_products(const GemmProvider& provider, const GemmArgs& args, int64_t batch = 1,
                  BatchStrides strides = {});

}  // namespace hologram::cpu
