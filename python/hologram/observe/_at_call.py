# SPDX-License-Identifier: MIT
"""The ops that ran at their calls instead of waiting in a circuit, and why they did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hologram import _hologram
from hologram.observe._report import pad
from hologram.observe._texts import short_name
from hologram.observe.circuits import Circuit, Named

__all__ = ["CallsAtOnce", "at_call_lines", "between_circuits", "read_notes"]

# By reason: what is said of it.
_REASONS = {
    "small": "small: no operand has more than {bytes:,} bytes, and all were there",
    "element": "one element, which was there",
    "shared": "shared: other code can look at the memory of {array}",
    "values": "its values say which elements there are",
    "form": "no circuit takes such operands, as those of more than 8 dimensions",
    "eager": "execution is not deferred",
    "NumPy": "NumPy computed it",
}
_MAX_LISTED = 32
_MAX_DRAWN = 8  # names between two circuits


@dataclass
class CallsAtOnce:
    """Ops of one name that ran at their calls for one reason."""

    op: str  # as in circuits: 'add'; 'x[i]', 'x[index] = y', 'np.sort'
    why: str  # 'small', 'element', 'shared', 'values', 'form', 'eager' or 'NumPy'
    count: int
    array: str = ""  # of 'shared': what the caller calls the array; '' where it has no name
    epoch: int = 0  # ops recorded then went to the circuit of this number, or to a later one

    @property
    def reason(self) -> str:
        """Why they ran, in a sentence."""
        array, most = self.array or "an array", _hologram.testing.immediate_bytes()
        return _REASONS.get(self.why, self.why).format(array=array, bytes=most)

    def __str__(self) -> str:
        return f"{self.op} x{self.count}: {self.reason}"


def read_notes(trace: Mapping[str, Any], names: Mapping[int, Named]) -> list[CallsAtOnce]:
    """Make objects of the notes at the end of a trace; names: of arrays by their memory."""
    found = []
    for op, why, buffer, epoch, count in trace["notes"]:
        array = short_name(names[buffer].name) if buffer in names else ""
        found.append(CallsAtOnce(op, why, count, array, epoch))
    return found


def _summed(calls: Iterable[CallsAtOnce]) -> list[CallsAtOnce]:
    """Return one for each name, reason and array, those that ran most often first."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for call in calls:
        counts[call.op, call.why, call.array] += call.count
    return [CallsAtOnce(op, why, n, array) for (op, why, array), n in counts.most_common()]


def at_call_lines(calls: Sequence[CallsAtOnce]) -> list[str]:
    """Tell in lines which ops ran at their calls, how often, and why."""
    rows = _summed(calls)
    if not rows:
        return []
    lines = ["ran at their calls:"]
    lines += pad([(c.op, f"{c.count:,}", c.reason) for c in rows[:_MAX_LISTED]], "<><")
    if len(rows) > _MAX_LISTED:
        rest = sum(call.count for call in rows[_MAX_LISTED:])
        lines.append(f"  ... and {rest:,} more of {len(rows) - _MAX_LISTED} other kinds")
    return lines


def between_circuits(
    calls: Sequence[CallsAtOnce], circuits: Sequence[Circuit], shown: Sequence[Circuit]
) -> tuple[list[str], str]:
    """Tell what ran at its call before each circuit that is shown, and after the last."""
    place = {id(c.shape): i for i, c in enumerate(shown)}
    found: list[list[CallsAtOnce]] = [[] for _ in range(len(shown) + 1)]
    upcoming = 0
    for call in sorted(calls, key=lambda c: c.epoch):
        while upcoming < len(circuits) and circuits[upcoming].epoch < call.epoch:
            upcoming += 1
        last = upcoming == len(circuits)
        found[len(shown) if last else place[id(circuits[upcoming].shape)]].append(call)
    texts = [_aside(_summed(f)) for f in found]
    return texts[:-1], texts[-1]


def _aside(calls: Sequence[CallsAtOnce]) -> str:
    if not calls:
        return ""
    parts = []
    for c in calls[:_MAX_DRAWN]:
        times = f" ×{c.count:,}" if c.count > 1 else ""
        of = f" of {c.array}" if c.array else ""
        parts.append(f"{c.op}{times} ({c.why}{of})")
    more = f", and {len(calls) - _MAX_DRAWN} other kinds" if len(calls) > _MAX_DRAWN else ""
    return "ran at their calls: " + ", ".join(parts) + more
