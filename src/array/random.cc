// SPDX-License-Identifier: MIT
// Random numbers whose range is another one for each element: samples without replacement, and
// integers between two tensors.
#include "hologram/random.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "hologram/error.h"
#include "hologram/functions.h"
#include "src/array/array.h"
#include "src/array/record_call.h"
#include "src/array/unsigned.h"
#include "src/base/philox.h"

namespace hologram {
namespace {

using Wide = __int128;

constexpr int64_t kTile = 4096;  // words, a multiple of a group's 16

// record(rows): the row-major tensor that a call fills.
template <class Record>
void fill_rows(const char* name, const Tensor& out, bool takes_dtype, Record record) {
  array::check_result(name, out);
  if (!takes_dtype) {
    fail(ErrorKind::kTypeMismatch, name, ": the numbers do not go into ", dtype_name(out.dtype()),
         "; take a floating dtype");
  }
  if (out.numel() == 0) return;
  if (out.is_contiguous()) return record(array::carrier(out));
  const Tensor rows = array::fresh(out.shape(), out.dtype(), array::device_of(out));
  record(array::carrier(rows));
  copy_into(rows, out);
}

Tensor host_tensor(Shape shape, Dtype dtype) {
  Tensor t = empty(std::move(shape), dtype, device(BackendType::kCpu));
  materialize(t);
  return t;
}

// visit(begin, end, words): the 64-bit words of the elements [begin, end), for [0, count) in order.
template <class Visit>
void for_words(PhiloxStream stream, int64_t count, Visit visit) {
  const Tensor words = host_tensor(Shape{std::min(count, kTile)}, Dtype::kInt64);
  for (int64_t begin = 0; begin < count; begin += kTile) {
    fill_integers(words, {stream.seed, stream.offset + philox_blocks(begin, 64)}, 0, 0);
    materialize(words);
    visit(begin, std::min(count, begin + kTile), static_cast<const uint64_t*>(words.data()));
  }
}

// The numbers of a few positions: a hash table with linear probing that is at most half full.
class Moved {
 public:
  explicit Moved(int64_t most)
      : mask_(std::bit_ceil(2 * static_cast<uint64_t>(most) + 1) - 1), entries_(mask_ + 1) {}

  void clear() { std::fill(entries_.begin(), entries_.end(), Entry()); }
  // The number of a position, which is the position itself where no other was put there.
  int64_t get(int64_t position) const {
    const Entry& entry = entries_[find(position)];
    return entry.position == position ? entry.number : position;
  }
  void put(int64_t position, int64_t number) { entries_[find(position)] = {position, number}; }

 private:
  struct Entry {
    int64_t position = -1;
    int64_t number = 0;
  };
  size_t find(int64_t position) const {
    uint64_t at = static_cast<uint64_t>(position) * 0x9E3779B97F4A7C15u >> 32;
    for (;; ++at) {
      const Entry& entry = entries_[at & mask_];
      if (entry.position == position || entry.position < 0) return at & mask_;
    }
  }
  uint64_t mask_;
  std::vector<Entry> entries_;
};

// The first k steps of a Fisher-Yates shuffle of the numbers below n. Step i swaps position i with
// one at or behind it, and then holds the i-th number of the sample.
class Sampler {
 public:
  Sampler(int64_t n, int64_t k) : n_(n), k_(k), is_dense_(n / 32 <= k), moved_(is_dense_ ? 0 : k) {
    if (is_dense_ && k < n) numbers_.resize(static_cast<size_t>(n));
  }

  // `row`, of k numbers, takes the next sample.
  void begin(int64_t* row) {
    row_ = row;
    if (!is_dense_) return moved_.clear();
    if (k_ == n_) {
      std::iota(row, row + n_, int64_t{0});
    } else {
      std::iota(numbers_.begin(), numbers_.end(), int64_t{0});
    }
  }

  // Steps [first, first + count), which swap with these positions.
  void run(int64_t first, const int64_t* with, int64_t count) {
    if (!is_dense_) {
      for (int64_t t = 0; t < count; ++t) row_[first + t] = take_sparse(first + t, with[t]);
      return;
    }
    int64_t* const numbers = k_ == n_ ? row_ : numbers_.data();
    constexpr int64_t kAhead = 24;  // steps whose memory is on its way
    for (int64_t t = 0; t < count; ++t) {
      __builtin_prefetch(numbers + with[std::min(t + kAhead, count - 1)], 1);
      std::swap(numbers[first + t], numbers[with[t]]);
    }
    if (k_ < n_) std::copy_n(numbers + first, count, row_ + first);
  }

 private:
  // Only the numbers that are no longer in their places are held.
  int64_t take_sparse(int64_t i, int64_t with) {
    const int64_t number = moved_.get(with);
    if (with != i) moved_.put(with, moved_.get(i));
    return number;
  }

  const int64_t n_, k_;
  const bool is_dense_;
  int64_t* row_ = nullptr;
  std::vector<int64_t> numbers_;  // of a dense sample that is not the whole
  Moved moved_;
};

// The elements of a tensor of int64 or uint64.
class Integers {
 public:
  explicit Integers(const Tensor& given) : tensor_(array::host_copy(given)) {}

  Wide operator[](int64_t i) const {
    const int64_t bits = static_cast<const int64_t*>(tensor_.data())[i];
    return tensor_.dtype() == Dtype::kUInt64 ? Wide{static_cast<uint64_t>(bits)} : Wide{bits};
  }

 private:
  Tensor tensor_;
};

std::string text_of(Wide value) {
  return value < 0 ? std::to_string(static_cast<int64_t>(value))
                   : std::to_string(static_cast<uint64_t>(value));
}

// The first and the last integer of a dtype.
struct Range {
  Wide first, last;
};
Range range_of(Dtype dtype) {
  if (dtype == Dtype::kBool) return {0, 1};
  const auto bits = static_cast<int>(8 * itemsize(dtype));
  const Wide half = Wide{1} << (bits - 1);
  return is_unsigned(dtype) ? Range{0, 2 * half - 1} : Range{-half, half - 1};
}

void check_range(Wide low, Wide high, bool closed, Dtype dtype) {
  const Range range = range_of(dtype);
  const Wide last = closed ? high : high - 1;
  if (low < range.first || low > range.last) {
    fail(ErrorKind::kInvalidArgument, "low is out of bounds for ", dtype_name(dtype), ": ",
         text_of(low), "; give another dtype");
  }
  if (last > range.last || high < range.first) {
    fail(ErrorKind::kInvalidArgument, "high is out of bounds for ", dtype_name(dtype), ": ",
         text_of(high), "; give another dtype");
  }
  if (low > last) {
    fail(ErrorKind::kInvalidArgument, closed ? "low > high: " : "low >= high: ", text_of(low),
         " and ", text_of(high), " have no integer between them");
  }
}

}  // namespace

void fill_uniform(const Tensor& out, PhiloxStream stream, double low, double high) {
  fill_rows("fill_uniform", out, is_floating(out.dtype()), [&](const Tensor& rows) {
    array::record(calls::Uniform<array::Arg>{
        .self = rows, .seed = stream.seed, .offset = stream.offset, .low = low, .high = high});
  });
}

void fill_normal(const Tensor& out, PhiloxStream stream, double mean, double std) {
  fill_rows("fill_normal", out, is_floating(out.dtype()), [&](const Tensor& rows) {
    array::record(calls::Normal<array::Arg>{
        .self = rows, .seed = stream.seed, .offset = stream.offset, .mean = mean, .std = std});
  });
}

void fill_integers(const Tensor& out, PhiloxStream stream, uint64_t low, uint64_t count) {
  fill_rows("fill_integers", out, !is_complex(out.dtype()), [&](const Tensor& rows) {
    array::record(calls::Integers<array::Arg>{
        .self = rows, .seed = stream.seed, .offset = stream.offset, .low = low, .count = count});
  });
}

Tensor random_positions(PhiloxStream stream, int64_t batch, int64_t n, int64_t k, Device& device) {
  if (batch < 0 || k < 0 || k > n) {
    fail(ErrorKind::kInvalidArgument, "random_positions: ", batch, " samples of ", k,
         " numbers below ", n, "; k is at most n and none is negative");
  }
  const Shape shape{batch, k};
  const int64_t count = shape_numel(shape);
  if (count == 0) return empty(shape, Dtype::kInt64, device);
  const Tensor result = host_tensor(shape, Dtype::kInt64);
  auto* const numbers = static_cast<int64_t*>(result.data());
  Sampler sampler(n, k);
  std::vector<int64_t> with(static_cast<size_t>(std::min(count, kTile)));
  for_words(stream, count, [&](int64_t begin, int64_t end, const uint64_t* words) {
    for (int64_t at = begin; at < end;) {
      const int64_t first = at % k, steps = std::min(k - first, end - at);
      if (first == 0) sampler.begin(numbers + at);
      for (int64_t t = 0; t < steps; ++t) {
        const auto left = static_cast<uint64_t>(n - first - t);
        const uint64_t choice =
            choose64(stream, static_cast<uint64_t>(at + t), words[at + t - begin], left);
        with[static_cast<size_t>(t)] = first + t + static_cast<int64_t>(choice);
      }
      sampler.run(first, with.data(), steps);
      at += steps;
    }
  });
  return device.is_host_memory() ? result : from_host(result.view(), device);
}

Tensor random_integers(PhiloxStream stream, const Tensor& low, const Tensor& high, bool closed,
                       Dtype dtype) {
  for (const Tensor* t : {&low, &high}) {
    if (t->dtype() != Dtype::kInt64 && t->dtype() != Dtype::kUInt64) {
      fail(ErrorKind::kTypeMismatch, "random_integers: bounds are int64 or uint64, not ",
           dtype_name(t->dtype()));
    }
  }
  if (low.shape() != high.shape()) {
    fail(ErrorKind::kInvalidArgument, "random_integers: low has shape ", shape_text(low.shape()),
         ", high has ", shape_text(high.shape()));
  }
  if (!is_integer(dtype) && dtype != Dtype::kBool) {
    fail(ErrorKind::kTypeMismatch, "random_integers: the result is of integers or bool, not ",
         dtype_name(dtype));
  }
  Device& device = array::device_of("random_integers", low, high);
  const int64_t count = low.numel();
  if (count == 0) return empty(low.shape(), dtype, device);
  const Integers first(low), second(high);
  for (int64_t i = 0; i < count; ++i) check_range(first[i], second[i], closed, dtype);
  const Tensor bits = host_tensor(low.shape(), is_unsigned(dtype) ? Dtype::kUInt64 : Dtype::kInt64);
  auto* const values = static_cast<uint64_t*>(bits.data());
  for_words(stream, count, [&](int64_t begin, int64_t end, const uint64_t* words) {
    for (int64_t i = begin; i < end; ++i) {
      const auto width = static_cast<uint64_t>(second[i] - first[i] + (closed ? 1 : 0));
      values[i] = static_cast<uint64_t>(first[i]) +
                  choose64(stream, static_cast<uint64_t>(i), words[i - begin], width);
    }
  });
  const Tensor made = device.is_host_memory() ? bits : from_host(bits.view(), device);
  return made.dtype() == dtype ? made : cast(made, dtype);
}

}  // namespace hologram
