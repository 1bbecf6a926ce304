# SPDX-License-Identifier: MIT
"""Call overhead: what one small call costs from Python."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bench.context import Context
from bench.core import Case, Goal, Side, Work, area
from bench.inputs import Op

# Medians of equal work differ by a few percent.
_NO_SLOWER = Goal(0.95, source="targets: no slower")
_PARITY = Goal(0.95)
_FAST = Goal(1 / 0.6, source="targets: at most 0.6x the time")

# Expression, its operands of 16 elements, goal; a name or cpu's expression where they differ.
_EMPTY = "torch.empty(16, device=name)"
_CALLS: list[tuple[str, str, Goal, str, str]] = [
    ("x + y", "x y", _FAST, "", ""),
    ("x * 2.0", "x", _PARITY, "", ""),
    ("x + 1", "x", _PARITY, "", ""),
    ("x.add_(s)", "!x s:small", _PARITY, "", ""),
    ("torch.add(x, y, out=z)", "x y !z", _PARITY, "", ""),
    ("torch.relu(x)", "x", _PARITY, "", ""),
    ("x.sum()", "x", _PARITY, "", ""),
    ("x.clone()", "x", _PARITY, "", ""),
    ("x.zero_()", "!x", _PARITY, "", ""),
    ("x.view(4, 4)", "x", _NO_SLOWER, "", ""),
    ("x[0]", "x", _NO_SLOWER, "", ""),
    ("x[2:8]", "x", _NO_SLOWER, "", ""),
    ("x.t()", "x:normal:4x4", _NO_SLOWER, "x.t() of 4 x 4", ""),
    ("x.detach()", "x", _NO_SLOWER, "", ""),
    ("torch.empty_like(x)", "x", _NO_SLOWER, "", ""),
    ("x.new_empty(16)", "x", _NO_SLOWER, "", ""),
    (_EMPTY, "", _NO_SLOWER, "", _EMPTY),
    (_EMPTY, "", _NO_SLOWER, f"{_EMPTY}, cpu without device=", "torch.empty(16)"),
    ("torch.zeros(16, device=name)", "", _NO_SLOWER, "", "torch.zeros(16, device=name)"),
]


@area("overhead", "Call overhead: one call on 16 elements from Python", seconds=14)
def cases(context: Context) -> Iterator[Case]:
    for expression, operands, goal, name, theirs in _CALLS:
        op = Op(expression, operands, theirs=theirs)

        def work(side: Side, peer: bool = False, op: Op = op) -> Work:
            made = op.work(context, side, 16, theirs=peer, count=64, name=str(side.device))
            if "empty" in op.expression:
                # The contents are unspecified: dtype and shape are compared.
                one = made.one or made.run
                made.outputs = lambda: torch.zeros_like(one(), device="cpu")
            return made

        yield Case(
            name or expression,
            work,
            peer=(lambda side, work=work: work(side, True)) if theirs else None,
            size=16,
            goal=goal,
            min_time=0.4,
        )
