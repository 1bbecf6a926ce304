# SPDX-License-Identifier: MIT
"""``profile``: how long the kernels of a stretch of code took, and what deferring saved."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hologram_torch import _C
from hologram_torch._circuits import Circuit, merge_equal, read_trace, share, sum_stats
from hologram_torch._texts import bytes_text, count_text, percent_text, time_text
from hologram_torch.explain import circuit_note, counting_fallbacks


@dataclass
class KernelTime:
    """A row of the table: all kernels of one name; equal ones of a launch are timed together."""

    name: str
    calls: int = 0
    total_ns: int = 0
    bytes: int = 0
    ops: int = 0  # recorded ops that they ran
    first_runs: int = 0

    @property
    def average_ns(self) -> float:
        """Time of a kernel."""
        return self.total_ns / self.calls


_ORDERS = {
    "time": lambda row: (-row.total_ns, row.name),
    "average": lambda row: (-row.average_ns, row.name),
    "calls": lambda row: (-row.calls, row.name),
    "bytes": lambda row: (-row.bytes, row.name),
    "name": lambda row: row.name,
}


class profile:
    """Watch what the device runs: ``with hologram_torch.profile() as p: ...``, then ask ``p``.

    Each circuit runs launch by launch meanwhile, so that launches can be timed; results are the
    same. What was recorded before is run before, and what is recorded inside is run at the end.
    Memory grows with each circuit by some hundred bytes.
    """

    def __init__(self) -> None:
        self.circuits: list[Circuit] = []
        self.fallbacks: dict[str, int] = {}
        self.ns = 0
        self._trace: int | None = None
        self._begin_ns = 0

    def __enter__(self) -> profile:
        if self._trace is not None:
            raise RuntimeError("profile: it is watching already; make another one to nest them")
        torch.hologram.synchronize()  # type: ignore[attr-defined]
        self.circuits, self.fallbacks = [], {}
        self._counting = counting_fallbacks(self.fallbacks)
        self._counting.__enter__()
        self._trace = _C.start_tracing()
        self._begin_ns = time.monotonic_ns()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        assert self._trace is not None
        try:
            if kind is None:
                torch.hologram.synchronize()  # type: ignore[attr-defined]
        finally:
            self.ns = time.monotonic_ns() - self._begin_ns
            trace, self._trace = self._trace, None
            self.circuits = read_trace(_C.stop_tracing(trace))
            self._counting.__exit__(None, None, None)

    @property
    def stats(self) -> dict[str, Any]:
        """Sums over the circuits, as ``Explanation.stats``, with ``fallbacks`` and ``wall_ns``."""
        return {
            **sum_stats(self.circuits),
            "fallbacks": sum(self.fallbacks.values()),
            "wall_ns": self.ns,
        }

    @property
    def kernels(self) -> list[KernelTime]:
        """The kernels by name, those that took longest first."""
        rows: dict[str, KernelTime] = {}
        for circuit in self.circuits:
            for launch in circuit.launches:
                row = rows.setdefault(launch.name, KernelTime(launch.name))
                row.calls += len(launch.kernels)
                row.total_ns += launch.ns
                row.bytes += launch.bytes
                row.ops += launch.ops
                row.first_runs += launch.first
        return sorted(rows.values(), key=_ORDERS["time"])

    def table(self, sort_by: str = "time", limit: int | None = None) -> str:
        """Return kernels and sums as text, sorted by time, average, calls, bytes or name."""
        if sort_by not in _ORDERS:
            raise ValueError(
                f"profile.table: sort_by={sort_by!r} is not one of {', '.join(_ORDERS)}"
            )
        rows = sorted(self.kernels, key=_ORDERS[sort_by])
        total = sum(row.total_ns for row in rows)
        cells = [("kernel", "calls", "ops", "total", "average", "share", "bytes", "GB/s")]
        cells += [
            (
                row.name, f"{row.calls:,}", f"{row.ops:,}", time_text(row.total_ns),
                time_text(row.average_ns), percent_text(row.total_ns / total if total else 0),
                bytes_text(row.bytes), f"{row.bytes / row.total_ns:.3g}" if row.total_ns else "",
            )
            for row in rows[:limit]
        ]  # fmt: skip
        widths = [max(len(row[k]) for row in cells) for k in range(len(cells[0]))]
        lines = [
            "  ".join(
                cell.ljust(w) if k == 0 else cell.rjust(w)
                for k, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in cells
        ]
        lines.insert(1, "-" * len(lines[0]))
        if limit is not None and len(rows) > limit:
            lines.append(f"... and {count_text(len(rows) - limit, 'other kernel')}")
        return "\n".join([*lines, "", *self._sums(rows)])

    def _sums(self, rows: list[KernelTime]) -> list[str]:
        s = self.stats
        ops, kernels = count_text(s["ops_recorded"], "op"), count_text(s["kernels_run"], "kernel")
        bytes_less = percent_text(share(s["bytes_moved"], s["bytes_unfused"]))
        circuits = count_text(s["circuits"], "circuit")
        less = percent_text(s["operation_reduction"])
        moved, unfused = bytes_text(s["bytes_moved"]), bytes_text(s["bytes_unfused"])
        inside, wall = time_text(s["kernel_ns"]), time_text(s["wall_ns"])
        lines = [
            f"{ops} recorded in {circuits}, {kernels} run: {less} fewer",
            f"{moved} moved of {unfused}: {bytes_less} less",
            f"{inside} in kernels of {wall} in all",
            f"{s['plan_hits']:,} of {s['circuits']:,} plans came from the cache",
        ]
        first = sum(row.first_runs for row in rows)
        if first:
            lines.append(
                f"{count_text(first, 'launch')} ran for the first "
                "time, which includes the making of code"
            )
        if self.fallbacks:
            named = ", ".join(f"{name} x{count}" for name, count in self.fallbacks.items())
            lines.append(f"fell back to PyTorch's cpu kernels: {named}")
        return lines

    def __str__(self) -> str:
        return self.table()

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write circuits and launches for chrome://tracing or Perfetto."""
        pid = os.getpid()
        threads = {t.native_id: t.name for t in threading.enumerate()}
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": "hologram"}}
        ]

        def add(name: str, kind: str, thread: int, begin: int, end: int, **args: Any) -> None:
            events.append(
                {
                    "ph": "X", "name": name, "cat": kind, "pid": pid, "tid": thread,
                    "ts": (begin - self._begin_ns) / 1e3, "dur": (end - begin) / 1e3, "args": args,
                }
            )  # fmt: skip

        for thread in dict.fromkeys(c.thread for c in self.circuits):
            name = threads.get(thread, f"thread {thread}")
            events.append(
                {
                    "ph": "M",
                    "name": "thread_name",
                    "pid": pid,
                    "tid": thread,
                    "args": {"name": name},
                }
            )
        for number, c in enumerate(self.circuits):
            s = c.stats
            head = (
                f"{count_text(s['ops_recorded'], 'op')} → {count_text(s['kernels_run'], 'kernel')}"
            )
            add(
                head, "circuit", c.thread, c.sealed_ns, c.end_ns, circuit=number, cause=c.cause,
                plan_hit=c.plan_hit, bytes_moved=s["bytes_moved"], bytes_unfused=s["bytes_unfused"],
            )  # fmt: skip
            add("plan", "plan", c.thread, c.sealed_ns, c.begin_ns, hit=c.plan_hit)
            for launch in c.launches:
                if launch.ns or launch.begin_ns:
                    add(
                        launch.name, "kernel", c.thread, launch.begin_ns, launch.end_ns,
                        ops=launch.ops, kernels=len(launch.kernels), bytes=launch.bytes,
                        first_run=launch.first,
                    )  # fmt: skip
        document = {"displayTimeUnit": "ns", "traceEvents": events}
        Path(path).write_text(json.dumps(document), encoding="utf-8")

    def svg(self) -> str:
        """Draw the circuits, equal ones once."""
        from hologram_torch._drawing import Section, Summary, draw

        shown = merge_equal(self.circuits)
        sections = [
            Section(circuit, f"Circuit {i + 1}", circuit_note(circuit))
            for i, circuit in enumerate(shown)
        ]
        parts = [count_text(len(self.circuits), "circuit")]
        if len(shown) < len(self.circuits):
            parts[0] += f", {len(shown)} of them different"
        parts.append(f"{time_text(self.ns)} watched")
        if self.fallbacks:
            parts.append(f"{sum(self.fallbacks.values())} operators fell back to PyTorch's cpu")
        return draw(Summary("Profile", " · ".join(parts), sum_stats(self.circuits)), sections)

    def save_svg(self, path: str | Path) -> None:
        """Write the drawing to a file."""
        Path(path).write_text(self.svg(), encoding="utf-8")

    def _repr_html_(self) -> str:
        return f'<div style="max-width:1200px;overflow-x:auto">{self.svg()}</div>'
