# SPDX-License-Identifier: MIT
"""Operators of extensions that are loaded when tensors already wait to be computed.

What such operators are given is computed before they run. That is arranged before the next op is
recorded; who calls an operator through `torch.ops` before that comes by here first.
"""

from __future__ import annotations

from typing import Any

import torch

from hologram_torch import _C


def install() -> None:
    """Look at operators before they are found for the first time."""
    namespace = torch._ops._OpNamespace
    find = namespace.__getattr__

    def __getattr__(self: Any, name: str) -> Any:
        _C.notice_foreign_operators()
        return find(self, name)

    namespace.__getattr__ = __getattr__  # type: ignore[method-assign]
