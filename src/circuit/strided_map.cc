// SPDX-License-Identifier: MIT
// Maps are kept in one form: parts that continue each other are one.
#include "src/circuit/strided_map.h"

#include <algorithm>

namespace hologram::circuit {

Map Map::flat(Size n) {
  Map map;
  map.push(n, 1);
  return map;
}

Map Map::from_dims(int ndim, const int64_t* shape, const int64_t* strides) {
  Map map;
  for (int d = ndim - 1; d >= 0; --d) map.push(size_of_tape(shape[d]), size_of_tape(strides[d]));
  return map;
}

void Map::push(Size size, Size stride) {
  if (size == 1) return;
  if (count > 0) {
    Part& last = parts[count - 1];
    if (stride == last.stride * last.size) {
      last.size *= size;
      return;
    }
  }
  parts[count++] = {size, stride};
}

Size Map::numel() const {
  Size n = 1;
  for (int i = 0; i < count; ++i) n *= parts[i].size;
  return n;
}

bool Map::repeats(const Map& inner, Size times) const {
  Map repeated;
  repeated.push(times, 0);
  for (int i = 0; i < inner.count; ++i) {
    if (repeated.count == static_cast<int>(repeated.parts.size())) return false;
    repeated.push(inner.parts[i].size, inner.parts[i].stride);
  }
  return repeated == *this;
}

Size Map::lowest() const {
  Size at = 0;
  for (int i = 0; i < count; ++i) at += std::min<Size>(0, parts[i].stride) * (parts[i].size - 1);
  return at;
}

Size Map::highest() const {
  Size at = 0;
  for (int i = 0; i < count; ++i) at += std::max<Size>(0, parts[i].stride) * (parts[i].size - 1);
  return at;
}

Size Map::distinct() const {
  Size n = 1;
  for (int i = 0; i < count; ++i) {
    if (parts[i].stride != 0) n *= parts[i].size;
  }
  return n;
}

bool Map::operator==(const Map& other) const {
  return count == other.count &&
         std::equal(parts.begin(), parts.begin() + count, other.parts.begin());
}

}  // namespace hologram::circuit
