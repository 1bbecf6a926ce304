# SPDX-License-Identifier: MIT
"""Slices: what a program of interior, shifted and strided parts costs beside dense arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.context import Context
from bench.core import Case, Goal, Peer, Row, Side, Work, area, mean_row

DENSE = "dense"
_DTYPES = (torch.float32, torch.float64)
_INNER, _NEXT, _EVEN, _ODD = slice(1, -1), slice(2, None), slice(0, None, 2), slice(1, None, 2)


@dataclass(frozen=True)
class Part:
    """What is read and written of arrays that are larger: of each dimension the same."""

    name: str
    shape: tuple[int, ...]  # of a million elements, about
    read: tuple[slice, slice]  # the result goes where the first is

    @property
    def by(self) -> int:
        """Elements of the whole for each of the part, in the last dimension."""
        return self.read[0].step or 1

    def shape_of(self, size: int) -> tuple[int, ...]:
        """Return the part's shape for a number of elements: the first dimension is another."""
        rest = math.prod(self.shape[1:])
        return (max(1, size // rest), *self.shape[1:])

    def whole(self, size: int, dtype: torch.dtype, number: int) -> Tensor:
        """Return an array of which it is a part."""
        *outer, last = self.shape_of(size)
        generator = torch.Generator().manual_seed(number)
        shape = [n + 2 for n in outer] + [last * self.by + 2 * (self.by == 1)]
        return torch.rand(shape, dtype=dtype, generator=generator)

    def of(self, x: Tensor, last: slice) -> Tensor:
        """Return the part whose last dimension is cut as told, the others to their interior."""
        return x[(*[last if self.by == 1 else _INNER] * (x.dim() - 1), last)]


PARTS = (
    Part("1 dimension", (1_000_000,), (_INNER, _NEXT)),
    Part("2 dimensions", (1_000, 1_000), (_INNER, _NEXT)),
    Part("rows of 100", (10_000, 100), (_INNER, _NEXT)),
    Part("3 dimensions", (100, 100, 100), (_INNER, _NEXT)),
    Part("4 dimensions", (32, 32, 32, 32), (_INNER, _NEXT)),
    Part("5 dimensions", (16, 16, 16, 16, 16), (_INNER, _NEXT)),
    Part("planes of 7 x 7", (20_000, 7, 7), (_INNER, _NEXT)),
    Part("every second", (1_000, 1_000), (_EVEN, _ODD)),
)


def _formula(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return x * 2 + y * z + 1


def part_work(part: Part, size: int, dtype: torch.dtype, side: Side) -> Work:
    """Return the formula over slices, written into a slice."""
    a, b, c = (part.whole(size, dtype, k).to(side.device) for k in range(3))
    one, two = part.read

    def run() -> Tensor:
        part.of(c, one).copy_(_formula(part.of(a, one), part.of(b, two), part.of(a, two)))
        return c

    return Work(run, outputs=lambda: part.of(run(), one).clone())


def dense_work(part: Part, size: int, dtype: torch.dtype, side: Side) -> Work:
    """Return the formula over copies of the slices, written into an array of their size."""
    a, b = (part.whole(size, dtype, k) for k in range(2))
    one, two = part.read
    slices = (part.of(a, one), part.of(b, two), part.of(a, two))
    x, y, z = (s.contiguous().to(side.device) for s in slices)
    out = torch.empty_like(x)
    return Work(lambda: out.copy_(_formula(x, y, z)))


def make_case(context: Context, part: Part, size: int, dtype: torch.dtype) -> Case:
    """Return one comparison."""
    own = str(dtype).removeprefix("torch.")

    def dense() -> tuple[Work, Side]:
        return dense_work(part, size, dtype, context.side), context.side

    return Case(
        f"{part.name}, {own}",
        lambda side: part_work(part, size, dtype, side),
        size=size,
        dtype=own,
        bytes=4 * math.prod(part.shape_of(size)) * dtype.itemsize,
        goal=Goal(1.0),
        group=part.name,
        peers=[Peer(DENSE, dense)],
    )


def summarize(rows: list[Row]) -> Iterator[Row]:
    """Yield the means, and the lowest, beside dense arrays."""
    yield mean_row("geometric mean against eager cpu", [r.ratio for r in rows])
    ratios = {r.name: r.ratio_to(DENSE) for r in rows if not math.isnan(r.ratio_to(DENSE))}
    if ratios:
        yield mean_row("geometric mean against dense arrays", list(ratios.values()))
        lowest = min(ratios, key=lambda name: ratios[name])
        yield mean_row(f"lowest of these: {lowest}", [ratios[lowest]], goal=Goal(0.8))


@area(
    "slices",
    "Slices: 2x + yz + 1 over parts of arrays into a part, beside cpu and beside dense arrays",
    seconds=4,
    summarize=summarize,
)
def cases(context: Context) -> Iterator[Case]:
    sizes = [s for s in context.sizes if 100_000 <= s <= 10_000_000]
    wanted = (*_DTYPES, torch.bfloat16) if context.everything else _DTYPES[:1]
    for size in sizes if context.everything else [100_000] if context.quick else [1_000_000]:
        for part in PARTS:
            for dtype in wanted:
                yield make_case(context, part, size, dtype)
