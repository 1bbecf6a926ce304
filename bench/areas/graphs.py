# SPDX-License-Identifier: MIT
"""Training steps captured as a graph and replayed, beside the default step on cpu."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from bench.areas.training import Training, digits_mlp, gpt_shape
from bench.context import Context
from bench.core import Case, Goal, Row, Side, Unavailable, Work, area

AREA = "graphs"
_TOLERANCE = (2e-3, 2e-3)
_STEPS = 16  # before the program waits
_WARM_UP = 3


def graph_work(training: Training, side: Side) -> Work:
    """Return steps on one batch as work: replays on the device, default steps on cpu.

    Compared are the losses of the first steps.
    """
    captures = side.device.type != "cpu"
    if captures and not hasattr(torch.accelerator, "Graph"):
        raise Unavailable("this PyTorch has no torch.accelerator.Graph")

    def start() -> Callable[[], Tensor]:
        model = training.make().to(side.device)
        x, y = (t.to(side.device) for t in training.batches[0])
        options = {"capturable": True, "fused": True} if captures else {}
        optimizer = training.optimizer(model.parameters(), lr=1e-3, **options)  # type: ignore[call-arg]

        def step() -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = training.loss(model, x, y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        for _ in range(_WARM_UP):
            step()
        if not captures:
            return step
        graph = torch.accelerator.Graph()
        with graph:
            result = step()

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay

    step = start()

    def run() -> list[Tensor]:
        return [[step() for _ in range(_STEPS)][-1]]

    def outputs() -> list[Tensor]:
        fresh = start()
        return [fresh().clone() for _ in range(4)]

    return Work(run, _STEPS, outputs)


@area(AREA, "Training steps captured as a graph and replayed")
def measure(context: Context) -> Iterator[Row]:
    def cases() -> Iterator[Case]:
        for training, goal in ((digits_mlp(), 4.0), (gpt_shape(), 2.0)):
            yield Case(
                f"{training.name}, {training.optimizer.__name__}, replayed; cpu, default",
                lambda side, training=training: graph_work(training, side),
                tolerance=_TOLERANCE,
                goal=Goal(goal),
            )

    yield from context.rows(AREA, cases)
