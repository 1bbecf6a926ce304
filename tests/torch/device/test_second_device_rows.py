# SPDX-License-Identifier: MIT
"""Reductions of long rows on hologram:1, which take several launches.

test_second_device runs this on each driver.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import scales
import torch
from second_device import INTERPRETED, ONE, costly, host_kernels, on_device

import hologram_torch

Tensors = list[torch.Tensor]


def folds(x: torch.Tensor) -> Tensors:
    return [x.sum(), x.mean(-1), x.amax(-1), (x > 2.5).any(), (x < 9).all(-1), x.norm(), x.var(-1)]


def rows(x: torch.Tensor) -> Tensors:
    centred = x - x.mean(-1, keepdim=True)
    return [
        x.softmax(-1),
        centred * centred.square().mean(-1, keepdim=True).rsqrt(),
        x.logsumexp(-1),
    ]


def fused(x: torch.Tensor) -> Tensors:
    y = x * 2 + 1
    return [y, y.sum(-1), (y * y).sum(-1).sqrt() + 1, y - y.amin(-1, keepdim=True)]


def in_place(x: torch.Tensor) -> Tensors:
    x = x.clone()
    x.sub_(x.mean(-1, keepdim=True)).div_(x.abs().amax(-1, keepdim=True))
    return [x, x.square().mean(-1)]


def columns(x: torch.Tensor) -> Tensors:
    return [x.t().contiguous().sum(0), x.t().softmax(0), x[:, ::2].amax(-1), x.flip(-1).sum(-1)]


def integers(x: torch.Tensor) -> Tensors:
    whole = (x * 100).to(torch.int64)
    return [whole.sum(), whole.amin(-1), whole.to(torch.int32).sum(-1)]


WORK: list[Callable[[torch.Tensor], Tensors]] = [folds, rows, fused, in_place, columns, integers]


@on_device
@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        (torch.float32, (2, 8195)),
        pytest.param(torch.float32, (1, 200_000), marks=pytest.mark.heavy),
        pytest.param(torch.bfloat16, (3, 8193), marks=pytest.mark.heavy),
        pytest.param(torch.float64, (2, 30_000), marks=pytest.mark.heavy),
    ],
)
@pytest.mark.parametrize(
    "work",
    [
        fused,
        costly(in_place),
        *(pytest.param(w, marks=pytest.mark.heavy) for w in WORK if w not in (fused, in_place)),
    ],
)
def test_long_rows(
    work: Callable[[torch.Tensor], Tensors], dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    """Values are cpu's in float64; deferred has the bits of eager; nothing is left to the host."""
    before = host_kernels()
    torch.manual_seed(0)
    given = torch.randn(shape).to(dtype)
    own = given.to(ONE)
    found = [t.cpu() for t in work(own)]
    with hologram_torch.execution("eager"):
        for one, other in zip(found, work(own), strict=True):
            assert torch.equal(one, other.cpu())
    exact = work(given if work is integers else given.double())
    bound = {torch.float32: 1e-5, torch.float64: 1e-12}.get(dtype, 2e-2)
    for one, other in zip(found, exact, strict=True):
        assert one.shape == other.shape
        scale = max(1.0, float(other.double().abs().max()))
        if scale > 1e3 or work in (folds, fused):
            scale = max(scale, shape[1] ** 0.5)  # sums lose what their elements do
        assert (one.double() - other.double()).abs().max() <= bound * scale
    assert host_kernels() == before


@on_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.int64])
@pytest.mark.parametrize("shape", [(7, 3, 20), (2, 300), costly((1, 9000))])
def test_positions(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """The first of equal elements, the first NaN where there is one; on the device."""
    before = host_kernels()
    torch.manual_seed(0)
    given = torch.randint(-9, 9, shape).to(dtype)
    if dtype.is_floating_point:
        given.view(-1)[[4, 11]] = torch.nan
    own = given.to(ONE)
    for dim in range(-1, len(shape) - 1):
        for name in ("max", "min"):
            found, expected = getattr(own, name)(dim), getattr(given, name)(dim)
            for one, other in zip(found, expected, strict=True):
                assert one.dtype == other.dtype
                assert torch.equal(one.cpu().nan_to_num(77), other.nan_to_num(77))
        assert torch.equal(own.argmax(dim, True).cpu(), given.argmax(dim, True))
        assert torch.equal(own.argmin(dim).cpu(), given.argmin(dim))
        assert torch.equal((own + 1).argmax(dim).cpu(), (given + 1).argmax(dim))
    assert own.argmax().item() == given.argmax().item()
    assert own.mT.argmin().item() == given.mT.argmin().item()
    assert host_kernels() == before


@on_device
@pytest.mark.parametrize("scale", [1e-30, costly(1e-20), costly(1e-3), costly(1e18), 1e30])
def test_spreads_at_every_scale(scale: float) -> None:
    """Variances of huge and tiny numbers are cpu's, and so are their gradients."""
    torch.manual_seed(0)
    found = []
    shape, names, dims = (9, 4, 130), ("var", "std", "std_mean"), (None, 0, 1, -1, (0, 2))
    if INTERPRETED:
        shape, names, dims = (3, 2, 7), names[:2], dims[-2:]
    for mean in (0, 3):
        x = ((torch.randn(shape, dtype=torch.float64) + mean) * scale).float()
        for name in names:
            for dim in dims:
                spread = scales.SPREADS[name](dim)
                for function in (spread, scales.gradient(spread)):
                    text = scales.excess(function, x, ONE, elementwise=function is spread)
                    found += [f"{name} {dim} {mean}: {text}"] if text else []
    assert not found, "\n".join(found)
