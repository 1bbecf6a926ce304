# SPDX-License-Identifier: MIT
"""The plots: ratios as a heat map, and time over size for each side, peer and memory limit."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm

from bench import peers
from bench.core import Row, Setting, size_name

_BLUE, _ORANGE, _GREY = "#0072b2", "#d55e00", "#777777"
_LIMIT = {"color": _GREY, "marker": "", "linestyle": "--"}
_PEERS: dict[str, dict[str, object]] = {
    peers.COMPILE: {"color": "#009e73", "marker": "s"},
    peers.NUMPY: {"color": "#cc79a7", "marker": "^", "linewidth": 0.8},
    peers.JAX: {"color": "#e69f00", "marker": "v", "linewidth": 0.8},
    peers.HAND: {"color": _GREY, "marker": "", "linestyle": ":"},
}
Panels = Sequence[tuple[str, Sequence[Row]]]  # a title, and the rows of a program by size


def draw(rows: list[Row], folder: Path, device: str, curves: bool = True) -> list[Path]:
    """Write every plot that the rows allow and return the files.

    `curves` of single ops take a minute to lay out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = [r for r in rows if r.is_measured]
    files = draw_chains([r for r in rows if r.area == "chains"], folder, device)
    for area, setting in dict.fromkeys((r.area, r.setting) for r in rows):
        here = [r for r in rows if (r.area, r.setting) == (area, setting) and r.group and r.size]
        if len({r.size for r in here}) < 2:
            continue
        suffix = f"{area}-{setting.slug}.png"
        files.append(_heat_map(here, folder / f"ratios-{suffix}", device, setting))
        # Chains have plots of their own, with their peers.
        if curves and area != "chains" and all(r.unit == "s" for r in here):
            panels = [(n, _by_size(here, n)) for n in dict.fromkeys(map(_label, here))]
            files.append(_grid(panels, folder / f"times-{suffix}", device, 6))
    return files


def draw_chains(rows: list[Row], folder: Path, device: str) -> list[Path]:
    """Write a file for each chain and one for each setting; return them."""
    settings = sorted({r.setting for r in rows})
    by_name = {n: _by_size(rows, n) for n in dict.fromkeys(map(_label, rows))}
    by_name = {n: here for n, here in by_name.items() if len({r.size for r in here}) > 1}
    panels: dict[str, Panels] = {}
    for name, here in by_name.items():
        slug = re.sub(r"[^a-z0-9]+", "-", name.partition(",")[0].lower()).strip("-")
        panels[f"chain-{slug}.svg"] = [
            (f"{name}, {had.label}", [r for r in here if r.setting == had]) for had in settings
        ]
    for had in settings if by_name else ():
        panels[f"chains-{had.slug}.svg"] = [
            (name, [r for r in here if r.setting == had]) for name, here in by_name.items()
        ]
    return [
        _grid(here, folder / name, device, 3 if name.startswith("chains") else len(here))
        for name, here in panels.items()
    ]


def _label(row: Row) -> str:
    plain = row.dtype in ("", "float32") or row.dtype in row.group
    return row.group if plain else f"{row.group} {row.dtype}"


def _by_size(rows: Sequence[Row], name: str) -> list[Row]:
    return sorted((r for r in rows if _label(r) == name), key=lambda r: r.size)


def _save(figure: plt.Figure, path: Path) -> Path:
    partial = path.with_name(f".{path.name}")
    kind = path.suffix[1:]
    # Nothing depends on the time of day: small differences.
    metadata = {"Date": None} if kind == "svg" else None
    figure.savefig(partial, dpi=110, format=kind, metadata=metadata)
    plt.close(figure)
    partial.replace(path)
    return path


def _heat_map(rows: list[Row], path: Path, device: str, setting: Setting) -> Path:
    names = list(dict.fromkeys(map(_label, rows)))
    sizes = sorted({r.size for r in rows})
    ratios = np.full((len(names), len(sizes)), np.nan)
    for row in rows:
        ratios[names.index(_label(row)), sizes.index(row.size)] = row.ratio
    shape = (2.6 + 0.85 * len(sizes), 1.2 + 0.24 * len(names))
    figure, axes = plt.subplots(figsize=shape, layout="constrained")
    # One colour scale for all maps: a quarter to four times, white at parity.
    image = axes.imshow(
        np.log2(ratios), cmap="RdBu", norm=TwoSlopeNorm(0.0, -2.0, 2.0), aspect="auto"
    )
    for (i, j), ratio in np.ndenumerate(ratios):
        if not math.isnan(ratio):
            shade = "white" if abs(math.log2(ratio)) > 1.4 else "black"
            text = f"{ratio:.2f}" if ratio < 9.95 else f"{ratio:.0f}"
            axes.text(j, i, text, ha="center", va="center", fontsize=7, color=shade)
    axes.set_xticks(range(len(sizes)), [size_name(s) for s in sizes])
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.tick_params(length=0)
    axes.set_xlabel("elements")
    what = "slowdown of cpu / slowdown of" if rows[0].unit == "x" else "time on cpu / time on"
    axes.set_title(f"{what} {device}\n{setting.label}", fontsize=9)
    bar = figure.colorbar(image, ax=axes, ticks=[-2, -1, 0, 1, 2], shrink=0.5)
    bar.ax.set_yticklabels(["1/4", "1/2", "1", "2", "4"])
    return _save(figure, path)


def _grid(panels: Panels, path: Path, device: str, columns: int) -> Path:
    """Draw a panel for each program."""
    columns = min(columns, len(panels))
    lines = math.ceil(len(panels) / columns)
    few = path.suffix == ".svg"  # panels large enough for text that stays text
    shape = (3.4 * columns, 2.7 * lines + 0.4) if few else (2.3 * columns, 1.9 * lines + 0.6)
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.name, "font.size": 8}):
        figure, grid = plt.subplots(
            lines,
            columns,
            figsize=shape,
            squeeze=False,
            sharex=not few,
            sharey=not few,
            layout="constrained",
        )
        handles: dict[str, object] = {}
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (title, rows) in zip(grid.flat, panels):
            handles |= _panel(axes, rows, device, not few)
            axes.set_title(title, fontsize=8)
        figure.supxlabel("elements")
        figure.supylabel("time (us)")
        where = "outside upper center"
        figure.legend(handles.values(), handles.keys(), loc=where, ncols=4, fontsize=7)
        return _save(figure, path)


def _panel(axes: Axes, rows: Sequence[Row], device: str, bands: bool) -> dict[str, object]:
    """Draw every line that has points; return them by name for the legend."""
    handles: dict[str, object] = {}

    def line(name: str, values: list[float], spreads: list, **style: object) -> None:
        points = [(r.size, v * 1e6) for r, v in zip(rows, values) if not math.isnan(v)]
        if points:
            settings = {"marker": "o", "markersize": 3, "linewidth": 1.2, **style}
            (handles[name],) = axes.loglog(*zip(*points), **settings)  # type: ignore[arg-type]
        if bands and spreads and all(spreads):
            low, high = ([getattr(s, end) * 1e6 for s in spreads] for end in ("low", "high"))
            sizes = [r.size for r in rows]
            axes.fill_between(sizes, low, high, color=style["color"], alpha=0.2, linewidth=0)

    line("memory limit, measured", [r.limit for r in rows], [], **_LIMIT)
    for name, style in _PEERS.items():
        line(name, [r.median_of(name) for r in rows], [], **style)
    cpu = [r.reference_spread for r in rows]
    line("eager cpu", [r.reference for r in rows], cpu, color=_ORANGE)
    ours = [r.spread for r in rows]
    line(device, [r.value for r in rows], ours, color=_BLUE, linewidth=2.0)
    sizes = sorted({r.size for r in rows})
    axes.set_xticks(sizes, [size_name(s) for s in sizes])
    axes.minorticks_off()
    axes.grid(alpha=0.25, linewidth=0.5)
    return handles
