# SPDX-License-Identifier: MIT
"""Random ops that ``torch.compile`` draws again in a backward pass, as checkpoints ask for it.

PyTorch keeps the random state before such an op of the forward pass, and puts it back around the
op of the backward pass. Its two operators for that know its own devices only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch._C import DispatchKey

from hologram_torch import device as _hologram


def _save_and_run(op: Any, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Any]:
    return _hologram.get_rng_state(), op(*args, **kwargs)


def _run_with(state: torch.Tensor, op: Any, *args: Any, **kwargs: Any) -> Any:
    before = _hologram.get_rng_state()
    _hologram.set_rng_state(state)
    try:
        return op(*args, **kwargs)
    finally:
        _hologram.set_rng_state(before)


def operators(module: ModuleType) -> None:
    """Add the device to ``run_and_save_rng_state`` and ``run_with_rng_state``."""
    place = module.get_device
    for operator, ours, leading in (
        (module.run_and_save_rng_state, _save_and_run, 1),
        (module.run_with_rng_state, _run_with, 2),
    ):
        operator.py_impl(DispatchKey.PrivateUse1)(ours)
        _choose(operator, ours, leading, place)
    _trace(module)


def _choose(
    operator: Any, ours: Callable[..., Any], leading: int, place: Callable[..., Any]
) -> None:
    """Take ours where the op that is run is one of the device."""
    original = operator.py_kernels[DispatchKey.BackendSelect]

    @functools.wraps(original)
    def choose(*args: Any, **kwargs: Any) -> Any:
        if place(args[leading:], kwargs) == "hologram":
            return ours(*args, **kwargs)
        return original(*args, **kwargs)

    operator.py_kernels[DispatchKey.BackendSelect] = choose
    operator._dispatch_cache.clear()


def _trace(module: ModuleType) -> None:
    """Let traces, too, ask the function that chooses, which they had before it was replaced."""
    from torch._higher_order_ops.utils import registered_hop_fake_fns
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, track_tensor_tree
    from torch.utils._pytree import tree_map

    operator = module.run_and_save_rng_state
    place = module.get_device

    def fake(op: Any, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, Any]:
        state = torch.empty(_hologram.get_rng_state().numel(), dtype=torch.uint8)
        return state, op(*args, **kwargs)

    def with_device(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def choose(op: Any, *args: Any, **kwargs: Any) -> Any:
            ours = place(args, kwargs) == "hologram"
            return fake(op, *args, **kwargs) if ours else original(op, *args, **kwargs)

        return choose

    if operator in registered_hop_fake_fns:
        registered_hop_fake_fns[operator] = with_device(registered_hop_fake_fns[operator])
    else:  # PyTorch 2.14 and earlier
        earlier = operator.python_key_table[FakeTensorMode]

        def in_fake_mode(mode: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
            if place(args, kwargs) != "hologram":
                return earlier(mode, op, *args, **kwargs)
            with mode:
                return fake(op, *args, **kwargs)

        operator.python_key_table[FakeTensorMode] = in_fake_mode

    traced = operator.python_key_table[ProxyTorchDispatchMode]

    def in_proxy_mode(mode: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        if place(args, kwargs) != "hologram":
            return traced(mode, op, *args, **kwargs)
        out = operator(op, *args, **kwargs)
        given = tree_map(mode.tracer.unwrap_proxy, ((op, *args), kwargs))
        proxy = mode.tracer.create_proxy("call_function", operator, *given)
        return track_tensor_tree(out, proxy, constant=None, tracer=mode.tracer)

    operator.python_key_table[ProxyTorchDispatchMode] = in_proxy_mode


def partitioners(module: ModuleType) -> None:
    """Say how the saved states of the device look: PyTorch takes them for those of the CPU."""
    original = module.functionalize_rng_ops

    @functools.wraps(original)
    def functionalize_rng_ops(*args: Any, **kwargs: Any) -> Any:
        from torch._guards import detect_fake_mode
        from torch._prims.rng_prims import get_device, run_and_save_rng_state, run_with_rng_state

        forward, backward = original(*args, **kwargs)
        mode = detect_fake_mode()
        if mode is None:
            return forward, backward

        def is_ours(node: Any, leading: int) -> bool:
            values = [a.meta.get("val") if hasattr(a, "meta") else a for a in node.args[leading:]]
            return get_device(values, node.kwargs) == "hologram"

        def correct(state: Any) -> None:
            state.meta["val"] = mode.from_tensor(_hologram.get_rng_state())

        for node in forward.graph.nodes:
            if node.target is run_and_save_rng_state and is_ours(node, 1):
                for user in node.users:
                    if user.args[1] == 0:
                        correct(user)
        for node in backward.graph.nodes:
            if node.target is run_with_rng_state and is_ours(node, 2):
                correct(node.args[0])
        return forward, backward

    vars(module)["functionalize_rng_ops"] = functionalize_rng_ops
