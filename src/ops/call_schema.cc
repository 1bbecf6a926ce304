// SPDX-License-Identifier: MIT
// See call_sizes.h.
#include "src/ops/call_schema.h"

#include <cctype>
#include <vector>

#include "src/base/text.h"

namespace hologram {

bool takes(CallDtype letter, Dtype dtype, std::optional<Dtype> floating) {
  switch (letter) {
    case CallDtype::any:
    case CallDtype::each:
      return true;
    case CallDtype::number:
      return is_floating(dtype) || dtype == Dtype::kInt32 || dtype == Dtype::kInt64;
    case CallDtype::floating:
      return is_floating(dtype);
    case CallDtype::param:
    case CallDtype::stat:
      return floating.has_value() &&
             (dtype == *floating || (dtype == Dtype::kFloat32 && itemsize(*floating) == 2));
    case CallDtype::real:
      return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat64;
    case CallDtype::index:
      return dtype == Dtype::kInt32 || dtype == Dtype::kInt64;
    case CallDtype::int64:
      return dtype == Dtype::kInt64;
    case CallDtype::int8:
      return dtype == Dtype::kInt8;
    case CallDtype::uint8:
      return dtype == Dtype::kUInt8;
    case CallDtype::boolean:
      return dtype == Dtype::kBool;
    case CallDtype::float32:
      return dtype == Dtype::kFloat32;
  }
  return false;
}

// Parameters are written small, sizes large.
std::optional<int64_t> CallSizes::parameter(const std::string& name) const {
  if (std::islower(static_cast<unsigned char>(name[0])) == 0) return std::nullopt;
  return parameter_(name);
}

const Shape* CallSizes::run(std::string_view name) const {
  const auto found = runs_.find(name);
  return found == runs_.end() ? nullptr : &found->second;
}
const int64_t* CallSizes::size(std::string_view name) const {
  const auto found = sizes_.find(name);
  return found == sizes_.end() ? nullptr : &found->second;
}

// The size that a dimension stands for; where one name of it is open, that name and what is known
// of the product.
std::optional<int64_t> CallSizes::size_of(const CallDim& dim, std::string* open) const {
  int64_t product = dim.factor;
  open->clear();
  bool settled = true;
  for (const std::string& name : dim.names) {
    if (const std::optional<int64_t> value = parameter(name)) {
      product *= *value;
    } else if (const int64_t* known = size(name)) {
      product *= *known;
    } else {
      settled = settled && open->empty();
      *open = name;
    }
  }
  if (!settled) return std::nullopt;
  return product;
}

CallSizes::Match CallSizes::match_size(const CallDim& dim, int64_t size) {
  std::string open;
  const std::optional<int64_t> product = size_of(dim, &open);
  if (!product.has_value()) return Match::open;
  if (open.empty()) return *product == size ? Match::settles : Match::differs;
  if (*product <= 0 ? size != 0 || *product < 0 : size % *product != 0) return Match::differs;
  sizes_[open] = *product == 0 ? 0 : size / *product;
  return Match::settles;
}

CallSizes::Match CallSizes::match(const CallOperandInfo& operand, const Shape& shape) {
  int64_t fixed = 0, open_run = -1;
  std::vector<int64_t> lengths(operand.shape.size(), 1);
  for (size_t d = 0; d < operand.shape.size(); ++d) {
    const CallDim& dim = operand.shape[d];
    if (dim.run) {
      const std::optional<int64_t> count = dim.count.empty() ? std::nullopt : parameter(dim.count);
      if (const Shape* known = run(dim.names[0])) {
        lengths[d] = static_cast<int64_t>(known->size());
      } else if (count.has_value()) {
        lengths[d] = *count;
        if (lengths[d] < 0) return Match::differs;
      } else {
        if (open_run >= 0) return Match::open;
        open_run = static_cast<int64_t>(d);
        continue;
      }
    }
    fixed += lengths[d];
  }
  const int64_t rest = static_cast<int64_t>(shape.size()) - fixed;
  if (open_run >= 0 ? rest < 0 : rest != 0) return Match::other_rank;
  if (open_run >= 0) lengths[static_cast<size_t>(open_run)] = rest;
  Match all = Match::settles;
  const int64_t* at = shape.data();
  for (size_t d = 0; d < operand.shape.size(); ++d) {
    const CallDim& dim = operand.shape[d];
    if (dim.run) {
      const Shape part(at, at + lengths[d]);
      const auto [known, is_new] = runs_.emplace(dim.names[0], part);
      if (known->second != part) return Match::differs;
    } else {
      const Match one = match_size(dim, *at);
      if (one == Match::differs) return one;
      if (one == Match::open) all = one;
    }
    at += lengths[d];
  }
  return all;
}

std::optional<Shape> CallSizes::shape_of(const CallOperandInfo& operand) const {
  Shape shape;
  for (const CallDim& dim : operand.shape) {
    if (dim.run) {
      const Shape* known = run(dim.names[0]);
      if (known == nullptr) return std::nullopt;
      for (const int64_t size : *known) shape.push_back(size);
      continue;
    }
    std::string open;
    const std::optional<int64_t> size = size_of(dim, &open);
    if (!size.has_value() || !open.empty()) return std::nullopt;
    shape.push_back(*size);
  }
  return shape;
}

std::string CallSizes::known_of(const CallOperandInfo& operand) const {
  std::string text;
  for (const CallDim& dim : operand.shape) {
    for (const std::string& name : dim.names) {
      std::string value;
      if (dim.run) {
        if (const Shape* known = run(name)) value = shape_text(*known);
      } else if (const std::optional<int64_t> given = parameter(name)) {
        value = std::to_string(*given);
      } else if (const int64_t* known = size(name)) {
        value = std::to_string(*known);
      }
      if (value.empty()) continue;
      text += text.empty() ? "" : ", ";
      text.append(name).append(" is ").append(value);
    }
  }
  return text;
}

}  // namespace hologram
