// SPDX-License-Identifier: MIT
// New results, operands as records see them, and overlap of tensors.
#include "src/array/array.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/memory.h"
#include "src/runtime/memory/tensor_access.h"

namespace hologram::array {

constinit thread_local int t_small_waits = 0;

bool end_of_patience(Buffer& buffer) {
  // A loop of fewer small ops between large ones, as along the borders of a grid, fuses with them.
  constexpr int kPatience = 64;
  if (!buffer.device().is_host_memory() || ++t_small_waits < kPatience) return false;
  t_small_waits = 0;
  materialize(buffer);
  return true;
}

Tensor fresh(Shape shape, Dtype dtype, Device& device) {
  const int64_t numel = shape_numel(shape);
  size_t nbytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(numel), itemsize(dtype), &nbytes)) {
    fail(ErrorKind::kOutOfMemory, "out of memory: ", numel, " elements of ", dtype_name(dtype),
         " are more bytes than an address can count");
  }
  Buffer* buffer = allocate_deferred(device, nbytes);
  buffer->set_dtype(dtype);
  return internal::TensorAccess::whole(BufferRef::adopt(buffer), std::move(shape), numel, dtype);
}

Tensor with_memory(Shape shape, int64_t numel, Dtype dtype, Device& device) {
  const size_t nbytes = static_cast<size_t>(numel) * itemsize(dtype);
  BufferRef memory = BufferRef::adopt(allocate_buffer(device, nbytes));
  memory->set_dtype(dtype);
  return internal::TensorAccess::whole(std::move(memory), std::move(shape), numel, dtype);
}

void check_defined(const char* function, const Tensor& t) {
  if (!t.buffer()) {
    fail(ErrorKind::kInvalidArgument, function,
         ": a tensor without memory (made by Tensor()) was given; make one with empty() or full()");
  }
}

Device& device_of(const char* function, std::span<const Operand> operands) {
  Device* device = nullptr;
  for (const Operand& operand : operands) {
    if (!operand.is_tensor()) continue;
    check_defined(function, operand.tensor());
    Device& own = device_of(operand.tensor());
    if (device != nullptr && device != &own) {
      fail(ErrorKind::kInvalidArgument, function, ": the tensors are on different devices, ",
           device->name(), " (", device->index(), ") and ", own.name(), " (", own.index(),
           "); copy one to the other's");
    }
    device = &own;
  }
  if (device == nullptr) {
    fail(ErrorKind::kInvalidArgument, function,
         ": all operands are numbers; at least one has to be a tensor");
  }
  return *device;
}

Device& device_of(const char* function, const Tensor& a, const Tensor& b) {
  const Operand operands[] = {a, b};
  return device_of(function, operands);
}

RecordOperand record_operand(const Tensor& t) {
  return {t.buffer().get(), t.offset() * static_cast<int64_t>(itemsize(t.dtype())), t.dtype(),
          false, 0};
}

RecordOperand record_number(const Scalar& number, Dtype dtype) {
  RecordOperand operand{nullptr, 0, dtype, false, 0};
  const bool widens = dtype == Dtype::kBool || is_integer(dtype);
  const void* const value = &number.f64;
  if (widens) {
    // Converted to its own width first, which decides how it wraps.
    int64_t own = 0;
    convert(number.dtype, value, dtype, &own, 1);
    int64_t wide = 0;
    convert(dtype, &own, Dtype::kInt64, &wide, 1);
    operand.bits = static_cast<uint64_t>(wide);
  } else {
    convert(number.dtype, value, dtype, &operand.bits, 1);
  }
  return operand;
}

bool broadcast_to(std::span<const int64_t> shape, Shape& result) {
  while (result.size() < shape.size()) result.insert(result.begin(), 1);
  const size_t missing = result.size() - shape.size();
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t& size = result[missing + d];
    if (size == 1) {
      size = shape[d];
    } else if (shape[d] != 1 && shape[d] != size) {
      return false;
    }
  }
  return true;
}

namespace {
[[noreturn]] void fail_broadcast(std::string_view name, std::span<const Operand> operands) {
  std::string shapes;
  for (const Operand& operand : operands) {
    if (!operand.is_tensor()) continue;
    shapes += (shapes.empty() ? "" : " and ") + shape_text(operand.tensor().shape());
  }
  fail(ErrorKind::kInvalidArgument, name, ": shapes ", shapes,
       " do not broadcast: from the last dimension on, sizes have to be equal or 1");
}

}  // namespace

Shape broadcast_shape(std::string_view name, std::span<const Operand> operands) {
  std::optional<Shape> shape;
  for (const Operand& operand : operands) {
    if (!operand.is_tensor()) continue;
    if (!shape.has_value()) {
      shape = operand.tensor().shape();
    } else if (operand.tensor().shape() != *shape &&
               !broadcast_to(operand.tensor().shape(), *shape)) {
      fail_broadcast(name, operands);
    }
  }
  return *std::move(shape);
}

Shape strides_over(const Tensor& t, std::span<const int64_t> shape) {
  Shape strides(shape.size(), 0);
  const size_t missing = shape.size() - t.shape().size();
  for (size_t d = 0; d < t.shape().size(); ++d) {
    if (t.shape()[d] == shape[missing + d]) strides[missing + d] = t.strides()[d];
  }
  return strides;
}

Tensor broadcast(const Tensor& t, const Shape& shape) {
  if (t.shape() == shape) return t;
  return internal::TensorAccess::describe(t, shape, strides_over(t, shape), t.dtype(), t.offset());
}

Extent extent_of(const Tensor& t) {
  if (t.numel() == 0) return {};
  const auto size = static_cast<int64_t>(itemsize(t.dtype()));
  int64_t low = 0, high = 0;
  for (size_t d = 0; d < t.shape().size(); ++d) {
    const int64_t reach = (t.shape()[d] - 1) * t.strides()[d];
    (reach < 0 ? low : high) += reach;
  }
  return {(t.offset() + low) * size, (high - low + 1) * size};
}

bool may_overlap(const Tensor& x, const Tensor& y) {
  if (!may_share_memory(x.buffer().get(), y.buffer().get())) return false;
  const Extent a = extent_of(x), b = extent_of(y);
  return may_share_bytes({x.buffer().get(), a.offset, a.bytes},
                         {y.buffer().get(), b.offset, b.bytes});
}

bool clashes(const Tensor& written, const Tensor& read) {
  if (!may_overlap(written, read)) return false;
  if (written.dtype() != read.dtype()) return true;
  if (written.buffer() == read.buffer() ? written.offset() != read.offset()
                                        : written.data() != read.data()) {
    return true;
  }
  // The same elements in the same order are read before they are written.
  return strides_over(read, written.shape()) != written.strides() &&
         !(written.is_contiguous() && read.is_contiguous() && written.numel() == read.numel());
}

void check_result(const char* function, const Tensor& out) {
  check_defined(function, out);
  if (out.may_overlap_itself()) {
    fail(ErrorKind::kInvalidArgument, function, ": out has shape ", shape_text(out.shape()),
         " and strides ", shape_text(out.strides()),
         ", of which several elements may be in one place; copy it first");
  }
}

Tensor as_pairs(const Tensor& t) {
  Shape shape = t.shape(), strides = t.strides();
  for (int64_t& stride : strides) stride *= 2;
  shape.push_back(2);
  strides.push_back(1);
  return internal::TensorAccess::describe(t, std::move(shape), std::move(strides),
                                          part_dtype(t.dtype()), 2 * t.offset());
}

bool is_number_kind_above(const Scalar& number, Dtype dtype) {
  switch (number.dtype) {
    case Dtype::kBool:
      return false;
    case Dtype::kInt64:
      return dtype == Dtype::kBool;
    default:
      return dtype == Dtype::kBool || is_integer(dtype);
  }
}

Tensor host_copy(const Tensor& t) {
  const Tensor dense = contiguous(t);
  Device& device = device_of(dense);
  Tensor copy = fresh(dense.shape(), dense.dtype(), hologram::device(BackendType::kCpu));
  materialize(copy);
  if (dense.numel() == 0) return copy;
  materialize(dense);
  device.copy_to_host(device.default_stream(), copy.data(), dense.data(), dense.nbytes());
  return copy;
}

Tensor copy_of(const Tensor& t, Dtype dtype) {
  Tensor copy = fresh(t.shape(), dtype, device_of(t));
  copy_into(t, copy);
  return copy;
}

}  // namespace hologram::array
