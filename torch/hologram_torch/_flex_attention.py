# SPDX-License-Identifier: MIT
"""``flex_attention`` on the device, forward and backward, with and without ``torch.compile``.

PyTorch computes it by a kernel for its own devices when it is compiled, and otherwise by products,
softmax and what the modifications make of the scores. Traces for the device have the latter, so
that each backend compiles them as it does other ops.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey


def checks(module: ModuleType) -> None:
    """Add the device to those that ``flex_attention`` takes."""
    original = module._validate_device

    def _validate_device(query: Tensor, key: Tensor, value: Tensor) -> None:
        if query.device.type != "hologram":
            original(query, key, value)

    vars(module)["_validate_device"] = _validate_device


def operators(module: ModuleType) -> None:
    """Trace the two operators as what they compute, and let autocast choose their dtype."""
    from torch._subclasses.functional_tensor import FunctionalTensorMode
    from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode

    forward, backward = module.flex_attention, module.flex_attention_backward
    key: Any = DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]
    keys = torch._C.DispatchKeySet(key)

    @forward.py_impl(key)
    def autocast(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Any:
        dtype = torch.get_autocast_dtype("hologram")
        inputs = [_cast(t, dtype) for t in (query, key, value)]
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return forward(*inputs, *rest)

    @backward.py_impl(key)
    def autocast_backward(*args: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):  # its dtype was chosen by the forward pass
            return backward(*args)

    for operator, dense in (
        (forward, module.sdpa_dense),
        (backward, module.sdpa_dense_backward),
    ):
        table = operator.python_key_table
        for kind in (FunctionalTensorMode, ProxyTorchDispatchMode):
            table[kind] = _as_dense(table[kind], dense)


def _cast(t: Tensor, dtype: torch.dtype) -> Tensor:
    """Do to a tensor what autocast does: float64 and what is no floating number stays."""
    return t.to(dtype) if t.is_floating_point() and t.dtype != torch.float64 else t


def _as_dense(original: Callable[..., Any], dense: Callable[..., Any]) -> Callable[..., Any]:
    """Return what an operator does in a mode; tensors of other devices go where they went."""

    @functools.wraps(original)
    def trace(mode: Any, query: Tensor, *rest: Any) -> Any:
        if query.device.type != "hologram":
            return original(mode, query, *rest)
        with mode:
            return dense(query, *rest)

    return trace
