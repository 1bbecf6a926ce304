// SPDX-License-Identifier: MIT
// Rows of the op table on small tensors, at their call.
#pragma once

#include <cstring>
#include <span>
#include <string_view>

#include "hologram/elementwise.h"
#include "src/array/array.h"
#include "src/array/at_call.h"
#include "src/array/small_copy.h"
#include "src/array/types.h"

namespace hologram::array {

// The row computes in this dtype, of operands and result, with nothing to do before or after.
inline bool computes_in(const OpInfo& info, Dtype dtype, Rules rules) {
  if (is_complex(dtype)) return elementwise_kernel(info.id, dtype) != nullptr;
  return dtype != Dtype::kBool && !is_stored_only(dtype) && compute_dtype(dtype) == dtype &&
         info.supports(dtype) && !(info.id == OpId::remainder && rules == Rules::numpy);
}

// Small operands that have their values, of one dtype that the row computes in: a tensor, and
// numbers or tensors that broadcast to its shape. The kernel that plans call runs on them at once.
// It reads and writes dense rows: what has other strides is copied to and from such a row.
class SmallRow {
 public:
  // False where it is another case.
  bool settle(const OpInfo& info, std::span<const Operand> operands, Rules rules) {
    if (operands.size() != info.arity || info.arity > 2) return false;
    for (const Operand& operand : operands) {
      if (operand.is_tensor() && !is_small(operand.tensor())) return false;
    }
    for (const Operand& operand : operands) {
      if (!operand.is_tensor()) continue;
      const Tensor& t = operand.tensor();
      if (!t.buffer() || !is_at_hand(t)) return false;
      if (whole_ != nullptr &&
          (t.dtype() != whole_->dtype() || &device_of(t) != &device_of(*whole_))) {
        return false;
      }
      const bool is_larger = whole_ == nullptr || t.ndim() > whole_->ndim() ||
                             (t.ndim() == whole_->ndim() && t.numel() > whole_->numel());
      if (is_larger) whole_ = &t;
    }
    if (whole_ == nullptr || whole_->numel() == 0) return false;
    dtype_ = whole_->dtype();
    if (!computes_in(info, dtype_, rules)) return false;
    result_ = info.result(dtype_);
    Form form = Form::kVectors;
    for (size_t k = 0; k < operands.size(); ++k) {
      if (!put(operands[k], k)) return false;
      if (is_one_[k] && whole_->numel() != 1) {
        form = k == 0 ? Form::kFirstScalar : Form::kTrailingScalars;
      }
    }
    kernel_ = elementwise_kernel(info.id, dtype_, form);
    return kernel_ != nullptr;
  }

  // Tells traces that the row runs at its call.
  void note(std::string_view name) const { note_small(name, *whole_); }

  Tensor apply() const {
    Tensor out = with_memory(whole_->shape(), whole_->numel(), result_, device_of(*whole_));
    kernel_(in_, out.data(), whole_->numel());
    return out;
  }
  // False, with nothing written, where out is of another kind.
  bool apply_into(std::span<const Operand> operands, const Tensor& out) const {
    const auto bytes = static_cast<int64_t>(out.nbytes());
    if (out.dtype() != result_ || out.shape() != whole_->shape() || !is_immediate(bytes) ||
        !is_settled(*out.buffer()) || &device_of(out) != &device_of(*whole_)) {
      return false;
    }
    char* const to = static_cast<char*>(out.data());
    bool is_apart = out.is_contiguous();
    for (size_t k = 0; k < operands.size() && is_apart; ++k) {
      if (!operands[k].is_tensor()) continue;
      const bool is_same = in_[k] == to && !is_one_[k];
      is_apart = is_same || in_[k] == rooms_[k] || !may_overlap(out, operands[k].tensor());
    }
    if (is_apart) {
      kernel_(in_, to, whole_->numel());
      return true;
    }
    if (bytes > kRoom || out.may_overlap_itself()) return false;
    alignas(64) char room[kRoom];
    kernel_(in_, room, whole_->numel());
    if (out.is_contiguous()) {
      std::memcpy(to, room, static_cast<size_t>(bytes));
    } else {
      copy_small(itemsize(result_), out.shape(), room, contiguous_strides(out.shape()).data(), to,
                 out.strides().data());
    }
    return true;
  }

 private:
  bool put(const Operand& operand, size_t k) {
    if (operand.is_tensor()) {
      const Tensor& t = operand.tensor();
      in_[k] = t.data();
      is_one_[k] = t.numel() == 1 && whole_->numel() != 1;
      if (is_one_[k] || t.numel() == 1) return true;
      if (t.is_contiguous() && t.shape() == whole_->shape()) return true;
      return put_dense(t, k);
    }
    const Scalar& number = operand.number();
    if (is_number_kind_above(number, dtype_)) return false;
    is_one_[k] = true;
    in_[k] = numbers_[k];
    convert(number.dtype, &number.f64, dtype_, numbers_[k], 1);
    return true;
  }

  bool put_dense(const Tensor& t, size_t k) {
    const Shape& shape = whole_->shape();
    const size_t item = itemsize(t.dtype());
    if (whole_->numel() * static_cast<int64_t>(item) > kRoom) return false;
    if (t.shape() != shape) {
      Shape reached = shape;
      if (!broadcast_to(t.shape(), reached) || reached != shape) return false;
    }
    copy_small(item, shape, t.data(), strides_over(t, shape).data(), rooms_[k],
               contiguous_strides(shape).data());
    in_[k] = rooms_[k];
    return true;
  }

  static constexpr int64_t kRoom = 4096;  // bytes

  const Tensor* whole_ = nullptr;  // the operand that has the result's shape
  Dtype dtype_ = Dtype::kBool, result_ = Dtype::kBool;
  ElementwiseKernel kernel_ = nullptr;
  const void* in_[2] = {};
  bool is_one_[2] = {};  // one element beside many
  alignas(16) char numbers_[2][16] = {};
  alignas(64) char rooms_[2][kRoom];  // dense copies, not initialized
};

}  // namespace hologram::array
