# SPDX-License-Identifier: MIT
"""Inputs by kind, size and number, the same on every device, and work written as an expression."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.core import Case, Side, Work

# Results that are alive together stay this small, so that small sizes are measured in cache.
_ALIVE_BYTES = 256 * 1024
_MOST_SETS = 64


class Inputs:
    """Makes tensors once and keeps them until `clear`; the values depend only on the key."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], Tensor] = {}
        self.size = -1  # of the cases that they are for

    def clear(self) -> None:
        """Forget every tensor."""
        self._made.clear()

    def get(
        self, kind: str, dtype: torch.dtype, shape: Sequence[int], number: int, device: torch.device
    ) -> Tensor:
        """Return the tensor number `number` of a kind: normal, positive, unit, small, mask."""
        key = (kind, dtype, tuple(shape), number)
        host = self._made.get(key)
        if host is None:
            seed = int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:7], "little")
            host = _make(kind, dtype, tuple(shape), torch.Generator().manual_seed(seed))
            self._made[key] = host
        if device.type == "cpu":
            return host
        there = self._made.get((*key, device))
        if there is None:
            there = self._made[(*key, device)] = host.to(device)
        return there


def _make(kind: str, dtype: torch.dtype, shape: tuple[int, ...], generator: Any) -> Tensor:
    if kind.startswith("classes"):  # classes10: labels below 10
        return torch.randint(0, int(kind[7:]), shape, generator=generator)
    if kind == "mask" or dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator, dtype=torch.bool)
    if not dtype.is_floating_point:
        low = 1 if kind == "positive" else -100
        return torch.randint(low, 100, shape, generator=generator, dtype=dtype)
    draw = torch.randn if kind in ("normal", "small") else torch.rand
    factor, shift = {"positive": (4, 0.1), "unit": (0.98, 0.01), "small": (1e-6, 0)}.get(
        kind, (1, 0)
    )
    return (draw(shape, generator=generator) * factor + shift).to(dtype)


def number_of_sets(result_bytes: int) -> int:
    """Return how many distinct input sets are rotated: as many as fit, at least two."""
    return max(2, min(_MOST_SETS, _ALIVE_BYTES // max(result_bytes, 1)))


def is_small(result_bytes: int, sets: int) -> bool:
    """Tell whether the results for that many input sets are kept until all are waited for."""
    return result_bytes * sets <= _ALIVE_BYTES


def expression_work(
    expression: str,
    names: Sequence[str],
    sets: Sequence[Sequence[Any]],
    side: Side,
    result_bytes: int,
    scope: Mapping[str, Any] | None = None,
) -> Work:
    """Compile `expression` over `names` into work that evaluates it once for each set.

    Small results are all alive until the synchronisation; large ones are waited for one by one and
    die when the next is there. The loop is compiled with the expression, so that what is timed is
    the expression and 20 ns of loop.
    """
    target = ", ".join(names) + "," if names else "_"
    if is_small(result_bytes, len(sets)):
        source = f"def run():\n    return [{expression} for {target} in sets]\n"
    else:
        source = (
            f"def run():\n    for {target} in sets:\n        kept = {expression}\n"
            "        synchronize()\n    return kept\n"
        )
    first = f"    {target} = sets[0]\n" if names else ""
    source += f"def one():\n{first}    return {expression}\n"
    scope = {"torch": torch, "F": F, "aten": torch.ops.aten, "device": side.device, **(scope or {})}
    scope |= {"sets": [tuple(s) for s in sets], "synchronize": side.synchronize}
    exec(compile(source, f"<{expression}>", "exec"), scope)
    return Work(scope["run"], len(sets), scope["one"], scope["one"])


_OPERAND = re.compile(r"([!^@]*)(\w+)(?::(\w+))?(?::(\S+))?")
_DTYPES = {"int32": torch.int32, "mask": torch.bool}


@dataclass(frozen=True)
class Op:
    """An expression over operands of any size and dtype: a line of most tables of the suite.

    An operand is a text: marks, a name, a kind of numbers (normal) and a shape (n), as in "x",
    "y:positive", "!x:normal:n/10x10". Marked by "!" it is written, so that each side has its own;
    by "^" its gradient is asked; by "@" it lies on the host. In shapes n is the size, n/10 a tenth
    of it; axb is a matrix of as many elements, as square as a power of ten allows; rxc one of rows
    as models have. `result` are the shapes of what it returns.
    """

    expression: str
    operands: str = "x"
    result: str = "n"
    theirs: str = ""  # what is evaluated on cpu, where it differs
    scope: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names of the operands."""
        return [name for _, name, *_ in _OPERAND.findall(self.operands)]

    def _parsed(self, size: int, dtype: torch.dtype) -> list[Any]:
        return [
            (marks, kind or "normal", _DTYPES.get(kind, dtype), shape_of(shape or "n", size))
            for marks, _, kind, shape in _OPERAND.findall(self.operands)
        ]

    def count(self, size: int, dtype: torch.dtype = torch.float32) -> int:
        """Return how many sets are rotated; where little is returned, the inputs bound it."""
        return number_of_sets(max(self.result_bytes(size, dtype), self._read(size, dtype) // 2))

    def sets(
        self,
        context: Any,
        device: torch.device,
        size: int,
        dtype: torch.dtype = torch.float32,
        count: int = 0,
    ) -> list[list[Any]]:
        """Return distinct sets of operands on a device, `count` of them."""

        def operand(number: int, marks: str, kind: str, own: torch.dtype, shape: Any) -> Tensor:
            kind = "normal" if kind == "int32" else kind
            place = context.cpu.device if "@" in marks else device
            tensor: Tensor = context.inputs.get(kind, own, shape, number, place)
            if marks.strip("@"):
                tensor = tensor.detach().clone()
            return tensor.requires_grad_() if "^" in marks else tensor

        parsed = self._parsed(size, dtype)
        numbers = range(count or self.count(size, dtype))
        return [[operand(32 * n + k, *p) for k, p in enumerate(parsed)] for n in numbers]

    def result_bytes(self, size: int, dtype: torch.dtype = torch.float32) -> int:
        """Return the bytes of what it returns."""
        shapes = [text.partition(":") for text in self.result.split()]
        return sum(
            math.prod(shape_of(shape, size)) * (getattr(torch, own) if own else dtype).itemsize
            for shape, _, own in shapes
        )

    def bytes(self, size: int, dtype: torch.dtype = torch.float32) -> int:
        """Return the bytes that it reads and writes."""
        return self._read(size, dtype) + self.result_bytes(size, dtype)

    def _read(self, size: int, dtype: torch.dtype) -> int:
        return sum(
            math.prod(shape) * (8 if kind.startswith("classes") else own.itemsize)
            for _, kind, own, shape in self._parsed(size, dtype)
        )

    def work(
        self,
        context: Any,
        side: Side,
        size: int,
        dtype: torch.dtype = torch.float32,
        theirs: bool = False,
        count: int = 0,
        each: Callable[[Tensor], Any] | None = None,
        **scope: Any,
    ) -> Work:
        """Return it as work; `each` turns an operand into what another library computes with."""
        made = self.result_bytes(size, dtype)
        sets = self.sets(context, side.device, size, dtype, count)
        if each:
            sets = [[each(t) for t in operands] for operands in sets]
        expression = self.theirs if theirs and self.theirs else self.expression
        return expression_work(expression, self.names, sets, side, made, {**self.scope, **scope})

    def oracle(self, context: Any, size: int) -> Any:
        """Compute the first set in float64."""
        exact = [
            t.double() if t.is_floating_point() else t
            for t in self.sets(context, context.cpu.device, size, count=1)[0]
        ]
        work = expression_work(self.expression, self.names, [exact], context.cpu, 0, self.scope)
        return work.run()[0]

    def case(
        self,
        context: Any,
        name: str,
        size: int,
        dtype: torch.dtype = torch.float32,
        count: int = 0,
        **more: Any,
    ) -> Case:
        """Return its comparison at a size."""

        def build(side: Side) -> Work:
            return self.work(context, side, size, dtype, count=count)

        def peer(side: Side) -> Work:
            return self.work(context, side, size, dtype, True, count)

        own = str(dtype).removeprefix("torch.")
        return Case(name, build, peer if self.theirs else None, size=size, dtype=own, **more)


def shape_of(text: str, size: int) -> tuple[int, ...]:
    """Return the shape that n/100x100 means for a size."""
    square = 10 ** (len(str(size)) // 2)
    columns = 256 if size < 100_000 else 768
    known = {"n": size, "a": square, "b": size // square}
    known |= {"r": max(1, round(size / columns)), "c": columns}
    parts = [part.partition("/") for part in text.split("x")]
    return tuple(
        (known.get(whole) or int(whole)) // int(divisor or 1) for whole, _, divisor in parts
    )
