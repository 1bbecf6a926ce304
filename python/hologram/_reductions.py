# SPDX-License-Identifier: MIT
"""Reductions of the table, with signatures that Python can inspect.

SciPy asks a statistic for its signature, which extension functions do not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hologram._hologram import Tensor
from hologram._hologram import reductions as _table

__all__ = ["all", "any", "argmax", "argmin", "max", "mean", "min", "nansum", "prod", "sum"]

_Axis = int | tuple[int, ...] | None


def _named(function: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = name
    function.__module__ = "hologram"
    # Behind the signature.
    function.__doc__ = getattr(_table, name).__doc__.partition("\n\n")[2]
    return function


def _with_dtype(name: str) -> Callable[..., Tensor]:
    reduce = getattr(_table, name)

    def function(
        x: Any,
        axis: _Axis = None,
        dtype: Any = None,
        out: Tensor | None = None,
        keepdims: bool = False,
    ) -> Tensor:
        found: Tensor = reduce(x, axis, dtype, out, keepdims)
        return found

    return _named(function, name)


def _without_dtype(name: str) -> Callable[..., Tensor]:
    reduce = getattr(_table, name)

    def function(
        x: Any, axis: _Axis = None, out: Tensor | None = None, keepdims: bool = False
    ) -> Tensor:
        found: Tensor = reduce(x, axis, out, keepdims)
        return found

    return _named(function, name)


sum, prod, mean, nansum = map(_with_dtype, ("sum", "prod", "mean", "nansum"))
min, max, argmin, argmax = map(_without_dtype, ("min", "max", "argmin", "argmax"))
all, any = map(_without_dtype, ("all", "any"))
