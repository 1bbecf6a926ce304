// SPDX-License-Identifier: MIT
// Overlap of tensors, numbers in a dtype, ATen operators by name, the list of native ones.
#include "recording/native_common.h"

#include <c10/util/SmallVector.h>

#include <limits>

namespace hologram_torch {
namespace {

// The bytes from a tensor's lowest element to past its highest.
std::pair<Place, int64_t> extent(const c10::TensorImpl* t) {
  const int64_t itemsize = static_cast<int64_t>(t->itemsize());
  int64_t low = 0, high = itemsize;
  const c10::IntArrayRef sizes = t->sizes(), strides = t->strides();
  for (size_t d = 0; d < sizes.size(); ++d) {
    const int64_t reach = (sizes[d] - 1) * strides[d] * itemsize;
    (reach < 0 ? low : high) += reach;
  }
  Place place = place_of(t);
  place.position += low;
  return {place, high - low};
}

}  // namespace

void check_same_device(c10::Device a, c10::Device b) {
  TORCH_CHECK(a == b,
              "Expected all tensors to be on the same device, but found at least two devices, ", a,
              " and ", b, "!");
}

bool may_overlap_itself(const c10::TensorImpl* t) {
  if (t->is_non_overlapping_and_dense()) return false;
  const c10::IntArrayRef sizes = t->sizes(), strides = t->strides();
  c10::SmallVector<std::pair<int64_t, int64_t>, 8> dims;  // stride, size
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return false;
    if (sizes[d] > 1) dims.emplace_back(std::abs(strides[d]), sizes[d]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;  // the farthest element of the dimensions so far
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

bool may_disturb(const c10::TensorImpl* out, const c10::TensorImpl* in) {
  if (out == in || out->numel() == 0 || in->numel() == 0) return false;
  const auto [out_begin, out_bytes] = extent(out);
  const auto [in_begin, in_bytes] = extent(in);
  if (!ranges_meet(out_begin, out_bytes, in_begin, in_bytes)) return false;
  return place_of(out) != place_of(in) || out->dtype() != in->dtype() ||
         out->sizes() != in->sizes() || out->strides() != in->strides();
}

namespace {

template <class Integer>
bool store_integer(const c10::Scalar& value, void* slot) {
  if (value.isFloatingPoint()) return false;
  const int64_t wide = value.isBoolean() ? int64_t{value.toBool()} : value.toLong();
  if (wide < std::numeric_limits<Integer>::min() || wide > std::numeric_limits<Integer>::max()) {
    return false;
  }
  *static_cast<Integer*>(slot) = static_cast<Integer>(wide);
  return true;
}

}  // namespace

bool store_number(const c10::Scalar& value, hologram::Dtype compute, void* slot) {
  using hologram::Dtype;
  if (C10_UNLIKELY(value.isComplex() || value.isSymbolic() ||
                   value.type() == c10::ScalarType::UInt64)) {
    return false;
  }
  switch (compute) {
    case Dtype::kFloat32:
    case Dtype::kFloat64: {
      const double wide =
          value.isFloatingPoint()
              ? value.toDouble()
              : static_cast<double>(value.isBoolean() ? value.toBool() : value.toLong());
      if (compute == Dtype::kFloat64) {
        *static_cast<double*>(slot) = wide;
        return true;
      }
      *static_cast<float*>(slot) = static_cast<float>(wide);
      return std::isfinite(*static_cast<float*>(slot)) || !std::isfinite(wide);
    }
    case Dtype::kUInt8:
      return store_integer<uint8_t>(value, slot);
    case Dtype::kInt8:
      return store_integer<int8_t>(value, slot);
    case Dtype::kInt16:
      return store_integer<int16_t>(value, slot);
    case Dtype::kInt32:
      return store_integer<int32_t>(value, slot);
    case Dtype::kInt64:
      return store_integer<int64_t>(value, slot);
    case Dtype::kBool: {
      if (!value.isBoolean()) return false;
      *static_cast<uint8_t*>(slot) = value.toBool() ? 1 : 0;
      return true;
    }
    default:
      return false;
  }
}

c10::OperatorHandle find_aten(std::string_view name) {
  const size_t dot = name.find('.');
  const std::string base = "aten::" + std::string(name.substr(0, dot));
  const std::string overload(dot == name.npos ? std::string_view() : name.substr(dot + 1));
  return c10::Dispatcher::singleton().findSchemaOrThrow(base.c_str(), overload.c_str());
}

namespace {
std::vector<std::string>& names() {
  static auto* list = new std::vector<std::string>;
  return *list;
}
}  // namespace

// Called while the module loads, by one thread.
void note_native(std::string_view name) { names().emplace_back(name); }
std::vector<std::string> native_ops() { return names(); }

}  // namespace hologram_torch
