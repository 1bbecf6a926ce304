# SPDX-License-Identifier: MIT
"""Training steps: an MLP, a GPT, a small CNN, optimizers alone, beside the default step on cpu.

As in a program that logs now and then, several steps follow one another before somebody waits, and
the losses of all exist; rows that say so read the loss after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench import models, peers
from bench.context import Context
from bench.core import Case, Goal, Peer, Row, Side, Unavailable, Work, area

AREA = "training"
_CHECKED_STEPS = 5
_BATCHES = 8
# Before somebody waits; fewer where a step takes longer.
_STEPS, _FEW_STEPS = 32, 8
# Five steps of Adam divide rounding noise by its own size where a gradient is all but zero.
_TOLERANCE = (2e-2, 2e-3)
_OPTIMIZERS: dict[str, dict[str, bool]] = {
    "": {},
    ", foreach=True": {"foreach": True},
    ", fused=True": {"fused": True},
}


def mlp() -> nn.Module:
    """Return the network 784-128-10."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def cnn() -> nn.Module:
    """Return two convolutions and two linear layers for images of 8 x 8."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def random_batches(batch: int, *shape: int) -> list[tuple[Tensor, Tensor]]:
    """Return distinct batches of images and labels."""
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.rand(batch, *shape, generator=generator),
            torch.randint(0, 10, (batch,), generator=generator),
        )
        for _ in range(_BATCHES)
    ]


def digits_batches(batch: int) -> list[tuple[Tensor, Tensor]]:
    """Return batches of scikit-learn's digits."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(digits.images).float().div(16)[:, None]
    labels = torch.from_numpy(digits.target)
    return [
        (images[i * batch : (i + 1) * batch].clone(), labels[i * batch : (i + 1) * batch].clone())
        for i in range(_BATCHES)
    ]


def text_batches(vocabulary: int, batch: int, length: int) -> list[tuple[Tensor, Tensor]]:
    """Return distinct batches of tokens, and of those that follow each."""
    generator = torch.Generator().manual_seed(3)
    texts = [
        torch.randint(0, vocabulary, (batch, length + 1), generator=generator)
        for _ in range(_BATCHES)
    ]
    return [(t[:, :-1].contiguous(), t[:, 1:].contiguous()) for t in texts]


def _classify(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def _predict(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def _make_gpt() -> nn.Module:
    torch.manual_seed(0)
    return models.small_gpt()


@dataclass(frozen=True)
class Training:
    """What is trained: a model, how far it is off, and on what."""

    name: str
    make: Callable[[], nn.Module]
    batches: list[tuple[Tensor, Tensor]]
    optimizer: type[torch.optim.Optimizer] = torch.optim.Adam
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor] = _classify


def digits_mlp() -> Training:
    """Return the MLP of the targets."""
    return Training("MLP 784-128-10, batch 32", mlp, random_batches(32, 784))


def gpt_shape() -> Training:
    """Return the GPT-2 shape of the targets."""
    return Training(
        "GPT-2 shape, 4 layers x 128, batch 8 x 64",
        _make_gpt,
        text_batches(1024, 8, 64),
        torch.optim.AdamW,
        _predict,
    )


def step_work(
    side: Side,
    training: Training,
    compiled: bool = False,
    reads_losses: bool = False,
    steps: int = 1,
    **options: Any,
) -> Work:
    """Return steps one after another as work; its outputs are losses and weights after some steps.

    Compiled are the loss with its gradient, and the optimizer's step.
    """

    def start() -> tuple[nn.Module, Callable[[], Tensor]]:
        model = training.make().to(side.device)
        optimizer = training.optimizer(model.parameters(), lr=1e-3, **options)
        data = [(x.to(side.device), y.to(side.device)) for x, y in training.batches]
        number = 0

        def loss_of(x: Tensor, y: Tensor) -> Tensor:
            return training.loss(model, x, y)

        update: Callable[[], Any] = optimizer.step
        if compiled:
            loss_of = peers.compile_function(loss_of)
            update = torch.compile(update, dynamic=False)

        def step() -> Tensor:
            nonlocal number
            number = (number + 1) % len(data)
            x, y = data[number]
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(x, y)
            loss.backward()
            update()
            return loss

        return model, step

    def results(model: nn.Module, step: Callable[[], Tensor]) -> list[Tensor]:
        losses = [step().detach() for _ in range(_CHECKED_STEPS)]
        return losses + [p.detach() for p in model.parameters()]

    model, step = start()

    def run() -> list[Any]:
        return [step().item() if reads_losses else step() for _ in range(steps)]

    # Compiled once: the steps that are checked are the first of those that are timed.
    outputs = (lambda: results(model, step)) if compiled else lambda: results(*start())
    return Work(run, steps, outputs)


def optimizer_work(side: Side, count: int, elements: int, steps: int = 1, **options: Any) -> Work:
    """Return AdamW steps over `count` parameters whose gradients are already there."""

    def start() -> tuple[list[Tensor], Callable[[], None]]:
        generator = torch.Generator().manual_seed(2)
        parameters = []
        for _ in range(count):
            parameter = nn.Parameter(torch.randn(elements, generator=generator).to(side.device))
            parameter.grad = torch.randn(elements, generator=generator).to(side.device)
            parameters.append(parameter)
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, **options)
        return [p.detach() for p in parameters], optimizer.step

    def outputs() -> list[Tensor]:
        parameters, step = start()
        for _ in range(_CHECKED_STEPS):
            step()
        return parameters

    step = start()[1]

    def run() -> None:
        for _ in range(steps):
            step()

    return Work(run, steps, outputs)


def _label(optimizer: str, options: str, peer: str) -> str:
    return f"{optimizer}{options or ', default'}; cpu{peer or ', default'}"


def summarize(rows: list[Row]) -> list[Row]:
    """Return what the targets say about torch.compile, by number of threads."""
    found = []
    for row in rows:
        figure = row.peers.get(peers.COMPILE)
        if figure is None or figure.spread is None:
            continue
        found.append(
            Row(
                AREA,
                f"{row.name}, against torch.compile",
                row.value,
                figure.spread.median,
                threads=row.threads,
                goal=Goal(2.0) if row.name.startswith("MLP") else None,
                note=f"whose first step took {figure.first_call:.1f} s",
            )
        )
    return found


@area(AREA, "Training: one step", summarize)
def measure(context: Context) -> Iterator[Row]:
    images, text = digits_mlp(), gpt_shape()

    def compiled(training: Training, steps: int) -> list[Peer]:
        def build() -> tuple[Work, Side]:
            if not context.whole and torch.get_num_threads() != context.threads[0]:
                raise Unavailable("compiled for one number of threads, unless --all is given")
            return step_work(context.cpu, training, compiled=True, steps=steps), context.cpu

        return [Peer(peers.COMPILE, build)]

    def cases() -> Iterator[Case]:
        pairs = [("", ""), (", fused=True", "")]
        if context.whole and not context.quick:
            pairs = [(name, "") for name in _OPTIMIZERS]
            pairs += [(name, name) for name in _OPTIMIZERS if name]
        for ours, theirs in pairs:
            plain = not ours and not theirs
            yield Case(
                f"{images.name}, {_label('Adam', ours, theirs)}",
                lambda side, o=ours: step_work(side, images, steps=_STEPS, **_OPTIMIZERS[o]),
                peer=lambda side, o=theirs: step_work(side, images, steps=_STEPS, **_OPTIMIZERS[o]),
                tolerance=_TOLERANCE,
                goal=Goal(3.0) if not theirs else None,
                min_time=1.0,
                peers=compiled(images, _STEPS) if plain and not context.quick else (),
            )
        yield Case(
            f"{images.name}, {_label('Adam', '', '')}, reading every loss",
            lambda side: step_work(side, images, reads_losses=True, steps=_STEPS),
            tolerance=_TOLERANCE,
            min_time=1.0,
        )
        yield Case(
            f"{text.name}, {_label('AdamW', '', '')}",
            lambda side: step_work(side, text, steps=_FEW_STEPS),
            tolerance=_TOLERANCE,
            goal=Goal(2.0),
            min_time=1.0,
            peers=compiled(text, _FEW_STEPS) if context.whole and not context.quick else (),
        )
        pairs = [("", ", foreach=True"), (", fused=True", ", foreach=True")]
        if context.whole and not context.quick:
            pairs = [(o, t) for t in _OPTIMIZERS for o in _OPTIMIZERS]
        for ours, theirs in pairs:
            yield Case(
                f"50 x 64K parameters, {_label('AdamW', ours, theirs)}",
                lambda side, o=ours: optimizer_work(side, 50, 65536, _FEW_STEPS, **_OPTIMIZERS[o]),
                peer=lambda side, o=theirs: optimizer_work(
                    side, 50, 65536, _FEW_STEPS, **_OPTIMIZERS[o]
                ),
                # Reads gradient, weight and two moments; writes the last three.
                bytes=50 * 65536 * 4 * 7,
                goal=Goal(4.0) if "foreach" in theirs else None,
                min_time=1.0,
            )
        if not context.quick:
            digits = Training("CNN on digits 8 x 8, batch 64", cnn, digits_batches(64))
            yield Case(
                f"{digits.name}, {_label('Adam', '', '')}",
                lambda side: step_work(side, digits, steps=_STEPS),
                tolerance=_TOLERANCE,
                min_time=1.0,
            )

    yield from context.rows(AREA, cases)
