# SPDX-License-Identifier: MIT
"""Planning: what one op of a circuit costs before it runs, in circuits of 10 to 10,000 ops."""

from __future__ import annotations

from collections.abc import Iterator

from bench import native
from bench.context import Context, first_line
from bench.core import Goal, Row, Spread, Unavailable, area

AREA = "planning"
# As native/planning.cc numbers them.
_SHAPES = ["a chain", "writes that overlap", "writes nobody sees", "one value that all read"]
_OPS = [10, 100, 1_000, 10_000]
# Ops planned a measurement: enough of them to be slow beside the clock.
_PLANNED = 20_000
_MOST = 10e-6


def _row(context: Context, name: str, shape: int, ops: int) -> Row:
    """Time native/planning.cc; nothing in PyTorch compares."""
    row = Row(AREA, name, size=ops, threads=context.threads[0])
    try:
        seconds = native.per_call(
            "planning.cc", "hologram_bench_planning", 4 * ops + shape, max(1, _PLANNED // ops)
        )
    except Unavailable as error:
        row.note = f"not measured: {first_line(error)}"
        return row
    if min(seconds) < 0:
        row.fault = "an op was not recorded"
        return row
    row.spread = Spread.of(seconds)
    row.value, row.goal = row.spread.median, Goal(_MOST, "most")
    return row


@area(AREA, "Planning: time an op of a circuit by its number of ops and what they share")
def measure(context: Context) -> Iterator[Row]:
    for shape, text in enumerate(_SHAPES):
        for ops in _OPS:
            name = f"planning an op of {ops:,}: {text}"
            if context.wants(name):
                yield context.done(_row(context, name, shape, ops))
