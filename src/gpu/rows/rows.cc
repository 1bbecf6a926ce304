// SPDX-License-Identifier: MIT
// See rows.h. What is computed are values (row_values.h), in walks and by groups of row_walks.h;
// this is how that is written, and how parts come together.
#include "src/gpu/rows/rows.h"

#include <algorithm>

#include "src/gpu/rows/row_walks.h"

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
class RowsWriter : RowWalks {
 public:
  RowsWriter(const Kernel& kernel, const Traits& traits) : RowWalks(kernel, traits) {}

  // Of rows in one piece.
  KernelText write() {
    const std::string rows = add_word(rows_), cols = add_word(cols_);
    const std::string row_type = index_type(rows_), col_type = index_type(cols_);
    std::string begin;
    write_values(begin);
    std::string body;
    if (row_lanes_ == 1) {
      put(body, "  if (OWN_ITEM >= (u64)", rows, ") return;\n");
      put(body, "  const ", row_type, " row = (", row_type, ")OWN_ITEM;\n");
      put(body, "  const ", col_type, " cols = (", col_type, ")", cols, ";\n");
    } else {
      write_own_row("OWN_GROUP", rows, body);
      put(body, "  const ", col_type, " cols = is_row ? (", col_type, ")", cols, " : 0;\n");
    }
    body += begin;
    std::string walks;
    const auto count = static_cast<int>(walks_.size());
    for (int walk = 0; walk < count; ++walk) {
      write_row_values(walk, walks);
      write_walk(walk, walks);
      for (const Fold& fold : folds_) {
        if (fold.walk == walk) define_fold(fold, walks);
      }
    }
    write_row_values(count, walks);
    write_row_stores(walks);
    for (const std::string& array : arrays_) body += array;
    return finish(body + walks, row_groups(), group_.all_items());
  }

  // Of rows in pieces: launch 0, 1... is the walk of that number, and one more stores values of
  // rows. Nothing behind the last.
  std::optional<KernelText> write_launch(int launch) {
    const std::string rows = add_word(rows_), cols = cat("(u64)", add_word(cols_));
    const std::string pieces = cat("(u64)", add_word(pieces_));
    const std::string piece = cat("(u64)", add_word(piece_of(cols_)));
    std::string begin;
    write_values(begin);
    const auto count = static_cast<int>(walks_.size());
    const bool is_walk = launch < count;
    if (!is_walk && (launch > count || !stores_row_values())) return std::nullopt;
    std::string body;
    const size_t groups = row_groups();
    if (!is_walk) {
      write_own_row("OWN_GROUP", rows, body);
    } else {
      // Groups that run at the same time read what lies side by side.
      const std::string of =
          group_.rows_first ? cat("(u64)", add_word(static_cast<int64_t>(groups))) : pieces;
      const std::string slow = cat("OWN_GROUP / ", of), fast = cat("OWN_GROUP % ", of);
      write_own_row(group_.rows_first ? fast : slow, rows, body);
      const std::string type = index_type(cols_);
      put(body, "  const u64 piece = ", group_.rows_first ? slow : fast, ";\n");
      put(body, "  const u64 first_col = piece * ", piece, ", end = first_col + ", piece, " < ",
          cols, " ? first_col + ", piece, " : ", cols, ";\n");
      put(body, "  const ", type, " cols = is_row ? (", type, ")end : 0;\n");
    }
    body += begin;
    if (!folds_.empty()) {
      const circuit::MemoryAccess scratch{.slot = kScratchSlot};
      put(body, "  GLOBAL u8* const parts = ", begin_of(scratch), ";\n");
    }
    std::string walks;
    for (int walk = 0; walk < std::min(launch, count); ++walk) {
      write_row_values(walk, walks);
      for (const Fold& fold : folds_) {
        if (fold.walk == walk) write_pieces_merge(fold, rows, pieces, walks);
      }
    }
    write_row_values(launch, walks);
    if (is_walk) {
      write_walk(launch, walks);
      for (const Fold& fold : folds_) {
        if (fold.walk != launch) continue;
        put(walks, "  if (is_row && item == 0) ", part_of(fold, "piece", rows, pieces), " = part",
            fold.result, "[0];\n");
      }
    } else {
      write_row_stores(walks);
    }
    for (const std::string& array : arrays_) body += array;
    text_.scratch_bytes = kPartBytes * folds_.size() * static_cast<size_t>(rows_ * pieces_);
    return finish(body + walks, is_walk ? groups * static_cast<size_t>(pieces_) : groups,
                  group_.all_items());
  }

 private:
  static constexpr size_t kPartBytes = 8;
  // How many partial results an item takes together at the end of a merge.
  static constexpr int kLastParts = 16;

  size_t row_groups() const { return (static_cast<size_t>(rows_) + group_.rows - 1) / group_.rows; }

  // A group has whole rows. Items past the last have no elements, and the group's first row.
  void write_own_row(const std::string& group, const std::string& rows, std::string& body) const {
    const std::string type = index_type(rows_);
    const bool first = group_.rows_first;
    const std::string row = first ? cat("LANE % ", group_.rows) : cat("LANE / ", group_.items);
    put(body, "  const u32 item = LANE ", first ? cat("/ ", group_.rows) : cat("% ", group_.items));
    put(body, ";\n  const u64 first = (u64)(", group, ") * ", group_.rows, ";\n");
    put(body, "  const int is_row = first + ", row, " < (u64)", rows, ";\n");
    put(body, "  const ", type, " row = (", type, ")(is_row ? first + ", row, " : first);\n");
  }

  // What all launches begin with: where the item's row is, and the instructions as values.
  void write_values(std::string& body) {
    if (row_dims_ > 0) {
      put(body, "  ", positions("p", "row", kernel_.shape.data(), 0, row_dims_), "\n");
    }
    for (const MemoryAccess& access : kernel_.accesses) write_begin(access, body);
    for (const Instr& instr : kernel_.instrs) add_instr(instr);
    plan();
    put(body, "  const u32 apart = ", group_.items, ";\n");
    for (const Walk& walk : walks_) {
      for (size_t v = 0; v < values_.size(); ++v) {
        if (!walk.left[v] || !walk.computed[v]) continue;
        put(body, "  ", storage_type(values_[v].dtype), " kept", v, "[", walk.elements, "];\n");
      }
    }
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

  // "for" over what an item has of something at once.
  static std::string each(const char* index, int count) {
    return cat("#pragma unroll\n    for (u32 ", index, " = 0; ", index, " < ", count, "; ++", index,
               ") ");
  }

  void write_walk(int number, std::string& text) {
    const Walk& walk = walks_[static_cast<size_t>(number)];
    std::vector<const Fold*> folds;
    for (const Fold& fold : folds_) {
      if (fold.walk == number) folds.push_back(&fold);
    }
    std::vector<const Store*> stores;
    for (const Store& store : stores_) {
      if (number + 1 == static_cast<int>(walks_.size()) && is_full(store)) stores.push_back(&store);
    }
    if (folds.empty() && stores.empty()) return;
    for (const Fold* fold : folds) begin_parts(*fold, text);
    const std::string type = index_type(cols_);
    const std::string first = row_lanes_ == 1 ? "0"
                              : pieces_ > 1   ? cat("(", type, ")first_col + item")
                                              : "item";
    if (at_once_) {
      put(text, "  if (", first, " < cols) {\n    const ", type, " c0 = ", first, ";\n");
    } else {
      put(text, "  for (", type, " c0 = ", first,
          "; c0 < cols; c0 += ", walk.elements * group_.items, ") {\n");
    }
    const bool in_parts = walk.loads < walk.elements;
    const std::string at = in_parts ? "f + e" : "e";
    write_loads(walk, stores, at, text);
    put(text, each("e", walk.loads), "{\n");
    put(text, "      const ", type, " position = c0 + (", at,
        ") * apart;\n      const int is_in = position < cols;\n");
    for (size_t v = 0; v < values_.size(); ++v) {
      const Value& value = values_[v];
      const auto index = static_cast<int>(v);
      const bool is_loaded = walk.computed[v] && value.access >= 0;
      if (walk.held[v] || is_loaded) {
        put(text, "      const ", storage_type(value.dtype), " ", name(index), " = ",
            is_loaded ? "loaded" : "kept", v, "[", is_loaded ? "e" : at, "];\n");
      } else if (walk.computed[v]) {
        define(value, index, "      ", text);
      }
      if (walk.left[v] && walk.computed[v]) put(text, "      kept", v, "[", at, "] = v", v, ";\n");
    }
    for (const Fold* fold : folds) {
      const std::string part = cat("part", fold->result, "[(", at, ") % ", group_.lanes, "]");
      put(text, "      if (is_in) ", part, " = ", merged(*fold, part, name(fold->input)), ";\n");
    }
    for (const Store* store : stores) {
      const std::string_view stored = storage_type(kernel_.accesses[store->access].dtype);
      put(text, "      if (is_in) *(GLOBAL ", stored, "*)(", place(store->access, at),
          ") = ", name(store->value), ";\n");
    }
    text += in_parts ? "    }\n    }\n  }\n" : "    }\n  }\n";
    for (const Fold* fold : folds) write_merge(*fold, text);
  }

  // Loads walk.loads elements before the first is used. Past the end of the row an item loads its
  // first element instead, whose value is not used.
  void write_loads(const Walk& walk, const std::vector<const Store*>& stores, const std::string& at,
                   std::string& text) {
    Set begun(kernel_.accesses.size(), false);
    const auto begin = [&](uint32_t access) {
      if (!begun[access]) put(text, "    ", begin_walk(access));
      begun[access] = true;
    };
    std::string arrays, all, some;
    for (size_t v = 0; v < values_.size(); ++v) {
      const Value& value = values_[v];
      if (!walk.computed[v] || value.access < 0) continue;
      const auto access = static_cast<uint32_t>(value.access);
      begin(access);
      put(arrays, "    ", storage_type(value.dtype), " loaded", v, "[", walk.loads, "];\n");
      put(all, "      loaded", v, "[e] = ", load(place(access, at), value.dtype), ";\n");
      put(some, "      loaded", v, "[e] = ", load(place(access, "near"), value.dtype), ";\n");
    }
    for (const Store* store : stores) begin(store->access);
    if (walk.loads < walk.elements) {
      put(text, "#pragma unroll\n    for (u32 f = 0; f < ", walk.elements, "; f += ", walk.loads,
          ") {\n");
    }
    if (all.empty()) return;
    put(text, arrays);
    if (walk.elements == 1) {
      put(text, each("e", 1), "{\n", all, "    }\n");
      return;
    }
    const std::string last =
        walk.loads < walk.elements ? cat("f + ", walk.loads - 1) : std::to_string(walk.loads - 1);
    put(text, "    if (c0 + (", last, ") * apart < cols) {\n", each("e", walk.loads), "{\n", all,
        "    }\n    } else {\n", each("e", walk.loads), "{\n");
    put(text, "      const u32 near = c0 + (", at, ") * apart < cols ? ", at, " : 0;\n", some,
        "    }\n    }\n");
  }

  void begin_parts(const Fold& fold, std::string& text) const {
    put(text, "  ", storage_type(fold.dtype), " part", fold.result, "[", group_.lanes, "];\n");
    put(text, each("k", group_.lanes), "part", fold.result, "[k] = ", identity(fold), ";\n");
  }

  // An item's partial results become one, the first. Of any two, half of them lie between.
  void write_halves(const Fold& fold, const std::string& parts, int count, std::string& text) {
    for (int half = count / 2; half > 0; half /= 2) {
      const std::string own = cat(parts, half > 1 ? "[k]" : "[0]");
      const std::string other = cat(parts, half > 1 ? cat("[k + ", half, "]") : "[1]");
      put(text, half > 1 ? each("k", half) : std::string("    "), own, " = ",
          merged(fold, own, other), ";\n");
    }
  }

  // The parts of a row, or of a piece, become one, in every item: part l and the one that is half
  // of all behind it, until one is left. An item's own come first. Then some items take together
  // what lies kLastParts apart, and each item what is left.
  void write_merge(const Fold& fold, std::string& text) {
    const std::string_view type = storage_type(fold.dtype);
    const std::string part = cat("part", fold.result);
    write_halves(fold, part, group_.lanes, text);
    if (group_.items == 1) return;
    const size_t step = group_.rows_first ? group_.rows : 1;
    const int last = std::min(group_.items, kLastParts), before = group_.items / last;
    // Items may still read what the last merge left: the next but one is behind a barrier.
    std::string array = cat("shared_", type);
    if (before == 1) put(array, "_", merges_++ % 2);
    add_array(type, array, group_.all_items());
    put(text, "  ", array, "[LANE] = ", part, "[0];\n  BARRIER;\n");
    // The first halves come together as they are read.
    const auto read = [&](int count, const std::string& from, size_t apart) {
      const std::string own = cat(array, "[", from, " + k * ", apart, "]");
      const std::string other = cat(array, "[", from, " + (k + ", count / 2, ") * ", apart, "]");
      put(text, "    ", type, " q[", count / 2, "];\n", each("k", count / 2),
          "q[k] = ", merged(fold, own, other), ";\n");
      write_halves(fold, "q", count / 2, text);
    };
    if (before > 1) {
      put(text, "  if (item < ", last, ") {\n");
      read(before, "LANE", static_cast<size_t>(last) * step);
      array = cat("left_", type);
      add_array(type, array, static_cast<size_t>(last) * group_.rows);
      put(text, "    ", array, "[LANE] = q[0];\n  }\n  BARRIER;\n");
    }
    text += "  {\n";
    read(last, cat("LANE - item * ", step), step);
    put(text, "    ", part, "[0] = q[0];\n  }\n");
  }

  void add_array(std::string_view type, const std::string& array, size_t count) {
    const std::string declared = cat("  LOCAL ", type, " ", array, "[", count, "];\n");
    if (std::find(arrays_.begin(), arrays_.end(), declared) == arrays_.end()) {
      arrays_.push_back(declared);
    }
  }

  static void define_fold(const Fold& fold, std::string& text) {
    put(text, "  const ", storage_type(fold.dtype), " ", name(fold.result), " = part", fold.result,
        "[0];\n");
  }

  // Where the part of a piece of the group's row lies: rows beside each other have theirs so.
  std::string part_of(const Fold& fold, const char* piece, const std::string& rows,
                      const std::string& pieces) const {
    const auto index = static_cast<size_t>(&fold - folds_.data());
    const std::string all = cat("(u64)", rows, " * ", pieces);
    const std::string own = group_.rows_first ? cat("(u64)(", piece, ") * (u64)", rows, " + row")
                                              : cat("(u64)row * ", pieces, " + (", piece, ")");
    return cat("*(GLOBAL ", storage_type(fold.dtype), "*)(parts + ", kPartBytes, " * (", index,
               " * (", all, ") + ", own, "))");
  }

  // The pieces of a row become its value, in every item.
  void write_pieces_merge(const Fold& fold, const std::string& rows, const std::string& pieces,
                          std::string& text) {
    const std::string part = cat("part", fold.result);
    begin_parts(fold, text);
    put(text, "  for (u32 q = item; q < ", pieces, "; q += ", row_lanes_, ") {\n");
    put(text, each("k", group_.lanes), "if (q + k * apart < ", pieces, ") {\n");
    put(text, "      const ", storage_type(fold.dtype),
        " piece_part = ", part_of(fold, "q + k * apart", rows, pieces), ";\n");
    put(text, "      ", part, "[k] = ", merged(fold, cat(part, "[k]"), "piece_part"),
        ";\n    }\n  }\n");
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
      if (!begun && row_lanes_ > 1) text += "  BARRIER;\n";
      begun = true;
      const bool is_one = access.rank == Rank::kOne;
      std::string is_first = row_lanes_ > 1 ? "is_row && item == 0" : is_one ? "row == 0" : "1";
      if (is_one && row_lanes_ > 1) is_first += " && row == 0";
      put(text, "  if (", is_first, ") *(GLOBAL ", storage_type(access.dtype), "*)(a", store.access,
          ") = ", name(store.value), ";\n");
    }
  }

  std::vector<std::string> arrays_;  // that items share
  int merges_ = 0;                   // with one barrier
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
