# SPDX-License-Identifier: MIT
"""Functions of single elements, as the array API standard 2024.12 has them.

Those that are rows of the op table are recorded and fuse; those that are made of rows, too. The
others, and most of what complex numbers need, are NumPy's on the same memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from hologram import _hologram
from hologram._hologram import Scalar, Tensor, rows
from hologram._lazy import through_numpy

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "clip",
    "conj",
    "copysign",
    "cosh",
    "divide",
    "equal",
    "greater",
    "greater_equal",
    "imag",
    "isfinite",
    "isinf",
    "less",
    "less_equal",
    "multiply",
    "negative",
    "nextafter",
    "not_equal",
    "positive",
    "real",
    "sign",
    "signbit",
    "sinh",
    "subtract",
]

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_COMPLEX = ("complex64", "complex128")
_NUMBERS = (bool, int, float, complex)


def name_of(x: Any) -> str:
    """Return the name of an array's dtype."""
    return x._dtype_name if isinstance(x, Tensor) else str(x.dtype)


# The names of the standard for what PyTorch calls otherwise.
subtract = rows.sub
multiply = rows.mul
divide = rows.div
negative = rows.neg
equal = rows.eq
not_equal = rows.ne
less = rows.lt
less_equal = rows.le
greater = rows.gt
greater_equal = rows.ge
bitwise_invert = rows.bitwise_not


def _named(function: Callable[..., Tensor], name: str, doc: str) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = name
    function.__module__ = "hologram"
    function.__doc__ = doc
    return function


def _row_of_reals(name: str, numpy_name: str) -> Callable[..., Tensor]:
    row = getattr(rows, name)

    def function(x: Any, /, *, out: Tensor | None = None) -> Tensor:
        x = _hologram._operand(x)
        return through_numpy(numpy_name, x, out=out) if name_of(x) in _COMPLEX else row(x, out=out)

    return _named(function, name, row.__doc__)


acos = _row_of_reals("acos", "arccos")
acosh = _row_of_reals("acosh", "arccosh")
asin = _row_of_reals("asin", "arcsin")
asinh = _row_of_reals("asinh", "arcsinh")
atan = _row_of_reals("atan", "arctan")
atanh = _row_of_reals("atanh", "arctanh")
cosh = _row_of_reals("cosh", "cosh")
sinh = _row_of_reals("sinh", "sinh")


def _binary_of_numpy(name: str, doc: str) -> Callable[..., Tensor]:
    def function(x1: Any, x2: Any, /, *, out: Tensor | None = None) -> Tensor:
        x1, x2 = (x if type(x) in _NUMBERS else _hologram._operand(x) for x in (x1, x2))
        return through_numpy(name, x1, x2, out=out)

    return _named(function, name, doc)


copysign = _binary_of_numpy("copysign", "Return the size of x1 with the sign of x2.")
nextafter = _binary_of_numpy("nextafter", "Return the number next to x1 in the direction of x2.")


def signbit(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Return whether the sign is that of -0.0 or -1."""
    return through_numpy("signbit", _hologram._operand(x), out=out)


def sign(x: Any, /, *, out: Tensor | None = None) -> Tensor:
    """Return -1, 0 or 1 by the sign of each element, NaN of NaN, x / abs(x) of complex numbers."""
    x = _hologram._operand(x)
    if name_of(x) in _FLOATS:
        return rows.where(rows.isnan(x), x, rows.sign(x), out=out)
    return rows.sign(x, out=out)


def positive(x: Any, /) -> Tensor:
    """Return a copy. TypeError for bool."""
    return +_hologram._operand(x)


def bitwise_left_shift(x1: Any, x2: Any, /) -> Tensor:
    """Return the bits of x1 moved up by x2; 0 where that is at least the width."""
    return operator.lshift(*_one_array(x1, x2))


def bitwise_right_shift(x1: Any, x2: Any, /) -> Tensor:
    """Return the bits of x1 moved down by x2, with the sign coming in for signed ones."""
    return operator.rshift(*_one_array(x1, x2))


def _one_array(x1: Any, x2: Any) -> tuple[Any, Any]:
    if isinstance(x1, Tensor) or isinstance(x2, Tensor):
        return x1, x2
    return _hologram._operand(x1), x2


def _beside_infinity(x: Any, name: str, row: Callable[..., Tensor], otherwise: bool) -> Tensor:
    x = _hologram._operand(x)
    if name_of(x) in _COMPLEX:
        return through_numpy(name, x)
    if name_of(x) in _FLOATS:
        return row(rows.abs(x), float("inf"))
    return _hologram.full(x.shape, otherwise)


def isfinite(x: Any, /) -> Tensor:
    """Return whether each element is neither infinite nor NaN."""
    return _beside_infinity(x, "isfinite", rows.lt, True)


def isinf(x: Any, /) -> Tensor:
    """Return whether each element is infinite."""
    return _beside_infinity(x, "isinf", rows.eq, False)


def conj(x: Any, /) -> Tensor:
    """Return the complex conjugate; a real Tensor itself."""
    x = _hologram._as_tensor(x)
    return _hologram._conj(x) if name_of(x) in _COMPLEX else x


def _part(x: Tensor, imaginary: bool) -> Tensor:
    dtype = "float32" if name_of(x) == "complex64" else "float64"
    at = x.itemsize // 2 if imaginary and x.size else 0
    return x._strided(x.shape, x.strides, at, dtype)


def real(x: Any, /) -> Tensor:
    """Return a view of the real parts; a real Tensor itself."""
    x = _hologram._as_tensor(x)
    return _part(x, False) if name_of(x) in _COMPLEX else x


def imag(x: Any, /) -> Tensor:
    """Return a view of the imaginary parts; zeros of a real Tensor."""
    x = _hologram._as_tensor(x)
    if name_of(x) in _COMPLEX:
        return _part(x, True)
    zeros = _hologram.zeros(x.shape, x.dtype)
    return _hologram._as_scalar(zeros) if isinstance(x, Scalar) else zeros


def _is_complex(x: Any) -> bool:
    if isinstance(x, Tensor):
        return x._dtype_name in _COMPLEX
    return isinstance(x, complex) or getattr(getattr(x, "dtype", None), "kind", "") == "c"


def clip(x: Any, /, min: Any = None, max: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Return the elements moved into [min, max], where NaN stays NaN.

    min and max are numbers, arrays that broadcast with `x`, or None for no limit. Where min is
    above max, the result is max.
    """
    x = _hologram._operand(x)
    if any(_is_complex(one) for one in (x, min, max)):
        return through_numpy("clip", x, min, max, out=out)
    if min is None and max is None:
        return x.copy() if out is None else rows.where(True, x, x, out=out)
    if max is None:
        return rows.maximum(x, min, out=out)
    return rows.minimum(x if min is None else rows.maximum(x, min), max, out=out)
