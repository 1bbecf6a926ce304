# SPDX-License-Identifier: MIT
"""Operation reduction: kernels run of the ops recorded, bytes moved of those the ops ask for.

With ``--all`` also those of the models that `models` and `runtimes` measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench.areas import inference, runtimes, small_models
from bench.areas.chains import CHAINS, Chain
from bench.context import Context, outputs_of
from bench.core import Case, Goal, Row, Side, Work, area
from bench.models import inference_work
from bench.training import digits_mlp, gpt_shape, parameters_alone, step_work

_SIZE = 10_000
# 75% fewer kernels than ops; two or three ops, and fused optimizers, leave less to save.
_QUARTER = Goal(4.0)


def recorder_stats() -> dict[str, int] | None:
    """Return what the device has recorded and run so far; None where it does not say."""
    import hologram_torch

    # The module may be absent where loading it failed, the function where execution is immediate.
    read: Callable[[], dict[str, int]] | None = getattr(hologram_torch._C, "recorder_stats", None)
    return dict(read()) if read else None


def _chain(context: Context, chain: Chain, side: Side) -> Work:
    tensors = chain.op.sets(context, side.device, _SIZE, count=1)[0]
    return Work(lambda: chain.function(*tensors))


def _programs(context: Context) -> Iterator[tuple[str, Callable[[Side], Work], Goal | None]]:
    """Yield programs whose ops are counted; elementwise ones and training have a goal."""
    for chain in CHAINS:
        goal = None if chain.kernel == "swiglu" else _QUARTER
        yield chain.name, partial(_chain, context, chain), goal
    mlp, gpt, alone = digits_mlp(), gpt_shape(), parameters_alone()
    adam = f"{mlp.name}, train step with Adam"
    yield adam, partial(step_work, training=mlp), _QUARTER
    yield f"{adam}, fused", partial(step_work, training=mlp, fused=True), None
    yield f"{gpt.name}, train step with AdamW", partial(step_work, training=gpt), _QUARTER
    yield f"{alone.name}, AdamW", partial(step_work, training=alone), _QUARTER
    for name, work in inference.questions(context):
        yield name, work, None
    if not context.everything:
        return
    for name, model in small_models.MODELS.items():
        yield f"{name}, inference", partial(inference_work, model), None
        yield f"{name}, train step with AdamW", partial(small_models.training_work, model), None
    for name, made in runtimes.MODELS.items():
        yield f"{name}, inference", partial(inference_work, made, steps=1), None


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
@area(
    "reduction",
    "Operation reduction: kernels run / ops recorded, in a steady state",
    seconds=10,
    once="first",
)
def cases(context: Context) -> Iterator[Case]:
    if context.side.device.type != "hologram" or recorder_stats() is None:
        note = "the device counts nothing: it runs every op at its call"
        yield Case("no counters", measure=lambda row: None, unit="ops", note=note)
        return
    for name, build, goal in _programs(context):
        yield Case(name, measure=partial(_count, context, build), unit="ops", goal=goal)
