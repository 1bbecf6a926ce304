// SPDX-License-Identifier: MIT
// The calls of attention: from the operands of a call to the kernels.
#include <cmath>

#include "hologram/call_frame.h"
#include "src/cpu/attention/attention.h"

namespace hologram::cpu {
namespace {

AttentionStrides attention_strides(const View& view) {
  return {view.strides[0], view.strides[1], view.strides[2]};
}

struct AttentionInputs {
  View query, key, value, mask;

  explicit AttentionInputs(CallFrame& call)
      : query(call.view()), key(call.view()), value(call.view()), mask(call.view()) {}

  // With the parameters, which follow all operands.
  AttentionArgs arguments(CallFrame& call) const {
    AttentionArgs args;
    args.dtype = query.dtype;
    args.causal = call.flag();
    args.scale = call.number();
    args.batch = query.shape[0], args.heads = query.shape[1], args.kv_heads = key.shape[1];
    args.queries = query.shape[2], args.keys = key.shape[2];
    args.dim = query.shape[3], args.value_dim = value.shape[3];
    if (std::isnan(args.scale)) args.scale = 1 / std::sqrt(static_cast<double>(args.dim));
    args.q = query.data, args.q_strides = attention_strides(query);
    args.k = key.data, args.k_strides = attention_strides(key);
    args.v = value.data, args.v_strides = attention_strides(value);
    if (mask.data != nullptr) {
      args.mask = mask.data, args.mask_strides = attention_strides(mask);
      args.mask_col = args.keys > 1 ? mask.strides[3] : 0;
    }
    args.max_threads = call.threads();
    return args;
  }
};

AttentionOutput attention_output(const View& out, const View& logsumexp) {
  return {out.data, attention_strides(out), logsumexp.data, attention_strides(logsumexp)};
}

}  // namespace

void run_attention(CallFrame& call) {
  const AttentionInputs inputs(call);
  const View out = call.view(), logsumexp = call.view();
  hologram::attention(inputs.arguments(call), attention_output(out, logsumexp));
}

void run_attention_backward(CallFrame& call) {
  const AttentionInputs inputs(call);
  const View out = call.view(), logsumexp = call.view(), grad = call.view();
  const View grad_query = call.view(), grad_key = call.view(), grad_value = call.view();
  AttentionGradients g;
  g.result = attention_output(out, logsumexp);
  g.grad = grad.data, g.grad_strides = attention_strides(grad);
  g.grad_q = grad_query.data, g.grad_q_strides = attention_strides(grad_query);
  g.grad_k = grad_key.data, g.grad_k_strides = attention_strides(grad_key);
  g.grad_v = grad_value.data, g.grad_v_strides = attention_strides(grad_value);
  hologram::attention_backward(inputs.arguments(call), g);
}

}  // namespace hologram::cpu
