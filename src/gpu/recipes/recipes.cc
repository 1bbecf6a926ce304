// SPDX-License-Identifier: MIT
// Recipes of reductions, softmax and movement, and the choice of the function that writes a call.
#include "src/gpu/recipes/recipes.h"

#include <algorithm>
#include <cmath>

#include "hologram/op.h"
#include "src/gpu/recipes/parts.h"
#include "src/gpu/squares.h"

namespace hologram::gpu {

using namespace calls;  // NOLINT: the structs of calls
using circuit::RowOp;
using enum OpId;

Array rows_of(Recipe& recipe, const Array& x, uint64_t mask) {
  const Array sorted = x.with_last(mask);
  int kept = 0;
  for (int d = 0; d < x.ndim; ++d) kept += (mask >> d & 1) == 0;
  if (sorted.can_merge(kept, x.ndim)) return sorted.merged(kept, x.ndim);
  const Array copy = recipe.temporary(x.dtype, x.ndim, sorted.shape.data());
  recipe.copy_into(copy, sorted);
  return copy.merged(kept, x.ndim);
}

Moments moments_of(Recipe& recipe, const Array& rows, Dtype compute) {
  const int64_t n = rows.shape[static_cast<size_t>(rows.ndim - 1)];
  Moments moments;
  moments.mean = recipe.fold(Reduction::mean, rows, compute);
  const Array away = recipe.op(sub, compute, {rows, moments.mean.along_rows(n)});
  moments.squares = recipe.fold(Reduction::sum, recipe.op(mul, compute, {away, away}), compute);
  return moments;
}

namespace {

bool is_plain(Dtype dtype) { return !is_complex(dtype); }

// ---- reductions, softmax ----

// No dimension stands for all of them.
uint64_t mask_of(int64_t dims, const Array& x) {
  return dims != 0 ? static_cast<uint64_t>(dims) : (uint64_t{1} << x.ndim) - 1;
}

// A result without the dimensions that were reduced, whether it keeps them as 1 or not.
Array result_of(const Array& out, const Array& x, uint64_t mask) {
  if (out.ndim != x.ndim) return out;
  Array result = out.with_last(mask);
  for (int d = 0; d < x.ndim; ++d) result.ndim -= (mask >> d & 1) != 0;
  return result;
}

// For each row what its elements are multiplied by before they are squared: a power of two, 1 but
// where squares would leave the range of float32.
Array power_of(Recipe& recipe, const Array& rows) {
  const Array most =
      recipe.fold(Reduction::amax, recipe.op(abs, Dtype::kFloat32, {rows}), Dtype::kFloat32);
  const auto choice = [&](OpId is, double bound, const Term& power, const Term& other) {
    const Array chosen = recipe.op(is, Dtype::kFloat32, {most, bound});
    return recipe.op(where, Dtype::kFloat32, {chosen, power, other});
  };
  return choice(gt, kHugeToSquare, 1 / kPowerForSquares,
                choice(lt, kTinyToSquare, kPowerForSquares, 1.0));
}

// var or std of rows into `out`, with a correction that is known when it runs; returns the mean.
Array write_var(Recipe& recipe, Reduction kind, const Array& out, const Array& rows, Dtype compute,
                double parameter) {
  const int64_t n = rows.shape[static_cast<size_t>(rows.ndim - 1)];
  const Number correction = Recipe::number(parameter);
  const Number left = [n, correction](const double* numbers) {
    return std::fmax(0, static_cast<double>(n) - correction(numbers));
  };
  const Array mean = recipe.fold(Reduction::mean, rows, compute);
  Array away = recipe.op(sub, compute, {rows, mean.along_rows(n)});
  const bool has_power = compute == Dtype::kFloat32;
  Array power;
  if (has_power) {
    power = power_of(recipe, rows);
    away = recipe.op(mul, compute, {away, power.along_rows(n)});
  }
  const Array squares = recipe.fold(Reduction::sum, recipe.op(mul, compute, {away, away}), compute);
  Array result = recipe.op(div, compute, {squares, left});
  if (kind == Reduction::std) result = recipe.op(sqrt, compute, {result});
  if (has_power) {
    if (kind == Reduction::var) result = recipe.op(div, compute, {result, power});
    result = recipe.op(div, compute, {result, power});
  }
  recipe.copy_into(out, result);
  return mean;
}

bool write(const Reduce<Array>& call, Recipe& recipe) {
  const auto kind = static_cast<Reduction>(call.op);
  const auto mask = mask_of(call.dims, call.input);
  if (mask == 0 || kind == Reduction::norm || !is_plain(call.input.dtype) ||
      !is_plain(call.out.dtype) || call.input.numel() == 0) {
    return false;
  }
  const Array out = result_of(call.out, call.input, mask);
  const Array rows = rows_of(recipe, call.input, mask);
  if (kind != Reduction::var && kind != Reduction::std) {
    recipe.fold_into(out, kind, rows);
  } else {
    write_var(recipe, kind, out, rows, compute_dtype(call.out.dtype), call.parameter);
  }
  return true;
}

bool write(const ReduceWithIndex<Array>& call, Recipe& recipe) {
  if (call.input.ndim == 0 || !is_plain(call.input.dtype) || call.input.numel() == 0) return false;
  const uint64_t mask = uint64_t{1} << call.dim;
  const Array rows = call.input.with_last(mask);
  const auto kind = static_cast<Reduction>(call.op);
  recipe.fold_into(result_of(call.out, call.input, mask), kind, rows);
  recipe.fold_into(result_of(call.indices, call.input, mask),
                   kind == Reduction::amin ? Reduction::argmin : Reduction::argmax, rows);
  return true;
}

bool write(const ReduceWithMean<Array>& call, Recipe& recipe) {
  const auto mask = mask_of(call.dims, call.input);
  if (mask == 0 || !is_plain(call.input.dtype) || call.input.numel() == 0) return false;
  const Array rows = rows_of(recipe, call.input, mask);
  const Array mean =
      write_var(recipe, static_cast<Reduction>(call.op), result_of(call.out, call.input, mask),
                rows, compute_dtype(call.out.dtype), call.parameter);
  recipe.copy_into(result_of(call.mean, call.input, mask), mean);
  return true;
}

bool write(const Softmax<Array>& call, Recipe& recipe) {
  if (!is_floating(call.out.dtype) || call.input.dtype != call.out.dtype || call.out.ndim == 0) {
    return false;
  }
  const uint64_t mask = uint64_t{1} << call.dim;
  recipe.rows_into(call.out.with_last(mask),
                   call.function == 0 ? RowOp::kSoftmax : RowOp::kLogSoftmax,
                   {call.input.with_last(mask)});
  return true;
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

// ---- movement ----

bool write(const Join<Array>& call, Recipe& recipe) {
  int64_t width = 0, begin = 0;
  for (const auto& piece : call.pieces) {
    if (!is_plain(piece.dtype) || piece.ndim != 2) return false;
    width += piece.shape[1];
  }
  for (const auto& piece : call.pieces) {
    Array part = call.out;
    part.offset += begin * static_cast<int64_t>(itemsize(part.dtype));
    part.ndim = 2;
    part.shape[0] = call.rows, part.shape[1] = piece.shape[1];
    part.strides[0] = width, part.strides[1] = 1;
    if (piece.is_given) {
      recipe.copy_into(part, piece);
    } else {
      recipe.fill_into(part, 0);
    }
    begin += piece.shape[1];
  }
  return is_plain(call.out.dtype);
}

bool write(const calls::Place<Array>& call, Recipe& recipe) {
  const int64_t* strides = call.strides.data();
  if (!is_plain(call.out.dtype)) return false;
  for (size_t k = 0; k < call.pieces.size(); ++k) {
    const Array& from = call.pieces[k];
    if (!is_plain(from.dtype)) return false;
    Array to = from;
    to.slot = call.out.slot;
    to.dtype = call.out.dtype;
    to.offset = call.out.offset + call.begins[k];
    std::copy_n(strides, from.ndim, to.strides.begin());
    strides += from.ndim;
    recipe.copy_into(to, from);
  }
  return true;
}

bool write(const Copy<Array>& call, Recipe& recipe) {
  if (!is_plain(call.input.dtype) || !is_plain(call.out.dtype)) return false;
  recipe.copy_into(call.out, call.input);
  return true;
}

bool write(const Elementwise<Array>& call, Recipe& recipe) {
  const auto dtype = static_cast<Dtype>(call.dtype);
  if (!is_plain(dtype) || !is_plain(call.out.dtype) || call.inputs.size() > circuit::kMaxArity) {
    return false;
  }
  std::vector<Term> operands;
  for (const auto& input : call.inputs) {
    if (!input.is_given || !is_plain(input.dtype)) return false;
    operands.emplace_back(input);
  }
  recipe.op_into(call.out, static_cast<OpId>(call.op), dtype, operands);
  return true;
}

// ---- random numbers that others drew ----

bool write(const DropoutBackward<Array>& call, Recipe& recipe) {
  const Dtype compute = compute_dtype(call.grad.dtype);
  const Array kept = recipe.op(where, compute, {call.mask, call.grad, 0.0});
  recipe.op_into(call.grad_input, mul, compute, {kept, Recipe::number(call.scale)});
  return true;
}

template <class Call>
concept HasRecipe = requires(const Call& call, Recipe& recipe) {
  write(call, recipe);
};

}  // namespace

bool has_recipe(CallNumber kind) {
  return for_call(kind, []<class Call>(std::type_identity<Call>) { return HasRecipe<Call>; });
}

bool write_recipe(const circuit::KernelCall& kernel, Recipe& recipe) {
  return for_call(static_cast<CallNumber>(kernel.kind), [&]<class Call>(std::type_identity<Call>) {
    if constexpr (HasRecipe<Call>) {
      RecipeFrame frame(recipe, kernel);
      Call call{};
      Call::each(call, frame);
      return frame.is_read() && write(call, recipe) && recipe.is_whole();
    } else {
      return false;
    }
  });
}

}  // namespace hologram::gpu
