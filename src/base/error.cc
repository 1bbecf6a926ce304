// SPDX-License-Identifier: MIT
// Gives Error its one vtable, so that it can be caught across shared libraries.
#include "hologram/error.h"

namespace hologram {

const char* error_kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      return "invalid argument";
    case ErrorKind::kTypeMismatch:
      return "type mismatch";
    case ErrorKind::kIndex:
      return "index out of range";
    case ErrorKind::kOutOfMemory:
      return "out of memory";
    case ErrorKind::kNotSupported:
      return "not supported";
    case ErrorKind::kState:
      return "wrong state";
    case ErrorKind::kInternal:
      return "internal error";
  }
  return "unknown";
}

Error::Error(ErrorKind kind, const std::string& message)
    : std::runtime_error(message), kind_(kind) {}
Error::~Error() = default;

}  // namespace hologram
