# SPDX-License-Identifier: MIT
"""Single ops: each row of the op table that PyTorch can call, reductions, softmax and losses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from bench.areas.op_table import all_ops
from bench.context import Context
from bench.core import Case, Goal, Row, area, mean_row, size_name
from bench.inputs import Op

_PARITY, _TWICE = Goal(0.95), Goal(2.0)  # no op may lose
_DOUBLED = (("add", 10_000_000), ("gelu", 10_000), ("mse_loss", 10_000), ("softmax", 10_000))
# Ops whose geometric mean the targets bound.
_TARGET_OPS = "add mul div relu sigmoid tanh gelu exp softmax sum mean mse_loss"
# Ops measured in other dtypes too, and those dtypes.
_MORE_DTYPES = {
    torch.bfloat16: "add mul relu exp gelu sigmoid sum softmax",
    torch.float64: "add mul exp tanh sum",
    torch.int64: "add mul maximum eq sum",
}
_MORE_SIZES = (10_000, 1_000_000)
_EVERY_OP_SIZE = 10_000  # where every op is measured even in a run that is not whole
_ORACLE_MOST = 100_000


def make_case(
    context: Context, name: str, op: Op, size: int, dtype: torch.dtype = torch.float32
) -> Case:
    """Return the comparison of one op at one size."""
    plain = dtype == torch.float32
    return op.case(
        context,
        name,
        size,
        dtype,
        oracle=partial(op.oracle, context, size) if size <= _ORACLE_MOST and plain else None,
        # Sums may cancel: their absolute error grows with what was added up.
        tolerance=(1e-4, 2e-6 * size**0.5) if op.result != "n" and plain else None,
        bytes=op.bytes(size, dtype),
        goal=_TWICE if plain and (name, size) in _DOUBLED else _PARITY,
        group=name,
    )


def summarize(rows: list[Row]) -> Iterator[Row]:
    """Yield geometric means for the ops of the target and over all rows."""

    def mean(name: str, among: list[Row], goal: Goal | None = None) -> Row:
        return mean_row(f"{name}, {len(among)} rows", [r.ratio for r in among], goal=goal)

    target = [r for r in rows if r.name in _TARGET_OPS.split() and r.dtype == "float32"]
    if target:
        bound = Goal(2.0, source="targets: single ops")
        yield mean("geometric mean of " + _TARGET_OPS, target, bound)
    yield mean("geometric mean of all", rows)
    for size in sorted({r.size for r in rows}):
        yield mean(f"geometric mean at {size_name(size)}", [r for r in rows if r.size == size])
    worst = min(rows, key=lambda r: r.ratio)
    name = f"least ratio: {worst.name} at {size_name(worst.size)}"
    yield Row("", name, 1.0, worst.ratio, unit="x", goal=_PARITY)


@area(
    "single",
    "Single ops: float32 at 1K to 10M elements, and a few in other dtypes",
    seconds=48,
    summarize=summarize,
)
def cases(context: Context) -> Iterator[Case]:
    ops, target = all_ops(), _TARGET_OPS.split()
    if context.quick:
        ops = {name: ops[name] for name in target}
    for size in context.sizes:
        for name, op in ops.items():
            if context.whole or name in target or size == _EVERY_OP_SIZE:
                yield make_case(context, name, op, size)
    for dtype, names in _MORE_DTYPES.items() if context.whole else ():
        for size in sorted({*_MORE_SIZES} & {*context.sizes}):
            for name in [n for n in names.split() if n in ops]:
                yield make_case(context, name, ops[name], size, dtype)
