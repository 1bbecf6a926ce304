// SPDX-License-Identifier: MIT
// Expands the op table into the public description of every row.
#include "hologram/op.h"

#include <array>
#include <unordered_map>

#include "hologram/error.h"

namespace hologram {
namespace {

constexpr auto FLOATS = DtypeSet::kFloats;
constexpr auto NUMBERS = DtypeSet::kNumbers;
constexpr auto ALL = DtypeSet::kAll;
constexpr auto BITS = DtypeSet::kBits;
constexpr bool SAME = false;
constexpr bool BOOL = true;
struct Bound {
  Accuracy kind;
  float ulp32, ulp64;
};
constexpr Bound EXACT = {Accuracy::kExact, 0.5f, 0.5f};
constexpr Bound ULP(float ulp32, float ulp64) { return {Accuracy::kUlp, ulp32, ulp64}; }
constexpr Bound STEPS(float ulp) { return {Accuracy::kSteps, ulp, ulp}; }
#define HOLOGRAM_ROW(name, id, arity, params, dtypes, result, accuracy, doc) \
  OpInfo{#name,                                                              \
         OpId::name,                                                         \
         arity,                                                              \
         params,                                                             \
         dtypes,                                                             \
         result,                                                             \
         (accuracy).kind,                                                    \
         (accuracy).ulp32,                                                   \
         (accuracy).ulp64,                                                   \
         doc},

constexpr OpInfo kRows[] = {
#define HOLOGRAM_UNARY(name, id, dtypes, result, accuracy, doc, body) \
  HOLOGRAM_ROW(name, id, 1, 0, dtypes, result, accuracy, doc)
#define HOLOGRAM_BINARY(name, id, params, dtypes, result, accuracy, doc, body) \
  HOLOGRAM_ROW(name, id, 2, params, dtypes, result, accuracy, doc)
#define HOLOGRAM_TERNARY(name, id, params, dtypes, result, accuracy, doc, body) \
  HOLOGRAM_ROW(name, id, 3, params, dtypes, result, accuracy, doc)
#define HOLOGRAM_QUATERNARY(name, id, params, dtypes, result, accuracy, doc, body) \
  HOLOGRAM_ROW(name, id, 4, params, dtypes, result, accuracy, doc)
#include "src/ops/elementwise.def"
};
#undef HOLOGRAM_ROW

// The public enumeration and the table state each number once; here they are held to agree.
#define HOLOGRAM_UNARY(name, id, ...) \
  static_assert(static_cast<int>(OpId::name) == id && id < kOpIdEnd);
#define HOLOGRAM_BINARY HOLOGRAM_UNARY
#define HOLOGRAM_TERNARY HOLOGRAM_UNARY
#define HOLOGRAM_QUATERNARY HOLOGRAM_UNARY
#include "src/ops/elementwise.def"

constexpr std::array<int8_t, kOpIdEnd> kIndex = [] {
  std::array<int8_t, kOpIdEnd> index{};
  index.fill(-1);
  int position = 0;
  for (const OpInfo& row : kRows) index[static_cast<int>(row.id)] = static_cast<int8_t>(position++);
  return index;
}();

}  // namespace

std::span<const OpInfo> ops() { return kRows; }

const OpInfo& op_info(OpId id) {
  const int value = static_cast<int>(id);
  if (value >= kOpIdEnd || kIndex[value] < 0) {
    fail(ErrorKind::kInvalidArgument, "op id ", value, " is not in the op table of this version");
  }
  return kRows[kIndex[value]];
}

std::optional<OpId> find_op(std::string_view name) {
  static const auto* by_name = [] {
    auto* map = new std::unordered_map<std::string_view, OpId>;
    for (const OpInfo& row : kRows) map->emplace(row.name, row.id);
    return map;
  }();
  const auto found = by_name->find(name);
  if (found == by_name->end()) return std::nullopt;
  return found->second;
}

}  // namespace hologram
