# SPDX-License-Identifier: MIT
"""Make ``Tensor.__dlpack_device__`` know a renamed backend.

PyTorch 2.11 to 2.15 compare with the name "privateuse1" there, which no tensor has once the backend
is renamed, and raise ValueError; the conversion itself is right.
"""

from __future__ import annotations

import enum

import torch


def install() -> None:
    """Replace the method on ``torch.Tensor`` once; other devices keep PyTorch's own."""
    original = torch.Tensor.__dlpack_device__
    if getattr(original, "_hologram", False):
        return

    def __dlpack_device__(self: torch.Tensor) -> tuple[enum.IntEnum, int]:
        if type(self) is torch.Tensor or type(self) is torch.nn.Parameter:
            device = self.device
            if device.type == "hologram":
                from torch.utils.dlpack import DLDeviceType

                return (DLDeviceType.kDLExtDev, device.index or 0)
        elif not torch.overrides.has_torch_function_unary(self):
            device = self.device
            if device.type == "hologram":
                from torch.utils.dlpack import DLDeviceType

                return (DLDeviceType.kDLExtDev, device.index or 0)
        return original(self)

    __dlpack_device__.__doc__ = original.__doc__
    __dlpack_device__._hologram = True  # type: ignore[attr-defined]
    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]
