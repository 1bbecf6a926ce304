# SPDX-License-Identifier: MIT
"""Methods of Scalar: protocols of Python's numbers; python/src/methods.cc has signatures."""

from __future__ import annotations

import math
import operator
from typing import Any

from hologram._hologram import FloatScalar, IntegerScalar, Scalar, rows

__all__ = [
    "as_integer_ratio",
    "bit_count",
    "denominator",
    "is_integer",
    "numerator",
]


def _number(x: Scalar, name: str) -> Any:
    value = x.item()
    if isinstance(value, complex):
        raise TypeError(f"a Scalar of {x.dtype} has no {name}; take its real part")
    return value


def _real(x: Scalar, name: str) -> Any:
    if not isinstance(x, (IntegerScalar, FloatScalar)):
        raise TypeError(f"a Scalar of {x.dtype} has no {name}")
    return x.item()


def _integer(x: Scalar, name: str) -> Any:
    if not isinstance(x, IntegerScalar):
        raise AttributeError(f"a Scalar of {x.dtype} has no attribute {name!r}; integers have")
    return x


def __round__(x: Scalar, ndigits: Any = None) -> Any:
    value = _real(x, "__round__")
    if ndigits is None:
        return round(value)
    digits = operator.index(ndigits)
    return rows.round(x) if digits == 0 else x.round(digits)


def __trunc__(x: Scalar) -> int:
    return math.trunc(_real(x, "__trunc__"))


def __floor__(x: Scalar) -> int:
    return math.floor(_number(x, "__floor__"))


def __ceil__(x: Scalar) -> int:
    return math.ceil(_number(x, "__ceil__"))


def is_integer(x: Scalar) -> bool:
    value = _real(x, "is_integer")
    return isinstance(value, int) or value.is_integer()


def as_integer_ratio(x: Scalar) -> tuple[int, int]:
    if not isinstance(x, FloatScalar):
        raise AttributeError(f"a Scalar of {x.dtype} has no attribute 'as_integer_ratio'")
    ratio: tuple[int, int] = x.item().as_integer_ratio()
    return ratio


def bit_count(x: Scalar) -> int:
    count: int = _integer(x, "bit_count").item().bit_count()
    return count


def numerator(x: Scalar) -> Any:
    return _integer(x, "numerator")


def denominator(x: Scalar) -> int:
    _integer(x, "denominator")
    return 1
