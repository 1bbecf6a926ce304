# SPDX-License-Identifier: MIT
"""Memory: what chains and training add to the resident set, each device in a process of its own.

A measurement is a peak, or growth over steps; `child` makes one and prints it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hologram
from bench import models
from bench.areas.chains import CHAINS, Chain, five_op
from bench.budget import BUDGET
from bench.context import Context
from bench.core import Case, Goal, Row, Side, Spread, Unavailable, area, make_side
from bench.machine import ROOT, die_with_parent
from bench.training import (
    Training,
    digits_cnn,
    digits_mlp,
    gpt_shape,
    random_batches,
    step_work,
)

_TRAINING, _CHAIN = Goal(1.0), Goal(2.0)
# Allocators and the interpreter move by some pages; a leak of one byte a step is more than this.
_FLAT = Goal(1e6, "most")
_LEAST_SECONDS = 5.0  # that a child is given
_CHILD = "from bench.areas.memory import child; child()"
_STEPS = 30
_CHAIN_SIZE, _STEP_SIZE = 10_000_000, 1_000
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


def _mlp(batch: int, *widths: int) -> Training:
    return Training("", models.mlp(*widths), random_batches(batch, widths[0]))


def _train(make: Callable[[], Training], side: Side, steps: int) -> int:
    """Return the peak of some steps above what the process took before the model was made."""
    what = make()
    # Libraries load code and make their threads at the first step: that is not the model's memory.
    step_work(side, _mlp(2, 784, 10)).run()
    side.synchronize()
    before = _clear_peak()
    work = step_work(side, what)
    for _ in range(_STEPS):
        work.run()
        side.synchronize()
    return _status("VmHWM") - before


def _chain(chain: Chain, side: Side, steps: int) -> int:
    """Return the peak of a chain above its inputs; the result is part of it."""
    context = Context(str(side.device))
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


def _cross_borders(side: Side, steps: int) -> int:
    """Return the peak of carrying an array through the libraries, by sharing it or by copies."""
    # A first, small crossing loads what is loaded late.
    for size in (_STEP_SIZE, _CHAIN_SIZE):
        array = np.ones(size, dtype=np.float32)
        before = _clear_peak()
        if side.device.type != "cpu":
            tensor = torch.from_dlpack(hologram.asarray(array, copy=False))
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
    sets = CHAINS[0].op.sets(context, side.device, _STEP_SIZE, count=_KEPT)
    exact = sum(float(five_op(*(t.cpu().double() for t in s)).sum()) for s in sets)
    before = 0
    for block in range(steps // _KEPT):
        results = [five_op(a, b) for a, b in sets]
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


TRAINED: dict[str, Callable[[], Training]] = {
    "MLP 784-128-10, batch 32": digits_mlp,
    "MLP 1024-2048-2048-10, batch 256": lambda: _mlp(256, 1024, 2048, 2048, 10),
    "GPT-2 shape, 4 layers x 128, batch 8 x 64": gpt_shape,
    "CNN on digits, batch 64": digits_cnn,
}
BORDERS = "borders: NumPy to hologram to torch and back, 10M elements"
GROWN, GROWN_TRAINING = "growth: small steps", "growth: training steps of an MLP 64-32-10"
# What a child is asked for: given a side and a number of steps, bytes and perhaps more.
_CHAINED = {f"chain: {c.name}, 10M elements": partial(_chain, c) for c in CHAINS if not c.in_place}
_TRAINED = {f"training: {name}": partial(_train, make) for name, make in TRAINED.items()}
_MEASURED: dict[str, Callable[[Side, int], Any]] = {
    **_CHAINED,
    **_TRAINED,
    BORDERS: _cross_borders,
    GROWN: _grow,
    GROWN_TRAINING: _grow_training,
}


def child() -> None:
    """Measure what the command line says; print bytes, and what the device says of itself."""
    die_with_parent()
    device, what, threads, steps = sys.argv[1:]
    torch.set_num_threads(int(threads))
    side = make_side(device)
    found = _MEASURED[what](side, int(steps))
    result: dict[str, Any] = found if isinstance(found, dict) else {"bytes": found}
    if side.device.type == "hologram":
        for name in ("max_memory_allocated", "max_memory_reserved"):
            result[name] = getattr(torch.hologram, name)()  # type: ignore[attr-defined]
    print(json.dumps(result))


def _run(context: Context, device: str, what: str, threads: int, steps: int) -> dict[str, Any]:
    # A measurement that has no time left is given up, not cut short: its figure would be another.
    left = context.budget.left
    given = [device, what, str(threads), str(steps)]
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, *given],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=None if left == float("inf") else max(_LEAST_SECONDS, left),
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(BUDGET) from error
    if done.returncode != 0:
        raise RuntimeError((done.stderr.strip().splitlines() or ["the child failed"])[-1])
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def _compare(context: Context, what: str, times: int, steps: int, row: Row) -> None:
    """Compare figures; losses, where there are any, have the same bits again on all threads."""
    threads = context.setting.threads
    trains = what == GROWN_TRAINING
    numbers = [*sorted({1, threads}), threads] if trains else [threads] * times
    ours, theirs = [], []
    for number in numbers:
        ours.append(_run(context, context.device, what, number, steps))
        if len(theirs) < times:
            theirs.append(_run(context, "cpu", what, threads, steps))
    losses = [r.get("losses") for r in ours]
    if len(set(losses)) > 1:
        raise RuntimeError(f"the losses of {len(ours)} runs differ: checksums {losses}")
    row.spread = Spread.of([r["bytes"] for r in ours])
    row.reference_spread = Spread.of([r["bytes"] for r in theirs])
    row.value, row.reference = row.spread.median, row.reference_spread.median
    row.details = {"device": ours[-1], "cpu": theirs[-1]}
    if trains:
        row.value = max(r["bytes"] for r in ours)
        row.note = f"every loss the same bits in {len(ours)} runs, with {numbers} threads"
    elif not row.note and "max_memory_allocated" in ours[-1]:
        row.note = f"allocated {ours[-1]['max_memory_allocated'] / 1e6:.1f} MB at most"


@area("memory", "Memory: resident set added, in a process of its own", seconds=45, once="last")
def cases(context: Context) -> Iterator[Case]:
    thorough = context.everything
    times, shown = (3, None) if thorough else (1, 1 if context.quick else 2)

    def case(what: str, goal: Goal, times: int = 1, steps: int = 0, note: str = "") -> Case:
        name = f"{what}, {steps:,} of them" if steps else what
        measure = partial(_compare, context, what, times, steps)
        return Case(name, measure=measure, unit="B", goal=goal, note=note)

    for chosen, goal in ((_CHAINED, _CHAIN), (_TRAINED, _TRAINING)):
        for what in list(chosen)[:shown]:
            yield case(what, goal, times)
    yield case(BORDERS, _FLAT, times, note="shared; the reference copies at each border")
    for what, some in ((GROWN, 50_000), (GROWN_TRAINING, 5_000)):
        steps = 1_000_000 if thorough else some // 5 if context.quick else some
        yield case(what, _FLAT, steps=steps)
