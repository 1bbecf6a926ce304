// SPDX-License-Identifier: MIT
// Fused optimizer steps and the two kernels of gradient scaling.
#include "copy.h"
#include "hologram/optimizer.h"
#include "native_reduce.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using at::TensorList;
using hologram::GradScaling;
using OptionalTensor = std::optional<Tensor>;

// A number that lives in the memory of the host: ours or the CPU's.
double number_of(const Tensor& t, const char* what) {
  TORCH_CHECK(t.defined() && t.numel() == 1 && (is_ours(t) || t.is_cpu()), what,
              " must be a tensor of one element on hologram or cpu");
  switch (t.scalar_type()) {
    case at::kFloat:
      return *reinterpret_cast<const float*>(read_pointer(t));
    case at::kDouble:
      return *reinterpret_cast<const double*>(read_pointer(t));
    default:
      return t.item().toDouble();
  }
}

const float* float_of(const OptionalTensor& t, const char* what) {
  if (!t.has_value() || !t->defined()) return nullptr;
  TORCH_CHECK((is_ours(*t) || t->is_cpu()) && t->numel() == 1 && t->scalar_type() == at::kFloat,
              what, " must be a float32 tensor of one element on hologram, got ", t->toString(),
              " of shape ", t->sizes());
  return reinterpret_cast<const float*>(read_pointer(*t));
}

GradScaling scaling_of(const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  return {float_of(grad_scale, "grad_scale"), float_of(found_inf, "found_inf")};
}

// The lists of one call, one tensor of each belonging together.
template <size_t kLists>
class Group {
 public:
  Group(const char* op, std::array<TensorList, kLists> lists) : lists_(lists) {
    count_ = lists[0].size();
    if (count_ == 0) return;
    type_ = lists[0][0].scalar_type();
    TORCH_CHECK(is_float_plain(lists[0][0]), op, ": parameters must be floating, got ", type_);
    for (size_t k = 0; k < kLists; ++k) {
      const TensorList list = lists[k];
      if (k >= 2 && list.empty()) continue;  // a state that this call does without
      TORCH_CHECK(list.size() == count_, op, ": lists must be of one length, got ", list.size(),
                  " and ", count_);
      for (size_t i = 0; i < count_; ++i) {
        TORCH_CHECK(is_plain(list[i]), op, ": expected a dense hologram tensor, got ",
                    list[i].toString());
        TORCH_CHECK(list[i].scalar_type() == type_, op,
                    ": tensors of one call must have one dtype, got ", list[i].scalar_type(),
                    " beside ", type_);
        TORCH_CHECK(list[i].sizes() == lists[0][i].sizes(), op,
                    ": shapes differ: ", list[i].sizes(), " and ", lists[0][i].sizes());
      }
    }
  }

  size_t count() const { return count_; }
  int64_t numel(size_t i) const { return lists_[0][i].numel(); }
  hologram::Dtype dtype() const { return static_cast<hologram::Dtype>(dtype_code(type_)); }

  // The elements of list k's tensor i, in the order of the parameter's. A tensor laid out otherwise
  // is copied and copied back by finish().
  void* data(size_t k, size_t i) {
    if (lists_[k].empty()) return nullptr;
    const Tensor& t = lists_[k][i];
    const Tensor& param = lists_[0][i];
    if (C10_LIKELY(param.is_non_overlapping_and_dense() &&
                   same_layout(t.unsafeGetTensorImpl(), param.unsafeGetTensorImpl()))) {
      return write_pointer(t);
    }
    Tensor like = param.is_non_overlapping_and_dense() ? make_like(param, type_)
                                                       : make_tensor(t.sizes(), type_);
    copy_into(like, t);
    copies_.emplace_back(t, like);
    return write_pointer(like);
  }

  void finish() {
    for (const auto& [original, copy] : copies_) copy_into(original, copy);
  }

 private:
  std::array<TensorList, kLists> lists_;
  size_t count_ = 0;
  at::ScalarType type_ = at::kFloat;
  std::vector<std::pair<Tensor, Tensor>> copies_;
};

int threads_for_group(const TensorList& params) {
  int64_t n = 0;
  for (const Tensor& t : params) n += t.numel();
  return threads_for(n);
}

double step_of(TensorList steps, size_t i) { return number_of(steps[i], "state_steps"); }

// --- Adam, AdamW --------------------------------------------------------------------------------

template <bool kDecoupled>
void fused_adam(TensorList self, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
                TensorList max_exp_avg_sqs, TensorList state_steps, double lr, double beta1,
                double beta2, double weight_decay, double eps, bool amsgrad, bool maximize,
                const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  constexpr const char* kName = kDecoupled ? "_fused_adamw_" : "_fused_adam_";
  TORCH_CHECK(state_steps.size() == self.size(), kName, ": state_steps must have one element per ",
              "parameter, got ", state_steps.size(), " for ", self.size());
  Group<5> group(kName,
                 {self, grads, exp_avgs, exp_avg_sqs, amsgrad ? max_exp_avg_sqs : TensorList()});
  c10::SmallVector<hologram::AdamTensor, 16> tensors;
  tensors.reserve(group.count());
  for (size_t i = 0; i < group.count(); ++i) {
    tensors.push_back({group.data(0, i), group.data(1, i), group.data(2, i), group.data(3, i),
                       group.data(4, i), group.numel(i), step_of(state_steps, i)});
  }
  hologram::AdamOptions options;
  options.lr = lr;
  options.beta1 = beta1;
  options.beta2 = beta2;
  options.eps = eps;
  options.weight_decay = weight_decay;
  options.amsgrad = amsgrad;
  options.maximize = maximize;
  options.decoupled_weight_decay = kDecoupled;
  options.scaling = scaling_of(grad_scale, found_inf);
  options.max_threads = threads_for_group(self);
  if (group.count() > 0)
    hologram::adam_step({tensors.data(), tensors.size()}, group.dtype(), options);
  group.finish();
}

template <bool kDecoupled>
void fused_adam_tensor_lr(TensorList self, TensorList grads, TensorList exp_avgs,
                          TensorList exp_avg_sqs, TensorList max_exp_avg_sqs,
                          TensorList state_steps, const Tensor& lr, double beta1, double beta2,
                          double weight_decay, double eps, bool amsgrad, bool maximize,
                          const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  fused_adam<kDecoupled>(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps,
                         number_of(lr, "lr"), beta1, beta2, weight_decay, eps, amsgrad, maximize,
                         grad_scale, found_inf);
}

// --- SGD ----------------------------------------------------------------------------------------

void fused_sgd(TensorList self, TensorList grads, TensorList momentum_buffers, double weight_decay,
               double momentum, double lr, double dampening, bool nesterov, bool maximize,
               bool is_first_step, const OptionalTensor& grad_scale,
               const OptionalTensor& found_inf) {
  Group<3> group("_fused_sgd_", {self, grads, momentum != 0 ? momentum_buffers : TensorList()});
  TORCH_CHECK(momentum == 0 || momentum_buffers.size() == self.size(),
              "_fused_sgd_: momentum needs a buffer per parameter, got ", momentum_buffers.size(),
              " for ", self.size());
  c10::SmallVector<hologram::SgdTensor, 16> tensors;
  tensors.reserve(group.count());
  for (size_t i = 0; i < group.count(); ++i) {
    tensors.push_back({group.data(0, i), group.data(1, i), group.data(2, i), group.numel(i)});
  }
  hologram::SgdOptions options;
  options.lr = lr;
  options.momentum = momentum;
  options.dampening = dampening;
  options.weight_decay = weight_decay;
  options.nesterov = nesterov;
  options.maximize = maximize;
  options.is_first_step = is_first_step;
  options.scaling = scaling_of(grad_scale, found_inf);
  options.max_threads = threads_for_group(self);
  if (group.count() > 0)
    hologram::sgd_step({tensors.data(), tensors.size()}, group.dtype(), options);
  group.finish();
}

void fused_sgd_tensor_lr(TensorList self, TensorList grads, TensorList momentum_buffers,
                         double weight_decay, double momentum, const Tensor& lr, double dampening,
                         bool nesterov, bool maximize, bool is_first_step,
                         const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  fused_sgd(self, grads, momentum_buffers, weight_decay, momentum, number_of(lr, "lr"), dampening,
            nesterov, maximize, is_first_step, grad_scale, found_inf);
}

// --- Adagrad ------------------------------------------------------------------------------------

void fused_adagrad(TensorList self, TensorList grads, TensorList state_sums, TensorList state_steps,
                   double lr, double lr_decay, double weight_decay, double eps, bool maximize,
                   const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  TORCH_CHECK(state_steps.size() == self.size(),
              "_fused_adagrad_: state_steps must have one element per parameter, got ",
              state_steps.size(), " for ", self.size());
  Group<3> group("_fused_adagrad_", {self, grads, state_sums});
  c10::SmallVector<hologram::AdagradTensor, 16> tensors;
  tensors.reserve(group.count());
  for (size_t i = 0; i < group.count(); ++i) {
    tensors.push_back({group.data(0, i), group.data(1, i), group.data(2, i), group.numel(i),
                       step_of(state_steps, i)});
  }
  hologram::AdagradOptions options;
  options.lr = lr;
  options.lr_decay = lr_decay;
  options.weight_decay = weight_decay;
  options.eps = eps;
  options.maximize = maximize;
  options.scaling = scaling_of(grad_scale, found_inf);
  options.max_threads = threads_for_group(self);
  if (group.count() > 0) {
    hologram::adagrad_step({tensors.data(), tensors.size()}, group.dtype(), options);
  }
  group.finish();
}

void fused_adagrad_tensor_lr(TensorList self, TensorList grads, TensorList state_sums,
                             TensorList state_steps, const Tensor& lr, double lr_decay,
                             double weight_decay, double eps, bool maximize,
                             const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  fused_adagrad(self, grads, state_sums, state_steps, number_of(lr, "lr"), lr_decay, weight_decay,
                eps, maximize, grad_scale, found_inf);
}

}  // namespace
}  // namespace hologram_torch

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using namespace hologram_torch;
  register_native<&fused_adam<false>>(m, "_fused_adam_");
  register_native<&fused_adam_tensor_lr<false>>(m, "_fused_adam_.tensor_lr");
  register_native<&fused_adam<true>>(m, "_fused_adamw_");
  register_native<&fused_adam_tensor_lr<true>>(m, "_fused_adamw_.tensor_lr");
  register_native<&fused_sgd>(m, "_fused_sgd_");
  register_native<&fused_sgd_tensor_lr>(m, "_fused_sgd_.tensor_lr");
  register_native<&fused_adagrad>(m, "_fused_adagrad_");
  // Not in every PyTorch that we support.
  if (c10::Dispatcher::singleton().findSchema({"aten::_fused_adagrad_", "tensor_lr"})) {
    register_native<&fused_adagrad_tensor_lr>(m, "_fused_adagrad_.tensor_lr");
  }
}
