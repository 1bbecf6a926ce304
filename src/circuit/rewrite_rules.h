// SPDX-License-Identifier: MIT
// The rows of rewrite_rules.def as data.
#pragma once

#include <optional>
#include <span>

#include "src/circuit/graph.h"

namespace hologram::circuit {

enum class LawKind : uint8_t { kNeutral, kSame, kProjection, kInvolution, kAbsorbs };
enum class LawTypes : uint8_t { kFloats, kIntegers, kSigned, kBoth };
enum class LawTag : uint8_t { kExact, kQuiet };

struct Law {
  LawKind kind;
  OpId op;
  OpId inner;          // kAbsorbs
  int operand;         // kNeutral: which one is the number
  NumberClass number;  // kNeutral
  LawTypes types;
  LawTag tag;

  bool covers(Dtype compute) const {
    if (types == LawTypes::kBoth) return true;
    if (types == LawTypes::kSigned) return compute != Dtype::kUInt8 && compute != Dtype::kBool;
    return (types == LawTypes::kFloats) == is_floating(compute);
  }
};

std::span<const Law> laws();

}  // namespace hologram::circuit
