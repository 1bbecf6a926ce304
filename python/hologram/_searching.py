# SPDX-License-Identifier: MIT
"""Searching, sorting, sets and running totals, as the array API standard 2024.12 has them."""

from __future__ import annotations

import operator
from typing import Any

from hologram import _hologram
from hologram._calls import tensor_functions as _calls
from hologram._hologram import Tensor, rows
from hologram._lazy import numpys, through_numpy
from hologram._manipulation import axis_of

__all__ = [
    "argsort",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "nonzero",
    "searchsorted",
    "sort",
    "take",
    "take_along_axis",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]

take_along_axis = numpys(
    "take_along_axis(x, indices, /, *, axis=-1)",
    """Return the elements at positions along an axis, each row with positions of its own.

    Raises:
        IndexError: a position is out of range.
    """,
    arrays=2,
)
unique_all = numpys(
    "unique_all(x, /)",
    """Return the distinct values, sorted, where each is first, where each element went, counts.

    A named tuple: values, indices, inverse_indices, counts.
    """,
)
unique_counts = numpys(
    "unique_counts(x, /)",
    "Return the distinct values, sorted, and how many there are of each, as a named tuple.",
)
unique_inverse = numpys(
    "unique_inverse(x, /)",
    "Return the distinct values, sorted, and where each element went, as a named tuple.",
)

_NOT_GIVEN: Any = object()


def count_nonzero(
    x: Any, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> Tensor:
    """Return how many elements are not 0, int64."""
    return rows.ne(_hologram._operand(x), 0).sum(axis, keepdims=keepdims)


def searchsorted(
    sorted: Any,
    values: Any,
    sorter: Any = None,
    *,
    side: str = "left",
    right: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return where each value goes into an array that is sorted along its last dimension, int64.

    side='left' gives the first place that keeps the order, 'right' (or right=True) the last;
    `sorter` are the positions that sort the array.

    Raises:
        ValueError: another side, or shapes that do not fit.
    """
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side is 'left' or 'right', not {side!r}")
    sorted, values = _hologram._operand(sorted), _hologram._operand(values)
    right = right or side == "right"
    if sorted.ndim == 1 and out is None:
        if sorter is not None:
            sorter = _hologram._operand(sorter)
        return through_numpy("searchsorted", sorted, values, "right" if right else "left", sorter)
    return _calls["searchsorted"](sorted, values, sorter, right=right, out=out)


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return a sorted copy; NaNs go last, first where descending."""
    x = _hologram._operand(x)
    found = through_numpy("sort", x, axis=axis, stable=stable)
    if descending and x.ndim:
        at = axis_of(axis, x.ndim, "sort")
        return found[(slice(None),) * at + (slice(None, None, -1),)].copy()
    return found


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the positions, int64, that sort along an axis; equal elements keep their order."""
    x = _hologram._operand(x)
    if not descending or not x.ndim:
        return through_numpy("argsort", x, axis=axis, stable=stable)
    # Backwards twice, so that equal elements keep their order.
    at = axis_of(axis, x.ndim, "argsort")
    back = (slice(None),) * at + (slice(None, None, -1),)
    found = through_numpy("argsort", x[back], axis=axis, stable=stable)
    return x.shape[at] - 1 - found[back]


def nonzero(x: Any, /) -> tuple[Tensor, ...]:
    """Return the positions of the elements that are not 0, one Tensor for each dimension.

    Raises:
        ValueError: `x` has no dimensions.
    """
    return _hologram._operand(x).nonzero()


def take(
    x: Any = _NOT_GIVEN,
    indices: Any = _NOT_GIVEN,
    *,
    axis: int | None = None,
    dim: int | None = None,
    out: Tensor | None = None,
    input: Any = _NOT_GIVEN,
    index: Any = _NOT_GIVEN,
) -> Tensor:
    """Return the slices at positions along an axis, the first unless another is named.

    Positions are integers of any shape; negative ones count from the end, but not where the axis is
    given as `dim`. `input` and `index` are other names of `x` and `indices`.

    Raises:
        IndexError: a position is out of range.
    """
    x = _hologram._operand(input if x is _NOT_GIVEN else x)
    indices = _hologram._operand(index if indices is _NOT_GIVEN else indices)
    if dim is not None:
        return _calls["take"](x, indices, dim=dim, out=out)
    at = axis_of(0 if axis is None else axis, x.ndim, "take")
    places = indices.astype("int64", copy=False)
    places = rows.where(rows.lt(places, 0), places + x.shape[at], places)
    return _calls["take"](x, places, dim=at, out=out)


def unique_values(x: Any, /) -> Tensor:
    """Return the distinct values, sorted; every NaN counts as one of its own."""
    # numpy.unique_values does not sort.
    return through_numpy("unique", _hologram._operand(x), equal_nan=False)


def _total(x: Any, axis: int | None, dtype: Any, include_initial: bool, name: str) -> Tensor:
    x = _hologram._operand(x)
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"{name}: an axis is needed for an array of {x.ndim} dimensions")
        axis = 0
    at = axis_of(axis, x.ndim, name)
    if name == "cumulative_sum":
        found, first = x.cumsum(at, dtype), 0
    else:
        found, first = through_numpy("cumprod", x, axis=at, dtype=dtype), 1
    if not include_initial:
        return found
    shape = (*x.shape[:at], 1, *x.shape[at + 1 :])
    return _hologram.cat([_hologram.full(shape, first, found.dtype), found], at)


def cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Return the sums up to each element along an axis, which arrays of one dimension need not say.

    include_initial puts a 0 in front.
    """
    return _total(x, axis, dtype, include_initial, "cumulative_sum")


def cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """Return the products up to each element along an axis; include_initial puts a 1 in front."""
    return _total(x, axis, dtype, include_initial, "cumulative_prod")


def diff(
    x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None
) -> Tensor:
    """Return the n-th differences of neighbours along an axis.

    prepend and append are arrays that go in front and behind first.

    Raises:
        ValueError: n is negative.
    """
    x = _hologram._operand(x)
    if operator.index(n) < 0:
        raise ValueError(f"diff: n is at least 0, not {n}")
    at = axis_of(axis, x.ndim, "diff")
    ends = [None if end is None else _hologram._operand(end) for end in (prepend, append)]
    ends = [
        end.expand((*x.shape[:at], 1, *x.shape[at + 1 :]))
        if end is not None and not end.ndim
        else end
        for end in ends
    ]
    parts = [part for part in (ends[0], x, ends[1]) if part is not None]
    found = _hologram.cat(parts, at) if len(parts) > 1 else x
    # Of one element there is no difference, and none of none.
    for _ in range(min(operator.index(n), found.shape[at] + 1)):
        size = max(found.shape[at] - 1, 0)
        after = found.narrow(at, found.shape[at] - size, size)
        before = found.narrow(at, 0, size)
        found = rows.ne(after, before) if x._dtype_name == "bool" else after - before
    return found.copy() if found is x else found
