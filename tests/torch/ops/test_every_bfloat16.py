# SPDX-License-Identifier: MIT
"""Operations on all numbers of bfloat16: those that give such numbers exactly are not rounded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import hologram_torch

Function = Callable[[Tensor, Tensor], Tensor]

EXACT: dict[str, Function] = {
    "neg": lambda x, y: -x,
    "abs": lambda x, y: x.abs(),
    "relu": lambda x, y: x.relu(),
    "relu6": lambda x, y: F.relu6(x),
    "clamp": lambda x, y: x.clamp(-0.3, 0.7),  # bounds that bfloat16 does not have
    "maximum": torch.maximum,
    "minimum": lambda x, y: -torch.minimum(x, y).abs(),
    "where": lambda x, y: torch.where(x > y, x, -y),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, 1 / 3),
    "floor": lambda x, y: x.floor(),
    "ceil": lambda x, y: x.ceil().abs(),
    "round": lambda x, y: x.round(),
    "trunc": lambda x, y: x.trunc(),
    "sign": lambda x, y: x.sign(),
    "hardtanh": lambda x, y: F.hardtanh(x, -2.5, 1.25),
    "threshold": lambda x, y: F.threshold(x, 0.1, 20.3),
}
ROUNDED: dict[str, Function] = {
    "halves": lambda x, y: x.abs() * 0.5,
    "sums": lambda x, y: torch.maximum(x, y) + x,
    "leaky_relu": lambda x, y: F.leaky_relu(x, 0.3),
    "to float": lambda x, y: -x.float() + 1e-3,
}


@pytest.mark.parametrize("mode", ["deferred", "eager"])
@pytest.mark.parametrize("name", [*EXACT, *ROUNDED])
def test_bits_are_cpus(name: str, mode: str) -> None:
    function = {**EXACT, **ROUNDED}[name]
    x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    y = x.roll(12345).clone()
    expected = function(x, y)
    a, b = x.to("hologram"), y.to("hologram")
    with hologram_torch.execution(mode):
        for _ in range(3):  # loops are generated at the second run
            actual = function(a, b).cpu()
            assert actual.dtype == expected.dtype
            torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
            signed = ~expected.isnan()
            if name in ("relu", "relu6"):  # of -0.0 they are 0.0, on cpu -0.0
                signed &= expected != 0
            assert torch.equal(actual.signbit()[signed], expected.signbit()[signed])
