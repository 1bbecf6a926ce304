// SPDX-License-Identifier: MIT
// Whether what an op reads lies where it writes, also where two lenders lend the same memory.
#pragma once

#include <cstdint>

#include "hologram/functions.h"
#include "src/capi/call.h"

namespace hologram::capi {

// A copy of its own, row-major.
inline Tensor copy_of(const Tensor& tensor) {
  Tensor copy = empty(tensor.shape(), tensor.dtype(), tensor.buffer()->device());
  copy_into(tensor, copy);
  return copy;
}

// Whether the first `n` elements of one share a byte with the first `m` of the other. Memory of
// others is compared by address, for two buffers may stand for it.
inline bool overlaps(const BufferUse& a, int64_t n, const BufferUse& b, int64_t m) {
  const auto bytes = [](const BufferUse& used, int64_t count) {
    return count * static_cast<int64_t>(itemsize(used.dtype()));
  };
  if (&a.buffer() == &b.buffer()) {
    return a.byte_offset() < b.byte_offset() + bytes(b, m) &&
           b.byte_offset() < a.byte_offset() + bytes(a, n);
  }
  if (a.buffer().pool() != PoolKind::kForeign || b.buffer().pool() != PoolKind::kForeign) {
    return false;
  }
  const auto start_a = reinterpret_cast<uintptr_t>(a.bytes());
  const auto start_b = reinterpret_cast<uintptr_t>(b.bytes());
  return start_a < start_b + static_cast<uintptr_t>(bytes(b, m)) &&
         start_b < start_a + static_cast<uintptr_t>(bytes(a, n));
}

// Whether an op on n elements must read a copy of `in` because it writes some of its bytes before
// it has read them: that is so for every overlap but the very same elements.
inline bool needs_copy(const BufferUse& in, const BufferUse& out, int64_t n) {
  const bool same = &in.buffer() == &out.buffer() && in.byte_offset() == out.byte_offset() &&
                    in.dtype() == out.dtype();
  return !same && overlaps(in, n, out, n);
}

}  // namespace hologram::capi
