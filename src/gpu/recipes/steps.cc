// SPDX-License-Identifier: MIT
// Recipes of optimizer steps.
#include "src/gpu/recipes/parts.h"

#include <cmath>

#include "hologram/op.h"

namespace hologram::gpu {

using namespace calls;  // NOLINT: the structs of calls
using enum OpId;

namespace {

// Numbers of a step: computed on the host, or, where they lie in memory, on the device in its
// widest dtype.
struct StepTerms {
  Recipe& recipe;

  Term op(OpId id, Term a, Term b) const {
    if (!a.is_array && !b.is_array) {
      const Number x = of(a), y = of(b);
      return Number([id, x, y](const double* numbers) {
        const double p = x(numbers), q = y(numbers);
        return id == mul ? p * q : id == sub ? p - q : id == div ? p / q : std::pow(p, q);
      });
    }
    return recipe.op(id, recipe.widest(), {std::move(a), std::move(b)});
  }
  Term root(Term a) const {
    if (a.is_array) return recipe.op(sqrt, recipe.widest(), {std::move(a)});
    return Number([x = of(a)](const double* numbers) { return std::sqrt(x(numbers)); });
  }
  static Number of(const Term& term) {
    if (term.number) return term.number;
    return [constant = term.constant](const double*) { return constant; };
  }
};

template <class Call>
bool is_steppable(const Call& call) {
  if (call.grad_scale.is_given || call.found_inf.is_given) return false;
  for (const auto& param : call.params) {
    if (!is_floating(param.dtype)) return false;
  }
  return true;
}

// The elements of the i-th tensor of a list as one run: steps take dense tensors, each laid out as
// its parameter.
Array run_of(const Array& array) {
  Array run = array;
  run.ndim = 1;
  run.shape[0] = array.numel();
  run.strides[0] = 1;
  return run;
}

// What is added to the gradient: by sign and decay.
Array gradient(Recipe& recipe, const Array& grad, const Array& param, bool maximize,
               double weight_decay, bool decays) {
  const Dtype compute = compute_dtype(param.dtype);
  Array g = grad;
  if (maximize) g = recipe.op(neg, compute, {g});
  if (decays) g = recipe.op(fma, compute, {param, Recipe::number(weight_decay), g});
  return g;
}

}  // namespace

bool write(const Adam<Array>& call, Recipe& recipe) {
  if (!is_steppable(call)) return false;
  const StepTerms terms{recipe};
  const Term lr = Recipe::term(call.lr), beta1 = Recipe::number(call.beta1),
             beta2 = Recipe::number(call.beta2), decay = Recipe::number(call.weight_decay);
  for (size_t i = 0; i < call.params.size(); ++i) {
    const Dtype compute = compute_dtype(call.params[i].dtype);
    const Term step = Recipe::term(call.steps[i]);
    const Term step_size = terms.op(div, lr, terms.op(sub, 1.0, terms.op(pow, beta1, step)));
    const Term correction = terms.root(terms.op(sub, 1.0, terms.op(pow, beta2, step)));
    const Array param = run_of(call.params[i]), average = run_of(call.exp_avgs[i]);
    const Array squares = run_of(call.exp_avg_sqs[i]);
    Array p = param;
    if (call.decoupled_weight_decay) {
      p = recipe.op(mul, compute, {param, terms.op(sub, 1.0, terms.op(mul, lr, decay))});
    }
    const Array g = gradient(recipe, run_of(call.grads[i]), param, call.maximize, call.weight_decay,
                             !call.decoupled_weight_decay);
    const Array m = recipe.op(lerp, compute, {average, g, terms.op(sub, 1.0, beta1)});
    const Array scaled = recipe.op(mul, compute, {g, terms.op(sub, 1.0, beta2)});
    const Array rest = recipe.op(mul, compute, {scaled, g});
    Array v = recipe.op(fma, compute, {squares, beta2, rest});
    recipe.copy_into(average, m);
    recipe.copy_into(squares, v);
    if (call.amsgrad) {
      const Array most = run_of(call.max_exp_avg_sqs[i]);
      v = recipe.op(maximum, compute, {most, v});
      recipe.copy_into(most, v);
    }
    const Array root = recipe.op(sqrt, compute, {v});
    const Array eps = recipe.op(div, compute, {root, correction});
    const Array below = recipe.op(add, compute, {eps, Recipe::number(call.eps)});
    const Array above = recipe.op(mul, compute, {m, step_size});
    recipe.op_into(param, sub, compute, {p, recipe.op(div, compute, {above, below})});
  }
  return true;
}

bool write(const Sgd<Array>& call, Recipe& recipe) {
  if (!is_steppable(call)) return false;
  for (size_t i = 0; i < call.params.size(); ++i) {
    const Dtype compute = compute_dtype(call.params[i].dtype);
    const Array param = run_of(call.params[i]);
    Array g = gradient(recipe, run_of(call.grads[i]), param, call.maximize, call.weight_decay,
                       /*decays=*/true);
    if (!call.momentum_buffers.empty()) {
      const Array buffer = run_of(call.momentum_buffers[i]);
      const Number momentum = Recipe::number(call.momentum),
                   dampening = Recipe::number(call.dampening);
      Array b = g;
      if (!call.is_first_step) {
        const Number fresh = [dampening](const double* numbers) { return 1 - dampening(numbers); };
        b = recipe.op(fma, compute, {buffer, momentum, recipe.op(mul, compute, {g, fresh})});
      }
      recipe.copy_into(buffer, b);
      g = call.nesterov ? recipe.op(fma, compute, {b, momentum, g}) : b;
    }
    const Array change = recipe.op(mul, compute, {g, Recipe::term(call.lr)});
    recipe.op_into(param, sub, compute, {param, change});
  }
  return true;
}

bool write(const Adagrad<Array>& call, Recipe& recipe) {
  if (!is_steppable(call)) return false;
  const StepTerms terms{recipe};
  for (size_t i = 0; i < call.params.size(); ++i) {
    const Dtype compute = compute_dtype(call.params[i].dtype);
    const Array param = run_of(call.params[i]), sums = run_of(call.state_sums[i]);
    const Term before = terms.op(sub, Recipe::term(call.steps[i]), 1.0);
    const Term slower = terms.op(mul, before, Recipe::number(call.lr_decay));
    const Term below = terms.op(sub, slower, -1.0);
    const Term step_size = terms.op(div, Recipe::term(call.lr), below);
    const Array g = gradient(recipe, run_of(call.grads[i]), param, call.maximize, call.weight_decay,
                             /*decays=*/true);
    const Array sum = recipe.op(fma, compute, {g, g, sums});
    recipe.copy_into(sums, sum);
    const Array root =
        recipe.op(add, compute, {recipe.op(sqrt, compute, {sum}), Recipe::number(call.eps)});
    const Array change = recipe.op(div, compute, {recipe.op(mul, compute, {g, step_size}), root});
    recipe.op_into(param, sub, compute, {param, change});
  }
  return true;
}

}  // namespace hologram::gpu
