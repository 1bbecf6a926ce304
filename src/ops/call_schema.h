// SPDX-License-Identifier: MIT
// What the letters and names of a call's schema stand for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "hologram/call_ops.h"
#include "hologram/dtype.h"
#include "hologram/shape.h"

namespace hologram {

// Whether an operand of that letter may have the dtype. floating: that of the call's operands of
// letter T, where there are any.
bool takes(CallDtype letter, Dtype dtype, std::optional<Dtype> floating);

// The sizes that names stand for, as the shapes of a call's operands settle them.
class CallSizes {
 public:
  // What one operand's shape says.
  enum class Match : uint8_t {
    settles,     // all its names are known now
    open,        // other operands have to come first
    differs,     // from what the schema or the names say
    other_rank,  // it has more dimensions than the schema says, or fewer
  };
  // The value of a parameter by name; where it is not known, its name is that of a size.
  using Parameter = std::function<std::optional<int64_t>(std::string_view)>;

  explicit CallSizes(Parameter parameter) : parameter_(std::move(parameter)) {}

  // Learns what the shape says, of an operand that neither is a list nor broadcasts nor has a free
  // shape. Nothing of a shape that differs is to be relied on.
  Match match(const CallOperandInfo& operand, const Shape& shape);
  // Of an operand whose names are all known; else none.
  std::optional<Shape> shape_of(const CallOperandInfo& operand) const;
  // "N is 4, *S is [2, 3]": what is known of the operand's names.
  std::string known_of(const CallOperandInfo& operand) const;
  // How many names are known.
  size_t count() const { return sizes_.size() + runs_.size(); }

  // Null where the name is not known.
  const Shape* run(std::string_view name) const;
  const int64_t* size(std::string_view name) const;
  void set_run(std::string_view name, Shape dims) { runs_[std::string(name)] = std::move(dims); }
  void set_size(std::string_view name, int64_t size) { sizes_[std::string(name)] = size; }

 private:
  Match match_size(const CallDim& dim, int64_t size);
  std::optional<int64_t> size_of(const CallDim& dim, std::string* open) const;

  std::optional<int64_t> parameter(const std::string& name) const;

  Parameter parameter_;
  std::map<std::string, int64_t, std::less<>> sizes_;
  std::map<std::string, Shape, std::less<>> runs_;
};

}  // namespace hologram
