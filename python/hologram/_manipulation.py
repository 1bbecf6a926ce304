# SPDX-License-Identifier: MIT
"""Functions that change shapes and order, as the array API standard 2024.12 has them.

They give views wherever that can be, and otherwise record copies; nothing is computed here.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from hologram import _hologram
from hologram._hologram import Tensor
from hologram._lazy import through_numpy

__all__ = [
    "broadcast_arrays",
    "broadcast_to",
    "concat",
    "expand_dims",
    "flip",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "tile",
    "unstack",
]


def axis_of(axis: Any, ndim: int, name: str) -> int:
    """Return an axis counted from the front.

    Raises:
        IndexError: it is out of range.
    """
    found = operator.index(axis)
    if not -ndim <= found < ndim:
        raise IndexError(f"{name}: axis {found} is out of range for an array of {ndim} dimensions")
    return found % ndim


def axes_of(axis: Any, ndim: int, name: str) -> tuple[int, ...]:
    """Return one axis or several, all for None, counted from the front.

    Raises:
        IndexError: one is out of range.
        ValueError: one is given twice.
    """
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(axis_of(one, ndim, name) for one in given)
    if len(set(axes)) != len(axes):
        raise ValueError(f"{name}: an axis is given twice in {axis}")
    return axes


def shape_of(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple of ints."""
    if isinstance(shape, (tuple, list)):
        return tuple(map(operator.index, shape))
    try:
        return (operator.index(shape),)
    except TypeError:
        return tuple(map(operator.index, shape))


def common_shape(shapes: Sequence[tuple[int, ...]], name: str) -> tuple[int, ...]:
    """Return the shape to which all broadcast.

    Raises:
        ValueError: they do not.
    """
    ndim = max(map(len, shapes), default=0)
    sizes = [1] * ndim
    for shape in shapes:
        for at, size in enumerate(shape, ndim - len(shape)):
            if size != 1:
                if sizes[at] not in (1, size):
                    shown = ", ".join(map(str, shapes))
                    raise ValueError(f"{name}: shapes {shown} cannot be broadcast together")
                sizes[at] = size
    return tuple(sizes)


def broadcast_to(x: Any, /, shape: Any) -> Tensor:
    """Return a read-only view of `x` repeated to a shape.

    Raises:
        ValueError: `x` does not broadcast to it.
    """
    x = _hologram._as_tensor(x)
    wanted = shape_of(shape)
    if any(size < 0 for size in wanted):
        raise ValueError(f"broadcast_to: the shape {wanted} has a negative size")
    return x.expand(wanted)


def broadcast_arrays(*arrays: Any) -> list[Tensor]:
    """Return read-only views of the arrays, repeated to their common shape.

    Raises:
        ValueError: they do not broadcast.
    """
    found = [_hologram._as_tensor(x) for x in arrays]
    shape = common_shape([x.shape for x in found], "broadcast_arrays")
    return [x if x.shape == shape else x.expand(shape) for x in found]


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Tensor:
    """Return the arrays joined along an axis, or, for None, their elements in row-major order.

    Raises:
        ValueError: there are none, or other sizes than that of the axis differ.
    """
    parts = [_hologram._as_tensor(x) for x in arrays]
    if axis is None:
        return _hologram.cat([x.ravel() for x in parts], 0)
    return _hologram.cat(parts, operator.index(axis))


def expand_dims(x: Any, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """Return a view with dimensions of size 1 more, at these axes of the result.

    Raises:
        IndexError: an axis is out of range.
    """
    x = _hologram._as_tensor(x)
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    for at in sorted(axes_of(axis, x.ndim + count, "expand_dims")):
        x = x.unsqueeze(at)
    return x


def flip(x: Any, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Return a view with the order of elements reversed along an axis, several, or all."""
    x = _hologram._as_tensor(x)
    axes = axes_of(axis, x.ndim, "flip")
    if x.ndim == 0:
        return x[()]  # as NumPy gives it: a scalar
    return x[(*(slice(None, None, -1 if at in axes else 1) for at in range(x.ndim)), ...)]


def matrix_transpose(x: Any, /) -> Tensor:
    """Return a view with the last two dimensions exchanged."""
    return _hologram._as_tensor(x).mT


def moveaxis(x: Any, source: Any, destination: Any, /) -> Tensor:
    """Return a view with axes moved to other places; the others keep their order.

    Raises:
        ValueError: as many of one as of the other are needed.
    """
    x = _hologram._as_tensor(x)
    from_ = axes_of(source, x.ndim, "moveaxis")
    to = axes_of(destination, x.ndim, "moveaxis")
    if len(from_) != len(to):
        raise ValueError(f"moveaxis: {len(from_)} axes do not go to {len(to)} places")
    order = [at for at in range(x.ndim) if at not in from_]
    for place, at in sorted(zip(to, from_, strict=True)):
        order.insert(place, at)
    return x.permute(tuple(order))


def permute_dims(x: Any, /, axes: tuple[int, ...]) -> Tensor:
    """Return a view with its dimensions in this order.

    Raises:
        ValueError: not every axis is there once.
    """
    x = _hologram._as_tensor(x)
    order = axes_of(tuple(axes), x.ndim, "permute_dims")
    if len(order) != x.ndim:
        raise ValueError(f"permute_dims: {len(order)} axes are given for {x.ndim} dimensions")
    return x.permute(order)


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Return each element several times along an axis, or in row-major order for None.

    Raises:
        ValueError: a count is negative, or their number does not fit the axis.
    """
    return through_numpy("repeat", _hologram._as_tensor(x), repeats, axis=axis)


def reshape(x: Any, /, shape: Any, order: str | None = None, *, copy: bool | None = None) -> Tensor:
    """Return `x` in another shape, row-major; one size may be -1.

    copy=True copies, False refuses to, None copies where a view cannot be. Elements are read and
    placed in row-major order, with the order 'F' in column-major order, with 'A' in that where `x`
    is column-major.

    Raises:
        ValueError: the number of elements differs, copy=False and only a copy would do, or another
            order.
    """
    x = _hologram._as_tensor(x)
    wanted = shape_of(shape)
    found = (x.copy(order or "C") if copy else x).reshape(wanted, order=order)
    if copy is False and not found._shares(x):
        raise ValueError(
            f"reshape: a copy is needed to give this layout the shape {wanted}; leave copy=False"
            " out"
        )
    return found


def roll(
    x: Any, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None
) -> Tensor:
    """Return `x` with elements moved along axes, those that fall off coming in at the start.

    Without an axis, elements move in row-major order.

    Raises:
        ValueError: as many shifts as axes are needed.
    """
    x = _hologram._as_tensor(x)
    if axis is None:
        return roll(x.reshape(-1), shift, axis=0).reshape(x.shape)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise ValueError(f"roll: {len(shifts)} shifts are given for {len(axes)} axes")
    moved = x
    for one, by in zip(axes, shifts, strict=True):
        at = axis_of(one, x.ndim, "roll")
        size = x.shape[at]
        by = operator.index(by) % size if size else 0
        if by:
            moved = _hologram.cat(
                [moved.narrow(at, size - by, by), moved.narrow(at, 0, size - by)], at
            )
    return moved.copy() if moved is x else moved


def squeeze(x: Any, /, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Return a view without dimensions of size 1.

    Raises:
        IndexError: an axis is out of range.
        ValueError: one of the axes has another size.
    """
    x = _hologram._as_tensor(x)
    return x.squeeze(None if axis is None else axes_of(axis, x.ndim, "squeeze"))


def tile(x: Any, repetitions: Any, /) -> Tensor:
    """Return `x` several times along each of its last dimensions."""
    x = _hologram._as_tensor(x)
    counts = shape_of(repetitions)
    counts = (1,) * (x.ndim - len(counts)) + counts
    sizes = (1,) * (len(counts) - x.ndim) + x.shape
    if any(count < 0 for count in counts):
        raise ValueError(f"tile: a count in {counts} is negative")
    if 0 in counts:
        return _hologram.empty(tuple(a * b for a, b in zip(counts, sizes, strict=True)), x.dtype)
    pairs = tuple(n for size in sizes for n in (1, size))
    spread = tuple(n for pair in zip(counts, sizes, strict=True) for n in pair)
    return (
        x.reshape(pairs)
        .expand(spread)
        .copy()
        .reshape(tuple(a * b for a, b in zip(counts, sizes, strict=True)))
    )


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the slices along an axis, views without it.

    Raises:
        IndexError: the axis is out of range.
    """
    x = _hologram._as_tensor(x)
    at = axis_of(axis, x.ndim, "unstack")
    return tuple(x.select(at, i) for i in range(x.shape[at]))
