// SPDX-License-Identifier: MIT
// Products with vectors: mv, addmv and dot, by PyTorch's BLAS.
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <cstring>
#include <limits>

#include "ops/matmul/product.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using c10::Scalar;

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
  if (hologram::is_capturing_graph()) return at::mm(self, vec.unsqueeze(1)).squeeze(1);
  if (C10_LIKELY(blas_mv(self, vec))) {
    Tensor out = make_tensor({self.size(0)}, self.scalar_type());
    mv_into(self, vec, 1, 0, out);
    return out;
  }
  return call_fallback<"mv">(self, vec).back().toTensor();
}

Tensor& mv_out(const Tensor& self, const Tensor& vec, Tensor& out) {
  if (C10_LIKELY(blas_mv(self, vec) && is_ready(out, {self.size(0)}, self.scalar_type()) &&
                 are_apart(out, self) && are_apart(out, vec))) {
    mv_into(self, vec, 1, 0, out);
    return out;
  }
  call_fallback<"mv.out">(self, vec, out);
  return out;
}

Tensor addmv(const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta,
             const Scalar& alpha) {
  if (hologram::is_capturing_graph()) {
    return at::addmm(self.dim() == 1 ? self.unsqueeze(1) : self, mat, vec.unsqueeze(1), beta, alpha)
        .squeeze(1);
  }
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
  if (hologram::is_capturing_graph() && self.dim() == 1 && other.dim() == 1) {
    return at::mm(self.unsqueeze(0), other.unsqueeze(1)).squeeze();
  }
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

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&mv>(m, "mv");
  register_native<&mv_out>(m, "mv.out");
  register_native<&addmv>(m, "addmv");
  register_native<&dot>(m, "dot");
}
