// SPDX-License-Identifier: MIT
// The memory that spans are taken from: runs of whole pages, split as they are asked for and joined
// with their neighbours as they are given back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/runtime/memory/size_class.h"

namespace hologram::internal {

// The largest page of a system that spans are made of.
inline constexpr size_t kLargestPage = size_t{64} << 10;
// The longest span anyone asks for: a medium block with room for its colour.
inline constexpr size_t kLongestSpan = kMaxMedium + kLargestPage;

// Spans are whole pages of the system's, or the system would discard what lies beside one. Where
// pages are larger than kLargestPage, the ends of a span keep their memory when it is trimmed.
size_t round_to_pages(size_t bytes);

// Whole pages of a chunk. Neighbours belong to the heap; `base`, `bytes` and `colour` stay as they
// are while the span is used, and the last three fields are its user's.
struct Span {
  enum class State : uint8_t {
    kUsed,
    kFree,      // has been used; its bytes still count as reserved
    kUnbacked,  // has no memory, only addresses
  };
  char* base = nullptr;
  size_t bytes = 0;
  State state = State::kUsed;
  uint16_t colour = 0;     // bytes from `base` to a block that has the span to itself
  Span* before = nullptr;  // neighbours by address
  Span* after = nullptr;
  Span* newer = nullptr;  // among spans of one length and state that are not used
  Span* older = nullptr;
  Span* chunk = nullptr;  // of the first span of a chunk: that of the chunk mapped before

  uint32_t blocks = 0;
  uint32_t seen_free = 0;
  Span* next = nullptr;
};

// At least `bytes`, up to kMaxMedium + kPage, rounded to whole pages and counted as reserved: the
// shortest run of free pages that holds them, else memory that is new. Null when memory is out.
Span* take_span(size_t bytes);
// The pages keep their memory and serve any span again.
void give_span(Span* span) noexcept;
// Gives the memory of free pages back to the system.
void trim_spans() noexcept;

// What is reserved: each used span, and each run of free pages.
struct SpanPlace {
  uintptr_t address = 0;
  size_t bytes = 0;
};
std::vector<SpanPlace> list_spans();

// Around fork.
void spans_lock();
void spans_unlock();

}  // namespace hologram::internal
