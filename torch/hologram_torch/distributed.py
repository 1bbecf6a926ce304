# SPDX-License-Identifier: MIT
"""``torch.distributed`` for hologram tensors: gloo serves them, on their own memory.

The operators of c10d do the work (``csrc/dispatch/collectives.cc``). Here PyTorch learns that gloo
is the device's backend, so that ``init_process_group()`` picks it.
"""

from __future__ import annotations

import functools
from typing import Any

import torch


def install() -> None:
    """Tell torch.distributed about the device, once. PyTorch has imported it where it has it."""
    if not torch.distributed.is_available():
        return
    from torch.distributed.distributed_c10d import Backend, BackendConfig

    if "hologram" in Backend.default_device_backend_map:
        return
    Backend.default_device_backend_map["hologram"] = Backend.GLOO
    # The fake backend sends nothing; programs are tried out with it in one process.
    for name in (Backend.GLOO, Backend.FAKE):
        Backend.backend_capability[name].append("hologram")
    original = BackendConfig.__init__

    @functools.wraps(original)
    def __init__(self: BackendConfig, backend: Any) -> None:
        original(self, backend)
        # A group made without a name serves the accelerator alone. Here one gloo serves both.
        chosen = self.device_backend_map
        if chosen.get("hologram") in (Backend.GLOO, Backend.FAKE):
            self.device_backend_map = {"cpu": chosen["hologram"], **chosen}

    BackendConfig.__init__ = __init__  # type: ignore[method-assign]
    if torch.__version__ < (2, 12):  # type: ignore[operator]
        composite = torch._C.DispatchKey.CompositeImplicitAutograd  # type: ignore[attr-defined]
        torch.ops.aten.linear_backward.default.py_impl(composite)(_linear_backward)


def _linear_backward(
    x: torch.Tensor, gradient: torch.Tensor, weight: torch.Tensor, wanted: list[bool]
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    # PyTorch 2.11 does not tell which kernel autograd has, so there DTensor sees this operator. It
    # has no rule for it, but takes an operator apart that says how.
    rows = gradient.flatten(0, -2)
    return (
        gradient @ weight if wanted[0] else None,
        rows.t() @ x.flatten(0, -2) if wanted[1] else None,
        rows.sum(0) if wanted[2] else None,
    )
