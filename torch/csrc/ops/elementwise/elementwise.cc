// SPDX-License-Identifier: MIT
// The general path of elementwise ops, see elementwise.h.
#include "ops/elementwise/elementwise.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorGeometry.h>
#include <ATen/native/TypeProperties.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/DimVector.h>

namespace hologram_torch {
namespace {

using c10::DimVector;
using c10::IntArrayRef;
using c10::ScalarType;
using c10::TensorImpl;
using hologram::Dtype;
using hologram::View;

constexpr int kMaxArity = 4;

// --- Strides of a new result, as TensorIterator chooses them -----------------------------------

// An input as TensorIterator would see it when it lays out the result.
struct Input {
  IntArrayRef sizes;
  DimVector strides;
  bool contiguous, channels_last, dense;

  // PyTorch converts an input of another type than `common` before it looks at strides, and a
  // converted tensor has no holes.
  Input(const TensorImpl* t, ScalarType common)
      : sizes(t->sizes()),
        strides(t->strides()),
        contiguous(t->is_contiguous()),
        channels_last(t->is_contiguous(c10::MemoryFormat::ChannelsLast)),
        dense(t->is_non_overlapping_and_dense()) {
    if (dense || t->dtype().toScalarType() == common) return;
    strides = at::infer_dense_strides(sizes, strides);
    contiguous = at::geometry_is_contiguous(sizes, strides);
    channels_last = c10::is_channels_last_strides_2d(sizes, strides);
    dense = true;
  }
};

struct Inputs {
  c10::SmallVector<Input, kMaxArity> list;
  bool same_shape = true;  // all have the shape of the result
};

// The strides with which an input walks the result's dimensions: 0 where it is repeated.
DimVector broadcast_strides(const Input& input, IntArrayRef shape) {
  DimVector strides(shape.size(), 0);
  const size_t offset = shape.size() - input.sizes.size();
  for (size_t d = offset; d < shape.size(); ++d) {
    const bool repeated = input.sizes[d - offset] == 1 && shape[d] != 1;
    strides[d] = repeated ? 0 : input.strides[d - offset];
  }
  return strides;
}

// Dimensions from the fastest to the slowest. The comparison is not an order (repeated dimensions
// compare equal to all), so the sort is the very one PyTorch uses.
c10::SmallVector<int, 8> order_dimensions(const Inputs& inputs, IntArrayRef shape) {
  c10::SmallVector<DimVector, kMaxArity> strides;
  for (const Input& input : inputs.list) strides.push_back(broadcast_strides(input, shape));
  const auto slower = [&](int a, int b) {
    for (const DimVector& input : strides) {
      const int64_t stride_a = input[static_cast<size_t>(a)];
      const int64_t stride_b = input[static_cast<size_t>(b)];
      if (stride_a == 0 || stride_b == 0) continue;
      if (stride_a != stride_b) return stride_a < stride_b ? -1 : 1;
      if (shape[static_cast<size_t>(a)] > shape[static_cast<size_t>(b)]) return 1;
    }
    return 0;
  };
  const int ndim = static_cast<int>(shape.size());
  c10::SmallVector<int, 8> order;
  for (int d = ndim - 1; d >= 0; --d) order.push_back(d);
  for (size_t i = 1; i < order.size(); ++i) {
    size_t at = i;
    for (size_t before = i; before-- > 0;) {
      const int comparison = slower(order[before], order[at]);
      if (comparison < 0) break;
      if (comparison > 0) {
        std::swap(order[before], order[at]);
        at = before;
      }
    }
  }
  return order;
}

at::Tensor make_result(const Inputs& inputs, IntArrayRef shape, ScalarType type,
                       c10::DeviceIndex index) {
  if (inputs.same_shape) {
    bool contiguous = true, channels_last = true, dense = true;
    const Input& first = inputs.list[0];
    for (const Input& input : inputs.list) {
      contiguous = contiguous && input.contiguous;
      channels_last = channels_last && input.channels_last;
      dense = dense && input.dense && input.strides == first.strides;
    }
    if (contiguous) return make_tensor(shape, type, index);
    if (channels_last) return make_formatted(shape, type, c10::MemoryFormat::ChannelsLast, index);
    if (dense) return make_strided(shape, first.strides, type, index);
  }
  if (shape.size() < 2) return make_tensor(shape, type, index);
  const auto order = order_dimensions(inputs, shape);
  DimVector strides(shape.size());
  int64_t next = 1;
  bool contiguous = true;
  for (size_t k = 0; k < order.size(); ++k) {
    const size_t d = static_cast<size_t>(order[k]);
    strides[d] = next;
    next *= shape[d];
    contiguous = contiguous && d == shape.size() - 1 - k;
  }
  return contiguous ? make_tensor(shape, type, index) : make_strided(shape, strides, type, index);
}

// --- Types -------------------------------------------------------------------------------------

void round_to(ScalarType half, void* number) {
  float& value = *static_cast<float*>(number);
  value = half == ScalarType::Half ? static_cast<float>(static_cast<c10::Half>(value))
                                   : static_cast<float>(static_cast<c10::BFloat16>(value));
}

bool exact_in_half(ScalarType type) {
  return type == ScalarType::Bool || type == ScalarType::Char || type == ScalarType::Byte;
}

// The type the operands agree on; Undefined where the fallback has to judge.
ScalarType common_type(Rule rule, const Operand* operands, int arity) {
  at::native::ResultTypeState state;
  ScalarType single = ScalarType::Undefined;
  for (int k = 0; k < arity; ++k) {
    const Operand& operand = operands[k];
    if (!operand.promotes) continue;
    if (operand.number != nullptr) {
      state = at::native::update_result_type_state(*operand.number, state);
      continue;
    }
    const ScalarType type = operand.tensor->scalar_type();
    const int code = dtype_code(type);
    if (code < 0 || hologram::is_complex(static_cast<Dtype>(code))) return ScalarType::Undefined;
    if ((rule.traits & kSameDtype) != 0) {
      if (single != ScalarType::Undefined && single != type) return ScalarType::Undefined;
      single = type;
    }
    state = at::native::update_result_type_state(*operand.tensor, state);
  }
  const ScalarType type = at::native::result_type(state);
  if ((rule.traits & kIntToFloat) != 0 && c10::isIntegralType(type, /*includeBool=*/true)) {
    return c10::get_default_dtype_as_scalartype();
  }
  return type;
}

Inputs describe(Rule rule, const Operand* operands, int arity, IntArrayRef shape,
                ScalarType common) {
  Inputs inputs;
  for (int k = 0; k < arity; ++k) {
    const Operand& operand = operands[k];
    if (operand.tensor != nullptr) {
      const ScalarType wanted = operand.promotes ? common : ScalarType::Bool;
      const Input& input = inputs.list.emplace_back(operand.tensor->unsafeGetTensorImpl(), wanted);
      inputs.same_shape = inputs.same_shape && input.sizes == shape;
    } else if (operand.promotes && !shape.empty()) {
      inputs.same_shape = false;  // PyTorch makes a tensor without dimensions of such a number
    }
  }
  if ((rule.traits & kSecondLeads) != 0) std::swap(inputs.list[0], inputs.list[1]);
  return inputs;
}

}  // namespace

bool run_general(Rule rule, const Operand* operands, int arity, Target& target) {
  const TensorImpl* tensors[kMaxArity];
  int count = 0;
  c10::DeviceIndex index = -1;  // of those of ours
  for (int k = 0; k < arity; ++k) {
    if (operands[k].number != nullptr) {
      const c10::Scalar& number = *operands[k].number;
      if (number.isComplex() || number.isSymbolic()) return false;
      continue;
    }
    if (!operands[k].tensor->defined()) return false;
    const TensorImpl* t = operands[k].tensor->unsafeGetTensorImpl();
    if (is_dense(t)) {
      const c10::DeviceIndex own = t->device().index();
      if (index >= 0 && own != index) return false;
      index = own;
    } else if (!is_cpu_number(t)) {
      return false;
    }
    if (!operands[k].promotes && t->dtype().toScalarType() != ScalarType::Bool) return false;
    tensors[count++] = t;
  }
  if (index < 0) return false;
  const bool on_host = is_host_index(index);

  const ScalarType common = common_type(rule, operands, arity);
  const int code = common == ScalarType::Undefined ? kNoDtype : dtype_code(common);
  if (code < 0 || hologram::is_complex(static_cast<Dtype>(code))) return false;
  const bool half = is_half(static_cast<Dtype>(code));
  const bool rounds = half && (rule.traits & kRoundNumbers) != 0;
  const Dtype compute = hologram::compute_dtype(static_cast<Dtype>(code));
  if (!hologram::op_info(rule.op).supports(compute)) return false;
  const ScalarType result = (rule.traits & kBoolRow) != 0 ? ScalarType::Bool : common;

  // The shape of the result.
  DimVector shape;
  for (int k = 0; k < count; ++k) {
    const IntArrayRef sizes = tensors[k]->sizes();
    if (sizes.size() > shape.size()) shape.insert(shape.begin(), sizes.size() - shape.size(), 1);
    const size_t offset = shape.size() - sizes.size();
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] == 1 || sizes[d] == shape[offset + d]) continue;
      if (shape[offset + d] != 1) return false;
      shape[offset + d] = sizes[d];
    }
  }
  // Numbers, and tensors of the CPU, are read now: later writes to them do not wait.
  Source in[kMaxArity];
  for (int k = 0; k < arity; ++k) {
    const Operand& operand = operands[k];
    if (operand.number != nullptr) {
      if (!store_number(*operand.number, compute, in[k].number)) return false;
      if (half && !fits_half(static_cast<Dtype>(code), *reinterpret_cast<float*>(in[k].number))) {
        return false;
      }
      if (rounds) round_to(common, in[k].number);
      continue;
    }
    const TensorImpl* t = operand.tensor->unsafeGetTensorImpl();
    const ScalarType type = t->dtype().toScalarType();
    // PyTorch converts to the half type before it computes in float32.
    const bool widens = half && operand.promotes && type != common && !exact_in_half(type);
    if (widens && t->dim() > 0) return false;
    const bool is_rounded = widens && rounds;
    if (is_dense(t) && !is_rounded) {
      in[k].tensor = t;
      continue;
    }
    if (is_dense(t) && !on_host) return false;
    hologram::convert(static_cast<Dtype>(dtype_code(type)), read_pointer(t), compute, in[k].number,
                      1);
    if (is_rounded) round_to(common, in[k].number);
  }

  if (target.given != nullptr) {
    const TensorImpl* given = target.given->unsafeGetTensorImpl();
    if (!is_dense(given) || given->device().index() != index ||
        given->sizes() != IntArrayRef(shape)) {
      return false;
    }
    const ScalarType type = given->dtype().toScalarType();
    const int given_code = dtype_code(type);
    if (given_code < 0 || hologram::is_complex(static_cast<Dtype>(given_code))) return false;
    if (type != result) {
      // Some ops refuse a result of another type, some convert it: in place all convert.
      if (target.given != operands[0].tensor || !c10::canCast(result, type)) return false;
      if (half && result == common) return false;
    }
    if (may_overlap_itself(given)) return false;
    for (int k = 0; k < count; ++k) {
      if (may_disturb(given, tensors[k])) return false;
    }
  } else {
    if ((rule.traits & kContiguousResult) != 0) {
      target.fresh = make_tensor(shape, result, index);
    } else {
      target.fresh =
          make_result(describe(rule, operands, arity, shape, common), shape, result, index);
    }
  }
  target.settle();
  const at::Tensor& out = target.given != nullptr ? *target.given : target.fresh;
  const int64_t n = out.numel();
  if (n == 0) return true;
  if ((target.batch == nullptr || !on_host) && (is_deferring() || !on_host) &&
      record_broadcast(rule.op, compute, in, arity, out.unsafeGetTensorImpl())) {
    return true;
  }
  if (!on_host) {
    target.fresh.reset();
    return false;
  }
  View views[kMaxArity];
  for (int k = 0; k < arity; ++k) {
    const TensorImpl* t = in[k].tensor;
    views[k] = t != nullptr ? view_of(t, read_pointer(t))
                            : View{in[k].number, compute, 0, nullptr, nullptr};
  }
  hologram::elementwise(rule.op, compute, views, arity, write_view(out), threads_for(n));
  return true;
}

namespace {

const int64_t kUnitStride = 1;

// The job's pointers as kernels take them; numbers: bit k is set where operand k is one element.
struct Pointers {
  const void* in[kMaxArity];
  char* out;
  unsigned numbers = 0;

  explicit Pointers(const FastJob& job) {
    for (int k = 0; k < job.arity; ++k) {
      const TensorImpl* t = job.in[k].tensor;
      in[k] = t != nullptr ? read_pointer(t) : job.in[k].number;
      numbers |= static_cast<unsigned>(t == nullptr) << k;
    }
    out = write_pointer(job.out);
  }
};

void run_large(const FastJob& job, const Pointers& at) {
  const Dtype compute = hologram::compute_dtype(job.dtype);
  View views[kMaxArity];
  for (int k = 0; k < job.arity; ++k) {
    void* data = const_cast<void*>(at.in[k]);
    views[k] = (at.numbers >> k & 1u) != 0 ? View{data, compute, 0, nullptr, nullptr}
                                           : View{data, job.dtype, 1, &job.n, &kUnitStride};
  }
  const View target{at.out, job.bool_result ? Dtype::kBool : job.dtype, 1, &job.n, &kUnitStride};
  hologram::elementwise(job.op, compute, views, job.arity, target, threads_for(job.n));
}

// The kernel for one element where bit k of `numbers` is set.
hologram::ElementwiseKernel kernel_of(hologram::OpId op, Dtype compute, unsigned numbers) {
  const hologram::Form form = (numbers & 1u) != 0 ? hologram::Form::kFirstScalar
                              : numbers != 0      ? hologram::Form::kTrailingScalars
                                                  : hologram::Form::kVectors;
  return hologram::elementwise_kernel(op, compute, form);
}

void keep_back(const FastJob& job, Batch& batch) {
  const Pointers at(job);
  const auto kernel = is_half(job.dtype) ? nullptr : kernel_of(job.op, job.dtype, at.numbers);
  Batch::Item item{job.op,     job.dtype, kernel,          {},   at.out, {},
                   at.numbers, job.arity, job.bool_result, job.n};
  for (int k = 0; k < job.arity; ++k) {
    item.in[k] = at.in[k];
    std::copy_n(job.in[k].number, 8, item.slots[k]);
  }
  batch.add(item);
}

// Whether `out` shares bytes with an operand other than the very same elements.
bool disturbs_operands(const FastJob& job) {
  const Place out = place_of(job.out);
  const int64_t out_bytes = job.n * static_cast<int64_t>(job.out->itemsize());
  const int64_t in_bytes = job.n * static_cast<int64_t>(hologram::itemsize(job.dtype));
  for (int k = 0; k < job.arity; ++k) {
    if (job.in[k].tensor == nullptr) continue;
    const Place in = place_of(job.in[k].tensor);
    if (in == out && in_bytes == out_bytes) continue;
    if (C10_UNLIKELY(ranges_meet(in, in_bytes, out, out_bytes))) return true;
  }
  return false;
}

}  // namespace

namespace {
bool are_on_host(const FastJob& job) {
  for (int k = 0; k < job.arity; ++k) {
    if (job.in[k].tensor != nullptr && !is_on_host(job.in[k].tensor)) return false;
  }
  return is_on_host(job.out);
}
}  // namespace

bool finish_fast(const FastJob& job, Batch* batch) {
  if (!job.fresh && disturbs_operands(job)) return false;
  if (C10_UNLIKELY(batch != nullptr) && are_on_host(job)) {
    keep_back(job, *batch);
    return true;
  }
  const auto record = [&job] {
    return record_same_layout(job.op, job.dtype, job.in, job.arity, job.out,
                              job.bool_result ? Dtype::kBool : job.dtype);
  };
  if (is_deferring() && record()) return true;
  // Elsewhere there is no other way than to record.
  if (C10_UNLIKELY(!are_on_host(job))) return !is_deferring() && record();
  const Pointers at(job);
  if (C10_UNLIKELY(is_half(job.dtype))) {
    if (job.n > kSmall) {
      run_large(job, at);
    } else {
      run_half(job.op, job.dtype, at.in, at.numbers, job.arity, at.out, job.bool_result, job.n);
    }
  } else if (C10_LIKELY(job.n <= kSmall)) {
    kernel_of(job.op, job.dtype, at.numbers)(at.in, at.out, job.n);
  } else {
    run_large(job, at);
  }
  return true;
}

void run_half(hologram::OpId op, Dtype dtype, const void* const* in, unsigned numbers, int arity,
              void* out, bool bool_result, int64_t n) {
  constexpr int64_t kTile = 512;
  alignas(64) float tiles[kMaxArity][kTile];
  alignas(64) float computed[kTile];
  const hologram::ElementwiseKernel kernel = kernel_of(op, Dtype::kFloat32, numbers);
  for (int64_t done = 0; done < n; done += kTile) {
    const int64_t count = std::min(kTile, n - done);
    const void* operands[kMaxArity];
    for (int k = 0; k < arity; ++k) {
      operands[k] = in[k];
      if ((numbers >> k & 1u) != 0) continue;
      operands[k] = tiles[k];
      if (k > 0 && in[k] == in[0]) {
        operands[k] = tiles[0];
        continue;
      }
      hologram::convert(dtype, static_cast<const char*>(in[k]) + done * 2, Dtype::kFloat32,
                        tiles[k], count);
    }
    char* target = static_cast<char*>(out);
    if (bool_result) {
      kernel(operands, target + done, count);
    } else {
      kernel(operands, computed, count);
      hologram::convert(Dtype::kFloat32, computed, dtype, target + done * 2, count);
    }
  }
}

}  // namespace hologram_torch
