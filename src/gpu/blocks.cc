// SPDX-License-Identifier: MIT
// See blocks.h.
#include "src/gpu/blocks.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "src/gpu/elementwise.h"

namespace hologram::gpu {
namespace {

// Elements of a block along the other dimension, and registers of 4 bytes that operands may take.
constexpr int kDepth = 4, kMostRegisters = 96;
// Blocks beside each other in a group, in each of the two dimensions.
constexpr int64_t kTile = 8;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

class BlockWriter : ElementWriter {
 public:
  BlockWriter(const Kernel& kernel, const Traits& traits) : ElementWriter(kernel, traits) {
    merge_dims();
    for (size_t a = 0; a < kernel.accesses.size(); ++a) {
      widest_ = std::max(widest_, size_of(a));
      // CUDA's compiler runs out of registers with eight of them.
      if (kernel.accesses[a].dtype == Dtype::kInt16) widest_ = std::max<int64_t>(widest_, 4);
    }
  }

  // Chooses the block; false where none fits.
  bool fits() {
    if (kernel_.numel() == 0 || !loads_come_first()) return false;
    const int widest_block = static_cast<int>(std::max<int64_t>(4, 16 / widest_));
    for (const int other : {other_dim(), -1}) {
      for (const int width : {widest_block, 4}) {
        choose(width, other);
        const bool is_filled = width <= shape_.back() || shape_.size() == 1;
        if (is_filled && registers() <= kMostRegisters) return true;
      }
    }
    return false;
  }

  KernelText write() {
    std::string body =
        cat("  const u64 i = OWN_ITEM;\n  if (i >= (u64)", add_word(items()), ") return;\n");
    write_place(body);
    for (size_t a = 0; a < operands_.size(); ++a) write_begin(a, body);
    for (size_t a = 0; a < operands_.size(); ++a) write_load(a, body);
    put(body, loop("m", depth_), loop("l", width_), "  {\n");
    write_instrs("i", {}, body);
    body += "  }\n";
    for (size_t a = 0; a < operands_.size(); ++a) write_store(a, body);
    return finish_items(body, static_cast<size_t>(items()));
  }

 private:
  // The dimension of a block along which an operand is in one piece of memory; kOne: it is one
  // element for all.
  enum class Along { kOne, kWidth, kDepth, kNone };
  struct Operand {
    std::vector<int64_t> strides;  // of the merged dimensions
    Along along = Along::kNone;
    int deep = 1, wide = 1;  // different elements in each dimension of a block
  };

  int64_t size_of(size_t access) const {
    return static_cast<int64_t>(itemsize(kernel_.accesses[access].dtype));
  }
  std::string_view type_of(size_t access) const {
    return storage_type(kernel_.accesses[access].dtype);
  }

  // Dimensions that all operands walk as one are one.
  void merge_dims() {
    operands_.resize(kernel_.accesses.size());
    for (int d = 0; d < kernel_.ndim; ++d) {
      const auto dim = static_cast<size_t>(d);
      const int64_t size = kernel_.shape[dim];
      if (size == 1) continue;
      bool merges = !shape_.empty();
      for (size_t a = 0; a < operands_.size() && merges; ++a) {
        merges = operands_[a].strides.back() == kernel_.accesses[a].strides[dim] * size;
      }
      if (merges) shape_.back() *= size;
      if (!merges) shape_.push_back(size);
      for (size_t a = 0; a < operands_.size(); ++a) {
        std::vector<int64_t>& strides = operands_[a].strides;
        strides.resize(shape_.size());
        strides.back() = kernel_.accesses[a].strides[dim];
      }
    }
    if (!shape_.empty()) return;
    // Of one element, as of several behind each other.
    shape_ = {1};
    for (size_t a = 0; a < operands_.size(); ++a) {
      operands_[a].strides = {kernel_.accesses[a].rank == Rank::kFull};
    }
  }

  // Whether an item may load all that it reads first, and store last in the order of operands. Two
  // operands of one slot have no byte in common, or lie alike.
  bool loads_come_first() const {
    std::vector<uint32_t> stored;
    const auto is_stored_besides = [&](uint32_t access, bool anywhere) {
      const MemoryAccess& own = kernel_.accesses[access];
      return std::any_of(stored.begin(), stored.end(), [&](uint32_t a) {
        const MemoryAccess& other = kernel_.accesses[a];
        return a != access && other.slot == own.slot && (anywhere || other.offset == own.offset);
      });
    };
    for (const Instr& instr : kernel_.instrs) {
      for (int k = 0; k < instr.arity; ++k) {
        const Ref& in = instr.in[k];
        if (in.kind == Ref::kAccess && is_stored_besides(in.index, true)) return false;
      }
      if (instr.out.kind != Ref::kAccess) continue;
      if (kernel_.accesses[instr.out.index].rank == Rank::kOne) return false;
      if (is_stored_besides(instr.out.index, false)) return false;
      stored.push_back(instr.out.index);
    }
    return true;
  }

  // The dimension along which most operands lie that do not lie along the last; -1: there is none.
  int other_dim() const {
    std::vector<int> votes(shape_.size());
    for (const Operand& operand : operands_) {
      if (operand.strides.back() == 0 || operand.strides.back() == 1) continue;
      for (size_t d = 0; d + 1 < shape_.size(); ++d) {
        votes[d] += operand.strides[d] == 1 && shape_[d] >= kDepth;
      }
    }
    const auto most = std::max_element(votes.begin(), votes.end());
    return *most == 0 ? -1 : static_cast<int>(most - votes.begin());
  }

  void choose(int width, int other) {
    width_ = width;
    other_ = other;
    depth_ = other < 0 ? 1 : kDepth;
    for (size_t a = 0; a < operands_.size(); ++a) {
      Operand& operand = operands_[a];
      const int64_t step = operand.strides.back(), deep_step = deep_stride(operand);
      operand.wide = step == 0 ? 1 : width_;
      operand.deep = deep_step == 0 ? 1 : depth_;
      operand.along = kernel_.accesses[a].rank == Rank::kOne ? Along::kOne
                      : step == 1                            ? Along::kWidth
                      : deep_step == 1                       ? Along::kDepth
                                                             : Along::kNone;
    }
  }
  int64_t deep_stride(const Operand& operand) const {
    return other_ < 0 ? 0 : operand.strides[static_cast<size_t>(other_)];
  }

  int64_t registers() const {
    int64_t sum = 0;
    for (size_t a = 0; a < operands_.size(); ++a) {
      const Operand& operand = operands_[a];
      const int64_t elements = operand.deep * operand.wide;
      sum += is_packed(a) ? ceil_div(elements * size_of(a), 4) : elements * ceil_div(size_of(a), 4);
    }
    return sum;
  }

  // --- Where a block is --------------------------------------------------------------------------

  int64_t blocks(size_t dim) const {
    if (dim + 1 == shape_.size()) return ceil_div(shape_[dim], width_);
    return static_cast<int>(dim) == other_ ? ceil_div(shape_[dim], kDepth) : shape_[dim];
  }
  int64_t tile(size_t dim) const { return std::min(kTile, blocks(dim)); }
  bool is_tiled(size_t dim) const {
    return other_ >= 0 && (dim + 1 == shape_.size() || static_cast<int>(dim) == other_);
  }

  // The sizes whose product is the number of items: the blocks of each dimension, or where there
  // are two, tiles and then the blocks of a tile.
  std::vector<int64_t> item_shape() const {
    std::vector<int64_t> sizes;
    for (size_t d = 0; d < shape_.size(); ++d) {
      sizes.push_back(is_tiled(d) ? ceil_div(blocks(d), tile(d)) : blocks(d));
    }
    for (size_t d = 0; d < shape_.size(); ++d) {
      if (is_tiled(d)) sizes.push_back(tile(d));
    }
    return sizes;
  }
  int64_t items() const {
    int64_t n = 1;
    for (const int64_t size : item_shape()) n *= size;
    return n;
  }

  // p0, p1...: the item's place in each dimension, of those of its block its first element's.
  void write_place(std::string& body) {
    const std::vector<int64_t> sizes = item_shape();
    put(body, "  ", positions("q", "i", sizes.data(), 0, static_cast<int>(sizes.size())), "\n");
    size_t inner = shape_.size();
    for (size_t d = 0; d < shape_.size(); ++d) {
      std::string block = cat("q", d);
      if (is_tiled(d)) block = cat("(", block, " * ", add_word(tile(d)), " + q", inner++, ")");
      const bool is_last = d + 1 == shape_.size();
      const int extent = is_last ? width_ : static_cast<int>(d) == other_ ? depth_ : 1;
      put(body, "  const i64 p", d, " = (i64)", block,
          extent == 1 ? std::string() : cat(" * ", extent), ";\n");
      if (!is_last && static_cast<int>(d) != other_) continue;
      const char* const left = is_last ? "wide" : "deep";
      const std::string size = add_word(shape_[d]);
      if (is_tiled(d)) put(body, "  if (p", d, " >= ", size, ") return;\n");
      put(body, "  const u32 ", left, " = ", size, " - p", d, " < ", extent, " ? (u32)(", size,
          " - p", d, ") : ", extent, ";\n");
    }
    if (other_ < 0) body += "  const u32 deep = 1;\n";
    put(body, "  const int is_whole = wide == ", width_, " && deep == ", depth_, ";\n");
  }

  // --- Operands ----------------------------------------------------------------------------------

  static std::string loop(const char* variable, int count) {
    return cat("#pragma unroll\n  for (u32 ", variable, " = 0; ", variable, " < ", count, "; ++",
               variable, ")\n");
  }
  // Where the item has the element m, l of its block.
  std::string kept(size_t access, const std::string& m, const std::string& l) const {
    const Operand& operand = operands_[access];
    const std::string deep = operand.deep > 1 ? m : "0", wide = operand.wide > 1 ? l : "0";
    switch (operand.along) {
      case Along::kOne:
        return cat("x", access);
      case Along::kWidth:
        return cat("x", access, "[", deep, "].e[", wide, "]");
      case Along::kDepth:
        return cat("x", access, "[", wide, "].e[", deep, "]");
      default:
        return cat("x", access, "[", deep, "][", wide, "]");
    }
  }
  std::string place(size_t access) const override { return kept(access, "m", "l"); }
  bool stores_at_once() const override { return false; }

  // The element m, l of the block in memory.
  std::string in_memory(size_t access, const std::string& m, const std::string& l) const {
    const Operand& operand = operands_[access];
    std::string at = cat("a", access, "[0");
    if (operand.deep > 1) put(at, " + ", m, " * deep_step", access);
    if (operand.wide > 1) put(at, " + ", l, " * step", access);
    return at + "]";
  }

  int packed(size_t access) const {
    return operands_[access].along == Along::kWidth ? operands_[access].wide
                                                    : operands_[access].deep;
  }
  std::string packed_type(size_t access) const {
    return cat("Wide", packed(access), "_", type_of(access));
  }
  bool is_packed(size_t access) const {
    const Along along = operands_[access].along;
    return along == Along::kWidth || along == Along::kDepth;
  }

  void write_begin(size_t access, std::string& body) {
    const std::string_view type = type_of(access);
    const Operand& operand = operands_[access];
    put(body, "  GLOBAL ", type, "* const a", access, " = (GLOBAL ", type, "*)(",
        begin_of(kernel_.accesses[access]), ")");
    std::string step, deep_step;
    for (size_t d = 0; d < shape_.size(); ++d) {
      const int64_t stride = operand.strides[d];
      if (stride == 0) continue;
      const std::string word = stride == 1 ? std::string("1") : add_word(stride);
      put(body, " + p", d, stride == 1 ? std::string() : cat(" * ", word));
      if (d + 1 == shape_.size()) step = word;
      if (static_cast<int>(d) == other_) deep_step = word;
    }
    body += ";\n";
    if (!step.empty()) put(body, "  const i64 step", access, " = ", step, ";\n");
    if (!deep_step.empty()) put(body, "  const i64 deep_step", access, " = ", deep_step, ";\n");
    if (operand.along == Along::kOne) {
      put(body, "  const ", type, " x", access, " = *a", access, ";\n");
      return;
    }
    if (!is_packed(access)) {
      put(body, "  ", type, " x", access, "[", operand.deep, "][", operand.wide, "];\n");
      return;
    }
    const int64_t bytes = std::min<int64_t>(16, packed(access) * size_of(access));
    const std::string declared =
        cat("  typedef struct __attribute__((aligned(", bytes, "))) { ", type, " e[",
            packed(access), "]; } ", packed_type(access), ";\n");
    if (body.find(declared) == std::string::npos) body += declared;
    const int count = operand.along == Along::kWidth ? operand.deep : operand.wide;
    put(body, "  ", packed_type(access), " x", access, "[", count, "];\n");
    // Whether all of them are there and aligned.
    put(body, "  const int packed", access, " = is_whole && (((u64)a", access);
    if (count > 1) {
      const char* const between = operand.along == Along::kWidth ? "deep_step" : "step";
      put(body, " | (u64)(", between, access, " * ", size_of(access), ")");
    }
    put(body, ") & ", bytes - 1, ") == 0;\n");
  }

  // Statements for all that is loaded or stored at once: f(kept, place).
  template <class F>
  void write_packed(size_t access, std::string& body, F&& f) const {
    const Operand& operand = operands_[access];
    const bool is_wide = operand.along == Along::kWidth;
    const int count = is_wide ? operand.deep : operand.wide;
    put(body, "  if (packed", access, ") {\n");
    for (int k = 0; k < count; ++k) {
      std::string at = cat("a", access);
      if (k > 0) put(at, " + ", k, " * ", is_wide ? "deep_step" : "step", access);
      f(cat("x", access, "[", k, "]"), cat("*(GLOBAL ", packed_type(access), "*)(", at, ")"));
    }
    body += "  } else {\n";
  }

  void write_load(size_t access, std::string& body) {
    const Operand& operand = operands_[access];
    if (operand.along == Along::kOne || !kernel_.accesses[access].loaded) return;
    if (is_packed(access)) {
      write_packed(access, body, [&](const std::string& kept, const std::string& place) {
        put(body, "    ", kept, " = ", place, ";\n");
      });
    }
    // Past the end the first one, so that all of a block can be computed.
    put(body, loop("m", operand.deep), loop("l", operand.wide), "    ", kept(access, "m", "l"),
        " = ", in_memory(access, "(m < deep ? m : 0)", "(l < wide ? l : 0)"), ";\n");
    if (is_packed(access)) body += "  }\n";
  }

  void write_store(size_t access, std::string& body) {
    const Operand& operand = operands_[access];
    if (!kernel_.accesses[access].stored) return;
    if (is_packed(access)) {
      write_packed(access, body, [&](const std::string& kept, const std::string& place) {
        put(body, "    ", place, " = ", kept, ";\n");
      });
    }
    std::string condition = "m < deep && l < wide";
    // One item stores for all that have the same value.
    if (operand.wide == 1) put(condition, " && p", shape_.size() - 1, " == 0");
    put(body, loop("m", operand.deep), loop("l", operand.wide), "    if (", condition, ") ",
        in_memory(access, "m", "l"), " = ", kept(access, "m", "l"), ";\n");
    if (is_packed(access)) body += "  }\n";
  }

  std::vector<int64_t> shape_;  // with as few dimensions as all operands allow
  std::vector<Operand> operands_;
  int64_t widest_ = 1;  // bytes of an element
  int width_ = 4, depth_ = 1;
  int other_ = -1;  // the block's other dimension
};

}  // namespace

std::optional<KernelText> block_text(const Kernel& kernel, const Traits& traits) {
  BlockWriter writer(kernel, traits);
  if (!writer.fits()) return std::nullopt;
  return writer.write();
}

}  // namespace hologram::gpu
