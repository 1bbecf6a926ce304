// SPDX-License-Identifier: MIT
// The words in the columns of hologram/elementwise.def as values, for code that expands the table:
// `using namespace hologram::op_columns` where it does.
#pragma once

#include "hologram/op.h"

namespace hologram::op_columns {

// dtypes
inline constexpr auto FLOATS = DtypeSet::kFloats;
inline constexpr auto NUMBERS = DtypeSet::kNumbers;
inline constexpr auto ALL = DtypeSet::kAll;
inline constexpr auto BITS = DtypeSet::kBits;

// others
inline constexpr OtherDtypes NONE = {};
inline constexpr OtherDtypes REFUSED = {OtherDtypes::kRefused};
inline constexpr OtherDtypes AS_FLOAT = {OtherDtypes::kAsFloat};
inline constexpr OtherDtypes AS_UINT8 = {OtherDtypes::kAsUInt8};
inline constexpr OtherDtypes UNCHANGED = {OtherDtypes::kUnchanged};
constexpr OtherDtypes ROW(OpId op) { return {OtherDtypes::kRow, op}; }
constexpr OtherDtypes INTEGERS(IntegerOp op) { return {OtherDtypes::kInteger, {}, op}; }

// accuracy
struct Bound {
  Accuracy kind;
  float ulp32, ulp64;
};
inline constexpr Bound EXACT = {Accuracy::kExact, 0.5f, 0.5f};
constexpr Bound ULP(float ulp32, float ulp64) { return {Accuracy::kUlp, ulp32, ulp64}; }
constexpr Bound STEPS(float ulp) { return {Accuracy::kSteps, ulp, ulp}; }

// traits
inline constexpr auto PLAIN = kPlainTraits;
inline constexpr auto TRUTH = kTruth;
inline constexpr auto COMPARES = kCompares;
inline constexpr auto PASSES_NAN = kPassesNan;
inline constexpr auto INT_TO_FLOAT = kIntToFloat;
inline constexpr auto SAME_DTYPE = kSameDtype;
inline constexpr auto ROUNDS_NUMBERS = kRoundsNumbers;
inline constexpr auto HEAVY = kHeavy;
inline constexpr auto SECOND_LEADS = kSecondLeads;

}  // namespace hologram::op_columns
