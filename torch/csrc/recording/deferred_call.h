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
    const c10::TensorImpl* impl = t.unsafeGetTensorImpl();
    if (C10_LIKELY(impl->is_contiguous())) return dense(t, impl->sizes(), access);
    const c10::IntArrayRef strides = impl->strides();
    uint64_t* word = start_view(impl, impl->sizes(), strides.size());
    for (const int64_t stride : strides) *word++ = static_cast<uint64_t>(stride);
    memory(t, access);
  }
  void view(const std::optional<at::Tensor>& t, Access access) {
    t.has_value() ? view(*t, access) : absent_view();
  }

  // A contiguous operand, also under other sizes of as many elements.
  void dense(const at::Tensor& t, c10::IntArrayRef sizes, Access access) {
    c10::TensorImpl* impl = t.unsafeGetTensorImpl();
    start_view(impl, sizes, 0);
    operands_.push_back({impl, access});
    if (C10_LIKELY(deferring_)) add_recorded(impl, access, true);
  }

  // A tensor of a list, without its sizes; undefined: absent.
  void memory(const at::Tensor& t, Access access) {
    c10::TensorImpl* impl = t.defined() ? t.unsafeGetTensorImpl() : nullptr;
    operands_.push_back({impl, access});
    if (C10_LIKELY(deferring_)) {
      add_recorded(impl, access, impl != nullptr && impl->is_contiguous());
    }
  }
  void memory(const std::optional<at::Tensor>& t, Access access) {
    t.has_value() ? memory(*t, access) : absent();
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
      // The kernel finds what is out of range where a graph is replayed.
      if (!hologram::is_capturing_graph() && !valid()) return false;
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
  void absent() {
    operands_.push_back({nullptr, Access::reads});
    recorded_.emplace_back();
  }
  void absent_view() {
    words_.push_back(0);
    absent();
  }
  // Writes the head and the sizes of a view; the caller writes `strides` words behind them.
  uint64_t* start_view(const c10::TensorImpl* t, c10::IntArrayRef sizes, size_t strides) {
    const size_t first = words_.size();
    const size_t end = first + 1 + sizes.size() + strides;
    if (C10_UNLIKELY(end > words_.capacity())) words_.reserve(end);
    words_.set_size(end);
    uint64_t* word = words_.data() + first;
    *word++ =
        hologram::view_head(static_cast<hologram::Dtype>(dtype_code(t->dtype().toScalarType())),
                            sizes.size(), strides == 0);
    for (const int64_t size : sizes) *word++ = static_cast<uint64_t>(size);
    return word;
  }
  // Null is an operand that is not there. Ends deferring_ where the tensor's ops may not wait.
  void add_recorded(const c10::TensorImpl* t, Access access, bool contiguous);
  bool record(uint16_t kind, double cost);
  void run_now(uint16_t kind);

  bool deferring_;  // and every operand so far may wait
  c10::SmallVector<Operand, 12> operands_;
  c10::SmallVector<hologram::CallOperand, 12> recorded_;  // those while deferring_
  c10::SmallVector<uint64_t, 64> words_;
  c10::SmallVector<uint64_t, 12> numbers_;
};

}  // namespace hologram_torch
