// SPDX-License-Identifier: MIT
// Recipes of losses; hologram/loss.h has the formulas.
#include "src/gpu/recipes/parts.h"

#include "hologram/loss.h"
#include "hologram/op.h"

namespace hologram::gpu {

using namespace calls;  // NOLINT: the structs of calls
using enum OpId;

namespace {

bool has_recipe(int64_t loss) {
  switch (static_cast<hologram::PointLoss>(loss)) {
    case hologram::PointLoss::mse:
    case hologram::PointLoss::l1:
    case hologram::PointLoss::smooth_l1:
    case hologram::PointLoss::huber:
    case hologram::PointLoss::bce_with_logits:
      return true;
    default:
      return false;  // they look at what they are given, or have values of their own at 0
  }
}

// What both directions are computed from.
struct Loss {
  Recipe& recipe;
  Dtype dtype;
  Array x, y, positive;  // positive: the weight of targets that are 1
  Number parameter;

  Array op(OpId id, std::initializer_list<Term> operands) const {
    return recipe.op(id, dtype, operands);
  }
  Array away() const { return op(sub, {x, y}); }
  Number half() const {
    return [p = parameter](const double* numbers) { return p(numbers) / 2; };
  }
  // 1 + (positive - 1) y, by which the logarithm of sigmoid(x) is multiplied; 1 without it.
  Array log_weight() const { return op(add, {op(mul, {op(sub, {positive, 1.0}), y}), 1.0}); }

  Array value(hologram::PointLoss loss) const {
    const Array d = away(), size = op(abs, {d});
    switch (loss) {
      case hologram::PointLoss::mse:
        return op(mul, {d, d});
      case hologram::PointLoss::l1:
        return size;
      case hologram::PointLoss::smooth_l1: {
        const Array near = op(div, {op(mul, {op(mul, {size, 0.5}), size}), parameter});
        return op(where, {op(lt, {size, parameter}), near, op(sub, {size, half()})});
      }
      case hologram::PointLoss::huber: {
        const Array near = op(mul, {op(mul, {size, 0.5}), size});
        const Array far = op(mul, {op(sub, {size, half()}), parameter});
        return op(where, {op(le, {size, parameter}), near, far});
      }
      default: {
        const Array below = op(exp, {op(neg, {op(abs, {x})})});
        Array logs = op(add, {op(log1p, {below}), op(maximum, {op(neg, {x}), 0.0})});
        if (positive.is_given) logs = op(mul, {logs, log_weight()});
        return op(add, {op(mul, {op(sub, {1.0, y}), x}), logs});
      }
    }
  }

  Array slope(hologram::PointLoss loss) const {
    const Array d = away(), size = op(abs, {d});
    switch (loss) {
      case hologram::PointLoss::mse:
        return op(mul, {d, 2.0});
      case hologram::PointLoss::l1:
        return op(sign, {d});
      case hologram::PointLoss::smooth_l1:
        return op(where, {op(lt, {size, parameter}), op(div, {d, parameter}), op(sign, {d})});
      case hologram::PointLoss::huber:
        return op(where, {op(le, {size, parameter}), d, op(mul, {op(sign, {d}), parameter})});
      default: {
        if (!positive.is_given) return op(sub, {op(sigmoid, {x}), y});
        const Array rest = op(mul, {op(sigmoid, {op(neg, {x})}), log_weight()});
        return op(sub, {op(sub, {1.0, y}), rest});
      }
    }
  }
};

template <class Call>
Loss loss_of(const Call& call, Recipe& recipe, Dtype compute) {
  return {recipe,      compute,         call.input,
          call.target, call.pos_weight, Recipe::number(call.parameter)};
}

}  // namespace

bool write(const calls::PointLoss<Array>& call, Recipe& recipe) {
  if (!has_recipe(call.loss) || call.input.numel() == 0) return false;
  const Dtype compute = compute_dtype(call.out.dtype);
  const auto loss = static_cast<hologram::PointLoss>(call.loss);
  Array value = loss_of(call, recipe, compute).value(loss);
  if (call.weight.is_given) value = recipe.op(mul, compute, {value, call.weight});
  const auto reduction = static_cast<LossReduction>(call.reduction);
  if (reduction == LossReduction::none) {
    recipe.copy_into(call.out, value);
    return true;
  }
  Array out = call.out;
  out.ndim = 0;
  recipe.fold_into(out, reduction == LossReduction::mean ? Reduction::mean : Reduction::sum,
                   value.merged(0, value.ndim));
  return true;
}

bool write(const PointLossBackward<Array>& call, Recipe& recipe) {
  const int64_t n = call.input.numel();
  if (!has_recipe(call.loss) || n == 0) return false;
  const Dtype compute = compute_dtype(call.grad_input.dtype);
  const auto loss = static_cast<hologram::PointLoss>(call.loss);
  Array slope = loss_of(call, recipe, compute).slope(loss);
  if (call.weight.is_given) slope = recipe.op(mul, compute, {slope, call.weight});
  Array grad = call.grad;
  if (grad.numel() == 1) grad.ndim = 0;
  if (static_cast<LossReduction>(call.reduction) == LossReduction::mean) {
    grad = recipe.op(div, compute, {grad, static_cast<double>(n)});
  }
  recipe.op_into(call.grad_input, mul, compute, {slope, grad});
  return true;
}

bool write(const NllLoss<Array>& call, Recipe& recipe) {
  const Dtype dtype = call.input.dtype, compute = compute_dtype(dtype);
  const int class_dim = call.input.ndim == 1 ? 0 : 1;
  if (call.input.numel() == 0 || !is_floating(dtype) || !call.input.is_row_major() ||
      !call.target.is_row_major()) {
    return false;
  }
  const int64_t classes = call.input.shape[static_cast<size_t>(class_dim)];
  const int64_t count = call.target.numel();
  const int64_t inner = class_dim == 0 ? 1 : count / call.input.shape[0];
  const auto shaped = [](const Array& array, int64_t outer, int64_t size, int64_t step) {
    Array lines = array;
    lines.ndim = 3;
    lines.shape = {outer, size, step};
    lines.strides = {size * step, step, 1};
    return lines;
  };
  const Array target = flat(call.target);
  const auto ignore = static_cast<double>(call.ignore_index);
  const Array is_ignored = recipe.op(eq, Dtype::kInt64, {target, ignore});
  // Positions count from the end where they are negative, classes do not.
  const Array is_below = recipe.op(lt, Dtype::kInt64, {target, 0.0});
  const Array position =
      recipe.op(where, Dtype::kInt64, {is_below, static_cast<double>(classes), target});
  const Array index = recipe.op(where, Dtype::kInt64, {is_ignored, 0.0, position});
  const Array picked = recipe.temporary(dtype, 1, &count);
  recipe.call(Gather<Array>{.input = shaped(call.input, count / inner, classes, inner),
                            .index = shaped(index, count / inner, 1, inner),
                            .dim = 1,
                            .out = shaped(picked, count / inner, 1, inner)});
  Term weight = 1.0;
  if (call.weight.is_given) {
    const Array weights = recipe.temporary(dtype, 1, &count);
    recipe.call(Take<Array>{.input = shaped(call.weight, 1, classes, 1),
                            .index = index,
                            .dim = 1,
                            .out = shaped(weights, 1, count, 1)});
    weight = weights;
  }
  const Array counted = recipe.op(where, compute, {is_ignored, 0.0, weight});
  const Array product = recipe.op(mul, compute, {recipe.op(neg, compute, {picked}), counted});
  const Array loss = recipe.op(where, compute, {is_ignored, 0.0, product});
  const auto reduction = static_cast<LossReduction>(call.reduction);
  if (reduction == LossReduction::none) {
    recipe.copy_into(flat(call.out), loss);
    recipe.fill_into(call.total_weight, 0);
    return true;
  }
  const Array sum = recipe.fold(Reduction::sum, loss, compute);
  const Array total = recipe.fold(Reduction::sum, counted, compute);
  if (reduction == LossReduction::mean) {
    recipe.op_into(call.out, div, compute, {sum, total});
  } else {
    recipe.copy_into(call.out, sum);
  }
  recipe.copy_into(call.total_weight, total);
  return true;
}

}  // namespace hologram::gpu
