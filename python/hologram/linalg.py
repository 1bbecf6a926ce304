# SPDX-License-Identifier: MIT
"""Linear algebra: the extension ``linalg`` of the array API standard 2024.12.

Products are recorded. Decompositions and what is made of them are LAPACK's, called through NumPy
on the same memory, without a copy. float32, float64, complex64 and complex128; leading dimensions
are a batch. Where a matrix is singular or an iteration does not end, `numpy.linalg.LinAlgError`.
"""

from __future__ import annotations

from typing import Any

from hologram import _hologram
from hologram._elementwise import conj, name_of
from hologram._hologram import Tensor
from hologram._lazy import numpys, through_numpy
from hologram._manipulation import axis_of, matrix_transpose
from hologram.functions import matmul

__all__ = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


cholesky = numpys(
    "linalg.cholesky(x, /, *, upper=False)",
    "Return L of x = L L^H, lower triangular, or U of x = U^H U, of positive definite matrices.",
)
det = numpys("linalg.det(x, /)", "Return the determinants of square matrices.")
diagonal = numpys(
    "linalg.diagonal(x, /, *, offset=0)",
    "Return the diagonals of matrices: read-only views, `offset` columns to the right.",
)
eigh = numpys(
    "linalg.eigh(x, /)",
    """Return eigenvalues, in ascending order, and eigenvectors of Hermitian matrices.

    A named tuple: eigenvalues, eigenvectors in columns. The lower triangle is read.
    """,
)
eigvalsh = numpys(
    "linalg.eigvalsh(x, /)", "Return the eigenvalues of Hermitian matrices in ascending order."
)
inv = numpys("linalg.inv(x, /)", "Return the inverses of square matrices.")
matrix_norm = numpys(
    'linalg.matrix_norm(x, /, *, keepdims=False, ord="fro")',
    "Return the norms of matrices: 'fro', 'nuc', 1, 2, inf, or the negative of a number.",
)
matrix_power = numpys(
    "linalg.matrix_power(x, n, /)",
    "Return square matrices to a whole power; negative ones are powers of the inverse.",
)
matrix_rank = numpys(
    "linalg.matrix_rank(x, /, *, rtol=None)",
    """Return how many singular values are above rtol times the largest.

    By default rtol is max(M, N) times the dtype's eps.
    """,
)
pinv = numpys(
    "linalg.pinv(x, /, *, rtol=None)",
    "Return the Moore-Penrose inverses; singular values below rtol times the largest are 0.",
)
slogdet = numpys(
    "linalg.slogdet(x, /)",
    "Return sign and logarithm of the size of the determinants, as a named tuple.",
)
solve = numpys(
    "linalg.solve(x1, x2, /)",
    "Return X of x1 X = x2; x2 is a vector where it has one dimension, else matrices.",
    arrays=2,
)
svd = numpys(
    "linalg.svd(x, /, *, full_matrices=True)",
    "Return U, S and Vh of x = U diag(S) Vh, S descending, as a named tuple.",
)
svdvals = numpys("linalg.svdvals(x, /)", "Return the singular values in descending order.")
vector_norm = numpys(
    "linalg.vector_norm(x, /, *, axis=None, keepdims=False, ord=2)",
    "Return the p-norms over an axis, several, or all elements: (sum |x|^p)^(1/p).",
)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Return the cross products of vectors of three elements along `axis`; others broadcast."""
    x1, x2 = _hologram._operand(x1), _hologram._operand(x2)
    for x in (x1, x2):
        if x.shape[axis_of(axis, x.ndim, "cross")] != 3:
            raise ValueError(
                f"cross: vectors of 3 elements are needed along axis {axis}; the shapes are"
                f" {x1.shape} and {x2.shape}"
            )
    return through_numpy("cross", x1, x2, axis=axis)


def outer(x1: Any, x2: Any, /) -> Tensor:
    """Return x1[i] * x2[j] of two vectors."""
    x1, x2 = _hologram._operand(x1), _hologram._operand(x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ValueError(f"outer: two vectors are needed, not shapes {x1.shape} and {x2.shape}")
    return x1.unsqueeze(1) * x2


def qr(x: Any, /, *, mode: str = "reduced") -> Any:
    """Return Q with orthonormal columns and R upper triangular, x = Q R, as a named tuple.

    mode='complete' gives all M columns of Q, 'reduced' min(M, N).
    """
    if mode not in ("reduced", "complete"):
        raise ValueError(f"qr: mode is 'reduced' or 'complete', not {mode!r}")
    return through_numpy("linalg.qr", _hologram._operand(x), mode=mode)


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Tensor:
    """Return the sums of products over axes of both: the last of x1 and the first of x2, or given.

    `axes` is their number, or two sequences of axes that go together.

    Raises:
        ValueError: the sizes of axes that go together differ.
    """
    x1, x2 = _hologram._operand(x1), _hologram._operand(x2)
    if isinstance(axes, (tuple, list)):
        first, second = (
            tuple(side) if isinstance(side, (tuple, list)) else (side,) for side in axes
        )
    else:
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            raise ValueError(
                f"tensordot: {axes} axes do not fit arrays of {x1.ndim} and {x2.ndim} dimensions"
            )
        first, second = tuple(range(x1.ndim - axes, x1.ndim)), tuple(range(axes))
    first = tuple(axis_of(at, x1.ndim, "tensordot") for at in first)
    second = tuple(axis_of(at, x2.ndim, "tensordot") for at in second)
    sizes = tuple(x1.shape[at] for at in first)
    if sizes != tuple(x2.shape[at] for at in second):
        raise ValueError(
            f"tensordot: axes {first} of shape {x1.shape} and {second} of {x2.shape} have other"
            " sizes"
        )
    rest1 = tuple(at for at in range(x1.ndim) if at not in first)
    rest2 = tuple(at for at in range(x2.ndim) if at not in second)
    inner = 1
    for size in sizes:
        inner *= size
    outer1 = tuple(x1.shape[at] for at in rest1)
    outer2 = tuple(x2.shape[at] for at in rest2)
    a = x1.permute(rest1 + first).reshape((_count(outer1), inner))
    b = x2.permute(second + rest2).reshape((inner, _count(outer2)))
    return matmul(a, b).reshape(outer1 + outer2)


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Return the sums of the diagonals of matrices."""
    return diagonal(x, offset=offset).sum(-1, dtype=dtype)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """Return the sums of conj(x1) * x2 along an axis; the others broadcast.

    Raises:
        ValueError: the axis has other sizes.
    """
    x1, x2 = _hologram._operand(x1), _hologram._operand(x2)
    at = tuple(axis_of(axis, x.ndim, "vecdot") for x in (x1, x2))
    if x1.shape[at[0]] != x2.shape[at[1]]:
        raise ValueError(
            f"vecdot: axis {axis} has size {x1.shape[at[0]]} in one and {x2.shape[at[1]]} in the"
            " other"
        )
    if axis >= 0:
        # Counted from the end, so that it is the same axis behind broadcasting.
        axis = at[0] - x1.ndim
        if at[1] - x2.ndim != axis:
            raise ValueError("vecdot: count the axis from the end where the dimensions differ")
    x = x1 if name_of(x1) not in ("complex64", "complex128") else conj(x1)
    products = x * x2
    return (
        products.sum(axis, dtype=products.dtype)
        if name_of(products) != "bool"
        else products.any(axis)
    )
