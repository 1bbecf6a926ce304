# SPDX-License-Identifier: MIT
"""Reductions that the array API standard has for complex numbers, too."""

from __future__ import annotations

from typing import Any

from hologram import _hologram
from hologram._elementwise import name_of
from hologram._hologram import Tensor, rows
from hologram._lazy import through_numpy

__all__ = ["all", "any", "prod"]

_Axis = int | tuple[int, ...] | None
_COMPLEX = ("complex64", "complex128")


def _truths(x: Any) -> Tensor:
    x = _hologram.asarray(x)
    return rows.ne(x, 0) if name_of(x) in _COMPLEX else x


def all(x: Any, axis: _Axis = None, out: Tensor | None = None, keepdims: bool = False) -> Tensor:
    """Return whether no element is zero, see `Tensor.all`; NaN is not zero."""
    return _truths(x).all(axis, out, keepdims)


def any(x: Any, axis: _Axis = None, out: Tensor | None = None, keepdims: bool = False) -> Tensor:
    """Return whether some element is not zero, see `Tensor.any`; NaN is not zero."""
    return _truths(x).any(axis, out, keepdims)


def prod(
    x: Any,
    axis: _Axis = None,
    dtype: Any = None,
    out: Tensor | None = None,
    keepdims: bool = False,
) -> Tensor:
    """Return the product, see `Tensor.prod`. Products of complex numbers are NumPy's."""
    x = _hologram.asarray(x)
    if name_of(x) in _COMPLEX or (dtype is not None and str(dtype) in _COMPLEX):
        return through_numpy("prod", x, axis, dtype, out, keepdims)
    return x.prod(axis, dtype, out, keepdims)
