// SPDX-License-Identifier: MIT
// Reads and writes JSON arrays of numbers without a locale and without losing a bit.
#include "src/capi/json.h"

#include <locale.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <type_traits>

#include "hologram/elementwise.h"
#include "hologram/error.h"

namespace hologram::capi {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes an array of numbers apart: JSON's grammar, and three words.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  // Calls element() where each element begins; it reads it with number().
  template <class F>
  void list(F&& element) {
    skip_space();
    if (!skip('[')) unexpected("'['");
    skip_space();
    if (!skip(']')) {
      do {
        skip_space();
        element();
        skip_space();
      } while (skip(','));
      if (!skip(']')) unexpected("',' or ']'");
    }
    skip_space();
    if (at_ < text_.size()) unexpected("the end of the text");
  }

  // The text of a number; where `words` also of true or false.
  std::string_view number(bool words) {
    const size_t start = at_;
    if (words && (is('t') || is('f'))) {
      word(is('t') ? "true" : "false", "true or false");
    } else if (is('N')) {
      word("NaN", "NaN");
    } else if (skip('-'), is('I')) {
      word("Infinity", "Infinity");
    } else {
      if (!skip('0')) digits("a number");
      if (skip('.')) digits("a digit");
      if (skip('e') || skip('E')) {
        if (!skip('-')) skip('+');
        digits("a digit");
      }
    }
    return text_.substr(start, at_ - start);
  }

  template <class... Parts>
  [[noreturn]] void refuse(size_t place, const Parts&... parts) const {
    fail(ErrorKind::kInvalidArgument, "json: byte ", place, ": ", parts...);
  }
  [[noreturn]] void misfit(std::string_view number, Dtype dtype) const {
    refuse(static_cast<size_t>(number.data() - text_.data()), number.substr(0, 40), " is no ",
           dtype_name(dtype));
  }
  size_t place() const { return at_; }

 private:
  bool is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool skip(char c) {
    const bool found = is(c);
    at_ += found ? 1 : 0;
    return found;
  }
  void skip_space() {
    while (is(' ') || is('\n') || is('\r') || is('\t')) ++at_;
  }
  void word(std::string_view text, const char* wanted) {
    if (!text_.substr(at_).starts_with(text)) unexpected(wanted);
    at_ += text.size();
  }
  void digits(const char* wanted) {
    if (at_ == text_.size() || !is_digit(text_[at_])) unexpected(wanted);
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  }
  [[noreturn]] void unexpected(const char* wanted) const {
    if (at_ == text_.size()) {
      fail(ErrorKind::kInvalidArgument, "json: the text ends at byte ", at_, "; expected ", wanted);
    }
    const char c = text_[at_];
    if (c >= 0x20 && c < 0x7f) refuse(at_, "expected ", wanted, ", found '", c, "'");
    refuse(at_, "expected ", wanted, ", found the byte ", int{static_cast<unsigned char>(c)});
  }

  std::string_view text_;
  size_t at_ = 0;
};

// Of digits that are out of a type's range: infinite or zero. In the locale "C", as JSON is.
double beyond(std::string_view number) {
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  return strtod_l(std::string(number).c_str(), nullptr, plain);
}

template <class T>
std::vector<char> parse(std::string_view text, Dtype dtype, int64_t most) {
  std::vector<char> bytes;
  // Each number takes at least a digit and a separator.
  bytes.reserve(std::min<size_t>(text.size() / 2 + 1, static_cast<size_t>(most)) * sizeof(T));
  Reader reader(text);
  reader.list([&] {
    const size_t count = bytes.size() / sizeof(T);
    if (count == static_cast<size_t>(most)) {
      reader.refuse(reader.place(), "element ", count, " is past the end of the buffer, which has ",
                    most);
    }
    const std::string_view number = reader.number(dtype == Dtype::kBool);
    T value{};
    if (number[0] == 't' || number[0] == 'f') {
      value = static_cast<T>(number[0] == 't');
    } else {
      // "NaN" and "Infinity" are among what it reads.
      const auto [end, error] = std::from_chars(number.begin(), number.end(), value);
      if (std::is_floating_point_v<T> && error == std::errc::result_out_of_range) {
        value = static_cast<T>(beyond(number));
      } else if (error != std::errc() || end != number.end()) {
        reader.misfit(number, dtype);
      }
      if (dtype == Dtype::kBool && value != T{0} && value != T{1}) reader.misfit(number, dtype);
    }
    const auto* first = reinterpret_cast<const char*>(&value);
    bytes.insert(bytes.end(), first, first + sizeof value);
  });
  return bytes;
}

template <class T>
char* print(const void* elements, int64_t n, size_t* size, bool is_bool) {
  // The most characters that a number takes: sign, digits, point, exponent; and ", ".
  constexpr size_t kMost = std::is_integral_v<T>        ? std::numeric_limits<T>::digits10 + 6
                           : sizeof(T) == sizeof(float) ? 20
                                                        : 32;
  const size_t room = static_cast<size_t>(n) * (is_bool ? 8 : kMost) + 3;
  auto* text = static_cast<char*>(std::malloc(room));
  if (text == nullptr) {
    fail(ErrorKind::kOutOfMemory, "out of memory for ", room, " bytes of JSON text; use bytes");
  }
  char* at = text;
  const auto put = [&at](std::string_view part) { at = std::copy(part.begin(), part.end(), at); };
  put("[");
  for (int64_t i = 0; i < n; ++i) {
    if (i != 0) put(", ");
    T value;
    std::memcpy(&value, static_cast<const char*>(elements) + static_cast<size_t>(i) * sizeof(T),
                sizeof value);
    if (is_bool) {
      put(value != T{0} ? "true" : "false");
    } else if (std::is_floating_point_v<T> && !std::isfinite(static_cast<double>(value))) {
      put(value > T{0} ? "Infinity" : value < T{0} ? "-Infinity" : "NaN");
    } else {
      const char* start = at;
      at = std::to_chars(at, text + room, value).ptr;
      // With a point, so that readers that guess the type by the text find a floating one.
      if (std::is_floating_point_v<T> &&
          std::string_view(start, at).find_first_of(".e") == std::string_view::npos) {
        put(".0");
      }
    }
  }
  put("]");
  *at = '\0';
  *size = static_cast<size_t>(at - text);
  auto* fitted = static_cast<char*>(std::realloc(text, *size + 1));
  return fitted != nullptr ? fitted : text;
}

// Calls run() with a zero of the type that a dtype's elements have in memory.
template <class F>
auto with_type(Dtype dtype, F&& run) {
  switch (dtype) {
    case Dtype::kInt8:
      return run(int8_t{});
    case Dtype::kInt16:
      return run(int16_t{});
    case Dtype::kInt32:
      return run(int32_t{});
    case Dtype::kInt64:
      return run(int64_t{});
    case Dtype::kUInt16:
      return run(uint16_t{});
    case Dtype::kUInt32:
      return run(uint32_t{});
    case Dtype::kUInt64:
      return run(uint64_t{});
    case Dtype::kFloat32:
      return run(float{});
    case Dtype::kFloat64:
      return run(double{});
    default:
      return run(uint8_t{});
  }
}

void check_real(Dtype dtype) {
  if (!is_complex(dtype)) return;
  fail(ErrorKind::kNotSupported, "JSON has no ", dtype_name(dtype), " numbers; use bytes");
}

}  // namespace

std::vector<char> parse_json(std::string_view text, Dtype dtype, int64_t most) {
  check_real(dtype);
  if (compute_dtype(dtype) != dtype) {  // half types are rounded once, from double
    const std::vector<char> wide = parse_json(text, Dtype::kFloat64, most);
    const size_t n = wide.size() / sizeof(double);
    std::vector<char> bytes(n * itemsize(dtype));
    convert(Dtype::kFloat64, wide.data(), dtype, bytes.data(), static_cast<int64_t>(n));
    return bytes;
  }
  return with_type(dtype, [&](auto zero) { return parse<decltype(zero)>(text, dtype, most); });
}

char* print_json(const void* elements, Dtype dtype, int64_t n, size_t* size) {
  check_real(dtype);
  if (compute_dtype(dtype) != dtype) {
    std::vector<float> wide(static_cast<size_t>(n));
    convert(dtype, elements, Dtype::kFloat32, wide.data(), n);
    return print_json(wide.data(), Dtype::kFloat32, n, size);
  }
  return with_type(dtype, [&](auto zero) {
    return print<decltype(zero)>(elements, n, size, dtype == Dtype::kBool);
  });
}

}  // namespace hologram::capi
