# SPDX-License-Identifier: MIT
"""Methods of Tensor about its memory, as NumPy's arrays have them: flags, byteswap, resize, tofile.

python/src/methods.cc has their signatures, and `base`, `data` and `ctypes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hologram import _hologram, _host
from hologram._hologram import Scalar, Tensor
from hologram._manipulation import shape_of

__all__ = ["Flags", "byteswap", "flags", "resize", "setflags", "tofile"]

_NAMES = {
    "C_CONTIGUOUS": "c_contiguous", "C": "c_contiguous", "CONTIGUOUS": "c_contiguous",
    "F_CONTIGUOUS": "f_contiguous", "F": "f_contiguous", "FORTRAN": "f_contiguous",
    "OWNDATA": "owndata", "O": "owndata",
    "WRITEABLE": "writeable", "W": "writeable",
    "ALIGNED": "aligned", "A": "aligned",
    "WRITEBACKIFCOPY": "writebackifcopy", "X": "writebackifcopy",
    "FNC": "fnc", "FORC": "forc", "BEHAVED": "behaved", "B": "behaved",
    "CARRAY": "carray", "CA": "carray", "FARRAY": "farray", "FA": "farray",
}  # fmt: skip
_SHOWN = ("C_CONTIGUOUS", "F_CONTIGUOUS", "OWNDATA", "WRITEABLE", "ALIGNED", "WRITEBACKIFCOPY")


def _is_dense(x: Tensor, reverse: bool) -> bool:
    if x.size == 0:
        return True
    step = x.itemsize
    pairs = list(zip(x.shape, x.strides, strict=True))
    for size, stride in pairs if reverse else reversed(pairs):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


class Flags:
    """The flags of a Tensor's memory, by NumPy's names as attributes and as keys."""

    def __init__(self, x: Tensor) -> None:
        self._x = x

    @property
    def c_contiguous(self) -> bool:
        """Whether the elements lie side by side in row-major order."""
        return _is_dense(self._x, reverse=False)

    @property
    def f_contiguous(self) -> bool:
        """Whether the elements lie side by side in column-major order."""
        return _is_dense(self._x, reverse=True)

    contiguous = c_contiguous

    @property
    def owndata(self) -> bool:
        """Whether the Tensor is no view of a part of its memory."""
        return self._x.base is None

    @property
    def writeable(self) -> bool:
        """Whether elements may be written, which `setflags` changes, too."""
        return not self._x.readonly

    @writeable.setter
    def writeable(self, value: Any) -> None:
        setflags(self._x, write=value)

    @property
    def aligned(self) -> bool:
        """Whether addresses are multiples of what the dtype needs: they always are."""
        return True

    @property
    def writebackifcopy(self) -> bool:
        """Whether the memory is a copy that goes back to an array: it never is."""
        return False

    @property
    def fnc(self) -> bool:
        """Whether the order is column-major and not row-major."""
        return self.f_contiguous and not self.c_contiguous

    @property
    def forc(self) -> bool:
        """Whether the order is column-major or row-major."""
        return self.f_contiguous or self.c_contiguous

    @property
    def behaved(self) -> bool:
        """Whether the memory is aligned and writeable."""
        return self.writeable

    @property
    def carray(self) -> bool:
        """Whether the memory is aligned, writeable and row-major."""
        return self.writeable and self.c_contiguous

    @property
    def farray(self) -> bool:
        """Whether the memory is aligned, writeable and column-major and not row-major."""
        return self.writeable and self.fnc

    def __getitem__(self, key: Any) -> bool:
        if key not in _NAMES:
            raise KeyError("Unknown flag")
        found: bool = getattr(self, _NAMES[key])
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        if _NAMES.get(key) != "writeable":
            raise KeyError("Unknown flag" if key not in _NAMES else f"{key} cannot be set")
        self.writeable = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Flags):
            return NotImplemented
        return all(self[name] == other[name] for name in _SHOWN)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "\n".join(f"  {name} : {self[name]}" for name in _SHOWN)


def flags(x: Tensor) -> Flags:
    return Flags(x)


def setflags(x: Tensor, write: Any = None, align: Any = None, uic: Any = None) -> None:
    if uic:
        raise ValueError("cannot set WRITEBACKIFCOPY flag to True")
    if align is not None and not align:
        raise ValueError("setflags: memory here is always aligned; leave align out")
    if write is not None:
        x._set_readonly(not write)


def byteswap(x: Tensor, inplace: bool = False) -> Tensor:
    if not inplace:
        return _host.run(np.ndarray.byteswap, x)
    if x.readonly:
        raise ValueError("byteswap: the Tensor is read-only; use a copy()")
    _host.lent(x, "ndarray.byteswap").byteswap(inplace=True)
    return x


def resize(x: Tensor, *new_shape: Any, refcheck: bool = True) -> None:
    if isinstance(x, Scalar):
        raise TypeError("resize: a Scalar is a number and cannot be resized")
    shape = shape_of(new_shape[0] if len(new_shape) == 1 else new_shape)
    if any(size < 0 for size in shape):
        raise ValueError(f"resize: the shape {shape} has a negative size")
    if x.readonly or x.base is not None:
        raise ValueError("resize: only a Tensor that is writeable and owns its memory is resized")
    count = 1
    for size in shape:
        count *= size
    made = _hologram.zeros((count,), x.dtype)
    kept = min(count, x.size)
    order = "F" if flags(x).fnc else "C"
    made[:kept] = x.ravel(order)[:kept]
    x._take_over(made.reshape(shape, order=order))


def tofile(x: Tensor, fid: Any, sep: str = "", format: str = "%s") -> None:
    _host.array_of(x).tofile(fid, sep, format)
