# SPDX-License-Identifier: MIT
"""Calls NumPy's functions, and imports NumPy at the first of these calls and not before."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from hologram import _hologram

__all__ = ["numpys", "through_numpy"]


def through_numpy(name: str, /, *args: Any, **kwargs: Any) -> Any:
    """Run a function of NumPy, given by its name in that module, on tensors' memory.

    Raises:
        ImportError: NumPy is not installed.
    """
    import numpy as np

    from hologram import _host

    return _host.run(attrgetter(name)(np), *args, **kwargs)


def numpys(call: str, doc: str, *, arrays: int = 1) -> Callable[..., Any]:
    """Return the function of a row: NumPy's on the memory of Tensors, under the same name.

    `call` is what it is and takes, as in 'linalg.qr(x, /, *, mode="reduced")'. Tensors are made of
    its first few arguments.
    """
    path, _, parameters = call.removesuffix(")").partition("(")
    name = path.rpartition(".")[2]
    given: list[str] = []
    by_name = False
    for parameter in parameters.split(", "):
        by_name = by_name or parameter == "*"
        if parameter in ("/", "*"):
            continue
        argument = parameter.partition("=")[0]
        value = f"tensor({argument})" if len(given) < arrays else argument
        given.append(f"{argument}={value}" if by_name else value)
    scope: dict[str, Any] = {"tensor": _hologram._as_tensor, "run": through_numpy}
    # The text is a row's, and gives the function the signature that the row states.
    exec(f"def {name}({parameters}): return run({path!r}, {', '.join(given)})", scope)
    function: Callable[..., Any] = scope[name]
    function.__module__ = "hologram" if path == name else f"hologram.{path.partition('.')[0]}"
    function.__doc__ = doc
    return function
