// SPDX-License-Identifier: MIT
// Products of matrices: gemm, matmul, linear_int8. A group computes a tile of one product from
// tiles of the operands in local memory, each item some elements of it in registers. An element is
// summed in the order of the inner dimension, with one rounding a step (fma), in float32 for the
// half types: its bits do not depend on the tile. Elementwise instructions on the result come right
// behind it; where nothing else reads the product, it is not stored.
#pragma once

#include <optional>

#include "hologram/call.h"
#include "src/gpu/kernel_text.h"
#include "src/gpu/recipes/recipe.h"

namespace hologram::gpu {

bool has_product(CallNumber kind);

// Operands as matrices behind dimensions of a batch, which the result has all of and in which the
// others may repeat. Slots are the plan's.
struct Product {
  Array a, b, c;               // [..., m, k], [..., k, n], [..., m, n]
  Array input;                 // what is added, times beta; as c
  Array scale;                 // [n], by which columns are multiplied
  double alpha = 0, beta = 0;  // fields of the call, where `has_factors`
  bool has_factors = false;

  int batch_dims() const { return c.ndim - 2; }
  int64_t size(const Array& array, int from_end) const {
    return array.shape[static_cast<size_t>(array.ndim - from_end)];
  }
  int64_t m() const { return size(c, 2); }
  int64_t n() const { return size(c, 1); }
  int64_t k() const { return size(a, 1); }
};

// Nothing for other calls, and where the result has no elements.
std::optional<Product> read_product(const circuit::KernelCall& call, const Traits& traits);

// PlanLimits::call_result: what product_text() lets instructions follow.
bool product_result(uint16_t kind, const uint64_t* attributes, CallResult& result);

// The kernel's call and its instructions. Nothing for other calls, and for dtypes that the device
// lacks.
std::optional<KernelText> product_text(const circuit::Kernel& kernel, const Traits& traits,
                                       const circuit::NativeOps& native);

}  // namespace hologram::gpu
