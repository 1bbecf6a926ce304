# SPDX-License-Identifier: MIT
"""A run of the suite: its settings, and the way from a case to a row."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from bench.core import (
    SIZES,
    Case,
    Peer,
    PeerFigure,
    Row,
    Side,
    Spread,
    Unavailable,
    Work,
    make_side,
    tensors_of,
)
from bench.inputs import Inputs
from bench.machine import Bandwidth, cores
from bench.measure import Timing, take_turns
from bench.verify import VerificationError, verify


@dataclass
class Context:
    """What every area is given."""

    device: str = "hologram"
    quick: bool = False
    threads: list[int] = field(default_factory=lambda: sorted({1, len(cores())}))
    timing: Timing = field(default_factory=Timing)
    sizes: list[int] = field(default_factory=lambda: list(SIZES.values()))
    fastest: bool = False  # compare the fastest turns instead of the medians
    only: str = ""  # measure cases whose name contains this
    progress: Callable[[Row], None] | None = None
    bandwidth: Bandwidth = field(default_factory=lambda: Bandwidth({}))
    inputs: Inputs = field(default_factory=Inputs)
    whole: bool = True  # every row, however long that takes

    def __post_init__(self) -> None:
        self.side = make_side(self.device)
        self.cpu = make_side("cpu")

    def wants(self, name: str) -> bool:
        """Tell whether a case of that name is asked for."""
        return self.only in name

    def rows(self, area: str, make_cases: Callable[[], Iterable[Case]]) -> Iterator[Row]:
        """Verify and time cases for every number of threads, small sizes first.

        Cases come by size so that large inputs are made once and do not pile up.
        """
        cases = sorted((c for c in make_cases() if self.wants(c.name)), key=lambda c: c.size)
        for threads in self.threads:
            torch.set_num_threads(threads)
            size = -1
            for case in cases:
                if case.size != size:
                    self.inputs.clear()
                    gc.collect()
                    size = case.size
                yield self.row(area, case, threads)
        self.inputs.clear()

    def row(self, area: str, case: Case, threads: int) -> Row:
        """Verify a case, then time it; what goes wrong becomes the row's fault."""
        row = Row(
            area,
            case.name,
            size=case.size,
            dtype=case.dtype,
            threads=threads,
            bytes=case.bytes,
            flops=case.flops,
            goal=case.goal,
            note=case.note,
            group=case.group,
            limit=self.bandwidth.seconds(case.bytes, threads),
        )
        with faults_of(row):
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
            verify(case.name, outputs, want, truth, case.tolerance)
            del outputs
            others = self._peers(row, case, want, truth)
            del want, truth
            timing = self.timing.with_threads(threads)
            if case.min_time is not None and not self.quick:
                timing = replace(timing, min_time=case.min_time)
            turns = take_turns([(work, self.side), (reference, self.cpu), *others.values()], timing)
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
        return self.done(row)

    def _figure(self, spread: Spread) -> float:
        return spread.least if self.fastest else spread.median

    def _peers(self, row: Row, case: Case, want: Any, truth: Any) -> dict[str, tuple[Work, Side]]:
        """Build the peers and compare their results; who cannot take part has its reason noted."""
        found = {}
        for peer in case.peers:
            figure = row.peers[peer.name] = PeerFigure()
            try:
                found[peer.name] = self._peer(peer, figure, case, want, truth)
            except Unavailable as error:
                figure.reason = str(error)
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
            verify(f"{case.name} by {peer.name}", got, want, truth, case.tolerance)
        return work, side

    def done(self, row: Row) -> Row:
        """Show progress and pass the row on."""
        if self.progress:
            self.progress(row)
        return row


class faults_of:
    """Write an exception of the block into the row; let interrupts through."""

    def __init__(self, row: Row) -> None:
        self.row = row

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        if error is None:
            return False
        if not isinstance(error, Exception):
            return False
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
