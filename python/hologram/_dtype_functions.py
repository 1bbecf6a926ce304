# SPDX-License-Identifier: MIT
"""Functions of dtypes, and what the namespace says of itself, by the array API standard 2024.12."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hologram import _dtypes, _hologram
from hologram._creation import check_device
from hologram._dtypes import DType
from hologram._hologram import Tensor

__all__ = [
    "__array_namespace_info__",
    "astype",
    "can_cast",
    "finfo",
    "iinfo",
    "isdtype",
    "result_type",
]

_SIGNED = ("int8", "int16", "int32", "int64")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
_REAL = ("float16", "bfloat16", "float32", "float64")
_COMPLEX = ("complex64", "complex128")
_KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED + _UNSIGNED,
    "real floating": _REAL,
    "complex floating": _COMPLEX,
    "numeric": _SIGNED + _UNSIGNED + _REAL + _COMPLEX,
}
# Bits of the significand behind the point, and of the exponent.
_FORMATS = {"float16": (10, 5), "bfloat16": (7, 8), "float32": (23, 8), "float64": (52, 11)}


def _name_of(x: Any) -> str:
    """Return the name of a dtype, or of an array's."""
    if isinstance(x, (DType, str, type)):
        return _dtypes.name_of(x)
    return _dtypes.name_of(getattr(x, "dtype", x))


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Tensor:
    """Return a copy in another dtype; with copy=False the array itself where it has that one.

    Raises:
        TypeError: complex to real.
        ValueError: another device.
    """
    check_device(device)
    return _hologram._as_tensor(x).astype(dtype, copy=copy)


def result_type(*arrays_and_dtypes: Any) -> Any:
    """Return the dtype that arithmetic of these arrays, dtypes and Python numbers gives.

    Raises:
        ValueError: none of them is an array or a dtype.
    """
    numbers = [x for x in arrays_and_dtypes if type(x) in (bool, int, float, complex)]
    names = [_name_of(x) for x in arrays_and_dtypes if type(x) not in (bool, int, float, complex)]
    if not names:
        raise ValueError("result_type: at least one array or dtype is needed")
    # An array without elements, as operators would make it.
    found = _hologram.cat([_hologram.empty(0, name) for name in names], 0)
    for number in numbers:
        # Of a number only its kind counts; bool is below every dtype.
        if type(number) is not bool:
            found = found + type(number)(0)
    return found.dtype


def can_cast(from_: Any, to: Any, /) -> bool:
    """Return whether every value of a dtype, or of an array's, is one of the dtype `to`."""
    wanted = _name_of(to)
    return _dtypes.name_of(result_type(_name_of(from_), wanted)) == wanted


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether a dtype is `kind`: a dtype, a kind's name, or a tuple of which one fits.

    Kinds: 'bool', 'signed integer', 'unsigned integer', 'integral', 'real floating',
    'complex floating', 'numeric'.

    Raises:
        ValueError: a string names no kind.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    name = _dtypes.name_of(dtype)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ValueError(f"isdtype: {kind!r} is no kind; use one of: {', '.join(_KINDS)}")
        return name in _KINDS[kind]
    return name == _dtypes.name_of(kind)


@dataclass(frozen=True)
class FloatInfo:
    """Limits of a floating dtype; of a complex one those of its parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    tiny: float
    resolution: float
    dtype: Any


@dataclass(frozen=True)
class IntegerInfo:
    """Limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: Any


def finfo(type: Any, /) -> FloatInfo:
    """Return the limits of a floating or complex dtype, or of an array's.

    Raises:
        TypeError: it is another dtype.
    """
    name = _name_of(type)
    name = {"complex64": "float32", "complex128": "float64"}.get(name, name)
    if name not in _FORMATS:
        raise TypeError(f"finfo: a floating dtype is needed, not {name}; use iinfo for integers")
    places, exponent = _FORMATS[name]
    bias = 2 ** (exponent - 1) - 1
    largest = (2.0 - 2.0**-places) * 2.0**bias
    smallest = 2.0 ** (1 - bias)
    digits = int(places * 0.30103)
    return FloatInfo(
        bits=1 + places + exponent,
        eps=2.0**-places,
        max=largest,
        min=-largest,
        smallest_normal=smallest,
        tiny=smallest,
        resolution=10.0**-digits,
        dtype=_dtypes.report(name),
    )


def iinfo(type: Any, /) -> IntegerInfo:
    """Return the limits of an integer dtype, or of an array's.

    Raises:
        TypeError: it is another dtype.
    """
    name = _name_of(type)
    if name not in _SIGNED + _UNSIGNED:
        raise TypeError(f"iinfo: an integer dtype is needed, not {name}; use finfo for floats")
    bits = 8 * DType(name).itemsize
    signed = name in _SIGNED
    return IntegerInfo(
        bits=bits,
        max=2 ** (bits - signed) - 1,
        min=-(2 ** (bits - 1)) if signed else 0,
        dtype=_dtypes.report(name),
    )


class _Info:
    """What the namespace has: see the array API standard, "Inspection"."""

    def capabilities(self) -> dict[str, Any]:
        """Return what operations may do: shapes may depend on data; 64 dimensions at most."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Return the device that arrays are made on."""
        return "cpu"

    def devices(self) -> list[str]:
        """Return the devices that arrays may be made on."""
        return ["cpu"]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, Any]:
        """Return the dtypes of what is made without one."""
        check_device(device)
        return {
            "real floating": DType("float64"),
            "complex floating": DType("complex128"),
            "integral": DType("int64"),
            "indexing": DType("int64"),
        }

    def dtypes(
        self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, Any]:
        """Return the dtypes of the standard by their names, all or those of a kind."""
        check_device(device)
        names = ("bool", *_SIGNED, *_UNSIGNED, "float32", "float64", *_COMPLEX)
        found = {name: DType(name) for name in names if name in _dtypes.ITEMSIZES}
        return {name: one for name, one in found.items() if kind is None or isdtype(one, kind)}


def __array_namespace_info__() -> _Info:
    """Return what the namespace says of itself: devices, dtypes and capabilities."""
    return _Info()
