# SPDX-License-Identifier: MIT
"""Operators of a Tensor and an object that no Tensor is made of: None, strings, masked arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from hologram import _hologram
from hologram._hologram import Tensor

__all__ = ["answer"]

_COMPARISONS = ("lt", "le", "eq", "ne", "gt", "ge")
_IN_PLACE = (
    "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor",
    "ilshift", "irshift", "imatmul",
)  # fmt: skip


def _answers_itself(other: Any, name: str) -> bool:
    """Return whether an operator is for the other operand to answer.

    NumPy's arrays ask for `__array_ufunc__` and a priority. As there are no Tensors of objects, a
    method of the operand's own comes before NumPy's elementwise calls of it, too.
    """
    kind = type(other)
    if hasattr(kind, "__array_interface__"):
        return False  # NumPy's
    if hasattr(kind, "__array_ufunc__") or getattr(kind, "__array_priority__", 0) > 0:
        return True
    if name in _COMPARISONS or isinstance(other, (Sequence, Mapping, Set)):
        return False
    method = f"__r{name[1:] if name in _IN_PLACE else name}__"
    return any(method in one.__dict__ for one in kind.__mro__)


def answer(name: str, a: Any, b: Any) -> Any:
    """Return what NumPy's operator gives, or NotImplemented where the other operand answers.

    `name` is that of the special method without underscores.

    Raises:
        TypeError: NumPy has no such operator of the two.
    """
    tensor, other = (a, b) if isinstance(a, Tensor) else (b, a)
    if name in ("eq", "ne") and (other is None or isinstance(other, (str, bytes))):
        return _hologram._as_scalar(_hologram.full(tensor.shape, name == "ne", "bool"))
    if _answers_itself(other, name):
        return NotImplemented
    try:
        from hologram import _host
    except ImportError:
        return NotImplemented
    function: Callable[..., Any] = divmod if name == "divmod" else getattr(operator, f"__{name}__")
    found = _host.call(f"operator.{name}", function, a, b)
    return a if name in _IN_PLACE and isinstance(found, Tensor) else found
