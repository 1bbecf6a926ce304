// SPDX-License-Identifier: MIT
// Reads and writes JSON arrays of numbers without a locale and without losing a bit.
#include "src/capi/json.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <type_traits>

#include "hologram/elementwise.h"
#include "hologram/error.h"

namespace hologram::capi {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// For digits out of the range of a type: true where they are too large, false where too small.
bool is_beyond(const char* at, const char* end) {
  int64_t exponent = 0;  // of the first digit that is not 0
  bool point = false;
  bool found = false;
  for (; at < end && *at != 'e' && *at != 'E'; ++at) {
    if (*at == '.') {
      point = true;
    } else if (is_digit(*at)) {
      found = found || *at != '0';
      if (found && !point) ++exponent;
      if (!found && point) --exponent;
    }
  }
  if (at < end) {
    ++at;
    const bool negative = *at == '-';
    if (*at == '-' || *at == '+') ++at;
    int64_t stated = 0;
    for (; at < end; ++at) stated = std::min<int64_t>(stated * 10 + (*at - '0'), INT64_C(1) << 40);
    exponent += negative ? -stated : stated;
  }
  return exponent > 0;
}

class Reader {
 public:
  Reader(std::string_view text, Dtype dtype, int64_t most)
      : begin_(text.data()), at_(begin_), end_(begin_ + text.size()), dtype_(dtype), most_(most) {}

  // Calls take(start, stop) for each number, and take_word(value) for true and false.
  template <class Take, class TakeWord>
  void read(Take&& take, TakeWord&& take_word) {
    skip_space();
    expect('[', "'['");
    skip_space();
    int64_t count = 0;
    if (at_ < end_ && *at_ == ']') {
      ++at_;
    } else {
      while (true) {
        if (count == most_) {
          fail(ErrorKind::kInvalidArgument, "json: byte ", place(), ": element ", count,
               " is past the end of the buffer, which has ", most_);
        }
        if (at_ < end_ && (*at_ == 't' || *at_ == 'f') && dtype_ == Dtype::kBool) {
          take_word(word("true") || !word_or_fail("false"));
        } else {
          const char* start = at_;
          scan_number();
          take(start, at_);
        }
        ++count;
        skip_space();
        if (at_ < end_ && *at_ == ']') {
          ++at_;
          break;
        }
        expect(',', "',' or ']'");
        skip_space();
      }
    }
    skip_space();
    if (at_ < end_) unexpected("the end of the text");
  }

  int64_t place(const char* at) const { return at - begin_; }
  int64_t place() const { return place(at_); }
  [[noreturn]] void misfit(const char* start, const char* stop) const {
    const std::string_view shown(start, std::min<size_t>(static_cast<size_t>(stop - start), 40));
    fail(ErrorKind::kInvalidArgument, "json: byte ", place(start), ": ", shown, " is no ",
         dtype_name(dtype_));
  }

 private:
  void skip_space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  [[noreturn]] void unexpected(const char* wanted) const {
    if (at_ >= end_) {
      fail(ErrorKind::kInvalidArgument, "json: the text ends at byte ", place(), "; expected ",
           wanted);
    }
    const auto c = static_cast<unsigned char>(*at_);
    if (c >= 0x20 && c < 0x7f) {
      fail(ErrorKind::kInvalidArgument, "json: byte ", place(), ": expected ", wanted, ", found '",
           *at_, "'");
    }
    fail(ErrorKind::kInvalidArgument, "json: byte ", place(), ": expected ", wanted,
         ", found the byte ", int{c});
  }
  void expect(char c, const char* wanted) {
    if (at_ >= end_ || *at_ != c) unexpected(wanted);
    ++at_;
  }
  bool word(std::string_view text) {
    if (!std::string_view(at_, static_cast<size_t>(end_ - at_)).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  bool word_or_fail(std::string_view text) {
    if (!word(text)) unexpected("true or false");
    return true;
  }
  void digits() {
    if (at_ >= end_ || !is_digit(*at_)) unexpected("a digit");
    while (at_ < end_ && is_digit(*at_)) ++at_;
  }
  // JSON's grammar, and three words.
  void scan_number() {
    if (at_ < end_ && *at_ == 'N') {
      if (!word("NaN")) unexpected("NaN");
      return;
    }
    if (at_ < end_ && *at_ == '-') ++at_;
    if (at_ < end_ && *at_ == 'I') {
      if (!word("Infinity")) unexpected("Infinity");
      return;
    }
    if (at_ >= end_ || !is_digit(*at_)) unexpected("a number");
    if (*at_ == '0') {
      ++at_;
    } else {
      digits();
    }
    if (at_ < end_ && *at_ == '.') {
      ++at_;
      digits();
    }
    if (at_ < end_ && (*at_ == 'e' || *at_ == 'E')) {
      ++at_;
      if (at_ < end_ && (*at_ == '-' || *at_ == '+')) ++at_;
      digits();
    }
  }

  const char* begin_;
  const char* at_;
  const char* end_;
  Dtype dtype_;
  int64_t most_;
};

template <class T>
T to_number(const Reader& reader, const char* start, const char* stop) {
  T value{};
  if constexpr (std::is_integral_v<T>) {
    const auto result = std::from_chars(start, stop, value);
    if (result.ec != std::errc() || result.ptr != stop) reader.misfit(start, stop);
  } else {
    // "NaN" and "Infinity" are among what from_chars reads.
    const auto result = std::from_chars(start, stop, value);
    if (result.ec == std::errc::result_out_of_range) {
      value = is_beyond(start, stop) ? std::numeric_limits<T>::infinity() : T{0};
      if (*start == '-') value = -value;
    } else if (result.ec != std::errc() || result.ptr != stop) {
      reader.misfit(start, stop);
    }
  }
  return value;
}

template <class T>
std::vector<char> parse(std::string_view text, Dtype dtype, int64_t most) {
  std::vector<char> bytes;
  // Each number takes at least a digit and a separator.
  bytes.reserve(std::min<size_t>(text.size() / 2 + 1, static_cast<size_t>(most)) * sizeof(T));
  const auto append = [&bytes](T value) {
    const auto* first = reinterpret_cast<const char*>(&value);
    bytes.insert(bytes.end(), first, first + sizeof value);
  };
  Reader reader(text, dtype, most);
  reader.read(
      [&](const char* start, const char* stop) {
        const T value = to_number<T>(reader, start, stop);
        if (dtype == Dtype::kBool && value != T{0} && value != T{1}) reader.misfit(start, stop);
        append(value);
      },
      [&](bool value) { append(static_cast<T>(value)); });
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
  *at++ = '[';
  for (int64_t i = 0; i < n; ++i) {
    if (i != 0) {
      *at++ = ',';
      *at++ = ' ';
    }
    T value;
    std::memcpy(&value, static_cast<const char*>(elements) + static_cast<size_t>(i) * sizeof(T),
                sizeof value);
    if (is_bool) {
      at = std::strcpy(at, value != T{0} ? "true" : "false") + (value != T{0} ? 4 : 5);
      continue;
    }
    if constexpr (!std::is_integral_v<T>) {
      if (!std::isfinite(value)) {
        const char* name = std::isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity";
        at = std::strcpy(at, name) + std::strlen(name);
        continue;
      }
    }
    char* const start = at;
    at = std::to_chars(at, text + room, value).ptr;
    if constexpr (!std::is_integral_v<T>) {
      // With a point, so that readers that guess the type by the text find a floating one.
      if (std::string_view(start, static_cast<size_t>(at - start)).find_first_of(".e") ==
          std::string_view::npos) {
        *at++ = '.';
        *at++ = '0';
      }
    }
  }
  *at++ = ']';
  *at = '\0';
  *size = static_cast<size_t>(at - text);
  auto* fitted = static_cast<char*>(std::realloc(text, *size + 1));
  return fitted != nullptr ? fitted : text;
}

[[noreturn]] void refuse_complex(Dtype dtype) {
  fail(ErrorKind::kNotSupported, "JSON has no ", dtype_name(dtype), " numbers; use bytes");
}

}  // namespace

std::vector<char> parse_json(std::string_view text, Dtype dtype, int64_t most) {
  switch (dtype) {
    case Dtype::kBool:
    case Dtype::kUInt8:
      return parse<uint8_t>(text, dtype, most);
    case Dtype::kInt8:
      return parse<int8_t>(text, dtype, most);
    case Dtype::kInt16:
      return parse<int16_t>(text, dtype, most);
    case Dtype::kInt32:
      return parse<int32_t>(text, dtype, most);
    case Dtype::kInt64:
      return parse<int64_t>(text, dtype, most);
    case Dtype::kFloat16:
    case Dtype::kBFloat16: {
      const std::vector<char> wide = parse<double>(text, dtype, most);
      const size_t n = wide.size() / sizeof(double);
      std::vector<char> bytes(n * itemsize(dtype));
      convert(Dtype::kFloat64, wide.data(), dtype, bytes.data(), static_cast<int64_t>(n));
      return bytes;
    }
    case Dtype::kFloat32:
      return parse<float>(text, dtype, most);
    case Dtype::kFloat64:
      return parse<double>(text, dtype, most);
    case Dtype::kComplex64:
    case Dtype::kComplex128:
      break;
  }
  refuse_complex(dtype);
}

char* print_json(const void* elements, Dtype dtype, int64_t n, size_t* size) {
  switch (dtype) {
    case Dtype::kBool:
    case Dtype::kUInt8:
      return print<uint8_t>(elements, n, size, dtype == Dtype::kBool);
    case Dtype::kInt8:
      return print<int8_t>(elements, n, size, false);
    case Dtype::kInt16:
      return print<int16_t>(elements, n, size, false);
    case Dtype::kInt32:
      return print<int32_t>(elements, n, size, false);
    case Dtype::kInt64:
      return print<int64_t>(elements, n, size, false);
    case Dtype::kFloat16:
    case Dtype::kBFloat16: {
      std::vector<float> wide(static_cast<size_t>(n));
      convert(dtype, elements, Dtype::kFloat32, wide.data(), n);
      return print<float>(wide.data(), n, size, false);
    }
    case Dtype::kFloat32:
      return print<float>(elements, n, size, false);
    case Dtype::kFloat64:
      return print<double>(elements, n, size, false);
    case Dtype::kComplex64:
    case Dtype::kComplex128:
      break;
  }
  refuse_complex(dtype);
}

}  // namespace hologram::capi
