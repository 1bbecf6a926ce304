# SPDX-License-Identifier: MIT
"""Functions and modules of hologram_torch on CPU tensors, beside PyTorch's on the same tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from bench.areas import training
from bench.context import Context
from bench.core import Case, Row, Side, Work, area
from bench.inputs import expression_work, number_of_sets

AREA = "functional"
_LARGEST = 1_000_000  # in a run that is not whole
_STEPS = 8

# Name, ours, PyTorch's, operands; of c gradients are asked.
_FUNCTIONS: list[tuple[str, str, str, str]] = [
    ("add", "HF.add(ex, a, b)", "torch.add(a, b)", "a b"),
    ("relu", "HF.relu(ex, a)", "F.relu(a)", "a"),
    ("gelu", "HF.gelu(ex, a)", "F.gelu(a)", "a"),
    ("softmax", "HF.softmax(ex, a, 0)", "F.softmax(a, 0)", "a"),
    ("mse_loss", "HF.mse_loss(ex, a, b)", "F.mse_loss(a, b)", "a b"),
    (
        "relu(a * b + a) by three calls",
        "HF.relu(ex, HF.add(ex, HF.mul(ex, a, b), a))",
        "F.relu(torch.add(torch.mul(a, b), a))",
        "a b",
    ),
    (
        "gelu and its gradient",
        "torch.autograd.grad(HF.gelu(ex, c).sum(), c)",
        "torch.autograd.grad(F.gelu(c).sum(), c)",
        "c",
    ),
]


def _scope() -> dict[str, Any]:
    import hologram_torch
    from hologram_torch import functional

    return {"HF": functional, "ex": hologram_torch.Executor()}


def _case(context: Context, name: str, ours: str, theirs: str, names: str, size: int) -> Case:
    letters = names.split()
    count = number_of_sets(4 * size)

    def work(expression: str, scope: dict[str, Any]) -> Work:
        sets = [
            [
                context.inputs.get("normal", torch.float32, (size,), 8 * n + ord(letter) % 8, cpu)
                for letter in letters
            ]
            for n in range(count)
        ]
        if letters == ["c"]:
            sets = [[t.clone().requires_grad_() for t in tensors] for tensors in sets]
        return expression_work(expression, letters, sets, context.cpu, 4 * size, scope)

    cpu = context.cpu.device
    return Case(
        name,
        lambda _: work(ours, _scope()),
        peer=lambda _: work(theirs, {}),
        size=size,
        group=name,
    )


def _modules() -> torch.nn.Module:
    from hologram_torch import nn

    torch.manual_seed(0)
    return torch.nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def _step_case(context: Context) -> Case:
    theirs = training.digits_mlp()
    ours = replace(theirs, make=_modules)

    def work(what: training.Training) -> Work:
        return training.step_work(context.cpu, what, steps=_STEPS)

    return Case(
        f"train step on cpu with hologram_torch.nn: {theirs.name}",
        lambda _: work(ours),
        peer=lambda _: work(theirs),
        check=training.comparison(theirs),
    )


def _cases(context: Context) -> Iterator[Case]:
    for size in [16, *(n for n in context.sizes if n <= _LARGEST or context.whole)]:
        for name, ours, theirs, names in _FUNCTIONS:
            yield _case(context, name, ours, theirs, names, size)
    yield _step_case(context)


@area(AREA, "Functions and modules on CPU tensors: hologram_torch's beside torch's")
def measure(context: Context) -> Iterator[Row]:
    # Both sides are CPU tensors, whose values are there when a call returns.
    side: Side = context.side
    context.side = context.cpu
    try:
        yield from context.rows(AREA, lambda: _cases(context))
    finally:
        context.side = side
