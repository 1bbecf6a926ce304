# SPDX-License-Identifier: MIT
"""Exponentials where their results leave the range of the dtype, against float64 and mpmath."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

DEVICE = "hologram"
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "erfc": lambda x: torch.special.erfc(-x),
    "softplus": F.softplus,
    "softmax": lambda x: torch.softmax(torch.stack((x, torch.zeros_like(x))), 0)[0],
}
# What PyTorch computes as 1 + erf(x) or 1 + tanh(x), which is 0 too soon.
REFERENCES: dict[str, Callable[[Tensor], Tensor]] = {
    **FUNCTIONS,
    "gelu": lambda x: x * torch.special.erfc(-x / math.sqrt(2)) / 2,
    "gelu_tanh": lambda x: x / (1 + torch.exp(-math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))),
}
# Where the result is the least number of float32, and of float64.
_ENDS = {
    "exp2": (-149.0, -1074.0),
    "gelu": (-14.2, -38.4),
    "gelu_tanh": (-10.5, -21.5),
    "erfc": (-10.1, -27.2),
}


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32(name: str, fused: bool) -> None:
    end, _ = _ENDS.get(name, (-103.3, -744.4))
    x = torch.cat(
        [torch.linspace(2 * end, 0.8 * end, 4001), torch.tensor([-1e4, -3e38, -math.inf])]
    )
    function = FUNCTIONS[name]
    y = x.to(DEVICE)
    result = (function(y * 1.0) * 1.0 if fused else function(y)).cpu().double()
    expected = REFERENCES[name](x.double())
    expected[x == -math.inf] = function(x)[x == -math.inf].double()
    # A few units of the last place, and of the least number.
    close = torch.isclose(result, expected, rtol=1e-6, atol=4e-45, equal_nan=True)
    assert close.all(), (x[~close][:5], result[~close][:5], expected[~close][:5])
    assert (result[:-1] == 0).any()


def _precisely(name: str, x: float) -> float:
    """Return the function's value as float64, of which no step has lost anything."""
    with mpmath.workprec(200):
        t = mpmath.mpf(x)
        if name == "exp2":
            return float(mpmath.power(2, t))
        if name == "softplus":
            return float(mpmath.log1p(mpmath.exp(t)))
        if name == "erfc":
            return float(mpmath.erfc(-t))
        if name == "gelu":
            return float(t * mpmath.erfc(-t / mpmath.sqrt(2)) / 2)
        if name == "gelu_tanh":
            t = mpmath.sqrt(8 / mpmath.pi) * (t + mpmath.mpf("0.044715") * t**3)
        e = mpmath.exp(t)
        if name == "exp":
            return float(e)
        return float(e / (1 + e) * (x if name in ("silu", "gelu_tanh") else 1))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64(name: str) -> None:
    _, end = _ENDS.get(name, (-103.3, -744.4))
    x = torch.linspace(1.2 * end, 0.95 * end, 301, dtype=torch.float64)
    x = torch.cat([x, torch.tensor([-1e9, -1e300], dtype=torch.float64)])
    result = FUNCTIONS[name](x.to(DEVICE)).cpu()
    exact = [_precisely(name, value) for value in x[:-2].tolist()]
    expected = torch.tensor([*exact, 0.0, 0.0], dtype=torch.float64)
    close = torch.isclose(result, expected, rtol=1e-15, atol=5e-324)
    assert close.all(), (x[~close][:5], result[~close][:5], expected[~close][:5])


def test_masked_rows() -> None:
    scores = torch.randn(64, 96)
    for value in (-math.inf, -1e4, -3e38):
        masked = scores.masked_fill(torch.ones(64, 96).triu(1) > 0, value)
        result = torch.softmax(masked.to(DEVICE), -1).cpu()
        torch.testing.assert_close(result, torch.softmax(masked, -1))
        assert (result.triu(1) == 0).all()
