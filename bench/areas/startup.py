# SPDX-License-Identifier: MIT
"""Start-up: what `import torch` costs with and without the device, and the device's first op."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

from bench.context import Context
from bench.core import Case, Row, Spread, area

_FIRST = "import torch; x = torch.ones(16, device='{}'); (x + x).sum().item()"


def _seconds(code: str, autoload: bool) -> float:
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(autoload))}
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["the child failed"])[-1])
    return seconds


def _compare(context: Context, ours: str, theirs: str, row: Row) -> None:
    if not context.quick:
        _seconds(ours, True)  # the first reads the files from disk
    turns: list[tuple[float, float]] = []
    for _ in range(1 if context.quick else 5 if context.whole else 3):
        if turns and context.budget.spent:
            break
        turns.append((_seconds(ours, True), _seconds(theirs, False)))
    row.spread, row.reference_spread = map(Spread.of, zip(*turns))
    row.value, row.reference = row.spread.median, row.reference_spread.median
    row.details["added_seconds"] = row.value - row.reference
    row.note = f"adds {1e3 * (row.value - row.reference):.0f} ms"


@area("startup", "Start-up: a new process, with the device and without", seconds=16, once="last")
def cases(context: Context) -> Iterator[Case]:
    for name, ours, theirs in (
        ("import torch, autoload on / off", "import torch", "import torch"),
        (
            "import torch and a first op, device / cpu without autoload",
            _FIRST.format(context.device),
            _FIRST.format("cpu"),
        ),
    ):
        yield Case(name, measure=partial(_compare, context, ours, theirs))
