# SPDX-License-Identifier: MIT
"""The array API's functions beside NumPy's, on random arrays: values, dtypes, shapes, errors."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import hologram as hg

BOOL = ("bool",)
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
REAL = INTS + FLOATS
NUMERIC = REAL + COMPLEX
ALL = BOOL + NUMERIC

quickly = settings(
    max_examples=30,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)


def elements(dtype: str, plain: bool = False) -> st.SearchStrategy[Any]:
    """Return numbers of a dtype, no NaN or infinity among them where `plain`."""
    kind = np.dtype(dtype).kind
    if kind in "iu":
        low = 0 if kind == "u" else -100
        return st.integers(low, 100)
    if kind == "b":
        return st.booleans()
    width = {"float16": 16, "float32": 32, "complex64": 32}.get(dtype, 64)
    limits: dict[str, Any] = {"width": width}
    limits |= {"min_value": -100, "max_value": 100} if plain else {}
    if kind == "f":
        return st.floats(allow_subnormal=False, **limits)
    # Further out NumPy overflows in single precision where we do not.
    parts = st.floats(-20, 20, width=width)
    return st.builds(complex, parts, parts)


@st.composite
def arrays(
    draw: Any, dtypes: tuple[str, ...], shape: Any = None, plain: bool = True, least: int = 0
) -> np.ndarray:
    """Draw an array that lies in any way: dense, transposed, stepped, reversed."""
    dtype = draw(st.sampled_from(dtypes))
    if shape is None:
        shape = hnp.array_shapes(min_dims=least, max_dims=3, min_side=0, max_side=5)
    x = draw(hnp.arrays(dtype, shape, elements=elements(dtype, plain)))
    if x.ndim and draw(st.booleans()):
        x = np.repeat(x, 2, axis=0)[::-2]
    return x


def check(found: Any, expected: Any, tolerance: float | None = None) -> None:
    """Compare Tensors with arrays; floats to the last places, or within `tolerance`."""
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check(one, other, tolerance)
        return
    expected = np.asarray(expected)
    assert isinstance(found, hg.Tensor)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if expected.dtype.kind not in "fc":
        np.testing.assert_array_equal(found.numpy(), expected)
        return
    eps = float(np.finfo(expected.dtype).eps)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(
        found.numpy().astype(wide), expected.astype(wide), rtol=tolerance or 16 * eps,
        atol=(tolerance or 0) + float(np.finfo(expected.dtype).smallest_normal) * 4,
    )  # fmt: skip


# --- Elements -------------------------------------------------------------------------------------

UNARY: dict[str, tuple[str, ...]] = {
    "abs": NUMERIC, "acos": FLOATS + COMPLEX, "acosh": FLOATS + COMPLEX, "asin": FLOATS + COMPLEX,
    "asinh": FLOATS + COMPLEX, "atan": FLOATS + COMPLEX, "atanh": FLOATS + COMPLEX,
    "bitwise_invert": BOOL + INTS, "ceil": REAL, "conj": NUMERIC, "cos": FLOATS + COMPLEX,
    "cosh": FLOATS + COMPLEX, "exp": FLOATS + COMPLEX, "expm1": FLOATS + COMPLEX, "floor": REAL,
    "imag": NUMERIC, "isfinite": ALL, "isinf": ALL, "isnan": ALL, "log": FLOATS + COMPLEX,
    "log10": FLOATS + COMPLEX, "log1p": FLOATS + COMPLEX, "log2": FLOATS + COMPLEX,
    "logical_not": ALL, "negative": NUMERIC, "positive": NUMERIC, "real": NUMERIC,
    "reciprocal": FLOATS + COMPLEX, "round": NUMERIC, "sign": NUMERIC, "signbit": FLOATS,
    "sin": FLOATS + COMPLEX, "sinh": FLOATS + COMPLEX, "sqrt": FLOATS + COMPLEX,
    "square": NUMERIC, "tan": FLOATS + COMPLEX, "tanh": FLOATS + COMPLEX, "trunc": REAL,
}  # fmt: skip
BINARY: dict[str, tuple[str, ...]] = {
    "add": ALL, "atan2": FLOATS, "bitwise_and": BOOL + INTS, "bitwise_left_shift": INTS,
    "bitwise_or": BOOL + INTS, "bitwise_right_shift": INTS, "bitwise_xor": BOOL + INTS,
    "copysign": FLOATS, "divide": NUMERIC, "equal": ALL, "floor_divide": REAL, "greater": REAL,
    "greater_equal": REAL, "hypot": FLOATS, "less": REAL, "less_equal": REAL,
    "logaddexp": FLOATS, "logical_and": ALL, "logical_or": ALL, "logical_xor": ALL,
    "maximum": REAL, "minimum": REAL, "multiply": ALL, "nextafter": ("float32", "float64"),
    "not_equal": ALL, "pow": FLOATS, "remainder": REAL, "subtract": NUMERIC,
}  # fmt: skip


def standard(name: str) -> Any:
    """Return NumPy's function of that name in the standard."""
    return getattr(np, name)


# Some ULP for the functions of floats, whose accuracy their docstrings state.
LOOSE = {"float16": 4e-3, "float32": 2e-6, "complex64": 2e-5, "float64": 1e-13, "complex128": 1e-11}


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_element(name: str) -> None:
    @quickly
    @given(arrays(UNARY[name], plain=False))
    def run(x: np.ndarray) -> None:
        with np.errstate(all="ignore"):
            expected = standard(name)(x)
        check(getattr(hg, name)(hg.array(x)), expected, LOOSE.get(str(expected.dtype)))

    run()


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_elements(name: str) -> None:
    @quickly
    @given(st.data())
    def run(data: Any) -> None:
        shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=4))
        x, y = (data.draw(arrays(BINARY[name], shape)) for shape in shapes.input_shapes)
        if BINARY[name] in (INTS, BOOL + INTS) and "uint64" in (x.dtype, y.dtype):
            y = y.astype(x.dtype)  # beside a signed one it is float64, which has no bits
        if name.endswith("_shift"):
            y = np.abs(y) % 70
        with np.errstate(all="ignore"):
            expected = standard(name)(x, y)
        if name in ("floor_divide", "remainder") and expected.dtype.kind == "f":
            return  # a quotient next to a whole number may round either way
        check(getattr(hg, name)(hg.array(x), hg.array(y)), expected,
              LOOSE.get(str(expected.dtype)))  # fmt: skip

    run()


@pytest.mark.parametrize("name", [name for name in BINARY if name not in ("logaddexp", "pow")])
def test_a_number_of_python_is_weak(name: str) -> None:
    x = np.array([1, 2, 3], "int8" if BINARY[name][0] in ("bool", "int8") else "float32")
    number: Any = 2 if x.dtype == "int8" else 2.0
    check(getattr(hg, name)(hg.array(x), number), standard(name)(x, number))
    check(getattr(hg, name)(number, hg.array(x)), standard(name)(number, x))


def test_powers_of_complex_numbers_with_a_shorter_way() -> None:
    z = np.array([1.1 + 2.3j, -0.4 - 0.7j, 3e10 + 1j])
    check(hg.array(z) ** 2, z**2)
    np.testing.assert_array_equal((hg.array(z) ** 2).numpy(), z * z)
    check(hg.array(z) ** 0.5, z**0.5)
    check(hg.array(z) ** -1, z**-1)


@quickly
@given(st.data())
def test_clip(data: Any) -> None:
    x = data.draw(arrays(REAL))
    low, high = (data.draw(st.none() | st.integers(0, 50)) for _ in range(2))
    check(hg.clip(hg.array(x), low, high), np.clip(x, low, high))
    check(hg.clip(hg.array(x), hg.array(x), high), np.clip(x, x, high))
    out = hg.array(x)
    assert hg.clip(out, low, high, out=out) is out
    check(out, np.clip(x, low, high))


@quickly
@given(st.data())
def test_where(data: Any) -> None:
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, max_side=4))
    condition = data.draw(arrays(BOOL, shapes.input_shapes[0]))
    x, y = (data.draw(arrays(ALL, shape)) for shape in shapes.input_shapes[1:])
    check(hg.where(hg.array(condition), hg.array(x), hg.array(y)), np.where(condition, x, y))


# --- Making ---------------------------------------------------------------------------------------


@quickly
@given(st.data())
def test_making(data: Any) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    dtype = data.draw(st.sampled_from(ALL))
    x = data.draw(arrays(ALL, shape))
    t = hg.array(x)
    check(hg.zeros(shape, dtype=dtype, device="cpu"), np.zeros(shape, dtype))
    check(hg.ones(shape, dtype=dtype), np.ones(shape, dtype))
    check(hg.full(shape, 3, dtype=dtype), np.full(shape, 3, dtype))
    assert hg.empty(shape, dtype=dtype).shape == shape
    check(hg.zeros_like(t), np.zeros_like(x))
    check(hg.ones_like(t, dtype=dtype), np.ones_like(x, dtype=dtype))
    check(hg.full_like(t, 1), np.full_like(x, 1))
    assert hg.empty_like(t, dtype=dtype).dtype == dtype
    rows, columns, k = (data.draw(st.integers(low, 5)) for low in (0, 0, -6))
    check(hg.eye(rows, columns, k=k, dtype=dtype), np.eye(rows, columns, k, dtype))
    check(hg.eye(rows), np.eye(rows))
    if x.ndim >= 2:
        check(hg.tril(t, k=k), np.tril(x, k))
        check(hg.triu(t, k=k), np.triu(x, k))
    check(hg.astype(t, "complex128"), x.astype("complex128"))


@quickly
@given(
    st.floats(-100, 100), st.floats(-100, 100), st.integers(0, 20), st.booleans(),
    st.integers(-50, 50), st.integers(-50, 50), st.integers(1, 7),
)  # fmt: skip
def test_ranges(
    start: float, stop: float, num: int, endpoint: bool, first: int, last: int, step: int
) -> None:
    check(hg.linspace(start, stop, num, endpoint=endpoint), np.linspace(start, stop, num, endpoint))
    check(hg.arange(first, last, step), np.arange(first, last, step))
    check(hg.arange(first, last, step / 4), np.arange(first, last, step / 4))
    check(hg.arange(last, dtype="float32"), np.arange(last, dtype="float32"))
    check(hg.meshgrid(hg.arange(num), hg.arange(3)), np.meshgrid(np.arange(num), np.arange(3)))
    check(
        hg.meshgrid(hg.arange(2), hg.arange(num), hg.arange(3), indexing="ij"),
        np.meshgrid(np.arange(2), np.arange(num), np.arange(3), indexing="ij"),
    )


# --- Shapes ---------------------------------------------------------------------------------------


@quickly
@given(st.data())
def test_shapes(data: Any) -> None:
    x = data.draw(arrays(ALL, least=1))
    t = hg.array(x)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    axes = tuple(data.draw(st.permutations(range(x.ndim))))
    check(hg.permute_dims(t, axes), np.permute_dims(x, axes))
    check(hg.moveaxis(t, 0, axis), np.moveaxis(x, 0, axis))
    check(hg.moveaxis(t, axes[:2], axes[:2][::-1]), np.moveaxis(x, axes[:2], axes[:2][::-1]))
    check(hg.expand_dims(t, axis=axis), np.expand_dims(x, axis))
    check(hg.squeeze(hg.expand_dims(t, axis=axis), axis=axis), x)
    check(hg.reshape(t, (-1,)) if x.size else t.ravel(), x.ravel())
    check(hg.reshape(t, x.shape[::-1], copy=True), x.reshape(x.shape[::-1]))
    check(hg.flip(t, axis=axis), np.flip(x, axis))
    check(hg.flip(t), np.flip(x))
    shift = data.draw(st.integers(-7, 7))
    check(hg.roll(t, shift, axis=axis), np.roll(x, shift, axis))
    check(hg.roll(t, shift), np.roll(x, shift))
    check(hg.roll(t, (shift, 1), axis=(axis, 0)), np.roll(x, (shift, 1), (axis, 0)))
    check(hg.broadcast_to(t, (2, *x.shape)), np.broadcast_to(x, (2, *x.shape)))
    check(hg.tile(t, (2, 3)), np.tile(x, (2, 3)))
    check(hg.tile(t, 0), np.tile(x, 0))
    check(hg.repeat(t, 2, axis=axis), np.repeat(x, 2, axis))
    check(hg.unstack(t, axis=axis), np.unstack(x, axis=axis))
    check(hg.stack([t, t], axis=axis), np.stack([x, x], axis))
    y = data.draw(arrays(ALL, x.shape))
    check(hg.concat([t, hg.array(y)], axis=axis), np.concat([x, y], axis=axis))
    check(hg.concat([t, hg.array(y)], axis=None), np.concat([x, y], axis=None))
    check(hg.broadcast_arrays(t, hg.zeros((1,) * x.ndim))[0], x)
    if x.ndim > 1:
        check(hg.matrix_transpose(t), np.matrix_transpose(x))


def test_views_are_views() -> None:
    t = hg.zeros((2, 3))
    for view in (
        hg.permute_dims(t, (1, 0)), hg.moveaxis(t, 0, 1), hg.expand_dims(t, axis=0), hg.flip(t),
        hg.matrix_transpose(t), hg.reshape(t, (3, 2)), hg.unstack(t)[0], hg.squeeze(t[:, None]),
        hg.reshape(t, (6,), copy=False), hg.real(t),
    ):  # fmt: skip
        t[...] = 0
        view[...] = 1
        assert t.sum() > 0
    copies = (hg.reshape(t, (3, 2), copy=True), hg.roll(t, 1), hg.roll(t, 0), hg.tile(t, 1),
              hg.diff(t, n=0), hg.clip(t), hg.meshgrid(t[0])[0])  # fmt: skip
    for copy in copies:
        t[...] = 0
        copy[...] = 1
        assert t.sum() == 0
    with pytest.raises(ValueError, match="leave copy=False out"):
        hg.reshape(t.T, (6,), copy=False)
    for view in (hg.broadcast_to(t, (2, 2, 3)), hg.broadcast_arrays(t, hg.zeros((2, 1, 1)))[0]):
        with pytest.raises(ValueError, match="read-only"):
            view[...] = 1


# --- Searching, sorting, sets, sums ---------------------------------------------------------------


@quickly
@given(st.data())
def test_searching_and_sorting(data: Any) -> None:
    x = data.draw(arrays(REAL, least=1))
    t = hg.array(x)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    check(hg.sort(t, axis=axis), np.sort(x, axis=axis))
    check(hg.argsort(t, axis=axis), np.argsort(x, axis=axis, stable=True))
    check(hg.sort(t, axis=axis, descending=True), np.flip(np.sort(x, axis=axis), axis))
    # With equal elements in their order.
    back = np.argsort(-x.astype("float64"), axis=axis, stable=True)
    check(hg.argsort(t, axis=axis, descending=True), back)
    check(hg.nonzero(t), np.nonzero(x))
    check(hg.count_nonzero(t, axis=axis), np.count_nonzero(x, axis=axis))
    check(hg.count_nonzero(t, keepdims=True), np.count_nonzero(x, keepdims=True))
    for name in ("unique_all", "unique_counts", "unique_inverse"):
        found, expected = getattr(hg, name)(t), getattr(np, name)(x)
        assert found._fields == expected._fields
        check(found, expected)
    check(hg.unique_values(t), np.sort(np.unique(x)))
    ordered = np.sort(x, axis=None)
    for side in ("left", "right"):
        check(hg.searchsorted(hg.array(ordered), t, side=side), ordered.searchsorted(x, side=side))
    if x.shape[axis]:
        places = data.draw(
            hnp.arrays("int64", 3, elements=st.integers(-x.shape[axis], x.shape[axis] - 1))
        )
        check(hg.take(t, hg.array(places), axis=axis), np.take(x, places, axis))
        check(hg.take_along_axis(t, hg.argsort(t, axis=axis), axis=axis), np.sort(x, axis=axis))
    n = data.draw(st.integers(0, 3))
    check(hg.diff(t, axis=axis, n=n), np.diff(x, n, axis))
    check(hg.diff(t, axis=axis, prepend=t, append=1), np.diff(x, 1, axis, prepend=x, append=1))


@quickly
@given(st.data())
def test_sums(data: Any) -> None:
    x = data.draw(arrays(("int32", "int64", "float64", "complex128"), least=1))
    t = hg.array(x)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    initial = data.draw(st.booleans())
    options = {"axis": axis, "include_initial": initial}
    check(hg.cumulative_sum(t, **options), np.cumulative_sum(x, **options), 1e-9)
    check(hg.cumulative_prod(t, **options), np.cumulative_prod(x, **options), 1e-9)
    check(hg.sum(t, axis=axis, keepdims=True), np.sum(x, axis, keepdims=True), 1e-9)
    check(hg.sum(t, dtype="complex64"), np.sum(x, dtype="complex64"), 1e-4)
    check(hg.prod(t, axis=axis), np.prod(x, axis), 1e-9)
    check(hg.any(t, axis=axis), np.any(x, axis))
    check(hg.all(t), np.all(x))
    if x.size:
        check(hg.mean(t, axis=axis), np.mean(x, axis), 1e-9)
        check(hg.var(t, axis=axis), np.var(x, axis), 1e-9)
        check(hg.std(t, correction=0.0), np.std(x), 1e-9)
        check(hg.max(t, axis=axis), np.max(x, axis))
        check(hg.min(t, keepdims=True), np.min(x, keepdims=True))
        check(hg.argmax(t, axis=axis), np.argmax(x, axis))
        check(hg.argmin(t), np.argmin(x))


# --- Linear algebra and transforms ----------------------------------------------------------------

MATRICES: dict[str, Callable[[Any, Any], Any]] = {
    "cholesky": lambda xp, x: xp.linalg.cholesky(x @ xp.conj(x).mT + 9 * xp.eye(x.shape[-2])),
    "cholesky upper": lambda xp, x: xp.linalg.cholesky(x @ x.mT + 9 * xp.eye(3), upper=True),
    "det": lambda xp, x: xp.linalg.det(x),
    "diagonal": lambda xp, x: xp.linalg.diagonal(x, offset=1),
    "eigh": lambda xp, x: xp.linalg.eigh(x + xp.conj(x).mT).eigenvalues,
    "eigvalsh": lambda xp, x: xp.linalg.eigvalsh(x + xp.conj(x).mT),
    "inv": lambda xp, x: xp.linalg.inv(x + 9 * xp.eye(3)),
    "matmul": lambda xp, x: xp.matmul(x, x.mT),
    "matrix_norm": lambda xp, x: xp.linalg.matrix_norm(x, keepdims=True),
    "matrix_norm 1": lambda xp, x: xp.linalg.matrix_norm(x, ord=1),
    "matrix_power": lambda xp, x: xp.linalg.matrix_power(x, 3),
    "matrix_rank": lambda xp, x: xp.linalg.matrix_rank(x),
    "pinv": lambda xp, x: xp.linalg.pinv(x + 9 * xp.eye(3)),
    "qr": lambda xp, x: xp.matmul(*xp.linalg.qr(x)),
    "slogdet": lambda xp, x: xp.linalg.slogdet(x + 9 * xp.eye(3)),
    "solve": lambda xp, x: xp.linalg.solve(x + 9 * xp.eye(3), x),
    "svd": lambda xp, x: xp.linalg.svd(x).S,
    "svdvals": lambda xp, x: xp.linalg.svdvals(x),
    "tensordot": lambda xp, x: xp.tensordot(x, x, axes=((-1,), (-2,))),
    "tensordot all": lambda xp, x: xp.tensordot(x, x, axes=x.ndim),
    "trace": lambda xp, x: xp.linalg.trace(x, offset=-1),
    "vecdot": lambda xp, x: xp.vecdot(x, x[..., :1, :]),
    "vecdot axis": lambda xp, x: xp.linalg.vecdot(x, x, axis=-2),
    "vector_norm": lambda xp, x: xp.linalg.vector_norm(x, axis=-1, ord=3),
    "cross": lambda xp, x: xp.linalg.cross(x, x[..., ::-1]),
    "outer": lambda xp, x: xp.linalg.outer(x[..., 0].reshape(-1), x[..., 1].reshape(-1)),
    "fft": lambda xp, x: xp.fft.fft(x, n=4, axis=-2, norm="ortho"),
    "ifft": lambda xp, x: xp.fft.ifft(x),
    "fftn": lambda xp, x: xp.fft.fftn(x, axes=(-2, -1)),
    "ifftn": lambda xp, x: xp.fft.ifftn(x, s=(4, 2), axes=(-2, -1)),
    "rfft": lambda xp, x: xp.fft.rfft(xp.real(x)),
    "irfft": lambda xp, x: xp.fft.irfft(x, n=5),
    "rfftn": lambda xp, x: xp.fft.rfftn(xp.real(x)),
    "irfftn": lambda xp, x: xp.fft.irfftn(x, axes=(-2, -1)),
    "hfft": lambda xp, x: xp.fft.hfft(x),
    "ihfft": lambda xp, x: xp.fft.ihfft(xp.real(x)),
    "fftshift": lambda xp, x: xp.fft.fftshift(x, axes=-1),
    "ifftshift": lambda xp, x: xp.fft.ifftshift(x),
    "fftfreq": lambda xp, x: (xp.fft.fftfreq(5, d=0.5), xp.fft.rfftfreq(4)),
}


@pytest.mark.parametrize("name", MATRICES)
def test_matrices(name: str) -> None:
    rng = np.random.default_rng(1)
    for dtype in ("float64", "float32", "complex128", "complex64"):
        for shape in ((3, 3), (2, 4, 3, 3)):
            x = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
            x = (x if dtype.startswith("complex") else x.real).astype(dtype)
            if np.dtype(dtype).kind == "c" and name in ("cholesky upper",):
                continue  # x @ x.mT is no Hermitian matrix then
            expected = MATRICES[name](np, x)
            found = MATRICES[name](hg, hg.array(x))
            loose = 1e-9 if dtype in ("float64", "complex128") else 2e-3
            if "float32" in dtype or "complex64" in dtype:
                # NumPy's eye is float64 and widens what it is added to.
                loose = 2e-3
            check(found, expected, loose)


# --- Dtypes ---------------------------------------------------------------------------------------


def test_dtypes() -> None:
    for a in ALL:
        for b in ALL:
            assert hg.result_type(getattr(hg, a), getattr(hg, b)) == np.result_type(a, b)
            assert hg.can_cast(a, b) == np.can_cast(a, b), (a, b)
        assert hg.isdtype(getattr(hg, a), getattr(hg, a))
        for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating",
                     "complex floating", "numeric", ("bool", "integral")):  # fmt: skip
            assert hg.isdtype(a, kind) == np.isdtype(np.dtype(a), kind)
        assert hash(getattr(hg, a)) == hash(np.dtype(a))
        assert np.dtype(a) in (getattr(hg, a),) and np.dtype(a) in {getattr(hg, a): 1}
    for a in INTS:
        ours, theirs = hg.iinfo(a), np.iinfo(a)
        assert (ours.bits, ours.min, ours.max) == (theirs.bits, theirs.min, theirs.max)
    for a in FLOATS + COMPLEX:
        ours, theirs = hg.finfo(hg.zeros(2, a)), np.finfo(a)
        for name in ("bits", "eps", "max", "min", "smallest_normal", "tiny", "resolution", "dtype"):
            assert getattr(ours, name) == getattr(theirs, name), name
    assert hg.finfo("bfloat16").max > 3e38 and hg.finfo("bfloat16").eps == 2**-7
    assert hg.result_type(hg.zeros(2, "int8"), 3) == np.int8
    assert hg.result_type(hg.zeros(2, "int8"), 3.0) == np.float64
    assert hg.result_type(hg.float32, 1j) == np.complex64
    assert hg.float32 != {"a": "b"} and hg.float32 != [] and hg.float32 != None  # noqa: E711
    assert hg.bool == "bool" and hg.bool_ is hg.bool


def test_the_namespace_says_what_it_has() -> None:
    info = hg.__array_namespace_info__()
    assert info.default_device() == "cpu" and info.devices() == ["cpu"]
    assert info.default_dtypes()["real floating"] == hg.zeros(1).dtype
    assert info.default_dtypes()["indexing"] == hg.argmax(hg.zeros(1)).dtype
    assert set(info.dtypes(kind="bool")) == {"bool"}
    assert {"int8", "uint8", "float32", "complex128"} <= set(info.dtypes())
    assert info.capabilities()["boolean indexing"]
    assert hg.__array_api_version__ == "2024.12"
    x = hg.zeros(3)
    assert x.__array_namespace__() is hg
    assert x.__array_namespace__(api_version="2022.12") is hg
    assert x.device == "cpu" and x.to_device("cpu") is x
    assert (hg.pi, hg.e, hg.inf, hg.newaxis) == (np.pi, np.e, np.inf, None)
    assert hg.nan != hg.nan


ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: hg.zeros(3, device="gpu"), ValueError, "use 'cpu' or None"),
    (lambda: hg.zeros(3).to_device("gpu"), ValueError, "the Tensor is on 'cpu'"),
    (lambda: hg.zeros(3).to_device("cpu", stream=1), ValueError, "host memory has no streams"),
    (lambda: hg.zeros(3).__array_namespace__(api_version="1999"), ValueError, "2024.12 is"),
    (lambda: hg.isdtype(hg.int8, "int"), ValueError, "is no kind; use one of: bool"),
    (lambda: hg.finfo("int8"), TypeError, "use iinfo for integers"),
    (lambda: hg.iinfo("float32"), TypeError, "use finfo for floats"),
    (lambda: hg.result_type(1, 2.0), ValueError, "at least one array or dtype is needed"),
    (lambda: hg.tril(hg.zeros(3)), ValueError, "tril: a matrix is needed"),
    (lambda: hg.meshgrid(hg.zeros((2, 2))), ValueError, "arrays have one dimension"),
    (lambda: hg.meshgrid(hg.zeros(2), indexing="x"), ValueError, "indexing is 'xy' or 'ij'"),
    (lambda: hg.broadcast_to(hg.zeros(3), (-1,)), ValueError, "has a negative size"),
    (lambda: hg.broadcast_to(hg.zeros(3), (2,)), ValueError, "expand"),
    (lambda: hg.broadcast_arrays(hg.zeros(3), hg.zeros(2)), ValueError, "cannot be broadcast"),
    (lambda: hg.flip(hg.zeros(3), axis=1), IndexError, "flip: axis 1 is out of range"),
    (lambda: hg.flip(hg.zeros((3, 3)), axis=(0, -2)), ValueError, "an axis is given twice"),
    (lambda: hg.moveaxis(hg.zeros((3, 3)), (0, 1), 0), ValueError, "2 axes do not go to 1 places"),
    (lambda: hg.permute_dims(hg.zeros((3, 3)), (0,)), ValueError, "1 axes are given for 2"),
    (lambda: hg.roll(hg.zeros((3, 3)), (1, 2), axis=0), ValueError, "2 shifts are given for 1"),
    (lambda: hg.tile(hg.zeros(3), -1), ValueError, "is negative"),
    (lambda: hg.searchsorted(hg.zeros(3), 1, side="x"), ValueError, "side is 'left' or 'right'"),
    (lambda: hg.cumulative_sum(hg.zeros((2, 2))), ValueError, "an axis is needed"),
    (lambda: hg.diff(hg.zeros(3), n=-1), ValueError, "n is at least 0"),
    (lambda: hg.take(hg.zeros(3), hg.array([3])), IndexError, "out of range for size 3"),
    (lambda: hg.linalg.cross(hg.zeros(2), hg.zeros(2)), ValueError, "vectors of 3 elements"),
    (lambda: hg.linalg.outer(hg.zeros((2, 2)), hg.zeros(2)), ValueError, "two vectors are needed"),
    (lambda: hg.linalg.qr(hg.zeros((2, 2)), mode="x"), ValueError, "'reduced' or 'complete'"),
    (lambda: hg.tensordot(hg.zeros(2), hg.zeros(3), axes=1), ValueError, "have other sizes"),
    (lambda: hg.tensordot(hg.zeros(2), hg.zeros(3), axes=2), ValueError, "2 axes do not fit"),
    (lambda: hg.vecdot(hg.zeros(2), hg.zeros(3)), ValueError, "axis -1 has size 2 in one"),
    (lambda: hg.vecdot(hg.zeros((2, 2)), hg.zeros(2), axis=0), ValueError, "count the axis from"),
    (lambda: hg.linalg.inv(hg.zeros((2, 2))), np.linalg.LinAlgError, "Singular matrix"),
    (lambda: hg.nonzero(hg.array(1)), ValueError, "0d"),
    (lambda: hg.squeeze(hg.zeros((1, 2)), axis=5), IndexError, "axis 5 is out of range"),
    (lambda: hg.zeros((1, 2)).squeeze(5), IndexError, "is out of range for shape"),
    (lambda: hg.squeeze(hg.zeros((1, 2)), axis=1), ValueError, "does not have size 1"),
    (lambda: hg.asarray(np.datetime64("2020-01-01")), TypeError, "datetime64"),
    (lambda: hg.ones(3).__dlpack__(stream=2**63), BufferError, "host memory has no streams"),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(ERRORS)))
def test_errors(at: int) -> None:
    run, kind, words = ERRORS[at]
    with pytest.raises(kind, match=words):
        run()


# --- The tool that runs the suite -----------------------------------------------------------------


def _tool() -> Any:
    path = Path(__file__).resolve().parents[2] / "tools" / "array_api.py"
    spec = importlib.util.spec_from_file_location("array_api_tool", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["array_api_tool"] = module
    spec.loader.exec_module(module)
    return module


def test_the_tool_reads_reports_and_exceptions(tmp_path: Path) -> None:
    tool = _tool()
    assert tool.read_exceptions(tool.EXCEPTIONS.read_text())
    one, other = tool.read_exceptions("# words\n\na.py::t[x *] # why\n~a.py::u # at times\n")
    assert one.pattern.fullmatch("a.py::t[x 1]") and not one.pattern.fullmatch("a.py::t[y]")
    assert one.always and not other.always and other.reason == "at times"
    with pytest.raises(ValueError, match=r"no reason is given for 'a\.py::t'"):
        tool.read_exceptions("a.py::t")
    report = tmp_path / "r.xml"
    report.write_text(
        '<testsuites><testcase classname="array_api_tests.test_a" name="t[1]"/>'
        '<testcase classname="array_api_tests.test_a.TestB" name="u"><failure/></testcase>'
        '<testcase classname="array_api_tests.test_c" name="v"><skipped/></testcase>'
        "</testsuites>"
    )
    outcomes = tool.read_results(report)
    assert outcomes == {"test_a.py::t[1]": "passed", "test_a.py::TestB::u": "failed",
                        "test_c.py::v": "skipped"}  # fmt: skip
    assert "| all | 1 | 1 | 0 | 1 |" in tool.table(outcomes, {"test_a.py::TestB::u"})
    with pytest.raises(tool.StepError, match="has no folder array_api_tests"):
        tool.run(tmp_path, "hologram", 1, None)
    (tmp_path / "array_api_tests").mkdir()
    with pytest.raises(tool.StepError, match="git submodule update --init"):
        tool.run(tmp_path, "hologram", 1, None)


@pytest.mark.parametrize(
    "name, signature",
    [
        ("linalg.det", "(x, /)"),
        ("linalg.matrix_norm", "(x, /, *, keepdims=False, ord='fro')"),
        ("linalg.matrix_power", "(x, n, /)"),
        ("linalg.solve", "(x1, x2, /)"),
        ("linalg.svd", "(x, /, *, full_matrices=True)"),
        ("linalg.vector_norm", "(x, /, *, axis=None, keepdims=False, ord=2)"),
        ("take_along_axis", "(x, indices, /, *, axis=-1)"),
        ("unique_all", "(x, /)"),
    ],
)
def test_rows_of_numpys_functions_have_the_standards_signatures(name: str, signature: str) -> None:
    module, _, short = f"hologram.{name}".rpartition(".")
    function = getattr(sys.modules[module], short)
    assert str(inspect.signature(function)) == signature
    assert (function.__module__, function.__name__) == (module, short)
    assert function.__doc__.startswith("Return ")
    with pytest.raises(TypeError, match=rf"{short}\(\) got an unexpected keyword argument 'wrong'"):
        function(*[hg.ones((2, 2))] * (signature.split("/")[0].count(", ")), wrong=1)
