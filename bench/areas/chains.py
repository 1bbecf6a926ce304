# SPDX-License-Identifier: MIT
"""Chains: programs of a few elementwise ops and row means, as people write them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench import native, peers
from bench.context import Context
from bench.core import Case, Goal, Peer, Row, Unavailable, Work, area, mean_row, size_name
from bench.inputs import Op, shape_of
from bench.machine import cores

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
    return _prices(torch, torch.erf, spot, strike, years)


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
    return _prices(xp, peers.erf(peers.NUMPY if xp is np else peers.JAX), spot, strike, years)


def _prices(xp: Any, erf: Callable[[Any], Any], spot: Any, strike: Any, years: Any) -> Any:
    """Return the prices of calls and puts."""
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
    function: Callable[..., Any]
    arrays: Callable[..., Any]  # its first argument is numpy or jax.numpy
    operands: str
    reads: int
    writes: int
    tolerance: tuple[float, float] = (2e-5, 4e-6)

    @property
    def kernel(self) -> str:
        """The name of its loop in native/chains.cc."""
        return self.function.__name__

    @property
    def in_place(self) -> bool:
        """Tell whether it writes its operands."""
        return "!" in self.operands

    @property
    def _shape(self) -> str:
        return "rxc" if "rxc" in self.operands else "n"  # along rows the operands are matrices

    @property
    def op(self) -> Op:
        """The chain as an expression that calls its function."""
        names = ", ".join(Op("", self.operands).names)
        result = " ".join([self._shape] * self.writes)
        return Op(f"f({names})", self.operands, result, scope={"f": self.function})

    def shape(self, size: int) -> tuple[int, int]:
        """Return rows and columns of the operands that hold about `size` elements."""
        found = shape_of(self._shape, size)
        return found[0], found[1] if len(found) > 1 else 1

    def bytes(self, size: int) -> int:
        """Return the bytes that must be moved: every input once, every output once."""
        return 4 * math.prod(self.shape(size)) * (self.reads + self.writes)


_MATRIX = "x:normal:rxc scale:positive:c"
_WIDE = (5e-5, 1e-5)
_PRICED = "spot:positive strike:positive years:positive"
_TRAINED = "!parameter !gradient !first !second:positive"
CHAINS = (
    Chain("five ops, (a*b+a).relu()*2.0+b", five_op, _array_five_op, "a b", 2, 1),
    Chain(
        "LayerNorm by hand",
        layer_norm,
        _array_layer_norm,
        f"{_MATRIX} shift:normal:c",
        1,
        1,
        _WIDE,
    ),
    Chain("RMSNorm by hand", rms_norm, _array_rms_norm, _MATRIX, 1, 1),
    Chain("SwiGLU", swiglu, _array_swiglu, "gate up", 2, 1),
    Chain("Black-Scholes", black_scholes, _array_black_scholes, _PRICED, 3, 2, _WIDE),
    Chain("Adam by hand", adam, _array_adam, _TRAINED, 4, 3),
)


def peers_of(context: Context, chain: Chain, size: int) -> list[Peer]:
    """Return who else does the same work, and the limits."""
    op, cpu, shape = chain.op, context.cpu, chain.shape(size)

    def jax() -> Work:
        if torch.get_num_threads() != len(cores()):
            raise Unavailable("JAX uses every core that it finds")
        return peers.jax_work(chain.arrays, op, context, size)

    def hand() -> Work:
        sets = op.sets(context, cpu.device, size)
        return native.chain_work(chain.kernel, sets, shape, 0 if chain.in_place else chain.writes)

    def limit() -> Work:
        elements = math.prod(shape)
        return native.limit_work(
            elements, chain.reads, chain.writes, chain.in_place, op.count(size)
        )

    made: list[tuple[str, Callable[[], Work]]] = [
        (peers.COMPILE, lambda: peers.compile_work(chain.function, op, context, size)),
        (peers.NUMPY, lambda: peers.numpy_work(chain.arrays, op, context, size)),
        (peers.JAX, jax),
        (peers.HAND, hand),
        (peers.LIMIT, limit),
    ]
    return [
        Peer(name, lambda make=make: (make(), cpu), name == peers.LIMIT, name == peers.COMPILE)
        for name, make in made
    ]


def make_case(context: Context, chain: Chain, size: int) -> Case:
    """Return the comparison of one chain at one size."""
    return chain.op.case(
        context,
        chain.name,
        size,
        oracle=partial(chain.op.oracle, context, size) if size <= _ORACLE_MOST else None,
        tolerance=chain.tolerance,
        bytes=chain.bytes(size),
        goal=_NO_LOSS,
        group=chain.name,
        peers=peers_of(context, chain, size),
    )


def summarize(rows: list[Row]) -> Iterator[Row]:
    """Yield the figures that the targets bound."""

    def mean(name: str, ratios: list[float], goal: Goal | None = None) -> Row:
        return mean_row(f"geometric mean {name}, {len(ratios)} rows", ratios, goal=goal)

    bound = 4.0 if rows[0].threads == 1 else 5.0
    yield mean("against eager cpu", [r.ratio for r in rows], Goal(bound))
    for size in sorted({r.size for r in rows}):
        yield mean(f"at {size_name(size)}", [r.ratio for r in rows if r.size == size])
    for peer, goal in ((peers.COMPILE, Goal(1.5)), (peers.NUMPY, None), (peers.JAX, None)):
        ratios = [r.ratio_to(peer) for r in rows if not math.isnan(r.ratio_to(peer))]
        if ratios:
            yield mean(f"against {peer}", ratios, goal)
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
            "",
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
        yield Row("", what, worst, 1.0, unit="x", goal=Goal(most, "most"))


def _warm_up(row: Row) -> float:
    """Return what the first call took beyond a later one."""
    return row.details.get("first_call", 0.0) - row.value


def _compile_warm_up(row: Row) -> float:
    figure = row.peers.get(peers.COMPILE)
    return figure.first_call - figure.spread.median if figure and figure.spread else 0.0


@area(
    "chains",
    "Chains: several ops on 1K to 10M elements, beside torch.compile, NumPy, JAX and the limits",
    seconds=95,
    summarize=summarize,
)
def cases(context: Context) -> Iterator[Case]:
    for size in context.sizes:
        for chain in CHAINS[:2] if context.quick else CHAINS:
            yield make_case(context, chain, size)
