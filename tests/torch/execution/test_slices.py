# SPDX-License-Identifier: MIT
"""Kernels over interior slices, whose rows lie apart: read and written where they are."""

from __future__ import annotations

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

IN = slice(1, -1)


def stencil(a: Tensor, b: Tensor) -> list[Tensor]:
    return [
        a[..., IN, IN] * 2 + a[..., 2:, IN] + a[..., :-2, IN] + b[..., IN, 2:] - b[..., IN, :-2]
    ]


def one_op(a: Tensor, b: Tensor) -> list[Tensor]:
    return [a[..., IN, IN] + b[..., IN, IN], a[..., IN, IN].contiguous()]


def into_slices(a: Tensor, b: Tensor) -> list[Tensor]:
    b = b.clone()
    b[..., IN, IN] = a[..., IN, IN]
    b[..., :-1, 1:] += a[..., 1:, :-1] * 3
    b[..., 0, IN] = a[..., -1, IN] - b[..., 0, IN]
    return [b]


def into_interiors(a: Tensor, b: Tensor) -> list[Tensor]:
    """All operands lie in the same way: rows are joined over the gaps between them."""
    made, flags = b.clone(), torch.zeros(a.shape, dtype=torch.bool, device=a.device)
    for inner in [(..., IN, IN), (IN,) * a.dim()]:
        made[inner] = a[inner] * 2 + b[inner]
        flags[inner] = a[inner] > made[inner]
    for step in (2, 3, 5):
        made[..., 1::step] += a[..., 1::step]
        made[..., IN, 0::step] = b[..., IN, 0::step] - a[..., IN, 0::step]
    made[..., 2:, 2:] = a[..., :-2, :-2] * 3
    return [made, flags]


def interiors_and_dense(a: Tensor, b: Tensor) -> list[Tensor]:
    """Some operands have gaps, others none."""
    made, results = b.clone(), []
    for part in [
        (..., IN, IN),
        (IN,) * a.dim(),
        (..., slice(0, None, 3)),
        (..., slice(1, None, 2)),
    ]:
        fresh = a[part] * 2 + b[part]
        dense = fresh - a[part]
        made[part] = dense * fresh
        dense += made[part]
        results += [fresh, dense, a[part] + 1.5, (a[part] > b[part]), a[part].double() - fresh]
    return [made, *results]


def shifted_in_place(a: Tensor, b: Tensor) -> list[Tensor]:
    a = a.clone()
    a[..., IN, IN] += a[..., 2:, IN]
    a[..., 1:, :-2] -= a[..., 1:, 2:]
    return [a]


def row_values(a: Tensor, b: Tensor) -> list[Tensor]:
    return [(a[..., IN, IN] * b[..., IN, :1] + b[..., IN, 1:2]) * b[..., :1, IN]]


def sums_of_rows(a: Tensor, b: Tensor) -> list[Tensor]:
    x = a[..., IN, IN]
    total = x.sum(-1, keepdim=True)
    return [x - total, (x * b[..., IN, IN]).sum(-1), b[..., IN, IN] * total]


def conversions(a: Tensor, b: Tensor) -> list[Tensor]:
    return [a[..., IN, IN].double() + b[..., IN, IN], (a[..., IN, IN] > b[..., IN, IN])]


def steps(a: Tensor, b: Tensor) -> list[Tensor]:
    return [
        a[..., 1:-1:2, 1:-1:2] + b[..., 1:-1:2, 1:-1:2] * 2,
        a[..., IN, 1:-1].mT + b.mT[..., IN, IN],
    ]


def columns(a: Tensor, b: Tensor) -> list[Tensor]:
    b = b.clone()
    last = b.shape[-1]
    for c in range(last):
        b[..., c] = a[..., last - 1 - c] + c
        b[..., c] += b[..., c - 1]
    return [b]


def columns_side_by_side(a: Tensor, b: Tensor) -> list[Tensor]:
    made = torch.zeros_like(b.mT.contiguous())
    made[..., 0::2, :] = a.mT[..., 0::2, :] * 2
    made[..., 1::2, :] = made[..., 0:-1:2, :][..., : made[..., 1::2, :].shape[-2], :] + 1
    wide = a.clone()
    wide[..., 1::2] -= wide[..., : 2 * (wide.shape[-1] // 2) : 2]
    wide[..., 0::2] *= 3
    return [made, wide, wide.sum(-1)]


def pairs_of_columns(a: Tensor, b: Tensor) -> list[Tensor]:
    """Two columns a step, of which one pair shares a column with the next."""
    made = torch.cat([a, b, a], -1)
    last = made.shape[-1] // 3 * 3
    for c in range(2):
        made[..., :last].unflatten(-1, (-1, 3))[..., c : c + 2] += c + 1
    return [made]


PROGRAMS = [
    stencil,
    columns,
    columns_side_by_side,
    pairs_of_columns,
    one_op,
    into_slices,
    into_interiors,
    interiors_and_dense,
    shifted_in_place,
    row_values,
    sums_of_rows,
    conversions,
    steps,
]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_slices_have_eager_bits_and_cpus_values(
    program: Callable[[Tensor, Tensor], list[Tensor]], dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(1)
    for cols in [1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 26, 33, 60, 95, 97]:
        for outer in [(9,), (3, 7), (2, 1, 130)]:
            shape = (*outer[:-1], outer[-1] + 2, cols + 2)
            a, b = (torch.randint(0, 17, shape, generator=generator) for _ in range(2))
            a, b = (x.to(dtype) if dtype == torch.uint8 else (x - 8).to(dtype) for x in (a, b))
            on_cpu = program(a, b)
            x, y = a.to("hologram"), b.to("hologram")
            deferred = [r.cpu() for r in program(x, y)]
            with hologram_torch.execution("eager"):
                eager = [r.cpu() for r in program(x, y)]
            # Small integers, so that no order of sums rounds.
            for d, e, c in zip(deferred, eager, on_cpu, strict=True):
                assert d.dtype == c.dtype and d.shape == c.shape
                assert torch.equal(d, e), (cols, outer)
                assert torch.equal(d, c), (cols, outer)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3000, 7, 9), (9, 3, 4, 5, 6), (41, 18, 18), (2, 3000, 5)])
def test_interiors_of_many_planes(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(2)
    a, b = (torch.randint(0, 17, shape, generator=generator).to(dtype) for _ in range(2))
    x, y = a.to("hologram"), b.to("hologram")
    for program in (into_interiors, interiors_and_dense, into_slices, shifted_in_place):
        for on_device, on_cpu in zip(program(x, y), program(a, b), strict=True):
            assert torch.equal(on_device.cpu(), on_cpu)


def test_writes_between_each_others_elements_share_a_kernel() -> None:
    x = torch.rand(40, 50, 4, 2, dtype=torch.float64, device="hologram")
    made = torch.empty_like(x)

    def program() -> None:
        for i in range(4):
            for k in range(2):
                made[1:-1, :, i, k] = x[1:-1, :, 3 - i, k] * 2 + i

    program()
    torch.hologram.synchronize()
    stats = hologram_torch.explain(program).stats
    assert (stats["ops_recorded"], stats["kernels_run"]) == (24, 1)
    assert torch.equal(made[1:-1].cpu()[..., 2, 1], x[1:-1].cpu()[..., 1, 1] * 2 + 2)


def flux(h: Tensor, u: Tensor, v: Tensor, c: Tensor) -> list[Tensor]:
    """A conservation law: what goes over the cells' borders is computed of the cells."""
    hu, mixed = h * u, h * u * v * c
    pressure = hu * u + h * h * 0.5
    new = h.clone()
    new[IN, IN] = h[IN, IN] - 0.1 * (
        (pressure[2:, IN] - pressure[:-2, IN]) + (mixed[IN, 2:] - mixed[IN, :-2])
    )
    return [new, hu[::2] / (h[::2] + 2)]


def lines(h: Tensor, u: Tensor, v: Tensor, c: Tensor) -> list[Tensor]:
    """Differences of differences along memory, a stride, and what is left of a row."""
    h, u, v = h.flatten(), u.flatten(), v.flatten()
    first = h * u
    slope = first[1:] - first[:-1]
    limited = torch.where(slope > 0, slope, c)
    return [limited[2:] + limited[:-2], (u - v)[::3] * 2, (u + v)[7:].mean()]


@pytest.mark.parametrize("program", [flux, lines], ids=lambda program: program.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_values_are_computed_where_their_parts_are_read(
    program: Callable[..., list[Tensor]], dtype: torch.dtype
) -> None:
    inputs = [torch.rand(400, 401, dtype=dtype) - 0.5 for _ in range(3)]
    inputs.append(torch.tensor(0.3, dtype=dtype))
    on_device = [x.to("hologram") for x in inputs]
    _C.reset_recorder_stats()
    results = [x.cpu() for x in program(*on_device)]
    stats = _C.recorder_stats()
    # All that is left but for borders, which are copied, and what is reduced.
    assert stats["kernels"] == {flux: 5, lines: 4}[program]
    with hologram_torch.execution("eager"):
        eager = [x.cpu() for x in program(*on_device)]
    for result, same, expected in zip(results, eager, program(*inputs), strict=True):
        assert torch.equal(result, same)
        torch.testing.assert_close(result, expected)
