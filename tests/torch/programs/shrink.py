# SPDX-License-Identifier: MIT
"""Finds the smallest program that still fails, and prints programs as Python that runs."""

from __future__ import annotations

import inspect
import os
import pickle
import signal
import time
from collections.abc import Callable
from typing import Any

import torch

from . import composites, values
from .check import Counts as _Counts
from .check import check, deferred_differs
from .steps import Env, Log, Step, V, form, run_step, variables

Fails = Callable[[list[Step]], bool]


# --- Children, because a program may crash or hang the process that runs it --------------------


def in_child(call: Callable[[], Any], limit_s: float = 20) -> tuple[str, Any]:
    """Fork, call, return ("ok", result), or how the child ended.

    Only for processes that have run nothing on the device yet: threads do not survive a fork.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            data = pickle.dumps(("ok", call()))
        except BaseException as error:
            data = pickle.dumps((f"{type(error).__name__}: {error}", None))
        with os.fdopen(write, "wb") as pipe:
            pipe.write(data)
        os._exit(0)
    os.close(write)
    data, deadline = b"", time.monotonic() + limit_s
    os.set_blocking(read, False)
    while time.monotonic() < deadline:
        try:
            chunk = os.read(read, 1 << 20)
            if not chunk:
                break
            data += chunk
        except BlockingIOError:
            time.sleep(0.002)
    else:
        os.kill(child, signal.SIGKILL)
        data = pickle.dumps((f"hung for {limit_s} s", None))
    os.close(read)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and not data:
        return f"killed by signal {os.WTERMSIG(status)}", None
    return pickle.loads(data) if data else (f"exit status {status}", None)


def pack(steps: list[Step]) -> list[Any]:
    """Turn steps into what pickle can carry."""
    return [
        (s.form.text, s.form.look, s.arguments, s.results, s.other_thread, s.moves) for s in steps
    ]


def unpack(packed: list[Any]) -> list[Step]:
    """Reverse pack."""
    return [Step(form(text, look), *rest) for text, look, *rest in packed]


def outcome(steps: list[Step]) -> str | None:
    """Run a program in both modes in a child; say what differs or how the child ended."""
    ended, what = in_child(lambda: deferred_differs(steps))
    return what if ended == "ok" else ended


def minimal(seed: int) -> tuple[str, str]:
    """Shrink what fails for a seed; return the program as Python, and what differs."""

    def find() -> Any:
        from .generate import generate

        failure = check(seed, _Counts())
        return (failure.variant, pack(failure.steps), failure.what) if failure else generate(seed)

    def only_generate() -> Any:
        from .generate import generate

        return pack(generate(seed)[0])

    ended, found = in_child(find, 60)
    if ended == "ok" and len(found) == 3 and isinstance(found[0], str):
        variant, packed, what = found
    else:
        variant, what = "as generated", ended
        ended, packed = in_child(only_generate, 60)
        if ended != "ok":
            return f"# the generator itself fails for seed {seed}: {ended}\n", ended
    steps = unpack(packed)
    if outcome(steps) is None:
        return f"# fails only in the process that ran the shard ({variant})\n{listing(steps)}", what
    steps = shrink(steps, lambda candidate: outcome(candidate) is not None)
    what = outcome(steps) or "fails now and then"
    ended, text = in_child(lambda: python(steps))
    return f"# seed {seed}, {variant}\n{text if ended == 'ok' else listing(steps)}", what


# --- Shrinking ---------------------------------------------------------------------------------


def shrink(steps: list[Step], fails: Fails, patience: int = 1500) -> list[Step]:
    """Delete steps, make inputs plain and shapes small, while the program still fails."""
    tries = 0

    def still(candidate: list[Step]) -> bool:
        nonlocal tries
        tries += 1
        return tries < patience and fails(candidate)

    while True:
        before = len(steps)
        steps = _bypass(_delete(steps, still), still)
        steps = _shrink_sizes(_make_plain(steps, still), still)
        if len(steps) == before:  # smaller shapes may fit where larger ones did not
            return steps


def _delete(steps: list[Step], still: Fails) -> list[Step]:
    """Delete steps that do not matter, half of the program at first and one step at last."""
    size = max(1, len(steps) // 2)
    while True:
        at, before = 0, len(steps)
        while at < len(steps):
            candidate = steps[:at] + steps[at + size :]
            if candidate and still(candidate):
                steps = candidate
            else:
                at += size
        if size == 1 and len(steps) == before:
            return steps
        size = max(1, size // 2)


def _bypass(steps: list[Step], still: Fails) -> list[Step]:
    """Let readers of a result read an operand instead, and delete the step."""
    at = 0
    while at < len(steps):
        s = steps[at]
        for operand in dict.fromkeys(s.variables) if len(s.results) == 1 else ():
            names = {s.results[0]: operand}
            candidate = [
                *steps[:at],
                *(
                    _with_arguments(o, _rename(o.arguments, names), o.other_thread)
                    for o in steps[at + 1 :]
                ),
            ]
            if still(candidate):
                steps = candidate
                break
        else:
            at += 1
    return steps


def _rename(a: Any, names: dict[int, int]) -> Any:
    if isinstance(a, tuple | list):
        return type(a)(_rename(x, names) for x in a)
    return V(names.get(a, a)) if type(a) is V else a


def _with_arguments(s: Step, arguments: tuple[Any, ...], other_thread: bool) -> Step:
    return Step(s.form, arguments, s.results, other_thread, s.moves)


def _make_plain(steps: list[Step], still: Fails) -> list[Step]:
    for i, s in enumerate(steps):
        changes = []
        if s.other_thread:
            changes.append(_with_arguments(s, s.arguments, False))
        if s.form.text.startswith("make(") and s.arguments[0] != "plain":
            changes.append(_with_arguments(s, ("plain", *s.arguments[1:]), s.other_thread))
        changes.extend(
            _with_arguments(s, (*s.arguments[:k], 1.0, *s.arguments[k + 1 :]), s.other_thread)
            for k, a in enumerate(s.arguments)
            if type(a) is float and a != 1.0
        )
        for changed in changes:
            candidate = [*steps[:i], changed, *steps[i + 1 :]]
            if still(candidate):
                steps = candidate
    return steps


def _shrink_sizes(steps: list[Step], still: Fails) -> list[Step]:
    def sized(a: Any, size: int, n: int) -> Any:
        if type(a) is tuple:
            return tuple(n if type(x) is int and x == size else x for x in a)
        return a

    sizes = {n for s in steps for a in s.arguments if type(a) is tuple for n in a if type(n) is int}
    for size in sorted(sizes, reverse=True):
        for n in (1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 64, 256, 1024, 1025, 3072):
            if n >= size:
                break
            candidate = [
                _with_arguments(s, tuple(sized(a, size, n) for a in s.arguments), s.other_thread)
                for s in steps
            ]
            if still(candidate):
                steps = candidate
                break
    return steps


# --- Printing ----------------------------------------------------------------------------------

_HEADER = """\
import contextlib
import copy
import io
import math
import threading
from math import inf, nan
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import hologram_torch

Tensor = torch.Tensor
aten = torch.ops.aten
device = torch.device("hologram")
"""
_FOOTER = """\
def same(a, b):
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.numel():  # of any strides, and so with no bytes to see
        return True
    # One element may lie at any stride and count as contiguous: a copy has bytes side by side.
    a, b = (x.clone(memory_format=torch.contiguous_format).view(-1) for x in (a, b))
    differ = (a.view(torch.uint8) != b.view(torch.uint8)).view(-1, a.element_size()).any(-1)
    return not (differ & ~((a != a) & (b != b))).any()


looks, results = {}, {}
for mode in ("eager", "deferred"):
    looks[mode] = []
    with hologram_torch.execution(mode):
        results[mode] = program(lambda x: looks[mode].append(str(x)))
for i, (e, d) in enumerate(zip(looks["eager"], looks["deferred"])):
    print("look", i, "equal" if e == d else f"differs: {e} became {d}")
for name, e in results["eager"].items():
    d = results["deferred"][name]
    print(name, "equal" if same(e, d) else f"differs: {e} became {d}")
"""


def listing(steps: list[Step]) -> str:
    """Write the steps, one a line."""
    return "\n".join(f"{s}  # on another thread" if s.other_thread else str(s) for s in steps)


def python(steps: list[Step]) -> str:
    """Run a program, to know its errors; write it as Python that shows what differs."""
    text = listing(steps)
    helpers = [
        f for name, f in composites.NAMES.items() if f"{name}(" in text or f"({name}," in text
    ]
    used = [inspect.getsource(f) for f in helpers]
    if "make(" in text:
        used.insert(0, inspect.getsource(values.make))
    body = []
    env: Env = [None] * variables(steps)
    log: Log = []
    for s in steps:
        if any(env[v] is None for v in s.variables):
            continue
        before = len(log)
        run_step(env, s, log)
        failed = any(type(entry) is tuple for entry in log[before:])
        if failed:
            body.append("    with contextlib.suppress(Exception):")
        body.append(("        " if failed else "    ") + listing([s]))
    seed = ["    torch.manual_seed(0)"] if any(s.form.random for s in steps) else []
    left = ", ".join(
        f"'v{i}': v{i}.cpu()" for i, t in enumerate(env) if isinstance(t, torch.Tensor)
    )
    body.append(f"    return {{{left}}}")
    helpers_text = [f"\n{u}" for u in used]
    return "\n".join(
        [_HEADER, *helpers_text, "", "def program(look):", *seed, *body, "", "", _FOOTER]
    )
