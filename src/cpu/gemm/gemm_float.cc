// SPDX-License-Identifier: MIT
// Cuts products into blocks of C that threads compute on their own, and packs what pays.
#include "src/cpu/gemm/gemm_float.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <type_traits>

#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/gemm/blocking.h"
#include "src/cpu/gemm/gemm_kernels.h"
#include "src/cpu/gemm/narrow_kernels.h"
#include "src/cpu/gemm/pack_buffer.h"
#include "src/cpu/movement/transpose.h"

namespace hologram::cpu {
namespace {

// From one row of B that was widened to the next: a power of two would meet in the same cache sets.
constexpr int64_t kWidenedStep = kPanelDepth + 16;
// What a thread packs of B at a time, half of its L2.
constexpr int64_t kPackBytes = int64_t{512} << 10;
// The fewest panels of a block that is read while it is in the caches: narrow blocks are slow.
constexpr int64_t kNarrowest = 4;
// Panels of a block that is computed in all of k at once, even where that much of B is not in L2:
// its panels come one after the other, so they are there in time, and fewer would not pay for
// packing A again.
constexpr int64_t kWidePanels = 24;
// Rows of B that are packed at a time, a multiple of kPanelDepth. A product with more rows of B
// reads and writes its results again for each further kDeepest of them.
constexpr int64_t kDeepest = 512;
// A is packed where more panels than this read it: where its rows lie along memory, and where its
// columns do.
constexpr int64_t kPanelsInPlace = 8, kPanelsInPlaceColumns = 2;
// Rows whose dot products are computed together: see dot_tiles-inl.h.
constexpr int64_t kDotRows = 4;
// What packing a panel of B costs, in rows of the product: where B's rows lie along memory, and
// where its columns do.
constexpr double kPackRows = 2, kPackColumns = 6;
// For the choice of computing a product turned, in rows of it, as measured: packing a panel of
// columns of a B that is not in the caches; packing A; and, for each row, kTurnBack / k to turn it
// back.
constexpr int64_t kColdColumns = 12, kTurnedRows = 4, kTurnBack = 40;
// More rows than these pay for a packed copy of the weight.
constexpr int64_t kMostTurned = 128;

// How C is cut into tasks: rows x cols blocks, of `width` panels at most.
struct Grid {
  int64_t rows = 1, cols = 1;
};

// widest, narrowest: panels of a task.
Grid choose_grid(int64_t m, int64_t panels, int64_t panel_work, int64_t widest, int64_t narrowest,
                 double pack_cost, int64_t tile_rows, int threads) {
  const int64_t least = ceil_div(panels, widest);
  const int64_t work = m * panels * panel_work;
  const int64_t wish = std::min<int64_t>(4 * threads, work / kTaskWork);
  if (threads <= 1 || wish <= 1) return {1, least};
  Grid best{1, least};
  double best_cost = std::numeric_limits<double>::infinity();
  const int64_t most = std::min(wish, ceil_div(m, tile_rows));
  for (int64_t r = 1; r <= most; ++r) {
    const int64_t c = std::clamp(ceil_div(wish, r), least, std::max(least, panels / narrowest));
    // In units of one row times one panel.
    const double task = static_cast<double>(ceil_div(panels, c)) *
                        (static_cast<double>(ceil_div(m, r)) + pack_cost);
    const double cost = task * static_cast<double>(ceil_div(r * c, threads));
    if (cost < best_cost) best = {r, c}, best_cost = cost;
  }
  return best;
}

// What a thread keeps: parts of the operands, and blocks of C. Only a pointer to it is
// thread-local, because a library that is loaded late has little space for thread-local variables.
struct GemmScratch {
  PackBuffer a, b, c, turned, widened;
};
GemmScratch& gemm_scratch() {
  static thread_local std::unique_ptr<GemmScratch> kept;
  if (kept == nullptr) kept = std::make_unique<GemmScratch>();
  return *kept;
}

template <class T>
struct Float {
  const GemmArgs& g;
  const GemmKernel<T>& kernel;
  const NarrowKernel* narrow;  // null: B has elements of T
  int64_t b_size;
  const T* a;
  int64_t a_row, a_col;
  const char* b;
  int64_t b_row, b_col;
  T* c;
  T alpha, beta;

  Float(const GemmArgs& args, Dtype b_type)
      : g(args),
        kernel(gemm_kernel(current_isa(), T())),
        narrow(b_type == args.dtype ? nullptr : &narrow_kernel(current_isa(), b_type)),
        b_size(static_cast<int64_t>(itemsize(b_type))),
        a(static_cast<const T*>(args.a)),
        a_row(args.trans_a ? 1 : args.lda),
        a_col(args.trans_a ? args.lda : 1),
        b(static_cast<const char*>(args.b)),
        b_row(args.trans_b ? 1 : args.ldb),
        b_col(args.trans_b ? args.ldb : 1),
        c(static_cast<T*>(args.c)),
        alpha(number(args.alpha)),
        beta(number(args.beta)) {}

  static T number(double value) {
    if constexpr (std::is_unsigned_v<T>) return static_cast<T>(static_cast<int64_t>(value));
    return static_cast<T>(value);
  }

  // Element `at` of B in memory; typed where B has elements of T.
  const void* in_b(int64_t at) const { return b + at * b_size; }
  const T* b_at(int64_t at) const { return static_cast<const T*>(in_b(at)); }

  // Whether C is computed as the transpose of B^T A^T: what is packed then is A, which is small,
  // and B is read where it lies.
  bool is_turned() const {
    if (b_row != 1 || b_col == 1 || g.m > kMostTurned) return false;
    const int64_t lanes = kernel.cols / 2, rows = ceil_div(g.m, lanes) * lanes;
    return rows + kTurnedRows + g.m * kTurnBack / g.k < g.m + kColdColumns;
  }
  double pack_cost() const { return b_col == 1 || is_turned() ? kPackRows : kPackColumns; }

  void run() const {
    if (!is_sum_of_dots(g)) return blocks({});
    if (g.n > g.m) return dots(in_b(0), b_col, g.n, narrow, a, a_row, g.m, c, 1, g.ldc);
    if constexpr (std::is_same_v<T, float>) {
      if (narrow != nullptr) {
        PackBuffer own;
        float* const few = own.get<float>(g.n * g.k);
        narrow->widen(b, b_col, g.n, g.k, few, g.k);
        return dots(a, a_row, g.m, nullptr, few, g.k, g.n, c, g.ldc, 1);
      }
    }
    dots(a, a_row, g.m, nullptr, b_at(0), b_col, g.n, c, g.ldc, 1);
  }

  // Element (i, j) of y, i * y_row + j * y_col elements in, from the dot product of row i of `rows`
  // and row j of the few of x. widens: what reads `rows`, or null where they are of T.
  void dots(const void* rows, int64_t step, int64_t count, const NarrowKernel* widens, const T* x,
            int64_t x_step, int64_t few, T* y, int64_t y_row, int64_t y_col) const {
    // Each of the few rows is read once for every tile of the others.
    PackBuffer memory;
    const bool packs = pays_to_pack_factors(count, few, g.k);
    if (packs) {
      T* const packed = memory.get<T>(few * ceil_div(g.k, kernel.vector) * kernel.vector);
      kernel.pack_factors(x, x_step, few, g.k, packed);
      x = packed;
    }
    const int64_t wish = std::max<int64_t>(1, 65536 / (g.k * few));
    const int64_t chunk = ceil_div(wish, kDotRows) * kDotRows;
    parallel_for(ceil_div(count, chunk), g.max_threads, [&](int64_t begin, int64_t end, int) {
      const int64_t i = begin * chunk, here = std::min(count, end * chunk) - i;
      T* const to = y + i * y_row;
      if constexpr (std::is_same_v<T, float>) {
        if (widens != nullptr) {
          const void* from = static_cast<const char*>(rows) + i * step * b_size;
          return widens->dots(
              {here, few, g.k, from, step, x, x_step, to, y_row, y_col, alpha, beta, packs});
        }
      }
      kernel.dots({here, few, g.k, static_cast<const T*>(rows) + i * step, step, x, x_step, to,
                   y_row, y_col, alpha, beta, packs});
    });
  }

  // Whether tiles read A where it lies, if that many panels need it. Columns of A are far from each
  // other, and each tile reads another part of every column: packing them pays sooner.
  bool reads_a_in_place(int64_t panels) const {
    return panels <= (a_row == 1 && a_col != 1 ? kPanelsInPlaceColumns : kPanelsInPlace);
  }

  // Whether panel j of B is read where it lies by the first tile, which copies it for the others.
  bool lies(int64_t j) const {
    return b_col == 1 && narrow == nullptr && (j + 1) * kernel.cols <= g.n;
  }

  // True where one tile reads each panel of B, so that no copy serves another tile, and the panel's
  // rows are too few for the copying loop's prefetches to gain anything.
  bool is_thin() const {
    constexpr int64_t kFewRows = 16;
    return g.m <= kernel.rows && g.k <= kFewRows;
  }

  // k rows of panel j from p0 on.
  void pack_panel(int64_t j, int64_t p0, int64_t k, T* to) const {
    const int64_t first = p0 * b_row + j * kernel.cols * b_col;
    const int64_t n = std::min(kernel.cols, g.n - j * kernel.cols);
    if constexpr (std::is_same_v<T, float>) {
      if (narrow != nullptr) return narrow->pack_b(in_b(first), b_row, b_col, k, n, to);
    }
    kernel.pack_b(b_at(first), b_row, b_col, k, n, to);
  }

  // Rows [i, i + m) of the panels [j0, j1) at `to`, from one piece of k. fresh: nothing is in
  // `pack` yet. to_a: room to pack A, or null.
  void strip(int64_t i, int64_t m, int64_t j0, int64_t j1, int64_t p0, T* pack, bool fresh, T* to_a,
             T* to, int64_t ldc) const {
    const int64_t cols = kernel.cols;
    GemmPanel<T> panel;
    panel.m = m;
    panel.k = std::min(kPanelDepth, g.k - p0);
    panel.row = a_row, panel.col = a_col;
    panel.packed = to_a != nullptr;
    panel.ldc = ldc;
    panel.alpha = alpha, panel.beta = p0 == 0 ? beta : T(1);
    panel.a = a + i * a_row + p0 * a_col;
    if (to_a != nullptr) {
      kernel.pack_a(panel.a, a_row, a_col, m, panel.k, to_a);
      panel.a = to_a;
    }
    for (int64_t j = j0; j < j1; ++j) {
      panel.n = std::min(cols, g.n - j * cols);
      T* const packed = pack + (j - j0) * cols * panel.k;
      const bool copies = fresh && lies(j);
      if (fresh && !copies) pack_panel(j, p0, panel.k, packed);
      panel.b = copies ? b_at(p0 * b_row + j * cols) : packed;
      panel.ldb = copies ? b_row : cols;
      panel.copy = copies && !is_thin() ? packed : nullptr;
      panel.c = to + (j - j0) * cols;
      kernel.panel(panel);
    }
  }

  // How much of k a block of C is computed in at once: all of it where something waits for the
  // block.
  int64_t depth_of(const GemmBlocks& blocks) const {
    return blocks.after != nullptr || is_turned() ? g.k : std::min(g.k, kDeepest);
  }

  // All of C, block by block.
  void blocks(const GemmBlocks& near) const {
    const int64_t panels = ceil_div(g.n, kernel.cols);
    const int64_t budget = kPackBytes / static_cast<int64_t>(sizeof(T)) / kernel.cols;
    const int threads = threads_of(g.max_threads);
    const int64_t widest =
        near.whole_rows ? panels : std::max(kWidePanels, budget / depth_of(near));
    const int64_t narrowest = near.whole_rows ? panels : near.after != nullptr ? kNarrowest : 1;
    Grid grid = choose_grid(g.m, panels, kernel.cols * g.k, widest, narrowest, pack_cost(),
                            kernel.rows, threads);
    // A block a task: threads that come late take fewer, and a thread goes on with the B it packed.
    if (threads > 1 && near.after != nullptr)
      grid.rows = std::max(grid.rows, ceil_div(g.m, kStripRows));
    std::array<int64_t, 64> held;
    held.fill(-1);
    parallel_for(grid.rows * grid.cols, threads, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t group = task / grid.rows, row = task % grid.rows;
        int64_t unknown = -1;
        int64_t& packed = worker < 64 ? held[static_cast<size_t>(worker)] : unknown;
        block(g.m * row / grid.rows, g.m * (row + 1) / grid.rows, panels * group / grid.cols,
              panels * (group + 1) / grid.cols, packed == group, near);
        packed = group;
      }
    });
  }

  void block(int64_t i0, int64_t i1, int64_t j0, int64_t j1, bool packed,
             const GemmBlocks& near) const {
    GemmScratch& scratch = gemm_scratch();
    const int64_t depth = std::min(kPanelDepth, g.k), cols = kernel.cols, width = (j1 - j0) * cols;
    const int64_t height = strip_height(i1 - i0, kernel.rows), last = std::min(g.n, j1 * cols);
    const bool turned = is_turned();
    const int64_t deep = depth_of(near);
    const bool has_b = packed && deep == g.k;
    T* const to_b = turned ? nullptr : scratch.b.get<T>(width * deep);
    T* const to_a =
        turned || reads_a_in_place(j1 - j0) ? nullptr : scratch.a.get<T>(height * depth);
    for (int64_t k0 = 0; k0 < g.k; k0 += deep) {
      const int64_t k1 = std::min(k0 + deep, g.k);
      for (int64_t i = i0; i < i1; i += height) {
        const int64_t rows = std::min(height, i1 - i);
        T* to = c + i * g.ldc + j0 * cols;
        int64_t ldc = g.ldc;
        if (c == nullptr) {
          to = scratch.c.get<T>(height * width);
          ldc = last - j0 * cols;
        }
        const GemmBlocks::Block here{
            i, rows, j0 * cols, last - j0 * cols, reinterpret_cast<char*>(to), ldc};
        if (near.before != nullptr) near.before(near.context, here);
        if (turned) turned_block(i, rows, j0 * cols, last - j0 * cols, to, ldc);
        for (int64_t p0 = k0; p0 < k1 && !turned; p0 += kPanelDepth) {
          strip(i, rows, j0, j1, p0, to_b + (p0 - k0) * width, i == i0 && !has_b, to_a, to, ldc);
        }
        if (near.after != nullptr) near.after(near.context, here);
      }
    }
  }

  // The block of `rows` rows from i and `width` columns from j at `to`, turned.
  void turned_block(int64_t i, int64_t rows, int64_t j, int64_t width, T* to, int64_t ldc) const {
    GemmScratch& scratch = gemm_scratch();
    const int64_t cols = kernel.cols, panels = ceil_div(rows, cols);
    // Rows apart by no power of two, which would meet in the same cache sets.
    const int64_t ld = panels * cols + cols / 2;
    T* const packed = scratch.a.get<T>(panels * cols * std::min(kPanelDepth, g.k));
    T* const result = scratch.turned.get<T>(width * ld);
    const TransposeKernel<T> transpose = transpose_kernel(current_isa(), T());
    if (beta != T(0)) transpose(to, ldc, rows, width, result, ld);
    GemmPanel<T> panel;
    panel.row = b_col, panel.col = 1;
    panel.ldb = cols, panel.ldc = ld;
    panel.alpha = alpha;
    for (int64_t p0 = 0; p0 < g.k; p0 += kPanelDepth) {
      panel.k = std::min(kPanelDepth, g.k - p0);
      panel.beta = p0 == 0 ? beta : T(1);
      kernel.pack_b(a + i * a_row + p0 * a_col, a_col, a_row, panel.k, rows, packed);
      const int64_t height = strip_height(width, kernel.rows);
      for (int64_t q = 0; q < width; q += height) {
        panel.m = std::min(height, width - q);
        const int64_t first = (j + q) * b_col + p0;
        panel.a = b_at(first);
        if constexpr (std::is_same_v<T, float>) {
          if (narrow != nullptr) {
            float* const rows_of_b = scratch.widened.get<float>(height * kWidenedStep);
            narrow->widen(in_b(first), b_col, panel.m, panel.k, rows_of_b, kWidenedStep);
            panel.a = rows_of_b, panel.row = kWidenedStep;
          }
        }
        for (int64_t f = 0; f < panels; ++f) {
          panel.n = std::min(cols, rows - f * cols);
          panel.b = packed + f * cols * panel.k;
          panel.c = result + q * ld + f * cols;
          kernel.panel(panel);
        }
      }
    }
    transpose(result, ld, width, rows, to, ldc);
  }
};

}  // namespace

bool is_sum_of_dots(const GemmArgs& g) {
  // Packing B for as few rows costs more than their products; short rows are all sums of lanes. Of
  // a matrix that comes from memory a part is read while another is multiplied.
  constexpr int64_t kFew = 8, kFewOfLarge = 12, kLarge = int64_t{1} << 20, kShort = 32;
  const int64_t few = std::max(g.m, g.n) * g.k >= kLarge ? kFewOfLarge : kFew;
  const bool a_along_k = !g.trans_a || g.lda == 1, b_along_k = g.trans_b || g.ldb == 1;
  return a_along_k && b_along_k && std::min(g.m, g.n) <= few && g.k >= kShort;
}

void float_gemm(const GemmArgs& args) {
  switch (args.dtype) {
    case Dtype::kFloat32:
      return Float<float>(args, args.dtype).run();
    case Dtype::kFloat64:
      return Float<double>(args, args.dtype).run();
    case Dtype::kInt32:
      return Float<uint32_t>(args, args.dtype).run();
    case Dtype::kInt64:
      return Float<uint64_t>(args, args.dtype).run();
    default:
      fail(ErrorKind::kInternal, "no register tile of ", dtype_name(args.dtype));
  }
}

void narrow_float_gemm(const GemmArgs& args, Dtype b_type) { Float<float>(args, b_type).run(); }

void float_gemm_blocks(const GemmArgs& args, Dtype b_type, const GemmBlocks& blocks) {
  if (args.dtype == Dtype::kFloat64) {
    Float<double>(args, b_type).blocks(blocks);
  } else {
    Float<float>(args, b_type).blocks(blocks);
  }
}

}  // namespace hologram::cpu
