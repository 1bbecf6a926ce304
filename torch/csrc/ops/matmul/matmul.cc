// SPDX-License-Identifier: MIT
// Matrix products: mm, addmm, bmm, baddbmm, addmv, mv, dot and linear, on PyTorch's own GEMM.
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/addmv_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/mm_cpu_dispatch.h>

#include <cstring>
#include <limits>

#include "device/openmp.h"
#include "dispatch/alias.h"
#include "dispatch/autograd_bypass.h"
#include "ops/matmul/matmul_blas.h"
#include "ops/reduce/reduce.h"
#include "recording/record.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using c10::Scalar;
using hologram::GemmArgs;

bool is_blas_type(at::ScalarType type) { return type == at::kFloat || type == at::kDouble; }

// Types whose products PyTorch's cpu computes; what it has to say about others is said there.
bool is_product_type(at::ScalarType type) {
  return is_blas_type(type) || type == at::kBFloat16 || type == at::kHalf ||
         at::isIntegralType(type, /*includeBool=*/false) || at::isComplexType(type);
}

// A matrix as GEMM takes it: row-major with rows ld apart, or the transpose of one.
struct Matrix {
  Tensor tensor;
  int64_t rows, cols, ld;
  bool transposed;
  int64_t batch_stride = 0;  // to the matrix of the next of several products
};

bool fits(int64_t row_stride, int64_t col_stride, int64_t rows, int64_t cols, Matrix* out) {
  if ((cols == 1 || col_stride == 1) && (rows == 1 || row_stride >= cols)) {
    out->ld = std::max(rows == 1 ? cols : row_stride, cols);
    out->transposed = false;
    return true;
  }
  if ((rows == 1 || row_stride == 1) && (cols == 1 || col_stride >= rows)) {
    out->ld = std::max(cols == 1 ? rows : col_stride, rows);
    out->transposed = true;
    return true;
  }
  return false;
}

// The matrix of a tensor of two dimensions, or those of one of three; a packed copy where strides
// demand one.
Matrix matrix_of(const Tensor& t) {
  const int64_t batched = t.dim() - 2;
  Matrix m{t, t.size(batched), t.size(batched + 1), 0, false};
  if (C10_UNLIKELY(!fits(t.stride(batched), t.stride(batched + 1), m.rows, m.cols, &m))) {
    m.tensor = t.contiguous();
    m.ld = m.cols;
    m.transposed = false;
  }
  if (batched != 0) m.batch_stride = m.tensor.stride(0);
  return m;
}

// What beta scales, broadcast to the result; undefined: what the result holds.
struct Addend {
  Tensor tensor;
  int64_t row_stride = 0, col_stride = 0, batch_stride = 0;
};

// A product, or `batch` of them; the result is contiguous.
struct Product {
  Matrix a, b;
  Addend addend;
  Tensor out;
  double alpha = 1, beta = 0;
  int64_t batch = 1;

  hologram::Dtype dtype() const {
    return static_cast<hologram::Dtype>(dtype_code(out.scalar_type()));
  }
};

// False where PyTorch's BLAS computes products, whose threads are its own, or an operand's ops may
// not wait.
bool record(const Product& p) {
  if (!is_deferring() || !prefers_own_gemm()) return false;
  const auto place = [&p](const Tensor& t, auto& at) {
    const c10::TensorImpl* impl = t.unsafeGetTensorImpl();
    at.buffer = &t == &p.out ? recordable_result(impl) : recordable_buffer(impl);
    at.offset = t.storage_offset() * static_cast<int64_t>(t.itemsize());
    return at.buffer != nullptr;
  };
  hologram::RecordGemm gemm;
  if (!place(p.out, gemm.c) || !place(p.a.tensor, gemm.a) || !place(p.b.tensor, gemm.b) ||
      (p.addend.tensor.defined() && !place(p.addend.tensor, gemm.input))) {
    return false;
  }
  gemm.dtype = p.dtype();
  gemm.trans_a = p.a.transposed, gemm.trans_b = p.b.transposed;
  gemm.batch = p.batch;
  gemm.m = p.a.rows, gemm.n = p.b.cols, gemm.k = p.a.cols;
  gemm.alpha = p.alpha, gemm.beta = p.beta;
  gemm.a.ld = p.a.ld, gemm.a.batch_stride = p.a.batch_stride;
  gemm.b.ld = p.b.ld, gemm.b.batch_stride = p.b.batch_stride;
  gemm.c.ld = gemm.n, gemm.c.batch_stride = gemm.m * gemm.n;
  gemm.input.row_stride = p.addend.row_stride;
  gemm.input.col_stride = p.addend.col_stride;
  gemm.input.batch_stride = p.addend.batch_stride;
  try {
    return hologram::record_gemm(gemm);
  } catch (const std::exception& error) {
    rethrow_as_torch(error, static_cast<size_t>(p.out.numel()) * p.out.itemsize());
  }
}

// out (rows x cols, contiguous) = the addend, broadcast.
template <class T>
void spread(const Addend& from, int64_t rows, int64_t cols, T* out) {
  const T* in = reinterpret_cast<const T*>(read_pointer(from.tensor));
  if (from.col_stride == 1 && from.row_stride == cols) {
    std::memcpy(out, in, static_cast<size_t>(rows * cols) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < rows; ++i, in += from.row_stride, out += cols) {
    if (from.col_stride == 1) {
      std::memcpy(out, in, static_cast<size_t>(cols) * sizeof(T));
    } else {
      for (int64_t j = 0; j < cols; ++j) out[j] = in[j * from.col_stride];
    }
  }
}

// One product: recorded, or by the library's GEMM or PyTorch's.
void multiply(const Product& p) {
  if (record(p)) return;
  GemmArgs args;
  args.dtype = p.dtype();
  args.trans_a = p.a.transposed;
  args.trans_b = p.b.transposed;
  args.m = p.a.rows;
  args.n = p.b.cols;
  args.k = p.a.cols;
  args.alpha = p.alpha;
  args.a = read_pointer(p.a.tensor);
  args.lda = p.a.ld;
  args.b = read_pointer(p.b.tensor);
  args.ldb = p.b.ld;
  args.beta = p.beta;
  args.c = write_pointer(p.out);
  args.ldc = args.n;
  if (p.beta != 0 && p.addend.tensor.defined()) {
    if (args.dtype == hologram::Dtype::kFloat32) {
      spread(p.addend, args.m, args.n, static_cast<float*>(args.c));
    } else {
      spread(p.addend, args.m, args.n, static_cast<double*>(args.c));
    }
  }
  const int64_t work = args.m * args.n * args.k;
  if (prefers_own_gemm()) {
    args.max_threads = gemm_threads(work);
    hologram::gemm(args);
    return;
  }
  const OpenMpRegion region(work);
  blas_gemm(args);
}

bool has_gemm(at::ScalarType type) {
  return prefers_own_gemm() ||
         (type == at::kFloat ? blas<float>().gemm != nullptr : blas<double>().gemm != nullptr);
}

// Whether two matrices can go to BLAS as they are, or packed.
bool blas_product(const Tensor& a, const Tensor& b) {
  constexpr int64_t kMax = std::numeric_limits<int>::max();
  const at::ScalarType type = a.scalar_type();
  return is_blas_type(type) && type == b.scalar_type() && is_plain(a) && is_plain(b) &&
         a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0) && a.numel() > 0 && b.numel() > 0 &&
         a.size(0) <= kMax && a.size(1) <= kMax && b.size(1) <= kMax && a.stride(0) <= kMax &&
         a.stride(1) <= kMax && b.stride(0) <= kMax && b.stride(1) <= kMax && has_gemm(type);
}

bool all_plain(const Tensor& a, const Tensor& b) {
  return is_plain(a) && is_plain(b) && is_product_type(a.scalar_type());
}
bool all_plain(const Tensor& a, const Tensor& b, const Tensor& c) {
  return all_plain(a, b) && is_plain(c);
}

// A tensor that a kernel may fill from scratch in row-major order.
bool is_ready(const Tensor& out, at::IntArrayRef sizes, at::ScalarType type) {
  return is_plain(out) && out.scalar_type() == type && out.sizes() == sizes && out.is_contiguous();
}

bool apart(const Tensor& out, const Tensor& in) {
  return out.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() !=
         in.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// Runs a CPU kernel of PyTorch's that fills `out` on aliases.
template <class F>
void on_aliases(const Tensor& out, int64_t flops, F&& kernel) {
  AliasScope scope;
  const BelowAutograd below;
  const OpenMpRegion region(flops);
  Tensor cpu = scope.to_cpu(out);
  kernel(scope, cpu);
}

// --- mm -----------------------------------------------------------------------------------------

void mm_into(const Tensor& a, const Tensor& b, const Tensor& out) {
  multiply({.a = matrix_of(a), .b = matrix_of(b), .addend = {}, .out = out});
}

Tensor mm(const Tensor& self, const Tensor& mat2) {
  if (C10_LIKELY(blas_product(self, mat2))) {
    Tensor out = make_tensor({self.size(0), mat2.size(1)}, self.scalar_type());
    mm_into(self, mat2, out);
    return out;
  }
  if (all_plain(self, mat2) && self.dim() == 2 && mat2.dim() == 2 &&
      self.scalar_type() == mat2.scalar_type() && self.size(1) == mat2.size(0)) {
    Tensor out = make_tensor({self.size(0), mat2.size(1)}, self.scalar_type());
    on_aliases(out, self.numel() * mat2.size(1), [&](AliasScope& scope, Tensor& cpu) {
      at::cpu::mm_out(cpu, scope.to_cpu(self), scope.to_cpu(mat2));
    });
    return out;
  }
  return call_fallback<"mm">(self, mat2).back().toTensor();
}

Tensor& mm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  if (C10_LIKELY(blas_product(self, mat2) &&
                 is_ready(out, {self.size(0), mat2.size(1)}, self.scalar_type()) &&
                 apart(out, self) && apart(out, mat2))) {
    mm_into(self, mat2, out);
    return out;
  }
  call_fallback<"mm.out">(self, mat2, out);
  return out;
}

// --- addmm --------------------------------------------------------------------------------------

// Where BLAS can take its product, the bias of one row or one matrix and the numbers as they are.
bool blas_addmm(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
                const Scalar& alpha) {
  if (!blas_product(a, b) || !is_plain(self) || self.scalar_type() != a.scalar_type() ||
      beta.isComplex() || alpha.isComplex() || beta.isSymbolic() || alpha.isSymbolic()) {
    return false;
  }
  const c10::IntArrayRef sizes = self.sizes();
  const int64_t rows = a.size(0), cols = b.size(1);
  if (sizes.size() == 1) return (sizes[0] == cols || sizes[0] == 1);
  return sizes.size() == 2 && (sizes[0] == rows || sizes[0] == 1) &&
         (sizes[1] == cols || sizes[1] == 1);
}

// t, of at most three dimensions, as what is added to a result of `cols` columns.
Addend addend_of(const Tensor& t, int64_t cols) {
  const auto step = [&](int64_t back) {
    const int64_t d = t.dim() - back;
    return d < 0 || t.size(d) == 1 ? 0 : t.stride(d);
  };
  return {t, step(2), cols == 1 ? 1 : step(1), step(3)};
}

void addmm_into(const Tensor& self, const Tensor& a, const Tensor& b, double beta, double alpha,
                const Tensor& out) {
  const bool apart = beta != 0 && !out.is_same(self);
  multiply({.a = matrix_of(a),
            .b = matrix_of(b),
            .addend = apart ? addend_of(self, b.size(1)) : Addend(),
            .out = out,
            .alpha = alpha,
            .beta = beta});
}

Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
             const Scalar& alpha) {
  if (C10_LIKELY(blas_addmm(self, mat1, mat2, beta, alpha))) {
    Tensor out = make_tensor({mat1.size(0), mat2.size(1)}, mat1.scalar_type());
    addmm_into(self, mat1, mat2, beta.toDouble(), alpha.toDouble(), out);
    return out;
  }
  if (all_plain(mat1, mat2, self) && mat1.dim() == 2 && mat2.dim() == 2) {
    Tensor out = make_tensor({mat1.size(0), mat2.size(1)}, mat1.scalar_type());
    on_aliases(out, mat1.numel() * mat2.size(1), [&](AliasScope& scope, Tensor& cpu) {
      at::cpu::addmm_out(cpu, scope.to_cpu(self), scope.to_cpu(mat1), scope.to_cpu(mat2), beta,
                         alpha);
    });
    return out;
  }
  return call_fallback<"addmm">(self, mat1, mat2, beta, alpha).back().toTensor();
}

Tensor& addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                  const Scalar& alpha, Tensor& out) {
  if (C10_LIKELY(blas_addmm(self, mat1, mat2, beta, alpha) &&
                 is_ready(out, {mat1.size(0), mat2.size(1)}, mat1.scalar_type()) &&
                 apart(out, mat1) && apart(out, mat2) && (out.is_same(self) || apart(out, self)))) {
    addmm_into(self, mat1, mat2, beta.toDouble(), alpha.toDouble(), out);
    return out;
  }
  call_fallback<"addmm.out">(self, mat1, mat2, beta, alpha, out);
  return out;
}

Tensor& addmm_(Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
               const Scalar& alpha) {
  if (C10_LIKELY(blas_addmm(self, mat1, mat2, beta, alpha) &&
                 is_ready(self, {mat1.size(0), mat2.size(1)}, mat1.scalar_type()) &&
                 apart(self, mat1) && apart(self, mat2))) {
    addmm_into(self, mat1, mat2, beta.toDouble(), alpha.toDouble(), self);
    return self;
  }
  call_fallback<"addmm_">(self, mat1, mat2, beta, alpha);
  return self;
}

// --- bmm, baddbmm -------------------------------------------------------------------------------

bool batches_match(const Tensor& a, const Tensor& b) {
  return all_plain(a, b) && a.scalar_type() == b.scalar_type() && a.dim() == 3 && b.dim() == 3 &&
         a.size(0) == b.size(0) && a.size(2) == b.size(1);
}

// out = alpha a b + beta addend (undefined: none) by the library.
void multiply_batches(const Tensor& addend, const Tensor& a, const Tensor& b, const Tensor& out,
                      double alpha, double beta) {
  const bool adds = addend.defined();
  if (is_deferring() && record({.a = matrix_of(a),
                                .b = matrix_of(b),
                                .addend = adds ? addend_of(addend, out.size(2)) : Addend(),
                                .out = out,
                                .alpha = alpha,
                                .beta = adds ? beta : 0,
                                .batch = out.size(0)})) {
    return;
  }
  const int threads = gemm_threads(a.numel() * b.size(2));
  if (adds) {
    hologram::addmm(read_view(addend), read_view(a), read_view(b), write_view(out), alpha, beta,
                    threads);
  } else {
    hologram::matmul(read_view(a), read_view(b), write_view(out), alpha, 0, threads);
  }
}

bool has_own_batches(const Tensor& a, const Tensor& b) {
  return prefers_own_gemm() && is_blas_type(a.scalar_type()) && a.numel() != 0 && b.numel() != 0;
}

// Without PyTorch's batched BLAS: all of it by the library's GEMM, or a batch of one, to which
// that would only add its own bookkeeping.
bool bmm_direct(const Tensor& a, const Tensor& b, const Tensor& out) {
  if (has_own_batches(a, b)) {
    multiply_batches(Tensor(), a, b, out, 1, 0);
    return true;
  }
  if (!is_blas_type(a.scalar_type()) || a.numel() == 0 || b.numel() == 0 || a.size(0) != 1) {
    return false;
  }
  const Tensor x = a.squeeze(0), y = b.squeeze(0);
  if (!blas_product(x, y)) return false;
  mm_into(x, y, out);
  return true;
}

Tensor bmm(const Tensor& self, const Tensor& mat2) {
  if (C10_LIKELY(batches_match(self, mat2))) {
    Tensor out = make_tensor({self.size(0), self.size(1), mat2.size(2)}, self.scalar_type());
    if (bmm_direct(self, mat2, out)) return out;
    on_aliases(out, self.numel() * mat2.size(2), [&](AliasScope& scope, Tensor& cpu) {
      at::cpu::bmm_out(cpu, scope.to_cpu(self), scope.to_cpu(mat2));
    });
    return out;
  }
  return call_fallback<"bmm">(self, mat2).back().toTensor();
}

Tensor& bmm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  if (C10_LIKELY(batches_match(self, mat2) &&
                 is_ready(out, {self.size(0), self.size(1), mat2.size(2)}, self.scalar_type()) &&
                 apart(out, self) && apart(out, mat2))) {
    if (bmm_direct(self, mat2, out)) return out;
    on_aliases(out, self.numel() * mat2.size(2), [&](AliasScope& scope, Tensor& cpu) {
      at::cpu::bmm_out(cpu, scope.to_cpu(self), scope.to_cpu(mat2));
    });
    return out;
  }
  call_fallback<"bmm.out">(self, mat2, out);
  return out;
}

// Whether `bias` broadcasts to the product of a and b.
bool is_batch_bias(const Tensor& bias, const Tensor& a, const Tensor& b) {
  const std::array<int64_t, 3> sizes{b.size(2), a.size(1), a.size(0)};
  if (bias.dim() > 3) return false;
  for (int64_t d = 0; d < bias.dim(); ++d) {
    const int64_t size = bias.size(-1 - d);
    if (size != 1 && size != sizes[static_cast<size_t>(d)]) return false;
  }
  return true;
}

bool baddbmm_direct(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
                    const Scalar& alpha, const Tensor& out) {
  if (!has_own_batches(a, b) || !is_batch_bias(self, a, b) || beta.isComplex() ||
      alpha.isComplex() || beta.isSymbolic() || alpha.isSymbolic()) {
    return false;
  }
  const bool biased = beta.toDouble() != 0;
  multiply_batches(biased ? self : Tensor(), a, b, out, alpha.toDouble(), beta.toDouble());
  return true;
}

Tensor baddbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
               const Scalar& alpha) {
  if (C10_LIKELY(batches_match(batch1, batch2) && is_plain(self) &&
                 self.scalar_type() == batch1.scalar_type())) {
    Tensor out =
        make_tensor({batch1.size(0), batch1.size(1), batch2.size(2)}, batch1.scalar_type());
    if (baddbmm_direct(self, batch1, batch2, beta, alpha, out)) return out;
    on_aliases(out, batch1.numel() * batch2.size(2), [&](AliasScope& scope, Tensor& cpu) {
      at::cpu::baddbmm_out(cpu, scope.to_cpu(self), scope.to_cpu(batch1), scope.to_cpu(batch2),
                           beta, alpha);
    });
    return out;
  }
  return call_fallback<"baddbmm">(self, batch1, batch2, beta, alpha).back().toTensor();
}

Tensor& baddbmm_out(const Tensor& self, const Tensor& batch1, const Tensor& batch2,
                    const Scalar& beta, const Scalar& alpha, Tensor& out) {
  if (C10_LIKELY(
          batches_match(batch1, batch2) && is_plain(self) &&
          self.scalar_type() == batch1.scalar_type() &&
          is_ready(out, {batch1.size(0), batch1.size(1), batch2.size(2)}, batch1.scalar_type()) &&
          apart(out, self) && apart(out, batch1) && apart(out, batch2))) {
    if (baddbmm_direct(self, batch1, batch2, beta, alpha, out)) return out;
    on_aliases(out, batch1.numel() * batch2.size(2), [&](AliasScope& scope, Tensor& cpu) {
      at::cpu::baddbmm_out(cpu, scope.to_cpu(self), scope.to_cpu(batch1), scope.to_cpu(batch2),
                           beta, alpha);
    });
    return out;
  }
  call_fallback<"baddbmm.out">(self, batch1, batch2, beta, alpha, out);
  return out;
}

// --- Vectors ------------------------------------------------------------------------------------

template <class T>
void gemv_as(const Matrix& a, const Tensor& x, double alpha, double beta, const Tensor& y) {
  // Column-major: a row-major matrix is a transposed one.
  const int m = static_cast<int>(a.transposed ? a.rows : a.cols);
  const int n = static_cast<int>(a.transposed ? a.cols : a.rows);
  const int ld = static_cast<int>(a.ld), step = static_cast<int>(x.stride(0)), unit = 1;
  const T scale = static_cast<T>(alpha), keep = static_cast<T>(beta);
  blas<T>().gemv(a.transposed ? "N" : "T", &m, &n, &scale,
                 reinterpret_cast<const T*>(read_pointer(a.tensor)), &ld,
                 reinterpret_cast<const T*>(read_pointer(x)), &step, &keep,
                 reinterpret_cast<T*>(write_pointer(y)), &unit);
}

bool blas_mv(const Tensor& mat, const Tensor& vec) {
  constexpr int64_t kMax = std::numeric_limits<int>::max();
  const at::ScalarType type = mat.scalar_type();
  return is_blas_type(type) && type == vec.scalar_type() && is_plain(mat) && is_plain(vec) &&
         mat.dim() == 2 && vec.dim() == 1 && mat.size(1) == vec.size(0) && mat.numel() > 0 &&
         vec.stride(0) > 0 && vec.stride(0) <= kMax && mat.size(0) <= kMax && mat.size(1) <= kMax &&
         mat.stride(0) <= kMax && mat.stride(1) <= kMax &&
         (type == at::kFloat ? blas<float>().gemv != nullptr : blas<double>().gemv != nullptr);
}

void mv_into(const Tensor& mat, const Tensor& vec, double alpha, double beta, const Tensor& out) {
  const Matrix a = matrix_of(mat);
  const OpenMpRegion region(OpenMpRegion::kPerLoad * a.rows * a.cols);
  if (mat.scalar_type() == at::kFloat) {
    gemv_as<float>(a, vec, alpha, beta, out);
  } else {
    gemv_as<double>(a, vec, alpha, beta, out);
  }
}

Tensor mv(const Tensor& self, const Tensor& vec) {
  if (C10_LIKELY(blas_mv(self, vec))) {
    Tensor out = make_tensor({self.size(0)}, self.scalar_type());
    mv_into(self, vec, 1, 0, out);
    return out;
  }
  return call_fallback<"mv">(self, vec).back().toTensor();
}

Tensor& mv_out(const Tensor& self, const Tensor& vec, Tensor& out) {
  if (C10_LIKELY(blas_mv(self, vec) && is_ready(out, {self.size(0)}, self.scalar_type()) &&
                 apart(out, self) && apart(out, vec))) {
    mv_into(self, vec, 1, 0, out);
    return out;
  }
  call_fallback<"mv.out">(self, vec, out);
  return out;
}

Tensor addmv(const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta,
             const Scalar& alpha) {
  if (C10_LIKELY(blas_mv(mat, vec) && is_plain(self) && self.scalar_type() == mat.scalar_type() &&
                 self.dim() == 1 && self.size(0) == mat.size(0) && self.is_contiguous() &&
                 !beta.isComplex() && !alpha.isComplex())) {
    Tensor out = make_tensor({mat.size(0)}, mat.scalar_type());
    if (beta.toDouble() != 0) std::memcpy(write_pointer(out), read_pointer(self), self.nbytes());
    mv_into(mat, vec, alpha.toDouble(), beta.toDouble(), out);
    return out;
  }
  return call_fallback<"addmv">(self, mat, vec, beta, alpha).back().toTensor();
}

template <class T>
void dot_as(const Tensor& a, const Tensor& b, const Tensor& out) {
  const int n = static_cast<int>(a.numel()), x = static_cast<int>(a.stride(0)),
            y = static_cast<int>(b.stride(0));
  *reinterpret_cast<T*>(write_pointer(out)) =
      blas<T>().dot(&n, reinterpret_cast<const T*>(read_pointer(a)), &x,
                    reinterpret_cast<const T*>(read_pointer(b)), &y);
}

Tensor dot(const Tensor& self, const Tensor& other) {
  constexpr int64_t kMax = std::numeric_limits<int>::max();
  const at::ScalarType type = self.scalar_type();
  if (is_blas_type(type) && type == other.scalar_type() && is_plain(self) && is_plain(other) &&
      self.dim() == 1 && other.dim() == 1 && self.size(0) == other.size(0) && self.size(0) > 0 &&
      self.size(0) <= kMax && self.stride(0) >= 1 && other.stride(0) >= 1 &&
      self.stride(0) <= kMax && other.stride(0) <= kMax &&
      (type == at::kFloat ? blas<float>().dot != nullptr : blas<double>().dot != nullptr)) {
    Tensor out = make_tensor({}, type);
    const OpenMpRegion region(OpenMpRegion::kPerLoad * self.numel());
    if (type == at::kFloat) {
      dot_as<float>(self, other, out);
    } else {
      dot_as<double>(self, other, out);
    }
    return out;
  }
  return call_fallback<"dot">(self, other).back().toTensor();
}

// --- linear -------------------------------------------------------------------------------------

// A contiguous tensor whose leading dimensions are taken as one.
Matrix rows_of(const Tensor& t) {
  const int64_t cols = t.size(-1);
  return {t, t.numel() / cols, cols, cols, false};
}

Matrix transpose_of(Matrix m) {
  std::swap(m.rows, m.cols);
  m.transposed = !m.transposed;
  return m;
}

bool is_weight(const Tensor& weight, at::ScalarType type) {
  return is_plain(weight) && weight.dim() == 2 && weight.scalar_type() == type &&
         weight.numel() > 0;
}

bool blas_linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias) {
  const at::ScalarType type = input.scalar_type();
  if (!is_blas_type(type) || !is_plain(input) || input.dim() < 1 || input.numel() == 0 ||
      !is_weight(weight, type) || weight.size(1) != input.size(-1) ||
      weight.numel() > std::numeric_limits<int>::max() ||
      input.numel() > std::numeric_limits<int>::max()) {
    return false;
  }
  if (bias.has_value() && bias->defined() &&
      (!is_plain(*bias) || bias->scalar_type() != type || bias->dim() != 1 ||
       bias->size(0) != weight.size(0))) {
    return false;
  }
  return has_gemm(type);
}

c10::SmallVector<int64_t, 5> with_last(const Tensor& t, int64_t last) {
  c10::SmallVector<int64_t, 5> sizes(t.sizes().begin(), t.sizes().end());
  sizes.back() = last;
  return sizes;
}

Tensor linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias) {
  const bool biased = bias.has_value() && bias->defined();
  if (C10_LIKELY(blas_linear(input, weight, bias))) {
    const Tensor x = input.is_contiguous() ? input : input.contiguous();
    Tensor out = make_tensor(with_last(x, weight.size(0)), x.scalar_type());
    multiply({.a = rows_of(x),
              .b = transpose_of(matrix_of(weight)),
              .addend = biased ? addend_of(*bias, weight.size(0)) : Addend(),
              .out = out,
              .beta = biased ? 1.0 : 0.0});
    return out;
  }
  return call_fallback<"linear">(input, weight, bias).back().toTensor();
}

// PyTorch differentiates linear as a whole backwards only; its parts have tangents.
Tensor linear_autograd(c10::DispatchKeySet keys, const Tensor& input, const Tensor& weight,
                       const std::optional<Tensor>& bias) {
  if (C10_UNLIKELY(carries_tangent(input) || carries_tangent(weight) || carries_tangent(bias))) {
    return at::native::linear(input, weight, bias);
  }
  return call_autograd<"linear", Tensor, const Tensor&, const Tensor&,
                       const std::optional<Tensor>&>(keys, input, weight, bias);
}

// For empty, complex and half tensors and whatever else BLAS does not take.
std::tuple<Tensor, Tensor, Tensor> linear_backward_by_parts(const Tensor& input, const Tensor& grad,
                                                            const Tensor& weight,
                                                            std::array<bool, 3> wanted) {
  if (weight.dim() == 1) {  // one output, and no dimension for it
    auto [grad_input, grad_weight, grad_bias] =
        linear_backward_by_parts(input, grad.unsqueeze(-1), weight.unsqueeze(0), wanted);
    return {grad_input, wanted[1] ? grad_weight.squeeze(0) : grad_weight, grad_bias};
  }
  int64_t count = 1;
  for (int64_t d = 0; d + 1 < input.dim(); ++d) count *= input.size(d);
  Tensor grad_input, grad_weight, grad_bias;
  const Tensor rows = grad.reshape({count, grad.size(-1)});
  if (wanted[0]) grad_input = rows.mm(weight.conj()).reshape(input.sizes());
  if (wanted[1]) grad_weight = rows.t().mm(input.reshape({count, input.size(-1)}).conj());
  if (wanted[2]) grad_bias = rows.sum(0);
  return {grad_input, grad_weight, grad_bias};
}

std::tuple<Tensor, Tensor, Tensor> linear_backward(const Tensor& input, const Tensor& grad_output,
                                                   const Tensor& weight,
                                                   std::array<bool, 3> wanted) {
  if (!grad_output.defined()) return {};
  const auto is_result = [&](const Tensor& t) {
    return t.dim() == input.dim() && t.size(-1) == weight.size(0) &&
           t.sizes().slice(0, t.sizes().size() - 1) ==
               input.sizes().slice(0, input.sizes().size() - 1);
  };
  if (!blas_linear(input, weight, std::nullopt) || !is_plain(grad_output) ||
      grad_output.scalar_type() != input.scalar_type() || grad_output.numel() == 0 ||
      !is_result(grad_output)) {
    return linear_backward_by_parts(input, grad_output, weight, wanted);
  }
  const Tensor grad = grad_output.is_contiguous() ? grad_output : grad_output.contiguous();
  const at::ScalarType type = input.scalar_type();
  const Matrix g = rows_of(grad);
  Tensor grad_input, grad_weight, grad_bias;
  if (wanted[0]) {
    grad_input = make_tensor(input.sizes(), type);
    multiply({.a = g, .b = matrix_of(weight), .addend = {}, .out = grad_input});
  }
  if (wanted[1]) {
    grad_weight = make_tensor({g.cols, input.size(-1)}, type);
    const Tensor x = input.is_contiguous() ? input : input.contiguous();
    multiply({.a = transpose_of(g), .b = rows_of(x), .addend = {}, .out = grad_weight});
  }
  if (wanted[2]) {  // the sum over all dimensions but the last
    const Tensor rows = grad.dim() == 2 ? grad : grad.view({g.rows, g.cols});
    grad_bias = reduced(hologram::Reduction::sum, rows, plan_dim(rows, 0, /*keepdim=*/false), type);
  }
  return {std::move(grad_input), std::move(grad_weight), std::move(grad_bias)};
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&mm>(m, "mm");
  register_native<&mm_out>(m, "mm.out");
  register_native<&addmm>(m, "addmm");
  register_native<&addmm_out>(m, "addmm.out");
  register_native<&addmm_>(m, "addmm_");
  register_native<&bmm>(m, "bmm");
  register_native<&bmm_out>(m, "bmm.out");
  register_native<&baddbmm>(m, "baddbmm");
  register_native<&baddbmm_out>(m, "baddbmm.out");
  register_native<&mv>(m, "mv");
  register_native<&mv_out>(m, "mv.out");
  register_native<&addmv>(m, "addmv");
  register_native<&dot>(m, "dot");
  register_native<&linear>(m, "linear");
  register_untracked<"linear", &linear_autograd>();
  register_native<&linear_backward>(m, "linear_backward");
  register_torch_gemm();
}
