# SPDX-License-Identifier: MIT
"""searchsorted and bucketize beside PyTorch's cpu: dtypes, lines, NaN, orders, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import hologram_torch

DEVICE = "hologram"
DTYPES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)
SHAPES = [
    ((0,), (3,)),
    ((5,), (0,)),
    ((1,), ()),
    ((7,), (4, 3)),
    ((3, 9), (3, 1)),
    ((2, 3, 0), (2, 3, 4)),
    ((2, 0, 4), (2, 0, 4)),
    ((40, 100), (40, 700)),
    ((5000,), (30_000,)),
]


def numbers(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    low = -50 if dtype.is_signed else 0
    return torch.randint(low, 100, shape, generator=generator).to(dtype)


def moved(arguments: tuple[Any, ...]) -> list[Any]:
    return [a.to(DEVICE) if isinstance(a, Tensor) else a for a in arguments]


def same(function: Callable[..., Tensor], *arguments: Any, **named: Any) -> None:
    want = function(*arguments, **named)
    on_device = {k: v.to(DEVICE) if isinstance(v, Tensor) else v for k, v in named.items()}
    before = dict(hologram_torch.fallback_counts())
    got = function(*moved(arguments), **on_device)
    assert got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride()
    assert torch.equal(got.cpu(), want)
    searched = {k for k, v in hologram_torch.fallback_counts().items() if v != before.get(k, 0)}
    assert not any("searchsorted" in name or "bucketize" in name for name in searched)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.bool])
@pytest.mark.parametrize(("lines", "values"), SHAPES)
def test_shapes_and_dtypes(
    dtype: torch.dtype, lines: tuple[int, ...], values: tuple[int, ...]
) -> None:
    rows = numbers(*lines, dtype=dtype).sort(-1).values
    wanted = numbers(*values, dtype=dtype, seed=1)
    for right in (False, True):
        for out_int32 in (False, True):
            same(torch.searchsorted, rows, wanted, right=right, out_int32=out_int32)
            if rows.dim() == 1:
                same(torch.bucketize, wanted, rows, right=right, out_int32=out_int32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_special_numbers(dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).smallest_normal / 4
    line = [-math.inf, -1.5, -tiny, -0.0, 0.0, tiny, 2.0, math.inf, math.nan, math.nan]
    rows = torch.tensor(line, dtype=dtype)
    for right in (False, True):
        same(torch.searchsorted, rows, rows, right=right)
        same(torch.searchsorted, rows[:8], rows, right=right)
        # What is not sorted has the places that PyTorch's bisection comes to.
        same(torch.searchsorted, rows.flip(0), rows, right=right)
        same(torch.searchsorted, numbers(3, 50, dtype=dtype), numbers(3, 50, dtype=dtype, seed=2))


def test_orders_and_sides() -> None:
    rows, values = numbers(4, 30, dtype=torch.float32), numbers(4, 11, dtype=torch.float32, seed=3)
    order = rows.argsort(-1)
    for side in ("left", "right"):
        same(torch.searchsorted, rows, values, sorter=order, side=side)
        same(torch.searchsorted, rows[0], values, sorter=order[0], side=side)
    same(torch.searchsorted, rows, values, sorter=order, side="right", right=True)


def test_layouts_mixtures_and_numbers() -> None:
    rows = numbers(30, 4, dtype=torch.int64).sort(0).values
    values = numbers(11, 4, dtype=torch.float32, seed=3) + 0.5
    same(torch.searchsorted, rows.t(), values.t())
    same(torch.searchsorted, rows[::3, 1], values[:, ::2])
    same(torch.bucketize, values.t(), rows[::3, 1])
    same(torch.searchsorted, torch.tensor([False, True]), values)
    for number in (3, 2.5, -1000):
        same(torch.searchsorted, rows[:, 0], number)
        same(torch.bucketize, number, rows[:, 0].half(), right=True)
        same(torch.searchsorted, rows[:, 0], torch.tensor(number))


def test_results_that_are_given() -> None:
    line, values = torch.arange(9.0), numbers(2, 5, dtype=torch.float32)
    for function, arguments in (
        (torch.searchsorted, (line, values)),
        (torch.searchsorted, (line, 2.5)),
        (torch.bucketize, (values, line)),
    ):
        for out_int32 in (False, True):
            dtype = torch.int32 if out_int32 else torch.int64
            out = torch.empty(0, dtype=dtype, device=DEVICE)
            want = function(*arguments, out_int32=out_int32)
            assert function(*moved(arguments), out_int32=out_int32, out=out) is out
            assert torch.equal(out.cpu(), want)


def test_recorded_with_what_is_around_it() -> None:
    line, values = torch.arange(100.0).to(DEVICE), torch.rand(1000).to(DEVICE)
    found = torch.searchsorted(line + 1, values * 100) * 2
    assert torch.equal(found.cpu(), torch.searchsorted(line.cpu() + 1, values.cpu() * 100) * 2)


REFUSED = [
    (torch.searchsorted, (torch.zeros(2, 5), torch.zeros(3, 5)), {}),
    (torch.searchsorted, (torch.zeros(2, 5), 1.0), {}),
    (torch.searchsorted, (torch.zeros(5), torch.zeros(3)), {"side": "middle"}),
    (torch.searchsorted, (torch.zeros(5), torch.zeros(3)), {"side": "left", "right": True}),
    (torch.searchsorted, (torch.zeros(5), torch.zeros(3)), {"sorter": torch.arange(4)}),
    (torch.searchsorted, (torch.zeros(5), torch.zeros(3)), {"sorter": torch.arange(5) + 1}),
    (torch.searchsorted, (torch.zeros(5), torch.zeros(3)), {"sorter": torch.arange(5).int()}),
    (torch.searchsorted, (torch.zeros(5, dtype=torch.complex64), torch.zeros(3)), {}),
    (torch.searchsorted, (torch.zeros(5).bool(), torch.zeros(3).bool()), {}),
    (torch.bucketize, (torch.zeros(3), torch.zeros(2, 2)), {}),
    (torch.searchsorted, (torch.tensor(1.0), torch.zeros(3)), {}),
]


@pytest.mark.parametrize(("function", "arguments", "named"), REFUSED)
def test_refusals_are_those_of_cpu(
    function: Callable[..., Tensor], arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    with pytest.raises((RuntimeError, IndexError, NotImplementedError)) as on_cpu:
        function(*arguments, **named)
    on_device = {k: v.to(DEVICE) if isinstance(v, Tensor) else v for k, v in named.items()}
    with pytest.raises(type(on_cpu.value)) as there:
        function(*moved(arguments), **on_device)
    words = str(on_cpu.value).split("\n")[0]
    assert str(there.value).split("\n")[0].replace("hologram:0", "cpu") == words
