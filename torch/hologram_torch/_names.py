# SPDX-License-Identifier: MIT
"""What the caller calls the tensors of a call: its arguments, parameters, closed-over variables."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from hologram_torch._circuits import Named

_MAX_DEPTH = 4


def call_text(fn: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any]) -> str:
    """Return the name of a function with those of its arguments: 'step(x, target)'."""
    name = getattr(fn, "__qualname__", "") or type(fn).__name__
    name = name.rpartition("<locals>.")[2]
    if name == "<lambda>":
        return "lambda"
    return f"{name}({', '.join(n for n, _ in _arguments(fn, args, kwargs))})"


def _arguments(
    fn: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return [*((f"arg{i}", a) for i, a in enumerate(args)), *kwargs.items()]
    named: list[tuple[str, Any]] = []
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named += [(f"{name}[{i}]", v) for i, v in enumerate(value)]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named += list(value.items())
        else:
            named.append((name, value))
    return named


def _enclosed(fn: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """What a function reaches without being given it: its object, its closure, its globals."""
    owner = getattr(fn, "__self__", None)
    if owner is not None:
        yield "", owner
    if isinstance(fn, torch.nn.Module):
        yield "", fn
        return
    try:
        found = inspect.getclosurevars(fn)
    except TypeError:
        return
    yield from found.nonlocals.items()
    yield from found.globals.items()


def _walk(name: str, value: Any, depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name or "self", value
    elif isinstance(value, torch.nn.Module):
        prefix = f"{name}." if name else ""
        for inner, tensor in [*value.named_parameters(), *value.named_buffers()]:
            yield from _walk(prefix + inner, tensor)
    elif depth < _MAX_DEPTH and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(
                f"{name}[{key!r}]" if isinstance(key, str) else f"{name}[…]", item, depth + 1
            )
    elif depth < _MAX_DEPTH and isinstance(value, list | tuple | set):
        for i, item in enumerate(value):
            yield from _walk(f"{name}[{i}]", item, depth + 1)


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
    values = [*_arguments(fn, args, kwargs), *_enclosed(fn)]
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
