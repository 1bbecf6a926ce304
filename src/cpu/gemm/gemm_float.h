// SPDX-License-Identifier: MIT
// Products of the built-in GEMM by register tiles: float32, float64, int32 and int64.
#pragma once

#include "hologram/gemm.h"

namespace hologram::cpu {

// The product, float32, float64, int32 or int64, which wrap; m, n, k >= 1. The number of threads
// changes no bits.
void float_gemm(const GemmArgs& args);
// A product of float32 whose B has elements of b_type, int8 or a half type, widened as they are
// read: the bits are those of B converted before.
void narrow_float_gemm(const GemmArgs& args, Dtype b_type);

// Whether the elements are computed one by one, as dot products of rows that lie along k: for a few
// rows on either side.
bool is_sum_of_dots(const GemmArgs& args);

// What happens to blocks of C while they are near; any thread, several at once.
struct GemmBlocks {
  struct Block {
    int64_t row, rows, col, cols;
    char* data;     // the first element
    int64_t pitch;  // elements from one row to the next
  };
  // It is about to be computed: what beta scales has to be in it.
  void (*before)(void* context, const Block& block) = nullptr;
  void (*after)(void* context, const Block& block) = nullptr;
  void* context = nullptr;
  bool whole_rows = false;  // blocks have all columns
};

// The whole product block by block, with the bits that float_gemm gives; none of dot products.
// Where args.c is null a block is there for as long as `after` runs. b_type: the dtype, or as
// above.
void float_gemm_blocks(const GemmArgs& args, Dtype b_type, const GemmBlocks& blocks);

}  // namespace hologram::cpu
