# SPDX-License-Identifier: MIT
"""Copies: to the device and back, casts, transposes; beside cpu and beside memory bandwidth."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bench.context import Context
from bench.core import Case, Goal, area
from bench.inputs import Op, number_of_sets

_PARITY = Goal(0.95)

_BATCH = "q:normal:n/1000x10x10x10"
# Name, expression, operands, bytes moved per element, cpu's expression where it differs.
_COPIES = [
    ("host to device, new", "h.to(device)", "@h", 8, "h.clone()"),
    ("device to host, new", "x.cpu()", "x", 8, "x.clone()"),
    ("host to device, in place", "z.copy_(h)", "!z @h", 8, ""),
    ("device to host, in place", "w.copy_(x)", "!@w x", 8, ""),
    ("device to device, new", "x.clone()", "x", 8, ""),
    ("device to device, in place", "z.copy_(x)", "!z x", 8, ""),
    ("transpose, new", "m.t().contiguous()", "m:normal:axb", 8, ""),
    ("transpose, in place", "n.copy_(m.t())", "!n:normal:bxa m:normal:axb", 8, ""),
    ("last two of four exchanged", "q.transpose(2, 3).contiguous()", _BATCH, 8, ""),
    ("channels last", "q.contiguous(memory_format=torch.channels_last)", _BATCH, 8, ""),
    ("every second element", "x[::2].contiguous()", "x", 6, ""),
    ("concatenate two", "torch.cat([x, y])", "x y", 16, ""),
]
_CHOSEN_SIZES = (10_000, 1_000_000)
_OTHERS = "bfloat16 float16 float64 int64 uint8 bool".split()
_CASTS = [("float32", other) for other in _OTHERS] + [(other, "float32") for other in _OTHERS]


@area(
    "copies",
    "Copies, casts and transposes, beside cpu and the bandwidth of a warm copy",
    seconds=20,
)
def cases(context: Context) -> Iterator[Case]:
    for size in [s for s in context.sizes if context.whole or s in _CHOSEN_SIZES]:
        for name, ours, operands, moved, theirs in _COPIES:
            op = Op(ours, operands, "n n" if "cat" in name else "n", theirs)
            yield op.case(context, name, size, bytes=moved * size, goal=_PARITY, group=name)
        for source, target in _CASTS:
            # What does not fit an unsigned byte is undefined in PyTorch.
            kind = "positive" if "uint8" in (source, target) else "normal"
            name, before = f"{source} to {target}", getattr(torch, source)
            after = {"target": getattr(torch, target)}
            op = Op("x.to(target)", f"x:{kind}", f"n:{target}", scope=after)
            yield op.case(
                context,
                name,
                size,
                before,
                number_of_sets(op.result_bytes(size)),
                bytes=op.bytes(size, before),
                goal=_PARITY,
                group=name,
            )
