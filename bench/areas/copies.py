# SPDX-License-Identifier: MIT
"""Copies: to the device and back, casts, transposes; beside cpu and beside memory bandwidth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from bench.context import Context
from bench.core import Case, Goal, Row, Side, Work, area
from bench.inputs import expression_work, number_of_sets

AREA = "copies"
_PARITY = Goal(0.95)

# Name, expression on the device, expression on cpu, operands, bytes moved per element.
# Operands: h on the host, x and z on the side's device (z is written), w the host's own target.
_COPIES: list[tuple[str, str, str, str, int]] = [
    ("host to device, new", "h.to(device)", "h.clone()", "h", 8),
    ("device to host, new", "x.cpu()", "x.clone()", "x", 8),
    ("host to device, in place", "z.copy_(h)", "z.copy_(h)", "z h", 8),
    ("device to host, in place", "w.copy_(x)", "w.copy_(x)", "w x", 8),
    ("device to device, new", "x.clone()", "x.clone()", "x", 8),
    ("device to device, in place", "z.copy_(x)", "z.copy_(x)", "z x", 8),
    ("transpose, new", "m.t().contiguous()", "m.t().contiguous()", "m", 8),
    ("transpose, in place", "n.copy_(m.t())", "n.copy_(m.t())", "n m", 8),
    ("last two of four exchanged", "q.transpose(2, 3).contiguous()", "", "q", 8),
    ("channels last", "q.contiguous(memory_format=torch.channels_last)", "", "q", 8),
    ("every second element", "x[::2].contiguous()", "", "x", 6),
    ("concatenate two", "torch.cat([x, y])", "", "x y", 16),
]
_CHOSEN_SIZES = (10_000, 1_000_000)
_CASTS = [
    ("float32", "bfloat16"),
    ("float32", "float16"),
    ("float32", "float64"),
    ("float32", "int64"),
    ("float32", "uint8"),
    ("float32", "bool"),
    ("bfloat16", "float32"),
    ("float16", "float32"),
    ("float64", "float32"),
    ("int64", "float32"),
    ("uint8", "float32"),
    ("bool", "float32"),
]


def _square(size: int) -> tuple[int, int]:
    """Return a matrix shape of `size` elements, as square as a power of ten allows."""
    rows = 10 ** (len(str(size)) // 2)
    return rows, size // rows


def _operand(context: Context, letter: str, number: int, size: int, side: Side) -> torch.Tensor:
    device = context.cpu.device if letter in "hw" else side.device
    shape: tuple[int, ...] = (size,)
    if letter in "mn":
        rows, columns = _square(size)
        shape = (rows, columns) if letter == "m" else (columns, rows)
    elif letter == "q":
        shape = (size // 1000, 10, 10, 10)
    tensor = context.inputs.get(
        "normal", torch.float32, shape, number * 32 + ord(letter) % 32, device
    )
    return tensor.clone() if letter in "znw" else tensor


def _case(
    context: Context, name: str, expressions: Sequence[str], names: str, size: int, moved: int
) -> Case:
    result = size * 4 * (2 if "cat" in name else 1)
    # Both ways through an operand that lies on the host: as little as possible is copied twice.
    count = number_of_sets(result)

    def build(side: Side, expression: str) -> Work:
        sets = [
            [_operand(context, letter, n, size, side) for letter in names.split()]
            for n in range(count)
        ]
        return expression_work(expression, names.split(), sets, side, result)

    ours, theirs = expressions
    return Case(
        name,
        lambda side: build(side, ours if side.device.type != "cpu" else theirs or ours),
        peer=lambda side: build(side, theirs or ours),
        size=size,
        bytes=moved * size,
        goal=_PARITY,
        group=name,
    )


def _cast(context: Context, source: str, target: str, size: int) -> Case:
    before, after = getattr(torch, source), getattr(torch, target)
    # What does not fit an unsigned byte is undefined in PyTorch.
    kind = "positive" if target == "uint8" or source == "uint8" else "normal"
    count = number_of_sets(size * after.itemsize)

    def build(side: Side) -> Work:
        sets: list[list[Any]] = [
            [context.inputs.get(kind, before, (size,), n, side.device)] for n in range(count)
        ]
        return expression_work(
            "x.to(target)", ["x"], sets, side, size * after.itemsize, {"target": after}
        )

    return Case(
        f"{source} to {target}",
        build,
        size=size,
        dtype=source,
        bytes=size * (before.itemsize + after.itemsize),
        goal=_PARITY,
        group=f"{source} to {target}",
    )


@area(AREA, "Copies, casts and transposes, beside cpu and the bandwidth of a warm copy")
def measure(context: Context) -> Iterator[Row]:
    def cases() -> Iterator[Case]:
        chosen = context.sizes if context.whole else _CHOSEN_SIZES
        for size in (s for s in context.sizes if s in chosen):
            for name, ours, theirs, names, moved in _COPIES:
                yield _case(context, name, (ours, theirs), names, size, moved)
            for source, target in _CASTS:
                yield _cast(context, source, target, size)

    for row in context.rows(AREA, cases):
        # "At memory speed" is what a copy between warm buffers of that size reaches.
        if not row.fault and row.limit == row.limit:
            row.details["share_of_bandwidth"] = row.limit / row.value
        yield row
