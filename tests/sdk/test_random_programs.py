# SPDX-License-Identifier: MIT
"""Random programs on tensors and on arrays: views, writes through them, sharing, reading."""

from __future__ import annotations

import operator
import os
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hologram as hg
from hologram._hologram import testing

Pair = tuple[hg.Tensor, Any]  # an array of NumPy's, or a scalar
DTYPES = [
    "float64", "float64", "float32", "int32", "int64", "int8", "bool", "uint8", "uint16", "uint32",
    "uint64",
]  # fmt: skip
BINARY: list[Callable[[Any, Any], Any]] = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.lt, operator.eq, operator.ge, operator.and_, operator.xor,
]  # fmt: skip
IN_PLACE: list[Callable[[Any, Any], Any]] = [
    operator.iadd, operator.isub, operator.imul, operator.ifloordiv, operator.imod, operator.ior,
]  # fmt: skip
# What a rounding may turn into another value.
STEPS = {
    "floordiv", "mod", "lt", "eq", "ge", "ifloordiv", "imod", "floor", "logical_not", "any", "all",
    "argmax", "astype", "where", "unique", "mask", "nonzero", "argsort",
}  # fmt: skip
# What picks one of two zeros of different signs, either of them in NumPy, too.
EITHER_ZERO = {"max", "min", "clip", "sort", "maximum.accumulate", "unique", "median"}
# What rounds otherwise than NumPy does: functions with an error of some ULP, sums in another order.
ROUNDED = {"tanh", "mean", "std"}
PRODUCTS = {"matmul", "matmul of rows", "dot", "inner", "vecdot", "tensordot", "einsum"}
ROUNDED_OF_FLOATS = {"sum", "cumsum", "cumprod", "add.reduce"} | PRODUCTS
UNARY = ["absolute", "negative", "sqrt", "tanh", "floor", "isnan", "logical_not", "square"]
SEEDS = 60
# A Tensor's memory, lent out and taken back: another buffer on the same bytes.
TAKE_BACK: list[Callable[[hg.Tensor], hg.Tensor]] = [
    lambda t: hg.asarray(np.asarray(t), copy=False),
    lambda t: hg.from_dlpack(np.from_dlpack(t)),
    lambda t: hg.from_dlpack(t.__dlpack__(max_version=(1, 0))),
]
OVERLAPS = [
    (np.s_[:-1], np.s_[1:]), (np.s_[1:], np.s_[:-1]), (np.s_[::-1], np.s_[:]),
    (np.s_[:], np.s_[::-1]), (np.s_[..., ::-1], np.s_[...]), (np.s_[1::2], np.s_[:-1:2]),
]  # fmt: skip
# Functions of NumPy on one array; some give views, through which later steps write.
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: np.reshape(x, -1),
    "transpose": lambda x: np.transpose(x),
    "moveaxis": lambda x: np.moveaxis(x, 0, -1),
    "expand_dims": lambda x: np.expand_dims(x, 0),
    "squeeze": lambda x: np.squeeze(x),
    "flip": lambda x: np.flip(x),
    "atleast_2d": lambda x: np.atleast_2d(x),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, *x.shape)),
    "split": lambda x: np.array_split(x, 2)[0],
    "rot90": lambda x: np.rot90(x),
    "real": lambda x: np.real(x),
    "roll": lambda x: np.roll(x, 2),
    "concatenate": lambda x: np.concatenate([x, x], axis=0),
    "stack": lambda x: np.stack([x, x], axis=-1),
    "tile": lambda x: np.tile(x, 2),
    "repeat": lambda x: np.repeat(x, 2, axis=-1),
    "pad": lambda x: np.pad(x, 1),
    "where": lambda x: np.where(x > 1, x, 2),
    "clip": lambda x: np.clip(x, 0, 2),
    "diff": lambda x: np.diff(x, axis=0),
    "sort": lambda x: np.sort(x, axis=0),
    "argsort": lambda x: np.argsort(x, axis=-1, stable=True),
    "cumsum": lambda x: np.cumsum(x, axis=0),
    "cumprod": lambda x: np.cumprod(x[:2], axis=0),
    "take": lambda x: np.take(x, [0, -1], axis=0),
    "nonzero": lambda x: np.nonzero(x)[0],
    "unique": lambda x: np.unique(x[np.isfinite(x)]),
    "median": lambda x: np.median(x, axis=0),
    "tril": lambda x: np.tril(x),
    "outer": lambda x: np.multiply.outer(x, [1, 2]),
    # Products: of positive numbers, whose sums lose nothing.
    "matmul": lambda x: np.matmul(np.abs(x), np.abs(x.T)),
    "matmul of rows": lambda x: np.abs(x) @ np.abs(x)[..., -1, :],
    "dot": lambda x: np.dot(np.abs(x), np.abs(x.T)),
    "inner": lambda x: np.inner(np.abs(x), np.abs(x)),
    "vecdot": lambda x: np.linalg.vecdot(x, x),
    "tensordot": lambda x: np.tensordot(x, x, axes=x.ndim),
    "einsum": lambda x: np.einsum("...i,...i->...", x, x),
    "add.reduce": lambda x: np.add.reduce(x, axis=-1, keepdims=True),
    "maximum.accumulate": lambda x: np.maximum.accumulate(x, axis=0),
    "zeros_like": lambda x: np.zeros_like(x),
    "fill": lambda x: x.reshape(-1).copy().fill(1),
    "mask": lambda x: x[x > 0],
    "fancy": lambda x: x[[0, -1]],
}
REDUCTIONS = ["sum", "mean", "max", "min", "any", "all", "argmax", "std"]


def apart(value: Any) -> Any:
    """Return an array's copy: NumPy's assignment is wrong where both overlap in other strides.

    A scalar becomes an array, as NumPy takes some by way of Python's numbers, which may not fit.
    """
    return np.array(value) if isinstance(value, (np.ndarray, np.generic)) else value


class Program:
    """A pool of pairs that should stay equal, and random steps on it.

    Where `exact`, floating numbers have only what has the bits of NumPy's, and so have all results.
    Elsewhere they have nothing that turns a rounding into another value, as comparisons do.
    """

    def __init__(self, seed: int, exact: bool) -> None:
        self.exact = exact
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.pool: list[Pair] = []
        self.kept: list[Any] = []  # arrays that share memory with tensors
        self.log: list[str] = []
        for _ in range(3):
            self.make()

    def pick(self) -> Pair:
        return self.random.choice(self.pool)

    def shape(self) -> tuple[int, ...]:
        return tuple(self.random.choice([1, 2, 3, 5, 0 if self.random.random() < 0.1 else 7])
                     for _ in range(self.random.randrange(4)))  # fmt: skip

    def add(self, t: Any, x: Any) -> None:
        if isinstance(x, np.ndarray) and x.size == 0 and not x.flags.writeable:
            return  # whether nothing may be written is not always passed on
        if isinstance(t, hg.Tensor) and t.ndim < 6 and t.size < 20_000:
            assert isinstance(t, hg.Scalar) == isinstance(x, np.generic), self.log[-3:]
            self.pool.append((t, x))
        if len(self.pool) > 12:
            self.pool.pop(self.random.randrange(len(self.pool)))

    def make(self) -> None:
        x = np.asarray(self.rng.standard_normal(self.shape()) * 4)
        x = x.astype(self.random.choice(DTYPES))
        if self.random.random() < 0.3:
            self.add(hg.asarray(x, copy=False), x)  # one memory
        elif x.ndim == 0 and self.random.random() < 0.5:
            self.add(hg.array(x)[()], x[()])
        else:
            self.add(hg.array(x), x)

    def both(self, name: str, f: Callable[[Any, Any], Any], a: Pair, b: Any) -> None:
        """Compute on both sides; both succeed or both fail in the same way."""
        arrays = [a[1], b[1]] if isinstance(b, tuple) else [a[1], np.asarray(b)]
        is_float = any(x.dtype.kind == "f" for x in arrays)
        if not self.exact and is_float and (name in STEPS or a[1].dtype.kind in "iu"):
            return  # an integer that a float is written into is such a step, too
        if self.exact and (name in ROUNDED or (is_float and name in ROUNDED_OF_FLOATS)):
            return
        if name in ("[]=", "overlap =") and is_float and a[1].dtype.kind in "iu":
            limits = np.iinfo(a[1].dtype)
            if not np.all((arrays[1] > limits.min - 1.0) & (arrays[1] < limits.max)):
                return  # what becomes of a number out of range C leaves open
        ours = b[0] if isinstance(b, tuple) else b
        theirs = b[1] if isinstance(b, tuple) else b
        self.log.append(f"{name} {a[1].shape}{a[1].dtype} {getattr(theirs, 'shape', theirs)}")
        try:
            expected = f(a[1], theirs)
        except (TypeError, ValueError, OverflowError, IndexError):
            with pytest.raises((TypeError, ValueError, OverflowError, IndexError)):
                f(a[0], ours)
            return
        found = f(a[0], ours)
        if found is a[0]:
            return
        if name in EITHER_ZERO and np.asarray(expected).dtype.kind == "f":
            found, expected = found + 0.0, expected + 0.0
        if isinstance(found, hg.Tensor) and isinstance(expected, np.ndarray):
            shares = np.may_share_memory(expected, a[1]) and expected.size > 0
            if found.size and found._shares(a[0]) != shares:
                # Results here are row-major, NumPy's lie as their operands do, so that reshape may
                # give a view of one and a copy of the other.
                found, expected = found.copy(), expected.copy()
        self.add(found, expected)

    def index(self, shape: tuple[int, ...]) -> Any:
        parts: list[Any] = []
        for size in shape:
            roll = self.random.random()
            if roll < 0.3 and size:
                parts.append(self.random.randrange(-size, size))
            elif roll < 0.8:
                step = self.random.choice([1, 1, 2, -1, -2, None])
                ends = [self.random.choice([None, *range(-size - 1, size + 2)]) for _ in range(2)]
                parts.append(slice(*ends, step))
            else:
                parts.append(slice(None))
            if self.random.random() < 0.1:
                parts.append(None)
        if self.random.random() < 0.2:
            parts = [*parts[: len(parts) // 2], ...]
        return tuple(parts)

    def step(self) -> None:
        a, b = self.pick(), self.pick()
        roll = self.random.randrange(14)
        if roll == 0:
            self.make()
        elif roll <= 3:
            other: Any = b if self.random.random() < 0.7 else self.random.choice([2, -3, 0.5, True])
            f = self.random.choice(BINARY)
            self.both(f.__name__, f, a, other)
        elif roll == 4:
            name = self.random.choice(UNARY)
            self.both(name, lambda x, _: getattr(np, name)(x), a, None)
        elif roll == 5:
            index = self.index(a[1].shape)
            self.both(f"[{index}]", lambda x, _: x[index], a, None)
        elif roll == 6 and not a[0].readonly:
            index = self.index(a[1].shape)
            value: Any = b if self.random.random() < 0.6 else self.random.choice([1, -2, 0.25])
            if a[1][index].ndim == 0 and np.ndim(value[1] if isinstance(value, tuple) else value):
                return  # NumPy takes no array for a number, not even of one element
            self.both("[]=", lambda x, v: operator.setitem(x, index, apart(v)), a, value)
        elif roll == 7:
            f = self.random.choice(IN_PLACE)
            self.both(f.__name__, f, a, b if self.random.random() < 0.7 else 3)
        elif roll == 8:
            name, axis = self.random.choice(REDUCTIONS), self.random.choice([None, 0, -1])
            if a[1].ndim == 0:
                axis = None
            if a[1].size == 0:
                name = "sum"  # of nothing there is no largest, and NumPy looks at less than all
            if a[1].dtype != bool or name not in ("argmax", "std"):
                self.both(name, lambda x, _: getattr(x, name)(axis=axis), a, None)
        elif roll == 13:
            name = self.random.choice(list(FUNCTIONS))
            self.both(name, lambda x, _: FUNCTIONS[name](x), a, None)
        elif roll == 9:
            dtype = self.random.choice(["float64", "int64"])
            if np.isfinite(a[1]).all() and np.all(np.abs(a[1]) < 1e9):
                self.both("astype", lambda x, _: x.astype(dtype), a, None)
            self.both("T", lambda x, _: x.T, a, None)
        elif roll == 10 and not isinstance(a[0], hg.Scalar):
            self.kept.append(np.asarray(a[0]))
            assert np.shares_memory(self.kept[-1], np.asarray(a[0])) or a[1].size == 0
        elif roll == 11 and not isinstance(a[0], hg.Scalar):
            taken = self.random.choice(TAKE_BACK)(a[0])
            self.log.append(f"taken back {a[1].shape}{a[1].dtype}")
            self.add(taken, a[1])
            if a[1].ndim and not taken.readonly:
                self.overlap(*self.random.sample([a[0], taken], 2), a[1])
        else:
            self.check(a)

    def overlap(self, read: hg.Tensor, written: hg.Tensor, x: np.ndarray) -> None:
        """Write one of two tensors on the memory of x from another part of the other."""
        at, to = self.random.choice(OVERLAPS)
        f = self.random.choice([*IN_PLACE, None])
        if f is None:
            self.both("overlap =", lambda w, r: operator.setitem(w, to, apart(r[at])),
                      (written, x), (read, x))  # fmt: skip
            return

        def write(w: Any, r: Any) -> Any:
            f(w[to], r[at])
            return w

        self.both(f"overlap {f.__name__}", write, (written, x), (read, x))

    def check(self, pair: Pair) -> None:
        t, x = pair
        assert t.shape == x.shape, self.log[-5:]
        assert t.dtype == x.dtype, self.log[-5:]
        if isinstance(t, hg.Scalar) and self.exact and x == x:
            assert hash(t) == hash(x), self.log[-5:]
        if self.exact:
            np.testing.assert_array_equal(np.array(t.tolist(), x.dtype).reshape(x.shape), x,
                                          err_msg=str(self.log[-8:]))  # fmt: skip
            return
        finite = np.isfinite(x.astype("float64"))
        digits = {2: 3e-2, 4: 1e-3}.get(x.dtype.itemsize, 1e-6) if x.dtype.kind == "f" else 1e-6
        found = np.array(t.tolist(), dtype=x.dtype).reshape(x.shape)
        np.testing.assert_allclose(
            found.astype("float64")[finite],
            x.astype("float64")[finite],
            rtol=digits,
            atol=digits,
            err_msg=str(self.log[-8:]),
        )


def run(seed: int, exact: bool) -> None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        program = Program(seed, exact)
        if "HOLOGRAM_IMMEDIATE_BYTES" not in os.environ:
            testing.set_immediate_bytes((0, 64, 4096)[seed % 3])
        for _ in range(80):
            program.step()
        for pair in program.pool:
            program.check(pair)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_programs(seed: int, exact: bool) -> None:
    run(seed, exact)


@pytest.mark.heavy
def test_many_random_programs() -> None:
    """HOLOGRAM_PROGRAMS programs (100,000), from seed HOLOGRAM_SEED (1,000) on."""
    first = int(os.environ.get("HOLOGRAM_SEED", "1000"))
    for seed in range(first, first + int(os.environ.get("HOLOGRAM_PROGRAMS", "100000"))):
        try:
            run(seed, exact=True)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
