// SPDX-License-Identifier: MIT
// What the functions of calls take their operands, values and numbers from, in the order in which
// whoever recorded the call gave them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

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
// The word before the sizes and the strides of a view.
constexpr uint64_t view_word(Dtype dtype, size_t ndim) {
  return static_cast<uint64_t>(dtype) | static_cast<uint64_t>(ndim) << 8;
}

class CallFrame {
 public:
  // Work on so few elements stays on one thread.
  static constexpr int64_t kSmall = 16384;

  explicit CallFrame(const CallArguments& arguments)
      : operands_(arguments.operands),
        words_(arguments.attributes),
        numbers_(arguments.numbers),
        max_threads_(arguments.max_threads) {}

  // The next operand, which was given as a view. data is null where it is absent. Sizes and strides
  // live as long as the call runs.
  View view() {
    const uint64_t head = *words_++;
    const auto ndim = static_cast<int>(head >> 8);
    const auto dtype = static_cast<Dtype>(head & 0xff);
    const auto* shape = reinterpret_cast<const int64_t*>(words_);
    words_ += 2 * ndim;
    char* data = *operands_++;
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
  template <class T = double>
  T number() {
    static_assert(sizeof(T) == 8);
    return std::bit_cast<T>(*numbers_++);
  }
  // Threads that work on n elements may take, as the library's functions count them.
  int threads(int64_t n) const { return n <= kSmall ? 1 : max_threads_; }

 private:
  // Where the first element lies behind the lowest one: not 0 where strides are negative.
  static int64_t first_of(int ndim, const int64_t* shape, const int64_t* strides) {
    int64_t first = 0;
    for (int d = 0; d < ndim; ++d) {
      if (strides[d] < 0) first -= (shape[d] - 1) * strides[d];
    }
    return first;
  }

  char* const* operands_;
  const uint64_t* words_;
  const uint64_t* numbers_;
  int max_threads_;
};

// For the library's optional operands.
inline const View* if_given(const View& view) { return view.data != nullptr ? &view : nullptr; }

}  // namespace hologram
