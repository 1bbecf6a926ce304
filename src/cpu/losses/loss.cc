// SPDX-License-Identifier: MIT
// Elementwise losses: tiles of operands, sums of tiles added up in order.
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

namespace hologram::cpu {
namespace {

double read_one(const View& view) {
  double value = 0;
  convert(view.dtype, view.data, Dtype::kFloat64, &value, 1);
  return value;
}

// Claims of about this many elements.
constexpr int64_t kLossUnit = 8192;

struct Operands {
  View views[kMaxOperands];
  int slot[kMaxOperands];  // what each is to the kernel
  int count = 0;
  void add(const calls::CallView& view, int role) {
    if (!view.has_data()) return;
    views[count] = view;
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

bool is_reduced(int64_t reduction) {
  return static_cast<LossReduction>(reduction) != LossReduction::none;
}
bool is_mean(int64_t reduction) {
  return static_cast<LossReduction>(reduction) == LossReduction::mean;
}

}  // namespace

void run(const calls::PointLoss<>& call, CallThreads threads) {
  const bool reduced = is_reduced(call.reduction);
  const int64_t numel = call.input.numel();
  // A sum per tile, added up in order: the same bits for any number of threads.
  std::vector<double> sums;
  if (numel > 0) {
    Operands operands;
    if (!reduced) operands.add(call.out, kOut);
    operands.add(call.input, kInput);
    operands.add(call.target, kTarget);
    operands.add(call.weight, kWeight);
    operands.add(call.pos_weight, kPosWeight);
    Iteration iteration("point_loss", operands.views, operands.count, /*reads_first=*/reduced);
    iteration.cut(kTile);
    sums.resize(static_cast<size_t>(reduced ? iteration.block_count() : 0));
    const Dtype compute = compute_dtype(call.out.dtype);
    const LossKernel& kernel =
        loss_kernel(current_isa(), static_cast<PointLoss>(call.loss), compute);
    std::atomic<bool> bad{false};
    for_tiles(iteration, operands, compute, threads(numel),
              [&](void* const* at, int64_t n, int64_t index) {
                bool outside = false;
                const double sum = kernel.forward(tile_of(at, n, call.parameter), &outside);
                if (reduced) sums[static_cast<size_t>(index)] = sum;
                if (outside) bad.store(true, std::memory_order_relaxed);
              });
    if (bad) {
      fail(ErrorKind::kInvalidArgument,
           "binary_cross_entropy: all elements of input should be between 0 and 1; use "
           "bce_with_logits for logits");
    }
  }
  if (!reduced) return;
  double total = 0;
  for (const double sum : sums) total += sum;
  if (is_mean(call.reduction)) total /= static_cast<double>(numel);
  fill(total, call.out);
}

void run(const calls::PointLossBackward<>& call, CallThreads threads) {
  const int64_t numel = call.input.numel();
  if (numel == 0) return;
  const Dtype compute = compute_dtype(call.grad_input.dtype);
  const bool one_gradient = call.grad.numel() == 1;
  if (!one_gradient && call.weight.has_data() && call.pos_weight.has_data()) {
    // A tile has no room for another operand, so the gradient is multiplied by the weight first.
    const View product_inputs[] = {call.grad, call.weight};
    elementwise(OpId::mul, compute, product_inputs, 2, call.grad_input, threads(numel));
    calls::PointLossBackward<> rest = call;
    rest.grad = call.grad_input, rest.weight = {};
    return run(rest, threads);
  }
  Operands operands;
  operands.add(call.grad_input, kOut);
  operands.add(call.input, kInput);
  operands.add(call.target, kTarget);
  operands.add(call.weight, kWeight);
  operands.add(call.pos_weight, kPosWeight);
  if (!one_gradient) operands.add(call.grad, kGrad);
  Iteration iteration("point_loss_backward", operands.views, operands.count);
  iteration.cut(kTile);
  double gradient = one_gradient ? read_one(call.grad) : 0;
  if (is_mean(call.reduction)) gradient /= static_cast<double>(numel);
  const LossKernel& kernel = loss_kernel(current_isa(), static_cast<PointLoss>(call.loss), compute);
  for_tiles(iteration, operands, compute, threads(numel), [&](void* const* at, int64_t n, int64_t) {
    LossTile tile = tile_of(at, n, call.parameter);
    tile.grad_scalar = gradient;
    kernel.backward(tile);
  });
}

}  // namespace hologram::cpu
