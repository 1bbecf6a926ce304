// SPDX-License-Identifier: MIT
// See philox.h. An item draws one block of four words, or of two pairs.
#include "src/gpu/philox.h"

#include <bit>

#include "hologram/random.h"
#include "src/gpu/writer.h"

namespace hologram::gpu {
namespace {

constexpr std::string_view kPhilox =
    "FUNCTION void philox(u64 block, u32 attempt, u64 seed, u32* w) {\n"
    "  u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);\n"
    "  w[0] = (u32)block, w[1] = (u32)(block >> 32), w[2] = attempt, w[3] = 0;\n"
    "  for (int round = 0; round < 10; ++round) {\n"
    "    const u64 p0 = (u64)w[0] * 0xD2511F53u, p1 = (u64)w[2] * 0xCD9E8D57u;\n"
    "    w[0] = (u32)(p1 >> 32) ^ w[1] ^ k0, w[2] = (u32)(p0 >> 32) ^ w[3] ^ k1;\n"
    "    w[1] = (u32)p1, w[3] = (u32)p0;\n"
    "    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;\n"
    "  }\n"
    "}\n";

// The functions that a kernel calls, besides.
constexpr std::string_view kInRange =
    "FUNCTION T in_range(T u, T from, T to) {\n"
    "  const T x = u * (to - from) + from;\n"
    "  return x < to ? x : from;\n"
    "}\n";
constexpr std::string_view kUnit53 =
    "FUNCTION f64 unit53(u64 word) {\n"
    "  const u64 one = (u64)0x3ff << 52;\n"
    "  const f64 high = as_f64((i64)(word >> 12 | one)) - 1.0;\n"
    "  const f64 low = as_f64((i64)((word >> 11 & 1) << 51 | one)) - 1.0;\n"
    "  return high + low * 0x1p-52;\n"
    "}\n";
// Box and Muller: the radius of one word, and the direction of another of which 2^32 (2^64) is a
// full turn.
constexpr std::string_view kNormal32 =
    "FUNCTION f32 radius(u32 word) {\n"
    "  const f32 u = (f32)(word >> 8) * 0x1p-24f + ((f32)(word & 0xff) + 0.5f) * 0x1p-32f;\n"
    "  return sqrt(fabs(-2.0f * log(u)));\n"
    "}\n"
    "FUNCTION f32 direction(u32 word, int is_sine) {\n"
    "  const f32 angle = (f32)(i32)(word << 2) * (1.57079632679489662f * 0x1p-32f);\n"
    "  const u32 turns = (word + 0x20000000u) >> 30;\n"
    "  const f32 x = (turns & 1) == (u32)is_sine ? cos(angle) : sin(angle);\n"
    "  const u32 negates = is_sine ? turns >> 1 : (turns ^ turns >> 1) & 1;\n"
    "  return negates ? -x : x;\n"
    "}\n";
constexpr std::string_view kNormal64 =
    "FUNCTION f64 radius(u64 word) {\n"
    "  return sqrt(fabs(-2.0 * log(unit53(word) + 0x1p-54)));\n"
    "}\n"
    "FUNCTION f64 direction(u64 word, int is_sine) {\n"
    "  const u64 below = (word << 2) + ((u64)1 << 63);\n"
    "  const f64 part = as_f64((i64)(below >> 12 | (u64)0x3ff << 52)) - 1.5;\n"
    "  const f64 angle = part * 0x1.921fb54442d18p0;\n"
    "  const u32 turns = (u32)((word + ((u64)1 << 61)) >> 62);\n"
    "  const f64 x = (turns & 1) == (u32)is_sine ? cos(angle) : sin(angle);\n"
    "  const u32 negates = is_sine ? turns >> 1 : (turns ^ turns >> 1) & 1;\n"
    "  return negates ? -x : x;\n"
    "}\n";
// Words below it are the share p of all.
constexpr std::string_view kLimit =
    "FUNCTION u64 limit_of(f64 p) {\n"
    "  return !(p > 0) ? 0 : p >= 1 ? (u64)1 << 32 : (u64)rint(p * 0x1p32);\n"
    "}\n";
constexpr std::string_view kHighProduct =
    "FUNCTION u64 high_product(u64 a, u64 b) {\n"
    "  const u64 a0 = (u32)a, a1 = a >> 32, b0 = (u32)b, b1 = b >> 32;\n"
    "  const u64 middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (u32)middle;\n"
    "  return a1 * b1 + (middle >> 32) + (other >> 32);\n"
    "}\n";
// Even choices in [0, range) by word k of a block, of 32 bits, or by its half k, of 64 bits. A word
// that would be one too many is drawn again, see src/base/philox.h.
constexpr std::string_view kChoices =
    "FUNCTION u64 choose32(u32 word, u32 range, u64 counter, u64 seed, int k) {\n"
    "  if (word * range < range) {\n"
    "    const u32 least = (0u - range) % range;\n"
    "    for (u32 attempt = 1; word * range < least; ++attempt) {\n"
    "      u32 w[4];\n"
    "      philox(counter, attempt, seed, w);\n"
    "      word = w[k];\n"
    "    }\n"
    "  }\n"
    "  return (u64)word * range >> 32;\n"
    "}\n"
    "FUNCTION u64 choose64(u64 word, u64 range, u64 counter, u64 seed, int k) {\n"
    "  if (range == 0) return word;\n"
    "  if (word * range < range) {\n"
    "    const u64 least = ((u64)0 - range) % range;\n"
    "    for (u32 attempt = 1; word * range < least; ++attempt) {\n"
    "      u32 w[4];\n"
    "      philox(counter, attempt, seed, w);\n"
    "      word = w[2 * k] | (u64)w[2 * k + 1] << 32;\n"
    "    }\n"
    "  }\n"
    "  return high_product(word, range);\n"
    "}\n";

std::string with_type(std::string_view text, std::string_view type) {
  std::string result;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool is_type = text[at] == 'T' && text[at + 1] == ' ';
    is_type ? result.append(type) : result.append(1, text[at]);
  }
  return result;
}

class RandomWriter : Writer {
 public:
  // `nothing` is an empty kernel.
  RandomWriter(const circuit::KernelCall& call, const circuit::Kernel& nothing,
               const Traits& traits)
      : Writer(nothing, traits), first_number_(call.first_number) {}

  KernelText write(const calls::Uniform<Array>& call) {
    const bool wide = begin(call.self, call.seed, call.offset, is_wide(call.self));
    const Dtype made = wide ? Dtype::kFloat64 : Dtype::kFloat32;
    const std::string_view type = storage_type(made);
    put(body_, "  const ", type, " from = ", real(call.low, made), ", to = ", real(call.high, made),
        ";\n");
    const Dtype dtype = call.self.dtype;
    const int bits = dtype == Dtype::kFloat16 ? 11 : dtype == Dtype::kBFloat16 ? 8 : 24;
    for_words(wide, [&](const std::string& word, int) {
      const std::string u = wide ? cat("unit53(", word, ")")
                                 : cat("(f32)(", word, " >> ", 32 - bits, ") * 0x1p-", bits, "f");
      return stored(call.self, cat("in_range(", u, ", from, to)"), made);
    });
    return end(cat(kPhilox, wide ? kUnit53 : "", with_type(kInRange, type)));
  }

  KernelText write(const calls::Normal<Array>& call) {
    const bool wide = begin(call.self, call.seed, call.offset, is_wide(call.self));
    const Dtype made = wide ? Dtype::kFloat64 : Dtype::kFloat32;
    put(body_, "  const ", storage_type(made), " mean = ", real(call.mean, made),
        ", scale = ", real(call.std, made), ";\n");
    for_words(wide, [&](const std::string&, int k) {
      const auto word = [&](int of) { return wide ? cat("wide", of) : cat("w[", of, "]"); };
      const int pair = k - k % 2;
      return stored(call.self,
                    cat("radius(", word(pair), ") * direction(", word(pair + 1), ", ", k % 2,
                        ") * scale + mean"),
                    made);
    });
    return end(cat(kPhilox, wide ? kUnit53 : "", wide ? kNormal64 : kNormal32));
  }

  KernelText write(const calls::Bernoulli<Array>& call) {
    begin(call.self, call.seed, call.offset, false);
    put(body_, "  const u64 limit = limit_of(", real(call.p, Dtype::kFloat64), ");\n");
    for_words(false, [&](const std::string& word, int) {
      return stored(call.self, cat("(u8)(", word, " < limit)"), Dtype::kBool);
    });
    return end(cat(kPhilox, kLimit));
  }

  KernelText write(const calls::Dropout<Array>& call) {
    begin(call.out, call.seed, call.offset, false);
    const Dtype made = compute_dtype(call.out.dtype);
    const std::string mask = pointer("mask", call.mask), in = pointer("in", call.input);
    put(body_, "  const f64 kept = 1.0 - ", real(call.p, Dtype::kFloat64), ";\n");
    put(body_, "  const u64 limit = limit_of(kept);\n  const ", storage_type(made), " scale = (",
        storage_type(made), ")(1.0 / kept);\n");
    for_words(false, [&](const std::string& word, int) {
      const std::string value = functions_.converted(
          load(element(call.input, "in"), call.input.dtype), call.input.dtype, made);
      return cat("{ const int is = ", word, " < limit; *(GLOBAL u8*)(", element(call.mask, "mask"),
                 ") = (u8)is; ",
                 stored(call.out, cat(value, " * (", storage_type(made), ")is * scale"), made),
                 " }");
    });
    return end(cat(kPhilox, kLimit));
  }

  KernelText write(const calls::Integers<Array>& call) {
    // How many bits an element takes follows from a number that is known when it runs.
    begin(call.self, call.seed, call.offset, true);
    const std::string range = whole(call.count), low = whole(call.low);
    put(body_, "  const u64 range = ", range, ", low = ", low, ";\n");
    const auto value = [&](const std::string& of) {
      return stored(call.self, cat("(i64)(low + ", of, ")"), Dtype::kInt64);
    };
    std::string narrow, wide;
    std::swap(body_, narrow);
    for_words(false, [&](const std::string& word, int k) {
      return value(cat("choose32(", word, ", (u32)range, counter, seed, ", k, ")"));
    });
    std::swap(body_, wide);
    std::swap(body_, narrow);
    put(body_, "  if (range - 1 < ((u64)1 << 28) - 1) {\n", wide, "    return;\n  }\n");
    for_words(true, [&](const std::string& word, int k) {
      return value(cat("choose64(", word, ", range, counter, seed, ", k, ")"));
    });
    return end(cat(kPhilox, kHighProduct, kChoices));
  }

 private:
  static bool is_wide(const Array& array) { return array.dtype == Dtype::kFloat64; }

  // Numbers of the call: its fields are their places.
  std::string real(double field, Dtype dtype) {
    const auto index = first_number_ + static_cast<uint32_t>(std::bit_cast<uint64_t>(field));
    text_.numbers.push_back({static_cast<uint32_t>(text_.words.size()), index, dtype, true});
    const std::string word = add_word(0);
    return dtype == Dtype::kFloat64 ? cat("as_f64(", word, ")") : cat("as_f32((u32)", word, ")");
  }
  std::string whole(uint64_t field) {
    const auto index = first_number_ + static_cast<uint32_t>(field);
    text_.numbers.push_back({static_cast<uint32_t>(text_.words.size()), index, Dtype::kInt64});
    return cat("(u64)", add_word(0));
  }

  std::string pointer(const char* name, const Array& array) {
    circuit::MemoryAccess access;
    access.slot = array.slot;
    access.offset = array.offset;
    put(body_, "  GLOBAL u8* const ", name, " = ", begin_of(access), ";\n");
    return name;
  }
  static std::string element(const Array& array, const char* name) {
    return cat(name, " + i * ", itemsize(array.dtype));
  }
  std::string stored(const Array& out, const std::string& value, Dtype made) {
    return cat("*(GLOBAL ", storage_type(out.dtype), "*)(", element(out, "out"),
               ") = ", functions_.converted(value, made, out.dtype), ";");
  }

  bool begin(const Array& out, uint64_t seed, uint64_t offset, bool wide) {
    n_ = out.numel();
    blocks_ = static_cast<int64_t>(philox_blocks(n_, wide ? 64 : 32));
    put(body_, "  const u64 block = OWN_ITEM, n = (u64)", add_word(n_), ";\n");
    pointer("out", out);
    put(body_, "  const u64 counter = ", whole(offset), " + block, seed = ", whole(seed),
        ";\n  u32 w[4];\n  philox(counter, 0, seed, w);\n");
    return wide;
  }

  // statement(word, k) for each word of the item's block, of which i is the element.
  template <class F>
  void for_words(bool wide, F&& statement) {
    const int in_group = wide ? 8 : 16, words = wide ? 2 : 4;
    if (wide) {
      body_ += "  const u64 wide0 = w[0] | (u64)w[1] << 32, wide1 = w[2] | (u64)w[3] << 32;\n";
    }
    for (int k = 0; k < words; ++k) {
      put(body_, "  {\n    const u64 i = block / ", in_group, " * ", in_group * words, " + ",
          k * in_group, " + block % ", in_group, ";\n    if (i < n) ",
          statement(wide ? cat("wide", k) : cat("w[", k, "]"), k), "\n  }\n");
    }
  }

  KernelText end(const std::string& functions) {
    const auto items = static_cast<size_t>(blocks_);
    KernelText text = finish_items(body_, items);
    text.functions = functions + text.functions;
    return text;
  }

  const uint32_t first_number_;
  int64_t n_ = 0, blocks_ = 0;
  std::string body_;
};

template <class Call>
concept IsRandom = requires(RandomWriter& writer, const Call& call) {
  writer.write(call);
};

template <class Call>
std::optional<KernelText> text_of(const circuit::KernelCall& kernel, Recipe& recipe,
                                  const Traits& traits) {
  RecipeFrame frame(recipe, kernel);
  Call call{};
  Call::each(call, frame);
  bool is_plain = frame.is_read();
  if constexpr (requires { call.self; }) {
    is_plain = is_plain && !is_complex(call.self.dtype) && call.self.is_given;
  } else {
    is_plain = is_plain && call.out.is_given && call.input.is_given;
  }
  if (!is_plain) return std::nullopt;
  const circuit::Kernel nothing;
  return RandomWriter(kernel, nothing, traits).write(call);
}

}  // namespace

bool has_random(CallNumber kind) {
  return for_call(kind, []<class Call>(std::type_identity<Call>) { return IsRandom<Call>; });
}

std::optional<KernelText> random_text(const circuit::KernelCall& call, Recipe& recipe,
                                      const Traits& traits) {
  return for_call(static_cast<CallNumber>(call.kind), [&]<class Call>(std::type_identity<Call>) {
    if constexpr (IsRandom<Call>) {
      if (traits.has_double) return text_of<Call>(call, recipe, traits);
    }
    return std::optional<KernelText>();
  });
}

}  // namespace hologram::gpu
