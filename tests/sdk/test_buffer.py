# SPDX-License-Identifier: MIT
"""Executors and buffers: allocation, copies, views without a copy, lifetimes, errors."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import hologram as hg

DTYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    "complex64", "complex128", "uint16", "uint32", "uint64",
]  # fmt: skip


@pytest.fixture
def ex() -> Iterator[hg.Executor]:
    with hg.Executor() as executor:
        yield executor


def pointer(x: object) -> int:
    return np.asarray(x).__array_interface__["data"][0]


def test_an_executor_says_what_it_is(ex: hg.Executor) -> None:
    assert ex.backend == "cpu"
    assert ex.backend is hg.backend.BackendType.CPU
    assert repr(ex) == "<hologram.Executor cpu>"
    assert hg.Executor(hg.backend.BackendType.CPU).backend == "cpu"
    with pytest.raises(ValueError, match="unknown backend 'tpu'; available: cpu"):
        hg.Executor("tpu")
    with pytest.raises(TypeError, match="not int"):
        hg.Executor(3)  # type: ignore[arg-type]


def test_use_after_close_raises_and_closing_twice_does_not() -> None:
    ex = hg.Executor()
    buffer = ex.allocate(3)
    buffer.fill(2)
    ex.close()
    ex.close()
    assert ex.closed
    for use in (ex.synchronize, ex.stats, lambda: ex.allocate(1), ex.__enter__):
        with pytest.raises(RuntimeError, match="the executor is closed; make a new one"):
            use()
    assert buffer.to_numpy().tolist() == [2, 2, 2]


def test_the_body_of_with_keeps_its_error() -> None:
    with pytest.raises(KeyError, match="mine"), hg.Executor() as ex:
        raise KeyError("mine")
    assert ex.closed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 4), (2, 0, 5), (2, 3, 4)])
def test_numpy_and_bytes_go_in_and_out(ex: hg.Executor, dtype: str, shape: tuple[int]) -> None:
    x = (np.arange(np.prod(shape)) % 5).reshape(shape).astype(dtype)
    b = ex.allocate(shape, dtype=dtype)
    assert (b.shape, b.size, b.nbytes, b.dtype) == (shape, x.size, x.nbytes, np.dtype(dtype))
    b.from_numpy(x)
    out = b.to_numpy()
    assert out.dtype == x.dtype
    assert out.shape == shape
    np.testing.assert_array_equal(out, x)
    assert b.to_bytes() == x.tobytes()
    c = ex.allocate(shape, dtype=dtype)
    c.from_bytes(x.tobytes())
    np.testing.assert_array_equal(np.asarray(c), x)
    c.fill(1)
    c.copy_from(b)
    np.testing.assert_array_equal(np.array(c), x)
    assert memoryview(c).shape == shape


@pytest.mark.parametrize(
    "given", [np.float32, "float32", np.dtype("f4"), hg.DType("float32"), np.dtype("float32").type]
)
def test_dtypes_are_named_in_many_ways(ex: hg.Executor, given: object) -> None:
    assert ex.allocate(2, dtype=given).dtype == np.float32
    assert ex.allocate(2, dtype=float).dtype == np.float64
    assert ex.allocate(2, dtype=int).dtype == np.int64
    assert ex.allocate(2, dtype=bool).dtype == np.bool_
    assert ex.allocate(2).dtype == np.float32


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.longdouble, "is not supported; convert with astype to one of: bool, uint8"),
        ("float80", "'float80' is not a dtype; use one of: bool, uint8"),
        (np.dtype(">f4"), "foreign byte order"),
        (3, "3 is not a dtype"),
        ("U4", "is not supported; convert with astype to one of"),
    ],
)
def test_other_dtypes_are_refused(ex: hg.Executor, given: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        ex.allocate(2, dtype=given)


def test_sizes_are_checked(ex: hg.Executor) -> None:
    with pytest.raises(ValueError, match=r"negative dimension -3 in shape \[-3\]"):
        ex.allocate(-3)
    with pytest.raises(TypeError, match="a shape is an int or a sequence of ints, not float"):
        ex.allocate(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not str"):
        ex.allocate("12")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not bytes"):
        ex.allocate(b"12")
    assert ex.allocate(np.array([2, 3])).shape == (2, 3)
    with pytest.raises(MemoryError, match="out of memory"):
        ex.allocate(2**61)
    with pytest.raises(ValueError, match="more elements than"):
        ex.allocate((2**62, 4))
    assert ex.allocate(np.int64(3)).shape == (3,)


def test_from_numpy_converts_and_takes_any_strides(ex: hg.Executor) -> None:
    x = np.arange(24.0).reshape(4, 6)
    b = ex.allocate((3, 4), dtype="int32")
    for view in (x[::2, ::-1], x.T[::2], x[:2, :]):
        b.from_numpy(view)
        np.testing.assert_array_equal(b.to_numpy(), view.astype("int32").reshape(3, 4))
    b.from_numpy([[1, 2, 3, 4]] * 3)
    assert b.to_numpy()[2].tolist() == [1, 2, 3, 4]
    packed = np.zeros(12, dtype=[("a", "i1"), ("b", "f4")])
    packed["b"] = np.arange(12)
    b.from_numpy(packed["b"])
    np.testing.assert_array_equal(b.to_numpy().ravel(), np.arange(12))


def test_a_buffer_may_be_filled_from_itself(ex: hg.Executor) -> None:
    b = ex.allocate(5, dtype="int64")
    b.from_numpy(np.arange(5))
    b.from_numpy(b.to_numpy()[::-1])
    assert b.to_numpy().tolist() == [4, 3, 2, 1, 0]
    b.copy_from(b)
    assert b.to_numpy().tolist() == [4, 3, 2, 1, 0]


def test_wrong_sizes_and_kinds_are_refused(ex: hg.Executor) -> None:
    b = ex.allocate((2, 3))
    with pytest.raises(ValueError, match=r"has 6 elements, shape \(2, 3\), and the array 5"):
        b.from_numpy(np.zeros(5))
    with pytest.raises(TypeError, match="complex128 does not fit into float32"):
        b.from_numpy(np.zeros(6, complex))
    with pytest.raises(TypeError, match="float128 is not supported"):
        b.from_numpy(np.zeros(6, np.longdouble))
    with pytest.raises(ValueError, match="the buffer has 24 bytes and `data` 6"):
        b.from_bytes(b"123456")
    with pytest.raises(TypeError, match="bytes-like"):
        b.from_bytes("text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has 6 elements and `source` 4"):
        b.copy_from(ex.allocate(4))
    with pytest.raises(TypeError):
        b.fill("one")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        hg.Buffer()


def test_views_share_memory_and_keep_it(ex: hg.Executor) -> None:
    b = ex.allocate((2, 8), dtype="float64")
    b.fill(1)
    view, other = b.to_numpy(), np.asarray(b)
    assert pointer(view) == pointer(other)
    view[0, 3] = 5
    assert other[0, 3] == 5
    assert bytes(memoryview(b)) == b.to_bytes()
    b.free()
    b.free()
    del b
    gc.collect()
    fresh = ex.allocate((2, 8), dtype="float64")
    fresh.fill(9)
    assert view[0].tolist() == [1, 1, 1, 5, 1, 1, 1, 1]


def test_use_after_free_raises(ex: hg.Executor) -> None:
    b = ex.allocate(4)
    b.free()
    assert repr(b) == "<hologram.Buffer, freed>"
    names = ["size", "dtype", "shape", "nbytes", "pool", "class_index"]
    uses = [lambda n=n: getattr(b, n) for n in names]
    uses += [
        lambda: len(b),
        lambda: b.to_numpy(),
        lambda: b.to_bytes(),
        lambda: b.fill(1),
        lambda: b.from_numpy([1, 2, 3, 4]),
        lambda: b.from_bytes(bytes(16)),
        lambda: b.copy_from([1, 2, 3, 4]),
        lambda: memoryview(b),
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match="the buffer was freed; allocate a new one"):
            use()


def test_pools_and_repr(ex: hg.Executor) -> None:
    small = [ex.allocate(16) for _ in range(100)]
    assert [b.class_index for b in small[:3]] == [0, 1, 2]
    assert {b.pool for b in small} == {"boundary", "linear"}
    assert sum(b.pool == "boundary" for b in small) == 96
    assert repr(small[1]) == ("<hologram.Buffer shape=(16,) dtype=float32 pool=boundary class=1>")
    assert repr(ex.allocate(10**5)) == "<hologram.Buffer shape=(100000,) dtype=float32 pool=linear>"
    stats = ex.stats()
    assert stats["allocations"] == 101
    assert stats["boundary_allocations"] == 96


def test_len_is_the_first_size(ex: hg.Executor) -> None:
    assert len(ex.allocate((3, 4))) == 3
    with pytest.raises(TypeError):
        len(ex.allocate(()))


def test_array_protocol(ex: hg.Executor) -> None:
    b = ex.allocate(3)
    b.from_numpy([1, 2, 3])
    assert pointer(b.__array__()) == pointer(b)
    assert b.__array__(np.float64).dtype == np.float64
    assert pointer(b.__array__(copy=True)) != pointer(b)
    with pytest.raises(ValueError, match="a copy is needed to make float64 of float32"):
        b.__array__(np.float64, copy=False)


def test_threads_allocate_and_free(ex: hg.Executor) -> None:
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for i in range(200):
                b = ex.allocate(1 + (i * seed) % 5000, dtype="int32")
                b.fill(i)
                assert b.to_numpy()[-1] == i
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_every_refused_allocation_is_a_clean_error(ex: hg.Executor) -> None:
    testing = hg._hologram.testing
    for nth in range(1, 6):
        testing.empty_cache()
        testing.fail_os_allocations(nth)
        try:
            ex.allocate(50_000_000).fill(1)
        except MemoryError as error:
            assert "out of memory" in str(error)
        finally:
            testing.fail_os_allocations(0)
        assert ex.allocate(3_000_000).size == 3_000_000
