# SPDX-License-Identifier: MIT
"""Who owns the memory of a Tensor that is made of an array, and whether ops on it wait."""

from __future__ import annotations

import functools
import gc
import mmap
import tracemalloc
import weakref

import numpy as np
import pytest

import hologram as hg

N = 20_000  # of float64 well above the bounds that small operands and temporaries have
DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64",
          "float16", "float32", "float64", "complex64", "complex128"]  # fmt: skip


def shares(t: hg.Tensor, x: np.ndarray) -> bool:
    """Look at the addresses, without exporting the Tensor's memory."""
    return t.__array_namespace__() is hg and np.may_share_memory(np.asarray(t), x)


def waits(t: hg.Tensor) -> bool:
    """Return whether an op on the Tensor is recorded."""
    with hg.Executor() as ex:
        before = ex.stats()["ops_recorded"]
        result = t + t  # noqa: F841
        return ex.stats()["ops_recorded"] > before


def make(n: int = N, dtype: str = "float64") -> np.ndarray:
    return (np.arange(n) % 7).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [0, 1, 100, N])
def test_asarray_copies_what_can_be_written(dtype: str, n: int) -> None:
    x = make(n, dtype)
    kept = x.copy()
    t = hg.asarray(x)
    pending = t + t
    x[...] = 1
    assert t.dtype == x.dtype and np.array_equal(np.asarray(t), kept)
    assert np.array_equal(np.asarray(pending), kept + kept)
    t[...] = 0
    assert (x == 1).all()


@pytest.mark.parametrize(
    "view",
    [lambda x: x[::-1], lambda x: x[3::2], lambda x: x.reshape(100, -1).T, lambda x: x[:, None],
     lambda x: np.broadcast_to(x, (2, x.size)).copy()[:, ::2], memoryview, bytearray,
     lambda x: x.astype(">f8"), lambda x: np.frombuffer(bytearray(b"x" + x.tobytes()), offset=1)],
)  # fmt: skip
def test_asarray_copies_views_and_other_owners(view) -> None:
    x = view(make())
    kept = np.array(x)
    if kept.dtype.isnative:
        t = hg.asarray(x)
        assert np.array_equal(np.asarray(t), kept) and not shares(t, np.asarray(x))
        assert waits(hg.asarray(x))
    else:
        with pytest.raises(TypeError, match=">f8"):
            hg.asarray(x)


def test_copy_says_which() -> None:
    x = make()
    assert shares(hg.asarray(x, copy=False), x)
    assert not shares(hg.asarray(x, copy=True), x)
    assert not shares(hg.asarray(x, copy=None), x)
    shared = hg.asarray(x, copy=False)
    assert not waits(shared)
    sums = shared + shared  # at its call: what follows does not change it
    x[:] = 5
    assert float(shared[0]) == 5 and float(sums[1]) == 2
    shared[1] = -1
    assert x[1] == -1


def test_small_operands_wait_for_nobody() -> None:
    """An array beside a Tensor is read when the op is called, whatever its size."""
    for n in (3, 1000, 1025, N):
        x, t = make(n), hg.array(make(n))
        results = [t + x, x + t, hg.add(x, t), hg.where(x > 3, t, x), hg.sum(x), np.add(t, x)]
        expected = [x + x, x + x, x + x, x.copy(), x.sum(), x + x]
        x[...] = 100
        for found, wanted in zip(results, expected, strict=True):
            assert np.array_equal(np.asarray(found), wanted)


def test_what_is_read_only_is_shared() -> None:
    x = make()
    x.flags.writeable = False
    t = hg.asarray(x)
    assert shares(t, x) and not waits(hg.asarray(x))  # its owner may unlock it
    with pytest.raises(ValueError, match="read-only"):
        t += 1
    lent = make()
    view = lent[:]
    view.flags.writeable = False
    t, pending = hg.asarray(view), hg.asarray(view) * 2
    lent[:] = 4
    assert float(t[0]) == 4 and float(pending[1]) == 2


def test_constant_memory_is_shared_and_waits(tmp_path) -> None:
    x = make()
    path = tmp_path / "x.npy"
    np.save(path, x)
    with (tmp_path / "raw").open("w+b") as file:
        file.write(x.tobytes())
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        constants = [
            x.tobytes(), np.frombuffer(x.tobytes()), np.frombuffer(x.tobytes())[::-2],
            memoryview(x.tobytes()), np.frombuffer(memoryview(x.tobytes())),
            np.load(path, mmap_mode="r"), np.load(path, mmap_mode="r")[5:], mapped,
        ]  # fmt: skip
        for constant in constants:
            as_array = np.asarray(constant)
            as_array = np.frombuffer(constant, "u1") if as_array.dtype.kind == "S" else as_array
            t = hg.asarray(constant)
            assert waits(t), type(constant)
            with pytest.raises(ValueError, match="read-only"):
                t[0] = 1
            assert shares(t, as_array) and np.array_equal(np.asarray(t), as_array)
        del constants, constant, as_array, t
        gc.collect()
    for mode in ("c", "r+"):
        written = np.load(path, mmap_mode=mode)
        assert not shares(hg.asarray(written), written)
        written.flags.writeable = False
        t = hg.asarray(written)
        assert not waits(t) and shares(t, written)


def test_scalars_and_tensors() -> None:
    t = hg.array(make())
    assert hg.asarray(t) is t and hg.asarray(t, copy=False) is t
    assert hg.asarray(t, copy=True) is not t
    assert hg.asarray(t, "float64") is t and hg.asarray(t, "float32").dtype == np.float32
    s = t[3]
    a = hg.asarray(s)
    assert type(a) is hg.Tensor and type(s) is not hg.Tensor
    a += 1
    assert float(s) == 3 and float(a) == 4


# --- Temporaries ----------------------------------------------------------------------------------


class Addresses:
    """What makes arrays and remembers where they were."""

    def __init__(self) -> None:
        self.at = 0

    def __call__(self, n: int = N, dtype: str = "float64") -> np.ndarray:
        x = make(n, dtype)
        self.at = x.ctypes.data
        return x


def address(t: hg.Tensor) -> int:
    return np.asarray(t).ctypes.data


@pytest.mark.parametrize("function", [hg.asarray, hg.array])
def test_temporaries_are_taken_over(function) -> None:
    made = Addresses()
    t = function(made())
    assert waits(t) and address(t) == made.at
    assert np.array_equal(np.asarray(t), make())
    t = function(made(), "float64")
    assert waits(t) and address(t) == made.at
    t = function(made(), dtype="float64")
    assert waits(t) and address(t) == made.at
    t = hg.asarray(made(), copy=False)
    assert waits(t) and address(t) == made.at
    t = hg.asarray(x=made())
    assert waits(t) and address(t) == made.at
    assert np.array_equal(np.asarray(hg.asarray(made(), "float32")), make().astype("float32"))
    found = [function(made()) for _ in range(3)]
    for t in found:
        t += 1
    assert all(np.array_equal(np.asarray(t), make() + 1) for t in found)


def held_in_a_variable(function, made):
    x = made()
    return function(x), x


def held_in_a_list(function, made):
    kept = [made()]
    return function(kept[0]), kept[0]


def held_in_arguments(function, made):
    kept = (made(),)
    return function(*kept), kept[0]


def held_in_keywords(function, made):
    kept = {"x": made()}
    return function(**kept), kept["x"]


def held_in_a_partial(function, made):
    call = functools.partial(function, made())
    return call(), call.args[0]


def held_in_a_partial_with_more(function, made):
    call = functools.partial(function, made())
    return call("float64"), call.args[0]


def held_in_a_keyword_of_a_partial(function, made):
    call = functools.partial(function, x=made())
    return call(), call.keywords["x"]


def held_by_map(function, made):
    kept = [made()]
    return next(map(function, kept)), kept[0]


def held_by_an_attribute(function, made):
    class Holder:
        x = made()

    return function(Holder.x), Holder.x


def held_by_a_default(function, made):
    def inner(x=made()):  # noqa: B008
        return function(x), x

    return inner()


def held_by_its_view(function, made):
    view = made()[1:]
    return function(view.base), view.base


def held_as_a_view(function, made):
    x = made()
    return function(x[:]), x


def held_by_a_memoryview(function, made):
    view = memoryview(made())
    return function(view), np.asarray(view)


def held_by_the_one_who_gives_it(function, made):
    def outer(*args):
        return function(*args), args[0]

    return outer(made())


HOLDERS = [f for name, f in list(globals().items()) if name.startswith("held_")]


@pytest.mark.parametrize("function", [hg.asarray, hg.array])
@pytest.mark.parametrize("holder", HOLDERS)
def test_what_is_held_is_copied(holder, function) -> None:
    t, x = holder(function, Addresses())
    assert not shares(t, x)
    t += 1
    assert np.array_equal(np.asarray(x), make()[-x.size :])


def test_weakly_held_arrays_are_copied() -> None:
    refs = []

    def make_known() -> np.ndarray:
        x = make()
        refs.append(weakref.ref(x))
        return x

    t = hg.asarray(make_known())
    assert refs[0]() is None and np.array_equal(np.asarray(t), make())


def test_memory_that_is_not_the_arrays_own_is_copied() -> None:
    def foreign() -> np.ndarray:
        return np.frombuffer(bytearray(make().tobytes()))

    assert foreign().flags.writeable and waits(hg.asarray(foreign()))


def test_taken_memory_is_given_back() -> None:
    tracemalloc.start()
    try:
        for _ in range(50):
            t = hg.asarray(np.ones(1_000_000))
            t += 1
            assert float(t[5]) == 2
        del t
        gc.collect()
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now < 1e6 and 8e6 < peak < 40e6


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: hg.asarray(), TypeError, r"asarray\(\) needs numbers or an array"),
        (lambda x: hg.asarray(x, x=x), TypeError, r"asarray\(\) needs numbers or an array"),
        (lambda x: hg.asarray(x, obj=x), TypeError, "multiple values for argument 'obj'"),
        (lambda x: hg.asarray(x, None, None, None), TypeError, "takes 3 arguments by position; 4"),
        (lambda x: hg.asarray(x, like=x), TypeError, "unexpected keyword argument 'like'"),
        (lambda x: hg.asarray(x, device="gpu"), ValueError, "device 'gpu' is not one that arrays"),
        (lambda x: hg.asarray(x, device=0), ValueError, "device 0 is not one"),
        (lambda x: hg.asarray(x, "float32", copy=False), ValueError, "leave copy=False out"),
        (lambda x: hg.asarray([1, 2], copy=False), ValueError, "leave copy=False out"),
        (lambda x: hg.array(), TypeError, r"array\(\) needs numbers or an array"),
        (lambda x: hg.array(x, copy=True), TypeError, "unexpected keyword argument 'copy'"),
        (lambda x: hg.asarray("abc"), TypeError, "abc|str"),
        (lambda x: hg.asarray(None), TypeError, "NoneType"),
    ],
)
def test_errors(call, error, words) -> None:
    with pytest.raises(error, match=words):
        call(make())
