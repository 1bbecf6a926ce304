// SPDX-License-Identifier: MIT
// Attention by blocks of queries and keys: the checks, and the forward pass.
#include "src/cpu/attention/attention.h"

#include <algorithm>

#include "hologram/error.h"
#include "src/cpu/attention/attention_work.h"

namespace hologram {
namespace cpu {
namespace {

// Keys whose scores are kept at once, and queries between which a key is in L1.
constexpr int64_t kKeyBlock = 512;
constexpr int64_t kQueryBlock = 64;
// With a causal mask smaller blocks compute fewer scores that are not used.
constexpr int64_t kCausalQueryBlock = 32;
// Queries of a task at most.
constexpr int64_t kMostQueries = 4096;
// At most this many queries read keys in place: packing pays only where a key is used often.
constexpr int64_t kFewQueries = 4;

template <class T>
struct AttentionForward : AttentionWork<T> {
  using AttentionWork<T>::args;
  using AttentionWork<T>::product;
  using AttentionWork<T>::rows;
  const AttentionOutput& to;

  AttentionForward(const AttentionArgs& a, const AttentionOutput& output)
      : AttentionWork<T>(a), to(output) {}

  void run() const {
    const int64_t heads = args.batch * args.heads;
    const int threads = this->threads(heads);
    // Queries are shared out where heads are too few.
    int64_t parts = ceil_div(args.queries, kMostQueries);
    if (threads > 1 && heads < 4 * threads) {
      parts = std::max(parts,
                       std::min(ceil_div(args.queries, kQueryBlock), ceil_div(4 * threads, heads)));
    }
    parallel_for(heads * parts, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t task = begin; task < end; ++task) {
        // The last queries see the most keys, so they come first.
        const int64_t part = parts - 1 - task % parts, head = task / parts;
        queries(head / args.heads, head % args.heads, args.queries * part / parts,
                args.queries * (part + 1) / parts);
      }
    });
  }

  void queries(int64_t b, int64_t h, int64_t begin, int64_t end) const {
    const int64_t keys = args.causal ? std::min(args.keys, end) : args.keys;
    const int64_t block = std::min(keys, kKeyBlock), ld = this->score_ld(block);
    const int64_t height = args.causal ? kCausalQueryBlock : kQueryBlock;
    const bool few = args.queries <= kFewQueries;
    const int64_t packed = few ? 0 : packed_size(product, args.dim, block);
    Carver<T> scratch(height * ld + packed + block * product.cols + 3 * round_up(end - begin));
    T* const scores = scratch.take(height * ld);
    T* const keys_at = scratch.take(packed);
    T* const tail_at = scratch.take(block * product.cols);
    T* const max = scratch.take(round_up(end - begin));
    T* const sum = scratch.take(round_up(end - begin));
    T* const factor = scratch.take(round_up(end - begin));

    const int64_t kv = h / (args.heads / args.kv_heads);
    const T* const q = at<const T>(args.q, args.q_strides, b, h);
    T* const out = at<T>(to.out, to.out_strides, b, h);
    const T scale = static_cast<T>(args.scale);
    for (int64_t j = 0; j < keys; j += block) {
      const int64_t n = std::min(block, keys - j);
      const T* const k = at<const T>(args.k, args.k_strides, b, kv) + j * args.k_strides.row;
      const T* const v = at<const T>(args.v, args.v_strides, b, kv) + j * args.v_strides.row;
      RightOperand<T> key;
      if (!few) key = pack_transposed(product, k, args.k_strides.row, args.dim, n, keys_at);
      const RightOperand<T> value =
          in_place(product, v, args.v_strides.row, n, args.value_dim, tail_at);
      for (int64_t i = begin; i < end; i += height) {
        const int64_t m = std::min(height, end - i);
        const int64_t cols = args.causal ? std::min(n, i + m - j) : n;
        if (cols <= 0) continue;
        const T* const query = q + i * args.q_strides.row;
        if (few) {
          product.dots({cols, m, args.dim, k, args.k_strides.row, query, args.q_strides.row, scores,
                        1, ld, scale, T(0)});
        } else {
          multiply(product, m, cols, args.dim, query, args.q_strides.row, int64_t{1}, key, scores,
                   ld, scale, T(0));
        }
        const int64_t row = i - begin;
        rows.softmax(this->scores_of(scores, ld, b, h, i, m, j, cols), j == 0, max + row, sum + row,
                     factor + row);
        T* const result = out + i * to.out_strides.row;
        if (j > 0) rows.shrink(result, to.out_strides.row, m, args.value_dim, factor + row);
        multiply(product, m, args.value_dim, cols, scores, ld, int64_t{1}, value, result,
                 to.out_strides.row, T(1), j > 0 ? T(1) : T(0));
      }
    }
    rows.finish(out + begin * to.out_strides.row, to.out_strides.row, end - begin, args.value_dim,
                max, sum,
                at<T>(to.logsumexp, to.logsumexp_strides, b, h) + begin * to.logsumexp_strides.row,
                to.logsumexp_strides.row);
  }
};

void check(const AttentionArgs& a, bool has_operands) {
  if (a.dtype != Dtype::kFloat32 && a.dtype != Dtype::kFloat64) {
    fail(ErrorKind::kNotSupported, "attention is for float32 and float64, not ",
         dtype_name(a.dtype));
  }
  if (std::min({a.batch, a.heads, a.kv_heads, a.queries, a.keys, a.dim, a.value_dim}) < 0) {
    fail(ErrorKind::kInvalidArgument, "attention: a size is negative: batch ", a.batch, ", heads ",
         a.heads, " and ", a.kv_heads, ", queries ", a.queries, ", keys ", a.keys, ", dims ", a.dim,
         " and ", a.value_dim);
  }
  if (a.heads > 0 && (a.kv_heads == 0 || a.heads % a.kv_heads != 0)) {
    fail(ErrorKind::kInvalidArgument, "attention: ", a.heads, " query heads cannot share ",
         a.kv_heads, " key heads evenly");
  }
  if (a.mask_col != 0 && a.mask_col != 1) {
    fail(ErrorKind::kInvalidArgument, "attention: mask_col is ", a.mask_col,
         "; the elements of a row of the mask must be contiguous or one element");
  }
  const int64_t heads = a.batch * a.heads;
  if (!has_operands || (a.q == nullptr && heads * a.queries * a.dim > 0) ||
      (a.k == nullptr && heads * a.keys * a.dim > 0) ||
      (a.v == nullptr && heads * a.keys * a.value_dim > 0)) {
    fail(ErrorKind::kInvalidArgument, "attention: an operand that has elements is null");
  }
}

// Without keys there is nothing to add up.
template <class T>
void clear_output(const AttentionArgs& a, const AttentionOutput& to) {
  for (int64_t b = 0; b < a.batch; ++b) {
    for (int64_t h = 0; h < a.heads; ++h) {
      clear_rows(at<T>(to.out, to.out_strides, b, h), to.out_strides.row, a.queries, a.value_dim);
      clear_rows(at<T>(to.logsumexp, to.logsumexp_strides, b, h), to.logsumexp_strides.row,
                 a.queries, 1);
    }
  }
}

template <class T>
void forward(const AttentionArgs& args, const AttentionOutput& output) {
  if (args.keys == 0) return clear_output<T>(args, output);
  AttentionForward<T>(args, output).run();
}

}  // namespace

bool check_attention(const AttentionArgs& args, const AttentionOutput& output) {
  const int64_t rows = args.batch * args.heads * args.queries;
  check(args, rows <= 0 ||
                  (output.logsumexp != nullptr && (output.out != nullptr || args.value_dim == 0)));
  return rows > 0;
}

}  // namespace cpu

void attention(const AttentionArgs& args, const AttentionOutput& output) {
  if (!cpu::check_attention(args, output)) return;
  if (args.dtype == Dtype::kFloat32) {
    cpu::forward<float>(args, output);
  } else {
    cpu::forward<double>(args, output);
  }
}

}  // namespace hologram
