# SPDX-License-Identifier: MIT
"""Functions of tensors: reductions, softmax, products, joins. Those of the op table are in _rows.

They take Tensors, arrays and numbers. What is deferred, and how dtypes and shapes combine, is as
for the operators of `hologram.Tensor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hologram._hologram import Tensor, asarray, cat

_Axis = int | tuple[int, ...] | None


def sum(
    x: Any, axis: _Axis = None, dtype: Any = None, out: Tensor | None = None, keepdims: bool = False
) -> Tensor:
    """Return the sum of the elements, see `Tensor.sum`."""
    return asarray(x).sum(axis, dtype, out, keepdims)


def prod(
    x: Any, axis: _Axis = None, dtype: Any = None, out: Tensor | None = None, keepdims: bool = False
) -> Tensor:
    """Return the product of the elements, see `Tensor.prod`."""
    return asarray(x).prod(axis, dtype, out, keepdims)


def mean(
    x: Any, axis: _Axis = None, dtype: Any = None, out: Tensor | None = None, keepdims: bool = False
) -> Tensor:
    """Return the mean of the elements, see `Tensor.mean`."""
    return asarray(x).mean(axis, dtype, out, keepdims)


def min(x: Any, axis: _Axis = None, out: Tensor | None = None, keepdims: bool = False) -> Tensor:
    """Return the smallest element, see `Tensor.min`."""
    return asarray(x).min(axis, out, keepdims)


def max(x: Any, axis: _Axis = None, out: Tensor | None = None, keepdims: bool = False) -> Tensor:
    """Return the largest element, see `Tensor.max`."""
    return asarray(x).max(axis, out, keepdims)


def any(x: Any, axis: _Axis = None, out: Tensor | None = None, keepdims: bool = False) -> Tensor:
    """Return whether any element is not zero, see `Tensor.any`."""
    return asarray(x).any(axis, out, keepdims)


def all(x: Any, axis: _Axis = None, out: Tensor | None = None, keepdims: bool = False) -> Tensor:
    """Return whether no element is zero, see `Tensor.all`."""
    return asarray(x).all(axis, out, keepdims)


def argmin(
    x: Any, axis: int | None = None, out: Tensor | None = None, keepdims: bool = False
) -> Tensor:
    """Return the position of the smallest element, see `Tensor.argmin`."""
    return asarray(x).argmin(axis, out, keepdims)


def argmax(
    x: Any, axis: int | None = None, out: Tensor | None = None, keepdims: bool = False
) -> Tensor:
    """Return the position of the largest element, see `Tensor.argmax`."""
    return asarray(x).argmax(axis, out, keepdims)


def var(
    x: Any,
    axis: _Axis = None,
    dtype: Any = None,
    out: Tensor | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Return the variance, see `Tensor.var`."""
    return asarray(x).var(axis, dtype, out, ddof, keepdims, correction=correction)


def std(
    x: Any,
    axis: _Axis = None,
    dtype: Any = None,
    out: Tensor | None = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: float | None = None,
) -> Tensor:
    """Return the standard deviation, see `Tensor.std`."""
    return asarray(x).std(axis, dtype, out, ddof, keepdims, correction=correction)


def logsumexp(x: Any, axis: _Axis = None, keepdims: bool = False) -> Tensor:
    """Return log(sum(exp(x))) without overflow, see `Tensor.logsumexp`."""
    return asarray(x).logsumexp(axis, None, keepdims)


def norm(x: Any, axis: _Axis = None, p: float = 2, keepdims: bool = False) -> Tensor:
    """Return the p-norm, see `Tensor.norm`."""
    return asarray(x).norm(axis, p, keepdims)


def cumsum(x: Any, axis: int | None = None, dtype: Any = None, out: Tensor | None = None) -> Tensor:
    """Return the sums up to each element, see `Tensor.cumsum`."""
    return asarray(x).cumsum(axis, dtype, out)


def softmax(x: Any, axis: int = -1) -> Tensor:
    """Return exp(x) / sum(exp(x)) along a dimension, see `Tensor.softmax`."""
    return asarray(x).softmax(axis)


def log_softmax(x: Any, axis: int = -1) -> Tensor:
    """Return x - log(sum(exp(x))) along a dimension, see `Tensor.log_softmax`."""
    return asarray(x).log_softmax(axis)


def matmul(x: Any, y: Any) -> Tensor:
    """Return the matrix product, see `Tensor.matmul`."""
    return asarray(x).matmul(y)


def stack(tensors: Sequence[Any], axis: int = 0) -> Tensor:
    """Return the Tensors, all of one shape, joined along a new dimension.

    Raises:
        ValueError: there are none, or their shapes differ.
    """
    parts = [asarray(x) for x in tensors]
    if len({x.shape for x in parts}) > 1:
        shapes = ", ".join(str(x.shape) for x in parts)
        raise ValueError(f"stack: the shapes differ: {shapes}; reshape or expand them first")
    if parts and axis < 0:
        axis += parts[0].ndim + 1
    return cat([x.unsqueeze(axis) for x in parts], axis)


def from_dlpack(x: Any, *, copy: bool = False) -> Tensor:
    """Return a Tensor on the memory of `x`, see `Tensor.from_dlpack`."""
    return Tensor.from_dlpack(x, copy=copy)


__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "cat",
    "cumsum",
    "from_dlpack",
    "log_softmax",
    "logsumexp",
    "matmul",
    "max",
    "mean",
    "min",
    "norm",
    "prod",
    "softmax",
    "stack",
    "std",
    "sum",
    "var",
]
