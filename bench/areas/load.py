# SPDX-License-Identifier: MIT
"""Under load: how much slower ops become while another process keeps every core busy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from bench.areas.op_table import Op, all_ops
from bench.areas.single_ops import make_case
from bench.areas.training import digits_mlp, step_work
from bench.context import Context, faults_of
from bench.core import Goal, Row, Side, Work, area
from bench.machine import busy_cores
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


def _matmul(context: Context, size: int) -> Callable[[Side], Work]:
    def build(side: Side) -> Work:
        a = context.inputs.get("normal", torch.float32, (size, size), 0, side.device)
        b = context.inputs.get("normal", torch.float32, (size, size), 1, side.device)
        return Work(lambda: a @ b)

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
    """Return the worst slowdown of either side, by number of threads."""
    found = []
    good = [r for r in rows if not r.fault]
    for threads in sorted({r.threads for r in good}):
        here = [r for r in good if r.threads == threads]
        worst = max(here, key=lambda r: r.value)
        worst_reference = max(here, key=lambda r: r.reference)
        found.append(
            Row(
                AREA,
                f"worst slowdown: {label(worst)}; of cpu: {label(worst_reference)}",
                worst.value,
                worst_reference.reference,
                unit="x",
                threads=threads,
                goal=_GOAL,
            )
        )
    return found


@area(AREA, "Under load: slowdown while a busy process runs on every core", summarize)
def measure(context: Context) -> Iterator[Row]:
    scale = 0.5 if context.quick else 1.0
    for threads in context.threads:
        torch.set_num_threads(threads)
        rows: dict[tuple[str, int], Row] = {}
        works: dict[tuple[str, int], tuple[Work, Work]] = {}
        quiet: dict[tuple[str, int], tuple[float, float]] = {}
        for (name, size), build in _works(context).items():
            row = Row(AREA, name, unit="x", size=size, threads=threads, goal=_GOAL, group=name)
            rows[name, size] = row
            with faults_of(row):
                works[name, size] = build(context.side), build(context.cpu)
                quiet[name, size] = _means(context, works[name, size], _QUIET_SECONDS * scale)
        with busy_cores():
            for key, pair in works.items():
                if rows[key].fault:
                    continue
                with faults_of(rows[key]):
                    loaded = _means(context, pair, _LOADED_SECONDS * scale)
                    rows[key].value = loaded[0] / quiet[key][0]
                    rows[key].reference = loaded[1] / quiet[key][1]
                    rows[key].details = {"quiet_seconds": quiet[key], "loaded_seconds": loaded}
        context.inputs.clear()
        for row in rows.values():
            yield context.done(row)


def _means(context: Context, works: tuple[Work, Work], seconds: float) -> tuple[float, float]:
    return (
        mean_time(works[0], context.side, seconds),
        mean_time(works[1], context.cpu, seconds),
    )
