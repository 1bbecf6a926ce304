# SPDX-License-Identifier: MIT
"""Tensors of bool with bytes other than 0 and 1, as masks of images have: true is not 0."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from native_compare import DEVICE
from torch import Tensor

SIZES = [1, 7, 40, 100_003]


def _bytes(n: int, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    odd = torch.randint(0, 256, (n,), dtype=torch.uint8, generator=random)
    return odd * torch.randint(0, 2, (n,), dtype=torch.uint8, generator=random)


def _numbers(a: Tensor) -> Tensor:
    return torch.arange(a.numel(), dtype=torch.float32, device=a.device) - 3


def _rows(a: Tensor) -> Tensor:
    return a[: a.numel() // 3 * 3].view(3, -1)


OPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "ge": lambda a, b: a >= b,
    "eq number": lambda a, b: a == True,  # noqa: E712
    "not": lambda a, b: ~a,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "logical_xor": torch.logical_xor,
    "logical_not": lambda a, b: torch.logical_not(a),
    "maximum": torch.maximum,
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "add number": lambda a, b: a + 1.5,
    "mul numbers": lambda a, b: a * _numbers(a),
    "chain": lambda a, b: ((a ^ b).float() + a) * (b == a),
    "pow": lambda a, b: _numbers(a) ** a,
    "where": lambda a, b: torch.where(a, _numbers(a), b),
    "masked_fill": lambda a, b: _numbers(a).masked_fill(a, 2),
    "index": lambda a, b: _numbers(a)[a],
    "sum": lambda a, b: a.sum(),
    "sum of float64": lambda a, b: a.sum(dtype=torch.float64),
    "sum of rows": lambda a, b: _rows(a).sum(1),
    "sum of columns": lambda a, b: _rows(a).sum(0),
    "mean": lambda a, b: a.float().mean(),
    "prod": lambda a, b: a.prod(),
    "any": lambda a, b: a.any(),
    "all": lambda a, b: (a | ~a).all(),
    "max": lambda a, b: a.max(),
    "count_nonzero": lambda a, b: a.count_nonzero(),
    "nonzero": lambda a, b: a.nonzero(),
    "cumsum": lambda a, b: a.cumsum(0),
    "transposed": lambda a, b: _rows(a).t().contiguous().to(torch.int32),
    "strided": lambda a, b: a[::3].to(torch.float64),
    "cat": lambda a, b: torch.cat([a, b]).to(torch.int32),
    "gather": lambda a, b: a.gather(0, torch.arange(1, device=a.device)).int(),
    "isin": lambda a, b: torch.isin(a.int(), torch.tensor([1], device=a.device)),
    "copy_": lambda a, b: torch.zeros(a.numel(), device=a.device).copy_(a),
    "product": lambda a, b: _rows(a).float() @ _rows(b).float().t(),
}
DTYPES = [
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("op", OPS)
def test_true_is_what_is_not_0(op: str, size: int) -> None:
    odd = [_bytes(size, seed) for seed in (1, 2)]
    expected = OPS[op](*(t != 0 for t in odd))
    found = OPS[op](*(t.to(DEVICE).view(torch.bool) for t in odd))
    assert found.dtype == expected.dtype
    if found.dtype == torch.bool:
        found = found.to(torch.int32)
        expected = expected.to(torch.int32)
    assert torch.equal(found.cpu(), expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_conversions(dtype: torch.dtype, size: int) -> None:
    odd = _bytes(size, 1)
    assert torch.equal(odd.to(DEVICE).view(torch.bool).to(dtype).cpu(), (odd != 0).to(dtype))


def test_the_bytes_stay_what_they_are() -> None:
    odd = _bytes(64, 1)
    on_device = odd.to(DEVICE)
    mask = on_device.view(torch.bool)
    mask[0] = True
    assert on_device[0].item() == 1 and torch.equal(on_device[1:].cpu(), odd[1:])
    assert torch.equal(mask.view(torch.uint8).cpu(), on_device.cpu())
