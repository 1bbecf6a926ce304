# SPDX-License-Identifier: MIT
"""The check: a program shows the same bits and the same errors however it is executed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch

from hologram_torch import _C

from .generate import FLOAT_NUMBERS, ODD_NUMBERS, generate
from .steps import DELETE, NAMES, Log, Snapshot, Step, V, form, run, snapshots


def recorded() -> dict[str, int]:
    """Return the recorder's counters."""
    return dict(_C.recorder_stats())


def difference(
    steps: list[Step],
    expected: dict[int, Snapshot],
    shown: Log,
    actual: dict[int, Snapshot],
    also_shown: Log,
) -> str | None:
    """Say what differs first, or None.

    Which of several NaNs a result is, is not specified where something is computed; where bits
    only move, they stay.
    """
    any_nan = not all(s.moves for s in steps)
    if len(shown) != len(also_shown):
        return f"{len(shown)} looks and errors in eager mode, {len(also_shown)} deferred"
    for i, (e, a) in enumerate(zip(shown, also_shown, strict=True)):
        if not (e.equals(a, any_nan) if isinstance(e, Snapshot) else e == a):
            return f"look or error {i}:\n  eager    {e}\n  deferred {a}{elementwise(e, a, any_nan)}"
    for v, e in expected.items():
        if v in actual and not e.equals(actual[v], any_nan):
            a = actual[v]
            return f"v{v}:\n  eager    {e}\n  deferred {a}{elementwise(e, a, any_nan)}"
    return None


def elementwise(e: object, a: object, any_nan: bool) -> str:
    """Describe the first element that differs."""
    if not isinstance(e, Snapshot) or not isinstance(a, Snapshot) or e.layout != a.layout:
        return ""
    differ = e.differing(a, any_nan).flatten()
    at = int(differ.nonzero()[0])
    values = [s.tensor().flatten()[at].item() for s in (e, a)]
    return f"\n  element {at}: {values[0]} became {values[1]}; {int(differ.sum())} differ"


def deferred_differs(steps: list[Step]) -> str | None:
    """Run a program in both modes and say what differs."""
    expected, log = run(steps, "eager")
    return difference(steps, expected, log, *run(steps, "deferred"))


def other_numbers(steps: list[Step], rng: random.Random) -> list[Step]:
    """Return the program with other numbers: its plans are found, its laws may not hold."""
    numbers = FLOAT_NUMBERS + ODD_NUMBERS

    def change(a: Any) -> Any:
        return rng.choice(numbers) if type(a) is float and rng.random() < 0.7 else a

    return [
        Step(s.form, tuple(change(a) for a in s.arguments), s.results, s.other_thread, s.moves)
        for s in steps
    ]


def variation(seed: int, steps: list[Step]) -> tuple[str, list[Step]]:
    """Return the program with a change that must not matter, and what that is; often none."""
    rng = random.Random(seed)
    pause = Step(form("torch.hologram.synchronize()"), (), (), moves=True)
    match seed % 8:
        case 1:  # values live longer, and nothing runs before the end
            quiet = [s for s in steps if s.form is not DELETE and not s.form.look]
            return "no looks", quiet
        case 2:  # plans are found, but laws that hold for some numbers may not
            return "other numbers", other_numbers(steps, rng)
        case 3:  # every plan is known
            return "again", steps
        case 4:  # values die as soon as they are not needed
            last = {v: i for i, s in enumerate(steps) for v in (*s.results, *s.variables)}
            dying: dict[int, list[Step]] = {}
            for v, i in last.items():
                if rng.random() < 0.6:
                    dying.setdefault(i, []).append(Step(DELETE, (V(v),), (), moves=True))
            return "deletions", [x for i, s in enumerate(steps) for x in (s, *dying.get(i, ()))]
        case 5:  # circuits end elsewhere
            return "pauses", [x for s in steps for x in ([s, pause] if rng.random() < 0.3 else [s])]
        case 6:  # work is shared out in other pieces
            return "other threads", steps
        case _:
            return "", steps


@dataclass
class Counts:
    """What checks have compared; a check that compares nothing must be noticed."""

    programs: int = 0
    steps: int = 0
    tensors: int = 0
    elements: int = 0
    looks: int = 0
    errors: int = 0
    with_kernels: int = 0  # programs in which kernels of circuits ran
    recorded: int = 0

    def add(self, other: Counts) -> None:
        """Add up."""
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass
class Failure:
    """A program that fails, and how."""

    seed: int
    variant: str
    steps: list[Step]
    what: str


def check(seed: int, counts: Counts) -> Failure | None:
    """Check the program of a seed; some seeds also vary what must not matter."""
    steps, env, log = generate(seed)
    expected = snapshots(env)
    del env
    counts.programs += 1
    counts.steps += len(steps)
    counts.tensors += len(expected)
    counts.elements += sum(s.bits.numel() for s in expected.values())
    errors = sum(type(entry) is tuple for entry in log)
    counts.errors += errors
    counts.looks += len(log) - errors

    before = recorded()
    what = difference(steps, expected, log, *run(steps, "deferred"))
    after = recorded()
    counts.with_kernels += after["kernels"] > before["kernels"]
    counts.recorded += after["ops_recorded"] - before["ops_recorded"]
    if what:
        return Failure(seed, "as generated", steps, what)

    name, varied = variation(seed, steps)
    if name == "other numbers":
        what = deferred_differs(varied)
    elif name:
        shown = log if name != "no looks" else [e for e in log if type(e) is tuple]
        if name == "other threads":
            torch.set_num_threads(torch.get_num_threads() % 4 + 2)  # the next program sets its own
        other, also = run(varied, "deferred")
        # Without looks the errors that looks raised are missing too.
        if name != "no looks" or len(also) == len(shown):
            what = difference(varied, expected, shown, other, also)
    return Failure(seed, name, varied, what) if what else None


def agreement(seeds: range) -> tuple[int, int]:
    """Run programs on PyTorch's cpu too; return how many tensors were compared, and agree.

    Errors of rounding grow along a program and decide comparisons, so some tensors do not.
    """
    compared = agree = 0
    for seed in seeds:
        steps, env, _ = generate(seed)
        if any(s.form.random for s in steps):
            continue
        device = NAMES["device"]
        NAMES["device"] = torch.device("cpu")
        try:
            cpu, _ = run(steps, "eager")
        finally:
            NAMES["device"] = device
        for v, theirs in cpu.items():
            if isinstance(env[v], torch.Tensor):
                compared += 1
                agree += _close(env[v].cpu(), theirs.tensor())
    return compared, agree


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    coarse = a.dtype in (torch.float16, torch.bfloat16)
    a, b = a.to(torch.float64), b.to(torch.float64)
    return torch.allclose(a, b, rtol=0.05 if coarse else 1e-3, atol=1e-3, equal_nan=True)
