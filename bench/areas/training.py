# SPDX-License-Identifier: MIT
"""Training steps: an MLP, a GPT, a small CNN, optimizers alone, beside the default step on cpu.

As in a program that logs now and then, several steps follow one another before it waits until the
losses of all exist; rows that say so read the loss after every step. Before they are timed the
loss curves of bench/rounding.py are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from bench import peers
from bench.context import Context
from bench.core import Case, Goal, Peer, Row, Side, Work, area
from bench.training import (
    Training,
    comparison,
    digits_cnn,
    digits_mlp,
    gpt_shape,
    parameters_alone,
    start,
    step_work,
)

# Steps before the program waits; fewer where a step takes longer.
_STEPS, _FEW_STEPS = 32, 8
_DEFAULT, _FOREACH, _FUSED = "default", "foreach=True", "fused=True"
_OPTIONS: dict[str, dict[str, bool]] = {
    _DEFAULT: {},
    _FOREACH: {"foreach": True},
    _FUSED: {"fused": True},
}


def _case(
    context: Context,
    training: Training,
    ours: str = _DEFAULT,
    theirs: str = _DEFAULT,
    steps: int = _FEW_STEPS,
    compiles: bool = False,
    reads: bool = False,
    **more: Any,
) -> Case:
    """Return the comparison of steps by optimizers of these options on the device and on cpu."""
    checks = {name: comparison(training, **_OPTIONS[name]) for name in (ours, theirs)}

    def work(options: str, side: Side, compiled: bool = False) -> Work:
        return step_work(side, training, compiled, reads, steps, **_OPTIONS[options])

    def compiled() -> tuple[Work, Side]:
        return work(theirs, context.cpu, True), context.cpu

    name = f"{training.name}, {training.optimizer.__name__}, {ours}; cpu, {theirs}"
    return Case(
        name + (", reading every loss" if reads else ""),
        lambda side: work(ours, side),
        peer=lambda side: work(theirs, side),
        check=lambda found, side: checks[ours if side == context.side else theirs](found, side),
        min_time=1.0,
        peers=[Peer(peers.COMPILE, compiled, is_costly=True)] if compiles else (),
        **more,
    )


def autocast_case(training: Training) -> Case:
    """Return the comparison of steps under bfloat16 autocast; losses are compared, not weights.

    Adam makes steps of one size out of gradients of which bfloat16 leaves three digits.
    """

    def work(side: Side) -> Work:
        def steps(count: int) -> list[Tensor]:
            step = start(side, training, autocast=True)[1]
            return [step().detach() for _ in range(count)]

        step = start(side, training, autocast=True)[1]
        checked = training.checked_steps
        return Work(lambda: [step() for _ in range(_FEW_STEPS)], _FEW_STEPS, lambda: steps(checked))

    name = f"bfloat16 autocast, {training.name}, {training.optimizer.__name__}"
    return Case(name, work, tolerance=(1e-3, 0.0), goal=Goal(1.5), min_time=1.0)


def summarize(rows: list[Row]) -> Iterator[Row]:
    """Yield what the targets say about torch.compile."""
    for row in rows:
        figure = row.peers.get(peers.COMPILE)
        if figure is not None and figure.spread is not None:
            name = f"{row.name}, against {peers.COMPILE}"
            goal = Goal(2.0) if row.name.startswith("MLP") else None
            note = f"whose first step took {figure.first_call:.1f} s"
            yield Row("", name, row.value, figure.spread.median, goal=goal, note=note)


@area("training", "Training: one step", seconds=62, summarize=summarize)
def cases(context: Context) -> Iterator[Case]:
    images, text, everything = digits_mlp(), gpt_shape(), context.everything
    pairs = [(_DEFAULT, _DEFAULT), (_FUSED, _DEFAULT)]
    if everything:
        pairs = [(name, _DEFAULT) for name in _OPTIONS] + [(_FOREACH,) * 2, (_FUSED,) * 2]
    for ours, theirs in pairs:
        compiles = ours == theirs == _DEFAULT and not context.quick
        goal = Goal(3.0) if theirs == _DEFAULT else None
        yield _case(context, images, ours, theirs, _STEPS, compiles, goal=goal)
    yield _case(context, images, steps=_STEPS, reads=True)
    yield _case(context, text, compiles=everything, goal=Goal(2.0))
    if not context.quick:
        yield autocast_case(text)
    pairs = [(_DEFAULT, _FOREACH), (_FUSED, _FOREACH)]
    if everything:
        pairs = [(ours, theirs) for theirs in _OPTIONS for ours in _OPTIONS]
    for ours, theirs in pairs:
        # Reads gradient, weight and two moments; writes the last three.
        moved, goal = 50 * 65536 * 4 * 7, Goal(4.0) if theirs == _FOREACH else None
        yield _case(context, parameters_alone(), ours, theirs, bytes=moved, goal=goal)
    if not context.quick:
        # As many as BERT base has: more ops than most circuits.
        yield _case(context, parameters_alone(200, 16384), goal=Goal(4.0))
        yield _case(context, digits_cnn(), steps=_STEPS)
