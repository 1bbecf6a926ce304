// SPDX-License-Identifier: MIT
// Walks two tensors of one shape side by side, a row of the last dimension at a time.
#include "src/array/small_copy.h"

#include "hologram/shape.h"
#include "src/base/element.h"

namespace hologram::array {
namespace {

template <class T>
void copy_rows(std::span<const int64_t> shape, const void* from, const int64_t* from_strides,
               void* to, const int64_t* to_strides) {
  const T* in = static_cast<const T*>(from);
  T* out = static_cast<T*>(to);
  if (shape.empty()) {
    *out = *in;
    return;
  }
  const size_t last = shape.size() - 1;
  const int64_t row = shape[last], in_step = from_strides[last], out_step = to_strides[last];
  Shape place(last, 0);
  for (;;) {
    for (int64_t i = 0; i < row; ++i) out[i * out_step] = in[i * in_step];
    size_t d = last;
    for (; d > 0; --d) {
      in += from_strides[d - 1];
      out += to_strides[d - 1];
      if (++place[d - 1] < shape[d - 1]) break;
      in -= shape[d - 1] * from_strides[d - 1];
      out -= shape[d - 1] * to_strides[d - 1];
      place[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

}  // namespace

void copy_small(size_t item, std::span<const int64_t> shape, const void* from,
                const int64_t* from_strides, void* to, const int64_t* to_strides) {
  for (const int64_t size : shape) {
    if (size == 0) return;
  }
  with_element("copy", static_cast<int64_t>(item),
               [&]<class T>(T) { copy_rows<T>(shape, from, from_strides, to, to_strides); });
}

}  // namespace hologram::array
