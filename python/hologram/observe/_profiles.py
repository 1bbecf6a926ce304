# SPDX-License-Identifier: MIT
"""What every profile has: kernels by name, sums, a Chrome trace and a drawing."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hologram.observe._report import Drawn, draw_circuits
from hologram.observe._texts import bytes_text, count_text, percent_text, time_text
from hologram.observe._tracing import Trace
from hologram.observe.circuits import Circuit, read_trace, share, sum_stats

__all__ = ["KernelTime", "Profile"]


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


class Profile(Drawn):
    """Circuits that ran in a ``with`` block; what is counted beside them is up to subclasses."""

    def __init__(self) -> None:
        self.circuits: list[Circuit] = []
        self.ns = 0
        self._trace: Trace | None = None
        self._begin_ns = 0

    def _synchronize(self) -> None:
        """Run what is recorded."""
        raise NotImplementedError

    def _open(self) -> Trace:
        """Forget what an earlier block counted, and begin to trace."""
        raise NotImplementedError

    def _take(self, traced: dict[str, Any]) -> None:
        """Take what the trace holds besides circuits."""

    def _enter(self) -> None:
        if self._trace is not None:
            raise RuntimeError("profile: it is watching already; make another one to nest them")
        self._synchronize()
        self.circuits = []
        self._trace = self._open()
        self._begin_ns = time.monotonic_ns()

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if self._trace is None:
            raise RuntimeError("profile: it is not watching; enter it before it is left")
        try:
            if kind is None:
                self._synchronize()
        finally:
            self.ns = time.monotonic_ns() - self._begin_ns
            trace, self._trace = self._trace, None
            traced = trace.stop()
            self.circuits = read_trace(traced)
            self._take(traced)

    @property
    def stats(self) -> dict[str, Any]:
        """Sums over the circuits, as ``Explanation.stats``, with ``wall_ns``."""
        return {**sum_stats(self.circuits), "wall_ns": self.ns}

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
        return [*lines, *self._more_lines()]

    def _more_lines(self) -> list[str]:
        """Tell below the table what else was counted."""
        return []

    def _parts(self) -> list[str]:
        """Tell in the subtitle of the drawing how long it took, and what else was counted."""
        return [f"{time_text(self.ns)} watched"]

    def _between(self, shown: list[Circuit]) -> tuple[list[str], str]:
        """Tell what ran before each of the circuits that are drawn, and after the last."""
        return [""] * len(shown), ""

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
        totals = sum_stats(self.circuits)
        return draw_circuits("Profile", self.circuits, self._parts(), totals, self._between)
