# SPDX-License-Identifier: MIT
"""The command: ``python -m bench`` measures, verifies and writes outputs/bench/."""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench import headline, render
from bench.budget import share_of, total_seconds
from bench.child import Config, register_areas
from bench.core import AREAS, Area, Row, Setting, make_side
from bench.facts import machine_facts
from bench.machine import ROOT, cores
from bench.results import Results, Writer, read
from bench.runner import Measurer, cores_of
from bench.selfcheck import SELF_CHECK_SIZES, check

RESULTS = ROOT / "outputs" / "bench"
PUBLISHED = ROOT / "bench" / "RESULTS.md"
ONE_THREAD = "one-thread"
_QUICK_SIZES = [1_000, 10_000, 1_000_000]
_BEGAN = time.monotonic()


def settings_of(names: Sequence[str]) -> list[Setting]:
    """Return the settings that the command line names: numbers of cores, 'all', 'one-thread'."""
    available = len(cores())
    found = set()
    for name in names:
        count = available if name in ("all", ONE_THREAD) else int(name)
        if not 1 <= count <= available:
            raise ValueError(f"{count} cores are asked for, and this process may use {available}")
        found.add(Setting(count, 1 if name == ONE_THREAD else count))
    # A core for the worker comes last: the settings whose cores and threads are one come first.
    return sorted(found, key=lambda s: (s.threads != s.cores, s))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    first = argparse.ArgumentParser(add_help=False)
    about = "a module that registers further areas; those of the suite are not measured then, "
    about += "unless --area names them"
    first.add_argument("--module", action="append", default=[], help=about)
    register_areas(first.parse_known_args(arguments)[0].module)
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, parents=[first])
    takes, seconds = parser.add_argument, f"{total_seconds():.0f}"

    def switch(name: str, about: str) -> None:
        parser.add_argument(name, action="store_true", help=about)

    takes("--area", nargs="+", choices=AREAS, help="only these areas")
    takes("--only", default="", help="only cases whose name contains this")
    switch("--quick", "fewer ops and sizes: under a minute")
    switch("--all", "every row, however long it takes, and PyTorch's one thread beside the worker")
    about = "numbers of cores, to which all threads are pinned, PyTorch's being as many; 'all'; "
    about += f"'{ONE_THREAD}': all cores, of which PyTorch uses one (default: 1 all)"
    takes("--cores", nargs="+", metavar="N", help=about)
    about = f"for all areas together (default: {seconds}; with --all: as long as it takes)"
    takes("--budget", type=float, metavar="SECONDS", help=about)
    takes("--sizes", nargs="+", type=int, help="numbers of elements")
    takes("--min-time", type=float, help="seconds for each row (default: 0.1)")
    about = "compare the fastest turns, not the medians: for a machine that others are using"
    switch("--fastest", about)
    takes("--device", default="hologram", help="the device measured against cpu")
    takes("--machine", default="", help="what the report calls this machine")
    takes("--out", type=Path, help="where the results go (default: outputs/bench/)")
    about = "also write the report to bench/RESULTS.md: of a whole run, or of one with --render"
    switch("--publish", about)
    switch("--no-plots", "draw nothing")
    takes("--render", type=Path, metavar="FILE", help="report on an earlier run")
    switch("--self-check", "measure cpu against cpu: every ratio must be 1")
    switch("--verbose", "print every row as it comes")
    options = parser.parse_args(arguments)
    try:
        default = ["1", "all", *[ONE_THREAD] * options.all]
        options.settings = settings_of(options.cores or default)
    except ValueError as error:
        parser.error(f"--cores takes numbers, 'all' and '{ONE_THREAD}': {error}")
    for name in ("min_time", "budget"):
        if (value := getattr(options, name)) is not None and value <= 0:
            parser.error(f"--{name.replace('_', '-')} takes a positive number of seconds")
    if options.budget is None:
        options.budget = math.inf if options.all else total_seconds()
    return options


def named(row: Row) -> str:
    """Return what a row is called where rows stand below each other."""
    return f"{row.area:10s} {render.had(row):>7} {render.label(row)[:58]:58s}"


class Progress:
    """Prints rows, or on a terminal one line that counts them."""

    def __init__(self, verbose: bool) -> None:
        self.verbose = verbose
        self.count = 0

    def __call__(self, row: Row) -> None:
        """Show one row."""
        self.count += 1
        ratio = "-" if math.isnan(row.ratio) else f"{row.ratio:.2f}x"
        value, reference = (render.quantity(v, row.unit) for v in (row.value, row.reference))
        text = f"{named(row)} {value:>9} {reference:>9} {ratio:>7}"
        text += "  below target" if row.below_goal else ""
        text += f"  {row.note}" if math.isnan(row.value) else ""
        text += f"  not measured: {row.skipped}" if row.skipped else ""
        if self.verbose:
            print(text, flush=True)
        elif sys.stderr.isatty():
            print(f"\r\033[K{self.count:5d}  {text[:100]}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Wipe the counting line."""
        if not self.verbose and sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def make_config(options: argparse.Namespace) -> Config:
    """Turn options into what every process is told."""
    sizes = _QUICK_SIZES if options.quick else None
    device = options.device
    if options.self_check:
        device, sizes = "cpu", SELF_CHECK_SIZES
    return Config(
        device=device,
        quick=options.quick,
        whole=options.all,
        sizes=options.sizes or sizes,
        only=options.only,
        min_time=options.min_time or (0.04 if options.quick else 0.1),
        fastest=options.fastest,
        modules=options.module,
    )


def chosen_areas(modules: Sequence[str]) -> list[str]:
    """Return the areas that are measured where none is named."""
    suite = [n for n, area in AREAS.items() if area.cases.__module__ not in modules]
    return [n for n in AREAS if n not in suite] if modules else suite


def settings_in(area: Area, measurers: list[Measurer]) -> list[Measurer]:
    """Return the processes that measure an area."""
    if area.once:
        plain = [m for m in measurers if m.setting.threads == m.setting.cores] or measurers
        return [plain[0] if area.once == "first" else plain[-1]]
    return measurers


def measure(
    measurers: list[Measurer], names: list[str], budget: float, writer: Writer, progress: Progress
) -> None:
    """Measure areas, each in every setting, and write rows as they come.

    What one area leaves of its time, or takes beyond it, the later ones have more or less.
    """
    weights = {name: share_of(name) for name in names}
    end = time.monotonic() + budget * sum(weights.values())
    if len(names) == len(AREAS):
        end = _BEGAN + budget  # what starts the processes counts
    spent = {}
    for name in names:
        here = settings_in(AREAS[name], measurers)
        weight = weights[name] / sum(weights[n] for n in names[names.index(name) :])
        start = time.monotonic()
        allowed = max(1.0, (end - start) * weight)
        count = len(writer.results.rows)
        used = -sum(m.processor_seconds for m in here)
        for done, measurer in enumerate(here):
            # What one setting takes beyond its part is not the next one's loss.
            share = (start + allowed - time.monotonic()) / (len(here) - done)
            for row in measurer.measure(name, max(share, allowed / len(here))):
                writer.row(row)
                progress(row)
            if measurer.facts:
                writer.process(measurer.setting.label, measurer.facts)
        progress.clear()
        spent[name] = time.monotonic() - start
        used += sum(m.processor_seconds for m in here)
        rows = writer.results.rows[count:]
        skipped = sum(bool(r.skipped) for r in rows)
        text = f"{spent[name]:6.1f} s ({used:.1f} of processors)  {name}: {len(rows)} rows"
        text += f", {skipped} not measured" if skipped else ""
        print(text, file=sys.stderr, flush=True)
    by_area = {name: round(seconds, 1) for name, seconds in spent.items()}
    writer.end(seconds=round(time.monotonic() - _BEGAN, 1), area_seconds=by_area)


def report(results: Results, file: Path, plots: bool) -> None:
    """Write Markdown and plots beside the results, and print what matters."""
    markdown, table = file.with_suffix(".md"), file.with_name(f"{file.stem}-table.md")
    render.write_atomically(markdown, render.to_markdown(results))
    render.write_atomically(table, render.table_text(results))
    files = [file, markdown, table]
    print_summary(results)
    if plots:
        from bench.plots import draw

        curves = bool(results.settings.get("whole"))
        files += draw(results.rows, file.parent, results.machine["device"], curves)
    shown = [f.relative_to(ROOT) if f.is_relative_to(ROOT) else f for f in files]
    print("written:", *shown, sep="\n  ")


def publish(results: Results) -> None:
    """Write the report that the documents link to; of a run that covers every area to its end."""
    left_out = [name for name in AREAS if name not in results.settings.get("areas", ())]
    if left_out or results.settings.get("quick") or not results.whole:
        why = f"without {', '.join(left_out)}" if left_out else "quick, or stopped"
        raise SystemExit(f"--publish takes a run of all areas; this one is {why}")
    render.write_atomically(PUBLISHED, render.to_markdown(results))
    print(f"published: {PUBLISHED.relative_to(ROOT)}")


def print_summary(results: Results) -> None:
    """Print the table, the summaries, what lost, is below target or was not measured."""
    progress = Progress(verbose=True)
    rows = results.rows
    for row in results.summaries:
        progress(row)
    lost = render.losses(rows)
    print(f"\nlosses (below {render.LOSS}x): {len(lost)} of {len(rows)} rows")
    for row in lost:
        progress(row)
    missed, skipped = render.below_target(rows), results.skipped()
    print(f"\nbelow target: {len(missed)} of {len(rows)} rows")
    for row in missed:
        print(f"  {named(row)} {row.fault or f'{row.ratio:6.2f}x  goal {row.goal}'}")
    print(f"\nnot measured: {len(skipped)} of {len(rows)} rows")
    for row in skipped:
        print(f"  {named(row).rstrip()}: {row.skipped}")
    if any(len(line) > 1 for line in headline.table(results)[1]):
        print(f"\n{render.table_text(results)}")


class _Terminated(KeyboardInterrupt):
    """The process was asked to end: what has been measured is kept, as at Ctrl-C."""


def _terminate(*_: object) -> None:
    raise _Terminated


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 1 when a result was wrong or an op failed, however fast."""
    options = parse(arguments)
    if options.render:
        with options.render.open() as lines:
            results = read(lines)
        report(results, options.render, not options.no_plots)
        if options.publish:
            publish(results)
        return 0
    config = make_config(options)
    try:
        make_side(config.device)
    except (RuntimeError, AttributeError, ImportError) as error:
        print(f"--device {options.device}: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    names = [n for n in AREAS if n in (options.area or chosen_areas(options.module))]
    if options.self_check:
        names = ["overhead", "single"]
    file = options.out or RESULTS / ("quick.jsonl" if options.quick else "results.jsonl")
    return _run(options, config, names, file)


def _run(options: argparse.Namespace, config: Config, names: list[str], file: Path) -> int:
    measurers = [Measurer(setting, config) for setting in options.settings]
    before = signal.signal(signal.SIGTERM, _terminate)
    status = 0
    results = Results()
    try:
        for measurer in measurers:
            measurer.start()
        results.machine = machine_facts(config.device, options.machine)
        results.settings = {
            "areas": names,
            "cores": {m.setting.label: cores_of(m.setting) for m in measurers},
            "quick": config.quick,
            "whole": config.whole,
            "min_time": config.min_time,
            "budget_seconds": None if math.isinf(options.budget) else options.budget,
            "statistic": "fastest turn" if config.fastest else "median",
        }
        with Writer(file, results) as writer:
            try:
                measure(measurers, names, options.budget, writer, Progress(options.verbose))
            except KeyboardInterrupt as stop:
                status = 143 if isinstance(stop, _Terminated) else 130
                writer.end(seconds=round(time.monotonic() - _BEGAN, 1), partial=True)
    finally:
        for measurer in measurers:
            measurer.stop()
        signal.signal(signal.SIGTERM, before)
    if options.self_check:
        return status or check(results.rows)
    report(results, file, not options.no_plots)
    if options.publish:
        publish(results)
    return status or (1 if results.faults() else 0)


if __name__ == "__main__":
    sys.exit(main())
