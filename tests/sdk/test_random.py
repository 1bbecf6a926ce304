# SPDX-License-Identifier: MIT
"""hologram.random beside a scalar Philox, statistics, and NumPy's Generator."""

from __future__ import annotations

import copy
import itertools
import json
import math
import os
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import hologram as hg
from hologram.random import Generator, Philox, default_rng

# --- The definition -------------------------------------------------------------------------------


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> list[int]:
    """Return Philox 4x32-10 of a counter of four words and a key of two."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [
            p1 >> 32 ^ c[1] ^ k[0], p1 & 0xFFFFFFFF,
            p0 >> 32 ^ c[3] ^ k[1], p0 & 0xFFFFFFFF,
        ]  # fmt: skip
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def split(x: int) -> tuple[int, int]:
    return x & 0xFFFFFFFF, x >> 32


def word32(key: int, counter: int, i: int, attempt: int = 0) -> int:
    block = (counter + 16 * (i // 64) + i % 16) % 2**64
    return philox((*split(block), attempt, 0), split(key))[i % 64 // 16]


def word64(key: int, counter: int, i: int, attempt: int = 0) -> int:
    block = (counter + 8 * (i // 16) + i % 8) % 2**64
    words = philox((*split(block), attempt, 0), split(key))
    half = i % 16 // 8 * 2
    return words[half] | words[half + 1] << 32


def even(word: Any, bits: int, count: int) -> int:
    """Return the choice in [0, count) of word(attempt): exact arithmetic of Python's ints."""
    for attempt in itertools.count():
        product = word(attempt) * count
        if product % 2**bits >= 2**bits % count:
            return product >> bits
    raise AssertionError


def at(key: int, counter: int) -> Generator:
    rng = default_rng(0)
    rng.bit_generator.state = {
        "bit_generator": "Philox", "state": {"key": key, "counter": counter},
    }  # fmt: skip
    return rng


def place(rng: Generator) -> tuple[int, int]:
    state = rng.bit_generator.state["state"]
    return state["key"], state["counter"]


def test_published_vectors() -> None:
    # Those of Random123 (kat_vectors: philox4x32, 10 rounds).
    ones = 0xFFFFFFFF
    assert philox((0, 0, 0, 0), (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox((ones,) * 4, (ones,) * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert philox((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)) == [
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    ]
    words = at(0, 0).integers(0, 2**64, 16, np.uint64).tolist()
    assert words[0] == 0xE169C58D6627E8D5 and words[8] == 0x9B00DBD8BC57AC4C


PLACES = [(0, 0), (0x299F31D0A4093822, 0xFFFFFFF9), (2**64 - 1, 2**64 - 7)]


@pytest.mark.parametrize("key, counter", PLACES)
@pytest.mark.parametrize("n", [1, 15, 16, 17, 64, 65, 333])
def test_elements_are_their_words(key: int, counter: int, n: int) -> None:
    words = at(key, counter).integers(0, 2**64, n, np.uint64).tolist()
    assert words == [word64(key, counter, i) for i in range(n)]
    u = at(key, counter).random(n).tolist()
    assert u == [(word64(key, counter, i) >> 11) * 2.0**-53 for i in range(n)]
    for dtype, bits in ((np.float32, 24), (np.float16, 11), (hg.bfloat16, 8)):
        u = at(key, counter).random(n, dtype).astype(np.float64).tolist()
        assert u == [(word32(key, counter, i) >> (32 - bits)) * 2.0**-bits for i in range(n)]


def test_draws_go_on_by_whole_groups() -> None:
    rng = at(5, 2**64 - 3)
    counter = 2**64 - 3
    for draw, blocks in (
        (lambda: rng.random(1), 8), (lambda: rng.random(), 8), (lambda: rng.random(16), 8),
        (lambda: rng.random(17), 16), (lambda: rng.random(64, np.float32), 16),
        (lambda: rng.random((5, 13), np.float32), 32), (lambda: rng.random((0, 3)), 0),
        (lambda: rng.integers(2**28 - 1, size=65), 32), (lambda: rng.integers(2**28, size=65), 40),
        (lambda: rng.permutation(17), 16), (lambda: rng.bytes(129), 16),
    ):  # fmt: skip
        draw()
        counter = (counter + blocks) % 2**64
        assert place(rng) == (5, counter)


RANGES = [
    (0, 1), (0, 7), (-7, 3 << 26), (-(2**27), 2**27 - 1), (0, 2**28), (-5, 3 << 40),
    (-(2**63), 2**63), (-(2**63), 2**62 + 1),
]  # fmt: skip


@pytest.mark.parametrize("low, high", RANGES)
def test_integers_are_exactly_even(low: int, high: int) -> None:
    key, counter, n = 0x299F31D0A4093822, 2**40 - 5, 200
    found = at(key, counter).integers(low, high, n).tolist()
    count = high - low
    word, bits = (word32, 32) if count < 2**28 else (word64, 64)
    expected = [
        low + even(lambda attempt: word(key, counter, i, attempt), bits, count)  # noqa: B023
        for i in range(n)
    ]
    assert found == expected
    bounds = at(key, counter).integers([low] * n, [high] * n).tolist()
    assert bounds == [
        low + even(lambda attempt: word64(key, counter, i, attempt), 64, count)  # noqa: B023
        for i in range(n)
    ]


# --- Distributions --------------------------------------------------------------------------------

N = 200_000


def distance(x: Any, cumulative: Any) -> float:
    """Return Kolmogorov and Smirnov's distance times sqrt(n): beyond 2.7 once in 1e6 times."""
    x = np.sort(np.asarray(x, np.float64).ravel())
    steps = np.arange(x.size + 1) / x.size
    expected = np.array([cumulative(v) for v in x])
    most = max(np.max(steps[1:] - expected), np.max(expected - steps[:-1]))
    return float(most) * math.sqrt(x.size)


def chi_square(counts: np.ndarray) -> float:
    """Return Wilson and Hilferty's normal number of chi-square: beyond 5.5 once in 5e7."""
    expected = counts.sum() / counts.size
    freedom = counts.size - 1
    chi = float(np.sum((counts - expected) ** 2) / expected)
    spread = 2 / (9 * freedom)
    return ((chi / freedom) ** (1 / 3) - 1 + spread) / math.sqrt(spread)


def normal_below(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_uniform_numbers(dtype: str) -> None:
    x = np.asarray(default_rng(1).random(N, dtype), np.float64)
    assert x.min() >= 0 and x.max() < 1
    assert distance(x, lambda v: v) < 2.7
    assert abs(x.mean() - 0.5) < 5 / math.sqrt(12 * N) and abs(x.var() - 1 / 12) < 1e-3
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 5 / math.sqrt(N)
    assert chi_square(np.bincount((x * 64).astype(int), minlength=64)) < 5.5
    y = np.asarray(default_rng(1).uniform(-3, 5, N))
    assert y.min() >= -3 and y.max() < 5
    if dtype == "float64":
        np.testing.assert_array_equal(y, x * 8.0 + -3.0)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_normal_numbers(dtype: str) -> None:
    x = np.asarray(default_rng(2).standard_normal(N, dtype), np.float64)
    assert distance(x, normal_below) < 2.7
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((x**power).mean() - moment) < 5 * math.sqrt(spread / N), power
    # The pairs of Box and Muller are independent, and so are their squares.
    pairs = x[: N // 32 * 32].reshape(-1, 2, 16) if dtype == "float32" else x.reshape(-1, 2, 8)
    one, other = pairs[:, 0].ravel(), pairs[:, 1].ravel()
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(one.size)
    assert abs(np.corrcoef(one**2, other**2)[0, 1]) < 5 / math.sqrt(one.size)
    if dtype == "float64":
        y = np.asarray(default_rng(2).normal(3.0, 2.0, N))
        np.testing.assert_allclose(y, x * 2 + 3, rtol=1e-15, atol=1e-15)
        assert np.abs(x).max() > 4


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_exponential_numbers(dtype: str) -> None:
    x = np.asarray(default_rng(3).standard_exponential(N, dtype), np.float64)
    assert x.min() >= 0
    assert distance(x, lambda v: -math.expm1(-v)) < 2.7
    assert abs(x.mean() - 1) < 5 / math.sqrt(N) and abs((x**2).mean() - 2) < 5 * math.sqrt(20 / N)
    if dtype == "float64":
        u = np.asarray(default_rng(3).random(N))
        np.testing.assert_allclose(x, -np.log1p(-u), rtol=1e-14)
        np.testing.assert_array_equal(np.asarray(default_rng(3).exponential(2.5, N)), x * 2.5)


@pytest.mark.parametrize("count", [2, 10, 63, 1000])
@pytest.mark.parametrize("way", ["32 bits", "64 bits", "arrays"])
def test_integers_are_even(count: int, way: str) -> None:
    rng = default_rng(4)
    if way == "32 bits":
        x = rng.integers(count, size=N)
    elif way == "64 bits":
        step = 2**50
        x = rng.integers(0, count * step, N) // step
    else:
        x = rng.integers(np.zeros(N, int), count)
    assert chi_square(np.bincount(np.asarray(x), minlength=count)) < 5.5


# --- Everything that does not matter --------------------------------------------------------------

PROGRAM = """
import json, sys
import numpy as np, hologram as hg
rng = hg.random.default_rng(json.loads(sys.argv[1]))
found = [
    rng.random(100_001), rng.random(70_001, np.float32), rng.uniform(-1, 2, (300, 301)),
    rng.integers(3 << 26, size=99_999), rng.integers(-5, 3 << 60, 50_001),
    rng.integers(0, 256, 40_001, np.uint8), rng.integers([0, 5], [3, 3 << 60], (20_000, 2)),
    rng.permutation(50_001), rng.choice(1000, 500, replace=False), rng.choice(7, 1000, p=[1/7]*7),
    rng.uniform([0.0, 1.0], 3.0, (5000, 2)), rng.random(3),
    rng.permuted(hg.arange(60).reshape(3, 20), axis=1),
]
found.append(found[0] * 2 + found[0])
inexact = [rng.standard_normal(100_001), rng.standard_normal(70_001, np.float32),
           rng.normal(1, 2, 5), rng.standard_exponential(50_001)]
import hashlib
print(json.dumps({
    "exact": [hashlib.sha256(np.asarray(x).tobytes()).hexdigest() for x in found],
    "inexact": [hashlib.sha256(np.asarray(x).tobytes()).hexdigest() for x in inexact],
    "near": [float(np.abs(np.asarray(x, np.float64)).sum()) for x in inexact],
    "isa": hg.cpu_info()["isa"],
}))
"""


def run(**environment: str) -> dict[str, Any]:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, "[1, 2]"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(found.stdout)
    return result


def test_threads_deferral_and_instruction_sets_do_not_matter() -> None:
    first = run()
    for environment in (
        {"OMP_NUM_THREADS": "1"}, {"OMP_NUM_THREADS": "2"}, {"OMP_NUM_THREADS": "3"},
        {"HOLOGRAM_IMMEDIATE_BYTES": "0"}, {"HOLOGRAM_IMMEDIATE_BYTES": "1000000000"},
        {"HOLOGRAM_EXECUTION": "eager"}, {"HOLOGRAM_WORKER": "0"},
    ):  # fmt: skip
        assert run(**environment) == first, environment
    baseline = run(HOLOGRAM_FORCE_ISA="baseline")
    assert baseline["isa"] != first["isa"] or first["isa"] == "baseline"
    assert baseline["exact"] == first["exact"]
    # Normal and exponential numbers: to the accuracy of logarithms, sines and cosines.
    np.testing.assert_allclose(baseline["near"], first["near"], rtol=1e-6)


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import hologram as hg
rng = hg.random.default_rng([1, 2])
print(rng.random(3).tolist(), rng.normal([1.0, 2.0], 3).tolist(), rng.integers(5, size=3).tolist())
print(rng.permutation(5).tolist(), rng.choice([1, 2, 3], 4, p=[0.5, 0.25, 0.25]).tolist())
x = hg.arange(6)
rng.shuffle(x)
print(x.tolist(), rng.permuted(hg.arange(6).reshape(2, 3), axis=1).tolist())
print(float(rng.exponential()))
"""


def test_it_needs_neither_numpy_nor_torch() -> None:
    found = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMPY + "assert 'torch' not in sys.modules"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    rng = default_rng([1, 2])
    expected = [
        f"{rng.random(3).tolist()} {rng.normal([1.0, 2.0], 3).tolist()} "
        f"{rng.integers(5, size=3).tolist()}",
        f"{rng.permutation(5).tolist()} {rng.choice([1, 2, 3], 4, p=[0.5, 0.25, 0.25]).tolist()}",
    ]
    assert found[:2] == expected


# --- Seeds and state ------------------------------------------------------------------------------


def test_seeds() -> None:
    def first(seed: Any) -> list[float]:
        found: list[float] = default_rng(seed).random(3).tolist()
        return found

    assert first(5) == first(5) == first([5]) == first((5,)) == first(np.int64(5))
    assert first(5) == first(hg.array([5])) == first(np.array([5])) == first(hg.array(5).sum())
    assert first(5) == first(np.uint8(5)) == first(range(5, 6))
    assert first(2**32 + 7) == first([7, 1]) == first([[7], 1])
    assert first(1) == first(True) != first(0)
    different = [0, 1, 2**32, 2**64, 2**200, [0, 0], [1, 2], [2, 1], [], np.random.SeedSequence(0)]
    assert len({tuple(first(seed)) for seed in different}) == len(different)
    assert first(np.random.SeedSequence(3)) == first(np.random.SeedSequence(3))
    assert first(None) != first(None)
    rng = default_rng(7)
    assert default_rng(rng) is rng
    shared = default_rng(rng.bit_generator)
    assert shared.bit_generator is rng.bit_generator
    shared.random(5)
    assert place(shared) == place(rng) != place(default_rng(7))
    assert place(Generator(Philox(7))) == place(default_rng(7))


# Fixed, so that seeds mean the same in every version.
def test_a_seed_keeps_its_numbers() -> None:
    assert place(default_rng(0)) == KEPT_PLACE
    rng = default_rng(42)
    assert rng.random(3).tolist() == KEPT_UNIFORM
    assert rng.integers(1000, size=5).tolist() == KEPT_INTEGERS
    assert rng.permutation(6).tolist() == KEPT_PERMUTATION


KEPT_PLACE = (12177366054877953790, 5082530193274724754)
KEPT_UNIFORM = [0.9208905919658009, 0.9645445875582561, 0.6534500279360023]
KEPT_INTEGERS = [519, 120, 771, 146, 231]
KEPT_PERMUTATION = [0, 1, 3, 4, 2, 5]


def test_state_is_kept_and_restored() -> None:
    rng = default_rng(11)
    rng.normal(size=5)
    rng.spawn(2)
    state = rng.bit_generator.state
    copies = [copy.deepcopy(rng), pickle.loads(pickle.dumps(rng))]
    expected = rng.random(9).tolist()
    for one in copies:
        assert one.random(9).tolist() == expected
        assert place(one) == place(rng)
        # What it spawns goes on, too.
        assert place(one.spawn(1)[0]) == place(copy.deepcopy(rng).spawn(1)[0])
    assert place(rng) != state["state"]
    rng.bit_generator.state = state
    assert rng.random(9).tolist() == expected
    other = default_rng(12)
    other.bit_generator.state = state
    assert other.random(9).tolist() == expected
    assert copy.copy(rng).bit_generator is rng.bit_generator  # as NumPy's
    bits = rng.bit_generator
    assert copy.copy(bits).state == bits.state and copy.copy(bits) is not bits
    assert pickle.loads(pickle.dumps(bits)).state == bits.state
    state["state"]["key"] = 0  # of the dict alone
    assert bits.state["state"]["key"] != 0
    assert repr(rng) == f"hologram.random.Generator({bits!r})"
    key, counter = place(rng)
    assert repr(bits) == f"hologram.random.Philox(key={key}, counter={counter})"


def test_streams_do_not_overlap() -> None:
    rng = default_rng(13)
    children = rng.spawn(50) + rng.spawn(50)
    grandchildren = children[0].spawn(50)
    jumps = [Generator(rng.bit_generator.jumped(n)) for n in range(1, 50)]
    jumped_children = [one.spawn(1)[0] for one in jumps]
    all_of_them = [rng, *children, *grandchildren, *jumps, *jumped_children]
    places = {place(one) for one in all_of_them}
    assert len(places) == len(all_of_them)
    assert len({key for key, _ in places}) == len(all_of_them) - len(jumps)
    words = {w for one in all_of_them for w in one.integers(0, 2**64, 160, np.uint64).tolist()}
    assert len(words) == 160 * len(all_of_them)
    # Jumps are 2^48 blocks of one stream apart.
    key, counter = place(default_rng(13))
    start = default_rng(13).bit_generator
    assert place(Generator(start.jumped(3))) == (key, (counter + 3 * 2**48) % 2**64)
    assert start.jumped(0).state == start.state
    assert start.jumped().jumped().state == start.jumped(2).state
    assert place(default_rng(13).spawn(3)[2]) == place(default_rng(13).spawn(3)[2])


def test_advance_goes_over_blocks() -> None:
    rng = default_rng(14)
    rng.random(160)
    later = rng.random(16).tolist()
    other = default_rng(14)
    assert other.bit_generator.advance(80) is other.bit_generator
    assert other.random(16).tolist() == later
    other.bit_generator.advance(-8)
    assert other.random(16).tolist() == later
    other.bit_generator.advance(2**64)
    other.bit_generator.advance(-8)
    assert other.random(16).tolist() == later


# --- Shapes, dtypes, parameters -------------------------------------------------------------------

SIZES = [None, (), 0, 5, (2, 3), [2, 3], (2, 0), (1, 1, 1), np.int64(4), np.array([2, 2])]
DRAWS: dict[str, Any] = {
    "random": lambda rng, size: rng.random(size),
    "uniform": lambda rng, size: rng.uniform(2, 3, size),
    "normal": lambda rng, size: rng.normal(2, 3, size),
    "standard_normal": lambda rng, size: rng.standard_normal(size),
    "exponential": lambda rng, size: rng.exponential(2, size),
    "standard_exponential": lambda rng, size: rng.standard_exponential(size),
    "integers": lambda rng, size: rng.integers(3, 9, size),
    "choice": lambda rng, size: rng.choice(9, size),
    "choice of a list": lambda rng, size: rng.choice([1.5, 2.5], size),
    "choice by p": lambda rng, size: rng.choice(2, size, p=[0.5, 0.5]),
    "choice without replacement": lambda rng, size: rng.choice(9, size, replace=False),
    "choice without replacement by p": lambda rng, size: rng.choice(
        9, size, replace=False, p=[1 / 9] * 9
    ),
    "0-d parameters": lambda rng, size: rng.normal(np.array(1.0), np.array(2.0), size),
}


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes(name: str, size: Any) -> None:
    expected = np.asarray(DRAWS[name](np.random.default_rng(1), size))
    found = DRAWS[name](default_rng(1), size)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert type(found).__name__.endswith("Scalar") == (size is None)
    assert isinstance(found, hg.Scalar if size is None else hg.Tensor)
    if size is not None:
        assert not isinstance(found, hg.Scalar)
        assert found.flags.c_contiguous and found.flags.writeable


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", hg.bfloat16, np.float32, float])
def test_floating_dtypes(dtype: Any) -> None:
    for method in ("random", "standard_normal", "standard_exponential"):
        found = getattr(default_rng(1), method)((4, 5), dtype)
        assert found.dtype == hg.zeros(1, dtype).dtype and found.shape == (4, 5)
        assert len(set(found.ravel().tolist())) > 10
        assert getattr(default_rng(1), method)(dtype=dtype).dtype == found.dtype


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_dtypes(dtype: str) -> None:
    info = np.iinfo(dtype)
    rng = default_rng(5)
    for low, high, endpoint in (
        (info.min, info.max, True), (info.min, info.max + 1, False), (info.max, info.max, True),
        (info.min, info.min, True), (info.max - 3, info.max, True), (info.min, info.min + 3, False),
    ):  # fmt: skip
        last = high if endpoint else high - 1
        for bounds in ((low, high), ([low], [high])):
            x = rng.integers(*bounds, size=4000, dtype=dtype, endpoint=endpoint)
            assert x.dtype == np.dtype(dtype)
            values = x.tolist()
            assert low <= min(values) and max(values) <= last
            if last - low < 8:
                assert set(values) == set(range(low, last + 1))
            else:
                counts = np.bincount([(v - low) * 16 // (last - low + 1) for v in values])
                assert chi_square(counts) < 5.5
    assert rng.integers(5, dtype=np.dtype(dtype).type).dtype == np.dtype(dtype)


def test_bool_integers() -> None:
    rng = default_rng(6)
    x = rng.integers(0, 2, 10_000, dtype=bool)
    assert x.dtype == np.bool_ and abs(int(x.sum()) - 5000) < 250
    assert not rng.integers(0, 1, 100, bool).any() and rng.integers(1, 2, 100, "bool").all()
    assert rng.integers(0, 1, dtype=bool, endpoint=True).dtype == np.bool_
    assert set(rng.integers([0, 1], 1, (50, 2), bool, True)[:, 0].tolist()) == {False, True}


def test_parameters_broadcast() -> None:
    low, high = np.array([0.0, 10.0, 20.0]), np.array([[1.0], [2.0]])
    rng = default_rng(7)
    x = rng.uniform(low, low + high)
    assert x.shape == (2, 3)
    u = default_rng(7).random((2, 3))
    np.testing.assert_array_equal(np.asarray(x), np.asarray(u) * ((low + high) - low) + low)
    z = default_rng(8).standard_normal((4, 2, 3))
    for loc, scale in ((low, high), (hg.array(low), hg.array(high)), (low.tolist(), high.tolist())):
        x = default_rng(8).normal(loc, scale, (4, 2, 3))
        np.testing.assert_array_equal(np.asarray(x), np.asarray(z) * high + low)
    x = default_rng(9).exponential(low, (5, 3))
    assert not np.asarray(x)[:, 0].any() and np.asarray(x)[:, 1:].all()
    x = rng.integers(low, hg.array([[30], [2**62]]), (500, 2, 3))
    assert x.shape == (500, 2, 3) and x.dtype == np.int64
    assert (x >= hg.array(low)).all() and (x[:, 0] < 30).all() and (x[:, 1] > 30).any()
    x = rng.integers([0, 5], [3, 2**64], (1000, 2), np.uint64)
    assert max(x[:, 1].tolist()) > 2**63 and set(x[:, 0].tolist()) == {0, 1, 2}
    assert rng.integers(0, []).shape == (0,) and rng.normal([], 1).shape == (0,)
    assert rng.uniform([], []).shape == (0,)
    assert rng.integers(0.5, 3.7, 1000).max() == 2 == rng.integers([0.5], [3.7], 1000).max()
    assert isinstance(rng.integers(np.array(0), np.array(5)), hg.Scalar)
    assert isinstance(rng.uniform(hg.array(0.0), 5), hg.Scalar)
    assert rng.normal(np.float32(1), np.float64(2), 3).dtype == np.float64
    assert math.isnan(rng.normal(0, math.nan)) and math.isnan(rng.normal(0, [math.nan])[0])
    # A scale that waits is looked at; a loc is not.
    pending = hg.ones(1000).sum() * 2
    assert rng.normal(pending, pending / 1000, 5).shape == (5,)


def test_uniform_stays_below_high() -> None:
    low = 1.0
    high = math.nextafter(1.0, 2)
    assert set(default_rng(1).uniform(low, high, 1000).tolist()) == {low}
    assert set(default_rng(1).uniform([low], high, 1000).tolist()) == {low}
    assert default_rng(1).uniform(3, 3) == 3 and default_rng(1).uniform([3], 3)[0] == 3


def test_out() -> None:
    for method in ("random", "standard_normal", "standard_exponential"):
        draw = getattr(default_rng(1), method)
        expected = getattr(default_rng(1), method)((3, 4)).tolist()
        out = hg.zeros((3, 4))
        assert draw(out=out) is out and out.tolist() == expected
        columns = hg.zeros((4, 3)).T
        assert getattr(default_rng(1), method)((3, 4), out=columns) is columns
        assert columns.tolist() == expected
        slices = hg.zeros((3, 8))
        getattr(default_rng(1), method)(out=slices[:, ::2])
        assert slices[:, ::2].tolist() == expected and not slices[:, 1::2].any()
        array = np.zeros((3, 4))
        assert getattr(default_rng(1), method)(out=array) is array
        assert array.tolist() == expected
        small = hg.zeros(5, "float32")
        getattr(default_rng(1), method)(dtype="float32", out=small)
        assert small.tolist() == getattr(default_rng(1), method)(5, np.float32).tolist()


def test_bytes() -> None:
    rng = default_rng(1)
    words = default_rng(1).integers(0, 2**64, 2, np.uint64)
    assert rng.bytes(13) == np.asarray(words).astype("<u8").tobytes()[:13]
    assert rng.bytes(0) == b"" and len(rng.bytes(1000)) == 1000
    counts = np.bincount(np.frombuffer(rng.bytes(100_000), np.uint8), minlength=256)
    assert chi_square(counts) < 5.5


def test_draws_wait_and_fuse() -> None:
    x = default_rng(1).random(100_000)
    y = (x * 2 - 1) ** 2
    expected = (np.asarray(default_rng(1).random(100_000)) * 2 - 1) ** 2
    np.testing.assert_array_equal(np.asarray(y), expected)
