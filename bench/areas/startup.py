# SPDX-License-Identifier: MIT
"""Start-up: what `import torch` costs with and without the device, and the device's first op."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

from bench.context import Context, Job
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


def _job(context: Context, name: str, ours: tuple[str, bool], theirs: tuple[str, bool]) -> Job:
    def compare(row: Row) -> None:
        if not context.quick:
            _seconds(*ours)  # the first reads the files from disk
        values, references = [], []
        for turn in range(1 if context.quick else 5 if context.whole else 3):
            if turn and context.budget.spent:
                break
            values.append(_seconds(*ours))
            references.append(_seconds(*theirs))
        row.spread, row.reference_spread = Spread.of(values), Spread.of(references)
        row.value, row.reference = row.spread.median, row.reference_spread.median
        row.details["added_seconds"] = row.value - row.reference
        row.note = f"adds {1e3 * (row.value - row.reference):.0f} ms"

    return Row(AREA, name), compare


@area(AREA, "Start-up: a new process, with the device and without", once="last")
def measure(context: Context) -> Iterator[Row]:
    first = _FIRST.format(device=context.device), _FIRST.format(device="cpu")
    yield from context.jobs(
        [
            _job(context, "import torch, autoload on / off", (_IMPORT, True), (_IMPORT, False)),
            _job(
                context,
                "import torch and a first op, device / cpu without autoload",
                (first[0], True),
                (first[1], False),
            ),
        ]
    )
