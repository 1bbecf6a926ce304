// SPDX-License-Identifier: MIT
// See vocabulary.h. Bodies come from the op table by their text; a row added there runs here.
#include "src/gpu/vocabulary.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>

#include "hologram/reduction.h"
#include "src/gpu/activation_words.h"
#include "src/gpu/text.h"
#include "src/ops/special_terms.h"

namespace hologram::gpu {
namespace {

struct RowBody {
  OpId id;
  std::string_view text;
};
constexpr RowBody kBodies[] = {
#define HOLOGRAM_OP(name, id, arity, params, dtypes, others, accuracy, traits, aten, doc, body) \
  {OpId::name, #body},
#include "hologram/elementwise.def"
};

constexpr Word kBoth[] = {
    {"Eq", "int Eq(T x, T y) { return x == y; }"},
    {"Unequal", "int Unequal(T x, T y) { return !(x == y); }"},
    {"Lt", "int Lt(T x, T y) { return x < y; }"},
    {"Le", "int Le(T x, T y) { return x <= y; }"},
    {"Select", "T Select(int mask, T yes, T no) { return mask ? yes : no; }"},
    {"MaskAnd", "int MaskAnd(int a, int b) { return a & b; }"},
    {"MaskOr", "int MaskOr(int a, int b) { return a | b; }"},
    {"MaskXor", "int MaskXor(int a, int b) { return a ^ b; }"},
    {"Square", "T Square(T x) { return Mul(x, x); }"},
};

// NaN and the sign of zero as on the CPU: the second operand where neither is larger.
constexpr Word kFloating[] = {
    {"C", "T C(T x, T value) { return value; }"},
    {"Add", "T Add(T x, T y) { return x + y; }"},
    {"Sub", "T Sub(T x, T y) { return x - y; }"},
    {"Mul", "T Mul(T x, T y) { return x * y; }"},
    {"Div", "T Div(T x, T y) { return x / y; }"},
    {"MulAdd", "T MulAdd(T x, T y, T z) { return fma(x, y, z); }"},
    {"Sqrt", "T Sqrt(T x) { return sqrt(x); }"},
    {"Abs", "T Abs(T x) { return fabs(x); }"},
    {"Neg", "T Neg(T x) { return -x; }"},
    {"Floor", "T Floor(T x) { return floor(x); }"},
    {"Ceil", "T Ceil(T x) { return ceil(x); }"},
    {"Trunc", "T Trunc(T x) { return trunc(x); }"},
    {"Round", "T Round(T x) { return rint(x); }"},
    {"Maximum", "T Maximum(T x, T y) { return x != x ? x : (x > y ? x : y); }"},
    {"Minimum", "T Minimum(T x, T y) { return x != x ? x : (x < y ? x : y); }"},
    {"Remainder",
     "T Remainder(T x, T y) {\n"
     "  const T modulo = fmod(x, y);\n"
     "  return modulo != 0 && (y < 0) != (modulo < 0) ? modulo + y : modulo;\n"
     "}"},
    {"Fmod", "T Fmod(T x, T y) { return fmod(x, y); }"},
    {"FloorDivide",
     "T FloorDivide(T x, T y) {\n"
     "  const T ratio = x / y, modulo = fmod(x, y), whole = (x - modulo) / y;\n"
     "  const T below = modulo != 0 && (y < 0) != (modulo < 0) ? whole - 1 : whole;\n"
     "  const T floored = floor(below);\n"
     "  const T result = below - floored > (T)0.5 ? floored + 1 : floored;\n"
     "  return y == 0 ? ratio : below == 0 ? copysign((T)0, ratio) : result;\n"
     "}"},
    {"Sign", "T Sign(T x) { return (T)((0 < x) - (x < 0)); }"},
    {"Lerp",
     "T Lerp(T x, T y, T w) {\n"
     "  const T span = y - x;\n"
     "  return fabs(w) < (T)0.5 ? fma(w, span, x) : fma(-span, (T)1 - w, y);\n"
     "}"},
    {"Exp", "T Exp(T x) { return exp(x); }"},
    {"Exp2", "T Exp2(T x) { return exp2(x); }"},
    {"Expm1", "T Expm1(T x) { return expm1(x); }"},
    {"Log", "T Log(T x) { return log(x); }"},
    {"Log2", "T Log2(T x) { return log2(x); }"},
    {"Log10", "T Log10(T x) { return log10(x); }"},
    {"Log1p", "T Log1p(T x) { return log1p(x); }"},
    {"Sin", "T Sin(T x) { return sin(x); }"},
    {"Cos", "T Cos(T x) { return cos(x); }"},
    {"Tan", "T Tan(T x) { return tan(x); }"},
    {"Tanh", "T Tanh(T x) { return tanh(x); }"},
    {"Erf", "T Erf(T x) { return erf(x); }"},
    {"Erfc", "T Erfc(T x) { return erfc(x); }"},
    {"Pow", "T Pow(T x, T y) { return pow(x, y); }"},
    {"Asin", "T Asin(T x) { return asin(x); }"},
    {"Acos", "T Acos(T x) { return acos(x); }"},
    {"Atan", "T Atan(T x) { return atan(x); }"},
    {"Atan2", "T Atan2(T x, T y) { return atan2(x, y); }"},
    {"Sinh", "T Sinh(T x) { return sinh(x); }"},
    {"Cosh", "T Cosh(T x) { return cosh(x); }"},
    {"Asinh", "T Asinh(T x) { return asinh(x); }"},
    {"Acosh", "T Acosh(T x) { return acosh(x); }"},
    {"Atanh", "T Atanh(T x) { return atanh(x); }"},
    {"LogSigmoid", "T LogSigmoid(T x) { return (x < 0 ? x : (T)0) - log1p(exp(-fabs(x))); }"},
    {"Hypot", "T Hypot(T x, T y) { return hypot(x, y); }"},
    {"Erfinv",
     "T Erfinv(T x) {\n"
     "  const T near_terms[] = {ERFINV_NEAR_TERMS}, far_terms[] = {ERFINV_FAR_TERMS};\n"
     "  const T farthest_terms[] = {ERFINV_FARTHEST_TERMS};\n"
     "  const T size = fabs(x), w = -log((1 - size) * (1 + size)), root = sqrt(w);\n"
     "  T factor = 0;\n"
     "  if (w <= ERFINV_NEAR_MOST) {\n"
     "    for (int k = sizeof near_terms / sizeof(T); k-- > 0;)\n"
     "      factor = fma(factor, w - ERFINV_NEAR, near_terms[k]);\n"
     "  } else if (root <= 4) {\n"
     "    for (int k = sizeof far_terms / sizeof(T); k-- > 0;)\n"
     "      factor = fma(factor, root - ERFINV_FAR, far_terms[k]);\n"
     "  } else {\n"
     "    for (int k = sizeof farthest_terms / sizeof(T); k-- > 0;)\n"
     "      factor = fma(factor, root - ERFINV_FARTHEST, farthest_terms[k]);\n"
     "  }\n"
     "  return size == 1 ? x / (1 - size) : x * factor;\n"
     "}"},
};

// Words that lose accuracy where they are written down as they are defined, and are rare: in
// float32 they are computed in float64, where the device has that.
constexpr Word kDelicate[] = {
    {"Digamma",
     "T Digamma(T x) {\n"
     "  const T terms[] = {DIGAMMA_SERIES};\n"
     "  T t = x < 0 ? 1 - x : x, poles = 0, series = 0;\n"
     "  for (int k = 0; k < 10; ++k) {\n"
     "    poles += t < 10 ? 1 / t : 0;\n"
     "    t += t < 10 ? 1 : 0;\n"
     "  }\n"
     "  const T inverse = 1 / t, square = inverse * inverse;\n"
     "  for (int k = sizeof terms / sizeof(T); k-- > 0;) series = fma(series, square, terms[k]);\n"
     "  const T right = fma(-inverse, (T)0.5, fma(-square, series, log(t))) - poles;\n"
     "  const T offset = x - rint(x);\n"
     "  if (!(x < 0)) return right;\n"
     "  return offset == 0 ? offset / offset\n"
     "                     : right - (T)3.14159265358979323846 / tan(offset * "
     "(T)3.14159265358979323846);\n"
     "}"},
};

constexpr Word kInteger[] = {
    {"C", "T C(T x, int value) { return (T)value; }"},
    {"Add", "T Add(T x, T y) { return (T)((U)x + (U)y); }"},
    {"Sub", "T Sub(T x, T y) { return (T)((U)x - (U)y); }"},
    {"Mul", "T Mul(T x, T y) { return (T)((U)x * (U)y); }"},
    {"MulAdd", "T MulAdd(T x, T y, T z) { return (T)((U)x * (U)y + (U)z); }"},
    {"Neg", "T Neg(T x) { return (T)((U)0 - (U)x); }"},
    {"Abs", "T Abs(T x) { return x < 0 ? Neg(x) : x; }"},
    {"Maximum", "T Maximum(T x, T y) { return x > y ? x : y; }"},
    {"Minimum", "T Minimum(T x, T y) { return x < y ? x : y; }"},
    {"Sign", "T Sign(T x) { return (T)((x > 0) - (x < 0)); }"},
    {"BitAnd", "T BitAnd(T x, T y) { return (T)(x & y); }"},
    {"BitOr", "T BitOr(T x, T y) { return (T)(x | y); }"},
    {"BitXor", "T BitXor(T x, T y) { return (T)(x ^ y); }"},
    {"BitNot", "T BitNot(T x) { return (T)(~x); }"},
};
// Drivers are known to overflow shortly before the largest number is reached.
constexpr Word kDoubleExp = {
    "Exp",
    "T Exp(T x) {\n"
    "  const T e = exp(x > 709 ? x - 1 : x);\n"
    "  return x > 709 ? fma(e, 0x1.5bf0a8b145769p+1, e * 0x1.4d57ee2b1013ap-53) : e;\n"
    "}"};
constexpr Word kBoolNot = {"BitNot", "T BitNot(T x) { return (T)(x ^ 1); }"};

// Conversions that a cast of C leaves open, as the CPU's instructions have them: what does not fit
// is the lowest integer. The half types round to nearest even. A NaN keeps what fits of its bits,
// where no instruction of the device has it otherwise (dialect.h).
constexpr Word kHelpers[] = {
    {"f32_to_i32",
     "int f32_to_i32(f32 x) {\n"
     "  return x >= -2147483648.0f && x < 2147483648.0f ? (int)x : (int)0x80000000;\n"
     "}"},
    {"f32_to_i64",
     "i64 f32_to_i64(f32 x) {\n"
     "  return x >= -9223372036854775808.0f && x < 9223372036854775808.0f\n"
     "      ? (i64)x : (i64)((u64)1 << 63);\n"
     "}"},
    {"f64_to_i32",
     "int f64_to_i32(f64 x) {\n"
     "  return x > -2147483649.0 && x < 2147483648.0 ? (int)x : (int)0x80000000;\n"
     "}"},
    {"f64_to_i64",
     "i64 f64_to_i64(f64 x) {\n"
     "  return x >= -9223372036854775808.0 && x < 9223372036854775808.0\n"
     "      ? (i64)x : (i64)((u64)1 << 63);\n"
     "}"},
    {"bf16_value", "f32 bf16_value(u16 x) { return as_f32((u32)x << 16); }"},
    {"bf16_bits",
     "u16 bf16_bits(f32 x) {\n"
     "#ifdef BF16_OF\n"
     "  return BF16_OF(x);\n"
     "#else\n"
     "  const u32 bits = as_u32(x);\n"
     "  if (x != x) return (u16)((bits >> 16) | 0x40);\n"
     "  return (u16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);\n"
     "#endif\n"
     "}"},
    {"f16_value",
     "f32 f16_value(u16 x) {\n"
     "#ifdef OF_F16\n"
     "  return OF_F16(x);\n"
     "#else\n"
     "  const u32 sign = (u32)(x & 0x8000) << 16, rest = x & 0x7fff;\n"
     "  if (rest >= 0x7c00) return as_f32(sign | 0x7f800000 | (rest & 0x3ff) << 13);\n"
     "  if (rest >= 0x400) return as_f32(sign | ((rest << 13) + 0x38000000));\n"
     "  const f32 small = (f32)rest * 5.9604644775390625e-8f;\n"
     "  return as_f32(as_u32(small) | sign);\n"
     "#endif\n"
     "}"},
    {"f16_bits",
     "u16 f16_bits(f32 x) {\n"
     "#ifdef F16_OF\n"
     "  return F16_OF(x);\n"
     "#else\n"
     "  const u32 bits = as_u32(x), sign = (bits >> 16) & 0x8000, rest = bits & 0x7fffffff;\n"
     "  if (rest > 0x7f800000) return (u16)(sign | 0x7e00 | (rest >> 13 & 0x3ff));\n"
     "  if (rest >= 0x477ff000) return (u16)(sign | 0x7c00);\n"
     "  if (rest >= 0x38800000) {\n"
     "    return (u16)(sign | ((rest - 0x38000000 + 0xfff + ((rest >> 13) & 1)) >> 13));\n"
     "  }\n"
     "  const u32 shift = 126 - (rest >> 23);\n"
     "  if (shift > 24) return (u16)sign;\n"
     "  const u32 whole = (rest & 0x7fffff) | 0x800000, kept = whole >> shift;\n"
     "  const u32 lost = whole & ((1u << shift) - 1), half_way = 1u << (shift - 1);\n"
     "  return (u16)(sign | (kept + (lost > half_way || (lost == half_way && (kept & 1)))));\n"
     "#endif\n"
     "}"},
};

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Calls f(name, is_called) for every name of a text; what lies between goes to `other`.
template <class F, class Other>
void for_names(std::string_view text, F&& f, Other&& other) {
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_name(text[end])) ++end;
    if (end == at) {
      other(text[at++]);
      continue;
    }
    f(text.substr(at, end - at), end < text.size() && text[end] == '(');
    at = end;
  }
}

const Word* find_in(std::span<const Word> words, std::string_view name) {
  const auto at =
      std::find_if(words.begin(), words.end(), [&](const Word& w) { return w.name == name; });
  return at == words.end() ? nullptr : &*at;
}

const Word* find_word(Dtype dtype, std::string_view name, bool& delicate) {
  delicate = false;
  if (const Word* word = find_in(kBoth, name)) return word;
  if (!is_floating(dtype)) {
    return dtype == Dtype::kBool && name == "BitNot" ? &kBoolNot : find_in(kInteger, name);
  }
  if (dtype == Dtype::kFloat64 && name == "Exp") return &kDoubleExp;
  const std::span<const Word> activations =
      dtype == Dtype::kFloat64 ? std::span<const Word>(kActivationsF64) : kActivationsF32;
  if (const Word* word = find_in(activations, name)) return word;
  if (const Word* word = find_in(kFloating, name)) return word;
  const Word* word = find_in(kDelicate, name);
  delicate = word != nullptr;
  return word;
}

// Whether the vocabulary has every word of a row's body.
bool has_words(std::string_view body, Dtype compute) {
  bool known = true;
  for_names(
      body,
      [&](std::string_view name, bool called) {
        bool delicate;
        known = known && (!called || find_word(compute, name, delicate) != nullptr);
      },
      [](char) {});
  return known;
}

std::string_view unsigned_type(Dtype dtype) { return dtype == Dtype::kInt64 ? "u64" : "u32"; }

#define HOLOGRAM_TEXT(...) #__VA_ARGS__
#define HOLOGRAM_TEXT_OF(...) HOLOGRAM_TEXT(__VA_ARGS__)

std::string_view constant(Dtype dtype, std::string_view name) {
  const bool wide = dtype == Dtype::kFloat64;
  if (name == "ERFINV_NEAR") return wide ? "3.125" : "2.5f";
  if (name == "ERFINV_NEAR_MOST") return wide ? "6.25" : "5.0f";
  if (name == "ERFINV_NEAR_TERMS") {
    return wide ? HOLOGRAM_TEXT_OF(HOLOGRAM_ERFINV_NEAR_F64)
                : HOLOGRAM_TEXT_OF(HOLOGRAM_ERFINV_NEAR_F32);
  }
  if (name == "ERFINV_FAR") return wide ? "3.25" : "3.0f";
  if (name == "ERFINV_FAR_TERMS") {
    return wide ? HOLOGRAM_TEXT_OF(HOLOGRAM_ERFINV_FAR_F64)
                : HOLOGRAM_TEXT_OF(HOLOGRAM_ERFINV_FAR_F32);
  }
  // Of float32 the far terms serve all.
  if (name == "ERFINV_FARTHEST") return wide ? "5.0" : "3.0f";
  if (name == "ERFINV_FARTHEST_TERMS") {
    return wide ? HOLOGRAM_TEXT_OF(HOLOGRAM_ERFINV_FARTHEST_F64)
                : HOLOGRAM_TEXT_OF(HOLOGRAM_ERFINV_FAR_F32);
  }
  if (name == "DIGAMMA_SERIES") return HOLOGRAM_TEXT_OF(HOLOGRAM_DIGAMMA_SERIES);
  if (name == "EXP_TERMS") return HOLOGRAM_TEXT_OF(HOLOGRAM_EXP_F32);
  if (name == "LOG1P_TERMS") return HOLOGRAM_TEXT_OF(HOLOGRAM_LOG1P_F32);
  if (name == "MILLS_TERMS") return HOLOGRAM_TEXT_OF(HOLOGRAM_MILLS_F32);
  if (name == "TANH_A") return wide ? "(0x1.9884533d43651p+0)" : "(0x1.988454p+0f)";
  if (name == "TANH_A_LOW") return wide ? "(-0x1.cbc0d30ebfd15p-54)" : "(-0x1.857936p-25f)";
  if (name == "TANH_B") return wide ? "(0x1.2444f2a4d8b4bp-4)" : "(0x1.2444f2p-4f)";
  if (name == "TANH_B_LOW") return wide ? "(-0x1.6c843a29d1c7p-61)" : "(0x1.49b16ap-29f)";
  return {};
}

}  // namespace

std::string_view suffix(Dtype dtype) {
  constexpr std::string_view kNames[] = {"b8",  "u8",  "i8",   "i16", "i32",
                                         "i64", "f16", "bf16", "f32", "f64"};
  return kNames[static_cast<int>(dtype)];
}

std::string_view storage_type(Dtype dtype) {
  constexpr std::string_view kNames[] = {"u8",  "u8",  "i8",  "i16", "i32",
                                         "i64", "u16", "u16", "f32", "f64"};
  return kNames[static_cast<int>(dtype)];
}

std::string Words::spelled(Dtype dtype, std::string_view body) {
  std::string out;
  for_names(
      body,
      [&](std::string_view name, bool called) {
        bool delicate;
        if (name == "T" || name == "U") {
          out += name == "T" ? storage_type(dtype) : unsigned_type(dtype);
        } else if (const std::string_view value = constant(dtype, name); !value.empty()) {
          out += value;
        } else if (called && find_word(dtype, name, delicate) != nullptr) {
          need(dtype, name);
          out.append(suffix(dtype)).append("_").append(name);
        } else {
          out += name;
        }
      },
      [&](char c) { out += c; });
  return out;
}

void Words::need(Dtype dtype, std::string_view name) {
  const std::string full = std::string(suffix(dtype)).append("_").append(name);
  if (!known_.insert(full).second) return;
  bool delicate;
  const Word* word = find_word(dtype, name, delicate);
  const bool single = dtype == Dtype::kFloat32;
  if (single && delicate && traits_.has_double) {
    // The same with the operands of the wider one.
    need(Dtype::kFloat64, name);
    std::string head(word->text.substr(0, word->text.find('{')));
    std::string call = cat("f64_", name, "(");
    const size_t open = head.find('(');
    for_names(
        std::string_view(head).substr(open),
        [&](std::string_view part, bool) {
          if (part != "T") call.append(part);
        },
        [&](char c) {
          if (c == ',') call += ", ";
        });
    put(text_, "FUNCTION ", spelled(dtype, head), "{ return (f32)", call, "); }\n");
    return;
  }
  std::string text(word->text);
  if (single && !traits_.divides_exactly && traits_.has_double) {
    if (name == "Div") text = "T Div(T x, T y) { return (T)((f64)x / (f64)y); }";
    if (name == "Sqrt") text = "T Sqrt(T x) { return (T)sqrt((f64)x); }";
  }
  const std::string spelled_text = spelled(dtype, text);
  put(text_, "FUNCTION ", spelled_text, "\n");
}

void Words::need_helper(std::string_view name) {
  if (known_.insert(std::string(name)).second) {
    text_.append("FUNCTION ").append(find_in(kHelpers, name)->text).append("\n");
  }
}

std::string Words::row(OpId op, Dtype compute, const std::string* operands, int arity) {
  const OpInfo& info = op_info(op);
  const std::string name = std::string(suffix(compute)).append("_row_").append(info.name);
  if (known_.insert(name).second) {
    const auto body = std::find_if(std::begin(kBodies), std::end(kBodies),
                                   [&](const RowBody& row) { return row.id == op; });
    const std::string expression = spelled(compute, body->text);
    const std::string_view type = storage_type(compute);
    text_.append("FUNCTION ").append(info.result_is_bool ? "u8" : type).append(" ");
    text_.append(name).append("(");
    for (int k = 0; k < arity; ++k) {
      text_.append(k == 0 ? "" : ", ").append(type).append(" ").append(1, "xyzw"[k]);
    }
    text_.append(") { return ").append(expression).append("; }\n");
  }
  std::string call = name + "(";
  for (int k = 0; k < arity; ++k) call.append(k == 0 ? "" : ", ").append(operands[k]);
  return call + ")";
}

std::string Words::converted(const std::string& value, Dtype from, Dtype to) {
  if (from == to) return value;
  if (from == Dtype::kFloat16 || from == Dtype::kBFloat16) {
    const std::string helper = std::string(suffix(from)) + "_value";
    need_helper(helper);
    return converted(helper + "(" + value + ")", Dtype::kFloat32, to);
  }
  if (to == Dtype::kFloat16 || to == Dtype::kBFloat16) {
    const std::string helper = std::string(suffix(to)) + "_bits";
    need_helper(helper);
    return helper + "(" + converted(value, from, Dtype::kFloat32) + ")";
  }
  const std::string cast = cat("(", storage_type(to), ")");
  if (to == Dtype::kBool) return cast + "(" + value + " != 0)";
  if (is_floating(from) && !is_floating(to)) {
    const bool wide = to == Dtype::kInt64 || to == Dtype::kUInt8;
    const std::string helper = std::string(suffix(from)) + (wide ? "_to_i64" : "_to_i32");
    need_helper(helper);
    return cast + helper + "(" + value + ")";
  }
  return cast + "(" + value + ")";
}

circuit::NativeOps native_ops(const Traits& traits) {
  circuit::NativeOps native;
  for (int d = 0; d <= static_cast<int>(Dtype::kFloat64); ++d) {
    const auto dtype = static_cast<Dtype>(d);
    if (dtype == Dtype::kFloat64 && !traits.has_double) continue;
    native.values |= circuit::NativeOps::bit(dtype);
    for (const RowBody& row : kBodies) {
      if (!op_info(row.id).supports(dtype) || !has_words(row.text, dtype)) continue;
      native.rows[static_cast<size_t>(row.id)] |= circuit::NativeOps::bit(dtype);
    }
  }
  native.folds = (1u << kReductionCount) - 1;
  native.row_functions = true;
  return native;
}

}  // namespace hologram::gpu
