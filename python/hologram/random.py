# SPDX-License-Identifier: MIT
"""Random numbers: Generators with the methods and arguments of NumPy's.

    rng = hologram.random.default_rng(42)
    x = rng.normal(size=(1000, 3))

The bits are those of Philox 4x32-10 (see `Philox`), a counter-based generator: each element is a
function of the key, of the place where the draw begins and of its own position. So the numbers of a
seed are the same for any number of threads and whether a draw is deferred or not. Integers, uniform
numbers, permutations and choices are the same on every machine; normal and exponential numbers, and
choices by probabilities, are made of functions and sums whose last bits depend on the instruction
set (AVX-512, AVX2 or neither). They are not NumPy's numbers of the same seed.

Draws are recorded as other ops are, and run when a result is read. `permutation`, `permuted`,
`shuffle`, `choice` and `integers` of arrays draw at their call.
"""

from __future__ import annotations

import builtins
import math
import numbers
import operator
from collections.abc import Mapping
from typing import Any

from hologram import _dtypes, _hologram
from hologram._calls import tensor_functions as _calls
from hologram._hologram import Scalar, Tensor, rows
from hologram._manipulation import axis_of, broadcast_to, common_shape, shape_of
from hologram._philox import Philox

__all__ = ["Generator", "Philox", "default_rng"]

_BITS = 2**64 - 1
_NUMBERS = (float, int)
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_SIZES = (8, 16, 32, 64)
_LIMITS = {
    "bool": (0, 1),
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in _SIZES},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in _SIZES},
}


def _name_of(dtype: Any, names: Any, method: str) -> str:
    name = _dtypes.name_of(dtype)
    if name not in names:
        raise TypeError(f"Unsupported dtype {name} for {method}; use one of: {', '.join(names)}")
    return name


def _is_array(x: Any) -> bool:
    return isinstance(x, Tensor) or hasattr(x, "__array_interface__")


def _real(x: Any, name: str) -> Tensor:
    """Return a parameter of a distribution as a Tensor of float64."""
    found = _hologram._operand(x)
    if found._dtype_name.startswith("complex"):
        raise TypeError(f"{name} is of real numbers, not {found._dtype_name}; take the real part")
    return found.astype("float64", copy=False)


def _common(size: Any, method: str, *parameters: Tensor) -> tuple[int, ...]:
    """Return the shape of a result: the parameters', or `size`, to which they broadcast."""
    shapes = [x.shape for x in parameters]
    shape = common_shape(shapes, method)
    if size is None:
        return shape
    wanted = shape_of(size)
    if common_shape([shape, wanted], f"{method} with size {wanted}") != wanted:
        raise ValueError(
            f"shape mismatch: {method} makes the shape {shape} of its parameters, which does not "
            f"broadcast to size {wanted}"
        )
    return wanted


def _shaped(found: Any, size: Any) -> Any:
    """Return a result, as a Scalar where it has no dimensions and none were asked for."""
    if found.ndim or not isinstance(found, Tensor):
        return found
    if size is None:
        return _hologram._as_scalar(found)
    return _hologram.array(found) if isinstance(found, Scalar) else found


class Generator:
    """Draws from distributions, with a bit generator; made by `default_rng`.

    `size` is a shape; None draws one number, a `hologram.Scalar`, or as many as the parameters,
    which broadcast, have elements. The arguments are those of numpy.random.Generator. Pickling and
    copy.deepcopy keep the place in the stream.

    bit_generator: the Philox whose stream is drawn from; other Generators may share it.
    """

    __slots__ = ("_stream", "bit_generator")

    bit_generator: Philox

    def __init__(self, bit_generator: Philox) -> None:
        if not isinstance(bit_generator, Philox):
            raise TypeError(
                "a Generator draws from a hologram.random.Philox, not "
                f"{type(bit_generator).__name__}; hologram.random.default_rng(seed) makes both"
            )
        self.bit_generator = bit_generator
        self._stream = bit_generator._stream

    def __reduce__(self) -> tuple[Any, ...]:
        return Generator, (self.bit_generator,)

    def __repr__(self) -> str:
        return f"hologram.random.Generator({self.bit_generator!r})"

    def spawn(self, n_children: int) -> list[Generator]:
        """Return Generators whose streams are their own; each call gives others.

        Raises:
            ValueError: a negative number.
        """
        return [Generator(child) for child in self.bit_generator.spawn(n_children)]

    # --- Floating numbers -------------------------------------------------------------------------

    def random(self, size: Any = None, dtype: Any = "float64", out: Any = None) -> Tensor:
        """Return numbers spread evenly over [0, 1), in steps of 2^-53, float32 of 2^-24.

        float16 and bfloat16, which NumPy does not have here, go by 2^-11 and 2^-8.

        Raises:
            TypeError: another dtype, or one that is not that of `out`.
            ValueError: `out` is no Tensor or array, `size` is not its shape, or is negative.
        """
        if out is None and dtype == "float64":
            return self._stream.uniform(size, None, None, 0.0, 1.0)
        return self._fill(self._stream.uniform, "random", size, dtype, out)

    def standard_normal(self, size: Any = None, dtype: Any = "float64", out: Any = None) -> Tensor:
        """Return normal numbers of mean 0 and deviation 1, made in pairs by Box and Muller.

        Raises:
            TypeError: a dtype that is not floating, or not that of `out`.
            ValueError: as of random.
        """
        if out is None and dtype == "float64":
            return self._stream.normal(size, None, None, 0.0, 1.0)
        return self._fill(self._stream.normal, "standard_normal", size, dtype, out)

    def standard_exponential(
        self, size: Any = None, dtype: Any = "float64", method: str = "zig", out: Any = None
    ) -> Tensor:
        """Return exponential numbers of mean 1: -log(1 - u) of uniform numbers u.

        `method` is NumPy's choice of an algorithm; either is the one above.

        Raises:
            TypeError: a dtype that is not floating, or not that of `out`.
            ValueError: as of random; another method.
        """
        if method not in ("zig", "inv"):
            raise ValueError(f"standard_exponential: method is 'zig' or 'inv', not {method!r}")
        found = self._fill(self._stream.uniform, "standard_exponential", size, dtype, out)
        if out is None:
            return _shaped(-rows.log(1 - found), size)
        values = _hologram.asarray(found, copy=False)
        values[...] = -rows.log(1 - values)
        return found

    def _fill(self, draw: Any, name: str, size: Any, dtype: Any, out: Any) -> Tensor:
        if dtype is not None and dtype != "float64":
            dtype = _name_of(dtype, _FLOATS, name)
        target = out
        if out is not None and not isinstance(out, Tensor):
            if not _is_array(out):
                raise ValueError(f"{name}: out is a Tensor or an array, not {type(out).__name__}")
            target = _hologram.asarray(out, copy=False)
        found: Tensor = draw(size, dtype, target, 0.0, 1.0)
        return found if out is None else out

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Tensor:
        """Return numbers spread evenly over [low, high), float64: low + (high - low) * u.

        Where rounding reaches `high` the number is `low`.

        Raises:
            ValueError: high < low, or shapes that do not broadcast.
            OverflowError: high - low is not finite.
        """
        if isinstance(low, _NUMBERS) and isinstance(high, _NUMBERS):
            self._check_width(high - low)
            return self._stream.uniform(size, None, None, low, high)
        low, high = _real(low, "low"), _real(high, "high")
        shape = _common(size, "uniform", low, high)
        width = high - low
        if width.size:
            least, most = float(width.min()), float(width.max())
            self._check_width(most if least >= 0 and most == math.inf else least)
        u = self._stream.uniform(shape, None, None, 0.0, 1.0)
        found = u * width + low
        return _shaped(rows.where(rows.lt(found, high), found, low), size)

    @staticmethod
    def _check_width(width: float) -> None:
        if not math.isfinite(width):
            raise OverflowError(f"uniform: high - low range exceeds valid bounds: it is {width}")
        if width < 0:
            raise ValueError(f"uniform: high - low < 0: it is {width}; exchange them")

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Tensor:
        """Return normal numbers of mean `loc` and deviation `scale`, float64.

        Raises:
            ValueError: scale < 0, or shapes that do not broadcast.
        """
        if isinstance(loc, _NUMBERS) and isinstance(scale, _NUMBERS):
            _check_scale(scale, "normal")
            return self._stream.normal(size, None, None, loc, scale)
        loc, scale = _real(loc, "loc"), _real(scale, "scale")
        _check_scale(scale, "normal")
        shape = _common(size, "normal", loc, scale)
        return _shaped(self._stream.normal(shape, None, None, 0.0, 1.0) * scale + loc, size)

    def exponential(self, scale: Any = 1.0, size: Any = None) -> Tensor:
        """Return exponential numbers of mean `scale`, float64.

        Raises:
            ValueError: scale < 0, or shapes that do not broadcast.
        """
        if not isinstance(scale, _NUMBERS):
            scale = _real(scale, "scale")
            shape = _common(size, "exponential", scale)
        else:
            shape = () if size is None else size
        _check_scale(scale, "exponential")
        u = self._stream.uniform(shape, None, None, 0.0, 1.0)
        return _shaped(-rows.log(1 - u) * scale, size)

    # --- Integers ---------------------------------------------------------------------------------

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: Any = "int64",
        endpoint: bool = False,
    ) -> Tensor:
        """Return integers from [low, high), from [low, high] with `endpoint`.

        Of low alone, from 0 to it. All are exactly equally likely: words of 32 bits (ranges below
        2^28, if numbers are given for both) or 64 bits choose by multiplication, and the few that
        would favour some integers are drawn again. dtype is bool or an integer dtype.

        Raises:
            TypeError: another dtype.
            ValueError: a range without integers, or one that the dtype does not hold.
        """
        name = "int64" if dtype == "int64" else _name_of(dtype, _LIMITS, "integers")
        alone = high is None
        if alone:
            low, high = 0, low
        if _is_number(low) and _is_number(high):
            low = int(low)
            count = _count_between(low, int(high), bool(endpoint), name, alone)
            return self._stream.integers(size, name, low & _BITS, count & _BITS)
        closed = bool(endpoint)
        if not closed and _is_beyond(high):
            high, closed = _one_less(high), True
        low, high = _whole(low, "low", name), _whole(high, "high", name)
        shape = _common(size, "integers", low, high)
        low, high = (broadcast_to(x, shape) for x in (low, high))
        return _shaped(self._stream.integers_between(low, high, closed, name), size)

    def bytes(self, length: int) -> builtins.bytes:
        """Return `length` random bytes.

        Raises:
            ValueError: a negative length.
        """
        count = operator.index(length)
        if count < 0:
            raise ValueError(f"bytes: the length is at least 0, not {count}")
        words = self._stream.integers((count + 7) // 8, "uint64", 0, 0)
        found: builtins.bytes = words.tobytes()
        return found[:count]

    # --- Orders -----------------------------------------------------------------------------------

    def permutation(self, x: Any, axis: int = 0) -> Tensor:
        """Return the numbers below an int, or a copy of an array, in a random order.

        The parts of an array along `axis` change places as wholes. All orders are equally likely.

        Raises:
            IndexError: the axis is out of range.
        """
        count = _count_of(x)
        if count is not None:
            return self._order(max(count, 0))
        x = _population(x)
        at = axis_of(axis, x.ndim, "permutation")
        return _take(x, self._order(x.shape[at]), at)

    def permuted(self, x: Any, *, axis: int | None = None, out: Any = None) -> Tensor:
        """Return a copy of an array with its elements in a random order.

        With an axis, each line along it has an order of its own. `out` may be `x`.

        Raises:
            IndexError: the axis is out of range.
            TypeError: `x` has no dimensions, or `out` is no Tensor or array.
            ValueError: `out` has another shape.
        """
        x = _population(x)
        if x.ndim == 0:
            raise TypeError("permuted: the array has no dimensions; there is nothing to permute")
        if out is not None and not _is_array(out):
            raise TypeError(f"permuted: out is a Tensor or an array, not {type(out).__name__}")
        if out is not None and out.shape != x.shape:
            raise ValueError(f"permuted: out must have the same shape as x, {x.shape}")
        if axis is None:
            found = x.reshape(-1)[self._order(x.size)].reshape(x.shape)
        else:
            at = axis_of(axis, x.ndim, "permuted")
            lines = x.swapaxes(at, -1)
            length = lines.shape[-1]
            count = x.size // length if length else 0
            order = self._stream.positions(count, length, length)
            # Lines behind one another in one dimension, each of which begins at its own place.
            starts = _hologram.arange(0, count * length, max(length, 1)).reshape((count, 1))
            flat = lines.reshape(-1)[(order + starts).reshape(-1)]
            found = flat.reshape(lines.shape).swapaxes(at, -1)
        if out is None:
            return found.contiguous() if isinstance(found, Tensor) else found
        out[...] = found
        return out

    def shuffle(self, x: Any, axis: int = 0) -> None:
        """Bring the parts of `x` along an axis into a random order, in place; nothing is lost.

        `x` is a Tensor, an array of NumPy's, or a list or another object with items that can be
        assigned, which has the axis 0.

        Raises:
            IndexError: the axis is out of range.
            TypeError: `x` has no items, or they cannot be assigned.
            ValueError: `x` is read-only.
            NotImplementedError: another axis than 0 of a list.
        """
        if _is_array(x):
            if x.ndim == 0:
                raise TypeError("shuffle: the array has no dimensions; there is nothing to shuffle")
            at = axis_of(axis, x.ndim, "shuffle")
            if isinstance(x, Tensor) and x.readonly:
                raise ValueError("shuffle: the Tensor is read-only; shuffle a copy()")
            x[...] = _take(x, self._order(x.shape[at]), at)
            return
        methods = ("__len__", "__getitem__", "__setitem__")
        if isinstance(x, Mapping) or not all(hasattr(x, method) for method in methods):
            raise TypeError(f"shuffle: a {type(x).__name__} has no items that can be assigned")
        if axis != 0:
            raise NotImplementedError("shuffle: a list has the axis 0; make an array of it")
        items = [x[at] for at in self._order(len(x)).tolist()]
        for at, item in enumerate(items):
            x[at] = item

    def choice(
        self,
        a: Any,
        size: Any = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        shuffle: bool = True,
    ) -> Tensor:
        """Return a random sample of the numbers below an int, or of an array's parts along an axis.

        With `p` part i has the probability p[i]. Without `replace` no part is drawn twice: each
        next one has the probabilities of those that are left (P. Efraimidis and P. Spirakis,
        "Weighted random sampling with a reservoir", 2006). The sample is always in a random order,
        which shuffle=False only does not ask for.

        Raises:
            ValueError: nothing to draw from, more than there is without `replace`, or a `p` that
                does not have one number for each part, or negative ones, or NaN, or another sum
                than 1.
            IndexError: the axis is out of range.
        """
        n, at = _count_of(a), 0
        is_count = n is not None
        if n is None:
            a = _sampled(a)
            at = axis_of(axis, a.ndim, "choice")
            n = a.shape[at]
        shape = () if size is None else shape_of(size)
        if any(length < 0 for length in shape):
            raise ValueError(f"choice: negative dimensions are not allowed, as in the size {shape}")
        count = math.prod(shape)
        if n <= 0 and count:
            raise ValueError(
                f"a must be a positive integer unless no samples are taken, not {n}"
                if is_count
                else f"a cannot be empty unless no samples are taken; its axis {axis} is"
            )
        if not replace and count > max(n, 0):
            raise ValueError(
                f"Cannot take a larger sample than population when replace is False: {count} of {n}"
            )
        weights = None if p is None else _probabilities(p, n)
        places = self._places(max(n, 0), shape, count, bool(replace), weights)
        if not is_count:
            return _shaped(_take(a, places, at), size)
        return _shaped(places, size)

    def _places(
        self, n: int, shape: tuple[int, ...], count: int, replace: bool, p: Tensor | None
    ) -> Tensor:
        if count == 0:
            return _hologram.empty(shape, "int64")
        if p is None:
            if replace:
                return self._stream.integers(shape, "int64", 0, n)
            return self._stream.positions(1, n, count).reshape(shape)
        if replace:
            total = p.cumsum(0)
            u = self._stream.uniform((count,), None, None, 0.0, 1.0)
            return _calls["searchsorted"](total / total[-1], u, None, right=True).reshape(shape)
        if int(rows.gt(p, 0).sum()) < count:
            raise ValueError(f"Fewer non-zero entries in p than size, which asks for {count}")
        u = self._stream.uniform((n,), None, None, 0.0, 1.0)
        # The first of exponential numbers of rates p; a rate of 0 never comes.
        keys = rows.where(rows.gt(p, 0), -rows.log(1 - u) / p, math.inf)
        first = keys.argpartition(count - 1)[:count]
        return first[keys[first].argsort()].reshape(shape)

    def _order(self, n: int) -> Tensor:
        return self._stream.positions(1, n, n).reshape(n)


# --- Arguments ------------------------------------------------------------------------------------


def _check_scale(scale: Any, method: str) -> None:
    # NumPy refuses -0.0, too.
    if isinstance(scale, Tensor):
        wrong = bool(((scale < 0) | (1 / scale < 0)).any())
    else:
        wrong = math.copysign(1.0, scale) < 0 and scale == scale
    if wrong:
        raise ValueError(f"{method}: scale < 0; a deviation or mean is at least 0")


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, numbers.Real)) or (
        getattr(x, "ndim", None) == 0 and hasattr(x, "__int__")
    )


def _count_between(low: int, high: int, closed: bool, name: str, alone: bool) -> int:
    """Return how many integers are between bounds, all of which the dtype `name` holds."""
    least, most = _LIMITS[name]
    last = high if closed else high - 1
    if not least <= low <= most:
        raise ValueError(f"low is out of bounds for {name}: {low}; give another dtype")
    if last > most or high < least:
        raise ValueError(f"high is out of bounds for {name}: {high}; give another dtype")
    if low > last:
        if alone:
            raise ValueError(f"high {'<' if closed else '<='} 0: there is no integer up to {high}")
        raise ValueError(
            f"low {'>' if closed else '>='} high: {low} and {high} have no integer between them"
        )
    return last - low + 1


def _is_beyond(x: Any) -> bool:
    """Return whether a list holds ints that int64 does not, for which there may be no Tensor."""
    if isinstance(x, (list, tuple)):
        return any(map(_is_beyond, x))
    return isinstance(x, int) and x > _LIMITS["int64"][1]


def _one_less(x: Any) -> Any:
    return [_one_less(one) for one in x] if isinstance(x, (list, tuple)) else int(x) - 1


def _whole(x: Any, name: str, dtype: str) -> Tensor:
    """Return bounds as a Tensor of int64 or uint64; floats are cut towards zero."""
    if _is_beyond(x):
        try:
            return _hologram.asarray(x, "uint64")
        except OverflowError as error:
            raise ValueError(f"{name} is out of bounds for {dtype}: no dtype holds {x}") from error
    found = _hologram._operand(x)
    if found._dtype_name.startswith("complex"):
        raise TypeError(f"{name} is of integers, not {found._dtype_name}")
    return found if found._dtype_name == "uint64" else found.astype("int64", copy=False)


def _count_of(x: Any) -> int | None:
    """Return the int that `x` is, or None for an array or another object."""
    if getattr(x, "ndim", 0) != 0:
        return None
    try:
        return operator.index(x)
    except TypeError:
        return None


def _population(x: Any) -> Any:
    """Return what is drawn from: a Tensor, or NumPy's array of elements that no Tensor holds."""
    try:
        return _hologram._operand(x)
    except TypeError:
        import numpy as np

        return np.asarray(x)


def _sampled(a: Any) -> Any:
    found = None if isinstance(a, (str, bytes)) else _population(a)
    if found is None or found.ndim == 0:
        raise ValueError(f"a must be a sequence or an integer, not {type(a)}")
    return found


def _take(x: Any, places: Tensor, axis: int) -> Any:
    if not isinstance(x, Tensor):
        return x.take(places.numpy(), axis=axis)
    found = x[(slice(None),) * axis + (places,)]
    return found if places.ndim or not found.ndim else found.copy()


def _probabilities(p: Any, n: int) -> Tensor:
    given = _hologram._operand(p)
    tolerance = {"float16": 2.0**-5, "bfloat16": 2.0**-4, "float32": 2.0**-11.5}.get(
        given._dtype_name if hasattr(p, "dtype") else "", 2.0**-26
    )
    found = _real(given, "p")
    if found.ndim != 1:
        raise ValueError(f"p must be 1-dimensional, not of shape {found.shape}")
    if found.size != n:
        raise ValueError(f"a and p must have same size; they have {n} and {found.size}")
    total = float(found.sum())
    if math.isnan(total):
        raise ValueError("Probabilities contain NaN")
    if n and float(found.min()) < 0:
        raise ValueError("Probabilities are not non-negative")
    if abs(total - 1.0) > tolerance:
        raise ValueError(f"Probabilities do not sum to 1: their sum is {total}; divide by it")
    return found


def default_rng(seed: Any = None) -> Generator:
    """Return a Generator of the stream of a seed.

    `seed` is None for a stream that nobody had before, an int of any size that is not negative, a
    sequence of those, a SeedSequence of NumPy's, or a `Philox`, which the Generator shares. A
    Generator is returned as it is. Equal seeds give equal numbers: see the module.

    Raises:
        TypeError: another kind of seed, among them Generators of NumPy's.
        ValueError: a negative int.
    """
    if isinstance(seed, Generator):
        return seed
    return Generator(seed if isinstance(seed, Philox) else Philox(seed))
