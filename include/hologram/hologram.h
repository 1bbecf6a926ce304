/* SPDX-License-Identifier: MIT
 * The C interface of Hologram: executors, buffers and tensors as handles, and every op on them.
 *
 * Every function returns a status, HOLOGRAM_OK or what went wrong, and gives results through
 * pointers, which are written only where it succeeds. After a failure hologram_last_error() says on
 * the same thread what was asked, what was given (naming the argument) and what to do. Nothing is
 * thrown, nothing aborts, and a call that fails has changed nothing.
 *
 * A handle is a number that stands for an executor, a buffer or a tensor. Numbers are not used
 * again: a handle that was freed, that is of another kind, that was never given out or that is 0 is
 * refused. Any thread may use or free any handle at any time; what an op works on lives until the
 * op is done with it. There is no limit on their number.
 *
 * Ops are recorded and run when results are read (see hologram_executor_synchronize): a call costs
 * tens of nanoseconds, and what was recorded runs as a few fused kernels. Results are those of
 * running each op at its call, in the order of the calls of all threads. Ops take the first n
 * elements of each buffer, and may write a buffer that they read.
 *
 * Numbers and signatures never change; new ones are added at the end. */
#ifndef HOLOGRAM_HOLOGRAM_H
#define HOLOGRAM_HOLOGRAM_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define HOLOGRAM_C_API __attribute__((visibility("default")))
#else
#define HOLOGRAM_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */
enum hologram_status {
  HOLOGRAM_OK = 0,
  HOLOGRAM_INVALID_ARGUMENT = 1, /* a value outside what is accepted: handle, length, null pointer, malformed JSON */
  HOLOGRAM_TYPE_MISMATCH = 2,    /* a dtype that is not accepted */
  HOLOGRAM_INDEX = 3,            /* a position out of range */
  HOLOGRAM_OUT_OF_MEMORY = 4,
  HOLOGRAM_NOT_SUPPORTED = 5,    /* accepted elsewhere, not by this backend */
  HOLOGRAM_STATE = 6,            /* right call, wrong time: the handle was freed */
  HOLOGRAM_INTERNAL = 7          /* a fault of Hologram itself */
};

enum hologram_dtype {
  HOLOGRAM_BOOL = 0, /* one byte, 0 or 1 */
  HOLOGRAM_UINT8 = 1,
  HOLOGRAM_INT8 = 2,
  HOLOGRAM_INT16 = 3,
  HOLOGRAM_INT32 = 4,
  HOLOGRAM_INT64 = 5,
  HOLOGRAM_FLOAT16 = 6,
  HOLOGRAM_BFLOAT16 = 7,
  HOLOGRAM_FLOAT32 = 8,
  HOLOGRAM_FLOAT64 = 9,
  HOLOGRAM_COMPLEX64 = 10,
  HOLOGRAM_COMPLEX128 = 11,
  HOLOGRAM_UINT16 = 12,
  HOLOGRAM_UINT32 = 13,
  HOLOGRAM_UINT64 = 14
};

/* HOLOGRAM_OP_add, HOLOGRAM_OP_exp, ...: the rows of hologram/elementwise.def. */
enum hologram_op {
#define HOLOGRAM_OP(name, id, ...) HOLOGRAM_OP_##name = id,
#include "hologram/elementwise.def"
  HOLOGRAM_OP_END_OF_ROWS = 65535 /* never a row */
};

/* HOLOGRAM_REDUCE_SUM, HOLOGRAM_REDUCE_MIN, ...: the rows of hologram/reductions.def. NORM is the
 * square root of the sum of squares; n - 1 divides in VAR and STD. */
enum hologram_reduction {
#define HOLOGRAM_REDUCTION(name, id, c, ...) HOLOGRAM_REDUCE_##c = id,
#include "hologram/reductions.def"
};
/* clang-format on */

/* --- Errors and versions ------------------------------------------------------------------ */

/* What the last call that failed on this thread says; "" before one failed. Valid until the next
 * failure. */
HOLOGRAM_C_API const char* hologram_last_error(void);
/* "ok", "invalid argument", ...; "unknown status" for a number that is none. */
HOLOGRAM_C_API const char* hologram_status_name(int status);
/* "float32", ...; "unknown dtype" for a number that is none. */
HOLOGRAM_C_API const char* hologram_dtype_name(int dtype);
/* "major.minor.patch" of the library that is loaded; always valid. */
HOLOGRAM_C_API int hologram_get_version(const char** version);

/* --- Executors ---------------------------------------------------------------------------- */

/* An executor on the CPU; on a backend by name ("cpu", or "auto"); on the default backend. */
HOLOGRAM_C_API int hologram_new_executor(uint64_t* ex);
HOLOGRAM_C_API int hologram_new_executor_with_backend(const char* name, uint64_t* ex);
HOLOGRAM_C_API int hologram_new_executor_auto(uint64_t* ex);
/* Frees the handle. Its buffers stay valid and what is recorded still runs. */
HOLOGRAM_C_API int hologram_executor_cleanup(uint64_t ex);
/* Waits for everything recorded. Errors that only running can show are returned here, or by the
 * reader of a buffer. */
HOLOGRAM_C_API int hologram_executor_synchronize(uint64_t ex);
HOLOGRAM_C_API int hologram_executor_backend(uint64_t ex, const char** name);

/* --- Buffers ------------------------------------------------------------------------------ */

/* n elements of a hologram_dtype, contents undefined. */
HOLOGRAM_C_API int hologram_executor_allocate_buffer(uint64_t ex, int64_t n, int dtype,
                                                     uint64_t* buf);
HOLOGRAM_C_API int hologram_buffer_cleanup(uint64_t buf);
HOLOGRAM_C_API int hologram_buffer_length(uint64_t buf, int64_t* n);
HOLOGRAM_C_API int hologram_buffer_dtype(uint64_t buf, int* dtype);

/* The buffer's first nbytes are set from, or copied to, memory of the caller's. */
HOLOGRAM_C_API int hologram_buffer_copy_from_bytes(uint64_t ex, uint64_t buf, const void* bytes,
                                                   size_t nbytes);
HOLOGRAM_C_API int hologram_buffer_to_bytes(uint64_t ex, uint64_t buf, void* bytes, size_t nbytes);

/* The address of the elements, for reading or writing them in place while the handle is not freed.
 * Waits for what is recorded on the buffer; from then on ops on it run at their calls, since the
 * library cannot know who looks when. NULL for a buffer without elements. */
HOLOGRAM_C_API int hologram_buffer_as_ptr(uint64_t ex, uint64_t buf, const void** address);
HOLOGRAM_C_API int hologram_buffer_as_mut_ptr(uint64_t ex, uint64_t buf, void** address);

/* Sets the first elements from a JSON array of numbers (of true and false too where the buffer
 * holds bool), which may be shorter than the buffer. NaN, Infinity and -Infinity are numbers, as
 * Python writes them. `size` counts bytes of the text. A malformed text is refused with the byte at
 * which it is. */
HOLOGRAM_C_API int hologram_buffer_copy_from_slice(uint64_t ex, uint64_t buf, const char* json,
                                                   size_t size);
/* All elements as a JSON array, each number with as many digits as tell it from its neighbours.
 * *json ends with a zero byte, which *size (may be NULL) does not count; hologram_free() frees it.
 * Not for complex. */
HOLOGRAM_C_API int hologram_buffer_to_vec(uint64_t ex, uint64_t buf, char** json, size_t* size);
/* Frees what this library returned to be freed by the caller; NULL is fine. */
HOLOGRAM_C_API void hologram_free(void* memory);

HOLOGRAM_C_API int hologram_buffer_fill(uint64_t ex, uint64_t buf, double value, int64_t n);
/* The first n elements of target become those of source, converted where the dtypes differ. */
HOLOGRAM_C_API int hologram_buffer_copy(uint64_t ex, uint64_t source, uint64_t target, int64_t n);

/* Frees every handle of the process. What other threads still run keeps what it needs. */
HOLOGRAM_C_API int hologram_clear_all_registries(void);

/* --- Tensors: shapes on buffers, and DLPack ----------------------------------------------- */

struct DLManagedTensor;          /* see hologram/dlpack.h */
struct DLManagedTensorVersioned; /* see hologram/dlpack.h */

/* A view of a buffer from element `offset` on, row-major where strides is NULL; strides count
 * elements. shape and strides have ndim entries. */
HOLOGRAM_C_API int hologram_tensor_from_buffer(uint64_t buf, int64_t offset, int ndim,
                                               const int64_t* shape, const int64_t* strides,
                                               uint64_t* tensor);
/* A tensor's memory as a buffer for ops, where its elements are row-major without gaps; read-only
 * where it is. */
HOLOGRAM_C_API int hologram_tensor_as_buffer(uint64_t tensor, uint64_t* buf);
/* A copy with memory of its own, row-major and not read-only. */
HOLOGRAM_C_API int hologram_tensor_copy(uint64_t tensor, uint64_t* copy);
HOLOGRAM_C_API int hologram_tensor_cleanup(uint64_t tensor);
HOLOGRAM_C_API int hologram_tensor_ndim(uint64_t tensor, int* ndim);
HOLOGRAM_C_API int hologram_tensor_dtype(uint64_t tensor, int* dtype);
/* Writes ndim numbers; `capacity` says how many there is room for. */
HOLOGRAM_C_API int hologram_tensor_shape(uint64_t tensor, int64_t* shape, int capacity);
HOLOGRAM_C_API int hologram_tensor_strides(uint64_t tensor, int64_t* strides, int capacity);

/* Lends the memory of a tensor or a buffer without a copy; it lives until the descriptor's deleter
 * is called. Ops on it run at their calls from then on. */
HOLOGRAM_C_API int hologram_tensor_to_dlpack(uint64_t tensor,
                                             struct DLManagedTensorVersioned** managed);
HOLOGRAM_C_API int hologram_tensor_to_dlpack_unversioned(uint64_t tensor,
                                                         struct DLManagedTensor** managed);
/* Borrows memory of others without a copy. On success the tensor calls the deleter when its last
 * user is gone; on failure the descriptor stays the caller's. */
HOLOGRAM_C_API int hologram_tensor_from_dlpack(struct DLManagedTensorVersioned* managed,
                                               uint64_t* tensor);
HOLOGRAM_C_API int hologram_tensor_from_dlpack_unversioned(struct DLManagedTensor* managed,
                                                           uint64_t* tensor);

/* --- Ops on float32 buffers --------------------------------------------------------------- */

/* FUNCTION(name, form, what, doc): hologram_vector_add_f32(executor, a, b, c, n), ... What follows
 * the executor is HOLOGRAM_C_TAKES_<form>; `what` is the row of hologram/elementwise.def or
 * hologram/reductions.def. The sum of no elements is 0, smallest and largest need n > 0.
 * LOSS(name, terms, doc): hologram_mse_loss_f32(executor, pred, target, loss, n, value), ...
 * loss[0] = loss[1] / n, loss[1] = the sum of n terms, loss[2] = n; the buffer has at least three
 * elements. Where `value` is not NULL the call waits and gives loss[0] there. */
/* clang-format off */
#define HOLOGRAM_C_TAKES_BINARY uint64_t a, uint64_t b, uint64_t c, int64_t n
#define HOLOGRAM_C_GIVES_BINARY a, b, c, n
#define HOLOGRAM_C_TAKES_UNARY  uint64_t x, uint64_t y, int64_t n
#define HOLOGRAM_C_GIVES_UNARY  x, y, n
#define HOLOGRAM_C_TAKES_SCALAR HOLOGRAM_C_TAKES_UNARY, float scalar
#define HOLOGRAM_C_GIVES_SCALAR HOLOGRAM_C_GIVES_UNARY, scalar
#define HOLOGRAM_C_TAKES_BOUNDS HOLOGRAM_C_TAKES_UNARY, float low, float high
#define HOLOGRAM_C_GIVES_BOUNDS HOLOGRAM_C_GIVES_UNARY, low, high
#define HOLOGRAM_C_TAKES_LOSS   uint64_t pred, uint64_t target, uint64_t loss, int64_t n
#define HOLOGRAM_C_GIVES_LOSS   pred, target, loss, n
#define HOLOGRAM_C_FLOAT_FUNCTIONS(FUNCTION, LOSS) \
  FUNCTION(vector_add_f32,  BINARY, OpId::add,       "c = a + b.") \
  FUNCTION(vector_sub_f32,  BINARY, OpId::sub,       "c = a - b.") \
  FUNCTION(vector_mul_f32,  BINARY, OpId::mul,       "c = a * b.") \
  FUNCTION(vector_div_f32,  BINARY, OpId::div,       "c = a / b.") \
  FUNCTION(vector_min_f32,  BINARY, OpId::minimum,   "c = the smaller of a and b; NaN if either is.") \
  FUNCTION(vector_max_f32,  BINARY, OpId::maximum,   "c = the larger of a and b; NaN if either is.") \
  FUNCTION(vector_abs_f32,  UNARY,  OpId::abs,       "y = |x|.") \
  FUNCTION(vector_neg_f32,  UNARY,  OpId::neg,       "y = -x.") \
  FUNCTION(vector_relu_f32, UNARY,  OpId::relu,      "y = max(x, 0).") \
  FUNCTION(sigmoid_f32,     UNARY,  OpId::sigmoid,   "y = 1 / (1 + exp(-x)).") \
  FUNCTION(tanh_f32,        UNARY,  OpId::tanh,      "y = tanh(x).") \
  FUNCTION(gelu_f32,        UNARY,  OpId::gelu,      "y = x * Phi(x), Phi the normal distribution function.") \
  FUNCTION(vector_clip_f32, BOUNDS, OpId::clamp,     "y = x, not below low and not above high; NaN stays.") \
  FUNCTION(scalar_add_f32,  SCALAR, OpId::add,       "y = x + scalar.") \
  FUNCTION(scalar_mul_f32,  SCALAR, OpId::mul,       "y = x * scalar.") \
  FUNCTION(reduce_sum_f32,  UNARY,  Reduction::sum,  "y[0] = sum of x[0:n]; 0 for n = 0.") \
  FUNCTION(reduce_min_f32,  UNARY,  Reduction::amin, "y[0] = smallest of x[0:n], of which there must be one.") \
  FUNCTION(reduce_max_f32,  UNARY,  Reduction::amax, "y[0] = largest of x[0:n], of which there must be one.") \
  LOSS(mse_loss_f32,                  mse_sum,                  "Mean of (pred - target)^2.") \
  LOSS(cross_entropy_loss_f32,        cross_entropy_sum,        "Mean of -target * log(pred), for probabilities; logarithms not below -100.") \
  LOSS(binary_cross_entropy_loss_f32, binary_cross_entropy_sum, "Mean of -(target * log(pred) + (1 - target) * log(1 - pred)), NaN outside [0, 1]; logarithms not below -100.")
/* clang-format on */
#define HOLOGRAM_C_DECLARE(name, form, ...) \
  HOLOGRAM_C_API int hologram_##name(uint64_t ex, HOLOGRAM_C_TAKES_##form);
#define HOLOGRAM_C_DECLARE_LOSS(name, ...) \
  HOLOGRAM_C_API int hologram_##name(uint64_t ex, HOLOGRAM_C_TAKES_LOSS, float* value);
HOLOGRAM_C_FLOAT_FUNCTIONS(HOLOGRAM_C_DECLARE, HOLOGRAM_C_DECLARE_LOSS)
#undef HOLOGRAM_C_DECLARE
#undef HOLOGRAM_C_DECLARE_LOSS

/* y = exp(x - max) / sum(exp(x - max)), over all n */
HOLOGRAM_C_API int hologram_softmax_f32(uint64_t ex, uint64_t x, uint64_t y, int64_t n);

/* C [m x n] = A [m x k] B [k x n], all row-major without gaps. */
HOLOGRAM_C_API int hologram_gemm_f32(uint64_t ex, uint64_t a, uint64_t b, uint64_t c, int64_t m,
                                     int64_t n, int64_t k);
/* y [m] = A [m x n] x [n] */
HOLOGRAM_C_API int hologram_matvec_f32(uint64_t ex, uint64_t a, uint64_t x, uint64_t y, int64_t m,
                                       int64_t n);

/* --- Ops on buffers of any dtype ---------------------------------------------------------- */

/* out[i] = op(inputs[0][i], ...) for any row of hologram/elementwise.def (hologram_op). Where
 * numbers is not NULL an input of handle 0 is numbers[k] instead; beside integers one without a
 * fraction counts as an integer. Dtypes are promoted as PyTorch does; the result is converted to
 * that of out, which must not be of a lesser kind (bool, integer, floating). Not for complex. */
HOLOGRAM_C_API int hologram_elementwise(uint64_t ex, int op, const uint64_t* inputs,
                                        const double* numbers, int arity, uint64_t out, int64_t n);

/* hologram_add(executor, x, y, out, n), hologram_exp(executor, x, out, n), ...: a function for each
 * row, as hologram_elementwise() without numbers. */
/* clang-format off */
#define HOLOGRAM_C_TAKES_1 uint64_t x
#define HOLOGRAM_C_GIVES_1 x
#define HOLOGRAM_C_TAKES_2 uint64_t x, uint64_t y
#define HOLOGRAM_C_GIVES_2 x, y
#define HOLOGRAM_C_TAKES_3 uint64_t x, uint64_t y, uint64_t z
#define HOLOGRAM_C_GIVES_3 x, y, z
#define HOLOGRAM_C_TAKES_4 uint64_t x, uint64_t y, uint64_t z, uint64_t w
#define HOLOGRAM_C_GIVES_4 x, y, z, w
/* clang-format on */
#define HOLOGRAM_OP(name, id, arity, ...)                                                 \
  HOLOGRAM_C_API int hologram_##name(uint64_t ex, HOLOGRAM_C_TAKES_##arity, uint64_t out, \
                                     int64_t n);
#include "hologram/elementwise.def"

/* out[0] = a hologram_reduction of x[0..n). SUM, MEAN, PROD, NANSUM, NORM, VAR, STD and LOGSUMEXP
 * are computed in out's dtype; ARGMIN and ARGMAX want int64. */
HOLOGRAM_C_API int hologram_reduce(uint64_t ex, int reduction, uint64_t x, uint64_t out, int64_t n);
/* Of each of `rows` rows of `cols` elements, one after another. */
HOLOGRAM_C_API int hologram_softmax(uint64_t ex, uint64_t x, uint64_t y, int64_t rows,
                                    int64_t cols);
HOLOGRAM_C_API int hologram_log_softmax(uint64_t ex, uint64_t x, uint64_t y, int64_t rows,
                                        int64_t cols);
/* As hologram_gemm_f32, of one dtype that is not bool. */
HOLOGRAM_C_API int hologram_gemm(uint64_t ex, uint64_t a, uint64_t b, uint64_t c, int64_t m,
                                 int64_t n, int64_t k);

/* --- Calls: norms, convolutions, attention, embeddings, recurrent layers, ... -------------- */

/* A parameter of a call by its name: `number`, or where integers is not NULL `count` of those. */
typedef struct hologram_argument { /* NOLINT(modernize-use-using): C has no other way */
  const char* name;
  double number;
  const int64_t* integers;
  int count;
} hologram_argument;

/* How many calls there are, and the name, schema and meaning of one of them (any of which may be
 * NULL where it is not wanted). The texts live as long as the process. */
HOLOGRAM_C_API int hologram_call_count(int* count);
HOLOGRAM_C_API int hologram_call_info(int index, const char** name, const char** schema,
                                      const char** doc);
/* Runs a call by name. inputs: handles of tensors or buffers (which count as of one dimension) in
 * the order of the call's schema, 0 where an operand is not given; where counts is not NULL, input
 * k of the schema is counts[k] handles. Writes the handles of its results, each to be given to
 * hologram_tensor_cleanup(); capacity says how many there is room for, *count how many there are. A
 * result that the call does not have is 0. On failure none is written. */
HOLOGRAM_C_API int hologram_call(const char* name, const uint64_t* inputs, const int* counts,
                                 int n_inputs, const hologram_argument* arguments, int n_arguments,
                                 uint64_t* results, int capacity, int* count);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* HOLOGRAM_HOLOGRAM_H */
