# SPDX-License-Identifier: MIT
"""x[...] with arrays of positions and masks, read and assigned, beside NumPy."""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any

import numpy as np
import pytest

import hologram as hg
from hologram._hologram import testing

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64",
          "float16", "float32", "float64", "complex64", "complex128"]  # fmt: skip
INDEX_DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SHAPES = [(5,), (3, 4), (2, 3, 4), (1,), (4, 1, 3), (2, 2, 2, 3), (0,), (0, 3), (3, 0, 2), (70, 3)]

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True, params=[4096, 0], ids=["at-call", "recorded"])
def bound(request: pytest.FixtureRequest, _either_way: None) -> None:
    testing.set_immediate_bytes(request.param)


def outcome(run: Callable[..., Any], *args: Any) -> Any:
    """Return what `run` gives, or the error that it raises."""
    try:
        return run(*args)
    except Exception as error:
        return error


def make(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    x = rng.standard_normal(shape) * 50
    with np.errstate(invalid="ignore"):
        if dtype.startswith("complex"):
            x = x + 1j * rng.standard_normal(shape)
        return (x.astype("int64") if dtype.startswith("uint") else x).astype(dtype)


def tensor_of(x: np.ndarray[Any, Any], rng: np.random.Generator) -> Any:
    """Return a Tensor of x: settled, pending, or with strides of its own."""
    way = rng.integers(4)
    if way == 0 and x.dtype != bool:
        return hg.array(x) * 1
    if way == 1 and x.ndim:
        return hg.array(np.ascontiguousarray(np.swapaxes(x, 0, -1))).swapaxes(0, -1)
    if way == 2 and x.ndim:
        wide = np.repeat(x, 2, axis=-1)
        wide[..., 1::2] = 0
        return hg.array(wide)[..., ::2]
    return hg.array(x)


class Keys:
    """Random keys: as NumPy takes them, and the same with Tensors."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def chance(self, of: int) -> bool:
        return int(self.rng.integers(of)) == 0

    def positions(self, size: int, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        low, high = (-size, size) if size else (0, 0)
        if self.chance(25):
            low, high = low - 2, high + 2
        if low == high:
            shape = (*shape[:-1], 0) if self.chance(2) else shape
            high += 1
        found = self.rng.integers(low, high, shape)
        dtype = str(self.rng.choice(INDEX_DTYPES))
        return (np.abs(found) % max(size, 1) if dtype[0] == "u" else found).astype(dtype)

    def mask(self, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        if self.chance(25) and shape:
            shape = (*shape[:-1], shape[-1] + 1)
        return self.rng.random(shape) < self.rng.choice([0.0, 0.2, 0.5, 1.0])

    def part(self, x: np.ndarray[Any, Any], dim: int, common: tuple[int, ...]) -> tuple[Any, int]:
        size = x.shape[dim] if dim < x.ndim else 3
        kind = int(self.rng.integers(12))
        if kind < 4:
            shape = tuple(1 if self.chance(3) else n for n in common)
            return self.positions(size, shape[int(self.rng.integers(2)) :]), 1
        if kind == 4:
            dims = int(self.rng.integers(1, 3))
            return self.mask(x.shape[dim : dim + dims]), dims
        if kind == 5:
            return bool(self.rng.integers(2)), 0
        if kind == 6:
            return None, 0
        if kind == 7:
            return int(self.rng.integers(-size - 1, size + 1)), 1
        if kind == 8:
            value = np.int32(self.rng.integers(-size, size + 1))
            return (value, np.asarray(value))[int(self.rng.integers(2))], 1
        if kind == 9 and self.chance(3):
            return [np.array([0.5]), [], [0, -1], [True, False, True], "a", 1.5, [[0], [1]]][
                int(self.rng.integers(7))
            ], 1
        a, b = (int(v) for v in self.rng.integers(-size - 1, size + 2, 2))
        return slice(a, b, int(self.rng.choice([1, 2, -1, -2]))) if kind == 10 else slice(None), 1

    def key(self, x: np.ndarray[Any, Any]) -> Any:
        if self.chance(3):
            if self.chance(2):
                return self.mask(x.shape[: int(self.rng.integers(1, x.ndim + 1))])
            shape = tuple(int(n) for n in self.rng.integers(0, 6, self.rng.integers(1, 3)))
            return self.positions(x.shape[0], shape)
        common = tuple(int(n) for n in self.rng.integers(1, 4, 2))
        parts: list[Any] = []
        dim = 0
        for _ in range(int(self.rng.integers(1, x.ndim + 3))):
            part, dims = self.part(x, dim, common)
            if dim + dims > x.ndim and not self.chance(10):
                continue
            parts.append(part)
            dim += dims
        if self.chance(3):
            parts.insert(int(self.rng.integers(len(parts) + 1)), Ellipsis)
        return tuple(parts)

    def with_tensors(self, key: Any) -> Any:
        if isinstance(key, tuple):
            return tuple(self.with_tensors(part) for part in key)
        if not isinstance(key, np.ndarray) or self.chance(4):
            return key
        return tensor_of(key, self.rng)


def is_same(ours: Any, theirs: Any, what: Any) -> None:
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), (what, ours, theirs)
        return
    assert not isinstance(ours, Exception), (what, ours, theirs)
    assert isinstance(ours, hg.Scalar) == isinstance(theirs, np.generic), what
    assert ours.shape == theirs.shape, what
    assert ours.dtype == theirs.dtype, what
    assert np.asarray(ours).tobytes() == np.ascontiguousarray(theirs).tobytes(), what


@pytest.mark.parametrize("seed", range(30))
def test_random_keys_read(seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    keys = Keys(rng)
    for _ in range(120):
        x = make(rng, SHAPES[int(rng.integers(len(SHAPES)))], str(rng.choice(DTYPES)))
        t, key = tensor_of(x, rng), keys.key(x)
        mine = keys.with_tensors(key)
        is_same(outcome(getitem, t, mine), outcome(getitem, x, key), (x.shape, x.dtype, key))


def put(target: Any, key: Any, value: Any) -> Any:
    target[key] = value
    return target


@pytest.mark.parametrize("seed", range(30))
def test_random_keys_assigned(seed: int) -> None:
    rng = np.random.default_rng([seed, 2])
    keys = Keys(rng)
    for _ in range(120):
        x = make(rng, SHAPES[int(rng.integers(len(SHAPES)))], str(rng.choice(DTYPES)))
        t, key = tensor_of(x, rng), keys.key(x)
        found = outcome(getitem, x, key)
        shape = np.shape(found) if not isinstance(found, Exception) else (2,)
        way = int(rng.integers(5))
        value: Any = make(rng, shape, str(x.dtype))
        if way == 0:
            value = value.dtype.type(3)
        elif way == 1:
            value = 3
        elif way == 2 and shape:
            value = make(rng, shape[int(rng.integers(len(shape))) :], str(x.dtype))
        elif way == 3 and keys.chance(3):
            value = make(rng, (*shape[:-1], 7), str(x.dtype))
        elif way == 4 and x.dtype.kind in "fc":
            value = value.astype("float32").real.astype("float32")
        mine = keys.with_tensors(key)
        is_array = isinstance(value, np.ndarray) and rng.integers(2)
        given = tensor_of(value, rng) if is_array else value
        before = x.copy()
        theirs = outcome(put, x, key, value)
        ours = outcome(put, t, mine, given)
        is_same(ours, theirs, (before, key, value))
        assert np.asarray(t).tobytes() == x.tobytes(), (before, key, value)


@pytest.mark.parametrize("seed", range(6))
def test_large_ones(seed: int) -> None:
    rng = np.random.default_rng([seed, 3])
    for dtype in ("float64", "float32", "uint8", "complex128", "uint32"):
        for shape in ((9000,), (300, 40), (5, 200, 7)):
            x = make(rng, shape, dtype)
            for axis in range(len(shape)):
                t = tensor_of(x, rng)
                size = shape[axis]
                at = rng.integers(-size, size, int(rng.integers(1, 3000)))
                at = at.astype(str(rng.choice(["int64", "int32", "int16"])))
                lead = (slice(None),) * axis
                is_same(t[(*lead, hg.array(at))], x[(*lead, at)], (dtype, shape, axis))
                value = make(rng, x[(*lead, at)].shape, dtype)
                put(t, (*lead, hg.array(at)), hg.array(value))
                put(x, (*lead, at), value)
                is_same(t, x, (dtype, shape, axis))
                mask = rng.random(shape[: axis + 1]) < 0.3
                is_same(t[hg.array(mask)], x[mask], (dtype, shape, axis))
                put(t, hg.array(mask), 7)
                put(x, mask, 7)
                is_same(t, x, (dtype, shape, axis))
            if len(shape) > 1:
                i, j = (rng.integers(-n, n, (50, 60)) for n in shape[:2])
                is_same(t[hg.array(i), j], x[i, j], (dtype, shape))
                put(t, (i, hg.array(j[0])), 5)
                put(x, (i, j[0]), 5)
                is_same(t, x, (dtype, shape))


def test_pending_masks_and_targets_are_not_looked_at() -> None:
    testing.set_immediate_bytes(0)
    x = np.linspace(-1, 1, 50)
    for dtype in ("float32", "float64", "complex128", "uint16", "bool", "int32", "float16"):
        z = x.astype(dtype)
        t = hg.array(x).astype(dtype)
        with hg.Executor() as ex:
            for value in (2, hg.array(1), np.float64(3.0)):
                runs = ex.stats()["ops_recorded"]
                t[hg.array(x) * 2 > 0.5] = value
                assert ex.stats()["ops_recorded"] > runs
                z[x * 2 > 0.5] = np.asarray(value)
        is_same(t, z, dtype)
    t, z = hg.array(np.ones((4, 5))) * 2, np.ones((4, 5)) * 2
    rows = np.array([True, False, True, False])
    t[hg.array(rows)] = -1
    z[rows] = -1
    is_same(t, z, "rows")


def test_the_last_of_several_values_stays() -> None:
    for n, size in ((9, 3), (5000, 40)):
        at = np.random.default_rng(n).integers(0, size, n)
        for inner in ((), (3,), (2000,) if n == 9 else (2,)):
            x, value = np.zeros((size, *inner)), np.random.default_rng(1).random((n, *inner))
            t = hg.array(x)
            t[hg.array(at)] = hg.array(value)
            x[at] = value
            is_same(t, x, (n, inner))


def test_source_and_target_overlap() -> None:
    for n in (8, 3000):
        at = np.random.default_rng(n).permutation(n)
        x = np.arange(float(n))
        t = hg.array(x)
        t[hg.array(at)] = t[::-1]
        x[at] = x[::-1].copy()
        is_same(t, x, n)
        i, j = np.arange(n)[::-1].copy(), hg.array(np.arange(n)[::-1])
        j[j] = j[::-1]
        i[i] = i[::-1].copy()
        is_same(j, i, n)
        m, b = hg.array(np.arange(n) % 3 == 0), np.arange(n) % 3 == 0
        m[1:][m[:-1]] = True
        b[1:][b[:-1].copy()] = True
        is_same(m, b, n)
        t[t > 5] = t[t > 5] * 2
        x[x > 5] = x[x > 5] * 2
        is_same(t, x, n)


def test_augmented_assignment() -> None:
    x = np.arange(12.0).reshape(3, 4)
    t = hg.array(x)
    at, mask = np.array([2, 0, 2]), x > 3
    for a, key, m in ((t, hg.array(at), hg.array(mask)), (x, at, mask)):
        a[key] += 1
        a[m] *= 2
        a[:, key] -= 0.5
        a[key, key] **= 2
    is_same(t, x, "augmented")


def test_bfloat16() -> None:
    x = np.arange(12, dtype="float32").reshape(3, 4)
    t = hg.array(x).astype("bfloat16")
    assert str(t[hg.array([2, 0])].dtype) == "bfloat16"
    assert t[hg.array([2, 0])].astype("float32").tolist() == x[[2, 0]].tolist()
    t[t > 5] = hg.array(1.5)
    t[hg.array([1])] = [1, 2, 3, 4]
    x[x > 5] = 1.5
    x[[1]] = [1, 2, 3, 4]
    assert t.astype("float32").tolist() == x.tolist()


def test_an_array_of_numpys_may_change_after_the_call() -> None:
    for n in (10, 5000):
        x, at = hg.array(np.arange(float(n))) * 1, np.arange(n)[::-1].copy()
        y = x[at]
        x[at] = 3.0
        at[:] = 0
        assert y.tolist() == list(range(n))[::-1]
        assert x.tolist() == [3.0] * n


def test_a_tensor_of_positions_may_change_after_the_call() -> None:
    for n in (10, 5000):
        x, at = hg.array(np.arange(float(n))) * 1, hg.array(np.arange(n)[::-1])
        y = x[at]
        at[:] = 0
        x += 1
        assert y.tolist() == list(range(n))[::-1]


@pytest.mark.parametrize("n", [4, 3000])
def test_messages(n: int) -> None:
    x = hg.array(np.zeros((n, 3)))
    for at in (n, -n - 1):
        for dtype in ("int64", "int16"):
            with pytest.raises(IndexError, match=f"index {at} is out of bounds for axis 0 with"):
                x[hg.array(np.array([0, at], dtype))]
            with pytest.raises(IndexError, match=f"index {at} is out of bounds for axis 1 with"):
                x[0, hg.array(np.array([0, at], dtype))] = 1
    with pytest.raises(IndexError, match=r"shapes \(2,\) \(3,\)"):
        x[hg.array([0, 1]), hg.array([0, 1, 2])]
    with pytest.raises(
        IndexError,
        match="boolean index did not match indexed array along axis 1; size of axis is 3 but size "
        "of corresponding boolean axis is 2",
    ):
        x[:, hg.array([True, False])]
    with pytest.raises(IndexError, match=r"must be of integer .or boolean. type, not float64"):
        x[hg.array([0.0])]
    with pytest.raises(IndexError, match="only integers, slices"):
        x["a"]
    with pytest.raises(IndexError, match="too many indices"):
        x[hg.array([0]), hg.array([0]), hg.array([0])]
    with pytest.raises(
        ValueError,
        match=r"value array of shape \(5,\) could not be broadcast to indexing result of shape "
        r"\(2,3\)",
    ):
        x[hg.array([0, 1])] = np.zeros(5)
    mask = np.zeros((n, 3), bool)
    mask[1] = True
    with pytest.raises(ValueError, match="cannot assign 2 input values to the 3 output values"):
        x[hg.array(mask)] = [1, 2]
    with pytest.raises(TypeError, match="requires a 0 or 1-dimensional input, input has 2"):
        x[hg.array(mask)] = np.zeros((2, 2))
    with pytest.raises(TypeError, match="assign the real or the imaginary part"):
        x[hg.array(mask)] = hg.array(1j)
    x.setflags(write=False)
    for key in ([0], [n], mask):
        with pytest.raises(ValueError, match="read-only"):
            x[hg.array(key)] = 1


def test_nothing_is_written_where_a_position_is_out_of_bounds() -> None:
    for n in (5, 5000):
        x = hg.array(np.zeros(n))
        at = np.arange(n)
        at[-1] = n
        with pytest.raises(IndexError):
            x[hg.array(at)] = 1
        with pytest.raises(IndexError):
            x[hg.array(at)] = np.ones(n)
        assert not np.asarray(x).any()


def test_scalars_have_masks_alone() -> None:
    s = hg.array([2.0])[0]
    assert s[hg.array(True)].tolist() == [2.0]
    assert s[False].shape == (0,)
    with pytest.raises(IndexError, match="too many indices"):
        s[hg.array([0])]
    with pytest.raises(TypeError, match="cannot be written"):
        s[hg.array([True])] = 1


def test_lists_and_other_arrays() -> None:
    x = np.arange(6.0)
    t = hg.array(x)
    keys = [[1, 2], [], [True, False] * 3, (np.array([1]),), [np.int64(3), 1], [[0, 1], [2, 3]]]
    for key in keys:
        is_same(t[key], x[key], key)
    at = memoryview(np.array([3, 1], "int16"))
    is_same(t[at], x[[3, 1]], at)
    for wrong in ([None], object(), "a", 1.5):
        with pytest.raises(IndexError, match="only integers, slices"):
            t[wrong]


def test_numpy_indexed_by_tensors() -> None:
    x = np.arange(6.0)
    assert x[hg.array([1, 2])].tolist() == [1.0, 2.0]
    assert x[hg.array(x) > 3].tolist() == [4.0, 5.0]


def test_the_shape_can_be_assigned() -> None:
    x = np.arange(24.0)
    t = hg.array(x)
    whole = t[:]
    for shape in ((2, 12), (4, -1), 24, [3, 2, 4], (1, 24, 1)):
        t.shape = x.shape = shape
        assert t.shape == x.shape
        is_same(t, x, shape)
    t[0, 3, 0] = 100.0
    assert float(whole[3]) == 100.0
    a, b = hg.array(np.zeros((4, 6))).T, np.zeros((4, 6)).T
    a.shape = b.shape = (2, 3, 4)
    assert a.shape == (2, 3, 4)
    assert a.strides == b.strides
    with pytest.raises(AttributeError, match="only as a copy; use reshape"):
        a.shape = 24
    with pytest.raises(ValueError, match="invalid for input of size 24"):
        a.shape = (5, 5)
    with pytest.raises(ValueError, match="only one dimension"):
        a.shape = (-1, -1)
    with pytest.raises(TypeError):
        a.shape = "a"
    with pytest.raises(AttributeError):
        del a.shape
    assert a.shape == (2, 3, 4)
    with pytest.raises(AttributeError, match="a Scalar has no dimensions"):
        t[0, 0, 0].shape = (1,)
    e = hg.array(np.zeros((0, 3)))
    e.shape = (3, -1)
    assert e.shape == (3, 0)
    one = hg.array(np.zeros(1))
    one.shape = ()
    assert one.shape == ()
    one[...] = 2
    assert one.item() == 2.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_nonzero(dtype: str) -> None:
    rng = np.random.default_rng(3)
    for shape in [*SHAPES, (3000,), (40, 70)]:
        x = make(rng, shape, dtype)
        x[rng.random(shape) < 0.5] = 0
        t = tensor_of(x, rng)
        for ours, theirs in (
            (t.nonzero(), x.nonzero()),
            (np.nonzero(t), np.nonzero(x)),
            (np.where(t), np.where(x)),
            ((np.flatnonzero(t),), (np.flatnonzero(x),)),
        ):
            assert len(ours) == len(theirs)
            for a, b in zip(ours, theirs, strict=True):
                is_same(a, b, (shape, dtype))
    with pytest.raises(ValueError, match="0d"):
        hg.array(1.0).nonzero()
    assert isinstance(t.nonzero(), tuple)


def test_take_and_compress() -> None:
    rng = np.random.default_rng(4)
    for shape in SHAPES:
        x = make(rng, shape, "float64")
        t = tensor_of(x, rng)
        for axis in (None, *range(-len(shape), len(shape)), len(shape)):
            size = x.size if axis is None else shape[axis] if axis < len(shape) else 2
            at = rng.integers(-size, size, (2, 3)) if size else np.zeros((0,), "int64")
            mask = rng.random(size) < 0.5
            keys = (at, at.astype("int8"), at + size, at.astype("uint64"), at * 1.0, 0, [0, -1])
            for key in keys:
                is_same(
                    outcome(np.take, t, key, axis),
                    outcome(np.take, x, key, axis),
                    (shape, axis, key),
                )
                mine = hg.array(key) if isinstance(key, np.ndarray) else key
                is_same(
                    outcome(t.take, mine, axis),
                    outcome(x.take, key, axis),
                    (shape, axis, key),
                )
            for key in (mask, mask[:-1], np.append(mask, True), mask.astype("int64")):
                is_same(
                    outcome(t.compress, hg.array(key), axis),
                    outcome(x.compress, key, axis),
                    (shape, axis, key),
                )
    t = hg.array(np.arange(4))
    t.take([0, 1])[0] = 9
    one = t.reshape(2, 2).take(0, axis=0)
    one[0] = 9
    assert t.tolist() == [0, 1, 2, 3]
