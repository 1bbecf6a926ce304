# SPDX-License-Identifier: MIT
"""Planning: what one op of a circuit costs before it runs, in circuits of 10 to 10,000 ops."""

from __future__ import annotations

from collections.abc import Iterator

from bench.context import Context
from bench.core import Case, area
from bench.native import timed_case

# As native/planning.cc numbers them.
_SHAPES = ("a chain", "writes that overlap", "writes nobody sees", "one value that all read")
# Ops planned a measurement: enough of them to be slow beside the clock.
_PLANNED = 20_000


@area(
    "planning",
    "Planning: time an op of a circuit by its number of ops and what they share",
    seconds=8,
    once="first",
)
def cases(context: Context) -> Iterator[Case]:
    for shape, text in enumerate(_SHAPES):
        for ops in (10, 100, 1_000, 10_000):
            name, which, rounds = (
                f"planning an op of {ops:,}: {text}",
                4 * ops + shape,
                _PLANNED // ops,
            )
            yield timed_case(name, "planning", which, 10e-6, ops, max(1, rounds))
