// SPDX-License-Identifier: MIT
// Orders the dimensions of loop nests over strided operands and merges those that can be.
#include "src/base/loops.h"

#include <cstdlib>
#include <utility>

namespace hologram {

void order_and_merge(Loops& loops, int fixed) {
  // Insertion sort, largest step of operand 0 first; the others decide where it does not.
  const auto before = [&](int a, int b) {
    for (int k = 0; k < loops.count; ++k) {
      const int64_t sa = std::abs(loops.stride(k, a)), sb = std::abs(loops.stride(k, b));
      if (sa != sb) return sa > sb;
    }
    return false;
  };
  const int free = loops.ndim - fixed;
  for (int i = 1; i < free; ++i) {
    for (int j = i; j > 0 && before(j, j - 1); --j) {
      std::swap(loops.shape[j], loops.shape[j - 1]);
      for (int k = 0; k < loops.count; ++k) std::swap(loops.stride(k, j), loops.stride(k, j - 1));
    }
  }
  int last = 0;
  for (int d = 1; d < loops.ndim; ++d) {
    bool merges = d < free;
    for (int k = 0; merges && k < loops.count; ++k) {
      merges = loops.stride(k, last) == loops.stride(k, d) * loops.shape[d];
    }
    if (merges) {
      loops.shape[last] *= loops.shape[d];
    } else {
      loops.shape[++last] = loops.shape[d];
    }
    for (int k = 0; k < loops.count; ++k) loops.stride(k, last) = loops.stride(k, d);
  }
  if (loops.ndim > 0) loops.ndim = last + 1;
}

}  // namespace hologram
