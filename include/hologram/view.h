// SPDX-License-Identifier: MIT
// A borrowed, typed, strided window on memory: the operand of every kernel call.
#pragma once

#include <cstdint>

#include "hologram/buffer.h"
#include "hologram/dtype.h"

namespace hologram {

// Describes ndim dimensions of `shape` elements, `strides` elements apart (0 = broadcast, negative
// allowed), starting at data. Nothing is owned: data, shape and strides must outlive the call.
struct View {
  void* data = nullptr;
  Dtype dtype = Dtype::kFloat32;
  int ndim = 0;
  const int64_t* shape = nullptr;
  const int64_t* strides = nullptr;

  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < ndim; ++i) n *= shape[i];
    return n;
  }
};

// From the lowest byte of a view's elements to behind the highest, as addresses.
inline ByteRange bytes_of(const View& view) {
  const auto size = static_cast<int64_t>(itemsize(view.dtype));
  int64_t low = 0;
  int64_t high = size;
  for (int d = 0; d < view.ndim; ++d) {
    if (view.shape[d] == 0) return {};
    (view.strides[d] < 0 ? low : high) += (view.shape[d] - 1) * view.strides[d] * size;
  }
  const auto first = static_cast<int64_t>(reinterpret_cast<intptr_t>(view.data));
  return {nullptr, first + low, high - low};
}

// A number with a dtype, so that a scalar can stand where a tensor does. view() borrows the object.
struct Scalar {
  Dtype dtype;
  union {
    double f64;
    int64_t i64;
    uint8_t b;
  };
  Scalar(double value) : dtype(Dtype::kFloat64), f64(value) {}             // NOLINT
  Scalar(int64_t value) : dtype(Dtype::kInt64), i64(value) {}              // NOLINT
  Scalar(int value) : dtype(Dtype::kInt64), i64(value) {}                  // NOLINT
  Scalar(bool value) : dtype(Dtype::kBool), i64(0) { b = value ? 1 : 0; }  // NOLINT
  View view() const {
    return {const_cast<void*>(static_cast<const void*>(&f64)), dtype, 0, nullptr, nullptr};
  }
};

}  // namespace hologram
