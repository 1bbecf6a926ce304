# SPDX-License-Identifier: MIT
"""Random programs of which the end is captured and replayed: the bits of eager execution."""

from __future__ import annotations

import pytest
import torch
from programs.generate import generate
from programs.steps import DELETE, Log, Snapshot, Step, run, run_step, snapshots, variables

import hologram_torch
from hologram_torch import _C

pytestmark = pytest.mark.skipif(
    not _C.can_defer or not hasattr(torch.accelerator, "Graph"),
    reason="needs torch.accelerator.Graph",
)

PROGRAMS = 400
REFUSED = ("while a graph is captured", "cannot be part of a graph")


def replayed(steps: list[Step]) -> tuple[dict[int, Snapshot], int]:
    """Run a program, its end as a graph; return what is left, and how many steps were captured.

    What cannot be captured runs before the graph begins, with all before it.
    """
    first = 0
    while True:
        env: list[object] = [None] * variables(steps)
        log: Log = []
        for step in steps[:first]:
            run_step(env, step, log)
        graph = torch.accelerator.Graph()
        refused = -1
        with graph:
            for i, step in enumerate(steps[first:], first):
                run_step(env, step, log)
                if log and any(text in str(log[-1]) for text in REFUSED):
                    refused = i
                    break
        if refused < 0:
            graph.replay()
            return snapshots(env), len(steps) - first
        first = refused + 1


@pytest.mark.filterwarnings("ignore")
def test_captured_programs_give_the_bits_of_eager_ones() -> None:
    captured = tensors = kernels = 0
    for seed in range(PROGRAMS):
        generated, _, _ = generate(seed)
        steps = [
            s
            for s in generated
            if s.form is not DELETE and not (s.form.look or s.form.random or s.other_thread)
        ]
        if any("host_view" in str(s) for s in steps):
            continue  # code of the cpu on the same memory runs while the rest is captured
        expected, _ = run(steps, "eager")
        with hologram_torch.execution("deferred"):
            before = _C.recorder_stats()["kernels"]
            try:
                actual, count = replayed(steps)
            except IndexError:  # which eager execution raises at the call
                continue
            kernels += _C.recorder_stats()["kernels"] - before
        any_nan = not all(s.moves for s in steps)
        assert actual.keys() == expected.keys(), seed
        for v, e in expected.items():
            assert e.equals(actual[v], any_nan), f"seed {seed}, v{v}: {e} became {actual[v]}"
        captured += count
        tensors += len(expected)
    assert captured > 4 * PROGRAMS
    assert tensors > 4 * PROGRAMS
    assert kernels > PROGRAMS
