# SPDX-License-Identifier: MIT
"""Planning: what one op of a circuit costs before it runs, in circuits of 10 to 10,000 ops."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import native
from bench.context import Context, Job
from bench.core import Goal, Row, Spread, area

AREA = "planning"
# As native/planning.cc numbers them.
_SHAPES = ["a chain", "writes that overlap", "writes nobody sees", "one value that all read"]
_OPS = [10, 100, 1_000, 10_000]
# Ops planned a measurement: enough of them to be slow beside the clock.
_PLANNED = 20_000
_MOST = 10e-6


def _plan(shape: int, row: Row) -> None:
    """Time native/planning.cc; nothing in PyTorch compares."""
    seconds = native.per_call(
        "planning.cc",
        "hologram_bench_planning",
        4 * row.size + shape,
        max(1, _PLANNED // row.size),
    )
    if min(seconds) < 0:
        raise RuntimeError("an op was not recorded")
    row.spread = Spread.of(seconds)
    row.value = row.spread.median


def _jobs() -> Iterator[Job]:
    for shape, text in enumerate(_SHAPES):
        for ops in _OPS:
            name = f"planning an op of {ops:,}: {text}"
            row = Row(AREA, name, size=ops, goal=Goal(_MOST, "most"))
            yield row, partial(_plan, shape)


@area(
    AREA,
    "Planning: time an op of a circuit by its number of ops and what they share",
    once="first",
)
def measure(context: Context) -> Iterator[Row]:
    yield from context.jobs(_jobs())
