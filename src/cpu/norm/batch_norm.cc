// SPDX-License-Identifier: MIT
// Batch norm channel by channel, or row by row where the channels are adjacent, and its gradient.
#include <cmath>

#include "src/cpu/device/call_table.h"
#include "src/cpu/norm/batch_norm_work.h"

namespace hologram::cpu {
namespace batch {
namespace {

void forward(const calls::BatchNorm<>& call, const View& in, const View& out, int max_threads) {
  const Layout layout = layout_of(in);
  const int64_t channels = layout.channels, n = layout.per_channel();
  const Dtype compute = in.dtype == Dtype::kFloat64 ? Dtype::kFloat64 : Dtype::kFloat32;
  const Job job(layout, compute, nullptr, &in, &out);
  const Cut cut(layout);
  const int64_t parts = call.training ? cut.parts : 0;
  enum { kMean, kInvstd, kWeight, kBias, kRunningMean, kRunningVar, kParts };
  Channels values("batch_norm", channels, kParts + 2 * parts, 3, compute);
  double* mean = values.wide(kMean);
  double* invstd = values.wide(kInvstd);
  read_channel(call.weight, channels, 1, values.wide(kWeight));
  read_channel(call.bias, channels, 0, values.wide(kBias));
  read_channel(call.running_mean, channels, 0, values.wide(kRunningMean));
  read_channel(call.running_var, channels, 1, values.wide(kRunningVar));
  const BatchFactors all{values.narrow(0), values.narrow(1), values.narrow(2), nullptr, nullptr};
  // Parts of a channel, or channels of a part, are adjacent.
  double* means = values.wide(kParts);
  double* m2s = values.wide(kParts + parts);
  const int64_t lines = layout.rows ? n : layout.batch;
  const int64_t share = layout.rows ? 1 : layout.size;
  const auto seen_of = [&](int64_t part) {
    return (cut.end(part, lines) - cut.begin(part)) * share;
  };
  const auto stats = [&](int64_t part, int64_t c) {
    if (!call.training) return;
    if (layout.rows) {
      std::fill_n(means + part * channels, channels, 0.0);
      std::fill_n(m2s + part * channels, channels, 0.0);
      job.row_moments(cut.begin(part), cut.end(part, lines), means + part * channels,
                      m2s + part * channels);
      return;
    }
    int64_t seen = 0;
    const int64_t at = c * parts + part;
    means[at] = m2s[at] = 0;
    job.moments(c, cut.begin(part), cut.end(part, lines), means + at, m2s + at, &seen);
  };
  const BatchNumbers numbers{mean,
                             invstd,
                             values.wide(kWeight),
                             values.wide(kBias),
                             values.wide(kRunningMean),
                             values.wide(kRunningVar),
                             values.narrow(0),
                             values.narrow(1),
                             values.narrow(2),
                             call.training,
                             static_cast<double>(n),
                             call.momentum,
                             call.eps};
  int64_t seen[kUnits + 1];
  for (int64_t p = 0; p < parts; ++p) seen[p] = seen_of(p);
  const auto ends = [&](int64_t first, int64_t count) {
    if (!call.training) {
      std::copy_n(values.wide(kRunningMean) + first, count, mean + first);
    } else {
      const int64_t step = layout.rows ? 1 : parts, part_step = layout.rows ? channels : 1;
      for (int64_t c = first; c < first + count; ++c) {
        join_moments(means + c * step, m2s + c * step, seen, parts, part_step, mean + c,
                     invstd + c);
      }
    }
    job.kernel->finish(numbers, first, count);
  };
  const auto writes = [&](int64_t part, int64_t c) {
    if (layout.rows) {
      job.write_rows(cut.begin(part), cut.end(part, lines), all);
    } else {
      job.write(c, cut.begin(part), cut.end(part, lines), factors_at(all, c, compute));
    }
  };
  in_phases(layout, cut, max_threads, stats, ends, writes);
  if (!call.training) return;
  write_channel(mean, channels, call.save_mean);
  write_channel(invstd, channels, call.save_invstd);
  write_channel(values.wide(kRunningMean), channels, call.running_mean);
  write_channel(values.wide(kRunningVar), channels, call.running_var);
}

void backward(const calls::BatchNormBackward<>& call, const View& grad, const View& in,
              const View* grad_in, int max_threads) {
  const Layout layout = layout_of(in);
  const int64_t channels = layout.channels, n = layout.per_channel();
  const bool training = call.training;
  const Dtype compute = in.dtype == Dtype::kFloat64 ? Dtype::kFloat64 : Dtype::kFloat32;
  const Job job(layout, compute, &grad, &in, grad_in);
  const Cut cut(layout);
  const int64_t parts = cut.parts;
  enum { kMean, kInvstd, kWeight, kDots, kSums, kParts };
  Channels values("batch_norm_backward", channels, kParts + 2 * parts, 5, compute);
  double* mean = values.wide(kMean);
  double* invstd = values.wide(kInvstd);
  read_channel(call.weight, channels, 1, values.wide(kWeight));
  read_channel(training ? call.save_mean : call.running_mean, channels, 0, mean);
  read_channel(training ? call.save_invstd : call.running_var, channels, 1, invstd);
  if (!training) {
    for (int64_t c = 0; c < channels; ++c) invstd[c] = 1 / std::sqrt(invstd[c] + call.eps);
  }
  for (int64_t c = 0; c < channels; ++c) put(compute, values.narrow(0), c, mean[c]);
  // Without training the statistics are constants: grad * scale.
  BatchFactors all{values.narrow(0), values.narrow(1), nullptr, values.narrow(3), values.narrow(4)};
  if (!training) {
    for (int64_t c = 0; c < channels; ++c) {
      put(compute, values.narrow(3), c, 0.0);
      put(compute, values.narrow(4), c, -0.0);
    }
    all = {values.narrow(3), values.narrow(1), values.narrow(4), nullptr, nullptr};
  }
  BatchFactors centre{};
  centre.shift = values.narrow(0);
  double* pairs = values.wide(kParts);
  const int64_t lines = layout.rows ? n : layout.batch;
  const bool needs_sums = training || call.grad_weight.has_data() || call.grad_bias.has_data();
  const auto stats = [&](int64_t part, int64_t c) {
    if (!needs_sums) return;
    if (layout.rows) {
      double* part_sums = pairs + 2 * part * channels;
      std::fill_n(part_sums, 2 * channels, 0.0);
      job.row_sums(cut.begin(part), cut.end(part, lines), centre, part_sums, part_sums + channels);
      return;
    }
    double* part_sums = pairs + 2 * (c * parts + part);
    part_sums[0] = part_sums[1] = 0;
    job.sums(c, cut.begin(part), cut.end(part, lines), factors_at(centre, c, compute).shift,
             part_sums);
  };
  const auto ends = [&](int64_t first, int64_t count) {
    for (int64_t c = first; c < first + count; ++c) {
      double sum = 0, dot = 0;
      for (int64_t p = 0; needs_sums && p < parts; ++p) {
        sum += layout.rows ? pairs[2 * p * channels + c] : pairs[2 * (c * parts + p)];
        dot += layout.rows ? pairs[(2 * p + 1) * channels + c] : pairs[2 * (c * parts + p) + 1];
      }
      values.wide(kSums)[c] = sum;
      values.wide(kDots)[c] = dot * invstd[c];
      put(compute, values.narrow(1), c, invstd[c] * values.wide(kWeight)[c]);
      if (!training) continue;
      const double elements = static_cast<double>(n);
      put(compute, values.narrow(3), c, sum / elements);
      put(compute, values.narrow(4), c, dot * invstd[c] * invstd[c] / elements);
    }
  };
  const auto writes = [&](int64_t part, int64_t c) {
    if (grad_in == nullptr) return;
    if (layout.rows) {
      job.write_rows(cut.begin(part), cut.end(part, lines), all);
    } else {
      job.write(c, cut.begin(part), cut.end(part, lines), factors_at(all, c, compute));
    }
  };
  in_phases(layout, cut, max_threads, stats, ends, writes);
  write_channel(values.wide(kDots), channels, call.grad_weight);
  write_channel(values.wide(kSums), channels, call.grad_bias);
}

// Calls f(first, n) for blocks of channels, or whole() where there is one.
template <class F, class Whole>
void for_channel_blocks(const Layout& layout, Dtype dtype, int max_threads, F&& f, Whole&& whole) {
  const int64_t block = channels_at_once(layout, dtype);
  if (block == layout.channels) return whole();
  parallel_for(ceil_div(layout.channels, block), max_threads, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      f(i * block, std::min(block, layout.channels - i * block));
    }
  });
}

}  // namespace
}  // namespace batch

void run(const calls::BatchNorm<>& call, CallThreads threads) {
  using namespace batch;
  const BatchView in(call.input), out(call.out);
  const Layout layout = layout_of(*in);
  const int max_threads = threads(call.input.numel());
  if (layout.channels == 0 || layout.per_channel() == 0) return;
  for_channel_blocks(
      layout, call.input.dtype, max_threads,
      [&](int64_t first, int64_t n) {
        forward(from_channel(call, first), *ChannelBlock(*in, first, n),
                *ChannelBlock(*out, first, n), 1);
      },
      [&] { forward(call, *in, *out, max_threads); });
}

void run(const calls::BatchNormBackward<>& call, CallThreads threads) {
  using namespace batch;
  const BatchView in(call.input), grad(call.grad);
  // A gradient that is not given has no shape of its own.
  const View none{nullptr, call.input.dtype, call.input.ndim, call.input.shape, call.input.strides};
  const BatchView grad_in(call.grad_input.has_data() ? static_cast<const View&>(call.grad_input)
                                                     : none);
  const Layout layout = layout_of(*in);
  const int max_threads = threads(call.input.numel());
  if (layout.channels == 0 || layout.per_channel() == 0) {
    for (const View* sums : {&call.grad_weight, &call.grad_bias}) {
      if (sums->data != nullptr) fill(0.0, *sums);
    }
    return;
  }
  for_channel_blocks(
      layout, call.input.dtype, max_threads,
      [&](int64_t first, int64_t n) {
        const ChannelBlock to(*grad_in, first, n);
        backward(from_channel(call, first), *ChannelBlock(*grad, first, n),
                 *ChannelBlock(*in, first, n), grad_in.pointer() != nullptr ? &*to : nullptr, 1);
      },
      [&] { backward(call, *grad, *in, grad_in.pointer(), max_threads); });
}

}  // namespace hologram::cpu
