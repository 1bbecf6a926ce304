# SPDX-License-Identifier: MIT
"""The plots of chains: time over size for every side and peer, with the memory limit drawn in."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from bench import peers
from bench.core import Row, Setting, size_name

_Style = dict[str, object]
_PEERS: dict[str, _Style] = {
    peers.COMPILE: {"color": "#009e73", "marker": "s"},
    peers.NUMPY: {"color": "#cc79a7", "marker": "^", "linewidth": 0.8},
    peers.JAX: {"color": "#e69f00", "marker": "v", "linewidth": 0.8},
    peers.HAND: {"color": "#777777", "marker": "", "linestyle": ":"},
}
_EAGER: _Style = {"color": "#d55e00", "marker": "o"}
_OURS: _Style = {"color": "#0072b2", "marker": "o", "linewidth": 2.0}
_LIMIT: _Style = {"color": "#777777", "marker": "", "linestyle": "--"}


def draw(rows: list[Row], folder: Path, device: str) -> list[Path]:
    """Write a file for each chain and one for each setting; return them."""
    rows = [r for r in rows if r.area == "chains" and not r.fault and not r.skipped]
    names = list(dict.fromkeys(r.name for r in rows if len(_sizes(rows, r.name)) > 1))
    settings = sorted({r.setting for r in rows})
    files = []
    for name in names:
        panels = [(f"{name}, {had.label}", _of(rows, name, had)) for had in settings]
        slug = re.sub(r"[^a-z0-9]+", "-", name.partition(",")[0].lower()).strip("-")
        files.append(_figure(panels, folder / f"chain-{slug}.svg", device, len(panels)))
    for had in settings:
        panels = [(name, _of(rows, name, had)) for name in names]
        if panels:
            files.append(_figure(panels, folder / f"chains-{had.slug}.svg", device, 3))
    return files


def _sizes(rows: list[Row], name: str) -> set[int]:
    return {r.size for r in rows if r.name == name}


def _of(rows: list[Row], name: str, setting: Setting) -> list[Row]:
    return sorted(
        (r for r in rows if r.name == name and r.setting == setting), key=lambda r: r.size
    )


def _figure(panels: list[tuple[str, list[Row]]], path: Path, device: str, columns: int) -> Path:
    columns = min(columns, len(panels))
    lines = math.ceil(len(panels) / columns)
    # Text stays text and nothing depends on the time of day: small files, small differences.
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.name, "font.size": 8}):
        figure, grid = plt.subplots(
            lines,
            columns,
            figsize=(3.4 * columns, 2.7 * lines + 0.4),
            squeeze=False,
            layout="constrained",
        )
        handles: dict[str, object] = {}
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (title, rows) in zip(grid.flat, panels):
            handles |= _panel(axes, rows, device)
            axes.set_title(title, fontsize=8)
        figure.supxlabel("elements", fontsize=8)
        figure.supylabel("time (us)", fontsize=8)
        figure.legend(
            handles.values(), handles.keys(), loc="outside upper center", ncols=4, fontsize=7
        )
        partial = path.with_name(f".{path.name}")
        figure.savefig(partial, format="svg", metadata={"Date": None})
        plt.close(figure)
    partial.replace(path)
    return path


def _panel(axes: Axes, rows: list[Row], device: str) -> dict[str, object]:
    """Draw every line that has points; return them by name for the legend."""
    handles: dict[str, object] = {}

    def line(name: str, value: Callable[[Row], float], style: _Style) -> None:
        points = [(r.size, value(r) * 1e6) for r in rows if not math.isnan(value(r))]
        if points:
            settings: dict[str, object] = {"markersize": 3, "linewidth": 1.2, **style}
            (handles[name],) = axes.loglog(*zip(*points), **settings)  # type: ignore[arg-type]

    line("memory limit, measured", lambda r: r.limit, _LIMIT)
    for name, style in _PEERS.items():
        line(name, lambda r, n=name: r.ratio_to(n) * r.value, style)  # type: ignore[misc]
    line("eager cpu", lambda r: r.reference, _EAGER)
    line(device, lambda r: r.value, _OURS)
    sizes = sorted({r.size for r in rows})
    axes.set_xticks(sizes, [size_name(s) for s in sizes])
    axes.minorticks_off()
    axes.grid(alpha=0.25, linewidth=0.5)
    return handles
