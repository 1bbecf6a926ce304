# SPDX-License-Identifier: MIT
"""Which device an argument means: shared by the parts of ``torch.hologram``."""

from __future__ import annotations

import torch
from torch.types import Device

from hologram_torch import _C


def device_count() -> int:
    """Return how many devices there are: the CPU, and what HOLOGRAM_DEVICES or the machine adds."""
    return _C.device_count()


def current_device() -> int:
    """Return the index of the current device."""
    return torch._C._accelerator_getDeviceIndex()


def device_index(device: Device = None) -> int:
    """Turn what users pass for a device into an index that exists."""
    if device is None:
        return current_device()
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != "hologram":
            raise ValueError(f"expected a hologram device, got {device}")
        index = current_device() if device.index is None else device.index
    else:
        index = int(device)
    if not 0 <= index < device_count():
        raise ValueError(f"no device hologram:{index}; there are {device_count()}")
    return index
