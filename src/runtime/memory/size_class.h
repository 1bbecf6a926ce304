// SPDX-License-Identifier: MIT
// Rounds request sizes to the sizes the linear pool keeps, at most an eighth is wasted, and says
// where in its pages a block begins.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace hologram::internal {

// Multiples of 64 up to 512, then eight sizes per doubling. All are multiples of 64 bytes, of 4 KiB
// above 32 KiB, and of 128 KiB above 1 MiB.
inline constexpr int kLinearSizes = 8;
// Blocks of the classes below this are cut from spans and cached per thread.
inline constexpr int kSmallClasses = 72;
inline constexpr size_t kMaxSmall = size_t{128} << 10;
// Blocks above those, up to this size, have a span to themselves, which is given back at once:
// kept by class, they would not serve other sizes. Larger ones are mapped one by one.
inline constexpr size_t kMaxMedium = size_t{1} << 20;
// Headers that have no memory of their own: zero-byte, foreign and boundary buffers.
inline constexpr int kBareClass = kSmallClasses;
inline constexpr int kCachedClasses = kSmallClasses + 1;
// What headers of medium blocks say; those of large ones say more.
inline constexpr int kMediumBlock = kCachedClasses;
// Sizes up to 2^48 bytes; no machine has more.
inline constexpr int kSizeClasses = kLinearSizes + (48 - 9) * 8;
inline constexpr size_t kMaxRequest = size_t{1} << 48;

// nbytes in 1..kMaxRequest. Class numbers above the small ones say how medium and large
// sizes are rounded.
constexpr int size_class(size_t nbytes) {
  const size_t m = nbytes - 1;
  if (m < 512) return static_cast<int>(m >> 6);
  const int e = std::bit_width(m) - 1;
  return kLinearSizes + (e - 9) * 8 + static_cast<int>((m >> (e - 3)) & 7);
}

constexpr size_t class_bytes(int size_class) {
  if (size_class < kLinearSizes) return static_cast<size_t>(size_class + 1) * 64;
  const int k = size_class - kLinearSizes;
  return static_cast<size_t>(9 + (k & 7)) << (k / 8 + 6);
}

// --- Colours -----------------------------------------------------------------------------------
//
// An op walks several blocks of one size at once. Did they all begin at the same place of their
// pages, a load would often have the low 12 address bits of a store still on its way and wait for
// it, and they would share the sets of the first cache. So blocks of a page and more begin at
// different multiples of 256 bytes, their colours: Bonwick, "The Slab Allocator" (USENIX 1994).
// A page more for a span has room for them. On Zen 3 an add of 10,000 float32 takes up to 1.3 times
// as long where all three begin at the same place. Large blocks gain nothing, since memory is
// slower than that, and tiles that begin with a page are read ahead better.

inline constexpr size_t kPage = size_t{4} << 10;
inline constexpr size_t kColour = 256;

// Bytes of the span that blocks of a small class are cut from.
inline size_t span_bytes(int size_class) {
  const size_t size = class_bytes(size_class);
  if (size < kPage) return size_t{64} << 10;
  if (size <= 8192) return (size_t{64} << 10) + kPage;
  if (size <= 32768) return (size_t{256} << 10) + kPage;
  return size * 4 + kPage;
}

// The nth colour of blocks that have a span to themselves.
inline size_t colour_of(size_t n) { return n * 5 * kColour % kPage; }

// How a span is cut.
struct SpanCut {
  size_t blocks;
  size_t stride;  // bytes from a block to the next
  size_t step;    // the kth block to hand out is number k * step % blocks, for its colour
};
SpanCut cut_span(int size_class);

}  // namespace hologram::internal
