// SPDX-License-Identifier: MIT
// The calls of attention: from the operands of a call to the kernels.
#include <cmath>

#include "src/cpu/attention/attention.h"
#include "src/cpu/device/call_table.h"

namespace hologram::cpu {
namespace {

AttentionStrides attention_strides(const View& view) {
  return {view.strides[0], view.strides[1], view.strides[2]};
}

// Of an attention's call or that of its gradient.
template <class Call>
AttentionArgs arguments_of(const Call& call, CallThreads threads) {
  AttentionArgs args;
  args.dtype = call.query.dtype;
  args.causal = call.is_causal;
  args.scale = call.scale;
  args.batch = call.query.shape[0], args.heads = call.query.shape[1];
  args.kv_heads = call.key.shape[1];
  args.queries = call.query.shape[2], args.keys = call.key.shape[2];
  args.dim = call.query.shape[3], args.value_dim = call.value.shape[3];
  if (std::isnan(args.scale)) args.scale = 1 / std::sqrt(static_cast<double>(args.dim));
  args.q = call.query.data, args.q_strides = attention_strides(call.query);
  args.k = call.key.data, args.k_strides = attention_strides(call.key);
  args.v = call.value.data, args.v_strides = attention_strides(call.value);
  if (call.mask.has_data()) {
    args.mask = call.mask.data, args.mask_strides = attention_strides(call.mask);
    args.mask_col = args.keys > 1 ? call.mask.strides[3] : 0;
  }
  args.max_threads = threads.most();
  return args;
}

AttentionOutput attention_output(const View& out, const View& logsumexp) {
  return {out.data, attention_strides(out), logsumexp.data, attention_strides(logsumexp)};
}

}  // namespace

void run(const calls::Attention<>& call, CallThreads threads) {
  hologram::attention(arguments_of(call, threads), attention_output(call.out, call.logsumexp));
}

void run(const calls::AttentionBackward<>& call, CallThreads threads) {
  AttentionGradients g;
  g.result = attention_output(call.output, call.logsumexp);
  g.grad = call.grad.data, g.grad_strides = attention_strides(call.grad);
  g.grad_q = call.grad_query.data, g.grad_q_strides = attention_strides(call.grad_query);
  g.grad_k = call.grad_key.data, g.grad_k_strides = attention_strides(call.grad_key);
  g.grad_v = call.grad_value.data, g.grad_v_strides = attention_strides(call.grad_value);
  hologram::attention_backward(arguments_of(call, threads), g);
}

}  // namespace hologram::cpu
