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

// How a row's error is stated; see src/ops/elementwise.def.
enum class Accuracy : uint8_t { kExact, kUlp, kSteps };

struct OpInfo {
  std::string_view name;
  OpId id;
  uint8_t arity;        // 1 to 4 operands
  uint8_t params;       // trailing operands that are usually scalars
  DtypeSet dtypes;      // what the kernels compute in
  bool result_is_bool;  // comparisons and predicates
  Accuracy accuracy;
  float ulp32;  // largest error in float32, in ULP
  float ulp64;  // largest error in float64, in ULP
  std::string_view doc;

  // Costs many instructions an element, so fewer elements pay for another thread.
  bool is_heavy() const { return accuracy == Accuracy::kUlp || ulp32 >= 16; }
  constexpr bool supports(Dtype compute) const;
};

// Every row, in ascending order of id.
HOLOGRAM_API std::span<const OpInfo> ops();
HOLOGRAM_API const OpInfo& op_info(OpId id);
HOLOGRAM_API std::optional<OpId> find_op(std::string_view name);

constexpr bool OpInfo::supports(Dtype compute) const {
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

}  // namespace hologram
