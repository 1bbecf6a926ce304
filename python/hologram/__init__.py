# SPDX-License-Identifier: MIT
"""Hologram: a compute runtime in C++20, its Python face; a namespace of the array API 2024.12.

The package holds the shared library, its headers and its CMake package; `hologram_torch` links to
the same library.
"""

from __future__ import annotations

import math as _math
import numbers as _numbers
import warnings as _warnings
from pathlib import Path as _Path
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from hologram import _hologram, backend, ops
from hologram._call_rows import *  # noqa: F403
from hologram._call_rows import __all__ as _call_names
from hologram._dtypes import DType
from hologram._hologram import Buffer, Executor, Scalar, Tensor, array, cpu_info, version
from hologram._rows import *  # noqa: F403
from hologram._rows import __all__ as _row_names
from hologram.functions import *  # noqa: F403
from hologram.functions import __all__ as _function_names

# The array API standard. Its names come last: what it has they are.
from hologram._creation import *  # noqa: F403  isort: skip
from hologram._creation import __all__ as _creation_names  # isort: skip
from hologram._dtype_functions import *  # noqa: F403  isort: skip
from hologram._dtype_functions import __all__ as _dtype_names  # isort: skip
from hologram._elementwise import *  # noqa: F403  isort: skip
from hologram._elementwise import __all__ as _elementwise_names  # isort: skip
from hologram._manipulation import *  # noqa: F403  isort: skip
from hologram._manipulation import __all__ as _manipulation_names  # isort: skip
from hologram._searching import *  # type: ignore[assignment] # noqa: F403  isort: skip
from hologram._searching import __all__ as _searching_names  # isort: skip
from hologram._numpy_functions import *  # noqa: F403  isort: skip
from hologram._numpy_functions import __all__ as _numpy_names  # isort: skip
from hologram._reductions import *  # type: ignore[assignment] # noqa: F403  isort: skip
from hologram._reductions import __all__ as _reduction_names  # isort: skip
from hologram import fft, linalg, random  # isort: skip
from hologram.linalg import tensordot, vecdot  # isort: skip

if _TYPE_CHECKING:
    from hologram.observe import explain, profile

__all__ = [
    "Buffer",
    "DType",
    "Executor",
    "Scalar",
    "Tensor",
    "__array_api_version__",
    "__version__",
    "array",
    "backend",
    "bfloat16",
    "bool",
    "bool_",
    "complex64",
    "complex128",
    "cpu_info",
    "e",
    "explain",
    "fft",
    "float16",
    "float32",
    "float64",
    "get_cmake_dir",
    "get_include",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "linalg",
    "nan",
    "newaxis",
    "ops",
    "pi",
    "profile",
    "random",
    "tensordot",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "vecdot",
    "version",
]
__all__ += _row_names
__all__ += _function_names
__all__ += _call_names
__all__ += _creation_names + _dtype_names + _elementwise_names
__all__ += _manipulation_names + _searching_names + _numpy_names
__all__ += [name for name in _reduction_names if name not in __all__]

__array_api_version__ = "2024.12"
e, pi, inf, nan = _math.e, _math.pi, _math.inf, _math.nan
newaxis = None

bool_ = bool = DType("bool")
uint16, uint32, uint64 = map(DType, ("uint16", "uint32", "uint64"))
uint8, int8, int16, int32, int64 = map(DType, ("uint8", "int8", "int16", "int32", "int64"))
float16, bfloat16, float32, float64 = map(DType, ("float16", "bfloat16", "float32", "float64"))
complex64, complex128 = DType("complex64"), DType("complex128")

# NumPy's Generator.shuffle goes on to lose rows, which are views.
_warnings.filterwarnings("error", message="you are shuffling a 'Tensor' object")

_numbers.Integral.register(_hologram.IntegerScalar)
_numbers.Real.register(_hologram.FloatScalar)
_numbers.Complex.register(_hologram.ComplexScalar)
_numbers.Number.register(_hologram.BoolScalar)  # for np.isscalar

__version__ = version()

_ROOT = _Path(__file__).resolve().parent


def __getattr__(name: str) -> _Any:
    # Modules that few programs need are imported when they are first asked for.
    if name in ("explain", "profile"):
        from hologram import observe

        globals()[name] = getattr(observe, name)
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def get_include() -> str:
    """Return the folder of the public C++ headers, for a compiler's ``-I``."""
    return str(_ROOT / "include")


def get_cmake_dir() -> str:
    """Return the folder of the CMake package, to be passed as ``-Dhologram_DIR=...``."""
    return str(_ROOT / "lib" / "cmake" / "hologram")
