# SPDX-License-Identifier: MIT
"""Random arguments: tensors of all dtypes and layouts, numbers, strings and what is none."""

from __future__ import annotations

import datetime
import decimal
import fractions
import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import hologram as hg

__all__ = ["Arguments", "Spec", "build", "foreign", "has_tensor", "largest", "show"]

DTYPES = [str(name) for name in (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
    "complex64", "complex128",
)] + [name for name in ("uint16", "uint32", "uint64") if hasattr(hg, name)]  # fmt: skip
SHAPES: list[tuple[int, ...]] = [
    (), (0,), (1,), (3,), (4,), (5,), (2, 3), (3, 3), (3, 2), (1, 3), (0, 3), (3, 0), (2, 3, 4),
    (2, 2, 2), (1, 1, 1), (2, 1, 3), (4, 4), (1, 2, 1, 3), (2, 2, 2, 2, 2), (70,),
]  # fmt: skip
HUGE = [
    2**31,
    2**31 - 1,
    -(2**31),
    2**32,
    2**62,
    2**63 - 1,
    -(2**63),
    2**63,
    2**64,
    10**30,
    -(10**30),
]
SMALL = [0, 1, -1, 2, 3, -2, 4, 7, -5, 100]
FLOATS = [0.0, -0.0, 0.5, 1.0, -1.5, 3.0, 1e-300, 1e308, float("inf"), -float("inf"), float("nan")]
STRINGS = ["", "a", "float32", "int64", "C", "F", "same_kind", "unsafe", "ij", "ij,jk->ik",
    "...i->...",
           "constant", "reflect", "edge", "valid", "full", "left", "right", "fro", "nuc", "ortho",
           "cpu",
           "cuda", "reduced", "complete", "sum", "linear", "raise", "wrap", "clip", "\u00e4",
           "x" * 300,
           "i\0j", "2024.12", "datetime64[s]", "O", "U3", ">f4", "i,i->"]  # fmt: skip
AXIS_NAMES = {"axis", "axes", "dim", "axis1", "axis2", "source", "destination", "start"}
SHAPE_NAMES = {"shape", "newshape", "size", "s", "reps", "repetitions", "pad_width", "window_shape"}
TRUTH_NAMES = {"keepdims", "stable", "descending", "copy", "right", "upper", "invert", "equal_nan",
               "full_matrices", "hermitian", "endpoint", "include_initial", "subok",
               "readonly"}  # fmt: skip
ARRAY_NAMES = {"x", "x1", "x2", "y", "a", "b", "arr", "array", "ary", "m", "v", "input", "out",
    "other",
               "condition", "indices", "index", "values", "weight", "bias", "obj", "f"}  # fmt: skip


@dataclass(frozen=True)
class Spec:
    """What makes a tensor or the array that is like it."""

    base: int
    layout: str

    def make(self, xp: Any) -> Any:
        """Return it as `xp`'s array."""
        dtype, data = BASES[self.base]
        if xp is hg:
            x = hg.array(data)
            x = x.astype("bfloat16") if dtype == "bfloat16" else x
        else:
            x = data.copy()
            x = x.astype(BFLOAT16) if dtype == "bfloat16" and BFLOAT16 is not None else x
        if self.layout == "reversed":
            return x[..., ::-1] if x.ndim else x
        if self.layout == "transposed":
            return x.transpose()
        if self.layout == "every second":
            return x[..., ::2] if x.ndim else x
        if self.layout == "broadcast":
            return xp.broadcast_to(x, (2, *x.shape))
        if self.layout == "waiting" and dtype != "bool":
            return (x + x).copy() if x.ndim else xp.asarray(x + x)
        if self.layout == "scalar":
            return x[()] if x.ndim == 0 else x
        if self.layout == "shared" and xp is hg:
            return hg.asarray(x)
        return x

    def __repr__(self) -> str:
        dtype, data = BASES[self.base]
        return f"<{dtype}{list(data.shape)}{' ' + self.layout if self.layout else ''}>"


LAYOUTS = ["", "", "", "reversed", "transposed", "every second", "broadcast", "waiting", "shared",
           "scalar"]  # fmt: skip


def _bfloat16() -> Any:
    try:
        import ml_dtypes
    except ImportError:
        return None
    return np.dtype(ml_dtypes.bfloat16)


BFLOAT16 = _bfloat16()


def _bases() -> list[tuple[str, np.ndarray]]:
    rng = np.random.default_rng(11)
    found = []
    for dtype in DTYPES:
        for shape in SHAPES:
            x = rng.standard_normal(shape) * 3
            kept = "float32" if dtype == "bfloat16" else dtype
            x = np.abs(x) if dtype.startswith("uint") else x
            data = np.asarray(x.astype(kept))
            if data.size > 2 and data.dtype.kind in "fc":
                data.flat[0], data.flat[1] = np.nan, np.inf
            elif data.size > 2 and data.dtype.kind in "iu":
                data.flat[0], data.flat[1] = np.iinfo(kept).max, np.iinfo(kept).min
            found.append((dtype, data))
            # And one that is tame, as positions and matrices are.
            found.append((dtype, np.asarray((rng.random(shape) * 3).astype(kept))))
    return found


BASES = _bases()


# Of one shape, and of one shape and dtype.
FITTING = [
    [i for i, (_, data) in enumerate(BASES) if data.shape == shape] for shape in SHAPES
] + [
    [i for i, (name, data) in enumerate(BASES) if (name, data.shape) == (dtype, shape)]
    for shape in SHAPES
    for dtype in DTYPES
]  # fmt: skip


class _Odd:
    """What no function knows."""

    def __repr__(self) -> str:
        return "<odd>"


class _Index:
    """What says that it is an index, and is none."""

    def __index__(self) -> int:
        raise ValueError("no index")

    def __repr__(self) -> str:
        return "<no index>"


class _Liar:
    """What says that it is an array, and is none."""

    shape = (3,)
    dtype = "float32"

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("no array")

    def __repr__(self) -> str:
        return "<no array>"


ODD: list[Any] = [
    None, None, None, True, False, [], (), {}, [1, 2], [[1], [2, 3]], [1.5, 2], ["a"], [None],
    {"a": 1}, {1, 2}, b"x", bytearray(b"abc"), memoryview(b"abcd"), 1j, complex("nan"), Ellipsis,
    NotImplemented, slice(None), slice(0, 10**20, -3), slice("a", 2), slice(None, None, 0),
    range(3), float, int, bool, str, object, np.float32, np.dtype("U3"), np.dtype("O"),
    np.dtype("datetime64[s]"), np.dtype([("a", "i4")]), np.int64(3), np.float64(2.5),
    np.bool_(True), np.complex64(1j), np.datetime64("2020-01-01"),
    np.array(["a", "b"]), np.array([None, 1], dtype=object),
    np.zeros(3, [("a", "i4")]), np.array([1.0, 2.0, 3.0], ">f8"),
    np.ma.masked_array([1.0, 2.0], [True, False]), np.arange(3, dtype="m8[s]"),
    fractions.Fraction(1, 3), decimal.Decimal("1.5"), datetime.date(2020, 1, 1), _Odd(), _Index(),
    _Liar(), len, [[[]]], (0, 1), (0, 0), (-1,), (5, 9), np.longdouble(1),
    np.zeros((2, 2), "clongdouble"), np, hg,
]  # fmt: skip


def build(x: Any, xp: Any) -> Any:
    """Return arguments with arrays of `xp`'s in the place of what makes them."""
    if isinstance(x, Spec):
        return x.make(xp)
    if type(x) in (list, tuple):
        return type(x)(build(part, xp) for part in x)
    if type(x) is dict:
        return {key: build(value, xp) for key, value in x.items()}
    if type(x) is slice:
        return slice(build(x.start, xp), build(x.stop, xp), build(x.step, xp))
    if isinstance(x, np.ndarray):
        return x.copy()
    if isinstance(x, hg.DType) and xp is np and x.name != "bfloat16":
        return x.dtype
    return x


def has_tensor(x: Any) -> bool:
    """Return whether there is a tensor in arguments."""
    if type(x) in (list, tuple):
        return any(map(has_tensor, x))
    if type(x) is dict:
        return any(map(has_tensor, x.values()))
    return isinstance(x, Spec)


def foreign(x: Any) -> bool:
    """Return whether there is something in arguments that no Tensor can be made of."""
    if type(x) in (list, tuple):
        # NumPy makes arrays of strings of lists with one.
        return any(isinstance(part, str) or foreign(part) for part in x)
    if type(x) is dict:
        return any(map(foreign, x.values()))
    return not isinstance(x, (Spec, int, float, complex, str, type(None)))


def largest(x: Any) -> float:
    """Return the largest number in arguments."""
    if isinstance(x, (int, float)) and x == x:
        return abs(x)
    if isinstance(x, Spec):
        data = BASES[x.base][1]
        return float(np.max(np.abs(data), initial=0, where=np.isfinite(data)))
    if type(x) in (list, tuple):
        return max(map(largest, x), default=0)
    if type(x) is dict:
        return max(map(largest, x.values()), default=0)
    if type(x) is slice:
        return max(map(largest, (x.start, x.stop, x.step)))
    return 0


def show(args: tuple[Any, ...], options: dict[str, Any]) -> str:
    """Return arguments as they are written in a call."""
    parts = [repr(x) for x in args] + [f"{key}={value!r}" for key, value in options.items()]
    return f"({', '.join(parts)})"


_signatures: dict[str, list[inspect.Parameter]] = {}


def _parameters(name: str, call: Callable[..., Any]) -> list[inspect.Parameter]:
    if name not in _signatures:
        try:
            _signatures[name] = list(inspect.signature(call).parameters.values())
        except (TypeError, ValueError):
            _signatures[name] = []
    return _signatures[name]


class Arguments:
    """Random arguments of calls."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        # Half of the calls have tensors that fit each other and little that is odd.
        self._bases = rng.choice(FITTING) if rng.random() < 0.5 else ()

    def tensor(self) -> Spec:
        """Return what makes a tensor."""
        if self._bases:
            return Spec(
                self._rng.choice(self._bases), self._rng.choice(("", "waiting", "reversed"))
            )
        return Spec(self._rng.randrange(len(BASES)), self._rng.choice(LAYOUTS))

    def number(self) -> Any:
        """Return a number, seldom a huge one."""
        at = self._rng.random()
        if at < 0.6:
            return self._rng.choice(SMALL)
        return self._rng.choice(FLOATS if at < 0.9 else HUGE)

    def axis(self) -> Any:
        """Return an axis, or something that is none."""
        at = self._rng.random()
        if at < 0.7:
            return self._rng.randrange(-3, 3)
        if at < 0.85:
            return tuple(self._rng.randrange(-3, 3) for _ in range(self._rng.randrange(4)))
        return self.anything()

    def shape(self) -> Any:
        """Return a shape, or something that is none."""
        at = self._rng.random()
        if at < 0.5:
            return self._rng.choice(SHAPES)
        if at < 0.8:
            return tuple(
                self._rng.choice([*SMALL, 2**31, 2**62]) for _ in range(self._rng.randrange(4))
            )
        return self.anything()

    def anything(self) -> Any:
        """Return anything."""
        at = self._rng.random() * (0.6 if self._bases else 1)
        if at < 0.35:
            return self.tensor()
        if at < 0.6:
            return self.number()
        if at < 0.7:
            return self._rng.choice(STRINGS)
        if at < 0.8:
            kind = self._rng.choice((list, tuple))
            return kind(self.anything() for _ in range(self._rng.randrange(4)))
        if at < 0.83:
            return slice(*(self._rng.choice([None, *SMALL]) for _ in range(3)))
        return self._rng.choice(ODD)

    def named(self, name: str) -> Any:
        """Return a value for a parameter of that name, mostly of the kind that it takes."""
        if self._rng.random() < 0.15:
            return self.anything()
        if name in AXIS_NAMES:
            return self.axis()
        if name in SHAPE_NAMES:
            return self.shape()
        if name == "dtype":
            return self._rng.choice((*DTYPES, hg.float32, hg.bfloat16))
        if name in TRUTH_NAMES:
            return self._rng.choice((True, False))
        if name in ("arrays", "tup", "tensors"):
            return [self.tensor() for _ in range(self._rng.randrange(4))]
        if name in ARRAY_NAMES:
            return self.tensor()
        return self.anything()

    def of(
        self, name: str, call: Callable[..., Any], is_method: bool
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of one call."""
        if is_method:
            count = self._rng.choice((0, 0, 1, 1, 1, 2, 3))
            args = [self.tensor(), *(self.anything() for _ in range(count))]
            names = self._rng.sample(
                ("axis", "dtype", "out", "keepdims"), self._rng.choice((0, 0, 1, 2))
            )
            return tuple(args), {key: self.named(key) for key in names}
        args, options = [], {}
        parameters = _parameters(name, call)
        if isinstance(call, np.ufunc) and self._rng.random() < 0.8:
            operands = (
                self.tensor() if self._rng.random() < 0.8 else self.anything()
                for _ in range(call.nin)
            )
            return tuple(operands), {"out": self.tensor()} if self._rng.random() < 0.2 else {}
        if not parameters or self._rng.random() < 0.1:
            count = self._rng.choice((0, 1, 1, 2, 2, 2, 3))
            args = [
                self.tensor() if self._rng.random() < 0.7 else self.anything() for _ in range(count)
            ]
            if self._rng.random() < 0.3:
                options["out"] = self.named("out")
            return tuple(args), options
        for at, parameter in enumerate(parameters):
            if parameter.kind is parameter.VAR_POSITIONAL:
                args += (
                    [self.tensor() for _ in range(self._rng.randrange(3))] if not options else []
                )
            elif parameter.kind is parameter.VAR_KEYWORD:
                if self._rng.random() < 0.1:
                    options[self._rng.choice(("where", "initial", "casting", "nothing"))] = (
                        self.anything()
                    )
            elif parameter.default is parameter.empty:
                value = (
                    self.tensor()
                    if at == 0 and self._rng.random() < 0.8
                    else self.named(parameter.name)
                )
                if parameter.kind is parameter.KEYWORD_ONLY or options:
                    options[parameter.name] = value
                else:
                    args.append(value)
            elif self._rng.random() < 0.35 and parameter.kind is not parameter.POSITIONAL_ONLY:
                options[parameter.name] = self.named(parameter.name)
        return tuple(args), options
