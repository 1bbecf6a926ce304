// SPDX-License-Identifier: MIT
// The backward pass of attention: probabilities are computed again from the logsumexp.
#include <algorithm>

#include "src/cpu/attention/attention_work.h"

namespace hologram::cpu {
namespace {

// Two blocks of scores and two packed blocks of keys and values stay in L2.
constexpr int64_t kBackwardKeys = 256;
constexpr int64_t kBackwardQueries = 128;
// Blocks that the diagonal crosses are computed in squares of this side.
constexpr int64_t kSquare = 32;

template <class T>
struct Backward : AttentionWork<T> {
  using AttentionWork<T>::args;
  using AttentionWork<T>::product;
  using AttentionWork<T>::rows;
  const Heads<const T> grads, outputs, logsumexp;
  const Heads<T> grad_q, grad_k, grad_v;

  Backward(const calls::AttentionBackward<>& call, CallThreads threads)
      : AttentionWork<T>(call, threads),
        grads(call.grad),
        outputs(call.output),
        logsumexp(call.logsumexp),
        grad_q(call.grad_query),
        grad_k(call.grad_key),
        grad_v(call.grad_value) {}

  // Each gradient adds up in one order: over key blocks for queries; over the heads that share a
  // key and query blocks for keys. So the tasks are whole heads of keys, or, where those are too
  // few for the threads, blocks of keys and then blocks of queries, with the scores computed twice.
  void run() const {
    const int64_t heads = args.batch * args.kv_heads;
    const int threads = this->threads(args.batch * args.heads);
    const int64_t key_blocks = ceil_div(args.keys, kBackwardKeys);
    const int64_t query_blocks = ceil_div(args.queries, kBackwardQueries);
    if (heads >= threads || std::min(key_blocks, query_blocks) < 2) {
      parallel_for(heads, threads, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          head({i / args.kv_heads, i % args.kv_heads, 0, args.queries, 0, args.keys, true, true});
        }
      });
      return;
    }
    parallel_for(heads * key_blocks, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t i = task / key_blocks, j = task % key_blocks * kBackwardKeys;
        head({i / args.kv_heads, i % args.kv_heads, 0, args.queries, j,
              std::min(args.keys, j + kBackwardKeys), false, true});
      }
    });
    parallel_for(heads * query_blocks, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t task = begin; task < end; ++task) {
        // The last queries see the most keys, so they come first.
        const int64_t i = task / query_blocks;
        const int64_t q = (query_blocks - 1 - task % query_blocks) * kBackwardQueries;
        head({i / args.kv_heads, i % args.kv_heads, q, std::min(args.queries, q + kBackwardQueries),
              0, args.keys, true, false});
      }
    });
  }

  // The queries and keys to go through, of one batch and one head of keys, and which gradients they
  // give.
  struct Range {
    int64_t batch, kv;
    int64_t query_begin, query_end, key_begin, key_end;
    bool for_queries, for_keys;
  };

  // Memory for one block of queries by keys.
  struct Space {
    int64_t ld;
    T *scores, *gradients;  // of probabilities
    T *keys, *values;       // packed
    T *key_tail, *query_tail, *grad_tail;
    T *dots, *logsumexp;
  };

  void head(const Range& range) const {
    const int64_t keys = std::min(kBackwardKeys, args.keys),
                  tall = std::min(kBackwardQueries, args.queries);
    const int64_t ld = this->score_ld(keys), cols = product.cols;
    const int64_t of_keys = packed_size(product, args.dim, keys);
    const int64_t of_values = packed_size(product, args.value_dim, keys);
    Carver<T> scratch(2 * tall * ld + of_keys + of_values + (keys + 2 * tall) * cols +
                      2 * round_up(tall));
    Space space;
    space.ld = ld;
    space.scores = scratch.take(tall * ld);
    space.gradients = scratch.take(tall * ld);
    space.keys = scratch.take(of_keys);
    space.values = scratch.take(of_values);
    space.key_tail = scratch.take(keys * cols);
    space.query_tail = scratch.take(tall * cols);
    space.grad_tail = scratch.take(tall * cols);
    space.dots = scratch.take(round_up(tall));
    space.logsumexp = scratch.take(round_up(tall));

    const int64_t shared = args.heads / args.kv_heads, b = range.batch, kv = range.kv;
    if (range.for_queries) {
      for (int64_t h = kv * shared; h < (kv + 1) * shared; ++h) {
        clear_rows(grad_q.at(b, h) + range.query_begin * grad_q.row, grad_q.row,
                   range.query_end - range.query_begin, args.dim);
      }
    }
    for (int64_t j = range.key_begin; j < range.key_end; j += kBackwardKeys) {
      const int64_t n = std::min(kBackwardKeys, range.key_end - j);
      if (range.for_keys) {
        clear_rows(grad_key(b, kv, j), grad_k.row, n, args.dim);
        clear_rows(grad_value(b, kv, j), grad_v.row, n, args.value_dim);
      }
      const T* const k = args.k.at(b, kv) + j * args.k.row;
      const T* const v = args.v.at(b, kv) + j * args.v.row;
      const auto key = pack_transposed(product, k, args.k.row, args.dim, n, space.keys);
      const auto value = pack_transposed(product, v, args.v.row, args.value_dim, n, space.values);
      const auto key_rows = in_place(product, k, args.k.row, n, args.dim, space.key_tail);
      for (int64_t h = kv * shared; h < (kv + 1) * shared; ++h) {
        // Blocks of queries begin where they do in a whole head: so do their sums.
        for (int64_t i = range.query_begin; i < range.query_end; i += kBackwardQueries) {
          const int64_t m = std::min(kBackwardQueries, range.query_end - i);
          if (args.causal && i + m <= j) continue;
          block(range, space, h, i, m, j, n, key, value, key_rows);
        }
      }
    }
  }

  T* grad_key(int64_t b, int64_t kv, int64_t j) const { return grad_k.at(b, kv) + j * grad_k.row; }
  T* grad_value(int64_t b, int64_t kv, int64_t j) const {
    return grad_v.at(b, kv) + j * grad_v.row;
  }

  // m queries of head h from i on, n keys from j on.
  void block(const Range& range, const Space& s, int64_t h, int64_t i, int64_t m, int64_t j,
             int64_t n, const RightOperand<T>& key, const RightOperand<T>& value,
             const RightOperand<T>& key_rows) const {
    const int64_t b = range.batch, ld = s.ld, dim = args.dim, value_dim = args.value_dim;
    const T* const q = args.q.at(b, h) + i * args.q.row;
    const T* const grad = grads.at(b, h) + i * grads.row;
    const T* const out = outputs.at(b, h) + i * outputs.row;
    const T* const sums = logsumexp.at(b, h) + i * logsumexp.row;
    for (int64_t r = 0; r < m; ++r) s.logsumexp[r] = sums[r * logsumexp.row];
    rows.dots(grad, grads.row, out, outputs.row, m, value_dim, s.dots);

    const T scale = static_cast<T>(args.scale);
    const bool diagonal = args.causal && j + n > i;
    const int64_t height = diagonal ? kSquare : m;
    for (int64_t r = 0; r < m; r += height) {
      const int64_t tall = std::min(height, m - r);
      const int64_t cols = args.causal ? std::min(n, i + r + tall - j) : n;
      if (cols <= 0) continue;
      T* const scores = s.scores + r * ld;
      T* const gradients = s.gradients + r * ld;
      multiply(product, tall, cols, dim, q + r * args.q.row, args.q.row, int64_t{1}, key, scores,
               ld, scale, T(0));
      multiply(product, tall, cols, value_dim, grad + r * grads.row, grads.row, int64_t{1}, value,
               gradients, ld, T(1), T(0));
      rows.gradient(this->scores_of(scores, ld, b, h, i + r, tall, j, cols), gradients,
                    s.logsumexp + r, s.dots + r, scale);
      if (range.for_queries) {
        multiply(product, tall, dim, cols, static_cast<const T*>(gradients), ld, int64_t{1},
                 key_rows, grad_q.at(b, h) + (i + r) * grad_q.row, grad_q.row, T(1), T(1));
      }
    }
    if (!range.for_keys) return;
    const auto query_rows = in_place(product, q, args.q.row, m, dim, s.query_tail);
    const auto grad_rows = in_place(product, grad, grads.row, m, value_dim, s.grad_tail);
    const int64_t width = diagonal ? kSquare : n;
    for (int64_t c = 0; c < n; c += width) {
      // The rows before are computed for fewer columns than these.
      const int64_t first = diagonal ? std::max<int64_t>(0, j + c - i) / kSquare * kSquare : 0;
      if (first >= m) break;
      const int64_t seen = args.causal ? i + m - (j + c) : n;
      const int64_t wide = std::min({width, n - c, seen}), from = first * ld + c;
      multiply(product, wide, value_dim, m - first, static_cast<const T*>(s.scores + from),
               int64_t{1}, ld, grad_rows.from_row(first, product.cols),
               grad_value(b, range.kv, j + c), grad_v.row, T(1), T(1));
      multiply(product, wide, dim, m - first, static_cast<const T*>(s.gradients + from), int64_t{1},
               ld, query_rows.from_row(first, product.cols), grad_key(b, range.kv, j + c),
               grad_k.row, T(1), T(1));
    }
  }
};

template <class T>
void backward(const calls::AttentionBackward<>& call, CallThreads threads) {
  const Backward<T> work(call, threads);
  const AttentionArgs<T>& args = work.args;
  if (args.batch * (args.heads * args.queries + args.kv_heads * args.keys) > 0) work.run();
}

}  // namespace

void run(const calls::AttentionBackward<>& call, CallThreads threads) {
  (call.query.dtype == Dtype::kFloat32 ? backward<float> : backward<double>)(call, threads);
}

}  // namespace hologram::cpu
