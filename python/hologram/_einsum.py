# SPDX-License-Identifier: MIT
"""Einstein's notation: sums of products over named indices, two operands at a time.

Two operands that share indices which are summed are a product of matrices, or a product of elements
and a sum in one kernel where nothing else is left. The order of more than two is NumPy's greedy
one (`numpy.einsum_path`).
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np

from hologram import _hologram
from hologram._hologram import Tensor
from hologram.functions import matmul

__all__ = ["einsum"]


class Unparsed(Exception):
    """The subscripts are not understood here, or wrong: NumPy knows, and says what is wrong."""


# What follows from text and sizes alone is found once: a program asks for it again and again.
_remembered = lru_cache(256)


@_remembered
def _parse(subscripts: str, ndims: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """Return the indices of each operand and of the result, an index for each dimension."""
    text = subscripts.replace(" ", "")
    given, arrow, result = text.partition("->")
    inputs = given.split(",")
    if len(inputs) != len(ndims):
        raise Unparsed
    spare = [chr(at) for at in range(0x3B1, 0x3B1 + 64)]  # for the dimensions of an ellipsis
    most = max(
        (ndim - len(i.replace("...", "")) for i, ndim in zip(inputs, ndims, strict=True)
         if "..." in i), default=0
    )  # fmt: skip
    if most > len(spare):
        raise Unparsed
    names = []
    for indices, ndim in zip(inputs, ndims, strict=True):
        count = ndim - len(indices.replace("...", ""))
        if indices.count("...") > 1 or count < 0 or (count and "..." not in indices):
            raise Unparsed
        names.append(indices.replace("...", "".join(spare[most - count : most])))
    whole = "".join(spare[:most])
    if arrow:
        if result.count("...") > 1 or (most and "..." not in result):
            raise Unparsed
        result = result.replace("...", whole)
    else:
        counts = Counter("".join(inputs).replace(".", ""))
        result = whole + "".join(sorted(i for i, n in counts.items() if n == 1))
    known = set("".join(names))
    letters = known | set(result)
    if len(set(result)) != len(result) or not set(result) <= known:
        raise Unparsed
    if not all(i in spare or (i.isascii() and i.isalpha()) for i in letters):
        raise Unparsed
    return tuple(names), result


@_remembered
def _sizes(names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for indices, shape in zip(names, shapes, strict=True):
        for index, size in zip(indices, shape, strict=True):
            if sizes.setdefault(index, size) != size:
                if 1 not in (sizes[index], size):
                    raise Unparsed
                sizes[index] = max(sizes[index], size) if size and sizes[index] else 0
    return sizes


def _unique(x: Tensor, indices: str, sizes: dict[str, int]) -> tuple[Tensor, str]:
    """Return a view with each index once: the diagonal of those that are there twice."""
    whole = tuple(map(sizes.__getitem__, indices))
    if x.shape == whole and len(set(indices)) == len(indices):
        return x, indices
    once = "".join(dict.fromkeys(indices))
    shape, strides = [], []
    for index in once:
        at = [d for d, i in enumerate(indices) if i == index]
        if len(at) > 1 and len({x.shape[d] for d in at}) > 1:
            raise Unparsed
        shape.append(x.shape[at[0]])
        strides.append(sum(x.strides[d] for d in at))
    if once != indices:
        x = x._strided(tuple(shape), tuple(strides), 0)
    # A size of 1 is repeated.
    whole = tuple(sizes[index] for index in once)
    return (x if x.shape == whole else x.expand(whole)), once


def _sum(x: Tensor, indices: str, keep: str) -> tuple[Tensor, str]:
    gone = tuple(d for d, index in enumerate(indices) if index not in keep)
    if gone:
        # In the dtype of the operands, as products of matrices are.
        x = x.any(gone) if x._dtype_name == "bool" else x.sum(gone, dtype=x.dtype)
        indices = _shared(indices, keep)
    return x, indices


@_remembered
def _shared(indices: str, others: str) -> str:
    return "".join(index for index in indices if index in others)


@_remembered
def _others(indices: str, others: str) -> str:
    return "".join(index for index in indices if index not in others)


def _order(x: Tensor, indices: str, wanted: str) -> Tensor:
    return x if indices == wanted else x.permute(tuple(indices.index(i) for i in wanted))


def _pair(a: Tensor, i: str, b: Tensor, j: str, keep: str) -> tuple[Tensor, str]:
    """Contract two operands; `keep` are the indices that are needed later."""
    a, i = _sum(a, i, keep + j)
    b, j = _sum(b, j, keep + i)
    both, left, right = _shared(i, j), _others(i, j), _others(j, i)
    batch, inner = _shared(both, keep), _others(both, keep)
    a, b = _order(a, i, batch + left + inner), _order(b, j, batch + inner + right)
    n = len(batch)
    if inner and (left or right):
        count = 1
        for size in b.shape[n : n + len(inner)]:
            count *= size
        outer1, outer2 = a.shape[n : n + len(left)], b.shape[n + len(inner) :]
        x = a.reshape((*a.shape[:n], _product(outer1), count))
        y = b.reshape((*b.shape[:n], count, _product(outer2)))
        return matmul(x, y).reshape((*a.shape[:n], *outer1, *outer2)), batch + left + right
    x = a.reshape((*a.shape, *(1,) * len(right))) if right else a
    y = b.reshape((*b.shape[:n], *(1,) * len(left), *b.shape[n:])) if left else b
    return _sum(x * y, batch + left + inner + right, batch + left + right)


def _product(sizes: tuple[int, ...]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count


@_remembered
def _steps(
    names: tuple[str, ...], result: str, all_shapes: tuple[tuple[int, ...], ...]
) -> list[tuple[int, ...]]:
    """Return which operands are contracted in turn; what they give goes to the end."""
    if len(names) <= 2:
        return [tuple(range(len(names)))]
    plain = {index: chr(97 + at) for at, index in enumerate(dict.fromkeys("".join(names)))}
    if len(plain) > 26:
        raise Unparsed
    text = ",".join("".join(plain[i] for i in indices) for indices in names)
    text += "->" + "".join(plain[i] for i in result)
    # Shapes alone are looked at.
    shapes = [np.broadcast_to(np.empty(()), shape) for shape in all_shapes]
    return list(np.einsum_path(text, *shapes, optimize="greedy")[0][1:])


def _common_dtype(operands: list[Tensor]) -> Any:
    dtype = operands[0].dtype
    if all(x.dtype == dtype for x in operands):
        return dtype
    return _hologram.cat([_hologram.empty(0, x.dtype) for x in operands], 0).dtype


def einsum(subscripts: str, operands: list[Tensor]) -> Tensor:
    """Return the sums of products that `subscripts` name.

    Raises:
        Unparsed: NumPy is to be asked.
    """
    shapes = tuple(x.shape for x in operands)
    names, result = _parse(subscripts, tuple(map(len, shapes)))
    sizes = _sizes(names, shapes)
    steps = _steps(names, result, shapes)
    left = [_unique(x, i, sizes) for i, x in zip(names, operands, strict=True)]
    dtype = _common_dtype(operands)
    for step in steps:
        taken = [left[at] for at in step]
        left = [one for at, one in enumerate(left) if at not in step]
        keep = result + "".join(indices for _, indices in left)
        while len(taken) > 2:
            rest = keep + "".join(indices for _, indices in taken[2:])
            taken = [_pair(*taken[0], *taken[1], rest), *taken[2:]]
        left.append(_pair(*taken[0], *taken[1], keep) if len(taken) == 2 else taken[0])
    x, indices = left[0]
    x, indices = _sum(x, indices, result)
    found = _order(x, indices, result)
    return found if found.dtype == dtype else found.astype(dtype)
