// SPDX-License-Identifier: MIT
// Calls as records. Formulas are those of the CPU's kernels; sums are in other orders.
#include "src/gpu/recipes.h"

#include <cmath>

#include "hologram/call_structs.h"

namespace hologram::gpu {
namespace {

using namespace calls;  // NOLINT: the structs of calls
using circuit::RowOp;
using enum OpId;

bool is_plain(Dtype dtype) { return !is_complex(dtype); }

// ---- reductions, softmax ----

// With the dimensions of `mask` last, as one. Where they are not one run in memory they are copied.
Array rows_of(Recipe& recipe, const Array& x, uint64_t mask) {
  const Array sorted = x.with_last(mask);
  int kept = 0;
  for (int d = 0; d < x.ndim; ++d) kept += (mask >> d & 1) == 0;
  if (sorted.can_merge(kept, x.ndim)) return sorted.merged(kept, x.ndim);
  const Array copy = recipe.temporary(x.dtype, x.ndim, sorted.shape.data());
  recipe.copy_into(copy, sorted);
  return copy.merged(kept, x.ndim);
}

// A result without the dimensions that were reduced, whether it keeps them as 1 or not.
Array result_of(const Array& out, const Array& x, uint64_t mask) {
  if (out.ndim != x.ndim) return out;
  Array result = out.with_last(mask);
  for (int d = 0; d < x.ndim; ++d) result.ndim -= (mask >> d & 1) != 0;
  return result;
}

// The sum of squares around the mean, and the mean.
struct Moments {
  Array mean, squares;
};
Moments moments_of(Recipe& recipe, const Array& rows, Dtype compute) {
  const int64_t n = rows.shape[static_cast<size_t>(rows.ndim - 1)];
  Moments moments;
  moments.mean = recipe.fold(Reduction::mean, rows, compute);
  const Array away = recipe.op(sub, compute, {rows, moments.mean.along_rows(n)});
  moments.squares = recipe.fold(Reduction::sum, recipe.op(mul, compute, {away, away}), compute);
  return moments;
}

// var or std into `out`, with a correction that is known when it runs.
void write_var(Recipe& recipe, Reduction kind, const Array& out, const Array& squares, int64_t n,
               double parameter) {
  const Number correction = Recipe::number(parameter);
  const Number left = [n, correction](const double* numbers) {
    return std::fmax(0, static_cast<double>(n) - correction(numbers));
  };
  if (kind == Reduction::var) return recipe.op_into(out, div, squares.dtype, {squares, left});
  recipe.op_into(out, sqrt, squares.dtype, {recipe.op(div, squares.dtype, {squares, left})});
}

bool write(const Reduce<Array>& call, Recipe& recipe) {
  const auto kind = static_cast<Reduction>(call.op);
  const auto mask = static_cast<uint64_t>(call.dims);
  if (mask == 0 || is_positional(kind) || kind == Reduction::norm || !is_plain(call.input.dtype) ||
      !is_plain(call.out.dtype) || call.input.numel() == 0) {
    return false;
  }
  const Array out = result_of(call.out, call.input, mask);
  const Array rows = rows_of(recipe, call.input, mask);
  const int64_t n = rows.shape[static_cast<size_t>(rows.ndim - 1)];
  if (kind != Reduction::var && kind != Reduction::std) {
    recipe.fold_into(out, kind, rows);
    return true;
  }
  const Moments moments = moments_of(recipe, rows, compute_dtype(call.out.dtype));
  write_var(recipe, kind, out, moments.squares, n, call.parameter);
  return true;
}

bool write(const ReduceWithMean<Array>& call, Recipe& recipe) {
  const auto mask = static_cast<uint64_t>(call.dims);
  if (mask == 0 || !is_plain(call.input.dtype) || call.input.numel() == 0) return false;
  const Array rows = rows_of(recipe, call.input, mask);
  const Moments moments = moments_of(recipe, rows, compute_dtype(call.out.dtype));
  write_var(recipe, static_cast<Reduction>(call.op), result_of(call.out, call.input, mask),
            moments.squares, rows.shape[static_cast<size_t>(rows.ndim - 1)], call.parameter);
  recipe.copy_into(result_of(call.mean, call.input, mask), moments.mean);
  return true;
}

bool write(const Softmax<Array>& call, Recipe& recipe) {
  if (!is_floating(call.out.dtype) || call.input.dtype != call.out.dtype) return false;
  const uint64_t mask = uint64_t{1} << call.dim;
  recipe.rows_into(call.out.with_last(mask),
                   call.function == 0 ? RowOp::kSoftmax : RowOp::kLogSoftmax,
                   {call.input.with_last(mask)});
  return call.out.ndim > 0;
}

bool write(const SoftmaxBackward<Array>& call, Recipe& recipe) {
  const Dtype compute = compute_dtype(call.grad_input.dtype);
  if (!is_floating(compute) || compute_dtype(call.grad.dtype) != compute ||
      compute_dtype(call.output.dtype) != compute || call.grad_input.ndim == 0) {
    return false;
  }
  const uint64_t mask = uint64_t{1} << call.dim;
  recipe.rows_into(call.grad_input.with_last(mask),
                   call.function == 2 ? RowOp::kSoftmaxBackward : RowOp::kLogSoftmaxBackward,
                   {call.grad.with_last(mask), call.output.with_last(mask)});
  return true;
}

// ---- norms ----

// One dimension of rows and one of what is normalized.
Array as_matrix(const Array& x, int axes) {
  return x.merged(x.ndim - axes, x.ndim).merged(0, x.ndim - axes);
}
bool is_matrix(const Array& x, int axes) {
  return x.can_merge(0, x.ndim - axes) && x.can_merge(x.ndim - axes, x.ndim);
}
Array flat(const Array& x) { return x.merged(0, x.ndim); }

bool write(const LayerNorm<Array>& call, Recipe& recipe) {
  const int axes = static_cast<int>(call.axes);
  if (call.input.numel() == 0 || !is_matrix(call.input, axes) || !is_matrix(call.out, axes)) {
    return false;
  }
  const Dtype compute = compute_dtype(call.input.dtype);
  const Array x = as_matrix(call.input, axes);
  const int64_t n = x.shape[1];
  const Array mean = recipe.fold(Reduction::mean, x, compute);
  const Array away = recipe.op(sub, compute, {x, mean.along_rows(n)});
  const Array var = recipe.fold(Reduction::mean, recipe.op(mul, compute, {away, away}), compute);
  const Array root =
      recipe.op(sqrt, compute, {recipe.op(add, compute, {var, Recipe::number(call.eps)})});
  const Array rstd = recipe.op(reciprocal, compute, {root});
  Array y = recipe.op(mul, compute, {away, rstd.along_rows(n)});
  if (call.weight.is_given) y = recipe.op(mul, compute, {y, flat(call.weight)});
  if (call.bias.is_given) y = recipe.op(add, compute, {y, flat(call.bias)});
  recipe.copy_into(as_matrix(call.out, axes), y);
  if (call.mean.is_given) recipe.copy_into(flat(call.mean), mean);
  if (call.rstd.is_given) recipe.copy_into(flat(call.rstd), rstd);
  return true;
}

bool write(const LayerNormBackward<Array>& call, Recipe& recipe) {
  const int axes = static_cast<int>(call.axes);
  if (call.input.numel() == 0 || !is_matrix(call.input, axes) || !is_matrix(call.grad, axes) ||
      (call.grad_input.is_given && !is_matrix(call.grad_input, axes))) {
    return false;
  }
  const Dtype compute = compute_dtype(call.input.dtype);
  const Array x = as_matrix(call.input, axes), grad = as_matrix(call.grad, axes);
  const Array mean = flat(call.mean), rstd = flat(call.rstd);
  const int64_t rows = x.shape[0], n = x.shape[1];
  if (call.grad_input.is_given) {
    const Array away = recipe.op(sub, compute, {x, mean.along_rows(n)});
    const Array normal = recipe.op(mul, compute, {away, rstd.along_rows(n)});
    Array g = grad;
    if (call.weight.is_given) g = recipe.op(mul, compute, {grad, flat(call.weight)});
    const Array of_mean = recipe.fold(Reduction::mean, g, compute);
    const Array of_scale =
        recipe.fold(Reduction::mean, recipe.op(mul, compute, {g, normal}), compute);
    const Array part = recipe.op(mul, compute, {normal, of_scale.along_rows(n)});
    const Array left =
        recipe.op(sub, compute, {recipe.op(sub, compute, {g, of_mean.along_rows(n)}), part});
    recipe.op_into(as_matrix(call.grad_input, axes), mul, compute, {left, rstd.along_rows(n)});
  }
  // Along columns: the same over what is transposed.
  const Array columns = grad.transposed(0, 1);
  if (call.grad_weight.is_given) {
    const Array away = recipe.op(sub, compute, {x.transposed(0, 1), mean});
    const Array normal = recipe.op(mul, compute, {away, rstd});
    recipe.fold_into(flat(call.grad_weight), Reduction::sum,
                     recipe.op(mul, compute, {columns, normal}));
  }
  if (call.grad_bias.is_given) recipe.fold_into(flat(call.grad_bias), Reduction::sum, columns);
  return rows > 0;
}

// ---- random numbers that others drew ----

bool write(const DropoutBackward<Array>& call, Recipe& recipe) {
  const Dtype compute = compute_dtype(call.grad.dtype);
  const Array kept = recipe.op(where, compute, {call.mask, call.grad, 0.0});
  recipe.op_into(call.grad_input, mul, compute, {kept, Recipe::number(call.scale)});
  return true;
}

// ---- optimizer steps ----

// Numbers of a step, in float64 where the device has it.
struct StepTerms {
  Recipe& recipe;
  Dtype dtype;

  Term op(OpId id, Term a, Term b) const {
    if (!a.array.is_given && !b.array.is_given) {
      const Number x = of(a), y = of(b);
      return Number([id, x, y](const double* numbers) {
        const double p = x(numbers), q = y(numbers);
        return id == mul ? p * q : id == sub ? p - q : id == div ? p / q : std::pow(p, q);
      });
    }
    return recipe.op(id, dtype, {std::move(a), std::move(b)});
  }
  Term root(Term a) const {
    if (a.array.is_given) return recipe.op(sqrt, dtype, {std::move(a)});
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

bool write(const Adam<Array>& call, Recipe& recipe, bool has_double) {
  if (!is_steppable(call)) return false;
  const StepTerms terms{recipe, has_double ? Dtype::kFloat64 : Dtype::kFloat32};
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

bool write(const Adagrad<Array>& call, Recipe& recipe, bool has_double) {
  if (!is_steppable(call)) return false;
  const StepTerms terms{recipe, has_double ? Dtype::kFloat64 : Dtype::kFloat32};
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

template <class Call, class... More>
bool read_and_write(const circuit::KernelCall& kernel, Recipe& recipe, More... more) {
  RecipeFrame frame(recipe, kernel);
  Call call{};
  Call::each(call, frame);
  return frame.is_read() && write(call, recipe, more...);
}

}  // namespace

bool write_recipe(const circuit::KernelCall& call, Recipe& recipe, bool has_double) {
  switch (static_cast<CallNumber>(call.kind)) {
    case CallNumber::reduce:
      return read_and_write<Reduce<Array>>(call, recipe);
    case CallNumber::reduce_with_mean:
      return read_and_write<ReduceWithMean<Array>>(call, recipe);
    case CallNumber::softmax:
      return read_and_write<Softmax<Array>>(call, recipe);
    case CallNumber::softmax_backward:
      return read_and_write<SoftmaxBackward<Array>>(call, recipe);
    case CallNumber::layer_norm:
      return read_and_write<LayerNorm<Array>>(call, recipe);
    case CallNumber::layer_norm_backward:
      return read_and_write<LayerNormBackward<Array>>(call, recipe);
    case CallNumber::dropout_backward:
      return read_and_write<DropoutBackward<Array>>(call, recipe);
    case CallNumber::adam:
      return read_and_write<Adam<Array>>(call, recipe, has_double);
    case CallNumber::sgd:
      return read_and_write<Sgd<Array>>(call, recipe);
    case CallNumber::adagrad:
      return read_and_write<Adagrad<Array>>(call, recipe, has_double);
    default:
      return false;
  }
}

}  // namespace hologram::gpu
