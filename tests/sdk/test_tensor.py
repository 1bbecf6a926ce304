# SPDX-License-Identifier: MIT
"""hologram.Tensor and hologram.ops against NumPy: all that they do but operators and borders."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hologram as hg

ROOT = Path(__file__).resolve().parents[2]
DTYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    "uint16", "uint32", "uint64",
]  # fmt: skip
rng = np.random.default_rng(5)
testing = hg._hologram.testing


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def same(t: Any, x: Any) -> None:
    assert isinstance(t, hg.Tensor)
    x = np.asarray(x)
    assert (t.shape, t.dtype) == (x.shape, x.dtype)
    np.testing.assert_array_equal(np.asarray(t), x)


# --- Making -----------------------------------------------------------------------------------

LISTS: list[Any] = [
    [], [[]], [[], []], 3, True, 2.5, 1j, [1, 2], [1, 2.5], [True, 2], [True, False], [1, 2j],
    [[1, 2], [3, 4]], ((1.0, 2), [3, 4]), [[[1]], [[2]]], [2**40], [-(2**63)],
    [np.float32(1), np.float32(2)], [np.arange(3), np.arange(3)], [np.int8(1), 2],
]  # fmt: skip


@pytest.mark.parametrize("x", LISTS, ids=repr)
def test_lists(x: Any) -> None:
    same(hg.array(x), np.array(x))
    for dtype in ("float32", "float64", "complex64"):
        if not np.iscomplexobj(x) or dtype == "complex64":
            same(hg.array(x, dtype=dtype), np.array(x, dtype=dtype))


def test_lists_that_are_no_array() -> None:
    for ragged in ([[1, 2], [3]], [1, [2]], [[1], 2], [[[1]], [2]]):
        with pytest.raises(ValueError, match="different lengths or depths"):
            hg.array(ragged)
    with pytest.raises(OverflowError):
        hg.array([2**70])
    with pytest.raises(OverflowError, match="Python integer 300 out of bounds for int8"):
        hg.array([300], dtype="int8")
    for wrong in (["a"], [None], {"a": 1}, object(), "text"):
        with pytest.raises((TypeError, ValueError)):
            hg.array(wrong)
    with pytest.raises(TypeError):
        hg.array(None)
    assert hg.array([2**70], dtype=float).tolist() == [2.0**70]


def test_other_sources() -> None:
    import array

    same(hg.array(array.array("d", [1, 2])), np.array([1.0, 2.0]))
    same(hg.array(b"ab"), np.array([97, 98], "uint8"))
    same(hg.array(range(4)), np.arange(4))
    t = hg.ones(3)
    assert hg.asarray(t) is t
    assert hg.array(t) is not t
    assert hg.asarray(t, dtype="float64") is t
    same(hg.asarray(t, dtype="int8"), np.ones(3, "int8"))
    same(hg.Tensor([1, 2], dtype="float32"), np.array([1, 2], "float32"))
    with pytest.raises(TypeError):
        hg.Tensor()

    class HasArray:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return np.arange(3)

    same(hg.asarray(HasArray()), np.arange(3))


@pytest.mark.parametrize("dtype", [*DTYPES, "complex64", "complex128"])
def test_factories(dtype: str) -> None:
    for shape in ((), 3, (2, 3), [0, 2]):
        same(hg.zeros(shape, dtype), np.zeros(shape, dtype))
        same(hg.ones(shape, dtype=dtype), np.ones(shape, dtype))
        same(hg.full(shape, 2, dtype), np.full(shape, 2, dtype))
        assert hg.empty(shape, dtype).shape == np.empty(shape).shape
    if dtype != "bool":
        same(hg.arange(5, dtype=dtype), np.arange(5, dtype=dtype))


def test_defaults_of_factories() -> None:
    assert {hg.zeros(1).dtype, hg.ones(1).dtype, hg.empty(1).dtype} == {np.dtype("float64")}
    same(hg.full(2, 3), np.full(2, 3))
    same(hg.full(2, True), np.full(2, True))
    same(hg.full((2, 2), [1.5, 2.5]), np.full((2, 2), [1.5, 2.5]))
    with pytest.raises(OverflowError):
        hg.full(2, 300, "int8")
    with pytest.raises(ValueError, match="negative dimension"):
        hg.zeros(-1)
    with pytest.raises(MemoryError):
        hg.ones(2**55)


@pytest.mark.parametrize(
    "args",
    [(5,), (2, 7), (7, 2), (2, 9, 3), (9, 2, -2), (0.5, 3), (0, 1, 0.1), (1, 0, -0.25), (3.0,),
     (0,), (-3,), (1, 1e6, 1e5)],
)  # fmt: skip
def test_arange(args: tuple[float, ...]) -> None:
    same(hg.arange(*args), np.arange(*args))


def test_arange_refuses() -> None:
    with pytest.raises(ValueError, match="step is 0"):
        hg.arange(1, 2, 0)
    with pytest.raises(ValueError, match="too many"):
        hg.arange(1e300)
    with pytest.raises(ValueError):
        hg.arange(float("nan"))


# --- Shapes -----------------------------------------------------------------------------------


def test_properties() -> None:
    x = rng.standard_normal((2, 3, 4)).astype("float32")
    t = hg.array(x)
    for name in ("shape", "strides", "dtype", "ndim", "size", "itemsize", "nbytes"):
        assert getattr(t, name) == getattr(x, name), name
    assert t.stride() == (12, 4, 1)
    assert t.stride(-1) == 1
    assert len(t) == 2
    assert [row.tolist() for row in t] == x.tolist()
    assert x[1, 2, 3] in t
    assert 99.0 not in t
    for use in (len, iter):
        with pytest.raises(TypeError):
            use(hg.array(1))


def test_objects_of_other_types_are_refused() -> None:
    empty = hg.Tensor.__new__(hg.Tensor)
    uses: list[Any] = [
        lambda: empty + 1,
        lambda: empty[0],
        lambda: -empty,
        lambda: len(empty),
        lambda: empty.astype("int8"),
        lambda: hg.Tensor.astype(3, "int8"),
        lambda: hg.Buffer.to_numpy(3),
        lambda: hg.ones(2).stride("x"),
        lambda: hg.ones(2).var(correction="x"),
        lambda: hg.ones(2).cumsum("x"),
    ]
    for use in uses:
        with pytest.raises(TypeError):
            use()


def test_views() -> None:
    x = np.arange(24).reshape(2, 3, 4)
    t = hg.array(x)
    pairs = [
        (t.reshape(4, 6), x.reshape(4, 6)),
        (t.reshape((6, -1)), x.reshape(6, -1)),
        (t.reshape(-1), x.reshape(-1)),
        (t.T, x.T),
        (t.mT, x.mT),
        (t.transpose(), x.transpose()),
        (t.transpose(2, 0, 1), x.transpose(2, 0, 1)),
        (t.transpose((2, 0, 1)), x.transpose(2, 0, 1)),
        (t.transpose(0, 2), x.swapaxes(0, 2)),
        (t.swapaxes(-1, 0), x.swapaxes(-1, 0)),
        (t.permute(1, 0, 2), x.transpose(1, 0, 2)),
        (t.narrow(1, 1, 2), x[:, 1:3]),
        (t.select(2, -1), x[..., -1]),
        (t.slice(2, 0, 4, 2), x[..., 0:4:2]),
        (t.slice(1, -2, 99), x[:, -2:99]),
        (t.unsqueeze(1), x[:, None]),
        (t.unsqueeze(-1).squeeze(), x),
        (t[:1].squeeze(0), x[0]),
        (t[:1].expand(5, 3, 4), np.broadcast_to(x[:1], (5, 3, 4))),
        (t.ravel(), x.ravel()),
        (t.T.ravel(), x.T.ravel()),
        (t.flatten(), x.flatten()),
        (t.T.reshape(4, 6), x.T.reshape(4, 6)),
        (t.T.contiguous(), x.T.copy()),
    ]
    for found, expected in pairs:
        same(found, expected)
    assert t.contiguous() is t
    assert t.T.contiguous().stride() == (6, 2, 1)
    t.T[0, 0, 0] = 77
    assert t[0, 0, 0].item() == 77
    with pytest.raises(ValueError, match="invalid for input of size 24"):
        t.reshape(5, 5)
    with pytest.raises(IndexError):
        t.transpose(0, 3)
    with pytest.raises(ValueError, match="does not have size 1"):
        t.squeeze(0)
    with pytest.raises(TypeError, match="only order= is known, not axis=0"):
        t.reshape(24, axis=0)
    with pytest.raises(ValueError, match="read-only"):
        t[:1].expand(5, 3, 4)[0] = 1


@pytest.mark.parametrize("dtype", ["float32", "int8", "int64", "complex64"])
def test_an_element_is_a_copy_and_a_view_is_not(dtype: str) -> None:
    x = np.arange(24).reshape(2, 3, 4).astype(dtype)
    t = hg.array(x)
    zero = np.array(x[1, 1, 1])
    z = hg.array(zero)
    of_numpy: list[Any] = [x[1, 2, 3], x[0, 0, 0, ...], x[1, 2, 3:4], zero[()], zero[...]]
    ours = [t[1, 2, 3], t[0, 0, 0, ...], t[1, 2, 3:4], z[()], z[...]]
    rows, row_tensors = list(x[1, 2]), list(t[1, 2])  # iteration as well
    x[:] = 0
    t[:] = 0
    zero[()] = 0
    z[()] = 0
    for found, expected in zip(ours + row_tensors, of_numpy + rows, strict=True):
        same(found, np.asarray(expected))
    element = t[0, 1, 2]
    element += 1
    assert t[0, 1, 2].item() == 0
    t[0, 1, 2] += 1
    assert t[0, 1, 2].item() == 1
    copy = hg.asarray(np.broadcast_to(np.float32(3), (2, 2)))[0, 0]
    copy += 1  # the array over which it was read may not be written
    assert copy.item() == 4


INDICES: list[Any] = [
    0, -1, np.s_[:], np.s_[1:], np.s_[::-1], np.s_[:, 1], np.s_[..., 2], np.s_[0, 1, 2],
    np.s_[:, ::-2, 1:3], np.s_[None], np.s_[:, None, 1, ..., None], np.s_[5:2], np.s_[::5],
    np.s_[-100:100:2, ...], np.s_[...], (), np.s_[1, ...], np.int64(1), np.s_[:, :, np.int8(2)],
    [0, 1, 1], [[0, 1], [1, 0]], np.array([1, 0]), np.s_[:, [2, 0]], np.s_[[0, 1], [2, 1]],
    np.s_[[0, 1], :, [2, 1]], np.s_[..., np.array([[3, 0]])], np.array([True, False]), True, False,
    np.s_[0, [True, False, True]], np.s_[[], :], np.s_[1:, [0, 2], None],
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "int8", "int64", "complex64"])
def test_indexing(index: Any, dtype: str) -> None:
    x = (np.arange(24) % 7).reshape(2, 3, 4).astype(dtype)
    t = hg.array(x)
    same(t[index], x[index])
    y = (np.arange(x[index].size) % 2).reshape(x[index].shape).astype(dtype)
    for value in (1, y, hg.array(y), y.tolist() if y.size else 1):
        t, z = hg.array(x), x.copy()
        t[index] = value
        z[index] = value if not isinstance(value, hg.Tensor) else y
        same(t, z)


def test_tensors_as_indices() -> None:
    x = np.arange(12).reshape(3, 4)
    t = hg.array(x)
    same(t[hg.array(1)], x[1])
    same(t[hg.array([2, 0])], x[[2, 0]])
    same(t[t > 5], x[x > 5])
    same(t[:, hg.array([True, False, True, False])], x[:, [0, 2]])
    t[t > 5] = 0
    x[x > 5] = 0
    same(t, x)
    b = hg.array(x, "bfloat16")
    assert b[[1, 1]].tolist() == [x[1].tolist()] * 2
    b[[0]] = 9.5
    assert b[0].tolist() == [9.5] * 4


def test_indices_are_checked() -> None:
    t = hg.zeros((2, 3))
    for wrong in (2, -3, np.s_[0, 3], np.s_[:, -4], [5], np.s_[0, 0, 0], np.s_[..., ...]):
        with pytest.raises(IndexError):
            t[wrong]
    for wrong in ("x", 1.5):
        with pytest.raises((IndexError, TypeError)):
            t[wrong]
    with pytest.raises(TypeError, match="cannot be deleted"):
        del t[0]
    with pytest.raises(ValueError):
        t[0] = [1, 2]
    with pytest.raises(TypeError, match="imaginary"):
        t[0] = 1j
    with pytest.raises(OverflowError, match="300 out of bounds for int8"):
        hg.zeros(2, "int8")[:] = 300
    t[0] = [[[1, 2, 3]]]
    assert t[0].tolist() == [1, 2, 3]
    t[:, 0] += 5
    assert t[:, 0].tolist() == [6, 5]


# --- Conversions ------------------------------------------------------------------------------


@pytest.mark.parametrize("a", DTYPES)
def test_astype(a: str) -> None:
    x = np.array([0, 1, 2, 5, 100]).astype(a)
    t = hg.array(x)
    for b in [*DTYPES, "complex64", "complex128"]:
        same(t.astype(b), x.astype(b))
    assert t.astype(a, copy=False) is t
    assert t.astype(a) is not t
    with pytest.raises(TypeError, match="take the real or imaginary part"):
        t.astype("complex64").astype(a)


def test_numbers_lists_and_bytes() -> None:
    for dtype in [*DTYPES, "complex128"]:
        x = np.array([[0, 1], [1, 3]]).astype(dtype)
        t = hg.array(x)
        assert t.tolist() == x.tolist()
        assert type(t[0, 1].item()) is type(x[0, 1].item())
        assert t.T.tobytes() == x.T.tobytes()
    assert hg.array([1.5, 2.5], "bfloat16").tolist() == [1.5, 2.5]
    with pytest.raises(ValueError, match="has 2 elements"):
        hg.array([1, 2]).item()
    with pytest.raises(TypeError, match="takes no format"):
        format(hg.ones(2), ".2f")


def test_copies_and_pickles() -> None:
    for dtype in [*DTYPES, "bfloat16", "complex64"]:
        t = hg.array([[1, 0, 1], [0, 1, 1]], dtype).T
        for made in (copy.copy(t), copy.deepcopy(t), t.copy(), pickle.loads(pickle.dumps(t))):
            assert made.tolist() == t.tolist()
            assert made.dtype == t.dtype
            made[0] = 1
        assert t.tolist() == [[1, 0], [0, 1], [1, 1]]
    assert pickle.loads(pickle.dumps(hg.zeros((0, 3), "int8"))).shape == (0, 3)
    assert pickle.loads(pickle.dumps(hg.bfloat16)) == hg.bfloat16


def test_repr_is_numpys() -> None:
    for x in (np.arange(3), np.ones((2, 2)), np.array(True), np.zeros((2, 3), "float32"),
              np.arange(2000.0), np.array([1 + 2j])):  # fmt: skip
        expected = repr(x).replace("array(", "Tensor(")
        found = repr(hg.array(x))
        assert found.replace(" ", "") == expected.replace(" ", "").replace(",shape=(2000,)", "")
        assert str(hg.array(x)) == str(x)
    assert repr(hg.ones(2, "bfloat16")) == "Tensor([1., 1.], dtype=bfloat16)"
    assert repr(hg.zeros((0, 2))) == "Tensor([], shape=(0, 2), dtype=float64)"
    assert f"{hg.ones(2)}" == "[1. 1.]"


def test_dtypes_without_numpy() -> None:
    assert hg.float32 == np.float32
    assert np.dtype("float32") == hg.float32
    assert hg.bfloat16 == "bfloat16"
    assert hg.float32 != "float64"
    assert np.zeros(2, hg.int16).dtype == np.int16
    assert repr(hg.bool_) == "hologram.bool_"
    assert str(hg.int8) == "int8"
    assert len({hg.int8, hg.int8, hg.int16}) == 2
    with pytest.raises(TypeError, match="is not one of"):
        hg.DType("uint128")
    code = (
        "import sys; sys.modules['numpy'] = None; import hologram as hg\n"
        "t = hg.array([[1, 2.5], [3, 4]]); u = (t * 2 + 1).sum(axis=0)\n"
        "assert u.tolist() == [10.0, 15.0] and t.dtype == 'float64' == hg.float64, t.dtype\n"
        "assert repr(u) == 'Tensor([10.0, 15.0])', repr(u)\n"
        "assert t[0, ::-1].tolist() == [2.5, 1.0] and t.dtype.itemsize == 8\n"
        "ex = hg.Executor(); b = ex.allocate(2, 'bfloat16'); b.fill(1); print(b.dtype)\n"
        "assert memoryview(t).tolist() == t.tolist() and hg.from_dlpack(t)[1, 0] == 3\n"
        "try: ex.allocate(2, 'f4')\n"
        "except TypeError as error: assert 'use one of' in str(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "bfloat16\n"


# --- Reductions -------------------------------------------------------------------------------

AXES: list[Any] = [None, 0, 1, -1, (0, 2), (0, 1, 2), ()]
REDUCTIONS = ["sum", "prod", "mean", "min", "max", "any", "all", "var", "std"]


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(name: str, dtype: str) -> None:
    x = rng.integers(0, 4, (3, 4, 5)).astype(dtype)
    t = hg.array(x)
    for axis in AXES:
        for keepdims in (False, True):
            expected = getattr(x, name)(axis=axis, keepdims=keepdims)
            found = getattr(t, name)(axis=axis, keepdims=keepdims)
            function = getattr(hg, name)(x, axis=axis, keepdims=keepdims)
            assert function.shape == found.shape == expected.shape
            assert found.dtype == expected.dtype, (name, dtype)
            if found.dtype.kind == "f" and name != "prod":
                exact = getattr(x.astype("float64"), name)(axis=axis, keepdims=keepdims)
                digits = 4 * np.finfo(found.dtype).eps  # a mean, squares, a root, the rounding
                np.testing.assert_allclose(found.numpy(), exact, rtol=digits, atol=0)
            elif name != "prod" or dtype not in ("float16", "float32", "uint8"):
                np.testing.assert_array_equal(found.numpy(), expected)
            numpys = getattr(np, name)(t, axis=axis, keepdims=keepdims)
            assert numpys.shape == expected.shape


def test_arguments_of_reductions() -> None:
    x = rng.standard_normal((4, 5))
    t = hg.array(x)
    for name in ("argmin", "argmax"):
        for axis in (None, 0, 1):
            same(getattr(t, name)(axis), getattr(x, name)(axis))
            same(getattr(hg, name)(t, axis, keepdims=True),
                 getattr(np, name)(x, axis, keepdims=True))  # fmt: skip
    assert t.sum(dtype="float32").dtype == np.float32
    np.testing.assert_allclose(t.var(ddof=1).item(), x.var(ddof=1))
    np.testing.assert_allclose(t.std(0, correction=1).numpy(), x.std(0, ddof=1))
    np.testing.assert_allclose(t.norm(axis=1).numpy(), np.linalg.norm(x, axis=1))
    np.testing.assert_allclose(t.norm(p=1).item(), np.abs(x).sum())
    np.testing.assert_allclose(t.logsumexp(1).numpy(), np.log(np.exp(x).sum(1)))
    np.testing.assert_allclose(t.cumsum(1).numpy(), x.cumsum(1))
    np.testing.assert_allclose(hg.cumsum(t).numpy(), x.cumsum())
    e = np.exp(x)
    np.testing.assert_allclose(t.softmax().numpy(), e / e.sum(1, keepdims=True))
    np.testing.assert_allclose(hg.softmax(t, 0).numpy(), e / e.sum(0))
    np.testing.assert_allclose(t.log_softmax(1).numpy(), np.log(e / e.sum(1, keepdims=True)))
    assert hg.softmax([1, 2]).dtype == np.float64
    out = hg.zeros(5)
    assert t.sum(0, out=out) is out
    np.testing.assert_allclose(out.numpy(), x.sum(0))
    with pytest.raises(ValueError, match=r"out has shape \(5,\) and the result \(4,\)"):
        t.sum(1, out=out)
    with pytest.raises(TypeError, match="does not go into an out of int64"):
        t.sum(0, out=hg.zeros(5, "int64"))
    with pytest.raises(IndexError, match="2"):
        t.sum(2)
    with pytest.raises(ValueError):
        hg.zeros((0, 3)).max()
    with pytest.raises((ValueError, IndexError)):
        t.sum((0, 0))
    assert math.isnan(hg.zeros(0).mean().item())
    assert hg.zeros(0).sum().item() == 0


def test_joining() -> None:
    x, y = np.ones((2, 3)), np.zeros((2, 3), "float32")
    same(hg.cat([hg.array(x), hg.array(y)]), np.concatenate([x, y]))
    same(hg.cat((x, y), axis=1), np.concatenate([x, y], axis=1))
    for axis in (0, 1, 2, -1):
        same(hg.stack([x, x], axis), np.stack([x, x], axis))
    with pytest.raises(ValueError, match="shapes differ"):
        hg.stack([x, x[0]])
    with pytest.raises(ValueError):
        hg.cat([])


# --- NumPy's protocols ------------------------------------------------------------------------

UFUNCS = [
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "minimum",
    "maximum", "equal", "less", "logical_and", "logical_xor", "hypot", "arctan2", "fmod",
]  # fmt: skip
UNARY = [
    "negative", "absolute", "sqrt", "exp", "log1p", "sin", "tanh", "floor", "rint", "square",
    "sign", "isnan", "logical_not", "reciprocal", "cbrt", "arcsinh", "positive", "signbit",
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("name", UFUNCS + UNARY)
def test_ufuncs(name: str, dtype: str) -> None:
    ufunc = getattr(np, name)
    x = np.array([0.5, 1.5, 2.5, 7, 3, 2]).astype(dtype)
    y = np.array([1, 2, 3, 2, 1.5, 1]).astype(dtype)
    inputs = (x, y) if ufunc.nin == 2 else (x,)
    expected = ufunc(*inputs)
    for ours in ([hg.array(i) for i in inputs], [hg.array(inputs[0]), *inputs[1:]]):
        found = ufunc(*ours)
        assert isinstance(found, hg.Tensor)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    out = hg.zeros(6, expected.dtype)
    assert ufunc(*(hg.array(i) for i in inputs), out=out) is out
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)
    array = np.zeros(6, expected.dtype)
    assert ufunc(*(hg.array(i) for i in inputs), out=array) is array
    np.testing.assert_allclose(array, expected, rtol=1e-6)


def test_ufunc_methods_and_options() -> None:
    x = np.arange(12.0).reshape(3, 4)
    t = hg.array(x)
    same(np.add.reduce(t, axis=0), np.add.reduce(x, axis=0))
    same(np.multiply.outer(t, t), np.multiply.outer(x, x))
    same(np.add.accumulate(t), np.add.accumulate(x))
    for found, expected in zip(np.modf(t / 2), np.modf(x / 2)):
        same(found, expected)
    for found, expected in zip(np.divmod(t, 5), np.divmod(x, 5)):
        same(found, expected)
    same(np.sqrt(t, where=t > 3, out=hg.zeros((3, 4))), np.where(x > 3, np.sqrt(x), 0))
    same(np.add(t, 1, dtype="float32"), np.add(x, 1, dtype="float32"))
    z = t.copy()
    np.add.at(z, [0, 0], 1)
    assert z[0].tolist() == [2, 3, 4, 5]
    x = np.array([1.0, np.nan, -2])
    same(np.sign(hg.array(x)), np.sign(x))
    c = np.array([1 + 2j, 3])
    same(np.multiply(hg.array(c), hg.array(c)), c * c)
    y = np.ones(3)
    y += hg.ones(3)
    assert type(y) is np.ndarray
    assert y.tolist() == [2, 2, 2]
    same(np.ones(3) - hg.ones(3), np.zeros(3))

    class Other:
        def __array_ufunc__(self, *args: Any, **kwargs: Any) -> str:
            return "other"

    assert np.add(t, Other()) == "other"


def test_functions_of_numpy_take_tensors() -> None:
    t = hg.array([[3.0, 1], [2, 4]])
    assert np.sort(t).tolist() == [[1, 3], [2, 4]]
    assert np.concatenate([t, t]).shape == (4, 2)
    assert np.linalg.det(t) == pytest.approx(10)
    assert np.where(t > 2, t, 0).tolist() == [[3, 0], [0, 4]]
    assert np.reshape(t, 4).tolist() == [3, 1, 2, 4]
    assert np.shape(t) == (2, 2)
    assert np.array_equal(t, t)
    assert np.einsum("ij->i", t).tolist() == [4, 6]
    assert np.asarray(t, dtype="float32").dtype == np.float32
    assert np.array(t).tolist() == t.tolist()


def test_bfloat16_is_computed_as_by_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = rng.standard_normal(200).astype(ml_dtypes.bfloat16)
    y = (rng.standard_normal(200) * 3).astype(ml_dtypes.bfloat16)
    t, u = hg.asarray(x, copy=False), hg.array(y)
    assert t.dtype == x.dtype == hg.bfloat16
    assert t._peek().tolist() == x.view(np.int16).tolist()
    pairs = [
        (t + u, x + y), (t * u, x * y), (t / u, x / y), (t < u, x < y),
        (-t, -x), (hg.maximum(t, u), np.maximum(x, y)), (t[::-1], x[::-1]), (t[[3, 1]], x[[3, 1]]),
        (t.astype("float32"), x.astype(np.float32)),
        (t + hg.ones(200, "float32"), x + np.ones(200, np.float32)),
    ]  # fmt: skip
    for found, expected in pairs:
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(
            np.asarray(found).astype("float64"), expected.astype("float64")
        )
    assert (t - 0.1).dtype == x.dtype  # a number has no width here either
    x[0] = 5
    assert t[0].item() == 5
    with hg.Executor() as ex:
        b = ex.allocate(200, ml_dtypes.bfloat16)
        b.from_numpy(x)
        assert b.to_numpy().dtype == x.dtype
        assert b.to_bytes() == x.tobytes()
