# SPDX-License-Identifier: MIT
"""Check the PyTorch in use, load the extension, and give the device its name and methods."""

from __future__ import annotations

import os

import torch

from hologram_torch._build_info import TORCH_MINOR, TORCH_VERSION
from hologram_torch._build_info import VERSION as __version__


def check_torch_version(built: str, running: str) -> None:
    """Raise ImportError when the extension was built for another minor version of PyTorch."""
    if running.split(".")[:2] != built.split(".")[:2]:
        built_minor = ".".join(built.split(".")[:2])
        running_minor = ".".join(running.split("+")[0].split(".")[:2])
        raise ImportError(
            f"hologram_torch {__version__} was built for PyTorch {built_minor}, but PyTorch "
            f"{running} is running. Install the hologram-torch wheel for PyTorch {running_minor}, "
            f"or rebuild it with: pip install --no-build-isolation hologram-torch"
        )


# PyTorch's C++ interfaces change between minor versions: loading anyway would crash, not raise.
check_torch_version(TORCH_VERSION or TORCH_MINOR, torch.__version__)

from hologram_torch import _C  # noqa: E402

torch.utils.rename_privateuse1_backend("hologram")

from hologram_torch import device as _device  # noqa: E402

torch._register_device_module("hologram", _device)
torch.utils.generate_methods_for_privateuse1_backend(
    for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
)

from hologram_torch import (  # noqa: E402
    _backward,
    _data_parallel,
    _interchange,
    _late,
    _operators,
    _save,
    _sharing,
    distributed,
    graphs,
    integrations,
)

_backward.install()
_data_parallel.install()
_interchange.install()
_late.install()
_operators.install()
_save.install()
_sharing.install()
distributed.install()
graphs.install()
integrations.install()

if os.environ.get("HOLOGRAM_AS_CUDA", "0") == "1":
    from hologram_torch import _as_cuda

    _as_cuda.install()

__all__ = ["_C", "__version__", "check_torch_version"]
