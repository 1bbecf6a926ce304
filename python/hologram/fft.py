# SPDX-License-Identifier: MIT
"""Fourier transforms: the extension ``fft`` of the array API standard 2024.12.

They are pocketfft's, called through NumPy on the same memory. float32 and complex64 stay in single
precision. `norm` is 'backward' (the inverse divides by n), 'ortho' or 'forward'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hologram import _hologram
from hologram._creation import check_device
from hologram._hologram import Tensor
from hologram._lazy import through_numpy

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]


def _along_one(name: str, doc: str) -> Callable[..., Tensor]:
    def function(
        x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward"
    ) -> Tensor:
        return through_numpy(f"fft.{name}", _hologram._operand(x), n=n, axis=axis, norm=norm)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc}\n\n    The axis is cut or filled with zeros to n elements.\n    "
    return function


def _along_several(name: str, doc: str) -> Callable[..., Tensor]:
    def function(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
        x = _hologram._operand(x)
        if s is not None and axes is None:
            axes = tuple(range(x.ndim - len(s), x.ndim))
        return through_numpy(f"fft.{name}", x, s=s, axes=axes, norm=norm)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{doc}\n\n    Axes, by default all, are cut or filled with zeros to s.\n    "
    )
    return function


fft = _along_one("fft", "Return the transform along an axis, complex.")
ifft = _along_one("ifft", "Return the inverse transform along an axis, complex.")
rfft = _along_one("rfft", "Return the transform of a real array: its n // 2 + 1 lower frequencies.")
irfft = _along_one("irfft", "Return the real array, n elements, of which rfft gives `x`.")
hfft = _along_one("hfft", "Return the transform, real, of a signal with Hermitian symmetry.")
ihfft = _along_one("ihfft", "Return the inverse of hfft, of a real array.")
fftn = _along_several("fftn", "Return the transform along several axes, complex.")
ifftn = _along_several("ifftn", "Return the inverse transform along several axes, complex.")
rfftn = _along_several("rfftn", "Return the transform of a real array along several axes.")
irfftn = _along_several("irfftn", "Return the real array of which rfftn gives `x`.")


def _frequencies(name: str, n: int, d: float, dtype: Any, device: str | None) -> Tensor:
    check_device(device)
    if n < 1 or d == 0:
        raise ValueError(f"{name}: n is at least 1 and d is not 0, not {n} and {d}")
    found: Tensor = through_numpy(f"fft.{name}", n, d)
    return found if dtype is None else found.astype(dtype, copy=False)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: str | None = None) -> Tensor:
    """Return the frequencies of the elements that fft gives for n samples, d apart."""
    return _frequencies("fftfreq", n, d, dtype, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: str | None = None) -> Tensor:
    """Return the frequencies of the elements that rfft gives for n samples, d apart."""
    return _frequencies("rfftfreq", n, d, dtype, device)


def fftshift(x: Any, /, *, axes: Any = None) -> Tensor:
    """Return `x` with the zero frequency moved to the middle of axes, by default all."""
    return through_numpy("fft.fftshift", _hologram._operand(x), axes)


def ifftshift(x: Any, /, *, axes: Any = None) -> Tensor:
    """Return the inverse of fftshift."""
    return through_numpy("fft.ifftshift", _hologram._operand(x), axes)
