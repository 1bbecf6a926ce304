# SPDX-License-Identifier: MIT
"""Whether PyTorch was built for another accelerator that this machine has.

It is asked during `import torch`, so it must not start that accelerator: a CUDA context of the
parent makes CUDA useless in a forked child. PyTorch counts devices through the libraries that
monitor them. Where such a library is missing, the files of the driver say whether there is one.
"""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Callable

import torch

# Files that a driver makes for a device; on Jetson (nvhost, nvgpu) and in Windows' Linux (dxg).
_FILES = {
    "cuda": ("/dev/nvidia[0-9]*", "/dev/nvhost-gpu", "/dev/nvgpu*", "/dev/dxg"),
    "rocm": ("/dev/kfd", "/dev/dxg"),
    "xpu": ("/dev/dri/renderD*", "/dev/dxg"),
}
_HIDING = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "rocm": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "xpu": ("ZE_AFFINITY_MASK",),
}


def find() -> str | None:
    """Return ``cuda``, ``rocm`` or ``xpu`` where PyTorch has it and a device is there."""
    kind = _built_for()
    if kind is None or any(os.environ.get(name) in ("", "-1") for name in _HIDING[kind]):
        return None
    count = _count(kind)
    if count < 0:
        root = os.environ.get("HOLOGRAM_SYSTEM_ROOT", "")
        count = sum(len(glob.glob(root + pattern)) for pattern in _FILES[kind])
    return kind if count > 0 else None


def _built_for() -> str | None:
    version = torch.version
    for kind, name in (("rocm", "hip"), ("cuda", "cuda"), ("xpu", "xpu")):
        if getattr(version, name, None) is not None:
            return kind
    return None


def _count(kind: str) -> int:
    """Return how many devices the monitoring library sees, or -1 where it cannot tell."""
    module, name = {
        "cuda": (torch.cuda, "_device_count_nvml"),
        "rocm": (torch.cuda, "_device_count_amdsmi"),
        "xpu": (torch.xpu, "_device_count_zes"),
    }[kind]
    count: Callable[[], int] | None = getattr(module, name, None)
    if count is None:
        return -1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "Can't initialize NVML" is for programs that use CUDA
        try:
            return int(count())
        except Exception:
            return -1
