// SPDX-License-Identifier: MIT
// Recipes of norms. Formulas are those of the CPU's kernels; sums are in other orders.
#include "src/gpu/recipes/parts.h"

#include "hologram/op.h"

namespace hologram::gpu {

using namespace calls;  // NOLINT: the structs of calls
using enum OpId;

namespace {

// One dimension of rows and one of what is normalized.
Array as_matrix(const Array& x, int axes) {
  return x.merged(x.ndim - axes, x.ndim).merged(0, x.ndim - axes);
}
bool is_matrix(const Array& x, int axes) {
  return x.can_merge(0, x.ndim - axes) && x.can_merge(x.ndim - axes, x.ndim);
}

}  // namespace

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

namespace {

// Values of channels beside elements [C, ...].
Array of_channels(const Array& values, int ndim) {
  Array array = flat(values);
  while (array.ndim < ndim) array = array.along_rows(1);
  return array;
}

}  // namespace

bool write(const BatchNorm<Array>& call, Recipe& recipe) {
  if (call.input.numel() == 0 || call.input.ndim < 2) return false;
  const Dtype compute = compute_dtype(call.input.dtype);
  const int ndim = call.input.ndim;
  const uint64_t mask = ((uint64_t{1} << ndim) - 1) & ~uint64_t{2};
  const Array x = call.input.with_last(mask), out = call.out.with_last(mask);
  Array mean, var;
  if (call.training) {
    const Array rows = rows_of(recipe, call.input, mask);
    const auto n = static_cast<double>(rows.shape[1]);
    const Moments moments = moments_of(recipe, rows, compute);
    mean = moments.mean;
    var = recipe.op(div, compute, {moments.squares, n});
    const Number momentum = Recipe::number(call.momentum);
    const Number rest = [momentum](const double* numbers) { return 1 - momentum(numbers); };
    const auto move = [&](const Array& running, const Array& now) {
      if (!running.is_given) return;
      const Array old = recipe.op(mul, compute, {flat(running), rest});
      recipe.op_into(flat(running), add, compute, {recipe.op(mul, compute, {now, momentum}), old});
    };
    move(call.running_mean, mean);
    move(call.running_var, recipe.op(div, compute, {moments.squares, n - 1}));
  } else {
    mean = flat(call.running_mean), var = flat(call.running_var);
  }
  const Array moved = recipe.op(add, compute, {var, Recipe::number(call.eps)});
  const Array invstd = recipe.op(reciprocal, compute, {recipe.op(sqrt, compute, {moved})});
  Array scale = invstd;
  if (call.weight.is_given) scale = recipe.op(mul, compute, {invstd, flat(call.weight)});
  const Array away = recipe.op(sub, compute, {x, of_channels(mean, ndim)});
  Array y = recipe.op(mul, compute, {away, of_channels(scale, ndim)});
  if (call.bias.is_given) y = recipe.op(add, compute, {y, of_channels(call.bias, ndim)});
  recipe.copy_into(out, y);
  if (call.training && call.save_mean.is_given) recipe.copy_into(flat(call.save_mean), mean);
  if (call.training && call.save_invstd.is_given) {
    recipe.copy_into(flat(call.save_invstd), invstd);
  }
  return true;
}

bool write(const BatchNormBackward<Array>& call, Recipe& recipe) {
  if (call.input.numel() == 0 || call.input.ndim < 2) return false;
  const Dtype compute = compute_dtype(call.input.dtype);
  const int ndim = call.input.ndim;
  const uint64_t mask = ((uint64_t{1} << ndim) - 1) & ~uint64_t{2};
  const Array x = call.input.with_last(mask), grad = call.grad.with_last(mask);
  const int64_t places = call.input.numel() / call.input.shape[1];
  const auto n = static_cast<double>(places);
  Array mean, invstd;
  if (call.training) {
    mean = flat(call.save_mean), invstd = flat(call.save_invstd);
  } else {
    mean = flat(call.running_mean);
    const Array moved = recipe.op(add, compute, {flat(call.running_var), Recipe::number(call.eps)});
    invstd = recipe.op(reciprocal, compute, {recipe.op(sqrt, compute, {moved})});
  }
  Array scale = invstd;
  if (call.weight.is_given) scale = recipe.op(mul, compute, {invstd, flat(call.weight)});
  const Array away = recipe.op(sub, compute, {x, of_channels(mean, ndim)});
  const Array normal = recipe.op(mul, compute, {away, of_channels(invstd, ndim)});
  Array sum, dot;
  if (call.training || call.grad_bias.is_given) {
    sum = recipe.fold(Reduction::sum, rows_of(recipe, call.grad, mask), compute);
  }
  if (call.training || call.grad_weight.is_given) {
    dot = recipe.fold(Reduction::sum, recipe.op(mul, compute, {grad, normal}).merged(1, ndim),
                      compute);
  }
  if (call.grad_input.is_given) {
    Array g = grad;
    if (call.training) {
      const Array of_sum = of_channels(recipe.op(div, compute, {sum, n}), ndim);
      const Array of_dot = of_channels(recipe.op(div, compute, {dot, n}), ndim);
      const Array part = recipe.op(mul, compute, {normal, of_dot});
      g = recipe.op(sub, compute, {recipe.op(sub, compute, {g, of_sum}), part});
    }
    recipe.op_into(call.grad_input.with_last(mask), mul, compute, {g, of_channels(scale, ndim)});
  }
  if (call.grad_weight.is_given) recipe.copy_into(flat(call.grad_weight), dot);
  if (call.grad_bias.is_given) recipe.copy_into(flat(call.grad_bias), sum);
  return true;
}

namespace {

// [N, groups * G, S...] as [N, groups, G, S...].
Array in_groups(const Array& x, int64_t groups) {
  Array array = x;
  for (int d = x.ndim; d > 2; --d) {
    array.shape[static_cast<size_t>(d)] = x.shape[static_cast<size_t>(d - 1)];
    array.strides[static_cast<size_t>(d)] = x.strides[static_cast<size_t>(d - 1)];
  }
  array.shape[1] = groups;
  array.shape[2] = x.shape[1] / groups;
  array.strides[1] = x.strides[1] * array.shape[2];
  array.strides[2] = x.strides[1];
  array.ndim = x.ndim + 1;
  return array;
}
// Values of channels beside such elements, and values of groups [N, groups].
Array of_grouped_channels(const Array& values, int64_t groups, int ndim) {
  Array array = flat(values);
  array.shape[1] = array.shape[0] / groups;
  array.strides[1] = array.strides[0];
  array.shape[0] = groups;
  array.strides[0] *= array.shape[1];
  array.ndim = 2;
  while (array.ndim < ndim - 1) array = array.along_rows(1);
  return array;
}
Array of_groups(const Array& values, int ndim) {
  Array array = values;
  while (array.ndim < ndim) array = array.along_rows(1);
  return array;
}

}  // namespace

bool write(const GroupNorm<Array>& call, Recipe& recipe) {
  if (call.input.numel() == 0 || call.input.ndim < 2 || call.input.ndim + 1 >= kMostDims) {
    return false;
  }
  const Dtype compute = compute_dtype(call.input.dtype);
  const Array x = in_groups(call.input, call.groups);
  const int ndim = x.ndim;
  const uint64_t inner = ((uint64_t{1} << ndim) - 1) & ~uint64_t{3};
  const Array rows = rows_of(recipe, x, inner);
  const Moments moments = moments_of(recipe, rows, compute);
  const auto n = static_cast<double>(rows.shape[2]);
  const Array var = recipe.op(div, compute, {moments.squares, n});
  const Array root =
      recipe.op(sqrt, compute, {recipe.op(add, compute, {var, Recipe::number(call.eps)})});
  const Array rstd = recipe.op(reciprocal, compute, {root});
  const Array away = recipe.op(sub, compute, {x, of_groups(moments.mean, ndim)});
  Array y = recipe.op(mul, compute, {away, of_groups(rstd, ndim)});
  if (call.weight.is_given) {
    y = recipe.op(mul, compute, {y, of_grouped_channels(call.weight, call.groups, ndim)});
  }
  if (call.bias.is_given) {
    y = recipe.op(add, compute, {y, of_grouped_channels(call.bias, call.groups, ndim)});
  }
  recipe.copy_into(in_groups(call.out, call.groups), y);
  if (call.mean.is_given) recipe.copy_into(call.mean, moments.mean);
  if (call.rstd.is_given) recipe.copy_into(call.rstd, rstd);
  return true;
}

bool write(const GroupNormBackward<Array>& call, Recipe& recipe) {
  if (call.input.numel() == 0 || call.input.ndim < 2 || call.input.ndim + 1 >= kMostDims) {
    return false;
  }
  const Dtype compute = compute_dtype(call.input.dtype);
  const Array x = in_groups(call.input, call.groups), grad = in_groups(call.grad, call.groups);
  const int ndim = x.ndim;
  const auto normalized = [&](const Array& of) {
    const Array away = recipe.op(sub, compute, {of, of_groups(call.mean, ndim)});
    return recipe.op(mul, compute, {away, of_groups(call.rstd, ndim)});
  };
  const Array normal = normalized(x);
  if (call.grad_input.is_given) {
    Array g = recipe.temporary(compute, ndim, x.shape.data());
    recipe.copy_into(g, grad);
    if (call.weight.is_given) {
      g = recipe.op(mul, compute, {g, of_grouped_channels(call.weight, call.groups, ndim)});
    }
    const Array of_mean = recipe.fold(Reduction::mean, g.merged(2, ndim), compute);
    const Array of_scale =
        recipe.fold(Reduction::mean, recipe.op(mul, compute, {g, normal}).merged(2, ndim), compute);
    const Array part = recipe.op(mul, compute, {normal, of_groups(of_scale, ndim)});
    const Array left =
        recipe.op(sub, compute, {recipe.op(sub, compute, {g, of_groups(of_mean, ndim)}), part});
    recipe.op_into(in_groups(call.grad_input, call.groups), mul, compute,
                   {left, of_groups(call.rstd, ndim)});
  }
  // Channels first: the rest is what is summed.
  const uint64_t rest = ((uint64_t{1} << ndim) - 1) & ~uint64_t{6};
  const auto sum_into = [&](const Array& out, const Array& of) {
    const Array rows = rows_of(recipe, of, rest);
    const Array sums = recipe.fold(Reduction::sum, rows, compute);
    recipe.copy_into(flat(out), sums.merged(0, 2));
  };
  if (call.grad_weight.is_given) {
    sum_into(call.grad_weight, recipe.op(mul, compute, {grad, normal}));
  }
  if (call.grad_bias.is_given) sum_into(call.grad_bias, grad);
  return true;
}

}  // namespace hologram::gpu
