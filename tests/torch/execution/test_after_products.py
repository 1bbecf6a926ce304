# SPDX-License-Identifier: MIT
"""What follows a matrix product in its kernel: random programs of numbers, ops and sums of rows.

Each program runs several times on other values. The first run is on tiles, those after it are
generated loops, and sizes that differ get the same plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

import hologram_torch

D = "hologram"
Tensor = torch.Tensor
Program = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[list[Tensor], float]]
STEPS: list[Callable[[Tensor, Tensor, float], Tensor]] = [
    lambda a, b, number: a + b,
    lambda a, b, number: a - b,
    lambda a, b, number: a * b,
    lambda a, b, number: a * number,
    lambda a, b, number: a / number,
    lambda a, b, number: a + number,
    lambda a, b, number: (a * number).sum(-1, keepdim=True),
    lambda a, b, number: (a + b).sum(-1, keepdim=True),
]
ROUNDING = {torch.float32: 1e-3, torch.float64: 1e-9}


def inputs(seed: int, rows: int, cols: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(rows, cols)] * 3 + [(cols, cols)]
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def program(seed: int) -> Program:
    """Return a program of some values' ops, which also tells how large its values became."""

    def run(x: Tensor, g: Tensor, v: Tensor, w: Tensor) -> tuple[list[Tensor], float]:
        draw = random.Random(seed)
        values, most = [x, g, v @ w], 1.0
        for _ in range(draw.randint(3, 9)):
            a, b = draw.choice(values), draw.choice(values)
            number = draw.choice([2.0, 0.5, 4.0, -1.25])
            values.append(draw.choice(STEPS)(a, b, number))
        if x.device.type == "cpu":
            most = max(float(value.abs().max()) for value in values)
        found = [value * values[2] for value in values[-2:]]
        return [*found, values[-1] - values[-2]], most

    return run


def compare(run: Program, seed: int, rows: int, cols: int, dtype: torch.dtype) -> None:
    given = inputs(seed, rows, cols, dtype)
    on_device = [t.to(D) for t in given]
    torch.hologram.synchronize()
    with hologram_torch.execution("deferred"):
        found, _ = run(*on_device)
        found = [t.cpu() for t in found]
    expected, most = run(*given)
    for a, b in zip(found, expected, strict=True):
        bound = ROUNDING[dtype] * max(1.0, most) ** 2
        torch.testing.assert_close(a, b, rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_a_number_that_is_read_before_and_after_a_sum(dtype: torch.dtype) -> None:
    def run(x: Tensor, g: Tensor, v: Tensor, w: Tensor) -> tuple[list[Tensor], float]:
        product, twice = v @ w, g * 2.0
        return [twice.sum(-1, keepdim=True) / 4 - twice, product * twice], 10.0

    for seed in range(4):
        compare(run, seed, 3, 4, dtype)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("part", range(10))
def test_random_programs(dtype: torch.dtype, part: int) -> None:
    for seed in range(part * 12, part * 12 + 12):
        run = program(seed)
        for call in range(3):
            compare(run, call, 3, 4, dtype)
        compare(run, 3, 40, 24, dtype)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_second_gradients_of_a_linear_layer_and_a_norm(dtype: torch.dtype) -> None:
    def gradients(x: Tensor, g: Tensor, v: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        x, g = x.detach().requires_grad_(), g.detach().requires_grad_()
        y = torch.nn.functional.layer_norm(torch.nn.functional.linear(x, w), (w.shape[0],))
        (first,) = torch.autograd.grad(y, x, g, create_graph=True)
        return torch.autograd.grad(first, [x, g], v)

    for seed in range(4):
        given = inputs(seed, 3, 4, torch.float64)
        expected = gradients(*given)
        found = gradients(*(t.to(dtype).to(D) for t in given))
        for a, b in zip(found, expected, strict=True):
            bound = ROUNDING[dtype] * max(1.0, float(b.abs().max()))
            torch.testing.assert_close(a.cpu().double(), b, rtol=0, atol=bound)
