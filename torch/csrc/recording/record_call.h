// SPDX-License-Identifier: MIT
// From tensors to the library's calls (hologram/call_structs.h), recorded or run at once.
//
//   record(calls::Softmax<Arg>{.input = self, .dim = dim, .function = 0, .out = out});
//
// Recorded, the call's kernel runs when the circuit does, on addresses bound then; where recording
// is not possible (execution is eager, memory of others, addresses handed out) it runs before
// record() returns. What the kernel could refuse has to be refused before.
#pragma once

#include <optional>
#include <utility>

#include "hologram/call_fields.h"
#include "hologram/call_ops.h"
#include "hologram/call_structs.h"
#include "hologram/error.h"
#include "recording/native_common.h"
#include "recording/record.h"

namespace hologram_torch {

using hologram::Access;
namespace calls = hologram::calls;

// A tensor as an operand of a call, borrowed until record() returns. Undefined tensors are operands
// that are not given. An input is named as it is. A result is named by a variable that may be
// changed, or by written(): an input in its place does not compile.
struct Arg {
  c10::TensorImpl* tensor = nullptr;
  Access access = Access::reads;
  // Under other sizes than its own, one element after the other; without a tensor, of this dtype.
  bool is_reshaped = false;
  hologram::Dtype dtype = hologram::Dtype::kFloat32;
  c10::IntArrayRef sizes;

  Arg() = default;
  Arg(const at::Tensor& t, Access given)
      : tensor(t.defined() ? t.unsafeGetTensorImpl() : nullptr), access(given) {}

  template <Access kAccess>
  requires(kAccess == Access::reads) static Arg of(const at::Tensor& t) { return {t, kAccess}; }
  template <Access kAccess>
  requires(kAccess == Access::reads) static Arg of(const std::optional<at::Tensor>& t) {
    return t.has_value() ? Arg(*t, kAccess) : Arg();
  }
  template <Access kAccess>
  requires(kAccess != Access::reads) static Arg of(at::Tensor& t) { return {t, kAccess}; }
  // Made by one of the functions below: what is only read is no result, and the other way round.
  template <Access kAccess>
  static Arg of(const Arg& arg) {
    TORCH_INTERNAL_ASSERT(kAccess == Access::updates || !arg.is_given() ||
                          (kAccess == Access::reads) == (arg.access == Access::reads));
    return arg;
  }

  bool is_given() const { return tensor != nullptr; }
  c10::IntArrayRef shape() const {
    return is_reshaped || tensor == nullptr ? sizes : tensor->sizes();
  }
  int64_t count() const { return tensor != nullptr ? tensor->numel() : 0; }
  int dims() const { return static_cast<int>(shape().size()); }
  int64_t extent(int dim) const { return dim < dims() ? shape()[static_cast<size_t>(dim)] : 1; }
  size_t item() const { return tensor != nullptr ? tensor->itemsize() : 0; }
};

// A tensor that a call writes though its name is const, as that of an op in place.
inline Arg written(const at::Tensor& t) { return {t, Access::writes}; }
inline Arg updated(const at::Tensor& t) { return {t, Access::updates}; }
// An operand that a call with these parameters only reads, though its row says that it is updated.
inline Arg only_read(const std::optional<at::Tensor>& t) { return Arg::of<Access::reads>(t); }
// A contiguous tensor, or one without gaps, as the call sees it under other sizes of as many
// elements, which are borrowed, too.
inline Arg reshaped(Arg arg, c10::IntArrayRef sizes) {
  arg.is_reshaped = true, arg.sizes = sizes;
  return arg;
}
inline Arg reshaped(const at::Tensor& t, c10::IntArrayRef sizes) {
  return reshaped(Arg(t, Access::reads), sizes);
}
// Sizes without memory.
inline Arg nothing_of(hologram::Dtype dtype, c10::IntArrayRef sizes) {
  Arg arg;
  arg.is_reshaped = true, arg.sizes = sizes, arg.dtype = dtype;
  return arg;
}

// The words, numbers and operands of one call.
class CallRecord : public hologram::CallEncoder<CallRecord, c10::SmallVector<uint64_t, 64>,
                                                c10::SmallVector<uint64_t, 12>> {
 public:
  CallRecord() = default;
  CallRecord(const CallRecord&) = delete;
  CallRecord& operator=(const CallRecord&) = delete;

  void operand(const Arg& arg) {
    if (C10_UNLIKELY(!arg.is_given() && !arg.is_reshaped)) {
      word(0);
      return add(arg, false);
    }
    const bool is_dense = arg.is_reshaped || arg.tensor->is_contiguous();
    const c10::IntArrayRef sizes = arg.shape();
    uint64_t* word = room_for(1 + (is_dense ? 1 : 2) * sizes.size());
    const auto dtype =
        arg.is_given()
            ? static_cast<hologram::Dtype>(dtype_code(arg.tensor->dtype().toScalarType()))
            : arg.dtype;
    *word++ = hologram::view_head(dtype, sizes.size(), is_dense);
    for (const int64_t size : sizes) *word++ = static_cast<uint64_t>(size);
    if (!is_dense) {
      for (const int64_t stride : arg.tensor->strides()) *word++ = static_cast<uint64_t>(stride);
    }
    add(arg, is_dense);
  }
  void memory(const Arg& arg) { add(arg, arg.is_given() && arg.tensor->is_contiguous()); }

  // Whether the call can be recorded: execution is deferred, or the host cannot run it where its
  // operands are; and every operand may wait.
  bool can_wait() const { return may_wait_ && (is_deferring() || !is_on_host()); }
  bool is_on_host() const { return is_host_index(std::max<c10::DeviceIndex>(device_, 0)); }
  // False where it is not. cost: rough nanoseconds on one thread.
  bool record(hologram::CallNumber number, double cost);
  void run_now(hologram::CallNumber number);

 private:
  struct Memory {
    c10::TensorImpl* tensor;  // null: none
    Access access;
  };

  uint64_t* room_for(size_t count) {
    const size_t first = words_.size();
    if (C10_UNLIKELY(first + count > words_.capacity())) words_.reserve(2 * (first + count));
    words_.set_size(first + count);
    return words_.data() + first;
  }
  void add(const Arg& arg, bool is_dense) {
    args_.push_back({arg.tensor, arg.access});
    add_recorded(arg, is_dense);
  }
  // Ends may_wait_ where the tensor's ops may not wait.
  void add_recorded(const Arg& arg, bool is_dense);

  bool may_wait_ = true;
  c10::DeviceIndex device_ = -1;  // of the operands, -1: none so far
  c10::SmallVector<Memory, 12> args_;
  c10::SmallVector<hologram::CallOperand, 12> recorded_;
};

template <class Call>
void record(const Call& call) {
  CallRecord record;
  Call::each(call, record);
  if (record.can_wait() && record.record(Call::kNumber, call.cost())) return;
  record.run_now(Call::kNumber);
}

// For kernels that may find an index out of range (ErrorKind::kIndex): false then. A call that is
// recorded asks `valid` at once. Where a graph is replayed, and on devices with memory of their
// own, the kernel finds what is out of range, and raises when the circuit runs.
template <class Call, class Valid>
bool record_or_refuse(const Call& call, Valid&& valid) {
  CallRecord record;
  Call::each(call, record);
  if (record.can_wait()) {
    if (!hologram::is_capturing_graph() && record.is_on_host() && !valid()) return false;
    if (!record.record(Call::kNumber, call.cost())) record.run_now(Call::kNumber);
    return true;
  }
  try {
    record.run_now(Call::kNumber);
    return true;
  } catch (const hologram::Error& error) {
    if (error.kind() != hologram::ErrorKind::kIndex) throw;
    return false;
  }
}

}  // namespace hologram_torch
