// SPDX-License-Identifier: MIT
// Products with an int8 weight that has a scale for each of its rows.
#include <algorithm>
#include <vector>

#include "hologram/call_frame.h"
#include "hologram/elementwise.h"
#include "hologram/gemm.h"
#include "hologram/parallel.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/gemm/bfloat16_dots.h"
#include "src/cpu/gemm/blocking.h"
#include "src/cpu/gemm/gemm_builtin.h"
#include "src/cpu/gemm/gemm_float.h"
#include "src/cpu/gemm/gemm_provider.h"
#include "src/cpu/gemm/pack_buffer.h"

namespace hologram::cpu {
namespace {

// Rows that are computed at a time where they need memory in a wider type.
constexpr int64_t kRowsAtATime = 256;
// Rows of the weight that are widened at a time to float64.
constexpr int64_t kWeightRowsAtATime = 64;
// Where a provider multiplies half types into float32: the fewest rows of the input and the fewest
// multiplications that are left to it.
constexpr int64_t kLeastRowsByProvider = 10, kLeastWorkByProvider = int64_t{1} << 22;
// Rows of the weight that are widened for it at a time. A few rows of the input are multiplied
// while these are in the nearest caches; many rows are worth more of them.
constexpr int64_t kFewInputRows = 128, kWidenedForFew = 128, kWidenedForMany = 384;
// Rows of the result that are float32 at a time.
constexpr int64_t kResultRows = 512;
// The longest rows of a product that is handed over in blocks: see gemm_call.cc.
constexpr int64_t kLongestInBlocks = 1024;

struct LinearInt8 {
  Dtype dtype;
  int64_t m, n, k;
  const char *input, *weight, *scale;
  char* out;
  int threads;

  LinearInt8(const calls::LinearInt8<>& call, CallThreads most) {
    dtype = call.input.dtype;
    n = call.weight.shape[0], k = call.weight.shape[1];
    m = 1;
    for (int d = 0; d + 1 < call.input.ndim; ++d) m *= call.input.shape[d];
    input = static_cast<const char*>(call.input.data);
    weight = static_cast<const char*>(call.weight.data);
    scale = static_cast<const char*>(call.scale.data), out = static_cast<char*>(call.out.data);
    threads = effective_work(m, n, k) < kSharedWork ? 1 : most.most();
  }

  int64_t size() const { return static_cast<int64_t>(itemsize(dtype)); }
  bool is_float() const { return dtype == Dtype::kFloat32; }

  // The product of `rows` rows at x, which are float32, into c.
  GemmArgs product(const float* x, int64_t rows, float* c) const {
    GemmArgs g;
    g.trans_b = true;
    g.m = rows, g.n = n, g.k = k;
    g.a = x, g.lda = std::max<int64_t>(1, k);
    g.b = weight, g.ldb = g.lda;
    g.c = c, g.ldc = n;
    g.max_threads = threads;
    return g;
  }
  // The same of the rows as they are.
  GemmArgs product_of_input(float* c) const {
    GemmArgs g = product(nullptr, m, c);
    g.dtype = dtype;
    g.a = input;
    return g;
  }
  // As few rows as fit beside their sums.
  bool is_dots() const {
    return m <= n && is_bfloat16_dots(product_of_input(nullptr), Dtype::kInt8);
  }
  // The provider that multiplies half types into float32, or null. int8 is exact in them.
  const GemmProvider* provider() const {
    return itemsize(dtype) == 2 && !is_dots() && m >= kLeastRowsByProvider &&
                   m * n * k >= kLeastWorkByProvider
               ? provider_to_float(dtype)
               : nullptr;
  }
  bool is_done_in_blocks() const {
    if (provider() != nullptr) return false;
    return dtype != Dtype::kFloat64 && !is_dots() && m > 1 && n > 1 && k > 0 &&
           k <= kLongestInBlocks && !is_sum_of_dots(product(nullptr, m, nullptr));
  }

  // Rows [row, row + rows) of the input as float32.
  const float* widened(int64_t row, int64_t rows, PackBuffer& memory) const {
    const char* from = input + row * k * size();
    if (is_float()) return reinterpret_cast<const float*>(from);
    float* const to = memory.get<float>(rows * k);
    parallel_for(rows, threads, [&](int64_t begin, int64_t end, int) {
      convert(dtype, from + begin * k * size(), Dtype::kFloat32, to + begin * k, (end - begin) * k);
    });
    return to;
  }
  std::vector<float> scales() const {
    std::vector<float> to(static_cast<size_t>(n));
    convert(dtype, scale, Dtype::kFloat32, to.data(), n);
    return to;
  }
  // `rows` rows of `cols` sums, from column col on, become elements of the result at `to`.
  void finish(float* sums, int64_t pitch, int64_t rows, int64_t col, int64_t cols,
              const std::vector<float>& by, char* to, int64_t to_pitch) const {
    const float* factor = by.data() + col;
    for (int64_t i = 0; i < rows; ++i) {
      float* const row = sums + i * pitch;
      for (int64_t j = 0; j < cols; ++j) row[j] *= factor[j];
      if (!is_float()) convert(Dtype::kFloat32, row, dtype, to + i * to_pitch * size(), cols);
    }
  }

  void run() const {
    if (m == 0 || n == 0) return;
    if (dtype == Dtype::kFloat64) return run_double();
    if (const GemmProvider* by = provider(); by != nullptr) return run_by(*by);
    if (is_done_in_blocks()) return run_blocks(nullptr);
    if (is_dots()) return run_dots();
    const std::vector<float> by = scales();
    // Parts of nearly equal height: which kernel computes an element is a matter of sizes.
    const int64_t parts = is_float() ? 1 : ceil_div(m, kRowsAtATime);
    PackBuffer wide, sums;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t row = m * part / parts, rows = m * (part + 1) / parts - row;
      char* const to = out + row * n * size();
      float* const c = is_float() ? reinterpret_cast<float*>(to) : sums.get<float>(rows * n);
      if (k == 0) {
        std::fill_n(c, rows * n, 0.0f);
      } else {
        narrow_gemm(product(widened(row, rows, wide), rows, c), Dtype::kInt8);
      }
      const int64_t chunk = std::max<int64_t>(1, 16384 / n);
      parallel_for(ceil_div(rows, chunk), threads, [&](int64_t begin, int64_t end, int) {
        const int64_t first = begin * chunk, count = std::min(rows, end * chunk) - first;
        finish(c + first * n, n, count, 0, n, by, to + first * n * size(), n);
      });
    }
  }

  void run_dots() const {
    PackBuffer sums;
    float* const c = sums.get<float>(m * n);
    bfloat16_dots_to_float(product_of_input(c), Dtype::kInt8);
    const std::vector<float> by = scales();
    parallel_for(m, threads, [&](int64_t begin, int64_t end, int) {
      finish(c + begin * n, n, end - begin, 0, n, by, out + begin * n * size(), n);
    });
  }

  void run_by(const GemmProvider& provider) const {
    const std::vector<float> by = scales();
    const int64_t parts = ceil_div(n, m <= kFewInputRows ? kWidenedForFew : kWidenedForMany);
    const int64_t strips = ceil_div(m, kResultRows);
    parallel_for(parts, provider.one_thread ? threads : 1, [&](int64_t begin, int64_t end, int) {
      PackBuffer wide, sums;
      for (int64_t part = begin; part < end; ++part) {
        const int64_t col = n * part / parts, cols = n * (part + 1) / parts - col;
        char* const panel = wide.get<char>(cols * k * size());
        convert(Dtype::kInt8, weight + col * k, dtype, panel, cols * k);
        for (int64_t strip = 0; strip < strips; ++strip) {
          const int64_t row = m * strip / strips, rows = m * (strip + 1) / strips - row;
          GemmArgs g = product(nullptr, rows, sums.get<float>(rows * cols));
          g.dtype = dtype;
          g.a = input + row * k * size(), g.b = panel;
          g.n = g.ldc = cols;
          g.max_threads = provider.one_thread ? 1 : threads;
          provider.gemm_to_float(g);
          finish(static_cast<float*>(g.c), cols, rows, col, cols, by,
                 out + (row * n + col) * size(), n);
        }
      }
    });
  }

  // Where the epilogue is null the result is memory.
  void run_blocks(const CallEpilogue* epilogue) const {
    struct Context {
      const LinearInt8& call;
      const std::vector<float> by;
      const CallEpilogue* epilogue;
    } context{*this, scales(), epilogue};
    GemmBlocks blocks;
    blocks.before = [](void*, const GemmBlocks::Block&) {};
    blocks.after = [](void* at, const GemmBlocks::Block& block) {
      const auto& [call, by, then] = *static_cast<const Context*>(at);
      PackBuffer own;
      char* to = block.data;
      int64_t pitch = block.pitch;
      if (!call.is_float() && call.out == nullptr) {
        to = own.get<char>(block.rows * block.cols * call.size());
        pitch = block.cols;
      } else if (!call.is_float()) {
        to = call.out + (block.row * call.n + block.col) * call.size();
        pitch = call.n;
      }
      call.finish(reinterpret_cast<float*>(block.data), block.pitch, block.rows, block.col,
                  block.cols, by, to, pitch);
      if (then == nullptr) return;
      then->run(then->context, {block.row, block.rows, block.col, block.cols, to, pitch});
    };
    blocks.context = &context;
    blocks.whole_rows = epilogue != nullptr && epilogue->whole_rows;
    PackBuffer wide;
    float* const c = is_float() ? reinterpret_cast<float*>(out) : nullptr;
    float_gemm_blocks(product(widened(0, m, wide), m, c), Dtype::kInt8, blocks);
  }

  void run_double() const {
    GemmArgs g = product(nullptr, m, nullptr);
    g.dtype = dtype;
    g.a = input;
    PackBuffer memory;
    auto* const rows = memory.get<double>(std::min(n, kWeightRowsAtATime) * k);
    auto* const to = reinterpret_cast<double*>(out);
    const auto* by = reinterpret_cast<const double*>(scale);
    g.b = rows;
    for (int64_t j = 0; j < n; j += kWeightRowsAtATime) {
      g.n = std::min(kWeightRowsAtATime, n - j);
      if (k > 0) convert(Dtype::kInt8, weight + j * k, dtype, rows, g.n * k);
      g.c = to + j;
      if (prepare(g)) builtin_gemm().gemm(g);
    }
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) to[i * n + j] *= by[j];
    }
  }
};

}  // namespace

void run(const calls::LinearInt8<>& call, CallThreads threads) { LinearInt8(call, threads).run(); }

bool result_of(const calls::LinearInt8<>& call, CallResult& result) {
  const LinearInt8 product(call, CallThreads(1));
  result = {product.dtype, product.m, product.n, 0, 3};
  return product.is_done_in_blocks();
}

bool run_blocks(const calls::LinearInt8<>& call, CallThreads threads,
                const CallEpilogue& epilogue) {
  const LinearInt8 product(call, threads);
  // Each thread would pack more of the weight than its caches hold.
  if (epilogue.whole_rows && product.n * product.k > (int64_t{1} << 18)) return false;
  product.run_blocks(&epilogue);
  return true;
}

}  // namespace hologram::cpu
