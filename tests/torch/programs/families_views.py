# SPDX-License-Identifier: MIT
"""Kinds of steps about views: taking them, and writing through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .families import broadcasts, dim_of, family, may_write, numel, positions, share, writable
from .steps import V

if TYPE_CHECKING:
    from .generate import Generator

Tensor = torch.Tensor

# --- Taking views -----------------------------------------------------------------------------


def factors(g: Generator, n: int) -> tuple[int, ...]:
    """Draw a shape of n elements."""
    if n == 0:
        return g.choice([(0,), (0, 3), (2, 0)])
    shape = []
    for p in (2, 3, 2, 5, 2, 3):
        if n % p == 0 and n > 1 and g.chance(0.5):
            shape.append(p)
            n //= p
    shape.insert(g.below(len(shape) + 1), n)
    if len(shape) > 3:
        shape = [numel(shape[:-2]), *shape[-2:]]
    if g.chance(0.1):
        shape.append(1)
    return tuple(shape)


def slice_of(g: Generator, size: int) -> slice:
    """Draw a slice of a dimension."""
    start = g.below(size + 1) if g.chance(0.6) else None
    stop = g.below(size + 2) if g.chance(0.5) else None
    return slice(start, stop, g.choice([None, None, None, 2, 3]))


def index_of(g: Generator, t: Tensor) -> tuple[Any, ...]:
    """Draw what goes into brackets, views only."""
    index: list[Any] = []
    for size in t.shape[: 1 + g.below(t.dim())] if t.dim() else ():
        r = g.random()
        if r < 0.25 and size:
            index.append(g.below(size))
        elif r < 0.35:
            index.append(None)
            index.append(slice_of(g, size))
        else:
            index.append(slice_of(g, size))
    return tuple(index) if index else (Ellipsis,)


@family(12, common=True, moves=True)
def view(g: Generator) -> None:
    v = g.tensor()
    t = g.get(v)
    d, e = dim_of(g, t), dim_of(g, t)
    size = t.shape[d] if t.dim() else 0
    kind = g.choice(
        """index index index t transpose permute reshape view select narrow expand
        unsqueeze squeeze flatten chunk diagonal as_strided unbind split movedim unfold mT view_as
        detach dtype""".split()
    )
    if kind == "index":
        g.emit("{0}[{1}]", v, index_of(g, t))
    elif kind == "t":
        g.emit("{0}.t()" if t.dim() <= 2 else "{0}.mT", v)
    elif kind == "transpose":
        g.emit("{0}.transpose({1}, {2})", v, d, e)
    elif kind == "permute":
        order = sorted(range(t.dim()), key=lambda _: g.random())
        g.emit("{0}.permute({1})", v, tuple(order))
    elif kind in ("reshape", "view"):
        g.emit(f"{{0}}.{kind}({{1}})", v, factors(g, t.numel()))
    elif kind == "select" and size:
        g.emit("{0}.select({1}, {2})", v, d, g.below(size) - (size if g.chance(0.2) else 0))
    elif kind == "narrow" and t.dim():
        start = g.below(size + 1)
        g.emit("{0}.narrow({1}, {2}, {3})", v, d, start, g.below(size - start + 1))
    elif kind == "expand":
        shape = tuple(g.choice(g.dims) if s == 1 else s for s in t.shape)
        if g.chance(0.5):
            shape = (g.choice(g.dims), *shape)
        if numel(shape) <= g.most:
            for name in g.emit("{0}.expand({1})", v, shape):
                g.overlapping.add(name)
    elif kind in ("unsqueeze", "squeeze"):
        g.emit(f"{{0}}.{kind}({{1}})", v, d)
    elif kind == "flatten":
        g.emit("{0}.flatten()", v)
    elif kind == "chunk" and size:
        n = min(1 + g.below(3), size)
        g.emit_list("{0}.chunk({1}, {2})", v, n, d, results=len(range(0, size, -(-size // n))))
    elif kind == "split" and size > 1:
        at = 1 + g.below(size - 1)
        g.emit("{0}.split([{1}, {2}], {3})", v, at, size - at, d, results=2)
    elif kind == "unbind" and 0 < size <= 3:
        g.emit_list("{0}.unbind({1})", v, d, results=size)
    elif kind == "diagonal" and t.dim() >= 2:
        g.emit("{0}.diagonal({1})", v, g.below(3) - 1)
    elif kind == "as_strided":
        as_strided(g, v)
    elif kind == "movedim":
        g.emit("{0}.movedim({1}, {2})", v, d, e)
    elif kind == "unfold" and size >= 2:
        step = 1 + g.below(2)
        for name in g.emit("{0}.unfold({1}, 2, {2})", v, d, step):
            if step == 1:
                g.overlapping.add(name)
    elif kind == "view_as":
        g.emit("{0}.view_as({1})", v, g.like(v, exact=True))
    elif kind == "dtype":
        same = {
            1: [torch.uint8, torch.int8],
            2: [torch.int16, torch.float16, torch.bfloat16],
            4: [torch.int32, torch.float32],
            8: [torch.int64, torch.float64],
        }
        # Numbers that are computed stay numbers: the bytes of a NaN are not specified.
        if t.dtype != torch.bool and (g.moves or not t.is_floating_point()):
            if not g.moves:
                same = {
                    size: [d for d in ds if not d.is_floating_point] for size, ds in same.items()
                }
            wider = g.choice([1, 2, 4, 8]) if g.chance(0.3) else t.dtype.itemsize
            g.emit("view_bytes({0}, {1})", v, g.choice(same[wider]))


def as_strided(g: Generator, v: V) -> None:
    """See a tensor's storage through arbitrary strides, which may make elements overlap."""
    t = g.get(v)
    room = t.untyped_storage().nbytes() // t.dtype.itemsize
    base = t._base if t._is_view() else t
    # What a storage has beyond its tensor was never written: PyTorch's losses leave such.
    if not 0 < room <= 4096 or base.numel() * base.element_size() != t.untyped_storage().nbytes():
        return
    shape = tuple(1 + g.below(min(6, room)) for _ in range(1 + g.below(3)))
    strides = tuple(g.choice([0, 1, 1, 2, 3, 4, 6]) for _ in shape)
    last = sum((s - 1) * k for s, k in zip(shape, strides, strict=True))
    if last >= room:
        return
    for name in g.emit("{0}.as_strided({1}, {2}, {3})", v, shape, strides, g.below(room - last)):
        found = positions(g.get(name))
        if found is not None and len(found) < numel(shape):
            g.overlapping.add(name)


# --- Writing through them ---------------------------------------------------------------------


@family(8, common=True, moves=True)
def write_through_view(g: Generator) -> None:
    v = writable(g)
    if v is None:
        return
    t = g.get(v)
    if t.dim() == 0:
        return
    index = index_of(g, t)
    r = g.random()
    if r < 0.35:
        g.emit("{0}.__setitem__({1}, {2})", v, index, g.number(t.dtype), results=0)
        return
    source = g.tensor()
    if share(t, g.get(source)):
        return
    if r < 0.55:
        g.emit("{0}.__setitem__({1}, {2})", v, index, source, results=0)
        return
    into = g.emit("{0}[{1}]", v, index)
    if not into or into[0] in g.overlapping or g.get(into[0]) is None:
        return
    fits = [x for x in g.live if broadcasts(g.get(into[0]).shape, g.get(x).shape, True)]
    source = V(g.choice(fits))
    if may_write(g, into[0], source):
        g.emit(
            f"{{0}}.{'copy_' if g.moves else g.choice(['copy_', 'add_', 'mul_', 'sub_'])}({{1}})",
            into[0],
            source,
            results=0,
        )


@family(2, moves=True)
def piece_by_piece(g: Generator) -> None:
    """Write the rows or columns one after another, maybe again, and look at some in between."""
    v = writable(g)
    if v is None:
        return
    t = g.get(v)
    if t.dim() == 0:
        return
    d = g.below(t.dim())
    size = t.shape[d]
    if not 0 < size <= 24:
        return
    before = (slice(None),) * d
    for _ in range(1 + g.below(3)):
        for i in range(size):
            if g.chance(0.9):
                piece = (*before, i if g.chance(0.8) else slice(0, size - i))
                g.emit("{0}.__setitem__({1}, {2})", v, piece, g.number(t.dtype), results=0)
            if g.chance(0.1):
                g.emit("{0}[{1}].clone()", v, (*before, slice(0, 1 + g.below(size))))
