// SPDX-License-Identifier: MIT
// Pooling by means, interpolation, and their gradients, of contiguous and channels-last images.
#include <ATen/native/Pool.h>

#include <array>

#include "recording/record_call.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using c10::IntArrayRef;
using hologram::Resampling;
using Scale = std::optional<double>;
using Dims = c10::SmallVector<int64_t, 5>;

// What the call gets beside its tensors.
struct ResamplingValues {
  Resampling kind;
  std::array<int64_t, 3> kernel{1, 1, 1}, stride{1, 1, 1}, padding{};  // the last ones are used
  bool flag = false;
  int64_t divisor = 0;
  std::array<double, 3> scales{};
};

// The tables of a row grow with its length: long signals are the fallback's.
bool is_taken_size(IntArrayRef spatial) {
  constexpr int64_t kLongest = 65536;
  return std::all_of(spatial.begin(), spatial.end(),
                     [](int64_t size) { return size > 0 && size <= kLongest; });
}

// Images of `spatial` dimensions behind the channels and, if has_batch, the batch.
bool is_image(const Tensor& t, size_t spatial, bool has_batch = true) {
  const size_t outer = has_batch ? 2 : 1;
  return is_dense(t) && static_cast<size_t>(t.dim()) == spatial + outer && t.numel() > 0 &&
         (t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble) &&
         is_taken_size(t.sizes().slice(outer));
}
bool is_image_or_one(const Tensor& t, size_t spatial) {
  return is_image(t, spatial) || is_image(t, spatial, /*has_batch=*/false);
}

c10::MemoryFormat layout_of(const Tensor& t) {
  return t.dim() < 4 ? c10::MemoryFormat::Contiguous : t.suggest_memory_format();
}

// The sizes of images without a batch as those of a batch of one.
Dims batch_of_one(const Tensor& t) {
  Dims sizes{1};
  sizes.append(t.sizes().begin(), t.sizes().end());
  return sizes;
}

// A tensor of `sizes` from x, or a gradient from that of the result; both lie as format says.
Tensor resampled(const Tensor& x, IntArrayRef sizes, int64_t spatial, c10::MemoryFormat format,
                 const ResamplingValues& values, bool is_gradient) {
  // Of images without a batch, four dimensions are not those of channels last.
  if (x.dim() == spatial + 1) format = c10::MemoryFormat::Contiguous;
  const Tensor from = x.contiguous(format);
  Tensor to = make_formatted(sizes, x.scalar_type(), format, x.device().index());
  Arg in(from, Access::reads), out(to, Access::writes);
  const Dims in_sizes = batch_of_one(from), out_sizes = batch_of_one(to);
  if (x.dim() == spatial + 1) in = reshaped(in, in_sizes), out = reshaped(out, out_sizes);
  record(calls::Resample<Arg>{.input = in,
                              .kind = static_cast<int64_t>(values.kind),
                              .kernel_size = values.kernel,
                              .stride = values.stride,
                              .padding = values.padding,
                              .flag = values.flag,
                              .divisor = values.divisor,
                              .is_gradient = is_gradient,
                              .scale_depth = values.scales[0],
                              .scale_height = values.scales[1],
                              .scale_width = values.scales[2],
                              .out = out});
  return to;
}

// --- Pooling ------------------------------------------------------------------------------------

// Of three dimensions PyTorch's results are contiguous.
c10::MemoryFormat pooled_layout(const Tensor& t, size_t spatial) {
  return spatial == 3 ? c10::MemoryFormat::Contiguous : layout_of(t);
}

// One number for each of the last dimensions, or one for all.
bool read_list(IntArrayRef list, size_t spatial, std::array<int64_t, 3>& to) {
  if (list.size() != 1 && list.size() != spatial) return false;
  for (size_t i = 0; i < spatial; ++i) to[3 - spatial + i] = list[list.size() == 1 ? 0 : i];
  return true;
}

// The windows of a pooling and the sizes of its result; false where PyTorch refuses them.
bool describe_windows(const Tensor& self, size_t spatial, IntArrayRef kernel, IntArrayRef stride,
                      IntArrayRef padding, bool ceil_mode, bool count_include_pad,
                      std::optional<int64_t> divisor, ResamplingValues& values, Dims& sizes) {
  if (!is_image_or_one(self, spatial) || !read_list(kernel, spatial, values.kernel) ||
      !read_list(stride.empty() ? kernel : stride, spatial, values.stride) ||
      !read_list(padding, spatial, values.padding) || divisor == 0) {
    return false;
  }
  values.flag = count_include_pad;
  values.divisor = divisor.value_or(0);
  sizes.assign(self.sizes().begin(), self.sizes().end());
  for (size_t i = 3 - spatial; i < 3; ++i) {
    const int64_t k = values.kernel[i], s = values.stride[i], p = values.padding[i];
    if (k < 1 || s < 1 || p < 0 || p > k / 2) return false;
    int64_t& size = sizes[sizes.size() - 3 + i];
    if ((size + 2 * p < k && !ceil_mode) || (spatial == 3 && size < k)) return false;
    size = at::native::pooling_output_shape<int64_t>(size, k, p, s, 1, ceil_mode);
    if (!is_taken_size(size)) return false;
  }
  return true;
}

template <Name kName, size_t kSpatial>
Tensor avg_pool(const Tensor& self, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor) {
  ResamplingValues values{Resampling::windows};
  Dims sizes;
  if (C10_LIKELY(describe_windows(self, kSpatial, kernel, stride, padding, ceil_mode,
                                  count_include_pad, divisor, values, sizes))) {
    return resampled(self, sizes, kSpatial, pooled_layout(self, kSpatial), values, false);
  }
  return call_fallback<kName>(self, kernel, stride, padding, ceil_mode, count_include_pad, divisor)
      .back()
      .toTensor();
}

template <Name kName, size_t kSpatial>
Tensor avg_pool_backward(const Tensor& grad, const Tensor& self, IntArrayRef kernel,
                         IntArrayRef stride, IntArrayRef padding, bool ceil_mode,
                         bool count_include_pad, std::optional<int64_t> divisor) {
  ResamplingValues values{Resampling::windows};
  Dims sizes;
  if (C10_LIKELY(describe_windows(self, kSpatial, kernel, stride, padding, ceil_mode,
                                  count_include_pad, divisor, values, sizes) &&
                 is_image_or_one(grad, kSpatial) && grad.scalar_type() == self.scalar_type() &&
                 grad.sizes() == IntArrayRef(sizes))) {
    return resampled(grad, self.sizes(), kSpatial, pooled_layout(self, kSpatial), values, true);
  }
  return call_fallback<kName>(grad, self, kernel, stride, padding, ceil_mode, count_include_pad,
                              divisor)
      .back()
      .toTensor();
}

template <Name kName, size_t kSpatial>
Tensor adaptive_avg_pool(const Tensor& self, IntArrayRef size) {
  constexpr auto kDim = static_cast<int64_t>(kSpatial);
  if (C10_LIKELY(is_image_or_one(self, kSpatial) && size.size() == kSpatial &&
                 is_taken_size(size))) {
    Dims sizes(self.sizes().begin(), self.sizes().end());
    std::copy(size.begin(), size.end(), sizes.end() - kDim);
    return resampled(self, sizes, kDim, pooled_layout(self, kSpatial), {Resampling::adaptive},
                     false);
  }
  return call_fallback<kName>(self, size).back().toTensor();
}

template <Name kName, size_t kSpatial>
Tensor adaptive_avg_pool_backward(const Tensor& grad, const Tensor& self) {
  constexpr auto kDim = static_cast<int64_t>(kSpatial);
  const auto outer = static_cast<size_t>(self.dim() - kDim);
  if (C10_LIKELY(is_image_or_one(self, kSpatial) && is_image_or_one(grad, kSpatial) &&
                 grad.dim() == self.dim() && grad.scalar_type() == self.scalar_type() &&
                 grad.sizes().slice(0, outer) == self.sizes().slice(0, outer))) {
    return resampled(grad, self.sizes(), kDim, pooled_layout(self, kSpatial),
                     {Resampling::adaptive}, true);
  }
  return call_fallback<kName>(grad, self).back().toTensor();
}

// --- Interpolation ------------------------------------------------------------------------------

template <class... Scales>
ResamplingValues interpolation(Resampling kind, bool flag, Scales... scales) {
  ResamplingValues values{kind};
  values.flag = flag;
  size_t i = 3 - sizeof...(scales);
  ((values.scales[i++] = scales.value_or(0)), ...);
  return values;
}

// The result of sizes `size`, or undefined where PyTorch refuses or computes it.
Tensor interpolated(const Tensor& self, IntArrayRef size, size_t spatial,
                    const ResamplingValues& values) {
  const auto dim = static_cast<int64_t>(spatial);
  if (!is_image(self, spatial) || size.size() != spatial || !is_taken_size(size)) return {};
  Dims sizes(self.sizes().begin(), self.sizes().end());
  std::copy(size.begin(), size.end(), sizes.end() - dim);
  return resampled(self, sizes, dim, layout_of(self), values, false);
}

// The gradient of the input, of sizes in_size.
Tensor interpolated_backward(const Tensor& grad, IntArrayRef size, IntArrayRef in_size,
                             size_t spatial, const ResamplingValues& values) {
  const auto dim = static_cast<int64_t>(spatial);
  if (!is_image(grad, spatial) || size.size() != spatial || in_size.size() != spatial + 2 ||
      !is_taken_size(in_size.slice(2)) || grad.sizes().slice(0, 2) != in_size.slice(0, 2) ||
      grad.sizes().slice(2) != size) {
    return {};
  }
  return resampled(grad, in_size, dim, layout_of(grad), values, true);
}

template <Name kName, Resampling kKind, class... Scales>
Tensor nearest(const Tensor& self, IntArrayRef size, Scales... scales) {
  // Where sizes are equal or double, some of PyTorch's kernels ignore a scale that is not, as all
  // gradients do.
  const bool ignores =
      sizeof...(scales) == 2 ||
      (self.dim() == 5 && self.size(1) > 3 && layout_of(self) == c10::MemoryFormat::ChannelsLast3d);
  const ResamplingValues values = interpolation(kKind, ignores, scales...);
  Tensor result = interpolated(self, size, sizeof...(scales), values);
  if (C10_LIKELY(result.defined())) return result;
  return call_fallback<kName>(self, size, scales...).back().toTensor();
}

template <Name kName, Resampling kKind, class... Scales>
Tensor nearest_backward(const Tensor& grad, IntArrayRef size, IntArrayRef in_size,
                        Scales... scales) {
  const ResamplingValues values = interpolation(kKind, true, scales...);
  Tensor result = interpolated_backward(grad, size, in_size, sizeof...(scales), values);
  if (C10_LIKELY(result.defined())) return result;
  return call_fallback<kName>(grad, size, in_size, scales...).back().toTensor();
}

template <Name kName, Resampling kKind, class... Scales>
Tensor smooth(const Tensor& self, IntArrayRef size, bool align_corners, Scales... scales) {
  const ResamplingValues values = interpolation(kKind, align_corners, scales...);
  Tensor result = interpolated(self, size, sizeof...(scales), values);
  if (C10_LIKELY(result.defined())) return result;
  return call_fallback<kName>(self, size, align_corners, scales...).back().toTensor();
}

template <Name kName, Resampling kKind, class... Scales>
Tensor smooth_backward(const Tensor& grad, IntArrayRef size, IntArrayRef in_size,
                       bool align_corners, Scales... scales) {
  const ResamplingValues values = interpolation(kKind, align_corners, scales...);
  Tensor result = interpolated_backward(grad, size, in_size, sizeof...(scales), values);
  if (C10_LIKELY(result.defined())) return result;
  return call_fallback<kName>(grad, size, in_size, align_corners, scales...).back().toTensor();
}

template <Name kName, Name kBackward, Resampling kKind, class... Scales>
void register_nearest(torch::Library& m) {
  register_native<&nearest<kName, kKind, Scales...>>(m, kName.view().data());
  register_native<&nearest_backward<kBackward, kKind, Scales...>>(m, kBackward.view().data());
}
template <Name kName, Name kBackward, Resampling kKind, class... Scales>
void register_smooth(torch::Library& m) {
  register_native<&smooth<kName, kKind, Scales...>>(m, kName.view().data());
  register_native<&smooth_backward<kBackward, kKind, Scales...>>(m, kBackward.view().data());
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&avg_pool<"avg_pool2d", 2>>(m, "avg_pool2d");
  register_native<&avg_pool<"avg_pool3d", 3>>(m, "avg_pool3d");
  register_native<&avg_pool_backward<"avg_pool2d_backward", 2>>(m, "avg_pool2d_backward");
  register_native<&avg_pool_backward<"avg_pool3d_backward", 3>>(m, "avg_pool3d_backward");
  register_native<&adaptive_avg_pool<"_adaptive_avg_pool2d", 2>>(m, "_adaptive_avg_pool2d");
  register_native<&adaptive_avg_pool<"_adaptive_avg_pool3d", 3>>(m, "_adaptive_avg_pool3d");
  register_native<&adaptive_avg_pool_backward<"_adaptive_avg_pool2d_backward", 2>>(
      m, "_adaptive_avg_pool2d_backward");
  register_native<&adaptive_avg_pool_backward<"_adaptive_avg_pool3d_backward", 3>>(
      m, "_adaptive_avg_pool3d_backward");

  constexpr auto kNearest = Resampling::nearest, kExact = Resampling::nearest_exact;
  register_nearest<"upsample_nearest1d", "upsample_nearest1d_backward", kNearest, Scale>(m);
  register_nearest<"upsample_nearest2d", "upsample_nearest2d_backward", kNearest, Scale, Scale>(m);
  register_nearest<"upsample_nearest3d", "upsample_nearest3d_backward", kNearest, Scale, Scale,
                   Scale>(m);
  register_nearest<"_upsample_nearest_exact1d", "_upsample_nearest_exact1d_backward", kExact,
                   Scale>(m);
  register_nearest<"_upsample_nearest_exact2d", "_upsample_nearest_exact2d_backward", kExact, Scale,
                   Scale>(m);
  register_nearest<"_upsample_nearest_exact3d", "_upsample_nearest_exact3d_backward", kExact, Scale,
                   Scale, Scale>(m);
  constexpr auto kLinear = Resampling::linear, kCubic = Resampling::cubic;
  register_smooth<"upsample_linear1d", "upsample_linear1d_backward", kLinear, Scale>(m);
  register_smooth<"upsample_bilinear2d", "upsample_bilinear2d_backward", kLinear, Scale, Scale>(m);
  register_smooth<"upsample_trilinear3d", "upsample_trilinear3d_backward", kLinear, Scale, Scale,
                  Scale>(m);
  register_smooth<"upsample_bicubic2d", "upsample_bicubic2d_backward", kCubic, Scale, Scale>(m);
}
