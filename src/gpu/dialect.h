// SPDX-License-Identifier: MIT
// The language of generated kernels: C, as OpenCL C and CUDA have it in common. What they spell
// differently is a name that a prologue defines, which a driver puts before every text.
#pragma once

#include <cstddef>
#include <string_view>

namespace hologram::gpu {

// A prologue defines:
//   i8 u8 i16 u16 i32 u32 i64 u64 f32, and f64 where the device has it: types of that many bits
//   KERNEL(n)       before a kernel whose groups have n items
//   FUNCTION        before any other function
//   GLOBAL          of a pointer to the device's memory
//   RESTRICT        of a pointer, as in C
//   PARAMETER       before a struct that is a parameter, whose elements are chosen as items run
//   ITEM            the item's number among all, a u64
//   LANE, GROUP     its number in its group, a u32, and the group's, a u64
//   LOCAL           of an array at the kernel's outermost level that a group's items share
//   BARRIER         what a group's items have written there is seen by all; where all of them come
//   as_f32(u32), as_u32(f32), and as_f64(i64) where there is f64: the same bits
//   fma, fmod, sqrt, fabs, floor, ceil, trunc, rint, copysign, exp, ..., erfc, pow of f32 and f64
// and, where the device has an instruction for it (what uses one has a text of its own otherwise):
//   INVERSE(f32)    1 / x for x of 1 to 32, a relative error of at most 2^-20
//   F16_OF(f32), BF16_OF(f32)   rounded to nearest even, as bits; of a NaN any NaN
//   OF_F16(u16)     the value of a float16; of a NaN any NaN
// No product is contracted with a sum, and nothing is included.

// What a device's compiler and launches can do.
struct Traits {
  bool has_double = false;
  // Whether float32 quotients and square roots are correctly rounded. Where they are not, they are
  // computed in float64, and without that they are as the driver leaves them (OpenCL: 2.5 ULP).
  bool divides_exactly = false;
  size_t parameter_bytes = 1024;  // that all parameters of a kernel may take
  size_t group_items = 256;       // that a group may have; 256 at least
};

}  // namespace hologram::gpu
