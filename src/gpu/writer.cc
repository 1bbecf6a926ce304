// SPDX-License-Identifier: MIT
// See writer.h.
#include "src/gpu/writer.h"

#include <algorithm>

namespace hologram::gpu {

std::string Writer::add_word(int64_t value) {
  text_.words.push_back(value);
  return cat("W(", text_.words.size() - 1, ")");
}

std::string Writer::begin_of(const circuit::MemoryAccess& access) {
  auto at = std::find(text_.slots.begin(), text_.slots.end(), access.slot);
  if (at == text_.slots.end()) at = text_.slots.insert(at, access.slot);
  const auto slot = static_cast<uint32_t>(at - text_.slots.begin());
  text_.offsets.push_back({static_cast<uint32_t>(text_.words.size()), slot});
  return cat("s", slot, " + ", add_word(access.offset));
}

std::string Writer::load(const std::string& pointer, Dtype dtype) {
  const std::string element = cat("*(GLOBAL ", storage_type(dtype), "*)(", pointer, ")");
  return dtype == Dtype::kBool ? cat("(u8)(", element, " != 0)") : element;
}

std::string Writer::immediate(uint32_t index, Dtype compute) {
  auto at = std::find_if(
      text_.numbers.begin(), text_.numbers.end(),
      [&](const KernelText::Number& n) { return n.index == index && n.dtype == compute; });
  if (at == text_.numbers.end()) {
    at = text_.numbers.insert(at, {static_cast<uint32_t>(text_.words.size()), index, compute});
    add_word(0);
  }
  const std::string word = cat("W(", at->word, ")");
  if (compute == Dtype::kFloat32) return cat("as_f32((u32)", word, ")");
  if (compute == Dtype::kFloat64) return cat("as_f64(", word, ")");
  return cat("(", storage_type(compute), ")", word);
}

std::string Writer::positions(const char* prefix, const std::string& of, const int64_t* shape,
                              int begin, int end) {
  int64_t n = 1;
  for (int d = begin; d < end; ++d) n *= shape[d];
  const std::string type = index_type(n);
  if (begin == end) return {};
  if (begin + 1 == end) return cat("const ", type, " ", prefix, begin, " = (", type, ")", of, ";");
  const std::string rest = cat(prefix, "r");
  std::string text = cat(type, " ", rest, " = (", type, ")", of, ";");
  for (int d = end; d-- > begin + 1;) {
    const std::string size = cat("(", type, ")", add_word(shape[d]));
    put(text, " const ", type, " ", prefix, d, " = ", rest, " % ", size, "; ", rest, " /= ", size,
        ";");
  }
  put(text, " const ", type, " ", prefix, begin, " = ", rest, ";");
  return text;
}

KernelText Writer::finish(const std::string& body, size_t groups, size_t group_items) {
  text_.functions = functions_.text();
  text_.body = body;
  text_.groups = groups;
  text_.group_items = group_items;
  text_.words_in_memory = 8 * (text_.slots.size() + text_.words.size()) > traits_.parameter_bytes;
  return std::move(text_);
}

KernelText Writer::finish_items(const std::string& body, size_t items) {
  // A GPU begins about 1.5 groups a nanosecond, which is too few where they are small.
  const size_t group_items = items < kManyItems ? kGroupItems : kMostGroupItems;
  return finish(body, (items + group_items - 1) / group_items, group_items);
}

}  // namespace hologram::gpu
