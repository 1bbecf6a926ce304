// SPDX-License-Identifier: MIT
// From tensors to calls: recorded where that is possible, else run at once.
#pragma once

#include <bit>
#include <vector>

#include "hologram/call_frame.h"
#include "hologram/call_ops.h"
#include "src/array/array.h"

namespace hologram::array {

// One call being made: operands (borrowed until run() returns), values and numbers are given in the
// order in which its kernel takes them from a CallFrame. What the kernel could refuse has to be
// refused before.
class TensorCall {
 public:
  TensorCall() = default;
  TensorCall(const TensorCall&) = delete;
  TensorCall& operator=(const TensorCall&) = delete;

  // Null: an operand that is not there.
  void view(const Tensor* t, Access access);
  void view(const Tensor& t, Access access) { view(&t, access); }
  void view(const Tensor&& t, Access access) = delete;
  // A tensor of a list, without its sizes.
  void memory(const Tensor* t, Access access);
  template <class T>
  void value(const T& value) {
    for (const uint64_t word : words_of(value)) words_.push_back(word);
  }
  void integer(int64_t value) { words_.push_back(static_cast<uint64_t>(value)); }
  void flag(bool value) { words_.push_back(value ? 1 : 0); }
  template <class T>
  void number(T value) {
    static_assert(sizeof(T) == 8);
    numbers_.push_back(std::bit_cast<uint64_t>(value));
  }

  // Runs a call of the catalogue. cost: rough nanoseconds on one thread, below 0: the row's.
  void run(const CallOp& op, double cost = -1) {
    if (cost < 0) cost = op.cost({op, words_.data()});
    if (record_call(op.number, operands_, words_, numbers_, cost)) return;
    run_now(op.number);
  }
  void run(const char* name) { run(call_op(name)); }
  // Runs a call that is this function alone. cost: rough nanoseconds on one thread.
  template <auto* kFunction>
  void run(const char* name, double cost) {
    static const uint16_t kind = register_call({name, [](const CallArguments& arguments) {
                                                  CallFrame frame(arguments);
                                                  kFunction(frame);
                                                }});
    if (record_call(kind, operands_, words_, numbers_, cost)) return;
    run_now(kind);
  }

 private:
  void run_now(uint16_t kind);

  std::vector<CallOperand> operands_;
  std::vector<uint64_t> words_;
  std::vector<uint64_t> numbers_;
};

}  // namespace hologram::array
