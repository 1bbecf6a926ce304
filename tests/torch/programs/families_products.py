# SPDX-License-Identifier: MIT
"""Steps that multiply: dot products, batches of matrices, convolutions, attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .families import family
from .steps import V

if TYPE_CHECKING:
    from .generate import Generator


def partner(g: Generator, v: V) -> V:
    """Draw a tensor of v's shape and, mostly, of its dtype."""
    t = g.get(v)
    w = g.tensor_where(lambda o: o.shape == t.shape and o.dtype == t.dtype, tries=3)
    return w if w is not None else g.new_input(tuple(t.shape), t.dtype)


DOTS = {
    1: ["{0} @ {1}", "torch.dot({0}, {1})", "torch.inner({0}, {1})"],
    2: [
        "torch.bmm({0}[:, None], {1}[:, :, None])",
        "torch.einsum('bi,bi->b', {0}, {1})",
        "torch.mv({0}, {1}[0])",
        "{0} @ {1}[-1]",
        "{1}[0] @ {0}.t()",
        "{0}.t() @ {1}[:, 0]",
    ],
    3: [
        "torch.bmm({0}, {1}.mT)",
        "torch.bmm({0}.mT, {1})",
        "torch.bmm({0}[:, :1], {1}[:, :1].mT)",
        "torch.einsum('bij,bij->bi', {0}, {1})",
        "torch.baddbmm({0}[:, :, :1], {0}, {1}.mT, beta=0.5, alpha=2)",
    ],
}
DOTS_OF_ANY = ["torch.linalg.vecdot({0}, {1})", "(({0} * {1}).sum(-1))"]


@family(3)
def dots(g: Generator) -> None:
    v = g.floating()
    rank = g.get(v).dim()
    if rank:
        g.emit(g.choice(DOTS.get(rank, []) + DOTS_OF_ANY), v, partner(g, v))


@family(2)
def convolution(g: Generator) -> None:
    v = g.tensor_where(lambda t: t.is_floating_point() and t.dim() in (3, 4) and t.numel() > 0)
    if v is None or g.chance(0.3):
        sides = (1 + g.below(9), 1 + g.below(9))[g.below(2) :]
        dtype = g.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16])
        v = g.new_input((1 + g.below(4), 1 + g.below(5), *sides), dtype)
    t = g.get(v)
    channels, sides = t.shape[1], tuple(t.shape[2:])
    groups = channels if g.chance(0.2) else 1
    outputs = groups * (1 + g.below(4))
    kernel = tuple(min(s, 1 + g.below(3)) for s in sides)
    shape = (outputs, channels // groups, *kernel)
    if outputs * t.numel() > 8 * g.most:
        return
    w = g.new_input(shape, t.dtype)
    stride, padding = 1 + g.below(2), g.below(2)
    call = f"F.conv{len(sides)}d({{0}}, {{1}}, None, {stride}, {padding}, 1, {groups})"
    if g.chance(0.3):
        text = call.format("x", "w")
        g.emit(f"gradient(lambda x, w: {text}, {{0}}, {{1}})", v, w, results=3)
    else:
        g.emit(call, v, w)


@family(2)
def attention(g: Generator) -> None:
    dtype = g.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16])
    heads, dim = 1 + g.below(2), g.choice([1, 3, 4, 8, 17])
    queries, keys = 1 + g.below(12), 1 + g.below(12)
    shapes = [(1, heads, n, dim) for n in (queries, keys, keys)]
    inputs = [g.new_input(shape, dtype) for shape in shapes]
    call = f"F.scaled_dot_product_attention({{0}}, {{1}}, {{2}}, is_causal={g.chance(0.5)})"
    if g.chance(0.4):
        text = call.format("q", "k", "v")
        g.emit(f"gradient(lambda q, k, v: {text}, {{0}}, {{1}}, {{2}})", *inputs, results=4)
    else:
        g.emit(call, *inputs)


@family(0.3)
def large_convolution(g: Generator) -> None:
    """Add one with channels enough for threads and for Winograd's way, and keep a few results."""
    n, channels, side = 1 + g.below(3), g.choice([32, 48, 64]), g.choice([7, 13, 14, 15])
    g.emit(
        "F.conv2d(make('plain', {0}, {1}, {2}).to(device), "
        "make('plain', {3}, {1}, {2}).to(device), padding=1)[:, ::2, ::3, -2:].clone()",
        (n, channels, side, side),
        g.choice([torch.float32, torch.float64]),
        g.below(6),
        (channels, channels, 3, 3),
    )
