# SPDX-License-Identifier: MIT
"""What the caller calls the arrays of a call: its arguments, closed-over variables, globals."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

__all__ = ["arguments", "call_text", "enclosed", "walk"]

_MAX_DEPTH = 4


def call_text(fn: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any]) -> str:
    """Return the name of a function with those of its arguments: 'step(x, target)'."""
    name = getattr(fn, "__qualname__", "") or type(fn).__name__
    name = name.rpartition("<locals>.")[2]
    if name == "<lambda>":
        return "lambda"
    return f"{name}({', '.join(n for n, _ in arguments(fn, args, kwargs))})"


def arguments(
    fn: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """Return the arguments of a call with the names of the parameters that they are for."""
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


def enclosed(fn: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a function reaches without being given it: its object, closure and globals."""
    owner = getattr(fn, "__self__", None)
    if owner is not None:
        yield "", owner
    try:
        found = inspect.getclosurevars(fn)
    except (TypeError, ValueError):  # no function of Python's; a variable that is not set yet
        return
    yield from found.nonlocals.items()
    yield from found.globals.items()


def walk(
    name: str,
    value: Any,
    kinds: type | tuple[type, ...],
    inside: Callable[[Any], Iterable[tuple[str, Any]] | None],
    depth: int = 0,
) -> Iterator[tuple[str, Any]]:
    """Yield the objects of some types in a structure, with the names by which they are reached.

    inside: the parts of an object by name, None for objects that are none of the caller's concern.
    """
    if isinstance(value, kinds):
        yield name or "self", value
    elif (parts := inside(value)) is not None:
        prefix = f"{name}." if name else ""
        for inner, part in parts:
            yield from walk(prefix + inner, part, kinds, inside, depth + 1)
    elif depth < _MAX_DEPTH and isinstance(value, Mapping):
        for key, item in value.items():
            place = f"{name}[{key!r}]" if isinstance(key, str) else f"{name}[…]"
            yield from walk(place, item, kinds, inside, depth + 1)
    elif depth < _MAX_DEPTH and isinstance(value, list | tuple | set):
        for i, item in enumerate(value):
            yield from walk(f"{name}[{i}]", item, kinds, inside, depth + 1)
