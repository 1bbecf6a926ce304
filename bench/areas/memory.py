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
from bench.context import Context, Job
from bench.core import Goal, Row, Spread, Unavailable, area
from bench.machine import ROOT

AREA = "memory"
_TRAINING = Goal(1.0)
_CHAIN = Goal(2.0)
# Allocators and the interpreter move by some pages; a leak of one byte a step is more than this.
_FLAT = Goal(1e6, "most")
_LEAST_SECONDS = 5.0  # that a child is given


def _run(context: Context, device: str, what: str, threads: int, steps: int = 0) -> dict[str, Any]:
    # A measurement that has no time left is given up, not cut short: its figure would be another.
    left = context.budget.left
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bench.memory_child", device, what, str(threads)]
            + (["--steps", str(steps)] if steps else []),
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
    ours, theirs = [], []
    threads = context.setting.threads
    for _ in range(times):
        ours.append(_run(context, context.device, what, threads, steps))
        theirs.append(_run(context, "cpu", what, threads, steps))
    row.spread = Spread.of([r["bytes"] for r in ours])
    row.reference_spread = Spread.of([r["bytes"] for r in theirs])
    row.value, row.reference = row.spread.median, row.reference_spread.median
    row.details = {"device": ours[-1], "cpu": theirs[-1]}
    if not row.note and "max_memory_allocated" in ours[-1]:
        row.note = f"allocated {ours[-1]['max_memory_allocated'] / 1e6:.1f} MB at most"


def _compare_training(context: Context, what: str, steps: int, row: Row) -> None:
    """Find the growth over training steps; every loss has the same bits again, on all threads."""
    threads = context.setting.threads
    numbers = [*sorted({1, threads}), threads]
    ours = [_run(context, context.device, what, n, steps) for n in numbers]
    theirs = _run(context, "cpu", what, threads, steps)
    losses = [r["losses"] for r in ours]
    if len(set(losses)) > 1:
        raise RuntimeError(f"the losses of {len(ours)} runs differ: checksums {losses}")
    row.spread = Spread.of([r["bytes"] for r in ours])
    row.reference_spread = Spread.of([theirs["bytes"]])
    row.value, row.reference = max(r["bytes"] for r in ours), theirs["bytes"]
    row.details = {"device": ours[-1], "cpu": theirs}
    row.note = f"every loss the same bits in {len(ours)} runs, with {numbers} threads"


def _jobs(context: Context) -> Iterator[Job]:
    # Late: the child's module imports areas.
    from bench.memory_child import BORDERS, CHAINED, GROWN, GROWN_TRAINING, TRAINED

    thorough = context.whole and not context.quick
    times = 3 if thorough else 1
    chains, models = list(CHAINED), list(TRAINED)
    if not thorough:
        chains, models = chains[:2], models[:2]
    if context.quick:
        chains, models = chains[:1], models[:1]
    for what in (*chains, *models):
        goal = _CHAIN if what in CHAINED else _TRAINING
        yield Row(AREA, what, unit="B", goal=goal), partial(_compare, context, what, times, 0)
    note = "shared; the reference copies at each border"
    yield (
        Row(AREA, BORDERS, unit="B", goal=_FLAT, note=note),
        partial(_compare, context, BORDERS, times, 0),
    )
    for what, compare, chosen in (
        (GROWN, partial(_compare, context, GROWN, 1), 50_000),
        (GROWN_TRAINING, partial(_compare_training, context, GROWN_TRAINING), 5_000),
    ):
        steps = 1_000_000 if thorough else chosen // 5 if context.quick else chosen
        yield Row(AREA, f"{what}, {steps:,} of them", unit="B", goal=_FLAT), partial(compare, steps)


@area(AREA, "Memory: resident set added, in a process of its own", once="last")
def measure(context: Context) -> Iterator[Row]:
    yield from context.jobs(_jobs(context))
