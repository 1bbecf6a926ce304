# SPDX-License-Identifier: MIT
"""A tour for people who write NumPy: arrays, operators that fuse, borders without copies."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

import hologram as hg


def milliseconds(work: Callable[[], object], rounds: int = 15) -> float:
    """Return the median time of some runs."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def main() -> None:
    """Walk through the package and check every step against NumPy."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal(1_000_000, dtype=np.float32)
    b = rng.standard_normal(1_000_000, dtype=np.float32)

    # Arrays come in as copies, so that nobody else writes while ops wait. copy=False shares.
    x, y = hg.asarray(a), hg.asarray(b)
    assert np.shares_memory(np.asarray(hg.asarray(a, copy=False)), a)

    # Operators, broadcasting and dtypes are NumPy's. What is called waits; looking runs it.
    z = hg.maximum(x * y + x, 0) * 2 + y
    expected = np.maximum(a * b + a, 0) * 2 + b
    np.testing.assert_array_equal(np.asarray(z), expected)
    print(f"five ops, one kernel: {z}")
    assert (hg.array([1, 2], dtype=np.int32) + 0.5).dtype == np.float64
    assert (hg.ones((3, 1)) + hg.arange(4)).shape == (3, 4)

    # NumPy's own functions take tensors and give tensors.
    assert isinstance(np.exp(x), hg.Tensor)
    np.testing.assert_allclose(np.asarray(np.exp(x)), np.exp(a), rtol=1e-6)

    # Reductions, slices, products.
    m = hg.asarray(rng.standard_normal((500, 300), dtype=np.float32))
    n = np.asarray(m)
    np.testing.assert_allclose(np.asarray(m.mean(axis=0)), n.mean(axis=0), atol=1e-6)
    np.testing.assert_array_equal(np.asarray(m[::2, -3:].T), n[::2, -3:].T)
    np.testing.assert_allclose(np.asarray(m.T @ m), n.T @ n, rtol=1e-4, atol=1e-3)

    # Buffers of an executor, for code that wants to say where results go.
    with hg.Executor() as ex:
        p, q, r = (ex.allocate(1024, dtype=np.float32) for _ in range(3))
        p.from_numpy(a[:1024])
        q.from_numpy(b[:1024])
        hg.ops.vector_add(ex, p, q, r)
        np.testing.assert_array_equal(r.to_numpy(), a[:1024] + b[:1024])
        print(r)

    # The same work, side by side. Memory of the tensors' own, so that ops may wait and fuse.
    x, y = hg.array(a), hg.array(b)
    ours = milliseconds(lambda: np.asarray(hg.maximum(x * y + x, 0) * 2 + y))
    theirs = milliseconds(lambda: np.maximum(a * b + a, 0) * 2 + b)
    print(f"the chain on a million elements: {ours:.2f} ms, NumPy {theirs:.2f} ms")


if __name__ == "__main__":
    main()
