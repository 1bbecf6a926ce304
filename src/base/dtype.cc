// SPDX-License-Identifier: MIT
// Names of the element types and their promotion.
#include "hologram/dtype.h"

#include <algorithm>
#include <utility>

namespace hologram {

std::string_view dtype_name(Dtype dtype) {
  constexpr std::string_view kNames[kDtypeCount] = {
      "bool",    "uint8",    "int8",    "int16",   "int32",     "int64",
      "float16", "bfloat16", "float32", "float64", "complex64", "complex128"};
  return kNames[static_cast<int>(dtype)];
}

Dtype promote(Dtype a, Dtype b) {
  if (a == b) return a;
  if (a > b) std::swap(a, b);  // The enumeration is ordered by kind, then by width.
  if (a == Dtype::kUInt8 && b == Dtype::kInt8) return Dtype::kInt16;
  if (a == Dtype::kFloat16 && b == Dtype::kBFloat16) return Dtype::kFloat32;
  if (b == Dtype::kComplex64 && a == Dtype::kFloat64) return Dtype::kComplex128;
  return b;
}

}  // namespace hologram
