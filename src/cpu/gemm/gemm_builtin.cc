// SPDX-License-Identifier: MIT
// The built-in GEMM by dtype: what is computed in a wider one, and batches.
#include "src/cpu/gemm/gemm_builtin.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/gemm/bfloat16_dots.h"
#include "src/cpu/gemm/gemm_float.h"
#include "src/cpu/gemm/pack_buffer.h"
#include "src/cpu/gemm/vector_product.h"

namespace hologram::cpu {
namespace {

struct Free {
  void operator()(void* p) const { ::operator delete (p, std::align_val_t{64}); }
};
template <class T>
using Memory = std::unique_ptr<T[], Free>;
template <class T>
Memory<T> allocate(int64_t n) {
  void* p = ::operator new (static_cast<size_t>(std::max<int64_t>(n, 1)) * sizeof(T),
                            std::align_val_t{64}, std::nothrow);
  if (p == nullptr) {
    fail(ErrorKind::kOutOfMemory, "gemm needs ", n * static_cast<int64_t>(sizeof(T)),
         " bytes of scratch");
  }
  return Memory<T>(static_cast<T*>(p));
}

// Rows of a stored matrix into or out of a dense one of another dtype.
void convert_rows(Dtype from, const void* src, int64_t ld_src, Dtype to, void* dst, int64_t ld_dst,
                  int64_t rows, int64_t cols, int max_threads) {
  const int64_t chunk = std::max<int64_t>(1, 65536 / cols);
  parallel_for(ceil_div(rows, chunk), max_threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin * chunk; i < std::min(rows, end * chunk); ++i) {
      convert(from,
              static_cast<const char*>(src) + i * ld_src * static_cast<int64_t>(itemsize(from)), to,
              static_cast<char*>(dst) + i * ld_dst * static_cast<int64_t>(itemsize(to)), cols);
    }
  });
}

// Of scratch memory that a thread keeps, and multiplications that it computes alone.
constexpr int64_t kKeptElements = int64_t{1} << 18, kOneThread = int64_t{1} << 21;

// Half types in float32, small integers in int32: of what wraps, the last bits are the same. B has
// elements of b_type, which for products in float32 become wider as they are read: a weight is
// large, and may be wanted for a few rows only.
void wide_gemm(const GemmArgs& g, Dtype b_type, Dtype wide_type) {
  // Small products are many: they keep their memory, and stay on one thread, for one that waits for
  // others may compute another product meanwhile.
  static thread_local PackBuffer kept;
  const bool narrow = wide_type == Dtype::kFloat32;
  const int64_t of_a = g.m * g.k, of_b = narrow ? 0 : g.k * g.n, of_c = g.m * g.n;
  const int64_t elements = of_a + of_b + of_c;
  const bool keeps = elements <= kKeptElements && g.m * g.n * g.k <= kOneThread;
  const int threads = keeps ? 1 : g.max_threads;
  const Memory<uint32_t> own = keeps ? nullptr : allocate<uint32_t>(elements);
  uint32_t* const a = keeps ? kept.get<uint32_t>(elements) : own.get();
  uint32_t *const b = a + of_a, *const c = b + of_b;
  GemmArgs wide = g;
  wide.dtype = wide_type;
  wide.a = a, wide.b = b, wide.c = c;
  wide.lda = g.trans_a ? g.m : g.k, wide.ldb = g.trans_b ? g.k : g.n, wide.ldc = g.n;
  wide.max_threads = threads;
  convert_rows(g.dtype, g.a, g.lda, wide_type, a, wide.lda, g.trans_a ? g.k : g.m, wide.lda,
               threads);
  if (narrow) {
    wide.b = g.b, wide.ldb = g.ldb;
  } else {
    convert_rows(g.dtype, g.b, g.ldb, wide_type, b, wide.ldb, g.trans_b ? g.n : g.k, wide.ldb,
                 threads);
  }
  if (g.beta != 0) convert_rows(g.dtype, g.c, g.ldc, wide_type, c, g.n, g.m, g.n, threads);
  narrow ? narrow_float_gemm(wide, b_type) : float_gemm(wide);
  convert_rows(wide_type, c, g.n, g.dtype, g.c, g.ldc, g.m, g.n, threads);
}

bool supports(Dtype dtype) {
  return !is_stored_only(dtype) && (is_integer(dtype) || is_floating(dtype));
}

void run(const GemmArgs& args) {
  if (is_bfloat16_dots(args, args.dtype)) return bfloat16_dots(args, args.dtype);
  if (is_vector_product(args)) return vector_product(args, args.dtype);
  switch (args.dtype) {
    case Dtype::kFloat32:
    case Dtype::kFloat64:
    case Dtype::kInt32:
    case Dtype::kInt64:
      return float_gemm(args);
    case Dtype::kFloat16:
    case Dtype::kBFloat16:
      return wide_gemm(args, args.dtype, Dtype::kFloat32);
    case Dtype::kUInt8:
    case Dtype::kInt8:
    case Dtype::kInt16:
      return wide_gemm(args, args.dtype, Dtype::kInt32);
    default:
      fail(ErrorKind::kInternal, "gemm was asked for ", dtype_name(args.dtype));
  }
}

// Small products are shared out whole, large ones one after the other.
void run_batched(const GemmArgs& args, int64_t batch, int64_t stride_a, int64_t stride_b,
                 int64_t stride_c) {
  const int64_t size = static_cast<int64_t>(itemsize(args.dtype));
  const int64_t work = args.m * args.n * args.k;
  const auto one = [&](int64_t i, int threads) {
    GemmArgs g = args;
    g.a = static_cast<const char*>(args.a) + i * stride_a * size;
    g.b = static_cast<const char*>(args.b) + i * stride_b * size;
    g.c = static_cast<char*>(args.c) + i * stride_c * size;
    g.max_threads = threads;
    run(g);
  };
  if (work > (int64_t{1} << 24) || batch == 1) {
    for (int64_t i = 0; i < batch; ++i) one(i, args.max_threads);
    return;
  }
  const int64_t chunk = std::max<int64_t>(1, 262144 / std::max<int64_t>(1, work));
  parallel_for(ceil_div(batch, chunk), args.max_threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin * chunk; i < std::min(batch, end * chunk); ++i) one(i, 1);
  });
}

}  // namespace

const GemmProvider& builtin_gemm() {
  static constexpr GemmProvider kProvider{"hologram", 0, &supports, &run, &run_batched};
  return kProvider;
}

void narrow_gemm(const GemmArgs& args, Dtype b_type) {
  if (is_bfloat16_dots(args, b_type)) return bfloat16_dots(args, b_type);
  if (is_vector_product(args)) return vector_product(args, b_type);
  if (args.dtype == Dtype::kFloat32) return narrow_float_gemm(args, b_type);
  wide_gemm(args, b_type, Dtype::kFloat32);
}

}  // namespace hologram::cpu
