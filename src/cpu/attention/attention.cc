// SPDX-License-Identifier: MIT
// Attention by blocks of queries and keys: the checks, and the forward pass.

#include <algorithm>

#include "src/cpu/attention/attention_work.h"

namespace hologram::cpu {
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
  const Heads<T> result, logsumexp;

  AttentionForward(const calls::Attention<>& call, CallThreads threads)
      : AttentionWork<T>(call, threads), result(call.out), logsumexp(call.logsumexp) {}

  void run() const {
    const int64_t heads = args.batch * args.heads;
    const int threads = this->threads(heads);
    // Queries are shared out where heads are too few, in whole blocks: the zeros that a block adds
    // for keys which a row does not see must not depend on threads.
    const int64_t blocks = ceil_div(args.queries, query_block());
    int64_t parts = ceil_div(args.queries, kMostQueries);
    if (threads > 1 && heads < 4 * threads) {
      parts = std::max(parts,
                       std::min(ceil_div(args.queries, kQueryBlock), ceil_div(4 * threads, heads)));
    }
    parallel_for(heads * parts, threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t task = begin; task < end; ++task) {
        // The last queries see the most keys, so they come first.
        const int64_t part = parts - 1 - task % parts, head = task / parts;
        const auto first = [&](int64_t i) {
          return std::min(args.queries, blocks * i / parts * query_block());
        };
        queries(head / args.heads, head % args.heads, first(part), first(part + 1));
      }
    });
  }

  int64_t query_block() const { return args.causal ? kCausalQueryBlock : kQueryBlock; }

  void queries(int64_t b, int64_t h, int64_t begin, int64_t end) const {
    const int64_t keys = args.causal ? std::min(args.keys, end) : args.keys;
    const int64_t block = std::min(keys, kKeyBlock), ld = this->score_ld(block);
    const int64_t height = query_block();
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
    const T* const q = args.q.at(b, h);
    T* const out = result.at(b, h);
    const T scale = static_cast<T>(args.scale);
    for (int64_t j = 0; j < keys; j += block) {
      const int64_t n = std::min(block, keys - j);
      const T* const k = args.k.at(b, kv) + j * args.k.row;
      const T* const v = args.v.at(b, kv) + j * args.v.row;
      RightOperand<T> key;
      if (!few) key = pack_transposed(product, k, args.k.row, args.dim, n, keys_at);
      const RightOperand<T> value = in_place(product, v, args.v.row, n, args.value_dim, tail_at);
      for (int64_t i = begin; i < end; i += height) {
        const int64_t m = std::min(height, end - i);
        const int64_t cols = args.causal ? std::min(n, i + m - j) : n;
        if (cols <= 0) continue;
        const T* const query = q + i * args.q.row;
        if (few) {
          product.dots(
              {cols, m, args.dim, k, args.k.row, query, args.q.row, scores, 1, ld, scale, T(0)});
        } else {
          multiply(product, m, cols, args.dim, query, args.q.row, int64_t{1}, key, scores, ld,
                   scale, T(0));
        }
        const int64_t row = i - begin;
        rows.softmax(this->scores_of(scores, ld, b, h, i, m, j, cols), j == 0, max + row, sum + row,
                     factor + row);
        T* const to = out + i * result.row;
        if (j > 0) rows.shrink(to, result.row, m, args.value_dim, factor + row);
        // Row r sees `seen` + r keys of the block. The others have zeros, and zero times a value
        // that is not finite would be NaN: then each row is multiplied by what it sees alone.
        const int64_t seen = args.causal ? std::clamp<int64_t>(i - j + 1, 0, cols) : cols;
        const bool together =
            rows.finite(v + seen * args.v.row, args.v.row, cols - seen, args.value_dim);
        const int64_t tall = together ? m : 1;
        for (int64_t r = 0; r < m; r += tall) {
          const int64_t depth = together ? cols : std::clamp<int64_t>(i - j + 1 + r, 0, cols);
          multiply(product, tall, args.value_dim, depth, scores + r * ld, ld, int64_t{1}, value,
                   to + r * result.row, result.row, T(1), j > 0 ? T(1) : T(0));
        }
      }
    }
    rows.finish(out + begin * result.row, result.row, end - begin, args.value_dim, max, sum,
                logsumexp.at(b, h) + begin * logsumexp.row, logsumexp.row);
  }
};

template <class T>
void attend(const calls::Attention<>& call, CallThreads threads) {
  const AttentionForward<T> forward(call, threads);
  const AttentionArgs<T>& args = forward.args;
  if (args.batch * args.heads * args.queries == 0) return;
  if (args.keys > 0) return forward.run();
  for (int64_t b = 0; b < args.batch; ++b) {
    for (int64_t h = 0; h < args.heads; ++h) {
      clear_rows(forward.result.at(b, h), forward.result.row, args.queries, args.value_dim);
      clear_rows(forward.logsumexp.at(b, h), forward.logsumexp.row, args.queries, 1);
    }
  }
}

}  // namespace

void run(const calls::Attention<>& call, CallThreads threads) {
  (call.query.dtype == Dtype::kFloat32 ? attend<float> : attend<double>)(call, threads);
}

}  // namespace hologram::cpu
