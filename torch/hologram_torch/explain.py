# SPDX-License-Identifier: MIT
"""``explain``: what a call recorded, what that became, and what ran beside it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hologram_torch import _C
from hologram_torch._circuits import (
    Birth,
    BufferNames,
    Circuit,
    Named,
    merge_equal,
    read_trace,
    share,
    sum_stats,
)
from hologram_torch._names import call_text, known_buffers, named_tensors
from hologram_torch._texts import bytes_text, count_text, percent_text, time_text


@dataclass
class _Call:
    """An operator that was called while explaining."""

    name: str
    begin_ns: int
    end_ns: int
    at_once: bool  # it computed something, and recorded nothing
    fell_back: bool


@dataclass
class Explanation:
    """What one call of a function did on the device.

    ``print`` shows a table, notebooks show the drawing. ``circuits`` are in the order in which they
    ran; each has ``before`` (the recorded ops), ``after`` (the kernels) and ``stats``. ``warm``
    adds the times of later calls.
    """

    result: Any
    _again: Callable[[], Any] = field(repr=False)  # calls the function again
    ops: Counter[str] = field(default_factory=Counter)
    fallbacks: dict[str, int] = field(default_factory=dict)
    circuits: list[Circuit] = field(default_factory=list)
    name: str = ""
    ns: int = 0  # from the call to the last result
    warm_ns: int = 0  # the same of later calls, their median; 0: warm() was not called
    warm_runs: int = 0  # of how many calls
    _calls: list[_Call] = field(default_factory=list, repr=False)

    @property
    def native_ops(self) -> int:
        """Operators called that have a kernel of our own or need none."""
        return max(0, sum(self.ops.values()) - self.fallback_ops)

    @property
    def fallback_ops(self) -> int:
        """Kernels of PyTorch's CPU that ran."""
        return sum(self.fallbacks.values())

    @property
    def stats(self) -> dict[str, Any]:
        """Sums over the circuits: ops_recorded, kernels_run, bytes_moved, bytes_saved, ..."""
        warm = sum(launch.warm_ns for circuit in self.circuits for launch in circuit.launches)
        return {**sum_stats(self.circuits), "warm_kernel_ns": warm}

    def warm(self, runs: int = 5) -> Explanation:
        """Call the function again and note its times now that plans and code are made.

        It is called ``runs`` times with the arguments of the first call, and each call has its
        effects: an optimizer steps, random numbers go on. ``warm_ns`` is their median, from the
        call to the last result; each launch notes the median of its own times, unless a call
        recorded other ops than the first. Returns the explanation itself.
        """
        if runs < 1:
            raise ValueError(f"Explanation.warm: runs is {runs}; it has to be 1 or more")
        watched = [_watch(self._again) for _ in range(runs)]
        self.warm_ns, self.warm_runs = round(median(ns for _, ns in watched)), runs
        later = [read_trace(trace) for trace, _ in watched]
        ops = [c.shape.data["ops_json"] for c in self.circuits]
        alike = all([c.shape.data["ops_json"] for c in circuits] == ops for circuits in later)
        for number, circuit in enumerate(self.circuits):
            for i, launch in enumerate(circuit.launches):
                times = [circuits[number].launches[i].ns for circuits in later] if alike else [0]
                launch.warm_ns = round(median(times))
        return self

    def _time_texts(self) -> list[str]:
        """Tell how long the first call took, and those after it."""
        texts = [f"{time_text(self.ns)} with recording and planning"] if self.ns else []
        if self.warm_ns:
            of = f"median of {self.warm_runs} calls" if self.warm_runs > 1 else "one call"
            texts.append(f"{time_text(self.warm_ns)} warmed ({of})")
        return texts

    def __str__(self) -> str:
        called = f"{sum(self.ops.values())} operators on hologram"
        ran = f"{self.fallback_ops} cpu kernels ran"
        lines = [", ".join([called, ran, *self._time_texts()])]
        if self.circuits:
            lines += _circuit_lines(self.circuits)
        width = max((len(name) for name in [*self.ops, *self.fallbacks]), default=0)
        if self.ops:
            lines.append("operators called:")
        lines += [f"  {name:<{width}}  {count:>6}" for name, count in self.ops.most_common()]
        if self.fallbacks:
            lines.append("fell back to PyTorch's cpu kernels:")
            lines += [f"  {name:<{width}}  {count:>6}" for name, count in self.fallbacks.items()]
        return "\n".join(lines)

    def svg(self) -> str:
        """Draw the circuits: recorded ops on the left, the kernels they became on the right."""
        from hologram_torch._drawing import Section, Summary, draw

        shown = merge_equal(self.circuits)
        between, after = self._at_once(shown)
        sections = [
            Section(circuit, f"Circuit {i + 1}", circuit_note(circuit), text)
            for i, (circuit, text) in enumerate(zip(shown, between, strict=True))
        ]
        count = len(self.circuits)
        parts = [count_text(count, "circuit")]
        if len(shown) < count:
            parts[0] += f", {len(shown)} of them different"
        parts.append(count_text(sum(self.ops.values()), "operator") + " called")
        if self.fallbacks:
            parts.append(f"{self.fallback_ops} ran on PyTorch's cpu")
        parts += self._time_texts()
        summary = Summary(self.name or "explain", " · ".join(parts), self.stats)
        return draw(summary, sections, after)

    def save_svg(self, path: str | Path) -> None:
        """Write the drawing to a file."""
        Path(path).write_text(self.svg(), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        return f'<div style="max-width:1200px;overflow-x:auto">{self.svg()}</div>'

    def _at_once(self, shown: list[Circuit]) -> tuple[list[str], str]:
        """Tell what ran between the circuits without being recorded."""
        place = {id(c.shape): i for i, c in enumerate(shown)}
        found: list[Counter[str]] = [Counter() for _ in range(len(shown) + 1)]
        upcoming = 0
        for call in self._calls:
            while upcoming < len(self.circuits) and self.circuits[upcoming].sealed_ns < call.end_ns:
                upcoming += 1
            if not call.at_once and not call.fell_back:
                continue
            last = upcoming == len(self.circuits)
            at = len(shown) if last else place[id(self.circuits[upcoming].shape)]
            found[at][call.name + (" (PyTorch's cpu)" if call.fell_back else "")] += 1
        texts = [
            "ran at once: " + ", ".join(n if k == 1 else f"{n} ×{k}" for n, k in f.most_common())
            if f
            else ""
            for f in found
        ]
        return texts[:-1], texts[-1]


_CAUSES = {
    "flush": "a read or a synchronization",
    "size": "its size",
    "memory": "a request for memory",
    "stream": "an event or a query",
    "replay": "its replay as a graph",
}


_MAX_LISTED = 32  # circuits in a text


def circuit_note(circuit: Circuit) -> str:
    """Tell in a line what a circuit became and why it ran."""
    stats = circuit.stats
    parts = [
        f"{count_text(stats['ops_recorded'], 'op')} → {count_text(stats['kernels_run'], 'kernel')}"
    ]
    if stats["ops_without_work"]:
        parts.append(f"{stats['ops_without_work']} without work")
    if circuit.count > 1:
        parts.append(f"ran {circuit.count} times")
    parts.append(f"ended by {_CAUSES.get(circuit.cause, circuit.cause)}")
    parts.append("plan from the cache" if circuit.plan_hit else "plan made")
    if circuit.failed:
        parts.append("failed")
    return " · ".join(parts)


def _circuit_lines(circuits: list[Circuit]) -> list[str]:
    s = sum_stats(circuits)
    ops, kernels = count_text(s["ops_recorded"], "op"), count_text(s["kernels_run"], "kernel")
    ops_less = percent_text(s["operation_reduction"])
    moved, unfused = bytes_text(s["bytes_moved"]), bytes_text(s["bytes_unfused"])
    bytes_less = percent_text(share(s["bytes_moved"], s["bytes_unfused"]))
    head = f"{ops} recorded, {kernels} run ({ops_less} fewer), {moved} moved of {unfused}"
    lines = [f"{head} ({bytes_less} less), {count_text(len(circuits), 'circuit')}"]
    shown = merge_equal(circuits)
    for number, circuit in enumerate(shown[:_MAX_LISTED], 1):
        times = f" x{circuit.count}" if circuit.count > 1 else ""
        lines.append(f"circuit {number}{times}: {circuit_note(circuit).replace('→', '->')}")
        rows = [
            (
                launch.name + (f" x{len(launch.kernels)}" if len(launch.kernels) > 1 else ""),
                count_text(launch.ops, "op"),
                count_text(circuit.after[launch.kernels[0]].live_values, "value"),
                bytes_text(launch.bytes),
                time_text(launch.ns) if launch.ns else "",
                f"then {time_text(launch.warm_ns)}" if launch.warm_ns else "",
            )
            for launch in circuit.launches
        ]
        widths = [max(len(row[k]) for row in rows) for k in range(6)] if rows else []
        lines += [
            "".join(
                f"  {cell:{align}{width}}"
                for cell, align, width in zip(row, "<><>>>", widths, strict=True)
            ).rstrip()
            for row in rows
        ]
    if len(shown) > _MAX_LISTED:
        lines.append(f"... and {count_text(len(shown) - _MAX_LISTED, 'other circuit')}")
    return lines


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """Return the tensors in a structure."""
    leaves = torch.utils._pytree.tree_leaves(tree)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _is_view(func: Any) -> bool:
    return any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)


# They hand out memory, or tell something about a tensor, and compute nothing.
_IDLE = ("aten::empty", "aten::new_empty", "aten::detach", "aten::lift", "aten::resize_")


class _Recorder(TorchDispatchMode):
    """Counts operators, and notes which of the recorded ops each of them recorded."""

    def __init__(self, explanation: Explanation) -> None:
        super().__init__()
        self.explanation = explanation
        self.labels: dict[int, tuple[str, list[int] | None]] = {}
        self.births: dict[int, list[Birth]] = {}
        self.base = _C.recorder_stats()["ops_recorded"]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        before = _C.recorder_stats()["ops_recorded"]
        fallbacks = sum(_C.fallback_counts().values())
        begin = time.monotonic_ns()
        result = func(*args, **(kwargs or {}))
        end = time.monotonic_ns()
        after = _C.recorder_stats()["ops_recorded"]
        fell_back = sum(_C.fallback_counts().values()) > fallbacks
        if not any(t.device.type == "hologram" for t in tensors_of((result, args, kwargs))):
            return result
        packet, overload = func._schema.name, func._overloadname
        self.explanation.ops[packet if overload == "default" else f"{packet}.{overload}"] += 1
        self._note_births(result, (args, kwargs), packet, begin if after > before else end)
        is_dense = isinstance(result, torch.Tensor) and not result.is_nested
        shape = list(result.shape) if is_dense else None
        for op in range(before, after):
            self.labels[op - self.base] = (packet, shape)
        at_once = after == before and not _is_view(func) and not packet.startswith(_IDLE)
        self.explanation._calls.append(_Call(packet, begin, end, at_once, fell_back))
        return result

    def _note_births(self, result: Any, given: Any, packet: str, ns: int) -> None:
        """Note which memory an operator made: an id is another buffer's once its own is gone."""
        # torch.tensor() makes its memory unseen, and shows it here.
        lifted = packet == "aten::lift_fresh"
        old = {} if lifted else known_buffers(("", t) for t in tensors_of(given))
        made = known_buffers((packet, t) for t in tensors_of(result))
        for buffer, named in made.items():
            if buffer not in old:
                name = "tensor()" if lifted else packet.removeprefix("aten::") + "()"
                self.births.setdefault(buffer, []).append(Birth(ns, Named(name, named.shape)))


@contextmanager
def counting_fallbacks(into: dict[str, int]) -> Iterator[None]:
    """Add to `into` the operators that fall back meanwhile, with how often each did."""
    before = _C.fallback_counts()
    yield
    for name, count in _C.fallback_counts().items():
        if count > before.get(name, 0):
            into[name] = count - before.get(name, 0)


def _watch(call: Callable[[], Any]) -> tuple[Any, int]:
    """Call `call`; return the trace of what it ran, and the nanoseconds until all of it had run."""
    torch.hologram.synchronize()  # type: ignore[attr-defined]
    trace = _C.start_tracing()
    try:
        begin = time.monotonic_ns()
        kept = call()  # noqa: F841  (a result that dies is not computed)
        torch.hologram.synchronize()  # type: ignore[attr-defined]
        ns = time.monotonic_ns() - begin
    finally:
        traced = _C.stop_tracing(trace)
    return traced, ns


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Call ``fn(*args, **kwargs)`` and tell what ran: circuits before and after, and fallbacks.

    Everything is run before it returns. Kernels are timed one by one. The times of a first call
    include the making of plans and code: ``explain(fn).warm()`` shows those of later calls beside
    them.
    """
    again = partial(fn, *args, **kwargs)
    explanation = Explanation(None, again, name=call_text(fn, args, kwargs))
    early = known_buffers(named_tensors(fn, args, kwargs, gradients=False))
    recorder = _Recorder(explanation)
    with recorder:
        torch.empty(0)  # at its first operator a mode imports modules, for a second
    returned = 0

    def call() -> None:
        nonlocal returned
        with recorder:
            explanation.result = again()
        returned = time.monotonic_ns()

    with counting_fallbacks(explanation.fallbacks):
        traced, explanation.ns = _watch(call)
    late = known_buffers(named_tensors(fn, args, kwargs, result=explanation.result))
    names = BufferNames(early, late, recorder.births)
    explanation.circuits = read_trace(traced, names, recorder.labels)
    _name_causes(explanation, returned)
    return explanation


def _name_causes(explanation: Explanation, returned: int) -> None:
    for circuit in explanation.circuits:
        at = circuit.sealed_ns
        callers = [c.name for c in explanation._calls if c.begin_ns <= at <= c.end_ns]
        if callers:
            circuit.cause = callers[-1]
        elif circuit.cause == "flush" and at >= returned:
            circuit.cause = "the end of the call"
