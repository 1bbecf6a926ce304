# SPDX-License-Identifier: MIT
"""How far a result may lie from float64's: as far as cpu's own, or as rounding explains."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.float64: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
    torch.complex128: torch.complex128,
}


def widen(value: Any, noise: int | None = None, kept: torch.dtype | None = None) -> Any:
    """Copy a nest of arguments in double precision; `noise` seeds roundings of the inputs.

    A rounding is one unit, up or down, of the format that sums are `kept` in: that of each tensor,
    or float32 for halves.
    """
    generator = torch.Generator().manual_seed(noise or 0)

    def one(x: Any) -> Any:
        if isinstance(x, torch.dtype):
            return WIDER.get(x, x)
        if not isinstance(x, torch.Tensor):
            return x
        if x.dtype not in WIDER:
            return x.detach().clone()
        # A storage copied whole keeps strides, views and what overlaps.
        wide = x.detach().to(WIDER[x.dtype])
        wide = wide.clone() if wide.data_ptr() == x.data_ptr() else wide
        if noise is not None and x.layout == torch.strided:
            double = torch.finfo(x.dtype).bits == 64
            unit = torch.finfo(kept or (torch.float64 if double else torch.float32)).eps
            signs = torch.randint(0, 2, x.shape, generator=generator).double() * 2 - 1
            wide = wide * (1 + unit * signs)
        return wide.requires_grad_(x.requires_grad)

    return tree_map(one, value)


def tensors_of(result: Any) -> list[torch.Tensor]:
    """Return the tensors of a nest, on cpu and dense."""
    found = [t.detach().cpu() for t in tree_flatten(result)[0] if isinstance(t, torch.Tensor)]
    dense = {torch.strided: lambda t: t, torch.jagged: lambda t: t.values()}
    return [dense.get(t.layout, torch.Tensor.to_dense)(t) for t in found]


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """Compute in double precision what PyTorch makes of integers; its default is float32."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


# How many roundings of the inputs are tried: what one leaves as it was, another moves.
DRAWS = (1, 2, 3)


@dataclass(frozen=True)
class Rounding:
    """The bound of an error: `units` times what rounding must cost, or that of cpu's result.

    That cost is one unit in the last place of the result's largest element, plus what a rounding of
    every input does to a result in double precision: no algorithm that rounds can be expected to
    lie nearer. Four units are a product, a sum, a quotient and the rounding at the end.

    Where cpu's own error is larger, large terms cancel inside. Ours may then be `cancels` times as
    large, as each is one draw of the same; 0 takes no account of cpu.
    """

    units: float = 4.0
    cancels: float = 4.0

    def excess(
        self,
        ours: torch.Tensor,
        cpu: torch.Tensor,
        exact: torch.Tensor,
        *moved: torch.Tensor,
        other_draws: Callable[[], float] | None = None,
    ) -> str | None:
        """Say by how much one result is too far off, or return None.

        Where nearly everything cancels, one draw of the inputs cannot tell a worse algorithm from
        bad luck. With `other_draws`, which returns `error_beside_cpu()` of inputs of its own, an
        error of up to twice the bound is accepted if ours are on average no larger than cpu's.
        """
        if ours.shape != cpu.shape or ours.dtype != cpu.dtype:
            return f"{ours.dtype}{tuple(ours.shape)} where cpu has {cpu.dtype}{tuple(cpu.shape)}"
        if cpu.dtype not in WIDER:
            return None if torch.equal(ours, cpu) else "values differ, and no rounding explains it"
        same = torch.equal(ours.isnan(), cpu.isnan()) and torch.equal(
            torch.where(ours.isinf(), ours, 0), torch.where(cpu.isinf(), cpu, 0)
        )
        if not same:
            return "NaN or infinities at other places"
        finite = cpu.isfinite() & exact.isfinite()
        if not finite.any():
            return None
        exact = exact[finite]
        theirs, mine = ((t[finite].to(exact.dtype) - exact).abs().max().item() for t in (cpu, ours))
        cost = torch.finfo(cpu.dtype).eps * exact.abs().max().item()
        shifts = [torch.nan_to_num((t[finite] - exact).abs(), 0.0, 0.0, 0.0) for t in moved]
        cost += max((t.max().item() for t in shifts), default=0.0)
        # In double precision the reference rounds as well, and in another order.
        allowed = self.units * cost * (4 if cpu.dtype == exact.dtype else 1)
        if theirs > allowed:
            allowed = max(allowed, self.cancels * theirs)
        if mine <= allowed:
            return None
        problem = f"error {mine:.3g}, cpu's {theirs:.3g}, allowed {allowed:.3g}"
        if other_draws is None or mine > 2 * allowed:
            return problem
        average = other_draws()
        return None if average <= ON_AVERAGE else f"{problem}; other draws: {average:.3g} of cpu's"


# Draws of the inputs of an average, and how many times cpu's error ours may then be. Single ratios
# spread about two times up or down, so a mean of 48 spreads by 0.1: a worse algorithm is found.
DRAWS_OF_AVERAGE = 48
ON_AVERAGE = 1.25


def error_beside_cpu(
    draw: Callable[[int], tuple[torch.Tensor, torch.Tensor, torch.Tensor]],
) -> float:
    """Return the geometric mean of our largest error over cpu's.

    `draw(seed)` returns one result for inputs drawn anew: ours, cpu's, and in double precision.
    """
    total = 0.0
    for seed in range(DRAWS_OF_AVERAGE):
        ours, cpu, exact = (t.detach().cpu() for t in draw(seed))
        # An error of nothing counts as the eighth of a unit, which no difference comes near.
        unit = torch.finfo(cpu.dtype).eps * exact.abs().max().item()
        least = max(unit / 8, torch.finfo(torch.float64).tiny)
        mine, theirs = ((t - exact).abs().max().item() for t in (ours, cpu))
        total += math.log(max(mine, least) / max(theirs, least))
    return math.exp(total / DRAWS_OF_AVERAGE)


def moved_results(evaluate: Callable[[int], Any]) -> list[list[torch.Tensor]]:
    """Return results of inputs rounded in several ways, those that the function accepts."""
    found = []
    for noise in DRAWS:
        with contextlib.suppress(RuntimeError, ValueError):  # outside of the function's domain
            found.append(tensors_of(evaluate(noise)))
    return found


def assert_as_accurate(
    call: Callable[..., Any],
    arguments: Any,
    ours: Any,
    cpu: Any,
    bound: Rounding | None = None,
) -> None:
    """Compare two results of `call(*arguments)` with that in double precision on cpu.

    `arguments` are as they were before the calls, on cpu.
    """
    bound = bound or Rounding()
    with double_precision():
        exact = tensors_of(call(*widen(arguments)))
        moved = moved_results(lambda noise: call(*widen(arguments, noise)))
    rows = zip(tensors_of(ours), tensors_of(cpu), exact, *moved, strict=True)
    for i, row in enumerate(rows):
        problem = bound.excess(*row)
        assert problem is None, f"result {i}: {problem}"
