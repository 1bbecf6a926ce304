# SPDX-License-Identifier: MIT
"""Reductions: those of the table, with signatures that Python can inspect, and of complex numbers.

SciPy asks a statistic for its signature, which extension functions do not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hologram import _hologram
from hologram._elementwise import name_of
from hologram._hologram import Tensor, rows
from hologram._hologram import reductions as _table
from hologram._lazy import through_numpy

__all__ = ["all", "any", "argmax", "argmin", "max", "mean", "min", "nansum", "prod", "sum"]

_Axis = int | tuple[int, ...] | None
_COMPLEX = ("complex64", "complex128")


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
        return reduce(x, axis, dtype, out, keepdims)

    return _named(function, name)


def _without_dtype(name: str) -> Callable[..., Tensor]:
    reduce = getattr(_table, name)

    def function(
        x: Any, axis: _Axis = None, out: Tensor | None = None, keepdims: bool = False
    ) -> Tensor:
        return reduce(x, axis, out, keepdims)

    return _named(function, name)


def _of_truths(name: str) -> Callable[..., Tensor]:
    reduce = getattr(_table, name)

    def function(
        x: Any, axis: _Axis = None, out: Tensor | None = None, keepdims: bool = False
    ) -> Tensor:
        x = _hologram.asarray(x)
        return reduce(rows.ne(x, 0) if name_of(x) in _COMPLEX else x, axis, out, keepdims)

    return _named(function, name)


sum, mean, nansum = map(_with_dtype, ("sum", "mean", "nansum"))
min, max, argmin, argmax = map(_without_dtype, ("min", "max", "argmin", "argmax"))
all, any = map(_of_truths, ("all", "any"))


def prod(
    x: Any,
    axis: _Axis = None,
    dtype: Any = None,
    out: Tensor | None = None,
    keepdims: bool = False,
) -> Tensor:
    """Return the product, see `Tensor.prod`; that of complex numbers is NumPy's."""
    x = _hologram.asarray(x)
    if name_of(x) in _COMPLEX or (dtype is not None and str(dtype) in _COMPLEX):
        return through_numpy("prod", x, axis, dtype, out, keepdims)
    return x.prod(axis, dtype, out, keepdims)
