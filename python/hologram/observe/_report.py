# SPDX-License-Identifier: MIT
"""What every explanation and profile shows: lines of text on circuits, sections of a drawing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from hologram.observe._texts import bytes_text, count_text, percent_text, time_text
from hologram.observe.circuits import Circuit, merge_equal, read_trace, share, sum_stats

__all__ = ["Drawn", "Watched", "circuit_lines", "circuit_note", "draw_circuits", "pad"]

_CAUSES = {
    "flush": "a read or a synchronization",
    "size": "its size",
    "memory": "a request for memory",
    "stream": "an event or a query",
    "call": "enough work for the worker thread",
    "float mode": "another float mode",
    "age": "its age",
    "replay": "its replay as a graph",
}
_MAX_LISTED = 32  # circuits in a text


def circuit_note(circuit: Circuit) -> str:
    """Tell in a line what a circuit became and why it ran."""
    stats = circuit.stats
    parts = [
        f"{count_text(stats['ops_recorded'], 'op')} → {count_text(stats['kernels_run'], 'kernel')}"
    ]
    if stats["ops_without_work"]:
        parts.append(f"{stats['ops_without_work']} without work")
    if circuit.count > 1:
        parts.append(f"ran {circuit.count} times")
    parts.append(f"ended by {_CAUSES.get(circuit.cause, circuit.cause)}")
    parts.append("plan from the cache" if circuit.plan_hit else "plan made")
    if circuit.failed:
        parts.append("failed")
    return " · ".join(parts)


def pad(rows: Sequence[Sequence[str]], alignments: str, gap: str = "  ") -> Iterator[str]:
    """Yield rows as lines with their cells below each other; '<' and '>' align a column."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(alignments))] if rows else []
    for row in rows:
        cells = zip(row, alignments, widths, strict=True)
        yield "".join(f"{gap}{cell:{align}{width}}" for cell, align, width in cells).rstrip()


def circuit_lines(circuits: list[Circuit]) -> list[str]:
    """Tell what was recorded and run: sums, then each kind of circuit with its kernels."""
    s = sum_stats(circuits)
    ops, kernels = count_text(s["ops_recorded"], "op"), count_text(s["kernels_run"], "kernel")
    ops_less = percent_text(s["operation_reduction"])
    moved, unfused = bytes_text(s["bytes_moved"]), bytes_text(s["bytes_unfused"])
    bytes_less = percent_text(share(s["bytes_moved"], s["bytes_unfused"]))
    head = f"{ops} recorded, {kernels} run ({ops_less} fewer), {moved} moved of {unfused}"
    lines = [f"{head} ({bytes_less} less), {count_text(len(circuits), 'circuit')}"]
    shown = merge_equal(circuits)
    for number, circuit in enumerate(shown[:_MAX_LISTED], 1):
        times = f" x{circuit.count}" if circuit.count > 1 else ""
        lines.append(f"circuit {number}{times}: {circuit_note(circuit).replace('→', '->')}")
        rows = [
            (
                launch.name + (f" x{len(launch.kernels)}" if len(launch.kernels) > 1 else ""),
                count_text(launch.ops, "op"),
                count_text(circuit.after[launch.kernels[0]].live_values, "value"),
                bytes_text(launch.bytes),
                time_text(launch.ns) if launch.ns else "",
                f"then {time_text(launch.warm_ns)}" if launch.warm_ns else "",
            )
            for launch in circuit.launches
        ]
        lines += pad(rows, "<><>>>")
    if len(shown) > _MAX_LISTED:
        lines.append(f"... and {count_text(len(shown) - _MAX_LISTED, 'other circuit')}")
    return lines


def draw_circuits(
    title: str,
    circuits: list[Circuit],
    parts: Sequence[str],
    totals: dict[str, Any],
    between: Callable[[list[Circuit]], tuple[list[str], str]] | None = None,
) -> str:
    """Draw the circuits, equal ones once, as an SVG document.

    parts: what the subtitle says besides their number; between: what ran before each of the
    circuits that are shown, and after the last.
    """
    from hologram.observe._drawing import Section, Summary, draw

    shown = merge_equal(circuits)
    texts, after = between(shown) if between is not None else ([""] * len(shown), "")
    sections = [
        Section(circuit, f"Circuit {i + 1}", circuit_note(circuit), text)
        for i, (circuit, text) in enumerate(zip(shown, texts, strict=True))
    ]
    count = count_text(len(circuits), "circuit")
    if len(shown) < len(circuits):
        count += f", {len(shown)} of them different"
    return draw(Summary(title, " · ".join([count, *parts]), totals), sections, after)


class Drawn:
    """What has a drawing, which notebooks show."""

    def svg(self) -> str:
        """Draw the circuits: recorded ops on the left, the kernels they became on the right."""
        raise NotImplementedError

    def save_svg(self, path: str | Path) -> None:
        """Write the drawing to a file."""
        Path(path).write_text(self.svg(), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        return f'<div style="max-width:1200px;overflow-x:auto">{self.svg()}</div>'


@dataclass
class Watched(Drawn):
    """What one call of a function did; what is counted beside circuits is up to subclasses."""

    result: Any
    _again: Callable[[], Any] = field(repr=False)  # calls the function again
    circuits: list[Circuit] = field(default_factory=list)
    name: str = ""
    ns: int = 0  # from the call to the last result
    warm_ns: int = 0  # the same of later calls, their median; 0: warm() was not called
    warm_runs: int = 0  # of how many calls

    @property
    def stats(self) -> dict[str, Any]:
        """Sums over the circuits: ops_recorded, kernels_run, bytes_moved, bytes_saved, ..."""
        warm = sum(launch.warm_ns for circuit in self.circuits for launch in circuit.launches)
        return {**sum_stats(self.circuits), "warm_kernel_ns": warm}

    def _watch(self) -> tuple[dict[str, Any], int]:
        """Call the function again; return the trace and how long it took."""
        raise NotImplementedError

    def warm(self, runs: int = 5) -> Any:
        """Call the function again and note its times now that plans and code are made.

        It is called ``runs`` times with the arguments of the first call, and each call has its
        effects: an optimizer steps, random numbers go on. ``warm_ns`` is their median, from the
        call to the last result; each launch notes the median of its own times, unless a call
        recorded other ops than the first. Returns the explanation itself.
        """
        if runs < 1:
            raise ValueError(f"Explanation.warm: runs is {runs}; it has to be 1 or more")
        watched = [self._watch() for _ in range(runs)]
        self.warm_ns, self.warm_runs = round(median(ns for _, ns in watched)), runs
        later = [read_trace(trace) for trace, _ in watched]
        ops = [c.shape.data["ops_json"] for c in self.circuits]
        alike = all([c.shape.data["ops_json"] for c in circuits] == ops for circuits in later)
        for number, circuit in enumerate(self.circuits):
            for i, launch in enumerate(circuit.launches):
                times = [circuits[number].launches[i].ns for circuits in later] if alike else [0]
                launch.warm_ns = round(median(times))
        return self

    def _time_texts(self) -> list[str]:
        """Tell how long the first call took, and those after it."""
        texts = [f"{time_text(self.ns)} with recording and planning"] if self.ns else []
        if self.warm_ns:
            of = f"median of {self.warm_runs} calls" if self.warm_runs > 1 else "one call"
            texts.append(f"{time_text(self.warm_ns)} warmed ({of})")
        return texts
