/* SPDX-License-Identifier: MIT
 * The C interface as it was published: does not compile where a number or a signature differs, does
 * not link where the library lacks a function, and runs a program in C. Lines are only ever added.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "hologram/dlpack.h"
#include "hologram/hologram.h"

/* C99 has no assertion for the compiler but this. */
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define FROZEN(condition) typedef char JOIN(frozen_, __LINE__)[(condition) ? 1 : -1]

/* clang-format off */
FROZEN(HOLOGRAM_OK == 0);
FROZEN(HOLOGRAM_INVALID_ARGUMENT == 1);
FROZEN(HOLOGRAM_TYPE_MISMATCH == 2);
FROZEN(HOLOGRAM_INDEX == 3);
FROZEN(HOLOGRAM_OUT_OF_MEMORY == 4);
FROZEN(HOLOGRAM_NOT_SUPPORTED == 5);
FROZEN(HOLOGRAM_STATE == 6);
FROZEN(HOLOGRAM_INTERNAL == 7);
FROZEN(HOLOGRAM_BOOL == 0);
FROZEN(HOLOGRAM_UINT8 == 1);
FROZEN(HOLOGRAM_INT8 == 2);
FROZEN(HOLOGRAM_INT16 == 3);
FROZEN(HOLOGRAM_INT32 == 4);
FROZEN(HOLOGRAM_INT64 == 5);
FROZEN(HOLOGRAM_FLOAT16 == 6);
FROZEN(HOLOGRAM_BFLOAT16 == 7);
FROZEN(HOLOGRAM_FLOAT32 == 8);
FROZEN(HOLOGRAM_FLOAT64 == 9);
FROZEN(HOLOGRAM_COMPLEX64 == 10);
FROZEN(HOLOGRAM_COMPLEX128 == 11);
FROZEN(HOLOGRAM_UINT16 == 12);
FROZEN(HOLOGRAM_UINT32 == 13);
FROZEN(HOLOGRAM_UINT64 == 14);
FROZEN(HOLOGRAM_OP_END_OF_ROWS == 65535);
FROZEN(HOLOGRAM_REDUCE_SUM == 0);
FROZEN(HOLOGRAM_REDUCE_MEAN == 1);
FROZEN(HOLOGRAM_REDUCE_PROD == 2);
FROZEN(HOLOGRAM_REDUCE_MIN == 3);
FROZEN(HOLOGRAM_REDUCE_MAX == 4);
FROZEN(HOLOGRAM_REDUCE_ANY == 5);
FROZEN(HOLOGRAM_REDUCE_ALL == 6);
FROZEN(HOLOGRAM_REDUCE_LOGSUMEXP == 7);
FROZEN(HOLOGRAM_REDUCE_NORM == 8);
FROZEN(HOLOGRAM_REDUCE_VAR == 9);
FROZEN(HOLOGRAM_REDUCE_STD == 10);
FROZEN(HOLOGRAM_REDUCE_ARGMIN == 11);
FROZEN(HOLOGRAM_REDUCE_ARGMAX == 12);

FROZEN(HOLOGRAM_OP_neg == 0);
FROZEN(HOLOGRAM_OP_abs == 1);
FROZEN(HOLOGRAM_OP_reciprocal == 2);
FROZEN(HOLOGRAM_OP_sqrt == 3);
FROZEN(HOLOGRAM_OP_rsqrt == 4);
FROZEN(HOLOGRAM_OP_exp == 5);
FROZEN(HOLOGRAM_OP_exp2 == 6);
FROZEN(HOLOGRAM_OP_expm1 == 7);
FROZEN(HOLOGRAM_OP_log == 8);
FROZEN(HOLOGRAM_OP_log2 == 9);
FROZEN(HOLOGRAM_OP_log10 == 10);
FROZEN(HOLOGRAM_OP_log1p == 11);
FROZEN(HOLOGRAM_OP_sin == 12);
FROZEN(HOLOGRAM_OP_cos == 13);
FROZEN(HOLOGRAM_OP_tan == 14);
FROZEN(HOLOGRAM_OP_tanh == 15);
FROZEN(HOLOGRAM_OP_erf == 16);
FROZEN(HOLOGRAM_OP_sigmoid == 17);
FROZEN(HOLOGRAM_OP_silu == 18);
FROZEN(HOLOGRAM_OP_gelu == 19);
FROZEN(HOLOGRAM_OP_gelu_tanh == 20);
FROZEN(HOLOGRAM_OP_relu == 21);
FROZEN(HOLOGRAM_OP_floor == 22);
FROZEN(HOLOGRAM_OP_ceil == 23);
FROZEN(HOLOGRAM_OP_trunc == 24);
FROZEN(HOLOGRAM_OP_round == 25);
FROZEN(HOLOGRAM_OP_square == 26);
FROZEN(HOLOGRAM_OP_sign == 27);
FROZEN(HOLOGRAM_OP_logical_not == 28);
FROZEN(HOLOGRAM_OP_bitwise_not == 29);
FROZEN(HOLOGRAM_OP_isnan == 30);
FROZEN(HOLOGRAM_OP_add == 40);
FROZEN(HOLOGRAM_OP_sub == 41);
FROZEN(HOLOGRAM_OP_mul == 42);
FROZEN(HOLOGRAM_OP_div == 43);
FROZEN(HOLOGRAM_OP_minimum == 44);
FROZEN(HOLOGRAM_OP_maximum == 45);
FROZEN(HOLOGRAM_OP_pow == 46);
FROZEN(HOLOGRAM_OP_eq == 47);
FROZEN(HOLOGRAM_OP_ne == 48);
FROZEN(HOLOGRAM_OP_lt == 49);
FROZEN(HOLOGRAM_OP_le == 50);
FROZEN(HOLOGRAM_OP_gt == 51);
FROZEN(HOLOGRAM_OP_ge == 52);
FROZEN(HOLOGRAM_OP_logical_and == 53);
FROZEN(HOLOGRAM_OP_logical_or == 54);
FROZEN(HOLOGRAM_OP_logical_xor == 55);
FROZEN(HOLOGRAM_OP_bitwise_and == 56);
FROZEN(HOLOGRAM_OP_bitwise_or == 57);
FROZEN(HOLOGRAM_OP_bitwise_xor == 58);
FROZEN(HOLOGRAM_OP_squared_difference == 59);
FROZEN(HOLOGRAM_OP_leaky_relu == 60);
FROZEN(HOLOGRAM_OP_sigmoid_backward == 61);
FROZEN(HOLOGRAM_OP_tanh_backward == 62);
FROZEN(HOLOGRAM_OP_silu_backward == 63);
FROZEN(HOLOGRAM_OP_gelu_backward == 64);
FROZEN(HOLOGRAM_OP_gelu_tanh_backward == 65);
FROZEN(HOLOGRAM_OP_fma == 80);
FROZEN(HOLOGRAM_OP_clamp == 81);
FROZEN(HOLOGRAM_OP_where == 82);
FROZEN(HOLOGRAM_OP_lerp == 83);
FROZEN(HOLOGRAM_OP_add_scaled == 84);
FROZEN(HOLOGRAM_OP_threshold_backward == 85);
FROZEN(HOLOGRAM_OP_threshold == 86);
FROZEN(HOLOGRAM_OP_leaky_relu_backward == 87);
FROZEN(HOLOGRAM_OP_softplus == 88);
FROZEN(HOLOGRAM_OP_squared_difference_backward == 89);
FROZEN(HOLOGRAM_OP_addcmul == 100);
FROZEN(HOLOGRAM_OP_addcdiv == 101);
FROZEN(HOLOGRAM_OP_elu == 102);
FROZEN(HOLOGRAM_OP_softplus_backward == 103);
FROZEN(HOLOGRAM_OP_hardtanh_backward == 104);

FROZEN(offsetof(DLTensor, data) == 0);
FROZEN(offsetof(DLTensor, device) == sizeof(void*));
FROZEN(offsetof(DLTensor, ndim) == sizeof(void*) + 8);
FROZEN(offsetof(DLTensor, dtype) == sizeof(void*) + 12);
FROZEN(offsetof(DLTensor, shape) == sizeof(void*) + 16);
FROZEN(offsetof(DLTensor, strides) == 2 * sizeof(void*) + 16);
FROZEN(offsetof(DLTensor, byte_offset) == 3 * sizeof(void*) + 16);
FROZEN(sizeof(DLTensor) == 3 * sizeof(void*) + 24);
FROZEN(sizeof ((DLTensor*)0)->device == 8 && sizeof ((DLTensor*)0)->ndim == 4);
FROZEN(sizeof ((DLTensor*)0)->shape[0] == 8 && sizeof ((DLTensor*)0)->strides[0] == 8);
FROZEN(sizeof ((DLTensor*)0)->byte_offset == 8);
FROZEN(offsetof(DLManagedTensor, manager_ctx) == sizeof(DLTensor));
FROZEN(offsetof(DLManagedTensor, deleter) == sizeof(DLTensor) + sizeof(void*));
FROZEN(sizeof(DLManagedTensor) == sizeof(DLTensor) + 2 * sizeof(void*));
FROZEN(offsetof(DLManagedTensorVersioned, manager_ctx) == 8);
FROZEN(offsetof(DLManagedTensorVersioned, deleter) == 8 + sizeof(void*));
FROZEN(offsetof(DLManagedTensorVersioned, flags) == 8 + 2 * sizeof(void*));
FROZEN(sizeof ((DLManagedTensorVersioned*)0)->flags == 8 && sizeof(DLPackVersion) == 8);
FROZEN(offsetof(DLManagedTensorVersioned, dl_tensor) == 16 + 2 * sizeof(void*));
FROZEN(sizeof(DLDataType) == 4 && offsetof(DLDataType, bits) == 1 && offsetof(DLDataType, lanes) == 2);

/* Each field has the type of one function, to which a function of another type cannot be assigned. */
struct functions {
  const char* (*last_error)(void);
  const char* (*status_name)(int);
  const char* (*dtype_name)(int);
  int (*get_version)(const char**);
  int (*new_executor)(uint64_t*);
  int (*new_executor_with_backend)(const char*, uint64_t*);
  int (*new_executor_auto)(uint64_t*);
  int (*executor_cleanup)(uint64_t);
  int (*executor_synchronize)(uint64_t);
  int (*executor_backend)(uint64_t, const char**);
  int (*executor_allocate_buffer)(uint64_t, int64_t, int, uint64_t*);
  int (*buffer_cleanup)(uint64_t);
  int (*buffer_length)(uint64_t, int64_t*);
  int (*buffer_dtype)(uint64_t, int*);
  int (*buffer_copy_from_bytes)(uint64_t, uint64_t, const void*, size_t);
  int (*buffer_to_bytes)(uint64_t, uint64_t, void*, size_t);
  int (*buffer_as_ptr)(uint64_t, uint64_t, const void**);
  int (*buffer_as_mut_ptr)(uint64_t, uint64_t, void**);
  int (*buffer_copy_from_slice)(uint64_t, uint64_t, const char*, size_t);
  int (*buffer_to_vec)(uint64_t, uint64_t, char**, size_t*);
  void (*free)(void*);
  int (*buffer_fill)(uint64_t, uint64_t, double, int64_t);
  int (*buffer_copy)(uint64_t, uint64_t, uint64_t, int64_t);
  int (*clear_all_registries)(void);
  int (*tensor_from_buffer)(uint64_t, int64_t, int, const int64_t*, const int64_t*, uint64_t*);
  int (*tensor_as_buffer)(uint64_t, uint64_t*);
  int (*tensor_copy)(uint64_t, uint64_t*);
  int (*tensor_cleanup)(uint64_t);
  int (*tensor_ndim)(uint64_t, int*);
  int (*tensor_dtype)(uint64_t, int*);
  int (*tensor_shape)(uint64_t, int64_t*, int);
  int (*tensor_strides)(uint64_t, int64_t*, int);
  int (*tensor_to_dlpack)(uint64_t, struct DLManagedTensorVersioned**);
  int (*tensor_to_dlpack_unversioned)(uint64_t, struct DLManagedTensor**);
  int (*tensor_from_dlpack)(struct DLManagedTensorVersioned*, uint64_t*);
  int (*tensor_from_dlpack_unversioned)(struct DLManagedTensor*, uint64_t*);
  int (*vector_add_f32)(uint64_t, uint64_t, uint64_t, uint64_t, int64_t);
  int (*vector_sub_f32)(uint64_t, uint64_t, uint64_t, uint64_t, int64_t);
  int (*vector_mul_f32)(uint64_t, uint64_t, uint64_t, uint64_t, int64_t);
  int (*vector_div_f32)(uint64_t, uint64_t, uint64_t, uint64_t, int64_t);
  int (*vector_min_f32)(uint64_t, uint64_t, uint64_t, uint64_t, int64_t);
  int (*vector_max_f32)(uint64_t, uint64_t, uint64_t, uint64_t, int64_t);
  int (*vector_abs_f32)(uint64_t, uint64_t, uint64_t, int64_t);
  int (*vector_neg_f32)(uint64_t, uint64_t, uint64_t, int64_t);
  int (*vector_relu_f32)(uint64_t, uint64_t, uint64_t, int64_t);
  int (*sigmoid_f32)(uint64_t, uint64_t, uint64_t, int64_t);
  int (*tanh_f32)(uint64_t, uint64_t, uint64_t, int64_t);
  int (*gelu_f32)(uint64_t, uint64_t, uint64_t, int64_t);
  int (*vector_clip_f32)(uint64_t, uint64_t, uint64_t, int64_t, float, float);
  int (*scalar_add_f32)(uint64_t, uint64_t, uint64_t, int64_t, float);
  int (*scalar_mul_f32)(uint64_t, uint64_t, uint64_t, int64_t, float);
  int (*softmax_f32)(uint64_t, uint64_t, uint64_t, int64_t);
  int (*reduce_sum_f32)(uint64_t, uint64_t, uint64_t, int64_t);
  int (*reduce_min_f32)(uint64_t, uint64_t, uint64_t, int64_t);
  int (*reduce_max_f32)(uint64_t, uint64_t, uint64_t, int64_t);
  int (*mse_loss_f32)(uint64_t, uint64_t, uint64_t, uint64_t, int64_t, float*);
  int (*cross_entropy_loss_f32)(uint64_t, uint64_t, uint64_t, uint64_t, int64_t, float*);
  int (*binary_cross_entropy_loss_f32)(uint64_t, uint64_t, uint64_t, uint64_t, int64_t, float*);
  int (*gemm_f32)(uint64_t, uint64_t, uint64_t, uint64_t, int64_t, int64_t, int64_t);
  int (*matvec_f32)(uint64_t, uint64_t, uint64_t, uint64_t, int64_t, int64_t);
  int (*elementwise)(uint64_t, int, const uint64_t*, const double*, int, uint64_t, int64_t);
  int (*reduce)(uint64_t, int, uint64_t, uint64_t, int64_t);
  int (*softmax)(uint64_t, uint64_t, uint64_t, int64_t, int64_t);
  int (*log_softmax)(uint64_t, uint64_t, uint64_t, int64_t, int64_t);
  int (*gemm)(uint64_t, uint64_t, uint64_t, uint64_t, int64_t, int64_t, int64_t);
  int (*call_count)(int*);
  int (*call_info)(int, const char**, const char**, const char**);
  int (*call)(const char*, const uint64_t*, const int*, int, const hologram_argument*, int, uint64_t*, int, int*);
};
static const struct functions kFunctions = {
  hologram_last_error,
  hologram_status_name,
  hologram_dtype_name,
  hologram_get_version,
  hologram_new_executor,
  hologram_new_executor_with_backend,
  hologram_new_executor_auto,
  hologram_executor_cleanup,
  hologram_executor_synchronize,
  hologram_executor_backend,
  hologram_executor_allocate_buffer,
  hologram_buffer_cleanup,
  hologram_buffer_length,
  hologram_buffer_dtype,
  hologram_buffer_copy_from_bytes,
  hologram_buffer_to_bytes,
  hologram_buffer_as_ptr,
  hologram_buffer_as_mut_ptr,
  hologram_buffer_copy_from_slice,
  hologram_buffer_to_vec,
  hologram_free,
  hologram_buffer_fill,
  hologram_buffer_copy,
  hologram_clear_all_registries,
  hologram_tensor_from_buffer,
  hologram_tensor_as_buffer,
  hologram_tensor_copy,
  hologram_tensor_cleanup,
  hologram_tensor_ndim,
  hologram_tensor_dtype,
  hologram_tensor_shape,
  hologram_tensor_strides,
  hologram_tensor_to_dlpack,
  hologram_tensor_to_dlpack_unversioned,
  hologram_tensor_from_dlpack,
  hologram_tensor_from_dlpack_unversioned,
  hologram_vector_add_f32,
  hologram_vector_sub_f32,
  hologram_vector_mul_f32,
  hologram_vector_div_f32,
  hologram_vector_min_f32,
  hologram_vector_max_f32,
  hologram_vector_abs_f32,
  hologram_vector_neg_f32,
  hologram_vector_relu_f32,
  hologram_sigmoid_f32,
  hologram_tanh_f32,
  hologram_gelu_f32,
  hologram_vector_clip_f32,
  hologram_scalar_add_f32,
  hologram_scalar_mul_f32,
  hologram_softmax_f32,
  hologram_reduce_sum_f32,
  hologram_reduce_min_f32,
  hologram_reduce_max_f32,
  hologram_mse_loss_f32,
  hologram_cross_entropy_loss_f32,
  hologram_binary_cross_entropy_loss_f32,
  hologram_gemm_f32,
  hologram_matvec_f32,
  hologram_elementwise,
  hologram_reduce,
  hologram_softmax,
  hologram_log_softmax,
  hologram_gemm,
  hologram_call_count,
  hologram_call_info,
  hologram_call,
};

typedef int (*unary)(uint64_t, uint64_t, uint64_t, int64_t);
static const unary k_unary[] = {
  hologram_neg, hologram_abs, hologram_reciprocal, hologram_sqrt, hologram_rsqrt, hologram_exp, hologram_exp2,
  hologram_expm1, hologram_log, hologram_log2, hologram_log10, hologram_log1p, hologram_sin, hologram_cos,
  hologram_tan, hologram_tanh, hologram_erf, hologram_sigmoid, hologram_silu, hologram_gelu, hologram_gelu_tanh,
  hologram_relu, hologram_floor, hologram_ceil, hologram_trunc, hologram_round, hologram_square, hologram_sign,
  hologram_logical_not, hologram_bitwise_not, hologram_isnan,
};
typedef int (*binary)(uint64_t, uint64_t, uint64_t, uint64_t, int64_t);
static const binary k_binary[] = {
  hologram_add, hologram_sub, hologram_mul, hologram_div, hologram_minimum, hologram_maximum, hologram_pow,
  hologram_eq, hologram_ne, hologram_lt, hologram_le, hologram_gt, hologram_ge, hologram_logical_and,
  hologram_logical_or, hologram_logical_xor, hologram_bitwise_and, hologram_bitwise_or, hologram_bitwise_xor,
  hologram_squared_difference, hologram_leaky_relu, hologram_sigmoid_backward, hologram_tanh_backward,
  hologram_silu_backward, hologram_gelu_backward, hologram_gelu_tanh_backward,
};
typedef int (*ternary)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, int64_t);
static const ternary k_ternary[] = {
  hologram_fma, hologram_clamp, hologram_where, hologram_lerp, hologram_add_scaled, hologram_threshold_backward,
  hologram_threshold, hologram_leaky_relu_backward, hologram_softplus, hologram_squared_difference_backward,
};
typedef int (*quaternary)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, int64_t);
static const quaternary k_quaternary[] = {
  hologram_addcmul, hologram_addcdiv, hologram_elu, hologram_softplus_backward, hologram_hardtanh_backward,
};
/* clang-format on */

static int failures = 0;

static void check(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "FAILED: %s (last error: %s)\n", what, hologram_last_error());
  ++failures;
}
#define CHECK(condition) check((condition) != 0, #condition)

int main(void) {
  const struct functions* f = &kFunctions;
  const float x[3] = {1.0f, -2.0f, 0.5f};
  float y[3] = {0.0f, 0.0f, 0.0f};
  const char* version = NULL;
  uint64_t ex = 0, a = 0, b = 0;

  /* Rows that are there: the linker has found the functions of the tables. */
  CHECK(k_binary[0] != NULL && k_ternary[0] != NULL && k_quaternary[0] != NULL);
  CHECK(strcmp(f->last_error(), "") == 0);
  CHECK(f->get_version(&version) == HOLOGRAM_OK && strlen(version) >= 5);
  CHECK(f->new_executor(&ex) == HOLOGRAM_OK);
  CHECK(f->executor_allocate_buffer(ex, 3, HOLOGRAM_FLOAT32, &a) == HOLOGRAM_OK);
  CHECK(f->executor_allocate_buffer(ex, 3, HOLOGRAM_FLOAT32, &b) == HOLOGRAM_OK);
  CHECK(f->buffer_copy_from_bytes(ex, a, x, sizeof x) == HOLOGRAM_OK);
  CHECK(f->vector_add_f32(ex, a, a, b, 3) == HOLOGRAM_OK);
  CHECK(k_unary[HOLOGRAM_OP_exp](ex, b, b, 2) == HOLOGRAM_OK);
  CHECK(f->buffer_to_bytes(ex, b, y, sizeof y) == HOLOGRAM_OK);
  CHECK(fabs(y[0] - exp(2.0)) < 1e-5 && fabs(y[1] - exp(-4.0)) < 1e-7 && y[2] == 1.0f);
  CHECK(f->vector_add_f32(ex, a, a, ex, 3) == HOLOGRAM_INVALID_ARGUMENT);
  CHECK(strstr(f->last_error(), "vector_add_f32: c: ") == f->last_error());
  CHECK(f->buffer_cleanup(a) == HOLOGRAM_OK);
  CHECK(f->buffer_cleanup(a) == HOLOGRAM_STATE);
  CHECK(f->buffer_cleanup(b) == HOLOGRAM_OK);
  CHECK(f->executor_cleanup(ex) == HOLOGRAM_OK);
  CHECK(strcmp(f->status_name(HOLOGRAM_OK), "ok") == 0);
  CHECK(strcmp(f->status_name(99), "unknown status") == 0);
  CHECK(strcmp(f->dtype_name(HOLOGRAM_BFLOAT16), "bfloat16") == 0);
  CHECK(strcmp(f->dtype_name(-1), "unknown dtype") == 0);
  return failures != 0;
}
