// SPDX-License-Identifier: MIT
// Equal kernels in one launch: their groups stand side by side, and each group finds which kernel
// it is of, and takes that one's pointers and words. See kernel_text.h.
#include "src/gpu/kernel_text.h"

#include <algorithm>
#include <bit>

#include "src/gpu/text.h"

namespace hologram::gpu {
namespace {

// Of one launch. The host passes them one by one; every OpenCL device takes 128 arguments of 8
// bytes.
constexpr size_t kMostPointers = 120;

// At the begin of a kernel of several: which it is, and what is its own.
std::string choice(const KernelText& text) {
  const size_t slots = text.slots.size() / text.members;
  const size_t words = text.words.size() / text.members - 1;
  const std::string end = cat("(u64)ALL_WORDS(", words * text.members, " + member");
  std::string choice = "  u32 member = 0;\n";
  for (size_t half = text.members / 2; half > 0; half /= 2) {
    put(choice, "  if (GROUP >= ", end, " + ", half - 1, ")) member += ", half, ";\n");
  }
  put(choice, "  const u64 first_group = member == 0 ? 0 : ", end, " - 1);\n");
  put(choice, "  const u32 first_word = member * ", words, ";\n");
  for (size_t s = 0; s < slots; ++s) put(choice, "  GLOBAL u8* s", s, ";\n");
  choice += "  switch (member) {\n";
  for (size_t m = 0; m < text.members; ++m) {
    put(choice, m + 1 < text.members ? cat("    case ", m, ":") : std::string("    default:"));
    for (size_t s = 0; s < slots; ++s) put(choice, " s", s, " = s", s, "_of_", m, ";");
    choice += " break;\n";
  }
  return choice + "  }\n";
}

}  // namespace

std::string source_of(const KernelText& text) {
  const bool is_one = text.members == 1;
  std::string source = text.functions;
  if (!text.words_in_memory) {
    put(source, "typedef struct { i64 w[", text.words.size(), "]; } Words;\n");
  }
  put(source, "#define ALL_WORDS(k) words", text.words_in_memory ? "[k]\n" : ".w[k]\n");
  put(source, "#define W(k) ALL_WORDS(", is_one ? "k)\n" : "first_word + k)\n");
  put(source, "#define OWN_GROUP ", is_one ? "GROUP\n" : "(GROUP - first_group)\n");
  put(source, "#define OWN_ITEM ",
      is_one ? "ITEM\n" : cat("((GROUP - first_group) * ", text.group_items, " + LANE)\n"));
  put(source, "KERNEL(", text.group_items, ") ", kKernelName, "(");
  const size_t slots = text.slots.size() / text.members;
  for (size_t m = 0; m < text.members; ++m) {
    for (size_t s = 0; s < slots; ++s) {
      put(source, "GLOBAL u8* RESTRICT s", s);
      if (!is_one) put(source, "_of_", m);
      source += ",\n    ";
    }
  }
  source += text.words_in_memory ? "GLOBAL const i64* RESTRICT words" : "PARAMETER Words words";
  source += ") {\n";
  if (!is_one) source += choice(text);
  return cat(source, text.body, "}\n");
}

bool is_equal(const KernelText& a, const KernelText& b) {
  return a.slots.size() == b.slots.size() && a.words.size() == b.words.size() &&
         a.group_items == b.group_items && a.body == b.body && a.functions == b.functions;
}

size_t most_members(const KernelText& text, const Traits& traits) {
  // Beside one for the words.
  const size_t pointers = std::min(kMostPointers, traits.parameter_bytes / 8 - 1);
  return std::bit_floor(std::max<size_t>(1, pointers / std::max<size_t>(1, text.slots.size())));
}

KernelText joined(std::span<const KernelText> texts, const Traits& traits) {
  if (texts.size() == 1) return texts[0];
  KernelText all;
  all.functions = texts[0].functions;
  all.body = texts[0].body;
  all.group_items = texts[0].group_items;
  // Few texts serve any number of kernels: those that are too many have no groups.
  all.members = std::bit_ceil(texts.size());
  std::vector<int64_t> ends;
  for (size_t m = 0; m < all.members; ++m) {
    const KernelText& text = texts[std::min(m, texts.size() - 1)];
    const auto slot = static_cast<uint32_t>(all.slots.size());
    const auto word = static_cast<uint32_t>(all.words.size());
    all.slots.insert(all.slots.end(), text.slots.begin(), text.slots.end());
    all.words.insert(all.words.end(), text.words.begin(), text.words.end());
    for (const KernelText::Offset& offset : text.offsets) {
      all.offsets.push_back({offset.word + word, offset.position + slot});
    }
    for (KernelText::Number number : text.numbers) {
      number.word += word;
      all.numbers.push_back(number);
    }
    if (m < texts.size()) all.groups += text.groups;
    ends.push_back(static_cast<int64_t>(all.groups));
  }
  all.words.insert(all.words.end(), ends.begin(), ends.end());
  all.words_in_memory = 8 * (all.slots.size() + all.words.size()) > traits.parameter_bytes;
  return all;
}

}  // namespace hologram::gpu
