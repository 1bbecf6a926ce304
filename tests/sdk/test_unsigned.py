# SPDX-License-Identifier: MIT
"""uint16, uint32 and uint64 against NumPy: every op, dtype beside them, cast, number and view."""

from __future__ import annotations

import operator
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hologram as hg
from hologram._hologram import rows, testing

UNSIGNED = ["uint16", "uint32", "uint64"]
DTYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    *UNSIGNED, "complex64", "complex128",
]  # fmt: skip
PAIRS = [(a, b) for a in DTYPES for b in DTYPES if a in UNSIGNED or b in UNSIGNED]
COMPARISONS = ["lt", "le", "eq", "ne", "gt", "ge"]
ARITHMETIC = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]
BITS = ["and_", "or_", "xor", "lshift", "rshift"]
# Rows of two operands and the ufuncs that they are.
TWO = {
    "minimum": "minimum", "maximum": "maximum", "fmod": "fmod", "logical_and": "logical_and",
    "logical_or": "logical_or", "logical_xor": "logical_xor", "logaddexp": "logaddexp",
}  # fmt: skip
# Of those rows of one operand that ufuncs are.
ONE = {
    "neg": "negative", "abs": "absolute", "square": "square", "sign": "sign", "floor": "floor",
    "ceil": "ceil", "trunc": "trunc", "logical_not": "logical_not", "bitwise_not": "invert",
    "isnan": "isnan", "sqrt": "sqrt", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log",
    "log2": "log2", "log10": "log10", "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan",
    "tanh": "tanh",
}  # fmt: skip
rng = np.random.default_rng(20)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(params=[True, False], ids=["deferred", "immediate"])
def deferring(request: pytest.FixtureRequest) -> Iterator[None]:
    testing.set_deferring(request.param)
    yield
    testing.set_deferring(True)


def edges(dtype: str) -> list[Any]:
    if dtype == "bool":
        return [False, True, False, True, True]
    if dtype.startswith(("float", "complex")):
        return [0, 1, 2.5, -3, 100.25]
    most = np.iinfo(dtype).max
    low = [np.iinfo(dtype).min, -1] if np.iinfo(dtype).min < 0 else [most // 2 + 1, most - 1]
    return [0, 1, most // 2, most, *low]


def values(dtype: str, count: int = 11) -> np.ndarray:
    """Boundaries, small numbers and random bits."""
    first = np.array(edges(dtype)).astype(dtype)
    small = rng.integers(0, 40, count).astype(dtype)
    if dtype == "bool" or dtype.startswith(("float", "complex")):
        return np.concatenate([first, small])
    return np.concatenate([first, small, rng.integers(0, 256, 8 * 5, np.uint8).view(dtype)[:5]])


def pairs(a: str, b: str) -> tuple[np.ndarray, np.ndarray]:
    """Every value of one beside every value of the other."""
    x, y = values(a), values(b)
    return np.repeat(x, len(y)), np.tile(y, len(x))


def outcome(f: Callable[..., Any], *args: Any, **options: Any) -> Any:
    try:
        return f(*args, **options)
    except (TypeError, ValueError, OverflowError) as error:
        return error


def same(expected: Any, found: Any, what: object, ulps: int = 0) -> None:
    if isinstance(expected, Exception):
        assert isinstance(found, Exception), (what, expected, found)
        assert isinstance(expected, type(found)), (what, expected, found)
        return
    if isinstance(found, TypeError) and "complex" in str(found):
        return  # which has no order, remainder or product of matrices here
    assert not isinstance(found, Exception), (what, found)
    expected, got = np.asarray(expected), np.asarray(found)
    assert (str(found.dtype), found.shape) == (str(expected.dtype), expected.shape), what
    if ulps == 0 or got.dtype.kind not in "fc":
        np.testing.assert_array_equal(got, expected, err_msg=str(what))
    else:
        eps = ulps * np.finfo(got.dtype).eps
        np.testing.assert_allclose(got, expected, rtol=eps, atol=eps, err_msg=str(what))


# --- Dtypes ---------------------------------------------------------------------------------------


def test_dtypes_have_names_and_sizes() -> None:
    for name, size in zip(UNSIGNED, (2, 4, 8), strict=True):
        dtype = getattr(hg, name)
        assert dtype == name == np.dtype(name)
        assert (dtype.itemsize, repr(dtype)) == (size, f"hologram.{name}")
        assert hg.DType(name) == dtype
        assert hg.zeros(3, dtype).dtype == np.dtype(name)
        assert hg.zeros(3, np.dtype(name).type).itemsize == size
        assert pickle.loads(pickle.dumps(dtype)) == dtype
    for other in ({"a": "b"}, [1], 3, None, "float80", object()):
        assert hg.float32 != other
        assert not hg.float32 == other
    with pytest.raises(TypeError, match="is not a dtype; use one of"):
        hg.zeros(3, {"a": "b"})


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_promotion(a: str, b: str) -> None:
    x, y = hg.ones(2, a), hg.ones(2, b)
    expected = np.result_type(a, b)
    assert (x * y).dtype == expected
    if "complex" not in a + b:
        assert rows.maximum(x, y).dtype == expected
    assert rows.where(hg.ones(2, "bool"), x, y).dtype == expected
    assert hg.cat([x, y]).dtype == expected


# --- Elementwise ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b"), PAIRS)
@pytest.mark.usefixtures("deferring")
def test_operators_of_two(a: str, b: str) -> None:
    x, y = pairs(a, b)
    hx, hy = hg.array(x), hg.array(y)
    for name in [*ARITHMETIC, *BITS, *COMPARISONS]:
        function = getattr(operator, name)
        if name == "pow":
            y = np.abs(y) if np.dtype(b).kind != "c" else y
            if np.dtype(b).kind == "i":
                y[y < 0] = 0
            hy = hg.array(y)
        complex_ulps = 16 if "complex" in str(np.result_type(a, b)) else 0
        ulps = max(complex_ulps, 8 if name == "pow" else 0)
        if complex_ulps and name in ("pow", "truediv"):
            continue  # special values of complex numbers are not compared here
        same(outcome(function, x, y), outcome(function, hx, hy), (name, a, b), ulps)
    for name, ufunc in TWO.items():
        if name == "logaddexp" and "complex" in str(np.result_type(a, b)):
            continue
        expected = outcome(getattr(np, ufunc), x, y)
        same(expected, outcome(getattr(rows, name), hx, hy), (name, a, b), 8)
        same(expected, outcome(getattr(np, ufunc), hx, hy), (name, a, b), 8)


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.usefixtures("deferring")
def test_rows_of_one(dtype: str) -> None:
    x = values(dtype)
    hx = hg.array(x)
    for name, ufunc in ONE.items():
        # NumPy has a float16 of exp() of more than it holds, and so have we.
        expected = outcome(getattr(np, ufunc), x)
        same(expected, getattr(rows, name)(hx), (name, dtype), 8)
        same(expected, getattr(np, ufunc)(hx), (name, dtype), 8)
        out = hg.empty(x.shape, expected.dtype)
        assert getattr(rows, name)(hx, out=out) is out
        same(expected, out, (name, dtype, "out"), 8)
    for f in (operator.neg, operator.pos, operator.invert, abs):
        same(f(x), f(hx), (f, dtype))
    same(np.round(x), rows.round(hx), "round")
    same(x, rows.relu(hx), "relu")
    for f in (np.positive, np.rint, np.cbrt, np.reciprocal, np.signbit):
        same(outcome(f, x), outcome(f, hx), (f, dtype), 8)


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.usefixtures("deferring")
def test_rows_of_more(dtype: str) -> None:
    x, y = pairs(dtype, dtype)
    z = np.roll(x, 7)
    hx, hy, hz = hg.array(x), hg.array(y), hg.array(z)
    low, high = np.minimum(y, z), np.maximum(y, z)
    same(np.clip(x, low, high), rows.clamp(hx, hg.array(low), hg.array(high)), "clamp")
    most = int(np.iinfo(dtype).max)
    same(np.clip(x, 3, most - 2), rows.clamp(hx, 3, most - 2), "clamp by numbers")
    same(np.where(x > y, y, z), rows.where(hx > hy, hy, hz), "where")
    same(np.where(x, y, z), rows.where(hx, hy, hz), "where of numbers")
    same(np.where(x > y, y, x.dtype.type(5)), rows.where(hx > hy, hy, 5), "where and a number")
    most_of = rows.where(hx > hy, hy, most)
    same(np.where(x > y, y, x.dtype.type(most)), most_of, "where and the highest number")
    same(x + x.dtype.type(3) * y, rows.add_scaled(hx, hy, 3), "add_scaled")
    same(x + x.dtype.type(3) * y * z, rows.addcmul(hx, hy, hz, 3), "addcmul")
    half = most // 2
    same(np.where(x > half, x, x.dtype.type(9)), rows.threshold(hx, half, 9), "threshold")
    same(
        np.where(y > half, x, x.dtype.type(0)),
        rows.threshold_backward(hx, hy, half),
        "threshold_backward",
    )
    floats = [v.astype(np.float64) for v in (x, y, z)]
    same(floats[0] * floats[1] + floats[2], rows.fma(hx, hy, hz).astype("float64"), "fma", 1 << 30)
    same(np.divmod(x, y)[0], divmod(hx, hy)[0], "divmod")
    same(np.divmod(x, y)[1], divmod(hx, hy)[1], "divmod")


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.usefixtures("deferring")
def test_numbers_beside_tensors(dtype: str) -> None:
    x = values(dtype)
    hx = hg.array(x)
    most = int(np.iinfo(dtype).max)
    numbers = [
        True, 0, 1, 3, 40, 100, 1000, most // 2 + 1, most, most + 1, -1, -5,
        2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, -(2**63), -(10**30), 2.5, -0.5, 1e30,
        float("inf"), 1j, np.uint16(3), np.uint64(2**63 + 5), np.int64(-3), np.float32(2),
    ]  # fmt: skip
    for number in numbers:
        for name in [*ARITHMETIC, *BITS, *COMPARISONS]:
            f = getattr(operator, name)
            what = (name, dtype, number)
            if name == "pow" and isinstance(number, complex):
                continue
            same(outcome(f, x, number), outcome(f, hx, number), what, 16)
            if name == "pow" and (number == 0 or isinstance(number, complex)):
                continue
            same(outcome(f, number, x), outcome(f, number, hx), ("reflected", *what), 16)


@pytest.mark.parametrize(("a", "b"), PAIRS)
@pytest.mark.usefixtures("deferring")
def test_in_place_and_out(a: str, b: str) -> None:
    if "complex" in a + b:
        return
    x, y = pairs(a, b)
    for name in ["iadd", "isub", "imul", "ifloordiv", "imod", "iand", "ior", "ixor", "ilshift"]:
        f = getattr(operator, name)
        expected, found = x.copy(), hg.array(x)
        failure, ours = outcome(f, expected, y), outcome(f, found, hg.array(y))
        if isinstance(failure, Exception):
            assert isinstance(ours, TypeError), (name, a, b, failure, ours)
        else:
            assert ours is found
        same(expected, found, (name, a, b))
    for ufunc, row in ((np.add, rows.add), (np.maximum, rows.maximum), (np.less, rows.lt)):
        # By NumPy's rules where the kinds are the same.
        for dtype in ("bool", "uint8", "int32", "float64", *UNSIGNED):
            out, target = np.zeros(x.shape, dtype), hg.zeros(x.shape, dtype)
            failure = outcome(ufunc, x, y, out=out, casting="same_kind")
            ours = outcome(row, hg.array(x), hg.array(y), out=target)
            what = (ufunc, a, b, dtype)
            assert isinstance(failure, Exception) == isinstance(ours, Exception), (what, ours)
            same(out, target, what)


def test_in_place_of_an_operand_of_itself() -> None:
    x = values("uint32")
    t = hg.array(x)
    t += t[::-1]
    same(x + x[::-1], t, "overlap")
    t = hg.array(x)
    rows.minimum(t, t[::-1], out=t)
    same(np.minimum(x, x[::-1]), t, "overlap")
    t = hg.array(x)
    t //= t[::-1] | 1
    same(x // (x[::-1] | 1), t, "overlap")


# --- Casts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("unsigned", UNSIGNED)
@pytest.mark.usefixtures("deferring")
def test_casts(unsigned: str, dtype: str) -> None:
    x = np.concatenate([values(unsigned, 20), np.arange(70, dtype=unsigned)])
    same(x.astype(dtype), hg.array(x).astype(dtype) if dtype[0] != "?" else None, "from")
    if dtype.startswith("complex"):
        with pytest.raises(TypeError, match="complex"):
            hg.ones(2, dtype).astype(unsigned)
        return
    y = values(dtype, 40)
    if dtype.startswith("float"):
        most = float(np.iinfo(unsigned).max)
        more = [most / 2, most / 2 + 1, most * 0.75, 0.9, 65535.0, 2.0**31, 2.0**63, 1.5 * 2.0**63]
        y = np.concatenate([np.abs(y), np.array(more).astype(dtype)])
        y = y[(y < most) & np.isfinite(y)]  # of others C says nothing
    same(y.astype(unsigned), hg.array(y).astype(unsigned), (dtype, unsigned))


@pytest.mark.usefixtures("deferring")
def test_casts_of_uint64_round_once() -> None:
    tops = np.uint64(1) << np.arange(64, dtype=np.uint64)
    near = np.array([0, 1, 2, 3], np.uint64)
    halves = [tops, tops >> np.uint64(24), tops >> np.uint64(25), tops >> np.uint64(53)]
    x = np.concatenate([tops + h + d - np.uint64(1) for h in halves for d in near])
    x = np.concatenate([x, ~x, rng.integers(0, 2**64, 4000, np.uint64)])
    for dtype in ("float32", "float64", "complex64", "complex128"):
        same(x.astype(dtype), hg.array(x).astype(dtype), dtype)
    low = x.astype(np.uint32)
    for dtype in ("float32", "float64"):
        same(low.astype(dtype), hg.array(low).astype(dtype), dtype)
    # As of the other integers: rounded to float32, then to bfloat16.
    same(
        x.astype("float32"),
        hg.array(x).astype("float32"),
        "bfloat16",
    )
    via = hg.array(x.astype("float32")).astype("bfloat16").astype("float32")
    same(np.asarray(via), hg.array(x).astype("bfloat16").astype("float32"), "bfloat16")
    whole = np.array([0.0, 3.7, 300.0, 65280.0], np.float32)
    for unsigned in UNSIGNED:
        back = hg.array(whole).astype("bfloat16").astype(unsigned)
        same(np.asarray(hg.array(whole).astype("bfloat16").astype("float32")).astype(unsigned),
             back, unsigned)  # fmt: skip


# --- Making and reading ---------------------------------------------------------------------------


def test_making() -> None:
    for dtype in UNSIGNED:
        most = int(np.iinfo(dtype).max)
        same(np.full((2, 3), most, dtype), hg.full((2, 3), most, dtype), "full")
        same(np.full(2, 3.9, dtype), hg.full(2, 3.9, dtype), "full of a float")
        same(np.zeros(3, dtype), hg.zeros(3, dtype), "zeros")
        same(np.ones(3, dtype), hg.ones(3, dtype), "ones")
        same(np.arange(3, 17, 4, dtype), hg.arange(3, 17, 4, dtype), "arange")
        same(np.array([0, 7, most], dtype), hg.array([0, 7, most], dtype), "array")
        same(np.array(most, dtype), hg.array(most, dtype), "array of a number")
        same(np.array([[True], [False]], dtype), hg.array([[True], [False]], dtype), "bools")
        same(np.array([1.9, 2.0], dtype), hg.array([1.9, 2.0], dtype), "floats")
        assert hg.empty((2, 0), dtype).dtype == dtype
        for wrong in (-1, most + 1, 10**30):
            with pytest.raises(OverflowError, match=r"out of bounds|too large|too big"):
                hg.array([wrong], dtype)
            with pytest.raises(OverflowError, match="out of bounds"):
                hg.full(2, wrong, dtype)
        assert hg.array(np.array([most], dtype)).item() == most
        assert hg.full((2, 1), most, dtype).tolist() == [[most], [most]]
        assert int(hg.array([most], dtype)) == most
        assert float(hg.array([most], dtype)) == float(most)
        assert bool(hg.array([most], dtype))
        assert [10, 20, 30][hg.array(2, dtype)] == 30
        assert most in hg.array([0, most], dtype)
        assert (
            repr(hg.array([1, most], dtype))
            == f"Tensor([{1:{len(str(most))}}, {most}], dtype={dtype})"
        )
        assert str(hg.array(most, dtype)) == str(most)
        assert f"{hg.array(most, dtype):,}" == f"{most:,}"
    for numbers in ([2**63], [2**64 - 1, True], [[2**63], [2**63 + 1]], [1, 2**63], [2**63, -1],
                    [2**63, 0.5], 2**63 + 1):  # fmt: skip
        same(np.array(numbers), hg.array(numbers), numbers)
    for numbers in ([2**64], [1, 2**64], [2**63, 2**70], [-(2**63) - 1]):
        with pytest.raises(OverflowError):
            hg.array(numbers)
    same(np.array([1, 2**70], "float32"), hg.array([1, 2**70], "float32"), "float32")
    same(np.full(2, 2**63 + 3), hg.full(2, 2**63 + 3), "full")
    same(np.arange(2**63, 2**63 + 9, 4), hg.arange(2**63, 2**63 + 9, 4), "arange")
    same(np.arange(2**64 - 4, 2**64 - 1, dtype="uint64"),
         hg.arange(2**64 - 4, 2**64 - 1, dtype="uint64"), "arange")  # fmt: skip
    same(np.arange(9, 2, -3, "uint16"), hg.arange(9, 2, -3, "uint16"), "arange")


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_memory_goes_in_and_out(dtype: str) -> None:
    x = values(dtype, 19)[:24].reshape(2, 3, 4)
    shared = hg.asarray(x, copy=False)
    x[0, 0, 0] = 77
    assert shared[0, 0, 0].item() == 77
    same(x, hg.from_dlpack(x), "DLPack")
    t = hg.array(x)
    for back in (np.from_dlpack(t), np.asarray(memoryview(t)), t.numpy(), np.asarray(t)):
        assert back.ctypes.data == t.numpy().ctypes.data
        same(x, back, "shared")
    assert memoryview(t).format == {2: "H", 4: "I", 8: "L"}[t.itemsize]
    assert memoryview(t).tolist() == x.tolist() == t.tolist()
    same(x[:, ::-1, 1:], hg.from_dlpack(np.from_dlpack(t)[:, ::-1, 1:]), "strides")
    same(x, pickle.loads(pickle.dumps(t)), "pickle")
    same(x, t.copy(), "copy")
    assert t.tobytes() == x.tobytes()
    import array
    import ctypes

    code = {2: "H", 4: "I", 8: "Q"}[t.itemsize]
    same(x.ravel(), hg.asarray(array.array(code, x.ravel().tolist())), "array")
    c_type = {2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}[t.itemsize]
    same(np.array([1, 2], dtype), hg.array((c_type * 2)(1, 2)), "ctypes")


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.usefixtures("deferring")
def test_indexing(dtype: str) -> None:
    most = int(np.iinfo(dtype).max)
    x = values(dtype, 19)[:24].reshape(4, 6)
    t = hg.array(x)
    for key in (1, (2, 3), slice(1, 3), (slice(None), -1), (..., slice(None, None, -2)), None,
                [3, 0, 0], x > most // 2, (np.array([0, 3]), np.array([5, 1]))):  # fmt: skip
        same(x[key], t[key], key)
    same(x[x > 5], t[t > 5], "mask")
    index = hg.array([3, 1], "uint16")
    same(x[[3, 1]], t[index], "index")
    for key, value in ((1, most), ((2, 3), 7), (slice(2), x[2:]), (x > 3, 5), ([0, 2], x[0]),
                       (..., -1), ((1, 1), 2**64), (0, np.arange(6.0))):  # fmt: skip
        a, b = x.copy(), hg.array(x)
        expected, found = outcome(a.__setitem__, key, value), outcome(b.__setitem__, key, value)
        assert isinstance(found, type(expected)), (key, expected, found)
        same(a, b, key)
    b = hg.array(x)
    b[1:, 2] = hg.array([1, -1, 300])
    a = x.copy()
    a[1:, 2] = np.array([1, -1, 300])
    same(a, b, "assignment converts as astype")


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.usefixtures("deferring")
def test_views_of_any_strides(dtype: str) -> None:
    x, y = values(dtype, 49)[:48].reshape(4, 6, 2), values(dtype, 49)[:48].reshape(2, 6, 4)
    t, u = hg.array(x), hg.array(y)
    a, b = x[1:, ::-2], y.T[1:, ::-2]
    c, d = t[1:, ::-2], u.T[1:, ::-2]
    for f in (operator.add, operator.lt, operator.floordiv, operator.rshift, operator.truediv):
        same(f(a, b), f(c, d), f)
        same(f(a, b[0, 0]), f(c, d[0, 0]), f)
        same(f(a[:, :1], b), f(c[:, :1], d), f)
        same(f(a[0, 0, 0], b[0, 0, 0]), f(c[0, 0, 0], d[0, 0, 0]), f)
        same(f(a[:0], b[:0]), f(c[:0], d[:0]), f)
    same(np.maximum(a, b), rows.maximum(c, d), "maximum")
    for other in ("float32", "float64", "int64", "uint8"):
        same(a.astype(other), c.astype(other), other)
        same(a[:0].astype(other), c[:0].astype(other), other)
    out = hg.zeros((4, 6, 2), dtype)
    rows.minimum(c, d, out=out[1:, ::-2])
    want = np.zeros((4, 6, 2), dtype)
    np.minimum(a, b, out=want[1:, ::-2])
    same(want, out, "strided out")
    same(a.reshape(-1), c.reshape(-1), "reshape")
    same(np.concatenate([a, b]), hg.cat([c, d]), "cat")


# --- Reductions and products ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*UNSIGNED, "uint8"])
@pytest.mark.usefixtures("deferring")
def test_reductions(dtype: str) -> None:
    x = values(dtype, 50)[:60].reshape(3, 4, 5)
    t = hg.array(x)
    for axis in (None, 0, 1, -1, (0, 2), ()):
        for name in ("sum", "prod", "min", "max", "any", "all"):
            same(getattr(x, name)(axis=axis), getattr(t, name)(axis=axis), (name, axis))
        for name in ("mean", "var", "std"):
            found = getattr(t, name)(axis=axis, keepdims=True)
            same(getattr(x, name)(axis=axis, keepdims=True), found, (name, axis), 64)
        length = np.sqrt((x.astype("float64") ** 2).sum(axis=axis))
        same(length, t.norm(axis=axis), ("norm", axis), 16)
        if not isinstance(axis, tuple):
            for name in ("argmin", "argmax", "cumsum"):
                same(getattr(x, name)(axis=axis), getattr(t, name)(axis=axis), (name, axis))
    for wanted in ("int32", "uint8", "float32", "float64", "int64", *UNSIGNED):
        same(x.sum(axis=1, dtype=wanted), t.sum(axis=1, dtype=wanted), wanted, 16)
        same(x.cumsum(axis=1, dtype=wanted), t.cumsum(axis=1, dtype=wanted), wanted, 16)
    small = (x % 5).astype(dtype)
    for wanted in ("float32", "float64", "uint16", "uint64"):
        same(small.prod(axis=0, dtype=wanted), hg.array(small).prod(axis=0, dtype=wanted), wanted)
    out = hg.zeros((3, 5), "float64")
    t.max(axis=1, out=out)
    same(x.max(axis=1).astype("float64"), out, "max, out=")
    for name in ("sum", "max"):
        got = hg.zeros((3, 5), "uint64")
        getattr(t, name)(axis=1, out=got)
        same(getattr(x, name)(axis=1).astype("uint64"), got, name)
    same(x.T.sum(axis=0), t.T.sum(axis=0), "strided")
    same(x[:0].sum(axis=0), t[:0].sum(axis=0), "empty")
    with pytest.raises(ValueError, match="no elements"):
        t[:0].max()
    soft = np.exp(small.astype("float64"))
    same(soft / soft.sum(-1, keepdims=True), hg.array(small).softmax(), "softmax", 16)


@pytest.mark.usefixtures("deferring")
def test_unsigned_results_of_other_dtypes() -> None:
    x = np.array([[-5, 3, 2**31 - 1], [4, -1, 7]], np.int32)
    for wanted in UNSIGNED:
        same(x.sum(axis=1, dtype=wanted), hg.array(x).sum(axis=1, dtype=wanted), wanted)
        same(x.prod(axis=1, dtype=wanted), hg.array(x).prod(axis=1, dtype=wanted), wanted)
        refusal = f"max: the result is int32, which does not go into an out of {wanted}"
        with pytest.raises(TypeError, match=refusal):
            hg.array(x).max(axis=1, out=hg.zeros(2, wanted))
        truth = hg.zeros(2, wanted)
        hg.array(x).all(axis=1, out=truth)
        same(np.ones(2, wanted), truth, wanted)


@pytest.mark.parametrize(("a", "b"), PAIRS)
@pytest.mark.usefixtures("deferring")
def test_products(a: str, b: str) -> None:
    x, y = values(a, 50)[:12].reshape(3, 4), values(b, 50)[:20].reshape(4, 5)
    same(x @ y, hg.array(x) @ hg.array(y), (a, b), 16)
    same(y.T @ x.T, hg.array(y).T @ hg.array(x).T, (a, b), 16)
    same(x[0] @ y[:, 0], hg.array(x)[0] @ hg.array(y)[:, 0], (a, b), 64)
    stack = np.stack([x, x + x])
    same(stack @ y, hg.array(stack) @ hg.array(y), (a, b), 64)


# --- Fusion ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("recording")
@pytest.mark.parametrize("dtype", UNSIGNED)
def test_chains_are_one_kernel(dtype: str) -> None:
    x, y = rng.integers(0, 2**63, (2, 5000)).astype(dtype)
    with hg.Executor() as ex:

        def chain(a: Any, b: Any, maximum: Any) -> Any:
            c = (a * 3 + b) ^ (a & 255)
            d = maximum(c, b) - a
            return ((d < a) | (b >= c)).astype(dtype) + d

        t, u = hg.array(x), hg.array(y)
        t.sum().item(), u.sum().item()
        before = ex.stats()["kernels"]
        found = np.asarray(chain(t, u, rows.maximum))
        assert ex.stats()["kernels"] - before == 1
        same(chain(x, y, np.maximum), found, "chain")
        before = ex.stats()["kernels"]
        floats = np.asarray((t * 5).astype("float32") * 0.5 + u.astype("float64"))
        assert ex.stats()["kernels"] - before == 1
        same((x * 5).astype("float32") * np.float32(0.5) + y.astype("float64"), floats, "floats")


# --- Buffers, and what goes below tensors ---------------------------------------------------------


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_buffers(dtype: str) -> None:
    most = int(np.iinfo(dtype).max)
    with hg.Executor() as ex:
        x = values(dtype, 7)[:12]
        a, b, c = (ex.allocate(12, dtype) for _ in range(3))
        assert (a.dtype, a.nbytes) == (np.dtype(dtype), x.nbytes)
        a.from_numpy(x)
        same(x, a.to_numpy(), "from_numpy")
        b.copy_from(a)
        assert b.to_bytes() == x.tobytes()
        b.fill(most)
        same(np.full(12, most, dtype), b.to_numpy(), "fill")
        b.fill(2.75)
        same(np.full(12, 2, dtype), b.to_numpy(), "fill")
        b.from_bytes(x[::-1].tobytes())
        y = x[::-1].copy()
        a, b = ex.allocate(12, dtype), ex.allocate(12, dtype)  # results that are not read
        a.from_numpy(x)
        b.from_numpy(y)
        for name in ("add", "mul", "minimum", "maximum", "floor_divide", "bitwise_xor"):
            getattr(hg.ops, name)(ex, a, b, c)
            numpys = {"mul": "multiply"}.get(name, name)
            same(getattr(np, numpys)(x, y), np.asarray(hg.array(c)), name)
        hg.ops.scalar_add(ex, a, 3, c)
        same(x + x.dtype.type(3), c.to_numpy(), "scalar_add")
        hg.ops.vector_clip(ex, a, 1, most - 1, c)
        same(np.clip(x, 1, most - 1), c.to_numpy(), "clip")
        truth = ex.allocate(12, "bool")
        hg.ops.lt(ex, a, b, truth)
        same(x < y, truth.to_numpy(), "lt")
        floats = ex.allocate(12, "float64")
        hg.ops.sqrt(ex, a, floats)
        same(np.sqrt(x).astype("float64"), floats.to_numpy(), "sqrt")
        floats.from_numpy(x)
        same(x.astype("float64"), floats.to_numpy(), "from_numpy converts")
        c.from_numpy(np.arange(12.0))
        same(np.arange(12).astype(dtype), c.to_numpy(), "from_numpy converts")
        floats.copy_from(a)
        same(x.astype("float64"), floats.to_numpy(), "copy_from converts")
        with pytest.raises(
            TypeError, match=f"float(32|64) and does not go into out, which is {dtype}"
        ):
            hg.ops.sqrt(ex, a, c)


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.usefixtures("deferring")
def test_calls_that_move_take_them_and_others_name_them(dtype: str) -> None:
    x = values(dtype, 19)[:24].reshape(4, 6)
    t = hg.array(x)
    same(x[[3, 0, 3]], hg.take(t, hg.array([3, 0, 3])), "take")
    index = np.array([[0, 3, 1, 2, 0, 1]])
    same(np.take_along_axis(x, index, 0), hg.gather(t, hg.array(index)), "gather")
    same(np.triu(x, 1), hg.triangle(t, diagonal=1, upper=True), "triangle")
    target = hg.array(x)
    hg.put_at(target, hg.array([2]), t[:1])
    want = x.copy()
    want[2] = x[0]
    same(want, target, "put_at")
    line, wanted = np.sort(x.ravel()), x.ravel()[::-1].copy()
    found = hg.searchsorted(hg.array(line), hg.array(wanted))
    np.testing.assert_array_equal(np.asarray(found), np.searchsorted(line, wanted))
    drawn = hg.empty(100, dtype)
    hg.integers(drawn, seed=1, low=5, count=10)
    assert 5 <= drawn.min().item() <= drawn.max().item() < 15
    with pytest.raises(
        TypeError, match=f"layer_norm: input is {dtype}; it takes .*cast the tensor"
    ):
        hg.layer_norm(t)
    with pytest.raises(TypeError, match=f"add_at: self is {dtype}; it takes"):
        hg.add_at(target, hg.array([2]), t[:1])


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_handles(dtype: str) -> None:
    from hologram import _ffi as ffi

    x, y = values(dtype, 7)[:8], values(dtype, 9)[-8:]
    most = int(np.iinfo(dtype).max)
    ex = ffi.new_executor()
    a, b, c = (ffi.executor_allocate_buffer(ex, 8, dtype) for _ in range(3))
    assert ffi.buffer_dtype(a) == dtype
    ffi.buffer_copy_from_bytes(ex, a, x.tobytes())
    ffi.buffer_copy_from_slice(ex, b, str(y.tolist()))
    assert ffi.buffer_to_bytes(ex, b) == y.tobytes()
    assert ffi.buffer_to_vec(ex, a) == str(x.tolist())
    for wrong in (most + 1, -1, 1.5):
        with pytest.raises(ValueError, match=f"is no {dtype}"):
            ffi.buffer_copy_from_slice(ex, b, f"[{wrong}]")
    for name, ufunc in (
        ("add", np.add),
        ("maximum", np.maximum),
        ("floor_divide", np.floor_divide),
    ):
        ffi.elementwise(ex, name, [a, b], c, 8)
        assert ffi.buffer_to_bytes(ex, c) == ufunc(x, y).tobytes()
    ffi.elementwise(ex, "mul", [a, 3.0], c, 8)
    assert ffi.buffer_to_bytes(ex, c) == (x * x.dtype.type(3)).tobytes()
    ffi.gemm(ex, a, b, c, 2, 2, 4)
    want = (x.reshape(2, 4) @ y.reshape(4, 2)).tobytes()
    assert ffi.buffer_to_bytes(ex, c)[: len(want)] == want
    one = ffi.executor_allocate_buffer(ex, 1, "uint64")
    ffi.reduce(ex, "sum", a, one, 8)
    assert ffi.buffer_to_bytes(ex, one) == x.sum().tobytes()
    ffi.reduce(ex, "max", a, one, 8)
    assert ffi.buffer_to_bytes(ex, one) == np.uint64(x.max()).tobytes()
    ffi.buffer_fill(ex, c, most // 2 + 1)  # a power of 2
    assert ffi.buffer_to_vec(ex, c) == str([most // 2 + 1] * 8)
    for wrong in (-1.0, float(most) * 2, float("nan")):
        with pytest.raises(ValueError, match=f"which no {dtype} holds"):
            ffi.buffer_fill(ex, c, wrong)
    floats = ffi.executor_allocate_buffer(ex, 8, "float64")
    ffi.buffer_copy(ex, a, floats)
    assert ffi.buffer_to_bytes(ex, floats) == x.astype("float64").tobytes()
    with pytest.raises(TypeError, match=f"{dtype}.*softmax: is for floating dtypes"):
        ffi.softmax(ex, a, c, 2, 4)
    with pytest.raises(TypeError, match=f"holds {dtype}, not float32"):
        ffi.vector_add_f32(ex, a, b, c, 8)
