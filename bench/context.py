# SPDX-License-Identifier: MIT
"""A run of the suite in one setting of cores: how a case becomes a row."""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
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
    resources: ExitStack = field(default_factory=ExitStack)  # what an area holds till its end

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

    @property
    def everything(self) -> bool:
        """Tell whether what takes very long is measured too."""
        return self.whole and not self.quick

    def rows(self, area: str, cases: Iterable[Case]) -> Iterator[Row]:
        """Measure cases one after another within the area's budget; none is dropped.

        Those that compare come by size, so that large inputs are made once and do not pile up.
        """
        with ExitStack() as self.resources:
            ordered = sorted(cases, key=lambda c: c.size if c.build else 0)
            jobs = [(c.row(area), c) for c in ordered if self.only in c.name]
            if self.plan:
                self.plan([row for row, _ in jobs])
            for index, (row, case) in enumerate(jobs):
                self.budget.rows_left = len(jobs) - index
                if self.budget.over:
                    row.skipped = BUDGET
                else:
                    with faults_of(row):
                        (case.measure or self._measure_of(case))(row)
                yield self.done(row)
        self.inputs.clear()

    def row(self, area: str, case: Case) -> Row:
        """Return the row of one case; what goes wrong becomes its fault."""
        (row,) = self.rows(area, [case])
        return row

    def done(self, row: Row) -> Row:
        """Write down what the row was given, show progress and pass the row on."""
        row.cores, row.threads = self.setting.cores, self.setting.threads
        if self.progress:
            self.progress(row)
        return row

    def _measure_of(self, case: Case) -> Callable[[Row], None]:
        return lambda row: self._measure(row, case)

    def _measure(self, row: Row, case: Case) -> None:
        """Verify a case, then time it."""
        assert case.build is not None
        if self.inputs.size != case.size:
            self.inputs.clear()
            self.inputs.size = case.size
            gc.collect()
        share, began = self.budget.share, time.monotonic()
        if case.bytes:
            row.limit = self.bandwidth.seconds(case.bytes)
        side = case.side or self.side
        work = case.build(side)
        reference = (case.peer or case.build)(self.cpu)
        side.synchronize()  # inputs are there before the first call is timed
        outputs, row.details["first_call"] = first_call(work, side)
        want, row.details["reference_first_call"] = first_call(reference, self.cpu)
        truth = case.oracle() if case.oracle else None
        if case.check:
            case.check(outputs, side)
        else:
            verify(case.name, outputs, want, truth, case.tolerance)
        del outputs
        check_all_run(case.name, work, side)
        others = self._peers(row, case, want, truth)
        del want, truth
        sides = [(work, side), (reference, self.cpu), *others.values()]
        left = share - (time.monotonic() - began)
        turns = take_turns(sides, self._timing(case).within(left, len(sides)))
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

    def _timing(self, case: Case) -> Timing:
        timing = self.timing.with_threads(self.setting.threads)
        if self.quick:
            return timing
        wished = {"min_time": case.min_time, "batch_time": case.turn}
        return replace(timing, **{k: v for k, v in wished.items() if v is not None})

    def _figure(self, spread: Spread) -> float:
        return spread.least if self.fastest else spread.median

    def _peers(self, row: Row, case: Case, want: Any, truth: Any) -> dict[str, tuple[Work, Side]]:
        """Build the peers and compare their results; who cannot take part has its reason noted."""
        found = {}
        for peer in case.peers:
            figure = row.peers[peer.name] = PeerFigure()
            try:
                with time_limit(self.budget.left / 2 if peer.is_costly else math.inf):
                    found[peer.name] = self._peer(peer, figure, case, want, truth)
            except Unavailable as error:
                figure.reason = str(error)
            except TimeUp:
                figure.reason = BUDGET
            except Exception as error:
                kind = "" if isinstance(error, VerificationError) else f"{type(error).__name__}: "
                figure.fault = f"{kind}{first_line(error)}"
                where = f"{peer.name} of {row.area} / {row.name}"
                print(f"PEER {where}: {figure.fault}", file=sys.stderr)
        return found

    @staticmethod
    def _peer(
        peer: Peer, figure: PeerFigure, case: Case, want: Any, truth: Any
    ) -> tuple[Work, Side]:
        work, side = peer.build()
        if not peer.is_limit:
            got, figure.first_call = first_call(work, side)
            pairs = zip(tensors_of(got), tensors_of(want), strict=True)
            got = [t.reshape(w.shape) for t, w in pairs]
            if case.check:
                case.check(got, side)
            else:
                verify(f"{case.name} by {peer.name}", got, want, truth, case.tolerance)
        return work, side


@contextmanager
def faults_of(row: Row) -> Iterator[None]:
    """Write an exception of the block into the row; let interrupts through.

    What cannot be measured here is no fault: its reason is written down.
    """
    try:
        yield
    except Unavailable as error:
        row.skipped = first_line(error)
    except Exception as error:
        name = "wrong result" if isinstance(error, VerificationError) else type(error).__name__
        row.fault = f"{name}: {first_line(error)}"
        print(f"FAULT {row.area} / {row.name}: {row.fault}", file=sys.stderr)


def first_line(error: Exception) -> str:
    """Return the first line of a message, cut where it is endless."""
    return (str(error).strip().splitlines() or [""])[0][:280]


def outputs_of(work: Work) -> Any:
    """Return the results of a work that are compared."""
    return work.outputs() if work.outputs else work.run()


def first_call(work: Work, side: Side) -> tuple[Any, float]:
    """Return the results of a work that are compared, and the seconds until they are there."""
    start = time.perf_counter()
    outputs = outputs_of(work)
    side.synchronize()
    return outputs, time.perf_counter() - start
