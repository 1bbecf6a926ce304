// SPDX-License-Identifier: MIT
// Domains of fused kernels: dimensions merged where every access allows it, cut into blocks.
#include <algorithm>

#include "src/cpu/program/program.h"

namespace hologram::cpu {
namespace {

using circuit::Access;
using circuit::Instr;
using circuit::Kernel;
using circuit::Rank;

bool has_row_values(const Kernel& kernel) {
  return std::any_of(kernel.instrs.begin(), kernel.instrs.end(), [](const Instr& instr) {
    return instr.rank == Rank::kRow || instr.code == circuit::kCodeReduction ||
           instr.code == circuit::kCodeRow;
  });
}

}  // namespace

BlockDomain make_block_domain(const Kernel& kernel, int64_t tile) {
  const int count = static_cast<int>(kernel.accesses.size());
  const bool whole_rows = circuit::wants_whole_rows(kernel);
  const bool keeps_columns = whole_rows || has_row_values(kernel);
  BlockDomain domain;
  domain.keeps_columns = keeps_columns;
  domain.numel = kernel.numel();
  domain.strides.assign(static_cast<size_t>(count) * BlockDomain::kPitch, 0);
  // Results decide the order of the walk, so they come first.
  std::vector<int> order;
  for (const bool stored : {true, false}) {
    for (int k = 0; k < count; ++k) {
      if (kernel.accesses[k].stored == stored) order.push_back(k);
    }
  }
  std::vector<int64_t> strides(domain.strides.size());
  Loops loops{0, count, domain.shape.data(), strides.data(), BlockDomain::kPitch};
  for (int d = 0; d < kernel.ndim; ++d) {
    if (kernel.shape[d] == 1 && !(keeps_columns && d == kernel.ndim - 1)) continue;
    domain.shape[loops.ndim] = kernel.shape[d];
    for (int k = 0; k < count; ++k) {
      loops.stride(k, loops.ndim) = kernel.accesses[order[k]].strides[d];
    }
    ++loops.ndim;
  }
  order_and_merge(loops, keeps_columns ? 1 : 0);
  domain.grid = cut_into_blocks(loops, tile, whole_rows);
  domain.ndim = loops.ndim;
  for (int k = 0; k < count; ++k) {
    std::copy_n(&strides[k * BlockDomain::kPitch], BlockDomain::kPitch,
                &domain.strides[order[k] * BlockDomain::kPitch]);
  }
  return domain;
}

Layout BlockDomain::layout(int access) const {
  const int64_t rs = row_stride(access), cs = col_stride(access);
  const int64_t rows = grid.block_rows, cols = grid.block_cols;
  if ((cols == 1 || cs == 1) && (rows == 1 || (rs == cols && grid.col_blocks == 1))) {
    return Layout::kDense;
  }
  bool one = true;
  for (int d = 0; d < ndim; ++d) one &= shape[d] == 1 || strides[access * kPitch + d] == 0;
  if (one) return Layout::kOne;
  if (cols > 1 && cs == 0) return Layout::kRowScalar;
  if (cols > 1 && cs == 1) return Layout::kRowVector;
  return Layout::kStrided;
}

bool BlockDomain::is_repeated(int access) const {
  bool repeated = grid.col_blocks == 1;
  for (int d = 0; d < ndim - 1; ++d) {
    repeated &= shape[d] == 1 || strides[access * kPitch + d] == 0;
  }
  return repeated;
}

Iteration::Extent BlockDomain::block(int64_t index, int accesses, int64_t* offsets) const {
  const int inner = ndim - 1;
  int64_t row = 0, col = 0;
  if (grid.row_blocks == 1 && grid.outer == 1) {
    col = index * grid.block_cols;
  } else {
    if (grid.col_blocks > 1) {
      col = index % grid.col_blocks * grid.block_cols;
      index /= grid.col_blocks;
    }
    row = index * grid.block_rows;
    if (grid.outer > 1) {
      row = index % grid.row_blocks * grid.block_rows;
      index /= grid.row_blocks;
    }
  }
  for (int k = 0; k < accesses; ++k) {
    const int64_t* steps = &strides[k * kPitch];
    offsets[k] = row * steps[inner - 1] + col * steps[inner];
  }
  if (grid.outer > 1) {
    for (int d = inner - 2; d >= 0 && index > 0; --d) {
      const int64_t position = index % shape[d];
      index /= shape[d];
      for (int k = 0; k < accesses; ++k) offsets[k] += position * strides[k * kPitch + d];
    }
  }
  return {std::min(grid.block_rows, shape[inner - 1] - row),
          std::min(grid.block_cols, shape[inner] - col)};
}

}  // namespace hologram::cpu
