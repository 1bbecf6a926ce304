# SPDX-License-Identifier: MIT
"""Under load: how much slower ops become while another process keeps every core busy.

And how often a step takes over ten times the median, with and without one busy process.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial

import torch

from bench.areas.op_table import Op, all_ops
from bench.areas.single_ops import make_case
from bench.areas.training import digits_mlp, start, step_work
from bench.context import Context, Job
from bench.core import Goal, Row, Side, Work, area
from bench.inputs import expression_work
from bench.machine import BusyCores
from bench.measure import mean_time
from bench.render import label

AREA = "load"
_OPS = "add exp gelu sum softmax mse_loss"
_SIZES = (16, 1_000, 10_000, 100_000, 1_000_000)
_CHOSEN_SIZES = (16, 10_000, 1_000_000)
_QUIET_SECONDS = 0.04
# Long enough for many turns of the scheduler, whose slices are some milliseconds.
_LOADED_SECONDS = 0.2
_GOAL = Goal(3.0, "most")
_SLOW = 10.0  # times the median
_TURN = 40  # steps, of which each ends with its loss
_TURNS, _FEW_TURNS, _QUICK_TURNS = 300, 25, 3


def _matmul(context: Context, size: int) -> Callable[[Side], Work]:
    def build(side: Side) -> Work:
        pairs = [
            [
                context.inputs.get(
                    "normal", torch.float32, (size, size), 2 * n + which, side.device
                )
                for which in range(2)
            ]
            for n in range(2)
        ]
        return expression_work("a @ b", ["a", "b"], pairs, side, 4 * size * size)

    return build


def _works(context: Context) -> dict[tuple[str, int], Callable[[Side], Work]]:
    """Return what is measured, by name and size."""
    ops: dict[str, Op] = all_ops()
    names = ["add", "softmax"] if context.quick else _OPS.split()
    sizes = _SIZES if context.whole and not context.quick else _CHOSEN_SIZES
    found: dict[tuple[str, int], Callable[[Side], Work]] = {
        (name, size): make_case(context, name, ops[name], size, torch.float32).build
        for name in names
        for size in sizes
    }
    for size in (256,) if context.quick else (256, 512):
        found["matmul", size] = _matmul(context, size)
    training = digits_mlp()
    found["MLP train step", 0] = lambda side: step_work(side, training)
    return {key: build for key, build in found.items() if context.wants(key[0])}


def summarize(rows: list[Row]) -> list[Row]:
    """Return the worst slowdown of either side, by setting."""
    found = []
    rows = [r for r in rows if r.unit == "x"]
    for setting in sorted({r.setting for r in rows}):
        here = [r for r in rows if r.setting == setting]
        worst = max(here, key=lambda r: r.value)
        worst_reference = max(here, key=lambda r: r.reference)
        found.append(
            Row(
                AREA,
                f"worst slowdown of {len(here)} rows: {label(worst)}; "
                f"of cpu: {label(worst_reference)}",
                worst.value,
                worst_reference.reference,
                unit="x",
                cores=setting.cores,
                threads=setting.threads,
                goal=_GOAL,
            )
        )
    return found


@area(
    AREA, "Under load: slowdown while a busy process runs on every core of the setting", summarize
)
def measure(context: Context) -> Iterator[Row]:
    with BusyCores() as cores:
        jobs: list[Job] = [
            (
                Row(AREA, name, unit="x", size=size, goal=_GOAL, group=name),
                partial(_slow_down, context, cores, build),
            )
            for (name, size), build in _works(context).items()
        ]
        for busy, how in ((0, "in quiet"), (1, "beside a busy process")):
            name = f"MLP train steps over {_SLOW:g} times the median, {how}"
            jobs.append((Row(AREA, name, unit="%"), partial(_count_slow, context, cores, busy)))
        yield from context.jobs(jobs)
    context.inputs.clear()


def _slow_down(context: Context, cores: BusyCores, build: Callable[[Side], Work], row: Row) -> None:
    """Time both sides in quiet, then beside the busy processes."""
    scale = 0.5 if context.quick or context.budget.spent else 1.0
    works = build(context.side), build(context.cpu)
    quiet = _means(context, works, _QUIET_SECONDS * scale)
    with cores.busy():
        loaded = _means(context, works, _LOADED_SECONDS * scale)
    row.value, row.reference = loaded[0] / quiet[0], loaded[1] / quiet[1]
    row.details = {"quiet_seconds": quiet, "loaded_seconds": loaded}


def _means(context: Context, works: tuple[Work, Work], seconds: float) -> tuple[float, float]:
    return (
        mean_time(works[0], context.side, seconds),
        mean_time(works[1], context.cpu, seconds),
    )


def _count_slow(context: Context, cores: BusyCores, busy: int, row: Row) -> None:
    """Train on both sides in turns; write the share of slow steps of each, in percent.

    Threads that a side leaves spinning are part of what the other meets: there is no pause.
    """
    turns = _QUICK_TURNS if context.quick else _TURNS if context.whole else _FEW_TURNS
    steps = [start(side, digits_mlp())[1] for side in (context.side, context.cpu)]
    taken: list[list[float]] = [[], []]
    with cores.busy(busy) if busy else nullcontext():
        for turn in range(turns + 1):
            for step, seconds in zip(steps, taken):
                for _ in range(_TURN):
                    began = time.perf_counter()
                    step().item()
                    if turn:  # the first warms up
                        seconds.append(time.perf_counter() - began)
    medians = [statistics.median(seconds) for seconds in taken]
    row.value, row.reference = (
        100 * sum(s > _SLOW * median for s in seconds) / len(seconds)
        for seconds, median in zip(taken, medians)
    )
    row.goal = Goal(row.reference / 2, "most")
    row.details = {
        "median_seconds": medians,
        "longest_seconds": [max(seconds) for seconds in taken],
        "steps": len(taken[0]),
    }
