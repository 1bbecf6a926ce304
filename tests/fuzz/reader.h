// SPDX-License-Identifier: MIT
// The bytes of a fuzzed input, read as choices; zeros when they are used up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace hologram::fuzz {

class Reader {
 public:
  Reader(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  bool empty() const { return at_ == end_; }
  template <class T>
  T take() {
    T value{};
    const size_t room = static_cast<size_t>(end_ - at_);
    const size_t count = room < sizeof value ? room : sizeof value;
    std::memcpy(&value, at_, count);
    at_ += count;
    return value;
  }
  // One of `count` choices.
  uint32_t pick(uint32_t count) { return take<uint8_t>() % count; }
  bool one_in(uint32_t count) { return pick(count) == 0; }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

// What a harness found: says so and ends, as a crash would.
#define FUZZ_CHECK(condition, ...)                                         \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      std::fprintf(stderr, __VA_ARGS__);                                   \
      std::fprintf(stderr, "\n");                                          \
      std::abort();                                                        \
    }                                                                      \
  } while (false)

}  // namespace hologram::fuzz
