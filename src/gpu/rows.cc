// SPDX-License-Identifier: MIT
// See rows.h. What is computed are values (row_values.h); this is when, by which item, and how
// parts come together.
#include "src/gpu/rows.h"

#include <algorithm>

#include "src/gpu/row_values.h"

namespace hologram::gpu {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Elements of a piece of a row, at least, and pieces of a row, at most.
constexpr int64_t kPiece = 4096, kMostPieces = 1024;

int64_t piece_of(int64_t elements) {
  const int64_t piece = std::max(kPiece, ceil_div(elements, kMostPieces));
  return ceil_div(piece, static_cast<int64_t>(kMostGroupItems)) * kMostGroupItems;
}

// Writes one launch of a kernel.
class RowsWriter : RowValues {
 public:
  RowsWriter(const Kernel& kernel, const Traits& traits)
      : RowValues(kernel, traits),
        rows_(kernel.rows()),
        lanes_(lanes_of(cols_)),
        pieces_(pieces_of(cols_)) {}

  // Of rows in one piece.
  KernelText write() {
    const std::string rows = add_word(rows_), cols = add_word(cols_);
    const std::string row_type = index_type(rows_), col_type = index_type(cols_);
    const auto lanes = static_cast<size_t>(lanes_);
    items_ = std::max(kGroupItems, lanes);
    const size_t per_group = items_ / lanes;
    // Neighbours in a group read neighbours in memory.
    rows_first_ = row_steps_less();
    std::string body;
    if (lanes_ == 1) {
      put(body, "  if (OWN_ITEM >= (u64)", rows, ") return;\n");
      put(body, "  const ", row_type, " row = (", row_type, ")OWN_ITEM;\n");
      put(body, "  const ", col_type, " cols = (", col_type, ")", cols, ";\n");
    } else {
      // A group has whole rows. Items past the last have no elements, and the group's first row.
      const std::string row = rows_first_ ? cat("LANE % ", per_group) : cat("LANE / ", lanes);
      put(body, "  const u32 lane = LANE ", rows_first_ ? cat("/ ", per_group) : cat("% ", lanes));
      put(body, ";\n  const u64 first = OWN_GROUP * ", per_group, ";\n");
      put(body, "  const int is_row = first + ", row, " < (u64)", rows, ";\n");
      put(body, "  const ", row_type, " row = (", row_type, ")(is_row ? first + ", row,
          " : first);\n");
      put(body, "  const ", col_type, " cols = is_row ? (", col_type, ")", cols, " : 0;\n");
    }
    write_values(body);
    std::string walks;
    const int last = last_walk();
    for (int walk = 0; walk <= last; ++walk) {
      write_row_values(walk, walks);
      write_walk(walk, walk == last, walks);
      for (const Fold& fold : folds_) {
        if (fold.walk == walk) define_fold(fold, walks);
      }
    }
    write_row_values(last + 1, walks);
    write_row_stores(walks);
    for (const std::string& array : arrays_) body += array;
    const auto groups = (static_cast<size_t>(rows_) + per_group - 1) / per_group;
    return finish(body + walks, groups, items_);
  }

  // Of rows in pieces: launch 0, 1... is the walk of that number, and one more stores values of
  // rows. Nothing behind the last.
  std::optional<KernelText> write_launch(int launch) {
    const std::string rows = add_word(rows_), cols = add_word(cols_);
    items_ = static_cast<size_t>(lanes_);
    std::string body = "  const u32 lane = LANE;\n";
    const std::string pieces = cat("(u64)", add_word(pieces_)), piece = add_word(piece_of(cols_));
    std::string begin;
    write_values(begin);
    const int last = last_walk();
    const bool is_walk = launch <= last;
    if (!is_walk && (launch > last + 1 || !stores_row_values())) return std::nullopt;
    put(body, "  const ", index_type(rows_), " row = (", index_type(rows_), ")(OWN_GROUP",
        is_walk ? cat(" / ", pieces) : std::string(), ");\n");
    if (is_walk) {
      put(body, "  const u64 piece = OWN_GROUP % ", pieces, ";\n");
      put(body, "  const i64 first = (i64)piece * ", piece, ", cols = first + ", piece, " < ", cols,
          " ? first + ", piece, " : ", cols, ";\n");
    }
    body += begin;
    if (!folds_.empty()) {
      const circuit::MemoryAccess scratch{.slot = kScratchSlot};
      put(body, "  GLOBAL u8* const parts = ", begin_of(scratch), ";\n");
    }
    std::string walks;
    for (int walk = 0; walk < std::min(launch, last + 1); ++walk) {
      write_row_values(walk, walks);
      for (const Fold& fold : folds_) {
        if (fold.walk == walk) write_pieces_merge(fold, rows, pieces, walks);
      }
    }
    write_row_values(launch, walks);
    if (is_walk) {
      write_walk(launch, launch == last, walks);
      for (const Fold& fold : folds_) {
        if (fold.walk != launch) continue;
        put(walks, "  if (lane == 0) ", part_of(fold, "piece", rows, pieces), " = part",
            fold.result, ";\n");
      }
    } else {
      write_row_stores(walks);
    }
    for (const std::string& array : arrays_) body += array;
    const auto groups = static_cast<size_t>(is_walk ? rows_ * pieces_ : rows_);
    text_.scratch_bytes = kPartBytes * folds_.size() * static_cast<size_t>(rows_ * pieces_);
    return finish(body + walks, groups, items_);
  }

 private:
  static constexpr size_t kPartBytes = 8;

  // What all launches begin with: where the item's row is, and the instructions as values.
  void write_values(std::string& body) {
    if (row_dims_ > 0) {
      put(body, "  ", positions("p", "row", kernel_.shape.data(), 0, row_dims_), "\n");
    }
    for (const MemoryAccess& access : kernel_.accesses) write_begin(access, body);
    for (const Instr& instr : kernel_.instrs) add_instr(instr);
  }

  int last_walk() const {
    int last = 0;
    for (const Fold& fold : folds_) last = std::max(last, fold.walk);
    for (const Store& store : stores_) {
      const Value& value = values_[static_cast<size_t>(store.value)];
      if (value.is_full || is_full(store)) last = std::max(last, value.walk);
    }
    return last;
  }
  bool is_full(const Store& store) const {
    return kernel_.accesses[store.access].rank == Rank::kFull;
  }

  static void define(const Value& value, int index, const char* indent, std::string& text) {
    put(text, indent, "const ", storage_type(value.dtype), " ", name(index), " = ", value.text,
        ";\n");
  }

  // Values of rows that are known before the walk.
  void write_row_values(int walk, std::string& text) {
    for (size_t v = 0; v < values_.size(); ++v) {
      const Value& value = values_[v];
      if (!value.is_full && value.fold < 0 && value.walk == walk) {
        define(value, static_cast<int>(v), "  ", text);
      }
    }
  }

  void need(int index, std::vector<bool>& needed) const {
    const auto at = static_cast<size_t>(index);
    if (needed[at] || !values_[at].is_full) return;
    needed[at] = true;
    for (const int operand : values_[at].operands) need(operand, needed);
  }

  void write_walk(int walk, bool stores, std::string& text) {
    std::vector<bool> needed(values_.size(), false);
    std::vector<const Fold*> folds;
    for (const Fold& fold : folds_) {
      if (fold.walk != walk) continue;
      folds.push_back(&fold);
      need(fold.input, needed);
    }
    bool any = !folds.empty();
    for (const Store& store : stores_) {
      if (!stores || !is_full(store)) continue;
      any = true;
      need(store.value, needed);
    }
    if (!any) return;
    for (const Fold* fold : folds) {
      put(text, "  ", storage_type(fold->dtype), " part", fold->result, " = ", identity(*fold),
          ";\n");
    }
    if (pieces_ > 1) {
      put(text, "  for (i64 c = first + lane; c < cols; c += ", lanes_, ") {\n");
    } else {
      put(text, "  for (", index_type(cols_), " c = ", lanes_ > 1 ? "lane" : "0",
          "; c < cols; c += ", lanes_, ") {\n");
    }
    for (size_t v = 0; v < values_.size(); ++v) {
      if (needed[v]) define(values_[v], static_cast<int>(v), "    ", text);
    }
    for (const Fold* fold : folds) {
      const std::string part = cat("part", fold->result);
      put(text, "    ", part, " = ", merged(*fold, part, name(fold->input)), ";\n");
    }
    for (const Store& store : stores_) {
      if (!stores || !is_full(store)) continue;
      const std::string_view type = storage_type(kernel_.accesses[store.access].dtype);
      put(text, "    *(GLOBAL ", type, "*)(", place(store.access), ") = ", name(store.value),
          ";\n");
    }
    text += "  }\n";
    for (const Fold* fold : folds) write_merge(*fold, text);
  }

  // The items' parts of a row, or of a piece, become one, in every item.
  void write_merge(const Fold& fold, std::string& text) {
    const std::string_view type = storage_type(fold.dtype);
    if (lanes_ > 1) {
      const std::string array = cat("shared_", type);
      const std::string declared = cat("  LOCAL ", type, " ", array, "[", items_, "];\n");
      if (std::find(arrays_.begin(), arrays_.end(), declared) == arrays_.end()) {
        arrays_.push_back(declared);
      }
      const size_t step = rows_first_ ? items_ / static_cast<size_t>(lanes_) : 1;
      const std::string own = cat(array, "[LANE]");
      put(text, "  ", own, " = part", fold.result, ";\n  BARRIER;\n");
      for (int half = lanes_ / 2; half > 0; half /= 2) {
        const std::string other = cat(array, "[LANE + ", static_cast<size_t>(half) * step, "]");
        put(text, "  if (lane < ", half, ") ", own, " = ", merged(fold, own, other),
            ";\n  BARRIER;\n");
      }
      put(text, "  part", fold.result, " = ", array, "[LANE - lane * ", step, "];\n  BARRIER;\n");
    }
  }

  static void define_fold(const Fold& fold, std::string& text) {
    put(text, "  const ", storage_type(fold.dtype), " ", name(fold.result), " = part", fold.result,
        ";\n");
  }

  // Where the part of a piece of the group's row lies.
  std::string part_of(const Fold& fold, const char* piece, const std::string& rows,
                      const std::string& pieces) const {
    const auto index = static_cast<size_t>(&fold - folds_.data());
    return cat("*(GLOBAL ", storage_type(fold.dtype), "*)(parts + ", kPartBytes, " * ((", index,
               " * (u64)", rows, " + row) * ", pieces, " + ", piece, "))");
  }

  // The pieces of a row become its value, in every item.
  void write_pieces_merge(const Fold& fold, const std::string& rows, const std::string& pieces,
                          std::string& text) {
    const std::string part = cat("part", fold.result);
    put(text, "  ", storage_type(fold.dtype), " ", part, " = ", identity(fold), ";\n");
    put(text, "  for (u32 q = lane; q < ", pieces, "; q += ", lanes_, ") {\n");
    put(text, "    const ", storage_type(fold.dtype),
        " piece_part = ", part_of(fold, "q", rows, pieces), ";\n");
    put(text, "    ", part, " = ", merged(fold, part, "piece_part"), ";\n  }\n");
    write_merge(fold, text);
    define_fold(fold, text);
  }

  std::string merged(const Fold& fold, const std::string& a, const std::string& b) {
    const std::string both[] = {a, b};
    switch (fold.merge) {
      case Merge::kSum:
        return functions_.row(OpId::add, fold.dtype, both, 2);
      case Merge::kProduct:
        return functions_.row(OpId::mul, fold.dtype, both, 2);
      case Merge::kMaximum:
        return functions_.row(OpId::maximum, fold.dtype, both, 2);
      case Merge::kMinimum:
        return functions_.row(OpId::minimum, fold.dtype, both, 2);
      case Merge::kAny:
        return cat(a, " | ", b);
      case Merge::kAll:
        break;
    }
    return cat(a, " & ", b);
  }

  std::string identity(const Fold& fold) const {
    const bool is_least = fold.merge == Merge::kMaximum;
    switch (fold.merge) {
      case Merge::kSum:
      case Merge::kAny:
        return "0";
      case Merge::kProduct:
      case Merge::kAll:
        return "1";
      default:
        break;
    }
    if (!is_floating(fold.dtype))
      return is_least ? "(i64)((u64)1 << 63)" : "(i64)(((u64)1 << 63) - 1)";
    if (fold.dtype == Dtype::kFloat64) {
      return is_least ? "as_f64((i64)((u64)0xfff << 52))" : "as_f64((i64)((u64)0x7ff << 52))";
    }
    return is_least ? "as_f32(0xff800000u)" : "as_f32(0x7f800000u)";
  }

  bool stores_row_values() const {
    return std::any_of(stores_.begin(), stores_.end(),
                       [&](const Store& store) { return !is_full(store); });
  }

  // After all walks, since elements may be read where a row's value goes.
  void write_row_stores(std::string& text) {
    bool begun = false;
    for (const Store& store : stores_) {
      const MemoryAccess& access = kernel_.accesses[store.access];
      if (access.rank == Rank::kFull) continue;
      if (!begun && lanes_ > 1) text += "  BARRIER;\n";
      begun = true;
      const bool is_one = access.rank == Rank::kOne;
      const char* const first_lane = pieces_ > 1 ? "lane == 0" : "is_row && lane == 0";
      std::string is_first = lanes_ > 1 ? first_lane : is_one ? "row == 0" : "1";
      if (is_one && lanes_ > 1) is_first += " && row == 0";
      put(text, "  if (", is_first, ") *(GLOBAL ", storage_type(access.dtype), "*)(a", store.access,
          ") = ", name(store.value), ";\n");
    }
  }

  const int64_t rows_;
  const int lanes_;
  const int64_t pieces_;
  size_t items_ = kGroupItems;       // of a group
  bool rows_first_ = false;          // the next item has the next row, not the next element
  std::vector<std::string> arrays_;  // that items share
};

}  // namespace

int lanes_of(int64_t elements) {
  if (elements <= 128) return elements <= 16 ? 1 : 8;
  return elements <= 2048 ? 64 : static_cast<int>(kMostGroupItems);
}

int64_t pieces_of(int64_t elements) {
  return elements <= kLongRow ? 1 : ceil_div(elements, piece_of(elements));
}

std::vector<KernelText> rows_texts(const Kernel& kernel, const Traits& traits) {
  if (pieces_of(kernel.cols()) == 1) return {RowsWriter(kernel, traits).write()};
  std::vector<KernelText> texts;
  for (;;) {
    auto text = RowsWriter(kernel, traits).write_launch(static_cast<int>(texts.size()));
    if (!text.has_value()) return texts;
    texts.push_back(*std::move(text));
  }
}

}  // namespace hologram::gpu
