// SPDX-License-Identifier: MIT
// A kernel's domain with its dimensions merged and cut into blocks; rows that lie a little apart
// joined over the gaps between them.
#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "src/cpu/program/lower.h"

namespace hologram::cpu {

using circuit::Instr;
using circuit::Kernel;
using circuit::Rank;

namespace {

bool has_row_values(const Kernel& kernel) {
  return std::any_of(kernel.instrs.begin(), kernel.instrs.end(), [](const Instr& instr) {
    return instr.rank == Rank::kRow || instr.code == circuit::kCodeReduction ||
           instr.code == circuit::kCodeRow;
  });
}

// ---- rows joined over gaps ----

// From dimension `first` on, an operand lies spread, steps[d] elements from one index of dimension
// d to the next, or packed, without gaps; or it is one element.
struct GapJoin {
  int first = -1;
  int64_t span = 1;  // of what lies spread, from the first element to the last, with both
  std::array<int64_t, BlockDomain::kPitch> steps{};
  // Which of the two each operand may be: both where there is no gap yet.
  struct Lies {
    bool spread = true, packed = true;
  };
  std::vector<Lies> lies;
};

bool is_one(const Loops& loops, int operand) {
  for (int d = 0; d < loops.ndim; ++d) {
    if (loops.stride(operand, d) != 0) return false;
  }
  return true;
}

// Joins dimension `dim` to those after it, which have `count` elements. Returns the step of what
// lies spread; 0, with nothing done, where an operand lies neither so nor packed.
int64_t join_dimension(const Loops& loops, int dim, int64_t count,
                       std::vector<GapJoin::Lies>& lies) {
  int64_t step = 0;
  for (int k = 0; k < loops.count; ++k) step = std::max(step, loops.stride(k, dim));
  std::vector<GapJoin::Lies> joined = lies;
  for (int k = 0; k < loops.count; ++k) {
    if (is_one(loops, k)) continue;
    GapJoin::Lies& it = joined[static_cast<size_t>(k)];
    it.spread = it.spread && loops.stride(k, dim) == step;
    it.packed = it.packed && loops.stride(k, dim) == count;
    if (!it.spread && !it.packed) return 0;
  }
  lies = std::move(joined);
  return step;
}

// Rows of at least this many vectors are not joined: a loop that walks them row by row is as fast,
// and can store past the caches.
constexpr int64_t kLongRow = 8;
// A call for a block takes as long as this many vectors.
constexpr int64_t kVectorsOfBlock = 8;

// The largest step to which dimension `dim` is joined, where what is joined already spans so much:
// that is no more work then. An element that lies alone is gathered or scattered otherwise, a row
// of its own costs half a vector more than its elements, and a block of its own some vectors.
int64_t most_step(const GapJoin& join, int dim, int last, int64_t lanes) {
  if (dim == last) return lanes / 2;
  const bool are_rows = dim == last - 1 && join.steps[static_cast<size_t>(last)] == 1;
  if (are_rows) return (join.span + lanes - 1) / lanes * lanes + lanes / 2;
  return join.span + std::max(join.span / 2, kVectorsOfBlock * lanes);
}

// What lies between the elements is read, too. `sizes`: bytes of the operands' elements.
GapJoin find_join(const Loops& loops, const std::vector<int64_t>& sizes, int64_t tile) {
  const int64_t lanes = 64 / *std::max_element(sizes.begin(), sizes.end());
  const int last = loops.ndim - 1;
  GapJoin join;
  // Elements of 4 and 8 bytes are packed and unpacked by every processor that has masks.
  for (const int64_t size : sizes) join.lies.push_back({true, size >= 4});
  std::vector<GapJoin::Lies> lies = join.lies;
  int64_t count = 1;
  for (int d = last; d >= 0 && join.span <= tile; --d) {
    const int64_t step = join_dimension(loops, d, count, lies);
    if (step < join.span || step > most_step(join, d, last, lanes) || 2 * step > tile) break;
    join.lies = lies;
    join.steps[static_cast<size_t>(d)] = step;
    join.span += (loops.shape[d] - 1) * step;
    count *= loops.shape[d];
    // Elements side by side have no gaps.
    if (d < last || step > 1) {
      join.first = d;
    } else if (join.span >= kLongRow * lanes) {
      break;
    }
  }
  return join;
}

// Sets the bits of the positions from `at` on that hold an element, up to `end`.
void mark_kept(const Loops& loops, const GapJoin& join, int dim, int64_t at, int64_t end,
               uint64_t* kept) {
  const int64_t step = join.steps[static_cast<size_t>(dim)];
  if (dim + 1 == loops.ndim && step == 1) {
    for (const int64_t row_end = std::min(at + loops.shape[dim], end); at < row_end;) {
      const int64_t bit = at % 64, n = std::min(64 - bit, row_end - at);
      kept[at / 64] |= ~uint64_t{0} >> (64 - n) << bit;
      at += n;
    }
    return;
  }
  for (int64_t i = 0; i < loops.shape[dim] && at < end; ++i, at += step) {
    if (dim + 1 < loops.ndim) {
      mark_kept(loops, join, dim + 1, at, end, kept);
    } else {
      kept[at / 64] |= uint64_t{1} << (at % 64);
    }
  }
}

// The joined dimensions become one, of all positions between their first element and their last.
// Blocks are some whole steps of the outermost, so that one pattern serves all.
BlockGrid join_rows(Loops& loops, const GapJoin& join, int64_t tile, BlockDomain& domain) {
  const int64_t step = join.steps[static_cast<size_t>(join.first)];
  BlockGrid grid;
  grid.block_cols = join.span <= tile ? join.span : tile / step * step;
  grid.col_blocks = (join.span + grid.block_cols - 1) / grid.block_cols;
  // Loops read eight bytes from any of it on.
  domain.kept.assign(static_cast<size_t>(grid.block_cols / 64) + 2, 0);
  mark_kept(loops, join, join.first, 0, grid.block_cols, domain.kept.data());
  for (const uint64_t word : domain.kept) domain.kept_count += std::popcount(word);
  for (int k = 0; k < loops.count; ++k) {
    const int64_t along = is_one(loops, k) ? 0 : 1;
    loops.stride(k, join.first) = 0;  // a row of its own keeps the walk free of special cases
    loops.stride(k, join.first + 1) = along;
  }
  loops.ndim = join.first + 2;
  loops.shape[join.first] = 1;
  loops.shape[join.first + 1] = join.span;
  for (int d = 0; d < join.first; ++d) grid.outer *= loops.shape[d];
  domain.numel = grid.outer * join.span;
  return grid;
}

}  // namespace

BlockDomain make_block_domain(const Kernel& kernel, int64_t tile, bool joins_rows) {
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
  GapJoin join;
  if (joins_rows) {
    std::vector<int64_t> sizes;
    sizes.reserve(order.size());
    for (const int k : order)
      sizes.push_back(static_cast<int64_t>(itemsize(kernel.accesses[k].dtype)));
    join = find_join(loops, sizes, tile);
    if (join.first >= 0 && join.steps[static_cast<size_t>(loops.ndim) - 1] > 1 && is_copy(kernel) &&
        !join.lies[0].spread) {
      join.first = -1;  // a gathering copy is faster
    }
  }
  domain.grid = join.first < 0 ? cut_into_blocks(loops, tile, whole_rows)
                               : join_rows(loops, join, tile, domain);
  domain.ndim = loops.ndim;
  domain.packed.assign(static_cast<size_t>(count), 0);
  for (int k = 0; k < count; ++k) {
    std::copy_n(&strides[k * BlockDomain::kPitch], BlockDomain::kPitch,
                &domain.strides[order[k] * BlockDomain::kPitch]);
    if (join.first < 0) continue;
    domain.packed[static_cast<size_t>(order[k])] = !join.lies[static_cast<size_t>(k)].spread;
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

bool BlockDomain::moves(int access) const {
  const auto first = strides.begin() + access * kPitch;
  return std::any_of(first, first + ndim, [](int64_t stride) { return stride != 0; });
}

}  // namespace hologram::cpu
