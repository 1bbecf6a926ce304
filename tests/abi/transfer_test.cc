// SPDX-License-Identifier: MIT
// Bytes, addresses and JSON going into buffers and out of them.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "hologram/dlpack.h"
#include "tests/abi/support.h"

namespace hologram::capi_test {
namespace {

constexpr int kBad = HOLOGRAM_INVALID_ARGUMENT;

int set_json(uint64_t ex, uint64_t buffer, const std::string& text) {
  return hologram_buffer_copy_from_slice(ex, buffer, text.data(), text.size());
}

std::string get_json(uint64_t ex, uint64_t buffer) {
  char* text = nullptr;
  size_t size = 0;
  EXPECT_OK(hologram_buffer_to_vec(ex, buffer, &text, &size));
  if (text == nullptr) return "";
  std::string result(text);
  EXPECT_EQ(result.size(), size);
  hologram_free(text);
  return result;
}

TEST(Transfer, BytesGoInAndOutAndLengthsAreChecked) {
  const Executor ex;
  const Buffer a(ex, std::vector<float>{1, 2, 3, 4});
  const float two[] = {7, 8};
  EXPECT_OK(hologram_buffer_copy_from_bytes(ex, a, two, sizeof two));
  EXPECT_EQ(a.values(), (std::vector<float>{7, 8, 3, 4}));
  char bytes[17] = {};
  EXPECT_REFUSED(hologram_buffer_copy_from_bytes(ex, a, bytes, 17), kBad,
                 "buffer_copy_from_bytes: buf: nbytes is 17 but the buffer has 16 (4 elements of "
                 "float32)");
  EXPECT_REFUSED(hologram_buffer_to_bytes(ex, a, bytes, SIZE_MAX), kBad,
                 "buffer_to_bytes: buf: nbytes is 18446744073709551615 but the buffer has 16 (4 "
                 "elements of float32)");
  EXPECT_REFUSED(hologram_buffer_to_bytes(ex, a, nullptr, 4), kBad,
                 "buffer_to_bytes: bytes: the pointer is null; pass the address of that many "
                 "bytes");
  EXPECT_OK(hologram_buffer_to_bytes(ex, a, nullptr, 0));
}

TEST(Transfer, AnAddressSeesWhatWasRecordedAndWhatIsWrittenThere) {
  const Executor ex;
  const Buffer a(ex, std::vector<float>{1, 2, 3, 4});
  const Buffer b(ex, 4);
  EXPECT_OK(hologram_vector_add_f32(ex, a, a, b, 4));
  const void* seen = nullptr;
  EXPECT_OK(hologram_buffer_as_ptr(ex, b, &seen));
  EXPECT_EQ(static_cast<const float*>(seen)[3], 8.0f);
  void* open = nullptr;
  EXPECT_OK(hologram_buffer_as_mut_ptr(ex, b, &open));
  EXPECT_EQ(open, seen);
  static_cast<float*>(open)[0] = -1.0f;
  EXPECT_OK(hologram_vector_abs_f32(ex, b, a, 4));
  EXPECT_EQ(a.values(), (std::vector<float>{1, 4, 6, 8}));
  // From now on ops on b have run when they return.
  EXPECT_OK(hologram_scalar_mul_f32(ex, a, b, 4, 10.0f));
  EXPECT_EQ(static_cast<const float*>(seen)[3], 80.0f);
  EXPECT_REFUSED(hologram_buffer_as_ptr(ex, b, nullptr), kBad,
                 "buffer_as_ptr: address: the pointer is null; pass the address of a const void*");
}

TEST(Transfer, JsonKeepsEveryBitOfFloats) {
  const Executor ex;
  std::mt19937 random(7);
  std::vector<float> values(20000);
  for (float& value : values) {
    do {
      value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    } while (std::isnan(value));
  }
  const float inf = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f, -0.0f, inf, -inf, 1e-45f, 1.17549435e-38f, 3.4028235e38f};
  std::copy(std::begin(special), std::end(special), values.begin());
  const Buffer a(ex, values);
  const Buffer b(ex, 20000);
  ASSERT_OK(set_json(ex, b, get_json(ex, a)));
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the bits are meant
  EXPECT_EQ(std::memcmp(a.values().data(), b.values().data(), 80000), 0);
  const Buffer c(ex, std::vector<double>{1e22, 0.1, -1e-320, 5e-324, 1.7976931348623157e308});
  const Buffer d(ex, 5, HOLOGRAM_FLOAT64);
  ASSERT_OK(set_json(ex, d, get_json(ex, c)));
  EXPECT_EQ(c.values<double>(), d.values<double>());
}

TEST(Transfer, JsonIsWrittenAsPythonWritesIt) {
  const Executor ex;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const Buffer a(ex, std::vector<float>{1, -0.0f, 0.1f, 1e10f, 1e-7f, 16777216, nan, inf, -inf});
  EXPECT_EQ(get_json(ex, a),
            "[1.0, -0.0, 0.1, 1e+10, 1e-07, 16777216.0, NaN, Infinity, -Infinity]");
  EXPECT_EQ(get_json(ex, Buffer(ex, 0)), "[]");
  const Buffer i(ex, std::vector<int64_t>{INT64_MIN, -1, INT64_MAX});
  EXPECT_EQ(get_json(ex, i), "[-9223372036854775808, -1, 9223372036854775807]");
  const Buffer t(ex, 3, HOLOGRAM_BOOL);
  ASSERT_OK(set_json(ex, t, "[true, 0, 1]"));
  EXPECT_EQ(get_json(ex, t), "[true, false, true]");
  const Buffer h(ex, 4, HOLOGRAM_FLOAT16);
  ASSERT_OK(set_json(ex, h, "[0.1, 65504, 1e-8, 65520]"));
  EXPECT_EQ(get_json(ex, h), "[0.099975586, 65504.0, 0.0, Infinity]");
  EXPECT_REFUSED(set_json(ex, Buffer(ex, 1, HOLOGRAM_COMPLEX64), "[1]"), HOLOGRAM_NOT_SUPPORTED,
                 "buffer_copy_from_slice: JSON has no complex64 numbers; use bytes");
}

TEST(Transfer, JsonMayBeShorterSpacedAndBeyondTheRange) {
  const Executor ex;
  const Buffer a(ex, std::vector<float>{9, 9, 9, 9, 9, 9});
  ASSERT_OK(set_json(ex, a, " [ 1e400 ,\t-1e400,\n1e-400, -0.0000001e-400, NaN ]\r\n"));
  const std::vector<float> values = a.values();
  EXPECT_EQ(values[0], std::numeric_limits<float>::infinity());
  EXPECT_EQ(values[1], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(values[2], 0.0f);
  EXPECT_TRUE(values[3] == 0.0f && std::signbit(values[3]));
  EXPECT_TRUE(std::isnan(values[4]));
  EXPECT_EQ(values[5], 9.0f);
  ASSERT_OK(set_json(ex, a, "[0.000" + std::string(500, '0') + "1e505]"));
  EXPECT_EQ(a.values()[0], 10.0f);
  ASSERT_OK(set_json(ex, a, "[]"));
}

TEST(Transfer, MalformedJsonIsRefusedWithTheByteAndChangesNothing) {
  const Executor ex;
  const Buffer a(ex, std::vector<float>{1, 2});
  const std::pair<const char*, const char*> cases[] = {
      {"", "the text ends at byte 0; expected '['"},
      {"[", "the text ends at byte 1; expected a number"},
      {"[1", "the text ends at byte 2; expected ',' or ']'"},
      {"[1,", "the text ends at byte 3; expected a number"},
      {"[1,]", "byte 3: expected a number, found ']'"},
      {"1]", "byte 0: expected '[', found '1'"},
      {"[1] x", "byte 4: expected the end of the text, found 'x'"},
      {"[1 2]", "byte 3: expected ',' or ']', found '2'"},
      {"[01]", "byte 2: expected ',' or ']', found '1'"},
      {"[1.]", "byte 3: expected a digit, found ']'"},
      {"[.5]", "byte 1: expected a number, found '.'"},
      {"[+1]", "byte 1: expected a number, found '+'"},
      {"[1e]", "byte 3: expected a digit, found ']'"},
      {"[--1]", "byte 2: expected a number, found '-'"},
      {"[nan]", "byte 1: expected a number, found 'n'"},
      {"[Nan]", "byte 1: expected NaN, found 'N'"},
      {"[Inf]", "byte 1: expected Infinity, found 'I'"},
      {"[[1]]", "byte 1: expected a number, found '['"},
      {"[\"1\"]", "byte 1: expected a number, found '\"'"},
      {"[true]", "byte 1: expected a number, found 't'"},
      {"[1,\x01]", "byte 3: expected a number, found the byte 1"},
      {"[5, 6, 7]", "byte 7: element 2 is past the end of the buffer, which has 2"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_REFUSED(set_json(ex, a, text), kBad,
                   "buffer_copy_from_slice: json: " + std::string(message));
  }
  EXPECT_REFUSED_WITH(set_json(ex, a, std::string("[1\0]", 4)), kBad, "byte 2");
  EXPECT_EQ(a.values(), (std::vector<float>{1, 2}));
  const Buffer i(ex, std::vector<uint8_t>{1});
  for (const char* text : {"[256]", "[-1]", "[1.0]", "[1e1]", "[NaN]"}) {
    EXPECT_REFUSED_WITH(set_json(ex, i, text), kBad, " is no uint8");
  }
  EXPECT_REFUSED_WITH(set_json(ex, Buffer(ex, 1, HOLOGRAM_BOOL), "[2]"), kBad, "2 is no bool");
  EXPECT_REFUSED_WITH(hologram_buffer_copy_from_slice(ex, a, nullptr, 3), kBad,
                      "json: the pointer is null");
}

TEST(Transfer, FillsAndCopiesConvert) {
  const Executor ex;
  const Buffer a(ex, 5);
  EXPECT_OK(hologram_buffer_fill(ex, a, 2.75, 5));
  EXPECT_OK(hologram_buffer_fill(ex, a, -1.0, 2));
  EXPECT_EQ(a.values(), (std::vector<float>{-1, -1, 2.75, 2.75, 2.75}));
  const Buffer i(ex, std::vector<int32_t>(5, 9));
  EXPECT_OK(hologram_buffer_copy(ex, a, i, 4));
  EXPECT_EQ(i.values<int32_t>(), (std::vector<int32_t>{-1, -1, 2, 2, 9}));
  EXPECT_OK(hologram_buffer_fill(ex, i, 2147483647.0, 5));
  EXPECT_EQ(i.values<int32_t>()[4], INT32_MAX);
  for (const double value : {2147483648.0, -2147483649.0, std::nan(""), HUGE_VAL}) {
    EXPECT_REFUSED_WITH(hologram_buffer_fill(ex, i, value, 1), kBad, "which no int32 holds");
  }
  EXPECT_REFUSED(hologram_buffer_fill(ex, a, 0, 6), kBad,
                 "buffer_fill: buf: n is 6 but the buffer has 5 elements");
  EXPECT_REFUSED(hologram_buffer_copy(ex, a, Buffer(ex, 2), 3), kBad,
                 "buffer_copy: target: n is 3 but the buffer has 2 elements");
  const Buffer z(ex, 5, HOLOGRAM_COMPLEX64);
  EXPECT_REFUSED(hologram_buffer_copy(ex, z, a, 3), HOLOGRAM_TYPE_MISMATCH,
                 "buffer_copy: target: the buffer holds float32, not complex numbers, as source "
                 "does");
}

TEST(Transfer, TensorsShowBuffersAndGoOutAndIn) {
  const Executor ex;
  const Buffer a(ex, std::vector<float>{0, 1, 2, 3, 4, 5});
  const int64_t shape[] = {2, 2};
  const int64_t strides[] = {3, 1};
  uint64_t tensor = 0;
  ASSERT_OK(hologram_tensor_from_buffer(a, 1, 2, shape, strides, &tensor));
  int64_t sizes[2] = {};
  EXPECT_OK(hologram_tensor_strides(tensor, sizes, 2));
  EXPECT_EQ(sizes[0], 3);
  EXPECT_REFUSED(hologram_tensor_shape(tensor, sizes, 1), kBad,
                 "tensor_shape: capacity is 1 but the tensor has 2 dimensions");
  uint64_t buffer = 0;
  EXPECT_REFUSED(hologram_tensor_as_buffer(tensor, &buffer), kBad,
                 "tensor_as_buffer: tensor: its elements are not row-major without gaps; copy it "
                 "first");
  uint64_t copy = 0;
  ASSERT_OK(hologram_tensor_copy(tensor, &copy));
  ASSERT_OK(hologram_tensor_as_buffer(copy, &buffer));
  EXPECT_EQ(get_json(ex, buffer), "[1.0, 2.0, 4.0, 5.0]");
  DLManagedTensorVersioned* managed = nullptr;
  ASSERT_OK(hologram_tensor_to_dlpack(tensor, &managed));
  uint64_t back = 0;
  ASSERT_OK(hologram_tensor_from_dlpack(managed, &back));
  EXPECT_OK(hologram_tensor_cleanup(tensor));
  EXPECT_OK(hologram_tensor_ndim(back, reinterpret_cast<int*>(sizes)));
  DLManagedTensor* old = nullptr;
  ASSERT_OK(hologram_tensor_to_dlpack_unversioned(a, &old));  // a buffer is a tensor, too
  EXPECT_EQ(old->dl_tensor.shape[0], 6);
  EXPECT_EQ(static_cast<char*>(old->dl_tensor.data) + 4, managed->dl_tensor.data);
  old->deleter(old);
  for (const uint64_t handle : {copy, back}) EXPECT_OK(hologram_tensor_cleanup(handle));
  EXPECT_OK(hologram_buffer_cleanup(buffer));
  const int64_t bad[] = {2, 4};
  EXPECT_REFUSED_WITH(hologram_tensor_from_buffer(a, 1, 2, shape, bad, &tensor), kBad, "");
  EXPECT_REFUSED_WITH(hologram_tensor_from_buffer(a, 0, 2, bad, nullptr, &tensor), kBad,
                      "reaches outside");
  EXPECT_REFUSED(hologram_tensor_from_buffer(a, 7, 0, nullptr, nullptr, &tensor), kBad,
                 "tensor_from_buffer: offset is 7 but the buffer has 6 elements");
  EXPECT_REFUSED(hologram_tensor_from_buffer(a, 0, 65, shape, nullptr, &tensor), kBad,
                 "tensor_from_buffer: ndim is 65; pass 0 to 64");
  EXPECT_REFUSED(hologram_tensor_from_buffer(a, 0, 1, nullptr, nullptr, &tensor), kBad,
                 "tensor_from_buffer: shape: the pointer is null; pass the address of ndim sizes");
}

TEST(Transfer, ReadOnlyMemoryIsReadButNotWritten) {
  const Executor ex;
  float memory[4] = {1, 2, 3, 4};
  int64_t shape[] = {4};
  int given_back = 0;
  DLManagedTensorVersioned lent = {};
  lent.version = {1, 0};
  lent.manager_ctx = &given_back;
  lent.deleter = [](DLManagedTensorVersioned* self) { ++*static_cast<int*>(self->manager_ctx); };
  lent.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  lent.dl_tensor = {memory, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, nullptr, 0};
  uint64_t tensor = 0;
  uint64_t buffer = 0;
  ASSERT_OK(hologram_tensor_from_dlpack(&lent, &tensor));
  ASSERT_OK(hologram_tensor_as_buffer(tensor, &buffer));
  EXPECT_OK(hologram_tensor_cleanup(tensor));
  const Buffer c(ex, 4);
  EXPECT_OK(hologram_vector_add_f32(ex, buffer, buffer, c, 4));
  EXPECT_EQ(c.values(), (std::vector<float>{2, 4, 6, 8}));
  const std::string refusal =
      "the memory is lent read-only and would be written; copy it to a buffer first";
  EXPECT_REFUSED(hologram_vector_add_f32(ex, c, c, buffer, 4), kBad,
                 "vector_add_f32: c: " + refusal);
  EXPECT_REFUSED(hologram_buffer_fill(ex, buffer, 0, 4), kBad, "buffer_fill: buf: " + refusal);
  EXPECT_REFUSED(set_json(ex, buffer, "[1]"), kBad, "buffer_copy_from_slice: buf: " + refusal);
  EXPECT_REFUSED(hologram_softmax_f32(ex, c, buffer, 4), kBad, "softmax_f32: y: " + refusal);
  EXPECT_REFUSED(hologram_reduce_sum_f32(ex, c, buffer, 4), kBad, "reduce_sum_f32: y: " + refusal);
  EXPECT_REFUSED(hologram_mse_loss_f32(ex, c, c, buffer, 4, nullptr), kBad,
                 "mse_loss_f32: loss: " + refusal);
  EXPECT_REFUSED(hologram_gemm_f32(ex, c, c, buffer, 2, 2, 2), kBad, "gemm_f32: c: " + refusal);
  void* open = nullptr;
  EXPECT_REFUSED(hologram_buffer_as_mut_ptr(ex, buffer, &open), kBad,
                 "buffer_as_mut_ptr: buf: " + refusal);
  EXPECT_EQ(given_back, 0);
  EXPECT_OK(hologram_buffer_cleanup(buffer));
  EXPECT_EQ(given_back, 1);
}

}  // namespace
}  // namespace hologram::capi_test
