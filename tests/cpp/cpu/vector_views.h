// SPDX-License-Identifier: MIT
// Views of vectors, for calls that tests fill by hand.
#pragma once

#include <cstdint>
#include <deque>
#include <type_traits>
#include <vector>

#include "hologram/view.h"

namespace hologram {

// Keeps the sizes and strides that its views point to.
class VectorViews {
 public:
  // row: elements between rows of the last dimension; 0: none but those of a row. Without data
  // where the vector is empty.
  template <class T>
  View operator()(const std::vector<T>& values, std::vector<int64_t> shape, int64_t row = 0) {
    constexpr Dtype kDtype = std::is_same_v<T, float>    ? Dtype::kFloat32
                             : std::is_same_v<T, double> ? Dtype::kFloat64
                                                         : Dtype::kInt64;
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t d = shape.size() - 1; d-- > 0;) {
      strides[d] = d + 2 == shape.size() && row > 0 ? row : strides[d + 1] * shape[d + 1];
    }
    const auto& sizes = sizes_.emplace_back(std::move(shape));
    const auto& steps = sizes_.emplace_back(std::move(strides));
    return {values.empty() ? nullptr : const_cast<T*>(values.data()), kDtype,
            static_cast<int>(sizes.size()), sizes.data(), steps.data()};
  }

 private:
  std::deque<std::vector<int64_t>> sizes_;
};

}  // namespace hologram
