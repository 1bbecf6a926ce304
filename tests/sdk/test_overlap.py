# SPDX-License-Identifier: MIT
"""Operands and results that overlap, by addresses: memory that was lent out and taken back."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hologram as hg

# How a Tensor's memory comes back as another one's.
TAKE: dict[str, Callable[[hg.Tensor], hg.Tensor]] = {
    "asarray": lambda t: hg.asarray(np.asarray(t), copy=False),
    "dlpack": lambda t: hg.from_dlpack(np.from_dlpack(t)),
    "capsule": lambda t: hg.from_dlpack(t.__dlpack__(max_version=(1, 0))),
    "old capsule": lambda t: hg.from_dlpack(t.__dlpack__()),
    "memoryview": lambda t: hg.asarray(memoryview(t), copy=False),
    "twice": lambda t: hg.asarray(
        np.from_dlpack(hg.asarray(np.asarray(t), copy=False)), copy=False
    ),
    "bytes": lambda t: hg.asarray(np.asarray(t).view("uint8").view(str(t.dtype)), copy=False),
    "part": lambda t: hg.asarray(np.asarray(t)[1:], copy=False),
    "turned": lambda t: hg.asarray(np.asarray(t)[::-1], copy=False),
}
# What NumPy has instead of it.
SAME: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "part": lambda x: x[1:],
    "turned": lambda x: x[::-1],
}
VIEWS = [np.s_[:], np.s_[:-1], np.s_[1:], np.s_[::-1], np.s_[::2], np.s_[3:], np.s_[-3::-1]]


def pair(way: str, n: int, dtype: str = "float32") -> tuple[Any, Any, Any, Any]:
    """Return a Tensor, what came back of its memory, and the same two as arrays."""
    x = (np.arange(n) % 251).astype(dtype)
    t = hg.array(x) + np.zeros((), dtype)  # waits to be computed
    return t, TAKE[way](t), x, SAME.get(way, lambda x: x)(x)


def test_what_was_lent_and_taken_back_is_seen_to_overlap() -> None:
    n = 1 << 20
    x = hg.arange(n, dtype="float32")
    y = hg.asarray(np.asarray(x), copy=False)
    hg.add(x[:-1], 1, out=y[1:])
    want = np.arange(n, dtype="float32")
    want[1:] = want[:-1] + 1
    np.testing.assert_array_equal(np.asarray(x), want)

    a = hg.asarray(np.asarray(x), copy=False)
    x[:] = a[::-1]
    np.testing.assert_array_equal(np.asarray(x), want[::-1])
    b, c = hg.asarray(np.asarray(x), copy=False), hg.from_dlpack(x.__dlpack__())
    b[:] = c[::-1]
    np.testing.assert_array_equal(np.asarray(x), want)


@pytest.mark.parametrize("way", TAKE)
@pytest.mark.parametrize("n", [40, 40_000])
def test_out_overlaps_operands(way: str, n: int) -> None:
    for back in (False, True):
        for at in VIEWS:
            for to in VIEWS:
                t, taken, x, same = pair(way, n)
                if back:
                    t, taken, x, same = taken, t, same, x
                size = min(len(x[at]), len(same[to]))
                assert np.shares_memory(np.asarray(t), np.asarray(taken))
                for ours, theirs in (
                    (hg.add, np.add),
                    (hg.maximum, np.maximum),
                    (hg.squared_difference, lambda a, b, out: np.square(a - b, out=out)),
                ):
                    ours(t[at][:size], taken[:size], out=taken[to][:size])
                    theirs(x[at][:size], same[:size], out=same[to][:size])
                    np.testing.assert_array_equal(np.asarray(t), x, f"{way} {at} {to}")


@pytest.mark.parametrize("way", TAKE)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8", "complex64"])
def test_assignments_and_operators_in_place(way: str, dtype: str) -> None:
    for at in VIEWS:
        t, taken, x, same = pair(way, 77, dtype)
        size = len(same[at])
        taken[at][:size] = t[:size]
        same[at][:size] = x[:size].copy()  # else wrong in NumPy, where strides differ
        t[:size] += taken[at]
        x[:size] += same[at]
        taken[at] *= t[:size]
        same[at] *= x[:size]
        np.testing.assert_array_equal(np.asarray(t), x, f"{way} {at}")
        np.testing.assert_array_equal(np.asarray(taken), same)


def test_other_dtypes_on_the_same_memory() -> None:
    x = np.arange(64, dtype="float32")
    t = hg.array(x)
    for dtype in ("int32", "uint8", "float64"):
        taken, same = hg.asarray(np.asarray(t).view(dtype), copy=False), x.view(dtype)
        taken[:] = t[: taken.size].astype(dtype) if taken.size <= 64 else taken[::-1]
        same[:] = x[: same.size].astype(dtype) if same.size <= 64 else same[::-1]
        np.testing.assert_array_equal(np.asarray(t).view("uint8"), x.view("uint8"))


def test_products_reductions_and_rows() -> None:
    x = np.random.default_rng(1).integers(-9, 9, (16, 16)).astype("float32")
    t = hg.array(x)
    taken = hg.asarray(np.asarray(t), copy=False)
    taken @= t
    x @= x
    np.testing.assert_array_equal(np.asarray(t), x)
    t.sum(axis=0, out=taken[3])
    x[3] = x.sum(axis=0)
    np.testing.assert_array_equal(np.asarray(t), x)
    taken.max(axis=1, out=t[:, 2])
    x[:, 2] = x.max(axis=1)
    np.testing.assert_array_equal(np.asarray(t), x)
    for axis in (0, 1):
        found = hg.softmax(taken[:, ::-1], axis)
        t[:] = found
        y = x[:, ::-1].astype("float64")
        e = np.exp(y - y.max(axis, keepdims=True))
        x[:] = e / e.sum(axis, keepdims=True)
        np.testing.assert_allclose(np.asarray(t), x, rtol=1e-6)


def test_what_waits_is_ordered_with_what_the_other_touches() -> None:
    x = hg.zeros(100, "float32")
    x += 1
    before = x * 10  # recorded, and reads what is lent afterwards
    y = hg.asarray(np.asarray(x), copy=False)
    y[:] = 5
    assert before.tolist() == [10.0] * 100
    assert x.tolist() == [5.0] * 100
    x *= 2
    seen = y + 1
    y += 1
    assert seen.tolist() == [11.0] * 100
    assert (x + y).tolist() == [22.0] * 100
    np.asarray(y)[...] = 7
    assert x.sum().item() == 700


@pytest.mark.usefixtures("recording")
def test_a_lent_tensor_defers_again_once_all_is_given_back() -> None:
    with hg.Executor() as ex:
        x = hg.ones(16, "float32")
        y = hg.asarray(np.asarray(x), copy=False)
        del y
        gc.collect()
        before = ex.stats()["ops_recorded"]
        x += 1
        assert ex.stats()["ops_recorded"] == before + 1
        assert x.tolist() == [2.0] * 16


def test_memory_that_was_freed_has_no_owner() -> None:
    for _ in range(50):
        x = hg.ones(5000, "float32") * 2
        taken = hg.asarray(np.asarray(x)[2500:], copy=False)
        del x
        gc.collect()
        other = hg.ones(5000, "float32") * 3
        taken[:-1] += taken[1:]
        other[1:] += other[:-1]
        assert taken.tolist() == [4.0] * 2499 + [2.0]
        assert other.tolist() == [3.0] + [6.0] * 4999


def test_read_only_and_empty_memory() -> None:
    x = hg.arange(20, dtype="int64")
    array = np.asarray(x)
    array.flags.writeable = False
    y = hg.asarray(array, copy=False)
    assert y.readonly
    x[1:] = y[:-1]
    assert x.tolist() == [0, *range(19)]
    x[:] = y[::-1]
    assert y.tolist() == [*range(18, -1, -1), 0]
    none = hg.asarray(np.asarray(x[:0]), copy=False)
    none[:] = x[20:]
    hg.add(none, 1, out=none)
    assert none.tolist() == []


def test_results_that_numpy_wrote_are_what_was_given_for_them() -> None:
    x = hg.arange(12, dtype="float64")
    y = hg.zeros(12, "float64")
    whole, rest = np.divmod(x, 5, out=(None, y))
    assert rest is y
    assert isinstance(whole, hg.Tensor)
    y += 100
    np.testing.assert_array_equal(np.asarray(rest), np.arange(12) % 5 + 100)
    assert whole.tolist() == [i // 5 for i in range(12)]
    part, same = np.modf(x + 0.5, out=(y, None))
    assert part is y
    assert same.tolist() == list(range(12))
    assert np.logaddexp(x, x, out=y) is y
    array = np.empty(12)
    assert np.logaddexp(x, x, out=array) is array
    assert np.add.accumulate(x, out=y) is y
    assert y.tolist() == np.cumsum(np.arange(12.0)).tolist()


@pytest.mark.parametrize("size", [3000, 30_000])  # of the boundary pool, of the linear one
def test_buffers(size: int) -> None:
    with hg.Executor() as ex:
        b = ex.allocate(size)
        x = np.arange(size, dtype="float32")
        b.from_numpy(x)
        part = hg.Buffer.from_dlpack(np.from_dlpack(b)[1:])
        rest = hg.Buffer.from_dlpack(np.from_dlpack(b)[:-1])
        hg.ops.vector_add(ex, b, 1, hg.asarray(np.asarray(b)[::-1], copy=False))
        x[::-1] = x + 1
        np.testing.assert_array_equal(b.to_numpy(), x)
        part.copy_from(rest)
        x[1:] = x[:-1]
        np.testing.assert_array_equal(b.to_numpy(), x)
        hg.ops.vector_add(ex, rest, rest, part)
        x[1:] = x[:-1] + x[:-1]
        np.testing.assert_array_equal(b.to_numpy(), x)
        hg.ops.vector_add(ex, b, b, hg.Buffer.from_dlpack(np.from_dlpack(b)))
        x += x
        np.testing.assert_array_equal(b.to_numpy(), x)
        part.from_numpy(b.to_numpy()[-2::-1])
        x[1:] = x[-2::-1]
        np.testing.assert_array_equal(b.to_numpy(), x)
        part.from_bytes(memoryview(rest).cast("B"))
        x[1:] = x[:-1]
        np.testing.assert_array_equal(b.to_numpy(), x)


def test_tensors_of_torch_on_the_same_memory() -> None:
    torch = pytest.importorskip("torch")
    x = np.arange(5000, dtype="float32")
    t = hg.array(x)
    taken = hg.from_dlpack(torch.from_dlpack(t))
    hg.add(t[:-1], 1, out=taken[1:])
    x[1:] = x[:-1] + 1
    np.testing.assert_array_equal(np.asarray(t), x)
    taken[:] = t[::-1]
    x[:] = x[::-1].copy()
    np.testing.assert_array_equal(np.asarray(t), x)
    turned = hg.asarray(torch.from_numpy(np.asarray(t)).view(50, 100).T, copy=False)
    turned += hg.array(np.ones((100, 50), "float32"))
    t.reshape(50, 100)[:] = turned.T * 2
    np.testing.assert_array_equal(np.asarray(t), (x + 1) * 2)
