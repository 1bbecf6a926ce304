// SPDX-License-Identifier: MIT
// Recipes of attention: a product, the softmax of its rows, a product; scores lie in memory in
// between. What a query does not see has the weight 0, and so has all where it sees nothing, as in
// the CPU's kernels (src/cpu/attention).
#include "src/gpu/recipes/parts.h"

#include <cmath>
#include <limits>

#include "hologram/op.h"

namespace hologram::gpu {

using namespace calls;  // NOLINT: the structs of calls
using enum OpId;

namespace {

constexpr double kUnseen = -std::numeric_limits<double>::infinity();

// The query heads of each key head as a dimension of their own: [N, K, G, ...] of [N, K*G, ...].
Array grouped(const Array& x, int64_t key_heads) {
  Array array = x;
  ++array.ndim;
  for (int d = array.ndim; --d > 2;) {
    array.shape[static_cast<size_t>(d)] = x.shape[static_cast<size_t>(d - 1)];
    array.strides[static_cast<size_t>(d)] = x.strides[static_cast<size_t>(d - 1)];
  }
  const int64_t group = key_heads == 0 ? 0 : x.shape[1] / key_heads;
  array.shape[1] = key_heads, array.shape[2] = group;
  array.strides[1] = x.strides[1] * group, array.strides[2] = x.strides[1];
  return array;
}

template <class Call>
struct AttentionParts {
  const Call& call;
  Recipe& recipe;
  const Dtype dtype = call.query.dtype;
  const int64_t batch = call.query.shape[0], key_heads = call.key.shape[1];
  const int64_t queries = call.query.shape[2], keys = call.key.shape[2];

  // What can be written: all have four dimensions, of a dtype that the CPU's kernels take.
  static bool is_writable(const Call& call) {
    return (call.query.dtype == Dtype::kFloat32 || call.query.dtype == Dtype::kFloat64) &&
           call.query.ndim == 4 && call.key.ndim == 4 && call.value.ndim == 4 &&
           (!call.mask.is_given || call.mask.ndim == 4);
  }

  Array op(OpId id, std::initializer_list<Term> operands) const {
    return recipe.op(id, dtype, operands);
  }
  Array of_queries(const Array& x) const { return grouped(x, key_heads); }
  // Of keys: repeated for the queries that share them, [N, K, 1, S, ...].
  Array of_keys(const Array& x) const { return grouped(x, key_heads); }
  Array per_key(const Array& row) const { return row.along_rows(keys); }

  Number scale() const {
    return [given = Recipe::number(call.scale), size = call.query.shape[3]](const double* numbers) {
      const double scale = given(numbers);
      return std::isnan(scale) ? 1 / std::sqrt(static_cast<double>(size)) : scale;
    };
  }
  // [N, K, G, L, S]
  Array scores_like() const {
    const int64_t shape[] = {batch, key_heads, of_queries(call.query).shape[2], queries, keys};
    return recipe.temporary(dtype, 5, shape);
  }
  void product_into(const Array& out, const Array& a, const Array& b) const {
    if (out.numel() == 0) return;
    const Array result = is_one_batch(out) ? out : temporary_like(out);
    recipe.call(Matmul<Array>{.a = as_one_batch(a), .b = as_one_batch(b), .out = result});
    if (!is_one_batch(out)) recipe.copy_into(out, result);
  }

  // Heads beside each other lie between the positions of a text. A library takes all matrices at
  // once where they are a fixed step apart; a copy takes less than a launch for each text.
  static bool is_one_batch(const Array& x) { return x.can_merge(0, x.ndim - 2); }
  Array temporary_like(const Array& x) const {
    return recipe.temporary(x.dtype, x.ndim, x.shape.data());
  }
  Array as_one_batch(const Array& x) const {
    bool is_repeated = false;
    for (int d = 0; d < x.ndim - 2; ++d) {
      is_repeated |= x.shape[static_cast<size_t>(d)] > 1 && x.strides[static_cast<size_t>(d)] == 0;
    }
    if (is_repeated || is_one_batch(x)) return x;
    const Array copy = temporary_like(x);
    recipe.copy_into(copy, x);
    return copy;
  }

  // Whether query i sees key j, as [L, S]. By i - j alone: a run of ones and zeros in which each
  // query begins one element before the last.
  Array seen() const {
    const int64_t run = queries + keys - 1;
    const Array line = recipe.temporary(Dtype::kBool, 1, &run);
    recipe.fill_into(line.narrow(0, 0, queries), 1);
    recipe.fill_into(line.narrow(0, queries, keys - 1), 0);
    Array all = line.narrow(0, queries - 1, keys);
    all.ndim = 2;
    all.shape = {queries, keys};
    all.strides = {-1, 1};
    return all;
  }

  // With scale and mask.
  Array scores() const {
    const Array products = scores_like();
    product_into(products, of_queries(call.query), of_keys(call.key).transposed(3, 4));
    const Array scaled = op(mul, {products, scale()});
    return call.mask.is_given ? op(add, {scaled, of_queries(call.mask)}) : scaled;
  }

  // Sums over the queries that share a key: x^T y, of [N, K, G, L, ...] each.
  void sum_into(const Array& out, const Array& x, const Array& y) const {
    product_into(out, of_all_queries(x).transposed(2, 3), of_all_queries(y));
  }

 private:
  // [N, K, G*L, ...]
  Array of_all_queries(const Array& x) const {
    if (x.can_merge(2, 4)) return x.merged(2, 4);
    const Array copy = recipe.temporary(x.dtype, x.ndim, x.shape.data());
    recipe.copy_into(copy, x);
    return copy.merged(2, 4);
  }
};

}  // namespace

bool write(const Attention<Array>& call, Recipe& recipe) {
  using Parts = AttentionParts<Attention<Array>>;
  if (!Parts::is_writable(call)) return false;
  const Parts parts{call, recipe};
  if (call.out.numel() == 0 && call.logsumexp.numel() == 0) return true;
  if (parts.keys == 0) {
    recipe.fill_into(call.out, 0);
    recipe.fill_into(call.logsumexp, 0);
    return true;
  }
  Array x = parts.scores();
  if (call.is_causal) x = parts.op(where, {parts.seen(), x, kUnseen});
  const Array most = recipe.fold(Reduction::amax, x, parts.dtype);
  const Array sees_none = recipe.op(eq, parts.dtype, {most, kUnseen});
  const Array from = parts.op(where, {sees_none, 0.0, most});
  const Array above = parts.op(exp, {parts.op(sub, {x, parts.per_key(from)})});
  const Array sum = recipe.fold(Reduction::sum, above, parts.dtype);
  const Array total = parts.op(where, {sees_none, 1.0, sum});
  const Array weights = parts.scores_like();
  recipe.op_into(weights, div, parts.dtype, {above, parts.per_key(total)});
  recipe.op_into(parts.of_queries(call.logsumexp), add, parts.dtype,
                 {from, parts.op(log, {total})});
  parts.product_into(parts.of_queries(call.out), weights, parts.of_keys(call.value));
  return true;
}

bool write(const AttentionBackward<Array>& call, Recipe& recipe) {
  using Parts = AttentionParts<AttentionBackward<Array>>;
  if (!Parts::is_writable(call)) return false;
  const Parts parts{call, recipe};
  const Array grad = parts.of_queries(call.grad), query = parts.of_queries(call.query);
  const Array of_weights = parts.scores_like(), of_scores = parts.scores_like();
  const Array weights = parts.scores_like();
  parts.product_into(of_weights, grad, parts.of_keys(call.value).transposed(3, 4));
  const Array products = parts.op(mul, {grad, parts.of_queries(call.output)});
  const Array dots = recipe.temporary(parts.dtype, 4, products.shape.data());
  if (call.value.shape[3] == 0) recipe.fill_into(dots, 0);
  recipe.fold_into(dots, Reduction::sum, products);
  const Array sums = parts.of_queries(call.logsumexp);
  Array p = parts.op(exp, {parts.op(sub, {parts.scores(), parts.per_key(sums)})});
  Array g = parts.op(mul, {p, parts.op(sub, {of_weights, parts.per_key(dots)})});
  g = parts.op(mul, {g, parts.scale()});
  if (call.is_causal && p.numel() != 0) {
    const Array seen = parts.seen();
    p = parts.op(where, {seen, p, 0.0}), g = parts.op(where, {seen, g, 0.0});
  }
  recipe.copy_into(weights, p);
  recipe.copy_into(of_scores, g);
  parts.sum_into(call.grad_value, weights, grad);
  parts.sum_into(call.grad_key, of_scores, query);
  parts.product_into(parts.of_queries(call.grad_query), of_scores, parts.of_keys(call.key));
  return true;
}

}  // namespace hologram::gpu
