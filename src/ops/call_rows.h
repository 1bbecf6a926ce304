// SPDX-License-Identifier: MIT
// The rows of src/ops/calls.def as text.
#pragma once

#include <span>

namespace hologram {

struct CallRow {
  const char* name;
  const char* schema;
  const char* cost;  // an expression of C++
  const char* doc;
};

// In order of their numbers, as call_ops().
std::span<const CallRow> call_rows();

}  // namespace hologram
