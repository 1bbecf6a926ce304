// SPDX-License-Identifier: MIT
// The names of src/gpu/dialect.h in CUDA C++, as NVRTC compiles it without any header.
#pragma once

#include <string_view>

namespace hologram::cuda {

inline constexpr std::string_view kPrologue = R"(typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
#define KERNEL(n) extern "C" __global__ __launch_bounds__(n) void
#define FUNCTION static __device__ __forceinline__
#define GLOBAL
#define RESTRICT __restrict__
#define PARAMETER const __grid_constant__
#define ITEM ((u64)blockIdx.x * blockDim.x + threadIdx.x)
#define LANE ((u32)threadIdx.x)
#define GROUP ((u64)blockIdx.x)
#define LOCAL __shared__
#define BARRIER __syncthreads()
#define as_f32(bits) __uint_as_float(bits)
#define as_f64(bits) __longlong_as_double(bits)
#define as_u32(value) __float_as_uint(value)
FUNCTION f32 inverse_of(f32 x) {
  f32 inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
  return inverse;
}
#define INVERSE(x) inverse_of(x)
FUNCTION u16 f16_of(f32 x) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
#define F16_OF(x) f16_of(x)
FUNCTION f32 of_f16(u16 bits) {
  f32 value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
#define OF_F16(bits) of_f16(bits)
#if __CUDA_ARCH__ >= 800
FUNCTION u16 bf16_of(f32 x) {
  u16 bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
#define BF16_OF(x) bf16_of(x)
#endif
)";

}  // namespace hologram::cuda
