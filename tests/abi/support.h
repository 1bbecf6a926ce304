// SPDX-License-Identifier: MIT
// What the tests of the C interface share: handles that free themselves, and errors by their text.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hologram/hologram.h"

namespace hologram::capi_test {

#define EXPECT_OK(call) EXPECT_EQ(call, HOLOGRAM_OK) << hologram_last_error()
#define ASSERT_OK(call) ASSERT_EQ(call, HOLOGRAM_OK) << hologram_last_error() << " "
// The call is refused with that status, and the whole message is `text`.
#define EXPECT_REFUSED(call, status, text)               \
  do {                                                   \
    EXPECT_EQ(call, status) << #call;                    \
    EXPECT_EQ(std::string(hologram_last_error()), text); \
  } while (false)
// The same where the message only contains `text`.
#define EXPECT_REFUSED_WITH(call, status, text)                                 \
  do {                                                                          \
    EXPECT_EQ(call, status) << #call;                                           \
    EXPECT_NE(std::string(hologram_last_error()).find(text), std::string::npos) \
        << hologram_last_error();                                               \
  } while (false)

inline std::string hex(uint64_t handle) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(handle));
  return text;
}

class Executor {
 public:
  Executor() { EXPECT_OK(hologram_new_executor(&handle_)); }
  ~Executor() { hologram_executor_cleanup(handle_); }
  Executor(const Executor&) = delete;
  operator uint64_t() const { return handle_; }  // NOLINT

 private:
  uint64_t handle_ = 0;
};

template <class T>
constexpr int dtype_of();
template <>
constexpr int dtype_of<float>() {
  return HOLOGRAM_FLOAT32;
}
template <>
constexpr int dtype_of<double>() {
  return HOLOGRAM_FLOAT64;
}
template <>
constexpr int dtype_of<int32_t>() {
  return HOLOGRAM_INT32;
}
template <>
constexpr int dtype_of<int64_t>() {
  return HOLOGRAM_INT64;
}
template <>
constexpr int dtype_of<uint8_t>() {
  return HOLOGRAM_UINT8;
}

class Buffer {
 public:
  Buffer(uint64_t ex, int64_t n, int dtype = HOLOGRAM_FLOAT32) : ex_(ex) {
    EXPECT_OK(hologram_executor_allocate_buffer(ex, n, dtype, &handle_));
  }
  template <class T>
  Buffer(uint64_t ex, const std::vector<T>& values)
      : Buffer(ex, static_cast<int64_t>(values.size()), dtype_of<T>()) {
    EXPECT_OK(
        hologram_buffer_copy_from_bytes(ex, handle_, values.data(), values.size() * sizeof(T)));
  }
  ~Buffer() { hologram_buffer_cleanup(handle_); }
  Buffer(const Buffer&) = delete;
  operator uint64_t() const { return handle_; }  // NOLINT

  template <class T = float>
  std::vector<T> values() const {
    int64_t n = 0;
    EXPECT_OK(hologram_buffer_length(handle_, &n));
    std::vector<T> result(static_cast<size_t>(n));
    EXPECT_OK(hologram_buffer_to_bytes(ex_, handle_, result.data(), result.size() * sizeof(T)));
    return result;
  }

 private:
  uint64_t ex_;
  uint64_t handle_ = 0;
};

}  // namespace hologram::capi_test
