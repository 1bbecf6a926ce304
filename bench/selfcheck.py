# SPDX-License-Identifier: MIT
"""The checks of the method: what is timed was run, and cpu measured against cpu gives ones."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from bench.core import Row, Side, Work, geometric_mean
from bench.render import label
from bench.verify import VerificationError

# At a few megabytes glibc sometimes returns memory to the system and faults it in again, and keeps
# doing so or not for a whole case: identical work differs by a factor there, whatever the method.
SELF_CHECK_SIZES = [1_000, 10_000, 100_000]
_MEAN = 0.02
_ROW = 0.10
_ROWS_WITHIN = 0.9


def steps_of(call: Callable[[], Any], side: Side) -> Counter[str]:
    """Return the steps of the kernels that a call runs, by name; its results live till then.

    There is none for an op whose result is not read. Of equal ops on equal operands one is
    computed, and the others are copies of it, which have another name.
    """
    import torch

    from hologram.observe._tracing import watch
    from hologram.observe.circuits import BufferNames, read_trace

    traced, _ = watch(call, side.synchronize, torch.hologram.current_device())
    circuits = read_trace(traced, BufferNames({}, {}, {}), {})
    return Counter(
        step["op"]
        for circuit in circuits
        for kernel in circuit.shape.plan["kernels"]
        for step in kernel["instrs"]
        if step["record"] >= 0
    )


def check_all_run(name: str, work: Work, side: Side) -> None:
    """Raise VerificationError where the operations of a work are not all run.

    Of equal work on equal inputs, and of work whose results die, the device runs a part: its time
    would be that of less work than its peer does.
    """
    # The SDK, and functions on CPU tensors, run on the device whatever the side is.
    if work.one is None or "hologram_torch" not in sys.modules:
        return
    alone, all_steps = steps_of(work.one, side), steps_of(work.run, side)
    for step, count in alone.items():
        if all_steps[step] < work.ops * count:
            raise VerificationError(
                f"{name}: {work.ops} operations run {all_steps[step]} steps {step!r}, and one runs "
                f"{count}: the others are dead or merged; give each operation its own inputs and "
                f"keep all results"
            )


def check(rows: list[Row]) -> int:
    """Print how far the ratios are from one; 1 if the method is biased or too noisy."""
    rows = [r for r in rows if not r.details.get("different_work") and not r.skipped]
    faults = [r for r in rows if r.fault]
    ratios = sorted(r.ratio for r in rows if not r.fault)
    if faults or not ratios:
        print(f"self-check: {len(faults)} faults, {len(ratios)} ratios")
        return 1
    mean = geometric_mean(ratios)
    far = [r for r in rows if not 1 / (1 + _ROW) <= r.ratio <= 1 + _ROW]
    within = 1 - len(far) / len(rows)
    for row in far:
        print(f"  {label(row):40s} {row.threads} threads: {row.ratio:.2f}")
    print(
        f"self-check: {len(ratios)} ratios of cpu against itself, geometric mean {mean:.4f}, "
        f"from {ratios[0]:.2f} to {ratios[-1]:.2f}, {within:.0%} within {_ROW:.0%}"
    )
    good = abs(mean - 1) <= _MEAN and within >= _ROWS_WITHIN
    print(
        "self-check: the method is unbiased" if good else "self-check: FAILED (or a busy machine)"
    )
    return 0 if good else 1
