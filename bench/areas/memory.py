# SPDX-License-Identifier: MIT
"""Memory: the peak resident set that training adds, each device in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from bench.context import Context, faults_of
from bench.core import Goal, Row, Spread, area
from bench.machine import ROOT
from bench.memory_child import MODELS

AREA = "memory"
_GOAL = Goal(1.0)


def _run(device: str, model: str, threads: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.memory_child", device, model, str(threads)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["the child failed"])[-1])
    return json.loads(done.stdout.strip().splitlines()[-1])


@area(AREA, "Memory: peak resident set added by training, in a process of its own")
def measure(context: Context) -> Iterator[Row]:
    for model in list(MODELS)[: 1 if context.quick else None]:
        if not context.wants(model):
            continue
        row = Row(AREA, model, unit="B", threads=context.threads[-1], goal=_GOAL)
        with faults_of(row):
            ours, theirs = [], []
            for _ in range(1 if context.quick else 3):
                ours.append(_run(context.device, model, row.threads))
                theirs.append(_run("cpu", model, row.threads))
            row.spread = Spread.of([r["peak"] for r in ours])
            row.reference_spread = Spread.of([r["peak"] for r in theirs])
            row.value, row.reference = row.spread.median, row.reference_spread.median
            row.details = {"device": ours[-1], "cpu": theirs[-1]}
            if "max_memory_allocated" in ours[-1]:
                row.note = f"allocated {ours[-1]['max_memory_allocated'] / 1e6:.1f} MB at most"
        yield context.done(row)
