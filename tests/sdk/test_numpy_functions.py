# SPDX-License-Identifier: MIT
"""NumPy's functions on tensors: Tensors come back, with NumPy's values, dtypes and views."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hologram as hg
from hologram import _einsum

DTYPES = [
    "float64",
    "float32",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex128",
]
Function = Callable[..., Any]


def sample(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 3
    if dtype.startswith("complex"):
        return (x + 1j * rng.standard_normal(shape)).astype(dtype)
    if dtype == "bool":
        return x > 0
    return np.abs(x).astype(dtype) if dtype.startswith("uint") else x.astype(dtype)


def both(function: Function, *arrays: np.ndarray) -> tuple[Any, Any]:
    """Return what a function gives for arrays and for tensors; one raises where the other does."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        tensors = [hg.array(x) for x in arrays]
        try:
            expected = function(np, *(x.copy() for x in arrays))
        except (TypeError, ValueError, IndexError, OverflowError) as error:
            with pytest.raises((type(error), TypeError, ValueError, IndexError)):
                function(np, *tensors)
            return None, None
        return function(np, *tensors), expected


def same(found: Any, expected: Any, exact: bool = False) -> None:
    if isinstance(expected, (tuple, list)):
        assert isinstance(found, (tuple, list)) and len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other, exact)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert isinstance(found, hg.Tensor), type(found)
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
        narrow = expected.dtype.itemsize <= 4 or expected.dtype == "complex64"
        if expected.dtype.kind in "fc" and not exact:
            tolerance = 2e-5 if narrow else 1e-12
            np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(found.numpy(), expected)
    else:
        assert type(found) is type(expected)
        assert found == expected


def gram(np: Any, x: Any) -> Any:
    """Return x x^T of whole numbers, which every order of additions gives alike.

    What an inverse or a determinant makes of a rounding is more than the rounding.
    """
    whole = x if x.dtype == "bool" else np.round(x)
    return whole @ whole.T


# Of one array with at least one dimension; each gives arrays.
UNARY: dict[str, Function] = {
    "sum": lambda np, x: (np.sum(x), np.sum(x, axis=-1), np.sum(x, axis=0, keepdims=True)),
    "sum dtype": lambda np, x: np.sum(x, dtype="complex128"),
    "sum as integers": lambda np, x: (
        np.sum(np.real(x), dtype="int32"),
        np.prod(np.real(x), 0, "int64"),
    ),
    "sum where": lambda np, x: np.sum(x, where=np.not_equal(x, 0), initial=3),
    "prod": lambda np, x: (np.prod(x), np.prod(x, 0)),
    "mean": lambda np, x: (np.mean(x), np.mean(x, axis=(0, -1) if x.ndim > 1 else 0)),
    "var std": lambda np, x: (np.var(x, ddof=1), np.std(x, 0), np.std(x, correction=1)),
    "max min": lambda np, x: (np.max(x), np.min(x, 0), np.amax(x, keepdims=True), np.ptp(x)),
    "argmax": lambda np, x: (np.argmax(x), np.argmin(x, axis=0)),
    "any all": lambda np, x: (np.any(x), np.all(x, axis=-1), np.count_nonzero(x, axis=0)),
    "count": lambda np, x: int(np.count_nonzero(x)),
    "nan": lambda np, x: (np.nansum(x), np.nanmax(x), np.nanmean(x), np.nanstd(x, axis=0)),
    "median": lambda np, x: (np.median(x), np.percentile(x, [5, 50], axis=0), np.quantile(x, 0.3)),
    "average": lambda np, x: np.average(x, axis=0),
    "cumulative": lambda np, x: (np.cumsum(x), np.cumsum(x, 0), np.cumprod(x, axis=-1)),
    "diff": lambda np, x: (np.diff(x), np.diff(x, 2, axis=0), np.diff(x, append=x[..., :1])),
    "gradient": lambda np, x: np.gradient(x, axis=-1),
    "trapezoid": lambda np, x: np.trapezoid(x, axis=-1),
    "ediff1d": lambda np, x: np.ediff1d(x),
    "clip": lambda np, x: (np.clip(x, 0, 2), np.clip(x, None, 1), np.clip(x, x[..., :1], 2)),
    "round": lambda np, x: (np.round(x), np.around(x, 1), np.fix(x)),
    "parts": lambda np, x: (np.real(x), np.imag(x), np.conj(x), np.angle(x)),
    "is": lambda np, x: (np.isclose(x, x), np.isposinf(x), np.iscomplex(x), np.isreal(x)),
    "nan_to_num": lambda np, x: np.nan_to_num(x),
    "sinc": lambda np, x: (np.sinc(x), np.i0(x)),
    "where": lambda np, x: (np.where(x > 0, x, 1), np.where(x > 0, 2.5, x), np.where(x)),
    "select": lambda np, x: np.select([x > 2, x > 0], [x, -x], 0),
    "piecewise": lambda np, x: np.piecewise(x, [x > 0], [1, -1]),
    "like": lambda np, x: (np.zeros_like(x), np.ones_like(x, dtype="int8"), np.full_like(x, 1)),
    "like shape": lambda np, x: (np.zeros_like(x, shape=(2, 3)), np.empty_like(x).shape),
    "copy": lambda np, x: np.copy(x),
    "reshape": lambda np, x: (np.reshape(x, -1), np.reshape(x, (1, -1)), np.ravel(x)),
    "reshape F": lambda np, x: (np.reshape(x, -1, order="F"), np.ravel(x, order="F")),
    "transpose": lambda np, x: (np.transpose(x), np.swapaxes(x, 0, -1), np.moveaxis(x, 0, -1)),
    "rollaxis": lambda np, x: np.rollaxis(x, -1),
    "expand": lambda np, x: (np.expand_dims(x, 0), np.expand_dims(x, (0, -1)), np.squeeze(x)),
    "broadcast": lambda np, x: (
        np.broadcast_to(x, (2, *x.shape)),
        np.broadcast_arrays(x, x[..., :1]),
    ),
    "atleast": lambda np, x: (np.atleast_1d(x), np.atleast_2d(x), np.atleast_3d(x)),
    "atleast many": lambda np, x: np.atleast_2d(x, x),
    "flip": lambda np, x: (np.flip(x), np.flip(x, 0), np.flip(x, (0, -1) if x.ndim > 1 else -1)),
    "flips": lambda np, x: (np.flipud(x), np.fliplr(x), np.rot90(x)),
    "roll": lambda np, x: (np.roll(x, 1), np.roll(x, -2, axis=-1), np.roll(x, 3, axis=0)),
    "roll many": lambda np, x: np.roll(x, (1, 2), axis=(0, -1)),
    "tile": lambda np, x: (np.tile(x, 2), np.tile(x, (2, 1, 2)), np.repeat(x, 2, axis=0)),
    "repeat": lambda np, x: np.repeat(x, np.arange(x.shape[-1]), axis=-1),
    "concatenate": lambda np, x: (np.concatenate([x, x]), np.concatenate([x, x], axis=None)),
    "concatenate mixed": lambda np, x: np.concatenate([x, np.ones(x.shape, "int32")], axis=-1),
    "concatenate dtype": lambda np, x: np.concatenate([x, x], dtype="complex128"),
    "stack": lambda np, x: (np.stack([x, x]), np.stack([x, x], axis=-1)),
    "stacks": lambda np, x: (np.vstack([x, x]), np.hstack([x, x]), np.dstack([x, x])),
    "column_stack": lambda np, x: np.column_stack([x, x]),
    "block": lambda np, x: np.block([[x, x], [x, x]]),
    "append": lambda np, x: (np.append(x, x), np.append(x, x, axis=0)),
    "insert": lambda np, x: (np.insert(x, 1, 0, axis=0), np.delete(x, 0, axis=-1)),
    "split": lambda np, x: (np.array_split(x, 2), np.split(x, [1], axis=-1)),
    "unstack": lambda np, x: np.unstack(x),
    "pad": lambda np, x: (np.pad(x, 1), np.pad(x, 2, mode="edge")),
    "take": lambda np, x: (np.take(x, [0, -1], axis=0), np.take(x, 1)),
    "take_along_axis": lambda np, x: np.take_along_axis(x, np.argsort(x, axis=-1), axis=-1),
    "compress": lambda np, x: np.compress([True, False], x, axis=0),
    "extract": lambda np, x: np.extract(x > 0, x),
    "nonzero": lambda np, x: (np.nonzero(x), np.argwhere(x), np.flatnonzero(x)),
    "sort": lambda np, x: (np.sort(x), np.sort(x, axis=None), np.argsort(x, axis=0, stable=True)),
    "partition": lambda np, x: np.partition(x, 1)[..., 1],
    "lexsort": lambda np, x: np.lexsort((x[..., 0], x[..., -1]))
    if x.ndim > 1
    else np.lexsort((x,)),
    "unique": lambda np, x: (np.unique(x), np.unique(x, return_counts=True)),
    "sets": lambda np, x: (
        np.union1d(x, x),
        np.intersect1d(x, x[..., 0]),
        np.setdiff1d(x, x[..., 0]),
    ),
    "isin": lambda np, x: np.isin(x, x[..., 0]),
    "searchsorted": lambda np, x: np.searchsorted(np.sort(x, axis=None), x, side="right"),
    "digitize": lambda np, x: np.digitize(x, np.array([0.0, 1.0, 2.0])),
    "histogram": lambda np, x: np.histogram(x, bins=4),
    "bincount": lambda np, x: np.bincount(np.abs(x.ravel()).astype("int64")),
    "interp": lambda np, x: np.interp(x, [-1, 0, 1], [3, 2, 5]),
    "convolve": lambda np, x: np.convolve(x.ravel(), x.ravel()[:2]),
    "cov": lambda np, x: (np.cov(x), np.corrcoef(x)),
    "tri": lambda np, x: (np.tril(x), np.triu(x, 1), np.diag(x), np.diagflat(x)),
    "vander": lambda np, x: np.vander(x.ravel(), 3),
    "diagonal": lambda np, x: (np.diagonal(x), np.trace(x)),
    "outer": lambda np, x: (np.outer(x, x), np.inner(x, x), np.kron(x, x)),
    "dot": lambda np, x: (np.dot(x, x.T), np.vdot(x, x), np.tensordot(x, x, axes=x.ndim)),
    "einsum": lambda np, x: (np.einsum("...i,...i->...", x, x), np.einsum("...i->i...", x)),
    "matmul": lambda np, x: (np.matmul(x, x.T), x @ x.T, np.vecdot(x, x)),
    "multi_dot": lambda np, x: np.linalg.multi_dot([x, x.T, x]),
    "norm": lambda np, x: (np.linalg.norm(x), np.linalg.norm(x, axis=-1), np.linalg.norm(x, 1)),
    "svd": lambda np, x: (np.linalg.svd(x, compute_uv=False), np.linalg.matrix_rank(x)),
    "square": lambda np, x: (
        np.linalg.inv(gram(np, x) + 9 * np.eye(len(x))),
        np.linalg.det(gram(np, x)),
    ),
    "solve": lambda np, x: np.linalg.solve(gram(np, x) + 9 * np.eye(len(x)), x),
    "eigh": lambda np, x: np.linalg.eigvalsh(x @ np.conj(x.T)),
    "lstsq": lambda np, x: np.linalg.lstsq(gram(np, x.T) + 9 * np.eye(x.shape[-1]), x.T)[0],
    "fft": lambda np, x: (np.fft.fft(x), np.fft.ifft(x, 4), np.fft.fftn(x), np.fft.fftshift(x)),
    "rfft": lambda np, x: (np.fft.rfft(x), np.fft.irfft(x), np.fft.fft2(x)),
    "poly": lambda np, x: np.polyval([1, 2, 3], x),
    "apply": lambda np, x: np.apply_along_axis(sum, 0, x),
    "vectorized": lambda np, x: np.apply_over_axes(np.sum, x, [0]),
    "bits": lambda np, x: (np.bitwise_and(x, 3), np.left_shift(x, 1), np.invert(x)),
    "packbits": lambda np, x: (np.packbits(x), np.unpackbits(x)),
    "facts": lambda np, x: (np.shape(x), np.ndim(x), np.size(x), np.size(x, 0)),
    "kinds": lambda np, x: (np.iscomplexobj(x), np.isrealobj(x), np.allclose(x, x)),
    "equal": lambda np, x: (np.array_equal(x, x), np.array_equiv(x, x), np.may_share_memory(x, x)),
    "types": lambda np, x: (str(np.result_type(x, "float32")), np.can_cast(x.dtype, "float64")),
    "ufuncs": lambda np, x: (np.arctan(x), np.hypot(x, 2), np.sinh(x), np.logaddexp(x, 1)),
    "ufuncs 2": lambda np, x: (np.fmax(x, 1), np.heaviside(x, 0.5), np.float_power(x, 2)),
    "divmod": lambda np, x: (np.divmod(x, 2), np.modf(x)),
    "frexp": lambda np, x: np.frexp(x),
    "reduce": lambda np, x: (
        np.add.reduce(x),
        np.multiply.reduce(x, axis=-1),
        np.maximum.reduce(x),
    ),
    "reduce 2": lambda np, x: (
        np.logical_or.reduce(x, axis=None),
        np.minimum.reduce(x, keepdims=True),
    ),
    "reduce 3": lambda np, x: (np.subtract.reduce(x), np.add.reduce(x, initial=5, where=x > 0)),
    "accumulate": lambda np, x: (np.add.accumulate(x), np.maximum.accumulate(x, axis=-1)),
    "reduceat": lambda np, x: np.add.reduceat(x, [0, 1], axis=-1),
    "ufunc outer": lambda np, x: (np.multiply.outer(x, [1, 2]), np.subtract.outer([1.5, 2], x)),
    "ufunc where": lambda np, x: np.multiply(x, 2, where=x > 0, out=np.zeros_like(x)),
    "ufunc dtype": lambda np, x: np.add(x, 1, dtype="complex128"),
    "methods": lambda np, x: (
        x.sum(),
        x.cumprod(0),
        x.argsort(),
        x.take([0], axis=0),
        x.clip(0, 1),
    ),
    "methods 2": lambda np, x: (x.nonzero(), x.repeat(2), x.diagonal(), x.trace(), x.round(1)),
    "methods 3": lambda np, x: (x.real, x.imag, x.conj(), x.dot(x.T), x.ravel(), x.flatten()),
    "methods 4": lambda np, x: (x.searchsorted(1), x.compress([True], axis=0), x.swapaxes(0, -1)),
    "methods 5": lambda np, x: (x.argpartition(0)[..., 0], x.flat[1:3], x.flat[0]),
    "masks": lambda np, x: (x[x > 0], x[[0, -1]], x[..., [0]], x[np.array([True] * len(x))]),
}


@pytest.mark.parametrize("name", UNARY)
def test_a_function_gives_what_it_gives_for_arrays(name: str) -> None:
    for dtype in DTYPES:
        for shape in [(4, 4), (2, 5), (3, 2, 4), (6,), (1, 1)]:
            found, expected = both(UNARY[name], sample(shape, dtype))
            same(found, expected)


def test_they_work_on_tensors_that_lie_otherwise() -> None:
    """Transposed, stepped, reversed, repeated, shared with NumPy, and still to be computed."""
    x = sample((4, 6), "float64")
    places: list[Function] = [
        lambda t: t.T, lambda t: t[::2, 1::3], lambda t: t[::-1], lambda t: t[1:, :-1],
        lambda t: t * 2 + 1, lambda t: t[:, :1] + t[:1],
    ]  # fmt: skip
    for place in places:
        for name, function in UNARY.items():
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    expected = function(np, place(x.copy()))
                except (TypeError, ValueError, IndexError):
                    continue
                for t in (hg.array(x), hg.asarray(x.copy())):
                    try:
                        same(function(np, place(t)), expected)
                    except AssertionError as error:
                        raise AssertionError(f"{name}: {error}") from error


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), ()])
def test_empty_and_0d(shape: tuple[int, ...]) -> None:
    for name in ("sum", "prod", "any all", "reshape", "copy", "like", "flip", "where", "facts",
                 "clip", "concatenate", "atleast", "unique", "cumulative", "bits"):  # fmt: skip
        for dtype in ("float64", "int32", "bool"):
            found, expected = both(UNARY[name], sample(shape, dtype))
            same(found, expected)


VIEWS: list[Function] = [
    lambda np, x: np.reshape(x, (6, 4)),
    lambda np, x: np.ravel(x),
    lambda np, x: np.transpose(x),
    lambda np, x: np.swapaxes(x, 0, 1),
    lambda np, x: np.moveaxis(x, 0, -1),
    lambda np, x: np.rollaxis(x, 2),
    lambda np, x: np.squeeze(x[:, :1]),
    lambda np, x: np.expand_dims(x, 1),
    lambda np, x: np.flip(x, 1),
    lambda np, x: np.rot90(x),
    lambda np, x: np.fliplr(x),
    lambda np, x: np.atleast_3d(x),
    lambda np, x: np.split(x, 2)[1],
    lambda np, x: np.array_split(x, 3, axis=2)[2],
    lambda np, x: np.hsplit(x, [1])[1],
    lambda np, x: np.unstack(x)[1],
    lambda np, x: np.real(x),
    lambda np, x: np.asarray(x)[..., 1:] if type(x) is np.ndarray else x[..., 1:],
    lambda np, x: x.view("int64"),
]


@pytest.mark.parametrize("at", range(len(VIEWS)))
def test_a_view_is_a_view(at: int) -> None:
    """What is written through it is in the Tensor, and the other way round."""
    x = sample((2, 3, 4), "float64")
    t = hg.array(x)
    view, expected = VIEWS[at](np, t), VIEWS[at](np, x)
    same(view, expected, exact=True)
    view[...] = 7
    expected[...] = 7
    same(t, x, exact=True)
    t *= 2
    x *= 2
    same(view, expected, exact=True)


def test_views_that_numpy_makes_read_only_are_so() -> None:
    t = hg.zeros((3, 3))
    for view in (np.diagonal(t), np.broadcast_to(t, (2, 3, 3)),
                 np.lib.stride_tricks.sliding_window_view(t, 2, axis=0)):  # fmt: skip
        assert isinstance(view, hg.Tensor)
        with pytest.raises(ValueError, match="read-only"):
            view[...] = 1


def test_parts_of_complex_numbers_are_views() -> None:
    x = sample((3, 4), "complex64")
    t = hg.array(x)
    t.real[0] = 5
    t.imag = 2
    x.real[0] = 5
    x.imag = 2
    same(t, x, exact=True)
    t.real = t.imag
    assert (t.real == 2).all()
    r = hg.ones(3)
    assert r.real is r and r.imag.tolist() == [0, 0, 0]
    with pytest.raises(TypeError, match="no imaginary part to set"):
        r.imag = 1


WRITES: dict[str, Function] = {
    "copyto": lambda np, x: np.copyto(x, 3),
    "copyto where": lambda np, x: np.copyto(x, x[::-1] * 1, where=x > 0),
    "put": lambda np, x: np.put(x, [0, -1], 9),
    "place": lambda np, x: np.place(x, x > 0, [1, 2]),
    "putmask": lambda np, x: np.putmask(x, x > 0, x * 2),
    "fill_diagonal": lambda np, x: np.fill_diagonal(x, 4),
    "put_along_axis": lambda np, x: np.put_along_axis(x, np.argmax(x, 1, keepdims=True), 0, 1),
    "add.at": lambda np, x: np.add.at(x, [0, 0, 1], 1),
    "sort": lambda np, x: x.sort(axis=0),
    "partition": lambda np, x: x[0].partition(0),
    "fill": lambda np, x: x.fill(2),
    "method put": lambda np, x: x.put([1, 2], [5, 6]),
    "flat": lambda np, x: x.flat.__setitem__(slice(None, None, 2), 1),
    "set flat": lambda np, x: setattr(x, "flat", [1, 2, 3]),
    "out=": lambda np, x: np.multiply(x, 3, out=x),
    "out= of numpy's": lambda np, x: np.arctan(x, out=x),
    "out= reduction": lambda np, x: np.sum(x, axis=0, out=x[0]),
    "out= cumsum": lambda np, x: np.cumsum(x, axis=0, out=x),
    "out= clip": lambda np, x: np.clip(x, 0, 1, out=x),
    "out= take": lambda np, x: np.take(x, [0, 1, 2, 3], axis=0, out=x[:], mode="clip"),
    "out= matmul": lambda np, x: np.matmul(x * 1, x * 1, out=x),
    "out= dot": lambda np, x: np.dot(x * 1, x * 1, out=x),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_writes_writes_into_the_tensor(name: str) -> None:
    x = sample((4, 4), "float64", 3)
    t = hg.array(x)
    before = t + 1  # recorded, and reads t before it is written
    again = x + 1
    WRITES[name](np, t)
    WRITES[name](np, x)
    same(t, x)
    same(before, again, exact=True)
    same(t * 2, x * 2)


def test_random_generators_take_tensors() -> None:
    rng = np.random.default_rng(4)
    x = hg.array(np.arange(6.0))
    rng.shuffle(np.asarray(x))
    assert sorted(x.tolist()) == [0, 1, 2, 3, 4, 5]
    assert np.random.default_rng(4).permutation(hg.arange(5)).shape == (5,)
    assert rng.choice(hg.arange(5), 3).shape == (3,)
    assert rng.normal(hg.zeros(3), 1).shape == (3,)


def test_writing_to_read_only_tensors_is_refused() -> None:
    x = np.zeros((3, 3))
    x.flags.writeable = False
    t = hg.asarray(x)
    for write in (
        lambda: np.copyto(t, 1), lambda: t.sort(), lambda: t.put([0], 1), lambda: t.partition(1),
        lambda: t.fill(1), lambda: np.add(1, 1, out=t), lambda: np.fill_diagonal(t, 1),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"read-only"):
            write()
    assert not x.any()


def test_arrays_of_the_caller_stay_theirs() -> None:
    """A result on the memory of an array of NumPy's shares it, and is not deferred on it."""
    x = np.arange(4.0)
    a, b = np.broadcast_arrays(x, hg.zeros((2, 1)))
    assert a.shape == (2, 4)
    found = np.atleast_2d(x, hg.zeros(2))[0]
    x[0] = 9
    assert np.asarray(found)[0, 0] == 9
    later = found + 1
    x[:] = 0
    assert later.tolist()[0][0] == 10
    assert b.shape == (2, 4)


def test_results_without_a_tensor_say_so_once() -> None:
    x = hg.arange(3)
    assert isinstance(np.array_repr(x), str)  # no array, and nothing to say
    with pytest.warns(RuntimeWarning, match=r"numpy\.concatenate: the result has a dtype") as told:
        strings = np.concatenate([x, np.array(["a"])])
    assert isinstance(strings, np.ndarray) and strings.dtype.kind == "U"
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.concatenate([x, np.array(["b"])])


def test_other_array_types_are_asked_first() -> None:
    class Other:
        def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> str:
            return "other"

    assert np.concatenate([hg.zeros(2), Other()]) == "other"
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    assert float(np.sum(masked * 1)) == 2.0
    assert np.concatenate([hg.zeros(2), masked]).shape == (4,)


def test_einsum_of_random_subscripts() -> None:
    """Repeated indices, outer products, sums, ellipses, one to four operands."""
    rng = np.random.default_rng(0)
    for _ in range(400):
        letters = "abcdef"[: rng.integers(1, 7)]
        sizes = {
            letter: int(rng.integers(0 if rng.random() < 0.05 else 1, 6)) for letter in letters
        }
        names = ["".join(rng.choice(list(letters), rng.integers(0, 4)))
                 for _ in range(rng.integers(1, 5))]  # fmt: skip
        dtype = str(rng.choice(["float64", "int32", "uint16", "complex128", "bool"]))
        arrays = [sample(tuple(sizes[i] for i in n), dtype, int(rng.integers(99))) for n in names]
        used = sorted(set("".join(names)))
        result = "".join(rng.permutation(used)[: rng.integers(0, len(used) + 1)])
        if rng.random() < 0.2:
            names = [f"...{n}" for n in names]
            arrays = [np.stack([x, x]) if rng.random() < 0.6 else x for x in arrays]
            result = f"...{result}"
        text = ",".join(names) + (f"->{result}" if rng.random() < 0.7 else "")
        found = _einsum.einsum(text, [hg.array(x) for x in arrays])
        same(found, np.asarray(np.einsum(text, *arrays)))
    out = hg.zeros(2, "complex128")
    assert np.einsum("ij->i", hg.ones((2, 3)), out=out) is out and out.tolist() == [3, 3]
    with pytest.raises(ValueError, match="fewer operands provided"):
        np.einsum("ij", hg.ones((2, 2)), hg.ones(2))
    with pytest.raises(ValueError, match="operand"):
        np.einsum("ij,jk", hg.ones((2, 3)), hg.ones((2, 3)))


def test_functions_take_tensors_anywhere() -> None:
    """In lists, as indices, as limits, as keywords; hologram's dtypes as NumPy's."""
    x = hg.arange(5)
    assert np.select([x > 3, x > 1], [x, -x], default=x).tolist() == [0, 1, -2, -3, 4]
    assert np.linspace(x[0], x[4], 3).tolist() == [0, 2, 4]
    assert np.full_like(x, 2, dtype=hg.float32).dtype == "float32"
    assert np.clip(np.arange(5), x, 3).tolist() == [0, 1, 2, 3, 3]
    assert np.take(np.arange(5) * 2, x[1:3]).tolist() == [2, 4]
    assert np.interp(0.5, x, x * 2) == 1.0
    assert np.ix_(x[:2], x[:3])[0].shape == (2, 1)
    y = np.zeros(5)
    y[x] = x
    assert y.tolist() == [0, 1, 2, 3, 4]


def test_save_load_and_pickle(tmp_path: Any) -> None:
    x = hg.array(sample((3, 4), "float32"))
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x, y=x[0])
    np.savetxt(tmp_path / "x.txt", x)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), x.numpy())
    np.testing.assert_array_equal(np.load(tmp_path / "x.npz")["y"], x[0].numpy())
    np.testing.assert_allclose(np.loadtxt(tmp_path / "x.txt"), x.numpy(), rtol=1e-6)
    assert (pickle.loads(pickle.dumps(x)) == x).all()
    assert np.array(x, copy=True).base is None
    assert np.asarray(x, dtype="float64").dtype == "float64"
    with pytest.raises(ValueError, match="avoid copy while creating an array"):
        np.array(x, dtype="float64", copy=False)
    with pytest.raises(ValueError, match="leave copy=False out"):
        x.__array__("float64", copy=False)


def test_reductions_of_ufuncs_are_recorded() -> None:
    """They wait, like those of the methods."""
    x = hg.ones((3, 4))
    total = np.add.reduce(x * 2, axis=1)
    assert total.tolist() == [8, 8, 8]
    with pytest.raises(ValueError, match="zero-size array to reduction operation maximum"):
        np.maximum.reduce(hg.zeros(0))


# The same function with its arguments at their places, by name, left out, and wrong.
SPELLINGS: dict[str, Function] = {
    "sum 0": lambda np, x: np.sum(x, 0),
    "sum -1": lambda np, x: np.sum(x, axis=-1),
    "sum of axes": lambda np, x: np.sum(x, axis=(0, 1), keepdims=True),
    "sum None": lambda np, x: np.sum(x, None, None, None, True),
    "sum dtype": lambda np, x: np.sum(x, axis=0, dtype="complex128"),
    "sum where": lambda np, x: np.sum(x, where=np.eye(*np.shape(x)) > 0),
    "sum initial": lambda np, x: np.sum(x, initial=3),
    "sum axis 7": lambda np, x: np.sum(x, axis=7),
    "mean class": lambda np, x: np.mean(x, 0, np.float64),
    "max": lambda np, x: np.max(x, axis=1, keepdims=1),
    "argmax": lambda np, x: np.argmax(x, 1, keepdims=True),
    "std": lambda np, x: np.std(x, axis=0, ddof=1),
    "var": lambda np, x: np.var(x, 0, None, None, 1, True),
    "cumsum": lambda np, x: np.cumsum(x, 1, dtype="complex128"),
    "any": lambda np, x: np.any(x, 0),
    "copy": lambda np, x: np.copy(x, order="F"),
    "flip": lambda np, x: np.flip(x, -1),
    "flip axes": lambda np, x: np.flip(x, axis=(0, 1)),
    "flip 5": lambda np, x: np.flip(x, axis=5),
    "flip a row": lambda np, x: np.flip(x[0]),
    "zeros": lambda np, x: np.zeros_like(x, dtype="int16"),
    "zeros at": lambda np, x: np.zeros_like(x, np.float32),
    "zeros shape": lambda np, x: np.zeros_like(x, shape=(7,)),
    "ones": lambda np, x: np.ones_like(x, dtype=None),
    "ones of a scalar": lambda np, x: np.ones_like(x[0, 0]),
    "empty": lambda np, x: np.empty_like(x, "uint8").shape,
    "empty wrong": lambda np, x: np.empty_like(x, dtype="nothing"),
    "dot": lambda np, x: np.dot(x, np.transpose(x)),
    "dot of rows": lambda np, x: np.dot(x[0], x[-1]),
    "dot of a number": lambda np, x: np.dot(x, 2),
    "dot of three": lambda np, x: np.dot(x, np.stack([np.transpose(x)] * 2)),
    "dot wrong": lambda np, x: np.dot(x, x[0, :1]),
    "where": lambda np, x: np.where(x != 0, x, 1),
    "where of bools": lambda np, x: np.where(x != 0, True, False),
    "where of scalars": lambda np, x: np.where(x[0, 0] != 0, x[0, 0], 7),
    "reshape": lambda np, x: np.reshape(x, -1),
    "reshape F": lambda np, x: np.reshape(x, (-1,), order="F"),
    "reshape copy": lambda np, x: np.reshape(x, (-1,), copy=True),
    "reshape a scalar": lambda np, x: np.reshape(x[0, 0], (1, 1)),
    "reshape wrong": lambda np, x: np.reshape(x, (5, 5)),
    "transpose": lambda np, x: np.transpose(x, (1, 0)),
    "transpose by list": lambda np, x: np.transpose(x, axes=[1, 0]),
    "transpose wrong": lambda np, x: np.transpose(x, (0, 0)),
    "shape": lambda np, x: (np.shape(x), np.ndim(x), np.size(x), np.size(x, 1)),
    "concatenate": lambda np, x: np.concatenate((x, x)),
    "concatenate 1": lambda np, x: np.concatenate([x, x], axis=-1),
    "concatenate None": lambda np, x: np.concatenate([x, x], None),
    "concatenate scalars": lambda np, x: np.concatenate([x[0, 0], x[0, 0]]),
    "concatenate wrong": lambda np, x: np.concatenate((x, x[:, :1])),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_arguments_may_be_spelled_in_any_way(name: str) -> None:
    for dtype in ("bool", "int8", "float32", "float64", "complex64"):
        x = sample((3, 4), dtype)
        found, expected = both(SPELLINGS[name], x)
        same(found, expected)
        if isinstance(expected, np.generic):
            assert isinstance(found, hg.Scalar)
        elif isinstance(expected, np.ndarray):
            assert isinstance(found, hg.Tensor)
            assert not isinstance(found, hg.Scalar)


def test_what_is_flipped_and_reshaped_is_a_view() -> None:
    x = hg.array(np.arange(12.0).reshape(3, 4))
    np.flip(x)[0, 0] = 100
    np.reshape(x, (4, 3))[0, 1] = 200
    np.transpose(x)[2, 0] = 300
    assert [float(x[2, 3]), float(x[0, 1]), float(x[0, 2])] == [100, 200, 300]
    x.setflags(write=False)
    with pytest.raises(ValueError, match="read-only"):
        np.flip(x)[0, 0] = 1
