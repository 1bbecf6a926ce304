# SPDX-License-Identifier: MIT
"""Run PyTorch's databases on cpu and on hologram, and print which samples are alike.

`make conformance` runs everything. `python -m conformance` in tests/torch runs a part:

    python -m conformance --database op_db --variant functional --dtype float32 --only linalg

Written are a table and, below `--out`, `conformance.json` and `failures.txt`. The exit status is 1
if a sample that cpu runs is not alike on hologram, or if an exception that is listed for what was
run is not needed. `--publish` writes the table into docs/conformance.md, in which databases that
were not run keep their rows.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[k]) for k in (1, 2)]

from conformance import exceptions, publish  # noqa: E402
from conformance.databases import Outcome, Piece, covers, pieces, run_piece  # noqa: E402


def run_all(work: list[Piece], jobs: int) -> list[Outcome]:
    """Run pieces in processes; one that dies costs its own piece, not the rest."""
    found: list[Outcome] = []
    context = multiprocessing.get_context("spawn")
    # Large pieces first, so that no core is left alone with one at the end.
    todo = list(work)
    alone: list[Piece] = []
    with ProcessPoolExecutor(jobs, context) as pool:
        futures = {pool.submit(run_piece, piece): piece for piece in todo}
        for done, future in enumerate(as_completed(futures), 1):
            try:
                found.append(future.result())
            except BrokenProcessPool:
                alone.append(futures[future])
            if sys.stderr.isatty():
                print(f"\r{done} of {len(todo)} pieces", end="", file=sys.stderr)
    # When a process dies, all that were to come are lost: each gets a process of its own.
    for piece in alone:
        try:
            with ProcessPoolExecutor(1, context) as pool:
                found.append(pool.submit(run_piece, piece).result())
        except BrokenProcessPool:
            found.append(Outcome(piece, failures=[f"the process died: {piece}"], samples=1))
    return found


def table(outcomes: list[Outcome]) -> tuple[list[list[str]], list[dict[str, object]]]:
    """Sum outcomes up by database, variant, dtype and mode; as cells and as records."""
    sums: dict[tuple[str, str, str, str], Outcome] = {}
    for outcome in outcomes:
        p = outcome.piece
        key = (p.database, p.variant, p.dtype, p.mode)
        total = sums.setdefault(key, Outcome(p))
        total.samples += outcome.samples
        total.on_cpu += outcome.on_cpu
        total.alike += outcome.alike
        total.excused += outcome.excused
        total.failures += outcome.failures
    records = [
        {
            "database": key[0], "variant": key[1], "dtype": key[2], "mode": key[3],
            "samples": o.samples, "cpu": o.on_cpu, "hologram": o.alike, "listed": o.excused,
            "failures": len(o.failures),
        }
        for key, o in sums.items() if o.samples
    ]  # fmt: skip
    head = list(records[0]) if records else []
    return [head, *([str(v) for v in r.values()] for r in records)], records


def print_table(cells: list[list[str]]) -> None:
    """Print rows in columns."""
    widths = [max(len(row[k]) for row in cells) for k in range(len(cells[0]))]
    for row in cells:
        parts = [
            c.ljust(w) if k < 4 else c.rjust(w)
            for k, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(parts))


def unneeded(outcomes: list[Outcome], met: Callable[[tuple[str, str, str]], bool]) -> list[str]:
    """Say which exceptions for what was run never were needed."""
    needed: Counter[tuple[str, str, str]] = Counter()
    for outcome in outcomes:
        needed += outcome.needed
    return [
        f"exceptions.py lists {', '.join(filter(None, entry))}, where nothing differs any more"
        for entry in exceptions.listed()
        if met(entry) and not needed[entry]
    ]


def main() -> int:
    """Run what the arguments ask for; return the exit status."""
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("--database", action="append", default=[], help="op_db, module_db, ...")
    parser.add_argument("--variant", action="append", default=[], help="functional, in-place, ...")
    parser.add_argument("--dtype", action="append", default=[], help="float32, ...")
    parser.add_argument("--mode", action="append", default=[], choices=["deferred", "eager"])
    parser.add_argument("--limit", type=int, help="at most so many samples of an op")
    parser.add_argument("--only", help="ops whose name contains this")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, help="where the results are written")
    parser.add_argument("--publish", action="store_true", help="write docs/conformance.md")
    options = parser.parse_args()
    whole = not (options.variant or options.mode or options.limit is not None)
    if options.publish and not (whole and not options.dtype and options.only is None):
        parser.error("--publish takes whole databases, of which --database may choose some")
    start = time.monotonic()
    work = list(
        pieces(
            options.database, options.variant, options.dtype, options.mode, options.limit,
            options.only,
        )
    )  # fmt: skip
    outcomes = run_all(work, options.jobs) if options.jobs > 1 else [run_piece(p) for p in work]
    outcomes.sort(key=lambda o: work.index(o.piece))
    cells, records = table(outcomes)
    failures: dict[str, list[str]] = defaultdict(list)
    for outcome in outcomes:
        p = outcome.piece
        failures[f"{p.database}, {p.variant}, {p.dtype}, {p.mode}"] += outcome.failures
    lines = [f"{where}: {text}" for where, found in failures.items() for text in found]
    if whole:
        lines += unneeded(outcomes, covers(options.database, options.dtype, options.only))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "conformance.json").write_text(json.dumps(records, indent=1) + "\n")
        (options.out / "failures.txt").write_text("".join(f"{line}\n" for line in lines))
    else:
        print("\n".join(lines))
    if options.publish:
        publish.write(records)
    if records:
        print_table(cells)
    cpu, ours = (sum(int(str(r[k])) for r in records) for k in ("cpu", "hologram"))
    share = 100 * ours / cpu if cpu else 0.0
    print(
        f"{cpu} samples run on cpu, {ours} of them are alike on hologram: {share:.3f}%; "
        f"{len(lines)} differences, {time.monotonic() - start:.0f} s"
    )
    return 0 if cpu and not lines else 1


if __name__ == "__main__":
    sys.exit(main())
