# SPDX-License-Identifier: MIT
"""Complex numbers beside NumPy's: special values, layouts, aliases, and bits that do not vary."""

from __future__ import annotations

import itertools
import operator
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hologram as hg
from hologram._hologram import testing

DTYPES = ["complex64", "complex128"]
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "eq": operator.eq, "ne": operator.ne, "and": np.logical_and, "or": np.logical_or,
    "xor": np.logical_xor,
}  # fmt: skip
UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg, "pos": operator.pos, "abs": abs, "square": np.square,
    "reciprocal": np.reciprocal, "exp": np.exp, "isnan": np.isnan, "not": np.logical_not,
    "conj": np.conj, "sqrt": np.sqrt, "log": np.log, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "tanh": np.tanh,
}  # fmt: skip
rng = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


def numbers(shape: Any, dtype: str) -> np.ndarray[Any, Any]:
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype) * 3


def special(dtype: str) -> np.ndarray[Any, Any]:
    """Return every pair of parts that are zero, infinite, NaN, huge and tiny."""
    huge = float(np.finfo(dtype).max) / 8
    parts = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, huge, -1 / huge]
    return np.array([complex(a, b) for a, b in itertools.product(parts, parts)], dtype)


def usual_numbers(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return where neither part is huge or tiny."""
    is_usual = np.ones(x.shape, bool)
    for part in (abs(x.real), abs(x.imag)):
        is_usual &= ((part < 10) & (part > 1e-3)) | (part == 0) | ~np.isfinite(part)
    return is_usual


def close(found: Any, expected: Any, what: object, scale: Any = None, ulps: float = 8) -> None:
    """Check that parts are equal but for rounding, relative to `scale`."""
    expected = np.asarray(expected)
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), what
    if expected.dtype.kind == "b":
        np.testing.assert_array_equal(found, expected, str(what))
        return
    epsilon = float(np.finfo(expected.dtype).eps)
    size = np.abs(expected) if scale is None else scale
    for one, other in ((found.real, expected.real), (found.imag, expected.imag)):
        np.testing.assert_array_equal(np.isnan(one), np.isnan(other), str(what))
        finite = np.isfinite(other) & np.isfinite(one)
        odd = ~finite & ~np.isnan(other)
        np.testing.assert_array_equal(one[odd], other[odd], str(what))
        error = np.abs(one[finite].astype("float64") - other[finite])
        bound = ulps * epsilon * np.broadcast_to(size, other.shape)[finite]
        tiny = ulps * float(np.finfo(expected.dtype).smallest_subnormal)
        assert np.all((error <= bound + tiny) | ~np.isfinite(bound)), what


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name: str, dtype: str) -> None:
    f = BINARY[name]
    pairs = [(numbers(n, dtype), numbers(n, dtype)) for n in (1, 2, 3, 7, 8, 9, 33, 300, 20000)]
    pairs += [
        (numbers((3, 4), dtype), numbers((4,), dtype)),
        (numbers((3, 1, 4), dtype), numbers((2, 1), dtype)),
        (numbers((), dtype), numbers((5,), dtype)),
        (numbers((0, 3), dtype), numbers((3,), dtype)),
        (numbers((6, 8), dtype)[::-2, ::3], numbers((8, 6), dtype).T[:3, 1:4]),
        (numbers((1,) * 8, dtype), numbers((2,) * 8, dtype)),
        (numbers(9, dtype), numbers(9, "complex64")),
        (numbers(9, dtype), rng.standard_normal(9)),
        (rng.standard_normal(9).astype("float32"), numbers(9, dtype)),
        (numbers(9, dtype), np.arange(1, 10)),
        (numbers(9, dtype), np.arange(9) > 4),
    ]
    for x, y in pairs:
        expected = f(x, y)
        scale = None
        if name in ("add", "sub"):
            scale = np.maximum(abs(x), abs(y))
        close(f(hg.array(x), hg.array(y)), expected, (name, x.shape, y.shape), scale)
    for number in (2, 2.5, -0.5j, True, np.float64(3), np.complex64(1 + 2j)):
        x = numbers(70, dtype)
        close(f(hg.array(x), number), f(x, number), (name, number), abs(x) + abs(f(x, number)))
        close(f(number, hg.array(x)), f(number, x), (name, number), abs(x) + abs(f(number, x)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "eq", "ne", "and", "or", "xor"])
def test_special_values_of_two(name: str, dtype: str) -> None:
    f = BINARY[name]
    x = special(dtype)
    expected = f(x[:, None], x)
    found = np.asarray(f(hg.array(x)[:, None], hg.array(x)))
    if expected.dtype.kind == "b":
        np.testing.assert_array_equal(found, expected)
        return
    # Products of huge numbers that cancel overflow or not by how they are rounded.
    usual = np.ones(expected.shape, bool)
    if name in ("mul", "div"):
        usual = usual_numbers(x)[:, None] & usual_numbers(x)
    close(found[usual], expected[usual], name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name: str, dtype: str) -> None:
    f = UNARY[name]
    for shape in [(1,), (3,), (8,), (9,), (33,), (300,), (20000,), (), (0,), (2, 0), (2,) * 8]:
        x = numbers(shape, dtype)
        close(f(hg.array(x)), f(x), (name, shape), ulps=16)
    x = numbers((6, 8), dtype)
    for view in (lambda t: t.T, lambda t: t[::-2, 1::3], lambda t: t[:, :1] + t[:1] * 0):
        close(f(view(hg.array(x))), f(view(x)), name, ulps=16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["neg", "abs", "square", "exp", "isnan", "not", "conj"])
def test_special_values_of_one(name: str, dtype: str) -> None:
    f = UNARY[name]
    x = special(dtype)
    expected, found = np.asarray(f(x)), np.asarray(f(hg.array(x)))
    usual = np.ones(len(x), bool)
    if name in ("square", "exp"):
        usual = usual_numbers(x)
    if name == "exp":
        # C leaves the signs of zeros and infinities open where the angle is none.
        usual &= np.isfinite(x.imag)
    close(found[usual], expected[usual], name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_absolute_values_do_not_overflow(dtype: str) -> None:
    most = float(np.finfo(dtype).max)
    least = float(np.finfo(dtype).tiny)
    x = np.array([complex(a, b) for a in (most, least, 0, -1) for b in (most / 3, least, 3)], dtype)
    close(abs(hg.array(x)), np.hypot(x.real, x.imag), "abs")


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers(dtype: str) -> None:
    x = numbers(50, dtype)
    x[3] = 0
    for exponent in (0, 1, 2, 3, 5, -1, -2, 0.5, 2.5, 1 + 1j):
        close(hg.array(x) ** exponent, x**exponent, exponent, ulps=64)
    y = numbers(50, dtype)
    close(np.power(hg.array(x), hg.array(y)), np.power(x, y), "power", ulps=64)


def everything(z: Any, w: Any) -> list[Any]:
    found = [f(z, w) for f in BINARY.values()] + [f(z) for f in UNARY.values()]
    return [*found, (z + w) * 2 - z, z * w + w / z, abs(z) > 1, z**3]


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_bits_do_not_depend_on_how_it_runs(dtype: str) -> None:
    """At the call and recorded; beside each other and alone; in one piece and in several."""
    for n in (1, 2, 3, 5, 8, 13, 32, 127):
        z, w = numbers(n, dtype), numbers(n, dtype)
        results = []
        for bound in (4096, 0):
            testing.set_immediate_bytes(bound)
            results.append([np.asarray(x).tobytes() for x in everything(hg.array(z), hg.array(w))])
        assert results[0] == results[1], n
    z, w = numbers(40_000, dtype), numbers(40_000, dtype)
    whole = [np.asarray(x) for x in everything(hg.array(z), hg.array(w))]
    for first, last in ((0, 1), (17, 18), (5, 29), (39_000, 40_000)):
        part = everything(hg.array(z[first:last]), hg.array(w[first:last]))
        for one, other in zip(part, whole, strict=True):
            assert np.asarray(one).tobytes() == other[first:last].tobytes(), (first, last)


def test_the_bits_do_not_depend_on_the_instruction_set() -> None:
    script = textwrap.dedent("""
        import hashlib, sys
        import numpy as np
        import hologram as hg
        sys.path.insert(0, sys.argv[1])
        import test_complex as t
        np.seterr(all="ignore")
        found = hashlib.sha256()
        for dtype in t.DTYPES:
            z, w = t.numbers(1003, dtype), t.numbers(1003, dtype)
            z, w = hg.array(z), hg.array(w)
            # Functions differ where there is no fused multiplication.
            for x in [f(z, w) for f in t.BINARY.values()] + [abs(z), z**2, z**3, z**-1, z.conj()]:
                found.update(np.asarray(x).tobytes())
        print(found.hexdigest())
    """)
    hashes = {}
    for isa in ("baseline", "avx2", ""):
        environment = {k: v for k, v in os.environ.items() if k != "HOLOGRAM_FORCE_ISA"}
        if isa:
            environment["HOLOGRAM_FORCE_ISA"] = isa
        done = subprocess.run(
            [sys.executable, "-c", script, os.path.dirname(__file__)],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if isa and "HOLOGRAM_FORCE_ISA" in done.stderr:
            continue  # a processor without it
        assert done.returncode == 0, done.stderr
        hashes[isa] = done.stdout
    assert len(hashes) > 1
    assert len(set(hashes.values())) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [5, 3000])
def test_in_place_and_over_itself(dtype: str, n: int) -> None:
    def run(z: Any) -> Any:
        y = z[1:]
        z *= z
        z[1:] += z[:-1]
        z[::-1] -= z
        y /= 3
        z *= 2j
        np.multiply(z, z, out=z)
        np.conj(z, out=z)
        z.real = z.imag
        z.imag[1:] = 4
        z **= 2
        return z + y.sum()

    x = numbers(n, dtype) / 8
    close(run(hg.array(x)), run(x.copy()), n, scale=abs(run(x.copy())).max(), ulps=64)


def test_results_go_where_numpys_go() -> None:
    z = numbers(20, "complex128")
    h = hg.array(z)
    out = hg.zeros(20)
    assert np.abs(h, out=out) is out
    close(out, np.abs(z), "abs into floats")
    with pytest.raises(TypeError, match="complex128"):
        out += h
    into = hg.zeros(20, "complex64")
    into += h
    close(into, z.astype("complex64"), "added to complex64")
    with pytest.raises(TypeError, match="complex"):
        h // 2


def test_sums_and_scales_are_recorded_and_fuse() -> None:
    z, w = numbers(100_000, "complex64"), numbers(100_000, "complex64")
    with hg.Executor() as ex:
        before = ex.stats()["ops_recorded"]
        found = -(hg.array(z) + hg.array(w)) - hg.array(z)
        assert ex.stats()["ops_recorded"] - before == 3
    close(found, -(z + w) - z, "chain", scale=abs(z) + abs(w))
