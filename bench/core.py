# SPDX-License-Identifier: MIT
"""The words of the suite: sides, work, cases, goals, rows, and the registry of areas."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

SIZES = {"1K": 1_000, "10K": 10_000, "100K": 100_000, "1M": 1_000_000, "10M": 10_000_000}


def size_name(size: int) -> str:
    """Return 16, 1K, 10K ... for a number of elements."""
    return {count: name for name, count in SIZES.items()}.get(size, str(size))


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
        threads = f"{self.threads} thread{'s' if self.threads != 1 else ''}"
        return cores if self.threads == self.cores else f"{threads}, {cores}"

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
    is_cpu = torch_device.type == "cpu"
    return Side(torch_device, _nothing if is_cpu else getattr(torch, torch_device.type).synchronize)


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


def library(name: str, about: str = "") -> Any:
    """Import what may be absent."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unavailable(f"{name}{about} is not installed") from error


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

    @staticmethod
    def at_most(bound: float | None) -> Goal | None:
        """Return the goal of a row whose value is bounded, if it is."""
        return Goal(bound, "most") if bound else None

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
    """A row before it is measured: what both sides do, how that is verified, what it should reach.

    `build` makes the work of the side under test and, where `peer` is absent, of cpu. Outputs are
    compared with those of `oracle`, in float64, or with cpu's; tolerance[0] is relative,
    tolerance[1] absolute, and None picks them by dtype. `check` takes the place of that: it is
    given the outputs and who made them, and raises VerificationError. `peers` are measured beside
    the two. A side runs for `turn` seconds before the next: what is used call after call finds its
    data and code in the caches. `side` takes the place of the device under test. A row that does
    not compare times has `measure` in the place of all of these: it fills in the Row.
    """

    name: str
    build: Callable[[Side], Work] | None = None
    peer: Callable[[Side], Work] | None = None
    measure: Callable[[Row], None] | None = None
    size: int = 0
    dtype: str = "float32"
    oracle: Callable[[], Any] | None = None
    tolerance: tuple[float, float] | None = None
    check: Callable[[Any, Side], None] | None = None
    bytes: int = 0
    goal: Goal | None = None
    note: str = ""
    min_time: float | None = None
    turn: float | None = None
    group: str = ""
    unit: str = "s"
    side: Side | None = None
    peers: Sequence[Peer] = ()

    def row(self, area: str) -> Row:
        """Return the row of an area that it will fill."""
        row = Row(area, self.name, unit=self.unit, size=self.size, bytes=self.bytes)
        row.dtype = self.dtype if self.build else ""
        row.goal, row.note, row.group = self.goal, self.note, self.group
        return row


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
        low, median, high = (float(q) for q in np.quantile(values, (0.25, 0.5, 0.75)))
        return Spread(median, low, high, len(values), min(values))


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
    def is_measured(self) -> bool:
        """Tell whether it has figures: nothing was wrong, and it was not left out."""
        return not self.fault and not self.skipped

    @property
    def ratio(self) -> float:
        """How many times smaller the value is than its reference."""
        return self.ratio_to("")

    def median_of(self, peer: str) -> float:
        """What a peer took, or the row itself where none is named; NaN where it has no figure."""
        if not peer:
            return self.value
        figure = self.peers.get(peer)
        return figure.spread.median if figure and figure.spread else math.nan

    def ratio_to(self, peer: str) -> float:
        """How many times smaller the value is than a peer's, or than the reference for none.

        NaN where the peer has no figure.
        """
        theirs = self.median_of(peer) if peer else self.reference
        return theirs / self.value if self.value else math.nan

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

        def number(value: float | None) -> float:
            return math.nan if value is None else value

        def spread(value: dict[str, Any] | None) -> Spread | None:
            return Spread(**value) if value else None

        known = {f.name for f in fields(Row)}
        data = {k: v for k, v in data.items() if k in known}
        data |= {key: number(data.get(key)) for key in ("value", "reference", "limit")}
        data |= {key: spread(data.get(key)) for key in ("spread", "reference_spread")}
        data["goal"] = Goal(**data["goal"]) if data.get("goal") else None
        for peer in data.get("peers", {}).values():
            peer["spread"], peer["first_call"] = spread(peer["spread"]), number(peer["first_call"])
        data["peers"] = {name: PeerFigure(**p) for name, p in data.get("peers", {}).items()}
        return Row(**data)


def _without_nan(value: Any) -> Any:
    """Return the data with null in the place of NaN, which JSON has no word for."""
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and math.isnan(value) else value


OTHER_SECONDS = 10.0


@dataclass(frozen=True)
class Area:
    """A named group of rows: `cases` yields them for a Context, `summarize` rows about them.

    `seconds` is its part of the default run, in all settings together. Where `once` names the
    'first' or the 'last' setting, the area is measured in that one alone: what it says does not
    depend on cores, or needs all of them. `summarize` is given the good rows of one setting.
    """

    name: str
    title: str
    cases: Callable[[Any], Iterable[Case]]
    seconds: float = OTHER_SECONDS
    summarize: Callable[[list[Row]], Iterable[Row]] | None = None
    once: str = ""

    def measure(self, context: Any) -> Iterator[Row]:
        """Measure its rows and yield them."""
        found: Iterator[Row] = context.rows(self.name, self.cases(context))
        return found

    def summaries(self, rows: Sequence[Row]) -> list[Row]:
        """Return rows about its good rows among these, by setting."""
        found = []
        good = [r for r in rows if r.area == self.name and r.is_measured]
        for setting in sorted({r.setting for r in good}) if self.summarize else ():
            for row in self.summarize([r for r in good if r.setting == setting]):
                row.area, row.cores, row.threads = self.name, setting.cores, setting.threads
                found.append(row)
        return found


AREAS: dict[str, Area] = {}
Cases = Callable[[Any], Iterable[Case]]


def area(name: str, title: str, **more: Any) -> Callable[[Cases], Cases]:
    """Register the generator of cases below as the area `name`."""

    def register(cases: Cases) -> Cases:
        if name in AREAS:
            raise ValueError(f"two areas are called {name!r}")
        AREAS[name] = Area(name, title, cases, **more)
        return cases

    return register


def mean_row(name: str, ratios: Sequence[float], unit: str = "x", goal: Goal | None = None) -> Row:
    """Return a row about others: the geometric mean of their ratios."""
    return Row("", name, 1.0, geometric_mean(ratios), unit, goal=goal)


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
