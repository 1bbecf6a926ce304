# SPDX-License-Identifier: MIT
"""Make ``Tensor.__dlpack_device__`` know a renamed backend, and hand out host memory as such.

PyTorch 2.11 to 2.15 compare with the name "privateuse1" there, which no tensor has once the backend
is renamed, and raise ValueError; the conversion itself is right.

A consumer that passes ``dl_device=None`` names the argument and has no wish. That is NumPy (2.1 and
later), which reads host memory only and does not ask where it is; PyTorch and JAX ask first.
"""

from __future__ import annotations

import enum
import functools
from typing import Any

import torch

_CPU = 1  # kDLCPU
_NOT_NAMED = object()


def _is_ours(tensor: torch.Tensor) -> bool:
    # Subclasses with __torch_function__ must be asked through it first.
    return not torch.overrides.has_torch_function_unary(tensor) and tensor.device.type == "hologram"


def _takes_host_memory(asked: dict[str, Any], tensor: torch.Tensor) -> bool:
    wanted = asked.get("dl_device", _NOT_NAMED)
    if wanted is None:
        return not tensor.device.index  # other devices have memory of their own
    return wanted is not _NOT_NAMED and int(wanted[0]) == _CPU


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
        if _takes_host_memory(kwargs, self) and _is_ours(self):
            # The tensor's own memory is host memory, so nothing is copied unless asked.
            if self.requires_grad:
                raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
            return original_export(torch.ops.hologram._host_view(self), **kwargs)
        return original_export(self, **kwargs)

    __dlpack_device__._hologram = True  # type: ignore[attr-defined]
    torch.Tensor.__dlpack_device__ = __dlpack_device__  # type: ignore[method-assign]
    torch.Tensor.__dlpack__ = __dlpack__  # type: ignore[method-assign]
