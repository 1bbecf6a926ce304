// SPDX-License-Identifier: MIT
// Fused optimizer steps and the two kernels of gradient scaling.
#include <deque>

#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "recording/record_call.h"

namespace hologram_torch {
namespace {

using at::Tensor;
using at::TensorList;
using OptionalTensor = std::optional<Tensor>;

// A number that is given, or lies in the memory of the host: ours or the CPU's.
struct Number {
  double value = 0;
  const Tensor* tensor = nullptr;

  Number(double given) : value(given) {}  // NOLINT
  Number(const Tensor& t, const char* what) : tensor(&t) {
    TORCH_CHECK(t.defined() && t.numel() == 1 && (is_ours(t) || t.is_cpu()), what,
                " must be a tensor of one element on hologram or cpu");
    const bool is_read = t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble;
    // A number of cpu is read now; not for a graph, in which it would be the same at each replay.
    if (is_read && (is_ours(t) || hologram::is_capturing_graph())) return;
    value = t.item().toDouble();
    tensor = nullptr;
  }
};

calls::Scalar<Arg> scalar_of(const Number& number) {
  using hologram::Stored;
  if (number.tensor == nullptr) return number.value;
  const bool is_single = number.tensor->scalar_type() == at::kFloat;
  return {is_single ? Stored::float32 : Stored::float64, *number.tensor};
}

using Scalars = c10::SmallVector<calls::Scalar<Arg>, 8>;

Scalars scalars_of(TensorList steps) {
  Scalars scalars;
  for (const Tensor& step : steps) scalars.push_back(scalar_of(Number(step, "state_steps")));
  return scalars;
}

void check_factor(const OptionalTensor& t, const char* what) {
  TORCH_CHECK(!is_given(t) || ((is_ours(*t) || t->is_cpu()) && t->numel() == 1 &&
                               t->scalar_type() == at::kFloat),
              what, " must be a float32 tensor of one element on hologram, got ", t->toString(),
              " of shape ", t->sizes());
}

void check_scaling(const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  check_factor(grad_scale, "grad_scale");
  check_factor(found_inf, "found_inf");
}

using Rows = c10::SmallVector<calls::InOut<Arg>, 8>;

// The lists of one call, one tensor of each belonging together.
template <size_t kLists>
class Group {
 public:
  // Of the lists after `needed` the call does without those that are empty.
  Group(const char* op, std::array<TensorList, kLists> lists, size_t needed) : lists_(lists) {
    count_ = lists[0].size();
    if (count_ == 0) return;
    type_ = lists[0][0].scalar_type();
    for (const Tensor& t : lists[0]) numels_.push_back(t.numel());
    TORCH_CHECK(is_dense_float(lists[0][0]), op, ": parameters must be floating, got ", type_);
    for (size_t k = 0; k < kLists; ++k) {
      const TensorList list = lists[k];
      if (k >= needed && list.empty()) continue;
      TORCH_CHECK(list.size() == count_, op, ": lists must be of one length, got ", list.size(),
                  " and ", count_);
      for (size_t i = 0; i < count_; ++i) {
        TORCH_CHECK(is_dense(list[i]), op, ": expected a dense hologram tensor, got ",
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

  // List k as rows of elements, as these lie in the parameters.
  Rows rows(size_t k, Access access = Access::updates) {
    Rows rows;
    if (lists_[k].empty()) return rows;
    for (size_t i = 0; i < count_; ++i) {
      rows.push_back(reshaped(Arg(in_order(k, i), access), {&numels_[i], 1}));
    }
    return rows;
  }
  // Those of list 1, which the call writes only where it scales them.
  Rows gradients(const OptionalTensor& grad_scale) {
    return rows(1, is_given(grad_scale) ? Access::updates : Access::reads);
  }

  void finish() {
    for (const auto& [original, copy] : copies_) copy_into(original, copy);
  }

 private:
  // List k's tensor i in the order of the parameter's; one laid out otherwise is copied, and copied
  // back by finish().
  const Tensor& in_order(size_t k, size_t i) {
    const Tensor& t = lists_[k][i];
    const Tensor& param = lists_[0][i];
    if (C10_LIKELY(param.is_non_overlapping_and_dense() &&
                   same_layout(t.unsafeGetTensorImpl(), param.unsafeGetTensorImpl()))) {
      return t;
    }
    Tensor like = param.is_non_overlapping_and_dense() ? make_like(param, type_)
                                                       : new_empty(t, t.sizes(), type_);
    copy_into(like, t);
    return copies_.emplace_back(t, like).second;
  }

  std::array<TensorList, kLists> lists_;
  size_t count_ = 0;
  c10::SmallVector<int64_t, 8> numels_;
  at::ScalarType type_ = at::kFloat;
  std::deque<std::pair<Tensor, Tensor>> copies_;  // whose members stay where they are
};

void check_steps(const char* op, TensorList steps, TensorList params) {
  TORCH_CHECK(steps.size() == params.size(), op, ": state_steps must have one element per ",
              "parameter, got ", steps.size(), " for ", params.size());
}

// --- Adam, AdamW --------------------------------------------------------------------------------

template <bool kDecoupled>
void adam(TensorList self, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
          TensorList max_exp_avg_sqs, TensorList state_steps, Number lr, double beta1, double beta2,
          double weight_decay, double eps, bool amsgrad, bool maximize,
          const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  constexpr const char* kName = kDecoupled ? "_fused_adamw_" : "_fused_adam_";
  check_steps(kName, state_steps, self);
  Group<5> group(kName,
                 {self, grads, exp_avgs, exp_avg_sqs, amsgrad ? max_exp_avg_sqs : TensorList()},
                 amsgrad ? 5 : 4);
  if (group.count() == 0) return;
  check_scaling(grad_scale, found_inf);
  record(calls::Adam<Arg>{.grad_scale = grad_scale,
                          .found_inf = found_inf,
                          .params = group.rows(0),
                          .grads = group.gradients(grad_scale),
                          .exp_avgs = group.rows(2),
                          .exp_avg_sqs = group.rows(3),
                          .max_exp_avg_sqs = group.rows(4),
                          .amsgrad = amsgrad,
                          .maximize = maximize,
                          .decoupled_weight_decay = kDecoupled,
                          .lr = scalar_of(lr),
                          .beta1 = beta1,
                          .beta2 = beta2,
                          .weight_decay = weight_decay,
                          .eps = eps,
                          .steps = scalars_of(state_steps)});
  group.finish();
}

template <bool kDecoupled>
void fused_adam(TensorList self, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
                TensorList max_exp_avg_sqs, TensorList state_steps, double lr, double beta1,
                double beta2, double weight_decay, double eps, bool amsgrad, bool maximize,
                const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  adam<kDecoupled>(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1,
                   beta2, weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);
}

template <bool kDecoupled>
void fused_adam_tensor_lr(TensorList self, TensorList grads, TensorList exp_avgs,
                          TensorList exp_avg_sqs, TensorList max_exp_avg_sqs,
                          TensorList state_steps, const Tensor& lr, double beta1, double beta2,
                          double weight_decay, double eps, bool amsgrad, bool maximize,
                          const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  adam<kDecoupled>(self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps,
                   Number(lr, "lr"), beta1, beta2, weight_decay, eps, amsgrad, maximize, grad_scale,
                   found_inf);
}

// --- SGD ----------------------------------------------------------------------------------------

void sgd(TensorList self, TensorList grads, TensorList momentum_buffers, double weight_decay,
         double momentum, Number lr, double dampening, bool nesterov, bool maximize,
         bool is_first_step, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  Group<3> group("_fused_sgd_", {self, grads, momentum != 0 ? momentum_buffers : TensorList()}, 2);
  TORCH_CHECK(momentum == 0 || momentum_buffers.size() == self.size(),
              "_fused_sgd_: momentum needs a buffer per parameter, got ", momentum_buffers.size(),
              " for ", self.size());
  if (group.count() == 0) return;
  check_scaling(grad_scale, found_inf);
  record(calls::Sgd<Arg>{.grad_scale = grad_scale,
                         .found_inf = found_inf,
                         .params = group.rows(0),
                         .grads = group.gradients(grad_scale),
                         .momentum_buffers = group.rows(2),
                         .nesterov = nesterov,
                         .maximize = maximize,
                         .is_first_step = is_first_step,
                         .lr = scalar_of(lr),
                         .momentum = momentum,
                         .dampening = dampening,
                         .weight_decay = weight_decay});
  group.finish();
}

void fused_sgd(TensorList self, TensorList grads, TensorList momentum_buffers, double weight_decay,
               double momentum, double lr, double dampening, bool nesterov, bool maximize,
               bool is_first_step, const OptionalTensor& grad_scale,
               const OptionalTensor& found_inf) {
  sgd(self, grads, momentum_buffers, weight_decay, momentum, lr, dampening, nesterov, maximize,
      is_first_step, grad_scale, found_inf);
}

void fused_sgd_tensor_lr(TensorList self, TensorList grads, TensorList momentum_buffers,
                         double weight_decay, double momentum, const Tensor& lr, double dampening,
                         bool nesterov, bool maximize, bool is_first_step,
                         const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  sgd(self, grads, momentum_buffers, weight_decay, momentum, Number(lr, "lr"), dampening, nesterov,
      maximize, is_first_step, grad_scale, found_inf);
}

// --- Adagrad ------------------------------------------------------------------------------------

void adagrad(TensorList self, TensorList grads, TensorList state_sums, TensorList state_steps,
             Number lr, double lr_decay, double weight_decay, double eps, bool maximize,
             const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  check_steps("_fused_adagrad_", state_steps, self);
  Group<3> group("_fused_adagrad_", {self, grads, state_sums}, 3);
  if (group.count() == 0) return;
  check_scaling(grad_scale, found_inf);
  record(calls::Adagrad<Arg>{.grad_scale = grad_scale,
                             .found_inf = found_inf,
                             .params = group.rows(0),
                             .grads = group.gradients(grad_scale),
                             .state_sums = group.rows(2),
                             .maximize = maximize,
                             .lr = scalar_of(lr),
                             .lr_decay = lr_decay,
                             .weight_decay = weight_decay,
                             .eps = eps,
                             .steps = scalars_of(state_steps)});
  group.finish();
}

void fused_adagrad(TensorList self, TensorList grads, TensorList state_sums, TensorList state_steps,
                   double lr, double lr_decay, double weight_decay, double eps, bool maximize,
                   const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  adagrad(self, grads, state_sums, state_steps, lr, lr_decay, weight_decay, eps, maximize,
          grad_scale, found_inf);
}

void fused_adagrad_tensor_lr(TensorList self, TensorList grads, TensorList state_sums,
                             TensorList state_steps, const Tensor& lr, double lr_decay,
                             double weight_decay, double eps, bool maximize,
                             const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  adagrad(self, grads, state_sums, state_steps, Number(lr, "lr"), lr_decay, weight_decay, eps,
          maximize, grad_scale, found_inf);
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
