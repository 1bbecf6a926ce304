// SPDX-License-Identifier: MIT
// softmax and log_softmax with their backwards.
#include "hologram/softmax.h"

#include "ops/reduce/reduce.h"
#include "recording/autograd_bypass.h"
#include "recording/record_call.h"

namespace hologram_torch {
namespace {

using at::ScalarType;
using at::Tensor;
using Forward = void (*)(const hologram::View&, int, const hologram::View&, int);
using Backward = void (*)(const hologram::View&, const hologram::View&, int, const hologram::View&,
                          int);

// half_to_float asks for float32 from the half types; cpu refuses it, devices have it.
bool takes_softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return is_dense_float(self) && has_dim(self, dim) && self.numel() > 0 &&
         (!half_to_float || is_half_type(self.scalar_type()));
}

// Their numbers in circuit::RowOp.
constexpr Forward kSoftmax = &hologram::softmax;
constexpr Forward kLogSoftmax = &hologram::log_softmax;
constexpr Backward kSoftmaxBackward = &hologram::softmax_backward;
constexpr Backward kLogSoftmaxBackward = &hologram::log_softmax_backward;
constexpr int row_function(Forward kernel) { return kernel == kSoftmax ? 0 : 1; }
constexpr int row_function(Backward kernel) { return kernel == kSoftmaxBackward ? 2 : 3; }

template <Forward kKernel>
void compute(const Tensor& self, int64_t dim, const Tensor& out) {
  constexpr int kRow = row_function(kKernel);
  if (is_recorded(out) &&
      record_row_function(kRow, dim, {out.unsafeGetTensorImpl(), self.unsafeGetTensorImpl()})) {
    return;
  }
  record(calls::Softmax<Arg>{.input = self, .dim = dim, .function = kRow, .out = written(out)});
}

template <Backward kKernel>
void compute(const Tensor& grad, const Tensor& output, int64_t dim, const Tensor& out) {
  constexpr int kRow = row_function(kKernel);
  if (is_recorded(out) &&
      record_row_function(
          kRow, dim,
          {out.unsafeGetTensorImpl(), grad.unsafeGetTensorImpl(), output.unsafeGetTensorImpl()})) {
    return;
  }
  record(calls::SoftmaxBackward<Arg>{
      .grad = grad, .output = output, .dim = dim, .function = kRow, .grad_input = written(out)});
}

template <Forward kKernel, Name kName>
Tensor forward(const Tensor& self, int64_t dim, bool half_to_float) {
  if (C10_LIKELY(takes_softmax(self, dim, half_to_float))) {
    Tensor out = new_empty(self, self.sizes(), half_to_float ? at::kFloat : self.scalar_type());
    compute<kKernel>(self, dim, out);
    return out;
  }
  return call_fallback<kName>(self, dim, half_to_float).back().toTensor();
}

template <Forward kKernel, Name kName>
Tensor& forward_out(const Tensor& self, int64_t dim, bool half_to_float, Tensor& out) {
  if (C10_LIKELY(takes_softmax(self, dim, half_to_float) && is_dense(out) &&
                 same_device(out, self) &&
                 out.scalar_type() == (half_to_float ? at::kFloat : self.scalar_type()) &&
                 out.sizes() == self.sizes() && !may_overlap_itself(out.unsafeGetTensorImpl()) &&
                 !may_disturb(out.unsafeGetTensorImpl(), self.unsafeGetTensorImpl()))) {
    compute<kKernel>(self, dim, out);
    return out;
  }
  call_fallback<kName>(self, dim, half_to_float, out);
  return out;
}

bool takes_backward(const Tensor& grad, const Tensor& output, int64_t dim, ScalarType input_type) {
  const ScalarType type = grad.scalar_type();
  return is_dense_float(grad) && is_dense(output) && same_device(output, grad) &&
         output.scalar_type() == type && output.sizes() == grad.sizes() && has_dim(grad, dim) &&
         grad.numel() > 0 &&
         (input_type == type || (type == at::kFloat && is_half_type(input_type)));
}

// PyTorch's kernels walk the output by the gradient's shape, and that of log_softmax does not
// compare them: it would read past the output's end.
template <Name kName>
void check_shapes(const Tensor& grad, const Tensor& output) {
  TORCH_CHECK(grad.sizes() == output.sizes(), kName.text,
              ": expected a gradient of the output's shape ", output.sizes(), ", got ",
              grad.sizes());
}

template <Backward kKernel, Name kName>
Tensor backward(const Tensor& grad, const Tensor& output, int64_t dim, ScalarType input_type) {
  if (C10_LIKELY(takes_backward(grad, output, dim, input_type))) {
    Tensor out = new_empty(grad, grad.sizes(), input_type);
    compute<kKernel>(grad, output, dim, out);
    return out;
  }
  check_shapes<kName>(grad, output);
  return call_fallback<kName>(grad, output, dim, input_type).back().toTensor();
}

template <Backward kKernel, Name kName>
Tensor& backward_out(const Tensor& grad, const Tensor& output, int64_t dim, ScalarType input_type,
                     Tensor& out) {
  if (C10_LIKELY(takes_backward(grad, output, dim, input_type) && is_dense(out) &&
                 same_device(out, grad) && out.scalar_type() == input_type &&
                 out.sizes() == grad.sizes() && !may_overlap_itself(out.unsafeGetTensorImpl()) &&
                 !may_disturb(out.unsafeGetTensorImpl(), grad.unsafeGetTensorImpl()) &&
                 !may_disturb(out.unsafeGetTensorImpl(), output.unsafeGetTensorImpl()))) {
    compute<kKernel>(grad, output, dim, out);
    return out;
  }
  check_shapes<kName>(grad, output);
  call_fallback<kName>(grad, output, dim, input_type, out);
  return out;
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_functional<"_softmax", &forward<kSoftmax, "_softmax">>(m);
  register_native<&forward_out<kSoftmax, "_softmax.out">>(m, "_softmax.out");
  register_functional<"_log_softmax", &forward<kLogSoftmax, "_log_softmax">>(m);
  register_native<&forward_out<kLogSoftmax, "_log_softmax.out">>(m, "_log_softmax.out");
  register_native<&backward<kSoftmaxBackward, "_softmax_backward_data">>(m,
                                                                         "_softmax_backward_data");
  register_native<&backward_out<kSoftmaxBackward, "_softmax_backward_data.out">>(
      m, "_softmax_backward_data.out");
  register_native<&backward<kLogSoftmaxBackward, "_log_softmax_backward_data">>(
      m, "_log_softmax_backward_data");
  register_native<&backward_out<kLogSoftmaxBackward, "_log_softmax_backward_data.out">>(
      m, "_log_softmax_backward_data.out");
}
