// SPDX-License-Identifier: MIT
// Calls over tensors: described once, recorded where that is possible, else run at once.
#pragma once

#include <bit>
#include <vector>

#include "hologram/call_frame.h"
#include "src/array/array.h"

namespace hologram::array {

// One call being made: operands (borrowed until run() returns), values and numbers are given in the
// order in which its function takes them from a CallFrame. What the function could refuse has to be
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
  template <class T>
  void value(const T& value) {
    for (const uint64_t word : words_of(value)) words_.push_back(word);
  }
  template <class T>
  void number(T value) {
    static_assert(sizeof(T) == 8);
    numbers_.push_back(std::bit_cast<uint64_t>(value));
  }

  // cost: rough nanoseconds on one thread.
  template <auto* kFunction>
  void run(const char* name, double cost) {
    static const uint16_t kind = register_call({name, [](const CallArguments& arguments) {
                                                  CallFrame frame(arguments);
                                                  kFunction(frame);
                                                }});
    if (record_call(kind, operands_, words_, numbers_, cost)) return;
    run_now(kFunction);
  }

 private:
  void run_now(void (*function)(CallFrame&));

  std::vector<CallOperand> operands_;
  std::vector<uint64_t> words_;
  std::vector<uint64_t> numbers_;
};

}  // namespace hologram::array
