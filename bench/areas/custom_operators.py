# SPDX-License-Identifier: MIT
"""Operators of the user's own and the building blocks, beside the same functions written out.

Those are measured eagerly on cpu and on the device, and compiled by Inductor on cpu, which takes so
long that only ``--all`` measures this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench import peers
from bench.context import Context
from bench.core import Case, Peer, Side, Work, area
from bench.inputs import Op, number_of_sets

_ROW = 512  # elements of a row, where an operator has rows
Function = Callable[..., Any]
_X, _HALF, _LAST = ":normal:n/512x512", ":normal:n/512x256", ":normal:512"


def _user(*expression: str, **options: str) -> Function:
    import hologram_torch

    operator: Function = hologram_torch.elementwise(*expression, **options)
    return operator


def _written_gated(x: Tensor, g: Tensor, b: Tensor) -> Tensor:
    return torch.where(x > 0, x * torch.sigmoid(g), 0.1 * torch.expm1(x) * g) + b


def _written_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _written_norm(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    total = x + residual
    return total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6) * weight


_GATED = "where(x > 0, x * sigmoid(g), 0.1 * expm1(x) * g) + b"
# Name, the operator, made where hologram_torch is loaded, the same written out, shapes.
_Operator = tuple[str, Callable[[], Function], Function, list[str]]
_OPERATORS: list[_Operator] = [
    (
        "x * tanh(softplus(x))",
        lambda: _user("x * tanh(softplus(x))", name="mish"),
        lambda x: x * torch.tanh(F.softplus(x)),
        [_X],
    ),
    (_GATED, lambda: _user(_GATED, "x, g, b"), _written_gated, [_X, _X, _LAST]),
    ("swiglu", lambda: torch.ops.hologram.swiglu, lambda g, u: F.silu(g) * u, [_X, _X]),
    ("geglu", lambda: torch.ops.hologram.geglu, lambda g, u: F.gelu(g) * u, [_X, _X]),
    (
        "rotary_embedding",
        lambda: torch.ops.hologram.rotary_embedding,
        _written_rotary,
        [_X, _HALF, _HALF],
    ),
    (
        "add_rms_norm",
        lambda: lambda x, r, w: torch.ops.hologram.add_rms_norm(x, r, w)[0],
        _written_norm,
        [_X, _X, _LAST],
    ),
]


def _case(context: Context, operator: _Operator, size: int, gradient: bool) -> Case:
    name, make, written, shapes = operator
    call = f"f({', '.join(f'x{k}' for k in range(len(shapes)))})"
    operands = " ".join(f"{'^' * (gradient and not k)}x{k}{s}" for k, s in enumerate(shapes))
    op = Op(f"torch.autograd.grad({call}.sum(), x0)[0]" if gradient else call, operands)
    count = number_of_sets(4 * size * len(shapes))

    def work(make: Callable[[], Function], side: Side) -> Work:
        return op.work(context, side, size, count=count, f=make())

    def peer(name: str, side: Side, make: Callable[[], Function], is_costly: bool) -> Peer:
        return Peer(name, lambda: (work(make, side), side), is_costly=is_costly)

    compiled = partial(peers.compile_function, written)
    return Case(
        f"{name}{' and its gradient' if gradient else ''}",
        partial(work, make),
        peer=partial(work, lambda: written),
        tolerance=(1e-4, 1e-4),
        size=size,
        group=name,
        peers=[
            peer("written out on the device", context.side, lambda: written, False),
            peer("Inductor on cpu", context.cpu, compiled, True),
        ],
    )


@area("custom", "Operators of the user's own: beside the same functions written out", seconds=1)
def cases(context: Context) -> Iterator[Case]:
    for operator in _OPERATORS if context.whole else ():
        for size in [s // _ROW * _ROW for s in context.sizes if s >= 2 * _ROW]:
            for gradient in (False, True):
                yield _case(context, operator, size, gradient)
