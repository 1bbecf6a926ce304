# SPDX-License-Identifier: MIT
"""Memory: what chains and training add to the resident set, each device in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from bench.context import Context, faults_of
from bench.core import Goal, Row, Spread, area
from bench.machine import ROOT

AREA = "memory"
_TRAINING = Goal(1.0)
_CHAIN = Goal(2.0)
# Allocators and the interpreter move by some pages; a leak of one byte a step is more than this.
_FLAT = Goal(1e6, "most")


def _run(device: str, what: str, threads: int, steps: int = 0) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.memory_child", device, what, str(threads)]
        + (["--steps", str(steps)] if steps else []),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["the child failed"])[-1])
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def _row(context: Context, what: str, goal: Goal, times: int, steps: int = 0) -> Row:
    name = f"{what}, {steps:,} of them" if steps else what
    row = Row(AREA, name, unit="B", threads=context.threads[-1], goal=goal)
    with faults_of(row):
        ours, theirs = [], []
        for _ in range(times):
            ours.append(_run(context.device, what, row.threads, steps))
            theirs.append(_run("cpu", what, row.threads, steps))
        row.spread = Spread.of([r["bytes"] for r in ours])
        row.reference_spread = Spread.of([r["bytes"] for r in theirs])
        row.value, row.reference = row.spread.median, row.reference_spread.median
        row.details = {"device": ours[-1], "cpu": theirs[-1]}
        if "max_memory_allocated" in ours[-1]:
            row.note = f"allocated {ours[-1]['max_memory_allocated'] / 1e6:.1f} MB at most"
    return context.done(row)


def _training_row(context: Context, what: str, steps: int) -> Row:
    """Return the growth over training steps; every loss has the same bits again, on all threads."""
    row = Row(AREA, f"{what}, {steps:,} of them", unit="B", goal=_FLAT)
    row.threads = context.threads[-1]
    with faults_of(row):
        numbers = sorted({context.threads[0], row.threads})
        ours = [_run(context.device, what, n, steps) for n in [*numbers, row.threads]]
        theirs = _run("cpu", what, row.threads, steps)
        losses = [r["losses"] for r in ours]
        if len(set(losses)) > 1:
            raise RuntimeError(f"the losses of {len(ours)} runs differ: checksums {losses}")
        row.spread = Spread.of([r["bytes"] for r in ours])
        row.reference_spread = Spread.of([theirs["bytes"]])
        row.value, row.reference = max(r["bytes"] for r in ours), theirs["bytes"]
        row.details = {"device": ours[-1], "cpu": theirs}
        row.note = f"every loss the same bits in {len(ours)} runs, with {numbers} threads"
    return context.done(row)


@area(AREA, "Memory: resident set added, in a process of its own")
def measure(context: Context) -> Iterator[Row]:
    # Late: the child's module imports areas.
    from bench.memory_child import BORDERS, CHAINED, GROWN, GROWN_TRAINING, TRAINED

    times = 3 if context.whole and not context.quick else 1
    chains, models = list(CHAINED), list(TRAINED)
    if times == 1:
        chains, models = chains[:2], models[:2]
    if context.quick:
        chains, models = chains[:1], models[:1]
    for what in (*chains, *models):
        if context.wants(what):
            yield _row(context, what, _CHAIN if what in CHAINED else _TRAINING, times)
    if context.wants(BORDERS):
        row = _row(context, BORDERS, _FLAT, times)
        row.note = "shared; the reference copies at each border"
        yield row
    if context.wants(GROWN):
        steps = 1_000_000 if times == 3 else 10_000 if context.quick else 200_000
        yield _row(context, GROWN, _FLAT, 1, steps)
    if context.wants(GROWN_TRAINING):
        steps = 1_000_000 if times == 3 else 1_000 if context.quick else 50_000
        yield _training_row(context, GROWN_TRAINING, steps)
