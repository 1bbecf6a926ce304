# SPDX-License-Identifier: MIT
"""What is trained, the steps as work, and how their results are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench import models, peers, rounding
from bench.core import Side, Work

CHECKED_STEPS, FEW_CHECKED_STEPS = 12, 4
_BATCHES = 8
Batches = Sequence[tuple[Tensor, Tensor]]


def classify(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return how far the classes of a model are off."""
    return F.cross_entropy(model(x), y)


def predict(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return how far the tokens of a model are off."""
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


@dataclass(frozen=True)
class Training:
    """What is trained: a model, how far it is off, and on what.

    Without batches there is no loss: the gradients are there.
    """

    name: str
    make: Callable[[], nn.Module]  # after a seed
    batches: Batches = ()
    optimizer: type[torch.optim.Optimizer] = torch.optim.Adam
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor] = classify
    checked_steps: int = CHECKED_STEPS


def random_batches(batch: int, *shape: int) -> Batches:
    """Return distinct batches of images and labels."""
    some = torch.Generator().manual_seed(1)
    return [
        (torch.rand(batch, *shape, generator=some), torch.randint(0, 10, (batch,), generator=some))
        for _ in range(_BATCHES)
    ]


def text_batches(vocabulary: int, batch: int, length: int) -> Batches:
    """Return distinct batches of tokens, and of those that follow each."""
    some, shape = torch.Generator().manual_seed(3), (batch, length + 1)
    texts = [torch.randint(0, vocabulary, shape, generator=some) for _ in range(_BATCHES)]
    return [(t[:, :-1].contiguous(), t[:, 1:].contiguous()) for t in texts]


def digits_mlp() -> Training:
    """Return the MLP of the targets."""
    mlp = models.mlp(784, 128, 10)
    return Training("MLP 784-128-10, batch 32", mlp, random_batches(32, 784))


def gpt_shape() -> Training:
    """Return the GPT-2 shape of the targets."""
    return Training(
        "GPT-2 shape, 4 layers x 128, batch 8 x 64",
        models.small_gpt,
        text_batches(1024, 8, 64),
        torch.optim.AdamW,
        predict,
        FEW_CHECKED_STEPS,
    )


def digits_cnn() -> Training:
    """Return two convolutions and two linear layers on scikit-learn's digits."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(digits.images).float().div(16)[:, None]
    labels = torch.from_numpy(digits.target)
    batches = [(images[i : i + 64].clone(), labels[i : i + 64].clone()) for i in range(0, 512, 64)]
    return Training("CNN on digits 8 x 8, batch 64", models.cnn, batches)


def parameters_alone(count: int = 50, size: int = 65536) -> Training:
    """Return AdamW over some tensors of a size whose gradients are there."""

    def make() -> nn.Module:
        return nn.ParameterList(torch.randn(size) for _ in range(count))

    name, steps = f"{count} x {size // 1024}K parameters", FEW_CHECKED_STEPS
    return Training(name, make, optimizer=torch.optim.AdamW, checked_steps=steps)


def start(
    side: Side,
    training: Training,
    compiled: bool = False,
    dtype: torch.dtype = torch.float32,
    moved: int | None = None,
    autocast: bool = False,
    **options: Any,
) -> tuple[nn.Module, Callable[[], Any]]:
    """Return a model and the function that trains it by a step and returns the loss.

    Compiled are the loss with its gradient, and the optimizer's step. `moved` is the seed by which
    the weights are moved to neighbouring numbers. `autocast` computes the loss in bfloat16 where
    PyTorch's rules say so.
    """
    torch.manual_seed(0)
    model = training.make()
    gradients = [torch.randn_like(p) for p in model.parameters() if not training.batches]
    if moved is not None:
        rounding.move(list(model.parameters()), moved)
    model = model.to(dtype).to(side.device)
    optimizer = training.optimizer(model.parameters(), lr=1e-3, **options)
    update: Callable[[], Any] = optimizer.step
    if not training.batches:
        for parameter, gradient in zip(model.parameters(), gradients):
            parameter.grad = gradient.to(dtype).to(side.device)
        return model, update
    data = [
        tuple((t.to(dtype) if t.is_floating_point() else t).to(side.device) for t in batch)
        for batch in training.batches
    ]
    number = 0

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(side.device.type, torch.bfloat16, enabled=autocast):
            return training.loss(model, x, y)

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


def curve(model: nn.Module, step: Callable[[], Any], steps: int) -> rounding.Curve:
    """Train for some steps and return the losses, if there are any, and the weights."""
    losses = [loss.detach() for loss in (step() for _ in range(steps)) if loss is not None]
    return rounding.Curve(losses, [p.detach() for p in model.parameters()])


def comparison(training: Training, **options: Any) -> Callable[[Any, Side], None]:
    """Return the check of the runs of a training; `options` are those of the optimizer on cpu."""

    def run(side: Side, dtype: torch.dtype, moved: int | None) -> rounding.Curve:
        model, step = start(side, training, dtype=dtype, moved=moved, **options)
        return curve(model, step, training.checked_steps)

    losses = training.checked_steps if training.batches else 0
    compared = rounding.Comparison(training.name, run)
    return lambda outputs, side: compared.check(outputs, losses, side)


def step_work(
    side: Side,
    training: Training,
    compiled: bool = False,
    reads_losses: bool = False,
    steps: int = 1,
    **options: Any,
) -> Work:
    """Return steps one after another as work; its outputs are losses and weights after some."""
    model, step = start(side, training, compiled, **options)

    def run() -> list[Any]:
        return [step().item() if reads_losses else step() for _ in range(steps)]

    def outputs() -> list[Tensor]:
        # Compiled once: the steps that are checked are the first of those that are timed.
        fresh = (model, step) if compiled else start(side, training, **options)
        found = curve(*fresh, training.checked_steps)
        return [*found.losses, *found.weights]

    return Work(run, steps, outputs)
