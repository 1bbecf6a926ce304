# SPDX-License-Identifier: MIT
"""Functions of tensors that run on Hologram, for CPU tensors as well as for the device's.

Each takes an open :class:`hologram.Executor` first and is otherwise PyTorch's function of the same
name: the same arguments, shapes, dtypes, errors and gradients of any order. The result lies where
the inputs lie. Tensors of the device defer and fuse as they do everywhere. CPU tensors are shared
with the device without a copy, forward and backward; their results have their values when the call
returns, so a chain of calls on CPU tensors does not fuse.

>>> import torch, hologram_torch
>>> import hologram_torch.functional as HF
>>> with hologram_torch.Executor() as ex:
...     y = HF.relu(ex, HF.linear(ex, torch.randn(8, 4), torch.randn(2, 4)))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from hologram_torch import _C

if TYPE_CHECKING:
    from hologram import Executor

    Number = int | float | bool | complex

__all__ = [
    "abs",
    "add",
    "binary_cross_entropy",
    "clamp",
    "cross_entropy",
    "div",
    "gelu",
    "linear",
    "log_softmax",
    "matmul",
    "maximum",
    "minimum",
    "mse_loss",
    "mul",
    "neg",
    "relu",
    "sigmoid",
    "softmax",
    "sub",
    "tanh",
]

_run_with = _C._run_with
# As an object: to pass a keyword on costs PyTorch a quarter of a small op.
_ONE: Number = 1


# --- Arithmetic --------------------------------------------------------------------------------


def add(
    executor: Executor, input: Tensor, other: Tensor | Number, *, alpha: Number = _ONE
) -> Tensor:
    """Return ``input + alpha * other``, as ``torch.add``. Shapes broadcast, dtypes are promoted."""
    if alpha is _ONE:
        return _run_with(executor, torch.add, input, other)
    return _run_with(executor, torch.add, input, other, alpha=alpha)


def sub(
    executor: Executor, input: Tensor, other: Tensor | Number, *, alpha: Number = _ONE
) -> Tensor:
    """Return ``input - alpha * other``, as ``torch.sub``. Shapes broadcast, dtypes are promoted."""
    if alpha is _ONE:
        return _run_with(executor, torch.sub, input, other)
    return _run_with(executor, torch.sub, input, other, alpha=alpha)


def mul(executor: Executor, input: Tensor, other: Tensor | Number) -> Tensor:
    """Return ``input * other``, as ``torch.mul``. Shapes broadcast, dtypes are promoted."""
    return _run_with(executor, torch.mul, input, other)


def div(
    executor: Executor, input: Tensor, other: Tensor | Number, *, rounding_mode: str | None = None
) -> Tensor:
    """Return ``input / other``, as ``torch.div``; integers give floating numbers.

    ``rounding_mode`` 'trunc' or 'floor' rounds the quotient. Shapes broadcast, dtypes are promoted.
    """
    if rounding_mode is None:
        return _run_with(executor, torch.div, input, other)
    return _run_with(executor, torch.div, input, other, rounding_mode=rounding_mode)


def minimum(executor: Executor, input: Tensor, other: Tensor) -> Tensor:
    """Return the smaller of each two elements, as ``torch.minimum``; NaN wins.

    Gradients of equal elements are halved. Shapes broadcast; complex numbers have no order.
    """
    return _run_with(executor, torch.minimum, input, other)


def maximum(executor: Executor, input: Tensor, other: Tensor) -> Tensor:
    """Return the larger of each two elements, as ``torch.maximum``; NaN wins.

    Gradients of equal elements are halved. Shapes broadcast; complex numbers have no order.
    """
    return _run_with(executor, torch.maximum, input, other)


def abs(executor: Executor, input: Tensor) -> Tensor:
    """Return absolute values, as ``torch.abs``; of complex numbers the real magnitudes."""
    return _run_with(executor, torch.abs, input)


def neg(executor: Executor, input: Tensor) -> Tensor:
    """Return ``-input``, as ``torch.neg``; RuntimeError for bool."""
    return _run_with(executor, torch.neg, input)


def clamp(
    executor: Executor,
    input: Tensor,
    min: Tensor | Number | None = None,
    max: Tensor | Number | None = None,
) -> Tensor:
    """Limit elements to ``min`` and ``max``, as ``torch.clamp``; one of them may be None.

    Bounds are numbers or tensors that broadcast. Where ``min`` exceeds ``max``, ``max`` wins.
    """
    return _run_with(executor, torch.clamp, input, min, max)


# --- Activations -------------------------------------------------------------------------------


def relu(executor: Executor, input: Tensor, inplace: bool = False) -> Tensor:
    """Return ``max(input, 0)``, as ``torch.nn.functional.relu``.

    ``inplace=True`` writes ``input`` itself, a CPU tensor's own memory too, and returns it.
    """
    return _run_with(executor, F.relu, input, inplace)


def sigmoid(executor: Executor, input: Tensor) -> Tensor:
    """Return ``1 / (1 + exp(-input))``, as ``torch.sigmoid``; integers give floating numbers."""
    return _run_with(executor, torch.sigmoid, input)


def tanh(executor: Executor, input: Tensor) -> Tensor:
    """Return hyperbolic tangents, as ``torch.tanh``; integers give floating numbers."""
    return _run_with(executor, torch.tanh, input)


def gelu(executor: Executor, input: Tensor, *, approximate: str = "none") -> Tensor:
    """Return ``input * Phi(input)``, as ``torch.nn.functional.gelu``.

    ``approximate`` is 'none' or 'tanh'. Floating dtypes only.
    """
    return _run_with(executor, F.gelu, input, approximate=approximate)


def softmax(
    executor: Executor, input: Tensor, dim: int | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Return ``exp(input)`` over its sum along ``dim``, as ``torch.nn.functional.softmax``.

    ``dtype`` converts ``input`` first. Without ``dim`` PyTorch chooses one and warns.
    """
    return _run_with(executor, F.softmax, input, dim, 4, dtype)


def log_softmax(
    executor: Executor, input: Tensor, dim: int | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Return the logarithm of softmax along ``dim``, as ``torch.nn.functional.log_softmax``.

    ``dtype`` converts ``input`` first. Without ``dim`` PyTorch chooses one and warns.
    """
    return _run_with(executor, F.log_softmax, input, dim, 4, dtype)


# --- Products ----------------------------------------------------------------------------------


def linear(executor: Executor, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``input @ weight.T + bias``, as ``torch.nn.functional.linear``.

    ``input`` is [..., in], ``weight`` [out, in] or [in], ``bias`` [out]; the result is [..., out].
    """
    return _run_with(executor, F.linear, input, weight, bias)


def matmul(executor: Executor, input: Tensor, other: Tensor) -> Tensor:
    """Return the matrix product, as ``torch.matmul``: vectors, matrices and batches of them.

    [..., n, k] by [..., k, m] gives [..., n, m]; leading dimensions broadcast.
    """
    return _run_with(executor, torch.matmul, input, other)


# --- Losses ------------------------------------------------------------------------------------


def mse_loss(
    executor: Executor,
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return squared differences, as ``torch.nn.functional.mse_loss``.

    ``reduction`` is 'mean', 'sum' (a tensor without dimensions) or 'none'.
    """
    return _run_with(executor, F.mse_loss, input, target, size_average, reduce, reduction)


def cross_entropy(
    executor: Executor,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the cross entropy of logits, as ``torch.nn.functional.cross_entropy``.

    ``input`` is [classes] or [n, classes, ...]; ``target`` holds class indices, int64 of the same
    shape without classes, or probabilities of the same shape. ``weight`` is [classes].
    ``reduction`` is 'mean', 'sum' (a tensor without dimensions) or 'none'.
    """
    return _run_with(
        executor,
        F.cross_entropy,
        input,
        target,
        weight,
        size_average,
        ignore_index,
        reduce,
        reduction,
        label_smoothing,
    )


def binary_cross_entropy(
    executor: Executor,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the cross entropy of probabilities, as torch.nn.functional's.

    ``input`` lies between 0 and 1 (RuntimeError otherwise) and has ``target``'s shape.
    ``reduction`` is 'mean', 'sum' (a tensor without dimensions) or 'none'.
    """
    return _run_with(
        executor, F.binary_cross_entropy, input, target, weight, size_average, reduce, reduction
    )
