# SPDX-License-Identifier: MIT
"""Operation reduction: kernels run of the ops recorded, bytes moved of those the ops ask for.

With ``--all`` also those of the models that `models` and `runtimes` measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench.areas import runtimes, small_models
from bench.areas.chains import CHAINS, Builder
from bench.areas.inference import QUESTIONS, question_work
from bench.areas.training import digits_mlp, gpt_shape, optimizer_work, step_work
from bench.context import Context, outputs_of
from bench.core import Goal, Row, Side, Work, area

AREA = "reduction"
_SIZE = 10_000
# 75% fewer kernels than ops; two or three ops, and fused optimizers, leave less to save.
_QUARTER = Goal(4.0)


def recorder_stats() -> dict[str, int] | None:
    """Return what the device has recorded and run so far; None where it does not say."""
    import hologram_torch

    # The module may be absent where loading it failed, the function where execution is immediate.
    read: Callable[[], dict[str, int]] | None = getattr(hologram_torch._C, "recorder_stats", None)
    return dict(read()) if read else None


def _chain(context: Context, index: int) -> Callable[[Side], Work]:
    builder = Builder(context, CHAINS[index], _SIZE)
    operands = builder.operands

    def build(side: Side) -> Work:
        tensors = operands.of(side.device, 0)
        return Work(lambda: CHAINS[index].function(*tensors))

    return build


def _programs(context: Context) -> Iterator[tuple[str, Callable[[Side], Work], Goal | None]]:
    """Yield programs whose ops are counted; elementwise ones and training have a goal."""
    for index, chain in enumerate(CHAINS):
        yield chain.name, _chain(context, index), None if chain.kernel == "swiglu" else _QUARTER
    mlp, gpt = digits_mlp(), gpt_shape()
    for options in ({}, {"fused": True}):
        suffix = ", fused" if options else ""
        yield (
            f"{mlp.name}, train step with Adam{suffix}",
            lambda side, o=options: step_work(side, mlp, **o),
            None if options else _QUARTER,
        )
    yield f"{gpt.name}, train step with AdamW", lambda side: step_work(side, gpt), _QUARTER
    yield (
        "50 x 64K parameters, AdamW",
        lambda side: optimizer_work(side, 50, 65536),
        _QUARTER,
    )
    for question in QUESTIONS:
        if question.quick or not context.quick:
            yield question.name, lambda side, q=question: question_work(q, side), None
    if not context.whole or context.quick:
        return
    for name, make in small_models.MODELS.items():
        for kind, work in (
            ("inference", small_models.inference_work),
            ("train step with AdamW", small_models.training_work),
        ):
            yield f"{name}, {kind}", lambda side, m=make, w=work: w(m, side), None
    for name, made in runtimes.MODELS.items():
        yield f"{name}, inference", lambda side, m=made: runtimes.eager_work(m, side), None


def count(work: Work, side: Side) -> dict[str, int]:
    """Return what one run of the work adds to the counters, once its plans are there."""
    for _ in range(3):
        work.run()
        side.synchronize()
    before = recorder_stats() or {}
    kept: Any = work.run()
    side.synchronize()
    after = recorder_stats() or {}
    del kept
    return {name: after[name] - before.get(name, 0) for name in after}


def _count(context: Context, build: Callable[[Side], Work], row: Row) -> None:
    work = build(context.side)
    outputs_of(work)
    counted = count(work, context.side)
    ops, kernels = counted["ops_recorded"], counted["kernels"]
    row.details = counted
    if not ops:
        row.goal, row.note = None, "nothing was recorded: every op ran at its call"
        return
    row.value, row.reference = kernels / work.ops, ops / work.ops
    row.note = f"{1 - kernels / ops:.0%} fewer kernels than ops"
    unfused = counted.get("bytes_unfused", 0)
    if unfused:
        share = counted["bytes_moved"] / unfused
        moved = counted["bytes_moved"] / work.ops / 1e6
        row.note += f", {moved:.1f} MB moved: {1 - share:.0%} fewer"


# On one core no worker cuts circuits short, so that the counts are the same in every run.
@area(AREA, "Operation reduction: kernels run / ops recorded, in a steady state", once="first")
def measure(context: Context) -> Iterator[Row]:
    if context.side.device.type != "hologram" or recorder_stats() is None:
        note = "the device counts nothing: it runs every op at its call"
        yield context.done(Row(AREA, "no counters", unit="ops", note=note))
        return
    yield from context.jobs(
        (Row(AREA, name, unit="ops", goal=goal), partial(_count, context, build))
        for name, build, goal in _programs(context)
    )
