// SPDX-License-Identifier: MIT
// What the two passes of attention share: kernels, addresses, scratch and how many threads to ask.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hologram/parallel.h"
#include "src/cpu/attention/attention_kernels.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/gemm/block_product.h"
#include "src/cpu/gemm/pack_buffer.h"

namespace hologram::cpu {

// The rows of each batch and head of an operand; the elements of a row are contiguous.
template <class T>
struct Heads {
  T* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;  // elements from one to the next

  explicit Heads(const View& view) : data(static_cast<T*>(view.data)) {
    if (data != nullptr) {
      batch = view.strides[0], head = view.strides[1], row = view.strides[2];
    }
  }
  T* at(int64_t b, int64_t h) const { return data + b * batch + h * head; }
};

// softmax(scale Q K^T + mask) V for each batch and head. Q has `queries` rows of `dim` elements, K
// and V have `keys` rows of `dim` and `value_dim`. Query head h reads head h / (heads / kv_heads)
// of K and V. Causal: query i sees keys 0 to i. The mask is added to the scaled scores; any stride
// of it may be 0, and mask_col is 0 or 1.
template <class T>
struct AttentionArgs {
  int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
  bool causal;
  double scale;
  Heads<const T> q, k, v, mask;
  int64_t mask_col;
  int max_threads;

  // Of calls::Attention or calls::AttentionBackward.
  template <class Call>
  AttentionArgs(const Call& call, CallThreads threads)
      : batch(call.query.shape[0]),
        heads(call.query.shape[1]),
        kv_heads(call.key.shape[1]),
        queries(call.query.shape[2]),
        keys(call.key.shape[2]),
        dim(call.query.shape[3]),
        value_dim(call.value.shape[3]),
        causal(call.is_causal),
        scale(std::isnan(call.scale) ? 1 / std::sqrt(static_cast<double>(dim)) : call.scale),
        q(call.query),
        k(call.key),
        v(call.value),
        mask(call.mask),
        mask_col(mask.data != nullptr && keys > 1 ? call.mask.strides[3] : 0),
        max_threads(threads.most()) {}
};

constexpr int64_t round_up(int64_t n) { return ceil_div(n, 16) * 16; }

template <class T>
void clear_rows(T* x, int64_t ld, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r) std::fill_n(x + r * ld, n, T(0));
}

// Hands out pieces of a thread's scratch memory.
template <class T>
class Carver {
 public:
  explicit Carver(int64_t count) {
    static thread_local PackBuffer kept;
    next_ = kept.get<T>(count);
  }
  T* take(int64_t count) {
    T* const here = next_;
    next_ += count;
    return here;
  }

 private:
  T* next_;
};

template <class T>
struct AttentionWork {
  const AttentionArgs<T> args;
  const GemmKernel<T>& product;
  const AttentionKernel<T>& rows;

  template <class Call>
  AttentionWork(const Call& call, CallThreads threads)
      : args(call, threads),
        product(gemm_kernel(current_isa(), T())),
        rows(attention_kernel(current_isa(), T())) {}

  // Rows of scores are no power of two apart, which would put them into the same cache sets.
  static int64_t score_ld(int64_t keys) { return round_up(keys) + 16; }

  int threads(int64_t heads) const {
    constexpr int64_t kWorthThreads = int64_t{1} << 19;
    const int64_t work = heads * args.queries * args.keys * (args.dim + args.value_dim);
    if (work < kWorthThreads) return 1;
    return threads_of(args.max_threads);
  }

  // The scores of `m` queries from i on for `cols` keys from j on.
  AttentionScores<T> scores_of(T* scores, int64_t ld, int64_t b, int64_t h, int64_t i, int64_t m,
                               int64_t j, int64_t cols) const {
    AttentionScores<T> s;
    s.scores = scores, s.ld = ld;
    s.rows = m, s.cols = cols;
    s.seen = args.causal ? i - j + 1 : cols;
    s.more = args.causal ? 1 : 0;
    if (args.mask.data != nullptr) {
      s.mask_row = args.mask.row, s.mask_col = args.mask_col;
      s.mask = args.mask.at(b, h) + i * s.mask_row + j * s.mask_col;
    }
    return s;
  }
};

}  // namespace hologram::cpu
