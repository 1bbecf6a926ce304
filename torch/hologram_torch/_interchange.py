# SPDX-License-Identifier: MIT
"""Hand the memory of a tensor to NumPy and to other libraries: DLPack and ``np.asarray``.

PyTorch 2.11 to 2.15 compare with the name "privateuse1" in ``Tensor.__dlpack_device__``, which no
tensor has once the backend is renamed, and raise ValueError; the conversion itself is right.

The tensors of ``hologram:0`` lie in host memory. A consumer that wants that gets it, and nothing is
copied. One that passes ``dl_device=None`` names the argument and has no wish. That is NumPy (2.1
and later), which reads host memory only and does not ask where it is; PyTorch and JAX ask first.
"""

from __future__ import annotations

import enum
import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    import numpy.typing as npt

_CPU = 1  # kDLCPU
_NOT_NAMED = object()
# What NumPy, JAX and the SDK name; other arguments are PyTorch's to look at.
_USUAL = {"dl_device", "copy", "max_version"}


def _is_ours(tensor: Tensor) -> bool:
    # Subclasses with __torch_function__ must be asked through it first.
    return not torch.overrides.has_torch_function_unary(tensor) and tensor.device.type == "hologram"


def _is_in_host_memory(tensor: Tensor) -> bool:
    return _is_ours(tensor) and tensor.get_device() == 0  # other devices have their own memory


def _takes_host_memory(asked: dict[str, Any], tensor: Tensor) -> bool:
    wanted = asked.get("dl_device", _NOT_NAMED)
    if wanted is None:
        return _is_in_host_memory(tensor)
    return wanted is not _NOT_NAMED and int(wanted[0]) == _CPU and _is_ours(tensor)


def _is_usual(asked: dict[str, Any]) -> bool:
    version = asked.get("max_version")
    return version is not None and version[0] >= 1 and asked.keys() <= _USUAL


def _host_view(tensor: Tensor) -> Tensor:
    view: Tensor = torch.ops.hologram._host_view(tensor)
    return view


def install() -> None:
    """Replace the methods on ``torch.Tensor`` once; other devices keep PyTorch's own."""
    original_device = Tensor.__dlpack_device__
    original_export = Tensor.__dlpack__
    original_array = Tensor.__array__
    original_wrap = Tensor.__array_wrap__
    export = torch._C._to_dlpack_versioned
    if getattr(original_device, "_hologram", False):
        return

    @functools.wraps(original_device)
    def __dlpack_device__(self: Tensor) -> tuple[enum.IntEnum, int]:
        if _is_ours(self):
            from torch.utils.dlpack import DLDeviceType

            return (DLDeviceType.kDLExtDev, self.device.index or 0)
        return original_device(self)

    @functools.wraps(original_export)
    def __dlpack__(self: Tensor, **kwargs: Any) -> Any:
        if _takes_host_memory(kwargs, self):
            if self.requires_grad:
                raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
            view = _host_view(self)
            if _is_usual(kwargs) and not view.is_conj():
                # The end of PyTorch's method, without the questions that a cpu tensor answers.
                return export(view, dl_device=kwargs["dl_device"], copy=kwargs.get("copy"))
            return original_export(view, **kwargs)
        return original_export(self, **kwargs)

    @functools.wraps(original_array)
    def __array__(self: Tensor, dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
        if not _is_in_host_memory(self):
            return original_array(self, dtype)
        if self.requires_grad:
            raise RuntimeError(
                "hologram: a tensor that requires grad is no array; use tensor.detach()"
            )
        return original_array(_host_view(self), dtype)

    @functools.wraps(original_wrap)
    def __array_wrap__(self: Tensor, array: npt.NDArray[Any]) -> Tensor:
        wrapped = original_wrap(self, array)
        return wrapped.to(self.device) if _is_ours(self) else wrapped

    __dlpack_device__._hologram = True  # type: ignore[attr-defined]
    Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]
    Tensor.__dlpack__ = __dlpack__  # type: ignore[method-assign]
    Tensor.__array__ = __array__  # type: ignore[method-assign]
    Tensor.__array_wrap__ = __array_wrap__  # type: ignore[method-assign]
