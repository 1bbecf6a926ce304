# SPDX-License-Identifier: MIT
"""Inputs by kind, size and number, the same on every device, and work written as an expression."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.core import Side, Work

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
            there = host.to(device)
            self._made[(*key, device)] = there
        return there


def _make(kind: str, dtype: torch.dtype, shape: tuple[int, ...], generator: Any) -> Tensor:
    if kind.startswith("classes"):  # classes10: labels below 10
        return torch.randint(0, int(kind[7:]), shape, generator=generator)
    if kind == "mask" or dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator, dtype=torch.bool)
    if not dtype.is_floating_point:
        low = 1 if kind == "positive" else -100
        return torch.randint(low, 100, shape, generator=generator, dtype=dtype)
    if kind == "normal":
        values = torch.randn(shape, generator=generator)
    elif kind == "positive":
        values = torch.rand(shape, generator=generator) * 4 + 0.1
    elif kind == "unit":
        values = torch.rand(shape, generator=generator) * 0.98 + 0.01
    elif kind == "small":
        values = torch.randn(shape, generator=generator) * 1e-6
    else:
        raise ValueError(f"no inputs of kind {kind!r}")
    return values.to(dtype)


def number_of_sets(result_bytes: int) -> int:
    """Return how many distinct input sets are rotated: as many as fit, at least two."""
    return max(2, min(_MOST_SETS, _ALIVE_BYTES // max(result_bytes, 1)))


def expression_work(
    expression: str,
    names: Sequence[str],
    sets: Sequence[Sequence[Any]],
    side: Side,
    result_bytes: int,
    scope: dict[str, Any] | None = None,
) -> Work:
    """Compile `expression` over `names` into work that evaluates it once for each set.

    Small results are all alive until the synchronisation; large ones are waited for one by one and
    die when the next is there. The loop is compiled with the expression, so that what is timed is
    the expression and 20 ns of loop.
    """
    target = ", ".join(names) + "," if names else "_"
    small = result_bytes * len(sets) <= _ALIVE_BYTES
    if small:
        source = f"def run():\n    return [{expression} for {target} in sets]\n"
    else:
        source = (
            f"def run():\n    for {target} in sets:\n        kept = {expression}\n"
            "        synchronize()\n    return kept\n"
        )
    namespace: dict[str, Any] = {
        "torch": torch,
        "F": F,
        "aten": torch.ops.aten,
        "device": side.device,
        "sets": [tuple(s) for s in sets],
        "synchronize": side.synchronize,
        **(scope or {}),
    }
    exec(compile(source, f"<{expression}>", "exec"), namespace)
    first = f"def outputs():\n    ({target}) = sets[0]\n    return {expression}\n"
    if not names:
        first = f"def outputs():\n    return {expression}\n"
    exec(compile(first, f"<{expression}>", "exec"), namespace)
    run: Callable[[], Any] = namespace["run"]
    return Work(run, len(sets), namespace["outputs"], namespace["outputs"])
