// SPDX-License-Identifier: MIT
// Products with vectors, mv, addmv and dot: products of matrices with one row or one column.
#include "ops/matmul/product.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using c10::Scalar;

// A vector as a matrix of one column.
Matrix column_of(const Tensor& v) {
  return {v, v.size(0), 1, v.size(0) == 1 ? 1 : v.stride(0), false};
}
// The same as one row.
Matrix row_of(const Tensor& v) {
  const int64_t ld = v.size(0) == 1 ? 1 : v.stride(0);
  return ld == 1 ? Matrix{v, 1, v.size(0), v.size(0), false} : Matrix{v, 1, v.size(0), ld, true};
}

bool is_vector(const Tensor& v, at::ScalarType type) {
  return is_dense(v) && v.scalar_type() == type && v.dim() == 1 && v.size(0) > 0 &&
         (v.stride(0) > 0 || v.size(0) == 1);
}

bool takes_mv(const Tensor& mat, const Tensor& vec) {
  const at::ScalarType type = mat.scalar_type();
  return is_gemm_type(type) && is_dense(mat) && mat.dim() == 2 && mat.numel() > 0 &&
         is_vector(vec, type) && mat.size(1) == vec.size(0);
}

// out = alpha mat vec + beta addend; the addend, undefined for none, has one element or as many as
// the result.
void multiply_vector(const Tensor& mat, const Tensor& vec, const Tensor& addend, double alpha,
                     double beta, const Tensor& out) {
  Matrix matrix = matrix_of(mat);
  Product p{.a = matrix, .b = column_of(vec), .addend = {}, .out = out, .alpha = alpha, .beta = 0};
  const bool adds = addend.defined() && beta != 0;
  const int64_t step = adds && addend.numel() > 1 ? addend.stride(0) : 0;
  if (adds) p.beta = beta, p.addend = {addend, step, 1, 0};
  // Columns that lie side by side are read in that order by the product the other way round.
  if (matrix.transposed && matrix.rows > 1) {
    matrix.transposed = false;
    std::swap(matrix.rows, matrix.cols);
    p.a = row_of(vec), p.b = matrix;
    if (adds) p.addend = {addend, 0, step, 0};
  }
  multiply(p);
}

Tensor mv(const Tensor& self, const Tensor& vec) {
  if (C10_LIKELY(takes_mv(self, vec))) {
    Tensor out = new_empty(self, {self.size(0)});
    multiply_vector(self, vec, Tensor(), 1, 0, out);
    return out;
  }
  return call_fallback<"mv">(self, vec).back().toTensor();
}

Tensor& mv_out(const Tensor& self, const Tensor& vec, Tensor& out) {
  if (C10_LIKELY(takes_mv(self, vec) && is_ready(out, {self.size(0)}, self.scalar_type()) &&
                 are_apart(out, self) && are_apart(out, vec))) {
    multiply_vector(self, vec, Tensor(), 1, 0, out);
    return out;
  }
  call_fallback<"mv.out">(self, vec, out);
  return out;
}

Tensor addmv(const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta,
             const Scalar& alpha) {
  if (C10_LIKELY(takes_mv(mat, vec) && is_dense(self) && self.scalar_type() == mat.scalar_type() &&
                 self.dim() <= 1 && (self.numel() == 1 || self.numel() == mat.size(0)) &&
                 takes_numbers(mat.scalar_type(), beta, alpha))) {
    Tensor out = new_empty(mat, {mat.size(0)});
    multiply_vector(mat, vec, self, alpha.toDouble(), beta.toDouble(), out);
    return out;
  }
  return call_fallback<"addmv">(self, mat, vec, beta, alpha).back().toTensor();
}

Tensor dot(const Tensor& self, const Tensor& other) {
  const at::ScalarType type = self.scalar_type();
  if (C10_LIKELY(is_gemm_type(type) && is_vector(self, type) && is_vector(other, type) &&
                 self.size(0) == other.size(0))) {
    Tensor out = new_empty(self, {});
    multiply({.a = row_of(self), .b = column_of(other), .addend = {}, .out = out});
    return out;
  }
  return call_fallback<"dot">(self, other).back().toTensor();
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&mv>(m, "mv");
  register_native<&mv_out>(m, "mv.out");
  register_native<&addmv>(m, "addmv");
  register_native<&dot>(m, "dot");
}
