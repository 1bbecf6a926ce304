// SPDX-License-Identifier: MIT
// Products of providers that compute on the calling thread alone, cut into tiles.
#pragma once

#include <cstdint>

#include "hologram/gemm.h"
#include "src/cpu/gemm/gemm_float.h"
#include "src/cpu/gemm/gemm_provider.h"

namespace hologram::cpu {

// How C is cut: rows x cols tiles, each of `height` x `width` elements or fewer.
struct TileGrid {
  int64_t rows = 1, cols = 1;
  int64_t height = 0, width = 0;
};

// How a product is cut on a machine with `processors` processors. No tile has fewer multiplications
// than tile_work, unless there is one tile only. The number of threads does not matter, so it
// changes no bits.
TileGrid tile_grid(int64_t m, int64_t n, int64_t k, int processors, int64_t tile_work);

// `batch` products of a provider whose gemm() computes on one thread.
void run_tiles(const GemmProvider& provider, const GemmArgs& args, int64_t batch,
               const BatchStrides& strides);

// One product whose tiles are handed over when they are done, with the bits of run_tiles(). False,
// with nothing done, where the tiles do not suit the blocks asked for.
bool run_tiles_blocks(const GemmProvider& provider, const GemmArgs& args, const GemmBlocks& blocks);

}  // namespace hologram::cpu
