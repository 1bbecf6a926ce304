// SPDX-License-Identifier: MIT
// Max pooling of contiguous images and its gradient.
#include <ATen/ops/max_pool2d_native.h>

#include <array>

#include "host/alias.h"
#include "ops/shape/index_tensors.h"
#include "recording/autograd_bypass.h"
#include "recording/record_call.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using c10::IntArrayRef;

// Windows over height and width.
struct PoolValues {
  int64_t planes;
  std::array<int64_t, 2> in, out, kernel, stride, padding, dilation;

  // Those of tensors as [planes, 1, height, width].
  std::array<int64_t, 4> in_planes() const { return {planes, 1, in[0], in[1]}; }
  std::array<int64_t, 4> out_planes() const { return {planes, 1, out[0], out[1]}; }
};

// One or two numbers as two.
bool read_pair(IntArrayRef list, std::array<int64_t, 2>& pair) {
  if (list.size() != 1 && list.size() != 2) return false;
  pair = {list.front(), list.back()};
  return true;
}

// The windows of a pooling as PyTorch counts them, or false where the library does not take it: the
// fallback computes or refuses it.
bool describe(const Tensor& self, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
              IntArrayRef dilation, bool ceil_mode, PoolValues& p) {
  const at::ScalarType type = self.scalar_type();
  const int64_t dim = self.dim();
  if (!is_dense(self) || (type != at::kFloat && type != at::kDouble) || (dim != 3 && dim != 4) ||
      !self.is_contiguous() || self.numel() == 0 || !read_pair(kernel, p.kernel) ||
      !read_pair(stride.empty() ? kernel : stride, p.stride) || !read_pair(padding, p.padding) ||
      !read_pair(dilation, p.dilation)) {
    return false;
  }
  // Images that fit both layouts count as channels last.
  if (dim == 4 && self.suggest_memory_format() != c10::MemoryFormat::Contiguous) return false;
  p.planes = self.numel() / (self.size(dim - 2) * self.size(dim - 1));
  for (size_t i = 0; i < 2; ++i) {
    p.in[i] = self.size(dim - 2 + static_cast<int64_t>(i));
    if (p.kernel[i] < 1 || p.stride[i] < 1 || p.dilation[i] < 1 || p.padding[i] < 0 ||
        p.padding[i] > p.kernel[i] / 2 || p.dilation[i] > p.in[i]) {
      return false;
    }
    const int64_t room = p.in[i] + 2 * p.padding[i] - p.dilation[i] * (p.kernel[i] - 1) - 1;
    if (room < 0) return false;
    p.out[i] = (room + (ceil_mode ? p.stride[i] - 1 : 0)) / p.stride[i] + 1;
    // The last window begins inside, or in the padding before.
    if (ceil_mode && (p.out[i] - 1) * p.stride[i] >= p.in[i] + p.padding[i]) --p.out[i];
    if ((p.out[i] - 1) * p.stride[i] - p.padding[i] >= p.in[i]) return false;
  }
  return true;
}

// The largest element of each window in a new tensor, and their positions in *positions unless that
// is null.
Tensor pooled(const Tensor& self, const PoolValues& values, Tensor* positions) {
  c10::SmallVector<int64_t, 4> sizes(self.sizes().begin(), self.sizes().end());
  std::copy(values.out.begin(), values.out.end(), sizes.end() - 2);
  Tensor y = new_empty(self, sizes);
  if (positions != nullptr) *positions = new_empty(self, sizes, at::kLong);
  const auto in = values.in_planes(), out = values.out_planes();
  record(calls::MaxPool<Arg>{
      .input = reshaped(self, in),
      .kernel_size = values.kernel,
      .stride = values.stride,
      .padding = values.padding,
      .dilation = values.dilation,
      .out = reshaped(written(y), out),
      .positions = positions != nullptr ? reshaped(written(*positions), out) : Arg()});
  return y;
}

// max_pool2d where autograd does not follow: only the gradient would need the positions.
Tensor max_pool_values(const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                       IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  PoolValues values;
  if (describe(self, kernel, stride, padding, dilation, ceil_mode, values)) {
    return pooled(self, values, nullptr);
  }
  return at::native::max_pool2d(self, kernel, stride, padding, dilation, ceil_mode);
}

Tensor max_pool_autograd(c10::DispatchKeySet keys, const Tensor& self, IntArrayRef kernel,
                         IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                         bool ceil_mode) {
  if (is_untracked(keys, self)) {
    const BelowAutograd guard;
    return max_pool_values(self, kernel, stride, padding, dilation, ceil_mode);
  }
  return at::native::max_pool2d(self, kernel, stride, padding, dilation, ceil_mode);
}

std::tuple<Tensor, Tensor> max_pool(const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                                    IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  PoolValues values;
  if (describe(self, kernel, stride, padding, dilation, ceil_mode, values)) {
    Tensor positions;
    Tensor y = pooled(self, values, &positions);
    return {std::move(y), std::move(positions)};
  }
  auto stack =
      call_fallback<"max_pool2d_with_indices">(self, kernel, stride, padding, dilation, ceil_mode);
  return {stack[0].toTensor(), stack[1].toTensor()};
}

Tensor max_pool_backward(const Tensor& grad, const Tensor& self, IntArrayRef kernel,
                         IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                         bool ceil_mode, const Tensor& positions) {
  PoolValues values;
  const auto is_result = [&](const Tensor& t, at::ScalarType type) {
    return is_dense(t) && t.scalar_type() == type && t.dim() == self.dim() &&
           t.numel() == values.planes * values.out[0] * values.out[1] &&
           t.size(-2) == values.out[0] && t.size(-1) == values.out[1];
  };
  if (describe(self, kernel, stride, padding, dilation, ceil_mode, values) &&
      is_result(grad, self.scalar_type()) && is_result(positions, at::kLong) &&
      positions.is_contiguous()) {
    const Tensor dense = grad.contiguous();
    Tensor grad_x = new_empty(self, self.sizes());
    const auto in = values.in_planes(), out = values.out_planes();
    record(calls::MaxPoolBackward<Arg>{.grad = reshaped(dense, out),
                                       .positions = reshaped(positions, out),
                                       .kernel_size = values.kernel,
                                       .stride = values.stride,
                                       .padding = values.padding,
                                       .dilation = values.dilation,
                                       .grad_input = reshaped(written(grad_x), in)});
    return grad_x;
  }
  // PyTorch's kernel does not check these indices before it writes.
  if (is_position(positions) && self.dim() >= 2) {
    const Tensor index = settled_rows(is_on_host(positions) ? positions : positions.to(device()));
    const int64_t plane = self.size(-2) * self.size(-1);
    TORCH_CHECK_INDEX(hologram::positions_within(positions_of(index), 0, plane),
                      "max_pool2d_with_indices_backward: an index is outside of the plane of ",
                      plane, " elements that was pooled");
  }
  return call_fallback<"max_pool2d_with_indices_backward">(grad, self, kernel, stride, padding,
                                                           dilation, ceil_mode, positions)
      .back()
      .toTensor();
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("max_pool2d", TORCH_FN(hologram_torch::max_pool_autograd));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  m.impl("max_pool2d", TORCH_FN(max_pool_values));
  register_native<&max_pool>(m, "max_pool2d_with_indices");
  register_native<&max_pool_backward>(m, "max_pool2d_with_indices_backward");
}
