// SPDX-License-Identifier: MIT
// Shares dot products of bfloat16 among threads, and rounds their sums.
#include "src/cpu/gemm/bfloat16_dots.h"

#include <algorithm>

#include "hologram/elementwise.h"
#include "hologram/parallel.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/gemm/bfloat16_kernels.h"
#include "src/cpu/gemm/blocking.h"
#include "src/cpu/gemm/pack_buffer.h"
#include "src/cpu/gemm/vector_product.h"

namespace hologram::cpu {
namespace {

// With more rows on both sides packing pays, and so does another GEMM.
constexpr int64_t kMostFactors = 32;
// Shorter rows are all sums of lanes.
constexpr int64_t kLeastDepth = 32;
// Multiplications in the time in which an element of the longer side is read.
constexpr int64_t kPerElement = 16;
// A multiple of the rows of the longer side that are read together, 3 or 4.
constexpr int64_t kTogether = 12;
// Sums that a task keeps before it rounds them.
constexpr int64_t kMostSums = 4096;

struct BFloat16Product {
  const GemmArgs& g;
  bool turned;  // the few rows are A's
  int64_t rows, few;
  Dtype row_type;
  const BFloat16Kernel::Dots& kernel;
  const char* from;
  int64_t step;
  const uint16_t* factors;
  int64_t factor_step;
  bool packs;

  BFloat16Product(const GemmArgs& args, Dtype b_type, PackBuffer& memory)
      : g(args),
        turned(args.n > args.m),
        rows(turned ? args.n : args.m),
        few(turned ? args.m : args.n),
        row_type(turned ? b_type : Dtype::kBFloat16),
        kernel(kernel_of(row_type)),
        from(static_cast<const char*>(turned ? args.b : args.a)),
        packs(pays_to_pack_factors(rows, few, args.k)) {
    const int64_t lda = args.trans_a ? args.k : args.lda, ldb = args.trans_b ? args.ldb : args.k;
    step = turned ? ldb : lda;
    factors = static_cast<const uint16_t*>(turned ? args.a : args.b);
    factor_step = turned ? lda : ldb;
    const bool widens = !turned && b_type != Dtype::kBFloat16;
    const int64_t of_row = ceil_div(g.k, kernel.vector) * kernel.vector;
    auto* to = memory.get<uint16_t>(few * (of_row * packs + g.k * widens));
    if (widens) {
      for (int64_t j = 0; j < few; ++j) {
        convert(b_type, static_cast<const int8_t*>(args.b) + j * ldb, Dtype::kBFloat16,
                to + j * g.k, g.k);
      }
      factors = to, factor_step = g.k;
      to += few * g.k;
    }
    if (packs) {
      kernel.pack_factors(factors, factor_step, few, g.k, to);
      factors = to;
    }
  }

  static const BFloat16Kernel::Dots& kernel_of(Dtype row_type) {
    const BFloat16Kernel& kernel = *bfloat16_kernel(current_isa());
    return row_type == Dtype::kInt8 ? kernel.of_int8 : kernel.of_bfloat16;
  }

  // store(first, count, sums) for `count` rows of the longer side at a time.
  template <class Store>
  void run(const Store& store) const {
    const int64_t work = g.k * std::max(few, kPerElement);
    const int64_t chunk =
        std::clamp<int64_t>(kTaskWork / work, kTogether, kMostSums / few) / kTogether * kTogether;
    const auto row_bytes = step * static_cast<int64_t>(itemsize(row_type));
    parallel_for(ceil_div(rows, chunk), g.max_threads, [&](int64_t begin, int64_t end, int) {
      float sums[kMostSums];
      for (int64_t i = begin * chunk; i < std::min(rows, end * chunk); i += chunk) {
        const int64_t count = std::min(chunk, rows - i);
        // The sums lie as those of C do.
        const int64_t y_row = turned ? 1 : few, y_col = turned ? count : 1;
        kernel.dots({count, few, g.k, from + i * row_bytes, step, factors, factor_step, sums, y_row,
                     y_col, 1, 0, packs});
        store(i, count, sums);
      }
    });
  }

  // Rows of C, or parts of all of them, from sums.
  template <class Row>
  void each_row(int64_t first, int64_t count, float* sums, const Row& row) const {
    if (turned) {
      for (int64_t i = 0; i < few; ++i) row(i, first, sums + i * count, count);
    } else {
      for (int64_t i = 0; i < count; ++i) row(first + i, 0, sums + i * few, few);
    }
  }
};

}  // namespace

bool is_bfloat16_dots(const GemmArgs& g, Dtype b_type) {
  const bool a_along_k = !g.trans_a || g.lda == 1, b_along_k = g.trans_b || g.ldb == 1;
  const bool has_loads = b_type == Dtype::kBFloat16 || b_type == Dtype::kInt8;
  return g.dtype == Dtype::kBFloat16 && has_loads && a_along_k && b_along_k && g.k >= kLeastDepth &&
         !are_few_long_dots(std::max(g.m, g.n), g.k) && std::min(g.m, g.n) <= kMostFactors &&
         bfloat16_kernel(current_isa()) != nullptr;
}

void bfloat16_dots(const GemmArgs& g, Dtype b_type) {
  PackBuffer memory;
  const BFloat16Product product(g, b_type, memory);
  const float alpha = static_cast<float>(g.alpha), beta = static_cast<float>(g.beta);
  product.run([&](int64_t first, int64_t count, float* sums) {
    product.each_row(first, count, sums, [&](int64_t i, int64_t j, float* from, int64_t n) {
      uint16_t* const to = static_cast<uint16_t*>(g.c) + i * g.ldc + j;
      if (alpha != 1) {
        for (int64_t p = 0; p < n; ++p) from[p] *= alpha;
      }
      if (beta != 0) {
        float before[kMostSums];
        convert(g.dtype, to, Dtype::kFloat32, before, n);
        for (int64_t p = 0; p < n; ++p) from[p] += beta * before[p];
      }
      convert(Dtype::kFloat32, from, g.dtype, to, n);
    });
  });
}

void bfloat16_dots_to_float(const GemmArgs& g, Dtype b_type) {
  PackBuffer memory;
  const BFloat16Product product(g, b_type, memory);
  product.run([&](int64_t first, int64_t count, float* sums) {
    product.each_row(first, count, sums, [&](int64_t i, int64_t j, const float* from, int64_t n) {
      std::copy_n(from, n, static_cast<float*>(g.c) + i * g.ldc + j);
    });
  });
}

}  // namespace hologram::cpu
