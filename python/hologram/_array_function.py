# SPDX-License-Identifier: MIT
"""NumPy's functions on tensors: ``__array_function__``.

A function of NumPy that hologram has is recorded like the method of the same name. Every other one
runs by NumPy on the tensors' memory, and its arrays come back as tensors (see `_host`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from hologram import (
    _creation,
    _einsum,
    _elementwise,
    _hologram,
    _host,
    _manipulation,
    _searching,
)
from hologram._hologram import Buffer, Tensor, rows

__all__ = ["call", "dot"]

_Function = Callable[..., Any]
_GIVEN = np._NoValue  # what NumPy's own signatures have where nothing is given
_recorded: dict[Any, _Function] = {}


def _records(*functions: Any) -> Callable[[_Function], _Function]:
    """Make a function the answer to some of NumPy's. It gives NotImplemented where NumPy has to."""

    def note(function: _Function) -> _Function:
        for one in functions:
            _recorded[one] = function
        return function

    return note


def _known(types: Any) -> bool:
    return all(
        issubclass(t, (Tensor, Buffer, np.ndarray, np.generic))
        or not hasattr(t, "__array_function__")
        for t in types
    )


def _is_subclass(types: Any) -> bool:
    # Masked arrays and the like have rules of their own.
    return any(issubclass(t, np.ndarray) and t is not np.ndarray for t in types)


@lru_cache(64)
def _verdict(types: tuple[type, ...]) -> tuple[bool, bool]:
    return _known(types), _is_subclass(types)


def call(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Answer ``__array_function__`` of a Tensor."""
    known, is_subclass = _verdict(tuple(types))
    if not known:
        return NotImplemented
    if not is_subclass:
        recorded = _recorded.get(func)
        if recorded is not None:
            try:
                found = recorded(*args, **kwargs)
            except _REFUSALS as error:
                if func is np.tile and not isinstance(error, _Numpys):
                    raise  # NumPy may end the process
                # NumPy does it, or says in its own way what is wrong.
                found = NotImplemented
            if found is not NotImplemented:
                return found
    module = getattr(func, "__module__", "numpy")
    return _host.call(f"{module}.{func.__name__}", func, *args, **kwargs)


class _Numpys(Exception):
    """Raised inside of a recorded function where only NumPy knows the answer."""


_REFUSALS = (_Numpys, TypeError, ValueError, IndexError, OverflowError)


def _tensor(x: Any) -> Tensor:
    if isinstance(x, Tensor):
        return x
    try:
        return _hologram._as_tensor(x)
    except TypeError as error:
        raise _Numpys from error


def _tensor_out(out: Any) -> bool:
    return out is None or isinstance(out, Tensor)


# --- Reductions -----------------------------------------------------------------------------------


_PLAIN = ("axis", "out", "keepdims")
_WITH_DTYPE = ("axis", "dtype", "out", "keepdims")
_SPREAD = ("axis", "dtype", "out", "ddof", "keepdims", "correction")


def _reduces(function: Any, name: str, names: tuple[str, ...]) -> None:
    """Record a reduction as the method of tensors, with NumPy's arguments in this order."""

    def reduce(a: Any, /, *args: Any, **options: Any) -> Any:
        if len(args) > len(names):
            return NotImplemented
        options.update(zip(names, args, strict=False))
        given = {key: value for key, value in options.items() if value is not _GIVEN}
        # initial=, where= and mean= are NumPy's.
        if not set(given) <= set(names) or not _tensor_out(given.get("out")):
            return NotImplemented
        if "keepdims" in given:
            given["keepdims"] = bool(given["keepdims"])
        return getattr(_tensor(a), name)(**given)

    _recorded[function] = reduce


_reduces(np.sum, "sum", _WITH_DTYPE)
_reduces(np.prod, "prod", _WITH_DTYPE)
_reduces(np.mean, "mean", _WITH_DTYPE)
_reduces(np.max, "max", _PLAIN)
_reduces(np.min, "min", _PLAIN)
_reduces(np.any, "any", _PLAIN)
_reduces(np.all, "all", _PLAIN)
_reduces(np.argmax, "argmax", _PLAIN)
_reduces(np.argmin, "argmin", _PLAIN)
_reduces(np.var, "var", _SPREAD)
_reduces(np.std, "std", _SPREAD)


@_records(np.cumsum)
def _cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return _tensor(a).cumsum(axis, dtype, out) if _tensor_out(out) else NotImplemented


@_records(np.count_nonzero)
def _count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return _searching.count_nonzero(_tensor(a), axis=axis, keepdims=keepdims)


# --- Elements -------------------------------------------------------------------------------------


@_records(np.where)
def _where(condition: Any, x: Any = _GIVEN, y: Any = _GIVEN, /) -> Any:
    if x is _GIVEN and y is _GIVEN:
        return _tensor(condition).nonzero()
    if x is _GIVEN or y is _GIVEN:
        return NotImplemented
    return rows.where(_number_or_tensor(condition), _number_or_tensor(x), _number_or_tensor(y))


def _number_or_tensor(x: Any) -> Any:
    return x if type(x) in (bool, int, float) else _tensor(x)


@_records(np.nonzero)
def _nonzero(a: Any) -> Any:
    return _tensor(a).nonzero()


@_records(np.flatnonzero)
def _flatnonzero(a: Any) -> Any:
    return _tensor(a).ravel().nonzero()[0]


def _along(a: Any, index: Any, axis: Any) -> Any:
    x = _tensor(a)
    if axis is None:
        return x.ravel()[index]
    return x[(slice(None),) * _manipulation.axis_of(axis, x.ndim, "axis") + (index,)]


@_records(np.take)
def _take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
    # NumPy casts bool to positions, and refuses uint64.
    is_plain = isinstance(indices, (Tensor, np.ndarray)) and indices.ndim > 0
    if out is not None or mode != "raise" or not is_plain:
        return NotImplemented
    if not np.can_cast(indices.dtype, np.int64) or indices.dtype == np.bool_:
        return NotImplemented
    return _along(a, indices, axis)


@_records(np.compress)
def _compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    mask = _tensor(condition)
    if out is not None or mask.ndim != 1 or mask.dtype != np.bool_:
        return NotImplemented
    return _along(a, mask, axis)  # NumPy takes masks that are too short


@_records(np.clip)
def _clip(
    a: Any,
    a_min: Any = _GIVEN,
    a_max: Any = _GIVEN,
    out: Any = None,
    *,
    min: Any = _GIVEN,
    max: Any = _GIVEN,
    **options: Any,
) -> Any:
    # Both or none, by one pair of names.
    if (a_min is _GIVEN) != (a_max is _GIVEN):
        return NotImplemented
    if a_min is not _GIVEN and not (min is _GIVEN and max is _GIVEN):
        return NotImplemented
    low = min if a_min is _GIVEN else a_min
    high = max if a_max is _GIVEN else a_max
    if options or not _tensor_out(out):
        return NotImplemented
    low, high = (None if x is _GIVEN or x is None else _number_or_tensor(x) for x in (low, high))
    if _tensor(a)._dtype_name.startswith("complex"):
        return NotImplemented
    return _elementwise.clip(_tensor(a), low, high, out=out)


@_records(np.round, np.around)
def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    if decimals != 0 or not _tensor_out(out) or _tensor(a)._dtype_name == "bool":
        return NotImplemented
    return rows.round(_tensor(a), out=out)


@_records(np.real)
def _real(val: Any) -> Any:
    return _elementwise.real(_tensor(val))


@_records(np.imag)
def _imag(val: Any) -> Any:
    return _elementwise.imag(_tensor(val))


@_records(np.copy)
def _copy(a: Any, order: Any = None, subok: bool = False) -> Any:
    return _hologram.array(_tensor(a), order=order)


# --- Making ---------------------------------------------------------------------------------------


def _likes(function: Any, make: Callable[..., Tensor], takes_value: bool = False) -> None:
    def like(a: Any, *args: Any, **options: Any) -> Any:
        names = ("fill_value",) * takes_value + ("dtype", "order", "subok", "shape")
        options.update(zip(names, args, strict=False))
        device = options.pop("device", None)
        options.pop("subok", None)
        if device not in (None, "cpu"):
            return NotImplemented
        order = options.pop("order", None)  # without one, row-major
        x = _tensor(a)
        dtype, shape = options.pop("dtype", None), options.pop("shape", None)
        value = (options.pop("fill_value"),) if takes_value else ()
        dtype = x.dtype if dtype is None else dtype
        try:
            return _creation.like(
                lambda sizes: make(sizes, *value, dtype, **options), x, shape, order
            )
        except (TypeError, OverflowError) as error:
            raise _Numpys from error

    _recorded[function] = like


_likes(np.zeros_like, _hologram.zeros)
_likes(np.ones_like, _hologram.ones)
_likes(np.empty_like, _hologram.empty)
_likes(np.full_like, _hologram.full, takes_value=True)


# --- Shapes ---------------------------------------------------------------------------------------


@_records(np.shape)
def _shape(a: Any) -> Any:
    return a.shape if isinstance(a, Tensor) else NotImplemented


@_records(np.ndim)
def _ndim(a: Any) -> Any:
    return a.ndim if isinstance(a, Tensor) else NotImplemented


@_records(np.size)
def _size(a: Any, axis: Any = None) -> Any:
    if not isinstance(a, Tensor):
        return NotImplemented
    if axis is None:
        return a.size
    count = 1
    for at in _manipulation.axes_of(axis, a.ndim, "size"):
        count *= a.shape[at]
    return count


@_records(np.iscomplexobj)
def _iscomplexobj(x: Any) -> Any:
    return x._dtype_name.startswith("complex") if isinstance(x, Tensor) else NotImplemented


@_records(np.isrealobj)
def _isrealobj(x: Any) -> Any:
    return not x._dtype_name.startswith("complex") if isinstance(x, Tensor) else NotImplemented


@_records(np.reshape)
def _reshape(
    a: Any, /, shape: Any = None, order: Any = "C", *, newshape: Any = None, copy: Any = None
) -> Any:
    shape = newshape if shape is None else shape
    if shape is None:
        return NotImplemented
    return _manipulation.reshape(_tensor(a), shape, order, copy=copy)


@_records(np.ravel)
def _ravel(a: Any, order: Any = "C") -> Any:
    return _tensor(a).ravel(order)


@_records(np.transpose)
def _transpose(a: Any, axes: Any = None) -> Any:
    if axes is None:
        return _tensor(a).transpose()
    axes = (axes,) if isinstance(axes, int) else axes
    return _manipulation.permute_dims(_tensor(a), axes)


@_records(np.matrix_transpose)
def _matrix_transpose(x: Any, /) -> Any:
    return _tensor(x).mT


@_records(np.swapaxes)
def _swapaxes(a: Any, axis1: Any, axis2: Any) -> Any:
    return _tensor(a).swapaxes(axis1, axis2)


@_records(np.moveaxis)
def _moveaxis(a: Any, source: Any, destination: Any) -> Any:
    return _manipulation.moveaxis(_tensor(a), source, destination)


@_records(np.squeeze)
def _squeeze(a: Any, axis: Any = None) -> Any:
    return _manipulation.squeeze(_tensor(a), axis)


@_records(np.expand_dims)
def _expand_dims(a: Any, axis: Any) -> Any:
    return _manipulation.expand_dims(_tensor(a), axis=axis)


@_records(np.broadcast_to)
def _broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    return _manipulation.broadcast_to(_tensor(array), shape)


@_records(np.broadcast_arrays)
def _broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    return tuple(_manipulation.broadcast_arrays(*map(_tensor, args)))


def _at_least(function: Any, ndim: int) -> None:
    def grow(*arrays: Any) -> Any:
        found = []
        for array in arrays:
            x = _tensor(array)
            while x.ndim < ndim:
                # A vector is a row of a matrix, a matrix the first of several behind one another.
                x = x.unsqueeze(0 if x.ndim < 2 else 2)
            found.append(x)
        return found[0] if len(found) == 1 else tuple(found)

    _recorded[function] = grow


_at_least(np.atleast_1d, 1)
_at_least(np.atleast_2d, 2)
_at_least(np.atleast_3d, 3)


@_records(np.flip)
def _flip(m: Any, axis: Any = None) -> Any:
    return _manipulation.flip(_tensor(m), axis=axis)


@_records(np.roll)
def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    if not isinstance(shift, (int, np.integer)) or isinstance(axis, (tuple, list)):
        return NotImplemented
    return _manipulation.roll(_tensor(a), int(shift), axis=axis)


@_records(np.diff)
def _diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = _GIVEN, append: Any = _GIVEN) -> Any:
    ends = (None if x is _GIVEN else _tensor(x) for x in (prepend, append))
    return _searching.diff(
        _tensor(a), axis=axis, n=n, **dict(zip(("prepend", "append"), ends, strict=True))
    )


@_records(np.tile)
def _tile(A: Any, reps: Any) -> Any:
    return _manipulation.tile(_tensor(A), reps)


# --- Joining --------------------------------------------------------------------------------------


def _join(parts: list[Tensor], axis: int | None, out: Any, dtype: Any) -> Any:
    if axis is None:
        parts, axis = [x.ravel() for x in parts], 0
    if out is not None:
        return NotImplemented
    if dtype is not None:
        if not all(np.can_cast(x.dtype, dtype, "same_kind") for x in parts):
            return NotImplemented
        parts = [x.astype(dtype, copy=False) for x in parts]
    return _hologram.cat(parts, operator.index(axis))


@_records(np.concatenate, np.concat)
def _concatenate(
    arrays: Any,
    /,
    axis: int | None = 0,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: str = "same_kind",
) -> Any:
    return (
        NotImplemented
        if casting != "same_kind"
        else _join([_tensor(x) for x in arrays], axis, out, dtype)
    )


@_records(np.stack)
def _stack(
    arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    parts = [_tensor(x) for x in arrays]
    if casting != "same_kind" or not parts:
        return NotImplemented
    if any(x.shape != parts[0].shape for x in parts):
        raise ValueError("all input arrays must have the same shape")
    at = _manipulation.axis_of(axis, parts[0].ndim + 1, "stack")
    return _join([x.unsqueeze(at) for x in parts], at, out, dtype)


@_records(np.vstack)
def _vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    if casting != "same_kind":
        return NotImplemented
    parts = [_recorded[np.atleast_2d](x) for x in tup]
    return _join(parts, 0, None, dtype) if parts else NotImplemented


@_records(np.hstack)
def _hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    parts = [_recorded[np.atleast_1d](x) for x in tup]
    if casting != "same_kind" or not parts:
        return NotImplemented
    return _join(parts, 0 if parts[0].ndim == 1 else 1, None, dtype)


# --- Products -------------------------------------------------------------------------------------


@_records(np.dot)
def dot(a: Any, b: Any, out: Any = None) -> Any:
    """Answer ``numpy.dot``."""
    x, y = _tensor(a), _tensor(b)
    if not _tensor_out(out):
        return NotImplemented
    if x.ndim == 0 or y.ndim == 0:
        return rows.mul(x, y, out=out)
    if out is not None or y.ndim > 2:
        return _host.run(np.dot, x, y, out)
    return x @ y


@_records(np.inner)
def _inner(a: Any, b: Any, /) -> Any:
    x, y = _tensor(a), _tensor(b)
    if x.ndim == 0 or y.ndim == 0:
        return rows.mul(x, y)
    return x @ (y.mT if y.ndim == 2 else y) if y.ndim <= 2 else NotImplemented


@_records(np.outer)
def _outer(a: Any, b: Any, out: Any = None) -> Any:
    if not _tensor_out(out):
        return NotImplemented
    return rows.mul(_tensor(a).ravel().unsqueeze(1), _tensor(b).ravel(), out=out)


@_records(np.tensordot)
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    from hologram import linalg

    return linalg.tensordot(_tensor(a), _tensor(b), axes=axes)


@_records(np.einsum)
def _einsum_of(subscripts: Any, /, *operands: Any, out: Any = None, **options: Any) -> Any:
    if not isinstance(subscripts, str) or not _tensor_out(out) or set(options) - {"optimize"}:
        return NotImplemented
    try:
        found = _einsum.einsum(subscripts, [_tensor(x) for x in operands])
    except _einsum.Unparsed:
        return NotImplemented
    if out is None:
        return found
    if out.shape != found.shape or not np.can_cast(found.dtype, out.dtype, "safe"):
        return NotImplemented
    out[...] = found
    return out


# --- Answered without this module where the arguments are plain -----------------------------------

for _name in "dot zeros_like ones_like empty_like flip concatenate where".split():
    _hologram._note_function(getattr(np, _name), _name)
_hologram._note_function(np.linalg.norm, "norm")
for _name in (
    "sum prod mean max min any all argmax argmin var std cumsum copy reshape transpose"
).split():
    _hologram._note_function(getattr(np, _name), _name)
for _name in "shape ndim size".split():
    _hologram._note_function(getattr(np, _name), _name, is_attribute=True)
