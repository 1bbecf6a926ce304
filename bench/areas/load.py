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

from bench.areas.op_table import all_ops
from bench.areas.single_ops import make_case
from bench.context import Context
from bench.core import Case, Goal, Row, Side, Work, area
from bench.inputs import Op
from bench.machine import BusyCores
from bench.measure import mean_time
from bench.render import label
from bench.training import digits_mlp, start, step_work

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


def summarize(rows: list[Row]) -> Iterator[Row]:
    """Yield the worst slowdown of either side."""
    rows = [r for r in rows if r.unit == "x"]
    if rows:
        worst, theirs = (max(rows, key=key) for key in (lambda r: r.value, lambda r: r.reference))
        name = f"worst slowdown of {len(rows)} rows: {label(worst)}; of cpu: {label(theirs)}"
        yield Row("", name, worst.value, theirs.reference, unit="x", goal=_GOAL)


@area(
    "load",
    "Under load: slowdown while a busy process runs on every core of the setting",
    seconds=16,
    summarize=summarize,
)
def cases(context: Context) -> Iterator[Case]:
    cores = context.resources.enter_context(BusyCores())
    mlp = digits_mlp()

    def case(name: str, size: int, build: Callable[[Side], Work] | None) -> Case:
        measure = partial(_slow_down, context, cores, build)
        return Case(name, measure=measure, unit="x", size=size, goal=_GOAL, group=name)

    for name in ("add", "softmax") if context.quick else _OPS.split():
        for size in _SIZES if context.everything else _CHOSEN_SIZES:
            yield case(name, size, make_case(context, name, all_ops()[name], size).build)
    product = Op("a @ b", "a:normal:nxn b:normal:nxn", "nxn")
    for size in (256,) if context.quick else (256, 512):
        yield case("matmul", size, product.case(context, "matmul", size).build)
    yield case("MLP train step", 0, lambda side: step_work(side, mlp))
    for busy, how in ((0, "in quiet"), (1, "beside a busy process")):
        name = f"MLP train steps over {_SLOW:g} times the median, {how}"
        yield Case(name, measure=partial(_count_slow, context, cores, busy), unit="%")


def _slow_down(context: Context, cores: BusyCores, build: Callable[[Side], Work], row: Row) -> None:
    """Time both sides in quiet, then beside the busy processes."""
    scale = 0.5 if context.quick or context.budget.spent else 1.0
    works = [(build(side), side) for side in (context.side, context.cpu)]
    quiet = [mean_time(work, side, _QUIET_SECONDS * scale) for work, side in works]
    with cores.busy():
        loaded = [mean_time(work, side, _LOADED_SECONDS * scale) for work, side in works]
    row.value, row.reference = loaded[0] / quiet[0], loaded[1] / quiet[1]
    row.details = {"quiet_seconds": quiet, "loaded_seconds": loaded}


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
