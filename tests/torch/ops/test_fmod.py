# SPDX-License-Identifier: MIT
"""torch.fmod: the bits of C's fmod, recorded, in every form."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import hologram_torch

SPECIAL = [0.0, -0.0, 1.0, -1.5, 2.5, 1e-30, -3e30, float("inf"), float("-inf"), float("nan")]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def operands(dtype: torch.dtype, *, shape: tuple[int, ...] = (257, 33)) -> tuple[Tensor, Tensor]:
    """Return every pair of special values beside random ones of many magnitudes."""
    torch.manual_seed(3)
    special = torch.tensor(SPECIAL, dtype=dtype)
    x = (torch.randn(shape) * 10 ** (torch.rand(shape) * 8 - 4)).to(dtype)
    y = (torch.randn(shape) * 10 ** (torch.rand(shape) * 8 - 4)).to(dtype)
    pairs = torch.cartesian_prod(special, special)
    x.view(-1)[: len(pairs)], y.view(-1)[: len(pairs)] = pairs.unbind(1)
    return x, y


def exact(x: Tensor, y: Tensor) -> Tensor:
    """Return C's fmod of both, which is exact in float64 for each of these types."""
    return torch.fmod(x.double(), y.double()).to(x.dtype)


def assert_same_bits(found: Tensor, expected: Tensor) -> None:
    found = found.cpu()
    assert found.dtype == expected.dtype
    assert torch.equal(found.isnan(), expected.isnan())
    known = ~expected.isnan()
    assert torch.equal(found[known], expected[known])
    assert torch.equal(found.signbit()[known], expected.signbit()[known])


@pytest.mark.parametrize("dtype", FLOATS)
def test_bits_in_every_form(dtype: torch.dtype) -> None:
    x, y = operands(dtype)
    expected = exact(x, y)
    a, b = x.to("hologram"), y.to("hologram")
    hologram_torch.reset_fallback_counts()
    assert_same_bits(torch.fmod(a, b), expected)
    out = torch.empty_like(a)
    assert torch.fmod(a, b, out=out) is out
    assert_same_bits(out, expected)
    assert_same_bits(torch.fmod(a.t(), b.t()), expected.t())
    assert_same_bits(torch.fmod(a[::2, 1::3], b[::2, 1::3]), expected[::2, 1::3])
    assert_same_bits(torch.fmod(a[:, :1], b), exact(x[:, :1].expand_as(y), y))
    at = a.clone()
    pointer = at.data_ptr()
    assert at.fmod_(b) is at and at.data_ptr() == pointer
    assert_same_bits(at, expected)
    number = torch.full_like(x, 0.3)
    assert_same_bits(torch.fmod(a, 0.3), exact(x, number))
    assert_same_bits(a.clone().fmod_(0.3), exact(x, number))
    assert hologram_torch.fallback_counts() == {}


def test_fuses_with_its_neighbours() -> None:
    x, y = operands(torch.float32)
    a, b = x.to("hologram"), y.to("hologram")
    explained = hologram_torch.explain(lambda: (torch.fmod(a * 2, b) + 1).cpu())
    assert not explained.fallbacks
    assert sum(len(circuit.after) for circuit in explained.circuits) == 1
    found = (torch.fmod(a * 2, b) + 1).cpu()
    assert torch.equal(found.isnan(), (exact(x * 2, y) + 1).isnan())
    assert torch.equal(found.nan_to_num(), (exact(x * 2, y) + 1).nan_to_num())


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
def test_integers(dtype: torch.dtype) -> None:
    x = torch.arange(-20, 20).to(dtype)
    y = torch.tensor([3, -4, 7, 1, -1] * 8).to(dtype)
    assert torch.equal(torch.fmod(x.to("hologram"), y.to("hologram")).cpu(), torch.fmod(x, y))
    assert torch.equal(torch.fmod(x.to("hologram"), 3).cpu(), torch.fmod(x, 3))
    mixed = torch.fmod(x.to("hologram"), 2.5)
    assert mixed.dtype == torch.float32
    assert torch.equal(mixed.cpu(), torch.fmod(x, 2.5))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        torch.fmod(x.to("hologram"), torch.zeros_like(x).to("hologram")).cpu()


def test_gradients() -> None:
    x = torch.tensor([5.3, -7.1, 2.2], dtype=torch.float64, device="hologram", requires_grad=True)
    y = torch.tensor([1.7, 2.3, -0.9], dtype=torch.float64, device="hologram", requires_grad=True)
    assert torch.autograd.gradcheck(torch.fmod, (x, y))


def test_empty_and_a_number() -> None:
    empty = torch.empty(0, 3, device="hologram")
    assert torch.fmod(empty, 2).shape == (0, 3)
    assert torch.fmod(torch.tensor(7.5, device="hologram"), 2).item() == 1.5
    with pytest.raises(RuntimeError, match="must match the size"):
        torch.fmod(torch.ones(3, device="hologram"), torch.ones(4, device="hologram"))
