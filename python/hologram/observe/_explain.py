# SPDX-License-Identifier: MIT
"""``explain``: what a call recorded, what that became, and what ran at its call, and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

from hologram import _hologram
from hologram.observe._at_call import CallsAtOnce, at_call_lines, between_circuits, read_notes
from hologram.observe._names import arguments, call_text, enclosed, walk
from hologram.observe._report import Watched, circuit_lines, draw_circuits
from hologram.observe._texts import count_text
from hologram.observe._tracing import watch
from hologram.observe.circuits import (
    BufferNames,
    Circuit,
    Named,
    births_of,
    read_trace,
)

__all__ = ["Explanation", "explain"]


@dataclass
class Explanation(Watched):
    """What one call of a function did.

    ``print`` shows a table, notebooks show the drawing. ``circuits`` are in the order in which they
    ran; each has ``before`` (the recorded ops), ``after`` (the kernels), ``cause`` (what made it
    run) and ``stats``. ``at_call`` are the ops that did not wait, each kind with its count and the
    reason. ``warm`` adds the times of later calls.
    """

    at_call: list[CallsAtOnce] = field(default_factory=list)

    @property
    def stats(self) -> dict[str, Any]:
        """Sums: ops_recorded, ops_at_call, kernels_run, bytes_moved, bytes_saved, ..."""
        return {**super().stats, "ops_at_call": sum(call.count for call in self.at_call)}

    def _watch(self) -> tuple[dict[str, Any], int]:
        return watch(self._again, at_call=True)

    def __str__(self) -> str:
        s = self.stats
        recorded = f"{count_text(s['ops_recorded'], 'op')} recorded"
        ran = f"{s['ops_at_call']:,} run at their calls"
        lines = [f"{self.name}: " + ", ".join([recorded, ran, *self._time_texts()])]
        if self.circuits:
            lines += circuit_lines(self.circuits)
        return "\n".join([*lines, *at_call_lines(self.at_call)])

    def svg(self) -> str:
        """Draw the circuits: recorded ops on the left, the kernels they became on the right."""
        at_call = self.stats["ops_at_call"]
        parts = [f"{count_text(at_call, 'op')} run at their calls"] if at_call else []
        return draw_circuits(
            self.name, self.circuits, [*parts, *self._time_texts()], self.stats, self._between
        )

    def _between(self, shown: list[Circuit]) -> tuple[list[str], str]:
        return between_circuits(self.at_call, self.circuits, shown)


_KINDS = (_hologram.Tensor, _hologram.Buffer)


def _owned(values: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of the object that a method belongs to, and everything else as it is."""
    for name, value in values:
        if name:
            yield name, value
        elif isinstance(value, _KINDS):
            yield "self", value
        elif not isinstance(value, ModuleType):
            parts = getattr(value, "__dict__", {})
            yield from ((f"self.{key}", part) for key, part in parts.items())


def known_buffers(values: Iterable[tuple[str, Any]]) -> dict[int, Named]:
    """Return names by the number that traces give to arrays' memory; the first name counts."""
    names: dict[int, Named] = {}
    for name, value in values:
        for inner, array in walk(name, value, _KINDS, lambda _: None):
            if buffer := _hologram._buffer_id(array):
                names.setdefault(buffer, Named(inner, list(array.shape)))
    return names


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Call ``fn(*args, **kwargs)`` and tell what ran, and why.

    Everything is run before it returns. Kernels are timed one by one. The times of a first call
    include the making of plans and code: ``explain(fn).warm()`` shows those of later calls beside
    them. Errors of the function are raised as they are.

    >>> print(hologram.explain(step, x, w))
    """
    explanation = Explanation(None, partial(fn, *args, **kwargs), name=call_text(fn, args, kwargs))
    reached = partial(_reached, fn, args, kwargs)
    early = known_buffers(reached())
    returned = 0

    def call() -> Any:
        nonlocal returned
        explanation.result = explanation._again()
        returned = time.monotonic_ns()

    traced, explanation.ns = watch(call, at_call=True)
    late = known_buffers([*reached(), ("result", explanation.result)])
    names = BufferNames(early, late, births_of(traced))
    explanation.circuits = read_trace(traced, names)
    explanation.at_call = read_notes(traced, early)
    for circuit in explanation.circuits:
        if circuit.cause == "flush" and circuit.sealed_ns >= returned:
            circuit.cause = "the end of the call"
    return explanation


def _reached(
    fn: Callable[..., Any], args: tuple, kwargs: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    return [*arguments(fn, args, kwargs), *_owned(enclosed(fn))]
