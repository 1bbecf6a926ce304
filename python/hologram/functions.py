# SPDX-License-Identifier: MIT
"""Functions of tensors: reductions, softmax, products, joins. Those of the tables are in _rows.

They take Tensors, arrays and numbers. What is deferred, and how dtypes and shapes combine, is as
for the operators of `hologram.Tensor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hologram._hologram import Tensor, _operand, cat

_Axis = int | tuple[int, ...] | None


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
    return _operand(x).var(axis, dtype, out, ddof, keepdims, correction=correction)


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
    return _operand(x).std(axis, dtype, out, ddof, keepdims, correction=correction)


def logsumexp(x: Any, axis: _Axis = None, keepdims: bool = False) -> Tensor:
    """Return log(sum(exp(x))) without overflow, see `Tensor.logsumexp`."""
    return _operand(x).logsumexp(axis, None, keepdims)


def norm(x: Any, axis: _Axis = None, p: float = 2, keepdims: bool = False) -> Tensor:
    """Return the p-norm, see `Tensor.norm`."""
    return _operand(x).norm(axis, p, keepdims)


def cumsum(x: Any, axis: int | None = None, dtype: Any = None, out: Tensor | None = None) -> Tensor:
    """Return the sums up to each element, see `Tensor.cumsum`."""
    return _operand(x).cumsum(axis, dtype, out)


def softmax(x: Any, axis: int = -1) -> Tensor:
    """Return exp(x) / sum(exp(x)) along a dimension, see `Tensor.softmax`."""
    return _operand(x).softmax(axis)


def log_softmax(x: Any, axis: int = -1) -> Tensor:
    """Return x - log(sum(exp(x))) along a dimension, see `Tensor.log_softmax`."""
    return _operand(x).log_softmax(axis)


def matmul(x: Any, y: Any) -> Tensor:
    """Return the matrix product, see `Tensor.matmul`."""
    return _operand(x).matmul(y)


def stack(tensors: Sequence[Any], axis: int = 0) -> Tensor:
    """Return the Tensors, all of one shape, joined along a new dimension.

    Raises:
        ValueError: there are none, or their shapes differ.
    """
    parts = [_operand(x) for x in tensors]
    if len({x.shape for x in parts}) > 1:
        shapes = ", ".join(str(x.shape) for x in parts)
        raise ValueError(f"stack: the shapes differ: {shapes}; reshape or expand them first")
    if parts and axis < 0:
        axis += parts[0].ndim + 1
    return cat([x.unsqueeze(axis) for x in parts], axis)


__all__ = [
    "cat",
    "cumsum",
    "log_softmax",
    "logsumexp",
    "matmul",
    "norm",
    "softmax",
    "stack",
    "std",
    "var",
]
