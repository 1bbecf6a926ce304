# SPDX-License-Identifier: MIT
"""Operators of the user's own and the building blocks, beside the same functions written out.

Those are measured eagerly on cpu and on the device, and compiled by Inductor on cpu, which takes so
long that only ``--all`` measures this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from bench import peers
from bench.context import Context
from bench.core import Case, Peer, Row, Side, Work, area
from bench.inputs import expression_work, number_of_sets

AREA = "custom"
_ROW = 512  # elements of a row, where an operator has rows
Function = Callable[..., Tensor]


@dataclass(frozen=True)
class _Operator:
    """An operator, how it would be written without it, and the shapes of its arguments."""

    name: str
    make: Callable[[], Function]  # the operator, made where hologram_torch is loaded
    written: Function
    shapes: Callable[[int], list[tuple[int, ...]]]  # of a number of elements; the first has a grad


def _mish() -> Function:
    import hologram_torch

    operator: Function = hologram_torch.elementwise("x * tanh(softplus(x))", name="mish")
    return operator


def _gated() -> Function:
    import hologram_torch

    operator: Function = hologram_torch.elementwise(
        "where(x > 0, x * sigmoid(g), 0.1 * expm1(x) * g) + b", "x, g, b"
    )
    return operator


def _written_gated(x: Tensor, g: Tensor, b: Tensor) -> Tensor:
    return torch.where(x > 0, x * torch.sigmoid(g), 0.1 * torch.expm1(x) * g) + b


def _written_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _written_norm(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    total = x + residual
    return total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6) * weight


def _same(count: int) -> Callable[[int], list[tuple[int, ...]]]:
    return lambda n: [(n // _ROW, _ROW)] * count


_OPERATORS = (
    _Operator("x * tanh(softplus(x))", _mish, lambda x: x * torch.tanh(F.softplus(x)), _same(1)),
    _Operator(
        "where(x > 0, x * sigmoid(g), 0.1 * expm1(x) * g) + b",
        _gated,
        _written_gated,
        lambda n: [(n // _ROW, _ROW), (n // _ROW, _ROW), (_ROW,)],
    ),
    _Operator("swiglu", lambda: torch.ops.hologram.swiglu, lambda g, u: F.silu(g) * u, _same(2)),
    _Operator("geglu", lambda: torch.ops.hologram.geglu, lambda g, u: F.gelu(g) * u, _same(2)),
    _Operator(
        "rotary_embedding",
        lambda: torch.ops.hologram.rotary_embedding,
        _written_rotary,
        lambda n: [(n // _ROW, _ROW), *[(n // _ROW, _ROW // 2)] * 2],
    ),
    _Operator(
        "add_rms_norm",
        lambda: lambda x, r, w: torch.ops.hologram.add_rms_norm(x, r, w)[0],
        _written_norm,
        lambda n: [(n // _ROW, _ROW), (n // _ROW, _ROW), (_ROW,)],
    ),
)


def _case(context: Context, operator: _Operator, size: int, gradient: bool) -> Case:
    elements = size // _ROW * _ROW
    shapes = operator.shapes(elements)
    names = [f"x{k}" for k in range(len(shapes))]
    call = f"f({', '.join(names)})"
    expression = f"torch.autograd.grad({call}.sum(), x0)[0]" if gradient else call

    def work(side: Side, make: Callable[[], Function]) -> Work:
        sets = []
        for n in range(number_of_sets(4 * elements * len(shapes))):
            tensors = [
                context.inputs.get("normal", torch.float32, shape, 8 * n + k, side.device)
                for k, shape in enumerate(shapes)
            ]
            if gradient:
                tensors[0] = tensors[0].detach().clone().requires_grad_()
            sets.append(tensors)
        return expression_work(expression, names, sets, side, 4 * elements, {"f": make()})

    def compiled() -> Function:
        return peers.compile_function(operator.written)

    return Case(
        f"{operator.name}{' and its gradient' if gradient else ''}",
        lambda side: work(side, operator.make),
        peer=lambda side: work(side, lambda: operator.written),
        tolerance=(1e-4, 1e-4),
        size=elements,
        group=operator.name,
        peers=[
            Peer(
                "written out on the device",
                lambda: (work(context.side, lambda: operator.written), context.side),
            ),
            Peer(
                "Inductor on cpu",
                lambda: (work(context.cpu, compiled), context.cpu),
                is_costly=True,
            ),
        ],
    )


@area(AREA, "Operators of the user's own: beside the same functions written out")
def measure(context: Context) -> Iterator[Row]:
    if not context.whole:
        return

    def cases() -> Iterator[Case]:
        for operator in _OPERATORS:
            for size in context.sizes:
                if size < 2 * _ROW:
                    continue
                for gradient in (False, True):
                    yield _case(context, operator, size, gradient)

    yield from context.rows(AREA, cases)
