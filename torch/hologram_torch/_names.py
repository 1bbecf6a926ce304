# SPDX-License-Identifier: MIT
"""What the caller calls the tensors of a call: its arguments, parameters, closed-over variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from hologram.observe._names import arguments, enclosed, walk
from hologram.observe.circuits import Named


def _enclosed(fn: Callable[..., Any]) -> Iterable[tuple[str, Any]]:
    # Of a module its own tensors count, not the globals of its forward().
    return [("", fn)] if isinstance(fn, torch.nn.Module) else enclosed(fn)


def _inside(value: Any) -> list[tuple[str, Any]] | None:
    if not isinstance(value, torch.nn.Module):
        return None
    return [*value.named_parameters(), *value.named_buffers()]


def _walk(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    return walk(name, value, torch.Tensor, _inside)


def _optimizer_state(
    values: Iterable[tuple[str, Any]], names: Mapping[int, str]
) -> Iterator[tuple[str, torch.Tensor]]:
    for _, value in values:
        if not isinstance(value, torch.optim.Optimizer):
            continue
        for group, settings in enumerate(value.param_groups):
            for i, parameter in enumerate(settings["params"]):
                name = names.get(id(parameter), f"param{i}" if not group else f"param{group}.{i}")
                yield name, parameter
                for key, state in value.state.get(parameter, {}).items():
                    if isinstance(state, torch.Tensor):
                        yield f"{name}.{key}", state


_NO_RESULT = object()


def named_tensors(
    fn: Callable[..., Any],
    args: tuple,
    kwargs: Mapping[str, Any],
    *,
    gradients: bool = True,
    result: Any = _NO_RESULT,
) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors that a call knows by name, and those of its result.

    Gradients come and go: their names are worth having only after the call.
    """
    values = [*arguments(fn, args, kwargs), *_enclosed(fn)]
    found = [pair for name, value in values for pair in _walk(name, value)]
    found += _optimizer_state(values, {id(tensor): name for name, tensor in reversed(found)})
    if gradients:
        found += [
            (f"{name}.grad", tensor.grad)
            for name, tensor in found
            if tensor.is_leaf and tensor.grad is not None
        ]
    if result is not _NO_RESULT:
        found += _walk("result", result)
    return found


def known_buffers(tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[int, Named]:
    """Return the names by the id that traces give to the tensors' memory; the first one counts."""
    names: dict[int, Named] = {}
    for name, tensor in tensors:
        is_dense = tensor.layout == torch.strided and not tensor.is_nested
        if tensor.device.type != "hologram" or not is_dense:
            continue
        buffer = torch.ops.hologram._buffer_id(tensor)
        if buffer:
            names.setdefault(buffer, Named(name, list(tensor.shape)))
    return names
