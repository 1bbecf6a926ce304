# SPDX-License-Identifier: MIT
"""Small ops at their call: the same results as recorded ones, and nothing that depends on time."""

from __future__ import annotations

import json
import operator
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from both_ways import both

import hologram as hg
from hologram._hologram import testing

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint64", "float16",
          "float32", "float64", "complex64", "complex128"]  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
rng = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def immediate(_either_way: None) -> None:
    testing.set_immediate_bytes(4096)


def bits(x: Any) -> bytes:
    """Return the bytes of a result; of an error its class and text."""
    return np.asarray(x).tobytes() if not isinstance(x, Exception) else repr(x).encode()


def outcome(run: Callable[[], Any]) -> Any:
    """Return what `run` gives, or the error that it raises."""
    try:
        return run()
    except Exception as error:
        return error


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    x = rng.standard_normal(shape) * 3
    with np.errstate(invalid="ignore"):
        return x.astype(dtype)


def computed(fn: Callable[..., Any], *operands: Any) -> Any:
    """Return what `fn` gives for Tensors in the place of arrays, or the error that it raises."""
    return outcome(lambda: fn(*(hg.array(v) if isinstance(v, np.ndarray) else v for v in operands)))


def ops_recorded() -> int:
    with hg.Executor() as ex:
        return int(ex.stats()["ops_recorded"])


@pytest.mark.parametrize("dtype", DTYPES)
def test_operators_give_the_same_bits(dtype: str) -> None:
    binary = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv,
              operator.mod, operator.lt, operator.eq, operator.and_, operator.xor,
              operator.pow]  # fmt: skip
    shapes = [
        ((7,), (7,)),
        ((3, 4), (3, 4)),
        ((3, 4), ()),
        ((), (3, 4)),
        ((), ()),
        ((1,), (1, 1)),
        ((3, 1), (1, 4)),
        ((1, 4), (4,)),
        ((0,), ()),
        ((0, 3), (1,)),
        ((600,), (600,)),
    ]
    for left, right in shapes:
        x, y = values(left, dtype), values(right, dtype)
        for fn in binary:
            for a, b in ((x, y), (x, 2), (x, 2.5), (-3, x), (True, x), (x, 10**30)):
                if fn is operator.pow and not np.issubdtype(np.dtype(dtype), np.inexact):
                    continue
                at_call, recorded = both(lambda: computed(fn, a, b))  # noqa: B023
                assert bits(at_call) == bits(recorded), (fn, left, right, b)
                assert type(at_call) is type(recorded)
                if isinstance(at_call, hg.Tensor):
                    assert at_call.dtype == recorded.dtype
                    assert at_call.shape == recorded.shape


@pytest.mark.parametrize("dtype", DTYPES)
def test_in_place_operators_give_the_same_bits(dtype: str) -> None:
    views: list[tuple[Any, Any]] = [
        (np.s_[:], np.s_[:]), (np.s_[1:], np.s_[:-1]), (np.s_[:-1], np.s_[1:]),
        (np.s_[::2], np.s_[1::2]), (np.s_[::-1], np.s_[:]), (np.s_[2:3], np.s_[0:1]),
        (np.s_[:], np.s_[3:4]), (np.s_[4:5], np.s_[4:5]),
    ]  # fmt: skip
    x = values((12,), dtype)

    def run(into: Any, to: Any, of: Any) -> Any:
        t = hg.array(x)
        target = t[to]
        into(target, t[of])
        return np.asarray(t)

    for into in (operator.iadd, operator.isub, operator.imul, operator.ior):
        for to, of in views:
            at_call, recorded = both(lambda: outcome(lambda: run(into, to, of)))  # noqa: B023
            assert bits(at_call) == bits(recorded), (into, to, of)


VIEWS: list[Callable[[Any], Any]] = [
    lambda v: v[:10, :10],
    lambda v: v[::-1, 1:11][:10],
    lambda v: v.T[1:11, 2:12],
    lambda v: v[:10, 3],
    lambda v: v[11:1:-1, 10:0:-1],
    lambda v: v[4, :10],
    lambda v: v[1:11, 5:6],
    lambda v: v[6:7, 1:11],
    lambda v: v[7:8, 8:9],
    lambda v: v[:10, :10][None],
    lambda v: v[::2, 2][:5],
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_of_one_array_give_numpys_results(dtype: str) -> None:
    x = values((12, 12), dtype)
    for fn in (operator.add, operator.mul, operator.lt):
        for left in VIEWS:
            for right in VIEWS:
                expected = outcome(lambda: fn(left(x), right(x)))  # noqa: B023
                at_call, recorded = both(
                    lambda: computed(lambda t: fn(left(t), right(t)), x)  # noqa: B023
                )
                if isinstance(expected, Exception):
                    assert type(at_call) is type(recorded)
                    continue
                assert bits(at_call) == bits(recorded)
                assert at_call.shape == recorded.shape == expected.shape
                if dtype != "float16":
                    assert np.array_equal(np.asarray(at_call), expected, equal_nan=dtype != "bool")


@pytest.mark.parametrize("dtype", DTYPES)
def test_views_of_one_array_are_written_as_numpy_writes_them(dtype: str) -> None:
    x = values((12, 12), dtype)

    def run(array: Any, into: Any, to: Any, of: Any) -> Any:
        into(to(array), of(array))
        return np.asarray(array)

    def assign(target: Any, value: Any) -> None:
        target[...] = value

    for into in (operator.iadd, operator.imul, assign):
        for to in VIEWS:
            for of in VIEWS:
                expected = outcome(lambda: run(x.copy(), into, to, of))  # noqa: B023
                at_call, recorded = both(
                    lambda: computed(lambda t: run(t, into, to, of), x)  # noqa: B023
                )
                assert bits(at_call) == bits(recorded)
                if not isinstance(expected, Exception) and dtype != "float16":
                    assert np.array_equal(at_call, expected, equal_nan=dtype != "bool")


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_are_numpys(dtype: str) -> None:
    x = values((5, 6), dtype)
    t = hg.array(x)
    keys: list[Any] = [(0, 0), (4, -1), (-5, 5), (np.int64(2), 3), (t.shape[0] - 1, True + 0)]
    for key in keys:
        assert bits(t[key]) == x[key].tobytes(), key
        assert t[key].item() == x[key].item() or x[key] != x[key]
    for key in ((5, 0), (0, -7), (0, 0, 0), (10**30, 0)):
        with pytest.raises(IndexError):
            t[key]
    row = t[1]
    assert [bits(v) for v in row] == [v.tobytes() for v in x[1]]
    index = hg.array([4, 2])
    assert bits(t[index[0], index[1]]) == x[4, 2].tobytes()
    t[3, 2] = t[0, 1]
    x[3, 2] = x[0, 1]
    t[3, 3] = 1
    x[3, 3] = 1
    assert bits(t) == x.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_assigned_numbers_are_numpys(dtype: str) -> None:
    numbers = [1, -1, 2.75, True, 300, 2**40, 1e300, float("nan"), 10**30, np.float64(1.5), None]
    for value in numbers:
        t, x = hg.array(values((3,), dtype)), np.zeros(3, dtype)
        x[:] = np.asarray(t)

        def assign(a: Any) -> None:
            a[1] = value  # noqa: B023

        at_call = outcome(lambda: assign(t))  # noqa: B023
        testing.set_immediate_bytes(0)
        other = hg.array(x)
        recorded = outcome(lambda: assign(other))  # noqa: B023
        testing.set_immediate_bytes(4096)
        assert type(at_call) is type(recorded), value
        assert bits(t) == bits(other), value


def test_pending_values_are_waited_for() -> None:
    big = hg.array(np.arange(5000.0))
    for _ in range(3):
        y = big * 2  # recorded
        assert y[7].item() == 14.0
        z = big + 1
        z[3] = 99.0  # comes after what is recorded
        assert z[3].item() == 99.0
        assert z[4].item() == 5.0
        small = z[:5] * 2  # its operand is pending until it was looked at
        z[0] = -1.0
        assert small[0].item() == 2.0
        # What is recorded reads the value of before.
        w = big * 1
        v = w + z
        z[1] = 1000.0
        assert v[1].item() == 3.0
        assert z[1].item() == 1000.0


def test_a_write_waits_for_recorded_readers() -> None:
    x = hg.array(np.arange(8.0))
    big = hg.array(np.zeros((2000, 8)))
    total = (big + x).sum()
    x += 1
    x[0] = 50.0
    assert total.item() == 2000 * 28.0
    assert x.tolist() == [50.0, *range(2, 9)]


def test_small_ops_are_not_recorded_and_large_ones_are() -> None:
    x, y = hg.array(np.ones(512)), hg.array(np.ones(513))
    np.asarray(x + 1), np.asarray(y + 1)
    before = ops_recorded()
    z = x * 2 + x
    z += 1
    z[3] = z[4] + z[5]
    assert ops_recorded() == before
    w = y * 2
    assert ops_recorded() == before + 1
    assert (float(z[3]), float(w[0])) == (8.0, 2.0)


def test_the_bound_is_a_number_of_bytes() -> None:
    with pytest.raises(ValueError, match="takes a number of bytes, 0 or more, got -1"):
        testing.set_immediate_bytes(-1)
    testing.set_immediate_bytes(2**62)
    assert testing.immediate_bytes() == 2**40
    testing.set_immediate_bytes(80)
    assert testing.immediate_bytes() == 80


def run_child(code: str, **environment: str) -> Any:
    """Return what a program of its own prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_what_is_recorded_does_not_depend_on_the_worker() -> None:
    code = """
        import json
        import numpy as np
        import hologram as hg
        with hg.Executor() as ex:
            x = hg.array(np.linspace(0, 1, 20000))
            s, history = hg.array([0.0, 0.0]), []
            for i in range(300):
                x = x * 0.5 + s[0]
                if i % 7 == 0:
                    s[0] = x[i]
                if i % 11 == 0:
                    history.append(float(x[3] + s[1]))
                s += 1
                y = x[:100] + s[1]
                s[1] = y[i % 100] if i % 3 == 0 else 0.5
            total = float(x.sum()) + float(s[0])
            stats = ex.stats()
        print(json.dumps([stats["ops_recorded"], total, history]))
    """
    assert run_child(code, HOLOGRAM_WORKER="0") == run_child(code, HOLOGRAM_WORKER="1")


def test_the_variable_says_the_bound() -> None:
    code = "import hologram._hologram as h; print(h.testing.immediate_bytes())"
    for text, bound in (("0", 0), ("100", 100), ("-5", 4096), ("many", 4096), ("", 4096)):
        assert run_child(code, HOLOGRAM_IMMEDIATE_BYTES=text) == bound


def test_threads_that_write_and_record() -> None:
    x = hg.array(np.zeros(16))
    big = hg.array(np.ones((400, 16)))
    failures: list[str] = []

    def write() -> None:
        for i in range(400):
            x[:] = float(i)
            x[3] = float(i)

    def read() -> None:
        for _ in range(100):
            row = np.asarray((big * x)[7])
            if not (row == row[0]).all() and len(set(row.tolist())) > 2:
                failures.append(str(row))

    threads = [threading.Thread(target=write), *(threading.Thread(target=read) for _ in range(2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert x.tolist() == [399.0] * 16


def gram_schmidt(a: Any) -> Any:
    q = a.copy()  # 62 KiB: recorded, so that each small op on its columns would wait for it
    for k in range(a.shape[1]):
        q[:, k] = q[:, k] / np.sqrt(q[:, k] @ q[:, k])
        for j in range(k + 1, a.shape[1]):
            q[:, j] = q[:, j] - (q[:, k] @ q[:, j]) * q[:, k]
    return q


def conjugate_gradients(matrix: Any, b: Any) -> Any:
    x, r, p = b * 0.0, b + 0.0, b + 0.0
    rs = r @ r
    for _ in range(60):
        moved = matrix @ p
        alpha = rs / (p @ moved)
        x, r = x + alpha * p, r - alpha * moved
        following = r @ r
        p, rs = r + (following / rs) * p, following
    return x


def test_loops_of_small_ops_on_what_a_large_one_made_do_not_wait_for_long() -> None:
    x = rng.standard_normal((200, 40))
    a = hg.array(x)
    before = ops_recorded()
    q = gram_schmidt(a)
    assert ops_recorded() - before < 100  # of nearly 4,000
    np.testing.assert_allclose(np.asarray(q), gram_schmidt(x), rtol=1e-9, atol=1e-12)


def test_small_results_between_large_ops_go_on_waiting() -> None:
    side = 1000
    matrix = np.eye(side) * 4 + rng.standard_normal((side, side)) * 0.01
    matrix, b = matrix @ matrix.T, rng.standard_normal(side)
    tensors = hg.array(matrix), hg.array(b)
    before = ops_recorded()
    x = conjugate_gradients(*tensors)
    assert ops_recorded() - before >= 60 * 9  # scalars of dots, too: nothing looked at them
    np.testing.assert_allclose(np.asarray(x), conjugate_gradients(matrix, b), rtol=1e-8, atol=1e-12)
