# SPDX-License-Identifier: MIT
"""Scientific code: steps of solvers over slices, a recurrence and a long formula, in float64.

Each program is written once, over arrays that are sliced, and runs as it is on every library:
`xp` is its namespace, `put(a, where, value)` returns `a` with a part replaced (in place where the
library's arrays can be written), `copy(a)` a new array of the same values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import torch

from bench import peers
from bench.context import Context
from bench.core import Case, Goal, Peer, Row, Side, Unavailable, Work, area, library, mean_row
from bench.machine import cores

NUMBA = "Numba"
_SIZES = {16_384: "16K", 262_144: "262K", 1_048_576: "1M", 4_194_304: "4M"}
_INNER = (slice(1, -1), slice(1, -1))
_INNER3 = (slice(1, -1), slice(1, -1), slice(1, -1))


def put(a: Any, where: Any, value: Any) -> Any:
    """Replace a part of an array that can be written."""
    a[where] = value
    return a


# The names that the programs find in the scope of each library, NumPy's here.
xp: Any = np
copy: Callable[[Any], Any] = np.copy


def heat(u: Any) -> Any:
    """Two explicit steps of the heat equation in two dimensions."""
    for _ in range(2):
        middle = u[1:-1, 1:-1]
        near = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        u = put(copy(u), _INNER, middle + 0.2 * (near - 4.0 * middle))
    return u


def jacobi(u: Any, f: Any) -> Any:
    """Two sweeps of Jacobi's method for Poisson's equation in three dimensions."""
    for _ in range(2):
        near = u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1] + u[1:-1, 2:, 1:-1] + u[1:-1, :-2, 1:-1]
        near = near + u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2]
        u = put(copy(u), _INNER3, (near - f[1:-1, 1:-1, 1:-1]) / 6.0)
    return u


def wave(u: Any, before: Any, speed: Any) -> Any:
    """A leapfrog step of the wave equation in two dimensions, the speed another everywhere."""
    middle = u[1:-1, 1:-1]
    near = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * middle
    c = speed[1:-1, 1:-1]
    return put(copy(u), _INNER, 2.0 * middle - before[1:-1, 1:-1] + 0.1 * c * c * near)


def shallow_water(h: Any, u: Any, v: Any) -> Any:
    """A Lax-Friedrichs step of the shallow water equations in conservative form."""
    hu, hv = h * u, h * v
    pressure = 4.905 * h * h
    across, along = hu * u + pressure, hv * v + pressure
    mixed = hu * v

    def step(q: Any, x: Any, y: Any) -> Any:
        mean = 0.25 * (q[2:, 1:-1] + q[:-2, 1:-1] + q[1:-1, 2:] + q[1:-1, :-2])
        change = 0.05 * (x[2:, 1:-1] - x[:-2, 1:-1]) + 0.05 * (y[1:-1, 2:] - y[1:-1, :-2])
        return put(copy(q), _INNER, mean - change)

    return step(h, hu, hv), step(hu, across, mixed), step(hv, mixed, along)


def lattice_boltzmann(f0: Any, f1: Any, f2: Any, f3: Any, f4: Any, f5: Any, f6: Any, f7: Any,
                      f8: Any) -> Any:  # fmt: skip
    """Collide and stream a D2Q9 lattice (Bhatnagar, Gross and Krook 1954): nine densities."""
    rho = f0 + f1 + f2 + f3 + f4 + f5 + f6 + f7 + f8
    ux = (f1 - f3 + f5 - f6 - f7 + f8) / rho
    uy = (f2 - f4 + f5 + f6 - f7 - f8) / rho
    base = 1.0 - 1.5 * (ux * ux + uy * uy)

    def collide(f: Any, weight: float, along: Any) -> Any:
        return f + 0.6 * (weight * rho * (base + 3.0 * along + 4.5 * along * along) - f)

    g0 = f0 + 0.6 * (4.0 / 9.0 * rho * base - f0)
    g1, g3 = collide(f1, 1.0 / 9.0, ux), collide(f3, 1.0 / 9.0, -ux)
    g2, g4 = collide(f2, 1.0 / 9.0, uy), collide(f4, 1.0 / 9.0, -uy)
    g5, g7 = collide(f5, 1.0 / 36.0, ux + uy), collide(f7, 1.0 / 36.0, -ux - uy)
    g6, g8 = collide(f6, 1.0 / 36.0, uy - ux), collide(f8, 1.0 / 36.0, ux - uy)
    return (
        g0,
        put(copy(g1), _INNER, g1[1:-1, :-2]),
        put(copy(g2), _INNER, g2[:-2, 1:-1]),
        put(copy(g3), _INNER, g3[1:-1, 2:]),
        put(copy(g4), _INNER, g4[2:, 1:-1]),
        put(copy(g5), _INNER, g5[:-2, :-2]),
        put(copy(g6), _INNER, g6[:-2, 2:]),
        put(copy(g7), _INNER, g7[2:, 2:]),
        put(copy(g8), _INNER, g8[2:, :-2]),
    )


def tridiagonal(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Thomas's algorithm along the last dimension, a plane after another."""
    b, d = copy(b), copy(d)
    n = a.shape[-1]
    for i in range(1, n):
        w = a[..., i] / b[..., i - 1]
        b = put(b, (..., i), b[..., i] - w * c[..., i - 1])
        d = put(d, (..., i), d[..., i] - w * d[..., i - 1])
    d = put(d, (..., n - 1), d[..., n - 1] / b[..., n - 1])
    for i in range(n - 2, -1, -1):
        d = put(d, (..., i), (d[..., i] - c[..., i] * d[..., i + 1]) / b[..., i])
    return d


def sea_water(s: Any, t: Any, p: Any) -> Any:
    """Density of sea water: the equation of state of 1980 (Unesco technical paper 44).

    Of practical salinity, degrees Celsius of the scale of 1968, and bar; in kg/m3.
    """
    root = s * xp.sqrt(s)
    pure = 999.842594 + t * (6.793952e-2 + t * (-9.095290e-3 + t * (
        1.001685e-4 + t * (-1.120083e-6 + t * 6.536332e-9))))  # fmt: skip
    first = 8.24493e-1 + t * (-4.0899e-3 + t * (7.6438e-5 + t * (-8.2467e-7 + t * 5.3875e-9)))
    surface = pure + s * first + root * (-5.72466e-3 + t * (1.0227e-4 - t * 1.6546e-6))
    surface = surface + 4.8314e-4 * s * s
    bulk = 19652.21 + t * (148.4206 + t * (-2.327105 + t * (1.360477e-2 - t * 5.155288e-5)))
    bulk = bulk + s * (54.6746 + t * (-0.603459 + t * (1.09987e-2 - t * 6.1670e-5)))
    bulk = bulk + root * (7.944e-2 + t * (1.6483e-2 - t * 5.3009e-4))
    linear = 3.239908 + t * (1.43713e-3 + t * (1.16092e-4 - t * 5.77905e-7))
    linear = linear + s * (2.2838e-3 + t * (-1.0981e-5 - t * 1.6078e-6)) + 1.91075e-4 * root
    square = 8.50935e-5 + t * (-6.12293e-6 + t * 5.2787e-8)
    square = square + s * (-9.9348e-7 + t * (2.0816e-8 + t * 9.1697e-10))
    return surface / (1.0 - p / (bulk + p * (linear + p * square)))


def relaxation(x: Any, target: Any, rate: Any) -> Any:
    """Explicit steps of an ordinary differential equation in each element: 10,000 operations."""
    for _ in range(2500):
        x = x + 0.01 * (target - rate * x)
    return x


@dataclass(frozen=True)
class Program:
    """A function, the shape of its arrays, and the range of the values of each."""

    function: Callable[..., Any]
    dims: int
    ranges: tuple[tuple[float, float], ...]
    last: int = 0  # elements of the last dimension; 0: as many as of the others
    by_numba: bool = True
    unrolls: bool = True  # JAX and torch.compile can compile it, their loops unrolled, in seconds
    largest: int = 4_194_304

    @property
    def name(self) -> str:
        """The name of its rows."""
        return self.function.__name__.replace("_", " ")

    def shape(self, size: int) -> tuple[int, ...]:
        """Return a shape of about `size` elements."""
        if not self.last:
            return (round(size ** (1 / self.dims)),) * self.dims
        side = round((size / self.last) ** (1 / (self.dims - 1)))
        return (*(side,) * (self.dims - 1), self.last)

    def arrays(self, size: int) -> list[np.ndarray[Any, Any]]:
        """Return the arrays that it is called with."""
        random = np.random.default_rng(size)
        shape = self.shape(size)
        return [random.uniform(low, high, shape) for low, high in self.ranges]

    def over(self, **scope: Any) -> Callable[..., Any]:
        """Return the function with the names of one library."""
        names = {**globals(), **scope}
        return FunctionType(self.function.__code__, names, self.function.__name__)


_UNIT, _DENSITIES = (0.0, 1.0), (0.08, 0.14)
PROGRAMS = (
    Program(heat, 2, (_UNIT,)),
    Program(jacobi, 3, (_UNIT, _UNIT)),
    Program(wave, 2, (_UNIT, _UNIT, _UNIT)),
    # Numba compiles no function inside of another over arrays of arrays.
    Program(shallow_water, 2, ((1.0, 1.2), _UNIT, _UNIT), by_numba=False),
    Program(lattice_boltzmann, 2, (_DENSITIES,) * 9, by_numba=False),
    Program(tridiagonal, 3, ((0.0, 1.0), (3.0, 4.0), (0.0, 1.0), _UNIT), last=30),
    Program(sea_water, 3, ((1.0, 40.0), (-2.0, 35.0), (0.0, 500.0)), last=26),
    Program(relaxation, 1, (_UNIT, _UNIT, (0.5, 1.5)), unrolls=False, largest=1_048_576),
)


def _copy(a: Any) -> Any:
    return a.copy()


def _torch_function(program: Program) -> Callable[..., Any]:
    return program.over(xp=torch, put=put, copy=torch.clone)


def _work(function: Callable[..., Any], arrays: list[Any], wait: Callable[[], None]) -> Work:
    def run() -> Any:
        kept = function(*arrays)
        wait()
        return kept

    return Work(run)


def _nothing() -> None:
    pass


def _torch_work(program: Program, size: int, side: Side) -> Work:
    arrays = [torch.from_numpy(a).to(side.device) for a in program.arrays(size)]
    return _work(_torch_function(program), arrays, side.synchronize)


def _tensors(result: Any) -> Any:
    many = result if isinstance(result, tuple) else (result,)
    return tuple(torch.from_numpy(np.array(a)) for a in many)


def _compared(work: Work) -> Work:
    """Compare the results as tensors, outside of the clock."""
    return Work(work.run, outputs=lambda: _tensors(work.run()))


def _check_unrolls(program: Program) -> None:
    if not program.unrolls:
        raise Unavailable("10,000 operations take minutes to compile")


def peers_of(context: Context, program: Program, size: int) -> list[Peer]:
    """Return who else runs the same source."""
    cpu = context.cpu

    def numpy() -> Work:
        function = program.over(xp=np, put=put, copy=_copy)
        return _compared(_work(function, program.arrays(size), _nothing))

    def numba() -> Work:
        if not program.by_numba:
            raise Unavailable("Numba does not compile its source as it is")
        njit = library(NUMBA.lower()).njit
        function = njit(program.over(xp=np, put=njit(put), copy=njit(_copy)))
        return _compared(_work(function, program.arrays(size), _nothing))

    def jax() -> Work:
        if torch.get_num_threads() != len(cores()):
            raise Unavailable("JAX uses every core that it finds")
        _check_unrolls(program)
        found = library("jax")
        found.config.update("jax_enable_x64", True)
        function = found.jit(
            program.over(
                xp=found.numpy, put=lambda a, where, value: a.at[where].set(value), copy=lambda a: a
            )
        )
        arrays = [found.numpy.asarray(a) for a in program.arrays(size)]

        def run() -> Any:
            return found.block_until_ready(function(*arrays))

        return _compared(Work(run))

    def compiled() -> Work:
        _check_unrolls(program)
        arrays = [torch.from_numpy(a) for a in program.arrays(size)]
        return _work(peers.compile_function(_torch_function(program)), arrays, _nothing)

    made: list[tuple[str, Callable[[], Work]]] = [
        (peers.NUMPY, numpy),
        (NUMBA, numba),
        (peers.JAX, jax),
    ]
    if context.everything:  # it takes longest to compile
        made.append((peers.COMPILE, compiled))
    return [
        Peer(name, lambda make=make: (make(), cpu), is_costly=name in (NUMBA, peers.COMPILE))
        for name, make in made
    ]


def make_case(context: Context, program: Program, size: int) -> Case:
    """Return the comparison of one program at one size."""
    return Case(
        f"{program.name}, {_SIZES[size]}",
        lambda side: _torch_work(program, size, side),
        size=size,
        dtype="float64",
        tolerance=(1e-9, 1e-11),
        bytes=8 * math.prod(program.shape(size)) * (len(program.ranges) + 1),
        goal=Goal(1.0),
        group=program.name,
        peers=peers_of(context, program, size),
    )


def summarize(rows: list[Row]) -> Iterator[Row]:
    """Yield the means, and what the targets say of the best of the others."""
    yield mean_row("geometric mean against eager cpu", [r.ratio for r in rows])
    for peer in (peers.NUMPY, NUMBA, peers.JAX, peers.COMPILE):
        ratios = [r.ratio_to(peer) for r in rows if not math.isnan(r.ratio_to(peer))]
        if ratios:
            yield mean_row(f"geometric mean against {peer}, {len(ratios)} rows", ratios)
    best = []
    for row in rows:
        ratios = [row.ratio_to(p) for p in (NUMBA, peers.JAX, peers.COMPILE)]
        known = [r for r in ratios if not math.isnan(r)]
        if known:
            best.append(min(known))
    if best:
        yield mean_row("against the best of Numba, JAX and torch.compile", best, goal=Goal(1.0))
        yield mean_row("lowest of these", [min(best)], goal=Goal(0.8))


@area(
    "scientific",
    "Scientific code over slices in float64, beside NumPy, Numba, JAX and torch.compile",
    seconds=15,
    summarize=summarize,
)
def cases(context: Context) -> Iterator[Case]:
    sizes = [16_384] if context.quick else [1_048_576]
    for size in _SIZES if context.everything else sizes:
        for program in PROGRAMS:
            if size <= program.largest:
                yield make_case(context, program, size)
