# SPDX-License-Identifier: MIT
"""Comparing training runs: with our eager mode bit for bit, with cpu up to what rounding explains.

Errors of rounding grow over the steps of a run, in a way that no fixed tolerance fits. So the same
run is done on cpu in float64, which stands for the exact one, and several times in float32: as it
is, and from weights of which each is moved to a neighbouring number or left. By how much these are
off is what rounding explains; ours may be off by a small multiple of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bench.core import Side, make_side
from bench.verify import VerificationError

# How many float32 runs on cpu start beside the exact weights.
MOVED_RUNS = 3
# Runs that differ in rounding alone are off by random amounts of one size. The largest of four runs
# stands for that size; a fifth exceeds four times as much practically never.
FACTOR = 4.0
# Where cpu's runs happen to be exact: the last few bits of a float32 sum.
_LAST_BITS = 8 * torch.finfo(torch.float32).eps


@dataclass
class Curve:
    """What a training run left: the loss of each step, and the weights at its end."""

    losses: list[Tensor]
    weights: list[Tensor]

    def values(self) -> tuple[Tensor, Tensor]:
        """Return losses and all weights in float64 on the host."""
        losses, weights = (
            torch.cat([t.detach().cpu().double().reshape(-1) for t in found] or [torch.zeros(0)])
            for found in (self.losses, self.weights)
        )
        return losses, weights


def move(weights: Sequence[Tensor], seed: int) -> None:
    """Move each number to one of its neighbours, or leave it."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in weights:
            way = torch.randint(-1, 2, weight.shape, generator=generator).to(weight.dtype)
            goal = torch.where(way == 0, weight, way * torch.inf)
            weight.copy_(torch.nextafter(weight, goal))


class Rounding:
    """What rounding explains of a run: how far float32 runs on cpu are from the exact one."""

    def __init__(self, exact: Curve, rounded: Sequence[Curve]) -> None:
        self.losses, self.weights = exact.values()
        runs = [run.values() for run in rounded]
        off = torch.stack([(losses - self.losses).abs() for losses, _ in runs]).amax(0)
        # What a run has been off by it may be off by later.
        grown = off.cummax(0).values if len(off) else off
        self.loss_bound = FACTOR * grown + _LAST_BITS * self.losses.abs()
        distance = max(float(_rms(weights - self.weights)) for _, weights in runs)
        self.weight_bound = FACTOR * distance + _LAST_BITS * float(_rms(self.weights))

    def check(self, name: str, curve: Curve) -> None:
        """Raise VerificationError where a run is further from the exact one than rounding."""
        losses, weights = curve.values()
        if losses.shape != self.losses.shape or weights.shape != self.weights.shape:
            raise VerificationError(
                f"{name}: {len(losses)} losses and {len(weights)} weights instead of "
                f"{len(self.losses)} and {len(self.weights)}"
            )
        off = (losses - self.losses).abs()
        wrong = ~(off <= self.loss_bound)  # NaN is wrong
        if bool(wrong.any()):
            step = int(wrong.nonzero()[0])
            raise VerificationError(
                f"{name}: the loss of step {step} is {losses[step]:.9g}, {off[step]:.2g} from the "
                f"exact {self.losses[step]:.9g}; rounding explains {self.loss_bound[step]:.2g}"
            )
        distance = float(_rms(weights - self.weights))
        if not distance <= self.weight_bound:
            raise VerificationError(
                f"{name}: the weights are {distance:.2g} from the exact ones (root mean square); "
                f"rounding explains {self.weight_bound:.2g}"
            )


def _rms(values: Tensor) -> Tensor:
    return values.square().mean().sqrt()


def check_bits(name: str, curve: Curve, eager: Curve) -> None:
    """Raise VerificationError unless a run is our eager mode's, bit for bit."""
    for what, ours, theirs in (
        ("loss of step", curve.losses, eager.losses),
        ("parameter", curve.weights, eager.weights),
    ):
        for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if not torch.equal(a.detach().cpu(), b.detach().cpu()):
                raise VerificationError(
                    f"{name}: {what} {index} has other bits than in the eager mode"
                )


class Comparison:
    """Checks the runs of one training on every side; what it compares with is made once."""

    def __init__(self, name: str, run: Callable[[Side, torch.dtype, int | None], Curve]) -> None:
        """`run` trains on a side in a dtype, from moved weights where it is given a seed."""
        self.name, self._run = name, run

    @cached_property
    def rounding(self) -> Rounding:
        """What rounding explains."""
        cpu = make_side("cpu")
        seeds = [None, *range(MOVED_RUNS)]
        rounded = [self._run(cpu, torch.float32, seed) for seed in seeds]
        return Rounding(self._run(cpu, torch.float64, None), rounded)

    def check(self, outputs: Sequence[Tensor], steps: int, side: Side) -> None:
        """Check a run of which `outputs` are the losses of `steps` steps, then the weights."""
        curve = Curve(list(outputs[:steps]), list(outputs[steps:]))
        self.rounding.check(f"{self.name} on {side.device}", curve)
        if side.device.type == "hologram":
            import hologram_torch

            with hologram_torch.execution("eager"):
                eager = self._run(side, torch.float32, None)
            check_bits(self.name, curve, eager)
