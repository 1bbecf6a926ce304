# SPDX-License-Identifier: MIT
"""``python -m hologram``: what this machine and this build offer, and a self-test of seconds."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable

import numpy as np

import hologram as hg
from hologram import backend


def describe() -> dict[str, str]:
    """Return what was found: versions, instruction sets, threads, backends."""
    info = hg.cpu_info()
    isas = info["available_isas"]
    assert isinstance(isas, list)
    found = {
        "hologram": hg.__version__,
        "Python, NumPy": f"{platform.python_version()}, {np.__version__}",
        "system": platform.platform(),
        "processors": f"{info['processors']}, of which {info['threads']} are used",
        "instruction sets": f"{', '.join(isas)}; kernels run on {info['isa']}",
    }
    for kind in backend.BackendType:
        found[f"backend {kind}"] = backend.why_unavailable(kind) or "works"
    return found


def _elementwise() -> None:
    x = np.linspace(-4, 4, 100_003, dtype=np.float32)
    got = np.asarray(hg.maximum(hg.array(x) * hg.array(x) - 0.5, 0) * 2)
    np.testing.assert_array_equal(got, np.maximum(x * x - np.float32(0.5), 0) * 2)


def _reductions() -> None:
    x = np.random.default_rng(0).standard_normal((311, 257))
    array = hg.array(x)
    np.testing.assert_allclose(np.asarray(array.sum(axis=0)), x.sum(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.asarray(array.max(axis=1)), x.max(axis=1))


def _products() -> None:
    rng = np.random.default_rng(1)
    for dtype, tolerance in ((np.float32, 1e-5), (np.float64, 1e-13)):
        a, b = rng.standard_normal((130, 300)), rng.standard_normal((300, 170))
        got = np.asarray(hg.array(a.astype(dtype)) @ hg.array(b.astype(dtype)))
        bound = tolerance * (np.abs(a) @ np.abs(b))
        assert (np.abs(got - a @ b) <= bound).all(), f"a product of {dtype.__name__} is wrong"


CHECKS: dict[str, Callable[[], None]] = {
    "elementwise": _elementwise,
    "reductions": _reductions,
    "products": _products,
}


def run(found: dict[str, str], checks: dict[str, Callable[[], None]]) -> int:
    """Print what was found, run the checks, and return the exit status: 1 where one failed."""
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name:{width}}  {value}")
    failed = 0
    for name, check in checks.items():
        begin = time.perf_counter()
        try:
            check()
            outcome = "ok"
        except Exception as error:
            outcome = f"FAILED: {error}"
            failed = 1
        print(f"self-test {name}: {outcome} ({time.perf_counter() - begin:.2f} s)")
    return failed


def main() -> int:
    """Describe and test."""
    return run(describe(), CHECKS)


if __name__ == "__main__":
    sys.exit(main())
