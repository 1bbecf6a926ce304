# SPDX-License-Identifier: MIT
"""``profile``: how long the kernels of a stretch of code took, and what ran beside them."""

from __future__ import annotations

from typing import Any

from hologram import _hologram
from hologram.observe._at_call import CallsAtOnce, at_call_lines, between_circuits, read_notes
from hologram.observe._profiles import Profile
from hologram.observe._texts import count_text
from hologram.observe._tracing import Trace
from hologram.observe.circuits import Circuit

__all__ = ["profile"]


class profile(Profile):
    """Watch what runs: ``with hologram.profile() as p: ...``, then ask ``p``.

    Each circuit runs launch by launch meanwhile, so that launches can be timed; results are the
    same. What was recorded before is run before, and what is recorded inside is run at the end.
    ``p.at_call`` are the ops that did not wait, of all threads, each kind with the reason. Memory
    grows with each circuit by some hundred bytes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.at_call: list[CallsAtOnce] = []

    def __enter__(self) -> profile:
        self._enter()
        return self

    def _synchronize(self) -> None:
        _hologram._flush()

    def _open(self) -> Trace:
        self.at_call = []
        return Trace(at_call=True)

    def _take(self, traced: dict[str, Any]) -> None:
        self.at_call = read_notes(traced, {})

    @property
    def stats(self) -> dict[str, Any]:
        """Sums, as ``Explanation.stats``, with ``wall_ns``."""
        return {**super().stats, "ops_at_call": sum(call.count for call in self.at_call)}

    def _more_lines(self) -> list[str]:
        return at_call_lines(self.at_call)

    def _parts(self) -> list[str]:
        at_call = self.stats["ops_at_call"]
        parts = [f"{count_text(at_call, 'op')} run at their calls"] if at_call else []
        return [*super()._parts(), *parts]

    def _between(self, shown: list[Circuit]) -> tuple[list[str], str]:
        return between_circuits(self.at_call, self.circuits, shown)
