# SPDX-License-Identifier: MIT
"""Ops of an executor on its buffers: ``op(ex, inputs..., out)``.

Every row of the op table is here by its name, those of arithmetic also as vector_add, scalar_mul
and so on; softmax, reductions, losses and products stand below. Ops are recorded and run, fused,
when a result is read: Buffer.to_numpy, np.asarray(buffer), Executor.synchronize. They
return None.
"""

from __future__ import annotations

from typing import Any

from hologram import _hologram
from hologram._hologram import Buffer, Executor, Tensor, _operand
from hologram._op_call_rows import *  # noqa: F403
from hologram._op_rows import *  # noqa: F403

_MSE, _BCE = 0, 4


def _tensor(ex: Executor, op: str, name: str, x: Any) -> Tensor:
    if not isinstance(ex, Executor):
        raise TypeError(f"ops.{op}: ex is an Executor, not {type(ex).__name__}")
    ex._check_open(op)
    if not isinstance(x, (Buffer, Tensor)):
        raise TypeError(
            f"ops.{op}: {name} is a Buffer or a Tensor, not {type(x).__name__};"
            " copy arrays into a Buffer with from_numpy"
        )
    return _operand(x)


def softmax(ex: Executor, x: Any, out: Any, axis: int = -1) -> None:
    """Out = exp(x) / sum(exp(x)) along `axis`.

    x and out have one shape and float dtypes. The result is within a few ULP in float32.
    """
    _hologram.into.softmax(_tensor(ex, "softmax", "x", x), _tensor(ex, "softmax", "out", out), axis)


def _reduction(name: str, number: int, doc: str) -> Any:
    op = f"reduce_{name}"

    def function(ex: Executor, x: Any, out: Any) -> None:
        _hologram.into.reduce(number, _tensor(ex, op, "x", x), _tensor(ex, op, "out", out))

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"out[0] = {doc}; of all elements of x."
    return function


# reduce_sum, reduce_max and so on: the rows of the table of reductions.
globals().update({f"reduce_{row[0]}": _reduction(*row) for row in _hologram.reductions._table})


def _point_loss(which: int, op: str, ex: Executor, pred: Any, target: Any, out: Any) -> None:
    p, t = _tensor(ex, op, "pred", pred), _tensor(ex, op, "target", target)
    _hologram.into.point_loss(which, p, t, _tensor(ex, op, "out", out), op)


def mse_loss(ex: Executor, pred: Any, target: Any, out: Any) -> None:
    """out[0] = the mean of (pred - target)^2.

    pred and target have one shape and float dtypes. An out of at least 3 elements also receives
    the sum in out[1] and the number of terms in out[2].
    """
    _point_loss(_MSE, "mse_loss", ex, pred, target, out)


def binary_cross_entropy_loss(ex: Executor, pred: Any, target: Any, out: Any) -> None:
    """out[0] = the mean of -(target log pred + (1 - target) log(1 - pred)); see `mse_loss`.

    Logarithms are not below -100.
    """
    _point_loss(_BCE, "binary_cross_entropy_loss", ex, pred, target, out)


def cross_entropy_loss(ex: Executor, pred: Any, target: Any, out: Any) -> None:
    """out[0] = the mean over the rows of -log softmax(pred)[target].

    pred holds logits [rows, classes] or [classes]; target holds class indices (int64, without the
    classes) or, of pred's shape and a float dtype, the probability of each class. out as for
    `mse_loss`. IndexError for an index that is no class.
    """
    op = "cross_entropy_loss"
    p, t = _tensor(ex, op, "pred", pred), _tensor(ex, op, "target", target)
    o = _tensor(ex, op, "out", out)
    if str(t.dtype).startswith("int") or str(t.dtype) == "uint8":
        _hologram.into.class_loss(p, t.astype("int64", copy=False), o)
    else:
        _hologram.into.soft_class_loss(p, t, o)


def _matrix(x: Tensor, op: str, name: str, rows: int | None, columns: int | None) -> Tensor:
    if rows is None or columns is None:
        if x.ndim != 2:
            raise ValueError(
                f"ops.{op}: {name} has shape {x.shape}; allocate it with two dimensions, or pass"
                " the sizes"
            )
        return x
    if x.size < rows * columns:
        raise ValueError(
            f"ops.{op}: {name} has {x.size} elements, and {rows} x {columns} are needed"
        )
    return x.ravel()[: rows * columns].reshape(rows, columns)


def gemm(
    ex: Executor,
    a: Any,
    b: Any,
    out: Any,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
) -> None:
    """Out = a @ b, for a of m x k, b of k x n and out of m x n elements, row-major, of one dtype.

    The sizes are those of the shapes, or given as m, n and k for buffers of one dimension, which
    may be longer. ValueError for sizes that do not fit.
    """
    x, y = _tensor(ex, "gemm", "a", a), _tensor(ex, "gemm", "b", b)
    _hologram.into.matmul(
        _matrix(x, "gemm", "a", m, k),
        _matrix(y, "gemm", "b", k, n),
        _matrix(_tensor(ex, "gemm", "out", out), "gemm", "out", m, n),
    )


def matvec(
    ex: Executor, a: Any, x: Any, out: Any, m: int | None = None, n: int | None = None
) -> None:
    """Out = a @ x, for a of m x n, x of n and out of m elements, of one dtype; sizes as `gemm`."""
    matrix = _matrix(_tensor(ex, "matvec", "a", a), "matvec", "a", m, n)
    rows, columns = matrix.shape
    vector, result = _tensor(ex, "matvec", "x", x), _tensor(ex, "matvec", "out", out)
    for name, found, needed in (("x", vector, columns), ("out", result, rows)):
        if found.size < needed or (m is None and found.size != needed):
            raise ValueError(
                f"ops.matvec: {name} has {found.size} elements, and a has shape {matrix.shape}"
            )
    _hologram.into.matmul(matrix, vector.ravel()[:columns], result.ravel()[:rows])
