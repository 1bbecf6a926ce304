// SPDX-License-Identifier: MIT
// The calls of group norm (Wu and He 2018), made of the reductions and the tile machine: statistics
// of each group, then a factor and a term for each channel of each sample.
#include <cmath>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/reduction.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/device/dense_view.h"

namespace hologram::cpu {
namespace {

// The sizes of [samples, channels, places] in groups of channels.
struct GroupSizes {
  int64_t samples, channels, places, groups;

  GroupSizes(const View& in, int64_t group_count)
      : samples(in.shape[0]),
        channels(in.shape[1]),
        places(elements_of(in, 2, in.ndim)),
        groups(group_count) {}

  int64_t rows() const { return samples * channels; }
  int64_t in_group() const { return channels / groups; }
  int64_t numel() const { return rows() * places; }
};

// A number for each row of [rows, n], repeated along it.
class RowView {
 public:
  RowView(void* data, Dtype dtype, int64_t rows, int64_t n)
      : sizes_{rows, n}, strides_{1, 0}, view_{data, dtype, 2, sizes_, strides_} {}
  RowView(const RowView&) = delete;
  RowView& operator=(const RowView&) = delete;

  const View& view() const { return view_; }

 private:
  int64_t sizes_[2], strides_[2];
  View view_;
};

// n numbers of a view in the compute type; where it is absent, `missing`.
template <class T>
std::vector<T> numbers_of(const View& view, int64_t n, double missing) {
  constexpr Dtype kDtype = sizeof(T) == 8 ? Dtype::kFloat64 : Dtype::kFloat32;
  std::vector<T> numbers(static_cast<size_t>(n), static_cast<T>(missing));
  if (view.data != nullptr) convert(view.dtype, view.data, kDtype, numbers.data(), n);
  return numbers;
}
template <class T>
void store_numbers(const std::vector<T>& numbers, const View& view) {
  constexpr Dtype kDtype = sizeof(T) == 8 ? Dtype::kFloat64 : Dtype::kFloat32;
  if (view.data == nullptr) return;
  convert(kDtype, numbers.data(), view.dtype, view.data, static_cast<int64_t>(numbers.size()));
}

// out = x * (rstd * weight) + (bias - mean * rstd * weight), with one rounding of the sum.
template <class T>
void forward(const GroupSizes& sizes, const calls::GroupNorm<>& call, int threads) {
  constexpr Dtype kDtype = sizeof(T) == 8 ? Dtype::kFloat64 : Dtype::kFloat32;
  const int64_t groups = sizes.samples * sizes.groups;
  std::vector<T> mean(static_cast<size_t>(groups)), rstd(static_cast<size_t>(groups));
  const int64_t stride = 1;
  const View variances{rstd.data(), kDtype, 1, &groups, &stride};
  const View means{mean.data(), kDtype, 1, &groups, &stride};
  const int last[] = {1};
  ReduceOptions options;
  options.correction = 0;
  options.max_threads = threads;
  reduce_with_mean(Reduction::var, DenseView(call.input, groups, sizes.numel() / groups), last,
                   variances, means, options);
  for (T& value : rstd) value = 1 / std::sqrt(value + static_cast<T>(call.eps));
  const auto weight = numbers_of<T>(call.weight, sizes.channels, 1);
  const auto bias = numbers_of<T>(call.bias, sizes.channels, 0);
  std::vector<T> factor(static_cast<size_t>(sizes.rows())), term(factor.size());
  for (size_t row = 0; row < factor.size(); ++row) {
    const size_t channel = row % static_cast<size_t>(sizes.channels);
    const size_t group = row / static_cast<size_t>(sizes.in_group());
    factor[row] = rstd[group] * weight[channel];
    term[row] = bias[channel] - mean[group] * factor[row];
  }
  const RowView factors(factor.data(), kDtype, sizes.rows(), sizes.places);
  const RowView terms(term.data(), kDtype, sizes.rows(), sizes.places);
  const DenseView in(call.input, sizes.rows(), sizes.places),
      out(call.out, sizes.rows(), sizes.places);
  const View inputs[] = {in, factors.view(), terms.view()};
  elementwise(OpId::fma, kDtype, inputs, 3, out, threads);
  store_numbers(mean, call.mean);
  store_numbers(rstd, call.rstd);
}

// With dy the gradient of the result, and for each row (a channel of a sample) a = sum dy x and
// b = sum dy; A and B sums of a weight and b weight over a group of n elements:
//   dx = dy rstd weight + x p + q,  p = (B mean - A) rstd^3 / n,  q = -p mean - B rstd / n
//   dweight = sum over samples of (a - b mean) rstd,  dbias = sum over samples of b
template <class T>
void backward(const GroupSizes& sizes, const calls::GroupNormBackward<>& call, int threads) {
  constexpr Dtype kDtype = sizeof(T) == 8 ? Dtype::kFloat64 : Dtype::kFloat32;
  const int64_t rows = sizes.rows(), groups = sizes.samples * sizes.groups;
  const auto mean = numbers_of<T>(call.mean, groups, 0), rstd = numbers_of<T>(call.rstd, groups, 1);
  const auto weight = numbers_of<T>(call.weight, sizes.channels, 1);
  const DenseView grad(call.grad, rows, sizes.places), in(call.input, rows, sizes.places);
  std::vector<T> product(static_cast<size_t>(sizes.numel()));
  const View flat{product.data(), kDtype, 0, nullptr, nullptr};
  const DenseView products(flat, rows, sizes.places);
  const View both[] = {grad, in};
  elementwise(OpId::mul, kDtype, both, 2, products, threads);
  std::vector<T> a(static_cast<size_t>(rows)), b(a.size());
  const int64_t stride = 1;
  const int last[] = {1};
  ReduceOptions options;
  options.max_threads = threads;
  reduce(Reduction::sum, products, last, {a.data(), kDtype, 1, &rows, &stride}, options);
  reduce(Reduction::sum, grad, last, {b.data(), kDtype, 1, &rows, &stride}, options);

  const auto channel_of = [&](size_t row) { return row % static_cast<size_t>(sizes.channels); };
  const auto group_of = [&](size_t row) { return row / static_cast<size_t>(sizes.in_group()); };
  if (call.grad_input.has_data()) {
    std::vector<T> sum_a(static_cast<size_t>(groups), 0), sum_b(sum_a.size(), 0);
    for (size_t row = 0; row < a.size(); ++row) {
      sum_a[group_of(row)] += a[row] * weight[channel_of(row)];
      sum_b[group_of(row)] += b[row] * weight[channel_of(row)];
    }
    const T share = 1 / static_cast<T>(sizes.in_group() * sizes.places);
    std::vector<T> factor(a.size()), p(a.size()), q(a.size());
    for (size_t row = 0; row < a.size(); ++row) {
      const size_t group = group_of(row);
      const T r = rstd[group];
      factor[row] = r * weight[channel_of(row)];
      p[row] = (sum_b[group] * mean[group] - sum_a[group]) * r * r * r * share;
      q[row] = -p[row] * mean[group] - sum_b[group] * r * share;
    }
    const RowView factors(factor.data(), kDtype, rows, sizes.places);
    const RowView ps(p.data(), kDtype, rows, sizes.places);
    const RowView qs(q.data(), kDtype, rows, sizes.places);
    const View inner[] = {in, ps.view(), qs.view()};
    elementwise(OpId::fma, kDtype, inner, 3, products, threads);
    const View outer[] = {grad, factors.view(), products};
    elementwise(OpId::fma, kDtype, outer, 3, DenseView(call.grad_input, rows, sizes.places),
                threads);
  }
  std::vector<T> grad_weight(static_cast<size_t>(sizes.channels), 0), grad_bias(grad_weight);
  for (size_t row = 0; row < a.size(); ++row) {
    const size_t group = group_of(row);
    grad_weight[channel_of(row)] += (a[row] - b[row] * mean[group]) * rstd[group];
    grad_bias[channel_of(row)] += b[row];
  }
  store_numbers(grad_weight, call.grad_weight);
  store_numbers(grad_bias, call.grad_bias);
}

}  // namespace

void run(const calls::GroupNorm<>& call, CallThreads threads) {
  const GroupSizes sizes(call.input, call.groups);
  const auto with = call.input.dtype == Dtype::kFloat64 ? &forward<double> : &forward<float>;
  with(sizes, call, threads(sizes.numel()));
}

void run(const calls::GroupNormBackward<>& call, CallThreads threads) {
  const GroupSizes sizes(call.input, call.groups);
  const auto with = call.input.dtype == Dtype::kFloat64 ? &backward<double> : &backward<float>;
  with(sizes, call, threads(sizes.numel()));
}

}  // namespace hologram::cpu
