// SPDX-License-Identifier: MIT
// Where values belong among sorted ones, by bisection.
#include <algorithm>
#include <limits>

#include "hologram/error.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/grain_size.h"
#include "src/cpu/movement/around.h"

namespace hologram::cpu {
namespace {

// A number of a half type, whose infinity has these bits.
template <int kInfinity>
struct HalfBits {
  uint16_t bits;
};

// Elements as they are compared. Numbers of the half types have the order of their bits.
template <class T>
T key_of(T value) {
  return value;
}
template <int kInfinity>
float key_of(HalfBits<kInfinity> value) {
  const int size = value.bits & 0x7fff;
  if (size > kInfinity) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(value.bits > 0x7fff ? -size : size);
}

struct SortedLines {
  int64_t count;   // of sorted lines; 1: all values are sought in the same
  int64_t length;  // of a sorted line
  int64_t values;  // for each sorted line
};

// The number of elements of a line before `value`: those below it or, with kRight, not above it.
// NaN lies behind all. A line that is not sorted has the place that PyTorch's bisection finds: the
// middles are the same.
template <bool kRight, class T>
int64_t place_of(const T* line, int64_t length, const int64_t* order, T wanted) {
  const auto value = key_of(wanted);
  int64_t begin = 0;
  for (int64_t end = length; begin < end;) {
    const int64_t middle = begin + (end - begin) / 2;
    const auto key = key_of(line[order == nullptr ? middle : order[middle]]);
    const bool is_before = kRight ? !(key > value) : !(key >= value);
    begin = is_before ? middle + 1 : begin;
    end = is_before ? end : middle;
  }
  return begin;
}

template <bool kRight, class T, class Index>
void search_lines(const calls::Searchsorted<>& call, const SortedLines& lines,
                  CallThreads threads) {
  const auto* sorted = static_cast<const T*>(call.sorted.data);
  const auto* values = static_cast<const T*>(call.values.data);
  const auto* sorter = static_cast<const int64_t*>(call.sorter.data);
  auto* out = static_cast<Index*>(call.out.data);
  const int64_t all = lines.count * lines.values;
  // A search is as much work as sixteen heavy ops.
  for_chunks(all, grain(true) / 16, threads.most(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t line = i / lines.values, last = std::min(end, (line + 1) * lines.values);
      const int64_t first = line * lines.length;
      const int64_t* order = sorter == nullptr ? nullptr : sorter + first;
      for (; i < last; ++i) {
        out[i] =
            static_cast<Index>(place_of<kRight>(sorted + first, lines.length, order, values[i]));
      }
    }
  });
}

template <class T>
void search(const calls::Searchsorted<>& call, const SortedLines& lines, CallThreads threads) {
  if (call.out.dtype == Dtype::kInt32) {
    call.right ? search_lines<true, T, int32_t>(call, lines, threads)
               : search_lines<false, T, int32_t>(call, lines, threads);
  } else {
    call.right ? search_lines<true, T, int64_t>(call, lines, threads)
               : search_lines<false, T, int64_t>(call, lines, threads);
  }
}

}  // namespace

void run(const calls::Searchsorted<>& call, CallThreads threads) {
  const int64_t length = call.sorted.shape[call.sorted.ndim - 1];
  const int64_t values = call.values.shape[call.values.ndim - 1];
  const int64_t all = call.values.numel();
  if (all == 0) return;
  // Front ends have looked; a replay of a graph has not.
  if (call.sorter.is_given && !positions_within(positions_of(call.sorter), 0, length)) {
    fail_outside(length);
  }
  const SortedLines lines{all / values, length, values};
  switch (call.sorted.dtype) {
    case Dtype::kBool:
    case Dtype::kUInt8:
      return search<uint8_t>(call, lines, threads);
    case Dtype::kInt8:
      return search<int8_t>(call, lines, threads);
    case Dtype::kInt16:
      return search<int16_t>(call, lines, threads);
    case Dtype::kInt32:
      return search<int32_t>(call, lines, threads);
    case Dtype::kInt64:
      return search<int64_t>(call, lines, threads);
    case Dtype::kFloat16:
      return search<HalfBits<0x7c00>>(call, lines, threads);
    case Dtype::kBFloat16:
      return search<HalfBits<0x7f80>>(call, lines, threads);
    case Dtype::kFloat32:
      return search<float>(call, lines, threads);
    case Dtype::kFloat64:
      return search<double>(call, lines, threads);
    default:
      fail(ErrorKind::kNotSupported, "searchsorted: complex numbers have no order");
  }
}

}  // namespace hologram::cpu
