# SPDX-License-Identifier: MIT
"""The steps of SyncBatchNorm, each against its formula in float64 on cpu."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import hologram_torch

D, EPS = "hologram", 1e-5
SHAPES = [(4, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 4), (1, 3, 1, 1), (2, 1, 3, 3)]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True, params=["deferred", "eager"])
def execution(request: pytest.FixtureRequest):
    with hologram_torch.execution(request.param):
        yield


def made(shape: tuple[int, ...], dtype: torch.dtype, layout: str) -> Tensor:
    torch.manual_seed(0)
    x = (torch.randn(shape) * 3 + 1).to(dtype)
    if layout == "channels last":
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    elif layout == "strided":
        x = torch.stack([x, x], -1)[..., 0]
    return x


def dims(x: Tensor) -> list[int]:
    return [d for d in range(x.dim()) if d != 1]


def beside(t: Tensor, x: Tensor) -> Tensor:
    return t.view([-1 if d == 1 else 1 for d in range(x.dim())])


def close(ours: Tensor, theirs: Tensor, dtype: torch.dtype) -> None:
    assert ours.device.type == D
    tolerance = {torch.float64: 1e-10, torch.float32: 2e-5}.get(dtype, 2e-2)
    torch.testing.assert_close(ours.cpu().double(), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("layout", ["contiguous", "channels last", "strided"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_steps(shape: tuple[int, ...], dtype: torch.dtype, layout: str) -> None:
    wide = torch.float32 if dtype.itemsize == 2 else dtype
    given = made(shape, dtype, layout)
    x, ours = given.double(), given.to(D)
    channels = shape[1]
    mean = x.mean(dims(x))
    invstd = (x.var(dims(x), correction=0) + EPS).rsqrt()
    found = torch.batch_norm_stats(ours, EPS)
    assert [t.dtype for t in found] == [wide, wide]
    close(found[0], mean, wide)
    # Of one element the variance is 0, and what it is in float32 is divided by eps.
    torch.testing.assert_close(found[1].cpu().double(), invstd, rtol=1e-4, atol=1e-4)

    weight, bias = torch.linspace(-1, 2, channels), torch.linspace(3, 1, channels)
    for w, b in ((weight, bias), (None, None)):
        wanted = (x - beside(mean, x)) * beside(invstd, x)
        if w is not None:
            wanted = wanted * beside(w, x).double() + beside(b, x).double()
        operands = [None if t is None else t.to(D) for t in (w, b)]
        y = torch.batch_norm_elemt(ours, *operands, mean.to(D, wide), invstd.to(D, wide), EPS)
        assert y.dtype == dtype and y.stride() == torch.empty_like(given).stride()
        close(y, wanted, dtype)
        out = torch.empty_like(ours)
        torch.batch_norm_elemt(ours, *operands, mean.to(D, wide), invstd.to(D, wide), EPS, out=out)
        assert torch.equal(out, y)

    dy = torch.randn(shape).to(dtype)
    above = x - beside(mean, x)
    sum_dy, sum_dy_xmu = dy.double().sum(dims(x)), (dy.double() * above).sum(dims(x))
    sums = torch.batch_norm_backward_reduce(
        dy.to(D), ours, mean.to(D, wide), invstd.to(D, wide), weight.to(D), True, True, True
    )
    for a, b in zip(sums, (sum_dy, sum_dy_xmu, sum_dy_xmu * invstd, sum_dy), strict=True):
        torch.testing.assert_close(a.cpu().double(), b, rtol=1e-4, atol=1e-3)
    count = x.numel() // channels
    counts = torch.tensor([1, count - 1], dtype=torch.int32)
    wanted = (
        dy.double() - beside(sum_dy, x) / count - above * beside(invstd**2 * sum_dy_xmu, x) / count
    ) * beside(invstd * weight, x)
    grad = torch.batch_norm_backward_elemt(
        dy.to(D),
        ours,
        mean.to(D, wide),
        invstd.to(D, wide),
        weight.to(D),
        sum_dy.to(D, wide),
        sum_dy_xmu.to(D, wide),
        counts.to(D),
    )
    assert grad.dtype == dtype
    scale = max(1.0, wanted.abs().max().item())
    close(grad / scale, wanted / scale, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_statistics_of_parts_are_those_of_the_whole(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    wide = torch.float32 if dtype.itemsize == 2 else dtype
    parts = [torch.randn(n, 3, 4) * (n + 1) + n for n in (1, 5, 2)]
    whole = torch.cat(parts).double()
    stats = [torch.batch_norm_stats(p.to(D, wide), EPS) for p in parts]
    means, invstds = (torch.stack(list(t)) for t in zip(*stats, strict=True))
    counts = torch.tensor([4.0, 20.0, 8.0], device=D)
    running = [torch.full((3,), 5.0, device=D), torch.full((3,), 7.0, device=D)]
    expected = torch.nn.BatchNorm1d(3, momentum=0.3).double()
    expected.running_mean.fill_(5.0), expected.running_var.fill_(7.0)
    expected(whole)
    x = whole.to(D, dtype)
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        x, means, invstds, *running, 0.3, EPS, counts
    )
    assert mean.dtype == invstd.dtype == wide
    close(mean, whole.mean([0, 2]), wide)
    close(invstd, (whole.var([0, 2], correction=0) + EPS).rsqrt(), wide)
    close(running[0], expected.running_mean, torch.float32)
    close(running[1], expected.running_var, torch.float32)
    same = torch.batch_norm_gather_stats(x, means[:1], invstds[:1], None, None, 0.3, EPS, 4)
    close(same[0], parts[0].double().mean([0, 2]), wide)
    close(same[1], (parts[0].double().var([0, 2], correction=0) + EPS).rsqrt(), wide)


def test_what_is_refused() -> None:
    x, c = torch.ones(2, 3, 4, device=D), torch.ones(3, device=D)
    with pytest.raises(RuntimeError, match="expected 3 elements in mean, one per channel"):
        torch.batch_norm_elemt(x, None, None, c[:2], c, EPS)
    with pytest.raises(RuntimeError, match=r"at least two dimensions, got shape .4."):
        torch.batch_norm_stats(torch.ones(4, device=D), EPS)
    with pytest.raises(RuntimeError, match="expected a floating input, got Long"):
        torch.batch_norm_stats(torch.ones(4, 3, device=D, dtype=torch.long), EPS)
    with pytest.raises(RuntimeError, match="one count for each rank"):
        torch.batch_norm_gather_stats_with_counts(x, c[None], c[None], None, None, 0.1, EPS, c)
    with pytest.raises(RuntimeError, match="expected a gradient of the input's shape"):
        torch.batch_norm_backward_reduce(x[:1], x, c, c, c, True, True, True)
    with pytest.raises(RuntimeError, match="expected a gradient of the input's shape"):
        torch.batch_norm_backward_elemt(x[:1], x, c, c, c, c, c, c)


def test_no_process_group_is_needed_for_one_process() -> None:
    torch.manual_seed(2)
    x = torch.randn(4, 3, 5)
    ours, theirs = torch.nn.SyncBatchNorm(3).to(D), torch.nn.BatchNorm1d(3)
    torch.testing.assert_close(ours(x.to(D)).cpu(), theirs(x), rtol=1e-5, atol=1e-5)
