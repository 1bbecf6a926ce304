// SPDX-License-Identifier: MIT
// The elementwise ops as data: what each is called, takes, gives and promises.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "hologram/api.h"
#include "hologram/dtype.h"
#include "hologram/op_ids.h"

namespace hologram {

// Types a row's kernels compute in. The half types are computed in float32, see compute_dtype().
enum class DtypeSet : uint8_t { kFloats, kNumbers, kAll, kBits };

constexpr bool supports(DtypeSet dtypes, Dtype compute) {
  if (is_stored_only(compute)) return false;
  switch (dtypes) {
    case DtypeSet::kFloats:
      return compute == Dtype::kFloat32 || compute == Dtype::kFloat64;
    case DtypeSet::kNumbers:
      return is_integer(compute) || compute == Dtype::kFloat32 || compute == Dtype::kFloat64;
    case DtypeSet::kAll:
      return compute <= Dtype::kInt64 || compute == Dtype::kFloat32 || compute == Dtype::kFloat64;
    case DtypeSet::kBits:
      return compute <= Dtype::kInt64;
  }
  return false;
}

// How a row's error is stated; see hologram/elementwise.def.
enum class Accuracy : uint8_t { kExact, kUlp, kSteps };

// What else is true of a row; a set of these. See hologram/elementwise.def.
enum OpTraits : uint16_t {
  kPlainTraits = 0,
  kTruth = 1,
  kCompares = 2,
  kPassesNan = 4,
  kIntToFloat = 8,
  kSameDtype = 16,
  kRoundsNumbers = 32,
  kSecondLeads = 64,
  kHeavy = 128,
};
constexpr OpTraits operator|(OpTraits a, OpTraits b) {
  return static_cast<OpTraits>(static_cast<int>(a) | static_cast<int>(b));
}

// Arithmetic of integers that no kernel computes, see integer_arithmetic() in functions.h.
enum class IntegerOp : uint8_t {
  pow = 0,
  floor_divide = 1,
  remainder = 2,
  left_shift = 3,
  right_shift = 4,
  fmod = 5
};

// What arrays do with an element type that the row's kernels do not compute in.
struct OtherDtypes {
  enum Way : uint8_t { kNone, kRefused, kAsFloat, kAsUInt8, kUnchanged, kRow, kInteger };
  Way way = kNone;
  OpId row = {};              // kRow: computed by this row
  IntegerOp integer_op = {};  // kInteger: computed by integer_arithmetic()
};

struct OpInfo {
  std::string_view name;
  OpId id;
  uint8_t arity;        // 1 to 4 operands
  uint8_t params;       // trailing operands that are usually scalars
  DtypeSet dtypes;      // what the kernels compute in
  OtherDtypes others;   // what becomes of the rest
  bool result_is_bool;  // comparisons and predicates
  OpTraits traits;
  Accuracy accuracy;
  float ulp32;  // largest error in float32, in ULP
  float ulp64;  // largest error in float64, in ULP
  std::string_view doc;

  // Costs many instructions an element, so fewer elements pay for another thread.
  bool is_heavy() const { return (traits & kHeavy) != 0; }
  constexpr bool supports(Dtype compute) const { return hologram::supports(dtypes, compute); }
  // The absolute value of a complex number is real.
  constexpr Dtype result(Dtype compute) const {
    if (result_is_bool) return Dtype::kBool;
    return id == OpId::abs && is_complex(compute) ? part_dtype(compute) : compute;
  }
};

// Every row, in the order of the table.
HOLOGRAM_API std::span<const OpInfo> ops();
HOLOGRAM_API const OpInfo& op_info(OpId id);
HOLOGRAM_API std::optional<OpId> find_op(std::string_view name);

}  // namespace hologram
