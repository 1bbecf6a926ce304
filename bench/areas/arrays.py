# SPDX-License-Identifier: MIT
"""NumPy's code on hologram arrays, unmodified, beside NumPy itself and what compiles such code.

Each program is written once, with NumPy's functions, and is handed arrays of one library or the
other: NumPy finds hologram by ``__array_function__`` and ``__array_ufunc__``. Chains and solvers
are timed at several sizes; the programs of ``array_programs``, whose time goes into many small
operations, at one, with their first calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import hologram
from bench import peers
from bench.areas import array_programs, scientific
from bench.context import Context
from bench.core import Case, Goal, Peer, Row, Side, Work, area, library, mean_row

NUMEXPR, BLOSC2, NUMBA = "numexpr", "blosc2", "Numba"
_SIZES = {1_000: "1K", 16_384: "16K", 262_144: "262K", 1_048_576: "1M", 9_998_244: "10M"}


def magnitude(a: Any, b: Any) -> Any:
    """A chain of functions of single elements."""
    return np.sqrt(a * a + b * b) * np.exp(-a) + np.maximum(a, b) / (b + 2.0)


def polynomial(a: Any, b: Any) -> Any:
    """Horner's rule."""
    return ((((0.1 * a + 0.2) * a - 0.3) * a + 0.4) * a - 0.5) * a + b


def select(a: Any, b: Any) -> Any:
    """Another formula on either side of a limit."""
    return np.where(a > b, np.sqrt(a) - b, np.clip(b - a, 0.1, 0.4))


def standardize(a: Any, b: Any) -> Any:
    """Rows of mean 0 and standard deviation 1, scaled and shifted."""
    centered = a - np.mean(a, axis=1, keepdims=True)
    return centered / np.std(a, axis=1, keepdims=True) * b[0] + b[1]


def softmax(a: Any, b: Any) -> Any:
    """Softmax along rows."""
    e = np.exp(a - np.max(a, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True) + b * 0.0


def residual(a: Any, b: Any) -> Any:
    """A sum of squares, of a chain that is nowhere stored."""
    return np.sum(np.square(a - 0.5 * b)) / a.size


def masked_mean(a: Any, b: Any) -> Any:
    """The mean of the elements that a mask picks."""
    return np.mean(a[a > 0.5]) + b[0, 0]


def gathered(a: Any, b: Any) -> Any:
    """Rows at sorted positions, weighted."""
    order = np.argsort(b[:, 0])
    return np.take(a, order, axis=0) * 2.0 + b


def einsum(a: Any, b: Any) -> Any:
    """Products of rows, by Einstein's notation."""
    return np.einsum("ij,ij->i", a, b)


def product(a: Any, b: Any) -> Any:
    """A product of matrices in the middle of a formula."""
    return np.tanh(a @ b.T * 0.1) + 1.0


@dataclass(frozen=True)
class Program:
    """A function of two square arrays in [0, 1), and the same as a formula where there is one."""

    function: Callable[[Any, Any], Any]
    formula: str | None = None
    by_numba: bool = True
    by_jax: bool = True
    largest: int = max(_SIZES)


PROGRAMS = (
    Program(
        magnitude, "sqrt(a * a + b * b) * exp(-a) + where(a > b, a, b) / (b + 2.0)", by_numba=True
    ),
    Program(polynomial, "((((0.1 * a + 0.2) * a - 0.3) * a + 0.4) * a - 0.5) * a + b"),
    Program(select, by_numba=False),
    Program(standardize, by_numba=False),
    Program(softmax, by_numba=False),
    Program(residual),
    Program(masked_mean, by_numba=False, by_jax=False),
    Program(gathered, by_numba=False),
    Program(einsum, by_numba=False),
    Program(product, by_numba=False, largest=1_048_576),
)


@functools.cache
def _arrays(size: int) -> tuple[np.ndarray[Any, Any], ...]:
    side = round(size**0.5)
    random = np.random.default_rng(size)
    return random.random((side, side)), random.random((side, side))


def _work(function: Callable[..., Any], arrays: Any, wait: Callable[[], None]) -> Work:
    def run() -> Any:
        kept = function(*arrays)
        wait()
        return kept

    def outputs() -> Any:
        found = run()
        many = found if isinstance(found, tuple) else (found,)
        return tuple(torch.from_numpy(np.array(x)) for x in many)

    return Work(run, outputs=outputs)


def _nothing() -> None:
    pass


def _peers(context: Context, program: Program, size: int) -> list[Peer]:
    arrays = _arrays(size)
    made: list[tuple[str, Callable[[], Work], bool]] = []

    def numba() -> Work:
        return _work(library("numba").njit(program.function), arrays, _nothing)

    def numexpr() -> Work:
        found = library("numexpr")
        found.set_num_threads(torch.get_num_threads())
        scope = dict(zip("ab", arrays, strict=True))
        return _work(lambda *_: found.evaluate(program.formula, scope), arrays, _nothing)

    def blosc2() -> Work:
        found = library("blosc2")
        found.set_nthreads(torch.get_num_threads())
        scope = dict(zip("ab", arrays, strict=True))
        lazy = found.lazyexpr(program.formula, scope)
        return _work(lambda *_: lazy[:], arrays, _nothing)

    def jax() -> Work:
        found = library("jax")
        found.config.update("jax_enable_x64", True)
        names = {**globals(), "np": found.numpy}
        made = type(program.function)(program.function.__code__, names, "program")
        compiled = found.jit(made)
        given = [found.numpy.asarray(a) for a in arrays]

        def run(*_: Any) -> Any:
            return found.block_until_ready(compiled(*given))

        return _work(run, arrays, _nothing)

    if program.by_numba:
        made.append((NUMBA, numba, True))
    if program.formula:
        made += [(NUMEXPR, numexpr, False), (BLOSC2, blosc2, False)]
    if program.by_jax:
        made.append((peers.JAX, jax, False))
    return [
        Peer(name, lambda make=make: (make(), context.cpu), is_costly=costly)
        for name, make, costly in made
    ]


def _case(context: Context, own: Side, program: Program, size: int) -> Case:
    return Case(
        f"{program.function.__name__.replace('_', ' ')}, {_SIZES[size]}",
        lambda side: _work(program.function, list(map(hologram.array, _arrays(size))),
                           side.synchronize),
        lambda _: _work(program.function, _arrays(size), _nothing),
        side=own,
        size=size,
        dtype="float64",
        tolerance=(1e-9, 1e-11),
        goal=Goal(1.0),
        peers=_peers(context, program, size),
    )  # fmt: skip


def _scientific(context: Context, own: Side, program: scientific.Program, size: int) -> Case:
    """Return a solver of area `scientific`, its NumPy source on hologram arrays."""
    function = program.over(xp=np, put=scientific.put, copy=np.copy)
    arrays = program.arrays(size)
    names = {peer.name: peer for peer in scientific.peers_of(context, program, size)}
    return Case(
        f"{program.name}, {_SIZES[size]}",
        lambda side: _work(function, list(map(hologram.array, arrays)), side.synchronize),
        lambda _: _work(function, arrays, _nothing),
        side=own,
        size=size,
        dtype="float64",
        tolerance=(1e-9, 1e-11),
        goal=Goal(1.0),
        peers=[names[scientific.NUMBA]],
    )


def _program(context: Context, own: Side, program: array_programs.Program) -> Case:
    """Return a program of many small operations."""
    arrays = program.arrays(np.random.default_rng(0))

    def numba() -> Work:
        return _work(library("numba").njit(program.function), arrays, _nothing)

    own_peers = [Peer(NUMBA, lambda: (numba(), context.cpu), is_costly=True)]
    return Case(
        program.name,
        lambda side: _work(program.function, list(map(hologram.array, arrays)), side.synchronize),
        lambda _: _work(program.function, arrays, _nothing),
        side=own,
        size=max(a.size for a in arrays),
        dtype="float64",
        tolerance=(1e-9, 1e-11),
        goal=Goal(program.goal),
        group=array_programs.__name__,
        peers=own_peers if program.by_numba else [],
    )


def summarize(rows: list[Row]) -> Iterator[Row]:
    """Yield the means against NumPy and each of the others."""
    yield mean_row("geometric mean against NumPy", [r.ratio for r in rows])
    programs = [r for r in rows if r.group == array_programs.__name__]
    if programs:
        yield mean_row("programs of small operations against NumPy", [r.ratio for r in programs])
        first = [r.details["reference_first_call"] / r.details["first_call"] for r in programs]
        yield mean_row("their first calls against NumPy's", first)
    for peer in (NUMEXPR, BLOSC2, NUMBA, peers.JAX):
        ratios = [r.ratio_to(peer) for r in rows if r.ratio_to(peer) == r.ratio_to(peer)]
        if ratios:
            yield mean_row(f"geometric mean against {peer}, {len(ratios)} rows", ratios)


@area(
    "arrays",
    "NumPy code on hologram arrays, unmodified, float64, beside NumPy and what compiles such code",
    seconds=8,
    summarize=summarize,
)
def cases(context: Context) -> Iterator[Case]:
    own = Side(torch.device("cpu"), hologram.Executor(backend="cpu").synchronize)
    for small in array_programs.PROGRAMS[:3] if context.quick else array_programs.PROGRAMS:
        yield _program(context, own, small)
    if not context.whole and not context.quick:
        return
    sizes = [16_384] if context.quick else [1_048_576]
    for size in _SIZES if context.everything else sizes:
        for program in PROGRAMS:
            if size <= program.largest:
                yield _case(context, own, program, size)
        if size in (16_384, 262_144, 1_048_576):
            for solver in scientific.PROGRAMS:
                if solver.unrolls:
                    yield _scientific(context, own, solver, size)
