# SPDX-License-Identifier: MIT
"""Hologram: a compute runtime in C++20, its Python face.

The package holds the shared library, its headers and its CMake package; `hologram_torch` links to
the same library.
"""

from __future__ import annotations

from pathlib import Path as _Path

from hologram import backend, ops
from hologram._call_rows import *  # noqa: F403
from hologram._call_rows import __all__ as _call_names
from hologram._dtypes import DType
from hologram._hologram import (
    Buffer,
    Executor,
    Tensor,
    arange,
    array,
    asarray,
    cpu_info,
    empty,
    full,
    ones,
    version,
    zeros,
)
from hologram._rows import *  # noqa: F403
from hologram._rows import __all__ as _row_names
from hologram.functions import *  # noqa: F403
from hologram.functions import __all__ as _function_names

__all__ = [
    "Buffer",
    "DType",
    "Executor",
    "Tensor",
    "__version__",
    "arange",
    "array",
    "asarray",
    "backend",
    "bfloat16",
    "bool_",
    "complex64",
    "complex128",
    "cpu_info",
    "empty",
    "float16",
    "float32",
    "float64",
    "full",
    "get_cmake_dir",
    "get_include",
    "int8",
    "int16",
    "int32",
    "int64",
    "ones",
    "ops",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "version",
    "zeros",
]
__all__ += _row_names
__all__ += _function_names
__all__ += _call_names

bool_ = DType("bool")
uint16, uint32, uint64 = map(DType, ("uint16", "uint32", "uint64"))
uint8, int8, int16, int32, int64 = map(DType, ("uint8", "int8", "int16", "int32", "int64"))
float16, bfloat16, float32, float64 = map(DType, ("float16", "bfloat16", "float32", "float64"))
complex64, complex128 = DType("complex64"), DType("complex128")

__version__ = version()

_ROOT = _Path(__file__).resolve().parent


def get_include() -> str:
    """Return the folder of the public C++ headers, for a compiler's ``-I``."""
    return str(_ROOT / "include")


def get_cmake_dir() -> str:
    """Return the folder of the CMake package, to be passed as ``-Dhologram_DIR=...``."""
    return str(_ROOT / "lib" / "cmake" / "hologram")
