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
    texts = {"B": f"{value / 1e6:.1f} MB", "ops": f"{value:g}"}
    return texts.get(unit, f"{value:.2f}{unit}")


def _ratio(row: Row) -> str:
    return "-" if math.isnan(row.ratio) else f"{row.ratio:.2f}x"


def _quartiles(row: Row) -> str:
    low_high = row.details.get("ratio_quartiles")
    return f"{low_high[0]:.2f}-{low_high[1]:.2f}" if low_high else ""


def _both(row: Row) -> str:
    return f"{quantity(row.value, row.unit)} / {quantity(row.reference, row.unit)}"


def had(row: Row) -> str:
    """Return the setting of a row; nothing where it has none."""
    return row.setting.label if row.cores else ""


def _where(row: Row) -> list[str]:
    return [f"{row.area}: {label(row)}", had(row)]


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


def _by_setting(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    settings = sorted({r.setting for r in rows})
    return [(s.label, [r for r in rows if r.setting == s]) for s in settings]


def _peers(rows: list[Row], device: str) -> list[str]:
    """Return a table for each setting: what the device took beside every peer."""
    lines = []
    for setting, here in _by_setting(rows):
        here = sorted((r for r in here if r.is_measured), key=lambda r: (r.name, r.size))
        names = list(dict.fromkeys(name for r in here for name in r.peers))
        body = [
            [label(r), quantity(r.value, r.unit), _ratio(r), _quartiles(r)]
            + [_peer(r, name) for name in names]
            for r in here
        ]
        lines += [f"{setting}: time / time on {device}", ""]
        lines += _table(["", device, "cpu", "quartiles", *names], body)
    figures = [(name, figure) for row in rows for name, figure in row.peers.items()]
    reasons = sorted({f"{n}: {f.reason or f.fault}" for n, f in figures if f.reason or f.fault})
    if reasons:
        lines += ["Not measured:", "", *(f"- {reason}" for reason in reasons), ""]
    return lines


def _peer(row: Row, name: str) -> str:
    """Return how a peer compares; of one that had to compile, its first call too."""
    ratio = row.ratio_to(name)
    if math.isnan(ratio):
        return "-"
    first = f" (first {quantity(row.peers[name].first_call, 's')})"
    return f"{ratio:.2f}x{first if name == 'torch.compile' else ''}"


def _plain(rows: list[Row], device: str) -> list[str]:
    body = []
    for row in rows:
        if row.is_measured:
            cells = [quantity(row.value, row.unit), quantity(row.reference, row.unit)]
            goal = f"{'**missed** ' if row.below_goal else ''}{row.goal}" if row.goal else ""
            cells += [_ratio(row), _quartiles(row), goal, row.note]
        else:
            why = row.fault or f"not measured: {row.skipped}"
            cells = ["**fault**" if row.fault else "-", "", "", "", "", why]
        body.append([label(row), had(row), *cells])
    values = ["kernels", "ops"] if all(r.unit == "ops" for r in rows) else [device, "cpu"]
    return _table(["", "had", *values, "ratio", "quartiles", "goal", ""], body)


def _pivot(rows: list[Row], device: str) -> list[str]:
    """Return a table for each setting: names down, sizes across."""
    lines = []
    for setting, here in _by_setting(rows):
        sizes = sorted({r.size for r in here})
        found: dict[str, dict[int, str]] = {}
        for row in here:
            plain = row.dtype in ("", "float32") or row.dtype in row.name
            name = row.name if plain else f"{row.name} {row.dtype}"
            found.setdefault(name, {})[row.size] = _cell(row)
        body = [[name, *(cells.get(n, "") for n in sizes)] for name, cells in found.items()]
        lines += [f"{setting}: ratio ({device} time)", ""]
        lines += _table(["", *map(size_name, sizes)], body)
    return lines


def _cell(row: Row) -> str:
    if not row.is_measured:
        return "**fault**" if row.fault else "not measured"
    ratio = f"**{_ratio(row)}**" if row.below_goal else _ratio(row)
    return f"{ratio} ({quantity(row.value, row.unit)})"


LOSS = 0.95


def losses(rows: list[Row]) -> list[Row]:
    """Return rows where the device is worse than its peer by more than noise, the worst first."""
    compared = [r for r in rows if r.unit in ("s", "B") and r.is_measured and not _most(r)]
    return sorted((r for r in compared if r.ratio < LOSS), key=lambda r: r.ratio)


def _losses(rows: list[Row], device: str) -> list[str]:
    body = [[*_where(r), _ratio(r), _quartiles(r), _both(r)] for r in losses(rows)]
    lines = ["## Losses", "", f"Rows below {LOSS}x, the worst first.", ""]
    header = ["", "had", "is", "quartiles", f"{device} / cpu"]
    return lines + (_table(header, body) if body else ["None.", ""])


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
        about = [r for r in summaries if r.area == name]
        with_peers = [r for r in here if r.peers]
        others = [r for r in here if not r.peers or r.fault or name != "chains"]
        lines += [f"## {area.title}", ""] if here else []
        lines += _plain(about, device) if about else []
        lines += _peers(with_peers, device) if with_peers else []
        lines += (_pivot if len(others) > _PIVOT_ROWS else _plain)(others, device) if others else []
    return "\n".join(lines)


def _not_measured(results: Results) -> list[str]:
    body = [[*_where(r), r.skipped] for r in results.skipped()]
    return ["## Not measured", "", *_table(["", "had", "why"], body)] if body else []


def _below_target(rows: list[Row], device: str) -> list[str]:
    body = []
    for r in below_target(rows):
        found = quantity(r.value, r.unit) if _most(r) else _ratio(r)
        both = "" if r.fault else _both(r)
        body.append([*_where(r), r.fault or found, _quartiles(r), both, str(r.goal or "no fault")])
    header = ["", "had", "is", "quartiles", f"{device} / cpu", "goal"]
    return ["## Below target", "", *(_table(header, body) if body else ["Nothing.", ""])]


def _most(row: Row) -> bool:
    return row.goal is not None and row.goal.kind == "most"
