// SPDX-License-Identifier: MIT
// Finds PyTorch's BLAS functions and makes them a GEMM provider.
#include "ops/matmul/matmul_blas.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/from_blob.h>
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include "device/openmp.h"
#include "dispatch/alias.h"

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

// [1 2; 3 4] [5 6; 7 8], row-major, which is the product the other way round, column-major. The
// bytes behind the dimensions would show an interface with 64-bit integers.
template <class T>
bool gemm_works(typename Blas<T>::Gemm gemm) {
  const std::array<T, 4> a{1, 2, 3, 4}, b{5, 6, 7, 8};
  std::array<T, 4> c{9, 9, 9, 9};
  const std::array<int, 2> two{2, -1};
  const T one = 1, zero = 0;
  gemm("N", "N", two.data(), two.data(), two.data(), &one, b.data(), two.data(), a.data(),
       two.data(), &zero, c.data(), two.data());
  return c == std::array<T, 4>{19, 22, 43, 50};
}

template <class T>
bool gemv_works(typename Blas<T>::Gemv gemv) {
  const std::array<T, 4> a{1, 2, 3, 4};
  const std::array<T, 2> x{5, 6};
  std::array<T, 2> y{9, 9};
  const std::array<int, 2> two{2, -1}, unit{1, -1};
  const T one = 1, zero = 0;
  gemv("T", two.data(), two.data(), &one, a.data(), two.data(), x.data(), unit.data(), &zero,
       y.data(), unit.data());
  return y == std::array<T, 2>{17, 39};
}

// Some builds return float results as double.
template <class T>
bool dot_works(typename Blas<T>::Dot dot) {
  const std::array<T, 3> x{1, 2, 3}, y{4, 5, 6};
  const std::array<int, 2> three{3, -1}, unit{1, -1};
  return dot(three.data(), x.data(), unit.data(), y.data(), unit.data()) == T(32);
}

template <class T>
Blas<T> load(const std::string& prefix) {
  Blas<T> found;
  found.gemm = symbol<typename Blas<T>::Gemm>((prefix + "gemm_").c_str());
  found.gemv = symbol<typename Blas<T>::Gemv>((prefix + "gemv_").c_str());
  found.dot = symbol<typename Blas<T>::Dot>((prefix + "dot_").c_str());
  if (found.gemm != nullptr && !gemm_works<T>(found.gemm)) found.gemm = nullptr;
  if (found.gemm == nullptr) return {};
  if (found.gemv != nullptr && !gemv_works<T>(found.gemv)) found.gemv = nullptr;
  if (found.dot != nullptr && !dot_works<T>(found.dot)) found.dot = nullptr;
  return found;
}

template <class T>
bool gemm_as(const GemmArgs& args) {
  const auto gemm = blas<T>().gemm;
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

// Row-major C = alpha op(A) op(B) + beta C through blas<T>().gemm; false where that cannot take it.
bool blas_gemm(const GemmArgs& args) {
  return args.dtype == Dtype::kFloat32 ? gemm_as<float>(args) : gemm_as<double>(args);
}

void torch_gemm(const GemmArgs& args) {
  const OpenMpRegion region(args.m * args.n * args.k);
  if (is_blas_dtype(args.dtype) && blas_gemm(args)) return;
  const BelowAutograd below;
  const at::ScalarType type = args.dtype == Dtype::kFloat32   ? at::kFloat
                              : args.dtype == Dtype::kFloat64 ? at::kDouble
                              : args.dtype == Dtype::kFloat16 ? at::kHalf
                                                              : at::kBFloat16;
  at::Tensor c = operand(args.c, args.m, args.n, args.ldc, false, type);
  at::cpu::addmm_out(c, c, operand(args.a, args.m, args.k, args.lda, args.trans_a, type),
                     operand(args.b, args.k, args.n, args.ldb, args.trans_b, type), args.beta,
                     args.alpha);
}

// On the calling thread alone, where BLAS is MKL.
void mkl_gemm(const GemmArgs& args) {
  const int before = MKL_Set_Num_Threads_Local(1);
  const bool done = blas_gemm(args);
  MKL_Set_Num_Threads_Local(before);
  if (!done) torch_gemm(args);
}

}  // namespace

template <>
const Blas<float>& blas<float>() {
  static const Blas<float> found = load<float>("s");
  return found;
}
template <>
const Blas<double>& blas<double>() {
  static const Blas<double> found = load<double>("d");
  return found;
}

int gemm_threads(int64_t multiplications) {
  // Some ten microseconds of work for each of two threads.
  return multiplications < (int64_t{1} << 21) ? 1 : at::get_num_threads();
}

void register_torch_gemm() {
  const char* wish = std::getenv("HOLOGRAM_GEMM");
  const std::string_view name = wish == nullptr ? "" : wish;
  TORCH_CHECK_VALUE(name.empty() || name == "hologram" || name == "torch", "HOLOGRAM_GEMM is '",
                    name, "'; set it to 'hologram' or 'torch', or unset it");
  const bool alone = MKL_Set_Num_Threads_Local != nullptr;
  // The built-in provider has priority 0.
  hologram::register_gemm_provider({.name = "torch",
                                    .priority = name == "hologram" ? -1 : 20,
                                    .supports = &is_blas_dtype,
                                    .gemm = alone ? &mkl_gemm : &torch_gemm,
                                    .one_thread = alone,
                                    .only_where_faster = name.empty()});
  hologram::register_gemm_provider(
      {.name = "torch-half", .priority = 20, .supports = &is_half_dtype, .gemm = &torch_gemm});
}

}  // namespace hologram_torch
