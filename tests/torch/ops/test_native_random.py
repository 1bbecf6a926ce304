# SPDX-License-Identifier: MIT
"""Random numbers of the device: distributions, reproducibility, layouts, dropout, errors."""

from __future__ import annotations

import math

import pytest
import torch
from native_compare import DEVICE, FLOATS, INTEGERS, check, to_device

import hologram_torch

N = 200_000


def fresh(n: int = N, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(11)
    return torch.empty(n, dtype=dtype, device=DEVICE)


def ks_distance(x: torch.Tensor, cdf: torch.Tensor) -> float:
    n = x.numel()
    return float((cdf - (torch.arange(n, dtype=torch.float64) + 0.5) / n).abs().max())


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform(dtype: torch.dtype) -> None:
    x = fresh(dtype=dtype).uniform_(-1, 3).cpu().double()
    assert x.min() >= -1 and (x.max() < 3 or dtype in (torch.float16, torch.bfloat16))
    sorted_x = x.sort().values
    slack = 0.02 if dtype == torch.bfloat16 else 0.0
    assert ks_distance(sorted_x, (sorted_x + 1) / 4) < 2.5 / math.sqrt(N) + slack
    # Neighbours are unrelated.
    z = x - x.mean()
    for lag in (1, 16, 64):
        assert abs(float((z[lag:] * z[:-lag]).mean() / z.var())) < 5 / math.sqrt(N) + slack


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal(dtype: torch.dtype) -> None:
    x = fresh(dtype=dtype).normal_(2, 3).cpu().double()
    z = ((x - 2) / 3).sort().values
    slack = 0.01 if dtype == torch.bfloat16 else 0.0
    assert ks_distance(z, torch.special.ndtr(z)) < 2.5 / math.sqrt(N) + slack
    assert abs(float((z**4).mean()) - 3) < 0.15
    pairs = (x - 2) / 3
    for lag in (1, 8, 16, 32):
        assert abs(float((pairs[lag:] * pairs[:-lag]).mean())) < 5 / math.sqrt(N) + slack


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64, torch.bfloat16])
def test_bernoulli(p: float, dtype: torch.dtype) -> None:
    x = fresh(dtype=dtype).bernoulli_(p).cpu().double()
    assert set(x.unique().tolist()) <= {0.0, 1.0}
    assert abs(float(x.mean()) - p) <= 5 * math.sqrt(p * (1 - p) / N)


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool, *FLOATS])
def test_random_integers(dtype: torch.dtype) -> None:
    if dtype != torch.bool:
        x = fresh(dtype=dtype).random_(3, 19).cpu().double()
        counts = torch.histc(x, 16, 2.5, 18.5)
        assert counts.sum() == N
        assert float(((counts - N / 16) ** 2 / (N / 16)).sum()) < 60
    x = fresh(dtype=dtype).random_().cpu()
    high = {
        torch.bool: 1, torch.float16: 2**11, torch.bfloat16: 2**8, torch.float32: 2**24,
        torch.float64: 2**53,
    }.get(dtype) or torch.iinfo(dtype).max  # fmt: skip
    y = x.double()
    assert y.min() >= 0 and y.max() <= high
    assert abs(float(y.mean()) / high - 0.5) < 5 / math.sqrt(12 * N) + 0.01


def test_random_over_everything() -> None:
    x = fresh(dtype=torch.int64).random_(-(2**63), None).cpu()
    assert abs(float((x < 0).double().mean()) - 0.5) < 5 * 0.5 / math.sqrt(N)
    x = torch.randint(-(2**40), 2**40, (1000,), device=DEVICE)
    assert x.min() >= -(2**40) and x.max() < 2**40


@pytest.mark.parametrize("dtype", FLOATS)
def test_same_seed_same_numbers(dtype: torch.dtype) -> None:
    first, second = fresh(1001, dtype).normal_(), fresh(1001, dtype).normal_()
    assert torch.equal(first.cpu(), second.cpu())
    assert not torch.equal(first.cpu(), second.normal_().cpu())
    # A longer draw begins alike, so counters belong to elements.
    assert torch.equal(fresh(5000, dtype).normal_().cpu()[:960], first.cpu()[:960])
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = fresh(N, dtype).uniform_().cpu()
        torch.set_num_threads(3)
        assert torch.equal(one, fresh(N, dtype).uniform_().cpu())
    finally:
        torch.set_num_threads(before)


def test_generators() -> None:
    a = torch.Generator(device=DEVICE).manual_seed(5)
    b = torch.Generator(device=DEVICE).manual_seed(5)
    x = torch.empty(100, device=DEVICE).uniform_(generator=a)
    assert torch.equal(x.cpu(), torch.rand(100, device=DEVICE, generator=b).cpu())
    state = a.get_state()
    y = torch.randn(10, device=DEVICE, generator=a)
    a.set_state(state)
    assert torch.equal(y.cpu(), torch.randn(10, device=DEVICE, generator=a).cpu())
    with pytest.raises(RuntimeError, match="device type for generator"):
        x.uniform_(generator=torch.Generator())


def test_layouts_fill_logical_order() -> None:
    expected = fresh(24).reshape(4, 6).normal_().cpu()
    torch.manual_seed(11)
    base = torch.zeros(6, 8, device=DEVICE)
    base[:, ::2].t().normal_()
    assert torch.equal(base[:, ::2].t().cpu(), expected)
    assert base[:, 1::2].abs().max() == 0
    assert torch.empty(0, device=DEVICE).normal_().numel() == 0


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
def test_dropout(dtype: torch.dtype, p: float) -> None:
    torch.manual_seed(3)
    x = torch.full((300, 301), 2.0, dtype=dtype, device=DEVICE, requires_grad=True)
    y = torch.nn.functional.dropout(x, p, training=True)
    kept = y.detach().cpu() != 0
    n = kept.numel()
    assert abs(float(kept.double().mean()) - (1 - p)) < 5 * math.sqrt(p * (1 - p) / n) + 1e-12
    value = torch.tensor(2.0, dtype=dtype) * torch.tensor(1 / (1 - p), dtype=torch.float64).to(
        dtype
    )
    torch.testing.assert_close(y.detach().cpu()[kept], value.expand(int(kept.sum())))
    (grad,) = torch.autograd.grad(y, x, torch.ones_like(y))
    torch.testing.assert_close(grad.cpu(), y.detach().cpu() / 2)


def test_dropout_corners() -> None:
    x = to_device(torch.arange(12.0).reshape(3, 4).t())
    assert torch.equal(torch.nn.functional.dropout(x, 0.5, training=False).cpu(), x.cpu())
    assert torch.nn.functional.dropout(x, 1.0).abs().max() == 0
    y, mask = torch.native_dropout(x, 0.5, True)
    assert mask.dtype == torch.bool and torch.equal(y.cpu(), x.cpu() * mask.cpu() * 2)
    y, mask = torch.native_dropout(x, 0.5, False)
    assert torch.equal(y.cpu(), x.cpu()) and bool(mask.all())


def test_dropout_depends_on_values_and_their_order_alone() -> None:
    x = torch.rand(4, 5, 6, device=DEVICE) + 1
    wide = torch.zeros(4, 5, 12, device=DEVICE)
    wide[..., ::2] = x
    before = hologram_torch.fallback_counts().get("aten::native_dropout")
    for same in (wide[..., ::2], x.flip(0).flip(0), x[:, :, None].expand(4, 5, 2, 6)[:, :, 1]):
        torch.manual_seed(5)
        want, mask = torch.native_dropout(x, 0.5, True)
        torch.manual_seed(5)
        got, other = torch.native_dropout(same, 0.5, True)
        assert torch.equal(got, want)
        assert torch.equal(other, mask)
        assert got.stride() == want.stride()
    assert hologram_torch.fallback_counts().get("aten::native_dropout") == before
    row = torch.rand(6, device=DEVICE)
    torch.manual_seed(5)
    got = torch.nn.functional.dropout(row.expand(4, 6), 0.5)
    kept = got != 0
    assert torch.equal(got, torch.where(kept, row * 2, 0))
    assert 1 < int(kept.sum()) < 24
    assert not torch.equal(kept[0], kept[1])


def test_errors_are_pytorchs() -> None:
    x = torch.zeros(3)
    check(lambda x: x.uniform_(2, 1), x)
    check(lambda x: x.normal_(0, -1), x)
    check(lambda x: x.bernoulli_(1.5), x)
    check(lambda x: x.random_(5, 5), x)
    check(lambda x: x.random_(0), x)
    check(lambda x: x.random_(0, 300), x.to(torch.uint8))
    check(lambda x: x.uniform_(), x.long())
    check(lambda x: x.normal_(), x.long())
    check(lambda x: x.uniform_(-3e38, 3e38), x)
    check(lambda x: x.expand(2, 3).uniform_(), x)
