# SPDX-License-Identifier: MIT
"""Functions and modules of hologram_torch on CPU tensors, beside PyTorch's on the same tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from bench import training
from bench.context import Context
from bench.core import Case, area
from bench.inputs import Op

_LARGEST = 1_000_000  # in a run that is not whole

# Name, operands, ours, PyTorch's.
_FUNCTIONS = [
    ("add", "a b", "HF.add(ex, a, b)", "torch.add(a, b)"),
    ("relu", "a", "HF.relu(ex, a)", "F.relu(a)"),
    ("gelu", "a", "HF.gelu(ex, a)", "F.gelu(a)"),
    ("softmax", "a", "HF.softmax(ex, a, 0)", "F.softmax(a, 0)"),
    ("mse_loss", "a b", "HF.mse_loss(ex, a, b)", "F.mse_loss(a, b)"),
    (
        "relu(a * b + a) by three calls",
        "a b",
        "HF.relu(ex, HF.add(ex, HF.mul(ex, a, b), a))",
        "F.relu(torch.add(torch.mul(a, b), a))",
    ),
    (
        "gelu and its gradient",
        "^c",
        "torch.autograd.grad(HF.gelu(ex, c).sum(), c)",
        "torch.autograd.grad(F.gelu(c).sum(), c)",
    ),
]


def _modules() -> torch.nn.Module:
    from hologram_torch import nn

    return torch.nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


@area(
    "functional",
    "Functions and modules on CPU tensors: hologram_torch's beside torch's",
    seconds=20,
)
def cases(context: Context) -> Iterator[Case]:
    import hologram_torch
    from hologram_torch import functional

    # Both sides are CPU tensors, whose values are there when a call returns.
    cpu = context.cpu
    scope = {"HF": functional, "ex": hologram_torch.Executor()}
    for size in [16, *(n for n in context.sizes if n <= _LARGEST or context.whole)]:
        for name, operands, ours, theirs in _FUNCTIONS:
            op = Op(ours, operands, theirs=theirs, scope=scope)
            yield op.case(context, name, size, group=name, side=cpu)
    mlp = training.digits_mlp()
    own = replace(mlp, make=_modules)
    yield Case(
        f"train step on cpu with hologram_torch.nn: {mlp.name}",
        lambda side: training.step_work(side, own, steps=8),
        peer=lambda side: training.step_work(side, mlp, steps=8),
        check=training.comparison(mlp),
        side=cpu,
    )
