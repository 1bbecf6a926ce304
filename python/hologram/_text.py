# SPDX-License-Identifier: MIT
"""How tensors are printed and pickled."""

from __future__ import annotations

from typing import Any

from hologram import _hologram

__all__ = ["apply_format", "rebuild", "reduce", "represent", "show"]

# Dtypes that a list of Python numbers has by itself.
_IMPLIED = ("bool", "int64", "float64", "complex128")
_MOST_SHOWN = 1000


def _numbers(x: Any, separator: str, prefix: str) -> str:
    """Return the elements as NumPy prints them, or as lists where there is no NumPy."""
    if str(x.dtype) == "bfloat16":
        x = x.astype("float32")
    try:
        import numpy as np
    except ImportError:
        if x.size <= _MOST_SHOWN:
            return str(x.tolist())
        return f"[... {x.size} elements of shape {x.shape} ...]"
    if isinstance(x, _hologram.Scalar):
        return str(np.asarray(x._peek())[()])
    return np.array2string(np.asarray(x._peek()), separator=separator, prefix=prefix)


def represent(x: Any) -> str:
    """Answer ``repr(x)``."""
    name = str(x.dtype)
    kind = "Scalar" if isinstance(x, _hologram.Scalar) else "Tensor"
    if x.size == 0:
        shape = "" if x.shape == (0,) else f", shape={x.shape}"
        return f"Tensor([]{shape}, dtype={name})"
    numbers = _numbers(x, ", ", f"{kind}(")
    return f"{kind}({numbers})" if name in _IMPLIED else f"{kind}({numbers}, dtype={name})"


def show(x: Any) -> str:
    """Answer ``str(x)``."""
    return _numbers(x, " ", "")


def apply_format(x: Any, spec: str) -> str:
    """Answer ``format(x, spec)``: of the number where there is one, else only without a spec."""
    if not isinstance(spec, str):
        raise TypeError(f"a format is a string, not {type(spec).__name__}")
    if x.ndim == 0:
        return format(x.item(), spec)
    if spec:
        raise TypeError("a Tensor with dimensions takes no format; format its item()s")
    return show(x)


def reduce(x: Any) -> tuple[Any, ...]:
    """Answer ``pickle.dumps(x)``: the elements, shape and dtype."""
    is_scalar = isinstance(x, _hologram.Scalar)
    return rebuild, (x.tobytes(), x.shape, str(x.dtype), is_scalar)


def rebuild(data: bytes, shape: tuple[int, ...], dtype: str, is_scalar: bool = False) -> Any:
    """Return the Tensor or Scalar that `reduce` took apart."""
    flat = _hologram.array(memoryview(data))
    found = flat._as_dtype(dtype).reshape(shape)
    return _hologram._as_scalar(found) if is_scalar else found
