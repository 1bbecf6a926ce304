# SPDX-License-Identifier: MIT
"""Training steps: an MLP, a small CNN, and optimizers alone, beside the default step on cpu."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.context import Context
from bench.core import Case, Goal, Row, Side, Work, area

AREA = "training"
_CHECKED_STEPS = 5
_BATCHES = 8
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


def step_work(
    side: Side,
    make_model: Callable[[], nn.Module],
    batches: list[tuple[Tensor, Tensor]],
    **options: Any,
) -> Work:
    """Return one training step as work; its outputs are losses and weights after some steps."""

    def start() -> tuple[nn.Module, Callable[[], Tensor]]:
        model = make_model().to(side.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **options)
        data = [(x.to(side.device), y.to(side.device)) for x, y in batches]
        number = 0

        def step() -> Tensor:
            nonlocal number
            number = (number + 1) % len(data)
            x, y = data[number]
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return model, step

    def outputs() -> list[Tensor]:
        model, step = start()
        losses = [step().detach() for _ in range(_CHECKED_STEPS)]
        return losses + [p.detach() for p in model.parameters()]

    return Work(start()[1], 1, outputs)


def optimizer_work(side: Side, count: int, elements: int, **options: Any) -> Work:
    """Return one AdamW step over `count` parameters whose gradients are already there."""

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

    return Work(start()[1], 1, outputs)


def _label(optimizer: str, options: str, peer: str) -> str:
    return f"{optimizer}{options or ', default'}; cpu{peer or ', default'}"


@area(AREA, "Training: one step")
def measure(context: Context) -> Iterator[Row]:
    images = random_batches(32, 784)

    def cases() -> Iterator[Case]:
        pairs = [(name, "") for name in _OPTIMIZERS]
        pairs += [(name, name) for name in _OPTIMIZERS if name]
        if context.quick:
            pairs = [("", ""), (", fused=True", "")]
        for ours, theirs in pairs:
            yield Case(
                f"MLP 784-128-10, batch 32, {_label('Adam', ours, theirs)}",
                lambda side, o=ours: step_work(side, mlp, images, **_OPTIMIZERS[o]),
                peer=lambda side, o=theirs: step_work(side, mlp, images, **_OPTIMIZERS[o]),
                tolerance=_TOLERANCE,
                goal=Goal(1.5) if not theirs else None,
                min_time=1.0,
            )
        for ours, theirs in pairs:
            yield Case(
                f"50 x 64K parameters, {_label('AdamW', ours, theirs)}",
                lambda side, o=ours: optimizer_work(side, 50, 65536, **_OPTIMIZERS[o]),
                peer=lambda side, o=theirs: optimizer_work(side, 50, 65536, **_OPTIMIZERS[o]),
                # Reads gradient, weight and two moments; writes the last three.
                bytes=50 * 65536 * 4 * 7,
                goal=Goal(2.0) if not theirs else None,
                min_time=1.0,
            )
        if not context.quick:
            digits = digits_batches(64)
            yield Case(
                "CNN on digits 8 x 8, batch 64, Adam, default; cpu, default",
                lambda side: step_work(side, cnn, digits),
                tolerance=_TOLERANCE,
                min_time=1.0,
            )

    yield from context.rows(AREA, cases)
