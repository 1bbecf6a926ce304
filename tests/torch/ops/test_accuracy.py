# SPDX-License-Identifier: MIT
"""The measure of accuracy that the other tests use: it finds what is worse than cpu."""

from __future__ import annotations

import pytest
import torch
from accuracy import ON_AVERAGE, Rounding, error_beside_cpu
from torch import Tensor


def sums(x: Tensor, bits: int) -> Tensor:
    """Add the elements of rows of float32 one after another, keeping some bits of each sum."""
    total = torch.zeros(x.shape[0])
    for column in x.unbind(1):
        total += column
        mantissa, exponent = torch.frexp(total)
        total = torch.ldexp(torch.round(mantissa * 2**bits) / 2**bits, exponent)
    return total


def drawn(seed: int, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.randn(16, 40, generator=torch.Generator().manual_seed(seed))
    return sums(x, bits), sums(x.flip(1), 24), x.double().sum(1)


def test_an_average_tells_worse_from_another_order() -> None:
    assert error_beside_cpu(lambda seed: drawn(seed, 24)) < ON_AVERAGE
    assert error_beside_cpu(lambda seed: drawn(seed, 23)) > ON_AVERAGE


@pytest.mark.parametrize(
    ("off", "average", "expected"),
    [
        (0.9, None, None),
        (1.5, None, "error 1.79e-07, cpu's 0, allowed 1.19e-07"),
        (1.5, ON_AVERAGE, None),
        (1.5, 1.3, "error 1.79e-07, cpu's 0, allowed 1.19e-07; other draws: 1.3 of cpu's"),
        (2.5, 1.0, "error 2.98e-07, cpu's 0, allowed 1.19e-07"),
    ],
)
def test_other_draws_judge_up_to_twice_the_bound(
    off: float, average: float | None, expected: str | None
) -> None:
    one = torch.ones((), dtype=torch.float64)
    # Ours is one; cpu's is what lies below it, rounded to float32.
    exact = one - off * torch.finfo(torch.float32).eps
    others = None if average is None else lambda: average
    bound = Rounding(units=1, cancels=0)
    assert bound.excess(one.float(), exact.float(), exact, other_draws=others) == expected
