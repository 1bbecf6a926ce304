# SPDX-License-Identifier: MIT
"""Programs of hundreds of ops on one shape: one kernel, with the bits of the ops one by one."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import hologram_torch
from hologram_torch import _C

pytestmark = [
    pytest.mark.skipif(not _C.can_defer, reason="deferred execution needs PyTorch 2.13 or later"),
    pytest.mark.usefixtures("deferred"),
]

# Ops that keep values near one, so that no program overflows or ends in denormal numbers.
_FLOAT_OPS: list[Callable[[Tensor, Tensor, float], Tensor]] = [
    lambda a, b, s: a * s + b * (1 - s),
    lambda a, b, s: (a + b) * 0.5,
    lambda a, b, s: torch.maximum(a, b * 0.75),
    lambda a, b, s: a - b * s + s,
    lambda a, b, s: torch.where(a > b, a, b * s),
    lambda a, b, s: torch.lerp(a, b, s),
    lambda a, b, s: a.abs().sqrt() * s,
    lambda a, b, s: a / (b.abs() + 1.0),
]
_HEAVY_OPS: list[Callable[[Tensor, Tensor, float], Tensor]] = [
    lambda a, b, s: (-a.abs()).exp() + b * s,
    lambda a, b, s: torch.tanh(a) * b,
    lambda a, b, s: torch.log1p(a.abs()) + s,
    lambda a, b, s: torch.sigmoid(a - b),
]
_INTEGER_OPS: list[Callable[[Tensor, Tensor, float], Tensor]] = [
    lambda a, b, s: a * 3 - b,
    lambda a, b, s: a ^ (b + 7),
    lambda a, b, s: torch.minimum(a, b) + 5,
    lambda a, b, s: (a & b) | 1,
    lambda a, b, s: torch.where(a < b, a, -b),
]


def run(seed: int, ops: int, reach: int, inputs: list[Tensor]) -> list[Tensor]:
    """Run a program whose ops read one of the last `reach` values, and the inputs now and then."""
    draw = random.Random(seed)
    table = _FLOAT_OPS + _HEAVY_OPS[: seed % 5] if inputs[0].is_floating_point() else _INTEGER_OPS
    values = list(inputs)
    for _ in range(ops):
        a, b = (
            inputs[draw.randrange(len(inputs))]
            if draw.random() < 0.1
            else values[-1 - draw.randrange(min(reach, len(values)))]
            for _ in range(2)
        )
        values.append(draw.choice(table)(a, b, draw.random()))
    return values[-3:]


def inputs_of(seed: int, dtype: torch.dtype) -> list[Tensor]:
    """Dense, repeated along rows and columns, one element, and a slice."""
    generator = torch.Generator().manual_seed(seed)
    shape = [(5, 41, 26), (4096,), (3, 700), (1, 7)][seed % 4]

    def make(*sizes: int) -> Tensor:
        if dtype.is_floating_point:
            return torch.rand(*sizes, generator=generator).to(dtype)
        return torch.randint(-9, 9, sizes, generator=generator).to(dtype)

    made = [make(*shape), make(*shape), make(shape[-1]), make(1)]
    if len(shape) > 1:
        made += [make(*shape[:-1], 1), make(*shape[:-1], shape[-1] + 3)[..., 1:-2]]
    return [x.to("hologram") for x in made]


@pytest.mark.parametrize("ops", [90, 300, 700])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32])
def test_bits_are_those_of_the_ops_one_by_one(ops: int, dtype: torch.dtype) -> None:
    for seed, reach in enumerate([1, 3, 12, 40, 150]):
        inputs = inputs_of(seed, dtype)
        with hologram_torch.execution("eager"):
            expected = run(seed, ops, reach, inputs)
        actual = run(seed, ops, reach, inputs)
        for x, y in zip(expected, actual, strict=True):
            assert x.dtype == y.dtype and x.shape == y.shape
            assert torch.equal(x.cpu(), y.cpu()), (seed, reach)


def test_a_long_program_is_one_kernel_that_moves_inputs_and_results_only() -> None:
    x = torch.rand(300, 200, dtype=torch.float64, device="hologram")
    y = torch.rand(200, dtype=torch.float64, device="hologram")

    def program() -> Tensor:
        values = [x, x * y]
        for i in range(180):
            values.append(values[-1] * 0.5 + values[-1 - i % 2] * y)
        return values[-1]

    stats = hologram_torch.explain(program).stats
    assert stats["ops_recorded"] > 500
    assert stats["kernels_run"] == 1
    assert stats["bytes_moved"] <= 2 * x.nbytes + y.nbytes


def test_a_program_longer_than_a_circuit() -> None:
    x = torch.rand(1000, device="hologram")

    def program() -> Tensor:
        v = x
        for i in range(2500):
            v = v * 0.75 + x if i % 2 else v - x * 0.25
        return v

    with hologram_torch.execution("eager"):
        expected = program().cpu()
    assert torch.equal(program().cpu(), expected)
