# SPDX-License-Identifier: MIT
"""Which backends this build and this machine offer."""

from __future__ import annotations

import enum

from hologram import _hologram

__all__ = [
    "BackendType",
    "get_default_backend",
    "is_cuda_available",
    "is_metal_available",
    "list_available_backends",
    "validate_backend",
    "why_unavailable",
]


class BackendType(enum.StrEnum):
    """A kind of device that executes operations; each equals its name."""

    CPU = "cpu"
    CUDA = "cuda"
    METAL = "metal"
    OPENCL = "opencl"


def is_cuda_available() -> bool:
    """Whether operations can run on an NVIDIA GPU."""
    return BackendType.CUDA in list_available_backends()


def is_metal_available() -> bool:
    """Whether operations can run through Metal."""
    return BackendType.METAL in list_available_backends()


def list_available_backends() -> list[str]:
    """Return the names of the backends that work here; the CPU always does and is always first."""
    return list(_hologram.list_available_backends())


def why_unavailable(name: str | BackendType) -> str:
    """Return why a backend cannot be used here, for people; an empty string where it can."""
    return _hologram._why_unavailable(BackendType(name).value)


def get_default_backend() -> BackendType:
    """Return the backend that 'auto' stands for: HOLOGRAM_BACKEND if available, else the CPU."""
    return BackendType(_hologram.default_backend())


def validate_backend(name: str | BackendType) -> BackendType:
    """Return the backend called `name` (``'auto'`` is allowed).

    Raises:
        TypeError: `name` is neither a string nor a `BackendType`.
        ValueError: no backend has this name, or it is not available here.
    """
    if isinstance(name, BackendType):
        name = name.value
    if not isinstance(name, str):
        raise TypeError(f"a backend is named by a str or a BackendType, not {type(name).__name__}")
    if name == "auto":
        return get_default_backend()
    available = list_available_backends()
    if name not in available:
        why = _hologram._why_unavailable(name)
        raise ValueError(
            f"backend {name!r} is not available here: {why}; available: {', '.join(available)}"
        )
    return BackendType(name)
