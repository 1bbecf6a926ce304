# SPDX-License-Identifier: MIT
"""The file of results: a line of JSON for each thing that is known, written when it is."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.core import AREAS, Row

FORMAT = 2


@dataclass
class Results:
    """A run: where and how it was measured, and its rows."""

    machine: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    processes: dict[str, Any] = field(default_factory=dict)  # facts, by setting
    whole: bool = False  # it came to its end

    @property
    def summaries(self) -> list[Row]:
        """Rows about rows, by area."""
        return [row for area in AREAS.values() for row in area.summaries(self.rows)]

    def faults(self) -> list[Row]:
        """Return the rows that were wrong or failed."""
        return [r for r in self.rows if r.fault]

    def skipped(self) -> list[Row]:
        """Return the rows that were not measured."""
        return [r for r in self.rows if r.skipped]


class Writer:
    """Adds to a run and to its file at once: what is interrupted keeps what it has."""

    def __init__(self, path: Path, results: Results) -> None:
        self.results = results
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w")
        self._line("run", format=FORMAT, machine=results.machine, settings=results.settings)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def row(self, row: Row) -> None:
        """Add a row."""
        self.results.rows.append(row)
        self._line("row", row=row.to_json())

    def process(self, setting: str, facts: dict[str, Any]) -> None:
        """Add what is known of the process of a setting; the last word counts."""
        self.results.processes[setting] = facts
        self._line("process", setting=setting, facts=facts)

    def end(self, **settings: Any) -> None:
        """Note how the run came to its end."""
        self.results.settings.update(settings)
        self.results.whole = not settings.get("partial", False)
        self._line("end", settings=settings)

    def _line(self, kind: str, **data: Any) -> None:
        self._file.write(json.dumps({"kind": kind, **data}, allow_nan=False) + "\n")
        self._file.flush()


def read(lines: Iterable[str]) -> Results:
    """Return the run that a file tells of; a last line that is torn is left out."""
    results = Results()
    for number, line in enumerate(lines, 1):
        if not line.endswith("\n"):
            break
        record = json.loads(line)
        kind = record["kind"]
        if number == 1 and (kind != "run" or record["format"] != FORMAT):
            raise ValueError(f"format {record.get('format')!r} of the results is not {FORMAT}")
        if kind == "run":
            results.machine, results.settings = record["machine"], record["settings"]
        elif kind == "row":
            results.rows.append(Row.from_json(record["row"]))
        elif kind == "process":
            results.processes[record["setting"]] = record["facts"]
        elif kind == "end":
            results.settings.update(record["settings"])
            results.whole = not record["settings"].get("partial", False)
    return results
