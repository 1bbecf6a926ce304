// SPDX-License-Identifier: MIT
// Matrix products: mm, addmm, bmm and baddbmm, by PyTorch's GEMM or the library's.
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sum.h>

#include "ops/matmul/product.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using c10::Scalar;
using hologram::GemmArgs;

// Types whose products PyTorch's cpu computes; for others the fallback raises its error.
bool is_product_type(at::ScalarType type) { return is_gemm_type(type) || at::isComplexType(type); }

bool all_dense(const Tensor& a, const Tensor& b) {
  return is_dense(a) && is_dense(b) && same_device(a, b) && is_product_type(a.scalar_type());
}
bool all_dense(const Tensor& a, const Tensor& b, const Tensor& c) {
  return all_dense(a, b) && is_dense(c) && same_device(a, c);
}

// Runs a CPU kernel of PyTorch's that fills `out` on aliases.
template <class F>
void on_aliases(const Tensor& out, int64_t flops, F&& kernel) {
  if (hologram::is_capturing_graph()) cannot_capture("a matrix product of complex types");
  AliasScope scope;
  const BelowAutograd below;
  const OpenMpRegion region(flops);
  Tensor cpu = scope.to_cpu(out);
  kernel(scope, cpu);
  scope.adopt_changes(out, cpu);
  scope.write_back();
}

// --- mm -----------------------------------------------------------------------------------------

void mm_into(const Tensor& a, const Tensor& b, const Tensor& out) {
  multiply({.a = matrix_of(a), .b = matrix_of(b), .addend = {}, .out = out});
}

Tensor mm(const Tensor& self, const Tensor& mat2) {
  if (C10_LIKELY(takes_product(self, mat2))) {
    Tensor out = new_empty(self, {self.size(0), mat2.size(1)});
    mm_into(self, mat2, out);
    return out;
  }
  if (all_dense(self, mat2) && self.dim() == 2 && mat2.dim() == 2 &&
      self.scalar_type() == mat2.scalar_type() && self.size(1) == mat2.size(0)) {
    Tensor out = new_empty(self, {self.size(0), mat2.size(1)});
    on_aliases(out, self.numel() * mat2.size(1), [&](AliasScope& scope, Tensor& cpu) {
      at::cpu::mm_out(cpu, scope.to_cpu(self), scope.to_cpu(mat2));
    });
    return out;
  }
  return call_fallback<"mm">(self, mat2).back().toTensor();
}

Tensor& mm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  if (C10_LIKELY(takes_product(self, mat2) &&
                 is_ready(out, {self.size(0), mat2.size(1)}, self.scalar_type()) &&
                 are_apart(out, self) && are_apart(out, mat2))) {
    mm_into(self, mat2, out);
    return out;
  }
  call_fallback<"mm.out">(self, mat2, out);
  return out;
}

// --- addmm --------------------------------------------------------------------------------------

// Where the library takes the product, the bias of one number, row or matrix and the numbers.
bool takes_addmm(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta,
                 const Scalar& alpha) {
  if (!takes_product(a, b) || !is_dense(self) || self.scalar_type() != a.scalar_type() ||
      !takes_numbers(a.scalar_type(), beta, alpha)) {
    return false;
  }
  const c10::IntArrayRef sizes = self.sizes();
  const int64_t rows = a.size(0), cols = b.size(1);
  if (sizes.empty()) return true;
  if (sizes.size() == 1) return (sizes[0] == cols || sizes[0] == 1);
  return sizes.size() == 2 && (sizes[0] == rows || sizes[0] == 1) &&
         (sizes[1] == cols || sizes[1] == 1);
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
  if (C10_LIKELY(takes_addmm(self, mat1, mat2, beta, alpha))) {
    Tensor out = new_empty(mat1, {mat1.size(0), mat2.size(1)});
    addmm_into(self, mat1, mat2, beta.toDouble(), alpha.toDouble(), out);
    return out;
  }
  if (all_dense(mat1, mat2, self) && mat1.dim() == 2 && mat2.dim() == 2) {
    Tensor out = new_empty(mat1, {mat1.size(0), mat2.size(1)});
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
  if (C10_LIKELY(takes_addmm(self, mat1, mat2, beta, alpha) &&
                 is_ready(out, {mat1.size(0), mat2.size(1)}, mat1.scalar_type()) &&
                 are_apart(out, mat1) && are_apart(out, mat2) &&
                 (out.is_same(self) || are_apart(out, self)))) {
    addmm_into(self, mat1, mat2, beta.toDouble(), alpha.toDouble(), out);
    return out;
  }
  call_fallback<"addmm.out">(self, mat1, mat2, beta, alpha, out);
  return out;
}

Tensor& addmm_(Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
               const Scalar& alpha) {
  if (C10_LIKELY(takes_addmm(self, mat1, mat2, beta, alpha) &&
                 is_ready(self, {mat1.size(0), mat2.size(1)}, mat1.scalar_type()) &&
                 are_apart(self, mat1) && are_apart(self, mat2))) {
    addmm_into(self, mat1, mat2, beta.toDouble(), alpha.toDouble(), self);
    return self;
  }
  call_fallback<"addmm_">(self, mat1, mat2, beta, alpha);
  return self;
}

// --- bmm, baddbmm -------------------------------------------------------------------------------

bool batches_match(const Tensor& a, const Tensor& b) {
  return all_dense(a, b) && a.scalar_type() == b.scalar_type() && a.dim() == 3 && b.dim() == 3 &&
         a.size(0) == b.size(0) && a.size(2) == b.size(1);
}

// out = alpha a b + beta addend (undefined: none).
void multiply_batches(const Tensor& addend, const Tensor& a, const Tensor& b, const Tensor& out,
                      double alpha, double beta) {
  const bool adds = addend.defined();
  if (is_recorded(out) && record({.a = matrix_of(a),
                                  .b = matrix_of(b),
                                  .addend = adds ? addend_of(addend, out.size(2)) : Addend(),
                                  .out = out,
                                  .alpha = alpha,
                                  .beta = adds ? beta : 0,
                                  .batch = out.size(0)})) {
    return;
  }
  TORCH_INTERNAL_ASSERT(is_on_host(out));
  const int threads = gemm_threads(a.numel() * b.size(2));
  if (adds) {
    hologram::addmm(read_view(addend), read_view(a), read_view(b), write_view(out), alpha, beta,
                    threads);
  } else {
    hologram::matmul(read_view(a), read_view(b), write_view(out), alpha, 0, threads);
  }
}

bool has_batches(const Tensor& a, const Tensor& b) {
  return is_gemm_type(a.scalar_type()) && a.numel() != 0 && b.numel() != 0;
}

bool bmm_direct(const Tensor& a, const Tensor& b, const Tensor& out) {
  if (!has_batches(a, b)) return false;
  multiply_batches(Tensor(), a, b, out, 1, 0);
  return true;
}

// Products of one row and one column each are elementwise products whose rows are added up.
bool are_dots(const Tensor& a, const Tensor& b) {
  return a.size(1) == 1 && b.size(2) == 1 && a.size(0) > 1 &&
         (a.scalar_type() == at::kFloat || a.scalar_type() == at::kDouble);
}

// They are one loop where ops are recorded. Otherwise the products of some rows at a time stay in
// the caches. The products of a row lie side by side either way, so the sums have the same bits.
Tensor multiply_dots(const Tensor& a, const Tensor& b) {
  constexpr int64_t kKeptElements = int64_t{1} << 16;  // for each thread
  const Tensor columns = b.transpose(1, 2);
  const int64_t n = a.size(0), k = a.size(2);
  const int64_t most = kKeptElements * at::get_num_threads() / std::max<int64_t>(1, k);
  const int64_t rows = is_recorded(a) ? n : std::clamp<int64_t>(most, 1, n);
  const Tensor out = new_empty(a, {n, 1, 1}), products = new_empty(a, {rows, 1, k});
  for (int64_t i = 0; i < n; i += rows) {
    const int64_t here = std::min(rows, n - i);
    Tensor some = products.narrow(0, 0, here), sums = out.narrow(0, i, here);
    at::mul_out(some, a.narrow(0, i, here), columns.narrow(0, i, here));
    at::sum_out(sums, some, {2}, /*keepdim=*/true);
  }
  return out;
}

Tensor bmm(const Tensor& self, const Tensor& mat2) {
  if (C10_LIKELY(batches_match(self, mat2))) {
    if (C10_UNLIKELY(are_dots(self, mat2))) return multiply_dots(self, mat2);
    Tensor out = new_empty(self, {self.size(0), self.size(1), mat2.size(2)});
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
                 are_apart(out, self) && are_apart(out, mat2))) {
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
  if (!has_batches(a, b) || !is_batch_bias(self, a, b) ||
      !takes_numbers(a.scalar_type(), beta, alpha)) {
    return false;
  }
  const bool biased = beta.toDouble() != 0;
  multiply_batches(biased ? self : Tensor(), a, b, out, alpha.toDouble(), beta.toDouble());
  return true;
}

Tensor baddbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
               const Scalar& alpha) {
  if (C10_LIKELY(batches_match(batch1, batch2) && is_dense(self) &&
                 self.scalar_type() == batch1.scalar_type())) {
    Tensor out = new_empty(batch1, {batch1.size(0), batch1.size(1), batch2.size(2)});
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
          batches_match(batch1, batch2) && is_dense(self) &&
          self.scalar_type() == batch1.scalar_type() &&
          is_ready(out, {batch1.size(0), batch1.size(1), batch2.size(2)}, batch1.scalar_type()) &&
          are_apart(out, self) && are_apart(out, batch1) && are_apart(out, batch2))) {
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
}
