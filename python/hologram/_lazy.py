# SPDX-License-Identifier: MIT
"""Calls NumPy's functions, and imports NumPy at the first of these calls and not before."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

__all__ = ["through_numpy"]


def through_numpy(name: str, /, *args: Any, **kwargs: Any) -> Any:
    """Run a function of NumPy, given by its name in that module, on tensors' memory.

    Raises:
        ImportError: NumPy is not installed.
    """
    import numpy as np

    from hologram import _host

    return _host.run(attrgetter(name)(np), *args, **kwargs)
