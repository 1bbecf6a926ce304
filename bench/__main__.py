# SPDX-License-Identifier: MIT
"""The command: ``python -m bench`` measures, verifies and writes outputs/bench/."""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

import torch

import bench.areas  # noqa: F401  (registers the areas)
from bench import render
from bench.context import Context
from bench.core import AREAS, Row
from bench.machine import ROOT, Bandwidth, cores, facts
from bench.measure import Timing
from bench.selfcheck import SELF_CHECK_SIZES, check

RESULTS = ROOT / "outputs" / "bench"
_QUICK_SIZES = [1_000, 10_000, 1_000_000]


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--area", nargs="+", choices=AREAS, help="only these areas")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--quick", action="store_true", help="fewer ops and sizes: under a minute")
    parser.add_argument(
        "--all", action="store_true", help="every row; without it a choice that takes ten minutes"
    )
    parser.add_argument(
        "--threads", nargs="+", default=["1", "all"], help="numbers of threads (default: 1 all)"
    )
    parser.add_argument("--sizes", nargs="+", type=int, help="numbers of elements")
    parser.add_argument("--min-time", type=float, help="seconds for each row (default: 0.1)")
    parser.add_argument(
        "--fastest",
        action="store_true",
        help="compare the fastest turns, not the medians: for a machine that others are using",
    )
    parser.add_argument("--device", default="hologram", help="the device measured against cpu")
    parser.add_argument("--json", type=Path, help="where the JSON goes (default: outputs/bench/)")
    parser.add_argument("--no-plots", action="store_true", help="draw nothing")
    parser.add_argument("--render", type=Path, metavar="JSON", help="report on an earlier run")
    parser.add_argument(
        "--self-check", action="store_true", help="measure cpu against cpu: every ratio must be 1"
    )
    parser.add_argument("--verbose", action="store_true", help="print every row as it comes")
    options = parser.parse_args(arguments)
    try:
        options.threads = sorted({len(cores()) if t == "all" else int(t) for t in options.threads})
    except ValueError:
        parser.error("--threads takes numbers and 'all'")
    if options.threads[0] < 1:
        parser.error("--threads takes numbers from 1")
    if options.min_time is not None and options.min_time <= 0:
        parser.error("--min-time takes a positive number of seconds")
    return options


class Progress:
    """Prints rows, or on a terminal one line that counts them."""

    def __init__(self, verbose: bool) -> None:
        self.verbose = verbose
        self.count = 0

    def __call__(self, row: Row) -> None:
        """Show one row."""
        self.count += 1
        text = (
            f"{row.area:9s} {row.threads or '':>2} {render.label(row)[:58]:58s} "
            f"{render.quantity(row.value, row.unit):>9} "
            f"{render.quantity(row.reference, row.unit):>9} "
            f"{'-' if math.isnan(row.ratio) else f'{row.ratio:.2f}x':>7}"
            f"{'  below target' if row.below_goal else ''}"
            f"{f'  {row.note}' if math.isnan(row.value) else ''}"
        )
        if self.verbose:
            print(text, flush=True)
        elif sys.stderr.isatty():
            print(f"\r\033[K{self.count:5d}  {text[:100]}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Wipe the counting line."""
        if not self.verbose and sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def make_context(options: argparse.Namespace, progress: Progress) -> Context:
    """Turn options into the settings of a run."""
    sizes = _QUICK_SIZES if options.quick else None
    device = options.device
    if options.self_check:
        device, sizes = "cpu", SELF_CHECK_SIZES
    timing = Timing(options.min_time or (0.04 if options.quick else 0.1))
    context = Context(device, options.quick, options.threads, timing, progress=progress)
    context.whole = options.all
    context.sizes = options.sizes or sizes or context.sizes
    context.only = options.only
    context.fastest = options.fastest
    return context


def measure(context: Context, names: list[str]) -> tuple[list[Row], list[Row], bool]:
    """Run areas; return their rows, summaries, and whether the user stopped it."""
    rows: list[Row] = []
    stopped = False
    try:
        for name in names:
            start = time.perf_counter()
            count = len(rows)
            for row in AREAS[name].measure(context):
                rows.append(row)  # noqa: PERF402  (an interrupt keeps what came before)
            if context.progress:
                context.progress.clear()  # type: ignore[attr-defined]
            seconds = time.perf_counter() - start
            print(
                f"{seconds:6.1f} s  {name}: {len(rows) - count} rows", file=sys.stderr, flush=True
            )
    except KeyboardInterrupt:
        stopped = True
    summaries: list[Row] = []
    for name in names:
        summarize = AREAS[name].summarize
        if summarize is not None:
            here = [r for r in rows if r.area == name and not r.fault]
            summaries += summarize(here) if here else []
    return rows, summaries, stopped


def write(
    machine: dict, settings: dict, rows: list[Row], summaries: list[Row], json: Path, plots: bool
) -> None:
    """Write JSON, Markdown and plots beside each other, and print what matters."""
    render.write_atomically(json, render.to_json(machine, settings, rows, summaries))
    report = json.with_suffix(".md")
    render.write_atomically(report, render.to_markdown(machine, settings, rows, summaries))
    files = [json, report]
    if plots:
        from bench.plots import draw

        files += draw(rows, json.parent, machine["device"])
    print_summary(rows, summaries)
    shown = [f.relative_to(ROOT) if f.is_relative_to(ROOT) else f for f in files]
    print("written:", *shown, sep="\n  ")


def print_summary(rows: list[Row], summaries: list[Row]) -> None:
    """Print the summaries and what is below target."""
    progress = Progress(verbose=True)
    for row in summaries:
        progress(row)
    lost = render.losses(rows)
    print(f"\nlosses (below {render.LOSS}x): {len(lost)} of {len(rows)} rows")
    for row in lost:
        progress(row)
    missed = render.below_target(rows)
    print(f"\nbelow target: {len(missed)} of {len(rows)} rows")
    for row in missed:
        print(
            f"  {row.area:9s} {row.threads or '':>2} {render.label(row)[:58]:58s} "
            + (row.fault or f"{row.ratio:6.2f}x  goal {row.goal}")
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 1 when a result was wrong or an op failed, however fast."""
    options = parse(arguments)
    if options.render:
        machine, settings, rows, summaries = render.from_json(options.render.read_text())
        write(machine, settings, rows, summaries, options.render, not options.no_plots)
        return 0
    progress = Progress(options.verbose)
    try:
        context = make_context(options, progress)
    except (RuntimeError, AttributeError, ImportError) as error:
        print(f"--device {options.device}: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    names = [n for n in AREAS if n in (options.area or AREAS)]
    if options.self_check:
        names = ["overhead", "single"]
    machine = facts(context.device)
    threads_before = torch.get_num_threads()
    start = time.perf_counter()
    context.bandwidth = Bandwidth.measure(context.threads)
    rows, summaries, stopped = measure(context, names)
    torch.set_num_threads(threads_before)
    settings = {
        "areas": names,
        "threads": context.threads,
        "quick": context.quick,
        "whole": context.whole,
        "min_time": context.timing.min_time,
        "statistic": "fastest turn" if context.fastest else "median",
        "seconds": round(time.perf_counter() - start, 1),
        "partial": stopped,
        "bandwidth_GBps": {
            str(t): {str(size): round(speed / 1e9, 2) for size, speed in points}
            for t, points in context.bandwidth.points.items()
        },
    }
    if options.self_check:
        return check(rows)
    file = options.json or RESULTS / ("quick.json" if options.quick else "results.json")
    write(machine, settings, rows, summaries, file, not options.no_plots)
    if stopped:
        return 130
    return 1 if any(r.fault for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
