# SPDX-License-Identifier: MIT
"""Products and reductions to one element at their call: the bits of recorded ones, every layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from both_ways import both

import hologram as hg
from hologram._hologram import testing

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
rng = np.random.default_rng(23)
REAL = ["int8", "int32", "int64", "uint8", "float16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
TOLERANCE = {"float16": 2e-3, "float32": 2e-5, "complex64": 2e-5}


@pytest.fixture(autouse=True)
def immediate(_either_way: None) -> None:
    testing.set_immediate_bytes(4096)


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    x = rng.standard_normal(shape) * 3
    if dtype.startswith("complex"):
        x = x + 1j * rng.standard_normal(shape)
    with np.errstate(invalid="ignore"):
        return x.astype(dtype)


def ops_recorded() -> int:
    with hg.Executor() as ex:
        return int(ex.stats()["ops_recorded"])


def check(x: Any, y: Any, fx: Any, fy: Any) -> None:
    """Multiply views of two arrays: at the call, recorded, and in NumPy."""
    at_call, recorded = both(lambda: fx(hg.array(x)) @ fy(hg.array(y)))
    expected = fx(x) @ fy(y)
    assert at_call.dtype == recorded.dtype == expected.dtype
    assert at_call.shape == recorded.shape == expected.shape
    assert np.asarray(at_call).tobytes() == np.asarray(recorded).tobytes()
    if np.issubdtype(expected.dtype, np.inexact):
        scale = np.abs(fx(x).astype("complex128")) @ np.abs(fy(y).astype("complex128"))
        error = np.abs(np.asarray(at_call).astype("complex128") - expected)
        assert (error <= TOLERANCE.get(expected.dtype.name, 1e-13) * np.abs(scale)).all()
    else:
        assert np.array_equal(np.asarray(at_call), expected)


LAYOUTS: dict[str, tuple[Callable[[int], tuple[int, ...]], Callable[[Any], Any]]] = {
    "dense": (lambda n: (n,), lambda v: v),
    "every third": (lambda n: (3 * n,), lambda v: v[::3]),
    "reversed": (lambda n: (n,), lambda v: v[::-1]),
    "a column": (lambda n: (n, 4), lambda v: v[:, 2]),
    "a part": (lambda n: (n + 5,), lambda v: v[3:-2]),
}


@pytest.mark.parametrize("dtype", REAL + COMPLEX)
@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_dots_of_every_layout(left: str, right: str, dtype: str) -> None:
    (x_shape, fx), (y_shape, fy) = LAYOUTS[left], LAYOUTS[right]
    for n in (1, 7, 300, 1500, 4096, 5000):
        check(values(x_shape(n), dtype), values(y_shape(n), dtype), fx, fy)


@pytest.mark.parametrize("dtype", REAL + COMPLEX)
def test_vectors_beside_matrices_of_every_layout(dtype: str) -> None:
    for name, (shape, view) in LAYOUTS.items():
        del name
        m = values((20, 17), dtype)
        check(m, values(shape(17), dtype), lambda v: v, view)
        check(m.T.copy(), values(shape(17), dtype), lambda v: v.T, view)
        check(values(shape(20), dtype), m, view, lambda v: v)
        check(values(shape(10), dtype), m, view, lambda v: v[::2])


SHAPES = [
    ((4, 4), (4, 4)), ((1, 1), (1, 1)), ((3, 5), (5, 2)), ((5,), (5, 2)), ((3, 5), (5,)),
    ((2, 3, 4), (2, 4, 3)), ((2, 3, 4), (4, 3)), ((3, 4), (5, 4, 2)), ((2, 1, 3, 4), (5, 4, 3)),
    ((3, 4), (2, 4)), ((0, 4), (4, 3)), ((3, 0), (0, 2)), ((20, 12), (12, 20)),
]  # fmt: skip


@pytest.mark.parametrize("right", ["complex64", "complex128", "float32", "float64", "int32"])
@pytest.mark.parametrize("left", ["complex64", "complex128", "float64"])
def test_complex_matrices(left: str, right: str) -> None:
    views: list[Callable[[Any], Any]] = [
        lambda v: v,
        lambda v: np.swapaxes(v, -1, -2) if v.ndim > 1 else v[::-1],
        lambda v: v[..., ::-1],
    ]
    for a, b in SHAPES:
        if len(a) == len(b) == 2 and a[1] != b[0]:
            with pytest.raises(ValueError, match="shapes"):
                hg.array(values(a, left)) @ hg.array(values(b, right))
            continue
        for view in views:
            x, y = values(a, left), values(b, right)
            # The view undone, so that what is multiplied has these shapes.
            x, y = np.ascontiguousarray(view(x)), np.ascontiguousarray(view(y))
            check(x, y, view, view)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_infinities_and_nans_in_complex_products(dtype: str) -> None:
    x, y = values((6, 6), dtype), values((6, 6), dtype)
    x[0, 1], x[2, 3], y[1, 1] = complex(np.inf, 1), complex(1, np.nan), complex(-np.inf, np.inf)
    at_call, recorded = both(lambda: hg.array(x) @ hg.array(y))
    assert np.array_equal(np.asarray(at_call), np.asarray(recorded), equal_nan=True)
    assert np.isfinite(np.asarray(at_call)[4:, 2:]).all()


@pytest.mark.parametrize("dtype", ["bool", *REAL, *COMPLEX])
def test_reductions_to_one_element(dtype: str) -> None:
    names = "sum prod mean min max any all argmax argmin var std".split()
    for n in (5, 600, 1536, 1537, 4096, 4097):
        x = values((n,), dtype)
        for name in names:
            for shape in ((n,), (1, n), (n, 1)):
                at_call, recorded = both(
                    lambda: getattr(hg.array(x).reshape(shape), name)()  # noqa: B023
                )
                assert at_call.dtype == recorded.dtype
                assert np.asarray(at_call).tobytes() == np.asarray(recorded).tobytes(), (name, n)


def test_how_large_an_operand_may_be() -> None:
    a = hg.array(values((4096,), "float64"))
    b = hg.array(values((4097,), "float64"))
    assert ops_recorded() >= 0
    before = ops_recorded()
    a @ a, a.sum(), a.max()
    assert ops_recorded() == before
    b @ b
    assert ops_recorded() == before + 1
    b.sum()
    assert ops_recorded() == before + 2
    a + a
    assert ops_recorded() == before + 3
    c = a * 2.0
    c.sum()  # of what is not there
    assert ops_recorded() == before + 5
    a.reshape(2, 2048).sum(axis=1)
    assert ops_recorded() == before + 6


NORMS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((7,), {}), ((7,), {"ord": 2}), ((7,), {"ord": None}), ((7,), {"ord": 1}),
    ((7,), {"ord": np.inf}), ((7,), {"axis": 0}), ((7,), {"axis": -1}), ((3, 4), {}),
    ((3, 4), {"axis": 0}), ((3, 4), {"axis": 1, "ord": 2}), ((3, 4), {"ord": 2}),
    ((3, 4), {"ord": "fro"}), ((3, 4), {"axis": (0, 1)}), ((2, 3, 4), {}),
    ((2, 3, 4), {"axis": -2}), ((3, 4), {"keepdims": True}), ((0,), {}), ((5000,), {}),
    ((100, 200), {"axis": 0}), ((), {}),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["int32", "float16", "float32", "float64", "complex128"])
def test_norms_are_numpys(dtype: str) -> None:
    for shape, options in NORMS:
        if dtype == "float16" and shape == (3, 4) and options == {"ord": 2}:
            continue  # by singular values, which NumPy has not for float16
        x = values(shape, dtype)
        expected = np.linalg.norm(x, **options)
        found = np.linalg.norm(hg.array(x), **options)
        assert isinstance(found, hg.Tensor)
        assert isinstance(found, hg.Scalar) == np.isscalar(expected), (shape, options)
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype, (shape, options)
        tolerance = 1e-3 if dtype == "float16" else 1e-6 if dtype == "float32" else 1e-13
        assert np.allclose(np.asarray(found), expected, rtol=tolerance, atol=0), (shape, options)


@pytest.mark.parametrize(
    "options", [{"ord": 3, "axis": (0, 1)}, {"axis": 5}, {"ord": "no"}, {"axis": "a"}]
)
def test_errors_of_norms_are_numpys(options: dict[str, Any]) -> None:
    x = values((3, 4), "float64")
    with pytest.raises(Exception) as expected:
        np.linalg.norm(x, **options)
    with pytest.raises(type(expected.value)) as found:
        np.linalg.norm(hg.array(x), **options)
    assert str(found.value) == str(expected.value)
