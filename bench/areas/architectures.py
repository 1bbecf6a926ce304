# SPDX-License-Identifier: MIT
"""Architectures of three libraries: an answer, and a training step with every gradient checked.

Measured by ``--all``. Random weights and small inputs: this area is about what models do, not about
how long a large product takes. Answers and gradients in float64 have to be cpu's. Those in float32
may be off the exact ones by a few times what cpu is off, or by some units in the last place of
their norm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.architectures import MODELS, Architecture
from bench.context import Context
from bench.core import Case, Goal, Row, Side, Work, area, mean_row
from bench.verify import VerificationError

_GOAL = Goal(1.0)
_STEPS = 2  # before the program waits
# Of a tensor's norm: what float32 may be off, and float64; and how far beyond cpu's own error.
_ROUNDING, _BEYOND, _FLOAT64 = 2e-5, 8.0, 1e-9
_NOTHING = 1e-7
_DRAWS = 6
# Where a model does not run in float64, it is compared with cpu in float32.
_FLOAT32 = 2e-3

Make = Callable[[], Architecture]


def make(build: Make, device: torch.device, training: bool, seed: int = 0) -> Architecture:
    """Build an architecture after a seed, on cpu, and move it."""
    torch.manual_seed(seed)
    found = build()
    found.module = found.module.to(device).train(training)
    found.inputs = {name: value.to(device) for name, value in found.inputs.items()}
    return found


def answers(model: Architecture) -> dict[str, Tensor]:
    """Return what a model answers, by name."""
    with torch.no_grad():
        return {f"answer {i}": t for i, t in enumerate(model.ask())}


def gradients(model: Architecture) -> dict[str, Tensor]:
    """Return the loss of a training step, the gradients by parameter, and the buffers after it."""
    loss = model.loss()
    loss.backward()
    parts = {n: p.grad for n, p in model.module.named_parameters() if p.grad is not None}
    buffers = {n: b for n, b in model.module.named_buffers() if b.is_floating_point()}
    return {"loss": loss.detach(), **parts, **buffers}


def given(model: Architecture, training: bool) -> dict[str, Tensor]:
    """Return gradients of a step, or answers."""
    return gradients(model) if training else answers(model)


def exact(build: Make, device: torch.device, training: bool, seed: int = 0) -> Any:
    """Return answers or gradients in float64, or None where the model insists on float32."""
    model = make(build, device, training, seed)
    model.module = model.module.double()
    model.inputs = {n: v.double() if v.is_floating_point() else v for n, v in model.inputs.items()}
    try:
        return given(model, training)
    except (RuntimeError, ValueError):
        return None


def _off(value: Tensor, truth: Tensor) -> float:
    return float((value.cpu().double() - truth.double()).norm())


def compare(
    ours: dict[str, Tensor], theirs: dict[str, Tensor], allowed: Callable[[str, float], float]
) -> None:
    """Raise VerificationError unless all tensors are there and differ by no more than allowed.

    `allowed` is told a name and the norm of cpu's tensor.
    """
    if ours.keys() != theirs.keys():
        raise VerificationError(f"cpu and the device disagree on {ours.keys() ^ theirs.keys()}")
    for name, value in ours.items():
        if value.shape != theirs[name].shape:
            raise VerificationError(f"{name}: {value.shape} instead of {theirs[name].shape}")
        size = float(theirs[name].double().norm())
        # A gradient that is 0 but for rounding has no size of its own.
        most = allowed(name, size) + _NOTHING * value.numel() ** 0.5
        off = _off(value, theirs[name])
        if not off <= most:
            raise VerificationError(f"{name} is off by {off:.3g} of {size:.3g}, not {most:.3g}")


def check_float32(
    build: Make, training: bool, ours: dict[str, Tensor], truth: Any, seed: int
) -> None:
    """Compare float32 with the exact values, or with cpu where there are none."""
    theirs = given(make(build, torch.device("cpu"), training, seed), training)
    if [value.dtype for value in ours.values()] != [value.dtype for value in theirs.values()]:
        raise VerificationError("the dtypes are not cpu's")

    def allowed(name: str, size: float) -> float:
        if truth is None:
            return _FLOAT32 * size
        return max(_BEYOND * _off(theirs[name], truth[name]), _ROUNDING * size)

    compare(ours, theirs if truth is None else truth, allowed)


def check(build: Make, device: torch.device, training: bool, ours: dict[str, Tensor]) -> None:
    """Check what the device gave in float32, and what it gives in float64.

    A value that lies at the kink of a ReLU but for rounding may fall on either side, after which
    gradients are others. That hangs on the numbers drawn, while a wrong kernel is wrong each time:
    where float32 is off, other numbers are drawn, five times at most. (Of six draws of R(2+1)D-18
    three are off on the device, one on cpu.)
    """
    truth = exact(build, torch.device("cpu"), training)
    if truth is not None:
        found = exact(build, device, training)
        if found is None:
            raise VerificationError("it runs in float64 on cpu alone")
        compare(found, truth, lambda name, size: _FLOAT64 * size)
    for seed in range(_DRAWS):
        try:
            check_float32(build, training, ours, truth, seed)
            return
        except VerificationError:
            if seed == _DRAWS - 1:
                raise
        ours = given(make(build, device, training, seed + 1), training)
        truth = exact(build, torch.device("cpu"), training, seed + 1)


def _work(build: Make, training: bool, side: Side) -> Work:
    model = make(build, side.device, training)
    optimizer = torch.optim.AdamW(model.module.parameters(), lr=1e-5) if training else None

    def step() -> Any:
        if optimizer is None:
            return list(answers(model).values())
        optimizer.zero_grad()
        loss = model.loss()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def outputs() -> Any:
        return given(make(build, side.device, training), training)

    return Work(lambda: [step() for _ in range(_STEPS)], _STEPS, outputs)


def summarize(rows: list[Row]) -> Iterator[Row]:
    """Yield the geometric means of all ratios, of inference and of training."""
    for kind in ("inference", "training"):
        ratios = [row.ratio for row in rows if row.name.endswith(kind)]
        if ratios:
            name = f"{len(ratios)} architectures, {kind}: geometric mean"
            yield mean_row(name, ratios, "", _GOAL)


@area(
    "architectures",
    "Architectures of torchvision, timm and transformers",
    seconds=1,
    summarize=summarize,
)
def cases(context: Context) -> Iterator[Case]:
    for library, models in MODELS.items() if context.everything else ():
        for title, build in models.items():
            for training in (False, True):

                def look(
                    outputs: Any, side: Side, build: Make = build, on: bool = training
                ) -> None:
                    check(build, side.device, on, outputs)

                work = partial(_work, build, training)
                name = f"{library}: {title}, {'training' if training else 'inference'}"
                yield Case(name, work, check=look, goal=_GOAL)
