# SPDX-License-Identifier: MIT
"""Training steps captured as a graph and replayed, beside the default step on cpu."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench import models
from bench.context import Context
from bench.core import Case, Goal, Row, Side, Unavailable, Work, area

AREA = "graphs"
_TOLERANCE = (2e-3, 2e-3)
_STEPS = 16  # before the program waits
_WARM_UP = 3

Step = Callable[[], Tensor]
Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def _classify(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def _predict(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def _mlp() -> tuple[nn.Module, Tensor, Tensor]:
    layers = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    return layers, torch.rand(32, 784), torch.randint(0, 10, (32,))


def _gpt() -> tuple[nn.Module, Tensor, Tensor]:
    text = torch.randint(0, 1024, (8, 65))
    return models.small_gpt(), text[:, :-1].contiguous(), text[:, 1:].contiguous()


def graph_work(
    make: Callable[[], tuple[nn.Module, Tensor, Tensor]],
    optimizer: type[torch.optim.Optimizer],
    loss: Loss,
    side: Side,
) -> Work:
    """Return steps as work: replays on the device, default steps on cpu.

    Compared are the losses of the first steps.
    """
    captures = side.device.type != "cpu"
    if captures and not hasattr(torch.accelerator, "Graph"):
        raise Unavailable("this PyTorch has no torch.accelerator.Graph")
    torch.manual_seed(0)
    module, x, y = make()

    def start() -> Step:
        model = copy.deepcopy(module).to(side.device)
        given, wanted = x.to(side.device), y.to(side.device)
        options = {"capturable": True, "fused": True} if captures else {}
        steps = optimizer(model.parameters(), lr=1e-3, **options)

        def step() -> Tensor:
            steps.zero_grad(set_to_none=True)
            off = loss(model, given, wanted)
            off.backward()
            steps.step()
            return off.detach()

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
        for name, make, optimizer, loss, goal in (
            ("MLP 784-128-10, batch 32, Adam", _mlp, torch.optim.Adam, _classify, 4.0),
            (
                "GPT-2 shape, 4 layers x 128, batch 8 x 64, AdamW",
                _gpt,
                torch.optim.AdamW,
                _predict,
                2.0,
            ),
        ):
            yield Case(
                f"{name}, replayed; cpu, default",
                lambda side, make=make, o=optimizer, loss=loss: graph_work(make, o, loss, side),
                tolerance=_TOLERANCE,
                goal=Goal(goal),
            )

    yield from context.rows(AREA, cases)
