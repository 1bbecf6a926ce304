// SPDX-License-Identifier: MIT
// Copies and fills of host memory by the library; registers copy_, _to_copy, fill_ and zero_.
#include "ops/shape/host_copy.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/view_as_real.h>

#include <cstring>

#include "hologram/elementwise.h"
#include "hologram/parallel.h"
#include "recording/autograd_bypass.h"
#include "recording/record_call.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using c10::TensorImpl;
using hologram::Dtype;
using hologram::View;

constexpr int64_t kSmallBytes = 64 << 10;
const int64_t kUnitStride = 1;

bool is_host(const TensorImpl* t) {
  return (is_dense(t) && is_on_host(t)) || has_exactly(t->key_set(), c10::DispatchKey::CPU);
}

bool fits(const c10::IntArrayRef from, const c10::IntArrayRef to) {
  if (from.size() > to.size()) return false;
  const size_t offset = to.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] != 1 && from[d] != to[offset + d]) return false;
  }
  return true;
}

View flat_view(void* data, Dtype dtype, const int64_t* n) {
  return {data, dtype, 1, n, &kUnitStride};
}

// The element that `value` becomes in dtype; false where PyTorch's own conversion has to judge.
bool store_element(const c10::Scalar& value, c10::ScalarType type, void* slot) {
  const int code = dtype_code(type);
  if (code < 0) return false;
  const Dtype dtype = static_cast<Dtype>(code);
  if (hologram::is_complex(dtype)) return false;
  if (dtype == Dtype::kBool && !value.isBoolean()) {
    if (value.isComplex() || value.isSymbolic()) return false;
    *static_cast<bool*>(slot) = !value.equal(0);
    return true;
  }
  // Padding fills integers with floating numbers that are whole.
  if (hologram::is_integer(dtype) && value.isFloatingPoint() &&
      std::abs(value.toDouble()) < 0x1p31 && value.toDouble() == std::trunc(value.toDouble())) {
    return store_number(c10::Scalar(static_cast<int64_t>(value.toDouble())), dtype, slot);
  }
  if (hologram::compute_dtype(dtype) == dtype) return store_number(value, dtype, slot);
  float wide;
  if (!store_number(value, Dtype::kFloat32, &wide)) return false;
  if (type == c10::ScalarType::Half) {
    const c10::Half narrow(wide);
    *static_cast<c10::Half*>(slot) = narrow;
    return std::isfinite(static_cast<float>(narrow)) || !std::isfinite(wide);
  }
  const c10::BFloat16 narrow(wide);
  *static_cast<c10::BFloat16*>(slot) = narrow;
  return std::isfinite(static_cast<float>(narrow)) || !std::isfinite(wide);
}

// glibc's memset serves bytes only.
HOLOGRAM_WIDE
void fill_words(char* out, uint64_t word, int64_t words) {
  for (int64_t i = 0; i < words; ++i) std::memcpy(out + 8 * i, &word, 8);
}

// A run of n equal elements of at most 8 bytes.
void fill_run(char* out, const char* element, size_t itemsize, int64_t n) {
  if (itemsize == 1) {
    std::memset(out, element[0], static_cast<size_t>(n));
    return;
  }
  uint64_t word = 0;
  for (size_t at = 0; at < 8; at += itemsize) {
    std::memcpy(reinterpret_cast<char*>(&word) + at, element, itemsize);
  }
  const size_t bytes = static_cast<size_t>(n) * itemsize;
  fill_words(out, word, static_cast<int64_t>(bytes / 8));
  std::memcpy(out + bytes / 8 * 8, &word, bytes % 8);
}

// --- ATen ------------------------------------------------------------------------------------

// The elements of a tensor that is on a device whose memory the host cannot read, as a cpu tensor:
// row-major, on its own memory.
Tensor to_host(const Tensor& t) {
  const Tensor dense = t.resolve_conj().resolve_neg().contiguous();
  Tensor result = at::empty(dense.sizes(), dense.options().device(c10::DeviceType::CPU));
  const c10::StorageImpl& storage = *dense.storage().unsafeGetStorageImpl();
  read_storage(storage, static_cast<size_t>(dense.storage_offset()) * dense.itemsize(),
               result.mutable_data_ptr(), static_cast<size_t>(dense.nbytes()));
  return result;
}

// One of the two is on such a device. Through the host, unless both are on the same one; false
// where PyTorch has to refuse.
bool copy_across(const Tensor& self, const Tensor& source) {
  if (!fits(source.sizes(), self.sizes()) || self.layout() != c10::kStrided ||
      source.layout() != c10::kStrided) {
    return false;
  }
  if (self.numel() == 0) return true;
  if (is_host_index(source.device().index())) {
    // Up: what is not one piece of memory there is copied once more, on the device.
    const Tensor host = source.to(c10::DeviceType::CPU).to(self.scalar_type());
    const Tensor whole = host.expand(self.sizes()).resolve_conj().resolve_neg().contiguous();
    const bool direct = self.is_contiguous() && !self.is_conj() && !self.is_neg();
    const Tensor target =
        direct ? self : make_tensor(self.sizes(), self.scalar_type(), self.device().index());
    write_storage(*target.storage().unsafeGetStorageImpl(),
                  static_cast<size_t>(target.storage_offset()) * target.itemsize(),
                  whole.const_data_ptr(), static_cast<size_t>(whole.nbytes()));
    if (!direct && !native_copy(self, target)) call_fallback<"copy_">(self, target, false);
    return true;
  }
  if (self.device() == source.device()) {
    call_fallback<"copy_">(self, source, false);
    return true;
  }
  const Tensor host = to_host(source);
  self.copy_(host);
  return true;
}

Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  if (C10_LIKELY(native_copy(self, source))) return self;
  const bool across = is_ours(self) ? !is_host_index(self.device().index())
                                    : is_ours(source) && !is_host_index(source.device().index());
  if ((across || (is_ours(source) && !is_host_index(source.device().index()))) &&
      copy_across(self, source)) {
    return self;
  }
  return at::native::copy_(self, source, non_blocking);
}

Tensor to_copy(const Tensor& self, std::optional<at::ScalarType> dtype,
               std::optional<at::Layout> layout, std::optional<at::Device> device,
               std::optional<bool> pin_memory, bool non_blocking,
               std::optional<at::MemoryFormat> format) {
  const at::MemoryFormat wanted = format.value_or(at::MemoryFormat::Preserve);
  const at::ScalarType type = dtype.value_or(self.scalar_type());
  const bool to_cpu = device.has_value() && device->is_cpu();
  const bool to_ours = !device.has_value() ||
                       (device->type() == kDeviceType && index_of(device) == self.device().index());
  if (C10_LIKELY(is_dense(self.unsafeGetTensorImpl()) && (to_cpu || to_ours) &&
                 !pin_memory.value_or(false) && layout.value_or(c10::kStrided) == c10::kStrided &&
                 dtype_code(type) >= 0)) {
    Tensor result;
    if (to_ours) {
      result = wanted == at::MemoryFormat::Preserve
                   ? make_like(self, type)
                   : make_formatted(self.sizes(), type, wanted, self.device().index());
    } else if (wanted == at::MemoryFormat::Preserve) {
      // As of every accelerator: memory that a copy need not wait for is pinned.
      const auto options =
          at::TensorOptions().dtype(type).device(*device).pinned_memory(non_blocking);
      result =
          self.is_non_overlapping_and_dense()
              ? at::empty_strided(self.sizes(), self.strides(), options)
              : at::empty_strided(self.sizes(),
                                  at::infer_dense_strides(self.sizes(), self.strides()), options);
    }
    if (result.defined() && native_copy(result, self)) return result;
  }
  return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, format);
}

Tensor& fill_scalar(Tensor& self, const c10::Scalar& value) {
  if (C10_UNLIKELY(!native_fill(self, value))) call_fallback<"fill_.Scalar">(self, value);
  return self;
}

Tensor& fill_tensor(Tensor& self, const Tensor& value) {
  const bool number =
      value.defined() && value.dim() == 0 && is_dense(self.unsafeGetTensorImpl()) &&
      (is_host(value.unsafeGetTensorImpl()) || is_dense(value.unsafeGetTensorImpl()));
  if (!number || !native_copy(self, value)) call_fallback<"fill_.Tensor">(self, value);
  return self;
}

Tensor& zero_(Tensor& self) {
  if (C10_UNLIKELY(!native_zero(self))) call_fallback<"zero_">(self);
  return self;
}
Tensor& zero_untracked(c10::DispatchKeySet keys, Tensor& self) {
  if (C10_LIKELY(is_untracked(keys, self) && native_zero(self))) {
    count_write(keys, self);
    return self;
  }
  return call_autograd<"zero_", Tensor&, Tensor&>(keys, self);
}

// Copies to complex elements on devices with memory of their own: as a call, for ops of the table
// do not take them. False for other dtypes, which were recorded or cannot be.
bool copy_complex(const Tensor& dst, const Tensor& src) {
  if (!at::isComplexType(dst.scalar_type())) return false;
  const Tensor all = src.expand(dst.sizes());  // a piece borrows it
  const calls::In<Arg> pieces[] = {all};
  const int64_t begins[] = {0};
  record(calls::Place<Arg>{
      .pieces = pieces, .begins = begins, .strides = dst.strides(), .out = written(dst)});
  return true;
}

}  // namespace

bool native_copy(const Tensor& dst, const Tensor& src) {
  if (C10_UNLIKELY(!dst.defined() || !src.defined())) return false;
  TensorImpl* to = dst.unsafeGetTensorImpl();
  const TensorImpl* from = src.unsafeGetTensorImpl();
  if (to == from) return true;
  // Between tensors of one device whose memory the host cannot touch there is only to record.
  const bool elsewhere = is_dense(to) && !is_on_host(to);
  if (C10_UNLIKELY(elsewhere ? !is_dense(from) || from->device() != to->device()
                             : !is_host(to) || !is_host(from))) {
    return false;
  }
  const bool same_dtype = to->dtype() == from->dtype();
  const int64_t n = to->numel();
  const bool same = same_layout(to, from);
  if (!same && !fits(from->sizes(), to->sizes())) return false;
  if (same && n == 0) return true;
  const int to_code = dtype_code(to->dtype().toScalarType());
  const int from_code = dtype_code(from->dtype().toScalarType());
  const bool known = to_code >= 0 && from_code >= 0;
  const Dtype to_dtype = static_cast<Dtype>(to_code), from_dtype = static_cast<Dtype>(from_code);
  const bool converts =
      known && (!hologram::is_complex(from_dtype) || hologram::is_complex(to_dtype));
  if (C10_UNLIKELY(elsewhere && known && !converts) && to_dtype != Dtype::kBool) {
    TORCH_WARN_ONCE("Casting complex values to real discards the imaginary part");
    return native_copy(dst, at::view_as_real(src).select(-1, 0));
  }
  // Without a conversion bytes are bytes.
  if (!converts && !(same && same_dtype)) return false;
  if (n == 0) return true;

  if (C10_LIKELY(same)) {
    const Place in_place = place_of(from), out_place = place_of(to);
    const int64_t to_bytes = n * static_cast<int64_t>(to->itemsize());
    const int64_t from_bytes = n * static_cast<int64_t>(from->itemsize());
    if (C10_UNLIKELY(ranges_meet(in_place, from_bytes, out_place, to_bytes))) {
      return same_dtype && in_place == out_place;
    }
    if (known && (is_deferring() || elsewhere) && record_copy_of(from, to)) return true;
    if (elsewhere) return known && copy_complex(dst, src);
    const char* in = read_pointer(from);
    char* out = write_pointer(to);
    if (same_dtype && to_bytes <= kSmallBytes) {
      std::memcpy(out, in, static_cast<size_t>(to_bytes));
    } else if (same_dtype) {
      hologram::copy(flat_view(const_cast<char*>(in), Dtype::kUInt8, &to_bytes),
                     flat_view(out, Dtype::kUInt8, &to_bytes), threads_for(to_bytes));
    } else if (n <= kSmall) {
      hologram::convert(from_dtype, in, to_dtype, out, n);
    } else {
      hologram::copy(flat_view(const_cast<char*>(in), from_dtype, &n), flat_view(out, to_dtype, &n),
                     threads_for(n));
    }
    return true;
  }
  if (may_overlap_itself(to) || may_disturb(to, from)) return false;
  if ((is_deferring() || elsewhere) && record_copy_of(from, to)) return true;
  if (elsewhere) return copy_complex(dst, src);
  hologram::copy(read_view(src), write_view(dst), threads_for(n));
  return true;
}

bool native_fill(const Tensor& self, const c10::Scalar& value) {
  TensorImpl* t = self.unsafeGetTensorImpl();
  if (C10_UNLIKELY(!is_dense(t))) return false;
  const bool on_host = is_on_host(t);
  const c10::ScalarType type = t->dtype().toScalarType();
  alignas(16) char element[16];
  if (C10_UNLIKELY(at::isComplexType(type))) {
    if (value.isSymbolic()) return false;
    const c10::complex<double> number = value.toComplexDouble();
    const c10::ScalarType part = c10::toRealValueType(type);
    if (!store_element(number.real(), part, element) ||
        !store_element(number.imag(), part, element)) {
      return false;
    }
    const Tensor parts = at::view_as_real(self);
    return native_fill(parts.select(-1, 0), number.real()) &&
           native_fill(parts.select(-1, 1), number.imag());
  }
  if (!store_element(value, type, element)) return false;
  if (may_overlap_itself(t)) return false;
  const int64_t n = t->numel();
  if (n == 0) return true;
  if (is_deferring() || !on_host) {
    const Dtype dtype = static_cast<Dtype>(dtype_code(type));
    const Dtype compute = hologram::compute_dtype(dtype);
    alignas(8) char number[8];
    hologram::convert(dtype, element, compute, number, 1);
    if (record_fill(number, t)) return true;
  }
  if (!on_host) return false;
  if (t->is_non_overlapping_and_dense()) {
    char* out = write_pointer(t);
    const size_t itemsize = t->itemsize();
    constexpr int64_t kChunk = 65536;
    hologram::parallel_for((n + kChunk - 1) / kChunk, threads_for(n),
                           [&](int64_t begin, int64_t end, int) {
                             const int64_t from = begin * kChunk;
                             fill_run(out + from * static_cast<int64_t>(itemsize), element,
                                      itemsize, std::min(n, end * kChunk) - from);
                           });
    return true;
  }
  hologram::fill(value.isFloatingPoint() ? hologram::Scalar(value.toDouble())
                 : value.isBoolean()     ? hologram::Scalar(value.toBool())
                                         : hologram::Scalar(value.toLong()),
                 write_view(self), threads_for(n));
  return true;
}

bool native_zero(const Tensor& self) {
  TensorImpl* t = self.unsafeGetTensorImpl();
  if (C10_UNLIKELY(!is_dense(t))) return false;
  const bool on_host = is_on_host(t);
  if (!t->is_non_overlapping_and_dense() || (!on_host && at::isComplexType(self.scalar_type()))) {
    return native_fill(self, 0);
  }
  const int64_t bytes = t->numel() * static_cast<int64_t>(t->itemsize());
  if (bytes == 0) return true;
  if ((is_deferring() || !on_host) && is_real(t->dtype().toScalarType())) {
    constexpr char kZero[8] = {};
    if (record_fill(kZero, t)) return true;
  }
  if (!on_host) return false;
  char* out = write_pointer(t);
  if (bytes <= kSmallBytes) {
    std::memset(out, 0, static_cast<size_t>(bytes));
  } else {
    hologram::fill(int64_t{0}, flat_view(out, Dtype::kUInt8, &bytes), threads_for(bytes));
  }
  return true;
}

}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&copy_>(m, "copy_");
  register_native<&to_copy>(m, "_to_copy");
  register_native<&fill_scalar>(m, "fill_.Scalar");
  register_native<&fill_tensor>(m, "fill_.Tensor");
  register_native<&zero_>(m, "zero_");
  register_untracked<"zero_", &zero_untracked>();
}
