# SPDX-License-Identifier: MIT
"""Operations on scalars whose values are known: what the same operations on arrays give."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import pytest

import hologram as hg

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64",
          "float16", "float32", "float64", "complex64", "complex128"]  # fmt: skip
BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift,
    operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge, divmod,
    np.add, np.maximum, np.hypot, np.arctan2, np.logical_and,
]  # fmt: skip
UNARY = [operator.neg, operator.pos, operator.abs, operator.invert, np.sqrt, np.exp, np.sin,
         np.square, np.sign, np.isnan, np.logical_not, np.floor]  # fmt: skip
NUMBERS = [0, 1, 2, 3, -1, -2, 7, 127, 255, 300, 2**40, -(2**40), 2**63, 2**70, 10**400, True,
           False, 0.0, -0.0, 0.5, 2.0, -1.0, 1e300, math.inf, math.nan]  # fmt: skip


def values_of(dtype: str) -> list[Any]:
    if dtype == "bool":
        return [False, True]
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return [
            v
            for v in (0, 1, 2, 3, 7, 100, -1, -5, info.min, info.max)
            if v in range(info.min, info.max + 1)
        ]
    found = [0.0, -0.0, 0.5, 1.0, 1.5, -2.0, 3.25, math.inf, -math.inf, math.nan]
    return found if np.dtype(dtype).kind == "f" else [*found, 1 + 2j, -0.5j]


def outcome(call: Any, *args: Any) -> Any:
    """Return the results' dtypes, kinds and bits, or the error's type."""
    try:
        with np.errstate(all="ignore"):
            found = call(*args)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        return type(error)
    parts = found if isinstance(found, tuple) else (found,)
    seen = []
    for part in parts:
        array = np.asarray(part)
        is_nan = array.dtype.kind in "fc" and bool(np.isnan(array).any())
        bits = "nan" if is_nan else array.tobytes()
        seen.append((array.shape, array.dtype.name, isinstance(part, hg.Scalar), bits))
    return seen


def of_arrays(call: Any, *args: Any) -> Any:
    """Return the same for arrays of one element in the place of scalars."""
    given = [hg.array([x.item()], x.dtype) if isinstance(x, hg.Scalar) else x for x in args]
    found = outcome(call, *given)
    return found if isinstance(found, type) else [((), d, True, bits) for _, d, _, bits in found]


def scalars(dtype: str) -> list[hg.Scalar]:
    found = list(hg.array(values_of(dtype), dtype))
    assert all(isinstance(x, hg.Scalar) for x in found)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("call", BINARY, ids=lambda f: f.__name__)
def test_two_scalars(call: Any, dtype: str) -> None:
    for x in scalars(dtype):
        for y in scalars(dtype):
            assert outcome(call, x, y) == of_arrays(call, x, y), (x, y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("call", BINARY, ids=lambda f: f.__name__)
def test_a_scalar_and_a_number(call: Any, dtype: str) -> None:
    for x in scalars(dtype):
        for number in NUMBERS:
            assert outcome(call, x, number) == of_arrays(call, x, number), (x, number)
            assert outcome(call, number, x) == of_arrays(call, number, x), (number, x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("other", ["bool", "int16", "int64", "uint64", "float32", "float64"])
@pytest.mark.parametrize("call", [*BINARY[:19:3], operator.eq], ids=lambda f: f.__name__)
def test_scalars_of_two_dtypes(call: Any, dtype: str, other: str) -> None:
    for x in scalars(dtype)[:5]:
        for value in values_of(other)[:5]:
            y = hg.array(value, other)[()]
            assert outcome(call, x, y) == of_arrays(call, x, y), (x, y)
            numpys = np.dtype(other).type(value)
            assert outcome(call, x, numpys) == of_arrays(call, x, numpys), (x, numpys)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("call", UNARY, ids=lambda f: f.__name__)
def test_one_scalar(call: Any, dtype: str) -> None:
    for x in scalars(dtype):
        assert outcome(call, x) == of_arrays(call, x), x


@pytest.mark.parametrize("dtype", DTYPES)
def test_looks(dtype: str) -> None:
    for x, y in zip(scalars(dtype), np.array(values_of(dtype), dtype), strict=True):
        for look in (bool, float, int, complex, hash, repr, str, operator.index, np.asarray, list):
            if look in (float, int) and np.dtype(dtype).kind == "c":
                continue  # NumPy drops the imaginary part with a warning
            try:
                expected = look(y)
            except (TypeError, ValueError, OverflowError) as error:
                with pytest.raises(type(error)):
                    look(x)
                continue
            if look in (repr, np.asarray) or y != y:
                continue
            assert look(x) == expected
        assert np.array_equal(np.asarray(x), y, equal_nan=dtype != "bool")
        assert np.array_equal(np.asarray(x.reshape(1)), [y], equal_nan=dtype != "bool")


def test_scalars_beside_larger_arrays() -> None:
    """A known scalar counts in promotion with its width, as one that waits does."""
    for dtype in DTYPES:
        a = hg.array(values_of(dtype), dtype)
        for other in DTYPES:
            value = values_of(other)[1]
            known, numpys = hg.array([value], other)[0], np.dtype(other).type(value)
            for call in (operator.add, operator.mul, operator.lt, np.maximum):
                with np.errstate(all="ignore"):
                    expected = call(np.asarray(a), numpys)
                for found in (call(a, known), call(known, a) if call is operator.add else expected):
                    found = np.asarray(found)
                    assert found.dtype == expected.dtype, (dtype, other, call)
                    assert np.array_equal(found, expected, equal_nan=found.dtype.kind in "fc")


def test_values_outlive_what_they_were_read_from() -> None:
    a = hg.arange(5.0)
    x = a[3]
    a[3] = 10
    view = np.asarray(x)
    view[...] = 5
    assert float(x) == 3
    kept = [x]
    x += 1
    assert (float(x), float(kept[0])) == (4, 3)
    pending = hg.ones(100_000).sum()
    assert float(pending + 1) == 100_001 and float(pending) == 100_000
    mask = hg.array(True)[()]
    y = a[1]
    y[mask] = hg.array(7.0)
    assert float(y) == 7 and float(y + 1) == 8 and a[1] == 1
