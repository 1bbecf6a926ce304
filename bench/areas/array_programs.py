# SPDX-License-Identifier: MIT
"""NumPy programs that are no chains: loops over elements, small matrices, recurrences, masks.

Each is a function of arrays, written once with NumPy's functions, that leaves its arguments as they
were. What it makes, it makes of them (``x.copy()``, ``np.zeros_like(x)``), so that it stays with
the library whose arrays it is given.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.core import library

# SciPy reads it when it is imported, which other libraries do; scikit-learn asks for it.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

Arrays = tuple[np.ndarray[Any, Any], ...]


# --- Loops over elements --------------------------------------------------------------------------


def edit_distance(a: Any, b: Any) -> Any:
    """Levenshtein's distance of two sequences, by Wagner and Fischer's table (1974)."""
    before = np.cumsum(np.ones_like(b))
    for i in range(a.shape[0]):
        row = np.zeros_like(b)
        corner, left = i, i + 1
        for j in range(b.shape[0]):
            best = min(before[j] + 1, left + 1, corner + (1 if a[i] != b[j] else 0))
            corner, left = before[j], best
            row[j] = best
        before = row
    return before


def newton(a: Any) -> Any:
    """Cube roots of elements one by one, until two steps agree."""
    roots = a.copy()
    for i in range(a.shape[0]):
        x, wanted = a[i], a[i]
        for _ in range(40):
            step = (x * x * x - wanted) / (3.0 * x * x)
            x = x - step
            if abs(step) < 1e-12:
                break
        roots[i] = x
    return roots


# --- Small matrices -------------------------------------------------------------------------------


def kalman(z: Any, f: Any, q: Any, h: Any) -> Any:
    """Kalman's filter (1960) of a position that is seen with noise: two states."""
    state, spread = np.zeros_like(h), q * 100.0
    found = np.zeros_like(z)
    for i in range(z.shape[0]):
        state = f @ state
        spread = f @ spread @ f.T + q
        seen = h @ spread @ h + 0.5
        gain = spread @ h / seen
        state = state + gain * (z[i] - h @ state)
        spread = spread - np.outer(gain, h @ spread)
        found[i] = state[0]
    return found


def lorenz(start: Any) -> Any:
    """Lorenz's equations (1963) by the method of Runge and Kutta of order four, three numbers."""

    def slope(s: Any) -> Any:
        x, y, z = s[0], s[1], s[2]
        d = np.empty_like(s)
        d[0], d[1], d[2] = 10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z
        return d

    s, dt = start.copy(), 0.01
    for _ in range(100):
        k1 = slope(s)
        k2 = slope(s + 0.5 * dt * k1)
        k3 = slope(s + 0.5 * dt * k2)
        k4 = slope(s + dt * k3)
        s = s + dt / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
    return s


# --- Triangular loops, recurrences over rows ------------------------------------------------------


def forward_substitution(l: Any, b: Any) -> Any:  # noqa: E741
    """The solution of a lower triangular system, a row after another."""
    x = b.copy()
    for i in range(b.shape[0]):
        x[i] = (b[i] - l[i, :i] @ x[:i]) / l[i, i]
    return x


def gram_schmidt(a: Any) -> Any:
    """Orthonormal columns by the modified method of Gram and Schmidt."""
    q = a.copy()
    for k in range(a.shape[1]):
        q[:, k] = q[:, k] / np.sqrt(q[:, k] @ q[:, k])
        for j in range(k + 1, a.shape[1]):
            q[:, j] = q[:, j] - (q[:, k] @ q[:, j]) * q[:, k]
    return q


def smoothing(x: Any, weight: Any) -> Any:
    """Exponential smoothing of a table, a row after another."""
    y = x.copy()
    for i in range(1, x.shape[0]):
        y[i] = weight * x[i] + (1.0 - weight) * y[i - 1]
    return y


def viterbi(scores: Any, steps: Any) -> Any:
    """The best path's score at each state, by Viterbi's recurrence (1967)."""
    best = scores[0].copy()
    for i in range(1, scores.shape[0]):
        best = np.max(best[:, None] + steps, axis=0) + scores[i]
    return best


# --- Complex numbers, masks and positions ---------------------------------------------------------


def julia(z: Any) -> Any:
    """Steps before the points of a plane leave the disc of radius 2, for one of Julia's sets."""
    count = np.zeros_like(np.real(z))
    for _ in range(30):
        z = z * z + (-0.4 + 0.6j)
        inside = np.abs(z) < 2.0
        count = count + inside
        z = np.where(inside, z, 2.0)
    return count


def sieve(n: Any) -> Any:
    """The primes below a bound, by the sieve of Eratosthenes."""
    prime = n > 1
    for p in range(2, int(n.shape[0] ** 0.5) + 1):
        if prime[p]:
            prime[p * p :: p] = False
    return np.nonzero(prime)[0]


def k_means(points: Any, centers: Any) -> Any:
    """Lloyd's iterations: points go to the nearest center, centers to the mean of theirs."""
    centers = centers.copy()
    for _ in range(10):
        apart = np.sum((points[:, None, :] - centers[None]) ** 2, axis=2)
        nearest = np.argmin(apart, axis=1)
        for k in range(centers.shape[0]):
            mine = points[nearest == k]
            if mine.shape[0]:
                centers[k] = np.mean(mine, axis=0)
    return centers


def life(cells: Any) -> Any:
    """Generations of Conway's life on a torus."""
    for _ in range(10):
        rows = cells + np.roll(cells, 1, axis=0) + np.roll(cells, -1, axis=0)
        near = rows + np.roll(rows, 1, axis=1) + np.roll(rows, -1, axis=1) - cells
        cells = np.where((near == 3) | ((near == 2) & (cells == 1)), 1, 0).astype(np.int64)
    return cells


# --- A stencil, statistics on a table -------------------------------------------------------------


def gray_scott(u: Any, v: Any) -> Any:
    """Steps of Gray and Scott's reaction with diffusion."""
    u, v = u.copy(), v.copy()
    for _ in range(20):
        a, b = u[1:-1, 1:-1], v[1:-1, 1:-1]
        near_u = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * a
        near_v = v[2:, 1:-1] + v[:-2, 1:-1] + v[1:-1, 2:] + v[1:-1, :-2] - 4.0 * b
        reaction = a * b * b
        next_u = a + 0.16 * near_u - reaction + 0.035 * (1.0 - a)
        next_v = b + 0.08 * near_v + reaction - 0.095 * b
        u[1:-1, 1:-1], v[1:-1, 1:-1] = next_u, next_v
    return u, v


def table(x: Any, group: Any) -> Any:
    """Standard scores, means of groups, correlations and outliers of a table's columns."""
    scores = (x - np.mean(x, axis=0)) / np.std(x, axis=0)
    means = np.stack([np.mean(scores[group == g], axis=0) for g in range(8)])
    correlation = scores.T @ scores / x.shape[0]
    outliers = np.sum(np.abs(scores) > 2.0, axis=0)
    return means, correlation, outliers


# --- Code of libraries ----------------------------------------------------------------------------


def scikit_learn(x: Any) -> Any:
    """Scaled columns and their principal components, by scikit-learn."""
    sklearn = library("sklearn")
    decomposition = library("sklearn.decomposition")
    preprocessing = library("sklearn.preprocessing")
    with sklearn.config_context(array_api_dispatch=True):
        scaled = preprocessing.StandardScaler().fit_transform(x)
        return abs(decomposition.PCA(3, svd_solver="covariance_eigh").fit_transform(scaled))


def scipy(x: Any) -> Any:
    """Tails of a distribution and moments of columns, by SciPy."""
    special, stats = library("scipy.special"), library("scipy.stats")
    return special.ndtr(x) * special.expit(x), stats.skew(x, axis=0), stats.zscore(x, axis=0)


def xarray(x: Any) -> Any:
    """Anomalies from the mean of each column, weighted, by xarray."""
    data = library("xarray").DataArray(x, dims=("time", "place"))
    weights = 1.0 + data.mean("time")
    return ((data - data.mean("time")) * weights).std("place").data


def dask(x: Any) -> Any:
    """A chain of functions on blocks, by dask."""
    chunks = (max(1, x.shape[0] // 4), x.shape[1])
    blocks = library("dask.array").from_array(x, chunks, name=False, asarray=False)
    return (np.sqrt(blocks * blocks + 1.0) - blocks).sum(axis=0).compute(scheduler="sync")


@dataclass(frozen=True)
class Program:
    """A function of arrays, what makes them, and how many times NumPy's speed it should have."""

    function: Callable[..., Any]
    arrays: Callable[[np.random.Generator], Arrays]
    goal: float
    by_numba: bool = False

    @property
    def name(self) -> str:
        """The name of its row."""
        return self.function.__name__.replace("_", " ")


def _plane(side: int) -> Arrays:
    x = np.linspace(-1.5, 1.5, side)
    return (x[None, :] + 1j * x[:, None],)


def _square(random: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return random.random(shape)


PROGRAMS = (
    Program(edit_distance, lambda r: tuple(r.integers(0, 4, (2, 60))), 0.6),
    Program(newton, lambda r: (r.uniform(1.0, 8.0, 200),), 0.6),
    Program(
        kalman,
        lambda r: (r.normal(size=200), np.array([[1.0, 0.1], [0.0, 1.0]]), np.eye(2) * 0.01,
                   np.array([1.0, 0.0])),
        0.8,
    ),
    Program(lorenz, lambda r: (np.array([1.0, 1.0, 1.0]),), 0.8),
    Program(
        forward_substitution,
        lambda r: (np.tril(r.random((300, 300))) + 300 * np.eye(300), r.random(300)), 0.9,
    ),
    Program(gram_schmidt, lambda r: (_square(r, 200, 40),), 0.9),
    Program(smoothing, lambda r: (_square(r, 500, 1000), r.uniform(0.1, 0.9, 1000)), 0.9),
    Program(viterbi, lambda r: (_square(r, 200, 32), _square(r, 32, 32)), 0.9),
    Program(julia, lambda r: _plane(300), 1.0),
    Program(sieve, lambda r: (np.arange(200_000),), 0.9),
    Program(k_means, lambda r: (_square(r, 20_000, 2), _square(r, 6, 2)), 0.9),
    Program(life, lambda r: (r.integers(0, 2, (512, 512)),), 0.9),
    Program(gray_scott, lambda r: (_square(r, 256, 256), _square(r, 256, 256)), 1.0, True),
    Program(table, lambda r: (_square(r, 20_000, 16), r.integers(0, 8, 20_000)), 0.9),
    Program(scikit_learn, lambda r: (_square(r, 20_000, 16),), 0.9),
    Program(scipy, lambda r: (r.normal(size=(20_000, 16)),), 0.9),
    Program(xarray, lambda r: (_square(r, 2_000, 200),), 0.9),
    Program(dask, lambda r: (_square(r, 1_000, 1_000),), 0.9),
)  # fmt: skip
