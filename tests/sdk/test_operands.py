# SPDX-License-Identifier: MIT
"""Operators of tensors and everything that code passes beside them, against NumPy's on an array.

None, strings, lists, ranges, other sequences, scalars, masked arrays, arrays of foreign dtypes.
"""

from __future__ import annotations

import array
import collections
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hologram as hg

PLAIN = [
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift",
    "rshift", "matmul", "divmod", "lt", "le", "eq", "ne", "gt", "ge", "concat", "contains",
]  # fmt: skip
IN_PLACE = [
    "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor",
    "ilshift", "irshift", "imatmul", "iconcat",
]  # fmt: skip

ARRAYS: dict[str, np.ndarray] = {
    "float64": np.array([1.0, 2.0, 4.0]),
    "float16": np.array([1.0, 2.0, 4.0], "float16"),
    "int32": np.array([1, 2, 4], "int32"),
    "uint8": np.array([1, 2, 4], "uint8"),
    "bool": np.array([True, False, True]),
    "complex128": np.array([1j, 2, 3]),
    "matrix": np.array([[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]], "float32"),
    "single": np.array(2.0),
    "whole": np.array(2),
    "empty": np.zeros(0),
}


class _Silent:
    """An object without an operator of its own."""


def _operands() -> dict[str, Any]:
    masked = np.ma.array
    return {
        "None": None,
        "string": "x",
        "string of a number": "2",
        "no string": "",
        "bytes": b"x",
        "range": range(3),
        "range from 1": range(1, 4),
        "short range": range(2),
        "no range": range(0),
        "list": [1, 2, 3],
        "short list": [1, 2],
        "list of floats": [1.5, 2.0, 0.5],
        "list of bools": [True, False, True],
        "list of complex": [1j, 2, 3],
        "list of uint64": [2**63, 1, 2],
        "list of lists": [[1, 2, 3], [4, 5, 6]],
        "list of strings": ["a", "b", "c"],
        "list with None": [1, None, 3],
        "ragged list": [[1], [2, 3]],
        "no list": [],
        "tuple": (1, 2, 3),
        "deque": collections.deque([1, 2, 3]),
        "array.array": array.array("d", [1, 2, 3]),
        "bytearray": bytearray(b"\1\2\3"),
        "memoryview": memoryview(array.array("i", [1, 2, 3])),
        "0-d float64": np.array(2.0),
        "0-d float32": np.array(2.0, "float32"),
        "0-d int32": np.array(3, "int32"),
        "0-d bool": np.array(True),
        "0-d complex": np.array(1j),
        "np.float64": np.float64(2),
        "np.int8": np.int8(2),
        "np.bool": np.bool_(True),
        "np.str_": np.str_("x"),
        "np.bytes_": np.bytes_(b"x"),
        "masked": masked([1.0, 2.0, 3.0], mask=[True, False, False]),
        "masked ints": masked([1, 2, 3], mask=[True, False, False]),
        "masked bools": masked([True, False, True], mask=[False, True, False]),
        "nothing masked": masked([1.0, 2.0, 3.0]),
        "masked 0-d": masked(2.0),
        "array of strings": np.array(["a", "b", "c"]),
        "array of objects": np.array([1, None, 3], object),
        "array of dates": np.array(["2026-01-01"] * 3, "M8[D]"),
        "object": _Silent(),
        "dict": {1: 2},
        "set": {1, 2},
        "ellipsis": ...,
    }


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _function(name: str) -> Callable[..., Any]:
    return divmod if name == "divmod" else getattr(operator, name)


def _outcome(f: Callable[..., Any], *args: Any) -> Any:
    try:
        return f(*args)
    except Exception as error:
        return error


def _kind(error: Exception) -> type:
    """Return the class of an error that has a name: NumPy derives private ones."""
    return next(c for c in type(error).__mro__ if c.__module__ == "builtins")


def _check(expected: Any, found: Any, what: object) -> None:
    if isinstance(expected, Exception) or isinstance(found, Exception):
        assert isinstance(expected, Exception), (what, expected, found)
        assert isinstance(found, Exception), (what, expected, found)
        assert _kind(found) is _kind(expected), (what, expected, found)
        assert str(found), what
    elif isinstance(expected, tuple):
        assert len(expected) == len(found), what
        for one, other in zip(expected, found):
            _check(one, other, what)
    elif isinstance(expected, np.ma.MaskedArray):
        assert isinstance(found, np.ma.MaskedArray), (what, expected, found)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape), what
        mask = np.ma.getmaskarray(expected)
        np.testing.assert_array_equal(np.ma.getmaskarray(found), mask, err_msg=str(what))
        # Products of matrices get the mask of an operand, which may have another shape.
        shown = ~mask if mask.shape == expected.shape else ...
        np.testing.assert_array_equal(found.data[shown], expected.data[shown], err_msg=str(what))
    elif isinstance(expected, (np.ndarray, np.generic)) and expected.dtype.kind in "biufc":
        # A masked array without dimensions gives NumPy's scalars, as its own operators do.
        assert isinstance(found, hg.Tensor) or "masked 0-d" in what, (what, expected, found)
        got = np.asarray(found)
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), (what, expected, got)
        # Powers and complex products round otherwise, in the last places.
        places = 4 * np.finfo(got.dtype).eps if got.dtype.kind in "fc" else 0
        np.testing.assert_allclose(got, expected, rtol=places, atol=places, err_msg=str(what))
    else:
        assert type(found) is type(expected), (what, expected, found)
        assert np.array_equal(found, expected), (what, expected, found)


def _is_wrong_twice(f: Callable[..., Any], x: np.ndarray, other: Any, expected: Any) -> bool:
    """Return whether NumPy names a dtype that does not fit where shapes do not fit, either."""
    if not isinstance(expected, TypeError) or "Cannot cast ufunc" not in str(expected):
        return False
    return isinstance(
        _outcome(f, x.astype(np.result_type(x, np.asarray(other))), other), ValueError
    )


@pytest.mark.parametrize("operand", _operands())
@pytest.mark.parametrize("name", PLAIN)
def test_operators_answer_as_numpys(name: str, operand: str) -> None:
    f, other = _function(name), _operands()[operand]
    for key, x in ARRAYS.items():
        _check(_outcome(f, x, other), _outcome(f, hg.array(x), other), (name, key, operand))
        if (name, operand, key) == ("contains", "list of uint64", "bool"):
            continue  # NumPy cannot compare 2**63 with bool
        expected, found = _outcome(f, other, x), _outcome(f, other, hg.array(x))
        if name in ("eq", "ne") and "array of" in operand and isinstance(found, np.ndarray):
            found = hg.asarray(found)  # the array on the left makes it without asking
        _check(expected, found, (operand, name, key))


@pytest.mark.parametrize("operand", _operands())
@pytest.mark.parametrize("name", IN_PLACE)
def test_operators_in_place_answer_as_numpys(name: str, operand: str) -> None:
    f, other = _function(name), _operands()[operand]
    for key, x in ARRAYS.items():
        what = (name, key, operand)
        expected_in, found_in = x.copy(), hg.array(x)
        expected, found = _outcome(f, expected_in, other), _outcome(f, found_in, other)
        if not (isinstance(found, ValueError) and _is_wrong_twice(f, x, other, expected)):
            _check(expected, found, what)
        assert (found is found_in) == (expected is expected_in), what
        _check(expected_in, found_in, what)


def test_nothing_is_concatenated() -> None:
    t = hg.ones(3)
    for other in (t, np.ones(3), [1, 2, 3]):
        with pytest.raises(TypeError, match=r"concatenation.*hologram.concat\(\[a, b\]\) joins"):
            operator.concat(t, other)
    assert operator.add(t, [1, 2, 3]).tolist() == [2, 3, 4]
    assert operator.add([1, 2, 3], t).tolist() == [2, 3, 4]


def test_what_compares_with_none_and_strings_is_deferred() -> None:
    t = hg.ones(3) * 2
    assert isinstance(t == None, hg.Tensor)  # noqa: E711
    assert (t != "x").tolist() == [True] * 3
    assert not (t == b"x").any()


def test_operands_with_operators_of_their_own_come_first() -> None:
    class Own:
        __array_ufunc__ = None

        def __radd__(self, other: object) -> str:
            return "added"

        def __eq__(self, other: object) -> Any:
            return "compared"

        __hash__ = None  # type: ignore[assignment]

    class Ranked(Own):
        __array_ufunc__ = lambda *_: NotImplemented  # noqa: E731
        __array_priority__ = 5000

    t = hg.ones(2)
    for other in (Own(), Ranked()):
        assert t + other == "added"
        assert (t == other) == "compared"


def test_ufuncs_keep_masks() -> None:
    masked = np.ma.array([1.0, 2.0, 3.0], mask=[True, False, False])
    t = hg.array([1.0, 2.0, 4.0])
    for found in (np.add(t, masked), np.add(masked, t), np.ma.add(t, masked)):
        assert isinstance(found, np.ma.MaskedArray)
        assert found.mask.tolist() == [True, False, False]
        assert found[1:].tolist() == [4.0, 7.0]


def test_in_place_operators_do_not_write_read_only_memory() -> None:
    x = np.arange(3.0)
    x.setflags(write=False)
    t = hg.asarray(x)
    for other in ("x", None, range(3), np.ma.array([1.0, 2.0, 3.0])):
        with pytest.raises(ValueError, match="read-only"):
            t += other
    assert x.tolist() == [0, 1, 2]
