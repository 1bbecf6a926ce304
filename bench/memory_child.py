# SPDX-License-Identifier: MIT
"""One measurement of the area memory, in a process of its own: a peak, or growth over steps."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench import models
from bench.areas import chains
from bench.context import Context
from bench.core import Side, make_side
from bench.machine import die_with_parent
from bench.training import (
    Training,
    digits_cnn,
    digits_mlp,
    gpt_shape,
    random_batches,
    step_work,
)

_STEPS = 30


def _mlp(batch: int, *widths: int) -> Training:
    return Training("", models.mlp(*widths), random_batches(batch, widths[0]))


TRAINED: dict[str, Callable[[], Training]] = {
    "training: MLP 784-128-10, batch 32": digits_mlp,
    "training: MLP 1024-2048-2048-10, batch 256": lambda: _mlp(256, 1024, 2048, 2048, 10),
    "training: GPT-2 shape, 4 layers x 128, batch 8 x 64": gpt_shape,
    "training: CNN on digits, batch 64": digits_cnn,
}
CHAINED = {f"chain: {c.name}, 10M elements": c for c in chains.CHAINS if not c.in_place}
GROWN = "growth: small steps"
GROWN_TRAINING = "growth: training steps of an MLP 64-32-10"
BORDERS = "borders: NumPy to hologram to torch and back, 10M elements"
_CHAIN_SIZE = 10_000_000
_STEP_SIZE = 1_000
_KEPT = 100  # results


def _status(key: str) -> int:
    """Return a figure of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status lacks {key}")


def _clear_peak() -> int:
    """Let the peak start from the present, and return that."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _train(side: Side, model: str) -> int:
    """Return the peak of some steps above what the process took before the model was made."""
    what = TRAINED[model]()
    # Libraries load code and make their threads at the first step: that is not the model's memory.
    step_work(side, _mlp(2, 784, 10)).run()
    side.synchronize()
    before = _clear_peak()
    work = step_work(side, what)
    for _ in range(_STEPS):
        work.run()
        side.synchronize()
    return _status("VmHWM") - before


def _chain(side: Side, name: str) -> int:
    """Return the peak of a chain above its inputs; the result is part of it."""
    context = Context(str(side.device))
    chain = CHAINED[name]
    chain.function(*chain.op.sets(context, side.device, _STEP_SIZE, count=1)[0])
    side.synchronize()
    operands = chain.op.sets(context, side.device, _CHAIN_SIZE, count=1)[0]
    context.inputs.clear()  # the host's copies
    side.synchronize()
    before = _clear_peak()
    for _ in range(3):
        result = chain.function(*operands)
        side.synchronize()
        del result
    return _status("VmHWM") - before


def _cross_borders(shares: bool) -> int:
    """Return the peak of carrying an array through the libraries, by sharing it or by copies."""
    import numpy as np

    import hologram

    # A first, small crossing loads what is loaded late.
    for size in (_STEP_SIZE, _CHAIN_SIZE):
        array = np.ones(size, dtype=np.float32)
        before = _clear_peak()
        if shares:
            tensor = torch.from_dlpack(hologram.asarray(array))
            result = np.asarray(hologram.Tensor.from_dlpack(tensor))
        else:
            tensor = torch.tensor(np.array(hologram.array(array)))
            result = np.array(hologram.array(tensor.numpy()))
        if result.sum() != size:
            raise RuntimeError("the borders changed the values")
    return _status("VmHWM") - before


def _grow(side: Side, steps: int) -> int:
    """Return by how much the process grows over small steps, after a tenth of them.

    Each is on inputs of its own, and its result lives until a hundred are looked at together.
    """
    context = Context(str(side.device))
    sets = chains.CHAINS[0].op.sets(context, side.device, _STEP_SIZE, count=_KEPT)
    exact = sum(float(chains.five_op(*(t.cpu().double() for t in s)).sum()) for s in sets)
    before = 0
    for block in range(steps // _KEPT):
        results = [chains.five_op(a, b) for a, b in sets]
        total = float(torch.stack(results).sum())
        if abs(total - exact) > 1e-3 * abs(exact):
            raise RuntimeError(f"{_KEPT} steps add up to {total}, not to {exact}")
        if block == steps // _KEPT // 10:
            before = _status("VmRSS")
    side.synchronize()
    return max(0, _status("VmRSS") - before)


def _grow_training(side: Side, steps: int) -> dict[str, Any]:
    """Return by how much the process grows over training steps, and what the losses were."""
    block = 100
    work = step_work(side, _mlp(16, 64, 32, 10), steps=block)
    before = checksum = 0
    for number in range(steps // block):
        for loss in work.run():
            checksum = zlib.crc32(loss.detach().cpu().numpy().tobytes(), checksum)
        if number == steps // block // 10:
            before = _status("VmRSS")
    side.synchronize()
    return {"bytes": max(0, _status("VmRSS") - before), "losses": checksum}


def measure(device: str, what: str, threads: int, steps: int) -> dict[str, Any]:
    """Return bytes, and what the device says of itself."""
    torch.set_num_threads(threads)
    side = make_side(device)
    if what == BORDERS:
        found: Any = _cross_borders(shares=side.device.type != "cpu")
    elif what in (GROWN, GROWN_TRAINING):
        found = (_grow if what == GROWN else _grow_training)(side, steps)
    else:
        found = (_chain if what in CHAINED else _train)(side, what)
    result: dict[str, Any] = found if isinstance(found, dict) else {"bytes": found}
    if side.device.type == "hologram":
        for name in ("max_memory_allocated", "max_memory_reserved"):
            result[name] = getattr(torch.hologram, name)()  # type: ignore[attr-defined]
    return result


if __name__ == "__main__":
    die_with_parent()
    device, what, *numbers = sys.argv[1:]
    print(json.dumps(measure(device, what, *map(int, numbers))))
