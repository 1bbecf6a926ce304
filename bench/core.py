# SPDX-License-Identifier: MIT
"""The words of the suite: sides, work, cases, goals, rows, and the registry of areas."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

SIZES = {"1K": 1_000, "10K": 10_000, "100K": 100_000, "1M": 1_000_000, "10M": 10_000_000}


def size_name(size: int) -> str:
    """Return 16, 1K, 10K ... for a number of elements."""
    for name, count in SIZES.items():
        if size == count:
            return name
    return str(size)


@dataclass(frozen=True, order=True)
class Setting:
    """What a process is given: cores, to which all its threads are pinned, and PyTorch's threads.

    A core is what the operating system calls a processor.
    """

    cores: int = 1
    threads: int = 1

    @property
    def label(self) -> str:
        """Return '1 core', '2 cores', or '1 thread, 2 cores' where a core is left to the worker."""
        cores = f"{self.cores} core{'s' if self.cores != 1 else ''}"
        if self.threads == self.cores:
            return cores
        return f"{self.threads} thread{'s' if self.threads != 1 else ''}, {cores}"

    @property
    def slug(self) -> str:
        """Return the label as a part of a file's name."""
        return self.label.replace(", ", "-").replace(" ", "-")


@dataclass(frozen=True)
class Side:
    """A device that takes part in a comparison, and how to wait for it."""

    device: torch.device
    synchronize: Callable[[], None]


def make_side(device: str) -> Side:
    """Return the side for a device by name; cpu has nothing to wait for."""
    if device.split(":")[0] == "hologram":
        import hologram_torch  # noqa: F401  (also where torch's autoload is off)
    torch_device = torch.device(device)
    if torch_device.type == "cpu":
        return Side(torch_device, _nothing)
    return Side(torch_device, getattr(torch, torch_device.type).synchronize)


def _nothing() -> None:
    pass


@dataclass
class Work:
    """What is timed on one side.

    `run` performs `ops` operations, each on its own inputs, and returns their results, so that all
    of them are alive when the runner synchronises. `outputs` computes what is compared (by default
    what `run` returns). `one` performs a single operation of those in `run` and returns its result:
    where it is given, bench/selfcheck.py makes sure that `run` runs `ops` times as much.
    """

    run: Callable[[], Any]
    ops: int = 1
    outputs: Callable[[], Any] | None = None
    one: Callable[[], Any] | None = None


class Unavailable(Exception):
    """A peer that cannot take part on this machine; the message says why."""


@dataclass(frozen=True)
class Peer:
    """Another way to do the work of a case, measured in turns with both sides.

    `build` raises Unavailable where the peer cannot run here. A limit computes something else: what
    it returns is not compared. One that is costly has to compile first, which takes seconds.
    """

    name: str
    build: Callable[[], tuple[Work, Side]]
    is_limit: bool = False
    is_costly: bool = False


@dataclass(frozen=True)
class Goal:
    """A bound that a row should meet, and where it is written down."""

    bound: float
    kind: str = "speedup"  # "speedup": ratio at least `bound`; "most": value at most `bound`
    source: str = "targets"

    def met(self, row: Row) -> bool:
        """Tell whether the row reaches the bound."""
        if self.kind == "speedup":
            return row.ratio >= self.bound
        return row.value <= self.bound

    def __str__(self) -> str:
        sign = "at least" if self.kind == "speedup" else "at most"
        unit = "x" if self.kind == "speedup" else ""
        return f"{sign} {self.bound:g}{unit} ({self.source})"


@dataclass
class Case:
    """One comparison: the same work built on two sides, checked, then timed.

    `build` makes the work of the side under test and, where `peer` is absent, of the reference.
    `oracle` computes the outputs in float64. Tolerances are per output element: tolerance[0]
    relative, tolerance[1] absolute; None picks them by dtype. `check` takes the place of all three:
    it is given the outputs and who made them, and raises VerificationError. `peers` are measured
    beside the two. A side runs for `turn` seconds before the next: what is used call after call
    finds its data and code in the caches.
    """

    name: str
    build: Callable[[Side], Work]
    size: int = 0
    dtype: str = "float32"
    peer: Callable[[Side], Work] | None = None
    oracle: Callable[[], Any] | None = None
    tolerance: tuple[float, float] | None = None
    check: Callable[[Any, Side], None] | None = None
    bytes: int = 0
    flops: int = 0
    goal: Goal | None = None
    note: str = ""
    min_time: float | None = None
    turn: float | None = None
    group: str = ""
    peers: Sequence[Peer] = ()


@dataclass
class Spread:
    """Median, quartiles, count and least of a set of measurements."""

    median: float
    low: float
    high: float
    count: int
    least: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """Summarise measurements; a single one is its own quartiles."""
        ordered = sorted(values)

        def at(share: float) -> float:
            position = share * (len(ordered) - 1)
            below = math.floor(position)
            above = min(below + 1, len(ordered) - 1)
            return ordered[below] + (ordered[above] - ordered[below]) * (position - below)

        return Spread(at(0.5), at(0.25), at(0.75), len(ordered), ordered[0])


@dataclass
class PeerFigure:
    """What a peer of a row took, or why it has no figure."""

    spread: Spread | None = None
    first_call: float = math.nan
    reason: str = ""
    fault: str = ""  # it ran and was wrong


@dataclass
class Row:
    """One line of the report: a value beside its reference, smaller being better."""

    area: str
    name: str
    value: float = math.nan
    reference: float = math.nan
    unit: str = "s"
    size: int = 0
    dtype: str = ""
    cores: int = 0
    threads: int = 0
    spread: Spread | None = None
    reference_spread: Spread | None = None
    limit: float = math.nan  # what measured memory bandwidth allows, in `unit`
    bytes: int = 0
    flops: int = 0
    goal: Goal | None = None
    note: str = ""
    group: str = ""
    fault: str = ""  # why there is no figure: a wrong result or an exception
    skipped: str = ""  # why it was not measured, though nothing is wrong
    peers: dict[str, PeerFigure] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def setting(self) -> Setting:
        """The cores and threads that the row had."""
        return Setting(self.cores, self.threads)

    @property
    def ratio(self) -> float:
        """How many times smaller the value is than its reference."""
        return self.reference / self.value if self.value else math.nan

    def ratio_to(self, peer: str) -> float:
        """How many times smaller the value is than a peer's; NaN where the peer has none."""
        figure = self.peers.get(peer)
        if figure is None or figure.spread is None or not self.value:
            return math.nan
        return figure.spread.median / self.value

    @property
    def below_goal(self) -> bool:
        """Tell whether there is a goal and it is missed (a fault misses every goal)."""
        if self.fault or self.skipped:
            return bool(self.fault)
        return self.goal is not None and not self.goal.met(self)

    def to_json(self) -> dict[str, Any]:
        """Return plain data, with the ratio for readers that do not compute it."""
        data = asdict(self)
        data["ratio"] = self.ratio
        plain: dict[str, Any] = _without_nan(data)
        return plain

    @staticmethod
    def from_json(data: dict[str, Any]) -> Row:
        """Undo `to_json`."""
        data = {k: v for k, v in data.items() if k != "ratio"}
        for key in ("value", "reference", "limit"):
            if data.get(key) is None:
                data[key] = math.nan
        for key in ("spread", "reference_spread"):
            data[key] = Spread(**data[key]) if data.get(key) else None
        data["goal"] = Goal(**data["goal"]) if data.get("goal") else None
        data["peers"] = {
            name: PeerFigure(
                Spread(**peer["spread"]) if peer["spread"] else None,
                math.nan if peer["first_call"] is None else peer["first_call"],
                peer["reason"],
                peer["fault"],
            )
            for name, peer in data.get("peers", {}).items()
        }
        return Row(**data)


def _without_nan(value: Any) -> Any:
    """Return the data with null in the place of NaN, which JSON has no word for."""
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and math.isnan(value) else value


Measure = Callable[[Any], Iterator[Row]]


@dataclass(frozen=True)
class Area:
    """A named group of measurements; `measure` yields its rows, `summarize` rows about them.

    `measure` is given a Context. Where `once` names the 'first' or the 'last' setting, the area is
    measured in that one alone: what it says does not depend on cores, or needs all of them.
    """

    name: str
    title: str
    measure: Measure
    summarize: Callable[[list[Row]], list[Row]] | None = None
    once: str = ""


AREAS: dict[str, Area] = {}


def area(
    name: str,
    title: str,
    summarize: Callable[[list[Row]], list[Row]] | None = None,
    once: str = "",
) -> Callable[[Measure], Measure]:
    """Register the generator below as the area `name`."""

    def register(measure: Measure) -> Measure:
        if name in AREAS:
            raise ValueError(f"two areas are called {name!r}")
        AREAS[name] = Area(name, title, measure, summarize, once)
        return measure

    return register


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive values; NaN for none."""
    logs = [math.log(v) for v in values if v > 0]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def tensors_of(outputs: Any) -> list[Tensor]:
    """Flatten what an op returned into tensors."""
    if isinstance(outputs, Tensor):
        return [outputs]
    if isinstance(outputs, list | tuple):
        return [t for item in outputs for t in tensors_of(item)]
    return []
