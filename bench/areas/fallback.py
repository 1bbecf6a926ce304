# SPDX-License-Identifier: MIT
"""Fallback: ops that run PyTorch's CPU kernel on the device's memory; what the detour costs."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bench.context import Context
from bench.core import Case, area
from bench.inputs import Op

_OPS = {
    "cumsum": "torch.cumsum(x, 0)",
    "sort": "torch.sort(x)",
    "digamma": "torch.digamma(x)",
    "flip": "torch.flip(x, (0,))",
    "logaddexp": "torch.logaddexp(x, y)",
    "topk": "torch.topk(x, 8)",
}


@area("fallback", "Fallback: ops that run PyTorch's CPU kernel", seconds=6)
def cases(context: Context) -> Iterator[Case]:
    for size in (16, 10_000):
        for name, expression in _OPS.items():
            op = Op(expression, "x:positive y:positive")
            yield op.case(context, name, size, group=name, note=_served_by(context, expression))


def _served_by(context: Context, expression: str) -> str:
    """Say whether the op really falls back on this device."""
    if context.side.device.type != "hologram":
        return ""
    import hologram_torch

    hologram_torch.reset_fallback_counts()
    x = torch.ones(16, device=context.side.device)
    eval(expression, {"torch": torch, "x": x, "y": x})
    return "falls back" if hologram_torch.fallback_counts() else "native"
