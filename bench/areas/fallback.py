# SPDX-License-Identifier: MIT
"""Fallback: ops that run PyTorch's CPU kernel on the device's memory; what the detour costs."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bench.context import Context
from bench.core import Case, Row, Side, Work, area
from bench.inputs import expression_work, number_of_sets

AREA = "fallback"
_OPS = [
    ("cumsum", "torch.cumsum(x, 0)"),
    ("sort", "torch.sort(x)"),
    ("digamma", "torch.digamma(x)"),
    ("flip", "torch.flip(x, (0,))"),
    ("logaddexp", "torch.logaddexp(x, y)"),
    ("topk", "torch.topk(x, 8)"),
]
_SIZES = (16, 10_000)


@area(AREA, "Fallback: ops that run PyTorch's CPU kernel")
def measure(context: Context) -> Iterator[Row]:
    def make(name: str, expression: str, size: int) -> Case:
        count = number_of_sets(size * 4)

        def build(side: Side) -> Work:
            sets = [
                [
                    context.inputs.get(
                        "positive", torch.float32, (size,), 2 * n + which, side.device
                    )
                    for which in range(2)
                ]
                for n in range(count)
            ]
            return expression_work(expression, ["x", "y"], sets, side, size * 4)

        return Case(name, build, size=size, group=name, note=_served_by(context, expression))

    def cases() -> Iterator[Case]:
        for size in _SIZES:
            for name, expression in _OPS:
                yield make(name, expression, size)

    yield from context.rows(AREA, cases)


def _served_by(context: Context, expression: str) -> str:
    """Say whether the op really falls back on this device."""
    if context.side.device.type != "hologram":
        return ""
    import hologram_torch

    hologram_torch.reset_fallback_counts()
    x = torch.ones(16, device=context.side.device)
    eval(expression, {"torch": torch, "x": x, "y": x})
    return "falls back" if hologram_torch.fallback_counts() else "native"
