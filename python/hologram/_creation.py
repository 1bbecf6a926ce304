# SPDX-License-Identifier: MIT
"""Functions that make tensors, as the array API standard 2024.12 has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hologram import _hologram
from hologram._hologram import Tensor, asarray
from hologram._lazy import through_numpy
from hologram._manipulation import shape_of

__all__ = [
    "arange",
    "asarray",
    "empty",
    "empty_like",
    "eye",
    "from_dlpack",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "tril",
    "triu",
    "zeros",
    "zeros_like",
]

_NOT_GIVEN: Any = object()


def check_device(device: Any) -> None:
    """Raise ValueError unless `device` is None or the one that arrays are made on."""
    if device is None or device == "cpu":
        return
    raise ValueError(f"device {device!r} is not one that arrays are made on; use 'cpu' or None")


def _in_order(make: Callable[[Any], Tensor], shape: Any, order: Any) -> Tensor:
    """Return what `make` makes of a shape, row-major, or column-major where order is 'F'.

    Raises:
        TypeError: the order is not a string.
        ValueError: it is another one.
    """
    order = _hologram._order_of(order)
    if order not in (None, "C", "F"):
        raise ValueError(f"only 'C' or 'F' order is permitted, not {order!r}")
    sizes = shape_of(shape) if order == "F" else ()
    if len(sizes) < 2:
        return make(shape)
    return make(sizes[::-1])._laid_out(tuple(range(len(sizes) - 1, -1, -1)))


def like(make: Callable[[Any], Tensor], x: Tensor, shape: Any, order: Any) -> Tensor:
    """Return what `make` makes of a shape, in memory as `order` has it for an array like `x`.

    `shape` is None for that of `x`.

    Raises:
        TypeError: the order is not a string or None, which is 'C'.
        ValueError: it is not one of 'C', 'F', 'A' and 'K'.
    """
    sizes = x.shape if shape is None else shape_of(shape)
    order = _hologram._order_of(order)
    if order in (None, "C"):
        return make(sizes)
    dims: tuple[int, ...] = x._dims_in_order(order)
    if len(sizes) != x.ndim:  # then 'K' is 'C'
        is_columns = order == "F" or (order == "A" and x.ndim > 1 and dims[0] != 0)
        return _in_order(make, sizes, "F" if is_columns else "C")
    if dims == tuple(range(x.ndim)):
        return make(sizes)
    return make(tuple(sizes[dim] for dim in dims))._laid_out(dims)


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """Return a Tensor on the memory of `x`, see `Tensor.from_dlpack`.

    copy=True copies; None and False share the memory.
    """
    check_device(device)
    return Tensor.from_dlpack(x, copy=bool(copy))


def arange(
    start: Any,
    stop: Any = None,
    step: Any = 1,
    dtype: Any = None,
    *,
    device: str | None = None,
) -> Tensor:
    """Return the numbers from start (0 where only one is given) to before stop, by step.

    int64 where all are ints, else float64, unless `dtype` is given.
    """
    check_device(device)
    return _hologram.arange(start, stop, step, dtype)


def empty(
    shape: Any, dtype: Any = None, order: str | None = None, *, device: str | None = None
) -> Tensor:
    """Return a Tensor with undefined contents, float64 unless `dtype` is given.

    It is row-major, column-major where order is 'F'; ValueError for another one than 'C' and 'F'.
    """
    check_device(device)
    if order is not None:
        return _in_order(lambda sizes: _hologram.empty(sizes, dtype), shape, order)
    return _hologram.empty(shape, dtype)


def zeros(
    shape: Any, dtype: Any = None, order: str | None = None, *, device: str | None = None
) -> Tensor:
    """Return a Tensor of zeros, float64 unless `dtype` is given; order as of empty."""
    check_device(device)
    if order is not None:
        return _in_order(lambda sizes: _hologram.zeros(sizes, dtype), shape, order)
    return _hologram.zeros(shape, dtype)


def ones(
    shape: Any, dtype: Any = None, order: str | None = None, *, device: str | None = None
) -> Tensor:
    """Return a Tensor of ones, float64 unless `dtype` is given; order as of empty."""
    check_device(device)
    if order is not None:
        return _in_order(lambda sizes: _hologram.ones(sizes, dtype), shape, order)
    return _hologram.ones(shape, dtype)


def full(
    shape: Any,
    fill_value: Any = _NOT_GIVEN,
    dtype: Any = None,
    order: str | None = None,
    *,
    device: str | None = None,
    value: Any = _NOT_GIVEN,
) -> Tensor:
    """Return a Tensor of one value, in that value's dtype unless another is given.

    `value` is another name of `fill_value`; order as of empty.
    """
    check_device(device)
    value = value if fill_value is _NOT_GIVEN else fill_value
    return _in_order(lambda sizes: _hologram.full(sizes, value, dtype), shape, order)


def _like(
    make: Callable[..., Tensor],
    x: Any,
    dtype: Any,
    order: Any,
    shape: Any,
    device: str | None,
    *value: Any,
) -> Tensor:
    x = _hologram._as_tensor(x)
    dtype = x.dtype if dtype is None else dtype
    return like(lambda sizes: make(sizes, *value, dtype, device=device), x, shape, order)


def empty_like(
    x: Any,
    /,
    *,
    dtype: Any = None,
    order: str | None = None,
    shape: Any = None,
    device: str | None = None,
) -> Tensor:
    """Return a Tensor with undefined contents and the shape, and by default the dtype, of `x`.

    `shape` is another one. It is row-major, column-major with the order 'F'; 'A' is 'F' where `x`
    is column-major, and 'K' orders the dimensions in memory as those of `x` are.
    """
    return _like(empty, x, dtype, order, shape, device)


def zeros_like(
    x: Any,
    /,
    *,
    dtype: Any = None,
    order: str | None = None,
    shape: Any = None,
    device: str | None = None,
) -> Tensor:
    """Return zeros with the shape, and by default the dtype, of `x`.

    order and shape as of empty_like.
    """
    return _like(zeros, x, dtype, order, shape, device)


def ones_like(
    x: Any,
    /,
    *,
    dtype: Any = None,
    order: str | None = None,
    shape: Any = None,
    device: str | None = None,
) -> Tensor:
    """Return ones with the shape, and by default the dtype, of `x`.

    order and shape as of empty_like.
    """
    return _like(ones, x, dtype, order, shape, device)


def full_like(
    x: Any,
    /,
    fill_value: Any,
    *,
    dtype: Any = None,
    order: str | None = None,
    shape: Any = None,
    device: str | None = None,
) -> Tensor:
    """Return one value in the shape, and by default the dtype, of `x`.

    order and shape as of empty_like.
    """
    return _like(full, x, dtype, order, shape, device, fill_value)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: str | None = None,
) -> Tensor:
    """Return a matrix with ones on diagonal k, counted to the right, and zeros elsewhere."""
    n_cols = n_rows if n_cols is None else n_cols
    matrix = zeros((n_rows, n_cols), dtype, device=device)
    first = (max(-k, 0), max(k, 0))
    length = min(n_rows - first[0], n_cols - first[1])
    if length > 0:
        row, column = matrix.strides
        at = first[0] * row + first[1] * column
        matrix._strided((length,), (row + column,), at)[...] = 1
    return matrix


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: str | None = None,
    endpoint: bool = True,
) -> Tensor:
    """Return `num` evenly spaced numbers from start to stop, which is the last one or left out."""
    check_device(device)
    return through_numpy("linspace", start, stop, num, dtype=dtype, endpoint=endpoint)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Tensor]:
    """Return the coordinates of a grid, a Tensor for each of the arrays of one dimension.

    'ij' orders the dimensions as the arrays, 'xy' exchanges the first two.

    Raises:
        ValueError: another indexing, or arrays with more dimensions.
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing is 'xy' or 'ij', not {indexing!r}")
    axes = [_hologram._operand(x) for x in arrays]
    for x in axes:
        if x.ndim > 1:
            raise ValueError(f"meshgrid: arrays have one dimension, not the shape {x.shape}")
    order = list(range(len(axes)))
    if indexing == "xy" and len(axes) > 1:
        order[0], order[1] = 1, 0
    shape = [0] * len(axes)
    for at, x in zip(order, axes, strict=True):
        shape[at] = x.size
    grids = []
    for at, x in zip(order, axes, strict=True):
        place = [1] * len(axes)
        place[at] = x.size
        grids.append(x.reshape(tuple(place)).expand(tuple(shape)).copy())
    return grids


def _triangle(x: Any, k: int, name: str) -> Tensor:
    x = _hologram._operand(x)
    if x.ndim < 2:
        raise ValueError(f"{name}: a matrix is needed; the array has {x.ndim} dimensions")
    return through_numpy(name, x, k)


def tril(x: Any, /, *, k: int = 0) -> Tensor:
    """Return matrices with zeros above diagonal k."""
    return _triangle(x, k, "tril")


def triu(x: Any, /, *, k: int = 0) -> Tensor:
    """Return matrices with zeros below diagonal k."""
    return _triangle(x, k, "triu")
