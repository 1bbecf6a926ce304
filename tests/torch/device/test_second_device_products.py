# SPDX-License-Identifier: MIT
"""Elementwise work behind products on hologram:1, in their kernels.

test_second_device runs this on each driver.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from second_device import ONE, host_kernels, on_device

import hologram_torch
from hologram_torch import _C

F = torch.nn.functional
Tensors = list[torch.Tensor]


def kernels() -> int:
    """Return how many kernels of plans have run on the device."""
    with torch.hologram.device(1):
        return _C.recorder_stats()["kernels"]


def activation(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> Tensors:
    return [F.gelu(F.linear(x, w, b))]


def residual(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> Tensors:
    return [(x @ w.T + b).relu() * 0.5 + r]


def seen(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> Tensors:
    y = x @ w.T
    return [y, y.sigmoid()]


def in_place(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> Tensors:
    y = x @ w.T
    y.mul_(2.0).add_(b)
    return [y]


def compared(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> Tensors:
    y = F.linear(x, w, b)
    return [y > r, torch.where(y > r, y, r)]


def into_a_slice(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, r: torch.Tensor) -> Tensors:
    out = r.new_zeros(*r.shape[:-1], 2 * r.shape[-1])
    out[..., ::2] = (x @ w.T).tanh()
    return [out]


def by_a_number_in_memory(
    x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, r: torch.Tensor
) -> Tensors:
    return [(x @ w.T) * b[:1] - r[..., :1]]


# What follows a product, and how many kernels it takes with it.
WORK: dict[str, tuple[Callable[..., Tensors], int]] = {
    "activation": (activation, 1),
    "residual": (residual, 1),
    "product seen too": (seen, 1),
    "in place": (in_place, 1),
    "compared": (compared, 1),
    "into a slice": (into_a_slice, 2),  # the other elements are filled
    "by numbers in memory": (by_a_number_in_memory, 1),
}


# Small and large tiles, whole and cut, and rows of a batch.
SHAPES = [((5,), 7, 3), ((70,), 66, 20)]
MORE_SHAPES = [((64,), 128, 9), ((3, 6), 5, 4)]
FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


@on_device
@pytest.mark.parametrize(
    ("dtypes", "shapes"),
    [
        (FLOATS[:1], SHAPES[:1]),
        pytest.param(FLOATS, SHAPES + MORE_SHAPES, marks=pytest.mark.heavy),
    ],
)
@pytest.mark.parametrize("work", WORK)
def test_work_behind_a_product_is_in_its_kernel(
    work: str, dtypes: list[torch.dtype], shapes: list[tuple[tuple[int, ...], int, int]]
) -> None:
    """Deferred has the bits of eager, where each op is a kernel; values are cpu's in float64."""
    run, count = WORK[work]
    before = host_kernels()
    for dtype in dtypes:
        for rows, width, depth in shapes:
            torch.manual_seed(width)
            given = [torch.randn(*rows, depth), torch.randn(width, depth), torch.randn(width)]
            given = [t.to(dtype) for t in [*given, torch.randn(*rows, width)]]
            own = [t.to(ONE) for t in given]
            torch.accelerator.synchronize()
            at = kernels()
            with torch.no_grad():
                results = run(*own)
                found = [t.cpu() for t in results]
                assert kernels() - at == count, (work, dtype, rows)
                with hologram_torch.execution("eager"):
                    for one, other in zip(found, run(*own), strict=True):
                        assert torch.equal(one, other.cpu()), (work, dtype, rows)
                exact = run(*[t.double() for t in given])
            if work == "compared":  # near the bound either is right
                found, exact = found[1:], exact[1:]
            bound = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 1e-2}.get(
                dtype, 6e-2
            )
            for one, other in zip(found, exact, strict=True):
                scale = max(1.0, float(other.abs().max()))
                assert (one.double() - other).abs().max() <= bound * scale, (work, dtype, rows)
    assert host_kernels() == before


@on_device
def test_work_behind_large_tiles_of_half_types() -> None:
    test_work_behind_a_product_is_in_its_kernel("residual", FLOATS[1:2], SHAPES[1:])


@on_device
def test_batches_of_products_and_what_stays_apart() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(4, 9, 5), torch.randn(4, 5, 11)
    mask = torch.randn(9, 11)
    heads = torch.randn(4, 1, 1)
    da, db, dm, dh = (t.to(ONE) for t in (a, b, mask, heads))
    torch.accelerator.synchronize()
    at = kernels()
    scores = (torch.bmm(da, db) * 0.25 + dm) / dh
    assert torch.allclose(scores.cpu(), (torch.bmm(a, b) * 0.25 + mask) / heads, atol=1e-5)
    assert kernels() - at == 1
    # Rows are reduced by a kernel of their own, and so is what reads the product turned.
    at = kernels()
    softmax = (torch.bmm(da, db) * 0.25).softmax(-1)
    assert torch.allclose(softmax.cpu(), (torch.bmm(a, b) * 0.25).softmax(-1), atol=1e-5)
    assert kernels() - at == 2
    at = kernels()
    turned = torch.bmm(da, db).transpose(1, 2).contiguous() + 1
    assert torch.allclose(turned.cpu(), torch.bmm(a, b).transpose(1, 2) + 1, atol=1e-5)
    assert kernels() - at == 2
    # The product's operand is written over by what reads the product: that comes after it.
    at = kernels()
    square, w = torch.randn(6, 6), torch.randn(6, 6)
    ds, dw = square.to(ONE), w.to(ONE)
    ds.copy_((ds @ dw).relu())
    assert torch.allclose(ds.cpu(), (square @ w).relu(), atol=1e-5)


@on_device
def test_weights_of_int8_with_work_behind() -> None:
    torch.manual_seed(0)
    before = host_kernels()
    weight = torch.randint(-127, 127, (5, 16), dtype=torch.int8)
    scale, bias = torch.rand(5) / 100, torch.randn(5)
    x = torch.randn(6, 16)
    exact = F.silu(x.double() @ (weight.double() * scale[:, None]).T + bias)
    own = [t.to(ONE) for t in (x, weight, scale, bias)]
    torch.accelerator.synchronize()
    at = kernels()
    found = F.silu(torch._weight_int8pack_mm(own[0], own[1], own[2]) + own[3]).cpu()
    assert kernels() - at == 1
    assert (found - exact).abs().max() < 1e-5
    assert host_kernels() == before
