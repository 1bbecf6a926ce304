# SPDX-License-Identifier: MIT
"""Backward on the thread that asks for it.

Autograd runs the nodes of an accelerator on a thread of its own, because the accelerator works
apart from the processor. This device does not: two hand-overs between threads a backward, and a
second team of OpenMP threads, would be for nothing. PyTorch has a switch for that, which belongs to
the program; it is turned off for the length of a backward that starts on this device, and then is
as the program left it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import Variable

from hologram_torch import _C

_is_enabled = torch._C._is_multithreading_enabled


def _starts_here(roots: Sequence[Any]) -> bool:
    return any(isinstance(root, torch.Tensor) and root.device.type == "hologram" for root in roots)


class _Engine(torch._C._ImperativeEngine):
    """PyTorch's engine; what it runs of this device stays on the caller's thread."""

    def run_backward(self, roots: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        """Run the backward of `roots`, see PyTorch's `_engine_run_backward`."""
        if not _is_enabled() or not _starts_here(roots):
            return super().run_backward(roots, *args, **kwargs)
        return _C.backward_here(super().run_backward, roots, *args, **kwargs)


def install() -> None:
    """Make it the engine of `torch.autograd`."""
    Variable._execution_engine = _Engine()
