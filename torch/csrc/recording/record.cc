// SPDX-License-Identifier: MIT
// Hands ops on tensors to the library's recorder, or refuses them.
#include "recording/record.h"

namespace hologram_torch {
namespace {

using c10::DimVector;
using c10::IntArrayRef;
using c10::TensorImpl;
using hologram::Dtype;
using hologram::RecordOperand;

constexpr int kMaxOperands = 5;

// A number of `compute` as a record holds it: the bytes of a float, integers and bool widened.
uint64_t number_bits(Dtype compute, const char* number) {
  const auto widen = [number](auto value) {
    std::copy_n(number, sizeof value, reinterpret_cast<char*>(&value));
    return static_cast<uint64_t>(static_cast<int64_t>(value));
  };
  switch (compute) {
    case Dtype::kFloat32: {
      uint32_t bits;
      std::copy_n(number, sizeof bits, reinterpret_cast<char*>(&bits));
      return bits;
    }
    case Dtype::kBool:
    case Dtype::kUInt8:
      return widen(uint8_t{});
    case Dtype::kInt8:
      return widen(int8_t{});
    case Dtype::kInt16:
      return widen(int16_t{});
    case Dtype::kInt32:
      return widen(int32_t{});
    default:  // float64, int64
      return widen(int64_t{});
  }
}

Dtype stored_dtype(const TensorImpl* t) {
  return static_cast<Dtype>(dtype_code(t->dtype().toScalarType()));
}

// Operands, of which a call fills as many as it has: to clear them all costs as much as recording.
class Operands {
 public:
  // Each adds one, the result first; false where the tensor's ops may not wait.
  bool add(const TensorImpl* t, Dtype dtype, bool one = false, int64_t first = 0) {
    hologram::Buffer* buffer = count_ == 0 ? recordable_result(t) : recordable_buffer(t);
    if (C10_UNLIKELY(buffer == nullptr)) return false;
    new (&list()[count_++]) RecordOperand{
        buffer, (t->storage_offset() + first) * static_cast<int64_t>(t->itemsize()), dtype, one, 0};
    return true;
  }
  bool add(const TensorImpl* t) { return add(t, stored_dtype(t)); }
  // From element `first` on.
  bool add_from(const TensorImpl* t, int64_t first) {
    return add(t, stored_dtype(t), false, first);
  }
  void add_number(Dtype compute, const char* number) {
    new (&list()[count_++]) RecordOperand{nullptr, 0, compute, false, number_bits(compute, number)};
  }

  const RecordOperand* data() const { return reinterpret_cast<const RecordOperand*>(bytes_); }
  const RecordOperand& operator[](int k) const { return data()[k]; }
  // Without the result.
  int arity() const { return count_ - 1; }

 private:
  RecordOperand* list() { return reinterpret_cast<RecordOperand*>(bytes_); }

  static_assert(std::is_trivially_destructible_v<RecordOperand>);
  alignas(RecordOperand) unsigned char bytes_[kMaxOperands * sizeof(RecordOperand)];
  int count_ = 0;
};

// Recording may have to run what was recorded before.
template <class Record>
bool guarded(const TensorImpl* out, Record&& record) {
  try {
    return record();
  } catch (const std::exception& error) {
    rethrow_as_torch(error, static_cast<size_t>(out->numel()) * out->itemsize());
  }
}

// The strides with which t walks the dimensions of `shape`: 0 where it is repeated.
DimVector strides_over(const TensorImpl* t, IntArrayRef shape) {
  const IntArrayRef sizes = t->sizes(), strides = t->strides();
  DimVector result(shape.size(), 0);
  const size_t missing = shape.size() - sizes.size();
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == shape[missing + d]) result[missing + d] = strides[d];
  }
  return result;
}

}  // namespace

bool record_same_layout(hologram::OpId op, Dtype dtype, const Source* in, int arity,
                        const TensorImpl* out, Dtype out_dtype) {
  const Dtype compute = hologram::compute_dtype(dtype);
  Operands operands;
  if (!operands.add(out, out_dtype)) return false;
  for (int k = 0; k < arity; ++k) {
    if (in[k].tensor == nullptr) {
      operands.add_number(compute, in[k].number);
    } else if (!operands.add(in[k].tensor, dtype)) {
      return false;
    }
  }
  return guarded(out, [&] {
    return hologram::record_flat(op, compute, operands.data(), arity, out->numel());
  });
}

bool record_broadcast(hologram::OpId op, Dtype compute, const Source* in, int arity,
                      const TensorImpl* out) {
  Operands operands;
  if (!operands.add(out)) return false;
  const int64_t n = out->numel();
  bool flat = out->is_contiguous();
  for (int k = 0; k < arity; ++k) {
    const TensorImpl* t = in[k].tensor;
    if (t == nullptr) {
      operands.add_number(compute, in[k].number);
      continue;
    }
    const bool one = n > 1 && t->numel() == 1;
    if (!operands.add(t, stored_dtype(t), one)) return false;
    flat = flat && (one || (t->is_contiguous() && t->numel() == n));
  }
  if (flat) {
    return guarded(out,
                   [&] { return hologram::record_flat(op, compute, operands.data(), arity, n); });
  }
  const IntArrayRef shape = out->sizes();
  DimVector steps[kMaxOperands];
  const int64_t* strides[kMaxOperands];
  steps[0] = DimVector(out->strides());
  for (int k = 0; k < arity; ++k) {
    if (in[k].tensor != nullptr) {
      steps[k + 1] = strides_over(in[k].tensor, shape);
    } else {
      steps[k + 1].resize(shape.size(), 0);
    }
  }
  for (int k = 0; k <= arity; ++k) strides[k] = steps[k].data();
  return guarded(out, [&] {
    return hologram::record_strided(op, compute, operands.data(), arity,
                                    static_cast<int>(shape.size()), shape.data(), strides);
  });
}

bool record_copy_of(const TensorImpl* from, const TensorImpl* to) {
  Operands operands;
  if (!operands.add(to) || !operands.add(from)) return false;
  const IntArrayRef shape = to->sizes();
  if (same_layout(to, from)) {
    return guarded(
        to, [&] { return hologram::record_flat_copy(operands[0], operands[1], to->numel()); });
  }
  const DimVector in_strides = strides_over(from, shape);
  return guarded(to, [&] {
    return hologram::record_copy(operands[0], operands[1], static_cast<int>(shape.size()),
                                 shape.data(), to->strides().data(), in_strides.data());
  });
}

bool record_walk(const TensorImpl* from, const Walk& from_walk, const TensorImpl* to,
                 const Walk& to_walk, IntArrayRef sizes) {
  Operands operands;
  if (!operands.add_from(to, to_walk.first) || !operands.add_from(from, from_walk.first)) {
    return false;
  }
  return guarded(to, [&] {
    return hologram::record_copy(operands[0], operands[1], static_cast<int>(sizes.size()),
                                 sizes.data(), to_walk.strides.data(), from_walk.strides.data());
  });
}

bool record_fill(const char* number, const TensorImpl* to) {
  Operands operands;
  if (!operands.add(to)) return false;
  operands.add_number(hologram::compute_dtype(operands[0].dtype), number);
  const IntArrayRef shape = to->sizes();
  if (to->is_non_overlapping_and_dense()) {
    return guarded(
        to, [&] { return hologram::record_flat_copy(operands[0], operands[1], to->numel()); });
  }
  const DimVector none(shape.size(), 0);
  return guarded(to, [&] {
    return hologram::record_copy(operands[0], operands[1], static_cast<int>(shape.size()),
                                 shape.data(), to->strides().data(), none.data());
  });
}

bool record_reduction(hologram::Reduction op, const TensorImpl* in, int reduced,
                      const TensorImpl* out, double parameter) {
  if (!in->is_contiguous() || !out->is_contiguous()) return false;
  Operands operands;
  if (!operands.add(out) || !operands.add(in)) return false;
  const IntArrayRef sizes = in->sizes();
  int64_t cols = 1;
  for (size_t d = sizes.size() - static_cast<size_t>(reduced); d < sizes.size(); ++d) {
    cols *= sizes[d];
  }
  const int64_t rows = out->numel();
  return guarded(out, [&] {
    return hologram::record_reduction(op, operands[0], operands[1], rows, cols, parameter);
  });
}

bool record_row_function(int which, int64_t dim, std::initializer_list<const TensorImpl*> list) {
  const TensorImpl* out = *list.begin();
  const int64_t ndim = out->dim();
  if (ndim == 0 || (dim != -1 && dim != ndim - 1)) return false;
  Operands operands;
  for (const TensorImpl* t : list) {
    if (!t->is_contiguous() || !operands.add(t)) return false;
  }
  if (out->numel() == 0) return true;
  const int64_t cols = out->sizes()[static_cast<size_t>(ndim - 1)], rows = out->numel() / cols;
  return guarded(out, [&] {
    return hologram::record_rows(which, operands.data(), operands.arity(), rows, cols);
  });
}

}  // namespace hologram_torch
