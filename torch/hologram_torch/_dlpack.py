# SPDX-License-Identifier: MIT
"""Make ``Tensor.__dlpack_device__`` know a renamed backend.

PyTorch 2.11 to 2.15 compare with the name "privateuse1" there, which no tensor has once the backend
is renamed, and raise ValueError; the conversion itself is right.
"""

from __future__ import annotations

import enum
import functools
from typing import Any

import torch

_CPU = 1  # kDLCPU


def _is_ours(tensor: torch.Tensor) -> bool:
    # Subclasses with __torch_function__ must be asked through it first.
    return not torch.overrides.has_torch_function_unary(tensor) and tensor.device.type == "hologram"


def install() -> None:
    """Replace the two methods on ``torch.Tensor`` once; other devices keep PyTorch's own."""
    original_device = torch.Tensor.__dlpack_device__
    original_export = torch.Tensor.__dlpack__
    if getattr(original_device, "_hologram", False):
        return

    @functools.wraps(original_device)
    def __dlpack_device__(self: torch.Tensor) -> tuple[enum.IntEnum, int]:
        if _is_ours(self):
            from torch.utils.dlpack import DLDeviceType

            return (DLDeviceType.kDLExtDev, self.device.index or 0)
        return original_device(self)

    @functools.wraps(original_export)
    def __dlpack__(self: torch.Tensor, **kwargs: Any) -> Any:
        wanted = kwargs.get("dl_device")
        if wanted is not None and int(wanted[0]) == _CPU and _is_ours(self):
            # Asked for host memory: the tensor's own is that, so nothing is copied unless asked.
            if self.requires_grad:
                raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
            return original_export(torch.ops.hologram._host_view(self), **kwargs)
        return original_export(self, **kwargs)

    __dlpack_device__._hologram = True  # type: ignore[attr-defined]
    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]
    torch.Tensor.__dlpack__ = __dlpack__  # type: ignore[method-assign]
