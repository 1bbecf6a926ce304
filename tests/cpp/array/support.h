// SPDX-License-Identifier: MIT
// What the tests of ops on tensors share: tensors from values and back, and errors.
#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "hologram/error.h"
#include "hologram/functions.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {

template <class T>
constexpr Dtype dtype_of() {
  if constexpr (std::is_same_v<T, bool>) return Dtype::kBool;
  if constexpr (std::is_same_v<T, uint8_t>) return Dtype::kUInt8;
  if constexpr (std::is_same_v<T, int8_t>) return Dtype::kInt8;
  if constexpr (std::is_same_v<T, int16_t>) return Dtype::kInt16;
  if constexpr (std::is_same_v<T, int32_t>) return Dtype::kInt32;
  if constexpr (std::is_same_v<T, int64_t>) return Dtype::kInt64;
  if constexpr (std::is_same_v<T, uint16_t>) return Dtype::kUInt16;
  if constexpr (std::is_same_v<T, uint32_t>) return Dtype::kUInt32;
  if constexpr (std::is_same_v<T, uint64_t>) return Dtype::kUInt64;
  if constexpr (std::is_same_v<T, float>) return Dtype::kFloat32;
  if constexpr (std::is_same_v<T, double>) return Dtype::kFloat64;
  if constexpr (std::is_same_v<T, std::complex<float>>) return Dtype::kComplex64;
  return Dtype::kComplex128;
}

template <class T>
Tensor tensor(Shape shape, const std::vector<T>& values) {
  const Shape strides = contiguous_strides(shape);
  return from_host({const_cast<T*>(values.data()), dtype_of<T>(), static_cast<int>(shape.size()),
                    shape.data(), strides.data()},
                   cpu());
}

// The elements in row-major order, in the tensor's own dtype.
template <class T>
std::vector<T> values(const Tensor& t) {
  std::vector<T> result(static_cast<size_t>(t.numel()));
  const Shape strides = contiguous_strides(t.shape());
  EXPECT_EQ(t.dtype(), dtype_of<T>());
  read(t, {result.data(), dtype_of<T>(), t.ndim(), t.shape().data(), strides.data()});
  return result;
}

// f() throws an Error of this kind whose message contains `text`.
template <class F>
void expect_error(ErrorKind kind, const std::string& text, F&& f) {
  EXPECT_ERROR(f(), kind, text);
}

}  // namespace hologram
