# SPDX-License-Identifier: MIT
"""Start-up: what `import torch` costs with and without the device, and the device's first op."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

from bench.context import Context, faults_of
from bench.core import Row, Spread, area

AREA = "startup"
_IMPORT = "import torch"
_FIRST = "import torch; x = torch.ones(16, device='{device}'); (x + x).sum().item()"


def _seconds(code: str, autoload: bool) -> float:
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if autoload else "0"}
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["the child failed"])[-1])
    return seconds


def _compare(context: Context, name: str, ours: tuple[str, bool], theirs: tuple[str, bool]) -> Row:
    row = Row(AREA, name)
    with faults_of(row):
        if not context.quick:
            _seconds(*ours)  # the first reads the files from disk
        values, references = [], []
        for _ in range(1 if context.quick else 5 if context.whole else 3):
            values.append(_seconds(*ours))
            references.append(_seconds(*theirs))
        row.spread, row.reference_spread = Spread.of(values), Spread.of(references)
        row.value, row.reference = row.spread.median, row.reference_spread.median
        row.details["added_seconds"] = row.value - row.reference
        row.note = f"adds {1e3 * (row.value - row.reference):.0f} ms"
    return context.done(row)


@area(AREA, "Start-up: a new process, with the device and without")
def measure(context: Context) -> Iterator[Row]:
    yield _compare(context, "import torch, autoload on / off", (_IMPORT, True), (_IMPORT, False))
    yield _compare(
        context,
        "import torch and a first op, device / cpu without autoload",
        (_FIRST.format(device=context.device), True),
        (_FIRST.format(device="cpu"), False),
    )
