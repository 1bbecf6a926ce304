# SPDX-License-Identifier: MIT
"""Names of element types: what users write for them, and what they are shown as."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["ITEMSIZES", "DType", "is_bfloat16", "name_of", "report"]

ITEMSIZES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
}
_names: dict[Any, str] = {}  # of NumPy's dtypes that came up
_PYTHON = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}


class DType:
    """An element type for those who have no NumPy, and bfloat16, which NumPy lacks.

    Wherever hologram takes a dtype, this is one; it equals its name and NumPy's dtype of that name.
    """

    __slots__ = ("itemsize", "name")

    def __init__(self, name: str) -> None:
        if name not in ITEMSIZES:
            raise TypeError(f"dtype {name!r} is not one of: {', '.join(ITEMSIZES)}")
        self.name = name
        self.itemsize = ITEMSIZES[name]

    @property
    def dtype(self) -> Any:
        """NumPy's dtype, which NumPy asks for where one is given to it."""
        found = report(self.name)
        if isinstance(found, DType):
            raise AttributeError(
                f"NumPy has no dtype {self.name}; install ml_dtypes"
                if "numpy" in sys.modules
                else "NumPy is not installed"
            )
        return found

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self.name == other.name
        if isinstance(other, str):
            return other == self.name
        if not isinstance(other, type) and type(other).__module__ not in ("numpy.dtypes", "torch"):
            return NotImplemented
        try:
            return name_of(other) == self.name
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        # That of NumPy's dtype, to which it is equal.
        found = report(self.name)
        return hash(self.name if isinstance(found, DType) else found)

    def __repr__(self) -> str:
        return f"hologram.{'bool_' if self.name == 'bool' else self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return DType, (self.name,)


def name_of(dtype: Any) -> str:
    """Return the name of the element type that `dtype` stands for.

    Raises:
        TypeError: `dtype` is no dtype, or one that hologram does not have.
    """
    if isinstance(dtype, DType):
        return dtype.name
    if isinstance(dtype, str) and dtype in ITEMSIZES:
        return dtype
    if isinstance(dtype, type) and dtype in _PYTHON:
        return _PYTHON[dtype]
    if not isinstance(dtype, type) and hasattr(dtype, "__array__"):
        raise TypeError(f"{type(dtype).__name__} is an array, not a dtype; use its dtype")
    if type(dtype).__module__ == "torch" and str(dtype).startswith("torch."):
        name = str(dtype)[len("torch.") :]
    else:
        try:
            import numpy as np
        except ImportError:
            np = None  # type: ignore[assignment]
        if np is None or dtype is None:
            raise TypeError(f"{dtype!r} is not a dtype; use one of: {', '.join(ITEMSIZES)}")
        try:
            found = np.dtype(dtype)
        except (TypeError, ValueError) as error:  # ValueError: a dict without its keys
            raise TypeError(
                f"{dtype!r} is not a dtype; use one of: {', '.join(ITEMSIZES)}"
            ) from error
        if found in _names:
            return _names[found]
        if not found.isnative:
            raise TypeError(
                f"dtype {found!r} has a foreign byte order; use x.astype(x.dtype.newbyteorder('='))"
            )
        name = found.name
        if name in ITEMSIZES:
            _names[found] = name
    if name not in ITEMSIZES:
        raise TypeError(
            f"dtype {name} is not supported; convert with astype to one of: {', '.join(ITEMSIZES)}"
        )
    return name


def is_bfloat16(dtype: Any) -> bool:
    """Return whether a DType or a dtype of NumPy is bfloat16."""
    # NumPy puts the name of a dtype together each time that it is asked for.
    return bool(dtype.itemsize == 2) and str(dtype) == "bfloat16"


def report(name: str) -> Any:
    """Return what users are shown for a dtype: NumPy's where NumPy has it, else a DType."""
    try:
        import numpy as np

        if name == "bfloat16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        return np.dtype(name)
    except ImportError:
        return DType(name)
