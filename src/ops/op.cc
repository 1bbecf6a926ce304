// SPDX-License-Identifier: MIT
// Expands the op table into the public description of every row.
#include "hologram/op.h"

#include <array>
#include <unordered_map>

#include "hologram/error.h"
#include "hologram/op_columns.h"

namespace hologram {
namespace {

using namespace op_columns;  // NOLINT: the words of the table

constexpr OpInfo kRows[] = {
#define HOLOGRAM_OP(name, id, arity, params, dtypes, others, accuracy, traits, aten, doc, body) \
  OpInfo{#name,                                                                                 \
         OpId::name,                                                                            \
         arity,                                                                                 \
         params,                                                                                \
         dtypes,                                                                                \
         others,                                                                                \
         ((traits)&kTruth) != 0,                                                                \
         traits,                                                                                \
         (accuracy).kind,                                                                       \
         (accuracy).ulp32,                                                                      \
         (accuracy).ulp64,                                                                      \
         doc},
#include "hologram/elementwise.def"
};

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
