// SPDX-License-Identifier: MIT
// Element types: from and to Python objects, from and to formats of the buffer protocol.
#include "dtype.h"

#include <array>
#include <bit>
#include <cstring>
#include <string_view>

#include "hologram/error.h"
#include "objects.h"

namespace hologram::python {
namespace {

// Types and dtype objects that were asked for before; they are few and live as long as the process.
struct Known {
  PyObject* object;
  Dtype dtype;
};
constexpr int kMostKnown = 64;
std::array<Known, kMostKnown> known;
int known_count = 0;
std::array<PyObject*, kStoredDtypeCount> reported;

bool find_name(std::string_view name, Dtype& dtype) {
  for (int i = 0; i < kStoredDtypeCount; ++i) {
    if (dtype_name(static_cast<Dtype>(i)) == name) {
      dtype = static_cast<Dtype>(i);
      return true;
    }
  }
  return false;
}

}  // namespace

Dtype parse_dtype(nb::handle object) {
  for (int i = 0; i < known_count; ++i) {
    if (known[i].object == object.ptr()) return known[i].dtype;
  }
  Dtype dtype;
  if (PyUnicode_Check(object.ptr())) {
    Py_ssize_t length = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), &length);
    if (text == nullptr) raise_set();
    if (find_name({text, static_cast<size_t>(length)}, dtype)) return dtype;
  }
  const nb::object name = helper("hologram._dtypes", "name_of", object);
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(name.ptr(), &length);
  if (text == nullptr) raise_set();
  if (!find_name({text, static_cast<size_t>(length)}, dtype)) {
    raise(PyExc_TypeError, "dtype " + std::string(text) + " is not one of hologram's");
  }
  // Strings would be different objects next time.
  if (!PyUnicode_Check(object.ptr()) && known_count < kMostKnown) {
    known[known_count++] = {object.inc_ref().ptr(), dtype};
  }
  return dtype;
}

Dtype parse_dtype(nb::handle object, Dtype otherwise) {
  return object.is_none() ? otherwise : parse_dtype(object);
}

nb::object report_dtype(Dtype dtype) {
  PyObject*& slot = reported[static_cast<int>(dtype)];
  if (slot == nullptr) {
    const std::string_view name = dtype_name(dtype);
    slot = helper("hologram._dtypes", "report", nb::str(name.data(), name.size())).release().ptr();
  }
  return nb::borrow(slot);
}

const char* buffer_format(Dtype dtype) {
  constexpr std::array<const char*, kStoredDtypeCount> kFormats = {
      "?", "B", "b", "h", "i", "l", "e", nullptr, "f", "d", "Zf", "Zd", "H", "I", "L"};
  static_assert(sizeof(long) == 8, "the formats of int64 and uint64 are l and L");  // NOLINT
  return kFormats[static_cast<int>(dtype)];
}

bool parse_buffer_format(const char* format, Py_ssize_t itemsize, Dtype& dtype) {
  if (format == nullptr) format = "B";
  // Byte orders other than the machine's are not taken.
  constexpr bool kLittle = std::endian::native == std::endian::little;
  if (*format == '@' || *format == '=' || *format == (kLittle ? '<' : '>') ||
      (itemsize == 1 && (*format == '<' || *format == '>' || *format == '|'))) {
    ++format;
  }
  const size_t length = std::strlen(format);
  if (length == 2 && format[0] == 'Z') {
    dtype = format[1] == 'f' ? Dtype::kComplex64 : Dtype::kComplex128;
    return (format[1] == 'f' && itemsize == 8) || (format[1] == 'd' && itemsize == 16);
  }
  if (length != 1) return false;
  switch (*format) {
    case '?':
      dtype = Dtype::kBool;
      return itemsize == 1;
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      dtype = itemsize == 1   ? Dtype::kUInt8
              : itemsize == 2 ? Dtype::kUInt16
              : itemsize == 4 ? Dtype::kUInt32
                              : Dtype::kUInt64;
      return itemsize == 1 || itemsize == 2 || itemsize == 4 || itemsize == 8;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      dtype = itemsize == 1   ? Dtype::kInt8
              : itemsize == 2 ? Dtype::kInt16
              : itemsize == 4 ? Dtype::kInt32
                              : Dtype::kInt64;
      return itemsize == 1 || itemsize == 2 || itemsize == 4 || itemsize == 8;
    case 'e':
      dtype = Dtype::kFloat16;
      return itemsize == 2;
    case 'f':
      dtype = Dtype::kFloat32;
      return itemsize == 4;
    case 'd':
      dtype = Dtype::kFloat64;
      return itemsize == 8;
    default:
      return false;
  }
}

}  // namespace hologram::python
