// SPDX-License-Identifier: MIT
// From tensors to calls (hologram/call_structs.h): recorded where that is possible, else run at
// once.
//
//   record(calls::Cumsum<Arg>{.input = in, .dim = 0, .out = out});
#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>
#include <vector>

#include "hologram/call_fields.h"
#include "hologram/call_structs.h"
#include "hologram/recorder.h"
#include "src/array/array.h"

namespace hologram::array {

// A tensor as an operand of a call, borrowed until record() returns. Null: not given.
struct Arg {
  const Tensor* tensor = nullptr;
  Access access = Access::reads;

  template <Access kAccess>
  static Arg of(const Tensor& t) {
    return {&t, kAccess};
  }
  template <Access kAccess>
  static Arg of(const Tensor* t) {
    return {t, kAccess};
  }

  int64_t count() const { return tensor != nullptr ? tensor->numel() : 0; }
  int dims() const { return tensor != nullptr ? tensor->ndim() : 0; }
  int64_t extent(int dim) const {
    return dim < dims() ? tensor->shape()[static_cast<size_t>(dim)] : 1;
  }
  size_t item() const { return tensor != nullptr ? itemsize(tensor->dtype()) : 0; }
};

// A vector whose first kRoom elements lie in the object.
template <class T, size_t kRoom>
class RoomyVector {
 public:
  RoomyVector() { items_.reserve(kRoom); }
  RoomyVector(const RoomyVector&) = delete;
  RoomyVector& operator=(const RoomyVector&) = delete;

  void push_back(const T& item) { items_.push_back(item); }
  std::span<T> items() { return items_; }
  std::span<const T> items() const { return items_; }

 private:
  alignas(T) std::byte room_[kRoom * sizeof(T)];
  std::pmr::monotonic_buffer_resource more_{room_, sizeof(room_)};
  std::pmr::vector<T> items_{&more_};
};

// The words, numbers and operands of one call.
class CallRecord
    : public CallEncoder<CallRecord, RoomyVector<uint64_t, 64>, RoomyVector<uint64_t, 8>> {
 public:
  void operand(const Arg& arg);
  void memory(const Arg& arg);

  // What the kernel could refuse has to be refused before. cost: rough nanoseconds on one thread.
  // name: the op for traces, where that is not the call's name; it lives as long as the process.
  void run(CallNumber number, double cost, const char* name = nullptr);
  // With the cost that the row says.
  void run(CallNumber number);

 private:
  bool is_immediate() const;
  void note(const char* name, bool is_small) const;

  RoomyVector<CallOperand, 8> operands_;
  int64_t read_ = 0, written_ = 0;  // bytes of the largest operand
};

template <class Call>
void record(const Call& call, const char* name = nullptr) {
  CallRecord record;
  Call::each(call, record);
  record.run(Call::kNumber, call.cost(), name);
}

}  // namespace hologram::array
