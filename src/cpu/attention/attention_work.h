// SPDX-License-Identifier: MIT
// What the two passes of attention share: kernels, addresses, scratch and how many threads to ask.
#pragma once

#include <algorithm>
#include <cstdint>

#include "hologram/parallel.h"
#include "src/cpu/attention/attention.h"
#include "src/cpu/attention/attention_kernels.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/gemm/block_product.h"
#include "src/cpu/gemm/pack_buffer.h"

namespace hologram::cpu {

// Checks the arguments; false when there are no queries.
bool check_attention(const AttentionArgs& args, const AttentionOutput& output);

constexpr int64_t round_up(int64_t n) { return ceil_div(n, 16) * 16; }

template <class T, class P>
T* at(P* data, const AttentionStrides& strides, int64_t batch, int64_t head) {
  return static_cast<T*>(data) + batch * strides.batch + head * strides.head;
}

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
  const AttentionArgs& args;
  const GemmKernel<T>& product;
  const AttentionKernel<T>& rows;

  explicit AttentionWork(const AttentionArgs& a)
      : args(a),
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
    if (args.mask != nullptr) {
      s.mask_row = args.mask_strides.row, s.mask_col = args.mask_col;
      s.mask = at<const T>(args.mask, args.mask_strides, b, h) + i * s.mask_row + j * s.mask_col;
    }
    return s;
  }
};

}  // namespace hologram::cpu
