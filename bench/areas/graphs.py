# SPDX-License-Identifier: MIT
"""Training steps captured as a graph and replayed, beside the default step on cpu."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from bench.architectures import TOLERANCE
from bench.context import Context
from bench.core import Case, Goal, Side, Unavailable, Work, area
from bench.training import Training, digits_mlp, gpt_shape, start

_STEPS = 16  # before the program waits
_WARM_UP = 3


def graph_work(training: Training, side: Side) -> Work:
    """Return steps on one batch as work: replays on the device, default steps on cpu.

    Compared are the losses of the first steps.
    """
    captures = side.device.type != "cpu"
    if captures and not hasattr(torch.accelerator, "Graph"):
        raise Unavailable("this PyTorch has no torch.accelerator.Graph")

    def begin() -> Callable[[], Tensor]:
        options = {"capturable": True, "fused": True} if captures else {}
        step = start(side, replace(training, batches=training.batches[:1]), **options)[1]
        for _ in range(_WARM_UP):
            step()
        if not captures:
            return lambda: step().detach()
        graph = torch.accelerator.Graph()
        with graph:
            result = step().detach()

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay

    step = begin()

    def outputs() -> list[Tensor]:
        fresh = begin()
        return [fresh().clone() for _ in range(4)]

    return Work(lambda: [[step() for _ in range(_STEPS)][-1]], _STEPS, outputs)


@area("graphs", "Training steps captured as a graph and replayed", seconds=6)
def cases(context: Context) -> Iterator[Case]:
    for training, goal in ((digits_mlp(), 4.0), (gpt_shape(), 2.0)):
        yield Case(
            f"{training.name}, {training.optimizer.__name__}, replayed; cpu, default",
            lambda side, training=training: graph_work(training, side),
            tolerance=TOLERANCE,
            goal=Goal(goal),
        )
