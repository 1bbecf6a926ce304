# SPDX-License-Identifier: MIT
"""NumPy's ufuncs on tensors: those that hologram has are recorded, the others run on its memory."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from hologram import _hologram, _host
from hologram._hologram import Tensor, rows

__all__ = ["call"]

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def _name(x: Any) -> str:
    """Return the name of an operand's dtype; empty where it has none."""
    return x._dtype_name if isinstance(x, Tensor) else str(getattr(x, "dtype", ""))


def _sign(x: Any) -> Any:
    signs = rows.sign(x)
    if _name(x) not in _FLOATS:
        return signs
    # The row gives 0 of NaN, NumPy gives NaN.
    found = rows.where(rows.isnan(x), x, signs)
    return found if found.ndim else found[()]


def _conjugate(x: Any) -> Any:
    # NumPy makes a copy of real numbers, and one in int8 of bool.
    if not _name(x).startswith("complex"):
        raise TypeError
    return _hologram._conj(x)


# By the name of the ufunc: what computes it.
_SAME: dict[str, Callable[..., Any]] = {
    name: getattr(rows, name)
    for name in (
        "sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan tanh square isnan minimum maximum "
        "logical_not logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor add "
        "fmod sinh cosh hypot fmax fmin"
    ).split()
}
_RENAMED = {
    "subtract": rows.sub,
    "multiply": rows.mul,
    "divide": rows.div,
    "negative": rows.neg,
    "absolute": rows.abs,
    "invert": rows.bitwise_not,
    "power": rows.pow,
    "arcsin": rows.asin,
    "arccos": rows.acos,
    "arctan": rows.atan,
    "arctan2": rows.atan2,
    "arcsinh": rows.asinh,
    "arccosh": rows.acosh,
    "arctanh": rows.atanh,
    "equal": rows.eq,
    "not_equal": rows.ne,
    "less": rows.lt,
    "less_equal": rows.le,
    "greater": rows.gt,
    "greater_equal": rows.ge,
}
# Without out=.
_OPERATORS: dict[str, Callable[..., Any]] = {
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "left_shift": operator.lshift,
    "right_shift": operator.rshift,
    "matmul": operator.matmul,
    "positive": operator.pos,
    "conjugate": _conjugate,
    "divmod": divmod,
    "sign": _sign,
}
# Of floats only; NumPy leaves integers as they are or rounds them otherwise.
_FLOATS_ONLY = {
    "floor": rows.floor,
    "ceil": rows.ceil,
    "trunc": rows.trunc,
    "rint": rows.round,
    "reciprocal": rows.reciprocal,
}
# Not of complex numbers, of which a row without elements would say nothing.
_REAL = ("bitwise_and", "bitwise_or", "bitwise_xor", "floor_divide", "remainder", "divmod")
# By the name of the ufunc: the method of tensors that reduces with it.
_REDUCTIONS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
_ROWS = {**_SAME, **_RENAMED}
# These ufuncs are a row, or an operator, for every dtype or for some. They are answered without
# this module where the operands are Tensors and Python's numbers; those for every dtype also where
# an operand is an array or a scalar of NumPy's.
_hologram._note_types(
    np.ndarray, np.generic, [np.dtype(code).type(1) for code in "?bBhHiIlLqQefdFD"]
)
for _ufunc_name in (
    "add subtract multiply divide negative absolute equal not_equal less less_equal greater "
    "greater_equal minimum maximum sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan tanh isnan "
    "logical_not invert"
).split():
    _hologram._note_ufunc(getattr(np, _ufunc_name), _ROWS[_ufunc_name].__name__)
for _ufunc_name in "arcsin arccos arctan arctan2 arcsinh arccosh arctanh sinh cosh hypot".split():
    _hologram._note_ufunc(getattr(np, _ufunc_name), _ROWS[_ufunc_name].__name__, "reals")
for _ufunc_name in (
    "bitwise_and bitwise_or bitwise_xor floor_divide remainder left_shift right_shift"
).split():
    _hologram._note_ufunc(getattr(np, _ufunc_name), _ufunc_name, "reals")
for _ufunc_name, _row in _FLOATS_ONLY.items():
    _hologram._note_ufunc(getattr(np, _ufunc_name), _row.__name__, "floats")
_hologram._note_ufunc(np.square, "square", "numbers")
_hologram._note_ufunc(np.power, "power", "numbers")
_hologram._note_ufunc(np.matmul, "matmul", "numbers")
_PLAIN = (Tensor, np.ndarray, np.generic, bool, int, float, complex, list, tuple)


def _reduce(
    name: str, x: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False
) -> Any:
    if isinstance(out, tuple):
        (out,) = out
    if not isinstance(x, Tensor) or not (out is None or isinstance(out, Tensor)) or x.ndim == 0:
        return NotImplemented
    method = _REDUCTIONS[name]
    if method not in ("sum", "prod") and dtype is not None:
        return NotImplemented
    options = {} if dtype is None else {"dtype": dtype}
    return getattr(x, method)(axis, out=out, keepdims=keepdims, **options)


def _accumulate(name: str, x: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
    if isinstance(out, tuple):
        (out,) = out
    if name != "add" or not isinstance(x, Tensor) or x.ndim == 0:
        return NotImplemented
    if not (out is None or isinstance(out, Tensor)):
        return NotImplemented
    return x.cumsum(axis, dtype, out)


def _outer(ufunc: np.ufunc, x: Any, y: Any, **options: Any) -> Any:
    x = _hologram._operand(x)
    return ufunc(x.reshape(x.shape + (1,) * np.ndim(y)), y, **options)


def _method(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: Any) -> Any:
    """Record a method of a ufunc; NotImplemented where NumPy has to run it."""
    if method == "reduce" and ufunc.__name__ in _REDUCTIONS:
        return _reduce(ufunc.__name__, *inputs, **options)
    if method == "accumulate":
        return _accumulate(ufunc.__name__, *inputs, **options)
    if method == "outer" and ufunc.nout == 1:
        return _outer(ufunc, *inputs, **options)
    return NotImplemented


def _record(self: Any, name: str, ufunc: np.ufunc, inputs: tuple[Any, ...], options: Any) -> Any:
    """Record a call of a ufunc; NotImplemented where NumPy has to run it."""
    if name in _REAL and any("complex" in _name(x) for x in inputs):
        return NotImplemented
    outs = options.get("out", ())
    simple = not (set(options) - {"out"}) and ufunc.nout == 1
    # NumPy takes squares of bool for int8.
    simple = simple and (name != "square" or self._dtype_name != "bool")
    if simple:
        out = outs[0] if outs else None
        if name in _ROWS or (name in _FLOATS_ONLY and self._dtype_name in _FLOATS):
            function = _ROWS.get(name) or _FLOATS_ONLY[name]
            if isinstance(out, np.ndarray):
                function(*inputs, out=_hologram.asarray(out, copy=False))
                return out
            return function(*inputs, out=out)
        if name in _OPERATORS and out is None:
            first = inputs[0] if isinstance(inputs[0], Tensor) else _hologram._operand(inputs[0])
            return _OPERATORS[name](first, *inputs[1:])
    if name == "divmod" and not options:
        first = inputs[0] if isinstance(inputs[0], Tensor) else _hologram._operand(inputs[0])
        return divmod(first, inputs[1])
    return NotImplemented


def call(self: Any, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: Any) -> Any:
    """Answer ``__array_ufunc__`` of a Tensor: give Tensors, or what was given as ``out``."""
    outs = options.get("out", ())
    for x in (*inputs, *outs):
        if x is not None and not isinstance(x, _PLAIN) and hasattr(x, "__array_ufunc__"):
            return NotImplemented
    name = ufunc.__name__
    found: Any = NotImplemented
    # A masked array is NumPy's to compute: rows would show what it masks.
    if not any(isinstance(x, np.ma.MaskedArray) for x in (*inputs, *outs)):
        try:
            found = (
                _record(self, name, ufunc, inputs, options)
                if method == "__call__"
                else _method(ufunc, method, inputs, options)
            )
        except (TypeError, ValueError, IndexError, OverflowError):
            pass  # NumPy does it, or says in its own way what is wrong.
    if found is not NotImplemented:
        return found
    name = name if method == "__call__" else f"{name}.{method}"
    function = ufunc if method == "__call__" else getattr(ufunc, method)
    return _host.call(f"numpy.{name}", function, *inputs, **options)
