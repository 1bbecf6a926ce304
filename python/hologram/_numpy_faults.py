# SPDX-License-Identifier: MIT
"""Calls of NumPy 2.4 that end the process, or go on for years, turned into others."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["ask"]

_RUNNING = (
    np.cumsum, np.cumprod, np.nancumsum, np.nancumprod, np.cumulative_sum, np.cumulative_prod,
)  # fmt: skip
_DIAGONALS = (np.diagonal, np.trace, np.linalg.diagonal, np.linalg.trace, np.diag)
_COMPARISONS = (
    np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal,
)  # fmt: skip
# With mode='wrap' they add the size to a position until it is in range.
_WRAPPING = {np.put: 3, np.take: 4, np.choose: 3}  # which of the arguments mode is
# They multiply by ten as often as they are told; a float64 has fewer places than _PLACES.
_ROUNDING = (np.round, np.around)
_PLACES = 1000
_LEAST = -(2**31)
_MOST = 2.0**58
# The names of what is not simply called, which spare most functions the questions below.
_TREATED: tuple[Any, ...] = (*_RUNNING, *_DIAGONALS, *_COMPARISONS, *_WRAPPING, *_ROUNDING)
_NAMES = frozenset(["accumulate", "repeat", *(f.__name__ for f in _TREATED)])


def ask(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function of NumPy.

    Raises:
        ValueError: it would end the process.
    """
    name = getattr(function, "__name__", "")
    if name not in _NAMES:
        return function(*args, **kwargs)
    if isinstance(function, np.ufunc):
        if function in _COMPARISONS and "where" in kwargs:
            args = tuple(map(_typed, args))
    elif name == "accumulate" or function in _RUNNING:
        _check_out(function, args, kwargs)
    elif function is np.repeat:
        _check_repeats(*args, **kwargs)
    elif function in _ROUNDING:
        args = (*args[:1], *map(_some_places, args[1:2]), *args[2:])
        kwargs = {k: _some_places(x) if k == "decimals" else x for k, x in kwargs.items()}
    elif function in _WRAPPING:
        if "mode" in kwargs or len(args) > _WRAPPING[function]:
            return _bounded(function, args, kwargs)
    elif function in _DIAGONALS:
        args = tuple(map(_near, args))
        kwargs = {key: _near(value) for key, value in kwargs.items()}
    return function(*args, **kwargs)


def _some_places(x: Any) -> Any:
    return max(-_PLACES, min(x, _PLACES)) if type(x) is int and _LEAST <= x < -_LEAST else x


def _typed(x: Any) -> Any:
    # A Python int that the other operand's dtype does not hold.
    return np.asarray(x) if type(x) is int else x


def _near(x: Any) -> Any:
    # That diagonal is beyond every matrix, as is the one before it.
    return _LEAST + 1 if isinstance(x, (int, np.integer)) and x == _LEAST else x


def _bounded(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    given = inspect.signature(function).bind(*args, **kwargs)
    if given.arguments.get("mode") not in ("wrap", 1):
        return function(*args, **kwargs)
    if function is np.choose:
        name, size = "a", len(given.arguments["choices"])
    else:
        name = "ind" if function is np.put else "indices"
        axis = given.arguments.get("axis")
        size = np.size(given.arguments["a"], axis)
    found = np.asarray(given.arguments[name])
    if size and found.dtype.kind == "i" and np.any(np.abs(found.astype("float64")) > -_LEAST):
        given.arguments[name] = found % size
    return function(*given.args, **given.kwargs)


def _check_out(function: Callable[..., Any], args: Any, kwargs: Any) -> None:
    out = args[3] if len(args) > 3 else kwargs.get("out")
    out = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if isinstance(out, np.ndarray) and out.ndim == 0:
        raise ValueError(f"{function.__name__}: out has no dimensions, and the result has")


def _check_repeats(a: Any, repeats: Any, axis: Any = None) -> None:
    """Refuse counts whose sum no int64 holds."""
    if type(repeats) is int and repeats * np.size(a) <= _MOST:
        return  # without an array of the one count
    counts = np.asarray(repeats)
    if counts.dtype.kind not in "iu" or not counts.size:
        return
    total = float(counts.sum(dtype="float64")) * np.size(a)
    if total > _MOST:
        raise ValueError(f"repeat: {total:.3g} elements are too many")
