// SPDX-License-Identifier: MIT
// The exception a user's mistake or a failing machine raises; a programmer's mistake is an assert.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "hologram/api.h"

namespace hologram {

// What went wrong, so that each binding can raise the exception of its own language.
enum class ErrorKind {
  kInvalidArgument,  // a value outside what is accepted (Python: ValueError)
  kTypeMismatch,     // a dtype or kind of object that is not accepted (TypeError)
  kIndex,            // a position out of range (IndexError)
  kOutOfMemory,      // the machine or a limit refused memory (MemoryError, torch.OutOfMemoryError)
  kNotSupported,     // accepted elsewhere, not by this backend (NotImplementedError)
  kState,            // right call, wrong time: closed, freed, forked (RuntimeError)
  kInternal,         // a fault of Hologram itself (RuntimeError)
};

HOLOGRAM_API const char* error_kind_name(ErrorKind kind);

// Thrown by every function of the C++ API. what() says what was asked, what was given, what to do.
class HOLOGRAM_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message);
  ~Error() override;
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

// Joins its arguments as text: fail(ErrorKind::kIndex, "dim ", d, " is out of range").
template <class... Parts>
[[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(kind, text.str());
}

}  // namespace hologram
