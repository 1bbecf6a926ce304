# SPDX-License-Identifier: MIT
"""Small ops at their call beside recorded ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hologram._hologram import testing


def both(run: Callable[[], Any]) -> tuple[Any, Any]:
    """Return what `run` gives with small ops at their call, and with all of them recorded."""
    results = []
    for bound in (4096, 0):
        testing.set_immediate_bytes(bound)
        results.append(run())
    return results[0], results[1]
