# SPDX-License-Identifier: MIT
"""How results of the device's own kernels lie, for traces.

PyTorch assumes that results and gradients of attention lie as the queries, keys and values do,
that those of a convolution and a linear layer lie row by row, whatever it is given, and that only
cpu and cuda sample a volume by bicubic interpolation. The device's lie as those of the CPU's
kernels, so for a convolution and a sampled volume the CPU's fake kernel is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.fx.operator_schemas import normalize_function

_FORWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default
_BACKWARD = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward.default
_LINEAR_BACKWARD = torch.ops.aten.linear_backward.default

_CONVOLUTIONS = (
    torch.ops.aten.convolution.default,
    torch.ops.aten._convolution.default,
    torch.ops.aten.convolution_backward.default,
)
_VOLUMES = (
    torch.ops.aten.grid_sampler_3d.default,
    torch.ops.aten.grid_sampler_3d_backward.default,
)


def kernels(module: ModuleType) -> None:
    """Add ours to the fake kernels, which PyTorch has just imported."""
    known = module.op_implementations_dict
    known[_FORWARD], known[_BACKWARD] = _attention, _attention_backward
    known[_LINEAR_BACKWARD] = _linear_backward
    for operator in _CONVOLUTIONS:
        if operator in known:
            known[operator] = _as_on_cpu(known[operator])
    for operator in _VOLUMES:
        known[operator] = _as_on_cpu(known.get(operator, _by_its_meta_kernel))


def _by_its_meta_kernel(*_: Any, **__: Any) -> Any:
    return NotImplemented


def _as_on_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a fake kernel with the device added, for which cpu is asked."""

    def as_on_cpu(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        given = normalize_function(
            func, args=args, kwargs=kwargs, normalize_to_only_use_kwargs=True
        )
        named = {} if given is None else given.kwargs
        tensors = {name: t for name, t in named.items() if isinstance(t, Tensor)}
        ours = named["input"].device if tensors else None
        if (
            ours is None
            or ours.type != "hologram"
            or any(t.device != ours for t in tensors.values())
        ):
            return original(mode, func, *args, **kwargs)

        def on(place: Any, t: Tensor) -> Tensor:
            return torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=place)

        with mode:
            named |= {name: on("cpu", t) for name, t in tensors.items()}
            out = func(**named)
            if isinstance(out, Tensor):
                return on(ours, out)
            results = [None if t is None else on(ours, t) for t in out]
            if "weight" in tensors and results[1] is not None and named["input"].numel() == 0:
                # There is nothing to compute: zeros, which lie as the weights do.
                results[1] = torch.empty_like(tensors["weight"])
        return tuple(results)

    return as_on_cpu


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


def _linear_backward(
    mode: Any, func: Any, values: Tensor, grad: Tensor, weight: Tensor, wanted: list[bool]
) -> Any:
    if grad.device.type != "hologram":
        return NotImplemented
    with mode:
        of_values = grad.new_empty(values.shape) if wanted[0] else None
        of_weight = grad.new_empty(weight.shape) if wanted[1] else None
        if of_weight is not None and weight.dim() == 2 and weight.stride() != (weight.shape[1], 1):
            of_weight = grad.new_empty(weight.shape[::-1]).t()
        outputs = weight.shape[0] if weight.dim() == 2 else 1
        of_bias = grad.new_empty(outputs) if wanted[2] else None
    return (of_values, of_weight, of_bias)
