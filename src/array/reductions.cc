// SPDX-License-Identifier: MIT
// Reductions, running sums and row functions of tensors.
#include <array>
#include <bit>

#include "hologram/error.h"
#include "hologram/softmax.h"
#include "src/array/array.h"
#include "src/array/record_call.h"
#include "src/array/unsigned.h"
#include "src/circuit/tape.h"
#include "src/runtime/memory/tensor_access.h"

namespace hologram {
namespace array {
namespace {

constexpr int kMaxDims = 64;

// Which dimensions go, as bits.
uint64_t dims_mask(const char* name, int ndim, std::span<const int> dims) {
  if (ndim > kMaxDims) {
    fail(ErrorKind::kNotSupported, name, ": tensors of more than ", kMaxDims,
         " dimensions are not reduced, got ", ndim);
  }
  if (dims.empty()) return ndim == 64 ? ~uint64_t{0} : (uint64_t{1} << ndim) - 1;
  uint64_t mask = 0;
  for (const int dim : dims) {
    if (ndim == 0 && (dim == 0 || dim == -1)) continue;
    if (dim < -ndim || dim >= ndim) {
      fail(ErrorKind::kIndex, name, ": dimension ", dim, " is out of range for a tensor of ", ndim,
           " dimensions");
    }
    const uint64_t bit = uint64_t{1} << (dim < 0 ? dim + ndim : dim);
    if ((mask & bit) != 0) {
      fail(ErrorKind::kInvalidArgument, name, ": dimension ", dim, " is given twice");
    }
    mask |= bit;
  }
  return mask;
}

bool makes_floats(Reduction op) { return reduction_info(op).result == ReductionInfo::kFloat; }

// Of sums and products of integers and bool.
Dtype sum_dtype(Dtype in, Rules rules) {
  const bool is_unsigned_sum = is_stored_only(in) || (is_unsigned(in) && rules == Rules::numpy);
  return is_unsigned_sum ? Dtype::kUInt64 : Dtype::kInt64;
}

Dtype result_dtype(Reduction op, Dtype in, const ReduceSpec& spec) {
  const std::string_view name = reduction_name(op);
  const ReductionInfo& info = reduction_info(op);
  if (info.result == ReductionInfo::kBool) return Dtype::kBool;
  if (info.result == ReductionInfo::kIndex) return Dtype::kInt64;
  if (info.result == ReductionInfo::kIn) return in;
  if (is_complex(in) && !info.of_complex) {
    fail(ErrorKind::kTypeMismatch, name, ": is not defined for ", dtype_name(in),
         "; reduce the real and imaginary parts");
  }
  if (spec.dtype.has_value()) {
    const Dtype dtype = *spec.dtype;
    if ((makes_floats(op) && !is_floating(dtype) && !is_complex(dtype)) ||
        (is_complex(in) && !is_complex(dtype))) {
      fail(ErrorKind::kTypeMismatch, name, ": does not give ", dtype_name(dtype), " for ",
           dtype_name(in), "; ask for a floating dtype, or cast the result");
    }
    return dtype;
  }
  if (is_floating(in) || is_complex(in)) return in;
  if (!makes_floats(op)) return sum_dtype(in, spec.rules);
  if (spec.rules == Rules::torch) {
    fail(ErrorKind::kTypeMismatch, name, ": is for floating dtypes, got ", dtype_name(in),
         "; cast the tensor or ask for a dtype");
  }
  return Dtype::kFloat64;
}

Shape result_shape(const Tensor& in, uint64_t mask, bool keepdim) {
  Shape shape;
  for (int d = 0; d < in.ndim(); ++d) {
    const bool gone = (mask >> d & 1) != 0;
    if (!gone) shape.push_back(in.shape()[static_cast<size_t>(d)]);
    if (gone && keepdim) shape.push_back(1);
  }
  return shape;
}

void run(Reduction op, const Tensor& in, uint64_t mask, const Tensor& out, const ReduceSpec& spec) {
  const double parameter = op == Reduction::norm ? spec.p : spec.correction;
  const int ndim = in.ndim();
  const int reduced = std::popcount(mask);
  const bool trailing =
      reduced == ndim || mask == (((uint64_t{1} << reduced) - 1) << (ndim - reduced));
  if (reduced > 0 && trailing && !is_positional(op) && in.numel() != 0 &&
      is_recording(device_of(in)) && in.is_contiguous() && out.is_contiguous() &&
      !(is_free(out) && is_at_hand_for(in, static_cast<int64_t>(out.nbytes())))) {
    const int64_t rows = out.numel();
    if (record_reduction(op, record_operand(out), record_operand(in), rows, in.numel() / rows,
                         parameter)) {
      return;
    }
  }
  // An empty list of dimensions would mean all of them.
  const bool none = reduced == 0;
  const Tensor from = none ? in.unsqueeze(ndim) : in;
  // Of positions no dimension means those in all of `in`, which several dimensions cannot say.
  const uint64_t dims = none ? uint64_t{1} << ndim : is_positional(op) && reduced > 1 ? 0 : mask;
  record(calls::Reduce<Arg>{.input = from,
                            .op = static_cast<int64_t>(op),
                            .dims = static_cast<int64_t>(dims),
                            .parameter = parameter,
                            .out = out},
         reduction_name(op).data());
}

// Where in or out is uint16, uint32 or uint64, and out not complex.
void run_unsigned(Reduction op, const Tensor& in, uint64_t mask, const Tensor& out,
                  const ReduceSpec& spec) {
  switch (reduction_info(op).result) {
    case ReductionInfo::kOut:
    case ReductionInfo::kFloat:
      // Computed in out's dtype, where sums and products have the same bits, whatever the sign.
      return run(op, carrier(is_stored_only(in.dtype()) ? cast(in, out.dtype()) : in), mask,
                 carrier(out), spec);
    case ReductionInfo::kBool:
      return run(op, carrier(in), mask, carrier(out), spec);
    case ReductionInfo::kIndex:
      return run(op, is_stored_only(in.dtype()) ? turned(in) : in, mask, carrier(out), spec);
    case ReductionInfo::kIn:
      break;
  }
  const Tensor best = fresh(out.shape(), in.dtype(), device_of(out));
  if (is_stored_only(in.dtype())) {
    const Tensor bits = fresh(out.shape(), carrier_dtype(in.dtype()), device_of(out));
    run(op, turned(in), mask, bits, spec);
    turned_back(bits, out.dtype() == in.dtype() ? out : best);
  } else {
    run(op, in, mask, best, spec);
  }
  if (out.dtype() != in.dtype()) copy_into(best, out);
}

}  // namespace
}  // namespace array

using array::check_defined;

void reduce_into(Reduction op, const Tensor& in, const Tensor& out, const ReduceSpec& spec) {
  const char* name = reduction_name(op).data();
  check_defined(name, in);
  array::check_result(name, out);
  array::device_of(name, in, out);
  const uint64_t mask = array::dims_mask(name, in.ndim(), spec.dims);
  if (is_positional(op) && std::popcount(mask) > 1 && !spec.dims.empty()) {
    fail(ErrorKind::kInvalidArgument, name, ": takes one dimension or none, got ",
         spec.dims.size());
  }
  ReduceSpec ruled = spec;
  ruled.dtype.reset();
  if (is_floating(out.dtype()) || is_complex(out.dtype())) ruled.rules = Rules::numpy;
  const Dtype natural = array::result_dtype(op, in.dtype(), ruled);
  if ((is_complex(natural) && !is_complex(out.dtype())) ||
      (is_floating(natural) && !is_floating(out.dtype()) && !is_complex(out.dtype()))) {
    fail(ErrorKind::kTypeMismatch, name, ": the result is ", dtype_name(natural),
         " and does not go into out, which is ", dtype_name(out.dtype()));
  }
  const Shape kept = array::result_shape(in, mask, true);
  const Shape dropped = array::result_shape(in, mask, false);
  if (out.shape() != kept && out.shape() != dropped) {
    fail(ErrorKind::kInvalidArgument, name, ": the result has shape ", shape_text(dropped),
         ", out has ", shape_text(out.shape()));
  }
  if (array::may_overlap(out, in)) {
    return reduce_into(op, array::copy_of(in, in.dtype()), out, spec);
  }
  if (in.numel() == 0 && out.numel() != 0 && reduction_info(op).empty == ReductionInfo::kError) {
    fail(ErrorKind::kInvalidArgument, name, ": no elements have no ", name, ", got shape ",
         shape_text(in.shape()));
  }
  if (is_complex(in.dtype())) {
    if (is_complex(out.dtype()) && reduction_info(op).of_complex) {
      return array::run(op, array::as_pairs(in), mask, array::as_pairs(out), spec);
    }
    if (op == Reduction::any || op == Reduction::all) {
      return reduce_into(op, apply(OpId::ne, {in, 0.0}), out, spec);
    }
    fail(ErrorKind::kTypeMismatch, name, ": is not defined for ", dtype_name(in.dtype()),
         "; reduce the real and imaginary parts");
  }
  if (is_complex(out.dtype())) {
    // In the dtype of the parts, as if the operand had been complex.
    const Dtype part = out.dtype() == Dtype::kComplex64 ? Dtype::kFloat32 : Dtype::kFloat64;
    const Tensor real = array::fresh(out.shape(), part, array::device_of(out));
    array::run(op, cast(in, part), mask, real, spec);
    return copy_into(real, out);
  }
  if (is_positional(op) && in.dtype() == Dtype::kBool) {
    return reduce_into(op, cast(in, Dtype::kUInt8), out, spec);
  }
  if (is_stored_only(in.dtype()) || is_stored_only(out.dtype())) {
    return array::run_unsigned(op, in, mask, out, spec);
  }
  array::run(op, in, mask, out, spec);
}

Tensor reduce(Reduction op, const Tensor& in, const ReduceSpec& spec) {
  const char* name = reduction_name(op).data();
  check_defined(name, in);
  const uint64_t mask = array::dims_mask(name, in.ndim(), spec.dims);
  const Dtype dtype = array::result_dtype(op, in.dtype(), spec);
  Tensor out =
      array::fresh(array::result_shape(in, mask, spec.keepdim), dtype, array::device_of(in));
  reduce_into(op, in, out, spec);
  return out;
}

Tensor cumsum(const Tensor& in, int dim, Rules rules) {
  check_defined("cumsum", in);
  const int ndim = in.ndim();
  if (ndim == 0 ? (dim != 0 && dim != -1) : (dim < -ndim || dim >= ndim)) {
    fail(ErrorKind::kIndex, "cumsum: dimension ", dim, " is out of range for a tensor of ", ndim,
         " dimensions");
  }
  if (is_complex(in.dtype())) {
    Tensor out = array::fresh(in.shape(), in.dtype(), array::device_of(in));
    const Tensor from = array::as_pairs(in), to = array::as_pairs(out);
    record(calls::Cumsum<array::Arg>{.input = from, .dim = dim < 0 ? dim + ndim : dim, .out = to});
    return out;
  }
  const Dtype dtype = is_floating(in.dtype()) ? in.dtype() : array::sum_dtype(in.dtype(), rules);
  Tensor out = array::fresh(in.shape(), dtype, array::device_of(in));
  if (in.numel() == 0) return out;
  if (ndim == 0) {
    copy_into(in, out);
    return out;
  }
  const Tensor from = array::carrier(is_stored_only(in.dtype()) ? cast(in, dtype) : in);
  const Tensor to = array::carrier(out);
  record(calls::Cumsum<array::Arg>{.input = from, .dim = dim < 0 ? dim + ndim : dim, .out = to});
  return out;
}

// --- Rows ---------------------------------------------------------------------------------------

namespace {

void softmax_rows(const char* name, circuit::RowOp row, const Tensor& in, int dim,
                  const Tensor& out) {
  check_defined(name, in);
  array::check_result(name, out);
  array::device_of(name, in, out);
  if (!is_floating(in.dtype()) || !is_floating(out.dtype())) {
    fail(ErrorKind::kTypeMismatch, name, ": is for floating dtypes, got ", dtype_name(in.dtype()),
         " and a result of ", dtype_name(out.dtype()), "; cast the tensor first");
  }
  if (in.shape() != out.shape()) {
    fail(ErrorKind::kInvalidArgument, name, ": the input has shape ", shape_text(in.shape()),
         ", out has ", shape_text(out.shape()));
  }
  const int ndim = std::max(in.ndim(), 1);
  if (dim < -ndim || dim >= ndim) {
    fail(ErrorKind::kIndex, name, ": dimension ", dim, " is out of range for a tensor of ",
         in.ndim(), " dimensions");
  }
  if (in.numel() == 0) return;
  if (array::clashes(out, in)) {
    return softmax_rows(name, row, array::copy_of(in, in.dtype()), dim, out);
  }
  const int along = dim < 0 ? dim + ndim : dim;
  if (is_recording(array::device_of(in)) && along == ndim - 1 && in.is_contiguous() &&
      out.is_contiguous() && !(array::is_free(out) && array::is_at_hand(in))) {
    const RecordOperand operands[] = {array::record_operand(out), array::record_operand(in)};
    const int64_t cols = in.ndim() == 0 ? 1 : in.shape().back();
    if (record_rows(static_cast<int>(row), operands, 1, in.numel() / cols, cols)) return;
  }
  record(
      calls::Softmax<array::Arg>{
          .input = in, .dim = along, .function = static_cast<int64_t>(row), .out = out},
      name);
}

}  // namespace

void softmax_into(const Tensor& in, int dim, const Tensor& out) {
  softmax_rows("softmax", circuit::RowOp::kSoftmax, in, dim, out);
}
void log_softmax_into(const Tensor& in, int dim, const Tensor& out) {
  softmax_rows("log_softmax", circuit::RowOp::kLogSoftmax, in, dim, out);
}
Tensor softmax(const Tensor& in, int dim) {
  check_defined("softmax", in);
  Tensor out = array::fresh(in.shape(), in.dtype(), array::device_of(in));
  softmax_into(in, dim, out);
  return out;
}
Tensor log_softmax(const Tensor& in, int dim) {
  check_defined("log_softmax", in);
  Tensor out = array::fresh(in.shape(), in.dtype(), array::device_of(in));
  log_softmax_into(in, dim, out);
  return out;
}

}  // namespace hologram
