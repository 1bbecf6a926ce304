// SPDX-License-Identifier: MIT
// Describes matrices for GEMM and computes one product of them.
#include "ops/matmul/product.h"

#include <cstring>
#include <limits>

#include "recording/record.h"

namespace hologram_torch {

using at::Tensor;
using hologram::GemmArgs;

namespace {

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

// out (rows x cols, contiguous) = the addend, broadcast.
template <class T>
void spread(const Addend& from, int64_t rows, int64_t cols, T* out) {
  const T* in = reinterpret_cast<const T*>(read_pointer(from.tensor));
  if (from.col_stride == 1 && from.row_stride == cols) {
    std::memcpy(out, in, static_cast<size_t>(rows * cols) * sizeof(T));
    return;
  }
  if (cols == 1) {
    for (int64_t i = 0; i < rows; ++i) out[i] = in[i * from.row_stride];
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

}  // namespace

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

Addend addend_of(const Tensor& t, int64_t cols) {
  const auto step = [&](int64_t back) {
    const int64_t d = t.dim() - back;
    return d < 0 || t.size(d) == 1 ? 0 : t.stride(d);
  };
  return {t, step(2), cols == 1 ? 1 : step(1), step(3)};
}

bool record(const Product& p) {
  if (!is_recorded(p.out)) return false;
  const auto place = [&p](const Tensor& t, auto& at) {
    const c10::TensorImpl* impl = t.unsafeGetTensorImpl();
    check_same_device(p.out, t);
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

void multiply(const Product& p) {
  if (record(p)) return;
  if (hologram::is_capturing_graph()) {
    cannot_capture("a matrix product whose operands overlap its result or may not wait");
  }
  TORCH_INTERNAL_ASSERT(is_on_host(p.out));  // elsewhere nothing keeps a product from waiting
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
    switch (p.out.itemsize()) {
      case 1:
        spread(p.addend, args.m, args.n, static_cast<uint8_t*>(args.c));
        break;
      case 2:
        spread(p.addend, args.m, args.n, static_cast<uint16_t*>(args.c));
        break;
      case 4:
        spread(p.addend, args.m, args.n, static_cast<uint32_t*>(args.c));
        break;
      default:
        spread(p.addend, args.m, args.n, static_cast<uint64_t*>(args.c));
    }
  }
  args.max_threads = gemm_threads(args.m * args.n * args.k);
  hologram::gemm(args);
}

bool takes_numbers(at::ScalarType type, const c10::Scalar& beta, const c10::Scalar& alpha) {
  constexpr int64_t kExact = int64_t{1} << 53;
  for (const c10::Scalar* number : {&beta, &alpha}) {
    if (number->isComplex() || number->isSymbolic()) return false;
    if (!at::isIntegralType(type, /*includeBool=*/false)) continue;
    if (!number->isIntegral(/*includeBool=*/false)) return false;
    if (number->toLong() > kExact || number->toLong() < -kExact) return false;
  }
  return true;
}

bool takes_product(const Tensor& a, const Tensor& b) {
  constexpr int64_t kMax = std::numeric_limits<int>::max();
  const at::ScalarType type = a.scalar_type();
  return is_gemm_type(type) && type == b.scalar_type() && is_dense(a) && is_dense(b) &&
         a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0) && a.numel() > 0 && b.numel() > 0 &&
         a.size(0) <= kMax && a.size(1) <= kMax && b.size(1) <= kMax && a.stride(0) <= kMax &&
         a.stride(1) <= kMax && b.stride(0) <= kMax && b.stride(1) <= kMax;
}

}  // namespace hologram_torch
