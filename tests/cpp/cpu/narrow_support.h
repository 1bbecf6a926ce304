// SPDX-License-Identifier: MIT
// Operands of products whose right one has narrower elements.
#pragma once

#include <random>
#include <vector>

#include "hologram/dtype.h"
#include "hologram/elementwise.h"

namespace hologram {

using Random = std::mt19937;
using Bytes = std::vector<char>;

inline Bytes converted(const Bytes& from, Dtype type, Dtype to, int64_t n) {
  Bytes bytes(static_cast<size_t>(n) * itemsize(to) + 8);
  convert(type, from.data(), to, bytes.data(), n);
  return bytes;
}

inline Bytes random_bytes(Random& random, Dtype dtype, int64_t n) {
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int> whole(-128, 127);
  std::vector<double> values(static_cast<size_t>(n) + 1);
  for (double& value : values) value = is_floating(dtype) ? normal(random) : whole(random);
  Bytes bytes(static_cast<size_t>(n) * itemsize(dtype) + 8);
  convert(Dtype::kFloat64, values.data(), dtype, bytes.data(), n);
  return bytes;
}

struct NarrowTypes {
  Dtype dtype, narrow;
};
inline constexpr NarrowTypes kNarrowTypes[] = {{Dtype::kFloat32, Dtype::kInt8},
                                               {Dtype::kFloat32, Dtype::kFloat16},
                                               {Dtype::kFloat32, Dtype::kBFloat16},
                                               {Dtype::kBFloat16, Dtype::kInt8},
                                               {Dtype::kFloat16, Dtype::kInt8}};

}  // namespace hologram
