# SPDX-License-Identifier: MIT
"""Call overhead: what one small call costs from Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from bench.context import Context
from bench.core import Case, Goal, Row, Side, Work, area
from bench.inputs import expression_work

AREA = "overhead"
# Medians of equal work differ by a few percent.
_NO_SLOWER = Goal(0.95, source="targets: no slower")
_PARITY = Goal(0.95)
_FAST = Goal(1 / 0.6, source="targets: at most 0.6x the time")

# Name, expression, names of its operands, goal. Operands: x y z normal, s tiny, all of 16 elements.
_CALLS: list[tuple[str, str, str, Goal]] = [
    ("x + y", "x + y", "x y", _FAST),
    ("x * 2.0", "x * 2.0", "x", _PARITY),
    ("x + 1", "x + 1", "x", _PARITY),
    ("x.add_(s)", "x.add_(s)", "x s", _PARITY),
    ("torch.add(x, y, out=z)", "torch.add(x, y, out=z)", "x y z", _PARITY),
    ("torch.relu(x)", "torch.relu(x)", "x", _PARITY),
    ("x.sum()", "x.sum()", "x", _PARITY),
    ("x.clone()", "x.clone()", "x", _PARITY),
    ("x.zero_()", "z.zero_()", "z", _PARITY),
    ("x.view(4, 4)", "x.view(4, 4)", "x", _NO_SLOWER),
    ("x[0]", "x[0]", "x", _NO_SLOWER),
    ("x[2:8]", "x[2:8]", "x", _NO_SLOWER),
    ("x.t() of 4 x 4", "m.t()", "m", _NO_SLOWER),
    ("x.detach()", "x.detach()", "x", _NO_SLOWER),
    ("torch.empty_like(x)", "torch.empty_like(x)", "x", _NO_SLOWER),
    ("x.new_empty(16)", "x.new_empty(16)", "x", _NO_SLOWER),
]
_UNSPECIFIED = ("empty",)


def _case(context: Context, name: str, expression: str, names: Sequence[str], goal: Goal) -> Case:
    def build(side: Side) -> Work:
        def operand(letter: str, number: int) -> torch.Tensor:
            kind = "small" if letter == "s" else "normal"
            shape = (4, 4) if letter == "m" else (16,)
            tensor = context.inputs.get(
                kind, torch.float32, shape, number * 4 + ord(letter) % 4, side.device
            )
            # Operands that are written must be this side's own.
            return tensor.clone() if letter == "z" or "_(" in expression else tensor

        sets = [[operand(letter, n) for letter in names] for n in range(64)]
        work = expression_work(expression, names, sets, side, 64)
        if any(word in expression for word in _UNSPECIFIED):
            work.outputs = _shape_of(work)
        return work

    return Case(name, build, size=16, goal=goal, min_time=0.4)


def _shape_of(work: Work) -> Any:
    """Compare dtype and shape of memory whose contents are unspecified."""
    compute = work.outputs
    assert compute is not None
    return lambda: torch.zeros_like(compute(), device="cpu")


def _empty(name: str, on_device: str, on_cpu: str, goal: Goal) -> Case:
    def build(side: Side, expression: str) -> Work:
        work = expression_work(expression, [], [[]] * 64, side, 64, {"name": str(side.device)})
        work.outputs = _shape_of(work)
        return work

    return Case(
        name,
        lambda side: build(side, on_device),
        peer=lambda side: build(side, on_cpu),
        size=16,
        goal=goal,
        min_time=0.4,
    )


@area(AREA, "Call overhead: one call on 16 elements from Python")
def measure(context: Context) -> Iterator[Row]:
    def cases() -> Iterator[Case]:
        for name, expression, names, goal in _CALLS:
            yield _case(context, name, expression, names.split(), goal)
        yield _empty(
            "torch.empty(16, device=name)",
            "torch.empty(16, device=name)",
            "torch.empty(16, device=name)",
            _NO_SLOWER,
        )
        yield _empty(
            "torch.empty(16, device=name), cpu without device=",
            "torch.empty(16, device=name)",
            "torch.empty(16)",
            _NO_SLOWER,
        )
        yield _empty(
            "torch.zeros(16, device=name)",
            "torch.zeros(16, device=name)",
            "torch.zeros(16, device=name)",
            _NO_SLOWER,
        )

    yield from context.rows(AREA, cases)
