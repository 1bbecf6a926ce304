// SPDX-License-Identifier: MIT
// What the runtime's tests share.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "hologram/error.h"
#include "hologram/runtime.h"

namespace hologram {

// The CPU; naming the registration makes a static link bring it along.
inline Device& cpu() {
  register_builtin_devices();
  return device(BackendType::kCpu);
}

inline BufferRef allocate(size_t nbytes) {
  return BufferRef::adopt(allocate_buffer(cpu(), nbytes));
}

// The error that call() throws; fails the test when it throws none.
template <class F>
Error error_of(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorKind::kInternal, "none");
}

#define EXPECT_ERROR(call, expected_kind, expected_text)                         \
  do {                                                                           \
    const ::hologram::Error caught = ::hologram::error_of([&] { call; });        \
    EXPECT_EQ(caught.kind(), expected_kind) << caught.what();                    \
    EXPECT_NE(std::string(caught.what()).find(expected_text), std::string::npos) \
        << "the message was: " << caught.what();                                 \
  } while (false)

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif

}  // namespace hologram
