// SPDX-License-Identifier: MIT
// Tensors made, copied, joined and read.
#include <array>
#include <cstring>
#include <optional>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/memory.h"
#include "src/array/array.h"
#include "src/array/at_call.h"
#include "src/array/record_call.h"
#include "src/array/small_copy.h"
#include "src/array/types.h"
#include "src/array/unsigned.h"

namespace hologram {

using array::check_defined;
using array::device_of;

namespace {

void check_kinds(const char* function, Dtype from, Dtype to) {
  if (is_complex(from) && !is_complex(to)) {
    fail(ErrorKind::kTypeMismatch, function, ": ", dtype_name(from), " does not convert to ",
         dtype_name(to), "; take the real part first");
  }
}

// Both of dst's shape.
void copy_same_shape(const Tensor& src, const Tensor& dst) {
  const bool is_small = array::is_free(dst) && array::is_at_hand(src);
  if (is_recording(device_of(dst)) && !is_small) {
    const bool is_flat = src.is_contiguous() && dst.is_contiguous();
    if (is_complex(dst.dtype())) {
      // Records know the parts of complex numbers alone.
      if (is_flat && is_complex(src.dtype())) {
        return copy_same_shape(array::as_pairs(src), array::as_pairs(dst));
      }
      return record(calls::Copy<array::Arg>{.input = src, .out = dst});
    }
    const RecordOperand out = array::record_operand(dst), in = array::record_operand(src);
    if (is_flat) {
      if (record_flat_copy(out, in, dst.numel())) return;
    } else if (record_copy(out, in, dst.ndim(), dst.shape().data(), dst.strides().data(),
                           src.strides().data())) {
      return;
    }
  }
  if (!device_of(dst).is_host_memory()) {
    return record(calls::Copy<array::Arg>{.input = src, .out = dst});
  }
  array::note_not_recorded("copy", is_small, std::array{Operand(src)}, dst);
  const CircuitCause cause("copy");
  materialize(src);
  materialize(dst);
  if (is_small && src.dtype() == dst.dtype()) {
    return array::copy_small(itemsize(src.dtype()), src.shape(), src.data(), src.strides().data(),
                             dst.data(), dst.strides().data());
  }
  copy(src.view(), dst.view());
}

}  // namespace

Tensor empty(Shape shape, Dtype dtype, Device& device) {
  return array::fresh(std::move(shape), dtype, device);
}

Tensor full(Shape shape, const Scalar& value, Dtype dtype, Device& device) {
  Tensor t = empty(std::move(shape), dtype, device);
  fill_into(value, t);
  return t;
}

Tensor from_host(const View& host, Device& device) {
  const std::span<const int64_t> shape(host.shape, static_cast<size_t>(host.ndim));
  Tensor t = empty(Shape(shape), host.dtype, device);
  if (t.numel() == 0) return t;
  materialize(t);
  if (device.is_host_memory()) {
    copy(array::carrier(host), array::carrier(t.view()));
    return t;
  }
  const Tensor dense = empty(Shape(shape), host.dtype, hologram::device(BackendType::kCpu));
  materialize(dense);
  copy(array::carrier(host), array::carrier(dense.view()));
  device.copy_from_host(device.default_stream(), t.data(), dense.data(), t.nbytes());
  return t;
}

void copy_into(const Tensor& src, const Tensor& dst) {
  array::check_result("copy_into", dst);
  device_of("copy_into", src, dst);
  check_kinds("copy_into", src.dtype(), dst.dtype());
  Shape whole = dst.shape();
  if (src.ndim() > dst.ndim() || !array::broadcast_to(src.shape(), whole) || whole != dst.shape()) {
    fail(ErrorKind::kInvalidArgument, "copy_into: shape ", shape_text(src.shape()),
         " does not broadcast to ", shape_text(dst.shape()));
  }
  if (dst.numel() == 0) return;
  if (is_stored_only(src.dtype()) || is_stored_only(dst.dtype())) {
    const Tensor from =
        src.dtype() == dst.dtype() ? array::carrier(src) : array::convertible(src, dst.dtype());
    return copy_into(from, array::carrier(dst));
  }
  if (array::clashes(dst, src)) {
    const Tensor apart = array::copy_of(src, src.dtype());
    return copy_same_shape(array::broadcast(apart, dst.shape()), dst);
  }
  copy_same_shape(array::broadcast(src, dst.shape()), dst);
}

void fill_into(const Scalar& value, const Tensor& dst) {
  array::check_result("fill_into", dst);
  if (dst.numel() == 0) return;
  if (is_stored_only(dst.dtype())) {
    return fill_into(array::convertible(value, dst.dtype()), array::carrier(dst));
  }
  Device& device = device_of(dst);
  if (is_complex(dst.dtype()) && dst.numel() != 1) {
    const Tensor one = full({}, value, dst.dtype(), device);
    return copy_same_shape(array::broadcast(one, dst.shape()), dst);
  }
  const bool is_small = array::is_free(dst);
  if (is_recording(device) && !is_complex(dst.dtype()) && !is_small) {
    const RecordOperand out = array::record_operand(dst);
    const RecordOperand number = array::record_number(value, compute_dtype(dst.dtype()));
    if (dst.is_contiguous()) {
      if (record_flat_copy(out, number, dst.numel())) return;
    } else {
      const Shape none(dst.shape().size(), 0);
      if (record_copy(out, number, dst.ndim(), dst.shape().data(), dst.strides().data(),
                      none.data())) {
        return;
      }
    }
  }
  if (!device.is_host_memory()) {
    const Tensor one = full({}, value, dst.dtype(), hologram::device(BackendType::kCpu));
    materialize(one);
    return copy_same_shape(array::broadcast(from_host(one.view(), device), dst.shape()), dst);
  }
  array::note_not_recorded("fill", is_small, {}, dst);
  const CircuitCause cause("fill");
  materialize(dst);
  fill(value, dst.view());
}

Tensor contiguous(const Tensor& tensor) {
  check_defined("contiguous", tensor);
  return tensor.is_contiguous() ? tensor : array::copy_of(tensor, tensor.dtype());
}

Tensor cast(const Tensor& tensor, Dtype dtype) {
  check_defined("cast", tensor);
  check_kinds("cast", tensor.dtype(), dtype);
  return tensor.dtype() == dtype ? tensor : array::copy_of(tensor, dtype);
}

Tensor reshaped(const Tensor& tensor, Shape shape) {
  std::optional<Tensor> view = tensor.try_reshape(shape);
  return view.has_value() ? *std::move(view) : contiguous(tensor).reshape(std::move(shape));
}

void materialize(const Tensor& tensor) {
  if (tensor.buffer()) materialize(*tensor.buffer());
}

void read(const Tensor& tensor, const View& host) {
  check_defined("read", tensor);
  check_kinds("read", tensor.dtype(), host.dtype);
  const std::span<const int64_t> shape(host.shape, static_cast<size_t>(host.ndim));
  if (!std::equal(shape.begin(), shape.end(), tensor.shape().begin(), tensor.shape().end())) {
    fail(ErrorKind::kInvalidArgument, "read: the tensor has shape ", shape_text(tensor.shape()),
         ", the memory ", shape_text(shape));
  }
  if (tensor.numel() == 0) return;
  if (is_stored_only(tensor.dtype()) || is_stored_only(host.dtype)) {
    return read(array::carrier(cast(tensor, host.dtype)), array::carrier(host));
  }
  if (!device_of(tensor).is_host_memory()) return copy(array::host_copy(tensor).view(), host);
  materialize(tensor);
  if (may_share_bytes(bytes_of(tensor.view()), bytes_of(host))) {
    const Tensor apart = array::copy_of(tensor, tensor.dtype());
    materialize(apart);
    return copy(apart.view(), host);
  }
  copy(tensor.view(), host);
}

Scalar item(const Tensor& tensor) {
  check_defined("item", tensor);
  if (tensor.numel() != 1) {
    fail(ErrorKind::kInvalidArgument, "item: the tensor has ", tensor.numel(),
         " elements; only one becomes a number");
  }
  if (is_stored_only(tensor.dtype())) return item(cast(tensor, Dtype::kInt64));
  Scalar value(0.0);
  const Dtype dtype = tensor.dtype();
  if (is_complex(dtype)) check_kinds("item", dtype, Dtype::kFloat64);
  if (dtype == Dtype::kBool) value = Scalar(false);
  if (is_integer(dtype)) value = Scalar(int64_t{0});
  const Tensor one = device_of(tensor).is_host_memory() ? tensor : array::host_copy(tensor);
  materialize(one);
  convert(dtype, one.data(), value.dtype, &value.f64, 1);
  return value;
}

Tensor cat(std::span<const Tensor> tensors, int dim, Rules rules) {
  if (tensors.empty()) {
    fail(ErrorKind::kInvalidArgument, "cat: no tensors were given; give at least one");
  }
  check_defined("cat", tensors[0]);
  Dtype dtype = tensors[0].dtype();
  Shape shape = tensors[0].shape();
  const int ndim = tensors[0].ndim();
  if (ndim == 0) fail(ErrorKind::kInvalidArgument, "cat: tensors without dimensions do not join");
  if (dim < -ndim || dim >= ndim) {
    fail(ErrorKind::kIndex, "cat: dimension ", dim, " is out of range for tensors of ", ndim,
         " dimensions");
  }
  const auto along = static_cast<size_t>(dim < 0 ? dim + ndim : dim);
  for (size_t k = 1; k < tensors.size(); ++k) {
    device_of("cat", tensors[0], tensors[k]);
    Shape rest = tensors[k].shape();
    const int64_t size = rest.size() > along ? rest[along] : 0;
    if (rest.size() > along) rest[along] = shape[along];
    if (rest != shape) {
      fail(ErrorKind::kInvalidArgument, "cat: tensor ", k, " has shape ",
           shape_text(tensors[k].shape()), ", tensor 0 ", shape_text(tensors[0].shape()),
           "; sizes may differ in dimension ", along, " only");
    }
    shape[along] += size;
    dtype = array::promote_by(rules, dtype, tensors[k].dtype());
  }
  Tensor out = array::fresh(std::move(shape), dtype, device_of(tensors[0]));
  int64_t at = 0;
  for (const Tensor& t : tensors) {
    const int64_t size = t.shape()[along];
    copy_into(t, out.narrow(static_cast<int>(along), at, size));
    at += size;
  }
  return out;
}

}  // namespace hologram
