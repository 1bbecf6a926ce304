# SPDX-License-Identifier: MIT
"""Keep ``torch.save`` from ending deferred execution of what it saves.

It asks every storage for its address, to find those that are shared. Code that has an address may
write there unseen, so ops on such storages run at their call from then on; torch.save does not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from hologram_torch import _C


def naming(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function in which addresses are asked for as names of storages only."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _C.begin_naming()
        try:
            return function(*args, **kwargs)
        finally:
            _C.end_naming()

    call._hologram = True  # type: ignore[attr-defined]
    return call


def install() -> None:
    """Wrap the two functions behind ``torch.save`` once."""
    for name in ("_save", "_legacy_save"):
        original = getattr(torch.serialization, name, None)
        if original is not None and not getattr(original, "_hologram", False):
            setattr(torch.serialization, name, naming(original))
