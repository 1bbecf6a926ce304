// SPDX-License-Identifier: MIT
// What every native kernel needs: which tensors it may read, how the library sees them, and the way
// out to the fallback.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Scalar.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/openmp.h"
#include "device/tensor.h"
#include "hologram/dtype.h"
#include "hologram/view.h"
#include "host/fallback.h"

// Compiles a plain loop for wider vectors too; which copy runs is settled when we are loaded.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HOLOGRAM_WIDE __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define HOLOGRAM_WIDE
#endif

namespace hologram_torch {

// --- Tensors ---------------------------------------------------------------------------------

// Every key that says how a tensor stores its elements.
inline constexpr c10::DispatchKeySet kStorageKeys =
    c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                         c10::DispatchKey::ZeroTensor, c10::DispatchKey::Dense,
                         c10::DispatchKey::Quantized, c10::DispatchKey::Sparse,
                         c10::DispatchKey::SparseCsr, c10::DispatchKey::NestedTensor}) |
    c10::DispatchKeySet(c10::DispatchKeySet::RAW, c10::full_backend_mask);

inline bool has_exactly(c10::DispatchKeySet keys, c10::DispatchKey key) {
  return (keys & kStorageKeys) == c10::DispatchKeySet(key);
}

// Dense memory of ours with nothing lazy about it: the elements are what the bytes say. On any
// device: for what records, and does not look.
inline bool is_dense(const c10::TensorImpl* t) {
  return has_exactly(t->key_set(), c10::DispatchKey::PrivateUse1);
}
inline bool is_dense(const at::Tensor& t) { return is_dense(t.unsafeGetTensorImpl()); }
// Whether the host can read the elements where they are. What it cannot read is only recorded.
inline bool is_on_host(const c10::TensorImpl* t) { return is_host_index(t->device().index()); }
inline bool is_on_host(const at::Tensor& t) { return is_on_host(t.unsafeGetTensorImpl()); }
// Whether ops that write t are recorded.
inline bool is_recorded(const at::Tensor& t) { return is_deferring() || !is_on_host(t); }
inline bool same_device(const at::Tensor& a, const at::Tensor& b) {
  return a.device().index() == b.device().index();
}
// Raises PyTorch's error for operands of two devices; an undefined tensor is of none.
void check_same_device(c10::Device a, c10::Device b);
inline void check_same_device(const at::Tensor& a, const at::Tensor& b) {
  if (b.defined()) check_same_device(a.device(), b.device());
}

inline bool is_half_type(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

// Whether an optional argument is there.
inline bool is_given(const std::optional<at::Tensor>& t) { return t.has_value() && t->defined(); }

// Whether dim names a dimension; a number counts as having one.
inline bool has_dim(const at::Tensor& t, int64_t dim) {
  const int64_t ndim = std::max<int64_t>(t.dim(), 1);
  return dim >= -ndim && dim < ndim;
}

// A number that lives on the CPU; every device accepts one beside its own tensors.
inline bool is_cpu_number(const c10::TensorImpl* t) {
  return has_exactly(t->key_set(), c10::DispatchKey::CPU) && t->dim() == 0;
}

// Whether t has no elements and a graph is captured: then there is nothing to compute, or to see.
inline bool is_nothing_to_capture(const c10::TensorImpl* t) {
  return C10_UNLIKELY(hologram::is_capturing_graph()) && t->numel() == 0;
}

// The first element, for a kernel that runs at once: what was recorded on the tensor has run.
inline const char* read_pointer(const c10::TensorImpl* t) {
  if (is_nothing_to_capture(t)) return nullptr;
  const c10::StorageImpl* storage = t->unsafe_storage().unsafeGetStorageImpl();
  return storage_bytes(*storage) + t->storage_offset() * static_cast<int64_t>(t->itemsize());
}
inline char* write_pointer(c10::TensorImpl* t) {
  if (is_nothing_to_capture(t)) return nullptr;
  c10::StorageImpl* storage = t->unsafe_storage().unsafeGetStorageImpl();
  return storage_bytes(*storage) + t->storage_offset() * static_cast<int64_t>(t->itemsize());
}
inline const char* read_pointer(const at::Tensor& t) {
  return read_pointer(t.unsafeGetTensorImpl());
}
inline char* write_pointer(const at::Tensor& t) { return write_pointer(t.unsafeGetTensorImpl()); }

// --- Dtypes ----------------------------------------------------------------------------------

inline constexpr int kNoDtype = -1;

// The library's name of an element type, or kNoDtype for those only PyTorch knows.
constexpr int dtype_code(c10::ScalarType type) {
  using hologram::Dtype;
  switch (type) {
    case c10::ScalarType::Bool:
      return static_cast<int>(Dtype::kBool);
    case c10::ScalarType::Byte:
      return static_cast<int>(Dtype::kUInt8);
    case c10::ScalarType::Char:
      return static_cast<int>(Dtype::kInt8);
    case c10::ScalarType::Short:
      return static_cast<int>(Dtype::kInt16);
    case c10::ScalarType::Int:
      return static_cast<int>(Dtype::kInt32);
    case c10::ScalarType::Long:
      return static_cast<int>(Dtype::kInt64);
    case c10::ScalarType::Half:
      return static_cast<int>(Dtype::kFloat16);
    case c10::ScalarType::BFloat16:
      return static_cast<int>(Dtype::kBFloat16);
    case c10::ScalarType::Float:
      return static_cast<int>(Dtype::kFloat32);
    case c10::ScalarType::Double:
      return static_cast<int>(Dtype::kFloat64);
    case c10::ScalarType::ComplexFloat:
      return static_cast<int>(Dtype::kComplex64);
    case c10::ScalarType::ComplexDouble:
      return static_cast<int>(Dtype::kComplex128);
    default:
      return kNoDtype;
  }
}

// Of a type that has one.
inline hologram::Dtype dtype_of(c10::ScalarType type) {
  return static_cast<hologram::Dtype>(dtype_code(type));
}
inline hologram::Dtype dtype_of(const at::Tensor& t) { return dtype_of(t.scalar_type()); }

// Element types the library computes with.
inline bool is_real(c10::ScalarType type) {
  const int code = dtype_code(type);
  return code != kNoDtype && !hologram::is_complex(static_cast<hologram::Dtype>(code));
}

// The view of a tensor whose dtype has a code. Borrows the tensor's sizes and strides.
inline hologram::View view_of(const c10::TensorImpl* t, const char* data) {
  const c10::IntArrayRef sizes = t->sizes();
  return {const_cast<char*>(data),
          static_cast<hologram::Dtype>(dtype_code(t->dtype().toScalarType())),
          static_cast<int>(sizes.size()), sizes.data(), t->strides().data()};
}
inline hologram::View read_view(const at::Tensor& t) {
  return view_of(t.unsafeGetTensorImpl(), read_pointer(t));
}
inline hologram::View write_view(const at::Tensor& t) {
  return view_of(t.unsafeGetTensorImpl(), write_pointer(t));
}

// Threads a kernel over n elements may use; asks for their number only where it can matter.
inline constexpr int64_t kSmall = 16384;
inline int threads_for(int64_t n) { return n <= kSmall ? 1 : thread_count(); }

// --- Memory ----------------------------------------------------------------------------------

inline bool same_sizes(const c10::TensorImpl* a, const c10::TensorImpl* b) {
  const c10::IntArrayRef first = a->sizes(), second = b->sizes();
  if (first.size() != second.size()) return false;
  // A few numbers: not worth a call of memcmp.
  for (size_t d = 0; d < first.size(); ++d) {
    if (first[d] != second[d]) return false;
  }
  return true;
}

// Sizes equal and elements in the same order in memory, without holes.
inline bool same_layout(const c10::TensorImpl* a, const c10::TensorImpl* b) {
  if (!same_sizes(a, b)) return false;
  if (a->is_contiguous() && b->is_contiguous()) return true;
  return a->is_non_overlapping_and_dense() && a->strides() == b->strides();
}

// Where the first element of a tensor is, without asking for memory: a buffer and a position in it,
// or an address where there is no buffer.
struct Place {
  const hologram::Buffer* buffer;
  int64_t position;

  bool operator==(const Place&) const = default;
};
inline Place place_of(const c10::TensorImpl* t) {
  const c10::StorageImpl& storage = *t->unsafe_storage().unsafeGetStorageImpl();
  const hologram::Buffer* buffer = buffer_of(storage);
  const int64_t offset = t->storage_offset() * static_cast<int64_t>(t->itemsize());
  if (C10_LIKELY(buffer != nullptr)) return {buffer, offset};
  return {nullptr, reinterpret_cast<int64_t>(data_ptr_of(storage).get()) + offset};
}

// Whether ranges of bytes share some.
inline bool ranges_meet(Place a, int64_t a_bytes, Place b, int64_t b_bytes) {
  return hologram::may_share_bytes({a.buffer, a.position, a_bytes},
                                   {b.buffer, b.position, b_bytes});
}

// Whether two index tuples of t may name one element. False is certain.
bool may_overlap_itself(const c10::TensorImpl* t);

// Whether writing `out` element by element may disturb `in` before it is read: they share bytes
// and are not the very same elements in the same place. False is certain.
bool may_disturb(const c10::TensorImpl* out, const c10::TensorImpl* in);

// --- Numbers ---------------------------------------------------------------------------------

// Writes a number as an element of `compute` (float32, float64, an integer or bool). False where
// that would change an integer's value, or where the number is complex or symbolic.
bool store_number(const c10::Scalar& value, hologram::Dtype compute, void* slot);

// --- The way out -----------------------------------------------------------------------------

// A string literal as a template argument.
template <size_t kSize>
struct Name {
  char text[kSize] = {};
  consteval Name(const char (&literal)[kSize]) { std::copy_n(literal, kSize, text); }  // NOLINT
  constexpr Name() = default;
  constexpr std::string_view view() const { return {text, kSize - 1}; }
};

// "aten::NAME.OVERLOAD" from "NAME.OVERLOAD".
c10::OperatorHandle find_aten(std::string_view name);

template <Name kName>
const c10::OperatorHandle& aten_handle() {
  static const c10::OperatorHandle handle = find_aten(kName.view());
  return handle;
}

inline c10::IValue to_ivalue(std::string_view text) { return c10::IValue(std::string(text)); }
inline c10::IValue to_ivalue(const std::optional<std::string_view>& text) {
  return text.has_value() ? to_ivalue(*text) : c10::IValue();
}
template <class T>
c10::IValue to_ivalue(const T& value) {
  return c10::IValue(value);
}

// Runs the CPU's kernel of aten::kName on these very arguments, which it is free to resize and to
// refuse: every case that a native kernel does not take ends here, so PyTorch's semantics and
// messages are PyTorch's own. The results are on the stack.
template <Name kName, class... Args>
[[gnu::cold, gnu::noinline]] torch::jit::Stack call_fallback(const Args&... args) {
  torch::jit::Stack stack;
  const c10::OperatorHandle& op = aten_handle<kName>();
  const auto& parameters = op.schema().arguments();
  stack.reserve(parameters.size());
  (stack.push_back(to_ivalue(args)), ...);
  while (stack.size() < parameters.size()) {
    stack.push_back(*parameters[stack.size()].default_value());
  }
  fallback(op, &stack);
  return stack;
}

// --- Registration ----------------------------------------------------------------------------

// Names of the ATen ops that have native kernels, for tests and explain().
void note_native(std::string_view name);
std::vector<std::string> native_ops();

// A kernel as PyTorch's libraries take it. By its address, not its type: what PyTorch generates for
// callers with a stack is then made once a signature instead of once a kernel, which saves a
// third of the time to compile; a call costs one jump more.
template <auto* kFunction>
constexpr auto kernel_function() {
  return kFunction;
}

template <auto* kFunction>
void register_native(torch::Library& library, std::string_view name) {
  const std::string text(name);
  library.impl(text.c_str(), kernel_function<kFunction>());
  note_native(name);
}

}  // namespace hologram_torch
