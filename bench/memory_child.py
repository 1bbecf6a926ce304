# SPDX-License-Identifier: MIT
"""One measurement of the area memory, in a process of its own: a peak, or growth over steps."""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bench.areas import chains, training
from bench.context import Context
from bench.core import Side, make_side
from bench.machine import die_with_parent

_STEPS = 30


def _large() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
    )


def _large_training() -> training.Training:
    return training.Training("", _large, training.random_batches(256, 1024))


def _cnn() -> training.Training:
    return training.Training("", training.cnn, training.digits_batches(64))


TRAINED: dict[str, Callable[[], training.Training]] = {
    "training: MLP 784-128-10, batch 32": training.digits_mlp,
    "training: MLP 1024-2048-2048-10, batch 256": _large_training,
    "training: GPT-2 shape, 4 layers x 128, batch 8 x 64": training.gpt_shape,
    "training: CNN on digits, batch 64": _cnn,
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
    tiny = training.Training("", lambda: nn.Linear(784, 10), training.random_batches(2, 784))
    training.step_work(side, tiny).run()
    side.synchronize()
    before = _clear_peak()
    work = training.step_work(side, what)
    for _ in range(_STEPS):
        work.run()
        side.synchronize()
    return _status("VmHWM") - before


def _chain(side: Side, name: str) -> int:
    """Return the peak of a chain above its inputs; the result is part of it."""
    context = Context(str(side.device))
    chain = CHAINED[name]
    small = chains.Operands(context, chain, _STEP_SIZE).of(side.device, 0)
    chain.function(*small)
    side.synchronize()
    operands = chains.Operands(context, chain, _CHAIN_SIZE).of(side.device, 0)
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
    operands = chains.Operands(context, chains.CHAINS[0], _STEP_SIZE)
    sets = [operands.of(side.device, number) for number in range(_KEPT)]
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

    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

    small = training.Training("", make, training.random_batches(16, 64))
    block = 100
    work = training.step_work(side, small, steps=block)
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
    result: dict[str, Any]
    if what == GROWN:
        result = {"bytes": _grow(side, steps)}
    elif what == BORDERS:
        result = {"bytes": _cross_borders(shares=side.device.type != "cpu")}
    elif what == GROWN_TRAINING:
        result = _grow_training(side, steps)
    else:
        result = {"bytes": (_chain if what in CHAINED else _train)(side, what)}
    if side.device.type == "hologram":
        result["max_memory_allocated"] = torch.hologram.max_memory_allocated()  # type: ignore[attr-defined]
        result["max_memory_reserved"] = torch.hologram.max_memory_reserved()  # type: ignore[attr-defined]
    return result


if __name__ == "__main__":
    die_with_parent()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device")
    parser.add_argument("what", choices=[*TRAINED, *CHAINED, GROWN, GROWN_TRAINING, BORDERS])
    parser.add_argument("threads", type=int)
    parser.add_argument("--steps", type=int, default=1_000_000)
    options = parser.parse_args()
    print(json.dumps(measure(options.device, options.what, options.threads, options.steps)))
