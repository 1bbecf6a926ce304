# SPDX-License-Identifier: MIT
"""Reductions of the device against cpu: dtypes, layouts, dims, keepdim, NaN, out=, errors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from native_compare import ACCURATE, DEVICE, FLOATS, INTEGERS, check, check_native, layouts, values

DIMS = [None, 0, -1, 1, (0, 2), (-1, 0), (0, 1, 2), ()]
BY_DIMS = ["sum", "mean", "amin", "amax", "logsumexp", "var", "std", "norm"]


def call(name: str, x: torch.Tensor, dim: object, keepdim: bool) -> torch.Tensor:
    if name == "logsumexp" and dim is None:
        dim = tuple(range(x.dim()))
    if name in ("amin", "amax") and dim is None:
        dim = ()
    if name == "norm":
        return torch.linalg.vector_norm(x, dim=dim, keepdim=keepdim)
    return getattr(torch, name)(x, dim=dim, keepdim=keepdim)


@pytest.mark.parametrize("name", BY_DIMS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_over_dims(name: str, dtype: torch.dtype) -> None:
    for x in layouts(values(5, 7, 9, dtype=dtype)):
        for dim in DIMS:
            if name == "logsumexp" and dim == ():
                continue  # raises, in 2.15
            for keepdim in (False, True):
                check_native(call, name, x, dim, keepdim, tol=ACCURATE)


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
def test_integers(dtype: torch.dtype) -> None:
    for x in layouts(values(5, 7, 9, dtype=dtype)):
        check_native(torch.sum, x)
        check_native(torch.amax, x, dim=(0, 2))
        check_native(torch.amin, x, dim=1, keepdim=True)
        check_native(torch.sum, x, dim=(1, 2))
        check_native(torch.sum, x, dim=1, dtype=torch.float32)
        check_native(torch.mean, x, dtype=torch.float64)
        check_native(torch.prod, x[:2, :2, :2])
        check_native(torch.any, x, dim=1)
        check_native(torch.all, x, dim=-1, keepdim=True)
        check_native(torch.any, x)
        check_native(torch.all, x, dim=(0, 1))
        check_native(torch.cumsum, x, 1)
        check(torch.max, x)
        check(torch.min, x, 1)
        check(torch.argmax, x, 1)
        check(torch.mean, x)
        check(torch.var, x)
        check(torch.logsumexp, x, 1, tol=ACCURATE)


@pytest.mark.parametrize("dtype", FLOATS)
def test_positions_and_extremes(dtype: torch.dtype) -> None:
    for x in layouts(values(5, 7, 9, dtype=dtype)):
        for dim in (0, 1, 2, -1):
            for keepdim in (False, True):
                check_native(torch.max, x, dim, keepdim)
                check_native(torch.min, x, dim, keepdim)
                check_native(torch.argmax, x, dim, keepdim)
                check_native(torch.argmin, x, dim, keepdim)
                check_native(torch.aminmax, x, dim=dim, keepdim=keepdim)
        check_native(torch.max, x)
        check_native(torch.min, x)
        check_native(torch.argmax, x)
        check_native(torch.argmin, x, keepdim=True)
        check_native(torch.aminmax, x)
        check_native(torch.prod, x[:1], tol=ACCURATE)
        check_native(torch.prod, x, 1, tol=ACCURATE)
        check_native(torch.cumsum, x, 1, tol=ACCURATE)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_without_nan(dtype: torch.dtype) -> None:
    x = values(5, 7, 9, dtype=dtype)
    x[1:3, :, ::2] = math.nan
    x[2] = math.nan
    x[4, 1, 1] = math.inf

    # cpu adds up halves as halves, so it is no oracle of them; here sums are those of float64.
    def exact(call: Callable[..., torch.Tensor], x: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        ours = x.device.type == DEVICE.type
        return call(x, **kwargs) if ours else call(x.double(), **kwargs).to(dtype)

    for y in layouts(x):
        for dim in DIMS:
            for keepdim in (False, True):
                check_native(exact, torch.nansum, y, dim=dim, keepdim=keepdim, tol=ACCURATE)
        check(exact, torch.nanmean, y, dim=(1, 2), tol=ACCURATE)
        check_native(torch.nansum, y, dtype=torch.float64, tol=ACCURATE)
        check(torch.nansum, y, dim=(1, 1))
        check(torch.nansum, y, dtype=torch.int64)
    check(torch.nansum, torch.tensor([1, 2]))
    check(torch.nansum, torch.tensor([1, 2]), dtype=dtype)
    check(torch.nansum, torch.zeros(0, 3, dtype=dtype), dim=0)

    def gradient(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(torch.nansum(x, 1).sum(), x)[0]

    check(gradient, x)


def test_nan_and_infinities() -> None:
    x = values(4, 6)
    x[1, 2] = math.nan
    x[2, 3] = math.inf
    x[3] = -math.inf
    for name in BY_DIMS:
        check_native(call, name, x, 1, False, tol=ACCURATE)
        check_native(call, name, x, 0, True, tol=ACCURATE)
        check_native(call, name, x, None, False, tol=ACCURATE)
    for f in (torch.max, torch.min):
        check_native(f, x, 1)
        check_native(f, x)
    check_native(torch.argmax, x, 1)
    check_native(torch.argmin, x)
    check_native(torch.any, x, 1)


@pytest.mark.parametrize("p", [0, 0.5, 1, 2, 3, math.inf, -math.inf])
def test_norms(p: float) -> None:
    x = values(6, 8)
    x[0] = 0
    for dim in (None, 1, (0, 1)):
        check_native(torch.linalg.vector_norm, x, p, dim, tol=ACCURATE)
    check_native(torch.norm, x, p, tol=ACCURATE)
    check(torch.linalg.vector_norm, x, p, dtype=torch.float64, tol=ACCURATE)
    check(torch.linalg.vector_norm, values(3, 4, dtype=torch.complex64), p)


@pytest.mark.parametrize("correction", [0, 1, 2.5])
def test_spread(correction: float) -> None:
    for x in layouts(values(6, 8) + 1000):
        for dim in (None, 0, 1, (0, 1)):
            for f in (torch.var, torch.std, torch.var_mean, torch.std_mean):
                check_native(f, x, dim, correction=correction, tol=ACCURATE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(torch.var, values(1), correction=1)
        check(torch.std, values(3, 2), 1, correction=5)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
def test_empty(shape: tuple[int, ...]) -> None:
    x = torch.zeros(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in [*BY_DIMS, "prod", "any", "all", "max", "min", "argmax", "cumsum"]:
            f = torch.linalg.vector_norm if name == "norm" else getattr(torch, name)
            check(f, x)
            for dim in range(len(shape)):
                check(f, x, dim=dim)


def test_numbers_and_large() -> None:
    x = torch.tensor(3.5)
    for name in ("sum", "mean", "amax", "max", "argmax", "any", "prod", "std"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(getattr(torch, name), x)
    for dim in (0, -1, 1):
        check(torch.sum, x, dim=dim)
        check(torch.max, x, dim)
    big = values(1000, 1003)
    for name in BY_DIMS:
        for dim in (None, 0, 1):
            check_native(call, name, big, dim, False, tol=ACCURATE)
    check_native(torch.argmax, big)
    check_native(torch.max, big, 0)


def test_dtypes_asked_for() -> None:
    x = values(5, 6) * 10
    check_native(torch.sum, x, dtype=torch.float64)
    check_native(torch.sum, x, dim=1, dtype=torch.int64)
    check_native(torch.mean, x.half(), dtype=torch.float32)
    check(torch.sum, x, dtype=torch.bool)
    check(torch.sum, x, dtype=torch.complex64)
    check(torch.sum, values(3, 4, dtype=torch.complex64))
    check_native(torch.prod, x, dim=1, dtype=torch.float64)


def test_out() -> None:
    x = values(5, 6)
    for shape in [(5,), (0,), (3,)]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(lambda x, o: torch.sum(x, 1, out=o), x, torch.zeros(shape), tol=ACCURATE)
            check(lambda x, o: torch.mean(x, 1, out=o), x, torch.zeros(shape), tol=ACCURATE)
            check(lambda x, o: torch.amax(x, 1, out=o), x, torch.zeros(shape))
            check(lambda x, o: torch.var(x, 1, out=o), x, torch.zeros(shape), tol=ACCURATE)
            check(lambda x, o: torch.argmax(x, 1, out=o), x, torch.zeros(shape).long())
            check(
                lambda x, v, i: torch.max(x, 1, out=(v, i)),
                x,
                torch.zeros(shape),
                torch.zeros(shape).long(),
            )
    check(lambda x, o: torch.sum(x, 1, out=o), x, torch.zeros(5, 2)[:, 0], tol=ACCURATE)
    check(lambda x, o: torch.sum(x, 1, out=o), x, torch.zeros(5).double(), tol=ACCURATE)
    check(lambda x, o: torch.sum(x, 1, out=o), x, torch.zeros(5).long())


def test_errors_are_pytorchs() -> None:
    x = values(3, 4)
    for f in (torch.sum, torch.mean, torch.amax, torch.var, torch.logsumexp):
        check(f, x, dim=2)
        check(f, x, dim=-3)
        check(f, x, dim=(0, 0))
        check(f, x, dim=(0, -2))
    check(torch.max, x, 5)
    check(torch.argmax, x, 5)
    check(torch.prod, x, 5)
    check(torch.cumsum, x, 5)
    check(torch.argmax, x > 0)
    check(torch.any, x, dim=4)
    check(torch.mean, x.long())
    check(torch.amax, values(2, 2, dtype=torch.complex64))


def test_gradients() -> None:
    def run(x: torch.Tensor, name: str) -> torch.Tensor:
        x = x.detach().requires_grad_()
        (g,) = torch.autograd.grad(call(name, x, 1, False).sum(), x)
        return g

    for name in BY_DIMS:
        check(run, values(4, 5), name, tol=ACCURATE)
