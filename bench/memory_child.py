# SPDX-License-Identifier: MIT
"""One measurement of the area memory, in a process of its own: the peak that training adds."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.areas import training
from bench.core import make_side

_STEPS = 30


def _large() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
    )


_Setup = tuple[Callable[[], nn.Module], list[tuple[Tensor, Tensor]]]

MODELS: dict[str, Callable[[], _Setup]] = {
    "MLP 784-128-10, batch 32": lambda: (training.mlp, training.random_batches(32, 784)),
    "MLP 1024-2048-2048-10, batch 256": lambda: (_large, training.random_batches(256, 1024)),
    "CNN on digits, batch 64": lambda: (training.cnn, training.digits_batches(64)),
}


def _status(key: str) -> int:
    """Return a figure of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status lacks {key}")


def peak(device: str, model: str, threads: int) -> dict[str, Any]:
    """Train and return the peak above what the process took before the model was made."""
    torch.set_num_threads(threads)
    side = make_side(device)
    make, batches = MODELS[model]()
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device")
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("threads", type=int)
    options = parser.parse_args()
    print(json.dumps(peak(options.device, options.model, options.threads)))
