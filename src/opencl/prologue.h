// SPDX-License-Identifier: MIT
// The names of src/gpu/dialect.h in OpenCL C 1.2.
#pragma once

#include <string_view>

namespace hologram::opencl {

inline constexpr std::string_view kPrologue = R"(#pragma OPENCL FP_CONTRACT OFF
typedef char i8;
typedef uchar u8;
typedef short i16;
typedef ushort u16;
typedef int i32;
typedef uint u32;
typedef long i64;
typedef ulong u64;
typedef float f32;
#define KERNEL(n) __kernel __attribute__((reqd_work_group_size(n, 1, 1))) void
#define FUNCTION
#define GLOBAL __global
#define RESTRICT restrict
#define PARAMETER const
#define ITEM ((u64)get_global_id(0))
#define LANE ((u32)get_local_id(0))
#define GROUP ((u64)get_group_id(0))
#define LOCAL __local
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define as_f32(bits) as_float(bits)
#define as_u32(value) as_uint(value)
)";

inline constexpr std::string_view kDoubles = R"(#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double f64;
#define as_f64(bits) as_double(bits)
)";

}  // namespace hologram::opencl
