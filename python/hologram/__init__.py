# SPDX-License-Identifier: MIT
"""Hologram: a compute runtime in C++20, its Python face.

The package holds the shared library, its headers and its CMake package; `hologram_torch` links to
the same library.
"""

from __future__ import annotations

from pathlib import Path as _Path

from hologram import backend
from hologram._dtypes import DType
from hologram._hologram import Buffer, Executor, cpu_info, version

__all__ = [
    "Buffer",
    "DType",
    "Executor",
    "__version__",
    "backend",
    "cpu_info",
    "get_cmake_dir",
    "get_include",
    "version",
]

__version__ = version()

_ROOT = _Path(__file__).resolve().parent


def get_include() -> str:
    """Return the folder of the public C++ headers, for a compiler's ``-I``."""
    return str(_ROOT / "include")


def get_cmake_dir() -> str:
    """Return the folder of the CMake package, to be passed as ``-Dhologram_DIR=...``."""
    return str(_ROOT / "lib" / "cmake" / "hologram")
