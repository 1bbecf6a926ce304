# SPDX-License-Identifier: MIT
"""What a random program is made of: forms, steps that apply them to variables, and how they run.

A form is an expression with numbered operands, compiled once. A step applies a form to variables
and literals and names the variables that its results become; a program is a list of steps. A step
whose variables are missing, because an earlier step failed or was deleted, does nothing.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

import hologram_torch

from . import composites
from .values import cached

Env = list[Any]  # variable -> tensor, or None
Log = list[Any]  # what a program showed on its way: values looked at and errors

# What forms may name; `device` is where the program runs.
NAMES: dict[str, Any] = {
    "torch": torch,
    "F": F,
    "aten": torch.ops.aten,
    "make": cached,
    "device": torch.device("hologram"),
    **composites.NAMES,
}


class V(int):
    """A variable in the arguments of a step."""


@dataclass(frozen=True, eq=False)
class Form:
    """An expression: `{0}.add({1})`. `look` marks those whose value the program shows."""

    text: str
    arity: int
    run: Callable[..., Any]
    look: bool
    random: bool


@functools.cache
def form(text: str, look: bool = False) -> Form:
    """Compile the text of a form."""
    arity = 1 + max((int(n) for n in re.findall(r"\{(\d+)\}", text)), default=-1)
    names = [f"a{i}" for i in range(arity)]
    run = eval(f"lambda {', '.join(names)}: {text.format(*names)}", NAMES)
    return Form(
        text, arity, run, look, bool(re.search("rand|dropout|normal_|uniform_|bernoulli", text))
    )


class Step:
    """One call: `results = form(arguments)`.

    `other_thread` runs it on a second thread; `moves` says that it computes nothing, so that the
    bits of a NaN are what they were.
    """

    __slots__ = ("arguments", "form", "moves", "other_thread", "results", "variables")

    def __init__(
        self,
        form: Form,
        arguments: tuple[Any, ...],
        results: tuple[int, ...],
        other_thread: bool = False,
        moves: bool = False,
    ) -> None:
        self.form = form
        self.arguments = arguments = arguments[: form.arity]
        self.results = results
        self.other_thread = other_thread
        self.moves = moves
        self.variables = tuple(
            v for a in arguments for v in (a if type(a) is list else (a,)) if type(v) is V
        )

    def __str__(self) -> str:
        call = self.form.text.format(*(spell(a) for a in self.arguments))
        if self.form is DELETE:
            return f"del v{self.arguments[0]}"
        if self.results:
            names = ", ".join(f"v{r}" for r in self.results)
            return f"{names} = {call}"
        return f"look({call})" if self.form.look else call


def spell(value: Any) -> str:
    """Write an argument as Python."""
    if type(value) is V:
        return f"v{int(value)}"
    if isinstance(value, list):
        return f"[{', '.join(spell(v) for v in value)}]"
    if isinstance(value, tuple):
        inner = ", ".join(spell(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, torch.Size):
        return spell(tuple(value))
    return repr(value)


# The form of `del`: run_step drops the variable.
DELETE = form("None if {0} is None else None")

_second_thread: ThreadPoolExecutor | None = None


def visible(value: Any) -> Any:
    """Return what a look saw, so that equal means equal bits, but for NaN."""
    if isinstance(value, torch.Tensor):
        return snapshot(value)
    if isinstance(value, float):
        return struct.pack("d", value) if value == value else "nan"
    if isinstance(value, list | tuple):
        return [visible(v) for v in value]
    return value


def _call(env: Env, step: Step, log: Log) -> None:
    """Run a step. Nothing of it stays referenced but what env and log hold."""
    if step.form is DELETE:
        env[step.arguments[0]] = None
        return
    try:
        result = step.form.run(
            *[
                env[a] if type(a) is V else [env[v] for v in a] if type(a) is list else a
                for a in step.arguments
            ]
        )
        if step.form.look:
            log.append(visible(result))
    except Exception as error:
        log.append((type(error).__name__, str(error)))
        return
    if step.results:
        several = result if len(step.results) > 1 else (result,)
        for name, value in zip(step.results, several, strict=False):
            env[name] = value


def run_step(env: Env, step: Step, log: Log) -> None:
    """Run a step if its variables exist."""
    for v in step.variables:
        if env[v] is None:
            return
    if step.other_thread:
        global _second_thread
        if _second_thread is None:
            _second_thread = ThreadPoolExecutor(1)
        _second_thread.submit(_call, env, step, log).result()
    else:
        _call(env, step, log)


def variables(steps: list[Step]) -> int:
    """Return how many variables the steps name."""
    return 1 + max((v for s in steps for v in (*s.results, *s.variables)), default=-1)


def run(steps: list[Step], mode: str) -> tuple[dict[int, Snapshot], Log]:
    """Run a program in an execution mode; return the tensors that are left and what it showed."""
    with hologram_torch.execution(mode):
        return execute(steps)


def execute(steps: list[Step]) -> tuple[dict[int, Snapshot], Log]:
    """Run a program in the mode in force; return the tensors that are left and what it showed."""
    env: Env = [None] * variables(steps)
    log: Log = []
    seeded = False
    for step in steps:
        if step.form.random and not seeded:
            torch.manual_seed(0)
            seeded = True
        run_step(env, step, log)
    return snapshots(env), log


_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Snapshot:
    """A tensor's bits, shape, strides and type at one moment."""

    __slots__ = ("bits", "layout")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.layout = (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype)
        cpu = tensor.detach().cpu()
        if cpu.is_complex():
            cpu = torch.view_as_real(cpu.resolve_conj())
        self.bits = cpu.view(_INTEGER[cpu.element_size()])
        if self.bits.device == tensor.device:
            self.bits = self.bits.clone()

    def tensor(self) -> torch.Tensor:
        """Return the numbers."""
        return self.bits.view(self.layout[3])

    def differing(self, other: Snapshot, any_nan: bool) -> torch.Tensor:
        """Tell for each element whether its bits differ, and not only in which NaN it is."""
        differ = self.bits != other.bits
        if any_nan and self.layout[3].is_floating_point:
            differ &= ~(self.tensor().isnan() & other.tensor().isnan())
        return differ

    def equals(self, other: object, any_nan: bool) -> bool:
        """Tell whether both are the same; with `any_nan` one NaN is as good as another."""
        if not isinstance(other, Snapshot) or self.layout != other.layout:
            return False
        return torch.equal(self.bits, other.bits) or (
            any_nan and not bool(self.differing(other, True).any())
        )

    def __repr__(self) -> str:
        shape, stride, offset, dtype = self.layout
        bits = self.bits.flatten().tolist()
        more = "" if len(bits) <= 24 else f" .. {len(bits)}"
        return (
            f"{dtype} shape {tuple(shape)} stride {stride} offset {offset} bits {bits[:24]}{more}"
        )


snapshot = Snapshot


def snapshots(env: Env) -> dict[int, Snapshot]:
    """Look at every tensor that is left."""
    return {v: Snapshot(t) for v, t in enumerate(env) if isinstance(t, torch.Tensor)}
