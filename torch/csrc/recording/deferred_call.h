// SPDX-License-Identifier: MIT
// Calls: ops that run as one piece of code over whole tensors, at once or when their circuit runs.
//
// An op tells a Call what it touches and what decides its work, piece by piece; its function takes
// the pieces from a CallFrame in the same order. There is one function for both ways: recorded, it
// runs when the circuit does, on addresses bound then; where recording is not possible (execution
// is eager, memory of others, addresses handed out) it runs before run() returns.
//
// The function depends on nothing but its frame. It runs on any thread and without the GIL, so what
// it could refuse has to be refused before.
#pragma once

#include <bit>

#include "hologram/call_frame.h"
#include "hologram/error.h"
#include "recording/native_common.h"
#include "recording/record.h"

namespace hologram_torch {

using hologram::Access;
using hologram::CallFrame;
using hologram::if_given;

// One call being made. Tensors are borrowed until run() returns.
class Call {
 public:
  Call() : deferring_(is_deferring()) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // An operand with its dtype (which has a code), sizes and strides; undefined: absent.
  void view(const at::Tensor& t, Access access) {
    if (!t.defined()) return absent_view();
    const c10::IntArrayRef sizes = t.sizes(), strides = t.strides();
    words_.push_back(hologram::view_word(static_cast<hologram::Dtype>(dtype_code(t.scalar_type())),
                                         sizes.size()));
    words_.append(sizes.begin(), sizes.end());
    words_.append(strides.begin(), strides.end());
    memory(t, access);
  }
  void view(const std::optional<at::Tensor>& t, Access access) {
    t.has_value() ? view(*t, access) : absent_view();
  }

  // An operand of which the function knows what it needs to from values; undefined: absent.
  void memory(const at::Tensor& t, Access access) {
    const c10::TensorImpl* impl = t.defined() ? t.unsafeGetTensorImpl() : nullptr;
    operands_.push_back({const_cast<c10::TensorImpl*>(impl), access});
    if (deferring_ && impl != nullptr && impl->numel() != 0 && recordable_buffer(impl) == nullptr) {
      deferring_ = false;
    }
  }
  void memory(const std::optional<at::Tensor>& t, Access access) {
    t.has_value() ? memory(*t, access) : operands_.push_back({nullptr, access});
  }

  // What decides which work is done: equal values, operands of equal layout, one plan.
  template <class T>
  void value(const T& value) {
    const auto words = hologram::words_of(value);
    words_.append(words.begin(), words.end());
  }
  // What may differ from one call to the next: a learning rate, a place in a random stream.
  template <class T>
  void number(T value) {
    static_assert(sizeof(T) == 8);
    numbers_.push_back(std::bit_cast<uint64_t>(value));
  }

  // Whether run() is going to record. What the function refuses by an error must then be refused
  // before; see also run_or_refuse().
  bool records() const { return deferring_; }

  // cost: rough nanoseconds on one thread.
  template <Name kName, auto* kFunction>
  void run(double cost) {
    static const uint16_t kind = hologram::register_call({kName.text, [](const auto& arguments) {
                                                            CallFrame frame(arguments);
                                                            kFunction(frame);
                                                          }});
    if (deferring_ && record(kind, cost)) return;
    run_now(kFunction);
  }

  // For functions that may find an index out of range (ErrorKind::kIndex): false then. A call that
  // is recorded asks `valid` at once.
  template <Name kName, auto* kFunction, class Valid>
  bool run_or_refuse(double cost, Valid&& valid) {
    if (records()) {
      if (!valid()) return false;
      run<kName, kFunction>(cost);
      return true;
    }
    try {
      run_now(kFunction);
      return true;
    } catch (const hologram::Error& error) {
      if (error.kind() != hologram::ErrorKind::kIndex) throw;
      return false;
    }
  }

 private:
  struct Operand {
    c10::TensorImpl* tensor;  // null: absent
    Access access;
  };

  void absent_view() {
    words_.push_back(0);
    operands_.push_back({nullptr, Access::reads});
  }
  bool record(uint16_t kind, double cost);
  void run_now(void (*function)(CallFrame&));

  bool deferring_;  // and every operand so far may wait
  c10::SmallVector<Operand, 12> operands_;
  c10::SmallVector<uint64_t, 64> words_;
  c10::SmallVector<uint64_t, 12> numbers_;
};

}  // namespace hologram_torch
