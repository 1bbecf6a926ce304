// SPDX-License-Identifier: MIT
// Products of strided views: finds the matrices, the transposes and the batches a GEMM can take as
// they lie.
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "src/base/text.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/gemm/gemm_provider.h"
#include "src/cpu/reduce/reduce_plan.h"

namespace hologram {
namespace cpu {
namespace {

[[noreturn]] void fail_shapes(const View& a, const View& b, const View& out) {
  fail(ErrorKind::kInvalidArgument, "matmul: shapes ", shape_text(a), " and ", shape_text(b),
       " do not give ", shape_text(out),
       "; the last size of the first must equal the last but one of the second, the sizes before "
       "must broadcast");
}

// An operand with the batch dimensions of out and two more.
struct BatchedMatrix {
  char* data;
  int64_t batch[kMaxNest];  // strides, 0 where broadcast
  int64_t rows, cols;
  int64_t row, col;  // strides
};

// Dense copies of operands no GEMM can take.
struct Owned {
  std::unique_ptr<char[]> bytes;
  char* allocate(int64_t n) {
    bytes.reset(new (std::nothrow) char[static_cast<size_t>(std::max<int64_t>(n, 1))]);
    if (bytes == nullptr) fail(ErrorKind::kOutOfMemory, "matmul needs ", n, " bytes of scratch");
    return bytes.get();
  }
};

// Whether rows or columns are contiguous and far enough apart.
bool row_major(int64_t rows, int64_t cols, int64_t row, int64_t col) {
  return (col == 1 || cols == 1) && (row >= std::max<int64_t>(1, cols) || rows == 1);
}

struct Product {
  const View* a;
  const View* b;
  const View* out;
  bool a_vector, b_vector;
  int batch_dims;
  int64_t m, n, k;

  Product(const View& a_view, const View& b_view, const View& out_view)
      : a(&a_view),
        b(&b_view),
        out(&out_view),
        a_vector(a_view.ndim == 1),
        b_vector(b_view.ndim == 1) {
    if (a->ndim < 1 || b->ndim < 1) {
      fail(ErrorKind::kInvalidArgument, "matmul: both operands need at least one dimension");
    }
    if (a->dtype != b->dtype || a->dtype != out->dtype) {
      fail(ErrorKind::kTypeMismatch, "matmul: dtypes differ: ", dtype_name(a->dtype), ", ",
           dtype_name(b->dtype), " into ", dtype_name(out->dtype), "; convert them to one");
    }
    batch_dims = std::max({a->ndim - 2, b->ndim - 2, 0});
    if (batch_dims + 2 > kMaxNest) fail(ErrorKind::kInvalidArgument, "matmul: too many dimensions");
    k = a->shape[a->ndim - 1];
    m = a_vector ? 1 : a->shape[a->ndim - 2];
    n = b_vector ? 1 : b->shape[b->ndim - 1];
    bool fits = k == b->shape[b_vector ? 0 : b->ndim - 2] &&
                out->ndim == batch_dims + !a_vector + !b_vector;
    if (fits && !a_vector) fits = out->shape[batch_dims] == m;
    if (fits && !b_vector) fits = out->shape[out->ndim - 1] == n;
    for (int i = 0; fits && i < batch_dims; ++i) {
      fits = out->shape[i] == std::max(batch_size(*a, i), batch_size(*b, i)) ||
             (out->shape[i] == 0 && std::min(batch_size(*a, i), batch_size(*b, i)) == 0);
      for (const View* v : {a, b})
        fits &= batch_size(*v, i) == 1 || batch_size(*v, i) == out->shape[i];
    }
    if (!fits) fail_shapes(*a, *b, *out);
  }

  // Size of batch dimension i of out in an operand.
  int64_t batch_size(const View& v, int i) const {
    const int at = i - (batch_dims - (v.ndim - 2));
    return at < 0 || v.ndim < 2 ? 1 : v.shape[at];
  }
  void batch_strides(const View& v, int64_t* strides) const {
    for (int i = 0; i < batch_dims; ++i) {
      const int at = i - (batch_dims - (v.ndim - 2));
      strides[i] = at < 0 || v.ndim < 2 || v.shape[at] == 1 ? 0 : v.strides[at];
    }
  }

  BatchedMatrix operand_a() const {
    BatchedMatrix o{static_cast<char*>(a->data), {}, m, k, a_vector ? k : a->strides[a->ndim - 2],
                    a->strides[a->ndim - 1]};
    batch_strides(*a, o.batch);
    return o;
  }
  BatchedMatrix operand_b() const {
    BatchedMatrix o{
        static_cast<char*>(b->data),           {}, k, n, b->strides[b_vector ? 0 : b->ndim - 2],
        b_vector ? 1 : b->strides[b->ndim - 1]};
    batch_strides(*b, o.batch);
    return o;
  }
  BatchedMatrix operand_out() const {
    BatchedMatrix o{static_cast<char*>(out->data),
                    {},
                    m,
                    n,
                    a_vector ? n : out->strides[batch_dims],
                    b_vector ? 1 : out->strides[out->ndim - 1]};
    for (int i = 0; i < batch_dims; ++i) o.batch[i] = out->strides[i];
    return o;
  }
  // Sizes of an operand's own batches: broadcast ones count once.
  void own_shape(const BatchedMatrix& o, int64_t* shape) const {
    for (int i = 0; i < batch_dims; ++i) shape[i] = o.batch[i] == 0 ? 1 : out->shape[i];
    shape[batch_dims] = o.rows;
    shape[batch_dims + 1] = o.cols;
  }
};

View view_of(const BatchedMatrix& o, int batch_dims, const int64_t* shape, int64_t* strides,
             Dtype dtype) {
  std::copy_n(o.batch, batch_dims, strides);
  strides[batch_dims] = o.row;
  strides[batch_dims + 1] = o.col;
  return {o.data, dtype, batch_dims + 2, shape, strides};
}

// Points the operand at a dense row-major copy (of undefined contents unless `filled`).
void make_dense(const Product& p, BatchedMatrix& o, Owned& owned, bool filled, int max_threads) {
  int64_t shape[kMaxNest], strides[kMaxNest], dense[kMaxNest];
  p.own_shape(o, shape);
  int64_t count = 1;
  for (int i = p.batch_dims + 1; i >= 0; --i) {
    dense[i] = count;
    count *= shape[i];
  }
  const Dtype dtype = p.a->dtype;
  const View from = view_of(o, p.batch_dims, shape, strides, dtype);
  char* data = owned.allocate(count * static_cast<int64_t>(itemsize(dtype)));
  if (filled) copy(from, {data, dtype, p.batch_dims + 2, shape, dense}, max_threads);
  o.data = data;
  for (int i = 0; i < p.batch_dims; ++i) o.batch[i] = shape[i] == 1 ? 0 : dense[i];
  o.row = dense[p.batch_dims];
  o.col = 1;
}

void transpose(BatchedMatrix& o) {
  std::swap(o.rows, o.cols);
  std::swap(o.row, o.col);
}

void run_product(const Product& p, double alpha, double beta, int max_threads) {
  const Dtype dtype = p.a->dtype;
  const int64_t size = static_cast<int64_t>(itemsize(dtype));
  BatchedMatrix a = p.operand_a(), b = p.operand_b(), c = p.operand_out();
  Owned own_a, own_b, own_c;
  bool copied = false;
  if (!row_major(c.rows, c.cols, c.row, c.col)) {
    if (row_major(c.cols, c.rows, c.col, c.row)) {
      // C transposed is B transposed times A transposed.
      transpose(a), transpose(b), transpose(c);
      std::swap(a, b);
    } else {
      make_dense(p, c, own_c, beta != 0, max_threads);
      copied = true;
    }
  }
  GemmArgs g;
  const auto settle = [&](BatchedMatrix& o, Owned& owned, bool& trans, int64_t& ld) {
    trans = false;
    if (!row_major(o.rows, o.cols, o.row, o.col)) {
      trans = row_major(o.cols, o.rows, o.col, o.row);
      if (!trans) make_dense(p, o, owned, true, max_threads);
    }
    ld = trans ? (o.cols == 1 ? o.rows : o.col) : (o.rows == 1 ? o.cols : o.row);
    ld = std::max<int64_t>(ld, 1);
  };
  settle(a, own_a, g.trans_a, g.lda);
  settle(b, own_b, g.trans_b, g.ldb);
  g.dtype = dtype;
  g.n = c.cols, g.k = a.cols;
  g.alpha = alpha, g.beta = beta;
  g.max_threads = max_threads;

  // Batches, and the rows of A as the last of them: what merges into the rows is one taller
  // product.
  Nest nest;
  for (int i = 0; i < p.batch_dims; ++i) {
    if (p.out->shape[i] != 1) nest.push(p.out->shape[i], a.batch[i], b.batch[i], c.batch[i]);
  }
  g.ldc = std::max<int64_t>(1, c.rows == 1 ? c.cols : c.row);
  if (g.trans_a) {
    // Rows of a transposed A lie one element apart and cannot continue into the next batch.
    nest.merge();
    nest.push(c.rows, 1, 0, g.ldc);
  } else {
    nest.push(c.rows, g.lda, 0, g.ldc);
    nest.merge();
  }
  const int last = nest.ndim - 1;
  g.m = nest.size[last];
  if (g.m != c.rows) {
    g.lda = nest.stride[0][last];
    g.ldc = nest.stride[2][last];
  }
  nest.ndim = last;

  const int inner = nest.ndim - 1;
  const int64_t batch = inner >= 0 ? nest.size[inner] : 1;
  const int64_t outer = batch > 0 ? nest.count() / batch : 0;
  BatchStrides strides;
  if (inner >= 0) strides = {nest.stride[0][inner], nest.stride[1][inner], nest.stride[2][inner]};
  for (int64_t o = 0; o < outer; ++o) {
    const int64_t index = o * batch;
    const auto place = [&](int64_t i) {
      g.a = a.data + nest.offset(i, 0) * size;
      g.b = b.data + nest.offset(i, 1) * size;
      g.c = c.data + nest.offset(i, 2) * size;
    };
    place(index);
    if (g.m == 0 || g.n == 0) break;
    if (prepare(g)) {
      run_products(provider_for(g, batch), g, batch, strides);
      continue;
    }
    for (int64_t i = 1; i < batch; ++i) {  // k is zero
      place(index + i);
      prepare(g);
    }
  }
  if (copied) {
    int64_t shape[kMaxNest], from_strides[kMaxNest], to_strides[kMaxNest];
    const BatchedMatrix target = p.operand_out();
    p.own_shape(c, shape);
    for (int i = 0; i < p.batch_dims; ++i) shape[i] = p.out->shape[i];
    copy(view_of(c, p.batch_dims, shape, from_strides, dtype),
         view_of(target, p.batch_dims, shape, to_strides, dtype), max_threads);
  }
}

// The product of two vectors whose steps GEMM takes, as run_product() would call it: what that sets
// up takes longer than a short dot product. False for others.
bool run_dot(const View& a, const View& b, const View& out, int max_threads) {
  if (a.ndim != 1 || b.ndim != 1 || out.ndim != 0 || a.dtype != b.dtype || a.dtype != out.dtype ||
      a.shape[0] != b.shape[0]) {
    return false;
  }
  GemmArgs g;
  g.dtype = a.dtype;
  g.m = g.n = 1, g.k = a.shape[0];
  if (g.k < 2 || a.strides[0] < 1 || b.strides[0] < 1) return false;
  g.trans_a = a.strides[0] != 1;
  g.lda = g.trans_a ? a.strides[0] : g.k;
  g.ldb = b.strides[0];
  g.ldc = 1;
  g.a = a.data, g.b = b.data, g.c = out.data;
  g.max_threads = max_threads;
  if (prepare(g)) run_products(provider_for(g), g);
  return true;
}

bool same_place(const View& a, const View& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.ndim != b.ndim) return false;
  for (int i = 0; i < a.ndim; ++i) {
    if (a.shape[i] != b.shape[i] || (a.shape[i] > 1 && a.strides[i] != b.strides[i])) return false;
  }
  return true;
}

}  // namespace
}  // namespace cpu

void matmul(const View& a, const View& b, const View& out, double alpha, double beta,
            int max_threads) {
  if (alpha == 1 && beta == 0 && cpu::run_dot(a, b, out, max_threads)) return;
  const cpu::Product product(a, b, out);
  cpu::provider_for(a.dtype);
  if (out.numel() == 0) return;
  cpu::run_product(product, alpha, beta, max_threads);
}

void addmm(const View& input, const View& a, const View& b, const View& out, double alpha,
           double beta, int max_threads) {
  const cpu::Product product(a, b, out);
  cpu::provider_for(a.dtype);
  if (out.numel() == 0) return;
  if (beta != 0 && !cpu::same_place(input, out)) copy(input, out, max_threads);
  cpu::run_product(product, alpha, beta, max_threads);
}

void cpu::run(const calls::Matmul<>& call, CallThreads threads) {
  hologram::matmul(call.a, call.b, call.out, 1.0, 0.0, threads.most());
}

}  // namespace hologram
