# SPDX-License-Identifier: MIT
"""Chains: programs of a few elementwise ops and row means, as people write them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench import native, peers
from bench.context import Context
from bench.core import (
    Case,
    Goal,
    Peer,
    Row,
    Side,
    Unavailable,
    Work,
    area,
    geometric_mean,
    size_name,
)
from bench.inputs import expression_work, number_of_sets
from bench.machine import cores

AREA = "chains"
_NO_LOSS = Goal(0.95)
_ORACLE_MOST = 100_000
_RATE, _VOLATILITY, _ROOT_HALF = 0.02, 0.3, math.sqrt(0.5)
_BETA1, _BETA2, _EPSILON, _LEARNING_RATE, _STEP = 0.9, 0.999, 1e-8, 1e-3, 10
_CORRECTION1, _CORRECTION2 = 1 - _BETA1**_STEP, 1 - _BETA2**_STEP


def five_op(a: Tensor, b: Tensor) -> Tensor:
    return (a * b + a).relu() * 2.0 + b


def layer_norm(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + 1e-5) * scale + shift


def rms_norm(x: Tensor, scale: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * scale


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def black_scholes(spot: Tensor, strike: Tensor, years: Tensor) -> tuple[Tensor, Tensor]:
    deviation = _VOLATILITY * torch.sqrt(years)
    drift = years * (_RATE + 0.5 * _VOLATILITY * _VOLATILITY)
    d1 = (torch.log(spot / strike) + drift) / deviation
    d2 = d1 - deviation
    discounted = strike * torch.exp(years * -_RATE)
    p1 = 0.5 * (1.0 + torch.erf(d1 * _ROOT_HALF))
    p2 = 0.5 * (1.0 + torch.erf(d2 * _ROOT_HALF))
    call = spot * p1 - discounted * p2
    return call, call - spot + discounted


def adam(
    parameter: Tensor, gradient: Tensor, first: Tensor, second: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    first.mul_(_BETA1).add_(gradient, alpha=1 - _BETA1)
    second.mul_(_BETA2).addcmul_(gradient, gradient, value=1 - _BETA2)
    spread = second.sqrt().div_(math.sqrt(_CORRECTION2)).add_(_EPSILON)
    parameter.addcdiv_(first, spread, value=-_LEARNING_RATE / _CORRECTION1)
    return parameter, first, second


def _array_five_op(xp: Any, a: Any, b: Any) -> Any:
    return xp.maximum(a * b + a, 0.0) * 2.0 + b


def _array_layer_norm(xp: Any, x: Any, scale: Any, shift: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred * (1.0 / xp.sqrt(variance + 1e-5)) * scale + shift


def _array_rms_norm(xp: Any, x: Any, scale: Any) -> Any:
    return x * (1.0 / xp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)) * scale


def _array_swiglu(xp: Any, gate: Any, up: Any) -> Any:
    return gate / (1.0 + xp.exp(-gate)) * up


def _array_black_scholes(xp: Any, spot: Any, strike: Any, years: Any) -> Any:
    erf = peers.erf(peers.NUMPY if xp is np else peers.JAX)
    deviation = _VOLATILITY * xp.sqrt(years)
    drift = years * (_RATE + 0.5 * _VOLATILITY * _VOLATILITY)
    d1 = (xp.log(spot / strike) + drift) / deviation
    d2 = d1 - deviation
    discounted = strike * xp.exp(years * -_RATE)
    p1 = 0.5 * (1.0 + erf(d1 * _ROOT_HALF))
    p2 = 0.5 * (1.0 + erf(d2 * _ROOT_HALF))
    call = spot * p1 - discounted * p2
    return call, call - spot + discounted


def _array_adam(xp: Any, parameter: Any, gradient: Any, first: Any, second: Any) -> Any:
    if xp is np:
        first *= _BETA1
        first += gradient * (1 - _BETA1)
        second *= _BETA2
        second += gradient * gradient * (1 - _BETA2)
        spread = np.sqrt(second)
        spread /= math.sqrt(_CORRECTION2)
        spread += _EPSILON
        parameter -= first / spread * (_LEARNING_RATE / _CORRECTION1)
        return parameter, first, second
    first = first * _BETA1 + gradient * (1 - _BETA1)
    second = second * _BETA2 + gradient * gradient * (1 - _BETA2)
    spread = xp.sqrt(second) / math.sqrt(_CORRECTION2) + _EPSILON
    return parameter - first / spread * (_LEARNING_RATE / _CORRECTION1), first, second


@dataclass(frozen=True)
class Chain:
    """A program over tensors of one size, in PyTorch and over arrays, and its hand-fused loop."""

    name: str
    kernel: str
    function: Callable[..., Any]
    arrays: Callable[..., Any]  # its first argument is numpy or jax.numpy
    operands: tuple[tuple[str, str], ...]  # name and kind; a kind in brackets is one row
    reads: int
    writes: int
    rows: bool = False  # along rows: the operands are matrices
    in_place: bool = False
    tolerance: tuple[float, float] = (2e-5, 4e-6)

    @property
    def names(self) -> list[str]:
        """The names of the operands."""
        return [name for name, _ in self.operands]

    def shape(self, size: int) -> tuple[int, int]:
        """Return rows and columns of the operands that hold about `size` elements."""
        if not self.rows:
            return size, 1
        columns = 256 if size < 100_000 else 768
        return max(1, round(size / columns)), columns

    def bytes(self, size: int) -> int:
        """Return the bytes that must be moved: every input once, every output once."""
        return 4 * math.prod(self.shape(size)) * (self.reads + self.writes)


CHAINS = (
    Chain(
        "five ops, (a*b+a).relu()*2.0+b",
        "five_op",
        five_op,
        _array_five_op,
        (("a", "normal"), ("b", "normal")),
        2,
        1,
    ),
    Chain(
        "LayerNorm by hand",
        "layer_norm",
        layer_norm,
        _array_layer_norm,
        (("x", "normal"), ("scale", "[positive]"), ("shift", "[normal]")),
        1,
        1,
        rows=True,
        tolerance=(5e-5, 1e-5),
    ),
    Chain(
        "RMSNorm by hand",
        "rms_norm",
        rms_norm,
        _array_rms_norm,
        (("x", "normal"), ("scale", "[positive]")),
        1,
        1,
        rows=True,
    ),
    Chain(
        "SwiGLU",
        "swiglu",
        swiglu,
        _array_swiglu,
        (("gate", "normal"), ("up", "normal")),
        2,
        1,
    ),
    Chain(
        "Black-Scholes",
        "black_scholes",
        black_scholes,
        _array_black_scholes,
        (("spot", "positive"), ("strike", "positive"), ("years", "positive")),
        3,
        2,
        tolerance=(5e-5, 1e-5),
    ),
    Chain(
        "Adam by hand",
        "adam",
        adam,
        _array_adam,
        (
            ("parameter", "normal"),
            ("gradient", "normal"),
            ("first", "normal"),
            ("second", "positive"),
        ),
        4,
        3,
        in_place=True,
    ),
)


class Operands:
    """The sets of inputs of one chain at one size, made when they are asked for."""

    def __init__(self, context: Context, chain: Chain, size: int) -> None:
        self.context, self.chain, self.size = context, chain, size
        self.shape = chain.shape(size)
        elements = math.prod(self.shape)
        self.result_bytes = 4 * elements * chain.writes
        self.count = number_of_sets(max(self.result_bytes, 2 * elements * chain.reads))

    def of(self, device: torch.device, number: int) -> list[Tensor]:
        """Return set `number` on a device; what is written in place is the caller's own."""
        found = []
        for index, (_, kind) in enumerate(self.chain.operands):
            rows, columns = self.shape
            shape: tuple[int, ...] = (rows, columns) if self.chain.rows else (rows,)
            if kind.startswith("["):
                shape = (columns,)
            tensor = self.context.inputs.get(
                kind.strip("[]"), torch.float32, shape, 4 * number + index, device
            )
            found.append(tensor.clone() if self.chain.in_place else tensor)
        return found

    def sets(self, device: torch.device) -> list[list[Tensor]]:
        """Return all sets."""
        return [self.of(device, number) for number in range(self.count)]


class Builder:
    """Builds the work of one chain at one size for every side and peer."""

    def __init__(self, context: Context, chain: Chain, size: int) -> None:
        self.chain = chain
        self.operands = Operands(context, chain, size)
        self.cpu = context.cpu

    def eager(self, side: Side) -> Work:
        """Return the chain as eager PyTorch on a side."""
        names = self.chain.names
        return expression_work(
            f"f({', '.join(names)})",
            names,
            self.operands.sets(side.device),
            side,
            self.operands.result_bytes,
            {"f": self.chain.function},
        )

    def oracle(self) -> Any:
        """Compute the first set in float64."""
        return self.chain.function(*(t.double() for t in self.operands.of(self.cpu.device, 0)))

    def peers(self) -> list[Peer]:
        """Return who else does the same work, and the limits."""
        return [
            Peer(
                peers.COMPILE,
                lambda: self._by(peers.compile_work, self.chain.function),
                is_costly=True,
            ),
            Peer(peers.NUMPY, lambda: self._by(peers.numpy_work, self._array_function(np))),
            Peer(peers.JAX, self._jax),
            Peer(peers.HAND, self._hand),
            Peer(peers.LIMIT, self._limit, is_limit=True),
        ]

    def _by(self, make: Callable[..., Work], function: Callable[..., Any]) -> tuple[Work, Side]:
        sets = self.operands.sets(self.cpu.device)
        return (
            make(function, self.chain.names, sets, self.cpu, self.operands.result_bytes),
            self.cpu,
        )

    def _array_function(self, xp: Any) -> Callable[..., Any]:
        arrays = self.chain.arrays
        return lambda *operands: arrays(xp, *operands)

    def _jax(self) -> tuple[Work, Side]:
        if torch.get_num_threads() != len(cores()):
            raise Unavailable("JAX uses every core that it finds")
        try:
            import jax.numpy as jnp
        except ImportError as error:
            raise Unavailable("jax is not installed") from error
        return self._by(peers.jax_work, self._array_function(jnp))

    def _hand(self) -> tuple[Work, Side]:
        sets = self.operands.sets(self.cpu.device)
        results = 0 if self.chain.in_place else self.chain.writes
        return native.chain_work(self.chain.kernel, sets, self.operands.shape, results), self.cpu

    def _limit(self) -> tuple[Work, Side]:
        chain, operands = self.chain, self.operands
        elements = math.prod(operands.shape)
        work = native.limit_work(
            elements, chain.reads, chain.writes, chain.in_place, operands.count
        )
        return work, self.cpu


def make_case(context: Context, chain: Chain, size: int) -> Case:
    """Return the comparison of one chain at one size."""
    builder = Builder(context, chain, size)
    return Case(
        chain.name,
        builder.eager,
        size=size,
        oracle=builder.oracle if size <= _ORACLE_MOST else None,
        tolerance=chain.tolerance,
        bytes=chain.bytes(size),
        goal=_NO_LOSS,
        group=chain.name,
        peers=builder.peers(),
    )


def summarize(rows: list[Row]) -> list[Row]:
    """Return the figures that the targets bound, by setting."""
    found = []
    for setting in sorted({r.setting for r in rows}):
        here = [r for r in rows if r.setting == setting]
        for about in _about(here, 4.0 if setting.threads == 1 else 5.0):
            about.cores, about.threads = setting.cores, setting.threads
            found.append(about)
    return found


def _about(rows: list[Row], bound: float) -> Iterator[Row]:
    def mean(name: str, ratios: list[float], goal: Goal | None = None) -> Row:
        named = f"{name}, {len(ratios)} rows"
        return Row(AREA, named, 1.0, geometric_mean(ratios), unit="x", goal=goal)

    yield mean("geometric mean against eager cpu", [r.ratio for r in rows], Goal(bound))
    for size in sorted({r.size for r in rows}):
        at = [r.ratio for r in rows if r.size == size]
        yield mean(f"geometric mean at {size_name(size)}", at)
    for peer, goal in ((peers.COMPILE, Goal(1.5)), (peers.NUMPY, None), (peers.JAX, None)):
        ratios = [r.ratio_to(peer) for r in rows if not math.isnan(r.ratio_to(peer))]
        if ratios:
            yield mean(f"geometric mean against {peer}", ratios, goal)
    yield from _most_over(rows, peers.LIMIT, 10_000_000, 1.3)
    yield from _most_over(rows, peers.HAND, 100_000, 1.5)
    # At 10M much of a first call is memory that the system has yet to give, eager's as well.
    small = [r for r in rows if r.size <= 1_000_000]
    for about, among in (("", rows), (" up to 1M", small)):
        if not among:
            continue
        slowest = max(among, key=_warm_up)
        theirs = slowest.details.get("reference_first_call", 0.0) - slowest.reference
        yield Row(
            AREA,
            f"longest warm-up{about}: {slowest.name} at {size_name(slowest.size)}; "
            "of torch.compile",
            max(0.0, _warm_up(slowest)),
            max(_compile_warm_up(r) for r in among),
            goal=Goal(0.010, "most"),
            note=f"of eager cpu there: {max(0.0, theirs) * 1e3:.3g} ms",
        )


def _most_over(rows: list[Row], peer: str, size: int, most: float) -> Iterator[Row]:
    """Yield the chain that is furthest from a limit.

    The memory limit is none for a chain whose hand-fused loop takes more than twice as long.
    """
    over = []
    for row in rows:
        share = 1 / row.ratio_to(peer)
        bound = peer != peers.LIMIT or not row.ratio_to(peers.HAND) > 2 * row.ratio_to(peer)
        if row.size == size and bound and not math.isnan(share):
            over.append((share, row.name))
    if over:
        worst, name = max(over)
        what = f"most times the {peer} at {size_name(size)}: {name}"
        yield Row(AREA, what, worst, 1.0, unit="x", goal=Goal(most, "most"))


def _warm_up(row: Row) -> float:
    """Return what the first call took beyond a later one."""
    return row.details.get("first_call", 0.0) - row.value


def _compile_warm_up(row: Row) -> float:
    figure = row.peers.get(peers.COMPILE)
    if figure is None or figure.spread is None:
        return 0.0
    return figure.first_call - figure.spread.median


@area(
    AREA,
    "Chains: several ops on 1K to 10M elements, beside torch.compile, NumPy, JAX and the limits",
    summarize,
)
def measure(context: Context) -> Iterator[Row]:
    chains = CHAINS[:2] if context.quick else CHAINS

    def cases() -> Iterator[Case]:
        for size in context.sizes:
            for chain in chains:
                yield make_case(context, chain, size)

    yield from context.rows(AREA, cases)
