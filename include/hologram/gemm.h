// SPDX-License-Identifier: MIT
// Matrix products: providers of GEMM, and products of strided views through the best of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hologram/api.h"
#include "hologram/view.h"

namespace hologram {

class Buffer;

// C = alpha op(A) op(B) + beta C, everything row-major: op(A) is m x k, op(B) is k x n, C is m x n.
// A is stored m x k with rows lda elements apart, or k x m when trans_a; the same holds for B. With
// beta 0, C is not read, so NaN there does not survive. A, B and C have one dtype; alpha and beta
// are converted to the type computed in (float32 for the half types, the integer itself).
struct GemmArgs {
  Dtype dtype = Dtype::kFloat32;
  bool trans_a = false;
  bool trans_b = false;
  int64_t m = 0, n = 0, k = 0;
  double alpha = 1.0;
  const void* a = nullptr;
  int64_t lda = 0;
  const void* b = nullptr;
  int64_t ldb = 0;
  double beta = 0.0;
  void* c = nullptr;
  int64_t ldc = 0;
  int max_threads = 0;  // 0: num_threads()
};

struct GemmProvider {
  const char* name = nullptr;  // outlives the process
  int priority = 0;            // the highest that supports a dtype is asked; built-in: 0
  bool (*supports)(Dtype dtype) = nullptr;
  // m, n, k >= 1 and the arguments have been checked.
  void (*gemm)(const GemmArgs& args) = nullptr;
  // `batch` products whose operands lie the given numbers of elements apart; null: one by one. With
  // one_thread it is given some of a call's products at a time, which has to change no bits.
  void (*gemm_batched)(const GemmArgs& args, int64_t batch, int64_t stride_a, int64_t stride_b,
                       int64_t stride_c) = nullptr;
  // Products of operands of a half type, which dtype says, into a C of float32; null: not offered.
  // On the threads that gemm() uses. Weights of int8 and int4 are multiplied by it where it takes
  // less time than the built-in GEMM in float32, which is measured once.
  void (*gemm_to_float)(const GemmArgs& args) = nullptr;
  // gemm() computes on the calling thread alone, any number of threads may call it at once, and
  // where C lies changes no bits. Large products are then cut into tiles by their sizes and the
  // machine's number of processors, which the library's threads share out, so that the number of
  // threads changes no bits; recorded ones can be read tile by tile.
  bool one_thread = false;
  // Small products go to the built-in GEMM, and so do large ones of a dtype unless this provider is
  // clearly faster. That is measured once, at the first large product of the dtype (some
  // milliseconds to some tens of them).
  bool only_where_faster = false;
  // Multiplications that a tile has at least: some twenty microseconds.
  int64_t tile_work = int64_t{1} << 20;
};

// Adds a provider, or replaces the one of this name. Thread-safe.
HOLOGRAM_API void register_gemm_provider(const GemmProvider& provider);
// Its functions may still be called for what was recorded before: run that first (flush()).
HOLOGRAM_API void unregister_gemm_provider(const char* name);
// Highest priority first.
HOLOGRAM_API std::vector<GemmProvider> gemm_providers();
// Name of the provider that gemm() uses for large products, which the first call for a dtype may
// have to measure; Error(kNotSupported) for complex and bool.
HOLOGRAM_API const char* gemm_provider_name(Dtype dtype);

// Checks the arguments and runs the best provider. Zero m or n does nothing, zero k scales C.
HOLOGRAM_API void gemm(const GemmArgs& args);

// out = alpha a b + beta out, with torch.matmul's rules: one-dimensional operands are vectors,
// leading dimensions broadcast. out has the shape of the product and must not overlap a and b. Any
// strides: transposes are passed on to GEMM, other layouts are packed. dtypes must agree.
HOLOGRAM_API void matmul(const View& a, const View& b, const View& out, double alpha = 1.0,
                         double beta = 0.0, int max_threads = 0);

// out = alpha a b + beta input, input broadcast to out's shape (addmm, baddbmm, linear with bias).
// out may coincide exactly with input.
HOLOGRAM_API void addmm(const View& input, const View& a, const View& b, const View& out,
                        double alpha = 1.0, double beta = 1.0, int max_threads = 0);

// A matrix of a recorded product: rows ld elements apart, as in GemmArgs.
struct RecordMatrix {
  Buffer* buffer = nullptr;
  int64_t offset = 0;  // bytes from the buffer's start to the first element
  int64_t ld = 0;
  int64_t batch_stride = 0;  // elements from the matrix of one product to that of the next
};

// What beta scales: strides in elements, 0 where repeated.
struct RecordAddend {
  Buffer* buffer = nullptr;  // null: C itself
  int64_t offset = 0;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t col_stride = 0;
};

// C = alpha op(A) op(B) + beta input for each of `batch` products, as GemmArgs has it.
struct RecordGemm {
  Dtype dtype = Dtype::kFloat32;
  bool trans_a = false;
  bool trans_b = false;
  int64_t batch = 1;
  int64_t m = 0, n = 0, k = 0;
  double alpha = 1.0;
  double beta = 0.0;
  RecordMatrix a = {}, b = {}, c = {};
  RecordAddend input = {};
};

// Records the product as a call named "gemm" (see recorder.h), for the provider that would compute
// it now; it gives the bits that addmm() gives. False, with nothing recorded, for complex and bool,
// where C overlaps A or B, or the input in part, and where record_call() says so.
// Error(kInvalidArgument) for sizes that gemm() refuses.
HOLOGRAM_API bool record_gemm(const RecordGemm& gemm);

}  // namespace hologram
