# SPDX-License-Identifier: MIT
"""Methods of Tensor that are written in Python; python/src/methods.cc has their signatures."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

import hologram
from hologram import _array_function, _dtypes, _elementwise, _hologram, _host
from hologram._hologram import Tensor, rows
from hologram._numpy_faults import ask

_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


def __array_namespace__(x: Tensor, *, api_version: str | None = None) -> Any:
    if api_version is not None and api_version not in _VERSIONS:
        raise ValueError(
            f"version {api_version!r} of the array API is not followed; {_VERSIONS[-1]} is"
        )
    return hologram


def to_device(x: Tensor, device: str, /, *, stream: int | None = None) -> Tensor:
    if stream is not None:
        raise ValueError(f"to_device: host memory has no streams; stream={stream!r} is not one")
    if not isinstance(device, str):
        raise TypeError(f"to_device: device is a string, not {type(device).__name__}")
    if device != x.device:
        raise ValueError(f"to_device: the Tensor is on {x.device!r}, and {device!r} is no place")
    return x


def conj(x: Tensor) -> Tensor:
    return _elementwise.conj(x)


conjugate = conj


def real(x: Tensor) -> Tensor:
    return _elementwise.real(x)


def imag(x: Tensor) -> Tensor:
    return _elementwise.imag(x)


def set_real(x: Tensor, value: Any) -> None:
    _elementwise.real(x)[...] = value


def set_imag(x: Tensor, value: Any) -> None:
    if str(x.dtype) not in ("complex64", "complex128"):
        raise TypeError(f"a Tensor of {x.dtype} has no imaginary part to set")
    _elementwise.imag(x)[...] = value


class _Flat:
    """The elements of a Tensor in row-major order."""

    def __init__(self, x: Tensor) -> None:
        self._x = x

    def __len__(self) -> int:
        return self._x.size

    def __iter__(self) -> Any:
        return iter(self._x.ravel())

    def __getitem__(self, key: Any) -> Tensor:
        found: Tensor = self._x.ravel()[key]
        return found.copy()

    def __setitem__(self, key: Any, value: Any) -> None:
        array = _host.lent(self._x, "x.flat[i] = y")
        array.flat[_plain(key)] = _plain(value)

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> np.ndarray:
        return np.array(_host.array_of(self._x).ravel(), dtype=dtype)


def flat(x: Tensor) -> _Flat:
    return _Flat(x)


def set_flat(x: Tensor, value: Any) -> None:
    _Flat(x)[:] = value


def _plain(x: Any) -> Any:
    return _host.array_of(x) if isinstance(x, Tensor) else x


def clip(x: Tensor, min: Any = None, max: Any = None, out: Tensor | None = None) -> Tensor:
    return _elementwise.clip(x, min, max, out=out)


def round(x: Tensor, decimals: int = 0, out: Tensor | None = None) -> Tensor:
    if decimals == 0:
        return rows.round(x, out=out)
    return _host.run(np.round, x, decimals, out=out)


def cumprod(
    x: Tensor, axis: int | None = None, dtype: Any = None, out: Tensor | None = None
) -> Tensor:
    return _host.run(np.cumprod, x, axis=axis, dtype=dtype, out=out)


def _writable(x: Tensor, name: str) -> np.ndarray:
    if x.readonly:
        raise ValueError(
            f"{name}: the Tensor is read-only, as the memory that it was made from is; use a copy()"
        )
    return _host.lent(x, f"ndarray.{name}")


def sort(
    x: Tensor,
    axis: int = -1,
    kind: Any = None,
    order: None = None,
    *,
    stable: bool | None = None,
) -> None:
    _writable(x, "sort").sort(axis=axis, kind=kind, order=order, stable=stable)


def argsort(
    x: Tensor,
    axis: int | None = -1,
    kind: Any = None,
    order: None = None,
    *,
    stable: bool | None = None,
) -> Tensor:
    return _host.run(np.argsort, x, axis, kind, order, stable=stable)


def partition(x: Tensor, kth: Any, axis: int = -1, kind: Any = "introselect") -> None:
    _writable(x, "partition").partition(_plain(kth), axis=axis, kind=kind)


def argpartition(x: Tensor, kth: Any, axis: int | None = -1, kind: Any = "introselect") -> Tensor:
    return _host.run(np.argpartition, x, kth, axis, kind)


def searchsorted(x: Tensor, v: Any, side: Any = "left", sorter: Any = None) -> Tensor:
    return _host.run(np.searchsorted, x, v, side, sorter)


def take(
    x: Tensor,
    indices: Any,
    axis: int | None = None,
    out: Tensor | None = None,
    mode: Any = "raise",
) -> Tensor:
    return np.take(x, indices, axis, out, mode)  # type: ignore[call-overload,arg-type,no-any-return]


def put(x: Tensor, indices: Any, values: Any, mode: Any = "raise") -> None:
    ask(np.put, (_writable(x, "put"), _plain(indices), _plain(values), mode), {})


def repeat(x: Tensor, repeats: Any, axis: int | None = None) -> Tensor:
    return _host.run(np.repeat, x, repeats, axis)


def choose(x: Tensor, choices: Any, out: Tensor | None = None, mode: Any = "raise") -> Tensor:
    return _host.run(np.choose, x, choices, out, mode)


def compress(
    x: Tensor, condition: Any, axis: int | None = None, out: Tensor | None = None
) -> Tensor:
    return np.compress(condition, x, axis, out)  # type: ignore[call-overload,arg-type,return-value,no-any-return]


def diagonal(x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    return _host.run(np.diagonal, x, offset, axis1, axis2)


def trace(
    x: Tensor,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: Any = None,
    out: Tensor | None = None,
) -> Tensor:
    return _host.run(np.trace, x, offset, axis1, axis2, dtype, out)


def dot(x: Tensor, b: Any, out: Tensor | None = None) -> Tensor:
    if out is not None and not isinstance(out, Tensor):
        raise TypeError(f"dot: out is a Tensor or None, not {type(out).__name__}")
    return _array_function.dot(x, _hologram._operand(b), out)


def fill(x: Tensor, value: Any) -> None:
    x[...] = _hologram._operand(value) if not isinstance(value, (Tensor, int, float)) else value


def view(x: Tensor, dtype: Any = None, type: Any = None) -> Any:
    for one in (type, dtype):
        if isinstance(one, builtins.type) and issubclass(one, np.ndarray):
            array = x.numpy() if dtype in (None, one) else x.numpy().view(_as_numpy(dtype))
            return array.view(one)
    if type is not None:
        raise TypeError(f"view: type is a class of NumPy's arrays, not {type!r}")
    if dtype is None:
        return x[...]
    wanted = _as_numpy(dtype)
    try:
        _dtypes.name_of(wanted)
    except TypeError:  # records and the like
        return x.numpy().view(wanted)
    return _host.run(lambda array: array.view(wanted), x)


def _as_numpy(dtype: Any) -> Any:
    # The numbers' classes have a dtype, too: a descriptor.
    return np.dtype(dtype.dtype if isinstance(dtype, _dtypes.DType) else dtype)


def __dask_tokenize__(x: Tensor) -> Any:
    from dask.base import normalize_token

    return "hologram.Tensor", normalize_token(_host.array_of(x))


def __arrow_array__(x: Tensor, type: Any = None) -> Any:
    import pyarrow

    return pyarrow.array(x.numpy().copy(), type=type)


def __jax_array__(x: Tensor) -> Any:
    import jax.numpy

    return jax.numpy.array(_host.array_of(x))
