// SPDX-License-Identifier: MIT
// What the kernels of calls take their operands and parameters from, in the order in which the
// front end that recorded the call gave them: that of the call's row (call_ops.h).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "hologram/call.h"
#include "hologram/view.h"

namespace hologram {

// What a call does to the memory of an operand.
enum class Access : uint8_t {
  reads,
  writes,   // every element, whatever it was
  updates,  // what is written depends on what was there, or not all of it is written
};

// Words that say how a T's bytes are; a T without padding, so that equal values have equal words.
template <class T>
inline constexpr size_t kWordsOf = (sizeof(T) + 7) / 8;
template <class T>
inline constexpr bool kIsWordy =
    std::is_trivially_copyable_v<T>&& std::has_unique_object_representations_v<T>;
template <class T>
std::array<uint64_t, kWordsOf<T>> words_of(const T& value) {
  static_assert(kIsWordy<T>);
  std::array<uint64_t, kWordsOf<T>> words{};
  std::memcpy(words.data(), &value, sizeof(T));
  return words;
}
// The words of a view: the head below, its sizes, and its strides unless it is row-major.
constexpr uint64_t view_head(Dtype dtype, size_t ndim, bool row_major) {
  return static_cast<uint64_t>(dtype) | uint64_t{row_major} << 8 | static_cast<uint64_t>(ndim) << 9;
}
constexpr Dtype view_dtype(uint64_t head) { return static_cast<Dtype>(head & 0xff); }
constexpr bool view_is_row_major(uint64_t head) { return (head >> 8 & 1) != 0; }
constexpr int view_ndim(uint64_t head) { return static_cast<int>(head >> 9); }
// Behind the head.
constexpr int view_words(uint64_t head) {
  return view_is_row_major(head) ? view_ndim(head) : 2 * view_ndim(head);
}

// Where a scalar parameter is: among the numbers, or in memory of one element.
enum class Stored : uint8_t { number, float32, float64 };

// What a kernel takes its operands and parameters from, in the order of the call's row.
class CallFrame {
 public:
  // Work on so few elements stays on one thread.
  static constexpr int64_t kSmall = 16384;

  explicit CallFrame(const CallArguments& arguments)
      : operands_(arguments.operands),
        words_(arguments.attributes),
        numbers_(arguments.numbers),
        max_threads_(arguments.max_threads) {}
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;

  // The next operand, which was given as a view. data is null where it is absent. Sizes and strides
  // live as long as the call runs.
  View view() {
    const uint64_t head = *words_++;
    const int ndim = view_ndim(head);
    const Dtype dtype = view_dtype(head);
    const auto* shape = reinterpret_cast<const int64_t*>(words_);
    words_ += view_words(head);
    char* data = *operands_++;
    if (view_is_row_major(head)) return {data, dtype, ndim, shape, row_major_strides(ndim, shape)};
    if (data != nullptr)
      data += first_of(ndim, shape, shape + ndim) * static_cast<int64_t>(itemsize(dtype));
    return {data, dtype, ndim, shape, shape + ndim};
  }
  // The next operand, which was given as memory: its first byte, or null.
  template <class T = char>
  T* memory() {
    return reinterpret_cast<T*>(*operands_++);
  }
  template <class T>
  T value() {
    static_assert(kIsWordy<T>);
    T result;
    std::memcpy(static_cast<void*>(&result), words_, sizeof(T));
    words_ += kWordsOf<T>;
    return result;
  }
  bool flag() { return *words_++ != 0; }
  int64_t integer() { return static_cast<int64_t>(*words_++); }
  // Integers as the last of N, `fill` before them.
  template <size_t N>
  std::array<int64_t, N> integers(int64_t fill) {
    std::array<int64_t, N> result;
    result.fill(fill);
    const uint64_t count = *words_++;
    std::memcpy(result.data() + (N - count), words_, count * sizeof(int64_t));
    words_ += count;
    return result;
  }
  template <class T = double>
  T number() {
    static_assert(sizeof(T) == 8);
    return std::bit_cast<T>(*numbers_++);
  }
  // A number that is given, or lies in memory: see Stored.
  double scalar() {
    switch (value<Stored>()) {
      case Stored::float32:
        return *memory<const float>();
      case Stored::float64:
        return *memory<const double>();
      default:
        return number();
    }
  }
  // Threads that work on n elements may take, as the library's functions count them.
  int threads(int64_t n) const { return n <= kSmall ? 1 : max_threads_; }
  int threads() const { return max_threads_; }

 private:
  // Where the first element lies behind the lowest one: not 0 where strides are negative.
  static int64_t first_of(int ndim, const int64_t* shape, const int64_t* strides) {
    int64_t first = 0;
    for (int d = 0; d < ndim; ++d) {
      if (strides[d] < 0) first -= (shape[d] - 1) * strides[d];
    }
    return first;
  }

  const int64_t* row_major_strides(int ndim, const int64_t* shape) {
    int64_t* strides = room_ + used_;
    if (used_ + ndim <= kRoom) {
      used_ += ndim;
    } else {
      more_.push_back(std::make_unique<int64_t[]>(static_cast<size_t>(ndim)));
      strides = more_.back().get();
    }
    int64_t step = 1;
    for (int d = ndim - 1; d >= 0; --d) {
      strides[d] = step;
      if (shape[d] > 1) step *= shape[d];
    }
    return strides;
  }

  char* const* operands_;
  const uint64_t* words_;
  const uint64_t* numbers_;
  int max_threads_;

  // Strides of row-major views.
  static constexpr int kRoom = 48;
  int used_ = 0;
  int64_t room_[kRoom];
  std::vector<std::unique_ptr<int64_t[]>> more_;
};

// For the library's optional operands.
inline const View* if_given(const View& view) { return view.data != nullptr ? &view : nullptr; }

}  // namespace hologram
