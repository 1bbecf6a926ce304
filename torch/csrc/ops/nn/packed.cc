// SPDX-License-Identifier: MIT
// Packed sequences: from padded ones and back, each as one call of the library.
#include "ops/nn/packed.h"

#include <ATen/FuncTorchTLS.h>
#include <ATen/Functions.h>
#include <ATen/ops/_pack_padded_sequence_backward_native.h>
#include <ATen/ops/_pack_padded_sequence_native.h>
#include <ATen/ops/_pad_packed_sequence_native.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "host/alias.h"
#include "recording/autograd_bypass.h"
#include "recording/record_call.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Integers as PyTorch gives them: on the cpu, side by side.
bool is_list(const Tensor& t) {
  return t.defined() && t.device().is_cpu() && t.scalar_type() == at::kLong && t.dim() == 1 &&
         t.numel() > 0 && t.layout() == c10::kStrided && t.is_contiguous();
}

// Whether the library moves rows of it. While a graph is captured, nothing may be read on the cpu
// that a replay would have to read again.
bool moves(const Tensor& t) {
  return is_dense(t) && dtype_code(t.scalar_type()) != kNoDtype && t.numel() > 0 &&
         !hologram::is_capturing_graph();
}

// How often each of 1, 2, ..., list[0] is reached by an element of a list that does not increase:
// from lengths, the batch sizes of the steps, and from these the lengths.
Tensor counts_of(const Tensor& list) {
  const int64_t* const values = list.const_data_ptr<int64_t>();
  Tensor counts = at::empty({values[0]}, list.options());
  auto* const count = counts.mutable_data_ptr<int64_t>();
  int64_t n = list.numel();
  for (int64_t i = 0; i < values[0]; ++i) {
    while (values[n - 1] <= i) --n;
    count[i] = n;
  }
  return counts;
}

std::tuple<Tensor, Tensor> pack(const Tensor& input, const Tensor& lengths, bool batch_first) {
  const int64_t dims = input.dim(), steps = dims < 2 ? 0 : input.size(batch_first ? 1 : 0);
  const bool fits = dims >= 2 && moves(input) && is_list(lengths) &&
                    lengths.numel() == input.size(batch_first ? 0 : 1);
  const int64_t* const length = fits ? lengths.const_data_ptr<int64_t>() : nullptr;
  if (!fits || length[0] > steps || length[lengths.numel() - 1] < 1 ||
      !std::is_sorted(length, length + lengths.numel(), std::greater<>())) {
    return at::native::_pack_padded_sequence(input, lengths, batch_first);
  }
  const BelowAutograd guard;
  Tensor batch_sizes = counts_of(lengths);
  Tensor rows = (batch_first ? input.transpose(0, 1) : input).narrow(0, 0, length[0]);
  rows = dims == 2 ? rows.unsqueeze(-1) : rows.flatten(2);
  if (rows.size(2) > 1 && rows.stride(2) != 1) rows = rows.contiguous();
  const int64_t total = std::accumulate(length, length + lengths.numel(), int64_t{});
  c10::SmallVector<int64_t, 4> sizes{total};
  sizes.append(input.sizes().begin() + 2, input.sizes().end());
  Tensor data = new_empty(input, sizes);
  const Tensor counts = batch_sizes.to(input.device());
  record(calls::PackRows<Arg>{
      .input = rows, .batch_sizes = counts, .out = reshaped(written(data), {total, rows.size(2)})});
  return {std::move(data), std::move(batch_sizes)};
}

// The bytes of the number as an element of the dtype.
uint64_t element_of(const c10::Scalar& value, at::ScalarType type) {
  uint64_t element = 0;
  const Tensor t = at::scalar_tensor(value, at::TensorOptions(at::kCPU).dtype(type));
  std::memcpy(&element, t.const_data_ptr(), t.itemsize());
  return element;
}

// Packed rows at their steps, (steps, batch, *).
Tensor pad(const Tensor& data, const Tensor& batch_sizes, const c10::Scalar& value, int64_t steps) {
  const BelowAutograd guard;
  const Tensor rows = data.contiguous();
  const int64_t batch = *batch_sizes.const_data_ptr<int64_t>();
  const int64_t width = data.numel() / data.size(0);
  c10::SmallVector<int64_t, 4> sizes{steps, batch};
  sizes.append(data.sizes().begin() + 1, data.sizes().end());
  Tensor padded = new_empty(data, sizes);
  const Tensor counts = batch_sizes.to(data.device());
  record(calls::PadRows<Arg>{.input = reshaped(rows, {data.size(0), width}),
                             .batch_sizes = counts,
                             .element = element_of(value, data.scalar_type()),
                             .out = reshaped(written(padded), {steps, batch, width})});
  return padded;
}

// Its node of the graph.
struct PadPacked : torch::autograd::Function<PadPacked> {
  static Tensor forward(AutogradContext* context, const Tensor& data, const Tensor& batch_sizes,
                        const c10::Scalar& value, int64_t steps) {
    context->saved_data["batch_sizes"] = batch_sizes;
    return pad(data, batch_sizes, value, steps);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const Tensor lengths = counts_of(context->saved_data["batch_sizes"].toTensor());
    variable_list result(4);
    result[0] = std::get<0>(at::_pack_padded_sequence(grads[0], lengths, /*batch_first=*/false));
    return result;
  }
};

bool takes_pad(const Tensor& data, const Tensor& batch_sizes, int64_t steps) {
  return data.dim() > 0 && moves(data) && data.itemsize() <= 8 && is_list(batch_sizes) &&
         steps >= batch_sizes.numel() && !carries_tangent(data) && !is_transforming() &&
         !c10::impl::dispatch_mode_enabled() &&
         is_packing(batch_sizes, *batch_sizes.const_data_ptr<int64_t>(), data.size(0));
}

Tensor differentiable_pad(const Tensor& data, const Tensor& batch_sizes, const c10::Scalar& value,
                          int64_t steps, bool batch_first) {
  const bool grads = c10::GradMode::is_enabled() && data.requires_grad();
  const Tensor padded = grads ? PadPacked::apply(data, batch_sizes, value, steps)
                              : pad(data, batch_sizes, value, steps);
  return batch_first ? padded.transpose(0, 1) : padded;
}

Tensor pack_backward(const Tensor& grad, at::IntArrayRef input_size, const Tensor& batch_sizes,
                     bool batch_first) {
  const bool fits = input_size.size() >= 2;
  const int64_t steps = fits ? input_size[batch_first ? 1 : 0] : 0;
  if (!fits || !takes_pad(grad, batch_sizes, steps) ||
      input_size[batch_first ? 0 : 1] != *batch_sizes.const_data_ptr<int64_t>()) {
    return at::native::_pack_padded_sequence_backward_symint(
        grad, c10::fromIntArrayRefSlow(input_size), batch_sizes, batch_first);
  }
  return differentiable_pad(grad, batch_sizes, 0, steps, batch_first);
}

std::tuple<Tensor, Tensor> pad_packed(const Tensor& data, const Tensor& batch_sizes,
                                      bool batch_first, const c10::Scalar& value,
                                      int64_t total_length) {
  const int64_t own = is_list(batch_sizes) ? batch_sizes.numel() : 0;
  const int64_t steps = total_length > 0 ? total_length : own;
  if (!takes_pad(data, batch_sizes, steps)) {
    return at::native::_pad_packed_sequence(data, batch_sizes, batch_first, value, total_length);
  }
  return {differentiable_pad(data, batch_sizes, value, steps, batch_first), counts_of(batch_sizes)};
}

void register_padding(torch::Library& m) {
  m.impl("_pad_packed_sequence", TORCH_FN(pad_packed));
  m.impl("_pack_padded_sequence_backward", TORCH_FN(pack_backward));
}

}  // namespace

bool is_packing(const Tensor& batch_sizes, int64_t batch, int64_t rows) {
  if (!is_list(batch_sizes)) return false;
  const int64_t* const size = batch_sizes.const_data_ptr<int64_t>();
  const int64_t* const end = size + batch_sizes.numel();
  return size[0] == batch && end[-1] >= 1 && std::is_sorted(size, end, std::greater<>()) &&
         std::accumulate(size, end, int64_t{}) == rows;
}

bool is_transforming() {
  const auto& state = at::functorch::functorchTLSAccessor();
  if (C10_LIKELY(state == nullptr)) return false;  // none so far on this thread
  try {
    state->checkSupportsCppAutogradFunction();
    return false;
  } catch (const c10::Error&) {
    return true;
  }
}

}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { hologram_torch::register_padding(m); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  hologram_torch::register_padding(m);
  m.impl("_pack_padded_sequence", TORCH_FN(hologram_torch::pack));
}
