# SPDX-License-Identifier: MIT
"""Memory: the peak resident set that training adds, each device in a process of its own."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.context import Context, faults_of
from bench.core import Goal, Row, Spread, area
from bench.machine import ROOT

AREA = "memory"
_STEPS = 30
_MODELS = (
    "MLP 784-128-10, batch 32",
    "MLP 1024-2048-2048-10, batch 256",
    "CNN on digits, batch 64",
)
_GOAL = Goal(1.0)


def _status(key: str) -> int:
    """Return a figure of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status lacks {key}")


def child(device: str, model: str, threads: int) -> dict[str, Any]:
    """Train and return the peak above what the process took before the model was made."""
    import torch
    from torch import nn

    from bench.areas import training
    from bench.core import make_side

    torch.set_num_threads(threads)
    side = make_side(device)

    def large() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
        )

    make, batches = {
        _MODELS[0]: lambda: (training.mlp, training.random_batches(32, 784)),
        _MODELS[1]: lambda: (large, training.random_batches(256, 1024)),
        _MODELS[2]: lambda: (training.cnn, training.digits_batches(64)),
    }[model]()
    # Libraries load code and make their threads at the first step: that is not the model's memory.
    tiny = training.step_work(side, lambda: nn.Linear(784, 10), training.random_batches(2, 784))
    tiny.run()
    del tiny
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from the present
    before = _status("VmRSS")
    work = training.step_work(side, make, batches)
    for _ in range(_STEPS):
        work.run()
    side.synchronize()
    result: dict[str, Any] = {"peak": _status("VmHWM") - before, "before": before}
    if side.device.type == "hologram":
        result["max_memory_allocated"] = torch.hologram.max_memory_allocated()  # type: ignore[attr-defined]
        result["max_memory_reserved"] = torch.hologram.max_memory_reserved()  # type: ignore[attr-defined]
    return result


def _run(device: str, model: str, threads: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.areas.memory", device, model, str(threads)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["the child failed"])[-1])
    return json.loads(done.stdout.strip().splitlines()[-1])


@area(AREA, "Memory: peak resident set added by training, in a process of its own")
def measure(context: Context) -> Iterator[Row]:
    for model in _MODELS[:1] if context.quick else _MODELS:
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="one measurement, for the area memory")
    parser.add_argument("device")
    parser.add_argument("model", choices=_MODELS)
    parser.add_argument("threads", type=int)
    options = parser.parse_args()
    print(json.dumps(child(options.device, options.model, options.threads)))
