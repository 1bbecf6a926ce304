# SPDX-License-Identifier: MIT
"""Operators on shapes that are neither long rows nor whole arrays, beside cpu.

Rows of a few elements (points, colors, classes), a few long rows, dimensions in the middle, and
parts that begin anywhere: 150,000 elements or so.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bench.context import Context
from bench.core import Case, Goal, Row, area, mean_row
from bench.inputs import Op

_SIZE = 150_000
# Name, dimensions, the one that is reduced or walked, and the shape that is left without it.
_SHAPES = (
    ("rows of 3", "50000x3", 1, "50000"),
    ("rows of 8", "20000x8", 1, "20000"),
    ("rows of 150", "1000x150", 1, "1000"),
    ("3 rows", "3x50000", 0, "50000"),
    ("8 rows", "8x20000", 0, "20000"),
    ("3 channels", "16x3x64x64", 1, "16x64x64"),
    ("40 in the middle", "60x40x60", 1, "60x60"),
    ("5 in the middle", "5000x5x6", 1, "5000x6"),
)
# What an operator is called with: {d} is the dimension.
_REDUCTIONS = ("sum", "amax", "mean", "norm", "logsumexp", "argmax")
_REDUCE = {
    "norm": "x.norm(dim={d})",
    **{name: f"x.{name}({{d}})" for name in _REDUCTIONS if name != "norm"},
}
_SAME = {
    "cumsum": "x.cumsum({d})",
    "softmax": "x.softmax({d})",
    "flip": "x.flip({d})",
    "roll": "x.roll(1, {d})",
    "minus its mean": "x - x.mean({d}, keepdim=True)",
    "times a value each": "x * x.select({d}, 0).unsqueeze({d})",
}
_OTHERS = {
    "stack behind": ("torch.stack([x, y], -1)", "x y", "2x{shape}"),
    "all but the first": ("x.narrow({d}, 1, x.shape[{d}] - 1).contiguous()", "x", "{shape}"),
}
_CHOSEN = ("sum", "amax", "cumsum", "flip", "minus its mean", "stack behind")
_DTYPES = ("float32", "float64")


def _expressions() -> Iterator[tuple[str, str, str, str]]:
    """Yield a name, an expression, its operands and the shape of its result."""
    for name, expression in _REDUCE.items():
        yield name, expression, "x", "{left}" + (":int64" if name == "argmax" else "")
    for name, expression in _SAME.items():
        yield name, expression, "x", "{shape}"
    for name, (expression, operands, result) in _OTHERS.items():
        yield name, expression, operands, result


def summarize(rows: list[Row]) -> Iterator[Row]:
    """Yield the mean and the lowest."""
    yield mean_row("geometric mean against eager cpu", [r.ratio for r in rows])
    lowest = min(rows, key=lambda row: row.ratio)
    yield mean_row(f"lowest: {lowest.name}", [lowest.ratio])


@area(
    "shapes",
    "Operators on short rows, few rows and dimensions in the middle, 150,000 elements",
    seconds=8,
    summarize=summarize,
)
def cases(context: Context) -> Iterator[Case]:
    shapes = _SHAPES if not context.quick else _SHAPES[:2]
    for about, shape, dim, left in shapes:
        for name, expression, operands, result in _expressions():
            if not context.everything and name not in _CHOSEN:
                continue
            op = Op(
                expression.format(d=dim),
                " ".join(f"{operand}:normal:{shape}" for operand in operands.split()),
                result.format(shape=shape, left=left),
            )
            for dtype in _DTYPES if context.everything else _DTYPES[:1]:
                own = getattr(torch, dtype)
                yield op.case(context, f"{name}, {about}, {dtype}", _SIZE, own, goal=Goal(0.95))
