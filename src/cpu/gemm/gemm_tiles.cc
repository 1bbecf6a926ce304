// SPDX-License-Identifier: MIT
// Cuts products into tiles that a provider computes on one thread each.
#include "src/cpu/gemm/gemm_tiles.h"

#include <algorithm>
#include <limits>

#include "hologram/parallel.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/gemm/pack_buffer.h"
#include "src/runtime/threads/processors.h"

namespace hologram::cpu {
namespace {

using internal::machine_processors;

// From here on there are two tiles a processor: one that comes late computes fewer.
constexpr int64_t kLateWork = int64_t{1} << 28;
// What packing a tile's operands costs, in rows and columns of C: a tile of m x n takes the time of
// (m + 32) x (n + 32). Measured with MKL on AVX-512.
constexpr int64_t kPacking = 32;
// Tiles begin at multiples of these: whole register tiles of any BLAS.
constexpr int64_t kRowStep = 8, kColStep = 16;
// Tiles of results that nobody keeps lie in scratch memory, which a thread keeps.
constexpr int64_t kScratchBytes = int64_t{4} << 20;

// More threads than this seldom work on one product, and a tile that is cut for more of them costs
// those that there are.
constexpr int kMostProcessors = 32;

// The machine's or the container's, for a process that may use fewer shall give the same bits.
int processors() { return std::min(machine_processors(), kMostProcessors); }

int64_t size_of(const GemmArgs& g) { return static_cast<int64_t>(itemsize(g.dtype)); }

const void* advance(const void* data, int64_t elements, int64_t size) {
  return static_cast<const char*>(data) + elements * size;
}

struct Tile {
  int64_t row, rows, col, cols;
};

Tile tile_at(const GemmArgs& g, const TileGrid& grid, int64_t index) {
  const int64_t row = index / grid.cols * grid.height, col = index % grid.cols * grid.width;
  return {row, std::min(grid.height, g.m - row), col, std::min(grid.width, g.n - col)};
}

// The product that is one tile of C; c: its first element, or null for its place in C.
GemmArgs tile_args(const GemmArgs& g, const Tile& tile, void* c, int64_t ldc) {
  const int64_t size = size_of(g);
  GemmArgs part = g;
  part.m = tile.rows, part.n = tile.cols;
  part.a = advance(g.a, g.trans_a ? tile.row : tile.row * g.lda, size);
  part.b = advance(g.b, g.trans_b ? tile.col * g.ldb : tile.col, size);
  part.c = c, part.ldc = ldc;
  part.max_threads = 1;
  return part;
}

void* place_in(const GemmArgs& g, const Tile& tile) {
  return static_cast<char*>(g.c) + (tile.row * g.ldc + tile.col) * size_of(g);
}

// Whole products, some at a time: each call of the provider costs as much as several small ones.
void run_groups(const GemmProvider& provider, const GemmArgs& args, int64_t batch,
                const BatchStrides& strides) {
  // A group has some tiles' work where each processor gets one.
  constexpr int64_t kTilesOfGroup = 8;
  const int64_t size = size_of(args), work = args.m * args.n * args.k;
  const int64_t group = std::max(ceil_div(provider.tile_work, work),
                                 std::min(ceil_div(kTilesOfGroup * provider.tile_work, work),
                                          ceil_div(batch, int64_t{processors()})));
  parallel_for(
      ceil_div(batch, group), threads_of(args.max_threads), [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin * group; i < std::min(batch, end * group); i += group) {
          GemmArgs g = args;
          g.a = advance(args.a, i * strides.a, size);
          g.b = advance(args.b, i * strides.b, size);
          g.c = static_cast<char*>(args.c) + i * strides.c * size;
          g.max_threads = 1;
          provider.gemm_batched(g, std::min(group, batch - i), strides.a, strides.b, strides.c);
        }
      });
}

}  // namespace

TileGrid tile_grid(int64_t m, int64_t n, int64_t k, int processors, int64_t tile_work) {
  const int64_t work = effective_work(m, n, k);
  const int64_t most = processors * (work >= kLateWork ? 2 : 1);
  const int64_t tiles = processors < 2 ? 1 : std::clamp<int64_t>(work / tile_work, 1, most);
  TileGrid best{1, 1, m, n};
  int64_t best_cost = std::numeric_limits<int64_t>::max();
  for (int64_t rows = 1; rows <= tiles; ++rows) {
    const int64_t height = ceil_div(ceil_div(m, rows), kRowStep) * kRowStep;
    const int64_t width = ceil_div(ceil_div(n, tiles / rows), kColStep) * kColStep;
    const int64_t down = ceil_div(m, height), across = ceil_div(n, width);
    const int64_t rounds = ceil_div(down * across, processors);
    const int64_t cost =
        rounds * (std::min(height, m) + kPacking) * (std::min(width, n) + kPacking);
    if (cost < best_cost) best = {down, across, height, width}, best_cost = cost;
  }
  return best;
}

void run_tiles(const GemmProvider& provider, const GemmArgs& args, int64_t batch,
               const BatchStrides& strides) {
  // Of several products each is a tile, unless there are fewer than processors.
  const int share = static_cast<int>(ceil_div(processors(), batch));
  const TileGrid grid = tile_grid(args.m, args.n, args.k, share, provider.tile_work);
  const int64_t each = grid.rows * grid.cols, size = size_of(args);
  if (each == 1 && batch > 1 && provider.gemm_batched != nullptr) {
    return run_groups(provider, args, batch, strides);
  }
  const int64_t chunk =
      std::max<int64_t>(1, provider.tile_work / (args.m * args.n * args.k / each + 1));
  const int64_t tiles = batch * each;
  parallel_for(ceil_div(tiles, chunk), threads_of(args.max_threads),
               [&](int64_t begin, int64_t end, int) {
                 for (int64_t t = begin * chunk; t < std::min(tiles, end * chunk); ++t) {
                   GemmArgs g = args;
                   g.a = advance(args.a, t / each * strides.a, size);
                   g.b = advance(args.b, t / each * strides.b, size);
                   g.c = static_cast<char*>(args.c) + t / each * strides.c * size;
                   const Tile tile = tile_at(g, grid, t % each);
                   provider.gemm(tile_args(g, tile, place_in(g, tile), g.ldc));
                 }
               });
}

bool run_tiles_blocks(const GemmProvider& provider, const GemmArgs& args,
                      const GemmBlocks& blocks) {
  const TileGrid grid = tile_grid(args.m, args.n, args.k, processors(), provider.tile_work);
  if (blocks.whole_rows && grid.cols > 1) return false;
  const int64_t size = size_of(args);
  if (args.c == nullptr && grid.height * grid.width * size > kScratchBytes) return false;
  parallel_for(
      grid.rows * grid.cols, threads_of(args.max_threads), [&](int64_t begin, int64_t end, int) {
        static thread_local PackBuffer scratch;
        for (int64_t t = begin; t < end; ++t) {
          const Tile tile = tile_at(args, grid, t);
          const bool kept = args.c != nullptr;
          void* const c =
              kept ? place_in(args, tile) : scratch.get<char>(tile.rows * tile.cols * size);
          const int64_t pitch = kept ? args.ldc : tile.cols;
          const GemmBlocks::Block block{
              tile.row, tile.rows, tile.col, tile.cols, static_cast<char*>(c), pitch};
          blocks.before(blocks.context, block);
          provider.gemm(tile_args(args, tile, c, pitch));
          blocks.after(blocks.context, block);
        }
      });
  return true;
}

}  // namespace hologram::cpu
