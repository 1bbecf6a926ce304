// SPDX-License-Identifier: MIT
// Rows of the op table on tensors: recorded where that is possible, else run at once.
#include <algorithm>
#include <array>
#include <cmath>
#include <new>
#include <type_traits>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/integer_elements.h"
#include "hologram/memory.h"
#include "src/array/arithmetic.h"
#include "src/array/array.h"
#include "src/array/at_call.h"
#include "src/array/record_call.h"
#include "src/array/small_row.h"
#include "src/array/types.h"
#include "src/array/unsigned.h"
#include "src/runtime/memory/tensor_access.h"

namespace hologram {
namespace array {
namespace {

constexpr int kMaxArity = 4;

// What a record does not take, on a device whose memory the host cannot touch: a call does.
void run_as_call(OpId op, Dtype compute, std::span<const Operand> operands, const Tensor& out) {
  std::array<Tensor, kMaxArity> given;
  std::vector<calls::In<Arg>> inputs;
  for (size_t k = 0; k < operands.size(); ++k) {
    const Operand& operand = operands[k];
    given[k] = operand.is_tensor()
                   ? broadcast(operand.tensor(), out.shape())
                   : broadcast(full({}, operand.number(), compute, device_of(out)), out.shape());
    inputs.emplace_back(given[k]);
  }
  record(calls::Elementwise<Arg>{.inputs = inputs,
                                 .op = static_cast<int64_t>(op),
                                 .dtype = static_cast<int64_t>(compute),
                                 .out = out});
}

void run_now(OpId op, Dtype compute, std::span<const Operand> operands, const Tensor& out) {
  if (!device_of(out).is_host_memory()) return run_as_call(op, compute, operands, out);
  const CircuitCause cause(op_info(op).name.data());
  View inputs[kMaxArity];
  for (const Operand& operand : operands) {
    if (operand.is_tensor()) materialize(operand.tensor());
  }
  materialize(out);
  for (size_t k = 0; k < operands.size(); ++k) {
    inputs[k] = operands[k].is_tensor() ? operands[k].tensor().view() : operands[k].number().view();
  }
  elementwise(op, compute, inputs, static_cast<int>(operands.size()), out.view());
}

// Operands of a record, of which a call fills as many as it has: to clear them all costs as much as
// recording.
class RecordOperands {
 public:
  void add(const RecordOperand& operand) { new (&list()[count_++]) RecordOperand(operand); }
  void add(const Operand& operand, Dtype compute) {
    add(operand.is_tensor() ? record_operand(operand.tensor())
                            : record_number(operand.number(), compute));
  }
  const RecordOperand* data() const { return reinterpret_cast<const RecordOperand*>(bytes_); }

 private:
  RecordOperand* list() { return reinterpret_cast<RecordOperand*>(bytes_); }

  static_assert(std::is_trivially_destructible_v<RecordOperand>);
  alignas(RecordOperand) unsigned char bytes_[(kMaxArity + 1) * sizeof(RecordOperand)];
  int count_ = 0;
};

// All operands' elements lie one after another and belong to each other in that order.
bool is_flat(const Tensor& t, const Tensor& out) {
  return t.shape() == out.shape() && t.is_contiguous();
}

// False, with nothing recorded, where an operand's ops may not wait.
bool record_row(OpId op, Dtype compute, std::span<const Operand> operands, const Tensor& out) {
  const int arity = static_cast<int>(operands.size());
  RecordOperands list;
  list.add(record_operand(out));
  bool flat = out.is_contiguous();
  for (const Operand& operand : operands) {
    flat = flat && (!operand.is_tensor() || is_flat(operand.tensor(), out));
    list.add(operand, compute);
  }
  if (flat) return record_flat(op, compute, list.data(), arity, out.numel());
  Shape steps[kMaxArity];
  const int64_t* strides[kMaxArity + 1] = {out.strides().data()};
  for (size_t k = 0; k < operands.size(); ++k) {
    steps[k] = operands[k].is_tensor() ? strides_over(operands[k].tensor(), out.shape())
                                       : Shape(out.shape().size(), 0);
    strides[k + 1] = steps[k].data();
  }
  return record_strided(op, compute, list.data(), arity, out.ndim(), out.shape().data(), strides);
}

// Most operands are row-major tensors of one shape and of one dtype that the row computes in:
// nothing is to be promoted or broadcast. False, with nothing recorded, for others.
bool record_alike(const OpInfo& info, std::span<const Operand> operands, Rules rules, Tensor& out) {
  if (operands.size() != info.arity || info.arity > 2 || !operands[0].is_tensor()) return false;
  const Tensor& first = operands[0].tensor();
  const Dtype dtype = first.dtype();
  if (first.numel() == 0 || !first.is_contiguous() || !computes_in(info, dtype, rules)) {
    return false;
  }
  Device& device = device_of(first);
  if (!is_recording(device)) return false;
  const bool is_pairs = is_complex(dtype);
  if (is_pairs && !works_on_parts(info.id)) return false;
  const Dtype compute = is_pairs ? part_dtype(dtype) : dtype;
  RecordOperand list[3];
  list[1] = record_operand(first);
  list[1].dtype = compute;
  if (info.arity == 2) {
    if (!operands[1].is_tensor()) return false;
    const Tensor& second = operands[1].tensor();
    if (second.dtype() != dtype || !second.buffer() || &device_of(second) != &device ||
        second.shape() != first.shape() || !second.is_contiguous()) {
      return false;
    }
    list[2] = record_operand(second);
    list[2].dtype = compute;
  }
  const Dtype result = info.result(dtype);
  const int64_t n = first.numel();
  BufferRef memory =
      BufferRef::adopt(allocate_deferred(device, static_cast<size_t>(n) * itemsize(result)));
  memory->set_dtype(result);
  list[0] = {memory.get(), 0, is_pairs ? compute : result, false, 0};
  if (!record_flat(info.id, compute, list, info.arity, is_pairs ? 2 * n : n)) return false;
  out = internal::TensorAccess::whole(std::move(memory), first.shape(), n, result);
  return true;
}

int kind_of(Dtype dtype) {
  return dtype == Dtype::kBool ? 0 : is_integer(dtype) ? 1 : is_floating(dtype) ? 2 : 3;
}

// The row gives a remainder of 0 the sign of x, as PyTorch does; NumPy's has that of the divisor.
void run_numpy_remainder(std::span<const Operand> operands, Dtype compute, const Tensor& out) {
  Device& device = device_of(out);
  const Tensor rest = fresh(out.shape(), compute, device);
  run_row(OpId::remainder, compute, operands, rest);
  const Operand& divisor = operands[1];
  Operand zero = 0.0;
  Tensor sign, zeros;  // outlive `zero`
  if (divisor.is_tensor()) {
    sign = fresh(divisor.tensor().shape(), compute, device);
    run_row(OpId::sign, compute, std::array{divisor}, sign);
    zeros = fresh(sign.shape(), compute, device);
    run_row(OpId::mul, compute, std::array{Operand(sign), Operand(0.0)}, zeros);
    zero = Operand(zeros);
  } else {
    const Scalar& number = divisor.number();
    const bool is_below =
        number.dtype == Dtype::kFloat64 ? std::signbit(number.f64) : number.i64 < 0;
    if (is_below) zero = -0.0;
  }
  const Tensor is_zero = fresh(out.shape(), Dtype::kBool, device);
  run_row(OpId::eq, compute, std::array{Operand(rest), Operand(0.0)}, is_zero);
  run_row(OpId::where, compute, std::array{Operand(is_zero), zero, Operand(rest)}, out);
}

bool has_stored_only(std::span<const Operand> operands) {
  return std::any_of(operands.begin(), operands.end(), [](const Operand& operand) {
    return operand.is_tensor() && is_stored_only(operand.tensor().dtype());
  });
}

void run(OpId op, std::span<const Operand> operands, Dtype compute, const Tensor& out, Rules rules);

// Computed in a dtype with kernels though operands or out have none.
void run_between(OpId op, std::span<const Operand> operands, Dtype compute, const Tensor& out,
                 Rules rules) {
  std::array<Tensor, kMaxArity> tensors;
  std::array<Operand, kMaxArity> in = {0, 0, 0, 0};
  for (size_t k = 0; k < operands.size(); ++k) {
    in[k] = operands[k];
    if (!operands[k].is_tensor() || !is_stored_only(operands[k].tensor().dtype())) continue;
    const bool is_condition = op == OpId::where && k == 0;
    tensors[k] = cast(operands[k].tensor(), is_condition ? Dtype::kBool : compute_dtype(compute));
    in[k] = Operand(tensors[k]);
  }
  const std::span<const Operand> settled(in.data(), operands.size());
  if (!is_stored_only(out.dtype())) return run(op, settled, compute, out, rules);
  const Dtype dtype = op_info(op).result_is_bool ? Dtype::kBool : compute;
  const Tensor result = fresh(out.shape(), dtype, device_of(out));
  run(op, settled, compute, result, rules);
  copy_into(result, out);
}

// Into `out`, which clashes with no operand and to whose shape they broadcast.
void run(OpId op, std::span<const Operand> operands, Dtype compute, const Tensor& out,
         Rules rules) {
  if (out.numel() == 0) return;
  if (is_stored_only(compute)) return unsigned_elementwise(op, operands, compute, out, rules);
  if (is_stored_only(out.dtype()) || has_stored_only(operands)) {
    if (is_mixed_comparison(op, operands)) return compare_mixed(op, operands, out);
    return run_between(op, operands, compute, out, rules);
  }
  if (is_complex(compute)) return complex_elementwise(op, operands, compute, out);
  if (compute <= Dtype::kInt64) {
    const OpInfo& info = op_info(op);
    if (!info.supports(compute)) {
      switch (info.others.way) {
        case OtherDtypes::kUnchanged:
          return operands[0].is_tensor() ? copy_into(operands[0].tensor(), out)
                                         : fill_into(operands[0].number(), out);
        case OtherDtypes::kInteger:
          return integer_elementwise(info.others.integer_op, operands, compute, out, rules);
        case OtherDtypes::kRow:
          op = info.others.row;
          break;
        case OtherDtypes::kAsUInt8:
          compute = Dtype::kUInt8;
          break;
        default:
          break;  // refused by elementwise_types()
      }
    }
  }
  if (op == OpId::where && operands[0].is_tensor() &&
      operands[0].tensor().dtype() != Dtype::kBool) {
    const Tensor condition = copy_of(operands[0].tensor(), Dtype::kBool);
    const Operand settled[] = {condition, operands[1], operands[2]};
    return run_row(op, compute, settled, out);
  }
  if (op == OpId::remainder && rules == Rules::numpy && is_floating(compute)) {
    return run_numpy_remainder(operands, compute, out);
  }
  run_row(op, compute, operands, out);
}

}  // namespace

void run_row(OpId op, Dtype type, std::span<const Operand> operands, const Tensor& out) {
  const Dtype compute = compute_dtype(type);
  const bool is_small = is_free(out) && std::ranges::all_of(operands, [](const Operand& operand) {
                          return !operand.is_tensor() || is_at_hand(operand.tensor());
                        });
  if (!is_small && is_recording(device_of(out)) && record_row(op, compute, operands, out)) return;
  note_not_recorded(op_info(op).name, is_small, operands, out);
  run_now(op, compute, operands, out);
}

}  // namespace array

Tensor apply(OpId op, std::span<const Operand> operands, Rules rules) {
  const OpInfo& info = op_info(op);
  if (array::SmallRow small; small.settle(info, operands, rules)) {
    small.note(info.name);
    return small.apply();
  }
  if (Tensor out; array::record_alike(info, operands, rules, out)) [[likely]]
    return out;
  const ElementwiseTypes types = elementwise_types(op, operands, rules);
  Device& device = array::device_of(info.name.data(), operands);
  Tensor out = array::fresh(array::broadcast_shape(info.name, operands), types.result, device);
  array::run(op, operands, types.compute, out, rules);
  return out;
}

std::optional<Dtype> apply_to_elements(OpId op, Dtype dtype, const void* x, const void* y,
                                       void* out, Rules rules) {
  const OpInfo& info = op_info(op);
  const auto size = static_cast<int64_t>(itemsize(dtype));
  if (info.arity != (y == nullptr ? 1 : 2) || !is_immediate(size)) return std::nullopt;
  const Dtype compute = array::works_on_bits(op) ? carrier_dtype(dtype) : dtype;
  if (array::computes_in(info, compute, rules)) {
    const ElementwiseKernel kernel = elementwise_kernel(op, compute);
    if (kernel == nullptr) return std::nullopt;
    const void* const in[] = {x, y};
    kernel(in, out, 1);
    return compute == dtype || info.result_is_bool ? info.result(dtype) : dtype;
  }
  const bool is_integer_op = is_integer(dtype) && info.others.way == OtherDtypes::kInteger &&
                             info.others.integer_op != IntegerOp::pow;
  if (!is_integer_op) return std::nullopt;
  integer_elements(info.others.integer_op, dtype, x, y, out, 1);
  return dtype;
}

bool apply_to_elements(IntegerOp op, Dtype dtype, const void* x, const void* y, void* out) {
  if (!is_integer(dtype) || !is_immediate(static_cast<int64_t>(itemsize(dtype)))) return false;
  integer_elements(op, dtype, x, y, out, 1);
  return true;
}

void apply_into(OpId op, std::span<const Operand> operands, const Tensor& out, Rules rules) {
  const OpInfo& info = op_info(op);
  if (array::SmallRow small;
      out.buffer() && small.settle(info, operands, rules) && small.apply_into(operands, out)) {
    return small.note(info.name);
  }
  array::check_result(info.name.data(), out);
  const ElementwiseTypes types = elementwise_types(op, operands, rules);
  if (array::kind_of(types.result) > array::kind_of(out.dtype())) {
    fail(ErrorKind::kTypeMismatch, info.name, ": the result is ", dtype_name(types.result),
         " and does not go into out, which is ", dtype_name(out.dtype()),
         "; give an out of that dtype, or cast the result");
  }
  const bool any = std::any_of(operands.begin(), operands.end(),
                               [](const Operand& operand) { return operand.is_tensor(); });
  if (any) {
    Device& device = array::device_of(info.name.data(), operands);
    if (&device != &array::device_of(out)) {
      fail(ErrorKind::kInvalidArgument, info.name, ": out is on ", array::device_of(out).name(),
           ", the operands on ", device.name(), "; they have to be on one device");
    }
    const Shape shape = array::broadcast_shape(info.name, operands);
    Shape whole = out.shape();
    if (shape != whole && (shape.size() > whole.size() || !array::broadcast_to(shape, whole) ||
                           whole != out.shape())) {
      fail(ErrorKind::kInvalidArgument, info.name, ": the result has shape ", shape_text(shape),
           ", which does not go into out of shape ", shape_text(out.shape()));
    }
  }
  const auto clashes = [&out](const Operand& operand) {
    return operand.is_tensor() && array::clashes(out, operand.tensor());
  };
  if (std::none_of(operands.begin(), operands.end(), clashes)) [[likely]] {
    return array::run(op, operands, types.compute, out, rules);
  }
  // What out overlaps is read before anything is written.
  Tensor copies[array::kMaxArity];
  std::array<Operand, array::kMaxArity> apart = {0, 0, 0, 0};
  for (size_t k = 0; k < operands.size(); ++k) {
    apart[k] = operands[k];
    if (!clashes(operands[k])) continue;
    copies[k] = array::copy_of(operands[k].tensor(), operands[k].tensor().dtype());
    apart[k] = Operand(copies[k]);
  }
  array::run(op, {apart.data(), operands.size()}, types.compute, out, rules);
}

}  // namespace hologram
