# SPDX-License-Identifier: MIT
"""NumPy's functions on the memory of tensors: how what hologram does not compute itself is done.

A Tensor goes in as an array on its memory, without a copy. What comes out becomes a Tensor: a view
where NumPy gave a view, else one on the memory that NumPy made, on which ops wait as on any other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hologram import _dtypes, _hologram, _noting
from hologram._hologram import Buffer, Scalar, Tensor
from hologram._numpy import peek
from hologram._numpy_faults import ask

__all__ = ["adopt", "array_of", "call", "lent", "run", "stored"]


def array_of(x: Tensor) -> np.ndarray:
    """Return an array on a Tensor's memory that the caller forgets before it returns.

    Other than ``numpy()``, this lets later ops on the Tensor be deferred.

    Raises:
        TypeError: bfloat16 without ml_dtypes.
    """
    if isinstance(x.dtype, _dtypes.DType) and _dtypes.is_bfloat16(x.dtype):
        raise TypeError("NumPy has no bfloat16; install ml_dtypes, or use x.astype('float32')")
    return peek(x)


def lent(x: Tensor, name: str) -> np.ndarray:
    """Return `array_of(x)` for what NumPy does to it, which traces call `name`."""
    if _noting.traces:
        with _hologram._NumpyCall(name):
            return array_of(x)
    return array_of(x)


def adopt(found: Any) -> Tensor:
    """Return a Tensor that takes over the memory of an array or scalar of NumPy.

    Nothing else may refer to that memory: ops on the Tensor wait.

    Raises:
        TypeError: a dtype that hologram does not have.
    """
    array = np.asarray(found)
    if _dtypes.is_bfloat16(array.dtype):
        return _hologram._adopt(array.view(np.int16))._as_bfloat16()
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return _hologram._adopt(array)


_SETTINGS = (int, float, str, bool, type(None))  # what is no array and holds none


class _Loan:
    """Tensors that one call of NumPy works on, and the arrays that stand for them."""

    def __init__(self) -> None:
        self._lent: list[tuple[Tensor, np.ndarray]] = []
        self._foreign: list[np.ndarray] = []

    def lend(self, x: Any) -> Any:
        """Return `x` with arrays in the place of tensors, inside of lists and dicts, too."""
        kind = type(x)
        if kind in _SETTINGS:
            return x
        if kind is dict:
            return {key: self.lend(value) for key, value in x.items()}
        if kind in (list, tuple):
            return kind(map(self.lend, x))
        if isinstance(x, Scalar):
            return array_of(x)[()]  # NumPy writes into arrays that it is given as settings
        if isinstance(x, Tensor):
            array = array_of(x)
            self._lent.append((x, array))
            return array
        if isinstance(x, Buffer):
            return self.lend(_hologram._operand(x))
        if isinstance(x, slice):
            return slice(self.lend(x.start), self.lend(x.stop), self.lend(x.step))
        if isinstance(x, _dtypes.DType):
            return x.dtype
        if isinstance(x, np.ndarray):
            self._foreign.append(x)
        return x

    def _owner(self, array: np.ndarray) -> Tensor | None:
        if array.base is None:
            return None  # NumPy made its memory
        for tensor, lent in self._lent:
            if array is lent:
                return tensor
        for tensor, lent in self._lent:
            if np.may_share_memory(array, lent):
                return _view(tensor, lent, array)
        if any(np.may_share_memory(array, given) for given in self._foreign):
            return _hologram.asarray(array, copy=False)
        return None

    def take_back(self, found: Any) -> Any:
        """Return what NumPy gave with tensors in the place of arrays."""
        if isinstance(found, np.ndarray):
            if any(found is given for given in self._foreign):
                return found  # the caller's own, as out= is
            if isinstance(found, np.ma.MaskedArray):
                # A Tensor has no mask. What was lent goes back.
                shares = any(np.may_share_memory(found, lent) for _, lent in self._lent)
                return found.copy() if shares else found
            owner = self._owner(found) if found.size else None
            if owner is not None:
                return owner
            own = adopt(found)
            if found.size or found.flags.writeable:
                return own
            # Of a view without elements only that is left.
            return own._strided(own.shape, own.strides, 0, readonly=True)
        if isinstance(found, np.generic):
            return _hologram._as_scalar(adopt(found))
        if isinstance(found, tuple):
            parts = map(self.take_back, found)
            return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
        if type(found) is list:
            return [self.take_back(part) for part in found]
        return found


def _view(tensor: Tensor, lent: np.ndarray, array: np.ndarray) -> Tensor:
    at = array.__array_interface__["data"][0] - lent.__array_interface__["data"][0]
    return tensor._strided(
        array.shape, array.strides, at, array.dtype, readonly=not array.flags.writeable
    )


def run(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Return what a function of NumPy gives for tensors, as tensors.

    `out=` may be a Tensor, and is what comes back then.

    Raises:
        TypeError: the result has a dtype that hologram does not have.
    """
    loan = _Loan()
    if _noting.traces:
        return loan.take_back(_watched(_name_of(function), loan, function, args, kwargs))
    return loan.take_back(ask(function, loan.lend(args), loan.lend(kwargs)))


def _watched(
    name: str, loan: _Loan, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any
) -> Any:
    # Lending computes what waits, and traces name the function as the cause.
    with _hologram._NumpyCall(name):
        return ask(function, loan.lend(args), loan.lend(kwargs))


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "")
    if name == "<lambda>" or not name:
        return "NumPy"
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc):
        return f"np.{owner.__name__}.{name}"
    module = getattr(function, "__module__", None) or "numpy"
    return _short(f"{module}.{name}")


def _short(name: str) -> str:
    return f"np.{name.removeprefix('numpy.')}" if name.startswith("numpy.") else name


_told: set[str] = set()
_held: set[np.dtype] = set()  # dtypes of NumPy's results that a Tensor can hold


def _leaves(found: Any) -> Iterator[Any]:
    if isinstance(found, (tuple, list)):
        for part in found:
            yield from _leaves(part)
    else:
        yield found


def stored(found: Any) -> bool:
    """Return whether every array of a result has a dtype that hologram has."""
    if type(found) is np.ndarray and found.dtype in _held:
        return True
    for part in _leaves(found):
        if isinstance(part, (np.ndarray, np.generic)):
            dtype = part.dtype
            try:
                _dtypes.name_of(dtype if dtype.isnative else dtype.newbyteorder("="))
            except TypeError:
                return False
            if dtype.isnative:
                _held.add(dtype)
    return True


def call(name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Return what `run` does, or NumPy's own result where no Tensor can hold it.

    The first such result of a function warns, with its name.
    """
    loan = _Loan()
    if _noting.traces:
        found = _watched(_short(name), loan, function, args, kwargs)
    else:
        found = ask(function, loan.lend(args), loan.lend(kwargs))
    if stored(found):
        return loan.take_back(found)
    if name not in _told:
        _told.add(name)
        warnings.warn(
            f"{name}: the result has a dtype that hologram does not have, so it is an array of"
            " NumPy's",
            RuntimeWarning,
            stacklevel=3,
        )
    # What shares memory with a Tensor would outlive the loan.
    return _copied(found)


def _copied(found: Any) -> Any:
    if isinstance(found, np.ndarray):
        return found.copy()
    if isinstance(found, tuple):
        parts = map(_copied, found)
        return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    return [_copied(part) for part in found] if type(found) is list else found
