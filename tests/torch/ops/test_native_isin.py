# SPDX-License-Identifier: MIT
"""isin beside PyTorch's cpu: overloads, dtypes, layouts, sizes up to large ones, results given."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import hologram_torch

DEVICE = "hologram"
DTYPES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)
SIZES = [(0, 3), (5, 0), (1, 1), (7, 1), (7, 5), (1000, 16), (300, 40), (40, 3000), (50_000, 2000)]


def numbers(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 100, shape, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "m"), SIZES)
@pytest.mark.parametrize("invert", [False, True])
def test_sizes_and_dtypes(dtype: torch.dtype, n: int, m: int, invert: bool) -> None:
    x, others = numbers(n, dtype=dtype), numbers(m, dtype=dtype, seed=1)[: max(m - 1, 0) or m]
    others = others[others % 3 != 0] if m > 40 else others
    want = torch.isin(x, others, invert=invert)
    got = torch.isin(x.to(DEVICE), others.to(DEVICE), invert=invert)
    assert got.dtype == torch.bool and torch.equal(got.cpu(), want)


@pytest.mark.parametrize("m", [3, 30, 5000])
def test_shapes_layouts_and_mixtures(m: int) -> None:
    x = numbers(4, 6, 50, dtype=torch.float32).transpose(0, 2)
    others = numbers(2, m, dtype=torch.int64, seed=2)[:, ::2]
    for a, b in ((x, others), (x.long(), others.double()), (x[0, 0, 0], others), (x, others[0, 0])):
        want, got = torch.isin(a, b), torch.isin(a.to(DEVICE), b.to(DEVICE))
        assert torch.equal(got.cpu(), want) and got.stride() == want.stride()
    unique = torch.arange(m)
    want = torch.isin(unique * 2, unique, assume_unique=True)
    got = torch.isin((unique * 2).to(DEVICE), unique.to(DEVICE), assume_unique=True)
    assert torch.equal(got.cpu(), want)


@pytest.mark.parametrize("m", [4, 30, 100_000])
def test_numbers_that_are_none(m: int) -> None:
    special = torch.tensor([math.nan, math.inf, -math.inf, -0.0])
    others = torch.cat([special, torch.arange(1, m).float()])
    x = torch.cat([special, torch.tensor([0.0, 1.0, 2.5])])
    got = torch.isin(x.to(DEVICE), others.to(DEVICE)).tolist()
    assert got == [False, True, True, True, True, True, False]
    nothing = torch.full((m,), math.nan)
    assert not torch.isin(x.to(DEVICE), nothing.to(DEVICE)).any()
    mostly = torch.cat([nothing, others])
    assert torch.isin(x.to(DEVICE), mostly.to(DEVICE)).tolist() == got


@pytest.mark.parametrize("invert", [False, True])
def test_numbers_beside_tensors(invert: bool) -> None:
    x = numbers(30, 2, dtype=torch.int32)
    for number in (int(x[3, 1]), 101, 2.5):
        for a, b in ((x, number), (number, x)):
            on = [t.to(DEVICE) if isinstance(t, Tensor) else t for t in (a, b)]
            want, got = torch.isin(a, b, invert=invert), torch.isin(*on, invert=invert)
            assert torch.equal(got.cpu(), want) and got.device.type == DEVICE


def test_results_that_are_given() -> None:
    x, others = numbers(30, dtype=torch.int64), numbers(4, dtype=torch.int64, seed=1)
    for a, b in ((x, others), (x, 7), (7, x)):
        on = [t.to(DEVICE) if isinstance(t, Tensor) else t for t in (a, b)]
        want = torch.isin(a, b)
        out = torch.empty(0, dtype=torch.bool, device=DEVICE)
        assert torch.isin(*on, out=out) is out and torch.equal(out.cpu(), want)
        with pytest.raises(RuntimeError, match=r"(?i)expected out tensor to have dtype bool"):
            torch.isin(*on, out=torch.empty(0, device=DEVICE))


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex64])
def test_what_pytorch_refuses(dtype: torch.dtype) -> None:
    x = torch.ones(3, dtype=dtype, device=DEVICE)
    with pytest.raises(RuntimeError, match="Unsupported input type encountered for isin"):
        torch.isin(x, x)


def test_nothing_falls_back() -> None:
    """As at each token of `generate`; and there it is recorded."""
    x, ends = torch.tensor([[5, 2]]).to(DEVICE), torch.tensor([2, 9]).to(DEVICE)
    hologram_torch.reset_fallback_counts()
    found = [
        torch.isin(x[:, -1], ends),
        torch.isin(x, 5),
        torch.isin(2, x),
        torch.isin(x, ends[:1]),
    ]
    assert hologram_torch.fallback_counts() == {}
    assert [t.tolist() for t in found] == [[True], [[True, False]], True, [[False, True]]]
