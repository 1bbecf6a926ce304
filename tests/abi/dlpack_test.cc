// SPDX-License-Identifier: MIT
// Tensors lent and borrowed by DLPack: layout, lifetimes, and every field that may be wrong.
#include "hologram/dlpack.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "hologram/memory.h"
#include "hologram/recorder.h"
#include "tests/cpp/runtime/support.h"

namespace hologram {
namespace {

// A lender: a descriptor over memory of the test, which counts how often it is given back.
struct Lender {
  std::vector<float> memory = std::vector<float>(24);
  std::vector<int64_t> shape = {2, 3};
  std::vector<int64_t> strides = {3, 1};
  DLManagedTensorVersioned managed = {};
  int given_back = 0;

  Lender() {
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
    managed.version = {1, 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) {
      ++static_cast<Lender*>(self->manager_ctx)->given_back;
    };
    managed.dl_tensor = {memory.data(), {kDLCPU, 0},    2, {kDLFloat, 32, 1},
                         shape.data(),  strides.data(), 0};
  }
  Lender(const Lender&) = delete;
};

float at(const Tensor& t, std::initializer_list<int64_t> index) {
  int64_t place = 0;
  int d = 0;
  for (const int64_t i : index) place += i * t.stride(d++);
  return static_cast<const float*>(t.data())[place];
}

TEST(Dlpack, BorrowsWithoutACopyAndGivesBackOnce) {
  Lender lender;
  {
    const Tensor tensor = from_dlpack(&lender.managed);
    EXPECT_EQ(tensor.data(), lender.memory.data());
    EXPECT_EQ(tensor.buffer()->pool(), PoolKind::kForeign);
    EXPECT_EQ(at(tensor, {1, 2}), 5.0f);
    const Tensor view = tensor.select(0, 1);
    EXPECT_EQ(view.data(), lender.memory.data() + 3);
    EXPECT_EQ(lender.given_back, 0);
  }
  EXPECT_EQ(lender.given_back, 1);
}

TEST(Dlpack, AMissingDeleterIsNone) {
  Lender lender;
  lender.managed.deleter = nullptr;
  EXPECT_EQ(at(from_dlpack(&lender.managed), {0, 1}), 1.0f);
}

TEST(Dlpack, ReadsStridesOfEitherSignAndOffsets) {
  Lender lender;
  lender.strides = {-6, 2};
  lender.managed.dl_tensor.byte_offset = 6 * sizeof(float);
  const Tensor tensor = from_dlpack(&lender.managed);
  EXPECT_EQ(at(tensor, {0, 0}), 6.0f);
  EXPECT_EQ(at(tensor, {0, 2}), 10.0f);
  EXPECT_EQ(at(tensor, {1, 0}), 0.0f);
  EXPECT_EQ(at(tensor, {1, 2}), 4.0f);
  EXPECT_EQ(tensor.buffer()->data(), lender.memory.data());
  EXPECT_EQ(tensor.buffer()->nbytes(), 11 * sizeof(float));
}

TEST(Dlpack, NullStridesAreRowMajorAndRepeatedElementsArePossible) {
  Lender lender;
  lender.managed.dl_tensor.strides = nullptr;
  EXPECT_EQ(from_dlpack(&lender.managed).strides(), (Shape{3, 1}));
  Lender repeated;
  repeated.strides = {0, 1};
  const Tensor tensor = from_dlpack(&repeated.managed);
  EXPECT_EQ(at(tensor, {1, 2}), 2.0f);
  EXPECT_EQ(tensor.buffer()->nbytes(), 3 * sizeof(float));
}

TEST(Dlpack, WildStridesOfDimensionsThatDoNotStepAreLeftOut) {
  Lender lender;
  lender.shape = {1, 3};
  lender.strides = {INT64_MAX, 1};
  const Tensor tensor = from_dlpack(&lender.managed);
  EXPECT_EQ(tensor.strides(), (Shape{3, 1}));
  EXPECT_EQ(at(tensor, {0, 2}), 2.0f);
}

TEST(Dlpack, TensorsWithoutElementsNeedNoMemoryAndAreGivenBack) {
  for (void* data : {static_cast<void*>(nullptr), reinterpret_cast<void*>(uintptr_t{4096})}) {
    Lender lender;
    lender.shape = {0, INT64_MAX};
    lender.strides = {INT64_MAX, INT64_MIN};
    lender.managed.dl_tensor.data = data;
    EXPECT_EQ(from_dlpack(&lender.managed).numel(), 0);
    EXPECT_EQ(lender.given_back, 1);
  }
}

TEST(Dlpack, AScalarHasNoDimensionsAndMayHaveNoArrays) {
  Lender lender;
  lender.managed.dl_tensor.ndim = 0;
  lender.managed.dl_tensor.shape = nullptr;
  lender.managed.dl_tensor.strides = nullptr;
  const Tensor tensor = from_dlpack(&lender.managed);
  EXPECT_EQ(tensor.ndim(), 0);
  EXPECT_EQ(tensor.numel(), 1);
}

TEST(Dlpack, RefusesWhatIsWrongAndLeavesItToTheCaller) {
  struct Case {
    const char* text;
    ErrorKind kind;
    std::function<void(Lender&, DLTensor&)> break_it;
  };
  const ErrorKind bad = ErrorKind::kInvalidArgument;
  const Case cases[] = {
      {"ndim is -1", bad, [](Lender&, DLTensor& t) { t.ndim = -1; }},
      {"ndim is 65", bad, [](Lender&, DLTensor& t) { t.ndim = 65; }},
      {"ndim is 2147483647", bad, [](Lender&, DLTensor& t) { t.ndim = INT32_MAX; }},
      {"shape is null", bad, [](Lender&, DLTensor& t) { t.shape = nullptr; }},
      {"shape[1] is -3", bad, [](Lender& l, DLTensor&) { l.shape[1] = -3; }},
      {"more elements than 2^63", bad,
       [](Lender& l, DLTensor&) {
         l.shape = {INT64_MAX, INT64_MAX};
       }},
      {"strides[0] is 9223372036854775807", bad,
       [](Lender& l, DLTensor&) { l.strides[0] = INT64_MAX; }},
      {"strides[1] is -9223372036854775808", bad,
       [](Lender& l, DLTensor&) { l.strides[1] = INT64_MIN; }},
      {"strides and byte_offset reach beyond", bad,
       [](Lender& l, DLTensor&) { l.strides[0] = INT64_MAX / 4; }},
      {"strides and byte_offset reach beyond", bad,
       [](Lender& l, DLTensor&) { l.strides[0] = INT64_MIN / 8; }},
      {"strides and byte_offset reach beyond", bad,
       [](Lender& l, DLTensor& t) {
         l.shape = {INT64_C(1) << 30, INT64_C(1) << 32};
         t.strides = nullptr;
       }},
      {"byte_offset 18446744073709551612", bad,
       [](Lender&, DLTensor& t) { t.byte_offset = uint64_t{0} - 4; }},
      {"data is null", bad, [](Lender&, DLTensor& t) { t.data = nullptr; }},
      {"not aligned to 4 bytes, as float32", bad, [](Lender&, DLTensor& t) { t.byte_offset = 2; }},
      {"dtype (code 2, 32 bits, 4 lanes)", ErrorKind::kTypeMismatch,
       [](Lender&, DLTensor& t) { t.dtype.lanes = 4; }},
      {"dtype (code 1, 128 bits, 1 lanes)", ErrorKind::kTypeMismatch,
       [](Lender&, DLTensor& t) {
         t.dtype = {kDLUInt, 128, 1};
       }},
      {"dtype (code 200, 32 bits", ErrorKind::kTypeMismatch,
       [](Lender&, DLTensor& t) { t.dtype.code = 200; }},
      {"dtype (code 2, 0 bits", ErrorKind::kTypeMismatch,
       [](Lender&, DLTensor& t) { t.dtype.bits = 0; }},
      {"device type 2 ", ErrorKind::kNotSupported,
       [](Lender&, DLTensor& t) { t.device.device_type = kDLCUDA; }},
      {"device type -7 ", ErrorKind::kNotSupported,
       [](Lender&, DLTensor& t) { t.device.device_type = static_cast<DLDeviceType>(-7); }},
      {"layout version 2.5", ErrorKind::kNotSupported,
       [](Lender& l, DLTensor&) {
         l.managed.version = {2, 5};
       }},
      {"read-only", bad,
       [](Lender& l, DLTensor&) { l.managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY; }},
  };
  for (const Case& c : cases) {
    Lender lender;
    c.break_it(lender, lender.managed.dl_tensor);
    EXPECT_ERROR(from_dlpack(&lender.managed), c.kind, c.text);
    EXPECT_EQ(lender.given_back, 0) << c.text;
  }
  EXPECT_ERROR(from_dlpack(static_cast<DLManagedTensor*>(nullptr)), bad, "descriptor is null");
  EXPECT_ERROR(from_dlpack(static_cast<DLManagedTensorVersioned*>(nullptr)), bad,
               "descriptor is null");
}

TEST(Dlpack, ReadOnlyMemoryIsTakenByThoseWhoAsk) {
  Lender lender;
  lender.managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY;
  bool read_only = false;
  EXPECT_EQ(from_dlpack(&lender.managed, &read_only).numel(), 6);
  EXPECT_TRUE(read_only);
  Lender open;
  EXPECT_EQ(from_dlpack(&open.managed, &read_only).numel(), 6);
  EXPECT_FALSE(read_only);
}

TEST(Dlpack, EveryDtypeGoesOutAndComesBack) {
  for (int d = 0; d < kStoredDtypeCount; ++d) {
    const auto dtype = static_cast<Dtype>(d);
    const Tensor tensor(allocate(12 * itemsize(dtype)), Shape{3, 4}, dtype);
    DLManagedTensorVersioned* versioned = to_dlpack(tensor, DLPACK_FLAG_BITMASK_READ_ONLY);
    EXPECT_EQ(versioned->version.major, 1U);
    EXPECT_EQ(versioned->flags, DLPACK_FLAG_BITMASK_READ_ONLY);
    EXPECT_EQ(versioned->dl_tensor.device.device_type, kDLCPU);
    EXPECT_EQ(versioned->dl_tensor.dtype.bits, 8 * itemsize(dtype));
    bool read_only = false;
    const Tensor back = from_dlpack(versioned, &read_only);
    EXPECT_TRUE(read_only);
    const Tensor old = from_dlpack(to_dlpack_unversioned(tensor.transpose(0, 1)));
    for (const Tensor& t : {back, old}) {
      EXPECT_EQ(t.dtype(), dtype);
      EXPECT_EQ(t.data(), tensor.data());
    }
    EXPECT_EQ(back.shape(), (Shape{3, 4}));
    EXPECT_EQ(old.shape(), (Shape{4, 3}));
    EXPECT_EQ(old.strides(), (Shape{1, 4}));
  }
}

TEST(Dlpack, ALentBufferLivesUntilItIsGivenBack) {
  auto tensor = std::make_unique<Tensor>(allocate(64), Shape{16}, Dtype::kFloat32);
  Buffer* buffer = tensor->buffer().get();
  DLManagedTensor* first = to_dlpack_unversioned(*tensor);
  DLManagedTensor* second = to_dlpack_unversioned(tensor->slice(0, 4, 8));
  EXPECT_EQ(second->dl_tensor.data, static_cast<char*>(first->dl_tensor.data) + 16);
  EXPECT_EQ(buffer->use_count(), 3U);
  tensor.reset();
  std::thread([&] { first->deleter(first); }).join();
  EXPECT_EQ(buffer->use_count(), 1U);
  static_cast<float*>(second->dl_tensor.data)[0] = 1.0f;
  second->deleter(second);
}

TEST(Dlpack, ANothingIsLentToo) {
  DLManagedTensorVersioned* managed = to_dlpack(Tensor());
  EXPECT_EQ(managed->dl_tensor.ndim, 1);
  EXPECT_EQ(managed->dl_tensor.shape[0], 0);
  EXPECT_EQ(managed->dl_tensor.data, nullptr);
  managed->deleter(managed);
}

TEST(Dlpack, RecordedWorkIsDoneBeforeOthersLook) {
  if (!is_deferring()) GTEST_SKIP() << "nothing is recorded";
  const Tensor x(allocate(64), Shape{16}, Dtype::kFloat32);
  const auto y = BufferRef::adopt(allocate_deferred(cpu(), 64));
  for (int i = 0; i < 16; ++i) x.buffer()->data_as<float>()[i] = 3.0f;
  const RecordOperand operands[] = {{y.get()}, {x.buffer().get()}};
  ASSERT_TRUE(record_flat(OpId::square, Dtype::kFloat32, operands, 1, 16));
  DLManagedTensor* managed = to_dlpack_unversioned(Tensor(y, Shape{16}, Dtype::kFloat32));
  EXPECT_EQ(static_cast<float*>(managed->dl_tensor.data)[15], 9.0f);
  EXPECT_FALSE(record_flat(OpId::square, Dtype::kFloat32, operands, 1, 16));
  managed->deleter(managed);
  EXPECT_TRUE(record_flat(OpId::square, Dtype::kFloat32, operands, 1, 16)) << "they have let go";
  Lender lender;
  const Tensor borrowed = from_dlpack(&lender.managed);
  const RecordOperand others[] = {{x.buffer().get()}, {borrowed.buffer().get()}};
  EXPECT_FALSE(record_flat(OpId::square, Dtype::kFloat32, others, 1, 6));
}

}  // namespace
}  // namespace hologram
