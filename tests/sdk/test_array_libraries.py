# SPDX-License-Identifier: MIT
"""Libraries that take any array: they work on tensors, unmodified, and give tensors."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hologram as hg

X = np.random.default_rng(7).standard_normal((4, 6, 10))
Function = Callable[..., Any]


def same(found: Any, expected: Any) -> None:
    """Assert that a tensor stands where an array does, with its values."""
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
        return
    assert isinstance(found, hg.Tensor), type(found)
    expected = np.asarray(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_scipy_and_scikit_learn() -> None:
    """They read SCIPY_ARRAY_API when they are imported, so their tests have their own process."""
    pytest.importorskip("scipy", minversion="1.17")
    pytest.importorskip("sklearn", minversion="1.7")
    tests = Path(__file__).parent / "array_api_dispatch.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", tests],
        env={**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout


# Of NumPy and not of the standard: called on a namespace all the same.
BEYOND: dict[str, Function] = {
    "concatenate": lambda np, x: np.concatenate([x, x], axis=1),
    "convolve": lambda np, x: np.convolve(x[0, 0], x[0, 1, :3], "same"),
    "diag": lambda np, x: (np.diag(x[0], 1), np.diag(x[0, 0], k=-1)),
    "einsum": lambda np, x: (np.einsum("abc,abd->cd", x, x), np.einsum(x, [0, 1, 2], [2])),
    "gradient": lambda np, x: (np.gradient(x, axis=1), np.gradient(x, 2.0)),
    "isclose": lambda np, x: np.isclose(x, x + 1e-9),
    "isin": lambda np, x: np.isin(x, x[0]),
    "logspace": lambda np, x: np.logspace(0, 3, 7, base=2),
    "median": lambda np, x: (np.median(x), np.median(x, axis=(0, 2), keepdims=True)),
    "nan_to_num": lambda np, x: np.nan_to_num(np.where(x > 0, x, np.nan), nan=7.0),
    "pad": lambda np, x: (np.pad(x, 1), np.pad(x, ((0, 1), (2, 0), (1, 1)), mode="edge")),
    "put_along_axis": lambda np, x: np.put_along_axis(x, np.argmax(x, 1, keepdims=True), 9, 1),
    "quantile": lambda np, x: np.quantile(x, [0.1, 0.6], axis=1),
    "transpose": lambda np, x: (np.transpose(x), np.transpose(x, (1, 2, 0))),
    "windows": lambda np, x: np.lib.stride_tricks.sliding_window_view(x, 3, axis=2),
}


@pytest.mark.parametrize("name", BEYOND)
def test_functions_beyond_the_standard(name: str) -> None:
    x, t = X.copy(), hg.array(X)
    expected, found = BEYOND[name](np, x), BEYOND[name](hg, t)
    same(found if expected is not None else t, expected if expected is not None else x)
    assert expected is not None or not np.array_equal(x, X)


def test_reductions_have_signatures() -> None:
    for name in ("sum", "prod", "mean", "nansum", "min", "max", "argmin", "argmax", "any", "all"):
        parameters = inspect.signature(getattr(hg, name)).parameters
        assert list(parameters)[:2] == ["x", "axis"] and list(parameters)[-1] == "keepdims"
        assert getattr(hg, name).__doc__


# --- array_api_compat and array_api_extra ---------------------------------------------------------


def test_array_api_compat() -> None:
    aac = pytest.importorskip("array_api_compat")
    x = hg.array(X)
    assert aac.array_namespace(x, 1.0, hg.zeros(3)) is hg
    assert aac.is_array_api_obj(x) and aac.is_array_api_strict_namespace(hg) is False
    assert not aac.is_numpy_array(x) and aac.is_writeable_array(x) and not aac.is_lazy_array(x)
    assert aac.device(x) == "cpu" and aac.to_device(x, "cpu") is x
    assert aac.size(x) == X.size and aac.size(x[:0]) == 0
    with pytest.raises(TypeError, match="Multiple namespaces"):
        aac.array_namespace(x, X)


EXTRA: dict[str, Function] = {
    "apply_where": lambda xpx, x: xpx.apply_where(x > 0, x, lambda t: t**0.5, fill_value=-1),
    "at set": lambda xpx, x: xpx.at(x + 0)[0, ...].set(3.0),
    "at mask": lambda xpx, x: xpx.at(x + 0, x > 0).multiply(2.0),
    "at power": lambda xpx, x: xpx.at(x + 0)[:, 1].power(2),
    "atleast_nd": lambda xpx, x: xpx.atleast_nd(x, ndim=5),
    "cov": lambda xpx, x: xpx.cov(x[0]),
    "create_diagonal": lambda xpx, x: xpx.create_diagonal(x[0, 0], offset=1),
    "isclose": lambda xpx, x: xpx.isclose(x, x + 1e-9),
    "kron": lambda xpx, x: xpx.kron(x[0], x[1]),
    "nan_to_num": lambda xpx, x: xpx.nan_to_num(x / 0.0),
    "nunique": lambda xpx, x: xpx.nunique(x),
    "one_hot": lambda xpx, x: xpx.one_hot((x[0, 0] > 0) * 1, 3),
    "pad": lambda xpx, x: xpx.pad(x, 2, constant_values=1.0),
    "setdiff1d": lambda xpx, x: xpx.setdiff1d(x[0, 0], x[0, 0, ::2]),
    "sinc": lambda xpx, x: xpx.sinc(x),
    "expand_dims": lambda xpx, x: xpx.expand_dims(x, axis=(0, -1)),
    "partition": lambda xpx, x: xpx.partition(x, 3).max(),
    "argpartition": lambda xpx, x: xpx.argpartition(x, 3).min(),
    "isin": lambda xpx, x: xpx.isin(x, x[0]),
    "union1d": lambda xpx, x: xpx.union1d(x[0, 0], x[0, 1]),
    "quantile": lambda xpx, x: xpx.quantile(x, 0.25, axis=1),
    "searchsorted": lambda xpx, x: xpx.searchsorted(x[0, 0], x[0, 1]),
    "angle": lambda xpx, x: xpx.angle(x + 1j),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXTRA)
def test_array_api_extra(name: str) -> None:
    xpx = pytest.importorskip("array_api_extra")
    if not hasattr(xpx, name.split()[0]):
        pytest.skip("newer than what is installed")
    x = np.sort(X, axis=-1)
    with np.errstate(all="ignore"):
        expected = EXTRA[name](xpx, x)
    found = EXTRA[name](xpx, hg.array(x))
    assert expected is not None
    same(found, expected)


# --- einops and opt_einsum ------------------------------------------------------------------------

EINOPS: dict[str, Function] = {
    "rearrange": lambda e, x: e.rearrange(x, "a (b c) d -> b a (c d)", b=2),
    "rearrange many": lambda e, x: e.rearrange([x, x + 1], "n a b c -> a n b c"),
    "reduce sum": lambda e, x: e.reduce(x, "a (b 2) c -> a c", "sum"),
    "reduce max": lambda e, x: e.reduce(x, "a b c -> c b", "max"),
    "reduce mean": lambda e, x: e.reduce(x, "a b c -> ()", "mean"),
    "repeat": lambda e, x: e.repeat(x, "a b c -> a b r c", r=2),
    "pack": lambda e, x: e.pack([x, x[:, 0]], "a * c")[0],
    "unpack": lambda e, x: e.unpack(*e.pack([x, x[:, 0]], "a * c"), "a * c"),
}  # fmt: skip


@pytest.mark.parametrize("name", EINOPS)
def test_einops(name: str) -> None:
    """einops.array_api takes every namespace; einops' own functions know the types they list."""
    functions = pytest.importorskip("einops.array_api")
    same(EINOPS[name](functions, hg.array(X)), EINOPS[name](functions, X))


def test_opt_einsum() -> None:
    contract = pytest.importorskip("opt_einsum").contract
    x, y = hg.array(X), hg.array(X[0])
    same(contract("abc,dc,ec->abde", x, y, y), contract("abc,dc,ec->abde", X, X[0], X[0]))
    same(contract("abc->ca", x), contract("abc->ca", X))


# --- xarray ---------------------------------------------------------------------------------------

XARRAY: dict[str, Function] = {
    "arithmetic": lambda xr, d: (d * 2 + d.isel(x=0)) / abs(d).max(),
    "ufunc": lambda xr, d: np.exp(d) + np.sin(d),
    "reductions": lambda xr, d: d.sum("x")
    + d.mean()
    + d.std("x")
    + d.max("x")
    + d.var()
    + d.prod(),
    "positions of extremes": lambda xr, d: d.argmax("x"),
    "median": lambda xr, d: d.median("x"),
    "quantile": lambda xr, d: d.quantile(0.3, "x"),
    "running": lambda xr, d: d.cumsum("x") + d.cumprod("y"),
    "missing": lambda xr, d: d.where(d > 0).mean("x").fillna(3) + d.where(d > 0).count(),
    "where": lambda xr, d: xr.where(d > 0, d, 0.0),
    "isin": lambda xr, d: d.round().isin([0.0, 1.0]),
    "by label": lambda xr, d: d.sel(x=[20, 40]),
    "by position": lambda xr, d: d[1:3, ::2, -1],
    "by lists": lambda xr, d: d.isel(x=[2, 0], y=[1, 1]),
    "transpose": lambda xr, d: d.transpose("z", "x", "y"),
    "stack": lambda xr, d: d.stack(q=("x", "y")).unstack("q"),
    "shift": lambda xr, d: d.shift(x=1),
    "roll": lambda xr, d: d.roll(x=1),
    "pad": lambda xr, d: d.pad(x=1, constant_values=2),
    "diff": lambda xr, d: d.diff("y"),
    "rolling": lambda xr, d: d.rolling(x=2).mean(),
    "coarsen": lambda xr, d: d.coarsen(x=2).sum(),
    "groupby": lambda xr, d: d.assign_coords(g=("x", [0, 1, 0, 1])).groupby("g").mean(),
    "dot": lambda xr, d: xr.dot(d, d.isel(z=0), dim="x"),
    "concat": lambda xr, d: xr.concat([d, d + 1], "x"),
    "align": lambda xr, d: d + d.isel(x=[0, 1]),
    "reindex": lambda xr, d: d.reindex(x=[10, 70]),
    "differentiate": lambda xr, d: d.differentiate("x") + d.integrate("y"),
    "statistics": lambda xr, d: xr.cov(d, d + 1, dim="x") + xr.corr(d, d, dim="x"),
    "weighted": lambda xr, d: d.weighted(xr.DataArray(np.arange(4.0), dims="x")).mean("x"),
    "apply_ufunc": lambda xr, d: xr.apply_ufunc(lambda a: a * 2, d),
    "dataset": lambda xr, d: xr.Dataset({"a": d, "b": d > 0}).mean("x").to_array(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", XARRAY)
def test_xarray(name: str) -> None:
    xr = pytest.importorskip("xarray")

    def array(data: Any) -> Any:
        return xr.DataArray(data, dims=["x", "y", "z"], coords={"x": [10, 20, 30, 40]})

    found, expected = XARRAY[name](xr, array(hg.array(X))), XARRAY[name](xr, array(X))
    assert found.dims == expected.dims
    same(found.data, expected.data)
    assert list(found.coords) == list(expected.coords)


def test_xarray_looks_and_writes() -> None:
    xr = pytest.importorskip("xarray")
    x = hg.array(X)
    d = xr.DataArray(x, dims=["x", "y", "z"])
    d[0, 0, 0] = 5
    d += 1
    assert float(d[0, 0, 0]) == 6
    assert isinstance(d.values, np.ndarray) and d.equals(xr.DataArray(d.values, dims=d.dims))
    assert "Tensor" in repr(d)
    # Points are not in the standard, and xarray refuses them for all of its arrays.
    points = xr.DataArray([0, 1], dims="q")
    with pytest.raises(TypeError, match="Vectorized indexing is not supported"):
        d.isel(x=points, y=points).load()


# --- dask -----------------------------------------------------------------------------------------

DASK: dict[str, Function] = {
    "arithmetic": lambda da, d: (d + 1) * d - d[0],
    "ufuncs": lambda da, d: da.exp(d) + np.tanh(d),
    "reductions": lambda da, d: d.sum(0) + d.mean() + d.std(0) + d.max(0) + d.min() + d.prod(0),
    "nan": lambda da, d: da.nansum(da.where(d > 0, d, np.nan), axis=0),
    "running": lambda da, d: d.cumsum(0),
    "products": lambda da, d: (d @ d.T).dot(d) + da.tensordot(d, d.T, axes=1) @ d,
    "einsum": lambda da, d: da.einsum("ij,kj->ik", d, d),
    "shapes": lambda da, d: da.concatenate([d.T.reshape(-1), d.ravel()]),
    "rechunk": lambda da, d: d.rechunk((6, 2)),
    "index": lambda da, d: d[1:20:3, ::-1][[0, 2]],
    "mask": lambda da, d: d[d[:, 0] > 0],
    "map_blocks": lambda da, d: d.map_blocks(lambda b: b * 2),
    "map_overlap": lambda da, d: d.map_overlap(lambda b: b * 2, depth=1, boundary="reflect"),
    "topk": lambda da, d: da.topk(d, 3, axis=0),
    "median": lambda da, d: da.median(d, axis=0),
    "histogram": lambda da, d: da.histogram(d, bins=5, range=(-3, 3))[0],
    "svd": lambda da, d: da.linalg.svd(d.rechunk((6, 10)))[1],
    "norm": lambda da, d: da.linalg.norm(d),
    "fft": lambda da, d: abs(da.fft.fft(d.rechunk((6, 10)))),
    "pad": lambda da, d: da.pad(d, 2),
    "diff": lambda da, d: da.diff(d, axis=0),
    "isin": lambda da, d: da.isin(da.round(d), [0.0, 1.0]),
    "mixed": lambda da, d: d + X.reshape(24, 10),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", DASK)
def test_dask(name: str) -> None:
    da = pytest.importorskip("dask.array")
    x = X.reshape(24, 10)
    found, expected = (
        DASK[name](da, da.from_array(a, chunks=(6, 5), asarray=False)) for a in (hg.array(x), x)
    )
    same(found.compute(scheduler="sync"), expected.compute(scheduler="sync"))
