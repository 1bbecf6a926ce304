// SPDX-License-Identifier: MIT
// Element types, their sizes and the promotion rule shared by NumPy-like and PyTorch front ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "hologram/api.h"

namespace hologram {

// The numbering is part of the C ABI: append only.
enum class Dtype : uint8_t {
  kBool = 0,  // one byte, 0 or 1
  kUInt8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,   // IEEE binary16
  kBFloat16 = 7,  // upper half of binary32
  kFloat32 = 8,
  kFloat64 = 9,
  kComplex64 = 10,   // some rows have kernels (elementwise_kernel()), none is part of a circuit
  kComplex128 = 11,  // as complex64
  // Held by tensors and buffers; ops on tensors compute with them, see carrier_dtype().
  kUInt16 = 12,
  kUInt32 = 13,
  kUInt64 = 14,
};
// Those that circuits, plans and kernels compute with: the numbers below it.
inline constexpr int kDtypeCount = 12;
// All that a Tensor or a Buffer can hold.
inline constexpr int kStoredDtypeCount = 15;

// Bytes of one element.
constexpr size_t itemsize(Dtype dtype) {
  constexpr uint8_t kSizes[kStoredDtypeCount] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16, 2, 4, 8};
  return kSizes[static_cast<int>(dtype)];
}
constexpr bool is_floating(Dtype d) { return d >= Dtype::kFloat16 && d <= Dtype::kFloat64; }
constexpr bool is_complex(Dtype d) { return d == Dtype::kComplex64 || d == Dtype::kComplex128; }
// The dtype of the real and the imaginary parts of a complex one.
constexpr Dtype part_dtype(Dtype d) {
  return d == Dtype::kComplex64 ? Dtype::kFloat32 : Dtype::kFloat64;
}
// uint16, uint32 and uint64: what has no kernels.
constexpr bool is_stored_only(Dtype d) { return static_cast<int>(d) >= kDtypeCount; }
// Integers without bool.
constexpr bool is_integer(Dtype d) {
  return (d >= Dtype::kUInt8 && d <= Dtype::kInt64) || is_stored_only(d);
}
constexpr bool is_unsigned(Dtype d) { return d == Dtype::kUInt8 || is_stored_only(d); }

// The signed integer of as many bits as uint16, uint32 or uint64 has, whose kernels work on its
// bits; every other dtype itself.
constexpr Dtype carrier_dtype(Dtype d) {
  switch (d) {
    case Dtype::kUInt16:
      return Dtype::kInt16;
    case Dtype::kUInt32:
      return Dtype::kInt32;
    case Dtype::kUInt64:
      return Dtype::kInt64;
    default:
      return d;
  }
}

// "float32", "bool", ... as NumPy and PyTorch spell them.
HOLOGRAM_API std::string_view dtype_name(Dtype dtype);

// The smallest type that holds both, as torch.promote_types: int with float gives the float,
// float16 with bfloat16 gives float32, uint8 with int8 gives int16. uint16, uint32 and uint64 as
// numpy.result_type(): uint32 with a signed integer gives int64, with float32 float64; uint64 with
// a signed integer gives float64.
HOLOGRAM_API Dtype promote(Dtype a, Dtype b);

// The type arithmetic is done in: float32 for the two half types, the type itself otherwise.
constexpr Dtype compute_dtype(Dtype d) {
  return d == Dtype::kFloat16 || d == Dtype::kBFloat16 ? Dtype::kFloat32 : d;
}

}  // namespace hologram
