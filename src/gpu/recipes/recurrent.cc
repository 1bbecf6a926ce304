// SPDX-License-Identifier: MIT
// Recipes of recurrent layers: per step a product, and elementwise records over that step's rows.
// Formulas are those of the CPU's kernels (src/cpu/recurrent). Packed sequences are the host's, as
// their rows lie where batch_sizes says, which is in memory.
#include "src/gpu/recipes/parts.h"

#include "hologram/op.h"

namespace hologram::gpu {

using namespace calls;  // NOLINT: the structs of calls
using enum OpId;

namespace {

using Factor = Recipe::Factor;
using Sum = Recipe::Sum;

// all: (steps, batch, n), of every step.
bool has_steps(const Array& all, const Array& batch_sizes) {
  return !batch_sizes.is_given && all.ndim == 3 &&
         (all.dtype == Dtype::kFloat32 || all.dtype == Dtype::kFloat64);
}

// Of a layer's call: the records of its units, and its steps.
struct RecurrentSteps {
  Recipe& recipe;
  Dtype dtype;
  int64_t count;
  int64_t hidden;
  bool reverse;

  // What a step has of all steps' rows. Steps are counted in the order of the forward pass.
  Array at(int64_t step, const Array& all) const {
    return all.is_given ? all.select(0, reverse ? count - 1 - step : step) : all;
  }
  // The columns of a gate, of which rows or a bias hold several side by side.
  Array gate(const Array& wide, int64_t g) const {
    return wide.narrow(wide.ndim - 1, g * hidden, hidden);
  }

  Array op(OpId id, std::initializer_list<Term> operands) const {
    return recipe.op(id, dtype, operands);
  }
  // x, or the sum where y is given.
  Array sum(const Array& x, const Array& y) const { return y.is_given ? op(add, {x, y}) : x; }
  Array biased(const Array& x, const Array& bias, int64_t g) const {
    return bias.is_given ? op(add, {x, gate(bias, g)}) : x;
  }
  // The slopes of tanh and sigmoid, from their values. 1 - y y loses nothing where y is near one:
  // written as (1 - y) (1 + y).
  Array tanh_slope(const Array& y) const { return op(mul, {op(sub, {1.0, y}), op(add, {1.0, y})}); }
  Array sigmoid_slope(const Array& y) const { return op(mul, {y, op(sub, {1.0, y})}); }
  Array product(const Array& a, const Array& b) const { return op(mul, {a, b}); }

  Array rows(int64_t batch, int64_t width) const {
    const int64_t shape[] = {batch, width};
    return recipe.temporary(dtype, 2, shape);
  }
  // The gradient of a last state, or zeros.
  void begin(const Array& grad, const Array& last) const {
    if (last.is_given) {
      recipe.copy_into(grad, last);
    } else {
      recipe.fill_into(grad, 0);
    }
  }
};

// ---- LSTM: i, f, g, o ----

constexpr int64_t kLstmTanh = 2;  // the gate that is a tanh, others are sigmoids

template <class Call>
bool write_lstm(const Call& call, Recipe& recipe) {
  if (!has_steps(call.gates, call.batch_sizes)) return false;
  const RecurrentSteps steps{recipe, call.gates.dtype, call.gates.shape[0], call.c0.shape[1],
                             call.reverse};
  const int64_t batch = call.c0.shape[0];
  const bool projects = call.weight_hr.is_given;
  const Array wide_h = projects ? steps.rows(batch, steps.hidden) : Array();
  Array h = call.h0, c = call.c0;
  for (int64_t step = 0; step < steps.count; ++step) {
    const Array gates = steps.at(step, call.gates);
    recipe.product_into(gates, h, call.weight, Factor::kTransposed, Sum::kAdded);
    Array x[4];
    for (int64_t g = 0; g < 4; ++g) {
      const Array sum = steps.biased(steps.gate(gates, g), call.bias, g);
      x[g] = steps.op(g == kLstmTanh ? tanh : sigmoid, {sum});
    }
    const Array next_c = steps.op(add, {steps.product(x[1], c), steps.product(x[0], x[kLstmTanh])});
    const Array next_h = steps.product(x[3], steps.op(tanh, {next_c}));
    if constexpr (requires { call.cells; }) {
      for (int64_t g = 0; g < 4; ++g) recipe.copy_into(steps.gate(gates, g), x[g]);
      c = steps.at(step, call.cells);
    } else {
      c = call.c_n;
    }
    recipe.copy_into(c, next_c);
    h = steps.at(step, call.output);
    recipe.copy_into(projects ? wide_h : h, next_h);
    if (projects) recipe.product_into(h, wide_h, call.weight_hr, Factor::kTransposed, Sum::kNew);
  }
  recipe.copy_into(call.h_n, h);
  if (c.slot != call.c_n.slot || c.offset != call.c_n.offset) recipe.copy_into(call.c_n, c);
  return true;
}

}  // namespace

bool write(const LstmRecurrence<Array>& call, Recipe& recipe) { return write_lstm(call, recipe); }
bool write(const LstmForward<Array>& call, Recipe& recipe) { return write_lstm(call, recipe); }

bool write(const LstmBackward<Array>& call, Recipe& recipe) {
  if (!has_steps(call.gates, call.batch_sizes)) return false;
  const RecurrentSteps steps{recipe, call.gates.dtype, call.gates.shape[0], call.c0.shape[1],
                             call.reverse};
  const bool projects = call.weight_hr.is_given;
  const Array wide_grad = projects ? steps.rows(call.c0.shape[0], steps.hidden) : Array();
  // They hold what reaches each step from later ones.
  const Array &from_h = call.grad_h0, &from_c = call.grad_c0;
  steps.begin(from_h, call.grad_h_n);
  steps.begin(from_c, call.grad_c_n);
  for (int64_t step = steps.count; step-- > 0;) {
    const Array gates = steps.at(step, call.gates), grad_gates = steps.at(step, call.grad_gates);
    Array grad_h = steps.sum(from_h, steps.at(step, call.grad_output));
    if (projects) {
      const Array grad_projection = steps.at(step, call.grad_projection);
      recipe.copy_into(grad_projection, grad_h);
      recipe.product_into(wide_grad, grad_projection, call.weight_hr, Factor::kPlain, Sum::kNew);
      grad_h = wide_grad;
    }
    const Array i = steps.gate(gates, 0), f = steps.gate(gates, 1), g = steps.gate(gates, 2),
                o = steps.gate(gates, 3);
    const Array tanh_c = steps.op(tanh, {steps.at(step, call.cells)});
    const Array before = step > 0 ? steps.at(step - 1, call.cells) : Array(call.c0);
    const Array through_h = steps.product(steps.product(grad_h, o), steps.tanh_slope(tanh_c));
    const Array grad_c = steps.op(add, {from_c, through_h});
    const Array grads[] = {
        steps.product(steps.product(grad_c, g), steps.sigmoid_slope(i)),
        steps.product(steps.product(grad_c, before), steps.sigmoid_slope(f)),
        steps.product(steps.product(grad_c, i), steps.tanh_slope(g)),
        steps.product(steps.product(grad_h, tanh_c), steps.sigmoid_slope(o)),
    };
    const Array next_c = steps.product(grad_c, f);
    if (projects) recipe.copy_into(steps.at(step, call.projected), steps.product(o, tanh_c));
    // grad_gates may be gates: these are stored when all of them have been read.
    for (int64_t k = 0; k < 4; ++k) recipe.copy_into(steps.gate(grad_gates, k), grads[k]);
    recipe.copy_into(from_c, next_c);
    recipe.product_into(from_h, grad_gates, call.weight, Factor::kPlain, Sum::kNew);
  }
  return true;
}

// ---- GRU: r, z, n ----

bool write(const GruForward<Array>& call, Recipe& recipe) {
  if (!has_steps(call.gates, call.batch_sizes)) return false;
  const RecurrentSteps steps{recipe, call.gates.dtype, call.gates.shape[0], call.h0.shape[1],
                             call.reverse};
  // What the state brings to the gates of a step.
  const Array sums = steps.rows(call.h0.shape[0], 3 * steps.hidden);
  Array h = call.h0;
  for (int64_t step = 0; step < steps.count; ++step) {
    const Array gates = steps.at(step, call.gates);
    recipe.product_into(sums, h, call.weight, Factor::kTransposed, Sum::kNew);
    Array x[3];
    for (int64_t g = 0; g < 2; ++g) {
      const Array sum = steps.op(add, {steps.gate(gates, g), steps.gate(sums, g)});
      x[g] = steps.op(sigmoid, {steps.biased(sum, call.bias, g)});
    }
    const Array hidden = steps.biased(steps.gate(sums, 2), call.bias, 2);
    const Array &r = x[0], &z = x[1];
    x[2] = steps.op(tanh, {steps.op(add, {steps.gate(gates, 2), steps.product(r, hidden)})});
    const Array& n = x[2];
    const Array next = steps.op(add, {n, steps.product(z, steps.op(sub, {h, n}))});
    for (int64_t g = 0; g < 3; ++g) recipe.copy_into(steps.gate(gates, g), x[g]);
    recipe.copy_into(steps.at(step, call.hidden_n), hidden);
    h = steps.at(step, call.output);
    recipe.copy_into(h, next);
  }
  recipe.copy_into(call.h_n, h);
  return true;
}

bool write(const GruBackward<Array>& call, Recipe& recipe) {
  if (!has_steps(call.gates, call.batch_sizes)) return false;
  const RecurrentSteps steps{recipe, call.gates.dtype, call.gates.shape[0], call.h0.shape[1],
                             call.reverse};
  const Array& from_h = call.grad_h0;  // what reaches each step from later ones
  steps.begin(from_h, call.grad_h_n);
  for (int64_t step = steps.count; step-- > 0;) {
    const Array gates = steps.at(step, call.gates);
    const Array r = steps.gate(gates, 0), z = steps.gate(gates, 1), n = steps.gate(gates, 2);
    const Array hidden = steps.at(step, call.hidden_n);
    const Array before = step > 0 ? steps.at(step - 1, call.output) : Array(call.h0);
    const Array grad = steps.sum(from_h, steps.at(step, call.grad_output));
    const Array grad_n =
        steps.product(steps.product(grad, steps.op(sub, {1.0, z})), steps.tanh_slope(n));
    const Array grad_z =
        steps.product(steps.product(grad, steps.op(sub, {before, n})), steps.sigmoid_slope(z));
    const Array grad_r = steps.product(steps.product(grad_n, hidden), steps.sigmoid_slope(r));
    const Array of_hidden[] = {grad_r, grad_z, steps.product(grad_n, r)};
    const Array of_gates[] = {grad_r, grad_z, grad_n};
    const Array past_gates = steps.product(grad, z);
    const Array grad_gates = steps.at(step, call.grad_gates);
    const Array grad_hidden = steps.at(step, call.grad_hidden);
    for (int64_t g = 0; g < 3; ++g) {
      recipe.copy_into(steps.gate(grad_gates, g), of_gates[g]);
      recipe.copy_into(steps.gate(grad_hidden, g), of_hidden[g]);
    }
    recipe.copy_into(from_h, past_gates);
    recipe.product_into(from_h, grad_hidden, call.weight, Factor::kPlain, Sum::kAdded);
  }
  return true;
}

// ---- without gates ----

bool write(const RnnForward<Array>& call, Recipe& recipe) {
  if (!has_steps(call.gates, call.batch_sizes)) return false;
  const RecurrentSteps steps{recipe, call.gates.dtype, call.gates.shape[0], call.h0.shape[1],
                             call.reverse};
  const Array product = steps.rows(call.h0.shape[0], steps.hidden);
  Array h = call.h0;
  for (int64_t step = 0; step < steps.count; ++step) {
    recipe.product_into(product, h, call.weight, Factor::kTransposed, Sum::kNew);
    const Array both = steps.op(add, {steps.at(step, call.gates), product});
    const Array sum = steps.biased(both, call.bias, 0);
    h = steps.at(step, call.output);
    if (call.relu) {  // NaN stays NaN
      recipe.op_into(h, where, steps.dtype, {recipe.op(lt, steps.dtype, {sum, 0.0}), 0.0, sum});
    } else {
      recipe.op_into(h, tanh, steps.dtype, {sum});
    }
  }
  recipe.copy_into(call.h_n, h);
  return true;
}

bool write(const RnnBackward<Array>& call, Recipe& recipe) {
  if (!has_steps(call.output, call.batch_sizes)) return false;
  const RecurrentSteps steps{recipe, call.output.dtype, call.output.shape[0], call.grad_h0.shape[1],
                             call.reverse};
  const Array& from_h = call.grad_h0;  // what reaches each step from later ones
  steps.begin(from_h, call.grad_h_n);
  for (int64_t step = steps.count; step-- > 0;) {
    const Array h = steps.at(step, call.output);
    const Array grad = steps.sum(from_h, steps.at(step, call.grad_output));
    const Array grad_gates = steps.at(step, call.grad_gates);
    if (call.relu) {
      recipe.op_into(grad_gates, where, steps.dtype,
                     {recipe.op(le, steps.dtype, {h, 0.0}), 0.0, grad});
    } else {
      recipe.op_into(grad_gates, mul, steps.dtype, {grad, steps.tanh_slope(h)});
    }
    recipe.product_into(from_h, grad_gates, call.weight, Factor::kPlain, Sum::kNew);
  }
  return true;
}

}  // namespace hologram::gpu
