# SPDX-License-Identifier: MIT
"""Training steps: an MLP, a GPT, a small CNN, optimizers alone, beside the default step on cpu.

As in a program that logs now and then, several steps follow one another before it waits until the
losses of all exist; rows that say so read the loss after every step. Before they are timed the
loss curves of bench/rounding.py are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench import models, peers, rounding
from bench.context import Context
from bench.core import Case, Goal, Peer, Row, Side, Work, area

AREA = "training"
_CHECKED_STEPS, _FEW_CHECKED_STEPS = 12, 4
_BATCHES = 8
# Steps before the program waits; fewer where a step takes longer.
_STEPS, _FEW_STEPS = 32, 8
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
    checked_steps: int = _CHECKED_STEPS


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
        _FEW_CHECKED_STEPS,
    )


def start(
    side: Side,
    training: Training,
    compiled: bool = False,
    dtype: torch.dtype = torch.float32,
    moved: int | None = None,
    autocast: bool = False,
    **options: Any,
) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Return a model and the function that trains it by a step and returns the loss.

    Compiled are the loss with its gradient, and the optimizer's step. `moved` is the seed by which
    the weights are moved to neighbouring numbers. `autocast` computes the loss in bfloat16 where
    PyTorch's rules say so.
    """
    model = training.make()
    if moved is not None:
        rounding.move(list(model.parameters()), moved)
    model = model.to(dtype).to(side.device)
    optimizer = training.optimizer(model.parameters(), lr=1e-3, **options)
    data = [
        (
            x.to(dtype).to(side.device) if x.is_floating_point() else x.to(side.device),
            y.to(side.device),
        )
        for x, y in training.batches
    ]
    number = 0

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(side.device.type, torch.bfloat16, enabled=autocast):
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


def curve(model: nn.Module, step: Callable[[], Tensor], steps: int) -> rounding.Curve:
    """Train for some steps and return the losses and the weights."""
    losses = [step().detach() for _ in range(steps)]
    return rounding.Curve(losses, [p.detach() for p in model.parameters()])


def comparison(training: Training, **options: Any) -> Callable[[Any, Side], None]:
    """Return the check of the runs of a training; `options` are those of the optimizer on cpu."""

    def run(side: Side, dtype: torch.dtype, moved: int | None) -> rounding.Curve:
        model, step = start(side, training, dtype=dtype, moved=moved, **options)
        return curve(model, step, training.checked_steps)

    compared = rounding.Comparison(training.name, run)
    return lambda outputs, side: compared.check(outputs, training.checked_steps, side)


def step_work(
    side: Side,
    training: Training,
    compiled: bool = False,
    reads_losses: bool = False,
    steps: int = 1,
    **options: Any,
) -> Work:
    """Return steps one after another as work; its outputs are losses and weights after some."""

    def results(model: nn.Module, step: Callable[[], Tensor]) -> list[Tensor]:
        found = curve(model, step, training.checked_steps)
        return [*found.losses, *found.weights]

    model, step = start(side, training, compiled, **options)

    def run() -> list[Any]:
        return [step().item() if reads_losses else step() for _ in range(steps)]

    # Compiled once: the steps that are checked are the first of those that are timed.
    if compiled:
        return Work(run, steps, lambda: results(model, step))
    return Work(run, steps, lambda: results(*start(side, training, **options)))


def optimizer_work(side: Side, count: int, elements: int, steps: int = 1, **options: Any) -> Work:
    """Return AdamW steps over `count` parameters whose gradients are already there."""
    step = _optimizer(side, count, elements, **options)[1]

    def run() -> None:
        for _ in range(steps):
            step()

    def outputs() -> list[Tensor]:
        parameters, one = _optimizer(side, count, elements, **options)
        for _ in range(_FEW_CHECKED_STEPS):
            one()
        return parameters

    return Work(run, steps, outputs)


def _optimizer(
    side: Side,
    count: int,
    elements: int,
    dtype: torch.dtype = torch.float32,
    moved: int | None = None,
    **options: Any,
) -> tuple[list[Tensor], Callable[[], None]]:
    """Return parameters, and the function that makes a step."""
    generator = torch.Generator().manual_seed(2)
    parameters = []
    for index in range(count):
        values = torch.randn(elements, generator=generator)
        if moved is not None:
            rounding.move([values], moved * count + index)
        parameter = nn.Parameter(values.to(dtype).to(side.device))
        parameter.grad = torch.randn(elements, generator=generator).to(dtype).to(side.device)
        parameters.append(parameter)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, **options)
    return [p.detach() for p in parameters], optimizer.step


def optimizer_comparison(count: int, elements: int, **options: Any) -> Callable[[Any, Side], None]:
    """Return the check of AdamW: there is no loss, and the weights are to be explained."""

    def run(side: Side, dtype: torch.dtype, moved: int | None) -> rounding.Curve:
        parameters, step = _optimizer(side, count, elements, dtype, moved, **options)
        for _ in range(_FEW_CHECKED_STEPS):
            step()
        return rounding.Curve([], parameters)

    compared = rounding.Comparison(f"AdamW over {count} x {elements} parameters", run)
    return lambda outputs, side: compared.check(outputs, 0, side)


def _label(optimizer: str, options: str, peer: str) -> str:
    return f"{optimizer}{options or ', default'}; cpu{peer or ', default'}"


def summarize(rows: list[Row]) -> list[Row]:
    """Return what the targets say about torch.compile, by setting."""
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
                cores=row.cores,
                threads=row.threads,
                goal=Goal(2.0) if row.name.startswith("MLP") else None,
                note=f"whose first step took {figure.first_call:.1f} s",
            )
        )
    return found


def _compiled(context: Context, training: Training, steps: int) -> list[Peer]:
    def build() -> tuple[Work, Side]:
        return step_work(context.cpu, training, compiled=True, steps=steps), context.cpu

    return [] if context.quick else [Peer(peers.COMPILE, build, is_costly=True)]


def _steps_case(
    context: Context, training: Training, ours: str, theirs: str, steps: int, **more: Any
) -> Case:
    """Return the comparison of steps by optimizers of these options on the device and on cpu."""
    mine, others = _OPTIMIZERS[ours], _OPTIMIZERS[theirs]
    check = comparison(training, **mine)
    check_theirs = check if ours == theirs else comparison(training, **others)
    reads = more.pop("reads_losses", False)
    name = f"{training.name}, {_label(training.optimizer.__name__, ours, theirs)}"
    return Case(
        name + (", reading every loss" if reads else ""),
        lambda side: step_work(side, training, reads_losses=reads, steps=steps, **mine),
        peer=lambda side: step_work(side, training, reads_losses=reads, steps=steps, **others),
        check=lambda found, side: (check if side == context.side else check_theirs)(found, side),
        min_time=1.0,
        **more,
    )


def autocast_case(training: Training) -> Case:
    """Return the comparison of steps under bfloat16 autocast; losses are compared, not weights.

    Adam makes steps of one size out of gradients of which bfloat16 leaves three digits.
    """

    def work(side: Side) -> Work:
        step = start(side, training, autocast=True)[1]

        def losses() -> list[Tensor]:
            fresh = start(side, training, autocast=True)[1]
            return [fresh().detach() for _ in range(training.checked_steps)]

        return Work(lambda: [step() for _ in range(_FEW_STEPS)], _FEW_STEPS, losses)

    return Case(
        f"bfloat16 autocast, {training.name}, {training.optimizer.__name__}",
        work,
        tolerance=(1e-3, 0.0),
        goal=Goal(1.5),
        min_time=1.0,
    )


def _optimizer_case(context: Context, ours: str, theirs: str) -> Case:
    mine, others = _OPTIMIZERS[ours], _OPTIMIZERS[theirs]
    return Case(
        f"50 x 64K parameters, {_label('AdamW', ours, theirs)}",
        lambda side: optimizer_work(side, 50, 65536, _FEW_STEPS, **mine),
        peer=lambda side: optimizer_work(side, 50, 65536, _FEW_STEPS, **others),
        check=optimizer_comparison(50, 65536, **mine),
        # Reads gradient, weight and two moments; writes the last three.
        bytes=50 * 65536 * 4 * 7,
        goal=Goal(4.0) if "foreach" in theirs else None,
        min_time=1.0,
    )


def _cases(context: Context) -> Iterator[Case]:
    images, text = digits_mlp(), gpt_shape()
    everything = context.whole and not context.quick
    pairs = [("", ""), (", fused=True", "")]
    if everything:
        pairs = [(name, "") for name in _OPTIMIZERS]
        pairs += [(name, name) for name in _OPTIMIZERS if name]
    for ours, theirs in pairs:
        plain = not ours and not theirs
        yield _steps_case(
            context,
            images,
            ours,
            theirs,
            _STEPS,
            goal=Goal(3.0) if not theirs else None,
            peers=_compiled(context, images, _STEPS) if plain else (),
        )
    yield _steps_case(context, images, "", "", _STEPS, reads_losses=True)
    yield _steps_case(
        context,
        text,
        "",
        "",
        _FEW_STEPS,
        goal=Goal(2.0),
        peers=_compiled(context, text, _FEW_STEPS) if context.whole else (),
    )
    if not context.quick:
        yield autocast_case(text)
    pairs = [("", ", foreach=True"), (", fused=True", ", foreach=True")]
    if everything:
        pairs = [(o, t) for t in _OPTIMIZERS for o in _OPTIMIZERS]
    for ours, theirs in pairs:
        yield _optimizer_case(context, ours, theirs)
    if not context.quick:
        digits = Training("CNN on digits 8 x 8, batch 64", cnn, digits_batches(64))
        yield _steps_case(context, digits, "", "", _STEPS)


@area(AREA, "Training: one step", summarize)
def measure(context: Context) -> Iterator[Row]:
    yield from context.rows(AREA, lambda: _cases(context))
