# SPDX-License-Identifier: MIT
"""Matrix products of float32 operands as they lie: a row, some rows, squares, and what is thin."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from bench import peers
from bench.context import Context
from bench.core import Case, Goal, Peer, Row, Side, Work, area, mean_row

# rows x inner x columns
_SHAPES = (
    (1, 1024, 1024),
    (1, 2048, 5632),
    (16, 1024, 1024),
    (64, 1024, 1024),
    (256, 256, 256),
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (32, 784, 128),
    (512, 128, 512),
    (100, 64, 4000),
)
_CHOSEN = _SHAPES[1:6]
_TURN = 3e8  # multiplications, at most


def _operands(shape: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    rows, inner, columns = shape
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(rows, inner, generator=generator),
        torch.randn(inner, columns, generator=generator),
    )


def make_case(context: Context, shape: tuple[int, int, int]) -> Case:
    """Return the comparison of one shape."""
    many = max(1, min(50, int(_TURN / math.prod(shape))))

    def build(side: Side) -> Work:
        a, b = (t.to(side.device) for t in _operands(shape))

        def run() -> Tensor:
            for _ in range(many):
                kept = a @ b
                side.synchronize()
            return kept

        return Work(run, many, lambda: a @ b, lambda: a @ b)

    def numpy() -> tuple[Work, Side]:
        a, b = (t.numpy() for t in _operands(shape))

        def run() -> object:
            for _ in range(many):
                kept = a @ b
            return kept

        return Work(run, many, lambda: torch.from_numpy(a @ b)), context.cpu

    def oracle() -> Tensor:
        a, b = (t.double() for t in _operands(shape))
        return a @ b

    rows, inner, columns = shape
    return Case(
        f"{rows} x {inner} times {inner} x {columns}",
        build,
        size=math.prod(shape),
        oracle=oracle,
        tolerance=(1e-5, 1e-6 * inner),
        goal=Goal(0.97),
        peers=[Peer(peers.NUMPY, numpy)],
    )


def summarize(rows: list[Row]) -> Iterator[Row]:
    """Yield the means beside the faster of PyTorch's BLAS and NumPy's."""
    best = {r.name: min(r.ratio, r.ratio_to(peers.NUMPY)) for r in rows}
    best = {name: ratio for name, ratio in best.items() if not math.isnan(ratio)}
    if best:
        mean = "geometric mean against the faster of PyTorch's BLAS and NumPy's"
        yield mean_row(mean, list(best.values()), goal=Goal(0.97))
        lowest = min(best, key=lambda name: best[name])
        yield mean_row(f"lowest of these: {lowest}", [best[lowest]])


@area(
    "products",
    "Products of float32 matrices as they lie, beside cpu and NumPy",
    seconds=4,
    summarize=summarize,
)
def cases(context: Context) -> Iterator[Case]:
    for shape in _SHAPES if context.everything else _CHOSEN[:2] if context.quick else _CHOSEN:
        yield make_case(context, shape)
