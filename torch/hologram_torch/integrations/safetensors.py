# SPDX-License-Identifier: MIT
"""safetensors: files are mapped into memory and used by the device where they lie, without a copy.

Its reader in Rust knows devices by a list of names and has no hook for another. So ``safe_open``,
which ``load_file`` and all libraries call, gets a reader of ours for hologram tensors. The mapping
is private: what is written to such a tensor never reaches the file. A page is read when needed.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch

from hologram_torch._save import naming
from hologram_torch.device import _index
from hologram_torch.integrations._mapped_file import MappedFile


def package(module: ModuleType) -> None:
    """Give ``safetensors.safe_open`` the device; other devices get the reader it was."""
    original = module.safe_open

    class _Opener(type):
        def __call__(
            cls, filename: Any, framework: str, device: Any = "cpu", **options: Any
        ) -> Any:
            ours = str(device).split(":")[0] == "hologram" and framework in ("pt", "torch")
            if not ours:
                return original(filename, framework, device=device, **options)
            reader = original(filename, framework, device="cpu", **options)
            mapped = options.get("backend", "mmap") == "mmap"
            return MappedFile(reader, filename, _index(torch.device(device)), mapped)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original | MappedFile)

    opener = _Opener("safe_open", (), {"__doc__": original.__doc__, "__module__": module.__name__})
    for holder in list(sys.modules.values()):
        if getattr(holder, "__dict__", {}).get("safe_open") is original:
            holder.safe_open = opener  # type: ignore[attr-defined]


def functions(module: ModuleType) -> None:
    """Leave saved tensors deferred: these functions ask for addresses to find shared memory."""
    for name in ("save", "save_file", "save_model", "load_model"):
        setattr(module, name, naming(getattr(module, name)))
