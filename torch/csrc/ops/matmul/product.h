// SPDX-License-Identifier: MIT
// What the matrix products share: matrices as GEMM takes them, and one product of them.
#pragma once

#include <utility>

#include "device/openmp.h"
#include "hologram/gemm.h"
#include "host/alias.h"
#include "ops/matmul/matmul_blas.h"
#include "recording/native_common.h"

namespace hologram_torch {

inline bool is_blas_type(at::ScalarType type) { return type == at::kFloat || type == at::kDouble; }

// Types whose products the library computes.
inline bool is_gemm_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kByte:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
      return true;
    default:
      return false;
  }
}

// A matrix as GEMM takes it: row-major with rows ld apart, or the transpose of one.
struct Matrix {
  at::Tensor tensor;
  int64_t rows, cols, ld;
  bool transposed;
  int64_t batch_stride = 0;  // to the matrix of the next of several products
};

// The matrix of a tensor of two dimensions, or those of one of three; a packed copy where strides
// demand one.
Matrix matrix_of(const at::Tensor& t);

// What beta scales, broadcast to the result; undefined: what the result holds.
struct Addend {
  at::Tensor tensor;
  int64_t row_stride = 0, col_stride = 0, batch_stride = 0;
};

// t, of at most three dimensions, as what is added to a result of `cols` columns.
Addend addend_of(const at::Tensor& t, int64_t cols);

// A product, or `batch` of them; the result is contiguous.
struct Product {
  Matrix a, b;
  Addend addend;
  at::Tensor out;
  double alpha = 1, beta = 0;
  int64_t batch = 1;

  hologram::Dtype dtype() const { return dtype_of(out); }
};

// False where an operand's ops may not wait.
bool record(const Product& p);

// One product: recorded, or at once.
void multiply(const Product& p);

// Whether the library takes the product of two matrices, as they are or packed.
bool takes_product(const at::Tensor& a, const at::Tensor& b);

// Numbers that the library scales by: as a double holds them, and whole ones for integers.
bool takes_numbers(at::ScalarType type, const c10::Scalar& beta, const c10::Scalar& alpha);

// A tensor that a kernel may fill from scratch in row-major order.
inline bool is_ready(const at::Tensor& out, at::IntArrayRef sizes, at::ScalarType type) {
  return is_dense(out) && out.scalar_type() == type && out.sizes() == sizes && out.is_contiguous();
}

// Whether two tensors have storages of their own.
inline bool are_apart(const at::Tensor& out, const at::Tensor& in) {
  return out.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() !=
         in.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace hologram_torch
