# SPDX-License-Identifier: MIT
"""Orders and samples of hologram.random: permutation, permuted, shuffle, choice; and its errors."""

from __future__ import annotations

import collections
import itertools
import math
from typing import Any

import numpy as np
import pytest

import hologram as hg
from hologram.random import Generator, Philox, default_rng


def is_even(counts: Any, groups: int) -> bool:
    """Return whether chi-square of `groups` equally likely outcomes is no surprise (1 in 1e7)."""
    total = sum(counts.values())
    assert len(counts) == groups
    chi = sum((count - total / groups) ** 2 for count in counts.values()) / (total / groups)
    spread = 2 / (9 * (groups - 1))
    return ((chi / (groups - 1)) ** (1 / 3) - 1 + spread) / math.sqrt(spread) < 5.5


# --- Orders ---------------------------------------------------------------------------------------


def test_all_orders_of_four_are_equally_likely() -> None:
    rng = default_rng(1)
    orders = collections.Counter(tuple(rng.permutation(4).tolist()) for _ in range(12_000))
    assert is_even(orders, 24)
    rows = rng.permuted(hg.arange(4).expand((24_000, 4)), axis=1)
    assert is_even(collections.Counter(map(tuple, rows.tolist())), 24)
    lists: Any = collections.Counter()
    for _ in range(6_000):
        items = list("abcd")
        rng.shuffle(items)
        lists[tuple(items)] += 1
    assert is_even(lists, 24)


def test_permutation() -> None:
    rng = default_rng(2)
    for n in (0, 1, 2, 5, 4096, 4097, 100_000):
        x = rng.permutation(n)
        assert x.dtype == np.int64 and x.shape == (n,)
        assert sorted(x.tolist()) == list(range(n))
    assert rng.permutation(np.int32(5)).shape == (5,) and rng.permutation(-3).shape == (0,)
    assert rng.permutation(hg.array(5).sum()).shape == (5,)
    a = np.arange(24.0).reshape(4, 3, 2)
    for source in (a, hg.array(a), a.tolist(), hg.array(a.transpose(2, 1, 0)).T):
        for axis in (0, 1, 2, -1):
            x = rng.permutation(source, axis)
            assert isinstance(x, hg.Tensor) and x.shape == a.shape
            found = np.moveaxis(np.asarray(x), axis, 0)
            wanted = np.moveaxis(a, axis, 0)
            assert sorted(found.tolist()) == sorted(wanted.tolist())
    kept = hg.array(a)
    rng.permutation(kept)
    np.testing.assert_array_equal(np.asarray(kept), a)
    assert sorted(rng.permutation(["a", "b", "c"]).tolist()) == ["a", "b", "c"]
    # One order for equal seeds, whatever is put into it.
    order = default_rng(3).permutation(10)
    np.testing.assert_array_equal(np.asarray(default_rng(3).permutation(hg.arange(10))), order)


@pytest.mark.parametrize("dtype", ["float64", "int8", "bool", "complex64", "uint32", "float16"])
def test_shuffle_keeps_the_rows(dtype: str) -> None:
    rng = default_rng(4)
    a = np.arange(600).reshape(100, 3, 2).astype(dtype)
    for axis in (0, 1, 2, -3):
        x = hg.array(a)
        same = x
        view = x[:50]
        assert rng.shuffle(x, axis) is None
        assert x is same
        found = np.moveaxis(np.asarray(x), axis, 0)
        wanted = np.moveaxis(a, axis, 0)
        assert sorted(map(str, found.tolist())) == sorted(map(str, wanted.tolist()))
        np.testing.assert_array_equal(np.asarray(view), np.asarray(x)[:50])
    assert (found != wanted).any() or dtype == "bool"


def test_shuffle() -> None:
    rng = default_rng(5)
    x = hg.arange(1000)
    rng.shuffle(x)
    assert x.tolist() != list(range(1000)) and sorted(x.tolist()) == list(range(1000))
    columns = hg.array(np.arange(20).reshape(4, 5), order="F")
    rng.shuffle(columns[:, ::2])
    assert sorted(columns[:, 0].tolist()) == [0, 5, 10, 15]
    assert columns[:, 1].tolist() == [1, 6, 11, 16]
    array = np.arange(20).reshape(10, 2)
    rng.shuffle(array)
    assert sorted(array.tolist()) == np.arange(20).reshape(10, 2).tolist()
    objects = np.array([1, "a", None], object)
    rng.shuffle(objects)
    assert set(objects) == {1, "a", None}
    items = [[1], [2], [3], [4], [5]]
    rng.shuffle(items)
    assert sorted(items) == [[1], [2], [3], [4], [5]]
    queue = collections.deque("abc")
    rng.shuffle(queue)
    assert sorted(queue) == ["a", "b", "c"]
    for empty in (hg.zeros((0, 3)), hg.zeros((3, 0)), [], hg.zeros(1)):
        rng.shuffle(empty)
    # One order for equal seeds: of a Tensor, an array, a list, and of permutation().
    order = default_rng(6).permutation(50).tolist()
    for given in (hg.arange(50), np.arange(50), list(range(50))):
        default_rng(6).shuffle(given)
        assert list(map(int, given)) == order


def test_shuffle_reads_what_waits() -> None:
    x = hg.zeros(100_000) + hg.arange(100_000)
    y = x * 2
    default_rng(7).shuffle(x)
    z = x + 1
    assert sorted((z - 1).tolist()) == list(range(100_000))
    assert y.tolist() == [2.0 * i for i in range(100_000)]


def test_permuted() -> None:
    rng = default_rng(8)
    a = np.arange(60).reshape(3, 4, 5)
    for source in (a, hg.array(a), a.tolist()):
        x = rng.permuted(source)
        assert x.shape == a.shape and sorted(x.ravel().tolist()) == list(range(60))
        for axis in (0, 1, 2, -1):
            x = rng.permuted(source, axis=axis)
            assert x.shape == a.shape and x.flags.c_contiguous
            np.testing.assert_array_equal(np.sort(np.asarray(x), axis), a)
            lines = np.moveaxis(np.asarray(x), axis, -1) - np.moveaxis(a, axis, -1)
            assert len(set(map(tuple, lines.reshape(-1, a.shape[axis]).tolist()))) > 1
    out = hg.zeros(a.shape, "int64")
    assert rng.permuted(a, axis=1, out=out) is out
    np.testing.assert_array_equal(np.sort(np.asarray(out), 1), a)
    x = hg.array(a)
    assert rng.permuted(x, axis=2, out=x) is x
    np.testing.assert_array_equal(np.sort(np.asarray(x), 2), a)
    array = a.astype(float)
    assert rng.permuted(a, out=array) is array and sorted(array.ravel()) == list(range(60))
    for shape in ((0, 3), (3, 0), (0,)):
        assert rng.permuted(hg.zeros(shape), axis=0).shape == shape
        assert rng.permuted(hg.zeros(shape), axis=-1).shape == shape
        assert rng.permuted(hg.zeros(shape)).shape == shape
    assert sorted(rng.permuted(["a", "b"]).tolist()) == ["a", "b"]


# --- Samples --------------------------------------------------------------------------------------


def test_choice_without_replacement_is_even() -> None:
    rng = default_rng(9)
    pairs = collections.Counter(
        tuple(rng.choice(5, 2, replace=False).tolist()) for _ in range(10_000)
    )
    assert is_even(pairs, 20)
    for n, k in ((10, 10), (1000, 1), (10**6, 100), (10**6, 300_000), (2**62, 1000), (5, 0)):
        x = rng.choice(n, k, replace=False).tolist()
        assert len(set(x)) == k and all(0 <= one < n for one in x)
    spread = np.sort(np.asarray(rng.choice(10**6, 1000, replace=False)))
    assert abs(spread.mean() - 5e5) < 5 * 1e6 / math.sqrt(12 * 1000)


def successive(p: list[float], k: int) -> dict[tuple[int, ...], float]:
    """Return the probability of each sample: every next one among those that are left, by p."""
    found = {}
    for sample in itertools.permutations(range(len(p)), k):
        probability, left = 1.0, 1.0
        for i in sample:
            probability *= p[i] / left
            left -= p[i]
        if probability > 0:
            found[sample] = probability
    return found


def test_choice_without_replacement_by_probabilities_has_numpys_law() -> None:
    p = [0.4, 0.0, 0.3, 0.2, 0.1]
    expected = successive(p, 3)
    draws = 20_000
    for rng in (default_rng(10), np.random.default_rng(10)):
        counts = collections.Counter(
            tuple(rng.choice(5, 3, replace=False, p=p).tolist())  # type: ignore[attr-defined]
            for _ in range(draws // (1 if isinstance(rng, np.random.Generator) else 4))
        )
        total = sum(counts.values())
        assert set(counts) <= set(expected)
        chi = sum((counts[s] - total * q) ** 2 / (total * q) for s, q in expected.items())
        freedom = len(expected) - 1
        spread = 2 / (9 * freedom)
        assert ((chi / freedom) ** (1 / 3) - 1 + spread) / math.sqrt(spread) < 5.5


def test_choice_by_probabilities() -> None:
    p = np.array([0.0, 0.5, 0.25, 0.0, 0.25, 0.0])
    x = np.asarray(default_rng(11).choice(6, 100_000, p=p))
    counts = np.bincount(x, minlength=6) / x.size
    assert not counts[p == 0].any()
    assert np.abs(counts - p).max() < 5 * math.sqrt(0.25 / x.size)
    # By NumPy's way: the position of a uniform number among the sums.
    u = np.asarray(default_rng(11).random(100_000))
    np.testing.assert_array_equal(x, np.searchsorted(p.cumsum() / p.sum(), u, side="right"))
    for given in (p.tolist(), hg.array(p), hg.array(p, "float32"), p.astype(np.float16)):
        assert (default_rng(11).choice(6, 10, p=given).numpy() == x[:10]).all()
    nearly = np.full(10, np.float32(0.1))
    assert default_rng(11).choice(10, p=nearly) in range(10)


def test_choice_of_arrays() -> None:
    a = np.arange(24.0).reshape(2, 3, 4)
    for source in (a, hg.array(a), a.tolist()):
        for axis, size in itertools.product((0, 1, 2, -1), (None, (), 5, (2, 3), (0, 2))):
            x = default_rng(12).choice(source, size, axis=axis)
            places = np.asarray(default_rng(12).choice(a.shape[axis], size))
            np.testing.assert_array_equal(np.asarray(x), a.take(places, axis))
            assert isinstance(x, hg.Tensor)
    x = hg.array(a)
    row = default_rng(12).choice(x)
    row[...] = 100.0
    np.testing.assert_array_equal(np.asarray(x), a)  # a copy
    assert isinstance(default_rng(1).choice(hg.array([1, 2, 3])), hg.Scalar)
    found = default_rng(1).choice(["a", "b", "c"], 1000)
    assert isinstance(found, np.ndarray) and set(found) == {"a", "b", "c"}
    assert default_rng(1).choice(["a", "b"]) in ("a", "b")
    assert default_rng(1).choice([], 0).shape == (0,) and default_rng(1).choice(0, 0).shape == (0,)
    assert default_rng(1).choice(0, (2, 0)).shape == (2, 0)
    with_p = default_rng(2).choice([10, 20, 30], 50, p=[0, 1, 0])
    assert set(with_p.tolist()) == {20}
    x = default_rng(3).choice(hg.arange(10), (2, 5), replace=False, shuffle=False)
    assert sorted(x.ravel().tolist()) == list(range(10))


# --- Errors ---------------------------------------------------------------------------------------


def put(rng: Any, name: str, key: int) -> None:
    rng.bit_generator.state = {"bit_generator": name, "state": {"key": key, "counter": 1}}


ZEROS = hg.zeros(3)
READONLY = hg.asarray(np.broadcast_to(1.0, 3))
ERRORS: list[tuple[Any, type[Exception], str]] = [
    (lambda r: r.integers(5, 5), ValueError, "low >= high: 5 and 5 have no integer between them"),
    (lambda r: r.integers(5, 3), ValueError, "low >= high: 5 and 3"),
    (lambda r: r.integers(5, 3, endpoint=True), ValueError, "low > high: 5 and 3"),
    (lambda r: r.integers(0), ValueError, "high <= 0: there is no integer up to 0"),
    (lambda r: r.integers(-1, endpoint=True), ValueError, "high < 0: there is no integer up to -1"),
    (lambda r: r.integers([0, 5], [3, 5]), ValueError, "low >= high: 5 and 5"),
    (lambda r: r.integers([4], 3, endpoint=True), ValueError, "low > high: 4 and 3"),
    (
        lambda r: r.integers(0, 300, dtype="uint8"),
        ValueError,
        "high is out of bounds for uint8: 300",
    ),
    (
        lambda r: r.integers([0], 300, dtype="uint8"),
        ValueError,
        "high is out of bounds for uint8: 300",
    ),
    (lambda r: r.integers(-1, 3, dtype="uint8"), ValueError, "low is out of bounds for uint8: -1"),
    (
        lambda r: r.integers([-1], 3, dtype="uint8"),
        ValueError,
        "low is out of bounds for uint8: -1",
    ),
    (
        lambda r: r.integers(2**64),
        ValueError,
        "high is out of bounds for int64: 18446744073709551616",
    ),
    (lambda r: r.integers(0, [-1, 2**64]), ValueError, "high is out of bounds for int64"),
    (lambda r: r.integers([2**64], 2**65), ValueError, "low is out of bounds for int64"),
    (lambda r: r.integers(0, [3, 2**64]), ValueError, "high is out of bounds for int64"),
    (lambda r: r.integers(0, 3, dtype=bool), ValueError, "high is out of bounds for bool: 3"),
    (lambda r: r.integers(0, 2, dtype=float), TypeError, "Unsupported dtype float64 for integers"),
    (lambda r: r.integers(1j), TypeError, "is of integers, not complex128"),
    (lambda r: r.integers([1, 2], [3, 4], 3), ValueError, "cannot be broadcast together"),
    (lambda r: r.integers([1, 2], [[3], [4]], (3, 2)), ValueError, "cannot be broadcast together"),
    (lambda r: r.integers([[1, 2]], 3, 2), ValueError, "shape mismatch: integers makes the shape"),
    (lambda r: r.integers(5, size=-1), ValueError, "negative"),
    (lambda r: r.random(2.5), TypeError, "2.5|float"),
    (lambda r: r.random(dtype=int), TypeError, "Unsupported dtype int64 for random"),
    (lambda r: r.standard_normal(dtype="complex64"), TypeError, "complex64 for standard_normal"),
    (lambda r: r.standard_exponential(method="x"), ValueError, "method is 'zig' or 'inv', not 'x'"),
    (lambda r: r.random(4, out=ZEROS), ValueError, "size must match out.shape when used together"),
    (lambda r: r.random(out=hg.zeros(3, "float32")), TypeError, "out has the wrong type: float32"),
    (lambda r: r.random(out=[1, 2]), ValueError, "out is a Tensor or an array, not list"),
    (lambda r: r.random(out=READONLY), ValueError, "out: the Tensor is read-only"),
    (lambda r: r.random(out=ZEROS.sum()), TypeError, "a Scalar is a number and cannot be written"),
    (lambda r: r.uniform(3, 1), ValueError, "uniform: high - low < 0: it is -2"),
    (lambda r: r.uniform([0, 1], [2, 0]), ValueError, "uniform: high - low < 0: it is -1.0"),
    (lambda r: r.uniform(0, math.inf), OverflowError, "range exceeds valid bounds: it is inf"),
    (lambda r: r.uniform(0, math.nan), OverflowError, "range exceeds valid bounds: it is nan"),
    (lambda r: r.uniform([0, 1], [2, math.inf]), OverflowError, "range exceeds valid bounds"),
    (lambda r: r.uniform([0, 1], math.nan), OverflowError, "range exceeds valid bounds"),
    (lambda r: r.uniform(-1e308, 1.7e308), OverflowError, "range exceeds valid bounds: it is inf"),
    (lambda r: r.uniform(1j), TypeError, "low is of real numbers, not complex128"),
    (lambda r: r.uniform([0, 1], [2, 3, 4]), ValueError, "cannot be broadcast together"),
    (lambda r: r.normal(0, -1), ValueError, "normal: scale < 0"),
    (lambda r: r.normal(0, -0.0), ValueError, "normal: scale < 0"),
    (lambda r: r.normal(0, [1, -1]), ValueError, "normal: scale < 0"),
    (lambda r: r.normal(0, [1, -0.0]), ValueError, "normal: scale < 0"),
    (lambda r: r.exponential(-1), ValueError, "exponential: scale < 0"),
    (lambda r: r.exponential([1, -1]), ValueError, "exponential: scale < 0"),
    (lambda r: r.choice(0), ValueError, "a must be a positive integer unless no samples are taken"),
    (lambda r: r.choice([]), ValueError, "a cannot be empty unless no samples are taken"),
    (
        lambda r: r.choice(5.5),
        ValueError,
        "a must be a sequence or an integer, not <class 'float'>",
    ),
    (
        lambda r: r.choice("abc"),
        ValueError,
        "a must be a sequence or an integer, not <class 'str'>",
    ),
    (lambda r: r.choice(5, 6, replace=False), ValueError, "Cannot take a larger sample than popul"),
    (
        lambda r: r.choice(5, 2, p=[0.5, 0.5]),
        ValueError,
        "a and p must have same size; they have 5",
    ),
    (lambda r: r.choice(2, p=[0.5, 0.6]), ValueError, "Probabilities do not sum to 1: .*1.1"),
    (lambda r: r.choice(2, p=[1.5, -0.5]), ValueError, "Probabilities are not non-negative"),
    (lambda r: r.choice(2, p=[0.5, math.nan]), ValueError, "Probabilities contain NaN"),
    (lambda r: r.choice(2, p=[[0.5, 0.5]]), ValueError, "p must be 1-dimensional, not of shape"),
    (
        lambda r: r.choice(3, 3, replace=False, p=[0.5, 0.5, 0]),
        ValueError,
        "Fewer non-zero entries",
    ),
    (lambda r: r.choice([[1, 2]], axis=2), IndexError, "axis 2 is out of range"),
    (lambda r: r.choice(5, (2, -1)), ValueError, "negative dimensions are not allowed"),
    (lambda r: r.permutation(5.5), IndexError, "axis 0 is out of range"),
    (lambda r: r.permutation([[1, 2]], axis=2), IndexError, "axis 2 is out of range"),
    (lambda r: r.permuted(5), TypeError, "the array has no dimensions"),
    (lambda r: r.permuted([[1, 2]], axis=2), IndexError, "axis 2 is out of range"),
    (lambda r: r.permuted([1, 2], out=ZEROS), ValueError, "out must have the same shape as x"),
    (lambda r: r.permuted([1, 2], out=[1, 2]), TypeError, "out is a Tensor or an array, not list"),
    (lambda r: r.shuffle(5), TypeError, "a int has no items that can be assigned"),
    (lambda r: r.shuffle((1, 2)), TypeError, "a tuple has no items that can be assigned"),
    (lambda r: r.shuffle("abc"), TypeError, "a str has no items that can be assigned"),
    (lambda r: r.shuffle({0: 1}), TypeError, "a dict has no items that can be assigned"),
    (lambda r: r.shuffle([1, 2], axis=1), NotImplementedError, "a list has the axis 0"),
    (lambda r: r.shuffle(hg.zeros((2, 2)), axis=2), IndexError, "axis 2 is out of range"),
    (lambda r: r.shuffle(hg.array(5.0)), TypeError, "the array has no dimensions"),
    (lambda r: r.shuffle(READONLY), ValueError, "the Tensor is read-only; shuffle a copy"),
    (lambda r: r.bytes(-1), ValueError, "the length is at least 0, not -1"),
    (lambda r: r.bytes(2.5), TypeError, "float"),
    (lambda r: r.spawn(-1), ValueError, "the number of children is at least 0, not -1"),
    (
        lambda r: r.bit_generator.jumped(-1),
        ValueError,
        "jumps are at least 0 and below 65536, not -1",
    ),
    (lambda r: r.bit_generator.jumped(65536), ValueError, "below 65536, not 65536"),
    (lambda r: setattr(r.bit_generator, "state", {}), ValueError, "state must be a dict as Philox"),
    (lambda r: setattr(r.bit_generator, "state", 5), TypeError, "state must be a dict as Philox"),
    (lambda r: put(r, "PCG64", 1), ValueError, "state must be a dict of a hologram Philox"),
    (lambda r: put(r, "Philox", 2**64), ValueError, "below 2\\*\\*64"),
    (lambda r: default_rng(-1), ValueError, "expected non-negative integer"),
    (lambda r: default_rng([1, -2]), ValueError, "expected non-negative integer"),
    (lambda r: default_rng(1.5), TypeError, "a seed is None, an int, a sequence of ints"),
    (lambda r: default_rng("5"), TypeError, "a seed is None, an int, a sequence of ints"),
    (lambda r: default_rng({1}), TypeError, "a seed is None, an int, a sequence of ints"),
    (lambda r: default_rng([1.5]), TypeError, "seed must be integer, not float"),
    (
        lambda r: default_rng(np.random.default_rng(1)),
        TypeError,
        "or a bit generator of hologram's",
    ),
    (lambda r: default_rng(np.random.PCG64(1)), TypeError, "or a bit generator of hologram's"),
    (
        lambda r: default_rng(np.random.RandomState(1)),
        TypeError,
        "or a bit generator of hologram's",
    ),
    (lambda r: Generator(5), TypeError, "draws from a hologram.random.Philox, not int"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("call, kind, words", ERRORS, ids=range(len(ERRORS)))
def test_errors(call: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call(default_rng(1))


@pytest.mark.filterwarnings("ignore:you are shuffling")
def test_an_error_of_numpys_is_one_here() -> None:
    """What NumPy's Generator refuses is refused, by the same type or a kind of it."""
    for call, kind, _ in ERRORS:
        try:
            call(np.random.default_rng(1))
        except (AttributeError, KeyError, RuntimeError):
            continue  # of state, jumps: not NumPy's
        except Exception as error:
            # To NumPy a Tensor is no array to write to; spawn() is told by a conversion there.
            words = ("must be contiguous", "must be a numpy array", "uint32_t")
            if any(word in str(error) for word in words):
                continue
            assert isinstance(error, kind) or issubclass(kind, type(error)), (error, kind)


def test_the_module() -> None:
    assert hg.random.__all__ == ["Generator", "Philox", "default_rng"]
    methods = {name for name in dir(Generator) if not name.startswith("_")}
    assert methods == {
        "bit_generator", "bytes", "choice", "exponential", "integers", "normal", "permutation",
        "permuted", "random", "shuffle", "spawn", "standard_exponential", "standard_normal",
        "uniform",
    }  # fmt: skip
    assert methods <= set(dir(np.random.Generator))
    assert {n for n in dir(Philox) if not n.startswith("_")} == {
        "advance", "jumped", "spawn", "state",
    }  # fmt: skip
