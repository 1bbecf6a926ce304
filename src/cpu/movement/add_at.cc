// SPDX-License-Identifier: MIT
// add_at: adds rows of values to the rows at positions, in the order of the values or place by
// place. Taking and putting rows is in indexing.cc, elements by an index each in gather.cc.
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/indexing.h"
#include "hologram/parallel.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/device/kernel_table.h"
#include "src/cpu/movement/around.h"
#include "src/cpu/movement/index_kernels.h"

namespace hologram {
namespace cpu {
namespace {

template <class T>
std::unique_ptr<T[]> memory_for_adding(int64_t count) {
  std::unique_ptr<T[]> memory(new (std::nothrow) T[static_cast<size_t>(count)]);
  if (memory == nullptr) {
    fail(ErrorKind::kOutOfMemory, "add_at needs ", count * static_cast<int64_t>(sizeof(T)),
         " bytes");
  }
  return memory;
}

// Columns of a tile: many, to read rows in one go, unless the places are too few for the threads.
constexpr int64_t kColumns = 1024;
constexpr int64_t kFewColumns = 64;

// Values for places of [0, size) in each of some lines; a row has `inner` elements.
struct Addition {
  Dtype dtype;
  char* out;
  const char* values;
  int64_t outer, size, inner, n;
  const int64_t* skipped;
  int threads;

  int64_t item() const { return static_cast<int64_t>(itemsize(dtype)); }
  // The columns of a tile where `rows` rows are divided into tiles: fewer where the rows alone give
  // the threads too few of them.
  int64_t width_for(int64_t rows) const {
    const int64_t shares = threads == 1 ? 1 : ceil_div(int64_t{4} * threads, rows);
    return std::clamp(ceil_div(inner, shares), std::min(inner, kFewColumns), kColumns);
  }
};

// --- One row after another ----------------------------------------------------------------------

// Those places that a thread adds to.
struct PlaceRange {
  int64_t begin, end;
};

// Where rows of a line come from and go to, by blocks of them. Steps are in bytes, from row to row
// and from place to place.
template <class Index>
class RowPlaces {
 public:
  RowPlaces(const Addition& job, const Index* index, PlaceRange range, int64_t step,
            int64_t place_step)
      : job_(job),
        index_(index),
        range_(range),
        step_(step),
        place_step_(place_step),
        selects_(job.skipped != nullptr || range.begin > 0 || range.end < job.size) {}

  // Those of the block that begins at row k.
  void find(int64_t k) {
    count_ = std::min(kPositionBlock, job_.n - k);
    const Index* const index = index_ + k;
    find_places(kernels_, index, count_, job_.size, place_step_, places_);
    if (!selects_) return;
    const int64_t begin = range_.begin * place_step_;
    const auto bytes = static_cast<uint64_t>((range_.end - range_.begin) * place_step_);
    int64_t count = 0;
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t place = places_[i] - begin;
      const bool is_skipped = job_.skipped != nullptr && index[i] == *job_.skipped;
      places_[count] = place;
      sources_[count] = i * step_;
      count += static_cast<uint64_t>(place) < bytes && !is_skipped ? 1 : 0;
    }
    count_ = count;
  }

  // Adds the block's rows, the first of which `from` points to, to those from the range's first on.
  // The shape lacks their number.
  void add(Dtype dtype, const void* from, void* to, LinesOfRows shape) const {
    shape.rows = count_;
    kernels_.add[static_cast<int>(dtype)](static_cast<const char*>(from),
                                          selects_ ? sources_ : nullptr, static_cast<char*>(to),
                                          places_, shape);
  }

 private:
  const IndexKernels& kernels_ = index_kernels(current_isa());
  const Addition& job_;
  const Index* const index_;
  const PlaceRange range_;
  const int64_t step_, place_step_;
  const bool selects_;
  int64_t count_ = 0;
  int64_t places_[kPositionBlock], sources_[kPositionBlock];
};

// Few tiles are divided by places, so that all threads get some. Each then reads all positions.
int64_t ranges_for(const Addition& job, int64_t tiles) {
  const bool is_small = job.outer * job.n * job.inner < 2 * grain(true);
  if (job.threads == 1 || is_small || tiles >= job.threads) return 1;
  return std::min(job.size, ceil_div(int64_t{2} * job.threads, tiles));
}

template <class Index>
void add_in_turn(const Addition& job, const Index* index) {
  const int64_t item = job.item(), step = job.inner * item, n = job.n, size = job.size;
  const int64_t width = job.width_for(job.outer), columns = ceil_div(job.inner, width);
  const int64_t ranges = ranges_for(job, job.outer * columns);
  const int64_t per_chunk = std::max<int64_t>(1, grain(true) / (n * width / ranges + 16));
  // Lines that read the same places go together.
  const bool together = columns == 1 && ranges == 1 && n <= kPositionBlock;
  for_chunks(job.outer * columns * ranges, per_chunk, job.threads, [&](int64_t begin, int64_t end) {
    const int64_t lines = together ? end - begin : 1;
    for (int64_t unit = begin; unit < end; unit += lines) {
      const int64_t tile = unit / ranges, line = tile / columns, j = tile % columns * width;
      const PlaceRange range{unit % ranges * size / ranges, (unit % ranges + 1) * size / ranges};
      RowPlaces places(job, index, range, step, step);
      const char* from = job.values + (line * n * job.inner + j) * item;
      char* const to = job.out + ((line * size + range.begin) * job.inner + j) * item;
      for (int64_t k = 0; k < n; k += kPositionBlock) {
        places.find(k);
        places.add(job.dtype, from + k * step, to,
                   {.lines = lines,
                    .from_line = n * step,
                    .to_line = size * step,
                    .rows = 0,
                    .step = step,
                    .bytes = std::min(width, job.inner - j) * item});
      }
    }
  });
}

// --- Half types, one row after another ----------------------------------------------------------

// Elements of lines that are summed together.
constexpr int64_t kSummed = 8192;

// Bits to keep of what was there: none in elements that are added to.
template <class Index>
std::unique_ptr<uint16_t[]> untouched_bits(const Addition& job, const Index* index, int64_t lines) {
  const int64_t line = job.size * job.inner;
  auto bits = memory_for_adding<uint16_t>(lines * line);
  std::fill_n(bits.get(), line, uint16_t{0xffff});
  for (int64_t k = 0; k < job.n; ++k) {
    const int64_t at = index[k];
    if (job.skipped != nullptr && at == *job.skipped) continue;
    std::fill_n(bits.get() + (at < 0 ? at + job.size : at) * job.inner, job.inner, uint16_t{0});
  }
  for (int64_t l = 1; l < lines; ++l) std::copy_n(bits.get(), line, bits.get() + l * line);
  return bits;
}

// The float32 sums, rounded, where something has been added.
void round_sums(const float* sums, const uint16_t* untouched, Dtype dtype, uint16_t* out,
                int64_t n) {
  uint16_t rounded[kPositionBlock];
  for (int64_t done = 0; done < n; done += kPositionBlock) {
    const int64_t count = std::min(kPositionBlock, n - done);
    convert(Dtype::kFloat32, sums + done, dtype, rounded, count);
    for (int64_t i = 0; i < count; ++i) {
      const unsigned keeps = untouched[done + i];
      out[done + i] = static_cast<uint16_t>((out[done + i] & keeps) | (rounded[i] & ~keeps));
    }
  }
}

// Rows so short and places so few for the values that all of out can be float32 meanwhile.
bool takes_halves_in_turn(const Addition& job) {
  return job.inner < kFewColumns && job.size <= 4 * job.n;
}

template <class Index>
void add_halves_in_turn(const Addition& job, const Index* index) {
  constexpr int64_t kFloat = sizeof(float);
  const int64_t n = job.n, inner = job.inner, size = job.size;
  const int64_t most = n > kPositionBlock ? 1 : kSummed / (std::max(size, n) * inner);
  const int64_t share =
      job.threads == 1 ? job.outer : ceil_div(job.outer, int64_t{2} * job.threads);
  const int64_t together = std::clamp<int64_t>(most, 1, share);
  const int64_t units = ceil_div(job.outer, together);
  const int64_t ranges = together > 1 ? 1 : ranges_for(job, units);
  const auto untouched = untouched_bits(job, index, together);
  // All memory is there before anything is written.
  const int threads = static_cast<int>(std::min<int64_t>(job.threads, units * ranges));
  const int64_t summed = together * size * inner;
  const int64_t own = summed + together * std::min(n, kPositionBlock) * inner;
  const auto scratch = memory_for_adding<float>(threads * own);
  parallel_for(units * ranges, threads, [&](int64_t begin, int64_t end, int worker) {
    float* const sums = scratch.get() + worker * own;
    float* const values = sums + summed;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t line = unit / ranges * together, lines = std::min(together, job.outer - line);
      const PlaceRange range{unit % ranges * size / ranges, (unit % ranges + 1) * size / ranges};
      const int64_t first = range.begin * inner;
      const int64_t count = ranges == 1 ? lines * size * inner : (range.end - range.begin) * inner;
      auto* const out = reinterpret_cast<uint16_t*>(job.out) + line * size * inner + first;
      const auto* from = reinterpret_cast<const uint16_t*>(job.values) + line * n * inner;
      convert(job.dtype, out, Dtype::kFloat32, sums, count);
      RowPlaces places(job, index, range, inner * kFloat, inner * kFloat);
      for (int64_t k = 0; k < n; k += kPositionBlock) {
        const int64_t rows = std::min(kPositionBlock, n - k);
        convert(job.dtype, from + k * inner, Dtype::kFloat32, values, lines * rows * inner);
        places.find(k);
        places.add(Dtype::kFloat32, values, sums,
                   {.lines = lines,
                    .from_line = n * inner * kFloat,
                    .to_line = size * inner * kFloat,
                    .rows = 0,
                    .step = inner * kFloat,
                    .bytes = inner * kFloat});
      }
      round_sums(sums, untouched.get() + first, job.dtype, out, count);
    }
  });
}

// --- The rows of one place after those of another -----------------------------------------------

// The values for each place of [0, size) in their order: those of place p are
// order[first[s] .. first[s + 1]) for the one s with place[s] == p.
struct Groups {
  std::unique_ptr<int64_t[]> memory;
  int64_t count = 0;
  int64_t* place = nullptr;
  int64_t* first = nullptr;
  int64_t* order = nullptr;
};

template <class Index>
Groups group(const Index* index, int64_t n, int64_t size, const int64_t* skipped) {
  // Counting takes time for every place, sorting for every value.
  const bool counts = size <= 16 * n + 1024;
  Groups groups;
  groups.memory = memory_for_adding<int64_t>(3 * n + 1 + (counts ? size : 0));
  groups.place = groups.memory.get();
  groups.first = groups.place + n;
  groups.order = groups.first + n + 1;
  const auto place_of = [&](int64_t k) {
    const int64_t at = index[k];
    return at < 0 ? at + size : at;
  };
  const auto is_skipped = [&](int64_t k) { return skipped != nullptr && index[k] == *skipped; };
  int64_t total = 0;
  if (counts) {
    int64_t* next = groups.order + n;
    std::fill_n(next, size, 0);
    for (int64_t k = 0; k < n; ++k) {
      if (!is_skipped(k)) ++next[place_of(k)];
    }
    for (int64_t p = 0; p < size; ++p) {
      if (next[p] == 0) continue;
      groups.place[groups.count] = p;
      groups.first[groups.count++] = total;
      total += next[p];
      next[p] = total - next[p];
    }
    for (int64_t k = 0; k < n; ++k) {
      if (!is_skipped(k)) groups.order[next[place_of(k)]++] = k;
    }
  } else {
    for (int64_t k = 0; k < n; ++k) {
      if (!is_skipped(k)) groups.order[total++] = k;
    }
    std::sort(groups.order, groups.order + total, [&](int64_t a, int64_t b) {
      const int64_t x = place_of(a), y = place_of(b);
      return x != y ? x < y : a < b;
    });
    for (int64_t i = 0; i < total; ++i) {
      const int64_t p = place_of(groups.order[i]);
      if (groups.count > 0 && groups.place[groups.count - 1] == p) continue;
      groups.place[groups.count] = p;
      groups.first[groups.count++] = i;
    }
  }
  groups.first[groups.count] = total;
  return groups;
}

// One tile of columns of one place: the sum starts from what is there.
void add_tile(const Groups& groups, int64_t s, Dtype dtype, char* to, const char* values,
              int64_t row_bytes, int64_t width, bool mean) {
  const Dtype compute = compute_dtype(dtype);
  static constexpr OpId kAdd = OpId::add, kDiv = OpId::div;
  const ElementwiseKernel add = elementwise_kernel(kAdd, compute);
  alignas(64) char sum[kColumns * 8], value[kColumns * 8];
  const bool plain = compute == dtype && !mean;
  char* total = plain ? to : sum;
  if (!plain) {
    if (mean) {
      std::memset(sum, 0, static_cast<size_t>(width) * itemsize(compute));
    } else {
      convert(dtype, to, compute, sum, width);
    }
  }
  for (int64_t i = groups.first[s]; i < groups.first[s + 1]; ++i) {
    const char* from = values + groups.order[i] * row_bytes;
    if (compute != dtype) {
      convert(dtype, from, compute, value, width);
      from = value;
    }
    const void* in[] = {total, from};
    add(in, total, width);
  }
  if (plain) return;
  if (mean) {
    alignas(8) char times[8], before[kColumns * 8];
    const int64_t count = groups.first[s + 1] - groups.first[s];
    convert(Dtype::kInt64, &count, compute, times, 1);
    const void* in[] = {sum, times};
    elementwise_kernel(kDiv, compute, Form::kTrailingScalars)(in, sum, width);
    convert(dtype, to, compute, before, width);
    const void* both[] = {before, sum};
    add(both, sum, width);
  }
  convert(compute, sum, dtype, to, width);
}

void add_by_groups(const Addition& job, const Groups& groups, bool mean) {
  const int64_t item = job.item(), inner = job.inner;
  // The order of additions does not depend on the tiles, so the number of threads may choose them.
  const int64_t width = job.width_for(std::max<int64_t>(1, job.outer * groups.count));
  const int64_t columns = ceil_div(inner, width);
  const int64_t per_tile = width * job.n / std::max<int64_t>(1, groups.count);
  const int64_t per_chunk = std::max<int64_t>(1, grain(true) / (per_tile + 16));
  for_chunks(job.outer * groups.count * columns, per_chunk, job.threads,
             [&](int64_t begin, int64_t end) {
               for (int64_t tile = begin; tile < end; ++tile) {
                 const int64_t j = tile % columns * width, s = tile / columns % groups.count;
                 const int64_t o = tile / columns / groups.count;
                 add_tile(groups, s, job.dtype,
                          job.out + ((o * job.size + groups.place[s]) * inner + j) * item,
                          job.values + (o * job.n * inner + j) * item, inner * item,
                          std::min(width, inner - j), mean);
               }
             });
}

}  // namespace
}  // namespace cpu

void add_at(Dtype dtype, void* out, int64_t outer, int64_t size, int64_t inner,
            const Positions& positions, const void* values, const AddAtOptions& options) {
  using namespace cpu;
  check_index("add_at", positions);
  if (!is_floating(dtype) && dtype != Dtype::kInt64 && dtype != Dtype::kInt32) {
    fail(ErrorKind::kNotSupported, "add_at is not implemented for ", dtype_name(dtype),
         "; use a floating dtype, int32 or int64");
  }
  if (outer == 0 || inner == 0 || positions.n == 0) return;
  const Addition job{
      dtype,       static_cast<char*>(out), static_cast<const char*>(values), outer, size, inner,
      positions.n, options.skipped,         threads_of(options.max_threads)};
  with_index(positions, [&](const auto* index) {
    const bool is_half = compute_dtype(dtype) != dtype;
    if (!options.mean && !is_half) {
      add_in_turn(job, index);
    } else if (!options.mean && takes_halves_in_turn(job)) {
      add_halves_in_turn(job, index);
    } else {
      add_by_groups(job, group(index, positions.n, size, options.skipped), options.mean);
    }
  });
}

}  // namespace hologram
