// SPDX-License-Identifier: MIT
// Products with an int4 weight whose groups of columns have a scale and a zero point for each row.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include "hologram/call_frame.h"
#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/gemm.h"
#include "hologram/parallel.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/gemm/blocking.h"
#include "src/cpu/gemm/gemm_builtin.h"
#include "src/cpu/gemm/gemm_provider.h"
#include "src/cpu/gemm/int4_kernels.h"
#include "src/cpu/gemm/pack_buffer.h"

namespace hologram::cpu {
namespace {

// Weights of a task: some five microseconds.
constexpr int64_t kTaskWeights = int64_t{1} << 17;
// Rows of the input that are multiplied as digits; more share weights that are widened.
constexpr int64_t kMostDigitRows = 16;
// Rows of the input that are multiplied by widened weights at a time. They bound the memory of what
// is computed in a wider type than the result's.
constexpr int64_t kRowsTogether = 1024;
// Widened weights that are multiplied at a time: in the second level of caches. Few rows take as
// few of the weight's rows as a block has, so that the widened ones are near.
constexpr int64_t kWidenedWeights = int64_t{1} << 16;
constexpr int64_t kRowsByBlocks = 32, kBlockRows = 256;
// Where a provider multiplies bfloat16 into float32: the fewest rows of the input that are left to
// it, and how many rows of the weight it gets at a time, for few rows of the input and for many.
constexpr int64_t kLeastInputsByProvider = 11;
constexpr int64_t kFewInputs = 128, kPanelOfFew = 128, kPanelOfMany = 192;

struct LinearInt4 {
  Dtype dtype;
  int64_t m, n, k, groups, columns, block;
  const char *input, *pairs;
  const uint8_t* weight;
  char* out;
  int threads;

  LinearInt4(const calls::LinearInt4<>& call, CallThreads most) {
    dtype = call.input.dtype;
    n = call.weight.shape[0], k = 2 * call.weight.shape[1];
    groups = call.scale_and_zero.shape[0], columns = groups == 0 ? 0 : k / groups;
    block = call.block;
    m = 1;
    for (int d = 0; d + 1 < call.input.ndim; ++d) m *= call.input.shape[d];
    input = static_cast<const char*>(call.input.data);
    pairs = static_cast<const char*>(call.scale_and_zero.data);
    weight = static_cast<const uint8_t*>(call.weight.data);
    out = static_cast<char*>(call.out.data);
    threads = effective_work(m, n, k) < kSharedWork ? 1 : most.most();
    if (block < 2 || block % 2 != 0 || n % block % 2 != 0) {
      fail(ErrorKind::kInvalidArgument,
           "linear_int4: blocks have an even number of rows, also the last one; got block ", block,
           " for a weight of ", n, " rows");
    }
  }

  int64_t size() const { return static_cast<int64_t>(itemsize(dtype)); }
  int64_t blocks() const { return ceil_div(n, block); }
  int64_t rows_of(int64_t b) const { return std::min(block, n - b * block); }
  // A block's bytes, and its scales and zeros in a group.
  const uint8_t* block_at(int64_t b) const { return weight + b * block * (k / 2); }
  const char* pairs_at(int64_t b, int64_t group) const {
    return pairs + 2 * (group * n + b * block) * size();
  }
  bool has_kernel() const {
    return (block == kSmallInt4Block || block == kLargeInt4Block) && dtype != Dtype::kFloat64 &&
           columns % kInt4Columns == 0 && columns <= kMostInt4Columns;
  }
  const Int4Kernel& kernel() const { return int4_kernel(current_isa(), dtype); }

  void run() const {
    if (m == 0 || n == 0) return;
    if (k == 0) return std::memset(out, 0, static_cast<size_t>(m * n * size())), void();
    const GemmProvider* const by = provider();
    if (by == nullptr && m <= kMostDigitRows && has_kernel()) return run_digits();
    // Parts of nearly equal height: which kernel computes an element is a matter of sizes.
    const int64_t parts = ceil_div(m, kRowsTogether);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t row = m * part / parts, rows = m * (part + 1) / parts - row;
      if (by != nullptr) {
        run_by(*by, row, rows);
      } else {
        dtype == Dtype::kFloat64 ? run_widened<double>(row, rows) : run_widened<float>(row, rows);
      }
    }
  }
  // The provider that multiplies bfloat16 into float32, or null.
  const GemmProvider* provider() const {
    return dtype == Dtype::kBFloat16 && m >= kLeastInputsByProvider && has_kernel()
               ? provider_to_float(dtype)
               : nullptr;
  }

  // Rows [row, row + count) of the input as T.
  template <class T>
  const T* computed(int64_t row, int64_t count, PackBuffer& memory) const {
    constexpr Dtype kType = sizeof(T) == 4 ? Dtype::kFloat32 : Dtype::kFloat64;
    const char* from = input + row * k * size();
    if (dtype == kType) return reinterpret_cast<const T*>(from);
    T* const to = memory.get<T>(count * k);
    parallel_for(count, threads, [&](int64_t begin, int64_t end, int) {
      convert(dtype, from + begin * k * size(), kType, to + begin * k, (end - begin) * k);
    });
    return to;
  }

  // A row that does not become digits is multiplied by itself: the bits of a row never depend on
  // the others.
  void run_digits() const {
    const Int4Kernel& with = kernel();
    PackBuffer wide;
    const float* const x = computed<float>(0, m, wide);
    std::vector<int8_t> digits(static_cast<size_t>(3 * m * k));
    std::vector<Int4Group> split(static_cast<size_t>(m * groups));
    std::vector<char> is_split(static_cast<size_t>(m), 1);
    for (int64_t g = 0; g < m * groups; ++g) {
      if (!with.split(x + g * columns, columns, block, digits.data() + 3 * g * columns,
                      &split[static_cast<size_t>(g)])) {
        is_split[static_cast<size_t>(g / groups)] = 0;
      }
    }
    const int64_t chunk = std::max<int64_t>(1, kTaskWeights / (block * k));
    parallel_for(ceil_div(blocks(), chunk), threads, [&](int64_t begin, int64_t end, int) {
      PackBuffer memory;
      float y[kInt4Rows * kLargeInt4Block];
      for (int64_t b = begin * chunk; b < std::min(blocks(), end * chunk); ++b) {
        const int64_t rows = rows_of(b);
        const float* const widened = rows == block ? nullptr : widen<float>(b, 0, groups, memory);
        for (int64_t i = 0; i < m; i += kInt4Rows) {
          const int64_t count = std::min(kInt4Rows, m - i);
          if (widened == nullptr) {
            with.dot_block(
                block_at(b), block,
                {count, groups, columns, digits.data() + 3 * i * k, split.data() + i * groups},
                pairs_at(b, 0), 2 * n, y);
          } else {
            for (int64_t r = 0; r < count; ++r)
              add_rows(x + (i + r) * k, widened, rows, y + r * rows);
          }
          for (int64_t r = 0; r < count; ++r) {
            convert(Dtype::kFloat32, y + r * rows, dtype, out + ((i + r) * n + b * block) * size(),
                    rows);
          }
        }
      }
    });
    for (int64_t i = 0; i < m; ++i) {
      if (is_split[static_cast<size_t>(i)] == 0) run_widened<float>(i, 1);
    }
  }
  // y = x w for k rows of `count` widened weights.
  void add_rows(const float* x, const float* w, int64_t count, float* y) const {
    std::fill_n(y, count, 0.0f);
    for (int64_t c = 0; c < k; ++c) {
      for (int64_t j = 0; j < count; ++j) y[j] += x[c] * w[c * count + j];
    }
  }

  // Columns of groups [first, first + count) of a block, rows side by side.
  template <class T>
  const T* widen(int64_t b, int64_t first, int64_t count, PackBuffer& memory) const {
    T* const to = memory.get<T>(rows_of(b) * count * columns);
    widen(b, first, count, to, rows_of(b));
    return to;
  }
  // ... `pitch` elements from column to column.
  template <class T>
  void widen(int64_t b, int64_t first, int64_t count, T* to, int64_t pitch) const {
    const int64_t rows = rows_of(b), half = rows / 2;
    const bool whole = rows == block;
    std::vector<double> pair(static_cast<size_t>(2 * rows));
    for (int64_t g = first; g < first + count; ++g, to += columns * pitch) {
      const uint8_t* const from = block_at(b) + g * columns * half;
      if constexpr (std::is_same_v<T, float>) {
        if (whole && has_kernel()) {
          kernel().widen(from, block, columns, pairs_at(b, g), to, pitch);
          continue;
        }
      }
      convert(dtype, pairs_at(b, g), Dtype::kFloat64, pair.data(), 2 * rows);
      for (int64_t c = 0; c < columns; ++c) {
        for (int64_t j = 0; j < rows; ++j) {
          const int64_t byte = whole ? j % half : j / 2;
          const bool high = whole ? j >= half : j % 2 != 0;
          const int q = high ? from[c * half + byte] >> 4 : from[c * half + byte] & 15;
          const auto scale = static_cast<T>(pair[static_cast<size_t>(2 * j)]);
          const auto zero = static_cast<T>(pair[static_cast<size_t>(2 * j + 1)]);
          to[c * pitch + j] = std::fma(static_cast<T>(q - 8), scale, zero);
        }
      }
    }
  }

  // Rows [row, row + count) of the input. The provider multiplies a group's columns by its numbers
  // less 8, which are exact in bfloat16; the group's scales and zeros then join the float32 sums.
  // A row with an infinity is computed again by itself, with widened weights: infinity times a
  // number of 0 would be NaN, where the weight, its zero, may be another.
  void run_by(const GemmProvider& provider, int64_t row, int64_t count) const {
    const Int4Kernel& with = kernel();
    std::vector<float> sums(static_cast<size_t>(count * groups));  // of the inputs of a group
    parallel_for(count, threads, [&](int64_t begin, int64_t end, int) {
      std::vector<float> x(static_cast<size_t>(k));
      for (int64_t i = begin; i < end; ++i) {
        convert(dtype, input + (row + i) * k * size(), Dtype::kFloat32, x.data(), k);
        for (int64_t g = 0; g < groups; ++g) {
          const auto first = x.begin() + g * columns;
          sums[static_cast<size_t>(i * groups + g)] = std::accumulate(first, first + columns, 0.0F);
        }
      }
    });
    const int64_t together = ceil_div(m <= kFewInputs ? kPanelOfFew : kPanelOfMany, block);
    const auto task = [&](int64_t first) {
      const int64_t last = std::min(blocks(), first + together);
      const int64_t col = first * block, cols = std::min(n, last * block) - col;
      PackBuffer panels, tiles, rows;
      auto* const panel = panels.get<uint16_t>(columns * cols);
      float* const products = tiles.get<float>(2 * count * cols);
      float* const c = products + count * cols;
      float* const pair = rows.get<float>(4 * cols);
      float *const scale = pair + 2 * cols, *const zero = pair + 3 * cols;
      std::fill_n(c, count * cols, 0.0F);
      GemmArgs args;
      args.dtype = dtype;
      args.m = count, args.n = cols, args.k = columns;
      args.lda = k;
      args.b = panel, args.c = products, args.ldb = args.ldc = cols;
      args.max_threads = provider.one_thread ? 1 : threads;
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t b = first; b < last; ++b) {
          numbers(b, g, panel + (b - first) * block, cols);
        }
        convert(dtype, pairs_at(first, g), Dtype::kFloat32, pair, 2 * cols);
        for (int64_t j = 0; j < cols; ++j) scale[j] = pair[2 * j], zero[j] = pair[2 * j + 1];
        args.a = input + (row * k + g * columns) * size();
        provider.gemm_to_float(args);
        with.add_group(products, scale, zero, sums.data() + g, groups, count, cols, c);
      }
      for (int64_t i = 0; i < count; ++i) {
        convert(Dtype::kFloat32, c + i * cols, dtype, out + ((row + i) * n + col) * size(), cols);
      }
    };
    parallel_for(ceil_div(blocks(), together), provider.one_thread ? threads : 1,
                 [&](int64_t begin, int64_t end, int) {
                   for (int64_t t = begin; t < end; ++t) task(t * together);
                 });
    for (int64_t i = row; i < row + count; ++i) {
      if (!is_finite(i)) run_widened<float>(i, 1);
    }
  }
  // The numbers of a block in a group, less 8, as bfloat16: `pitch` elements from column to column.
  void numbers(int64_t b, int64_t g, uint16_t* to, int64_t pitch) const {
    const int64_t rows = rows_of(b), half = rows / 2;
    const uint8_t* const from = block_at(b) + g * columns * half;
    if (rows == block) return kernel().numbers(from, block, columns, to, pitch);
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t j = 0; j < rows; ++j) {
        const int byte = from[c * half + j / 2];
        const auto q = static_cast<float>((j % 2 != 0 ? byte >> 4 : byte & 15) - 8);
        to[c * pitch + j] = static_cast<uint16_t>(std::bit_cast<uint32_t>(q) >> 16);
      }
    }
  }
  bool is_finite(int64_t row) const {
    constexpr uint16_t kExponent = 0x7f80;
    const auto* x = reinterpret_cast<const uint16_t*>(input) + row * k;
    return std::all_of(x, x + k, [](uint16_t bits) { return (bits & kExponent) != kExponent; });
  }

  // Blocks are widened and multiplied as matrices, for rows [row, row + count) of the input.
  template <class T>
  void run_widened(int64_t row, int64_t count) const {
    constexpr Dtype kType = sizeof(T) == 4 ? Dtype::kFloat32 : Dtype::kFloat64;
    PackBuffer wide, results;
    const T* const x = computed<T>(row, count, wide);
    char* const to = out + row * n * size();
    T* const c = dtype == kType ? reinterpret_cast<T*>(to) : results.get<T>(count * n);
    const int64_t together = m <= kRowsByBlocks ? 1 : std::max<int64_t>(1, kBlockRows / block);
    const int64_t at_once =
        std::clamp<int64_t>(kWidenedWeights / (std::min(n, together * block) * columns), 1, groups);
    const int64_t tasks = ceil_div(blocks(), together);
    parallel_for(tasks, threads, [&](int64_t begin, int64_t end, int) {
      PackBuffer memory;
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task * together, last = std::min(blocks(), first + together);
        const int64_t col = first * block, cols = std::min(n, last * block) - col;
        T* const panel = memory.get<T>(at_once * columns * cols);
        for (int64_t g = 0; g < groups; g += at_once) {
          const int64_t here = std::min(at_once, groups - g);
          for (int64_t b = first; b < last; ++b) {
            widen(b, g, here, panel + (b - first) * block, cols);
          }
          GemmArgs args;
          args.dtype = kType;
          args.m = count, args.n = cols, args.k = here * columns;
          args.a = x + g * columns, args.lda = k;
          args.b = panel, args.ldb = cols;
          args.c = c + col, args.ldc = n;
          args.beta = g == 0 ? 0 : 1;
          args.max_threads = 1;
          if (prepare(args)) builtin_gemm().gemm(args);
        }
      }
    });
    if (dtype == kType) return;
    parallel_for(count, threads, [&](int64_t begin, int64_t end, int) {
      convert(kType, c + begin * n, dtype, to + begin * n * size(), (end - begin) * n);
    });
  }
};

}  // namespace

void run(const calls::LinearInt4<>& call, CallThreads threads) { LinearInt4(call, threads).run(); }

}  // namespace hologram::cpu
