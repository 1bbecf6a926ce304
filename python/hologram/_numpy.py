# SPDX-License-Identifier: MIT
"""What hologram does through NumPy; imported when it is first needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from hologram import _dtypes, _hologram

__all__ = ["array", "peek", "plain", "view"]


def plain(x: Any) -> tuple[np.ndarray, str]:
    """Return `x` as an array with the buffer protocol, and its dtype's name.

    bfloat16, which has no format there, comes as int16.

    Raises:
        TypeError: NumPy makes no array of numbers of it.
    """
    found = np.asarray(x)
    name = _dtypes.name_of(found.dtype)
    return (found.view(np.int16) if name == "bfloat16" else found), name


def view(x: Any) -> np.ndarray:
    """Return a NumPy array on the memory of a Buffer or Tensor, without a copy."""
    if not _dtypes.is_bfloat16(x.dtype):
        return np.asarray(memoryview(x))
    if isinstance(x.dtype, _dtypes.DType):
        raise TypeError("NumPy has no bfloat16; install ml_dtypes, or use x.astype('float32')")
    return np.asarray(memoryview(_hologram.asarray(x)._as_int16())).view(x.dtype)


def array(x: Any, dtype: Any, copy: bool | None) -> np.ndarray:
    """Answer ``__array__`` of a Buffer or Tensor."""
    found = view(x)
    if dtype is not None and np.dtype(dtype) != found.dtype:
        if copy is False:
            raise ValueError(
                f"a copy is needed to make {np.dtype(dtype)} of {found.dtype}; leave copy=False out"
            )
        return found.astype(dtype)
    return found.copy() if copy else found


def peek(x: Any) -> np.ndarray:
    """Return an array on a Tensor's memory that the caller forgets before it returns.

    Other than `view`, this lets later ops on the Tensor be deferred. bfloat16 comes as ml_dtypes'
    where that is installed, else as its bits in int16.
    """
    found = np.asarray(x._peek())
    dtype = x.dtype
    if _dtypes.is_bfloat16(dtype) and not isinstance(dtype, _dtypes.DType):
        return found.view(dtype)
    return found
