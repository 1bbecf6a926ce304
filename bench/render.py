# SPDX-License-Identifier: MIT
"""The report of a run as Markdown, written whole or not at all."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

from bench import headline
from bench.core import AREAS, Row, size_name
from bench.results import Results

_PIVOT_ROWS = 60


def write_atomically(path: Path, text: str) -> None:
    """Replace a file by a complete one; an interrupted run or a full disk leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def quantity(value: float, unit: str) -> str:
    """Return a value with a unit that suits its size."""
    if math.isnan(value):
        return "-"
    if unit == "s":
        for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
            if value >= scale:
                return f"{value / scale:.3g} {name}"
        return f"{value * 1e9:.3g} ns"
    if unit == "B":
        return f"{value / 1e6:.1f} MB"
    if unit == "ops":
        return f"{value:g}"
    return f"{value:.2f}{unit}"


def _ratio(row: Row) -> str:
    return "-" if math.isnan(row.ratio) else f"{row.ratio:.2f}x"


def _quartiles(row: Row) -> str:
    low_high = row.details.get("ratio_quartiles")
    return f"{low_high[0]:.2f}-{low_high[1]:.2f}" if low_high else ""


def label(row: Row) -> str:
    """Return name, dtype and size in one."""
    parts = [row.name]
    if row.dtype not in ("", "float32") and row.dtype not in row.name:
        parts.append(row.dtype)
    if row.size:
        parts.append(size_name(row.size))
    return " ".join(parts)


def _table(header: list[str], body: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |" for cells in body]
    return [*lines, ""]


def _peers(rows: list[Row], device: str) -> list[str]:
    """Return a table for each setting: what the device took beside every peer."""
    lines = []
    for setting in sorted({r.setting for r in rows}):
        here = [r for r in rows if r.setting == setting and not r.fault and not r.skipped]
        names = list(dict.fromkeys(name for r in here for name in r.peers))
        body = []
        for row in sorted(here, key=lambda r: (r.name, r.size)):
            cells = [label(row), quantity(row.value, row.unit), _ratio(row), _quartiles(row)]
            body.append(cells + [_peer(row, name) for name in names])
        lines += [f"{setting.label}: time / time on {device}", ""]
        lines += _table(["", device, "cpu", "quartiles", *names], body)
    reasons = sorted(
        {
            f"{name}: {figure.reason or figure.fault}"
            for row in rows
            for name, figure in row.peers.items()
            if figure.reason or figure.fault
        }
    )
    if reasons:
        lines += ["Not measured:", "", *(f"- {reason}" for reason in reasons), ""]
    return lines


def _peer(row: Row, name: str) -> str:
    """Return how a peer compares; of one that had to compile, its first call too."""
    ratio = row.ratio_to(name)
    if math.isnan(ratio):
        return "-"
    figure = row.peers[name]
    text = f"{ratio:.2f}x"
    if name == "torch.compile":
        text += f" (first {quantity(figure.first_call, 's')})"
    return text


def _plain(rows: list[Row], device: str) -> list[str]:
    body = []
    for row in rows:
        if row.fault or row.skipped:
            why = row.fault or f"not measured: {row.skipped}"
            cell = "**fault**" if row.fault else "-"
            body.append([label(row), _had(row), cell, "", "", "", "", why])
            continue
        goal = f"{'**missed** ' if row.below_goal else ''}{row.goal}" if row.goal else ""
        body.append(
            [
                label(row),
                _had(row),
                quantity(row.value, row.unit),
                quantity(row.reference, row.unit),
                _ratio(row),
                _quartiles(row),
                goal,
                row.note,
            ]
        )
    values = ["kernels", "ops"] if all(r.unit == "ops" for r in rows) else [device, "cpu"]
    return _table(["", "had", *values, "ratio", "quartiles", "goal", ""], body)


def _pivot(rows: list[Row], device: str) -> list[str]:
    """Return a table for each setting: names down, sizes across."""
    lines = []
    for setting in sorted({r.setting for r in rows}):
        here = [r for r in rows if r.setting == setting]
        sizes = sorted({r.size for r in here})
        names = list(dict.fromkeys((r.name, r.dtype) for r in here))
        found = {(r.name, r.dtype, r.size): r for r in here}
        body = []
        for name, dtype in names:
            cells = [name if dtype in ("", "float32") or dtype in name else f"{name} {dtype}"]
            for size in sizes:
                row = found.get((name, dtype, size))
                cells.append("" if row is None else _cell(row))
            body.append(cells)
        lines += [f"{setting.label}: ratio ({device} time)", ""]
        lines += _table(["", *map(size_name, sizes)], body)
    return lines


def _had(row: Row) -> str:
    return row.setting.label if row.cores else ""


def _cell(row: Row) -> str:
    if row.fault or row.skipped:
        return "**fault**" if row.fault else "not measured"
    ratio = f"**{_ratio(row)}**" if row.below_goal else _ratio(row)
    return f"{ratio} ({quantity(row.value, row.unit)})"


LOSS = 0.95


def losses(rows: list[Row]) -> list[Row]:
    """Return rows where the device is worse than its peer by more than noise, the worst first."""
    lost = [
        r
        for r in rows
        if r.unit in ("s", "B")
        and not r.fault
        and not r.skipped
        and r.ratio < LOSS
        and not (r.goal is not None and r.goal.kind == "most")
    ]
    return sorted(lost, key=lambda r: r.ratio)


def _losses(rows: list[Row], device: str) -> list[str]:
    lines = ["## Losses", "", f"Rows below {LOSS}x, the worst first.", ""]
    lost = losses(rows)
    if not lost:
        return [*lines, "None.", ""]
    body = [
        [
            f"{r.area}: {label(r)}",
            _had(r),
            _ratio(r),
            _quartiles(r),
            f"{quantity(r.value, r.unit)} / {quantity(r.reference, r.unit)}",
        ]
        for r in lost
    ]
    return lines + _table(["", "had", "is", "quartiles", f"{device} / cpu"], body)


def below_target(rows: list[Row]) -> list[Row]:
    """Return rows that miss their goal, the worst first, faults before all."""
    missed = [r for r in rows if r.below_goal]
    return sorted(missed, key=lambda r: (not r.fault, _shortfall(r)))


def _shortfall(row: Row) -> float:
    """Return how much of its goal a row reaches; below 1 for a miss."""
    if row.fault or row.goal is None:
        return 0.0
    if row.goal.kind == "speedup":
        return row.ratio / row.goal.bound
    return row.goal.bound / row.value if row.value else 1.0


def table_text(results: Results) -> str:
    """Return the table of a run, with what it was measured on."""
    header, body = headline.table(results)
    return "\n".join([*_table(header, body), headline.caption(results), ""])


def to_markdown(results: Results) -> str:
    """Return the whole run as Markdown: its table, losses, missed goals, and all rows by area."""
    machine, rows, summaries = results.machine, results.rows, results.summaries
    device = machine["device"]
    lines = ["<!-- SPDX-License-Identifier: MIT -->", f"# {device} beside cpu", ""]
    lines += [table_text(results)]
    lines += [
        "Ratio: time on cpu / time on the device, medians of interleaved turns in one process that",
        "is pinned to its cores; above 1 the device is faster. In bold: goals missed.",
        "",
    ]
    if not results.whole:
        lines += ["**This run was interrupted; what follows is what it had measured.**", ""]
    lines += _losses(rows, device)
    lines += _below_target(rows + summaries, device)
    lines += _not_measured(results)
    lines += ["## Machine and settings", ""]
    known = {**machine, **results.settings}
    known |= {f"process of {name}": facts for name, facts in results.processes.items()}
    lines += _table(["", ""], [[k, str(v)] for k, v in known.items()])
    for name, area in AREAS.items():
        here = [r for r in rows if r.area == name]
        if not here:
            continue
        lines += [f"## {area.title}", ""]
        about = [r for r in summaries if r.area == name]
        if about:
            lines += _plain(about, device)
        with_peers = [r for r in here if r.peers]
        if with_peers:
            lines += _peers(with_peers, device)
        here = [r for r in here if not r.peers or r.fault or name != "chains"]
        if here:
            lines += _pivot(here, device) if len(here) > _PIVOT_ROWS else _plain(here, device)
    return "\n".join(lines)


def _not_measured(results: Results) -> list[str]:
    skipped = results.skipped()
    if not skipped:
        return []
    body = [[f"{r.area}: {label(r)}", _had(r), r.skipped] for r in skipped]
    return ["## Not measured", "", *_table(["", "had", "why"], body)]


def _below_target(rows: list[Row], device: str) -> list[str]:
    missed = below_target(rows)
    lines = ["## Below target", ""]
    if not missed:
        return [*lines, "Nothing.", ""]
    body = [
        [
            f"{r.area}: {label(r)}",
            _had(r),
            r.fault or (_ratio(r) if not _most(r) else quantity(r.value, r.unit)),
            _quartiles(r),
            "" if r.fault else f"{quantity(r.value, r.unit)} / {quantity(r.reference, r.unit)}",
            str(r.goal or "no fault"),
        ]
        for r in missed
    ]
    return lines + _table(["", "had", "is", "quartiles", f"{device} / cpu", "goal"], body)


def _most(row: Row) -> bool:
    return row.goal is not None and row.goal.kind == "most"
