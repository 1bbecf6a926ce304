// SPDX-License-Identifier: MIT
// Elementwise losses: tiles of operands, sums of tiles added up in order.
#include "src/cpu/losses/loss.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "hologram/elementwise.h"
#include "hologram/error.h"
#include "hologram/parallel.h"
#include "src/cpu/device/call_table.h"
#include "src/cpu/elementwise/iteration.h"
#include "src/cpu/losses/loss_kernels.h"
#include "src/cpu/reduce/reduce_gather.h"

namespace hologram {
namespace cpu {
namespace {

constexpr const char* kNames[kPointLossCount] = {"mse_loss",
                                                 "l1_loss",
                                                 "smooth_l1_loss",
                                                 "huber_loss",
                                                 "binary_cross_entropy",
                                                 "binary_cross_entropy_with_logits",
                                                 "kl_div",
                                                 "kl_div"};

bool same_shape(const View& a, const View& b) {
  if (a.ndim != b.ndim) return false;
  for (int i = 0; i < a.ndim; ++i) {
    if (a.shape[i] != b.shape[i]) return false;
  }
  return true;
}

// float64 where any operand is, else float32.
Dtype choose_compute(const char* what, std::initializer_list<const View*> views) {
  Dtype compute = Dtype::kFloat32;
  for (const View* view : views) {
    if (view == nullptr) continue;
    if (!is_floating(view->dtype)) {
      fail(ErrorKind::kNotSupported, what, " takes floating tensors, not ",
           dtype_name(view->dtype));
    }
    if (view->dtype == Dtype::kFloat64) compute = Dtype::kFloat64;
  }
  return compute;
}

double read_one(const View& view) {
  double value = 0;
  convert(view.dtype, view.data, Dtype::kFloat64, &value, 1);
  return value;
}

void check_one(const char* what, const char* name, const View& view) {
  if (view.numel() != 1) {
    fail(ErrorKind::kInvalidArgument, what, ": ", name,
         " must have one element for this reduction, "
         "it has ",
         view.numel());
  }
}

// Claims of about this many elements.
constexpr int64_t kLossUnit = 8192;

struct Operands {
  View views[kMaxOperands];
  int slot[kMaxOperands];  // what each is to the kernel
  int count = 0;
  void add(const View* view, int role) {
    if (view == nullptr) return;
    views[count] = *view;
    slot[count++] = role;
  }
};

enum Role { kOut, kInput, kTarget, kWeight, kPosWeight, kGrad, kRoles };

// f(tile pointers by role, n, index) on every tile; the tile of kOut is written back afterwards.
template <class F>
void for_tiles(const Iteration& iteration, const Operands& operands, Dtype compute, int max_threads,
               F&& f) {
  const int64_t tiles = iteration.block_count();
  const int64_t chunk =
      std::max<int64_t>(1, kLossUnit / std::max<int64_t>(1, iteration.block_elements()));
  parallel_for((tiles + chunk - 1) / chunk, max_threads, [&](int64_t begin, int64_t end, int) {
    alignas(64) char scratch[kMaxOperands][kTile * 8];
    std::array<Block, kMaxOperands> blocks;
    for (int64_t index = begin * chunk; index < std::min(tiles, end * chunk); ++index) {
      const auto extent = iteration.block(index, blocks);
      void* at[kRoles] = {};
      for (int k = 0; k < operands.count; ++k) {
        const Block& block = blocks[static_cast<size_t>(k)];
        const Dtype dtype = operands.views[k].dtype;
        const bool dense = (block.col_stride == 1 || extent.cols == 1) &&
                           (block.row_stride == extent.cols || extent.rows == 1);
        void*& pointer = at[operands.slot[k]];
        pointer = scratch[k];
        if (dense && dtype == compute) {
          pointer = block.data;
        } else if (operands.slot[k] != kOut) {
          gather_rows(block.data, dtype, extent.rows, block.row_stride, extent.cols,
                      block.col_stride, compute, pointer);
        }
      }
      f(at, extent.rows * extent.cols, index);
      if (at[kOut] == scratch[0] && operands.slot[0] == kOut) {
        scatter_rows(scratch[0], compute, extent.rows, blocks[0].row_stride, extent.cols,
                     blocks[0].col_stride, operands.views[0].dtype, blocks[0].data);
      }
    }
  });
}

LossTile tile_of(void* const* at, int64_t n, double param) {
  return {at[kInput], at[kTarget], at[kWeight], at[kPosWeight], at[kGrad], 0, param, at[kOut], n};
}

const char* check(PointLoss loss, const View& input, const View& target,
                  const PointLossOptions& options) {
  const char* what = kNames[static_cast<int>(loss)];
  if (!same_shape(input, target)) {
    fail(ErrorKind::kInvalidArgument, what,
         ": input and target must have one shape; broadcast them first");
  }
  if (options.param < 0) {
    fail(ErrorKind::kInvalidArgument, what, ": beta or delta must not be negative, got ",
         options.param);
  }
  return what;
}

}  // namespace
}  // namespace cpu

void point_loss(PointLoss loss, const View& input, const View& target, const View& out,
                const PointLossOptions& options) {
  using namespace cpu;  // NOLINT: the helpers above
  const char* what = check(loss, input, target, options);
  const Dtype compute =
      choose_compute(what, {&input, &target, &out, options.weight, options.pos_weight});
  const bool reduced = options.reduction != LossReduction::none;
  if (reduced) check_one(what, "out", out);
  Operands operands;
  if (!reduced) {
    if (!same_shape(out, input)) {
      fail(ErrorKind::kInvalidArgument, what, ": out must have the input's shape");
    }
    operands.add(&out, kOut);
  }
  operands.add(&input, kInput);
  operands.add(&target, kTarget);
  operands.add(options.weight, kWeight);
  operands.add(options.pos_weight, kPosWeight);
  Iteration iteration(what, operands.views, operands.count, /*reads_first=*/reduced);
  iteration.cut(kTile);
  const int64_t numel = input.numel();
  const LossKernel& kernel = loss_kernel(current_isa(), loss, compute);
  // A sum per tile, added up in order: the same bits for any number of threads.
  std::vector<double> sums(static_cast<size_t>(reduced && numel > 0 ? iteration.block_count() : 0));
  std::atomic<bool> bad{false};
  if (numel > 0) {
    for_tiles(iteration, operands, compute, options.max_threads,
              [&](void* const* at, int64_t n, int64_t index) {
                bool outside = false;
                const double sum = kernel.forward(tile_of(at, n, options.param), &outside);
                if (reduced) sums[static_cast<size_t>(index)] = sum;
                if (outside) bad.store(true, std::memory_order_relaxed);
              });
  }
  if (bad) {
    fail(ErrorKind::kInvalidArgument, what,
         ": all elements of input should be between 0 and 1; use bce_with_logits for logits");
  }
  if (!reduced) return;
  double total = 0;
  for (const double sum : sums) total += sum;
  if (options.reduction == LossReduction::mean) total /= static_cast<double>(numel);
  fill(total, out);
}

void point_loss_backward(PointLoss loss, const View& grad_out, const View& input,
                         const View& target, const View& grad_input,
                         const PointLossOptions& options) {
  using namespace cpu;  // NOLINT: the helpers above
  const char* what = check(loss, input, target, options);
  const Dtype compute = choose_compute(
      what, {&grad_out, &input, &target, &grad_input, options.weight, options.pos_weight});
  if (!same_shape(grad_input, input)) {
    fail(ErrorKind::kInvalidArgument, what, ": the gradient must have the input's shape");
  }
  const bool reduced = options.reduction != LossReduction::none;
  if (reduced) check_one(what, "grad_out", grad_out);
  const bool one_gradient = reduced || grad_out.numel() == 1;
  if (!one_gradient && options.weight != nullptr && options.pos_weight != nullptr) {
    // A tile has no room for another operand, so the gradient is multiplied by the weight first.
    const View product_inputs[] = {grad_out, *options.weight};
    elementwise(OpId::mul, compute, product_inputs, 2, grad_input, options.max_threads);
    PointLossOptions rest = options;
    rest.weight = nullptr;
    return point_loss_backward(loss, grad_input, input, target, grad_input, rest);
  }
  Operands operands;
  operands.add(&grad_input, kOut);
  operands.add(&input, kInput);
  operands.add(&target, kTarget);
  operands.add(options.weight, kWeight);
  operands.add(options.pos_weight, kPosWeight);
  if (!one_gradient) operands.add(&grad_out, kGrad);
  if (input.numel() == 0) return;
  Iteration iteration(what, operands.views, operands.count);
  iteration.cut(kTile);
  double gradient = one_gradient ? read_one(grad_out) : 0;
  if (options.reduction == LossReduction::mean) gradient /= static_cast<double>(input.numel());
  const LossKernel& kernel = loss_kernel(current_isa(), loss, compute);
  for_tiles(iteration, operands, compute, options.max_threads,
            [&](void* const* at, int64_t n, int64_t) {
              LossTile tile = tile_of(at, n, options.param);
              tile.grad_scalar = gradient;
              kernel.backward(tile);
            });
}

namespace cpu {

namespace {

template <class Call>
PointLossOptions point_options(const Call& call, CallThreads threads) {
  PointLossOptions options;
  options.reduction = static_cast<LossReduction>(call.reduction);
  options.param = call.parameter;
  options.weight = if_given(call.weight), options.pos_weight = if_given(call.pos_weight);
  options.max_threads = threads(call.input.numel());
  return options;
}

}  // namespace

void run(const calls::PointLoss<>& call, CallThreads threads) {
  hologram::point_loss(static_cast<PointLoss>(call.loss), call.input, call.target, call.out,
                       point_options(call, threads));
}

void run(const calls::PointLossBackward<>& call, CallThreads threads) {
  hologram::point_loss_backward(static_cast<PointLoss>(call.loss), call.grad, call.input,
                                call.target, call.grad_input, point_options(call, threads));
}

}  // namespace cpu

}  // namespace hologram
