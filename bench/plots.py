# SPDX-License-Identifier: MIT
"""The plots: time over size beside the memory limit, and ratios as a heat map."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import TwoSlopeNorm

from bench import chain_plots
from bench.core import Row, Setting, size_name

_BLUE, _ORANGE, _GREY = "#0072b2", "#d55e00", "#777777"
_COLUMNS = 6


def draw(rows: list[Row], folder: Path, device: str, curves: bool = True) -> list[Path]:
    """Write every plot that the rows allow and return the files.

    `curves` of single ops take a minute to lay out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = chain_plots.draw(rows, folder, device)
    for area in dict.fromkeys(r.area for r in rows):
        for setting in sorted({r.setting for r in rows if r.area == area}):
            good = [
                r
                for r in rows
                if (r.area, r.setting) == (area, setting) and _is_measured(r) and r.group and r.size
            ]
            if len({r.size for r in good}) < 2:
                continue
            suffix = f"{area}-{setting.slug}.png"
            files.append(_heat_map(good, folder / f"ratios-{suffix}", device, setting))
            # Chains have plots of their own, with their peers.
            if curves and area != "chains" and all(r.unit == "s" for r in good):
                files.append(_curves(good, folder / f"times-{suffix}", device, setting))
    return files


def _is_measured(row: Row) -> bool:
    return not row.fault and not row.skipped


def _label(row: Row) -> str:
    plain = row.dtype in ("", "float32") or row.dtype in row.group
    return row.group if plain else f"{row.group} {row.dtype}"


def _save(figure: plt.Figure, path: Path) -> Path:
    partial = path.with_name(f".{path.name}")
    figure.savefig(partial, dpi=110, format="png")
    plt.close(figure)
    partial.replace(path)
    return path


def _heat_map(rows: list[Row], path: Path, device: str, setting: Setting) -> Path:
    names = list(dict.fromkeys(_label(r) for r in rows))
    sizes = sorted({r.size for r in rows})
    ratios = np.full((len(names), len(sizes)), np.nan)
    for row in rows:
        ratios[names.index(_label(row)), sizes.index(row.size)] = row.ratio
    figure, axes = plt.subplots(
        figsize=(2.6 + 0.85 * len(sizes), 1.2 + 0.24 * len(names)), layout="constrained"
    )
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


def _curves(rows: list[Row], path: Path, device: str, setting: Setting) -> Path:
    names = list(dict.fromkeys(_label(r) for r in rows))
    columns = min(_COLUMNS, len(names))
    lines = math.ceil(len(names) / columns)
    figure, grid = plt.subplots(
        lines,
        columns,
        figsize=(2.3 * columns, 1.9 * lines + 0.6),
        squeeze=False,
        sharex=True,
        sharey=True,
        layout="constrained",
    )
    handles: dict[str, object] = {}
    for axes in grid.flat[len(names) :]:
        axes.set_visible(False)
    for axes, name in zip(grid.flat, names):
        here = sorted((r for r in rows if _label(r) == name), key=lambda r: r.size)
        sizes = [r.size for r in here]
        for what, color, values, spreads in (
            ("cpu", _ORANGE, [r.reference for r in here], [r.reference_spread for r in here]),
            (device, _BLUE, [r.value for r in here], [r.spread for r in here]),
        ):
            (handles[what],) = axes.loglog(
                sizes, [v * 1e6 for v in values], "o-", color=color, markersize=3, linewidth=1.2
            )
            if all(spreads):
                axes.fill_between(
                    sizes,
                    [s.low * 1e6 for s in spreads if s],
                    [s.high * 1e6 for s in spreads if s],
                    color=color,
                    alpha=0.2,
                    linewidth=0,
                )
        limits = [(r.size, r.limit * 1e6) for r in here if not math.isnan(r.limit)]
        if limits:
            (handles["memory limit, measured"],) = axes.loglog(
                *zip(*limits), "--", color=_GREY, linewidth=1
            )
        axes.set_title(name, fontsize=8)
        axes.grid(alpha=0.25, linewidth=0.5)
        axes.tick_params(labelsize=7)
    figure.supxlabel("elements", fontsize=9)
    figure.supylabel("time of one op (us)", fontsize=9)
    figure.legend(handles.values(), handles.keys(), loc="outside upper right", ncols=3, fontsize=8)
    return _save(figure, path)
