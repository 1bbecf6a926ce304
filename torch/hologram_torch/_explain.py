# SPDX-License-Identifier: MIT
"""``explain``: what a call recorded, what that became, and what ran beside it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hologram.observe._names import call_text
from hologram.observe._report import Watched, circuit_lines, draw_circuits
from hologram.observe._texts import count_text
from hologram.observe._tracing import watch
from hologram.observe.circuits import Birth, BufferNames, Circuit, Named, read_trace
from hologram_torch import _C
from hologram_torch._names import known_buffers, named_tensors


@dataclass
class _Call:
    """An operator that was called while explaining."""

    name: str
    begin_ns: int
    end_ns: int
    at_once: bool  # it computed something, and recorded nothing
    fell_back: bool


@dataclass
class Explanation(Watched):
    """What one call of a function did on the device.

    ``print`` shows a table, notebooks show the drawing. ``circuits`` are in the order in which they
    ran; each has ``before`` (the recorded ops), ``after`` (the kernels) and ``stats``. ``warm``
    adds the times of later calls.
    """

    ops: Counter[str] = field(default_factory=Counter)
    fallbacks: dict[str, int] = field(default_factory=dict)
    _calls: list[_Call] = field(default_factory=list, repr=False)

    @property
    def native_ops(self) -> int:
        """Operators called that have a kernel of our own or need none."""
        return max(0, sum(self.ops.values()) - self.fallback_ops)

    @property
    def fallback_ops(self) -> int:
        """Kernels of PyTorch's CPU that ran."""
        return sum(self.fallbacks.values())

    def _watch(self) -> tuple[dict[str, Any], int]:
        return _watch(self._again)

    def __str__(self) -> str:
        called = f"{sum(self.ops.values())} operators on hologram"
        ran = f"{self.fallback_ops} cpu kernels ran"
        lines = [", ".join([called, ran, *self._time_texts()])]
        if self.circuits:
            lines += circuit_lines(self.circuits)
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
        parts = [count_text(sum(self.ops.values()), "operator") + " called"]
        if self.fallbacks:
            parts.append(f"{self.fallback_ops} ran on PyTorch's cpu")
        parts += self._time_texts()
        name = self.name or "explain"
        return draw_circuits(name, self.circuits, parts, self.stats, self._at_once)

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


def _watch(call: Callable[[], Any]) -> tuple[dict[str, Any], int]:
    device = torch.hologram.current_device()  # type: ignore[attr-defined]
    return watch(call, torch.hologram.synchronize, device)  # type: ignore[attr-defined]


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
