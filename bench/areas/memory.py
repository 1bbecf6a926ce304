# SPDX-License-Identifier: MIT
"""Memory: what chains and training add to the resident set, each device in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.budget import BUDGET
from bench.context import Context
from bench.core import Case, Goal, Row, Spread, Unavailable, area
from bench.machine import ROOT
from bench.memory_child import BORDERS, CHAINED, GROWN, GROWN_TRAINING, TRAINED

_TRAINING, _CHAIN = Goal(1.0), Goal(2.0)
# Allocators and the interpreter move by some pages; a leak of one byte a step is more than this.
_FLAT = Goal(1e6, "most")
_LEAST_SECONDS = 5.0  # that a child is given


def _run(context: Context, device: str, what: str, threads: int, steps: int) -> dict[str, Any]:
    # A measurement that has no time left is given up, not cut short: its figure would be another.
    left = context.budget.left
    given = [device, what, str(threads), str(steps)]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bench.memory_child", *given],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=None if left == float("inf") else max(_LEAST_SECONDS, left),
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(BUDGET) from error
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["the child failed"])[-1])
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def _compare(context: Context, what: str, times: int, steps: int, row: Row) -> None:
    """Compare figures; losses, where there are any, have the same bits again on all threads."""
    threads = context.setting.threads
    trains = what == GROWN_TRAINING
    numbers = [*sorted({1, threads}), threads] if trains else [threads] * times
    ours, theirs = [], []
    for number in numbers:
        ours.append(_run(context, context.device, what, number, steps))
        if len(theirs) < times:
            theirs.append(_run(context, "cpu", what, threads, steps))
    losses = [r.get("losses") for r in ours]
    if len(set(losses)) > 1:
        raise RuntimeError(f"the losses of {len(ours)} runs differ: checksums {losses}")
    row.spread = Spread.of([r["bytes"] for r in ours])
    row.reference_spread = Spread.of([r["bytes"] for r in theirs])
    row.value, row.reference = row.spread.median, row.reference_spread.median
    row.details = {"device": ours[-1], "cpu": theirs[-1]}
    if trains:
        row.value = max(r["bytes"] for r in ours)
        row.note = f"every loss the same bits in {len(ours)} runs, with {numbers} threads"
    elif not row.note and "max_memory_allocated" in ours[-1]:
        row.note = f"allocated {ours[-1]['max_memory_allocated'] / 1e6:.1f} MB at most"


@area("memory", "Memory: resident set added, in a process of its own", seconds=45, once="last")
def cases(context: Context) -> Iterator[Case]:
    thorough = context.everything
    times, shown = (3, None) if thorough else (1, 1 if context.quick else 2)

    def case(what: str, goal: Goal, times: int = 1, steps: int = 0, note: str = "") -> Case:
        name = f"{what}, {steps:,} of them" if steps else what
        measure = partial(_compare, context, what, times, steps)
        return Case(name, measure=measure, unit="B", goal=goal, note=note)

    for chosen, goal in ((CHAINED, _CHAIN), (TRAINED, _TRAINING)):
        for what in list(chosen)[:shown]:
            yield case(what, goal, times)
    yield case(BORDERS, _FLAT, times, note="shared; the reference copies at each border")
    for what, some in ((GROWN, 50_000), (GROWN_TRAINING, 5_000)):
        steps = 1_000_000 if thorough else some // 5 if context.quick else some
        yield case(what, _FLAT, steps=steps)
