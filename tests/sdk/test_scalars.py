# SPDX-License-Identifier: MIT
"""Scalars beside NumPy's: what gives one, that they never change, that they are numbers."""

from __future__ import annotations

import collections
import copy
import functools
import math
import numbers
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hologram as hg

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip
VALUES = [[3, 1, 2], [2.5, 0.5, 1.0], [1 + 2j, 3j, 0]]

# Each call takes a module and its array of one dimension; NumPy's result tells what is a scalar.
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "a[1]": lambda m, a: a[1],
    "a[-1]": lambda m, a: a[-1],
    "a[a.argmax()]": lambda m, a: a[a.argmax()],
    "a[1:2]": lambda m, a: a[1:2],
    "a[1, ...]": lambda m, a: a[1, ...],
    "a.reshape(1, -1)[0, 1]": lambda m, a: a.reshape(1, -1)[0, 1],
    "array without dimensions": lambda m, a: m.array(2.0),
    "its ()": lambda m, a: m.array(2.0)[()],
    "its ...": lambda m, a: m.array(2.0)[...],
    "its sum with itself": lambda m, a: m.array(2.0) + m.array(1.0),
    "its negative": lambda m, a: -m.array(2.0),
    "its sum": lambda m, a: m.array(2.0).sum(),
    "its copy": lambda m, a: m.array(2.0).copy(),
    "its T": lambda m, a: m.array(2.0).T,
    "its reshape": lambda m, a: m.array(2.0).reshape(()),
    "its square": lambda m, a: m.array(2.0) ** 2,
    "its comparison": lambda m, a: m.array(2.0) > 1,
    "next(iter(a))": lambda m, a: next(iter(a)),
    "a.sum()": lambda m, a: a.sum(),
    "a.sum(0)": lambda m, a: a.sum(0),
    "a.sum(keepdims=True)": lambda m, a: a.sum(keepdims=True),
    "a.mean()": lambda m, a: a.mean(),
    "a.std()": lambda m, a: a.std(),
    "a.max()": lambda m, a: a.max(),
    "a.argmin()": lambda m, a: a.argmin(),
    "a.any()": lambda m, a: a.any(),
    "a.all()": lambda m, a: a.all(),
    "a.prod()": lambda m, a: a.prod(),
    "a.dot(a)": lambda m, a: a.dot(a),
    "a @ a": lambda m, a: a @ a,
    "a.trace": lambda m, a: a.reshape(1, -1).trace(),
    "a.take(1)": lambda m, a: a.take(1),
    "a.item(1)": lambda m, a: a.item(1),
    "a[1] + a[0]": lambda m, a: a[1] + a[0],
    "a[1] + 1": lambda m, a: a[1] + 1,
    "1 + a[1]": lambda m, a: 1 + a[1],
    "a[1] + a": lambda m, a: a[1] + a,
    "a[1] + [1, 2, 3]": lambda m, a: a[1] + [1, 2, 3],
    "a[1] == a[0]": lambda m, a: a[1] == a[0],
    "a[1] == 'x'": lambda m, a: a[1] == "x",
    "abs(a[1])": lambda m, a: abs(a[1]),
    "a[1].real": lambda m, a: a[1].real,
    "a[1].imag": lambda m, a: a[1].imag,
    "a[1].conj()": lambda m, a: a[1].conj(),
    "a[1].T": lambda m, a: a[1].T,
    "a[1].copy()": lambda m, a: a[1].copy(),
    "a[1].reshape(())": lambda m, a: a[1].reshape(()),
    "a[1].reshape(1)": lambda m, a: a[1].reshape(1),
    "a[1].ravel()": lambda m, a: a[1].ravel(),
    "a[1].flatten()": lambda m, a: a[1].flatten(),
    "a[1].squeeze()": lambda m, a: a[1].squeeze(),
    "a[1].astype(complex)": lambda m, a: a[1].astype("complex128"),
    "a[1].sum()": lambda m, a: a[1].sum(),
    "a[1][()]": lambda m, a: a[1][()],
    "a[1][...]": lambda m, a: a[1][...],
    "a[1][None]": lambda m, a: a[1][None],
    "a[1].item()": lambda m, a: a[1].item(),
    "a[1].tolist()": lambda m, a: a[1].tolist(),
    "np.sum": lambda m, a: np.sum(a),
    "np.add": lambda m, a: np.add(a[1], a[0]),
    "np.multiply": lambda m, a: np.multiply(a[1], 2),
    "np.exp": lambda m, a: np.exp(a[1]),
    "np.dot": lambda m, a: np.dot(a, a),
    "np.inner": lambda m, a: np.inner(a, a),
    "np.vdot": lambda m, a: np.vdot(a, a),
    "np.tensordot": lambda m, a: np.tensordot(a, a, axes=1),
    "np.einsum": lambda m, a: np.einsum("i,i->", a, a),
    "np.where": lambda m, a: np.where(a[1] == a[1], a[0], a[1]),
    "np.round": lambda m, a: np.round(a[1]),
    "np.copy": lambda m, a: np.copy(a[1]),
    "np.asarray(...)[()]": lambda m, a: a[np.int64(1)],
    "np.median": lambda m, a: np.median(a.real),
    "np.ptp": lambda m, a: np.ptp(a.real) if a.dtype != bool else 0,
    "np.linalg.norm": lambda m, a: np.linalg.norm(a.real.astype("float64")),
    "np.linalg.slogdet": lambda m, a: np.linalg.slogdet(np.eye(2) * a.real.max()),
    "np.count_nonzero": lambda m, a: np.count_nonzero(a),
    "np.zeros_like": lambda m, a: np.zeros_like(a[1]),
    "np.reshape": lambda m, a: np.reshape(a[1], ()),
    "np.transpose": lambda m, a: np.transpose(a[1]),
    "np.expand_dims": lambda m, a: np.expand_dims(a[1], 0),
    "np.searchsorted": lambda m, a: np.searchsorted(np.sort(a.real), 1),
    "np.maximum.reduce": lambda m, a: np.maximum.reduce(a.real),
    "np.clip": lambda m, a: np.clip(a[1].real, 0, 1) if a.dtype != bool else 0,
    "np.divmod": lambda m, a: divmod(a[0].real, a.real.max()) if a.dtype != bool else 0,
}


def arrays(dtype: str) -> np.ndarray:
    kind = np.dtype(dtype).kind
    return np.array(VALUES[{"c": 2, "f": 1}.get(kind, 0)]).astype(dtype)


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
        return
    if not isinstance(expected, (np.ndarray, np.generic)):
        assert type(found) is type(expected)
        assert found == expected
        return
    assert isinstance(found, hg.Tensor)
    assert isinstance(found, hg.Scalar) == isinstance(expected, np.generic), (found, expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    rounding = {2: 2e-3, 4: 1e-6}.get(expected.dtype.itemsize, 1e-12)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=rounding)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_gives_scalars(name: str, dtype: str) -> None:
    x = arrays(dtype)
    try:
        expected = CALLS[name](np, x)
    except TypeError:
        with pytest.raises(TypeError):
            CALLS[name](hg, hg.array(x))
        return
    same(CALLS[name](hg, hg.array(x)), expected)


def test_a_running_total_keeps_its_history() -> None:
    for m in (np, hg):
        a = m.array([1.0, 2.0, 3.0])
        total, history = a[0] * 0, []
        for value in a:
            total += value
            history.append(total)
        assert history == [1, 3, 6]
        best = a.max()
        kept = best
        best *= 2
        assert (float(kept), float(best)) == (3, 6)
        x, steps = a[2], []
        for _ in range(6):  # Newton's method for the root of 2
            steps.append(x)
            x -= (x * x - 2) / (2 * x)
        assert steps[0] == 3
        assert len(set(steps)) == 6
        mean = a.mean()
        mean -= a
        assert mean.shape == (3,)
        assert a.tolist() == [1, 2, 3]


IN_PLACE = [
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv,
    operator.imod, operator.ipow, operator.iand, operator.ior, operator.ixor, operator.ilshift,
    operator.irshift,
]  # fmt: skip


@pytest.mark.parametrize("function", IN_PLACE)
def test_operators_in_place_bind_a_new_scalar(function: Callable[[Any, Any], Any]) -> None:
    for value in (2, np.int64(2), np.array([1, 2])):
        t, x = hg.array([7, 5])[0], np.array([7, 5])[0]
        kept = t
        t, x = function(t, value), function(x, value)
        same(t, x)
        assert kept == 7
        assert t is not kept


def test_scalars_are_not_written() -> None:
    s = hg.array([1.0, 2.0])[1]
    writes: list[Callable[[], Any]] = [
        lambda: operator.setitem(s, (), 3.0),
        lambda: operator.setitem(s, ..., 3.0),
        lambda: s.fill(3.0),
        lambda: hg.add(1.0, 2.0, out=s),
        lambda: hg.array([1.0]).sum(out=s),
        lambda: s.resize(3),
    ]
    for write in writes:
        with pytest.raises(TypeError, match="Scalar is a number and cannot be"):
            write()
    for write in (lambda: hg.Tensor([1.0]).dot([1.0], out=s), lambda: np.copyto(s, 3.0)):
        with pytest.raises((TypeError, ValueError)):  # NumPy's words
            write()
    with pytest.raises(ValueError, match="WRITEABLE"):
        s.setflags(write=True)
    a = hg.array([1.0, 2.0])
    masked, other = a[1], a[1]
    masked[masked > 1] = 9.0  # what scipy does with what it computed
    masked[masked < 1] = 5.0
    assert (masked, other, a[1]) == (9, 2, 2)
    with pytest.raises(TypeError, match=r"hologram\.array\(x\)\[\(\)\]"):
        hg.Scalar(1.0)
    assert s == 2
    for view in (np.asarray(s), s.numpy(), np.from_dlpack(s), s.reshape(1), s[...], hg.asarray(s)):
        view[...] = 5
    assert s == 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_they_count_as_numbers(dtype: str) -> None:
    x = arrays(dtype)[0]
    s = hg.array(arrays(dtype))[0]
    for kind in (numbers.Complex, numbers.Real, numbers.Rational, numbers.Integral):
        assert isinstance(s, kind) == isinstance(x, kind), kind
    assert isinstance(s, numbers.Number)
    assert np.isscalar(s)
    assert hash(s) == hash(x)
    assert {s: 1}[x.item()] == 1
    assert s in {x.item()}
    assert complex(s) == complex(x)
    for function in (round, math.floor, math.ceil, math.trunc, float, int, operator.index, abs,
                     lambda v: v.is_integer(), lambda v: v.as_integer_ratio(),
                     lambda v: v.bit_count(), lambda v: (v.numerator, v.denominator),
                     lambda v: round(v, 1), lambda v: range(v), lambda v: [0] * v,
                     lambda v: v * (1, 2), lambda v: "ab" * v, lambda v: bytearray(b"c") * v,
                     ):  # fmt: skip
        if dtype.startswith("complex") and function in (float, int, math.floor, math.ceil):
            with pytest.raises(TypeError):  # NumPy drops the imaginary part, and warns
                function(s)
            continue
        try:
            expected = function(x)
        except (TypeError, AttributeError):
            # trunc is Python's for every float, as it is for NumPy's float64.
            if function is math.trunc and np.dtype(dtype).kind in "fiu":
                assert math.trunc(s) == int(x)
                continue
            with pytest.raises((TypeError, AttributeError)):
                function(s)
            continue
        same(function(s), expected)


def test_containers_of_scalars() -> None:
    t, x = hg.array([3, 1, 3, 2]), np.array([3, 1, 3, 2])
    assert set(t) == set(x)
    assert collections.Counter(t) == collections.Counter(x)
    assert sorted(t) == sorted(x)
    assert {v: i for i, v in enumerate(t)} == {v: i for i, v in enumerate(x)}
    assert t[1] in {1, 2}
    assert [10, 20, 30][t[3]] == 30

    calls = []

    @functools.lru_cache
    def square(v: Any) -> Any:
        calls.append(v)
        return v * v

    assert [square(v) for v in t] == [9, 1, 9, 4]
    assert len(calls) == 3
    nan = hg.array([math.nan])[0]
    assert len({nan, hg.array([math.nan])[0]}) == 2
    assert nan in {nan}


def test_text_copies_and_pickles() -> None:
    for dtype in DTYPES:
        x = arrays(dtype)
        for t, e in zip(hg.array(x), x, strict=True):
            assert str(t) == str(e)
            assert f"{t}" == f"{e.item()}"
            assert copy.copy(t) is t
            assert copy.deepcopy([t])[0] is t
            back = pickle.loads(pickle.dumps(t))
            assert isinstance(back, hg.Scalar)
            assert back.dtype == t.dtype
            assert back == t
    assert repr(hg.array([1.5])[0]) == "Scalar(1.5)"
    assert repr(hg.array([1], dtype="int8").sum(dtype="int8")) == "Scalar(1, dtype=int8)"
    assert f"{hg.array([1.5])[0]:.2f}" == "1.50"


@pytest.mark.parametrize("dtype", DTYPES)
def test_their_dtypes_are_strong(dtype: str) -> None:
    for other in DTYPES:
        x, y = arrays(dtype), arrays(other)
        for function in (operator.add, operator.mul):
            same(function(hg.array(x), hg.array(y)[1]), function(x, y[1]))
            same(function(hg.array(x)[0], hg.array(y)[1]), function(x[0], y[1]))
            same(function(x[0], hg.array(y)[1]), function(x[0], y[1]))


def test_a_scalar_waits_for_what_it_is_made_of() -> None:
    a = hg.array([1.0, 2.0, 3.0])
    first = a[0]
    a[0] = 10
    total = a.sum()
    a += 1
    assert (float(first), float(total), float(a[0])) == (1, 15, 11)


def test_layout_of_memory() -> None:
    x = np.arange(12.0).reshape(3, 4)
    t = hg.array(x)
    views: list[Callable[[Any], Any]] = [
        lambda a: a, lambda a: a.T, lambda a: a[1], lambda a: a[:, 1], lambda a: a[::2],
        lambda a: a[:, ::-1], lambda a: a[:0], lambda a: a[None], lambda a: a.reshape(-1),
    ]  # fmt: skip
    names = ["c_contiguous", "f_contiguous", "fnc", "forc", "writeable", "aligned", "carray",
             "behaved", "contiguous", "writebackifcopy"]  # fmt: skip
    for view in views:
        for name in names:
            assert getattr(view(t).flags, name) == getattr(view(x).flags, name), name
        for name in ("C_CONTIGUOUS", "F", "W", "FNC"):
            assert view(t).flags[name] == view(x).flags[name]
        assert np.isfortran(view(t)) == np.isfortran(view(x))
    assert t.base is None
    assert t.flags.owndata
    assert t[1].base.tolist() == x.ravel().tolist()
    assert not t[1].flags.owndata
    assert bytes(t.data) == bytes(x.data)
    with pytest.raises(KeyError, match="Unknown flag"):
        t.flags["NOTHING"]
    assert "C_CONTIGUOUS : True" in repr(t.flags)


def test_flags_are_set() -> None:
    t = hg.array([1.0, 2.0])
    t.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        t += 1
    t.setflags(write=True)
    t += 1
    assert t.tolist() == [2, 3]
    locked = np.arange(3.0)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="WRITEABLE"):
        hg.asarray(locked).setflags(write=True)
    with pytest.raises(ValueError, match="WRITEBACKIFCOPY"):
        t.setflags(uic=True)
    with pytest.raises(ValueError, match="aligned"):
        t.setflags(align=False)


def test_views_of_other_types() -> None:
    x = np.arange(8.0).reshape(2, 4)
    t = hg.array(x)
    for dtype in (np.int32, "int64", np.dtype("uint8"), np.float32, hg.int16):
        as_numpy = np.dtype(dtype.dtype if isinstance(dtype, hg.DType) else dtype)
        assert t.view(dtype).tolist() == x.view(as_numpy).tolist()
        assert t.view(dtype=dtype).tolist() == x.view(as_numpy).tolist()
    for kind in (np.ndarray, np.ma.MaskedArray):
        for found in (t.view(kind), t.view(type=kind)):
            assert type(found) is kind
            assert np.shares_memory(found, np.asarray(t))
    record = np.dtype([("a", "f8"), ("b", "f8")])
    assert t.view(record).tolist() == x.view(record).tolist()
    with pytest.raises(TypeError, match="class of NumPy's arrays"):
        t.view(type=int)


def test_items() -> None:
    x = np.arange(12).reshape(3, 4)
    t = hg.array(x)
    for index in ((5,), (-1,), (1, 2), ((2, -1),)):
        assert t.item(*index) == x.item(*index)
        assert type(t.item(*index)) is int
    assert t.T.item(5) == x.T.item(5)
    for index in ((12,), (-13,), (3, 0)):
        with pytest.raises(IndexError, match="out of bounds"):
            t.item(*index)
    with pytest.raises(ValueError, match="3 indices are given for an array of 2"):
        t.item(1, 2, 3)


def test_what_changes_memory_in_place(tmp_path: Any) -> None:
    x = np.arange(6, dtype="int32")
    t = hg.array(x)
    assert t.byteswap().tolist() == x.byteswap().tolist()
    assert t.byteswap(inplace=True) is t
    assert t.tolist() == x.byteswap().tolist()
    t = hg.array(x)
    for shape in (9, (2, 2), ((2, 3),), 0, (2,)):
        expected = np.resize(x, 0) if shape == 0 else x.copy()
        t, expected = hg.array(x), x.copy()
        arguments = shape if isinstance(shape, tuple) else (shape,)
        t.resize(*arguments)
        expected.resize(*arguments, refcheck=False)
        same(t, expected)
    with pytest.raises(ValueError, match="owns its memory"):
        t[1:].resize(4)
    with pytest.raises(ValueError, match="negative"):
        t.resize(-1)
    hg.array(x).tofile(tmp_path / "x")
    assert np.fromfile(tmp_path / "x", "int32").tolist() == x.tolist()
    hg.array(x).tofile(tmp_path / "y", sep=",")
    assert (tmp_path / "y").read_text() == "0,1,2,3,4,5"


def test_ctypes() -> None:
    import ctypes

    t = hg.array([1.0, 2.0])
    pointer = t.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    pointer[1] = 7
    assert (t + 0).tolist() == [1, 7]


def test_overwrite_input_of_a_scalar_is_taken() -> None:
    x = hg.array([5.0, 7.0])[1]
    for function in (np.median, np.nanmedian):
        assert function(x, overwrite_input=True) == 7.0
    for function in (np.quantile, np.nanquantile):
        assert function(x, 0.5, overwrite_input=True) == 7.0
    assert x.item() == 7.0
