// SPDX-License-Identifier: MIT
// Names of the element types and their promotion.
#include "hologram/dtype.h"

#include <algorithm>
#include <utility>

#include "hologram/error.h"
#include "src/base/dtype_check.h"

namespace hologram {

std::string_view dtype_name(Dtype dtype) {
  constexpr std::string_view kNames[kStoredDtypeCount] = {
      "bool",    "uint8",   "int8",      "int16",      "int32",  "int64",  "float16", "bfloat16",
      "float32", "float64", "complex64", "complex128", "uint16", "uint32", "uint64"};
  return kNames[static_cast<int>(dtype)];
}

namespace {

// `wide` is uint16, uint32 or uint64, `other` another dtype.
Dtype promote_unsigned(Dtype wide, Dtype other) {
  if (other == Dtype::kBool) return wide;
  if (is_unsigned(other)) return itemsize(wide) > itemsize(other) ? wide : other;
  const bool narrow = wide == Dtype::kUInt16;
  switch (other) {
    case Dtype::kInt8:
    case Dtype::kInt16:
    case Dtype::kInt32:
    case Dtype::kInt64:
      if (wide == Dtype::kUInt64) return Dtype::kFloat64;
      return !narrow || other == Dtype::kInt64 ? Dtype::kInt64 : Dtype::kInt32;
    case Dtype::kFloat16:
    case Dtype::kFloat32:
      return narrow ? Dtype::kFloat32 : Dtype::kFloat64;
    case Dtype::kComplex64:
      return narrow ? other : Dtype::kComplex128;
    default:
      return other;
  }
}

}  // namespace

Dtype promote(Dtype a, Dtype b) {
  if (a == b) return a;
  if (is_stored_only(a)) return promote_unsigned(a, b);
  if (is_stored_only(b)) return promote_unsigned(b, a);
  if (a > b) std::swap(a, b);  // The enumeration is ordered by kind, then by width.
  if (a == Dtype::kUInt8 && b == Dtype::kInt8) return Dtype::kInt16;
  if (a == Dtype::kFloat16 && b == Dtype::kBFloat16) return Dtype::kFloat32;
  if (b == Dtype::kComplex64 && a == Dtype::kFloat64) return Dtype::kComplex128;
  return b;
}

void refuse_stored_only(const char* function, Dtype dtype) {
  fail(ErrorKind::kTypeMismatch, function, ": no kernel computes with ", dtype_name(dtype),
       "; call the function on tensors of hologram/functions.h, or give the memory as ",
       dtype_name(carrier_dtype(dtype)), " where the bits are all that counts");
}

}  // namespace hologram
