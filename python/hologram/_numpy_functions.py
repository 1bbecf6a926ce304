# SPDX-License-Identifier: MIT
"""Functions of NumPy that are not in the array API standard, and that libraries call all the same.

SciPy and xarray ask an array's namespace for them. Every other function of NumPy takes tensors as
``numpy.f(x)``.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

from hologram import _hologram
from hologram._lazy import through_numpy

__all__ = [
    "concatenate",
    "convolve",
    "diag",
    "einsum",
    "gradient",
    "isclose",
    "isin",
    "lib",
    "logspace",
    "median",
    "nan_to_num",
    "pad",
    "put_along_axis",
    "quantile",
    "transpose",
]


def _numpys(name: str, arrays: int, doc: str) -> Callable[..., Any]:
    """Return NumPy's function of that name, with Tensors made of its first few operands."""

    def function(*args: Any, **options: Any) -> Any:
        import numpy as np

        # NumPy hands Tensors back to hologram.
        first = map(_hologram._as_tensor, args[:arrays])
        return attrgetter(name)(np)(*first, *args[arrays:], **options)

    function.__name__ = function.__qualname__ = name.rpartition(".")[2]
    function.__module__ = "hologram"
    function.__doc__ = f"{doc}\n\n    Arguments are those of numpy.{name}.\n    "
    return function


convolve = _numpys("convolve", 2, "Return the convolution of two vectors.")
diag = _numpys("diag", 1, "Return a diagonal of a matrix, or a matrix with a vector on one.")
gradient = _numpys("gradient", 1, "Return central differences along axes, a Tensor for each.")
isclose = _numpys("isclose", 2, "Return whether elements differ by at most a tolerance.")
isin = _numpys("isin", 2, "Return whether each element is one of the test elements.")
median = _numpys("median", 1, "Return the medians along axes, by default of all elements.")
nan_to_num = _numpys("nan_to_num", 1, "Return the elements with numbers for NaN and infinities.")
pad = _numpys("pad", 1, "Return the array with elements put around it, zeros by default.")
put_along_axis = _numpys("put_along_axis", 1, "Write values to positions along an axis.")
quantile = _numpys("quantile", 1, "Return the q-th quantiles along axes.")
transpose = _numpys("transpose", 1, "Return a view with its dimensions reversed or in an order.")
_join = _numpys("concatenate", 0, "")
_einsum = _numpys("einsum", 0, "")


def concatenate(arrays: Any, /, axis: int | None = 0, **options: Any) -> Any:
    """Return the arrays joined along an axis.

    Arguments are those of numpy.concatenate.
    """
    return _join([_hologram._operand(x) for x in arrays], axis, **options)


def einsum(subscripts: Any, /, *operands: Any, **options: Any) -> Any:
    """Return the sums of products that indices name: 'ij,jk->ik' is a product of matrices.

    Arguments are those of numpy.einsum.
    """
    if isinstance(subscripts, str):
        operands = tuple(map(_hologram._operand, operands))
    else:
        subscripts = _hologram._operand(subscripts)
    return _einsum(subscripts, *operands, **options)


def logspace(start: Any, stop: Any, num: int = 50, **options: Any) -> Any:
    """Return `num` numbers from 10^start to 10^stop whose logarithms are evenly spaced.

    Arguments are those of numpy.logspace.
    """
    return through_numpy("logspace", start, stop, num, **options)


# By the place that it has in NumPy.
lib = SimpleNamespace(
    stride_tricks=SimpleNamespace(
        sliding_window_view=_numpys(
            "lib.stride_tricks.sliding_window_view",
            1,
            "Return a read-only view of the windows that slide along axes.",
        )
    )
)
