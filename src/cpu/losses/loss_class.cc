// SPDX-License-Identifier: MIT
// Losses over class indices: negative log likelihood and cross entropy, forward and backward.
#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/parallel.h"
#include "hologram/softmax.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/losses/loss.h"
#include "src/cpu/losses/loss_kernels.h"
#include "src/cpu/reduce/reduce_gather.h"
#include "src/cpu/reduce/reduce_plan.h"

namespace hologram {
namespace cpu {
namespace {

// Positions a partial sum covers; the same for any thread count.
constexpr int64_t kPositions = 512;

double read(const View& view, int64_t offset) {
  double value = 0;
  convert(view.dtype,
          static_cast<const char*>(view.data) + offset * static_cast<int64_t>(itemsize(view.dtype)),
          Dtype::kFloat64, &value, 1);
  return value;
}
// The common dtypes without a call.
double quick_read(const View& view, int64_t offset) {
  if (view.dtype == Dtype::kFloat32) {
    return static_cast<double>(static_cast<const float*>(view.data)[offset]);
  }
  if (view.dtype == Dtype::kFloat64) return static_cast<const double*>(view.data)[offset];
  return read(view, offset);
}
void write(const View& view, int64_t offset, double value) {
  convert(Dtype::kFloat64, &value, view.dtype,
          static_cast<char*>(view.data) + offset * static_cast<int64_t>(itemsize(view.dtype)), 1);
}

// A class tensor (log probabilities or their gradients) and the targets of its positions.
struct Classes {
  const char* what;
  const View* scores;
  const View* target;
  const ClassLossOptions* options;
  int64_t classes = 0;
  int64_t class_step = 0;
  Nest nest;  // positions; operands: scores, target, and out or the second class tensor
  std::vector<double> weight;  // empty: all 1
  double weight_sum = 0;

  // third: of target's shape (per_position) or of scores' shape, or null.
  Classes(const char* name, const View& scores_view, const View& target_view,
          const ClassLossOptions& opts, const View* third, bool per_position)
      : what(name), scores(&scores_view), target(&target_view), options(&opts) {
    const int class_dim = scores->ndim == 1 ? 0 : 1;
    if (scores->ndim < 1 || scores->ndim > kMaxNest || target->ndim != scores->ndim - 1)
      fail_shapes();
    if (!is_floating(scores->dtype)) {
      fail(ErrorKind::kNotSupported, what, " takes floating scores, not ",
           dtype_name(scores->dtype));
    }
    if (target->dtype != Dtype::kInt64 && target->dtype != Dtype::kUInt8) {
      fail(ErrorKind::kTypeMismatch, what, ": class indices must be int64 or uint8, not ",
           dtype_name(target->dtype));
    }
    classes = scores->shape[class_dim];
    class_step = scores->strides[class_dim];
    if (third != nullptr && third->ndim != (per_position ? target : scores)->ndim) fail_shapes();
    if (third != nullptr && !per_position && third->shape[class_dim] != classes) fail_shapes();
    for (int i = 0, at = 0; i < scores->ndim; ++i) {
      if (i == class_dim) continue;
      const int in_third = per_position ? at : i;
      if (target->shape[at] != scores->shape[i] ||
          (third != nullptr && third->shape[in_third] != scores->shape[i])) {
        fail_shapes();
      }
      nest.push(scores->shape[i], scores->strides[i], target->strides[at],
                third != nullptr ? third->strides[in_third] : 0);
      ++at;
    }
    nest.merge();
    weight_sum = static_cast<double>(classes);
    if (const View* w = opts.weight) {
      if (w->ndim != 1 || w->shape[0] != classes) {
        fail(ErrorKind::kInvalidArgument, what, ": weight must have one element for each of the ",
             classes, " classes");
      }
      weight_sum = 0;
      for (int64_t c = 0; c < classes; ++c) {
        weight.push_back(read(*w, c * w->strides[0]));
        weight_sum += weight.back();
      }
    }
  }

  [[noreturn]] void fail_shapes() const {
    fail(ErrorKind::kInvalidArgument, what,
         ": expected scores [C], [N, C] or [N, C, d...] and targets "
         "of that shape without C; got ",
         scores->ndim, " and ", target->ndim, " dimensions or sizes that differ");
  }

  // The class at this offset; -1 for ignore_index.
  int64_t class_at(int64_t offset) const {
    const int64_t index = target->dtype == Dtype::kInt64
                              ? static_cast<const int64_t*>(target->data)[offset]
                              : static_cast<const uint8_t*>(target->data)[offset];
    if (index == options->ignore_index) return -1;
    if (index < 0 || index >= classes) {
      fail(ErrorKind::kIndex, what, ": target ", index, " is out of bounds for ", classes,
           " classes");
    }
    return index;
  }
  double weight_of(int64_t c) const {
    return weight.empty() ? 1.0 : weight[static_cast<size_t>(c)];
  }

  // f(offsets of the three operands, position) for positions [begin, end).
  template <class F>
  void for_positions(int64_t begin, int64_t end, F&& f) const {
    const int last = nest.ndim - 1;
    const int64_t run = last >= 0 ? nest.size[last] : 1;
    while (begin < end) {
      const int64_t here = std::min(end - begin, run - begin % run);
      int64_t at[3] = {nest.offset(begin, 0), nest.offset(begin, 1), nest.offset(begin, 2)};
      for (int64_t i = 0; i < here; ++i) {
        f(at, begin + i);
        for (int k = 0; k < 3 && last >= 0; ++k) at[k] += nest.stride[k][last];
      }
      begin += here;
    }
  }
};

void check_scalar(const char* what, const char* name, const View& view) {
  if (view.numel() != 1) {
    fail(ErrorKind::kInvalidArgument, what, ": ", name, " must have one element, it has ",
         view.numel());
  }
}

// The losses of log probabilities, smoothed or not; see loss.h.
void forward(const char* what, const View& log_prob, const View& target, const View& out,
             const View& total_weight, const ClassLossOptions& options, double smoothing) {
  const bool none = options.reduction == LossReduction::none;
  const Classes job(what, log_prob, target, options, none ? &out : nullptr, true);
  if (!none) check_scalar(what, "out", out);
  check_scalar(what, "total_weight", total_weight);
  const int64_t positions = job.nest.count();
  const int64_t pieces = (positions + kPositions - 1) / kPositions;
  struct Sums {
    double loss = 0, weight = 0;
  };
  std::vector<Sums> sums(static_cast<size_t>(pieces));
  const double spread = smoothing > 0 ? smoothing / static_cast<double>(job.classes) : 0;
  parallel_for(pieces, options.max_threads, [&](int64_t first, int64_t last, int) {
    for (int64_t piece = first; piece < last; ++piece) {
      Sums sum;
      const int64_t end = std::min(positions, (piece + 1) * kPositions);
      job.for_positions(piece * kPositions, end, [&](const int64_t* at, int64_t) {
        const int64_t c = job.class_at(at[1]);
        double loss = 0;
        if (c >= 0) {
          const double w = job.weight_of(c);
          loss = -(1 - smoothing) * w * quick_read(log_prob, at[0] + c * job.class_step);
          if (spread > 0) {
            double all = 0;
            for (int64_t k = 0; k < job.classes; ++k) {
              all += job.weight_of(k) * quick_read(log_prob, at[0] + k * job.class_step);
            }
            loss -= spread * all;
          }
          sum.weight += w;
        }
        if (none) {
          write(out, at[2], loss);
        } else {
          sum.loss += loss;
        }
      });
      sums[static_cast<size_t>(piece)] = sum;
    }
  });
  Sums total;
  for (const Sums& sum : sums) total.loss += sum.loss, total.weight += sum.weight;
  if (!none) {
    // All ignored gives 0 / 0, as PyTorch.
    fill(options.reduction == LossReduction::mean ? total.loss / total.weight : total.loss, out);
  }
  fill(none ? 0.0 : total.weight, total_weight);
}

// What a gradient is multiplied by at each position, before the class weights.
struct GradientScale {
  const View* grad_out;
  bool none;
  double common = 0;

  GradientScale(const char* what, const View& grad, const View& total_weight,
                const ClassLossOptions& options)
      : grad_out(&grad), none(options.reduction == LossReduction::none) {
    if (none) return;
    check_scalar(what, "grad_out", grad);
    common = read(grad, 0);
    if (options.reduction == LossReduction::mean) {
      check_scalar(what, "total_weight", total_weight);
      common /= read(total_weight, 0);
    }
  }
};

}  // namespace
}  // namespace cpu

void nll_loss(const View& log_prob, const View& target, const View& out, const View& total_weight,
              const ClassLossOptions& options) {
  cpu::forward("nll_loss", log_prob, target, out, total_weight, options, 0);
}

void nll_loss_backward(const View& grad_out, const View& target, const View& total_weight,
                       const View& grad_input, const ClassLossOptions& options) {
  const char* what = "nll_loss_backward";
  const cpu::GradientScale scale(what, grad_out, total_weight, options);
  const cpu::Classes job(what, grad_input, target, options, scale.none ? &grad_out : nullptr, true);
  fill(0.0, grad_input, options.max_threads);
  // One element for each position: too little work for another thread.
  job.for_positions(0, job.nest.count(), [&](const int64_t* at, int64_t) {
    const int64_t c = job.class_at(at[1]);
    if (c < 0) return;
    const double g = scale.none ? cpu::quick_read(grad_out, at[2]) : scale.common;
    cpu::write(grad_input, at[0] + c * job.class_step, -g * job.weight_of(c));
  });
}

void cross_entropy(const View& logits, const View& target, const View& out,
                   const View& total_weight, const ClassLossOptions& options) {
  const char* what = "cross_entropy";
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    fail(ErrorKind::kInvalidArgument, what, ": label_smoothing must be between 0 and 1, got ",
         options.label_smoothing);
  }
  if (logits.ndim < 1 || logits.ndim > cpu::kMaxNest) {
    fail(ErrorKind::kInvalidArgument, what, " needs 1 to ", cpu::kMaxNest, " dimensions, got ",
         logits.ndim);
  }
  int64_t strides[cpu::kMaxNest];
  int64_t count = 1;
  for (int i = logits.ndim - 1; i >= 0; --i) {
    strides[i] = count;
    count *= logits.shape[i];
  }
  const Dtype dtype = compute_dtype(logits.dtype);
  const std::unique_ptr<char[]> scratch(
      new (std::nothrow) char[static_cast<size_t>(count + 1) * itemsize(dtype)]);
  if (scratch == nullptr) {
    fail(ErrorKind::kOutOfMemory, what, " needs ", count * static_cast<int64_t>(itemsize(dtype)),
         " bytes for the log probabilities");
  }
  const View log_prob{scratch.get(), dtype, logits.ndim, logits.shape, strides};
  log_softmax(logits, logits.ndim == 1 ? 0 : 1, log_prob, options.max_threads);
  cpu::forward(what, log_prob, target, out, total_weight, options, options.label_smoothing);
}

namespace cpu {

namespace {

template <class Call>
ClassLossOptions class_options(const Call& call, int threads) {
  ClassLossOptions options;
  options.reduction = static_cast<LossReduction>(call.reduction);
  options.ignore_index = call.ignore_index;
  options.weight = if_given(call.weight);
  options.max_threads = threads;
  return options;
}

}  // namespace

void run(const calls::NllLoss<>& call, CallThreads threads) {
  hologram::nll_loss(call.input, call.target, call.out, call.total_weight,
                     class_options(call, threads(call.input.numel())));
}

void run(const calls::NllLossBackward<>& call, CallThreads threads) {
  hologram::nll_loss_backward(call.grad, call.target, call.total_weight, call.grad_input,
                              class_options(call, threads(call.grad_input.numel())));
}

void run(const calls::CrossEntropy<>& call, CallThreads threads) {
  ClassLossOptions options = class_options(call, threads(call.logits.numel()));
  options.label_smoothing = call.label_smoothing;
  hologram::cross_entropy(call.logits, call.target, call.out, call.total_weight, options);
}

}  // namespace cpu

}  // namespace hologram
