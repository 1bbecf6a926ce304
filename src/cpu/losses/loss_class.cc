// SPDX-License-Identifier: MIT
// Losses over class indices: negative log likelihood and cross entropy, forward and backward.
#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/loss.h"
#include "hologram/parallel.h"
#include "hologram/softmax.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/reduce/reduce_gather.h"
#include "src/cpu/reduce/reduce_plan.h"

namespace hologram::cpu {
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

// A class tensor [C], [N, C] or [N, C, d...] (log probabilities or their gradients) and the targets
// of its positions, of that shape without C.
struct Classes {
  const char* what;
  const View& target;
  int64_t ignored;
  int64_t classes = 0;
  int64_t class_step = 0;
  Nest nest;                   // positions; operands: scores, target, and what is of each position
  std::vector<double> weight;  // empty: all 1

  // each: of target's shape, or null.
  Classes(const char* name, const View& scores, const View& targets, int64_t ignore_index,
          const calls::CallView& weights, const View* each)
      : what(name), target(targets), ignored(ignore_index) {
    const int class_dim = scores.ndim == 1 ? 0 : 1;
    classes = scores.shape[class_dim];
    class_step = scores.strides[class_dim];
    for (int i = 0, at = 0; i < scores.ndim; ++i) {
      if (i == class_dim) continue;
      nest.push(scores.shape[i], scores.strides[i], target.strides[at],
                each != nullptr ? each->strides[at] : 0);
      ++at;
    }
    nest.merge();
    for (int64_t c = 0; c < classes && weights.has_data(); ++c) {
      weight.push_back(read(weights, c * weights.strides[0]));
    }
  }

  // The class at this offset; -1 for ignore_index.
  int64_t class_at(int64_t offset) const {
    const int64_t index = target.dtype == Dtype::kInt64
                              ? static_cast<const int64_t*>(target.data)[offset]
                              : static_cast<const uint8_t*>(target.data)[offset];
    if (index == ignored) return -1;
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

// The losses of log probabilities, smoothed or not, and the sum of the weights of the targets (0
// where each position has its loss).
template <class Call>
void forward(const char* what, const Call& call, const View& log_prob, double smoothing,
             int threads) {
  const View& out = call.out;
  const auto reduction = static_cast<LossReduction>(call.reduction);
  const bool none = reduction == LossReduction::none;
  const Classes job(what, log_prob, call.target, call.ignore_index, call.weight,
                    none ? &out : nullptr);
  const int64_t positions = job.nest.count();
  const int64_t pieces = (positions + kPositions - 1) / kPositions;
  struct Sums {
    double loss = 0, weight = 0;
  };
  std::vector<Sums> sums(static_cast<size_t>(pieces));
  const double spread = smoothing > 0 ? smoothing / static_cast<double>(job.classes) : 0;
  parallel_for(pieces, threads, [&](int64_t first, int64_t last, int) {
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
    fill(reduction == LossReduction::mean ? total.loss / total.weight : total.loss, out);
  }
  fill(none ? 0.0 : total.weight, call.total_weight);
}

}  // namespace

void run(const calls::NllLoss<>& call, CallThreads threads) {
  forward("nll_loss", call, call.input, 0, threads(call.input.numel()));
}

void run(const calls::NllLossBackward<>& call, CallThreads threads) {
  const View &grad = call.grad, &grad_input = call.grad_input;
  const auto reduction = static_cast<LossReduction>(call.reduction);
  const bool none = reduction == LossReduction::none;
  double common = none ? 0 : read(grad, 0);
  if (reduction == LossReduction::mean) common /= read(call.total_weight, 0);
  const Classes job("nll_loss_backward", grad_input, call.target, call.ignore_index, call.weight,
                    none ? &grad : nullptr);
  fill(0.0, grad_input, threads(grad_input.numel()));
  // One element for each position: too little work for another thread.
  job.for_positions(0, job.nest.count(), [&](const int64_t* at, int64_t) {
    const int64_t c = job.class_at(at[1]);
    if (c < 0) return;
    const double g = none ? quick_read(grad, at[2]) : common;
    write(grad_input, at[0] + c * job.class_step, -g * job.weight_of(c));
  });
}

// log_softmax over the classes and nll_loss in one pass.
void run(const calls::CrossEntropy<>& call, CallThreads threads) {
  const View& logits = call.logits;
  std::vector<int64_t> strides(static_cast<size_t>(logits.ndim));
  int64_t count = 1;
  for (int i = logits.ndim - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = count;
    count *= logits.shape[i];
  }
  const Dtype dtype = compute_dtype(logits.dtype);
  const std::unique_ptr<char[]> scratch(
      new (std::nothrow) char[static_cast<size_t>(count + 1) * itemsize(dtype)]);
  if (scratch == nullptr) {
    fail(ErrorKind::kOutOfMemory, "cross_entropy needs ",
         count * static_cast<int64_t>(itemsize(dtype)), " bytes for the log probabilities");
  }
  const View log_prob{scratch.get(), dtype, logits.ndim, logits.shape, strides.data()};
  log_softmax(logits, logits.ndim == 1 ? 0 : 1, log_prob, threads(count));
  forward("cross_entropy", call, log_prob, call.label_smoothing, threads(count));
}

}  // namespace hologram::cpu
