// SPDX-License-Identifier: MIT
// From tensors to the library's calls, recorded or run at once.
//
// An op names the operands and parameters of a call in the order of its row (hologram/call_ops.h).
// Recorded, the call's kernel runs when the circuit does, on addresses bound then; where recording
// is not possible (execution is eager, memory of others, addresses handed out) it runs before run()
// returns. What the kernel could refuse has to be refused before.
#pragma once

#include <bit>

#include "hologram/call_frame.h"
#include "hologram/call_ops.h"
#include "hologram/error.h"
#include "recording/native_common.h"
#include "recording/record.h"

namespace hologram_torch {

using hologram::Access;

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

  // A contiguous operand under other sizes of as many elements.
  void dense(const at::Tensor& t, c10::IntArrayRef sizes, Access access) {
    words_.push_back(hologram::view_word(static_cast<hologram::Dtype>(dtype_code(t.scalar_type())),
                                         sizes.size()));
    words_.append(sizes.begin(), sizes.end());
    const size_t first = words_.size();
    words_.resize(first + sizes.size());
    int64_t step = 1;
    for (size_t d = sizes.size(); d-- > 0;) {
      words_[first + d] = static_cast<uint64_t>(step);
      step *= sizes[d];
    }
    memory(t, access);
  }

  // A tensor of a list, without its sizes; undefined: absent.
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

  // Parameters that decide which work is done: equal ones, operands of equal layout, one plan.
  void integer(int64_t value) { words_.push_back(static_cast<uint64_t>(value)); }
  void flag(bool value) { words_.push_back(value ? 1 : 0); }
  void integers(c10::IntArrayRef values) {
    integer(static_cast<int64_t>(values.size()));
    words_.append(values.begin(), values.end());
  }
  // Those that may differ from one call to the next: a learning rate, a place in a random stream.
  template <class T>
  void number(T value) {
    static_assert(sizeof(T) == 8);
    numbers_.push_back(std::bit_cast<uint64_t>(value));
  }

  // Whether run() is going to record. What the function refuses by an error must then be refused
  // before; see also run_or_refuse().
  bool records() const { return deferring_; }

  template <Name kName>
  void run() {
    const hologram::CallOp& op = row<kName>();
    if (deferring_ && record(op.number, op.cost({op, words_.data()}))) return;
    run_now(op.number);
  }
  // For calls of lists. cost: rough nanoseconds on one thread.
  template <Name kName>
  void run(double cost) {
    const hologram::CallOp& op = row<kName>();
    if (deferring_ && record(op.number, cost)) return;
    run_now(op.number);
  }

  // For kernels that may find an index out of range (ErrorKind::kIndex): false then. A call that is
  // recorded asks `valid` at once.
  template <Name kName, class Valid>
  bool run_or_refuse(Valid&& valid) {
    if (records()) {
      if (!valid()) return false;
      run<kName>();
      return true;
    }
    try {
      run_now(row<kName>().number);
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

  template <Name kName>
  static const hologram::CallOp& row() {
    static const hologram::CallOp& op = hologram::call_op(kName.view());
    return op;
  }
  void absent_view() {
    words_.push_back(0);
    operands_.push_back({nullptr, Access::reads});
  }
  bool record(uint16_t kind, double cost);
  void run_now(uint16_t kind);

  bool deferring_;  // and every operand so far may wait
  c10::SmallVector<Operand, 12> operands_;
  c10::SmallVector<uint64_t, 64> words_;
  c10::SmallVector<uint64_t, 12> numbers_;
};

}  // namespace hologram_torch
