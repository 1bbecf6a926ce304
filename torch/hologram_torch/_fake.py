# SPDX-License-Identifier: MIT
"""How results of the device's own kernels lie, for traces.

PyTorch assumes that results and gradients of attention lie as the queries, keys and values do.
The device's lie as those of the CPU's kernel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_impls import op_implementations_dict, register_op_impl

_FORWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default
_BACKWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward.default


def register() -> None:
    """Register it, once. Tensors of other devices go where they went before."""
    for operator, function in ((_FORWARD, _attention), (_BACKWARD, _attention_backward)):
        if operator not in op_implementations_dict:
            register_op_impl(operator)(function)


def _alternating(like: Tensor, *sizes: Any) -> Tensor:
    batch, heads, rows, width = sizes
    return like.new_empty((batch, rows, heads, width)).transpose(1, 2)


def _attention(
    mode: Any, func: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any
) -> Any:
    if query.device.type != "hologram" or query.dim() != 4:
        return NotImplemented
    with mode:
        batch, heads, rows, _width = query.shape
        sizes = (batch, heads, rows, value.shape[3])
        as_queries = query.stride(1) < query.stride(2)
        out = _alternating(query, *sizes) if as_queries else query.new_empty(sizes)
        half = query.dtype in (torch.float16, torch.bfloat16)
        logsumexp = query.new_empty(
            (batch, rows, heads), dtype=torch.float32 if half else query.dtype
        ).transpose(1, 2)
        seed, offset = (query.new_empty((), dtype=torch.int64) for _ in range(2))
    return (out, logsumexp, None, None, rows, key.shape[2], seed, offset, None)


def _attention_backward(
    mode: Any,
    func: Any,
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *_: Any,
    **__: Any,
) -> Any:
    if query.device.type != "hologram":
        return NotImplemented
    with mode:
        return (*(_alternating(t, *t.shape) for t in (query, key, value)), None)
