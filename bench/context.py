# SPDX-License-Identifier: MIT
"""A run of the suite in one setting of cores, and the way from a case to a row."""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from bench.budget import BUDGET, Budget, TimeUp, time_limit
from bench.core import (
    SIZES,
    Case,
    Peer,
    PeerFigure,
    Row,
    Setting,
    Side,
    Spread,
    Unavailable,
    Work,
    make_side,
    tensors_of,
)
from bench.inputs import Inputs
from bench.machine import Bandwidth
from bench.measure import Timing, take_turns
from bench.selfcheck import check_all_run
from bench.verify import VerificationError, verify

# A row, and what measures it: writes its value, its spread, its note.
Job = tuple[Row, Callable[[Row], None]]


@dataclass
class Context:
    """What every area is given."""

    device: str = "hologram"
    quick: bool = False
    setting: Setting = field(default_factory=Setting)
    timing: Timing = field(default_factory=Timing)
    sizes: list[int] = field(default_factory=lambda: list(SIZES.values()))
    fastest: bool = False  # compare the fastest turns instead of the medians
    only: str = ""  # measure cases whose name contains this
    progress: Callable[[Row], None] | None = None
    plan: Callable[[list[Row]], None] | None = None  # told which rows come
    inputs: Inputs = field(default_factory=Inputs)
    whole: bool = True  # every row, however long that takes
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        self.side = make_side(self.device)
        self.cpu = make_side("cpu")
        self._bandwidth: Bandwidth | None = None

    @property
    def bandwidth(self) -> Bandwidth:
        """What a copy reaches with this setting; measured when it is first asked for."""
        if self._bandwidth is None:
            self._bandwidth = Bandwidth.measure(self.setting.threads)
        return self._bandwidth

    def wants(self, name: str) -> bool:
        """Tell whether a case of that name is asked for."""
        return self.only in name

    def jobs(self, jobs: Iterable[Job]) -> Iterator[Row]:
        """Measure rows one after another within the area's budget; none is dropped.

        They share what is left of it: an area has one list of jobs.
        """
        chosen = [job for job in jobs if self.wants(job[0].name)]
        if self.plan:
            self.plan([row for row, _ in chosen])
        for index, (row, measure) in enumerate(chosen):
            self.budget.rows_left = len(chosen) - index
            if self.budget.over:
                row.skipped = BUDGET
            else:
                with faults_of(row):
                    measure(row)
            yield self.done(row)

    def rows(self, area: str, make_cases: Callable[[], Iterable[Case]]) -> Iterator[Row]:
        """Verify and time cases, small sizes first.

        Cases come by size so that large inputs are made once and do not pile up.
        """
        yield from self.jobs(self.jobs_of(area, make_cases()))
        self.inputs.clear()

    def jobs_of(self, area: str, cases: Iterable[Case]) -> Iterator[Job]:
        """Turn cases into jobs, small sizes first."""
        for case in sorted(cases, key=lambda c: c.size):
            yield self._job(area, case)

    def row(self, area: str, case: Case) -> Row:
        """Return the row of one case; what goes wrong becomes its fault."""
        (row,) = self.jobs([self._job(area, case)])
        return row

    def _job(self, area: str, case: Case) -> Job:
        row = Row(
            area,
            case.name,
            size=case.size,
            dtype=case.dtype,
            bytes=case.bytes,
            flops=case.flops,
            goal=case.goal,
            note=case.note,
            group=case.group,
        )
        return row, lambda row: self._measure(row, case)

    def _measure(self, row: Row, case: Case) -> None:
        """Verify a case, then time it."""
        if self.inputs.size != case.size:
            self.inputs.clear()
            self.inputs.size = case.size
            gc.collect()
        share, began = self.budget.share, time.monotonic()
        if case.bytes:
            row.limit = self.bandwidth.seconds(case.bytes)
        work = case.build(self.side)
        reference = (case.peer or case.build)(self.cpu)
        self.side.synchronize()  # inputs are there before the first call is timed
        start = time.perf_counter()
        outputs = outputs_of(work)
        self.side.synchronize()
        row.details["first_call"] = time.perf_counter() - start
        start = time.perf_counter()
        want = outputs_of(reference)
        row.details["reference_first_call"] = time.perf_counter() - start
        truth = case.oracle() if case.oracle else None
        if case.check:
            case.check(outputs, self.side)
        else:
            verify(case.name, outputs, want, truth, case.tolerance)
        del outputs
        check_all_run(case.name, work, self.side)
        others = self._peers(row, case, want, truth)
        del want, truth
        sides = [(work, self.side), (reference, self.cpu), *others.values()]
        turns = take_turns(
            sides, self._timing(case, share - (time.monotonic() - began), len(sides))
        )
        if case.peer is not None:
            row.details["different_work"] = True
        row.spread, row.reference_spread = Spread.of(turns[0]), Spread.of(turns[1])
        row.value, row.reference = self._figure(row.spread), self._figure(row.reference_spread)
        ratio = Spread.of([b / a for a, b in zip(turns[0], turns[1])])
        row.details["ratio_quartiles"] = [ratio.low, ratio.high]
        for name, seconds in zip(others, turns[2:]):
            row.peers[name].spread = Spread.of(seconds)
        for peer in case.peers:
            spread = row.peers[peer.name].spread
            # The best turn is what the memory allows; a typical one is what it gave.
            if peer.is_limit and spread is not None:
                row.limit = spread.least

    def _timing(self, case: Case, seconds: float, sides: int) -> Timing:
        """Return how to time `sides` sides in the seconds that are left to a row."""
        timing = self.timing.with_threads(self.setting.threads)
        if case.min_time is not None and not self.quick:
            timing = replace(timing, min_time=case.min_time)
        if case.turn is not None and not self.quick:
            timing = replace(timing, batch_time=case.turn)
        return timing.within(seconds, sides)

    def _figure(self, spread: Spread) -> float:
        return spread.least if self.fastest else spread.median

    def _peers(self, row: Row, case: Case, want: Any, truth: Any) -> dict[str, tuple[Work, Side]]:
        """Build the peers and compare their results; who cannot take part has its reason noted."""
        found = {}
        for peer in case.peers:
            figure = row.peers[peer.name] = PeerFigure()
            try:
                limit = self.budget.left / 2 if peer.is_costly else math.inf
                with time_limit(limit):
                    found[peer.name] = self._peer(peer, figure, case, want, truth)
            except Unavailable as error:
                figure.reason = str(error)
            except TimeUp:
                figure.reason = BUDGET
            except Exception as error:
                kind = "" if isinstance(error, VerificationError) else f"{type(error).__name__}: "
                figure.fault = f"{kind}{first_line(error)}"
                print(
                    f"PEER {peer.name} of {row.area} / {row.name}: {figure.fault}", file=sys.stderr
                )
        return found

    @staticmethod
    def _peer(
        peer: Peer, figure: PeerFigure, case: Case, want: Any, truth: Any
    ) -> tuple[Work, Side]:
        work, side = peer.build()
        if not peer.is_limit:
            start = time.perf_counter()
            got = outputs_of(work)
            side.synchronize()
            figure.first_call = time.perf_counter() - start
            got = [
                t.reshape(w.shape) for t, w in zip(tensors_of(got), tensors_of(want), strict=True)
            ]
            if case.check:
                case.check(got, side)
            else:
                verify(f"{case.name} by {peer.name}", got, want, truth, case.tolerance)
        return work, side

    def done(self, row: Row) -> Row:
        """Write down what the row was given, show progress and pass the row on."""
        row.cores, row.threads = self.setting.cores, self.setting.threads
        if self.progress:
            self.progress(row)
        return row


class faults_of:
    """Write an exception of the block into the row; let interrupts through.

    What cannot be measured here is no fault: its reason is written down.
    """

    def __init__(self, row: Row) -> None:
        self.row = row

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        if error is None:
            return False
        if not isinstance(error, Exception):
            return False
        if isinstance(error, Unavailable):
            self.row.skipped = first_line(error)
            return True
        name = "wrong result" if isinstance(error, VerificationError) else type(error).__name__
        self.row.fault = f"{name}: {first_line(error)}"
        print(f"FAULT {self.row.area} / {self.row.name}: {self.row.fault}", file=sys.stderr)
        return True


def first_line(error: Exception) -> str:
    """Return the first line of a message, cut where it is endless."""
    return (str(error).strip().splitlines() or [""])[0][:280]


def outputs_of(work: Any) -> Any:
    """Return the results of a work that are compared."""
    return work.outputs() if work.outputs else work.run()
