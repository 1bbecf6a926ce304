# SPDX-License-Identifier: MIT
"""``profile``: how long the kernels of a stretch of code took, and what deferring saved."""

from __future__ import annotations

from typing import Any

import torch

from hologram.observe._profiles import Profile
from hologram.observe._tracing import Trace
from hologram_torch._explain import counting_fallbacks


class profile(Profile):
    """Watch what the device runs: ``with hologram_torch.profile() as p: ...``, then ask ``p``.

    Each circuit runs launch by launch meanwhile, so that launches can be timed; results are the
    same. What was recorded before is run before, and what is recorded inside is run at the end.
    Memory grows with each circuit by some hundred bytes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fallbacks: dict[str, int] = {}

    def __enter__(self) -> profile:
        self._enter()
        return self

    def _synchronize(self) -> None:
        torch.hologram.synchronize()  # type: ignore[attr-defined]

    def _open(self) -> Trace:
        self.fallbacks = {}
        self._counting = counting_fallbacks(self.fallbacks)
        self._counting.__enter__()
        return Trace(torch.hologram.current_device())  # type: ignore[attr-defined]

    def _take(self, traced: dict[str, Any]) -> None:
        self._counting.__exit__(None, None, None)

    @property
    def stats(self) -> dict[str, Any]:
        """Sums over the circuits, as ``Explanation.stats``, with ``fallbacks`` and ``wall_ns``."""
        return {**super().stats, "fallbacks": sum(self.fallbacks.values())}

    def _more_lines(self) -> list[str]:
        if not self.fallbacks:
            return []
        named = ", ".join(f"{name} x{count}" for name, count in self.fallbacks.items())
        return [f"fell back to PyTorch's cpu kernels: {named}"]

    def _parts(self) -> list[str]:
        fallbacks = sum(self.fallbacks.values())
        fell = [f"{fallbacks} operators fell back to PyTorch's cpu"] if fallbacks else []
        return [*super()._parts(), *fell]
