// SPDX-License-Identifier: MIT
// The built-in GEMM by dtype: integers, the half types through float32, and batches.
#include "src/cpu/gemm/gemm_builtin.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/cpu/device/grain_size.h"
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

// A strided matrix.
template <class T>
struct Matrix {
  T* data;
  int64_t row, col;
  Matrix at(int64_t i, int64_t j) const { return {data + i * row + j * col, row, col}; }
};

// Integers wrap, in the unsigned type of the same width or wider.
template <class T, class Wide>
void integer_gemm(const GemmArgs& g) {
  const Matrix<const T> a{static_cast<const T*>(g.a), g.trans_a ? 1 : g.lda, g.trans_a ? g.lda : 1};
  const Matrix<const T> b{static_cast<const T*>(g.b), g.trans_b ? 1 : g.ldb, g.trans_b ? g.ldb : 1};
  T* const c = static_cast<T*>(g.c);
  const Wide alpha = static_cast<Wide>(static_cast<int64_t>(g.alpha));
  const Wide beta = static_cast<Wide>(static_cast<int64_t>(g.beta));
  const int64_t chunk = std::max<int64_t>(1, 65536 / std::max<int64_t>(1, g.n * g.k));
  parallel_for(ceil_div(g.m, chunk), g.max_threads, [&](int64_t begin, int64_t end, int) {
    const Memory<Wide> sums = allocate<Wide>(g.n);
    for (int64_t i = begin * chunk; i < std::min(g.m, end * chunk); ++i) {
      std::fill_n(sums.get(), g.n, Wide(0));
      for (int64_t p = 0; p < g.k; ++p) {
        const Wide x = static_cast<Wide>(a.at(i, p).data[0]);
        const T* row = b.data + p * b.row;
        for (int64_t j = 0; j < g.n; ++j) sums[j] += x * static_cast<Wide>(row[j * b.col]);
      }
      T* to = c + i * g.ldc;
      for (int64_t j = 0; j < g.n; ++j) {
        const Wide old = beta != 0 ? beta * static_cast<Wide>(to[j]) : Wide(0);
        to[j] = static_cast<T>(alpha * sums[j] + old);
      }
    }
  });
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

void half_gemm(const GemmArgs& g) {
  constexpr Dtype kWide = Dtype::kFloat32;
  // Small products are many: they keep their memory, and stay on one thread, for one that waits for
  // others may compute another product meanwhile.
  static thread_local PackBuffer kept;
  const int64_t of_a = g.m * g.k, of_b = g.k * g.n, elements = of_a + of_b + g.m * g.n;
  const bool keeps = elements <= kKeptElements && g.m * g.n * g.k <= kOneThread;
  const int threads = keeps ? 1 : g.max_threads;
  const Memory<float> own = keeps ? nullptr : allocate<float>(elements);
  float* const a = keeps ? kept.get<float>(elements) : own.get();
  float *const b = a + of_a, *const c = b + of_b;
  GemmArgs wide = g;
  wide.dtype = kWide;
  wide.a = a, wide.b = b, wide.c = c;
  wide.lda = g.trans_a ? g.m : g.k, wide.ldb = g.trans_b ? g.k : g.n, wide.ldc = g.n;
  wide.max_threads = threads;
  convert_rows(g.dtype, g.a, g.lda, kWide, a, wide.lda, g.trans_a ? g.k : g.m, wide.lda, threads);
  convert_rows(g.dtype, g.b, g.ldb, kWide, b, wide.ldb, g.trans_b ? g.n : g.k, wide.ldb, threads);
  if (g.beta != 0) convert_rows(g.dtype, g.c, g.ldc, kWide, c, g.n, g.m, g.n, threads);
  float_gemm(wide);
  convert_rows(kWide, c, g.n, g.dtype, g.c, g.ldc, g.m, g.n, threads);
}

bool supports(Dtype dtype) { return is_integer(dtype) || is_floating(dtype); }

void run(const GemmArgs& args) {
  if (is_vector_product(args)) return vector_product(args);
  switch (args.dtype) {
    case Dtype::kFloat32:
    case Dtype::kFloat64:
      return float_gemm(args);
    case Dtype::kFloat16:
    case Dtype::kBFloat16:
      return half_gemm(args);
    case Dtype::kUInt8:
      return integer_gemm<uint8_t, uint32_t>(args);
    case Dtype::kInt8:
      return integer_gemm<int8_t, uint32_t>(args);
    case Dtype::kInt16:
      return integer_gemm<int16_t, uint32_t>(args);
    case Dtype::kInt32:
      return integer_gemm<int32_t, uint32_t>(args);
    case Dtype::kInt64:
      return integer_gemm<int64_t, uint64_t>(args);
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

}  // namespace hologram::cpu
