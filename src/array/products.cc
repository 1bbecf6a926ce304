// SPDX-License-Identifier: MIT
// Matrix products of tensors.
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "hologram/error.h"
#include "hologram/gemm.h"
#include "src/array/array.h"
#include "src/array/at_call.h"
#include "src/array/record_call.h"
#include "src/array/small_copy.h"
#include "src/array/types.h"
#include "src/array/unsigned.h"

namespace hologram {
namespace array {
namespace {

// The shape of the product; kInvalidArgument where there is none.
Shape product_shape(const Tensor& a, const Tensor& b) {
  if (a.ndim() == 0 || b.ndim() == 0) {
    fail(ErrorKind::kInvalidArgument, "matmul: operands need one dimension or more, got shapes ",
         shape_text(a.shape()), " and ", shape_text(b.shape()), "; use mul for numbers");
  }
  const auto mismatch = [&](const char* what) {
    fail(ErrorKind::kInvalidArgument, "matmul: shapes ", shape_text(a.shape()), " and ",
         shape_text(b.shape()), " do not fit: ", what);
  };
  const int64_t k = a.shape().back();
  const int64_t rows_of_b = b.ndim() == 1 ? b.shape()[0] : b.shape()[b.shape().size() - 2];
  if (k != rows_of_b) {
    mismatch("the last size of the first and the last but one of the second have to be equal");
  }
  Shape batch(a.shape().begin(), a.shape().end() - std::min(a.ndim(), 2));
  const Shape other(b.shape().begin(), b.shape().end() - std::min(b.ndim(), 2));
  if (!broadcast_to(other, batch)) mismatch("the leading sizes do not broadcast");
  if (a.ndim() > 1) batch.push_back(a.shape()[a.shape().size() - 2]);
  if (b.ndim() > 1) batch.push_back(b.shape().back());
  return batch;
}

// The last two dimensions as GEMM takes them: rows `ld` elements apart, or the transpose of that.
struct Matrix {
  bool transposed;
  int64_t ld;
};
std::optional<Matrix> matrix_of(const Tensor& t) {
  const size_t n = t.shape().size();
  const int64_t rows = t.shape()[n - 2], cols = t.shape()[n - 1];
  const int64_t row = t.strides()[n - 2], col = t.strides()[n - 1];
  if ((col == 1 || cols == 1) && (row >= cols || rows == 1)) {
    return Matrix{false, rows == 1 ? std::max<int64_t>(cols, 1) : row};
  }
  if ((row == 1 || rows == 1) && (col >= rows || cols == 1)) {
    return Matrix{true, cols == 1 ? std::max<int64_t>(rows, 1) : col};
  }
  return std::nullopt;
}

RecordMatrix record_matrix(const Tensor& t, const Matrix& matrix) {
  const RecordOperand operand = record_operand(t);
  return {operand.buffer, operand.offset, matrix.ld, t.ndim() == 3 ? t.strides()[0] : 0};
}

bool record_product(const Tensor& a, const Tensor& b, const Tensor& out) {
  if (a.ndim() != b.ndim() || (a.ndim() != 2 && a.ndim() != 3) || !out.is_contiguous())
    return false;
  if (a.ndim() == 3 && a.shape()[0] != b.shape()[0]) return false;
  const std::optional<Matrix> left = matrix_of(a), right = matrix_of(b);
  if (!left.has_value() || !right.has_value()) return false;
  const size_t n = a.shape().size();
  RecordGemm gemm;
  gemm.dtype = out.dtype();
  gemm.trans_a = left->transposed;
  gemm.trans_b = right->transposed;
  gemm.batch = n == 3 ? a.shape()[0] : 1;
  gemm.m = a.shape()[n - 2];
  gemm.k = a.shape()[n - 1];
  gemm.n = b.shape()[n - 1];
  gemm.a = record_matrix(a, *left);
  gemm.b = record_matrix(b, *right);
  gemm.c = record_matrix(out, {false, std::max<int64_t>(gemm.n, 1)});
  return record_gemm(gemm);
}

// The real and imaginary parts of a small tensor that has its values, or the one of a real tensor,
// side by side in `to`. How many there are.
template <class T>
int split(const Tensor& t, T* to) {
  const int parts = is_complex(t.dtype()) ? 2 : 1;
  const Shape dense = contiguous_strides(t.shape());
  Shape strides = t.strides();
  for (int64_t& stride : strides) stride *= parts;
  for (int p = 0; p < parts; ++p) {
    copy_small(sizeof(T), t.shape(), static_cast<const T*>(t.data()) + p, strides.data(),
               to + p * t.numel(), dense.data());
  }
  return parts;
}

// The shape of a complex matrix as a real one, whose rows are pairs; of a vector as of a column.
Shape paired(Shape shape, bool is_vector) {
  if (is_vector) {
    shape.push_back(2);
  } else {
    shape.back() *= 2;
  }
  return shape;
}

// Computes what run_complex() does, by the same products and sums, at once: for small operands that
// have their values.
template <class T>
void multiply_parts(const Tensor& a, const Tensor& b, const Tensor& out) {
  const bool b_pairs = is_complex(b.dtype()), is_vector = b.ndim() == 1;
  const int64_t of_a = a.numel(), of_b = (b_pairs ? 2 : 1) * b.numel(), n = out.numel();
  const int64_t of_product = (b_pairs ? 2 : 1) * n;
  const auto room =
      std::make_unique_for_overwrite<T[]>(static_cast<size_t>(2 * of_a + of_b + 2 * of_product));
  T *const x = room.get(), *const y = x + 2 * of_a, *const products = y + of_b;
  const int parts = split(a, x);
  const T* right = static_cast<const T*>(b.data());
  if (!b.is_contiguous()) {
    copy_small(itemsize(b.dtype()), b.shape(), b.data(), b.strides().data(), y,
               contiguous_strides(b.shape()).data());
    right = y;
  }
  const Dtype dtype = part_dtype(out.dtype());
  const Shape b_shape = b_pairs ? paired(b.shape(), is_vector) : b.shape();
  const Shape c_shape = b_pairs ? paired(out.shape(), is_vector) : out.shape();
  const auto product = [&](int part, T* to) {
    const Shape a_strides = contiguous_strides(a.shape()), b_strides = contiguous_strides(b_shape);
    const Shape c_strides = contiguous_strides(c_shape);
    hologram::matmul(
        {x + part * of_a, dtype, a.ndim(), a.shape().data(), a_strides.data()},
        {const_cast<T*>(right), dtype, static_cast<int>(b_shape.size()), b_shape.data(),
         b_strides.data()},
        {to, dtype, static_cast<int>(c_shape.size()), c_shape.data(), c_strides.data()});
  };
  T* const c = static_cast<T*>(out.data());
  if (parts == 1) return product(0, c);
  T *const p = products, *const q = products + of_product;
  product(0, p);
  product(1, q);
  for (int64_t i = 0; i < n; ++i) {
    c[2 * i] = b_pairs ? p[2 * i] - q[2 * i + 1] : p[i];
    c[2 * i + 1] = b_pairs ? p[2 * i + 1] + q[2 * i] : q[i];
  }
}

// A dtype with kernels for products.
bool has_products(Dtype dtype) { return dtype != Dtype::kBool && !is_stored_only(dtype); }

// Small operands that have their values, of one dtype with kernels or of complex numbers and their
// parts, are multiplied at once by what the recorded product runs. False where it is another case.
bool multiply_at_call(const Tensor& a, const Tensor& b, Tensor& out) {
  if (!a.buffer() || !b.buffer() || a.ndim() == 0 || b.ndim() == 0) return false;
  const bool complex = is_complex(a.dtype()) || is_complex(b.dtype());
  const Dtype dtype = is_complex(a.dtype()) ? a.dtype() : b.dtype();
  const auto fits = [&](Dtype d) { return d == dtype || (complex && d == part_dtype(dtype)); };
  if (!fits(a.dtype()) || !fits(b.dtype()) || !has_products(dtype) ||
      &device_of(a) != &device_of(b) || !is_at_hand(a) || !is_at_hand(b)) {
    return false;
  }
  Shape shape = product_shape(a, b);
  const int64_t numel = shape_numel(shape);
  const int64_t bytes = numel * static_cast<int64_t>(itemsize(dtype));
  if (numel == 0 || a.shape().back() == 0 || !is_immediate(bytes)) return false;
  out = with_memory(std::move(shape), numel, dtype, device_of(a));
  if (!complex) {
    hologram::matmul(a.view(), b.view(), out.view());
  } else if (dtype == Dtype::kComplex64) {
    multiply_parts<float>(a, b, out);
  } else {
    multiply_parts<double>(a, b, out);
  }
  note_small("matmul", out);
  return true;
}

void run(const Tensor& a, const Tensor& b, const Tensor& out);

// The real or the imaginary parts, where they lie.
Tensor part_of(const Tensor& t, int64_t part) { return as_pairs(t).select(t.ndim(), part); }

// A product of real matrices for each part of `a`, with b as a real matrix whose rows are pairs as
// they lie: (a + bi)(c + di) = (ac - bd) + (ad + bc)i. Where one operand is real there is nothing
// to add.
void run_complex(const Tensor& a, const Tensor& b, const Tensor& out) {
  const Dtype part = part_dtype(out.dtype());
  const bool b_pairs = is_complex(b.dtype());
  const Tensor y =
      b_pairs ? as_pairs(contiguous(cast(b, out.dtype()))).reshape(paired(b.shape(), b.ndim() == 1))
              : cast(b, part);
  const auto product = [&](const Tensor& x) {
    Tensor result = fresh(product_shape(x, y), part, device_of(out));
    run(x, y, result);
    return b_pairs ? result.reshape(as_pairs(out).shape()) : result;
  };
  if (!is_complex(a.dtype())) return copy_into(product(cast(a, part)), as_pairs(out));
  const Tensor wide = cast(a, out.dtype());
  const Tensor p = product(contiguous(part_of(wide, 0)));
  const Tensor q = product(contiguous(part_of(wide, 1)));
  const Tensor real = part_of(out, 0), imaginary = part_of(out, 1);
  if (!b_pairs) {
    copy_into(p, real);
    copy_into(q, imaginary);
    return;
  }
  const auto part_at = [](const Tensor& pairs, int64_t which) {
    return pairs.select(pairs.ndim() - 1, which);
  };
  apply_into(OpId::sub, {part_at(p, 0), part_at(q, 1)}, real);
  apply_into(OpId::add, {part_at(p, 1), part_at(q, 0)}, imaginary);
}

void run(const Tensor& a, const Tensor& b, const Tensor& out) {
  if (out.numel() == 0) return;
  if (a.shape().back() == 0) return fill_into(Scalar(int64_t{0}), out);
  if (is_complex(out.dtype())) return run_complex(a, b, out);
  // Sums and products have the same bits, whatever the sign.
  if (is_stored_only(out.dtype())) return run(carrier(a), carrier(b), carrier(out));
  const bool records =
      is_recording(device_of(out)) && !(is_free(out) && is_at_hand(a) && is_at_hand(b));
  if (records && record_product(a, b, out)) return;
  record(calls::Matmul<Arg>{.a = a, .b = b, .out = out});
}

}  // namespace
}  // namespace array

void matmul_into(const Tensor& a, const Tensor& b, const Tensor& out) {
  array::check_result("matmul", out);
  array::device_of("matmul", a, b);
  array::device_of("matmul", a, out);
  const Shape shape = array::product_shape(a, b);
  if (shape != out.shape()) {
    fail(ErrorKind::kInvalidArgument, "matmul: the result has shape ", shape_text(shape),
         ", out has ", shape_text(out.shape()));
  }
  const Dtype dtype = out.dtype();
  if (a.dtype() != dtype || b.dtype() != dtype || dtype == Dtype::kBool) {
    fail(ErrorKind::kTypeMismatch,
         "matmul: operands and out have to be of one dtype, not bool, got ", dtype_name(a.dtype()),
         ", ", dtype_name(b.dtype()), " and ", dtype_name(dtype));
  }
  if (array::may_overlap(out, a) || array::may_overlap(out, b)) {
    const Tensor apart = array::fresh(shape, dtype, array::device_of(out));
    array::run(a, b, apart);
    return copy_into(apart, out);
  }
  array::run(a, b, out);
}

bool dot_at_call(const Tensor& a, const Tensor& b, void* product) {
  const Dtype dtype = a.dtype();
  const auto size = static_cast<int64_t>(itemsize(dtype));
  if (a.ndim() != 1 || b.ndim() != 1 || a.numel() != b.numel() || a.numel() == 0 ||
      dtype != b.dtype() || is_complex(dtype) || !array::has_products(dtype) || !a.buffer() ||
      !b.buffer() || &array::device_of(a) != &array::device_of(b) ||
      !array::is_at_hand_for(a, size) || !array::is_at_hand_for(b, size)) {
    return false;
  }
  hologram::matmul(a.view(), b.view(), {product, dtype, 0, nullptr, nullptr});
  array::note_small("matmul", a);
  return true;
}

Tensor matmul(const Tensor& a, const Tensor& b, Rules rules) {
  if (alignas(8) char product[8]; dot_at_call(a, b, product)) {
    const Tensor out = array::with_memory({}, 1, a.dtype(), array::device_of(a));
    std::memcpy(out.data(), product, itemsize(a.dtype()));
    return out;
  }
  if (Tensor out; array::multiply_at_call(a, b, out)) return out;
  Device& device = array::device_of("matmul", a, b);
  Shape shape = array::product_shape(a, b);
  const Dtype dtype = array::promote_by(rules, a.dtype(), b.dtype());
  if (dtype == Dtype::kBool) {
    if (rules == Rules::torch) {
      fail(ErrorKind::kTypeMismatch, "matmul: is not defined for bool; cast the operands");
    }
    // Whether any of the products is true.
    return cast(matmul(cast(a, Dtype::kInt32), cast(b, Dtype::kInt32), rules), Dtype::kBool);
  }
  Tensor out = array::fresh(std::move(shape), dtype, device);
  if (is_complex(dtype)) {
    // A real operand stays so.
    array::run(a, b, out);
  } else {
    array::run(cast(a, dtype), cast(b, dtype), out);
  }
  return out;
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor* bias) {
  array::check_defined("linear", weight);
  array::check_defined("linear", x);
  if (weight.ndim() != 2) {
    fail(ErrorKind::kInvalidArgument, "linear: weight has to have two dimensions (out, in), got ",
         shape_text(weight.shape()));
  }
  if (x.ndim() == 0 || x.shape().back() != weight.shape()[1]) {
    fail(ErrorKind::kInvalidArgument, "linear: x has shape ", shape_text(x.shape()),
         ", whose last size has to be that of weight, ", weight.shape()[1]);
  }
  const Tensor turned = weight.transpose(0, 1);
  Tensor y;
  if (x.ndim() > 2 && x.is_contiguous() && x.numel() != 0) {
    Shape shape = x.shape();
    shape.back() = weight.shape()[0];
    y = matmul(x.reshape({-1, x.shape().back()}), turned).reshape(std::move(shape));
  } else {
    y = matmul(x, turned);
  }
  return bias != nullptr ? add(y, *bias) : y;
}

}  // namespace hologram
