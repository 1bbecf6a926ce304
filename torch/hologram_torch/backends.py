# SPDX-License-Identifier: MIT
"""Which backends there are, and which one new tensors go to."""

from __future__ import annotations

from hologram_torch import _C


def list_available_backends() -> list[str]:
    """Return the backends usable here, the default first: ``['cpu']``, ``['cpu', 'cuda']``."""
    return _C.list_available_backends()


def get_backend() -> str:
    """Return the name of the backend of the current device."""
    return _C.get_backend()


def set_backend(name: str) -> None:
    """Move the current device to the first one of a backend.

    Raises ValueError that lists what is available for a backend that is unknown or absent.
    """
    if not isinstance(name, str):
        raise TypeError(f"set_backend expects a string, got {type(name).__name__}")
    available = list_available_backends()
    if name not in available:
        raise ValueError(
            f"backend {name!r} is not available: {_C.why_unavailable(name)}; "
            f"choose one of: {', '.join(map(repr, available))}"
        )
    _C.set_backend(name)
