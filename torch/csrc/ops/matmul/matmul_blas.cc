// SPDX-License-Identifier: MIT
// Finds PyTorch's GEMM, in its BLAS or its kernels, and makes it a provider of the library.
#include "ops/matmul/matmul_blas.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/from_blob.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "device/openmp.h"
#include "hologram/elementwise.h"
#include "hologram/gemm.h"
#include "host/alias.h"

namespace hologram_torch {
namespace {

using hologram::Dtype;
using hologram::GemmArgs;

// libtorch_cpu and what it depends on, already loaded.
void* torch_library() {
  static void* const handle = [] {
    Dl_info info{};
    if (dladdr(reinterpret_cast<void*>(&at::globalContext), &info) == 0) {
      return static_cast<void*>(nullptr);
    }
    return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  return handle;
}

template <class F>
F symbol(const char* name) {
  return torch_library() == nullptr ? nullptr : reinterpret_cast<F>(dlsym(torch_library(), name));
}

// Fortran's GEMM with 32-bit integers, column-major.
template <class T>
using Gemm = void (*)(const char*, const char*, const int*, const int*, const int*, const T*,
                      const T*, const int*, const T*, const int*, const T*, T*, const int*);

// [1 2; 3 4] [5 6; 7 8], row-major, which is the product the other way round, column-major. The
// bytes behind the dimensions would show an interface with 64-bit integers.
template <class T>
bool gemm_works(Gemm<T> gemm) {
  const std::array<T, 4> a{1, 2, 3, 4}, b{5, 6, 7, 8};
  std::array<T, 4> c{9, 9, 9, 9};
  const std::array<int, 2> two{2, -1};
  const T one = 1, zero = 0;
  gemm("N", "N", two.data(), two.data(), two.data(), &one, b.data(), two.data(), a.data(),
       two.data(), &zero, c.data(), two.data());
  return c == std::array<T, 4>{19, 22, 43, 50};
}

// What libtorch_cpu exports, tried out on a small product, for it is no promised API; null where it
// is missing or wrong.
template <class T>
Gemm<T> blas_gemm() {
  static const Gemm<T> found = [] {
    const auto gemm = symbol<Gemm<T>>(sizeof(T) == 4 ? "sgemm_" : "dgemm_");
    return gemm != nullptr && gemm_works<T>(gemm) ? gemm : nullptr;
  }();
  return found;
}

template <class T>
bool gemm_as(const GemmArgs& args) {
  const Gemm<T> gemm = blas_gemm<T>();
  constexpr int64_t kMax = std::numeric_limits<int>::max();
  if (gemm == nullptr || args.m > kMax || args.n > kMax || args.k > kMax || args.lda > kMax ||
      args.ldb > kMax || args.ldc > kMax) {
    return false;
  }
  const int m = static_cast<int>(args.m), n = static_cast<int>(args.n);
  const int k = static_cast<int>(args.k), lda = static_cast<int>(args.lda);
  const int ldb = static_cast<int>(args.ldb), ldc = static_cast<int>(args.ldc);
  const T alpha = static_cast<T>(args.alpha), beta = static_cast<T>(args.beta);
  gemm(args.trans_b ? "T" : "N", args.trans_a ? "T" : "N", &n, &m, &k, &alpha,
       static_cast<const T*>(args.b), &ldb, static_cast<const T*>(args.a), &lda, &beta,
       static_cast<T*>(args.c), &ldc);
  return true;
}

bool is_blas_dtype(Dtype dtype) { return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat64; }
bool is_half_dtype(Dtype dtype) { return dtype == Dtype::kBFloat16 || dtype == Dtype::kFloat16; }

at::Tensor operand(const void* data, int64_t rows, int64_t cols, int64_t ld, bool transposed,
                   at::ScalarType type) {
  const std::array<int64_t, 2> sizes{rows, cols};
  const std::array<int64_t, 2> strides{transposed ? 1 : ld, transposed ? ld : 1};
  return at::from_blob(const_cast<void*>(data), sizes, strides, type);
}

// Row-major C = alpha op(A) op(B) + beta C by BLAS; false where that cannot take it.
bool run_blas(const GemmArgs& args) {
  return args.dtype == Dtype::kFloat32 ? gemm_as<float>(args) : gemm_as<double>(args);
}

// By the kernels of PyTorch's cpu: oneDNN's, where a machine has instructions for the half types.
void addmm(const GemmArgs& g) {
  const BelowAutograd below;
  const at::ScalarType type = g.dtype == Dtype::kFloat32   ? at::kFloat
                              : g.dtype == Dtype::kFloat64 ? at::kDouble
                              : g.dtype == Dtype::kFloat16 ? at::kHalf
                                                           : at::kBFloat16;
  at::Tensor c = operand(g.c, g.m, g.n, g.ldc, false, type);
  at::cpu::addmm_out(c, c, operand(g.a, g.m, g.k, g.lda, g.trans_a, type),
                     operand(g.b, g.k, g.n, g.ldb, g.trans_b, type), g.beta, g.alpha);
}

void torch_gemm(const GemmArgs& args) {
  const OpenMpRegion region(args.m * args.n * args.k);
  if (!is_blas_dtype(args.dtype) || !run_blas(args)) addmm(args);
}

// MKL's products of half types into float32, which is rounded here. They begin fifteen microseconds
// sooner than oneDNN's, but are no faster, and slow for a few rows.
using MklHalf = void (*)(const char*, const char*, const int*, const int*, const int*, const float*,
                         const void*, const int*, const void*, const int*, const float*, float*,
                         const int*);

MklHalf mkl_half_function(Dtype dtype) {
  if (MKL_Set_Num_Threads_Local == nullptr) return nullptr;
  return symbol<MklHalf>(dtype == Dtype::kFloat16 ? "gemm_f16f16f32_" : "gemm_bf16bf16f32_");
}

void call_mkl_half(MklHalf gemm, const GemmArgs& g, float* c, int64_t step) {
  const int m = static_cast<int>(g.m), n = static_cast<int>(g.n), k = static_cast<int>(g.k);
  const int lda = static_cast<int>(g.lda), ldb = static_cast<int>(g.ldb);
  const int ldc = static_cast<int>(step);
  const float alpha = static_cast<float>(g.alpha), beta = static_cast<float>(g.beta);
  gemm(g.trans_b ? "T" : "N", g.trans_a ? "T" : "N", &n, &m, &k, &alpha, g.b, &ldb, g.a, &lda,
       &beta, c, &ldc);
}

void mkl_half_gemm(MklHalf gemm, const GemmArgs& g) {
  static thread_local std::vector<float> kept;
  if (kept.size() < static_cast<size_t>(g.m * g.n)) kept.resize(static_cast<size_t>(g.m * g.n));
  float* const c = kept.data();
  const auto row_of_c = [&g](int64_t i) { return static_cast<uint16_t*>(g.c) + i * g.ldc; };
  for (int64_t i = 0; i < g.m && g.beta != 0; ++i) {
    hologram::convert(g.dtype, row_of_c(i), Dtype::kFloat32, c + i * g.n, g.n);
  }
  call_mkl_half(gemm, g, c, g.n);
  for (int64_t i = 0; i < g.m; ++i) {
    hologram::convert(Dtype::kFloat32, c + i * g.n, g.dtype, row_of_c(i), g.n);
  }
}

// MKL's function for the smaller products of a half type, or null: tried out, and measured against
// oneDNN, as there are processors that it emulates them on.
MklHalf find_mkl_half(Dtype dtype) {
  const MklHalf gemm = mkl_half_function(dtype);
  if (gemm == nullptr) return nullptr;
  constexpr int64_t kSize = 128;
  constexpr int kRounds = 5;
  constexpr float kClearly = 1.3F;
  std::vector<float> numbers(kSize * kSize);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 7) - 3;
  std::vector<uint16_t> a(numbers.size()), mine(numbers.size()), theirs(numbers.size());
  hologram::convert(Dtype::kFloat32, numbers.data(), dtype, a.data(), kSize * kSize);
  GemmArgs g;
  g.dtype = dtype;
  g.m = g.n = g.k = g.lda = g.ldb = g.ldc = kSize;
  g.trans_b = true;
  g.a = g.b = a.data();
  using Clock = std::chrono::steady_clock;
  auto best = Clock::duration::max(), best_other = best;
  for (int i = 0; i < kRounds; ++i) {
    const auto start = Clock::now();
    g.c = mine.data();
    mkl_half_gemm(gemm, g);
    const auto between = Clock::now();
    g.c = theirs.data();
    addmm(g);
    best = std::min(best, between - start);
    best_other = std::min(best_other, Clock::now() - between);
  }
  return mine == theirs && kClearly * static_cast<float>(best.count()) <
                               static_cast<float>(best_other.count())
             ? gemm
             : nullptr;
}

// Found once: the first of several threads settles it. A lock would stay taken in the child of a
// fork.
MklHalf mkl_half(Dtype dtype) {
  constexpr uintptr_t kUnknown = 1;
  static std::atomic<uintptr_t> known[2] = {kUnknown, kUnknown};
  std::atomic<uintptr_t>& word = known[dtype == Dtype::kFloat16 ? 0 : 1];
  uintptr_t found = word.load(std::memory_order_acquire);
  if (found == kUnknown) {
    const auto measured = reinterpret_cast<uintptr_t>(find_mkl_half(dtype));
    if (word.compare_exchange_strong(found, measured)) found = measured;
  }
  return reinterpret_cast<MklHalf>(found);
}

void half_gemm(const GemmArgs& g) {
  // Beyond these a product takes oneDNN as long, or less. MKL packs what few rows read once.
  constexpr int64_t kMostWork = int64_t{1} << 23, kMostResults = int64_t{1} << 18, kFewest = 16;
  constexpr int64_t kMostStep = std::numeric_limits<int>::max();
  const OneThread alone;
  const bool small = g.m * g.n * g.k <= kMostWork && g.m * g.n <= kMostResults &&
                     std::min(g.m, g.n) >= kFewest && g.lda <= kMostStep && g.ldb <= kMostStep;
  if (const MklHalf gemm = small ? mkl_half(g.dtype) : nullptr; gemm != nullptr) {
    return mkl_half_gemm(gemm, g);
  }
  addmm(g);
}

// [1 2; 3 4] times its transpose.
bool mkl_half_works(Dtype dtype) {
  const MklHalf gemm = mkl_half_function(dtype);
  if (gemm == nullptr) return false;
  const std::array<float, 4> numbers{1, 2, 3, 4};
  std::array<uint16_t, 4> a{};
  std::array<float, 4> c{9, 9, 9, 9};
  hologram::convert(Dtype::kFloat32, numbers.data(), dtype, a.data(), 4);
  GemmArgs g;
  g.m = g.n = g.k = g.lda = g.ldb = 2;
  g.trans_b = true;
  g.a = g.b = a.data();
  call_mkl_half(gemm, g, c.data(), 2);
  return c == std::array<float, 4>{5, 11, 11, 25};
}

// With C in float32. By MKL; by PyTorch in float32 where there is none, which is never faster than
// the library and so is not asked again.
void half_to_float(const GemmArgs& g) {
  static const bool works = mkl_half_works(Dtype::kFloat16) && mkl_half_works(Dtype::kBFloat16);
  const OneThread alone;
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  if (works && std::max({g.m, g.n, g.k, g.lda, g.ldb, g.ldc}) <= kMost) {
    return call_mkl_half(mkl_half_function(g.dtype), g, static_cast<float*>(g.c), g.ldc);
  }
  const BelowAutograd below;
  const at::ScalarType type = g.dtype == Dtype::kFloat16 ? at::kHalf : at::kBFloat16;
  at::Tensor c = operand(g.c, g.m, g.n, g.ldc, false, at::kFloat);
  at::cpu::addmm_out(c, c, operand(g.a, g.m, g.k, g.lda, g.trans_a, type).to(at::kFloat),
                     operand(g.b, g.k, g.n, g.ldb, g.trans_b, type).to(at::kFloat), g.beta,
                     g.alpha);
}

void half_batched(const GemmArgs& g, int64_t batch, int64_t stride_a, int64_t stride_b,
                  int64_t stride_c) {
  const OneThread alone;
  const BelowAutograd below;
  const at::ScalarType type = g.dtype == Dtype::kFloat16 ? at::kHalf : at::kBFloat16;
  const auto batched = [&](const void* data, int64_t stride, int64_t rows, int64_t cols, int64_t ld,
                           bool transposed) {
    const std::array<int64_t, 3> sizes{batch, rows, cols};
    const std::array<int64_t, 3> strides{stride, transposed ? 1 : ld, transposed ? ld : 1};
    return at::from_blob(const_cast<void*>(data), sizes, strides, type);
  };
  at::Tensor c = batched(g.c, stride_c, g.m, g.n, g.ldc, false);
  const at::Tensor a = batched(g.a, stride_a, g.m, g.k, g.lda, g.trans_a),
                   b = batched(g.b, stride_b, g.k, g.n, g.ldb, g.trans_b);
  if (g.beta == 0 && g.alpha == 1) {
    at::cpu::bmm_out(c, a, b);
  } else {
    at::cpu::baddbmm_out(c, c, a, b, g.beta, g.alpha);
  }
}

// On the calling thread alone, where BLAS is MKL.
void mkl_gemm(const GemmArgs& args) {
  const int before = MKL_Set_Num_Threads_Local(1);
  const bool done = run_blas(args);
  MKL_Set_Num_Threads_Local(before);
  if (!done) torch_gemm(args);
}

}  // namespace

int gemm_threads(int64_t multiplications) {
  // Some ten microseconds of work for each of two threads.
  return multiplications < (int64_t{1} << 21) ? 1 : thread_count();
}

void register_torch_gemm() {
  const char* wish = std::getenv("HOLOGRAM_GEMM");
  const std::string_view name = wish == nullptr ? "" : wish;
  if (!name.empty() && name != "hologram" && name != "torch") {
    throw std::invalid_argument("HOLOGRAM_GEMM is '" + std::string(name) +
                                "'; set it to 'hologram' or 'torch', or unset it");
  }
  const bool alone = MKL_Set_Num_Threads_Local != nullptr;
  // The built-in provider has priority 0.
  hologram::register_gemm_provider({.name = "torch",
                                    .priority = name == "hologram" ? -1 : 20,
                                    .supports = &is_blas_dtype,
                                    .gemm = alone ? &mkl_gemm : &torch_gemm,
                                    .one_thread = alone,
                                    .only_where_faster = name.empty()});
  const bool half_alone = OneThread::can_be_alone();
  hologram::register_gemm_provider({.name = "torch-half",
                                    .priority = name == "hologram" ? -1 : 20,
                                    .supports = &is_half_dtype,
                                    .gemm = half_alone ? &half_gemm : &torch_gemm,
                                    .gemm_batched = half_alone ? &half_batched : nullptr,
                                    .gemm_to_float = half_alone ? &half_to_float : nullptr,
                                    .one_thread = half_alone,
                                    .only_where_faster = name.empty(),
                                    .tile_work = int64_t{1} << 22});
}

}  // namespace hologram_torch
