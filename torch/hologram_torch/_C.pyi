# SPDX-License-Identifier: MIT
"""The compiled part of hologram_torch, seen by type checkers as dynamic."""

from typing import Any

def __getattr__(name: str) -> Any: ...
