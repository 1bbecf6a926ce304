# SPDX-License-Identifier: MIT
"""PyTorch's device ``hologram``: importing this package (or just torch) makes it usable.

>>> import torch
>>> x = torch.randn(3, device="hologram")
"""

from __future__ import annotations

import os as _os
import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from hologram import Executor
    from hologram_torch import functional, nn, utils
    from hologram_torch._elementwise import elementwise
    from hologram_torch._explain import Explanation, explain
    from hologram_torch._profile import profile


def _autoload() -> None:
    """Entry point ``torch.backends``: called at the end of ``import torch``; never raises.

    The import of this package has already done the work; what is left is to make a failed one be
    tried again, and reported in full, when the user imports ``hologram_torch`` by name.
    """
    if __name__ in _sys.modules and _load_error is not None:
        del _sys.modules[__name__]


def _torch_is_loading() -> bool:
    """Tell whether torch itself is importing us, through its entry points."""
    spec = getattr(_sys.modules.get("torch"), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


_load_error: BaseException | None = None
_autoloading = _torch_is_loading()


def _why_not_now() -> ImportError | None:
    """Say why `import torch` leaves the device out, where it does.

    HOLOGRAM_AUTOLOAD=0 never loads it, 1 always. Without the variable it is not loaded beside
    another accelerator, whose programs would find themselves on this one: the first device that
    is registered from outside is what ``torch.accelerator`` means.
    """
    wish = _os.environ.get("HOLOGRAM_AUTOLOAD") or None
    if wish == "0":
        return ImportError("HOLOGRAM_AUTOLOAD=0")
    # Children of a program that says "cuda" and means this device (_as_cuda.py) say so, too.
    if wish == "1" or _os.environ.get("HOLOGRAM_AS_CUDA") == "1":
        return None
    if wish is not None:
        import warnings

        warnings.warn(
            f"HOLOGRAM_AUTOLOAD is {wish!r}; set it to 0 (`import torch` never loads the device "
            "'hologram') or 1 (always), or unset it (not beside CUDA, ROCm or XPU)",
            RuntimeWarning,
            stacklevel=2,
        )
    from hologram_torch import _other_accelerators

    found = _other_accelerators.find()
    return None if found is None else ImportError(f"there is a device of {found}")


_load_error = _why_not_now() if _autoloading else None
if _load_error is None:
    try:
        # First: it loads the extension and names the device.
        from hologram_torch._load import __version__  # noqa: F401  isort: skip
        from hologram_torch.backends import get_backend, list_available_backends, set_backend
        from hologram_torch.execution import execution, fallback_counts, reset_fallback_counts
    except Exception as _error:
        if not _autoloading:
            raise
        import warnings as _warnings

        # An accelerator that cannot be loaded must not take torch down with it.
        _load_error = _error
        _warnings.warn(
            f"torch.device('hologram') is not available: {_error}", RuntimeWarning, stacklevel=2
        )

__all__ = [
    "Executor",
    "Explanation",
    "elementwise",
    "execution",
    "explain",
    "fallback_counts",
    "functional",
    "get_backend",
    "list_available_backends",
    "nn",
    "profile",
    "quantize_",
    "reset_fallback_counts",
    "set_backend",
    "utils",
]


def __getattr__(name: str) -> object:
    # What not every program needs is imported when it is first asked for: `import torch` must stay
    # quick.
    if name in ("Explanation", "explain"):
        from hologram_torch import _explain

        return getattr(_explain, name)
    if name == "profile":
        from hologram_torch._profile import profile

        return profile
    if name == "elementwise":
        from hologram_torch._elementwise import elementwise

        return elementwise
    if name == "quantize_":
        from hologram_torch._quantize import quantize_

        return quantize_
    if name == "Executor":
        import hologram

        return hologram.Executor
    if name in ("functional", "nn", "utils"):
        import importlib

        return importlib.import_module(f"hologram_torch.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
